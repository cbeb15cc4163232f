//! The rate of loss at which the low layer holds its window.

use marcato_units::Bytes;

use super::fraction::Fraction;

/// Which rate of loss the LCM aims at: below it the window grows, at it and above it shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// Always this: the paper's mu (PLT §3.1 leaves tuning it to future work).
    Fixed(Fraction),
    /// mu on top of what is lost whatever the window is.
    Adaptive(Adaptive),
}

/// How to find what is lost whatever the window is.
///
/// Loss that the LCM causes depends on its window: a queue overflows when the window is large and does not when it is
/// smaller. What a wire loses by itself does not. The window moves all the time, so the rule needs no experiments: what
/// was acknowledged and lost is counted apart for epochs in which the window was above its own slow mean and for those
/// in which it was below. Once both counts say enough, they are compared. If the smaller window lost nearly as large a
/// share as the larger one, that share is the path's own and is added to mu. If it lost a clearly smaller share, the path's
/// own is that at most. At any rate no more is added than is being lost, or than the limit.
///
/// Epochs that lose a fifth or more, or whose window was below 8 packets, are left out: there the layer is starved, and
/// when that ends it should not be found bold. The rule can still be deceived while others take more and more of the
/// path, since the low packets then lose alike at every window: best effort that fills the link by and by, or other
/// LCMs in one low class. The limit bounds that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// What may be lost beyond the path's own loss.
    pub mu: Fraction,
    /// The most that the target may be.
    pub limit: Fraction,
    /// How many packets have to be lost at the larger window, and expected to be at the smaller one if it made no
    /// difference, before the two are compared.
    pub enough: u32,
    /// What part of the larger window's rate of loss the smaller one's has to be at least, to be the path's own.
    pub alike: Fraction,
}

impl Adaptive {
    /// mu 0.5 %, at most 5 %; compared after 48 lost packets; alike from three fifths on. By Poisson's law the ratio of two
    /// equal rates of 48 losses each has a standard deviation of a fifth, so that in one comparison of a hundred they
    /// do not look alike.
    pub const fn new() -> Self {
        Self {
            mu: Fraction::per_mille(5),
            limit: Fraction::per_mille(50),
            enough: 48,
            alike: Fraction::per_mille(600),
        }
    }
}

impl Default for Adaptive {
    fn default() -> Self {
        Self::new()
    }
}

/// What was heard of packets sent at one kind of window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    total: Bytes,
    lost: Bytes,
}

impl Heard {
    fn rate(&self) -> Fraction {
        Fraction::ratio(self.lost, self.total)
    }
}

/// How strongly the latest window moves the slow mean.
const SLOW: Fraction = Fraction::per_mille(31);

/// Smaller windows, in packets, say nothing.
const FEWEST: u64 = 8;

/// A [`Target`] under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    target: Target,
    /// What the path loses by itself.
    base: Fraction,
    /// Slow mean of the window.
    mean: Bytes,
    /// The window of the epoch before: what is heard of now was mostly sent under it.
    window: Bytes,
    above: Heard,
    below: Heard,
}

impl Aim {
    pub(super) fn new(target: Target, window: Bytes) -> Self {
        let (above, below) = Default::default();
        Self { target, base: Fraction::ZERO, mean: window, window, above, below }
    }

    /// The target in force.
    pub(super) fn now(&self) -> Fraction {
        match self.target {
            Target::Fixed(mu) => mu,
            Target::Adaptive(rule) => rule.mu.plus(self.base).min(rule.limit),
        }
    }

    /// What the path is taken to lose by itself.
    pub(super) fn base(&self) -> Fraction {
        self.base
    }

