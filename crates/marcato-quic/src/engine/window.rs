//! Calls between engine and controllers, and the effect of a gate in between.

use std::any::Any;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use marcato_units::{Bytes, Rate};
use noq_proto::RttEstimator;
use noq_proto::congestion::{Controller, ControllerFactory, ControllerMetrics};

use super::pair::{CHUNK, Lane, Link, MTU, Noted, Pair, Setup, Who};
use crate::controller::Congestion;
use crate::event::WindowChange;
use crate::gate::{Gate, GateEvent, GateFactory, Gated};

/// Mistake of a careless wrapper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mistake {
    /// It uses the engine's app-limited flag.
    RawFlag,
    /// It leaves `metrics` to the trait, which calls `window`.
    GatedMetrics,
}

#[derive(Debug)]
struct Careless {
    mistake: Mistake,
    gate: Arc<Gate>,
    inner: Box<dyn Controller>,
}

#[derive(Debug)]
struct CarelessFactory(Mistake, Congestion);

impl ControllerFactory for CarelessFactory {
    fn build(self: Arc<Self>, now: Instant, mtu: u16) -> Box<dyn Controller> {
        let factory = GateFactory {
            congestion: self.1,
            initial_window: None,
            engine_paces: self.0 == Mistake::GatedMetrics,
            trace_windows: true,
        };
        let inner = Arc::new(factory).build(now, mtu);
        let gate = Gated::gate_of(&*inner).unwrap();
        Box::new(Careless { mistake: self.0, gate, inner })
    }
}

impl Controller for Careless {
    fn on_packet_sent(&mut self, now: Instant, bytes: u16, pn: u64) {
        self.inner.on_packet_sent(now, bytes, pn);
    }

    fn on_ack(
        &mut self,
        now: Instant,
        sent: Instant,
        bytes: u64,
        pn: u64,
        app_limited: bool,
        rtt: &RttEstimator,
    ) {
        if self.mistake == Mistake::RawFlag {
            self.gate.set_app_limited(app_limited);
        }
        self.inner.on_ack(now, sent, bytes, pn, app_limited, rtt);
    }

    fn on_end_acks(&mut self, now: Instant, in_flight: u64, app_limited: bool, largest: Option<u64>) {
        self.inner.on_end_acks(now, in_flight, app_limited, largest);
    }

    fn on_cwnd_limited(&mut self) {
        self.inner.on_cwnd_limited();
    }

    fn on_congestion_event(
        &mut self,
        now: Instant,
        sent: Instant,
        persistent: bool,
        ecn: bool,
        lost: u64,
        pn: u64,
    ) {
        self.inner.on_congestion_event(now, sent, persistent, ecn, lost, pn);
    }

    fn on_packet_lost(&mut self, bytes: u16, pn: u64, now: Instant) {
        self.inner.on_packet_lost(bytes, pn, now);
    }

    fn on_mtu_update(&mut self, mtu: u16) {
        self.inner.on_mtu_update(mtu);
    }

    fn window(&self) -> u64 {
        self.inner.window()
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = self.inner.metrics();
        if self.mistake == Mistake::GatedMetrics {
            metrics.congestion_window = self.window();
            metrics.pacing_rate = None;
        }
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        // The harness looks for a `Gated`.
        self.inner.clone_box()
    }

