//! Link with two directions between two nodes.

use marcato_document::form::{Context, Flag, Probability, Single, Size, SomeSpan, Span, Whole};
use marcato_document::quantity::rate;
use marcato_document::schema::{Entry, Schema};
use marcato_document::{
    Form, Keyed, Keys, Pairs, WriteForm, WriteKeyed, array, described, integer_of, keyed,
};
use marcato_units::{Bytes, Duration, Rate, Time, words};

use crate::amount::Transmitter;
use crate::kinded::{Kinded as _, kind_of, kinds};
use crate::limit::MAX_LIST;
use crate::queue::{Queue, queue};

/// Link between two nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Name of the link; by default its nodes' names, joined by a hyphen.
    pub name: String,
    /// Names of the nodes at its ends.
    pub between: [String; 2],
    /// Largest IP packet that passes, in either direction.
    pub mtu: Bytes,
    /// Direction from the first node to the second.
    pub there: Direction,
    /// Direction from the second node to the first.
    pub back: Direction,
    /// Changes during the run, in order of time.
    pub changes: Vec<Change>,
}

described! {
    pub(crate) SHARED: "the keys of both directions";
    /// largest IP packet that passes. Full packets of flows must fit, and acknowledgements with
    /// all their SACK blocks (80 B)
    "mtu": "`\"1500 B\"`";
    /// keys of the opposite direction that differ
    "back": "none";
    /// changes during the run: a list
    "changes": "none";
}

described! {
    pub(crate) LINK: "a link", and <Direction as Keyed<Bytes>>::ENTRIES[0], and SHARED.entries[0];
    /// name of the link
    "name": "its nodes: `a-b`";
    /// the two nodes that it joins; from the first to the second is *there*, the opposite
    /// direction is *back*
    "between": "required";
}

/// Configuration of one direction of a link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// Rate of the transmitter.
    pub rate: Capacity,
    /// Propagation delay.
    pub delay: Duration,
    /// Bytes that the link adds to each IP packet: 2 for PPP, 18 for Ethernet with its check
    /// sequence.
    pub framing: Bytes,
    /// Queue in front of the transmitter.
    pub queue: Queue,
    /// Packet loss on the wire.
    pub loss: Loss,
    /// Variation of the wire's delay; `None` for a constant delay.
    pub jitter: Option<Jitter>,
    /// Probability that a packet is duplicated, 0 to 1.
    pub duplication: f64,
    /// Clears the ECN field of each arriving packet, as some devices do.
    pub bleach_ecn: bool,
}

keyed! {
    Direction, "the way back of a link", |mtu: Bytes|;
    /// transmission rate
    "rate",
    /// instead of `rate`: a file in mahimahi's format, relative to this one. Each line holds one
    /// number and nothing else: a millisecond at which 1504 bytes may leave, `framing` included
    /// (mahimahi's is 4 B). After the last line the trace begins again
    "trace" => rate: RateOrTrace, or(Capacity::Unlimited; "infinite: the link only delays", "none");
    /// propagation delay, one way. On the path of a flow that waits for answers, some link of the
    /// round trip needs a delay, a rate or jitter
    "delay" => delay: Span, or(Duration::ZERO);
    /// bytes that the link adds to each IP packet: 18 B for Ethernet
    "framing" => framing: Size, or(Bytes::ZERO);
    /// queue before the transmitter
    "queue" => queue: QueueOf, or(Queue::default(); "droptail of 1000 packets");
    /// losses of the wire, behind the queue
    "loss" => loss: Context(kind_of::<Loss>()), or(Loss::None);
    /// variation of the delay
    "jitter" => jitter: Context(JitterOrNone), or(None);
    /// probability that a packet that is not lost is duplicated; the copy follows directly
    "duplication" => duplication: Probability, or(0.0; "`0`");
    /// whether the ECN field of each arriving packet is cleared, as some devices do
    "bleach-ecn" => bleach_ecn: Flag, or(false);
}

/// Rate or trace of a transmitter.
struct RateOrTrace;

/// Placeholder for a rate that could not be read, so that only the rate is a fault.
const MEANT: Capacity = Capacity::Rate(Rate::from_mbps(1000));

impl Form<Bytes> for RateOrTrace {
    type Value = Capacity;

