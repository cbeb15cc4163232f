//! Congestion-responsive queuing: flows that answer congestion signals are served apart from those that do not.
//!
//! References: CRQ §III-B (two queues, assignment, inertia), §IV-A (equal shares, buffers of one BDP), §V (three queues,
//! larger shares, sizes by fill rate); RFC 8289 (CoDel).
//!
//! # Where this leaves the paper
//!
//! - **It conserves work** by default: a queue takes what the other leaves. [`Sharing::Split`] is the paper's hard split.
//! - **Strict priority has a guard.** CRQ §III-B4 names strict priority as an option. Responsive flows that fill the link would
//!   then starve the standard queue, in which every new flow begins. So [`Sharing::Strict`] has a least share for that
//!   queue; 0 is the paper's option.
//! - **It fails open.** What cannot be assessed (another protocol, a fragment, a flow that finds the table full, QUIC
//!   without a spin bit) is served by the standard queue as any other packet.
//! - **QUIC** is what began with long headers of a version that is known, in both directions ([`QuicRule`]). A flow that is
//!   first seen after its handshake, because it moved to another address or because this queue was set up later, cannot
//!   be told from other UDP, and is not assessed: it begins anew in the standard queue.
//! - A flow that changes its queue may be overtaken by itself: by as many packets as it has waiting in the old queue. How
//!   many were is [counted](FlowReport::overtaken).

use marcato_units::{Bytes, Duration, Rate, Time};
use marcato_wire::{Ecn, QuicHeader, Transport};

use crate::flow_table::{FlowTable, Place};
use crate::trap::{Scores, Signal, Stamp, Trap, TrapConfig, TrapError, TrapKind, Verdict as Judgement};
use crate::{
    Backlog, Codel, CodelConfig, CodelError, Counters, Discipline, DropTail, DropTailConfig, FlowKey,
    FlowTableConfig, FlowTableCounters, FlowTableError, Limit, LimitError, Packet, Tally, Verdict,
};

/// A queue of [`Crq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// For all that has not shown a response.
    Standard,
    /// For responsive flows; with three queues, for those that answer loss.
    Responsive,
    /// With three queues, for flows that answer marks.
    EcnResponsive,
}

impl Class {
    /// All of them; with two queues, the last is never used.
    pub const ALL: [Self; 3] = [Self::Standard, Self::Responsive, Self::EcnResponsive];
}

/// What decides within a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Aqm {
    /// First in, first out.
    DropTail,
    /// CoDel. Its buffer, its largest packet and its limit come from [`ClassConfig`] and [`CrqConfig`].
    Codel {
        /// The sojourn time that is acceptable.
        target: Duration,
        /// How long it must be exceeded.
        interval: Duration,
        /// Mark instead of drop.
        ecn: bool,
    },
}

/// How much may wait in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Buffer {
    /// So many packets.
    Packets(u64),
    /// So many bytes.
    Bytes(Bytes),
    /// What the queue's share of the link carries in this round-trip time. CRQ §IV-A.
    Bdp(Duration),
    /// What came to the queue in the last spans of this length, but at least and at most so much. CRQ §V.
    FillRate {
        /// The span.
        span: Duration,
        /// The least.
        least: Bytes,
        /// The most.
        most: Bytes,
    },
}

/// A queue of [`CrqConfig`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassConfig {
    /// What decides within it.
    pub aqm: Aqm,
    /// How much may wait.
    pub buffer: Buffer,
    /// Its part of the link, in relation to the other queues' shares.
    pub share: u16,
}

/// Which verdict leads into the responsive queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Admission {
    /// That on loss.
    Loss,
    /// That on marks.
    Ecn,
    /// Either.
    Any,
}

/// The queues besides the standard one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Queues {
    /// One. CRQ §III-B.
    Two {
        /// The responsive queue.
        responsive: ClassConfig,
        /// Whom it is for.
        admission: Admission,
    },
    /// One for flows that answer loss and one for flows that answer marks, which come first. CRQ §V.
    Three {
        /// For those that answer loss only.
        loss: ClassConfig,
        /// For those that answer marks.
        ecn: ClassConfig,
    },
}

/// How the queues share the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharing {
    /// By their shares while both have packets; otherwise one has all.
    Weighted,
    /// Each has its share and never more, whether others have packets or not: what CRQ's prototype came to.
    Split {
        /// What a queue may send at once after it was late or idle. At least one packet.
        burst: Bytes,
    },
    /// Responsive queues first, ECN before loss; the standard queue has what they leave, and at least its share. CRQ
    /// §III-B4.
    Strict {
        /// Least share of the link for the standard queue while packets wait in it, in thousandths, below 1000.
        ///
        /// With 0, as in the paper, responsive flows that fill the link starve all others, new flows included.
        least: u16,
    },
}