    fn initial_window(&self) -> u64 {
        self.inner.initial_window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// 100 Mbit/s and 40 ms, with one bandwidth-delay product of buffer.
fn fast_lane() -> Vec<Lane> {
    vec![Lane::new(0, Link::delay_ms(20).rate(Rate::from_mbps(100), 500_000))]
}

/// Returns the goodput in Mbit/s in the second and third second.
fn goodput(pair: &mut Pair) -> f64 {
    let read = |pair: &mut Pair| pair.host(Who::Server).read.iter().map(|piece| piece.len).sum::<usize>();
    let start = pair.now;
    let mut before = None;
    let stream = pair.stream(Who::Client);
    pair.host(Who::Client).fed = true;
    pair.run(start + Duration::from_secs(3), |pair| {
        if pair.now >= start + Duration::from_secs(1) && before.is_none() {
            before = Some(read(pair));
        }
        while pair.settle(Who::Client) && pair.has_room(Who::Client, 0) {
            pair.feed(Who::Client, 0, stream, CHUNK);
        }
        false
    });
    (read(pair) - before.unwrap()) as f64 * 8.0 / 2e6
}

#[test]
fn the_raw_app_limited_flag_stops_reno_and_cubic_window_growth() {
    for congestion in [Congestion::RENO, Congestion::Cubic, Congestion::Bbr3] {
        let mut setup = Setup::new(1, fast_lane()).congestion(congestion);
        setup.factory = Some(Arc::new(CarelessFactory(Mistake::RawFlag, congestion)));
        let mut pair = setup.establish();
        let raw = goodput(&mut pair);

        let mut pair = Setup::new(1, fast_lane()).congestion(congestion).establish();
        pair.gate(Who::Client, 0).set_app_limited(false);
        let overridden = goodput(&mut pair);
        eprintln!("{congestion:?}: {raw:.1} and {overridden:.1} Mbit/s");
        // BBR uses rates, which such a flag does not hide.
        assert_eq!(raw < 5.0, congestion != Congestion::Bbr3, "{congestion:?}: {raw:.1} Mbit/s");
        assert!(overridden > 80.0, "{congestion:?}: {overridden:.1} Mbit/s");
    }
}

/// Makes the client acknowledge the server's data while all its gates are shut and the engine
/// paces.
fn acknowledge_with_gates_shut(mut setup: Setup) -> Pair {
    setup.engine_paces = true;
    let mut pair = setup.establish();
    pair.shut_all(Who::Client, true);
    let stream = pair.stream(Who::Server);
    pair.engine(Who::Server).send_stream(stream).write(&[0; 50_000]).unwrap();
    pair.pass(Duration::from_secs(2));
    pair
}

#[test]
fn a_shut_gate_does_not_disturb_the_pacer() {
    for congestion in [Congestion::RENO, Congestion::Cubic, Congestion::Bbr3] {
        let mut pair =
            acknowledge_with_gates_shut(Setup::new(1, vec![Lane::delay_ms(0, 10)]).congestion(congestion));
        let is_ack = |noted: &&Noted| matches!(noted.what, GateEvent::Acked { .. });
        let acked = pair.host(Who::Server).noted.iter().filter(is_ack).count();
        assert!(acked >= 36, "{congestion:?}: {acked} packets acknowledged");
        let controller = pair.engine(Who::Client).congestion_state(noq_proto::PathId::ZERO).unwrap();
        assert_eq!(controller.window(), 0);
        assert!(controller.metrics().congestion_window >= 2 * u64::from(MTU));
    }
}

/// A mistake on purpose, which [`Gate`] must never make: a controller that reports the window behind a
/// shut gate, zero, in its metrics. The engine's pacer asserts that a window is not zero.
#[cfg(debug_assertions)]
#[test]
#[should_panic(expected = "zero-sized congestion control window")]
fn the_pacer_panics_on_metrics_with_the_window_of_a_shut_gate() {
    let mut setup = Setup::new(1, vec![Lane::delay_ms(0, 10)]);
    setup.factory = Some(Arc::new(CarelessFactory(Mistake::GatedMetrics, Congestion::RENO)));
    acknowledge_with_gates_shut(setup);
}

/// Returns the number of 20 messages of 12 kB that leave completely in the instant of writing,
/// while the engine has unlimited background data. A message comes every 250 ms; the window is 200
/// kB, of which `reserve` is kept.
fn leaves_at_once(reserve: Bytes) -> usize {
    let lanes = vec![Lane::new(0, Link::delay_ms(50).rate(Rate::from_mbps(20), u64::MAX))];
    let mut pair = Setup::new(1, lanes).window(Bytes::kb(200)).establish();
    let background = pair.stream(Who::Client);
    let urgent = pair.stream(Who::Client);
    pair.engine(Who::Client).send_stream(urgent).set_priority(1).unwrap();
    pair.engine(Who::Client).send_stream(background).write(&vec![0; 20 << 20]).unwrap();
    let gate = pair.gate(Who::Client, 0);
    let mut complete = 0;
    for _ in 0..20 {
        gate.set_reserve(reserve);
        pair.pass(Duration::from_millis(250));
        gate.set_reserve(Bytes::new(0));
        pair.engine(Who::Client).send_stream(urgent).write(&[0; 12_000]).unwrap();
        let left = pair.flush(Who::Client).len();
        // Nine packets; background data fills the ninth.
        assert!(left <= 11, "{left}");
        complete += usize::from(left >= 9);
    }
    complete
}

#[test]
fn a_reserve_keeps_room_for_a_periodic_message() {
    assert_eq!(leaves_at_once(Bytes::new(0)), 0);
    assert_eq!(leaves_at_once(Bytes::kb(15)), 20);
}

#[test]
fn a_lost_mtu_probe_stays_unreported_until_a_later_ack_fixes_it() {
    let mut setup = Setup::new(1, vec![Lane::delay_ms(0, 10)]);
    setup.discover_mtu = true;
    // The limit suffices for the minimum of every path, and for no probe.
    setup.lanes[0].out.limit = 1210;
    setup.lanes[0].back.limit = 1210;
    let mut pair = setup.establish();
    let stream = pair.stream(Who::Client);
    let gate = pair.gate(Who::Client, 0);
    let mut excess = Vec::new();
    for _ in 0..20 {
        excess.push(gate.in_flight().get());
        pair.engine(Who::Client).send_stream(stream).write(&[0; 100]).unwrap();
        pair.pass(Duration::from_millis(200));
    }
    let stats = pair.engine(Who::Client).path_stats(noq_proto::PathId::ZERO).unwrap();
    assert!(stats.lost_plpmtud_probes >= 3, "{stats:?}");
    assert_eq!(stats.lost_packets, stats.lost_plpmtud_probes);
    let lost = pair
        .host(Who::Client)
        .noted
        .iter()
        .filter(|noted| matches!(noted.what, GateEvent::Lost { .. }))
        .count();
    assert_eq!(lost, 0);
    eprintln!("{excess:?}");
    assert!(excess[0] > 1210, "{excess:?}");
    assert_eq!(excess.last(), Some(&0));
    assert_eq!(gate.mtu().get(), 1200);
}

#[test]
fn window_changes_are_reported_with_their_cause() {
    let lanes = vec![Lane::new(0, Link::delay_ms(20).rate(Rate::from_mbps(20), 50_000))];
    let mut pair = Setup::new(1, lanes).establish();
    pair.gate(Who::Client, 0).set_app_limited(false);
    goodput(&mut pair);
    let changes: Vec<WindowChange> = pair
        .host(Who::Client)
        .noted
        .iter()
        .filter_map(|noted| match noted.what {
            GateEvent::Window { change, .. } => Some(change),
            _ => None,
        })
        .collect();
    let first_reduction = changes.iter().position(|&change| change == WindowChange::Reduced).unwrap();
    assert!(first_reduction > 5);
    assert!(changes[..first_reduction].iter().all(|&change| change == WindowChange::Opened));
    assert!(changes[first_reduction..].contains(&WindowChange::Grew));
    assert!(!changes[first_reduction..].contains(&WindowChange::Opened));
}

/// Calls that a controller behind a gate received.
#[derive(Debug, Default)]
struct Reports {
    cwnd_limited: usize,
    acked: u64,
    app_limited: Vec<bool>,
}

/// Controller that only records calls.
#[derive(Clone, Debug)]
struct Listener {
    reports: Arc<Mutex<Reports>>,
    rate: Option<u64>,
}

impl ControllerFactory for Listener {
    fn build(self: Arc<Self>, _: Instant, mtu: u16) -> Box<dyn Controller> {
        Box::new(Gated::new(self.clone_box(), mtu, false, true))
    }
}

impl Controller for Listener {
    fn on_cwnd_limited(&mut self) {
        self.reports.lock().unwrap().cwnd_limited += 1;
    }

    fn on_ack(&mut self, _: Instant, _: Instant, bytes: u64, _: u64, app_limited: bool, _: &RttEstimator) {
        let mut reports = self.reports.lock().unwrap();
        reports.acked += bytes;
        reports.app_limited.push(app_limited);
    }

    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: bool, _: u64, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        60_000
    }

    fn metrics(&self) -> ControllerMetrics {
        let mut metrics = ControllerMetrics::default();
        metrics.congestion_window = self.window();
        metrics.pacing_rate = self.rate;
        metrics
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        self.window()
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}

/// Returns a pair whose client has data to acknowledge, and the record of its controller.
fn listening(rate: Option<u64>) -> (Pair, Arc<Mutex<Reports>>) {
    let reports: Arc<Mutex<Reports>> = Arc::default();
    let mut setup = Setup::new(1, vec![Lane::delay_ms(0, 10)]);
    // The server's controller records too, but nothing of interest before the client's record is
    // reset.
    setup.factory = Some(Arc::new(Listener { reports: Arc::clone(&reports), rate }));
    let pair = setup.establish();
    *reports.lock().unwrap() = Reports::default();
    (pair, reports)
}

fn send(pair: &mut Pair, chunks: usize) {
    let stream = pair.stream(Who::Client);
    pair.host(Who::Client).fed = true;
    for _ in 0..chunks {
        pair.feed(Who::Client, 0, stream, CHUNK);
    }
    pair.pass(Duration::from_millis(100));
}

#[test]
fn cwnd_limited_is_reported_only_for_open_gates_or_on_request() {
    let (mut pair, reports) = listening(None);
    let cwnd_limited = || reports.lock().unwrap().cwnd_limited;
    let stream = pair.stream(Who::Client);
    pair.shut_all(Who::Client, true);
    pair.engine(Who::Client).send_stream(stream).write(&[0; 80_000]).unwrap();
    pair.flush(Who::Client);
    assert_eq!((pair.blocked(Who::Client), cwnd_limited()), (1, 0));
    pair.shut_all(Who::Client, false);
    pair.flush(Who::Client);
    assert_eq!((pair.blocked(Who::Client), cwnd_limited()), (2, 1));
    pair.pass(Duration::from_millis(100));

    let before = cwnd_limited();
    pair.gate(Who::Client, 0).set_cwnd_limited();
    assert_eq!(cwnd_limited(), before);
    send(&mut pair, 4);
    assert_eq!(cwnd_limited(), before + 1);
}

#[test]
fn the_idle_share_scales_acked_bytes_unless_a_rate_is_measured() {
    for (rate, share, factor) in [(None, 0, 1), (None, 500, 2), (None, 750, 4), (Some(1_000_000), 500, 1)] {
        let (mut pair, reports) = listening(rate);
        pair.gate(Who::Client, 0).set_idle_share(share);
        send(&mut pair, 10);
        let noted = &pair.host(Who::Client).noted;
        let sent: u64 = noted
            .iter()
            .map(|noted| if let GateEvent::Sent { bytes, .. } = noted.what { u64::from(bytes) } else { 0 })
            .sum();
        assert_eq!(reports.lock().unwrap().acked, factor * sent, "{rate:?}, {share}");
        assert_eq!(pair.gate(Who::Client, 0).pacing_rate(), rate);
    }
}

#[test]
fn the_flag_that_a_controller_gets_is_the_sessions() {
    for limited in [false, true] {
        let (mut pair, reports) = listening(None);
        pair.gate(Who::Client, 0).set_app_limited(limited);
        send(&mut pair, 10);
        let reports = reports.lock().unwrap();
        assert_eq!(reports.app_limited, [limited; 10]);
    }
}

#[test]
fn a_peers_smaller_packet_limit_does_not_reach_the_controller() {
    // Later paths do not get it either, unless their size is discovered: 1.4.0 then sends packets
    // that the peer rejects.
    let mut setup = Setup::new(1, vec![Lane::delay_ms(0, 10), Lane::delay_ms(1, 10)]);
    setup.largest_payload = Some(1300);
    let mut pair = setup.establish();
    let mtu =
        |pair: &mut Pair, lane: u32| pair.engine(Who::Client).path_stats(lane.into()).unwrap().current_mtu;
    assert_eq!([mtu(&mut pair, 0), mtu(&mut pair, 1)], [1300, MTU]);
    assert_eq!(pair.gate(Who::Client, 0).mtu().get(), u64::from(MTU));
}
