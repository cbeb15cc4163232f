//! Queue in front of a transmitter.
//!
//! The configurations are those of `marcato-queue`. Here stand their keys.
//!
//! To add a discipline, write its file in `marcato-queue`, with its [`Configuration`]. Then declare
//! the keys of that configuration here, with `keyed!`, and add its row to [`Queue`].

use marcato_document::form::{Checked, Flag, Parts, Single, Small, SomeRate, SomeSize, SomeSpan, one_of};
use marcato_document::quantity::{Of, is_of, rate, size, span};
use marcato_document::schema::{Entry, Schema};
use marcato_document::{Faults, Form, Keyed, Keys, Pairs, WriteForm, WriteKeyed, keyed};
use marcato_queue::trap::TrapConfig;
use marcato_queue::{
    Admission, Aqm, Buffer, ClassConfig, CodelConfig, Configuration, CrqConfig, Discipline, DropTailConfig,
    DualPi2Config, FlowTableConfig, FqCodelConfig, Packet, PieConfig, PolicerConfig, Ppm, PushOutConfig,
    Queues, QuicRule, RedConfig, RedThresholds, StepMarkConfig, StepThreshold, YoungConfig,
};
use marcato_units::{Bytes, Duration, Rate, Stream, words};

pub use marcato_queue::Limit;

use crate::amount::{Capacity, Transmitter, amount, limit_text};
use crate::kinded::{Kinded as _, kinds, read_kind};
use crate::plugin::{Plugin, PluginKind};
use crate::traffic::Preset;
use marcato_document::{Item, quote};

kinds! {
    /// Queue discipline with its parameters.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Queue, Transmitter, fn kind, plugins Queue(Plugin), visited by Visitor:
    /// FIFO queue that drops arriving packets when it is full.
    "droptail" => DropTail(DropTailConfig),
    /// CoDel (RFC 8289).
    "codel" => Codel(CodelConfig),
    /// FQ-CoDel (RFC 8290): one CoDel queue for each of many groups of flows, served in turn.
    "fq-codel" => FqCodel(FqCodelConfig),
    /// CRQ: one queue for flows that respond to congestion signals, and one for all others.
    "crq" => Crq(Crq),
    /// FIFO queue that marks packets above a threshold (DCTCP).
    "step-mark" => StepMark(StepMarkConfig),
    /// RED (Floyd and Jacobson 1993).
    "red" => Red(RedConfig),
    /// PIE (RFC 8033).
    "pie" => Pie(PieConfig),
    /// DualPI2 (RFC 9332): a queue for L4S (ECT(1) and CE) and one for all others, marked together.
    "dualpi2" => DualPi2(DualPi2Config),
    /// Strict priority of two layers, each with its own queue. A low packet leaves only if no high
    /// one can.
    "strict" => Strict(Strict),
    /// Token bucket that drops what exceeds it, before another queue.
    "policer" => Policer(Policer),
    /// Two layers in one buffer. A high packet that finds it full displaces the last packets of the
    /// low layer.
    "push-out" => PushOut(PushOutConfig),
}

/// Reads a queue; `None` after a fault that leaves none.
pub(crate) fn queue(item: &Item, at: Transmitter, faults: &Faults) -> Option<Queue> {
    read_kind("queue", item, faults, &at)
}

/// Bytes that Ethernet's header adds to the MTU in CoDel's `maxpacket`.
const HEADER: Bytes = Bytes::new(14);

keyed! {
    DropTailConfig, "a droptail queue" kinded, |at: Transmitter|;
    /// capacity
    "limit" => limit: Capacity, or(Limit::Packets(1000));
}

keyed! {
    PushOutConfig, "a push-out queue" kinded, |at: Transmitter|;
    /// capacity of both classes together
    "limit" => limit: Capacity, or(Limit::Packets(1000));
}

/// Defaults of CoDel's parameters that depend on the discipline.
pub(crate) struct CodelDefaults {
    at: Transmitter,
    limit: Limit,
    ecn: bool,
}

impl CodelDefaults {
    const fn codel(at: Transmitter) -> Self {
        Self { at, limit: Limit::Packets(1000), ecn: false }
    }

    /// RFC 8290 §5.2.
    const fn fq_codel(at: Transmitter) -> Self {
        Self { at, limit: Limit::Packets(10_240), ecn: true }
    }
}