impl Sharing {
    /// Default of [`Strict`](Self::Strict)'s `least`: 5 % of the link.
    pub const STANDARD_LEAST: u16 = 50;
}

/// What makes a UDP flow QUIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QuicRule {
    /// Every datagram whose first two bits are 01. So does CRQ's prototype; it also takes iperf3's UDP for QUIC.
    FirstBit,
    /// A long header of a known version was seen from the flow's sender: where only one direction passes.
    Version,
    /// Long headers of a known version were seen in both directions.
    Handshake,
}

/// How a [`Crq`] is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CrqConfig {
    /// The link's rate: for [`Buffer::Bdp`] and [`Sharing::Split`] alone.
    pub rate: Rate,
    /// The link's MTU with its header. RFC 8289 calls it `maxpacket`.
    pub mtu: Bytes,
    /// The standard queue.
    pub standard: ClassConfig,
    /// The others.
    pub queues: Queues,
    /// How they share the link.
    pub sharing: Sharing,
    /// By which rules flows are judged.
    pub trap: TrapConfig,
    /// What makes a UDP flow QUIC.
    pub quic: QuicRule,
    /// How many flows are assessed.
    pub flows: FlowTableConfig,
}

impl CrqConfig {
    /// CRQ with CoDel at its default target and interval in both queues, equal shares of a link of `rate`, buffers of one
    /// BDP at `rtt`, that conserves work and judges by [`TrapConfig::marcato`]: by marks with `ecn`, else by loss.
    pub fn new(rate: Rate, rtt: Duration, ecn: bool) -> Self {
        let codel = CodelConfig::default();
        let class = ClassConfig {
            aqm: Aqm::Codel { target: codel.target, interval: codel.interval, ecn },
            buffer: Buffer::Bdp(rtt),
            share: 1,
        };
        Self {
            rate,
            mtu: codel.maxpacket,
            standard: class,
            queues: Queues::Two {
                responsive: class,
                admission: if ecn { Admission::Ecn } else { Admission::Loss },
            },
            sharing: Sharing::Weighted,
            trap: TrapConfig::marcato(),
            quic: QuicRule::Handshake,
            flows: FlowTableConfig::default(),
        }
    }
}

/// Why a [`CrqConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrqError {
    /// The rules cannot work.
    #[error(transparent)]
    Trap(#[from] TrapError),
    /// The table of flows cannot work.
    #[error(transparent)]
    Flows(#[from] FlowTableError),
    /// A queue's buffer lets nothing in, or no packet of the largest size.
    #[error("the {class:?} queue: {error}")]
    Buffer {
        /// Which queue.
        class: Class,
        /// Why.
        #[source]
        error: LimitError,
    },
    /// A queue's CoDel cannot work.
    #[error("the {class:?} queue: {error}")]
    Codel {
        /// Which queue.
        class: Class,
        /// Why.
        #[source]
        error: CodelError,
    },
    /// A queue has no share.
    #[error("the {0:?} queue has a share of 0 and would never send: give it 1 or more")]
    ZeroShare(Class),
    /// A queue's part of the link is nothing, so that it has no BDP and cannot be split.
    #[error("the {0:?} queue's share of the rate is 0 bit/s: set the link's rate")]
    ZeroRate(Class),
    /// A buffer by fill rate measures over no time, or may hold less than nothing.
    #[error("the {0:?} queue: a buffer by fill rate needs a span, such as 100 ms, and least <= most")]
    FillRate(Class),
    /// A buffer by fill rate may be too small for a packet after a span without any.
    #[error(
        "the {class:?} queue: after an idle span a least buffer of {least} holds no packet of {mtu}: set `least` to that or more"
    )]
    FillRateLeast {
        /// The queue.
        class: Class,
        /// The configured least.
        least: Bytes,
        /// The largest packet.
        mtu: Bytes,
    },
    /// The standard queue's guaranteed share leaves no priority to others.
    #[error(
        "a least share of {0} thousandths leaves responsive flows nothing: set it below 1000, such as 50"
    )]
    Least(u16),
    /// A split queue may never send a packet.
    #[error("a burst of {burst} is less than a packet of {mtu}: allow at least that")]
    Burst {
        /// The burst.
        burst: Bytes,
        /// The largest packet.
        mtu: Bytes,
    },
}

/// A packet in a queue, and what it takes to tell its flow's trap of its fate.
#[derive(Clone, Debug)]
struct Queued<P> {
    packet: P,
    place: Option<Place>,
    /// The how-manieth of its flow it is, modulo 2^32.
    order: u32,
    stamp: Stamp,
    /// Whether this queue marked it.
    marked: bool,
}