    fn read(&self, keys: &Keys<'_>, names: &[&'static str], _: &Bytes) -> Option<Capacity> {
        let [rate, trace] = *names else { return None };
        match (keys.item(rate), keys.item(trace)) {
            (Some(_), Some(_)) => {
                keys.fault(trace, "a link has a `rate` or a `trace`: leave one of them out");
                Some(keys.some_rate(rate).map_or(MEANT, Capacity::Rate))
            }
            (Some(_), None) => Some(keys.some_rate(rate).map_or(MEANT, Capacity::Rate)),
            (None, Some(_)) => {
                let path = keys.string(trace).unwrap_or("?");
                if path.is_empty() {
                    keys.fault(trace, "`trace` is empty: give the path of a file, relative to this one");
                }
                Some(Capacity::Trace(path.to_owned()))
            }
            (None, None) => None,
        }
    }
}

impl WriteForm<Bytes> for RateOrTrace {
    fn write(&self, capacity: &Capacity, names: &[&'static str], pairs: &mut Pairs) {
        let [rate_name, trace] = *names else { return };
        match capacity {
            Capacity::Unlimited => {}
            Capacity::Rate(fixed) => {
                pairs.text(rate_name, rate(*fixed));
            }
            Capacity::Trace(path) => {
                pairs.text(trace, path);
            }
        }
    }
}

/// Queue of a direction. Its limits in time depend on the direction's rate.
struct QueueOf;

impl Single<Bytes> for QueueOf {
    type Value = Queue;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, mtu: &Bytes) -> Option<Queue> {
        let item = keys.item(key)?;
        // A wrong rate was reported where it was read.
        let capacity = RateOrTrace.read(&keys.silent(&keys.faults.fresh()), &["rate", "trace"], mtu);
        let rate = capacity.as_ref().and_then(Capacity::fixed);
        queue(item, Transmitter { rate, mtu: *mtu }, keys.faults)
    }

    fn toml(&self, queue: &Queue) -> String {
        queue.toml()
    }
}

impl Capacity {
    /// Returns the rate if it is constant.
    pub const fn fixed(&self) -> Option<Rate> {
        match self {
            Self::Rate(rate) => Some(*rate),
            Self::Unlimited | Self::Trace(_) => None,
        }
    }
}

/// Rate of a transmitter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Capacity {
    /// No transmission time: the link only delays.
    #[default]
    Unlimited,
    /// Constant rate.
    Rate(Rate),
    /// Transmission times of a trace in mahimahi's format, given by the file's path relative to the
    /// scenario's.
    ///
    /// Each line is a millisecond at which 1500 bytes may leave. After the last line the trace
    /// starts over.
    Trace(String),
}

/// Loss of packets on a wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent random loss of each packet.
    Random(RandomLoss),
    /// Periodic loss (every Nth packet): for 1000, the 1000th, the 2000th, and so on.
    Every(PeriodicLoss),
    /// Loss of the packets with these indexes, counted from 0 and ascending.
    Script(ScriptedLoss),
    /// Loss in bursts: a chain of two states, each with its own probability of loss.
    GilbertElliott(GilbertElliott),
}

kinds! {
    Loss, (), plain "no loss":
    "none" => None,
    "random" => Random(RandomLoss),
    "every" => Every(PeriodicLoss),
    "script" => Script(ScriptedLoss),
    "gilbert-elliott" => GilbertElliott(GilbertElliott),
}

impl Loss {
    /// Returns the model of this loss.
    ///
    /// # Errors
    /// If the parameters of bursts contradict each other.
    pub fn model(&self) -> Result<marcato_link::Loss, marcato_link::GilbertElliottError> {
        Ok(match self {
            Self::None => marcato_link::Loss::None,
            Self::Random(random) => marcato_link::Loss::Random(random.probability),
            Self::Every(every) => marcato_link::Loss::Every(every.packets),
            Self::Script(script) => marcato_link::Loss::Script(script.packets.clone()),
            Self::GilbertElliott(bursts) => {
                let chain = marcato_link::GilbertElliott::new(bursts.p, bursts.r)?;
                marcato_link::Loss::GilbertElliott(chain.losses(bursts.loss_good, bursts.loss_bad)?)
            }
        })
    }
}

/// Independent random loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RandomLoss {
    /// Probability of the loss of each packet, 0 to 1.
    pub probability: f64,
}

keyed! {
    RandomLoss, "random loss" kinded, |_of: ()|;
    /// loss probability of each packet, independently
    "probability" => probability: Probability, need("state how much is lost, for example probability = 0.01");
}

/// Periodic loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeriodicLoss {
    /// Period in packets; at least 1.
    pub packets: u64,
}

keyed! {
    PeriodicLoss, "periodic loss" kinded, |_of: ()|;
    /// period: 1000 loses the 1000th, the 2000th and so on
    "packets" => packets: Whole(1..=u64::MAX), need("state which, for example packets = 1000");
}

/// Loss of listed packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScriptedLoss {
    /// Indexes of lost packets, counted from 0 and ascending.
    pub packets: Vec<u64>,
}