// RFC 8289 §4: an interval of 100 ms, a common round trip, and a target of 5 % of it.
keyed! {
    CodelConfig, "a codel queue" kinded, |of: CodelDefaults|, check codel_holds_a_packet;
    /// acceptable sojourn time
    "target" => target: SomeSpan, or(Duration::from_millis(5));
    /// time above the target before the first drop
    "interval" => interval: SomeSpan, or(Duration::from_millis(100));
    /// capacity; of fq-codel, of all queues together; of crq, of each queue
    "limit" => limit: CapacityOfCodel, or(of.limit; "`\"1000 packets\"`, fq-codel `\"10240 packets\"`");
    /// a queue with no more than this left never drops
    "maxpacket" => maxpacket: SomeSize, or(of.at.mtu + HEADER; "the link's `mtu` and 14 B");
    /// mark ECN-capable packets instead of dropping them; crq then classifies by the response to
    /// marks
    "ecn" => ecn: Flag, or(of.ecn; "`false`, fq-codel `true`");
}

/// [`Capacity`] within CoDel's parameters.
struct CapacityOfCodel;

impl Single<CodelDefaults> for CapacityOfCodel {
    type Value = Limit;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &CodelDefaults) -> Option<Limit> {
        Capacity.read_one(keys, key, &of.at)
    }

    fn toml(&self, limit: &Limit) -> String {
        Capacity.toml(limit)
    }
}

fn codel_holds_a_packet(codel: &CodelConfig, keys: &Keys<'_>, _: &CodelDefaults) {
    if let Limit::Bytes(limit) = codel.limit
        && limit < codel.maxpacket
    {
        let (limit, maxpacket) = (size(limit), size(codel.maxpacket));
        keys.fault(
            "limit",
            format!("a limit of {limit} cannot hold codel's `maxpacket` of {maxpacket}: raise it"),
        );
    }
}

impl Keyed<Transmitter> for CodelConfig {
    const ENTRIES: &'static [&'static [Entry]] = <Self as Keyed<CodelDefaults>>::ENTRIES;
    const SCHEMA: Schema = <Self as Keyed<CodelDefaults>>::SCHEMA;

    fn read(keys: &Keys<'_>, at: &Transmitter) -> Option<Self> {
        Self::read(keys, &CodelDefaults::codel(*at))
    }
}

impl WriteKeyed<Transmitter> for CodelConfig {
    fn write(&self, pairs: &mut Pairs) {
        WriteKeyed::<CodelDefaults>::write(self, pairs);
    }
}

// RFC 8290 §5.2: 1024 queues, and a quantum of a full Ethernet frame.
keyed! {
    FqCodelConfig, "an fq-codel queue" kinded, |at: Transmitter|,
    flatten codel: CodelConfig, |CodelDefaults| = CodelDefaults::fq_codel(*at);
    /// number of queues into which flows are hashed, rounded up to a power of two, at most 65536
    "flows" => flows: Small(1..=65_536), or(1024);
    /// bytes that a queue may send in its turn
    "quantum" => quantum: SomeSize, or(at.mtu + HEADER; "the link's `mtu` and 14 B");
    ..Self::default()
}

/// Parameters of congestion-responsive queuing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crq {
    /// CoDel parameters of each of the two queues, each with its own limit. Where they mark, flows
    /// are judged by their response to marks.
    pub codel: CodelConfig,
    /// Discipline of the queue for unresponsive flows.
    pub standard: Standard,
    /// Discipline of the queue for responsive flows.
    pub responsive: Responsive,
    /// Place for flows that are young or sparse.
    pub young: Option<Young>,
    /// Rules by which flows are judged.
    pub preset: Preset,
    /// Division of the link between the two queues.
    pub sharing: Sharing,
    /// Largest number of flows judged at a time, rounded up to a power of two.
    pub flows: u32,
}

keyed! {
    Crq, "a crq queue" kinded, |at: Transmitter|,
    flatten codel: CodelConfig, |CodelDefaults| = CodelDefaults::codel(*at), check crq_can_split;
    /// rules of classification: `"marcato"`, `"authors"` (their program's), `"paper"`
    "preset" => preset: one_of::<Preset>(), or(Preset::Marcato);
    /// discipline of the queue of unresponsive flows: `"codel"`, `"fq-codel"` (fairness among the
    /// flows of the queue), `"droptail"`
    "standard" => standard: one_of::<Standard>(), or(Standard::Codel);
    /// discipline of the queue of responsive flows: `"codel"`, `"fq-codel"`
    "responsive" => responsive: one_of::<Responsive>(), or(Responsive::Codel);
    /// maximum share of the link, 0 to 0.9, for flows that are young or sparse while others wait: they
    /// go first, each in an fq-codel queue. With 0 (the paper's value) every flow begins in the queue
    /// of unresponsive flows
    "young-share",
    /// bytes that a flow may send as a young one, whatever its verdict; it is young again when half
    /// of them are regained
    "young-allowance",
    /// rate at which a flow regains its allowance: a flow that sends less is always young
    "young-regain" => young: Place, or(Some(Young::DEFAULT); "`0.75`; with the presets `\"authors\"` and `\"paper\"`, or `sharing = \"split\"`, `0`", "`\"500 kB\"`", "`\"128 kbit/s\"`");
    /// `"weighted"`: half for each queue while both have packets; `"split"`: half and never more,
    /// needs a `rate`; `"strict"`: responsive flows first, except for the others' `standard-least`
    "sharing",
    /// with `sharing = "strict"`: minimum share of the link for the queue of unresponsive flows
    /// while packets wait there, 0 to 0.9. With 0 (the paper's value) the others can starve it
    "standard-least" => sharing: Shared, or(Sharing::Weighted; "`\"weighted\"`", "`0.05`");
    /// number of flows classified at once, rounded up to a power of two, at most 65536
    "flows" => flows: Small(8..=65_536), or(4096);
}