impl<P: Packet> Packet for Queued<P> {
    fn len(&self) -> Bytes {
        self.packet.len()
    }
    fn flow(&self) -> FlowKey {
        self.packet.flow()
    }
    fn ecn(&self) -> Ecn {
        self.packet.ecn()
    }
    fn mark_ce(&mut self) {
        self.marked = true;
        self.packet.mark_ce();
    }
    fn layer(&self) -> marcato_units::Layer {
        self.packet.layer()
    }
}

/// One of the disciplines that a class may have.
#[derive(Clone, Debug)]
enum Queue<P> {
    DropTail(DropTail<Queued<P>>),
    Codel(Codel<Queued<P>>),
}

impl<P: Packet> Queue<P> {
    /// Neither discipline drops what waits to make room.
    fn enqueue(&mut self, now: Time, packet: Queued<P>) -> Verdict<Queued<P>> {
        match self {
            Self::DropTail(queue) => queue.enqueue(now, packet),
            Self::Codel(queue) => queue.enqueue(now, packet),
        }
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Queued<P>)) -> Option<Queued<P>> {
        match self {
            Self::DropTail(queue) => queue.dequeue_with(now, on_drop),
            Self::Codel(queue) => queue.dequeue_with(now, on_drop),
        }
    }

    fn backlog(&self) -> Backlog {
        match self {
            Self::DropTail(queue) => queue.backlog(),
            Self::Codel(queue) => queue.backlog(),
        }
    }
}

/// A buffer whose size follows what comes.
#[derive(Clone, Copy, Debug)]
struct FillRate {
    /// In nanoseconds.
    span: u64,
    least: u64,
    most: u64,
    /// Since when `arrived` is counted.
    since: Time,
    arrived: u64,
    /// What arrives in a span, smoothed.
    smoothed: u64,
}

impl FillRate {
    /// Takes note of `len` bytes, and says how many bytes may wait.
    fn arrive(&mut self, now: Time, len: Bytes) -> u64 {
        let spans = now.as_nanos().saturating_sub(self.since.as_nanos()) / self.span;
        if spans > 0 {
            // Spans in which nothing came count as half of the way to nothing each.
            self.smoothed = u64::midpoint(self.smoothed, self.arrived);
            self.smoothed >>= (spans - 1).min(63);
            self.arrived = 0;
            self.since =
                Time::from_nanos(self.since.as_nanos().saturating_add(spans.saturating_mul(self.span)));
        }
        self.arrived = self.arrived.saturating_add(len.get());
        self.smoothed.clamp(self.least, self.most)
    }
}

#[derive(Clone, Debug)]
struct Served<P> {
    queue: Queue<P>,
    fill_rate: Option<FillRate>,
    counters: Counters,
    /// Weighted: how far the class is ahead of the link's virtual time, which is bytes sent over the share, in a unit of
    /// its own.
    lead: u64,
    /// How much of that unit a byte is.
    per_byte: u64,
    /// Split: when the next packet may leave.
    ready: Time,
    /// Split: the class's part of the link.
    rate: Rate,
    /// Split: how far `ready` may lag behind.
    slack: u64,
}

/// What [`Crq`] keeps of a flow: first what every packet needs, last what few do.
#[derive(Clone, Debug, Default)]
#[repr(C)]
struct Flow {
    /// How many of its packets came, modulo 2^32.
    order: u32,
    /// The order of the latest packet that left.
    left: u32,
    enqueued: Tally,
    /// Whether a long header of a known version was seen from its sender, and from the other host.
    greeted: [bool; 2],
    class: Option<Class>,
    trap: Option<Trap>,
    dropped: u64,
    marked: u64,
    changes: u32,
    overtaken: u32,
}

/// What [`Crq`] knows of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowReport {
    /// The flow.
    pub flow: FlowKey,
    /// What it is taken for; `None` if it is not assessed.
    pub kind: Option<TrapKind>,
    /// Whether it answers loss.
    pub loss: Judgement,
    /// Whether it answers marks.
    pub ecn: Judgement,
    /// In how many cycles it was under which verdict.
    pub scores: Scores,
    /// The queue that its last packet went to.
    pub class: Class,
    /// What came of it, those packets included that were then dropped.
    pub enqueued: Tally,
    /// How many of its packets were dropped here.
    pub dropped: u64,
    /// How many were marked here.
    pub marked: u64,
    /// How often it changed its queue.
    pub changes: u32,
    /// How many of its packets left after one that had come later.
    pub overtaken: u32,
    /// How long its loop is taken to be; zero if that is not known.
    pub loop_length: Duration,
}

