//! Clocks of the two ends.
//!
//! One-way delay needs two clocks that agree. On one host, both ends read the same monotonic clock.
//! Between hosts, the offset is estimated as in NTP (RFC 5905 §8). Of several exchanges the one
//! with the lowest delay counts, and its delay is assumed to be equal in both directions. The error
//! is then at most half of that delay.

use ring::digest::{Context, SHA256};
use rustix::time::{ClockId, clock_gettime};

use super::protocol::HostMark;

/// Returns the system's monotonic clock in ns. Its zero is the same for all processes of a host.
pub(crate) fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (u64::try_from(now.tv_sec), u64::try_from(now.tv_nsec));
    seconds.unwrap_or(0).saturating_mul(1_000_000_000).saturating_add(nanos.unwrap_or(0))
}

/// Returns a mark of this host for a run with this nonce.
///
/// It is a hash of the boot identifier, which is random and readable by every process of the host.
/// The hash reveals nothing else. Without a boot identifier the mark is random, so that each end
/// counts as a separate host.
pub(crate) fn host_mark(nonce: &[u8; 16]) -> HostMark {
    let Ok(boot) = std::fs::read("/proc/sys/kernel/random/boot_id") else { return random() };
    let mut hash = Context::new(&SHA256);
    hash.update(nonce);
    hash.update(&boot);
    let mut mark = HostMark::default();
    mark.copy_from_slice(&hash.finish().as_ref()[..16]);
    mark
}

/// Returns unpredictable bytes. They are zeros if the system provides none, with the only effect
/// that hosts look alike.
pub(crate) fn random() -> [u8; 16] {
    let mut bytes = [0; 16];
    let _ = ring::rand::SecureRandom::fill(&ring::rand::SystemRandom::new(), &mut bytes);
    bytes
}

/// Request and reply, with times in ns. The outer times are of the local clock, the inner ones of
/// the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exchange {
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) answered: u64,
    pub(crate) returned: u64,
}

impl Exchange {
    /// Returns the total delay of request and reply in both directions, in ns.
    fn delay(self) -> i128 {
        let span = |from: u64, to: u64| i128::from(to) - i128::from(from);
        span(self.sent, self.returned) - span(self.received, self.answered)
    }

    /// Returns the difference to subtract from the peer's time to get local time, in ns.
    fn offset(self) -> i128 {
        let ahead = i128::from(self.received) - i128::from(self.sent);
        let behind = i128::from(self.returned) - i128::from(self.answered);
        (ahead - behind) / 2
    }
}

/// Relation of the peer's clock to the local clock.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offset {
    best: Option<Exchange>,
    exchanges: u64,
    /// Set if the peer claims to be on this host.
    same_host: bool,
}

impl Offset {
    pub(crate) fn new(same_host: bool) -> Self {
        Self { best: None, exchanges: 0, same_host }
    }

    /// Takes another exchange into account.
    pub(crate) fn learn(&mut self, exchange: Exchange) {
        self.exchanges += 1;
        let better = |best: Exchange| exchange.delay() < best.delay();
        // A negative delay shows that a clock is unreliable, so the exchange is ignored.
        if exchange.delay() >= 0 && self.best.is_none_or(better) {
            self.best = Some(exchange);
        }
    }

    /// Returns whether both ends read one clock: the peer claims so, and the exchanges do not
    /// contradict it.
    pub(crate) fn is_shared(&self) -> bool {
        // A shared clock has an offset of 0. The estimate may miss it by half of the delay, plus 1
        // µs of tolerance.
        let agrees = |best: Exchange| best.offset().abs() <= best.delay() / 2 + 1000;
        self.same_host && self.best.is_none_or(agrees)
    }

    /// Converts a time of the peer's clock to local time, in ns. The result may precede the zero of
    /// the local clock.
    pub(crate) fn ours(&self, theirs: u64) -> i128 {
        i128::from(theirs) - self.offset_ns()
    }

    /// Returns the lead of the peer's clock, in ns.
    pub(crate) fn offset_ns(&self) -> i128 {
        if self.is_shared() { 0 } else { self.best.map_or(0, Exchange::offset) }
    }

    /// Returns the largest possible error of the offset, in ns, if both clocks run at the same
    /// rate.
    pub(crate) fn error_ns(&self) -> i128 {
        if self.is_shared() { 0 } else { self.best.map_or(i128::from(u32::MAX), |best| best.delay() / 2) }
    }

    /// Returns the number of exchanges.
    pub(crate) const fn exchanges(&self) -> u64 {
        self.exchanges
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns an exchange with a peer whose clock is ahead by `ahead`, over one-way delays of
    /// `there` and `back`.
    fn exchange(sent: u64, ahead: u64, there: u64, back: u64) -> Exchange {
        let received = sent + there + ahead;
        Exchange { sent, received, answered: received + 10, returned: sent + there + 10 + back }
    }

    #[test]
    fn the_clock_of_one_host_is_one_clock_and_moves_on() {
        let first = now();
        assert!(first > 0 && now() >= first);
        let nonce = [7; 16];
        if std::path::Path::new("/proc/sys/kernel/random/boot_id").exists() {
            assert_eq!(host_mark(&nonce), host_mark(&nonce));
        }
        assert_ne!(host_mark(&nonce), host_mark(&[8; 16]));
    }

    #[test]
    fn the_quickest_exchange_counts() {
        let mut offset = Offset::new(false);
        offset.learn(exchange(0, 5_000_000, 900, 100));
        assert_eq!((offset.offset_ns(), offset.error_ns()), (5_000_400, 500));
        offset.learn(exchange(100, 5_000_000, 60, 40));
        offset.learn(exchange(200, 5_000_000, 5000, 1));
        assert_eq!((offset.offset_ns(), offset.error_ns()), (5_000_010, 50));
        assert_eq!((offset.ours(5_000_110), offset.exchanges()), (100, 3));
    }

    #[test]
    fn one_host_has_one_clock_unless_the_exchanges_speak_against_it() {
        let mut offset = Offset::new(true);
        offset.learn(exchange(0, 0, 900_000, 100_000));
        assert!(offset.is_shared());
        assert_eq!((offset.ours(123), offset.error_ns()), (123, 0));
        offset.learn(exchange(0, 1 << 40, 10, 10));
        assert!(!offset.is_shared(), "for example in a time namespace of its own");
        assert_eq!(offset.ours(1 << 40), 0);
    }

    proptest! {
        #[test]
        fn the_error_is_within_its_bound(
            ahead in 0..1u64 << 50, ways in prop::collection::vec((0..1_000_000_000u64, 0..1_000_000_000u64), 1..20),
        ) {
            let mut offset = Offset::new(false);
            ways.iter().for_each(|&(there, back)| offset.learn(exchange(99, ahead, there, back)));
            prop_assert!((offset.offset_ns() - i128::from(ahead)).abs() <= offset.error_ns() + 1);
        }

        #[test]
        fn no_clock_is_too_wild(sent: u64, received: u64, answered: u64, returned: u64, theirs: u64) {
            let mut offset = Offset::new(true);
            offset.learn(Exchange { sent, received, answered, returned });
            let _ = (offset.ours(theirs), offset.error_ns());
        }
    }
}