impl Crq {
    /// Returns the configuration of the discipline before a transmitter of this rate, if it has a
    /// constant one.
    pub fn config(&self, rate: Option<Rate>) -> CrqConfig {
        let codel = self.codel;
        let buffer = match codel.limit {
            Limit::Packets(packets) => Buffer::Packets(packets),
            Limit::Bytes(bytes) => Buffer::Bytes(bytes),
        };
        let CodelConfig { target, interval, ecn, .. } = codel;
        let single = Aqm::Codel { target, interval, ecn };
        let fair = Aqm::FqCodel { target, interval, ecn, flows: FqCodelConfig::default().flows };
        let class = |aqm| ClassConfig { aqm, buffer, share: 1 };
        let standard = class(match self.standard {
            Standard::Codel => single,
            Standard::FqCodel => fair,
            Standard::DropTail => Aqm::DropTail,
        });
        let responsive = class(match self.responsive {
            Responsive::Codel => single,
            Responsive::FqCodel => fair,
        });
        let young = self.young.map(|Young { share, allowance, regain }| YoungConfig {
            aqm: fair,
            buffer,
            most: share,
            allowance,
            regain,
            accounts: self.flows.max(YoungConfig::ACCOUNTS),
        });
        CrqConfig {
            // The rate matters only if the link is split, which requires a known rate.
            rate: rate.unwrap_or(Rate::ZERO),
            mtu: codel.maxpacket,
            standard,
            queues: Queues::Two {
                responsive,
                admission: if codel.ecn { Admission::Ecn } else { Admission::Loss },
            },
            young,
            sharing: match self.sharing {
                Sharing::Weighted => marcato_queue::Sharing::Weighted,
                Sharing::Split => marcato_queue::Sharing::Split { burst: codel.maxpacket },
                Sharing::Strict { least } => marcato_queue::Sharing::Strict { least },
            },
            trap: self.preset.trap(),
            quic: self.preset.quic(),
            flows: FlowTableConfig { flows: self.flows, ..FlowTableConfig::default() },
        }
    }
}

impl Preset {
    /// Returns the rules by which CRQ classifies flows.
    pub const fn trap(self) -> TrapConfig {
        match self {
            Self::Paper => TrapConfig::paper(),
            Self::Authors => TrapConfig::authors(),
            Self::Marcato => TrapConfig::marcato(),
        }
    }

    /// Returns the rule that recognises a UDP flow as QUIC.
    pub const fn quic(self) -> QuicRule {
        match self {
            // The paper and its program classify every datagram that looks like QUIC.
            Self::Paper | Self::Authors => QuicRule::FirstBit,
            Self::Marcato => QuicRule::Handshake,
        }
    }
}

fn crq_can_split(crq: &Crq, keys: &Keys<'_>, at: &Transmitter) {
    if crq.sharing == Sharing::Split && at.rate.is_none() {
        keys.fault("sharing", "only a link with a `rate` can be split: write \"weighted\" or \"strict\"");
    }
    if crq.sharing == Sharing::Split && crq.young.is_some() {
        keys.fault(
            "young-share",
            "a split link has no place for young flows: leave this out, or share by weights",
        );
    }
}

words! {
    /// Discipline of CRQ's queue for unresponsive flows.
    pub enum Standard {
        /// CoDel, with the parameters of the responsive queue.
        Codel = "codel",
        /// FQ-CoDel, with CoDel's parameters of the responsive queue.
        FqCodel = "fq-codel",
        /// Drop-tail: drops arriving packets when the queue is full.
        DropTail = "droptail",
    }
}

words! {
    /// Discipline of CRQ's queue for responsive flows.
    pub enum Responsive {
        /// CoDel.
        Codel = "codel",
        /// FQ-CoDel.
        FqCodel = "fq-codel",
    }
}