impl Flow {
    fn report(&self, flow: FlowKey) -> FlowReport {
        let verdict =
            |signal| self.trap.as_ref().map_or(Judgement::Unclassified, |trap| trap.verdict(signal));
        FlowReport {
            flow,
            kind: self.trap.as_ref().map(Trap::kind),
            loss: verdict(Signal::Loss),
            ecn: verdict(Signal::Ecn),
            scores: self.trap.as_ref().map_or_else(Scores::default, |trap| *trap.scores()),
            class: self.class.unwrap_or(Class::Standard),
            enqueued: self.enqueued,
            dropped: self.dropped,
            marked: self.marked,
            changes: self.changes,
            overtaken: self.overtaken,
            loop_length: self.trap.as_ref().map_or(Duration::ZERO, Trap::loop_length),
        }
    }
}

/// What one of the queues has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassStats {
    /// What came and what became of it.
    pub counters: Counters,
    /// What waits.
    pub backlog: Backlog,
}

/// What [`Crq`] has done besides what [`Counters`] tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CrqStats {
    /// What came of flows under each verdict on loss: unclassified, responsive, unresponsive.
    pub by_loss: [Tally; 3],
    /// The same by the verdict on marks.
    pub by_ecn: [Tally; 3],
    /// What came of traffic that cannot be assessed: other protocols, fragments, UDP that is not QUIC, and flows for
    /// which the table had no place. It is counted under unclassified as well.
    pub unassessed: Tally,
    /// How often a flow changed its queue.
    pub changes: u64,
    /// How many packets left after one of their flow that had come later.
    pub overtaken: u64,
}

/// Congestion-responsive queuing.
///
/// Packets must tell their [`transport`](Packet::transport), and packets that pass the other way must be
/// [shown](Discipline::observe): without the former nothing is assessed, without the latter no TCP and, by
/// [`QuicRule::Handshake`], no QUIC is.
#[derive(Clone, Debug)]
pub struct Crq<P> {
    classes: [Option<Served<P>>; 3],
    queues: Queues,
    sharing: Sharing,
    trap: TrapConfig,
    quic: QuicRule,
    flows: FlowTable<Flow>,
    /// Strict: what the standard queue may send before others, in thousandths of a byte; negative after it did.
    owed: i64,
    backlog: Backlog,
    counters: Counters,
    stats: CrqStats,
}

/// Virtual time advances by 2^12 per byte that a class with all the shares sends.
const VIRTUAL_SHIFT: u32 = 12;
/// The whole link, in thousandths.
const WHOLE: u16 = 1000;
/// A packet counts for no more bytes than this where the queues share the link, so that sums cannot overflow.
const LONGEST: u64 = 1 << 32;

impl<P: Packet> Crq<P> {
    /// Empty queues.
    ///
    /// # Errors
    /// [`CrqError`] if the configuration could not work.
    pub fn new(config: CrqConfig) -> Result<Self, CrqError> {
        let (responsive, ecn) = match config.queues {
            Queues::Two { responsive, .. } => (responsive, None),
            Queues::Three { loss, ecn } => (loss, Some(ecn)),
        };
        let shares = u64::from(config.standard.share)
            + u64::from(responsive.share)
            + ecn.map_or(0, |class| u64::from(class.share));
        if let Sharing::Strict { least } = config.sharing
            && least >= WHOLE
        {
            return Err(CrqError::Least(least));
        }
        let class = |class: Class, of: ClassConfig| Served::new(&config, class, of, shares);
        Ok(Self {
            classes: [
                Some(class(Class::Standard, config.standard)?),
                Some(class(Class::Responsive, responsive)?),
                ecn.map(|ecn| class(Class::EcnResponsive, ecn)).transpose()?,
            ],
            queues: config.queues,
            sharing: config.sharing,
            trap: config.trap.checked()?,
            quic: config.quic,
            flows: FlowTable::new(config.flows)?,
            owed: 0,
            backlog: Backlog::default(),
            counters: Counters::default(),
            stats: CrqStats::default(),
        })
    }

    /// What one of the queues has done; `None` if there is no such queue.
    pub fn class(&self, class: Class) -> Option<ClassStats> {
        let served = self.classes[class as usize].as_ref()?;
        Some(ClassStats { counters: served.counters, backlog: served.queue.backlog() })
    }

    /// What was done besides queuing.
    pub const fn stats(&self) -> &CrqStats {
        &self.stats
    }

    /// What the table of flows has done.
    pub const fn table(&self) -> &FlowTableCounters {
        self.flows.counters()
    }

