//! Impairments of a wire: loss, jitter and duplication.

use marcato_units::{Seed, Stream, Time};

use crate::jitter::{Jitter, JitterProcess};
use crate::loss::{Loss, LossProcess};

/// Arrival of a packet that the wire has not lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// Time of the arrival.
    pub at: Time,
    /// Set if a copy arrives directly behind the packet.
    pub twice: bool,
}

/// Random duplication.
#[derive(Debug)]
struct Duplication {
    probability: f64,
    stream: Stream,
}

/// Impairments of a wire: its draws for each packet.
///
/// ```
/// use marcato_link::{Arrival, Impairments, Loss};
/// use marcato_units::{Seed, Time};
///
/// let mut wire = Impairments::new(Loss::Every(2), None, 0.0, "radio", Seed::new(1));
/// let due = Time::from_millis(20);
/// assert_eq!(wire.arrival(due), Some(Arrival { at: due, twice: false }));
/// assert_eq!(wire.arrival(due), None);
/// ```
#[derive(Debug)]
pub struct Impairments {
    loss: LossProcess,
    jitter: Option<Box<JitterProcess>>,
    duplication: Option<Box<Duplication>>,
}

impl Impairments {
    /// Creates the state of a wire. It draws from the streams `loss/NAME`, `jitter/NAME` and
    /// `duplication/NAME` of `seed`. `duplication` is the probability of a copy, from 0 to 1.
    pub fn new(loss: Loss, jitter: Option<Jitter>, duplication: f64, name: &str, seed: Seed) -> Self {
        let stream = |what: &str| seed.stream(&format!("{what}/{name}"));
        Self {
            loss: LossProcess::new(loss, stream("loss")),
            jitter: jitter.map(|jitter| Box::new(JitterProcess::new(jitter, stream("jitter")))),
            duplication: (duplication > 0.0)
                .then(|| Box::new(Duplication { probability: duplication, stream: stream("duplication") })),
        }
    }

    /// Changes the loss model.
    pub fn set_loss(&mut self, loss: Loss) {
        self.loss.change(loss);
    }

    /// Returns the arrival of the next packet, which without jitter would arrive at `due`; `None` if
    /// it is lost.
    #[inline]
    pub fn arrival(&mut self, due: Time) -> Option<Arrival> {
        // Drawn for lost packets too, so that a loss does not change the delays of later packets.
        let at = self.jitter.as_mut().map_or(due, |jitter| jitter.arrival(due));
        let twice = self.duplication.as_mut().is_some_and(|it| it.stream.chance(it.probability));
        (!self.loss.loses()).then_some(Arrival { at, twice })
    }
}