/// Place of CRQ for flows that are young or sparse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Young {
    /// Largest share of the link while others wait, in thousandths.
    pub share: u16,
    /// Bytes that a flow may send as a young one.
    pub allowance: Bytes,
    /// Rate at which a flow regains its allowance.
    pub regain: Rate,
}

impl Young {
    /// Place without keys in a file.
    pub const DEFAULT: Self =
        Self { share: YoungConfig::MOST, allowance: YoungConfig::ALLOWANCE, regain: YoungConfig::REGAIN };
}

/// Place for young flows, of three keys. Its default depends on preset and sharing.
struct Place;

impl Form<Transmitter> for Place {
    type Value = Option<Young>;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], at: &Transmitter) -> Option<Option<Young>> {
        let [share_name, allowance_name, regain_name] = *names else { return None };
        let share = LEAST.read_one(keys, share_name, at).and_then(|share| u16::try_from(share).ok());
        let is = |key: &str, word: &str| keys.item(key).and_then(Item::as_str) == Some(word);
        let papers = ["authors", "paper"].iter().any(|preset| is("preset", preset));
        let usual = if papers || is("sharing", "split") { 0 } else { Young::DEFAULT.share };
        let share = share.unwrap_or(usual);
        let allowance = keys.size_within(allowance_name, &ALLOWANCES);
        let regain = keys.some_rate(regain_name);
        if let Some(regain) = regain.filter(|&regain| regain < LEAST_REGAIN) {
            let problem =
                format!("at {} a flow never regains its allowance: set 8 kbit/s or more", rate(regain));
            keys.fault(regain_name, problem);
        }
        if share > 0 {
            let (allowance, regain) =
                (allowance.unwrap_or(Young::DEFAULT.allowance), regain.unwrap_or(Young::DEFAULT.regain));
            return Some(Some(Young { share, allowance, regain }));
        }
        for name in [allowance_name, regain_name] {
            if keys.item(name).is_some() {
                keys.fault(
                    name,
                    "there is no place for young flows here: set `young-share`, or leave this out",
                );
            }
        }
        Some(None)
    }
}

/// Allowances that can be counted.
const ALLOWANCES: std::ops::RangeInclusive<Bytes> = Bytes::new(1)..=Bytes::new(1 << 30);
/// Least rate at which a step of a millisecond regains a byte.
const LEAST_REGAIN: Rate = Rate::from_kbps(8);

impl WriteForm<Transmitter> for Place {
    fn write(&self, young: &Option<Young>, names: &[&'static str], pairs: &mut Pairs) {
        let [share_name, allowance_name, regain_name] = *names else { return };
        let share = young.map_or(0, |young| u32::from(young.share));
        pairs.raw(share_name, Single::<Transmitter>::toml(&LEAST, &share));
        if let Some(young) = young {
            pairs.text(allowance_name, size(young.allowance)).text(regain_name, rate(young.regain));
        }
    }
}

/// Division of the link between CRQ's two queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Half of the link each while both have packets; otherwise all of it.
    Weighted,
    /// Half of the link each, and never more.
    Split,
    /// Priority for responsive flows.
    Strict {
        /// Smallest share of the link for unresponsive flows, in thousandths.
        least: u16,
    },
}

impl Sharing {
    const ALL: [Self; 3] = [Self::Weighted, Self::Split, Self::Strict { least: 50 }];

    /// Returns the name used in a file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Weighted => "weighted",
            Self::Split => "split",
            Self::Strict { .. } => "strict",
        }
    }
}

/// Sharing, and the least share under strict sharing.
struct Shared;

const LEAST: Parts = Parts { of_one: 1000, range: 0.0..=0.9 };

impl Form<Transmitter> for Shared {
    type Value = Sharing;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], at: &Transmitter) -> Option<Sharing> {
        let [name, least_name] = *names else { return None };
        let least = LEAST.read_one(keys, least_name, at).and_then(|least| u16::try_from(least).ok());
        let sharing =
            keys.word(name, &Sharing::ALL.map(|one| (one.name(), one))).unwrap_or(Sharing::Weighted);
        match (sharing, least) {
            (Sharing::Strict { .. }, Some(least)) => Some(Sharing::Strict { least }),
            (Sharing::Strict { .. }, None) => Some(sharing),
            _ => {
                if keys.item(least_name).is_some() {
                    keys.fault(
                        least_name,
                        "only `sharing = \"strict\"` has a least share: give that, or leave this out",
                    );
                }
                Some(sharing)
            }
        }
    }
}

