//! Congestion-responsive queuing (CRQ): separates responsive from unresponsive flows.
//!
//! References: CRQ §III-B (two queues, assignment, inertia), §IV-A (equal shares, buffers of one
//! BDP), §V (three queues, larger shares, sizes by fill rate); RFC 8289 (CoDel).
//!
//! # Deviations from the paper
//!
//! - **Work conservation** is the default: a queue takes what the other leaves. [`Sharing::Split`]
//!   is the paper's hard split.
//! - **Strict priority has a guard.** CRQ §III-B4 names strict priority as an option. Responsive
//!   flows that fill the link would then starve the standard queue, in which every new flow begins.
//!   So [`Sharing::Strict`] has a least share for that queue; 0 is the paper's option.
//! - **Young flows may have a place of their own** ([`YoungConfig`]), served first and bounded. In the
//!   paper every flow begins in the standard queue, beside the floods, and a short flow ends before it
//!   has a verdict. `None` is the paper's behaviour.
//! - **It fails open.** Traffic that cannot be assessed (another protocol, a fragment, a flow that
//!   finds the table full, QUIC without a spin bit) is served by the standard queue as any other
//!   packet.
//! - **QUIC** is a flow that began with long headers of a known version, in both directions
//!   ([`QuicRule`]). A flow that is first seen after its handshake cannot be told from other UDP:
//!   it moved to another address, or this queue was set up later. It is not assessed, and begins
//!   anew in the standard queue.
//! - **Reordering is counted.** Later packets of a flow that changes its queue may overtake those
//!   that wait in the old queue. [`FlowReport::overtaken`] counts these.

mod buffer;
mod class;
mod config;
mod error;
mod flow;
mod sharing;
mod young;

use marcato_units::{Bytes, Layer, Rate, Time};
use marcato_wire::{Ecn, TcpFlags, Transport};

use crate::flow_table::FlowTable;
use crate::trap::{Counting, Signal, Trap, TrapConfig, TrapKind, Verdict as Judgement};
use crate::{Backlog, Counters, Discipline, FlowKey, FlowTableCounters, Packet, Tally, Verdict};

pub use buffer::Buffer;
use class::{ClassQueue, Note, Queued};
pub use config::{Admission, Aqm, Class, ClassConfig, CrqConfig, Queues, QuicRule};
pub use error::CrqError;
use flow::Flow;
pub use flow::FlowReport;
pub use sharing::Sharing;
use sharing::{Scheduler, Share};
use young::Young;
pub use young::YoungConfig;

/// Counters and backlog of one of the queues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClassStats {
    /// Packets that arrived and left.
    pub counters: Counters,
    /// Packets that wait.
    pub backlog: Backlog,
}

/// Statistics of [`Crq`] beyond its [`Counters`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CrqStats {
    /// Arrivals of flows under each verdict on loss: unclassified, responsive, unresponsive.
    pub by_loss: [Tally; 3],
    /// Arrivals of flows under each verdict on marks.
    pub by_ecn: [Tally; 3],
    /// Arrivals that cannot be assessed: other protocols, fragments, UDP that is not QUIC, and
    /// flows for which the table had no place. They are counted under unclassified as well.
    pub unassessed: Tally,
    /// Arrivals in the standard queue that would have been young, but for an allowance that is used
    /// up.
    pub outgrown: Tally,
    /// Number of times that a flow changed its queue.
    pub changes: u64,
    /// Number of packets that left after a later one of their flow.
    pub overtaken: u64,
}

/// Congestion-responsive queuing.
///
/// Without a packet's [`transport`](Packet::transport) nothing is assessed. Packets that pass the
/// other way must be [shown](Discipline::observe): otherwise no TCP is assessed, nor, by
/// [`QuicRule::Handshake`], any QUIC.
#[derive(Clone, Debug)]
pub struct Crq<P> {
    classes: [Option<ClassQueue<P>>; Class::ALL.len()],
    scheduler: Scheduler,
    queues: Queues,
    trap: TrapConfig,
    quic: QuicRule,
    young: Option<Young>,
    flows: FlowTable<Flow>,
    backlog: Backlog,
    counters: Counters,
    stats: CrqStats,
}

