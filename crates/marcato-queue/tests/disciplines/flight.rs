//! Traps before a TCP sender whose acknowledgements tell what is in flight.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use marcato_queue::trap::{Signal, Trap, TrapConfig, TrapKind, Verdict};
use marcato_units::{Duration, Seed, Stream, Time};
use marcato_wire::{TcpFlags, TcpSegment, TcpTimestamps, Transport};

use crate::vectors;

const CONFIG: TrapConfig = TrapConfig::marcato();
/// Bytes of a segment, and its time on a link of 20 Mbit/s.
const SEGMENT: u32 = 1448;
const GAP: Duration = Duration::from_micros(600);
/// Round trip beyond the queue.
const NEAR: Duration = Duration::from_millis(20);

/// Response of a sender to a loss.
#[derive(Clone, Copy, PartialEq)]
enum Sender {
    /// Halves its window once per round trip, as Reno does.
    Halves,
    /// Keeps as much in the network as before.
    Ignores,
}

/// Events of the path that come late.
#[derive(Clone, Copy, PartialEq)]
enum Timers {
    Exact,
    /// In 6 of every 45 ms nothing comes; what is due comes after it.
    Late,
}

/// A sender before a drop-tail queue, and the trap of the queue.
struct Path {
    sender: Sender,
    timers: Timers,
    /// Packets that the queue has room for.
    room: usize,
    /// Part of the packets that are lost beside those that find no room.
    lost: f64,
    random: Stream,
    now: Time,
    window: f64,
    trap: Trap,
    /// Numbers of segments.
    next: u32,
    received: BTreeSet<u32>,
    acknowledged: u32,
    repaired: BTreeSet<u32>,
    recover: u32,
    departures: Vec<Time>,
    /// Acknowledgements on their way, with the number of the segment and its time.
    acks: BinaryHeap<Reverse<(Time, u32, Time)>>,
    first_loss: Option<Time>,
    accepted: Option<Time>,
}

impl Path {
    fn new(sender: Sender, timers: Timers, window: f64, room: usize, lost: f64) -> Self {
        Self {
            sender,
            timers,
            room,
            lost,
            random: Seed::new(1).stream("loss"),
            now: Time::from_secs(1),
            window,
            trap: Trap::new(TrapKind::Tcp),
            next: 0,
            received: BTreeSet::new(),
            acknowledged: 0,
            repaired: BTreeSet::new(),
            recover: 0,
            departures: Vec::new(),
            acks: BinaryHeap::new(),
            first_loss: None,
            accepted: None,
        }
    }

    fn segment(&self, seq: u32, ack: u32, payload: u32, echo: Time) -> Transport {
        let ms = |time: Time| u32::try_from(time.as_nanos() / 1_000_000).unwrap();
        let timestamps = Some(TcpTimestamps { value: ms(self.now), echo: ms(echo) });
        Transport::Tcp(TcpSegment { seq, ack, flags: TcpFlags::ACK, payload, timestamps })
    }

    fn send(&mut self, number: u32) {
        let packet = self.segment(number * SEGMENT, 1, SEGMENT, self.now);
        self.trap.forward(&CONFIG, self.now, &packet);
        if self.trap.verdict(Signal::Loss) == Verdict::Responsive {
            self.accepted.get_or_insert(self.now);
        }
        self.departures.retain(|&departure| departure > self.now);
        // What is sent again finds room: its loss would be another story.
        let again = self.repaired.contains(&number);
        if !again && (self.departures.len() >= self.room || self.random.chance(self.lost)) {
            self.first_loss.get_or_insert(self.now);
            self.trap.signal(&CONFIG, Signal::Loss, self.trap.cycle_id());
            return;
        }
        let departure = self.departures.last().copied().unwrap_or(self.now).max(self.now) + GAP;
        self.departures.push(departure);
        let mut due = departure + NEAR;
        if self.timers == Timers::Late {
            let within = due.as_nanos() % 45_000_000;
            due += Duration::from_nanos(6_000_000u64.saturating_sub(within));
        }
        self.acks.push(Reverse((due, number, self.now)));
    }

    fn acknowledge(&mut self, number: u32, sent: Time) {
        if number >= self.acknowledged {
            self.received.insert(number);
        }
        while self.received.remove(&self.acknowledged) {
            self.repaired.remove(&self.acknowledged);
            self.acknowledged += 1;
        }
        let ack = self.segment(1, self.acknowledged * SEGMENT, 0, sent);
        self.trap.backward(&CONFIG, self.now, &ack);
        let missing: Vec<u32> = (self.acknowledged..number.saturating_sub(3))
            .filter(|at| !self.received.contains(at) && !self.repaired.contains(at))
            .collect();
        for lost in missing {
            if lost >= self.recover {
                self.recover = self.next;
                if self.sender == Sender::Halves {
                    self.window /= 2.0;
                }
            }
            self.repaired.insert(lost);
            self.send(lost);
        }
        if self.sender == Sender::Halves && self.acknowledged >= self.recover {
            self.window += 1.0 / self.window;
        }
    }