impl WriteForm<Transmitter> for Shared {
    fn write(&self, sharing: &Sharing, names: &[&'static str], pairs: &mut Pairs) {
        let [name, least_name] = *names else { return };
        pairs.text(name, sharing.name());
        if let Sharing::Strict { least } = sharing {
            pairs.raw(least_name, Single::<Transmitter>::toml(&LEAST, &u32::from(*least)));
        }
    }
}

// A threshold of 65 packets: K for 10 Gbit/s in the DCTCP paper, §3.4.
keyed! {
    StepMarkConfig, "a step-mark queue" kinded, |at: Transmitter|, check threshold_is_below_the_limit;
    /// capacity
    "limit" => limit: Capacity, or(Limit::Packets(1000));
    /// packets (`"65 packets"`) or bytes that wait, the arriving packet included, or the sojourn
    /// time (`"1 ms"`), above which a packet is marked; packets without ECN capability pass
    "threshold" => threshold: Threshold, or(StepThreshold::Packets(65));
}

/// Threshold of step marking. A span is a sojourn time here, whereas in a limit it stands for bytes.
struct Threshold;

impl Single<Transmitter> for Threshold {
    type Value = StepThreshold;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, at: &Transmitter) -> Option<StepThreshold> {
        let text = keys.item(key)?.as_str();
        if text.is_some_and(|text| is_of(text, Of::Span)) {
            return keys.some_span(key).map(StepThreshold::Sojourn);
        }
        Some(match amount(keys, key, at, Bytes::ZERO)? {
            Limit::Packets(packets) => StepThreshold::Packets(packets),
            Limit::Bytes(bytes) => StepThreshold::Bytes(bytes),
        })
    }

    fn toml(&self, threshold: &StepThreshold) -> String {
        quote(&threshold_text(*threshold))
    }
}

/// Formats a threshold of step marking as in files.
pub(crate) fn threshold_text(threshold: StepThreshold) -> String {
    match threshold {
        StepThreshold::Packets(packets) => limit_text(Limit::Packets(packets)),
        StepThreshold::Bytes(bytes) => limit_text(Limit::Bytes(bytes)),
        StepThreshold::Sojourn(sojourn) => span(sojourn),
    }
}

fn threshold_is_below_the_limit(of: &StepMarkConfig, keys: &Keys<'_>, _: &Transmitter) {
    let never = match (of.threshold, of.limit) {
        (StepThreshold::Packets(threshold), Limit::Packets(limit)) => threshold >= limit,
        (StepThreshold::Bytes(threshold), Limit::Bytes(limit)) => threshold >= limit,
        _ => false,
    };
    if never {
        keys.fault("threshold", "a threshold at or above the `limit` is never exceeded: set it below");
    }
}

keyed! {
    RedConfig, "a red queue" kinded, |at: Transmitter|;
    /// capacity
    "limit" => limit: Capacity, or(Limit::Packets(1000));
    /// average queue, in packets or bytes, below which nothing is signalled (`min_th`)
    "min-threshold",
    /// average queue at which the probability reaches its maximum (`max_th`), in the same unit
    "max-threshold" => thresholds: Thresholds, must("`\"5 packets\"`", "`\"15 packets\"`");
    /// probability of a signal at `max-threshold` (`max_p`), to a millionth
    "max-probability" => max_p: Millionths, or(Ppm::new(100_000));
    /// weight of the current queue in the average (`w_q`), to a millionth
    "weight" => w_q: Millionths, or(Ppm::new(2000));
    /// transmission time of a small packet (`s`); the average falls at this pace while the queue is
    /// empty
    "idle" => s: SomeSpan,
        or(small_packet(at); "that of 500 B at the link's `rate`; without one `\"40 us\"`");
    /// above `max-threshold` the probability rises to 1 at twice that; otherwise everything is
    /// dropped there
    "gentle" => gentle: Flag, or(true);
    /// mark ECN-capable packets below `max-threshold` instead of dropping them
    "ecn" => ecn: Flag, or(false);
}

/// Returns the transmission time of the paper's small packet.
fn small_packet(at: &Transmitter) -> Duration {
    let time = at.rate.map_or(Duration::from_micros(40), |rate| rate.transmission_time(Bytes::new(500)));
    time.max(Duration::from_nanos(1))
}

/// Both thresholds of RED.
struct Thresholds;

impl Form<Transmitter> for Thresholds {
    type Value = RedThresholds;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], at: &Transmitter) -> Option<RedThresholds> {
        let [least_name, most_name] = *names else { return None };
        let of = |key, packets| amount(keys, key, at, Bytes::ZERO).unwrap_or(Limit::Packets(packets));
        let (least, most, thresholds) = match (of(least_name, 5), of(most_name, 15)) {
            (Limit::Packets(min_th), Limit::Packets(max_th)) => {
                (min_th, max_th, RedThresholds::Packets { min_th, max_th })
            }
            (Limit::Bytes(min_th), Limit::Bytes(max_th)) => {
                (min_th.get(), max_th.get(), RedThresholds::Bytes { min_th, max_th })
            }
            _ => {
                keys.fault(
                    most_name,
                    "`min-threshold` and `max-threshold` have one unit: give packets or bytes in both",
                );
                return None;
            }
        };
        if least >= most || most > 1 << 40 {
            keys.fault(most_name, "`max-threshold` is above `min-threshold`: give at least twice that");
            return None;
        }
        Some(thresholds)
    }
}

