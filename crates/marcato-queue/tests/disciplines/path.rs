//! Path in virtual time: senders, one bottleneck with CRQ, receivers, and the reverse path past the
//! bottleneck.
//!
//! It is small, and its retransmission time-out is crude. But its senders answer signals as their
//! kind does, their headers have the fields of real ones, and a trap sees the same of both.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};

use marcato_queue::{Crq, CrqConfig, Discipline, FlowKey, FlowReport, Packet, Verdict};
use marcato_units::{Bytes, Duration, Rate, Seed, Stream, Time};
use marcato_wire::{Ecn, QuicHeader, QuicLongType, TcpFlags, TcpSegment, TcpTimestamps, Transport};

/// Bytes of payload in a data packet.
pub(crate) const MSS: u32 = 1448;
const HEADERS: u64 = 66;
/// Sequence number of the first byte of the reverse direction.
const FIRST_BACK: u32 = u32::MAX - 98;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Control {
    Reno,
    Cubic,
    Dctcp,
    /// Unresponsive sender of this rate in Mbit/s.
    Constant(u64),
    /// Unresponsive sender of this mean rate in Mbit/s with exponential gaps between packets.
    Poisson(u64),
    /// Unresponsive sender of this rate in Mbit/s for a part of every period: part and period in
    /// milliseconds.
    Pulse(u64, u64, u64),
}