    /// What is known of a flow, if it is in the table.
    pub fn flow(&self, flow: FlowKey) -> Option<FlowReport> {
        Some(self.flows.get(self.flows.find(flow)?)?.report(flow))
    }

    /// What is known of all flows in the table, in an order that is the same in every run.
    pub fn flows(&self) -> impl Iterator<Item = FlowReport> {
        self.flows.iter().map(|(key, flow)| flow.report(key))
    }

    /// Assesses a packet of the flow's own direction that comes at `now`.
    fn assess(&mut self, now: Time, packet: P) -> (Class, Queued<P>) {
        let (len, transport) = (packet.len(), packet.transport());
        let mut queued = Queued { packet, place: None, order: 0, stamp: Stamp::default(), marked: false };
        let place = match transport {
            Transport::Opaque => None,
            Transport::Tcp(_) | Transport::Udp { .. } => self.flows.enter(now, queued.packet.flow()),
        };
        let Some((place, flow)) = place.and_then(|place| Some((place, self.flows.get_mut(place)?))) else {
            self.stats.by_loss[0].count(len);
            self.stats.by_ecn[0].count(len);
            self.stats.unassessed.count(len);
            return (Class::Standard, queued);
        };
        flow.order = flow.order.wrapping_add(1);
        flow.enqueued.count(len);
        queued.place = Some(place);
        queued.order = flow.order;
        flow.recognise(self.quic, &transport);
        let mut verdicts = [Judgement::Unclassified; 2];
        let mut class = Class::Standard;
        if let Some(trap) = &mut flow.trap {
            trap.forward(&self.trap, now, &transport);
            queued.stamp = trap.stamp();
            verdicts = Signal::ALL.map(|signal| trap.verdict(signal));
            class = choose(self.queues, verdicts);
            if flow.class.is_some_and(|before| before != class) {
                // CRQ §III-B3.
                trap.changed_queue(&self.trap);
                flow.changes = flow.changes.saturating_add(1);
                self.stats.changes += 1;
            }
        } else {
            self.stats.unassessed.count(len);
        }
        flow.class = Some(class);
        self.stats.by_loss[verdicts[0] as usize].count(len);
        self.stats.by_ecn[verdicts[1] as usize].count(len);
        (class, queued)
    }

    /// The class that sends next at `now`, if one may.
    fn next(&self, now: Time) -> Option<usize> {
        let waiting = |&class: &usize| {
            self.classes[class].as_ref().is_some_and(|served| !served.queue.backlog().is_empty())
        };
        // Where all is equal, ECN-responsive flows go before loss-responsive ones, and those before others.
        let classes = || (0..self.classes.len()).rev().filter(waiting);
        match self.sharing {
            Sharing::Strict { .. } => {
                let standard = Class::Standard as usize;
                if self.owed > 0 && waiting(&standard) { Some(standard) } else { classes().next() }
            }
            Sharing::Weighted => {
                classes().min_by_key(|&class| self.classes[class].as_ref().map_or(0, |served| served.lead))
            }
            Sharing::Split { .. } => {
                classes().filter(|&class| self.ready(class) <= now).min_by_key(|&class| self.ready(class))
            }
        }
    }

    /// Accounts for `len` bytes that `class` sent at `now`.
    fn charge(&mut self, now: Time, class: usize, len: Bytes) {
        let standard = Class::Standard as usize;
        let waits = |class: usize| {
            self.classes[class].as_ref().is_some_and(|served| !served.queue.backlog().is_empty())
        };
        let bytes = len.get().min(LONGEST);
        match self.sharing {
            Sharing::Weighted => {
                // The link's virtual time moves up to that of the class that sent. A class that is behind, which none is
                // but while it is idle, has saved nothing up.
                let passed = self.classes[class].as_ref().map_or(0, |served| served.lead);
                for served in self.classes.iter_mut().flatten() {
                    served.lead = served.lead.saturating_sub(passed);
                }
                if let Some(served) = &mut self.classes[class] {
                    served.lead = bytes.saturating_mul(served.per_byte);
                }
            }
            Sharing::Split { .. } => {
                let Some(served) = &mut self.classes[class] else { return };
                let earliest = now.as_nanos().saturating_sub(served.slack);
                let from = served.ready.as_nanos().max(earliest);
                let time = u64::try_from(served.rate.transmission_time(len).as_nanos()).unwrap_or(u64::MAX);
                served.ready = Time::from_nanos(from.saturating_add(time));
            }
            Sharing::Strict { least } => {
                // At most 2^32 bytes times 1000 at once, which turns the sign: the sum stays within that, both ways.
                let of = |share: u16| i64::try_from(bytes * u64::from(share)).unwrap_or(i64::MAX);
                if class != standard {
                    self.owed = self.owed.saturating_add(of(least));
                    if !waits(standard) {
                        // An idle queue has saved nothing up.
                        self.owed = self.owed.min(0);
                    }
                } else if (0..self.classes.len()).any(|other| other != standard && waits(other)) {
                    self.owed = self.owed.saturating_sub(of(WHOLE - least));
                }
            }
        }
    }