impl WriteForm<Transmitter> for Thresholds {
    fn write(&self, thresholds: &RedThresholds, names: &[&'static str], pairs: &mut Pairs) {
        let limits = thresholds_text(*thresholds);
        for (name, limit) in names.iter().zip(limits) {
            pairs.text(name, limit);
        }
    }
}

/// Formats both thresholds of RED as in files.
pub(crate) fn thresholds_text(thresholds: RedThresholds) -> [String; 2] {
    match thresholds {
        RedThresholds::Packets { min_th, max_th } => [min_th, max_th].map(Limit::Packets),
        RedThresholds::Bytes { min_th, max_th } => [min_th, max_th].map(Limit::Bytes),
    }
    .map(limit_text)
}

/// Probability above 0, in millionths.
struct Millionths;

const MILLIONTHS: Parts = Parts { of_one: 1_000_000, range: 1e-6..=1.0 };

impl Single<Transmitter> for Millionths {
    type Value = Ppm;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, at: &Transmitter) -> Option<Ppm> {
        MILLIONTHS.read_one(keys, key, at).map(Ppm::new)
    }

    fn toml(&self, part: &Ppm) -> String {
        Single::<Transmitter>::toml(&MILLIONTHS, &part.get())
    }
}

/// Weight of PIE's controller, in thousandths per second.
const WEIGHT: Parts = Parts { of_one: 1000, range: 0.0..=10.0 };

keyed! {
    DualPi2Config, "a dualpi2 queue" kinded, |at: Transmitter|;
    /// capacity of both queues together
    "limit" => limit: Capacity, or(Limit::Packets(10_000));
    /// latency of the classic queue that the controller aims at
    "target" => target: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(15));
    /// period of the controller (`Tupdate`)
    "update" => t_update: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(16));
    /// sojourn time from which on a packet of the L4S queue is marked
    "step" => step: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(1));
    /// coupling factor `k` from the base probability to marks of the L4S queue, 1 to 16
    "coupling" => k: Small(1..=16), or(2);
    ..Self::default()
}

keyed! {
    PieConfig, "a pie queue" kinded, |at: Transmitter|;
    /// capacity
    "limit" => limit: Capacity, or(Limit::Packets(1000));
    /// reference latency (`QDELAY_REF`)
    "target" => qdelay_ref: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(15));
    /// period of the controller (`T_UPDATE`)
    "update" => t_update: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(15));
    /// length of a burst that passes after an idle time (`MAX_BURST`)
    "burst" => max_burst: Checked(SomeSpan, is_below_pies_longest), or(Duration::from_millis(150));
    /// weight of the latency's distance from the target, per second, to a thousandth
    "alpha" => alpha: WEIGHT, or(125);
    /// weight of the latency's change, per second, to a thousandth
    "beta" => beta: WEIGHT, or(1250);
    /// mark ECN-capable packets below a drop probability of 10 % instead of dropping them
    "ecn" => mark_ecnth: Marking, or(None);
    ..Self::default()
}

fn is_below_pies_longest(keys: &Keys<'_>, key: &'static str, span: &Duration) {
    if *span > Duration::from_secs(99) {
        let usual = match key {
            "burst" => 150,
            "step" => 1,
            _ => 15,
        };
        keys.fault(key, format!("`{key}` is at most 99 s, for example \"{usual} ms\""));
    }
}

/// Drop probability up to which PIE marks: that of RFC 8033 §5.1 or none.
struct Marking;

impl Single<Transmitter> for Marking {
    type Value = Option<Ppm>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &Transmitter) -> Option<Option<Ppm>> {
        keys.boolean(key).map(|marks| marks.then_some(PieConfig::MARK_ECNTH))
    }

    fn toml(&self, threshold: &Option<Ppm>) -> String {
        threshold.is_some().to_string()
    }
}

/// Policer before a queue.
#[derive(Clone, Debug, PartialEq)]
pub struct Policer {
    /// Rate at which tokens come, in bytes of IP packets.
    pub rate: Rate,
    /// Size of the bucket.
    pub burst: Bytes,
    /// Queue of packets that pass. It must have a single class, and not be CRQ.
    pub queue: Box<Queue>,
}

