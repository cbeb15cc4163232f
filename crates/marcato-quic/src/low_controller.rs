//! Controller of a low lane: PLT's, behind the engine's interface.

use std::any::Any;
use std::time::Instant;

use marcato_sched::lowprio::{Lcm, LcmConfig, LcmConfigError};
use marcato_units::{Bytes, Time};
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerMetrics};

/// LCM (PLT §3.1) behind the engine's interface.
///
/// The engine reports a lost packet only when a later one is acknowledged, so there are no timeouts
/// as such. Persistent congestion (RFC 9002 §7.6) counts as a timeout. So does a lane's silence,
/// which the session reports in the same way. Packets in flight at that time do not count as lost:
/// the engine reports later which of them were.
#[derive(Clone, Debug)]
pub(crate) struct LowPriority {
    lcm: Lcm,
    epoch: Instant,
    in_flight: u64,
    mtu: u64,
    /// Set when the engine was refused since the last call with a time.
    limited: bool,
}

impl LowPriority {
    pub(crate) fn new(now: Instant, mtu: u16, config: LcmConfig) -> Result<Self, LcmConfigError> {
        Ok(Self { lcm: Lcm::new(config)?, epoch: now, in_flight: 0, mtu: mtu.into(), limited: false })
    }

    fn time(&mut self, now: Instant) -> Time {
        let now = Time::ZERO + now.saturating_duration_since(self.epoch);
        if std::mem::take(&mut self.limited) {
            self.lcm.on_limited(now);
        }
        now
    }

    #[cfg(test)]
    pub(crate) const fn lcm(&self) -> &Lcm {
        &self.lcm
    }
}

impl Controller for LowPriority {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, _: u64) {
        let now = self.time(now);
        self.in_flight += u64::from(bytes);
        self.lcm.on_sent(now, Bytes::from(u32::from(bytes)), Bytes::new(self.in_flight));
    }

    fn on_cwnd_limited(&mut self) {
        self.limited = true;
    }

    fn on_ack(&mut self, now: Instant, _: Instant, bytes: u64, _: u64, _: bool, rtt: &RttEstimator) {
        let now = self.time(now);
        self.in_flight = self.in_flight.saturating_sub(bytes);
        self.lcm.on_rtt(rtt.get());
        self.lcm.on_acked(now, Bytes::new(bytes));
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, _: Option<u64>) {
        let now = self.time(now);
        self.in_flight = in_flight;
        self.lcm.on_epoch(now);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        _: Instant,
        is_persistent_congestion: bool,
        _: bool,
        _: u64,
        _: u64,
    ) {
        let now = self.time(now);
        // Losses are also reported one by one; an ECN mark on a low lane adds no information to
        // them.
        if is_persistent_congestion {
            self.lcm.on_timeout(now, Bytes::ZERO);
        }
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, _: u64, now: Instant) {
        let now = self.time(now);
        self.in_flight = self.in_flight.saturating_sub(lost_bytes.into());
        self.lcm.on_lost(now, Bytes::from(u32::from(lost_bytes)));
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.mtu = new_mtu.into();
    }

    /// Returns at least one packet: with less the engine would never send again, and the controller
    /// would learn nothing.
    fn window(&self) -> u64 {
        self.lcm.window().get().max(self.mtu)
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.lcm.config().initial_window.get()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn the_window_follows_the_epochs_and_never_falls_below_a_packet() {
        let start = Instant::now();
        let config = LcmConfig { initial_window: Bytes::kb(12), ..LcmConfig::marcato() };
        let mut low = LowPriority::new(start, 1200, config).unwrap();
        for pn in 0..10 {
            low.on_packet_sent(start, 1200, pn);
        }
        low.on_cwnd_limited();
        for pn in 0..10 {
            assert_eq!(low.lcm().counters().lost, Bytes::ZERO);
            low.on_end_acks(start + MS * 20, 12_000 - 1200 * pn, false, None);
        }
        // Without acknowledgements nothing grew, and everything is lost.
        for pn in 0..10 {
            low.on_packet_lost(1200, pn, start + MS * 50);
        }
        low.on_end_acks(start + MS * 200, 0, false, None);
        assert_eq!((low.window(), low.lcm().counters().decreases), (11_400, 1));
        low.on_congestion_event(start + MS * 201, start, true, false, 12_000, 9);
        assert_eq!((low.window(), low.lcm().counters().timeouts), (8550, 1));
        for _ in 0..30 {
            low.on_congestion_event(start + MS * 202, start, true, false, 0, 0);
        }
        assert_eq!(low.window(), 1200);
        low.on_mtu_update(1452);
        assert_eq!(low.window(), 1452);
    }

    #[test]
    fn a_loss_alone_or_a_mark_reduces_nothing() {
        let start = Instant::now();
        let mut low = LowPriority::new(start, 1200, LcmConfig::marcato()).unwrap();
        let before = low.window();
        low.on_packet_sent(start, 1200, 0);
        low.on_packet_lost(1200, 0, start + MS * 10);
        low.on_congestion_event(start + MS * 10, start, false, false, 1200, 0);
        low.on_congestion_event(start + MS * 10, start, false, true, 0, 0);
        assert_eq!(low.window(), before);
    }
}