    /// An epoch ends with this window, in which so much was acknowledged and lost, in packets of this size.
    pub(super) fn on_epoch(&mut self, window: Bytes, acked: Bytes, lost: Bytes, packet: Bytes) {
        let Target::Adaptive(rule) = self.target else { return };
        if lost * 4 >= acked || self.window < packet * FEWEST {
            // Starved: others fill the path. That is no property of the wire, and passes.
            self.window = window;
            return;
        }
        let heard = if self.window >= self.mean { &mut self.above } else { &mut self.below };
        heard.total += acked + lost;
        heard.lost += lost;
        self.window = window;
        let (up, down) = (window.max(self.mean) - self.mean, self.mean - window.min(self.mean));
        self.mean = self.mean + SLOW.of(up) - SLOW.of(down);

        let enough = packet * u64::from(rule.enough);
        let all =
            Heard { total: self.above.total + self.below.total, lost: self.above.lost + self.below.lost };
        let compared = self.above.lost >= enough && self.above.rate().of(self.below.total) >= enough;
        // So much was heard that what is held to be the path's own loss would have shown.
        let disproved = self.base > Fraction::ZERO && self.base.of(all.total) >= enough * 2;
        if compared {
            let alike = self.below.rate() >= rule.alike.times(self.above.rate());
            self.base = if alike { self.below.rate() } else { self.base.min(self.below.rate()) };
        }
        if compared || disproved {
            self.base = self.base.min(all.rate());
            (self.above, self.below) = Default::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKET: Bytes = Bytes::kb(1);

    /// What is taken for the path's own loss after many epochs in which the window is one and then the other, in packets,
    /// and so many of a hundred packets are lost whichever it is.
    fn own_loss(windows: [u64; 2], percent: u64) -> Fraction {
        let mut aim = Aim::new(Target::Adaptive(Adaptive::new()), PACKET * windows[0]);
        for epoch in 0..4000 {
            // What is heard of was sent under the window of the epoch before.
            let (sent, window) =
                if epoch % 2 == 0 { (windows[0], windows[1]) } else { (windows[1], windows[0]) };
            let lost = PACKET * sent * percent / 100;
            aim.on_epoch(PACKET * window, PACKET * sent - lost, lost, PACKET);
        }
        aim.base()
    }

    #[test]
    fn loss_that_does_not_depend_on_the_window_is_the_path_s_own() {
        assert_eq!(own_loss([100, 50], 4), Fraction::ratio(Bytes::new(4), Bytes::new(100)));
    }

    #[test]
    fn loss_that_grows_with_the_window_is_not_the_path_s_own() {
        let mut aim = Aim::new(Target::Adaptive(Adaptive::new()), PACKET * 100);
        for _ in 0..2000 {
            // Eight of a hundred are lost at a window of 100, one at 50.
            aim.on_epoch(PACKET * 50, PACKET * 92, PACKET * 8, PACKET);
            aim.on_epoch(PACKET * 100, Bytes::new(49_500), Bytes::new(500), PACKET);
        }
        assert_eq!(aim.base(), Fraction::ZERO);
    }

    /// Twice 48 losses would have shown in 2400 packets, were four of a hundred still lost.
    #[test]
    fn what_is_held_to_be_the_path_s_own_is_given_up_when_it_does_not_show() {
        let mut aim = Aim::new(Target::Adaptive(Adaptive::new()), PACKET * 100);
        while aim.base() == Fraction::ZERO {
            aim.on_epoch(PACKET * 50, PACKET * 96, PACKET * 4, PACKET);
            aim.on_epoch(PACKET * 100, PACKET * 48, PACKET * 2, PACKET);
        }
        let own = aim.base();
        for epoch in 1..=24 {
            assert_eq!(aim.base(), own, "before epoch {epoch}");
            aim.on_epoch(PACKET * 100, PACKET * 100, Bytes::ZERO, PACKET);
        }
        assert_eq!(aim.base(), Fraction::ZERO);
    }

    #[test]
    fn epochs_that_lose_a_fifth_are_those_of_a_starved_layer_and_teach_nothing() {
        assert_eq!(own_loss([100, 50], 20), Fraction::ZERO);
        assert!(own_loss([100, 50], 18) > Fraction::ZERO);
    }

    #[test]
    fn windows_below_eight_packets_teach_nothing() {
        assert_eq!(own_loss([7, 5], 10), Fraction::ZERO);
        assert!(own_loss([9, 8], 10) > Fraction::ZERO);
    }
}