keyed! {
    Policer, "a policer" kinded, |at: Transmitter|, check bucket_holds_a_packet;
    /// rate in bytes of IP packets, above which packets are dropped
    "rate" => rate: SomeRate,
        need("state the rate that may pass, for example rate = \"10 Mbit/s\""; Rate::from_mbps(1));
    /// size of its token bucket, which is full at the beginning
    "burst" => burst: SomeSize, or(Bytes::kb(60));
    /// queue of packets that pass, of any kind except crq, strict and push-out
    "queue" => queue: OneClass, or(Box::default(); "droptail of 1000 packets");
}

fn bucket_holds_a_packet(policer: &Policer, keys: &Keys<'_>, at: &Transmitter) {
    if policer.burst < at.mtu {
        let (burst, mtu) = (size(policer.burst), size(at.mtu));
        keys.fault("burst", format!("a burst of {burst} lets no packet of the link's {mtu} pass: raise it"));
    }
}

/// Strict priority of two layers.
#[derive(Clone, Debug, PartialEq)]
pub struct Strict {
    /// Queue of the high layer. It must have a single class, and not be CRQ.
    pub high: Box<Queue>,
    /// Queue of the low layer. It must have a single class, and not be CRQ.
    pub low: Box<Queue>,
    /// Lets an arriving high packet interrupt the transmission of a low one, which resumes
    /// afterwards.
    ///
    /// The high layer's timing is then the same to the nanosecond as without low traffic. If not
    /// set, the low packet is finished first.
    pub preempt: bool,
}

keyed! {
    Strict, "a strict queue" kinded, |at: Transmitter|, check can_preempt;
    /// queue of the high layer, of any kind except crq, strict and push-out
    "high" => high: OneClass, or(Box::default(); "droptail of 1000 packets");
    /// queue of the low layer
    "low" => low: OneClass, or(Box::default(); "droptail of 1000 packets");
    /// a high packet interrupts a low one, which continues after it; needs a `rate`
    "preempt" => preempt: Flag, or(false);
}

fn can_preempt(strict: &Strict, keys: &Keys<'_>, at: &Transmitter) {
    if strict.preempt && at.rate.is_none() {
        keys.fault(
            "preempt",
            "only the transmitter of a link with a `rate` can be pre-empted: set a `rate`, or remove `preempt`",
        );
    }
}

/// Disciplines that have classes of their own, and cannot be a class of a strict queue, or stand
/// behind a policer.
const SEVERAL_CLASSES: [&str; 3] = ["crq", "strict", "push-out"];

/// Queue of one class.
struct OneClass;

impl Single<Transmitter> for OneClass {
    type Value = Box<Queue>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, at: &Transmitter) -> Option<Box<Queue>> {
        let item = keys.item(key)?;
        let queue = queue(item, *at, keys.faults)?;
        let kind = queue.kind();
        if SEVERAL_CLASSES.contains(&kind) {
            let mut others: Vec<&str> =
                PluginKind::Queue.built_in().filter(|one| !SEVERAL_CLASSES.contains(one)).collect();
            let last = others.pop().unwrap_or_default();
            let others = others.join(", ");
            keys.faults.add(item.place, format!("a class of a queue is {others} or {last}, not {kind}"));
        }
        Some(Box::new(queue))
    }

    fn toml(&self, queue: &Box<Queue>) -> String {
        queue.toml()
    }
}

impl Default for Queue {
    /// Returns drop-tail with 1000 packets.
    fn default() -> Self {
        Self::DropTail(DropTailConfig::default())
    }
}

impl Queue {
    /// Builds the queue. `plugin` makes those of other crates, each with a random stream.
    ///
    /// # Errors
    /// [`QueueError`] if a discipline refuses its configuration, or `plugin` fails.
    pub fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        plugin: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>> {
        self.visit(Build { site, make: plugin })
    }

    /// Returns the plug-ins among the queue and its classes.
    pub(crate) fn plugins(&self) -> Vec<&Plugin> {
        match self {
            Self::Plugin(plugin) => vec![plugin],
            Self::Strict(Strict { high, low, .. }) => [high.plugins(), low.plugins()].concat(),
            Self::Policer(Policer { queue, .. }) => queue.plugins(),
            _ => Vec::new(),
        }
    }

    /// Returns whether the queue draws random numbers. A plug-in has a random stream, and may.
    pub fn is_random(&self) -> bool {
        self.visit(Describe).is_random
    }

    /// Returns whether the queue marks ECN-capable packets; for strict priority, in either class. A
    /// plug-in may.
    pub fn marks(&self) -> bool {
        self.visit(Describe).marks
    }

    /// Returns the capacity of each buffer; several for CRQ and strict priority, none for a
    /// plug-in, whose capacity is unknown.
    pub fn limits(&self) -> Vec<Limit> {
        self.visit(Describe).limits
    }
}

