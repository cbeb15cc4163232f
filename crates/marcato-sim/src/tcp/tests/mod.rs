//! Tests of one end of TCP, segment by segment in the style of packetdrill: segments arrive at
//! given times, and tests check those that leave.
#![expect(clippy::cast_possible_truncation, reason = "test numbers are small, or wrap on purpose")]

mod calls;
mod handshake;
mod losses;
mod offload;
mod reductions;
mod scripted;
mod spurious;
mod windows;
mod wire;

use marcato_units::{Bytes, Duration, Priority, Seed, Time};
use marcato_wire::Ecn;

use super::*;

/// Initial sequence number of the other end: not 0, so that no test passes by accident.
const PEER: u32 = 5_000;

/// Connection under test, with the other end simulated. Sequence numbers in texts are relative: the
/// SYN is 0, the first byte 1.
struct Host {
    tcp: Connection,
    isn: u32,
    /// One beyond the greatest number seen.
    next: u32,
    now: Time,
    out: Vec<(Time, Segment, Ecn)>,
}

/// Configuration with segments of 1000 bytes, no timestamps, an acknowledgement for each segment,
/// and losses by RFC 6675. (RACK has scripts of its own.)
fn config() -> Tcp {
    Tcp {
        mss: 1000,
        timestamps: false,
        delayed_ack: DelayedAck { first_at_once: false, ..DelayedAck::NONE },
        loss_detection: LossDetection::DupThresh,
        ..Tcp::with(Congestion::Reno)
    }
}

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

impl Host {
    fn new(config: Tcp) -> Self {
        Self::numbered(70_000, config)
    }

    /// Connection with this initial sequence number.
    fn numbered(isn: u32, config: Tcp) -> Self {
        let end = TcpEnd { initial_sequence: Some(isn), ..config.into() };
        let tcp = Connection::new(end, Seed::new(1), "test").unwrap();
        Self { tcp, isn, next: 0, now: Time::ZERO, out: Vec::new() }
    }

    /// Client whose handshake took 100 ms.
    fn connected(config: Tcp) -> Self {
        Self::new(config).connect()
    }

    fn connect(mut self) -> Self {
        self.tcp.connect();
        self.poll();
        self.wait(100);
        self.get("syn seq 0 ack 1");
        assert_eq!(self.sent(), ["syn 0", "ack 1"]);
        self
    }

    /// Handles a segment from the other end: `syn nosack fin rst ece cwr ce seq N len N ack N win N
    /// ts VALUE/ECHO sack A-B`.
    fn get(&mut self, text: &str) -> Delivered {
        let mut segment = Segment { seq: PEER.wrapping_add(1), window: 1 << 20, ..Segment::default() };
        let mut ecn = Ecn::NotEct;
        let mut words = text.split_whitespace();
        while let Some(word) = words.next() {
            let mut pair = |by: char| {
                let (a, b) = words.next().unwrap().split_once(by).unwrap();
                (a.parse::<u32>().unwrap(), b.parse::<u32>().unwrap())
            };
            match word {
                "syn" => (segment.flags.syn, segment.sack_permitted) = (true, true),
                "nosack" => segment.sack_permitted = false,
                "fin" => segment.flags.fin = true,
                "rst" => segment.flags.rst = true,
                "ece" => segment.flags.ece = true,
                "cwr" => segment.flags.cwr = true,
                "ce" => ecn = Ecn::Ce,
                "ts" => segment.timestamps = Some(pair('/')),
                "sack" => {
                    let (a, b) = pair('-');
                    segment.sack.push(self.isn.wrapping_add(a), self.isn.wrapping_add(b));
                }
                _ => {
                    let number: u32 = words.next().unwrap().parse().unwrap();
                    match word {
                        "seq" => segment.seq = PEER.wrapping_add(number),
                        "len" => segment.payload = number,
                        "win" => segment.window = number,
                        "ack" => {
                            segment.flags.ack = true;
                            segment.ack = self.isn.wrapping_add(number);
                        }
                        other => panic!("what is {other}?"),
                    }
                }
            }
        }
        let delivered = self.tcp.on_segment(self.now, &segment, ecn);
        self.poll();
        delivered
    }

    /// Writes as the application.
    fn write(&mut self, len: u64) {
        assert_eq!(self.tcp.write(Bytes::new(len), Priority::P2), Bytes::new(len));
        self.poll();
    }

    fn close(&mut self) {
        self.tcp.close();
        self.poll();
    }

    fn abort(&mut self) {
        self.tcp.abort();
        self.poll();
    }

    fn poll(&mut self) {
        while let Some((segment, ecn)) = self.tcp.poll(self.now) {
            self.out.push((self.now, segment, ecn));
        }
    }

    /// Advances time by `millis` milliseconds, and fires the timers that expire meanwhile.
    fn wait(&mut self, millis: u64) {
        let until = self.now + ms(millis);
        while let Some(at) = self.tcp.timers(self.now).into_iter().flatten().min().filter(|&at| at <= until) {
            self.now = self.now.max(at);
            self.tcp.on_timer(self.now);
            self.poll();
        }
        self.now = until;
    }

    /// Returns the segments that have left since the last call: `seq+len` for data, `ack N` for
    /// others.
    fn sent(&mut self) -> Vec<String> {
        self.sent_when().into_iter().map(|(_, text)| text).collect()
    }

    /// Returns the segments that have left since the last call, with their times in milliseconds.
    fn sent_when(&mut self) -> Vec<(u64, String)> {
        let (isn, mut next) = (self.isn, self.next);
        let mut text = |segment: &Segment| {
            let Flags { syn, fin, rst, ece, cwr, .. } = segment.flags;
            let seq = segment.seq.wrapping_sub(isn);
            let mut text = match segment.payload {
                _ if syn => format!("syn {seq}"),
                _ if rst => format!("rst {seq}"),
                0 if fin => format!("fin {seq}"),
                0 if seq < next => {
                    format!("probe {seq}")
                }
                0 => format!("ack {}", segment.ack.wrapping_sub(PEER)),
                len => format!("{seq}+{len}{}", if fin { " fin" } else { "" }),
            };
            if !rst {
                next = next.max(seq + segment.sequence_len());
            }
            for (start, end) in segment.sack.as_slice() {
                text += &format!(" sack {}-{}", start.wrapping_sub(PEER), end.wrapping_sub(PEER));
            }
            for (set, name) in [(ece, " ece"), (cwr, " cwr")] {
                if set {
                    text += name;
                }
            }
            text
        };
        let sent =
            self.out.iter().map(|(at, segment, _)| (at.as_nanos() / 1_000_000, text(segment))).collect();
        self.next = next;
        self.out.clear();
        sent
    }

    /// Returns the window in segments.
    fn cwnd(&self) -> f64 {
        self.tcp.stats().cwnd.get() as f64 / 1000.0
    }

    fn ssthresh(&self) -> f64 {
        self.tcp.stats().ssthresh.get() as f64 / 1000.0
    }
}
