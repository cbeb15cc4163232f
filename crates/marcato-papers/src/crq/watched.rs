//! A queue that assesses flows by several rules at once, without acting on the verdicts.
//!
//! CRQ §IV-B feeds all traffic into one queue while its trap observes. Verdicts have no effect
//! there, so one run gives the verdicts of every set of rules.

use std::collections::BTreeMap;

use marcato_queue::trap::{CycleId, Scores, Signal, Trap, TrapConfig, TrapKind};
use marcato_queue::{Backlog, Counters, Discipline, FlowKey, Packet as Queueable, Tagged, Tally, Verdict};
use marcato_sim::Packet;
use marcato_units::{Stream, Time};
use marcato_wire::{QuicHeader, Transport};

/// Set of the trap's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preset {
    /// Rules as printed.
    Paper,
    /// Rules as implemented in the authors' program.
    Authors,
    /// Rules of Marcato, which operators get.
    Marcato,
}

impl Preset {
    pub(super) const ALL: [Self; 3] = [Self::Paper, Self::Authors, Self::Marcato];

    pub(super) const fn id(self) -> &'static str {
        match self {
            Self::Paper => "paper",
            Self::Authors => "authors",
            Self::Marcato => "marcato",
        }
    }

    pub(super) const fn rules(self) -> TrapConfig {
        match self {
            Self::Paper => TrapConfig::paper(),
            Self::Authors => TrapConfig::authors(),
            Self::Marcato => TrapConfig::marcato(),
        }
    }
}

const PRESETS: usize = Preset::ALL.len();

/// Packet with its cycle in each trap.
pub(super) type Watch = Tagged<Packet, [CycleId; PRESETS]>;

/// State of a flow.
#[derive(Debug, Default)]
struct Flow {
    traps: [Option<Trap>; PRESETS],
    /// True for the flow's sender, and for the other host, once a long header of a known version
    /// was seen from it.
    greeted: [bool; 2],
}

impl Flow {
    /// Starts the traps of a flow of TCP or QUIC. Marcato's rules accept QUIC only after a
    /// handshake; the others accept any UDP flow with QUIC's first bits.
    fn recognise(&mut self, transport: &Transport) {
        let (kind, handshake) = match transport {
            Transport::Tcp(_) => (TrapKind::Tcp, true),
            Transport::Udp { quic: Some(QuicHeader::Short { fixed: true, .. }), .. } => {
                (TrapKind::Spin, self.greeted == [true; 2])
            }
            Transport::Udp { quic: Some(header), .. } => {
                // A long header starts no trap: only short headers carry the spin bit (RFC 9000
                // §17.3.1).
                self.greeted[0] |= header.known_version().is_some();
                return;
            }
            Transport::Udp { quic: None, .. } | Transport::Opaque => return,
        };
        for (trap, preset) in self.traps.iter_mut().zip(Preset::ALL) {
            if trap.is_none() && (handshake || preset != Preset::Marcato) {
                *trap = Some(Trap::new(kind));
            }
        }
    }
}

/// A queue with traps that observe it.
pub(super) struct Watched {
    queue: Box<dyn Discipline<Watch>>,
    flows: BTreeMap<FlowKey, Flow>,
    /// Share of packets that it drops at random, before the queue decides.
    loss: f64,
    stream: Stream,
    counters: Counters,
}

impl Watched {
    /// Wraps `queue`, and drops this additional share of the packets at random.
    pub(super) fn new(queue: Box<dyn Discipline<Watch>>, loss: f64, stream: Stream) -> Self {
        Self { queue, flows: BTreeMap::new(), loss, stream, counters: Counters::default() }
    }

    /// Scores of a flow by each set of rules.
    pub(super) fn scores(&self, flow: FlowKey) -> [Scores; PRESETS] {
        let known = self.flows.get(&flow);
        std::array::from_fn(|preset| {
            known
                .and_then(|flow| flow.traps[preset].as_ref())
                .map_or_else(Scores::default, |trap| *trap.scores())
        })
    }
}

fn one(packet: &impl Queueable) -> Tally {
    Tally { packets: 1, bytes: packet.len() }
}

/// Reports a signal to a flow's traps.
fn tell(flows: &mut BTreeMap<FlowKey, Flow>, signal: Signal, packet: &Watch) {
    let Some(flow) = flows.get_mut(&packet.flow()) else { return };
    for ((trap, preset), cycle_id) in flow.traps.iter_mut().zip(Preset::ALL).zip(packet.tag) {
        if let Some(trap) = trap {
            trap.signal(&preset.rules(), signal, cycle_id);
        }
    }
}

impl Discipline<Packet> for Watched {
    fn enqueue_with(
        &mut self,
        now: Time,
        packet: Packet,
        on_drop: &mut dyn FnMut(Packet),
    ) -> Verdict<Packet> {
        let transport = packet.transport();
        self.counters.enqueued += one(&packet);
        let flow = self.flows.entry(packet.flow()).or_default();
        flow.recognise(&transport);
        let mut cycle_ids = [CycleId::default(); PRESETS];
        for ((trap, preset), cycle_id) in flow.traps.iter_mut().zip(Preset::ALL).zip(&mut cycle_ids) {
            if let Some(trap) = trap {
                trap.forward(&preset.rules(), now, &transport);
                *cycle_id = trap.cycle_id();
            }
        }
        let tagged = Tagged::new(packet, cycle_ids);
        let verdict = if self.loss > 0.0 && self.stream.chance(self.loss) {
            Verdict::Dropped(tagged)
        } else {
            let Self { queue, flows, counters, .. } = self;
            queue.enqueue_with(now, tagged, &mut |tagged| {
                counters.dropped += one(&tagged);
                tell(flows, Signal::Loss, &tagged);
                on_drop(tagged.packet);
            })
        };
        match verdict {
            Verdict::Queued => Verdict::Queued,
            Verdict::Dropped(tagged) => {
                self.counters.dropped += one(&tagged);
                tell(&mut self.flows, Signal::Loss, &tagged);
                Verdict::Dropped(tagged.packet)
            }
        }
    }

    fn observe(&mut self, now: Time, packet: &Packet) {
        let transport = packet.transport();
        let flow = self.flows.entry(packet.reverse()).or_default();
        match transport {
            Transport::Tcp(_) => {
                // The other host opens the connection.
                flow.recognise(&transport);
                for (trap, preset) in flow.traps.iter_mut().zip(Preset::ALL) {
                    if let Some(trap) = trap {
                        trap.backward(&preset.rules(), now, &transport);
                    }
                }
            }
            Transport::Udp { quic: Some(header), .. } => flow.greeted[1] |= header.known_version().is_some(),
            Transport::Udp { quic: None, .. } | Transport::Opaque => {}
        }
    }

    fn dequeue_with(&mut self, now: Time, on_drop: &mut dyn FnMut(Packet)) -> Option<Packet> {
        let Self { queue, flows, counters, .. } = self;
        let tagged = queue.dequeue_with(now, &mut |tagged| {
            counters.dropped += one(&tagged);
            tell(flows, Signal::Loss, &tagged);
            on_drop(tagged.packet);
        })?;
        counters.dequeued += one(&tagged);
        if tagged.marked {
            counters.marked += one(&tagged);
            tell(flows, Signal::Ecn, &tagged);
        }
        Some(tagged.packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        self.queue.next_ready(now)
    }

    fn backlog(&self) -> Backlog {
        self.queue.backlog()
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}
