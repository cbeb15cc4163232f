//! Calls that a congestion control gets from its sender: which, in which order, and with which amounts.

use std::sync::{Arc, Mutex, PoisonError};

use marcato_units::Rate;

use super::*;
use crate::tcp::congestion::{AckEvent, CongestionControl, CongestionFactory, Signal};

/// Control with a constant window, which writes down its calls.
#[derive(Debug)]
struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn note(&self, call: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(call);
    }
}

impl CongestionControl for Recorder {
    fn on_echo(&mut self, newly_acked: u64, una: u64, _nxt: u64, ece: bool) {
        if ece {
            self.note(format!("echo of {newly_acked} up to {una}"));
        }
    }
    fn on_ack(&mut self, ack: &AckEvent) {
        if ack.newly_lost > 0 {
            self.note(format!("{} lost of {} in flight", ack.newly_lost, ack.prior_in_flight));
        }
    }
    fn on_congestion(&mut self, _: Time, in_flight: u64, signal: Signal) {
        self.note(format!("{signal:?} of {in_flight}"));
    }
    fn on_recovered(&mut self, _: Time) {
        self.note("recovered".to_owned());
    }
    fn on_rto(&mut self, _: Time, in_flight: u64, first: bool) {
        self.note(format!("timeout of {in_flight}{}", if first { "" } else { " again" }));
    }
    fn on_idle_restart(&mut self, _: Time, _: bool, expired: bool) {
        self.note(format!("idle, expired: {expired}"));
    }
    fn on_lost_handshake(&mut self) {
        self.note("lost handshake".to_owned());
    }
    fn on_established(&mut self, _: Time, rtt: Option<Duration>) {
        self.note(format!("established after {:?}", rtt.map(|rtt| rtt.as_nanos() / 1_000_000)));
    }
    fn cwnd(&self) -> u64 {
        10_000
    }
    fn ssthresh(&self) -> u64 {
        10_000
    }
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
}

/// Client with such a control, and its calls since the last look.
struct Watched {
    host: Host,
    calls: Arc<Mutex<Vec<String>>>,
}

impl Watched {
    fn new(tcp: Tcp) -> Self {
        let calls = Arc::new(Mutex::new(Vec::new()));
        let shared = Arc::clone(&calls);
        let own = CongestionFactory::new("recorder", move |_, _| Box::new(Recorder(Arc::clone(&shared))));
        let end = TcpEnd { own_congestion: Some(own), initial_sequence: Some(70_000), ..tcp.into() };
        let tcp = Connection::new(end, Seed::new(1), "test").unwrap();
        let mut host = Host { tcp, isn: 70_000, next: 0, now: Time::ZERO, out: Vec::new() };
        host.tcp.connect();
        host.poll();
        Self { host, calls }
    }

    fn connected(tcp: Tcp) -> Self {
        let ecn = tcp.ecn;
        let mut watched = Self::new(tcp);
        watched.host.wait(100);
        watched.host.get(if ecn { "syn seq 0 ack 1 ece" } else { "syn seq 0 ack 1" });
        assert_eq!(watched.calls(), ["established after Some(100)"]);
        watched
    }

    /// Writes to a connection of which nothing is in flight.
    fn begin(&mut self, len: u64) {
        self.host.write(len);
        assert_eq!(self.calls(), ["idle, expired: false"]);
        self.host.sent();
    }