    /// Runs for so many seconds.
    fn run(mut self, seconds: u64) -> Self {
        let end = self.now + Duration::from_secs(seconds);
        while self.now < end {
            // Those that are neither acknowledged nor known as lost.
            let known = self.received.len();
            while f64::from(self.next - self.acknowledged) - known as f64 <= self.window {
                self.next += 1;
                self.send(self.next - 1);
            }
            let Some(Reverse((at, number, sent))) = self.acks.pop() else {
                // Everything was lost: the timer of retransmissions.
                self.now += Duration::from_millis(300);
                self.repaired.insert(self.acknowledged);
                self.send(self.acknowledged);
                continue;
            };
            self.now = self.now.max(at);
            self.acknowledge(number, sent);
        }
        self
    }

    /// Time from the first loss to the responsive queue.
    fn wait(&self) -> Duration {
        self.accepted.unwrap() - self.first_loss.unwrap()
    }
}

#[test]
fn a_halved_window_shows_in_flight_though_timers_are_late() {
    for timers in [Timers::Exact, Timers::Late] {
        let path = Path::new(Sender::Halves, timers, 10.0, 20, 0.0).run(20);
        let wait = path.wait();
        assert!(wait < Duration::from_millis(600), "{wait:?}");
        let scores = path.trap.scores();
        assert_eq!(scores.unresponsive, [0, 0], "{scores:?}");
    }
}

#[test]
fn a_window_that_ignores_losses_is_refused() {
    // Too large for the queue; and losses by chance.
    for (window, lost) in [(60.0, 0.0), (45.0, 0.01), (45.0, 0.003)] {
        for timers in [Timers::Exact, Timers::Late] {
            let path = Path::new(Sender::Ignores, timers, window, 20, lost).run(20);
            let scores = path.trap.scores();
            assert_eq!(
                path.trap.verdict(Signal::Loss),
                Verdict::Unresponsive,
                "{window}, {lost}: {scores:?}"
            );
            assert_eq!(scores.responsive[0], 0, "{window}, {lost}: {scores:?}");
        }
    }
}

#[test]
fn a_constant_rate_is_no_response_where_others_make_room() {
    let mut trap = Trap::new(TrapKind::Tcp);
    let stamps = |value: u64, echo: u64| {
        Some(TcpTimestamps { value: u32::try_from(value).unwrap(), echo: u32::try_from(echo).unwrap() })
    };
    let (mut seq, mut ack) = (0, 0);
    // The queue holds packets for 100 ms, and for 50 after each second's loss, which others answer.
    for at in 0..30_000u64 {
        let now = Time::from_millis(1000 + at);
        let delay = 50 + (at % 1000) / 20;
        let data =
            TcpSegment { seq, ack: 1, flags: TcpFlags::ACK, payload: SEGMENT, timestamps: stamps(at, at) };
        trap.forward(&CONFIG, now, &Transport::Tcp(data));
        seq += SEGMENT;
        if at % 1000 == 0 {
            trap.signal(&CONFIG, Signal::Loss, trap.cycle_id());
        }
        let acknowledged = u32::try_from(at.saturating_sub(delay)).unwrap() * SEGMENT;
        if acknowledged > ack {
            ack = acknowledged;
            let echo = at.saturating_sub(delay);
            let timestamps = stamps(at, echo);
            let answer = TcpSegment { seq: 1, ack, flags: TcpFlags::ACK, payload: 0, timestamps };
            trap.backward(&CONFIG, now, &Transport::Tcp(answer));
        }
    }
    let scores = trap.scores();
    assert_eq!((scores.responsive[0], trap.verdict(Signal::Loss)), (0, Verdict::Unresponsive), "{scores:?}");
}

// Linux's CUBIC at queues of the lab, whose timers were late by milliseconds. By rates alone the first was refused half
// of its votes, and the others waited for their third overflow.
#[test]
fn captured_cubic_is_responsive_after_its_first_losses() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../marcato-kernel/tests/captures/linux.txt");
    let captures = std::fs::read_to_string(path).unwrap();
    let flows: Vec<_> = captures.split("\nflow ").skip(1).collect();
    assert_eq!(flows.len(), 3);
    for flow in flows {
        let name = flow.lines().next().unwrap();
        let (verdict, votes) = vectors::verdict(flow);
        assert_eq!(verdict, Verdict::Responsive, "{name}: votes {votes:?}");
        assert_eq!(votes.1, 0, "{name}: votes {votes:?}");
    }
}
