//! Tests of receive windows, delayed acknowledgements, pacing, and application-limited senders.

use super::*;
use crate::tcp::{Cubic, Growth, Nagle};

fn delayed() -> Tcp {
    Tcp { delayed_ack: DelayedAck { first_at_once: false, ..DelayedAck::default() }, ..config() }
}

#[test]
fn every_second_segment_is_acknowledged_or_after_the_timeout() {
    let mut host = Host::connected(delayed());
    host.get("seq 1 len 1000 ack 1");
    host.wait(10);
    host.get("seq 1001 len 1000 ack 1");
    host.wait(10);
    host.get("seq 2001 len 1000 ack 1");
    host.wait(100);
    assert_eq!(host.sent_when(), [(110, "ack 2001".to_owned()), (160, "ack 3001".to_owned())]);
}

#[test]
fn the_first_segment_may_be_acknowledged_at_once() {
    let mut host = Host::connected(Tcp { delayed_ack: DelayedAck::default(), ..config() });
    host.get("seq 1 len 1000 ack 1");
    assert_eq!(host.sent(), ["ack 1001"]);
    host.get("seq 1001 len 1000 ack 1");
    assert!(host.sent().is_empty());
}

#[test]
fn the_first_segments_after_a_pause_may_be_acknowledged_singly() {
    let delayed_ack = DelayedAck { quick: 2, ..DelayedAck::default() };
    let mut host = Host::connected(Tcp { delayed_ack, ..config() });
    let mut at = 1;
    let mut acknowledged = |host: &mut Host| {
        let mut next = || {
            host.get(&format!("seq {at} len 1000 ack 1"));
            at += 1000;
            host.sent().len()
        };
        [next(), next(), next(), next()]
    };
    assert_eq!(acknowledged(&mut host), [1, 1, 0, 1]);
    host.wait(10_000);
    assert_eq!(acknowledged(&mut host), [1, 1, 0, 1]);
}

#[test]
fn data_out_of_order_or_in_a_gap_is_acknowledged_at_once() {
    let mut host = Host::connected(delayed());
    host.get("seq 1001 len 1000 ack 1");
    host.get("seq 1 len 1000 ack 1");
    // A duplicate is acknowledged too, and reported. RFC 2883.
    host.get("seq 1 len 1000 ack 1");
    assert_eq!(host.sent(), ["ack 1 sack 1001-2001", "ack 2001", "ack 2001 sack 1-1001"]);
}

#[test]
fn data_going_out_carries_the_acknowledgement() {
    let mut host = Host::connected(delayed());
    host.get("seq 1 len 1000 ack 1");
    host.write(500);
    host.wait(100);
    assert_eq!(host.sent(), ["1+500"]);
}

#[test]
fn a_closed_window_is_probed_with_backoff_until_it_opens() {
    let mut host = Host::connected(config());
    host.get("ack 1 win 2000");
    host.write(5000);
    assert_eq!(host.sent(), ["1+1000", "1001+1000"]);
    host.wait(100);
    host.get("ack 2001 win 0");
    host.wait(2_000);
    let probes = host.sent_when();
    let times: Vec<u64> = probes.iter().map(|&(at, _)| at).collect();
    assert!(probes.iter().all(|(_, text)| text == "probe 2000"), "{probes:?}");
    // RTO 250 after the acknowledgement at 200, then 500 and 1000 more.
    assert_eq!(times, [450, 950, 1_950]);
    assert_eq!(host.tcp.stats().timeouts, 0);
    // The response to a probe opens the window.
    host.get("ack 2001 win 1500");
    assert_eq!(host.sent(), ["2001+1000"]);
    // 500 more bytes would fit: silly window avoidance waits for a whole segment.
    host.get("ack 3001 win 3000");
    assert_eq!(host.sent(), ["3001+1000", "4001+1000"]);
}

/// Linux, `tcp_ack_probe`: only an open window ends the back-off.
#[test]
fn an_answer_that_leaves_the_window_closed_keeps_the_backoff() {
    let mut host = Host::connected(config());
    host.get("ack 1 win 1000");
    host.write(5000);
    host.wait(100);
    host.get("ack 1001 win 0");
    host.sent();
    let mut probes = Vec::new();
    for _ in 0..40 {
        host.wait(50);
        for (at, text) in host.sent_when() {
            assert_eq!(text, "probe 1000");
            probes.push(at);
            host.get("ack 1001 win 0");
        }
    }
    // As without answers: RTO 250 after the acknowledgement at 200, then 500 and 1000 more.
    assert_eq!(probes, [450, 950, 1_950]);
}

