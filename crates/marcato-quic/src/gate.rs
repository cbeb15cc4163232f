//! Gate in each congestion controller: makes an unmodified engine send on one lane and not on
//! another.
//!
//! The engine asks a path's controller for its window before it builds a packet. A shut gate
//! answers zero, so the engine passes on to the next path. The gate logs every call that the engine
//! makes to the controller. From this log the session learns which packet left on which lane, and
//! whether it was acknowledged or lost.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use marcato_units::{Bytes, Duration};
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use crate::controller::Congestion;
use crate::event::WindowChange;

/// Engine's report to a controller, as the gate logs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GateEvent {
    /// An ack-eliciting packet has left.
    Sent { pn: u64, bytes: u16 },
    /// A packet has been acknowledged, `micros` microseconds after it was sent.
    Acked { pn: u64, bytes: u64, micros: u32 },
    /// A packet has been declared lost.
    Lost { pn: u64, bytes: u16 },
    /// The window has changed.
    Window { at: Instant, change: WindowChange, window: u64 },
}

/// State shared by a session and the controller of one lane.
///
/// The engine requires controllers to be `Send + Sync`, although one session alone uses them; hence
/// atomics and an uncontended lock.
#[derive(Debug)]
pub(crate) struct Gate {
    shut: AtomicBool,
    /// Bytes subtracted from the window while the gate is open: room kept from the engine's own
    /// retransmissions.
    reserve: AtomicU64,
    /// Bytes added to the window: selective redundancy, which ignores it.
    overdraft: AtomicU64,
    /// Window of the inner controller in bytes.
    window: AtomicU64,
    in_flight: AtomicU64,
    mtu: AtomicU64,
    round_trip: Measured,
    usage: Usage,
    /// Set when the lane was silent for so long that all packets in flight may be lost.
    timed_out: AtomicBool,
    /// Set at a loss, a mark of ECN, or a silence, until the session asks.
    congested: AtomicBool,
    /// Number of times that the engine wanted to send here and found no room, the gate being shut
    /// or not.
    blocked: AtomicU64,
    /// Set if the engine paces this path.
    engine_paces: bool,
    /// Rate of the inner controller in bytes per second; 0 if it has none.
    pacing_rate: AtomicU64,
    replacement: Replacement,
    log: Mutex<Vec<GateEvent>>,
}

/// Times until packets of a path were acknowledged, in microseconds, with the delay at their receiver; 0 before the
/// first.
#[derive(Debug, Default)]
struct Measured {
    latest: AtomicU64,
    /// Least of all. The engine has a sample of some packets only (RFC 9002 §5.1), which may all be longer.
    least: AtomicU64,
}

impl Measured {
    fn add(&self, micros: u32) {
        let micros = u64::from(micros.max(1));
        let least = self.least.load(Relaxed);
        self.latest.store(micros, Relaxed);
        if least == 0 || micros < least {
            self.least.store(micros, Relaxed);
        }
    }
}

/// Use that the session makes of the window.
#[derive(Debug)]
struct Usage {
    /// Set when the session has less data for this lane than its window. The engine's own flag is
    /// useless here: the session writes only packets that leave at once. The flag would always be
    /// set, and no window would ever grow.
    app_limited: AtomicBool,
    /// Set when the session would have sent more if the window had had room.
    cwnd_limited: AtomicBool,
    /// Share of the window kept empty for reservations, in thousandths: growth is credited with it.
    idle_share: AtomicU64,
}

/// Controller that replaces the inner one from the next packet on.
#[derive(Debug, Default)]
struct Replacement {
    controller: Mutex<Option<Box<dyn Controller>>>,
    /// Set while there is one, so that the lock is not taken for each packet.
    waits: AtomicBool,
}

impl Replacement {
    fn set(&self, controller: Box<dyn Controller>) {
        *self.controller.lock().unwrap_or_else(PoisonError::into_inner) = Some(controller);
        self.waits.store(true, Relaxed);
    }