impl<P: Packet> Crq<P> {
    /// Creates empty queues.
    ///
    /// # Errors
    /// [`CrqError`] if the configuration cannot work.
    pub fn new(config: CrqConfig) -> Result<Self, CrqError> {
        let (responsive, ecn) = match config.queues {
            Queues::Two { responsive, .. } => (responsive, None),
            Queues::Three { loss, ecn } => (loss, Some(ecn)),
        };
        let configured = [Some(config.standard), Some(responsive), ecn, None];
        let sum = configured.iter().flatten().map(|of| u64::from(of.share)).sum();
        let sharing = Scheduler::checked(config.sharing)?;
        let (mut classes, mut shares) = ([const { None }; Class::ALL.len()], [Share::NONE; Class::ALL.len()]);
        for (class, of) in Class::ALL.into_iter().zip(configured) {
            let Some(of) = of else { continue };
            let rate = part_of_link(&config, class, of, sum)?;
            classes[class as usize] = Some(ClassQueue::new(&config, class, of, rate)?);
            shares[class as usize] = Share::new(&config, of.share, sum, rate)?;
        }
        let mut young = None;
        if let Some(of) = config.young {
            if matches!(sharing, Sharing::Split { .. }) {
                return Err(CrqError::YoungSplit);
            }
            young = Some(Young::new(&of, config.flows.secret)?);
            let class = ClassConfig { aqm: of.aqm, buffer: of.buffer, share: of.most };
            let rate = part_of_link(&config, Class::Young, class, 1000)?;
            classes[Class::Young as usize] = Some(ClassQueue::new(&config, Class::Young, class, rate)?);
        }
        Ok(Self {
            classes,
            scheduler: Scheduler::new(sharing, shares, config.young.map_or(0, |young| young.most)),
            queues: config.queues,
            trap: config.trap.checked()?,
            quic: config.quic,
            young,
            flows: FlowTable::new(config.flows)?,
            backlog: Backlog::default(),
            counters: Counters::default(),
            stats: CrqStats::default(),
        })
    }

    /// Counters and backlog of one of the queues; `None` if that does not exist.
    pub fn class(&self, class: Class) -> Option<ClassStats> {
        let queue = self.classes[class as usize].as_ref()?;
        Some(ClassStats { counters: queue.counters, backlog: queue.backlog() })
    }

    /// Statistics of assessment and queue changes.
    pub const fn stats(&self) -> &CrqStats {
        &self.stats
    }

    /// Counters of the table of flows.
    pub const fn table(&self) -> &FlowTableCounters {
        self.flows.counters()
    }

    /// Report on a flow, if it is in the table.
    pub fn flow(&self, flow: FlowKey) -> Option<FlowReport> {
        Some(self.flows.get(self.flows.find(flow)?)?.report(flow))
    }

    /// Reports on all flows in the table, in an order that is the same in every run.
    pub fn flows(&self) -> impl Iterator<Item = FlowReport> {
        self.flows.iter().map(|(key, flow)| flow.report(key))
    }

    /// Assesses a packet of the flow's own direction that arrives at `now`.
    fn assess(&mut self, now: Time, packet: P) -> (Class, Queued<P>) {
        let (len, transport) = (packet.len(), packet.transport());
        // A packet that asks for lower effort (RFC 8622) goes before no other.
        let young = self.young.as_mut().filter(|_| packet.layer() == Layer::High);
        let covered = young.map(|young| young.covers(now, packet.flow(), len));
        let mut queued = Queued::new(packet, Note::default());
        let place = match transport {
            Transport::Opaque => None,
            Transport::Tcp(_) | Transport::Udp { .. } => self.flows.enter(now, queued.packet.flow()),
        };
        let Some((place, flow)) = place.and_then(|place| Some((place, self.flows.get_mut(place)?))) else {
            self.stats.by_loss[0].count(len);
            self.stats.by_ecn[0].count(len);
            self.stats.unassessed.count(len);
            let (class, outgrown) = place_of(Class::Standard, covered);
            if outgrown {
                self.stats.outgrown.count(len);
            }
            return (class, queued);
        };
        flow.order = flow.order.wrapping_add(1);
        flow.enqueued.count(len);
        queued.tag.place = Some(place);
        queued.tag.order = flow.order;
        flow.recognise(self.quic, &transport);
        let mut verdicts = [Judgement::Unclassified; 2];
        let mut class = Class::Standard;
        if let Some(trap) = &mut flow.trap {
            trap.forward(&self.trap, now, &transport);
            queued.tag.cycle_id = trap.cycle_id();
            verdicts = Signal::ALL.map(|signal| trap.verdict(signal));
            class = self.queues.class_for(verdicts);
        } else {
            self.stats.unassessed.count(len);
        }
        let (class, outgrown) = place_of(class, covered);
        if outgrown {
            self.stats.outgrown.count(len);
        }
        if flow.class.is_some_and(|before| before != class) {
            if let Some(trap) = &mut flow.trap {
                // CRQ §III-B3: observed signals are reset when a flow changes the queue.
                trap.changed_queue(&self.trap);
            }
            flow.changes = flow.changes.saturating_add(1);
            self.stats.changes += 1;
        }
        flow.class = Some(class);
        self.stats.by_loss[verdicts[0] as usize].count(len);
        self.stats.by_ecn[verdicts[1] as usize].count(len);
        (class, queued)
    }

    /// Returns whether packets wait in the queue at index `class`.
    fn waits(classes: &[Option<ClassQueue<P>>], class: usize) -> bool {
        classes[class].as_ref().is_some_and(|queue| !queue.backlog().is_empty())
    }
}