/// RFC 8985 §7.3.
#[test]
fn a_tail_probe_stays_within_the_other_ends_window() {
    for (window, probe) in [(2_000, "1001+1000"), (3_000, "2001+1000")] {
        let mut host =
            Host::connected(Tcp { loss_detection: LossDetection::Rack, initial_window: 2, ..config() });
        host.get(&format!("ack 1 win {window}"));
        host.write(5_000);
        assert_eq!(host.sent(), ["1+1000", "1001+1000"]);
        host.wait(240);
        assert_eq!(host.sent(), [probe], "{window}");
    }
}

#[test]
fn the_last_segment_before_a_close_is_not_held_by_nagle() {
    for nagle in [Nagle::Standard, Nagle::Minshall] {
        let mut host = Host::connected(Tcp { nagle, ..config() });
        host.write(100);
        host.write(500);
        assert_eq!(host.sent(), ["1+100"], "{nagle:?}");
        host.close();
        assert_eq!(host.sent(), ["101+500 fin"], "{nagle:?}");
    }
}

#[test]
fn a_window_below_a_segment_is_used_when_nothing_else_is_out() {
    let mut host = Host::connected(config());
    host.get("ack 1 win 400");
    host.write(1000);
    assert_eq!(host.sent(), ["1+400"]);
    host.get("ack 401 win 400");
    assert_eq!(host.sent(), ["401+400"]);
}

#[test]
fn an_older_segment_does_not_bring_back_an_older_window() {
    let mut host = Host::connected(config());
    host.get("seq 1 len 1000 ack 1 win 5000");
    host.get("seq 1001 len 1000 ack 1 win 9000");
    host.get("seq 1 len 1000 ack 1 win 0");
    host.sent();
    host.write(20_000);
    assert_eq!(host.sent().len(), 9);
}

#[test]
fn the_window_closes_when_reading_stops_and_reopens_on_a_read() {
    let mut host = Host::connected(Tcp { receive_buffer: Bytes::new(3000), ..config() });
    host.tcp.set_reading(false);
    for seq in [1, 1001, 2001] {
        assert_eq!(host.get(&format!("seq {seq} len 1000 ack 1")).bytes, 0);
    }
    let windows: Vec<u32> = host.out.iter().map(|(_, s, _)| s.window).collect();
    assert_eq!(windows, [2000, 1000, 0]);
    host.sent();
    // A probe is answered.
    host.get("seq 3000 ack 1");
    assert_eq!(host.sent(), ["ack 3001"]);
    // Data that arrives despite the closed window is refused.
    assert_eq!(host.get("seq 3001 len 1000 ack 1").bytes, 0);
    assert_eq!(host.sent(), ["ack 3001"]);
    host.tcp.set_reading(true);
    assert_eq!(host.tcp.read().bytes, 3000);
    host.poll();
    assert_eq!(host.out[0].1.window, 3000);
    assert_eq!(host.get("seq 3001 len 1000 ack 1").bytes, 1000);
}

#[test]
fn a_flow_that_does_not_use_its_window_does_not_grow_it() {
    let mut host = Host::connected(config());
    for i in 0..20u32 {
        host.write(1000);
        host.wait(100);
        host.get(&format!("ack {}", 1001 + 1000 * i));
    }
    assert_eq!(host.cwnd(), 10.0);
}

#[test]
fn the_use_of_a_window_is_judged_by_acknowledgement_or_round() {
    // Nine of ten segments are in flight. When three are acknowledged, fewer than half are; twice what
    // was in flight at first is 18.
    for (usage_by_round, grown) in [(false, 13.0), (true, 18.0)] {
        for congestion in [Congestion::Reno, Congestion::CUBIC] {
            let mut host = Host::connected(Tcp { usage_by_round, congestion, ..config() });
            host.write(9_000);
            host.wait(100);
            for ack in (1001..=9001).step_by(1000) {
                host.get(&format!("ack {ack}"));
            }
            assert_eq!(host.cwnd(), grown);
        }
    }
}

#[test]
fn a_window_less_than_half_used_in_a_round_trip_does_not_grow() {
    let mut host = Host::connected(Tcp { usage_by_round: true, ..config() });
    for burst in 0..20u32 {
        host.write(4_000);
        host.wait(100);
        for segment in 1..=4 {
            host.get(&format!("ack {}", 1 + 1000 * (4 * burst + segment)));
        }
    }
    assert_eq!(host.cwnd(), 10.0);
}

