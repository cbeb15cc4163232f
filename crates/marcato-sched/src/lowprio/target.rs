//! Target loss rate of the low layer.

use marcato_units::Bytes;

use super::fraction::Fraction;

/// Loss rate that the LCM aims at: below it the window grows, at it and above it shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A constant: the paper's mu (PLT §3.1 leaves tuning it to future work).
    Fixed(Fraction),
    /// mu in addition to the path's own loss, which does not depend on the window.
    Adaptive(Adaptive),
}

/// Rule that estimates the path's own loss, which does not depend on the window.
///
/// Loss that the LCM causes depends on its window: a queue overflows when the window is large and
/// does not when it is smaller. Loss on the wire does not. The window varies all the time, so the
/// rule needs no experiments.
///
/// It counts acknowledged and lost bytes separately for epochs with a window above its own slow
/// mean and for those with one below. Once both counts are large enough, it compares them. If the
/// smaller window lost nearly as large a share as the larger one, that share is the path's own loss
/// and is added to mu. If it lost a clearly smaller share, this share bounds the path's own loss.
/// The addition never exceeds the observed loss rate, or the limit.
///
/// Epochs with a loss of a fifth or more, or with a window below 8 packets, do not count. The layer
/// is starved then, and must not be bold when that ends. The rule can still be deceived while
/// others take a growing share of the path, since low packets are then lost alike at every window.
/// Examples are best effort that fills the link gradually, and other LCMs in one low class. The
/// limit bounds that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adaptive {
    /// Loss allowed in addition to the path's own.
    pub mu: Fraction,
    /// Largest target.
    pub limit: Fraction,
    /// Packets that must be lost before a comparison. They count as lost at the larger window, and
    /// as expected losses at the smaller one if the window made no difference.
    pub enough: u32,
    /// Least ratio of the smaller window's loss rate to the larger one's at which the loss is the
    /// path's own.
    pub alike: Fraction,
}

impl Adaptive {
    /// Returns mu 0.5 %, at most 5 %; compared after 48 lost packets; alike from three fifths on.
    /// By Poisson's law the ratio of two equal rates of 48 losses each has a standard deviation of
    /// a fifth. One comparison in a hundred therefore finds equal rates unlike.
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

/// Feedback for packets sent at one kind of window.
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

/// Weight of the latest window in the slow mean.
const SLOW: Fraction = Fraction::per_mille(31);

/// Least window, in packets, of an epoch that counts.
const FEWEST: u64 = 8;

/// State of a [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Aim {
    target: Target,
    /// Estimate of the path's own loss.
    base: Fraction,
    /// Slow mean of the window.
    mean: Bytes,
    /// Window of the previous epoch: most packets with feedback now were sent under it.
    window: Bytes,
    above: Heard,
    below: Heard,
}

impl Aim {
    pub(super) fn new(target: Target, window: Bytes) -> Self {
        let (above, below) = Default::default();
        Self { target, base: Fraction::ZERO, mean: window, window, above, below }
    }

    /// Returns the target in force.
    pub(super) fn now(&self) -> Fraction {
        match self.target {
            Target::Fixed(mu) => mu,
            Target::Adaptive(rule) => rule.mu.plus(self.base).min(rule.limit),
        }
    }

    /// Returns the estimate of the path's own loss.
    pub(super) fn base(&self) -> Fraction {
        self.base
    }

    /// Ends an epoch with this window and these acknowledged and lost bytes, in packets of this
    /// size.
    pub(super) fn on_epoch(&mut self, window: Bytes, acked: Bytes, lost: Bytes, packet: Bytes) {
        let Target::Adaptive(rule) = self.target else { return };
        if lost * 4 >= acked || self.window < packet * FEWEST {
            // Starved: a fifth was lost, or the window is tiny, because others fill the path. That
            // is transient, and no property of the wire.
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
        // Enough packets that the assumed loss of the path would have shown twice over.
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

    /// Returns the estimated loss of the path after many epochs that alternate between two windows,
    /// in packets, with the same percentage lost at both.
    fn own_loss(windows: [u64; 2], percent: u64) -> Fraction {
        let mut aim = Aim::new(Target::Adaptive(Adaptive::new()), PACKET * windows[0]);
        for epoch in 0..4000 {
            // Packets with feedback were sent under the window of the previous epoch.
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
            // 8 % are lost at a window of 100, 1 % at 50.
            aim.on_epoch(PACKET * 50, PACKET * 92, PACKET * 8, PACKET);
            aim.on_epoch(PACKET * 100, Bytes::new(49_500), Bytes::new(500), PACKET);
        }
        assert_eq!(aim.base(), Fraction::ZERO);
    }

    /// Twice 48 losses would have shown in 2400 packets if 4 % were still lost.
    #[test]
    fn a_path_loss_estimate_expires_after_enough_loss_free_epochs() {
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
    fn epochs_with_20_percent_loss_do_not_count_towards_path_loss() {
        assert_eq!(own_loss([100, 50], 20), Fraction::ZERO);
        assert!(own_loss([100, 50], 18) > Fraction::ZERO);
    }

    #[test]
    fn windows_below_eight_packets_teach_nothing() {
        assert_eq!(own_loss([7, 5], 10), Fraction::ZERO);
        assert!(own_loss([9, 8], 10) > Fraction::ZERO);
    }
}