/// Part of the link's rate for the queue of `class`, if it works with that.
fn part_of_link(config: &CrqConfig, class: Class, of: ClassConfig, shares: u64) -> Result<Rate, CrqError> {
    if of.share == 0 {
        return Err(CrqError::ZeroShare(class));
    }
    let part = u128::from(config.rate.as_bps()) * u128::from(of.share) / u128::from(shares);
    let rate = Rate::from_bps(u64::try_from(part).unwrap_or(u64::MAX));
    let needs_rate = matches!(of.buffer, Buffer::Bdp(_)) || matches!(config.sharing, Sharing::Split { .. });
    if needs_rate && rate.as_bps() == 0 {
        return Err(CrqError::ZeroRate(class));
    }
    Ok(rate)
}

/// Queue of a packet that its flow's verdicts alone send to `class`, and whether it was too late for
/// the place for young flows. `covered` tells whether the flow's allowance covers the packet; `None`
/// if the place does not exist for it.
fn place_of(class: Class, covered: Option<bool>) -> (Class, bool) {
    match covered {
        Some(true) => (Class::Young, false),
        Some(false) => (class, class == Class::Standard),
        None => (class, false),
    }
}

/// Takes note of `signal` to the flow of a packet. CRQ §III-C: overflows on enqueue, drops and
/// marks by the AQM on dequeue.
fn signal_to<P>(flows: &mut FlowTable<Flow>, config: &TrapConfig, signal: Signal, queued: &Queued<P>) {
    if let Some(flow) = queued.tag.place.and_then(|place| flows.get_mut(place)) {
        match signal {
            Signal::Loss => flow.dropped += 1,
            Signal::Ecn => flow.marked += 1,
        }
        if let Some(trap) = &mut flow.trap {
            trap.signal(config, signal, queued.tag.cycle_id);
        }
    }
}

impl<P: Packet> Discipline<P> for Crq<P> {
    fn enqueue_with(&mut self, now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        let len = packet.len();
        self.counters.enqueued.count(len);
        let (class, queued) = self.assess(now, packet);
        // `class_for` names existing queues only. If it did not, the packet would be dropped.
        let Some(queue) = &mut self.classes[class as usize] else {
            self.counters.overflow(&queued);
            return Verdict::Dropped(queued.packet);
        };
        let was_empty = queue.backlog().is_empty();
        let Self { backlog, counters, flows, trap, .. } = self;
        backlog.push(len);
        let mut lose = |queued: Queued<P>| {
            backlog.pop(queued.len());
            counters.overflow(&queued);
            signal_to(flows, trap, Signal::Loss, &queued);
            queued.packet
        };
        match queue.enqueue_with(now, queued, &mut |queued| on_drop(lose(queued))) {
            Verdict::Queued => {
                if was_empty {
                    self.scheduler.wake(now, class as usize);
                }
                Verdict::Queued
            }
            Verdict::Dropped(queued) => Verdict::Dropped(lose(queued)),
        }
    }

    fn observe(&mut self, now: Time, packet: &P) {
        let transport = packet.transport();
        let key = packet.reverse();
        let place = match transport {
            Transport::Opaque => None,
            // The other host opens the connection: its part of the handshake is half of the round
            // trip.
            Transport::Tcp(segment)
                if segment.flags.has(TcpFlags::SYN) && !segment.flags.has(TcpFlags::ACK) =>
            {
                self.flows.enter(now, key)
            }
            Transport::Udp { quic: Some(header), .. } if header.known_version().is_some() => {
                self.flows.enter(now, key)
            }
            // Other packets enter no flow: acknowledgements of a flow that is not seen must take no
            // place from others.
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
            Transport::Udp { quic: Some(header), .. } => flow.greet_back(header),
            Transport::Udp { quic: None, .. } | Transport::Opaque => {}
        }
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let class = self.scheduler.next(now, |class| Self::waits(&self.classes, class))?;
        let Self { classes, flows, trap, counters, backlog, stats, .. } = self;
        let queued = classes[class].as_mut()?.dequeue_with(now, &mut |queued| {
            backlog.pop(queued.len());
            counters.dropped.count(queued.len());
            signal_to(flows, trap, Signal::Loss, &queued);
            on_drop(queued.packet);
        })?;
        let len = queued.len();
        backlog.pop(len);
        counters.dequeued.count(len);
        if queued.marked {
            counters.marked.count(len);
        }
        // The authors' program also counts marks that another queue gave before.
        let counts_all_marks = trap.counting == Counting::Authors;
        if queued.marked || (counts_all_marks && queued.ecn() == Ecn::Ce) {
            signal_to(flows, trap, Signal::Ecn, &queued);
        }
        if let Some(flow) = queued.tag.place.and_then(|place| flows.get_mut(place)) {
            stats.overtaken += u64::from(flow.leave(queued.tag.order));
        }
        self.scheduler.charge(now, class, len, |class| Self::waits(&self.classes, class));
        Some(queued.packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.scheduler.next_ready(now, |class| Self::waits(&self.classes, class))
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }

    fn judged(&self) -> Option<[Bytes; 2]> {
        let responsive = self.class(Class::Responsive).map(|class| class.counters.enqueued.bytes);
        Some([responsive.unwrap_or(Bytes::ZERO), self.counters.enqueued.bytes])
    }

    fn report(&self, flow: FlowKey) -> Option<FlowReport> {
        self.flow(flow)
    }
}