#[test]
fn an_idle_connection_restarts_at_its_initial_window_if_enabled() {
    for slow_start_after_idle in [true, false] {
        let mut host = Host::connected(Tcp { slow_start_after_idle, ..config() });
        host.write(50_000);
        host.wait(100);
        for ack in (1001..=50_001).step_by(1000) {
            host.get(&format!("ack {ack}"));
        }
        assert!(host.cwnd() > 20.0);
        let segments = if slow_start_after_idle { 10 } else { host.cwnd() as usize };
        host.wait(5_000);
        host.sent();
        host.write(100_000);
        assert_eq!(host.sent().len(), segments);
    }
}

#[test]
fn an_idle_window_may_be_halved_for_each_timeout_instead() {
    // The round trip is 100 ms and the timeout 200 ms at least: no halving, one, two; then the window is
    // below 10 segments.
    for (idle, halvings) in [(150, 0), (350, 1), (550, 2), (5_000, 9)] {
        for congestion in [Congestion::Reno, Congestion::CUBIC] {
            let mut host = Host::connected(Tcp { idle_decay: true, congestion, ..config() });
            host.write(50_000);
            host.wait(100);
            for ack in (1001..=50_001).step_by(1000) {
                host.get(&format!("ack {ack}"));
            }
            let before = host.cwnd();
            assert!(before > 40.0);
            host.wait(idle);
            host.sent();
            host.write(100_000);
            let expected = (before / f64::from(1 << halvings)).max(10.0);
            assert_eq!(host.sent().len(), expected as usize, "{idle} ms");
        }
    }
}

#[test]
fn paced_reno_spaces_segments_at_two_windows_per_round_trip() {
    let mut host = Host::connected(Tcp { pacing: true, ..config() });
    host.write(10_000);
    host.wait(99);
    let times: Vec<Time> = host.out.iter().map(|&(at, _, _)| at).collect();
    // 20 segments in 100 ms: 5 ms each.
    assert_eq!(times.len(), 10);
    assert!(times.windows(2).all(|w| w[1] - w[0] == ms(5)), "{times:?}");
}

/// Linux, `tcp_update_pacing_rate`: 1.2 windows per round trip from half of the threshold on.
#[test]
fn slow_start_that_nears_its_threshold_is_paced_more_slowly() {
    for (threshold, gap) in [(21, 5), (20, 8)] {
        let config = Tcp { pacing: true, initial_ssthresh: Some(threshold), ..config() };
        let mut host = Host::connected(config);
        host.write(10_000);
        host.wait(99);
        let times: Vec<Time> = host.out.iter().map(|&(at, _, _)| at).collect();
        assert!(times.windows(2).all(|w| (w[1] - w[0]).as_nanos() / 1_000_000 == gap), "{times:?}");
    }
}

#[test]
fn the_first_segments_of_a_connection_need_not_be_paced() {
    let mut host = Host::connected(Tcp { pacing: true, unpaced_segments: 4, ..config() });
    host.write(10_000);
    host.wait(99);
    let times: Vec<Time> = host.out.iter().map(|&(at, _, _)| at).collect();
    let gaps: Vec<Duration> = times.windows(2).map(|w| w[1] - w[0]).collect();
    // The fifth is the first that holds the next one back.
    assert_eq!(gaps, [[Duration::ZERO; 4].as_slice(), &[ms(5); 5]].concat());
}

#[test]
fn the_socket_asks_for_more_when_little_is_unsent() {
    let mut host = Host::connected(Tcp { notsent_lowat: Some(Bytes::new(2000)), ..config() });
    let mut written = 0;
    while host.tcp.is_writable() {
        host.write(1000);
        written += 1000;
    }
    // The initial window has left; then one write below the mark, and one up to it.
    assert_eq!(written, 12_000);
    assert_eq!(host.tcp.unsent(), Bytes::new(2000));
    host.get("ack 1001");
    assert!(host.tcp.is_writable());
}

/// Linux, `sk_stream_is_writable`.
#[test]
fn a_full_send_buffer_with_bursts_takes_more_below_two_thirds() {
    let writable = |segmentation_offload| {
        let config = Tcp { send_buffer: Bytes::new(9_000), segmentation_offload, ..config() };
        let mut host = Host::connected(config);
        host.write(8_000);
        assert!(host.tcp.is_writable(), "not full yet");
        host.write(1_000);
        let writable = [1_001, 3_000, 3_001].map(|ack| {
            host.get(&format!("ack {ack}"));
            host.tcp.is_writable()
        });
        host.write(2_000);
        assert!(host.tcp.is_writable(), "not full again");
        writable
    };
    assert_eq!(writable(Some(Bytes::new(64 << 10))), [false, false, true]);
    assert_eq!(writable(None), [true; 3]);
}