keyed! {
    ScriptedLoss, "scripted loss" kinded, |_of: ()|;
    /// list of packets, counted from 0
    "packets" => packets: Indexes, need("state which, counted from 0, for example packets = [0, 10, 11]");
}

/// Ascending list of whole numbers.
struct Indexes;

impl Single<()> for Indexes {
    type Value = Vec<u64>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Vec<u64>> {
        let items = keys.list(key, MAX_LIST)?;
        let read = |item| integer_of(key, item, 0..=u64::MAX, keys.faults);
        let indexes: Vec<u64> = items.iter().filter_map(read).collect();
        if !indexes.is_sorted_by(|a, b| a < b) {
            keys.fault(key, format!("`{key}` are in order, each once: sort them"));
        }
        Some(indexes)
    }

    fn toml(&self, indexes: &Vec<u64>) -> String {
        array(indexes.iter().map(ToString::to_string))
    }
}

/// Parameters of the Gilbert–Elliott model.
///
/// A file gives either these, or the mean loss and the mean length of a burst. The latter form
/// means that everything is lost in the bad state and nothing in the good one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GilbertElliott {
    /// Probability, per packet, of a transition from the good state to the bad one.
    pub p: f64,
    /// Probability, per packet, of a transition back: the reciprocal of the mean burst length in
    /// packets.
    pub r: f64,
    /// Probability of loss in the good state.
    pub loss_good: f64,
    /// Probability of loss in the bad state.
    pub loss_bad: f64,
}

described! {
    GILBERT_ELLIOTT: "gilbert-elliott loss" kinded;
    /// probability that a packet is the first of a burst
    "p": "required, or `mean`";
    /// probability that a packet is the first after a burst
    "r": "required, or `burst`";
    /// loss probability between bursts
    "loss-good": "`0`";
    /// loss probability in a burst
    "loss-bad": "`1`";
    /// instead of `p` and `r`: the loss rate; a burst loses everything, and nothing is lost
    /// between bursts
    "mean": "none";
    /// with `mean`: mean number of packets in a burst
    "burst": "none";
}

impl Keyed for GilbertElliott {
    const ENTRIES: &'static [&'static [Entry]] = GILBERT_ELLIOTT.entries;
    const SCHEMA: Schema = GILBERT_ELLIOTT;

    fn read(keys: &Keys<'_>, _: &()) -> Option<Self> {
        let by_mean = ["mean", "burst"].iter().any(|key| keys.item(key).is_some());
        let by_chain = ["p", "r", "loss-good", "loss-bad"].iter().any(|key| keys.item(key).is_some());
        if by_mean && by_chain {
            keys.faults
                .add(keys.here(), "write `mean` and `burst`, or `p` and `r`, not some of each".to_owned());
            return None;
        }
        if by_mean {
            let there = [
                keys.need("mean", "state which share is lost, for example mean = 0.01"),
                keys.need(
                    "burst",
                    "state how many packets are lost in a row on average, for example burst = 5",
                ),
            ];
            let (mean, burst) = (keys.number("mean", 0.0..=0.99), keys.number("burst", 1.0..=1e9));
            if there != [true, true] {
                return None;
            }
            // In the chain's stationary distribution, p / (p + r) is the share of the bad state.
            let r = 1.0 / burst?;
            let p = mean? * r / (1.0 - mean?);
            if p > 1.0 {
                keys.fault(
                    "burst",
                    "bursts that short cannot lose so much: give a longer `burst` or a lower `mean`",
                );
                return None;
            }
            return Some(Self { p, r, loss_good: 0.0, loss_bad: 1.0 });
        }
        keys.need("p", "state how likely a packet is the first of a burst, for example p = 0.001");
        keys.need("r", "state how likely a packet is the first after a burst, for example r = 0.2");
        let (p, r) = (keys.probability("p"), keys.probability("r"));
        let loss_good = keys.probability("loss-good").unwrap_or(0.0);
        let loss_bad = keys.probability("loss-bad").unwrap_or(1.0);
        let (p, r) = (p?, r?);
        if p + r == 0.0 {
            keys.fault("p", "with `p` and `r` of 0 the state never changes: write `none` or `random`");
            return None;
        }
        Some(Self { p, r, loss_good, loss_bad })
    }
}

impl WriteKeyed for GilbertElliott {
    fn write(&self, pairs: &mut Pairs) {
        pairs.float("p", self.p).float("r", self.r);
        pairs.float("loss-good", self.loss_good).float("loss-bad", self.loss_bad);
    }
}