    fn calls(&self) -> Vec<String> {
        std::mem::take(&mut *self.calls.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(&mut self, text: &str) -> Vec<String> {
        self.host.get(text);
        self.calls()
    }
}

/// RFC 5681 §3.1: the initial window of one segment follows two lost SYNs, not one.
#[test]
fn a_control_hears_of_a_handshake_that_took_three_syns() {
    for (wait, expected) in [
        (500, &["established after Some(500)"][..]),
        (1500, &["established after None"]),
        (3500, &["lost handshake", "established after None"]),
    ] {
        let mut watched = Watched::new(config());
        watched.host.wait(wait);
        assert_eq!(watched.get("syn seq 0 ack 1"), expected, "{wait} ms");
    }
}

#[test]
fn a_control_hears_of_each_recovery_and_its_end() {
    let mut watched = Watched::connected(config());
    watched.begin(50_000);
    assert!(watched.get("ack 1 sack 1001-2001").is_empty());
    assert!(watched.get("ack 1 sack 1001-3001").is_empty());
    // Limited transmit has sent two more.
    assert_eq!(watched.get("ack 1 sack 1001-4001"), ["Loss of 12000", "1000 lost of 10000 in flight"]);
    assert!(watched.get("ack 11001").is_empty());
    assert_eq!(watched.get("ack 12001"), ["recovered"]);
}

#[test]
fn a_control_hears_of_every_echo_and_of_one_reduction() {
    let mut watched = Watched::connected(Tcp { ecn: true, ..config() });
    watched.begin(50_000);
    assert_eq!(watched.get("ack 1001 ece"), ["echo of 1000 up to 1001", "Ecn of 10000"]);
    assert_eq!(watched.get("ack 3001 ece"), ["echo of 2000 up to 3001"]);
    assert!(watched.get("ack 9001").is_empty());
    assert_eq!(watched.get("ack 10001"), ["recovered"]);
}

#[test]
fn a_control_hears_of_timeouts_and_of_idle_times() {
    let mut watched = Watched::connected(Tcp { slow_start_after_idle: true, ..config() });
    watched.begin(2000);
    watched.host.wait(1000);
    let timeouts = watched.calls();
    assert_eq!(timeouts[0], "timeout of 2000");
    assert!(
        timeouts.len() > 1 && timeouts[1..].iter().all(|it| it == "timeout of 2000 again"),
        "{timeouts:?}"
    );
    // The end of a timeout's recovery is no call.
    assert!(watched.get("ack 2001").is_empty());
    watched.host.wait(20_000);
    watched.host.write(1000);
    assert_eq!(watched.calls(), ["idle, expired: true"]);
}

/// RFC 8985 §7.4.
#[test]
fn a_control_hears_of_a_loss_that_a_probe_has_repaired() {
    let mut watched = Watched::connected(Tcp { loss_detection: LossDetection::Rack, ..config() });
    watched.begin(2000);
    watched.host.wait(100);
    watched.host.get("ack 1001");
    while watched.host.sent().is_empty() {
        watched.host.wait(10);
    }
    // Nothing would follow the probe's own acknowledgement, which a delayed original could have caused.
    watched.host.write(1000);
    watched.host.wait(100);
    assert_eq!(watched.get("ack 3001"), ["Loss of 2000", "recovered"]);
}

/// RFC 8985 §7.3: a recovery repairs all losses, so that the outcome of an earlier probe is no news at its end.
#[test]
fn a_recovery_that_follows_a_probe_is_one_reduction() {
    let mut watched = Watched::connected(Tcp { loss_detection: LossDetection::Rack, ..config() });
    watched.begin(5000);
    while watched.host.sent().is_empty() {
        watched.host.wait(10);
    }
    watched.host.write(1000);
    watched.host.wait(100);
    // The probe and what follows it have arrived, long after the four before were sent.
    let reduced = watched.get("ack 1 sack 4001-6001");
    assert_eq!(reduced.len(), 2, "{reduced:?}");
    assert_eq!(reduced[0], "Loss of 6000");
    watched.host.wait(100);
    assert_eq!(watched.get("ack 6001"), ["recovered"]);
}

/// A control that knows nothing of undoing is told of the end of its recovery.
#[test]
fn without_a_way_to_undo_a_spurious_reduction_just_ends() {
    let calls = Arc::new(Mutex::new(Vec::new()));
    Recorder(Arc::clone(&calls)).on_spurious(Time::ZERO);
    assert_eq!(*calls.lock().unwrap_or_else(PoisonError::into_inner), ["recovered"]);
}