/// Place of a queue that is being built.
#[derive(Clone, Copy)]
pub struct Site<'a> {
    /// Rate of the transmitter; `None` if it is infinite, or follows a trace.
    pub rate: Option<Rate>,
    /// Random stream of each class: `"high"`, which is the only one except under strict priority,
    /// and `"low"`.
    pub stream: &'a dyn Fn(&str) -> Stream,
}

impl std::fmt::Debug for Site<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Site").field("rate", &self.rate).finish_non_exhaustive()
    }
}

/// Constructor of the queues of other crates, with a random stream of each.
pub type MakePlugin<'a, P, E> = &'a dyn Fn(&Plugin, Stream) -> Result<Box<dyn Discipline<P> + Send>, E>;

/// Error returned for a queue that cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum QueueError<E> {
    /// A discipline of `marcato-queue` refuses its configuration.
    #[error("{0}")]
    Refused(Box<dyn std::error::Error + Send + Sync>),
    /// The constructor of a plug-in failed.
    #[error("{0}")]
    Plugin(E),
}

impl<E> QueueError<E> {
    fn refused(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// Properties of a queue that users need without building it.
struct Description {
    is_random: bool,
    marks: bool,
    limits: Vec<Limit>,
}

/// Table of a row of [`Queue`], from which a queue is built. Every [`Configuration`] is one.
trait Row {
    fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        plugin: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>>;

    fn describe(&self) -> Description;
}

impl<C: Configuration> Row for C {
    fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        _: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>> {
        let queue = Configuration::build(self, (site.stream)("high")).map_err(QueueError::refused)?;
        Ok(Box::new(queue))
    }

    fn describe(&self) -> Description {
        let (is_random, marks) = (Configuration::is_random(self), Configuration::marks(self));
        Description { is_random, marks, limits: vec![self.limit()] }
    }
}

impl Row for Crq {
    fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        _: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>> {
        let queue = marcato_queue::Crq::new(self.config(site.rate)).map_err(QueueError::refused)?;
        Ok(Box::new(queue))
    }

    fn describe(&self) -> Description {
        let queues = if self.young.is_some() { 3 } else { 2 };
        Description { is_random: false, marks: self.codel.ecn, limits: vec![self.codel.limit; queues] }
    }
}

impl Row for Policer {
    fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        plugin: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>> {
        let config = PolicerConfig { rate: self.rate, burst: self.burst };
        let queue = self.queue.build(site, plugin)?;
        Ok(Box::new(marcato_queue::Policer::new(config, queue).map_err(QueueError::refused)?))
    }

    fn describe(&self) -> Description {
        self.queue.visit(Describe)
    }
}

impl Row for Strict {
    fn build<P: Packet + Send + 'static, E>(
        &self,
        site: &Site<'_>,
        plugin: MakePlugin<'_, P, E>,
    ) -> Result<Box<dyn Discipline<P> + Send>, QueueError<E>> {
        let class = |queue: &Queue, name| {
            let stream = |_: &str| (site.stream)(name);
            queue.build(&Site { stream: &stream, ..*site }, plugin)
        };
        let high = class(&self.high, "high")?;
        Ok(Box::new(marcato_queue::Strict::of(high, class(&self.low, "low")?)))
    }

    fn describe(&self) -> Description {
        let [high, low] = [&self.high, &self.low].map(|class| class.visit(Describe));
        Description {
            is_random: high.is_random || low.is_random,
            marks: high.marks || low.marks,
            limits: [high.limits, low.limits].concat(),
        }
    }
}

/// Use of a queue's table, whichever type it has.
trait Visitor {
    type Output;

    fn table<R: Row>(self, table: &R) -> Self::Output;

    fn plugin(self, plugin: &Plugin) -> Self::Output;
}

/// Visitor that builds the queue.
struct Build<'a, P, E> {
    site: &'a Site<'a>,
    make: MakePlugin<'a, P, E>,
}

impl<P: Packet + Send + 'static, E> Visitor for Build<'_, P, E> {
    type Output = Result<Box<dyn Discipline<P> + Send>, QueueError<E>>;

    fn table<R: Row>(self, table: &R) -> Self::Output {
        table.build(self.site, self.make)
    }

    fn plugin(self, plugin: &Plugin) -> Self::Output {
        (self.make)(plugin, (self.site.stream)("high")).map_err(QueueError::Plugin)
    }
}

/// Visitor that describes the queue.
struct Describe;

impl Visitor for Describe {
    type Output = Description;

    fn table<R: Row>(self, table: &R) -> Description {
        table.describe()
    }

    fn plugin(self, _: &Plugin) -> Description {
        Description { is_random: true, marks: true, limits: Vec::new() }
    }
}