/// Linux counts packets (`tcp_packets_in_flight`).
#[test]
fn under_bbr_a_short_segment_takes_the_place_of_a_full_one() {
    let window = |congestion| {
        let mut host = Host::connected(Tcp { congestion, unpaced_segments: 30, ..config() });
        for _ in 0..20 {
            host.write(100);
        }
        let before = host.sent().len();
        host.get("ack 201");
        (before, host.tcp.stats().delivered)
    };
    assert_eq!(window(Congestion::Bbr), (10, Bytes::new(200)));
    assert_eq!(window(Congestion::Reno), (20, Bytes::new(200)));
}

#[test]
fn sack_blocks_make_room_for_the_priority_option() {
    let config = Tcp { timestamps: true, priority_option: Some(PriorityOption::Rfc6994), ..config() };
    let mut host = Host::new(config);
    host.get("syn seq 0 ts 1/0");
    host.get("seq 1 ack 1 ts 1/1");
    for seq in [1001, 3001, 5001] {
        host.get(&format!("seq {seq} len 1000 ack 1 ts 1/1"));
    }
    assert_eq!(host.out.last().unwrap().1.sack.as_slice().len(), 3);
    host.write(900);
    let data = &host.out.last().unwrap().1;
    assert_eq!(data.priority, Some(Priority::P2));
    assert_eq!(data.sack.as_slice().len(), 2);
    assert!(data.header_len(PriorityOption::Rfc6994) <= 60);
}

#[test]
fn a_full_segment_leaves_sack_blocks_to_an_acknowledgement() {
    let mut host = Host::connected(config());
    host.write(1000);
    host.sent();
    // Data beyond a gap is acknowledged at once, in data segments with room for the option.
    host.tcp.write(Bytes::new(1500), Priority::P2);
    host.get("seq 1001 len 1000 ack 1");
    assert_eq!(host.sent(), ["1001+1000", "2001+500 sack 1001-2001"]);
    host.tcp.write(Bytes::new(1000), Priority::P2);
    host.get("seq 3001 len 1000 ack 1");
    assert_eq!(host.sent(), ["2501+1000", "ack 1 sack 3001-4001 sack 1001-2001"]);
    // What was already reported is not repeated.
    host.write(1000);
    assert_eq!(host.sent(), ["3501+1000"]);
}

/// Returns window and threshold after ten segments, acknowledged two by two.
fn grown(config: Tcp) -> (f64, f64) {
    let mut host = Host::connected(config);
    host.write(200_000);
    for ack in (2001..=10_001).step_by(2000) {
        host.get(&format!("ack {ack}"));
    }
    (host.cwnd(), host.ssthresh())
}

#[test]
fn slow_start_counts_bytes_up_to_a_limit_or_acknowledgements() {
    for congestion in [Congestion::Reno, Congestion::Cubic(Cubic { hystart: false, ..Cubic::default() })] {
        let of = |growth| grown(Tcp { congestion: congestion.clone(), growth, ..config() }).0;
        // Five acknowledgements of two segments each.
        assert_eq!(of(Growth::default()), 20.0);
        assert_eq!(of(Growth::Bytes { limit: 1 }), 15.0);
        assert_eq!(of(Growth::Bytes { limit: 8 }), 20.0);
        assert_eq!(of(Growth::Acknowledgements), 15.0);
    }
}

#[test]
fn a_limit_of_one_segment_counts_for_acknowledgements_of_many() {
    let host = |limit| {
        let mut host = Host::connected(Tcp { growth: Growth::Bytes { limit }, ..config() });
        host.write(200_000);
        host.get("ack 8001");
        host.cwnd()
    };
    assert_eq!([1, 2, 4, 8, 100].map(host), [11.0, 12.0, 14.0, 18.0, 18.0]);
}

#[test]
fn ack_counting_halves_congestion_avoidance_with_delayed_acks() {
    let of = |growth| {
        let config = Tcp { initial_ssthresh: Some(10), growth, ..config() };
        let mut host = Host::connected(config);
        host.write(200_000);
        let mut una = 1;
        for _ in 0..40 {
            una += 2000;
            host.get(&format!("ack {una}"));
        }
        host.cwnd()
    };
    // RFC 5681 eq. 3: SMSS*SMSS/cwnd per acknowledgement. Eighty segments make six round trips by
    // bytes, forty acknowledgements three.
    assert_eq!(of(Growth::default()), 16.0);
    assert_eq!(of(Growth::Acknowledgements), 13.0);
}