impl GilbertElliott {
    /// Returns the long-run share of packets lost.
    pub fn mean_loss(&self) -> f64 {
        let bad = self.p / (self.p + self.r);
        self.loss_bad * bad + self.loss_good * (1.0 - bad)
    }
}

/// Variation of a wire's delay, in addition to the propagation delay.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Jitter {
    /// Distribution of the delay added to each packet.
    pub added: Added,
    /// Allows packets to be reordered. If not set, a packet arrives no earlier than the one before
    /// it.
    pub reorder: bool,
}

impl Jitter {
    /// Returns the model of the random part of the delay, and the constant part that every packet
    /// has.
    pub fn model(&self) -> (marcato_link::Jitter, Duration) {
        use marcato_link::Jitter;
        let (added, always) = match self.added {
            Added::Uniform { least, most } => (Jitter::uniform(most.saturating_sub(least)), least),
            Added::Normal { mean, deviation } => (Jitter::normal(mean, deviation), Duration::ZERO),
            Added::Exponential { mean } => (Jitter::exponential(mean, Duration::MAX), Duration::ZERO),
        };
        (added.reorder(self.reorder), always)
    }
}

/// Distribution of an added delay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Uniform distribution.
    Uniform {
        /// Lower bound.
        least: Duration,
        /// Upper bound.
        most: Duration,
    },
    /// Normal distribution; negative draws count as 0.
    Normal {
        /// Mean.
        mean: Duration,
        /// Standard deviation.
        deviation: Duration,
    },
    /// Exponential distribution.
    Exponential {
        /// Mean.
        mean: Duration,
    },
}

/// Kinds of jitter, as in files.
pub(crate) enum JitterKind {
    None,
    Uniform(Uniform),
    Normal(Normal),
    Exponential(Exponential),
}

kinds! {
    JitterKind, (), plain "no jitter":
    "none" => None,
    "uniform" => Uniform(Uniform),
    "normal" => Normal(Normal),
    "exponential" => Exponential(Exponential),
}

/// Keys of uniform jitter.
pub(crate) struct Uniform {
    least: Duration,
    most: Duration,
    reorder: bool,
}

keyed! {
    Uniform, "uniform jitter" kinded, |_of: ()|, check least_is_below_most;
    /// minimum addition to the delay
    "least" => least: Span, or(Duration::ZERO);
    /// maximum addition
    "most" => most: SomeSpan, need("state how much is added to the delay at most, for example most = \"4 ms\"");
    /// whether packets may overtake each other; otherwise a packet arrives no earlier than the one
    /// before it
    "reorder" => reorder: Flag, or(false);
}

fn least_is_below_most(of: &Uniform, keys: &Keys<'_>, _: &()) {
    if of.least > of.most {
        keys.fault("least", "`least` is above `most`: swap them");
    }
}

/// Keys of normal jitter.
pub(crate) struct Normal {
    mean: Duration,
    deviation: Duration,
    reorder: bool,
}

keyed! {
    Normal, "normal jitter" kinded, |_of: ()|;
    /// mean addition
    "mean" => mean: Span,
        need("state how much is added to the delay on average, for example mean = \"2 ms\"");
    /// standard deviation; negative additions become 0
    "deviation" => deviation: SomeSpan, need("state by how much it varies, for example deviation = \"1 ms\"");
    /// as above
    "reorder" => reorder: Flag, or(false);
}

/// Keys of exponential jitter.
pub(crate) struct Exponential {
    mean: Duration,
    reorder: bool,
}

keyed! {
    Exponential, "exponential jitter" kinded, |_of: ()|;
    /// mean addition
    "mean" => mean: SomeSpan,
        need("state how much is added to the delay on average, for example mean = \"2 ms\"");
    /// as above
    "reorder" => reorder: Flag, or(false);
}

/// Jitter, or none.
struct JitterOrNone;

impl Single<()> for JitterOrNone {
    type Value = Option<Jitter>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &()) -> Option<Option<Jitter>> {
        let (added, reorder) = match kind_of::<JitterKind>().read_one(keys, key, of)? {
            JitterKind::None => return Some(None),
            JitterKind::Uniform(Uniform { least, most, reorder }) => {
                (Added::Uniform { least, most }, reorder)
            }
            JitterKind::Normal(Normal { mean, deviation, reorder }) => {
                (Added::Normal { mean, deviation }, reorder)
            }
            JitterKind::Exponential(Exponential { mean, reorder }) => (Added::Exponential { mean }, reorder),
        };
        Some(Some(Jitter { added, reorder }))
    }

    fn toml(&self, jitter: &Option<Jitter>) -> String {
        let kind = match *jitter {
            None => JitterKind::None,
            Some(Jitter { added, reorder }) => match added {
                Added::Uniform { least, most } => JitterKind::Uniform(Uniform { least, most, reorder }),
                Added::Normal { mean, deviation } => JitterKind::Normal(Normal { mean, deviation, reorder }),
                Added::Exponential { mean } => JitterKind::Exponential(Exponential { mean, reorder }),
            },
        };
        kind.toml()
    }
}