impl Control {
    /// Whether the sender is unresponsive.
    const fn is_flood(self) -> bool {
        matches!(self, Self::Constant(_) | Self::Poisson(_) | Self::Pulse(..))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Proto {
    Tcp {
        timestamps: bool,
    },
    /// QUIC with a spin bit that spins.
    Quic,
    /// UDP that begins like a short header, without a handshake.
    Udp,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Sender {
    pub(crate) control: Control,
    pub(crate) proto: Proto,
    pub(crate) start: Time,
    pub(crate) ecn: bool,
    /// Whether the other host sends half of the data back, in TCP: CRQ §IV-B.
    pub(crate) mirrored: bool,
    /// Number of packets after which the spin bit flips, instead of once per round trip.
    pub(crate) flips: Option<u64>,
}

impl Sender {
    pub(crate) fn new(control: Control, proto: Proto) -> Self {
        Self { control, proto, start: Time::ZERO, ecn: false, mirrored: false, flips: None }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Datagram {
    flow: u64,
    backwards: bool,
    len: u64,
    ecn: Ecn,
    transport: Transport,
    /// Index of the transmission; in an acknowledgement, that of the acknowledged one.
    number: u64,
    segment: u64,
    spin: bool,
}

packet!(Datagram, |datagram| FlowKey::new(datagram.flow << 1 | u64::from(datagram.backwards)), |datagram| {
    FlowKey::new(datagram.flow << 1 | u64::from(!datagram.backwards))
});

#[derive(Clone, Debug)]
enum Event {
    AtQueue(Datagram),
    LinkFree,
    AtReceiver(Datagram),
    BackAtQueue(Datagram),
    AtSender(Datagram),
    /// Timer of a flow: a clocked sender sends, others check whether they are stuck.
    Tick(u64),
}

struct State {
    sender: Sender,
    // The sender.
    next_number: u64,
    next_segment: u64,
    in_flight: BTreeMap<u64, u64>,
    lost: VecDeque<u64>,
    window: f64,
    threshold: f64,
    recovery: u64,
    w_max: f64,
    epoch: Option<Time>,
    alpha: f64,
    marked: (u64, u64),
    round: u64,
    srtt: f64,
    spin: bool,
    heard: Time,
    sent_at: BTreeMap<u64, Time>,
    echo: u32,
    /// Number after the last received one of the other host.
    heard_to: u32,
    // The receiver.
    received: BTreeSet<u64>,
    cumulative: u64,
    recent: u32,
    newest: u64,
    newest_spin: bool,
    answered: bool,
    /// Number after the last that it sent back.
    sent_back: u32,
}

pub(crate) struct Path {
    pub(crate) queue: Crq<Datagram>,
    rate: Rate,
    /// Delay from sender to queue and from queue to receiver: together half of the round trip
    /// without queuing.
    near: Duration,
    far: Duration,
    states: Vec<State>,
    events: BinaryHeap<Reverse<(Time, u64)>>,
    what: BTreeMap<u64, Event>,
    next_event: u64,
    busy: bool,
    random: Stream,
    pub(crate) delivered: Vec<u64>,
}

impl Path {
    pub(crate) fn new(config: CrqConfig, rtt: Duration, senders: &[Sender]) -> Self {
        let mut path = Self {
            queue: Crq::new(config).unwrap(),
            rate: config.rate,
            near: rtt / 4,
            far: rtt / 4,
            states: Vec::new(),
            events: BinaryHeap::new(),
            what: BTreeMap::new(),
            next_event: 0,
            busy: false,
            random: Seed::new(1).stream("path"),
            delivered: vec![0; senders.len()],
        };
        for (flow, &sender) in senders.iter().enumerate() {
            path.states.push(State {
                sender,
                next_number: 1,
                next_segment: 0,
                in_flight: BTreeMap::new(),
                lost: VecDeque::new(),
                window: 10.0,
                threshold: f64::INFINITY,
                recovery: 0,
                w_max: 0.0,
                epoch: None,
                alpha: 1.0,
                marked: (0, 0),
                round: 0,
                srtt: rtt.as_secs_f64(),
                spin: false,
                heard: sender.start,
                sent_at: BTreeMap::new(),
                echo: 0,
                heard_to: FIRST_BACK,
                received: BTreeSet::new(),
                cumulative: 0,
                recent: 0,
                newest: 0,
                newest_spin: false,
                answered: false,
                sent_back: FIRST_BACK,
            });
            path.hello(flow as u64, sender);
        }
        path
    }

    fn at(&mut self, time: Time, event: Event) {
        self.what.insert(self.next_event, event);
        self.events.push(Reverse((time, self.next_event)));
        self.next_event += 1;
    }

    /// Opens the connection from the receiver's side.
    fn hello(&mut self, flow: u64, sender: Sender) {
        let time = sender.start + self.far;
        let transport = match sender.proto {
            Proto::Tcp { .. } => Transport::Tcp(self.segment(
                flow,
                true,
                time,
                TcpFlags::SYN,
                (FIRST_BACK.wrapping_sub(1), 0),
                0,
            )),
            Proto::Udp => Transport::Udp { payload: 100, quic: None },
            _ => long(1200),
        };
        let hello = self.datagram(flow, true, 100, transport);
        self.at(time, Event::BackAtQueue(hello));
    }

    fn datagram(&self, flow: u64, backwards: bool, len: u64, transport: Transport) -> Datagram {
        Datagram { flow, backwards, len, ecn: Ecn::NotEct, transport, number: 0, segment: 0, spin: false }
    }

    fn segment(
        &self,
        flow: u64,
        backwards: bool,
        now: Time,
        flags: TcpFlags,
        numbers: (u32, u32),
        payload: u32,
    ) -> TcpSegment {
        let state = self.states.get(flow as usize);
        let timestamps =
            matches!(state.map(|state| state.sender.proto), None | Some(Proto::Tcp { timestamps: true }));
        #[allow(clippy::cast_possible_truncation, reason = "clocks wrap")]
        let clock = (now.as_nanos() / 1_000_000) as u32;
        // Both clocks wrap within the run.
        let value = clock.wrapping_add(if backwards { u32::MAX - 500 } else { u32::MAX - 2000 });
        let echo = state.map_or(0, |state| if backwards { state.recent } else { state.echo });
        TcpSegment {
            seq: numbers.0,
            ack: numbers.1,
            flags,
            payload,
            timestamps: timestamps.then_some(TcpTimestamps { value, echo }),
        }
    }

    pub(crate) fn report(&self, flow: u64) -> Option<FlowReport> {
        self.queue.flow(FlowKey::new(flow << 1))
    }

    /// Runs up to `until`, and calls `each` after every packet that arrives at the queue.
    pub(crate) fn run(&mut self, until: Time, mut each: impl FnMut(&Crq<Datagram>, Time)) {
        while let Some(&Reverse((now, id))) = self.events.peek()
            && now < until
        {
            self.events.pop();
            match self.what.remove(&id).unwrap() {
                Event::AtQueue(packet) => {
                    match self.queue.enqueue(now, packet) {
                        Verdict::Queued | Verdict::Dropped(_) => {}
                    }
                    each(&self.queue, now);
                    self.transmit(now);
                }
                Event::LinkFree => {
                    self.busy = false;
                    self.transmit(now);
                }
                Event::AtReceiver(packet) => self.receive(now, packet),
                Event::BackAtQueue(packet) => {
                    self.queue.observe(now, &packet);
                    self.at(now + self.near, Event::AtSender(packet));
                }
                Event::AtSender(packet) => self.hear(now, &packet),
                Event::Tick(flow) => self.tick(now, flow),
            }
        }
    }

    fn transmit(&mut self, now: Time) {
        if self.busy {
            return;
        }
        if let Some(packet) = self.queue.dequeue(now) {
            let time = self.rate.transmission_time(packet.len());
            self.busy = true;
            self.at(now + time, Event::LinkFree);
            self.at(now + time + self.far, Event::AtReceiver(packet));
        } else if let Some(ready) = self.queue.next_ready(now) {
            self.at(ready, Event::LinkFree);
        }
    }

    fn receive(&mut self, now: Time, packet: Datagram) {
        let flow = packet.flow;
        let state = &mut self.states[flow as usize];
        self.delivered[flow as usize] += packet.len;
        if let Transport::Tcp(segment) = packet.transport
            && let Some(timestamps) = segment.timestamps
            && (segment.flags.has(TcpFlags::SYN) || packet.segment <= state.cumulative)
        {
            // RFC 7323 §4.3: the timestamp of the segment that begins where the last
            // acknowledgement ended.
            state.recent = timestamps.value;
        }
        if packet.number > state.newest {
            (state.newest, state.newest_spin) = (packet.number, packet.spin);
        }
        if packet.number > 0 {
            state.received.insert(packet.segment);
            while state.received.remove(&state.cumulative) {
                state.cumulative += 1;
            }
        }
        let (cumulative, spin) = (state.cumulative, !state.newest_spin);
        let payload = if state.sender.mirrored { MSS / 2 } else { 0 };
        let seq = state.sent_back;
        state.sent_back = seq.wrapping_add(payload);
        let transport = match state.sender.proto {
            Proto::Tcp { .. } => {
                let ack = number(cumulative);
                Transport::Tcp(self.segment(flow, true, now, TcpFlags::ACK, (seq, ack), payload))
            }
            _ => {
                let first = !std::mem::replace(&mut state.answered, true);
                if first { long(1200) } else { short(40, spin) }
            }
        };
        let mut answer = self.datagram(flow, true, 60 + u64::from(payload), transport);
        (answer.number, answer.segment, answer.spin) = (packet.number, packet.segment, spin);
        answer.ecn = packet.ecn;
        self.at(now + self.far, Event::BackAtQueue(answer));
    }

    fn hear(&mut self, now: Time, packet: &Datagram) {
        let flow = packet.flow;
        if let Transport::Tcp(segment) = packet.transport {
            let state = &mut self.states[flow as usize];
            state.echo = segment.timestamps.map_or(state.echo, |timestamps| timestamps.value);
            state.heard_to = segment.end();
        }
        if packet.number == 0 {
            // First packet of the other host, or its answer to ours.
            let hello = match packet.transport {
                Transport::Tcp(segment) => segment.flags.has(TcpFlags::SYN),
                Transport::Udp { .. } => !self.states[flow as usize].answered,
                Transport::Opaque => false,
            };
            if hello {
                let transport = match self.states[flow as usize].sender.proto {
                    Proto::Tcp { .. } => {
                        let flags = TcpFlags::SYN.with(TcpFlags::ACK);
                        let numbers = (number(0).wrapping_sub(1), FIRST_BACK);
                        Transport::Tcp(self.segment(flow, false, now, flags, numbers, 0))
                    }
                    Proto::Udp => Transport::Udp { payload: 100, quic: None },
                    _ => long(1200),
                };
                let answer = self.datagram(flow, false, 100, transport);
                self.at(now + self.near, Event::AtQueue(answer));
            }
            if !hello {
                self.at(now, Event::Tick(flow));
            }
            return;
        }
        let state = &mut self.states[flow as usize];
        if state.sender.proto == Proto::Quic {
            state.spin = packet.spin;
        }
        state.heard = now;
        if let Some(sent) = state.sent_at.remove(&packet.number) {
            let rtt = (now - sent).as_secs_f64();
            state.srtt += (rtt - state.srtt) / 8.0;
        }
        state.in_flight.remove(&packet.number);
        let lost: Vec<u64> =
            state.in_flight.range(..packet.number.saturating_sub(2)).map(|(&number, _)| number).collect();
        let mut cut = false;
        for number in lost {
            let segment = state.in_flight.remove(&number).unwrap();
            state.sent_at.remove(&number);
            state.lost.push_back(segment);
            cut |= number > state.recovery;
        }
        let ce = packet.ecn == Ecn::Ce && state.sender.ecn;
        state.acknowledged(now, packet.number, ce, cut);
        self.fill(now, flow);
    }

    fn tick(&mut self, now: Time, flow: u64) {
        let state = &mut self.states[flow as usize];
        let mean = |mbps: u64| Rate::from_mbps(mbps).transmission_time(Bytes::new(u64::from(MSS) + HEADERS));
        match state.sender.control {
            Control::Constant(mbps) => {
                self.send(now, flow);
                self.at(now + mean(mbps), Event::Tick(flow));
            }
            Control::Pulse(mbps, on, period) => {
                self.send(now, flow);
                let mut next = now + mean(mbps);
                let into = Duration::from_nanos(next.as_nanos() % (period * 1_000_000));
                if into >= Duration::from_millis(on) {
                    next += Duration::from_millis(period) - into;
                }
                self.at(next, Event::Tick(flow));
            }
            Control::Poisson(mbps) => {
                self.send(now, flow);
                let gap = self.random.exponential(mean(mbps));
                self.at(now + gap, Event::Tick(flow));
            }
            Control::Reno | Control::Cubic | Control::Dctcp => {
                let patience = Duration::from_secs_f64((state.srtt * 3.0).max(0.2));
                if now.since(state.heard) > patience && !state.in_flight.is_empty() {
                    let stuck: Vec<u64> = state.in_flight.values().copied().collect();
                    state.lost.extend(stuck);
                    state.in_flight.clear();
                    state.sent_at.clear();
                    (state.threshold, state.window) = ((state.window / 2.0).max(2.0), 1.0);
                    (state.recovery, state.heard) = (state.next_number, now);
                }
                self.at(now + Duration::from_millis(100), Event::Tick(flow));
                self.fill(now, flow);
            }
        }
    }

    /// Sends up to the window.
    fn fill(&mut self, now: Time, flow: u64) {
        if self.states[flow as usize].sender.control.is_flood() {
            return;
        }
        while {
            let state = &self.states[flow as usize];
            (state.in_flight.len() as f64) < state.window.floor().max(1.0)
        } {
            self.send(now, flow);
        }
    }

    fn send(&mut self, now: Time, flow: u64) {
        let state = &mut self.states[flow as usize];
        let number = state.next_number;
        state.next_number += 1;
        let segment = state.lost.pop_front().unwrap_or_else(|| {
            state.next_segment += 1;
            state.next_segment - 1
        });
        if !state.sender.control.is_flood() {
            state.in_flight.insert(number, segment);
            state.sent_at.insert(number, now);
        }
        let (proto, ecn, heard_to) = (state.sender.proto, state.sender.ecn, state.heard_to);
        let spin = state.sender.flips.map_or(state.spin, |every| number / every % 2 == 1);
        let transport = match proto {
            Proto::Tcp { .. } => {
                let numbers = (self::number(segment), heard_to);
                Transport::Tcp(self.segment(flow, false, now, TcpFlags::ACK, numbers, MSS))
            }
            _ => short(MSS, spin),
        };
        let mut packet = self.datagram(flow, false, u64::from(MSS) + HEADERS, transport);
        (packet.number, packet.segment, packet.spin) = (number, segment, spin);
        packet.ecn = if ecn { Ecn::Ect0 } else { Ecn::NotEct };
        self.at(now + self.near, Event::AtQueue(packet));
    }
}

/// Sequence number of a segment: the stream wraps around after two megabytes.
#[allow(clippy::cast_possible_truncation, reason = "sequence numbers wrap")]
fn number(segment: u64) -> u32 {
    (segment as u32).wrapping_mul(MSS).wrapping_add(u32::MAX - 2_000_000)
}

fn long(payload: u32) -> Transport {
    let quic = Some(QuicHeader::Long { version: 1, kind: Some(QuicLongType::Initial) });
    Transport::Udp { payload, quic }
}

fn short(payload: u32, spin: bool) -> Transport {
    Transport::Udp { payload, quic: Some(QuicHeader::Short { fixed: true, spin }) }
}

impl State {
    /// Takes note of the acknowledgement of transmission `number`, with its mark, and of a loss
    /// found by it.
    fn acknowledged(&mut self, now: Time, number: u64, ce: bool, lost: bool) {
        let dctcp = self.sender.control == Control::Dctcp;
        self.marked.0 += u64::from(ce);
        self.marked.1 += 1;
        if dctcp && number > self.round {
            // RFC 8257 §3.3: alpha is updated once per window.
            let fraction = self.marked.0 as f64 / self.marked.1 as f64;
            self.alpha += (fraction - self.alpha) / 16.0;
            (self.marked, self.round) = ((0, 0), self.next_number);
        }
        let answers = lost || (ce && number > self.recovery);
        if answers {
            self.recovery = self.next_number;
            self.epoch = None;
            self.w_max = if self.window < self.w_max { self.window * 0.85 } else { self.window };
            let factor = match self.sender.control {
                Control::Cubic => 0.7,
                Control::Dctcp if !lost => 1.0 - self.alpha / 2.0,
                _ => 0.5,
            };
            self.window = (self.window * factor).max(2.0);
            self.threshold = self.window;
            return;
        }
        if number <= self.recovery {
            return;
        }
        if self.window < self.threshold {
            self.window += 1.0;
            return;
        }
        match self.sender.control {
            Control::Cubic => {
                let epoch = *self.epoch.get_or_insert(now);
                let t = (now - epoch).as_secs_f64() + self.srtt;
                let k = (self.w_max * 0.3 / 0.4).cbrt();
                let target = 0.4 * (t - k).powi(3) + self.w_max;
                // RFC 9438 §4.3: CUBIC is never slower than Reno.
                let reno = 0.529 / self.window;
                self.window += ((target - self.window) / self.window).clamp(reno, 0.5);
            }
            _ => self.window += 1.0 / self.window,
        }
    }
}