    fn ready(&self, class: usize) -> Time {
        self.classes[class].as_ref().map_or(Time::MAX, |served| served.ready)
    }
}

/// The queue for a flow under these verdicts on loss and marks.
fn choose(queues: Queues, [loss, ecn]: [Judgement; 2]) -> Class {
    let (loss, ecn) = (loss == Judgement::Responsive, ecn == Judgement::Responsive);
    match queues {
        Queues::Two { admission, .. } => {
            let responsive = match admission {
                Admission::Loss => loss,
                Admission::Ecn => ecn,
                Admission::Any => loss || ecn,
            };
            if responsive { Class::Responsive } else { Class::Standard }
        }
        Queues::Three { .. } if ecn => Class::EcnResponsive,
        Queues::Three { .. } if loss => Class::Responsive,
        Queues::Three { .. } => Class::Standard,
    }
}

impl Flow {
    /// Gives the flow a trap as soon as it is known what it is.
    fn recognise(&mut self, rule: QuicRule, transport: &Transport) {
        if self.trap.is_some() {
            return;
        }
        match *transport {
            Transport::Tcp(_) => self.trap = Some(Trap::new(TrapKind::Tcp)),
            Transport::Udp { quic: Some(header), .. } => {
                self.greeted[0] |= header.known_version().is_some();
                let short = matches!(header, QuicHeader::Short { .. });
                let quic = match rule {
                    QuicRule::FirstBit => matches!(header, QuicHeader::Short { fixed: true, .. }),
                    QuicRule::Version => short && self.greeted[0],
                    QuicRule::Handshake => short && self.greeted == [true; 2],
                };
                if quic {
                    self.trap = Some(Trap::new(TrapKind::Spin));
                }
            }
            Transport::Udp { quic: None, .. } | Transport::Opaque => {}
        }
    }
}

impl<P: Packet> Served<P> {
    fn new(config: &CrqConfig, class: Class, of: ClassConfig, shares: u64) -> Result<Self, CrqError> {
        if of.share == 0 {
            return Err(CrqError::ZeroShare(class));
        }
        let part = u128::from(config.rate.as_bps()) * u128::from(of.share) / u128::from(shares);
        let rate = Rate::from_bps(u64::try_from(part).unwrap_or(u64::MAX));
        let needs_rate =
            matches!(of.buffer, Buffer::Bdp(_)) || matches!(config.sharing, Sharing::Split { .. });
        if needs_rate && rate.as_bps() == 0 {
            return Err(CrqError::ZeroRate(class));
        }
        let mut fill_rate = None;
        let limit = match of.buffer {
            Buffer::Packets(packets) => Limit::Packets(packets),
            Buffer::Bytes(bytes) => Limit::Bytes(bytes),
            Buffer::Bdp(rtt) => Limit::Bytes(rate.bytes_in(rtt)),
            Buffer::FillRate { span, least, most } => {
                let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
                if nanos == 0 || least > most {
                    return Err(CrqError::FillRate(class));
                }
                if least < config.mtu {
                    return Err(CrqError::FillRateLeast { class, least, mtu: config.mtu });
                }
                fill_rate = Some(FillRate {
                    span: nanos,
                    least: least.get(),
                    most: most.get(),
                    since: Time::ZERO,
                    arrived: 0,
                    smoothed: 0,
                });
                Limit::Bytes(most)
            }
        };
        let limit = limit.checked().map_err(|error| CrqError::Buffer { class, error })?;
        let queue = match of.aqm {
            Aqm::DropTail => Queue::DropTail(
                DropTail::new(DropTailConfig { limit }).map_err(|error| CrqError::Buffer { class, error })?,
            ),
            Aqm::Codel { target, interval, ecn } => {
                let codel = CodelConfig { target, interval, limit, maxpacket: config.mtu, ecn };
                Queue::Codel(Codel::new(codel).map_err(|error| CrqError::Codel { class, error })?)
            }
        };
        let slack = match config.sharing {
            Sharing::Split { burst } if burst < config.mtu => {
                return Err(CrqError::Burst { burst, mtu: config.mtu });
            }
            Sharing::Split { burst } => {
                u64::try_from(rate.transmission_time(burst).as_nanos()).unwrap_or(u64::MAX)
            }
            Sharing::Weighted | Sharing::Strict { .. } => 0,
        };
        Ok(Self {
            queue,
            fill_rate,
            counters: Counters::default(),
            lead: 0,
            per_byte: (shares << VIRTUAL_SHIFT) / u64::from(of.share),
            ready: Time::ZERO,
            rate,
            slack,
        })
    }

