//! Loss models of a wire.

use marcato_units::Stream;

use crate::gilbert_elliott::GilbertElliott;

/// Loss model of a wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// No loss.
    #[default]
    None,
    /// Independent loss of each packet with this probability.
    Random(f64),
    /// Bursts of losses: a wire that alternates between a good and a bad state.
    GilbertElliott(GilbertElliott),
    /// Periodic loss: every Nth packet, beginning with the Nth. 0 loses nothing.
    Every(u64),
    /// Loss of the packets with these ordinals, counted from 0 and ascending: for scripted tests.
    Script(Vec<u64>),
}

/// Returns true if the first packet meets a bad state.
fn starts_bad(loss: &Loss, stream: &mut Stream) -> bool {
    match loss {
        Loss::GilbertElliott(wire) => wire.begin(stream),
        Loss::None | Loss::Random(_) | Loss::Every(_) | Loss::Script(_) => false,
    }
}

/// State of a [`Loss`] model.
#[derive(Debug)]
pub(crate) struct LossProcess {
    loss: Loss,
    stream: Stream,
    seen: u64,
    next: usize,
    /// State that the next packet meets; [`Loss::GilbertElliott`] only.
    bad: bool,
}

impl LossProcess {
    /// Creates the state of a wire whose draws come from `stream`.
    pub(crate) fn new(loss: Loss, mut stream: Stream) -> Self {
        let bad = starts_bad(&loss, &mut stream);
        Self { loss, stream, seen: 0, next: 0, bad }
    }

    /// Restarts with another model on the same stream.
    pub(crate) fn change(&mut self, loss: Loss) {
        self.bad = starts_bad(&loss, &mut self.stream);
        (self.loss, self.seen, self.next) = (loss, 0, 0);
    }

    /// Returns true if the next packet is lost.
    #[inline]
    pub(crate) fn loses(&mut self) -> bool {
        let ordinal = self.seen;
        self.seen += 1;
        match &self.loss {
            Loss::None => false,
            Loss::Random(probability) => self.stream.chance(*probability),
            Loss::GilbertElliott(wire) => wire.loses(&mut self.bad, &mut self.stream),
            Loss::Every(n) => *n != 0 && (ordinal + 1).is_multiple_of(*n),
            Loss::Script(ordinals) => {
                while ordinals.get(self.next).is_some_and(|&o| o < ordinal) {
                    self.next += 1;
                }
                ordinals.get(self.next) == Some(&ordinal)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use marcato_units::Seed;

    fn lost(loss: Loss, packets: u64) -> Vec<u64> {
        let mut process = LossProcess::new(loss, Seed::new(1).stream("loss/test"));
        (0..packets).filter(|_| process.loses()).collect()
    }

    #[test]
    fn every_third_packet_is_lost() {
        assert_eq!(lost(Loss::Every(3), 10), [2, 5, 8]);
        assert!(lost(Loss::Every(0), 10).is_empty());
    }

    #[test]
    fn a_script_loses_what_it_says() {
        assert_eq!(lost(Loss::Script(vec![0, 4, 5]), 10), [0, 4, 5]);
    }

    #[test]
    fn random_loss_has_its_rate() {
        // 100 000 packets at 1 %: the standard deviation is 31.5, the bound five of them.
        let count = lost(Loss::Random(0.01), 100_000).len();
        assert!((843..=1157).contains(&count), "{count}");
    }
}
