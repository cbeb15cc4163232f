//! Two ends with a lossy line between them: what stands on the wire, and the statistics beside it.

use std::collections::BTreeMap;

use super::*;

/// Two ends and the segments between them.
struct Line {
    ends: [Connection; 2],
    now: Time,
    /// Segments in flight, by arrival and number.
    in_flight: BTreeMap<(Time, usize), (usize, Segment, Ecn)>,
    /// All segments so far: the time at which they left, the end that sent them, and whether they arrive.
    passed: Vec<(Time, usize, Segment, Ecn, bool)>,
    received: [u64; 2],
    draws: marcato_units::Stream,
    loss: f64,
}

const ISN: [u32; 2] = [u32::MAX - 20_000, 9_000];

impl Line {
    fn new(config: &Tcp, seed: u64, loss: f64) -> Self {
        let end = |side: usize| {
            let end = TcpEnd { initial_sequence: Some(ISN[side]), ..config.clone().into() };
            Connection::new(end, Seed::new(seed), "line").unwrap()
        };
        let mut line = Self {
            ends: [end(0), end(1)],
            now: Time::ZERO,
            in_flight: BTreeMap::new(),
            passed: Vec::new(),
            received: [0; 2],
            draws: Seed::new(seed).stream("line"),
            loss,
        };
        line.ends[0].connect();
        line
    }

    fn settle(&mut self) {
        for side in 0..2 {
            while let Some((segment, ecn)) = self.ends[side].poll(self.now) {
                let arrives = segment.flags.syn || !self.draws.chance(self.loss);
                let number = self.passed.len();
                self.passed.push((self.now, side, segment.clone(), ecn, arrives));
                if arrives {
                    // Five milliseconds, and a few packets overtake others.
                    let late = if self.loss > 0.0 && self.draws.chance(0.02) { 1 } else { 0 };
                    self.in_flight.insert((self.now + ms(5 + late), number), (1 - side, segment, ecn));
                }
            }
        }
    }

    /// Lets time pass until both ends have finished.
    fn run(&mut self) {
        while !self.ends.iter().all(Connection::all_acked) {
            self.settle();
            let arrival = self.in_flight.first_key_value().map(|((at, _), _)| *at);
            let now = self.now;
            let timers = self.ends.iter_mut().flat_map(|end| end.timers(now)).flatten();
            self.now = timers.chain(arrival).min().expect("something is to happen").max(now);
            assert!(self.now < Time::from_secs(300), "it takes too long");
            while let Some(entry) = self.in_flight.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (to, segment, ecn) = entry.remove();
                self.received[to] += self.ends[to].on_segment(self.now, &segment, ecn).bytes;
            }
            for end in &mut self.ends {
                end.on_timer(self.now);
            }
        }
    }
}