#[test]
fn slow_start_ends_at_the_initial_threshold() {
    for congestion in [Congestion::Reno, Congestion::Cubic(Cubic { hystart: false, ..Cubic::default() })] {
        let (window, threshold) = grown(Tcp { congestion, initial_ssthresh: Some(13), ..config() });
        assert_eq!(threshold, 13.0);
        // Two acknowledgements of two segments reach the threshold; the other six segments are half
        // a round trip.
        assert!((14.0..15.0).contains(&window), "{window}");
    }
}

/// RFC 5681 §4.1: more than one retransmission timeout.
#[test]
fn a_pause_of_one_timeout_is_not_yet_idle() {
    for (late, expected) in [(0, 12.0), (1, 10.0)] {
        let mut host = Host::connected(Tcp { slow_start_after_idle: true, ..config() });
        host.write(10_000);
        let sent_at = host.now;
        host.wait(100);
        host.get("ack 10001");
        assert_eq!(host.cwnd(), 12.0);
        let rto = host.tcp.stats().rto.as_millis();
        let waited = (host.now - sent_at).as_millis();
        host.wait(u64::try_from(rto - waited).unwrap() + late);
        host.write(1000);
        assert_eq!(host.cwnd(), expected, "{rto} ms and {late}");
    }
}

#[test]
fn a_closed_window_is_probed_only_for_data() {
    for (unsent, probed) in [(0, false), (500, true)] {
        let mut host = Host::connected(config());
        host.write(1000);
        host.wait(100);
        host.get("ack 1001 win 0");
        if unsent > 0 {
            host.write(unsent);
        }
        host.sent();
        host.wait(20_000);
        assert_eq!(!host.sent().is_empty(), probed, "{unsent}");
    }
}

/// RFC 9293 §3.7.4, and Minshall's variant: it waits for a short segment only.
#[test]
fn a_short_segment_waits_for_what_its_rule_names() {
    for (nagle, at_once) in [(Nagle::Off, 2), (Nagle::Minshall, 1), (Nagle::Standard, 0)] {
        let mut host = Host::connected(Tcp { nagle, ..config() });
        host.write(1000);
        assert_eq!(host.sent(), ["1+1000"], "{nagle:?}");
        host.write(300);
        let first = host.sent();
        assert_eq!(first.len(), usize::from(at_once > 0), "{nagle:?}");
        host.write(200);
        assert_eq!(host.sent().len(), usize::from(at_once > 1), "{nagle:?}");
        host.get("ack 1001");
        let freed = host.sent();
        assert_eq!(freed, if nagle == Nagle::Standard { vec!["1001+500"] } else { vec![] }, "{nagle:?}");
        host.get("ack 1301");
        let freed = host.sent();
        assert_eq!(freed, if nagle == Nagle::Minshall { vec!["1301+200"] } else { vec![] }, "{nagle:?}");
        host.get("ack 1501");
        host.write(1);
        assert_eq!(host.sent(), ["1501+1"], "{nagle:?}");
    }
}

/// Twice what was read in a round trip, room for 16 segments, and more for growth. A steady sender gets no more.
#[test]
fn the_offered_window_grows_ahead_of_a_sender_that_grows() {
    let config = Tcp {
        timestamps: true,
        receive_buffer: Bytes::new(1_000_000),
        receive_buffer_from: Some(Bytes::new(20_000)),
        ..config()
    };
    let mut host = Host::new(config);
    host.tcp.connect();
    host.poll();
    host.wait(100);
    host.get("syn seq 0 ack 1 ts 9/1");
    host.sent();
    let mut at = 1;
    // Segments of 1000 bytes, spread over a round trip of 100 ms. Returns the window after each round.
    let mut round = |host: &mut Host, segments: u64| {
        for _ in 0..segments {
            host.wait(100 / segments);
            let now = host.now.as_nanos() / 1_000_000;
            host.get(&format!("seq {at} len 1000 ack 1 ts {now}/{}", now + 1 - 100));
            at += 1000;
        }
        host.out.last().unwrap().1.window
    };
    let windows = [10, 20, 20, 20, 20].map(|segments| round(&mut host, segments));
    // 11 segments were read in a round trip where 10 had been, then 20. RFC 7323 §2.3: windows are multiples of 16 here.
    let size = |read: u64, before: u64| {
        let room = 2 * read + 16_000;
        u32::try_from(room + 2 * room * (read - before) / before).unwrap() & !15
    };
    assert_eq!(windows[..3], [20_000, size(11_000, 10_000), size(20_000, 11_000)]);
    assert_eq!(windows[3..], [windows[2]; 2]);
}