described! {
    pub(crate) CHANGE: "a change of a link";
    /// time of the change
    "at": "required";
    /// `"both"`, `"there"` or `"back"`
    "way": "`\"both\"`";
    /// new rate; `"0 bit/s"` stops the link and loses nothing
    "rate": "unchanged";
    /// whether the link is up; while it is down it loses everything
    "up": "unchanged";
    /// propagation delay of packets that begin to leave from then on; packets in flight keep
    /// theirs
    "delay": "unchanged";
    /// with `delay`: whether packets with a shorter delay overtake packets in flight, as with
    /// netem and ns-3. Otherwise they arrive no earlier than the last of these; jitter that
    /// keeps the order then does so here, too
    "reorder": "`true`";
    /// new losses of the wire; `every` and `script` count anew
    "loss": "unchanged";
    /// new queue, complete: omitted keys have their defaults. A limit in time uses the rate at
    /// that moment
    "queue": "unchanged";
}

/// Change of a link at one instant.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Time of the change.
    pub at: Time,
    /// Direction or directions that change.
    pub way: Way,
    /// New rate; `None` keeps the rate. Zero stops the link without losing packets.
    pub rate: Option<Rate>,
    /// New state, up or down; `None` keeps the state. A link that is down loses every packet.
    pub up: Option<bool>,
    /// New propagation delay; `None` keeps the delay. It applies to packets that begin to leave
    /// from then on, not to those in flight.
    pub delay: Option<Duration>,
    /// Allows packets with a shorter delay to overtake those in flight.
    pub reorder: bool,
    /// New loss; `None` keeps it.
    pub loss: Option<Loss>,
    /// New queue; `None` keeps it. Waiting packets move to the new queue.
    pub queue: Option<Queue>,
}

impl Change {
    /// Creates a change without effect at this time; `reorder` is set.
    pub const fn new(at: Time, way: Way) -> Self {
        Self { at, way, rate: None, up: None, delay: None, reorder: true, loss: None, queue: None }
    }
}

impl Way {
    /// Returns whether this is the direction there, or back, or both.
    pub const fn concerns(self, back: bool) -> bool {
        match self {
            Self::Both => true,
            Self::There => !back,
            Self::Back => back,
        }
    }
}

impl Link {
    /// Returns the changes of the direction there, or back, in order of time.
    pub fn changes_of(&self, back: bool) -> impl Iterator<Item = &Change> + Clone {
        self.changes.iter().filter(move |change| change.way.concerns(back))
    }

    /// Returns the rate of a direction after its changes up to `at`.
    pub fn rate_at(&self, back: bool, at: Time) -> Capacity {
        let until = self.changes_of(back).take_while(|change| change.at <= at);
        let first = if back { &self.back.rate } else { &self.there.rate };
        until.filter_map(|change| change.rate).last().map_or_else(|| first.clone(), Capacity::Rate)
    }
}

words! {
    /// Direction of a link.
    #[derive(Default)]
    pub enum Way {
        /// Both directions.
        #[default]
        Both = "both",
        /// First node to the second.
        There = "there",
        /// Second node to the first.
        Back = "back",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_change_of_its_direction() {
        let change = |millis, way, mbps| Change {
            way,
            rate: Some(Rate::from_mbps(mbps)),
            ..Change::new(Time::from_millis(millis), way)
        };
        let changes = vec![change(10, Way::There, 2), change(20, Way::Both, 3), change(30, Way::Back, 4)];
        let direction = Direction { rate: Capacity::Rate(Rate::from_mbps(1)), ..Direction::default() };
        let link = Link {
            name: "a-b".to_owned(),
            between: ["a".to_owned(), "b".to_owned()],
            mtu: Bytes::new(1500),
            there: direction.clone(),
            back: direction,
            changes,
        };
        let rates = |back| {
            let at = [9, 10, 20, 30].map(Time::from_millis);
            at.map(|at| link.rate_at(back, at).fixed().map(|rate| rate.as_bps() / 1_000_000))
        };
        assert_eq!(rates(false), [1, 2, 3, 3].map(Some));
        assert_eq!(rates(true), [1, 1, 3, 4].map(Some));
        assert_eq!((link.changes_of(false).count(), link.changes_of(true).count()), (2, 2));
    }
}