    /// Whether a packet of `len` bytes is more than the buffer by fill rate may hold now.
    fn is_beyond_fill_rate(&mut self, now: Time, len: Bytes) -> bool {
        let Some(fill_rate) = &mut self.fill_rate else { return false };
        let limit = fill_rate.arrive(now, len);
        self.queue.backlog().bytes.get().saturating_add(len.get()) > limit
    }
}

/// Tells a flow that one of its packets got `signal`.
fn tell<P>(flows: &mut FlowTable<Flow>, config: &TrapConfig, signal: Signal, queued: &Queued<P>) {
    if let Some(flow) = queued.place.and_then(|place| flows.get_mut(place)) {
        match signal {
            Signal::Loss => flow.dropped += 1,
            Signal::Ecn => flow.marked += 1,
        }
        if let Some(trap) = &mut flow.trap {
            trap.signal(config, signal, queued.stamp);
        }
    }
}

impl<P: Packet> Discipline<P> for Crq<P> {
    fn enqueue_with(&mut self, now: Time, packet: P, _on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        self.counters.enqueued.count(len);
        let (class, queued) = self.assess(now, packet);
        let Self { classes, flows, trap, counters, backlog, .. } = self;
        // There is a queue for every class that `choose` chooses; were there none, the packet would be dropped.
        let Some(served) = &mut classes[class as usize] else {
            counters.overflow(&queued);
            return Verdict::Dropped(queued.packet);
        };
        served.counters.enqueued.count(len);
        let was_empty = served.queue.backlog().is_empty();
        let verdict = if served.is_beyond_fill_rate(now, len) {
            Verdict::Dropped(queued)
        } else {
            served.queue.enqueue(now, queued)
        };
        match verdict {
            Verdict::Queued => {
                backlog.push(len);
                if was_empty {
                    // A class that was idle has saved nothing up.
                    let earliest = now.as_nanos().saturating_sub(served.slack);
                    served.ready = served.ready.max(Time::from_nanos(earliest));
                }
                Verdict::Queued
            }
            Verdict::Dropped(queued) => {
                served.counters.overflow(&queued);
                counters.overflow(&queued);
                tell(flows, trap, Signal::Loss, &queued);
                Verdict::Dropped(queued.packet)
            }
        }
    }

