//! Coupled mode of an application's connection.
//!
//! Samples come with each acknowledgement, selective ones too. The feeder holds data back (`Run::Held`).
//!
//! A lean feeder needs a watermark below it. Flows of messages in scenarios get one (`notsent-lowat`);
//! without, their socket would ask for the next chunk only at the next acknowledgement.

use marcato_sched::conductor::{Conductor, Grant, Observer, Store};
use marcato_sched::coupled::{Counters, CoupledConfig, Governor, Mode, Sample, Transition, WayBack};
use marcato_sched::feeder::{Engine, Feeder, Run};
use marcato_units::{Bytes, Duration};

use super::Socket;

/// Governor of a connection, fed with what the connection measures at each acknowledgement.
#[derive(Clone, Debug)]
pub struct Coupled {
    governor: Governor,
    way_back: WayBack,
    /// Bytes lost so far, of which the governor knows.
    lost: Bytes,
    /// Set if the chunk that was written last is urgent.
    urgent: bool,
    transitions: Vec<Transition>,
}

/// Tick of the timestamps of TCP, as in Linux.
const TICK: Duration = Duration::from_millis(1);

/// Transitions that are kept. Counters go on after them.
const TRANSITIONS: usize = 4096;

impl Coupled {
    /// Couples a connection.
    pub fn new(config: CoupledConfig) -> Self {
        let way_back = WayBack::new(TICK);
        Self {
            governor: Governor::new(config),
            way_back,
            lost: Bytes::ZERO,
            urgent: false,
            transitions: Vec::new(),
        }
    }

    /// Bound on what is in flight while only background data waits; `None` if there is no bound.
    pub fn cap(&self) -> Option<Bytes> {
        self.governor.cap()
    }

    /// Mode of the governor.
    pub fn mode(&self) -> Mode {
        self.governor.mode()
    }

    /// Counts of the governor since the beginning.
    pub fn counters(&self) -> Counters {
        self.governor.counters()
    }

    /// First 4096 changes of the mode.
    pub fn transitions(&self) -> &[Transition] {
        &self.transitions
    }

    /// Handles an acknowledgement.
    pub fn acknowledged<S: Store, O: Observer>(&mut self, socket: &Socket<'_>, conductor: &Conductor<S, O>) {
        let stats = socket.stats();
        // The end of an urgent message may have been written and not sent.
        let in_engine = self.urgent && !stats.unsent.is_zero();
        let sample = Sample {
            delivered: stats.delivered,
            in_flight: stats.in_flight,
            rtt: stats.rtt.filter(|rtt| *rtt > Duration::ZERO),
            back: stats
                .peer_stamp
                .map_or(Duration::ZERO, |stamp| self.way_back.acknowledged(socket.now(), stamp)),
            lost: stats.lost > self.lost,
            urgent: in_engine || conductor.has_queued(self.governor.urgent()),
        };
        self.lost = stats.lost;
        let transition = self.governor.sample(socket.now(), &sample);
        self.transitions.extend(transition.filter(|_| self.transitions.len() < TRANSITIONS));
    }

    /// Feeds chunks until nothing is queued, or the connection or the governor takes no more.
    pub(crate) fn run<S: Store, O: Observer>(
        &mut self,
        feeder: &Feeder,
        now: marcato_units::Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut impl Engine,
    ) {
        while let Run::Fed(Grant { priority, .. }) =
            feeder.run_once_within(now, conductor, engine, &mut self.governor)
        {
            self.urgent = self.governor.urgent().contains(priority);
        }
    }
}