    fn take(&self) -> Option<Box<dyn Controller>> {
        if !self.waits.load(Relaxed) {
            return None;
        }
        self.waits.store(false, Relaxed);
        self.controller.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Gate {
    fn new(window: u64, mtu: u16, engine_paces: bool) -> Self {
        Self {
            // Initially open: a new path that is shut while data waits could not be validated.
            shut: AtomicBool::new(false),
            reserve: AtomicU64::new(0),
            overdraft: AtomicU64::new(0),
            window: AtomicU64::new(window),
            in_flight: AtomicU64::new(0),
            mtu: AtomicU64::new(u64::from(mtu)),
            round_trip: Measured::default(),
            usage: Usage {
                app_limited: AtomicBool::new(true),
                cwnd_limited: AtomicBool::new(false),
                idle_share: AtomicU64::new(0),
            },
            timed_out: AtomicBool::new(false),
            congested: AtomicBool::new(false),
            blocked: AtomicU64::new(0),
            engine_paces,
            pacing_rate: AtomicU64::new(0),
            replacement: Replacement::default(),
            log: Mutex::new(Vec::new()),
        }
    }

    fn log(&self) -> MutexGuard<'_, Vec<GateEvent>> {
        // A panic while the lock was held leaves a log that is still valid.
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the lane another controller, from its next packet on. The engine has one kind for all
    /// paths of a connection, and does not tell the factory which path it builds for.
    pub(crate) fn replace(&self, now: Instant, congestion: Congestion, initial_window: Option<Bytes>) {
        let mtu = u16::try_from(self.mtu.load(Relaxed)).unwrap_or(u16::MAX);
        let controller = congestion.build(now, mtu, initial_window);
        self.window.store(controller.window(), Relaxed);
        self.replacement.set(controller);
    }

    /// Shuts the gate to all packets that count against the window, or opens it.
    pub(crate) fn set_shut(&self, shut: bool) {
        self.shut.store(shut, Relaxed);
    }

    /// Sets the bytes of the window that the engine may not use while the gate is open.
    pub(crate) fn set_reserve(&self, reserve: Bytes) {
        self.reserve.store(reserve.get(), Relaxed);
    }

    /// Sets the bytes by which the engine may exceed its window.
    pub(crate) fn set_overdraft(&self, overdraft: Bytes) {
        self.overdraft.store(overdraft.get(), Relaxed);
    }

    /// Returns whether neither a reserve nor an overdraft is set: the window is that of the controller.
    #[cfg(test)]
    pub(crate) fn is_as_the_controller_says(&self) -> bool {
        self.reserve.load(Relaxed) == 0 && self.overdraft.load(Relaxed) == 0
    }

    /// Sets whether the window exceeds the data that the session has to send.
    pub(crate) fn set_app_limited(&self, limited: bool) {
        self.usage.app_limited.store(limited, Relaxed);
    }

    /// Records that the session would have sent more if there had been room.
    pub(crate) fn set_cwnd_limited(&self) {
        self.usage.cwnd_limited.store(true, Relaxed);
    }

    /// Records that the lane was silent for too long. The controller learns of it before the next
    /// packet or acknowledgement.
    pub(crate) fn set_timed_out(&self) {
        self.timed_out.store(true, Relaxed);
    }

    /// Returns whether there was congestion since the last call.
    pub(crate) fn take_congested(&self) -> bool {
        let congested = self.congested.load(Relaxed);
        self.congested.store(false, Relaxed);
        congested
    }

    /// Sets the share of the window, in thousandths, that is empty only because it is reserved, and
    /// credits growth with it. At most 900.
    pub(crate) fn set_idle_share(&self, thousandths: u64) {
        // The cap limits the credit to ten times the acknowledged bytes.
        self.usage.idle_share.store(thousandths.min(900), Relaxed);
    }

    /// Window of the inner controller, whether the gate is shut or not.
    pub(crate) fn window(&self) -> Bytes {
        Bytes::new(self.window.load(Relaxed))
    }

    /// Bytes in flight that count against the window.
    pub(crate) fn in_flight(&self) -> Bytes {
        Bytes::new(self.in_flight.load(Relaxed))
    }

    /// Free part of the window in bytes.
    pub(crate) fn room(&self) -> Bytes {
        self.window() - self.in_flight()
    }

    /// Records that nothing is in flight any more: the engine discards rejected packets without a
    /// report to their controller.
    pub(crate) fn set_empty(&self) {
        self.in_flight.store(0, Relaxed);
    }

    /// Size of a full packet in bytes.
    pub(crate) fn mtu(&self) -> Bytes {
        Bytes::new(self.mtu.load(Relaxed))
    }

    /// Latest and least round trip; `None` before the first measurement.
    pub(crate) fn round_trips(&self) -> Option<(Duration, Duration)> {
        let [latest, least] = [&self.round_trip.latest, &self.round_trip.least].map(|it| it.load(Relaxed));
        (least > 0).then(|| (Duration::from_micros(latest), Duration::from_micros(least)))
    }

    /// The controller's own rate in bytes per second, if it has one.
    pub(crate) fn pacing_rate(&self) -> Option<u64> {
        Some(self.pacing_rate.load(Relaxed)).filter(|rate| *rate > 0)
    }

    /// Number of times that the engine was refused here.
    pub(crate) fn blocked(&self) -> u64 {
        self.blocked.load(Relaxed)
    }

    /// Replaces the content of `into` with the log since the last call.
    pub(crate) fn take(&self, into: &mut Vec<GateEvent>) {
        into.clear();
        std::mem::swap(into, &mut *self.log());
    }
}

/// Builds gated controllers, one for each path of one connection.
#[derive(Debug)]
pub(crate) struct GateFactory {
    pub(crate) congestion: Congestion,
    pub(crate) initial_window: Option<Bytes>,
    /// Set if the engine paces. If it does, a chunk may stay in it until the pacer releases it.
    pub(crate) engine_paces: bool,
    /// Logs each change of the window if set; otherwise only reductions.
    pub(crate) trace_windows: bool,
}

impl ControllerFactory for GateFactory {
    fn build(self: Arc<Self>, now: Instant, current_mtu: u16) -> Box<dyn Controller> {
        let inner = self.congestion.build(now, current_mtu, self.initial_window);
        Box::new(Gated::new(inner, current_mtu, self.engine_paces, self.trace_windows))
    }
}

/// Controller behind its gate.
#[derive(Debug)]
pub(crate) struct Gated {
    gate: Arc<Gate>,
    inner: Box<dyn Controller>,
    trace_windows: bool,
    /// Acknowledgements to be logged when the engine has processed the frame, so that the log is
    /// locked once.
    acked: Vec<GateEvent>,
    /// Window as last logged.
    logged: u64,
    /// Set when a reduction was undone since the last logged change.
    restored: bool,
}

impl Gated {
    /// Puts a gate in front of a controller.
    pub(crate) fn new(inner: Box<dyn Controller>, mtu: u16, engine_paces: bool, trace_windows: bool) -> Self {
        let window = inner.window();
        let gate = Arc::new(Gate::new(window, mtu, engine_paces));
        Self { gate, inner, trace_windows, acked: Vec::new(), logged: window, restored: false }
    }

    /// Returns the gate of the controller that the engine uses on a path. The session has no other
    /// way to learn which of a factory's controllers went to which path.
    pub(crate) fn gate_of(controller: &dyn Controller) -> Option<Arc<Gate>> {
        controller.clone_box().into_any().downcast::<Self>().ok().map(|gated| gated.gate)
    }

    /// Switches to the replacement controller, if one was given.
    fn follow_replacement(&mut self) {
        if let Some(controller) = self.gate.replacement.take() {
            self.logged = controller.window();
            self.inner = controller;
        }
    }

    /// Reports a silence to the controller as persistent congestion (RFC 9002 §7.6).
    fn follow_timeout(&mut self, now: Instant) {
        if self.gate.timed_out.load(Relaxed) {
            self.gate.timed_out.store(false, Relaxed);
            self.gate.congested.store(true, Relaxed);
            self.inner.on_congestion_event(now, now, true, false, 0, 0);
        }
    }

    fn grew_or_opened(&self, window: u64) -> WindowChange {
        match self.inner.metrics().ssthresh {
            Some(ssthresh) if window >= ssthresh => WindowChange::Grew,
            _ => WindowChange::Opened,
        }
    }

    /// Publishes the window, and logs its change; without `now`, the next call with a time logs it.
    fn publish(&mut self, now: Option<Instant>, reduced: bool) {
        let window = self.inner.window();
        self.gate.window.store(window, Relaxed);
        self.gate.pacing_rate.store(self.inner.metrics().pacing_rate.unwrap_or(0), Relaxed);
        let Some(at) = now.filter(|_| window != self.logged || reduced) else { return };
        let change = match std::mem::take(&mut self.restored) {
            _ if reduced || window < self.logged => WindowChange::Reduced,
            true => WindowChange::Restored,
            false => self.grew_or_opened(window),
        };
        self.logged = window;
        if self.trace_windows || change == WindowChange::Reduced {
            self.gate.log().push(GateEvent::Window { at, change, window });
        }
    }
}

impl Controller for Gated {
    fn on_sent(&mut self, now: Instant, bytes: u64, largest_pn: u64) {
        self.inner.on_sent(now, bytes, largest_pn);
    }

    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.follow_replacement();
        self.follow_timeout(now);
        let held = self.gate.in_flight.load(Relaxed);
        self.gate.in_flight.store(held + u64::from(bytes), Relaxed);
        self.gate.log().push(GateEvent::Sent { pn, bytes });
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_cwnd_limited(&mut self) {
        self.gate.blocked.fetch_add(1, Relaxed);
        if !self.gate.shut.load(Relaxed) {
            self.inner.on_cwnd_limited();
        }
    }

    fn on_ack(&mut self, now: Instant, sent: Instant, bytes: u64, pn: u64, _: bool, rtt: &RttEstimator) {
        self.follow_timeout(now);
        if self.gate.usage.cwnd_limited.load(Relaxed) {
            self.gate.usage.cwnd_limited.store(false, Relaxed);
            self.inner.on_cwnd_limited();
        }
        let held = self.gate.in_flight.load(Relaxed);
        self.gate.in_flight.store(held.saturating_sub(bytes), Relaxed);
        let micros = now.saturating_duration_since(sent).as_micros();
        let micros = u32::try_from(micros).unwrap_or(u32::MAX);
        self.acked.push(GateEvent::Acked { pn, bytes, micros });
        self.gate.round_trip.add(micros);
        let app_limited = self.gate.usage.app_limited.load(Relaxed);
        let credited = match self.gate.usage.idle_share.load(Relaxed) {
            0 => bytes,
            // A controller with its own rate measures that rate by these bytes, so a credit would
            // make it overestimate the link.
            _ if self.inner.metrics().pacing_rate.is_some() => bytes,
            // The acknowledged bytes stand for a window of which a part had to stay empty.
            idle => bytes * 1000 / (1000 - idle),
        };
        self.inner.on_ack(now, sent, credited, pn, app_limited, rtt);
        // The session reads the window only after `on_end_acks`, so this call is for the trace
        // alone.
        if self.trace_windows {
            self.publish(Some(now), false);
        }
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, _: bool, largest: Option<u64>) {
        self.gate.log().append(&mut self.acked);
        // The engine does not report lost MTU probes to controllers, so the sum is corrected here.
        self.gate.in_flight.store(in_flight, Relaxed);
        let app_limited = self.gate.usage.app_limited.load(Relaxed);
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
        self.publish(Some(now), false);
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        is_persistent_congestion: bool,
        is_ecn: bool,
        lost_bytes: u64,
        largest_lost_pn: u64,
    ) {
        self.gate.congested.store(true, Relaxed);
        let before = self.inner.window();
        self.inner.on_congestion_event(
            now,
            sent,
            is_persistent_congestion,
            is_ecn,
            lost_bytes,
            largest_lost_pn,
        );
        self.publish(Some(now), self.inner.window() < before);
    }

    fn on_packet_lost(&mut self, lost_bytes: u16, pn: u64, now: Instant) {
        // The engine also reports lost packets that carried only acknowledgements, with size 0.
        // They do not count as in flight (RFC 9002 §2) and are not retransmitted.
        if lost_bytes == 0 {
            return;
        }
        let held = self.gate.in_flight.load(Relaxed);
        self.gate.in_flight.store(held.saturating_sub(u64::from(lost_bytes)), Relaxed);
        self.gate.congested.store(true, Relaxed);
        self.gate.log().push(GateEvent::Lost { pn, bytes: lost_bytes });
        self.inner.on_packet_lost(lost_bytes, pn, now);
        self.publish(Some(now), false);
    }

    fn on_spurious_congestion_event(&mut self) {
        let before = self.inner.window();
        self.inner.on_spurious_congestion_event();
        self.restored = self.inner.window() > before;
        self.publish(None, false);
    }

    fn on_mtu_update(&mut self, new_mtu: u16) {
        self.gate.mtu.store(u64::from(new_mtu), Relaxed);
        self.inner.on_mtu_update(new_mtu);
        self.publish(None, false);
    }

    fn on_ack_frequency_update(&mut self, threshold: u64, delay: std::time::Duration) {
        self.inner.on_ack_frequency_update(threshold, delay);
    }

    fn window(&self) -> u64 {
        if self.gate.shut.load(Relaxed) {
            return 0;
        }
        let window = self.inner.window().saturating_add(self.gate.overdraft.load(Relaxed));
        window.saturating_sub(self.gate.reserve.load(Relaxed))
    }

    /// Returns the inner controller's metrics, never the gated window: the engine's pacer divides
    /// by it.
    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        if !self.gate.engine_paces {
            // Above 2^32 the engine's pacer lets everything pass. A huge rate would not do: its
            // delays can be zero and yet not over, and virtual time would stand still.
            metrics.congestion_window = u64::MAX / 4;
            metrics.pacing_rate = None;
            metrics.send_quantum = None;
        }
        metrics
    }

    /// Clones the controller with a shared gate: the engine clones it when a peer's port changes,
    /// and the lane stays the same.
    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(Self {
            gate: Arc::clone(&self.gate),
            inner: self.inner.clone_box(),
            acked: Vec::new(),
            ..*self
        })
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_window_that_is_restored_is_not_taken_for_one_that_grew() {
        let now = Instant::now();
        let later = now + Duration::from_millis(10);
        let mut gated = Gated::new(Congestion::Cubic.build(now, 1200, None), 1200, false, true);
        let gate = Arc::clone(&gated.gate);
        let before = gate.window().get();
        gated.on_congestion_event(later, now, false, false, 1200, 1);
        let reduced = gate.window().get();
        assert!(reduced < before);
        gated.on_spurious_congestion_event();
        assert_eq!(gate.window().get(), before);
        gated.on_end_acks(later, 0, false, None);

        let mut log = Vec::new();
        gate.take(&mut log);
        let window = |change, window| GateEvent::Window { at: later, change, window };
        assert_eq!(log, [window(WindowChange::Reduced, reduced), window(WindowChange::Restored, before)]);
    }

    #[test]
    fn lost_acknowledgements_are_no_losses() {
        let now = Instant::now();
        let mut gated = Gated::new(Congestion::RENO.build(now, 1200, None), 1200, false, false);
        gated.on_packet_sent(now, 1200, 1);
        gated.on_packet_lost(0, 2, now);
        let mut log = Vec::new();
        gated.gate.take(&mut log);
        assert_eq!(log, [GateEvent::Sent { pn: 1, bytes: 1200 }]);
    }

    #[test]
    fn a_gate_starts_open_and_shutting_it_zeroes_only_its_window() {
        let now = Instant::now();
        for engine_paces in [false, true] {
            for congestion in [Congestion::RENO, Congestion::Cubic, Congestion::Bbr3] {
                let gated = Gated::new(
                    congestion.build(now, 1200, Some(Bytes::new(50_000))),
                    1200,
                    engine_paces,
                    false,
                );
                assert_eq!(gated.window(), 50_000);
                gated.gate.set_reserve(Bytes::new(20_000));
                gated.gate.set_overdraft(Bytes::new(5_000));
                assert_eq!(gated.window(), 35_000);
                let open = gated.metrics();
                gated.gate.set_shut(true);
                assert_eq!(gated.window(), 0);
                let shut = gated.metrics();
                assert!(shut.congestion_window >= 50_000);
                assert_eq!(shut.congestion_window, open.congestion_window);
                assert_eq!(shut.pacing_rate, open.pacing_rate);
                assert_eq!(gated.gate.window(), Bytes::new(50_000));
            }
        }
    }

    #[test]
    fn congestion_is_told_once() {
        let now = Instant::now();
        let mut gated = Gated::new(Congestion::RENO.build(now, 1200, None), 1200, false, false);
        let gate = Arc::clone(&gated.gate);
        gated.on_packet_sent(now, 1200, 1);
        gated.on_packet_lost(0, 2, now);
        assert!(!gate.take_congested());
        gated.on_packet_lost(1200, 1, now);
        assert!(gate.take_congested() && !gate.take_congested());
        // A mark of ECN (RFC 9002 §7.1).
        gated.on_congestion_event(now, now, false, true, 0, 1);
        assert!(gate.take_congested() && !gate.take_congested());
        gate.set_timed_out();
        gated.on_packet_sent(now, 1200, 3);
        assert!(gate.take_congested() && !gate.take_congested());
    }

    #[test]
    fn a_clone_shares_the_gate() {
        let now = Instant::now();
        let gated = Gated::new(Congestion::RENO.build(now, 1200, None), 1200, false, false);
        let shared = Gated::gate_of(&*gated.clone_box()).unwrap();
        shared.set_shut(true);
        assert_eq!(gated.window(), 0);
        assert!(Gated::gate_of(&*Congestion::RENO.build(now, 1200, None)).is_none());
    }
}