    fn observe(&mut self, now: Time, packet: &P) {
        let transport = packet.transport();
        let key = packet.reverse();
        let place = match transport {
            Transport::Opaque => None,
            // The other host opens the connection: its half of the handshake is half of the loop.
            Transport::Tcp(segment)
                if segment.flags.has(marcato_wire::TcpFlags::SYN)
                    && !segment.flags.has(marcato_wire::TcpFlags::ACK) =>
            {
                self.flows.enter(now, key)
            }
            Transport::Udp { quic: Some(header), .. } if header.known_version().is_some() => {
                self.flows.enter(now, key)
            }
            Transport::Tcp(_) | Transport::Udp { .. } => self.flows.find(key),
        };
        let Some(flow) = place.and_then(|place| self.flows.get_mut(place)) else { return };
        match transport {
            Transport::Tcp(_) => {
                if flow.trap.is_none() && flow.order == 0 {
                    flow.trap = Some(Trap::new(TrapKind::Tcp));
                }
                if let Some(trap) = &mut flow.trap {
                    trap.backward(&self.trap, now, &transport);
                }
            }
            Transport::Udp { quic: Some(header), .. } => {
                flow.greeted[1] |= header.known_version().is_some();
            }
            Transport::Udp { quic: None, .. } | Transport::Opaque => {}
        }
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let class = self.next(now)?;
        let Self { classes, flows, trap, counters, backlog, stats, .. } = self;
        let served = classes[class].as_mut()?;
        let of_class = &mut served.counters;
        let queued = served.queue.dequeue_with(now, &mut |queued| {
            backlog.pop(queued.len());
            of_class.dropped.count(queued.len());
            counters.dropped.count(queued.len());
            tell(flows, trap, Signal::Loss, &queued);
            on_drop(queued.packet);
        })?;
        let len = queued.len();
        backlog.pop(len);
        of_class.dequeued.count(len);
        counters.dequeued.count(len);
        if queued.marked {
            of_class.marked.count(len);
            counters.marked.count(len);
        }
        let counts_all_marks = trap.counting == crate::trap::Counting::Authors;
        if queued.marked || (counts_all_marks && queued.ecn() == Ecn::Ce) {
            tell(flows, trap, Signal::Ecn, &queued);
        }
        if let Some(flow) = queued.place.and_then(|place| flows.get_mut(place)) {
            // Modulo 2^32: a packet that comes before what has left already was overtaken.
            if flow.left.wrapping_sub(queued.order) < u32::MAX / 2 && flow.left != 0 {
                flow.overtaken = flow.overtaken.saturating_add(1);
                stats.overtaken += 1;
            } else {
                flow.left = queued.order;
            }
        }
        self.charge(now, class, len);
        Some(queued.packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        if self.backlog.is_empty() {
            return None;
        }
        if !matches!(self.sharing, Sharing::Split { .. }) {
            return Some(now);
        }
        let served = self.classes.iter().flatten().filter(|served| !served.queue.backlog().is_empty());
        served.map(|served| served.ready.max(now)).min()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Judgement::{Responsive, Unclassified, Unresponsive};
    use marcato_wire::QuicLongType;

    #[test]
    fn the_queue_of_a_flow_follows_from_what_it_answers_and_what_is_asked() {
        let responsive = CrqConfig::new(Rate::from_mbps(1), Duration::from_millis(20), true).standard;
        let two = |admission| Queues::Two { responsive, admission };
        let three = Queues::Three { loss: responsive, ecn: responsive };
        let verdicts = [
            [Responsive, Responsive],
            [Responsive, Unresponsive],
            [Unclassified, Responsive],
            [Unresponsive, Unclassified],
        ];
        let (yes, no) = (Class::Responsive, Class::Standard);
        for (queues, expected) in [
            (two(Admission::Loss), [yes, yes, no, no]),
            (two(Admission::Ecn), [yes, no, yes, no]),
            (two(Admission::Any), [yes, yes, yes, no]),
            (three, [Class::EcnResponsive, yes, Class::EcnResponsive, no]),
        ] {
            assert_eq!(verdicts.map(|verdicts| choose(queues, verdicts)), expected, "{queues:?}");
        }
    }

    #[test]
    fn a_udp_flow_is_quic_by_its_rule() {
        let datagram = |header| Transport::Udp { payload: 1200, quic: Some(header) };
        let kind = Some(QuicLongType::Initial);
        let hello = datagram(QuicHeader::Long { version: 1, kind });
        let unknown = datagram(QuicHeader::Long { version: 0xff00_001d, kind: None });
        let short = |fixed| datagram(QuicHeader::Short { fixed, spin: false });
        // Which rules take a flow for QUIC that sent this, and whose peer has greeted or not.
        let taken = |sent: &[Transport], greeted: bool| {
            [QuicRule::FirstBit, QuicRule::Version, QuicRule::Handshake].map(|rule| {
                let mut flow = Flow { greeted: [false, greeted], ..Flow::default() };
                for transport in sent {
                    flow.recognise(rule, transport);
                }
                flow.trap.is_some_and(|trap| trap.kind() == TrapKind::Spin)
            })
        };
        assert_eq!(taken(&[short(true)], true), [true, false, false]);
        assert_eq!(taken(&[short(false)], true), [false, false, false]);
        assert_eq!(taken(&[hello], true), [false, false, false]);
        assert_eq!(taken(&[unknown, short(true)], true), [true, false, false]);
        assert_eq!(taken(&[hello, short(true)], true), [true, true, true]);
        assert_eq!(taken(&[hello, short(true)], false), [true, true, false]);
        // What follows a greeting does not undo it.
        assert_eq!(taken(&[hello, unknown, short(false)], true), [false, true, true]);
        assert_eq!(
            taken(&[Transport::Udp { payload: 1200, quic: None }, Transport::Opaque], true),
            [false; 3]
        );
    }

    #[test]
    fn a_buffer_follows_what_arrives_and_halves_in_each_span_of_silence() {
        let mut rate = FillRate {
            span: 100_000_000,
            least: 100,
            most: 5000,
            since: Time::ZERO,
            arrived: 0,
            smoothed: 0,
        };
        let mut arrive = |millis, len| rate.arrive(Time::from_millis(millis), Bytes::new(len));
        assert_eq!([arrive(0, 8000), arrive(99, 8000)], [100, 100]);
        // Half of what the first span brought, and no more than the most.
        assert_eq!(arrive(100, 1000), 5000);
        assert_eq!(arrive(200, 0), 4500);
        // Four spans: half of the way to the nothing of the last one, and three more halves.
        assert_eq!(arrive(600, 0), 4500 / 16);
        assert_eq!(arrive(60_000, 0), 100);
    }
}