/// Each statement is that of an RFC, or of the documentation of `TcpStats`.
#[test]
fn segments_keep_the_rules_and_the_statistics_count_them() {
    const LEN: u64 = 300_000;
    let rack = Tcp { loss_detection: LossDetection::Rack, ..config() };
    let configs = [
        config(),
        rack.clone(),
        Tcp { sack: false, ..config() },
        Tcp { timestamps: true, ecn: true, ..rack.clone() },
        Tcp { congestion: Congestion::CUBIC, delayed_ack: DelayedAck::default(), ..rack },
    ];
    for (number, config) in configs.into_iter().enumerate() {
        for (seed, loss) in [(1, 0.0), (2, 0.02), (3, 0.08)] {
            let what = format!("configuration {number}, loss {loss}");
            let config = Tcp { receive_buffer: Bytes::new(40_000), ..config.clone() };
            let mut line = Line::new(&config, seed, loss);
            for (side, len) in [(0, LEN), (1, LEN / 10)] {
                assert_eq!(line.ends[side].write(Bytes::new(len), Priority::P2), Bytes::new(len));
                line.ends[side].close();
            }
            line.run();
            assert_eq!(line.received, [LEN / 10, LEN], "{what}");
            for side in 0..2 {
                let len = [LEN, LEN / 10][side];
                let (isn, peer_isn) = (ISN[side], ISN[1 - side]);
                let mut highest = 1u32;
                let (mut segments, mut again) = (0, 0);
                let (mut acked, mut edge) = (0u32, 0u32);
                for (_, from, segment, ecn, _) in &line.passed {
                    let flags = segment.flags;
                    if *from != side {
                        continue;
                    }
                    let ack = segment.ack.wrapping_sub(peer_isn);
                    if flags.syn {
                        assert_eq!((segment.seq, flags.ack), (isn, side == 1), "{what}");
                        assert_eq!(flags.cwr, config.ecn && side == 0, "{what}");
                        continue;
                    }
                    // RFC 9293 §3.10.7.4: acknowledgements never go back, nor does the edge of the window (§3.8.6).
                    let right = ack.wrapping_add(segment.window);
                    assert!(flags.ack && ack >= acked && right >= edge, "{what}: {segment:?}");
                    (acked, edge) = (ack, right);
                    assert_eq!(segment.timestamps.is_some(), config.timestamps, "{what}");
                    let blocks = segment.sack.as_slice();
                    assert!(config.sack || blocks.is_empty(), "{what}");
                    for (start, end) in blocks {
                        let [start, end] = [start, end].map(|seq| seq.wrapping_sub(peer_isn));
                        assert!(start < end && end <= right, "{what}: {start} to {end} of {right}");
                    }
                    if segment.payload == 0 && !flags.fin {
                        assert_eq!(*ecn, Ecn::NotEct, "{what}");
                        continue;
                    }
                    let seq = segment.seq.wrapping_sub(isn);
                    let end = seq + segment.sequence_len();
                    assert!(segment.payload <= config.mss, "{what}");
                    assert!(
                        u64::from(end) <= 1 + len + 1 && flags.fin == (u64::from(end) == len + 2),
                        "{what}"
                    );
                    segments += 1;
                    let fresh = seq >= highest;
                    again += u64::from(!fresh);
                    // RFC 3168 §6.1.5: only new data is capable of ECN.
                    let capable = config.ecn && fresh && segment.payload > 0;
                    assert_eq!(*ecn == Ecn::Ect0, capable, "{what}: {segment:?}");
                    assert!(fresh || end <= highest, "{what}: new bytes in a retransmission");
                    assert!(!fresh || seq == highest, "{what}: a gap");
                    highest = highest.max(end);
                }
                let stats = line.ends[side].stats();
                assert_eq!((stats.segments_sent, stats.retransmissions), (segments, again), "{what}");
                // The FIN counts as a byte. Without SACK, what was delivered is a guess at first.
                let excess = stats.delivered.get() - (len + 1);
                assert!(if config.sack { excess == 0 } else { excess <= 20_000 }, "{what}: {stats:?}");
                assert_eq!((stats.in_flight, stats.unsent), (Bytes::ZERO, Bytes::ZERO), "{what}");
                assert_eq!(stats.state, congestion::LossState::Open, "{what}");
                assert_eq!(stats.min_rtt, Some(ms(10)), "{what}");
                assert_eq!(stats.peer_stamp.is_some(), config.timestamps, "{what}");
                // One that waits behind a hole takes longer.
                let most = if loss > 0.0 { Duration::MAX } else { ms(30) };
                assert!(stats.srtt.is_some_and(|srtt| srtt >= ms(10) && srtt < most), "{what}: {stats:?}");
                assert!(stats.rto >= config.min_rto, "{what}: {stats:?}");
                let repaired = stats.reductions + stats.timeouts;
                assert!((repaired > 0) == (again > 0) || side == 1, "{what}: {stats:?}");
                assert!(stats.lost.get() > 0 || again == 0 || stats.tail_probes > 0, "{what}: {stats:?}");
                assert!(
                    loss > 0.0 || (again, stats.lost, stats.undone) == (0, Bytes::ZERO, 0),
                    "{what}: {stats:?}"
                );
                assert!(stats.ssthresh < Bytes::new(LEN) || repaired == 0, "{what}: {stats:?}");
            }
        }
    }
}
