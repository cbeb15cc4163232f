//! Tests of losses and their repair.

use super::*;

/// Sends the ten segments of the initial window.
fn ten_out(config: Tcp) -> Host {
    sends_ten(Host::connected(config))
}

fn sends_ten(mut host: Host) -> Host {
    host.write(50_000);
    assert_eq!(host.sent().len(), 10);
    host.wait(100);
    host
}

#[test]
fn two_duplicate_acks_send_new_data_a_third_fills_the_hole() {
    let mut host = ten_out(config());
    // Limited transmit, RFC 3042: a SACKed segment has left the pipe.
    host.get("ack 1 sack 1001-2001");
    assert_eq!(host.sent(), ["10001+1000"]);
    host.get("ack 1 sack 1001-3001");
    assert_eq!(host.sent(), ["11001+1000"]);
    host.get("ack 1 sack 1001-4001");
    assert_eq!(host.sent(), ["1+1000"]);
    let stats = host.tcp.stats();
    assert_eq!((stats.retransmissions, stats.reductions, stats.timeouts), (1, 1, 0));
    // Half of the window, without what limited transmit added. RFC 5681 §3.2.
    assert_eq!(host.ssthresh(), 5.0);
}

/// RFC 6937: during recovery one segment leaves per two delivered, and the window ends at ssthresh.
#[test]
fn the_window_shrinks_in_proportion() {
    let mut host = ten_out(config());
    for sacked in [2001, 3001, 4001] {
        host.get(&format!("ack 1 sack 1001-{sacked}"));
    }
    host.sent();
    // Twelve were in flight when the third duplicate arrived: its delivery is prr_delivered = 1.
    let mut sent = Vec::new();
    for sacked in (5001..=12_001).step_by(1000) {
        host.get(&format!("ack 1 sack 1001-{sacked}"));
        sent.push(host.sent().len());
    }
    // prr_out >= ceil(prr_delivered·5/12), with the retransmission as the first sent; then the
    // reduction bound.
    assert_eq!(sent.iter().sum::<usize>() + 1, 5, "{sent:?}");
    assert!(sent.iter().all(|&n| n <= 1), "{sent:?}");
    assert_eq!(host.tcp.stats().in_flight, Bytes::new(5000));
    host.get("ack 12001");
    assert_eq!(host.cwnd(), 5.0);
    assert_eq!(host.tcp.stats().retransmissions, 1);
}

#[test]
fn several_holes_are_filled_in_order_within_one_recovery() {
    let mut host = ten_out(config());
    // 1, 4001 and 6001 are lost.
    host.get("ack 1 sack 1001-4001");
    host.get("ack 1 sack 5001-6001 sack 1001-4001");
    host.get("ack 1 sack 7001-8001 sack 5001-6001 sack 1001-4001");
    host.get("ack 1 sack 7001-9001 sack 5001-6001 sack 1001-4001");
    host.get("ack 1 sack 7001-10001 sack 5001-6001 sack 1001-4001");
    host.wait(100);
    host.get("ack 4001 sack 7001-10001 sack 5001-6001");
    host.get("ack 6001 sack 7001-10001");
    host.get("ack 10001");
    let again: Vec<String> = host.sent().into_iter().filter(|text| text.len() < 10).collect();
    assert_eq!(again, ["1+1000", "4001+1000", "6001+1000"]);
    let stats = host.tcp.stats();
    assert_eq!((stats.retransmissions, stats.reductions, stats.timeouts), (3, 1, 0));
}

#[test]
fn a_recovery_may_grow_its_window_only_where_it_makes_progress() {
    for (safe_ack, sent_by_duplicates) in [(false, [2, 2]), (true, [1, 1])] {
        let mut host = Host::connected(Tcp { safe_ack, initial_window: 20, ..config() });
        host.write(100_000);
        // The first fifteen are lost; five arrive, and the window is reduced to ten segments.
        for sacked in [16_001, 17_001, 18_001] {
            host.get(&format!("ack 1 sack 15001-{sacked}"));
        }
        host.sent();
        let by_duplicates = [19_001, 20_001].map(|sacked| {
            host.get(&format!("ack 1 sack 15001-{sacked}"));
            host.sent().len()
        });
        assert_eq!(by_duplicates, sent_by_duplicates);
        // Progress without a further loss lets the window grow in both cases.
        host.get("ack 1001 sack 15001-20001");
        assert_eq!(host.sent().len(), 2, "safe-ack: {safe_ack}");
    }
}

#[test]
fn a_window_is_reduced_by_what_is_in_flight_or_by_its_own_size() {
    for (reduce_window, [reno, cubic]) in [(false, [2.0, 2.8]), (true, [5.0, 7.0])] {
        for (congestion, expected) in [(Congestion::Reno, reno), (Congestion::CUBIC, cubic)] {
            let mut host = Host::connected(Tcp { reduce_window, congestion: congestion.clone(), ..config() });
            // Four of ten segments are in flight; the first is lost.
            host.write(4000);
            host.wait(100);
            host.get("ack 1 sack 1001-4001");
            assert_eq!(host.tcp.stats().reductions, 1);
            assert_eq!(host.ssthresh(), expected, "{congestion:?}, reduce-window: {reduce_window}");
        }
    }
}

#[test]
fn a_burst_of_losses_needs_no_timeout() {
    let mut host = ten_out(config());
    // The first six are lost; four arrive.
    for sacked in [7001, 8001, 9001, 10_001] {
        host.get(&format!("ack 1 sack 6001-{sacked}"));
    }
    let mut at = 1;
    while at < 6001 {
        host.wait(100);
        at += 1000;
        host.get(&format!("ack {at} sack 6001-10001"));
    }
    let stats = host.tcp.stats();
    assert_eq!(stats.timeouts, 0);
    assert!(stats.retransmissions >= 6, "{stats:?}");
}

#[test]
fn a_lost_tail_waits_for_the_timer() {
    let mut host = Host::connected(config());
    host.write(3000);
    host.sent();
    host.wait(100);
    host.get("ack 2001");
    host.wait(1_000);
    // SRTT 100, RTTVAR 37.5: 250 ms, after the acknowledgement at 200.
    assert_eq!(host.sent_when()[0], (450, "2001+1000".to_owned()));
    assert_eq!(host.ssthresh(), 2.0);
    assert_eq!(host.cwnd(), 1.0);
}

#[test]
fn each_timeout_doubles_the_rto_until_a_new_rtt_sample() {
    let mut host = Host::connected(config());
    host.write(1000);
    host.wait(5_000);
    let times: Vec<u64> = host.sent_when().into_iter().map(|(at, _)| at).collect();
    // The handshake gave 100 ms: RTO 300, 600, 1200, 2400.
    assert_eq!(times, [100, 400, 1_000, 2_200, 4_600]);
    // RFC 6298 §5.7: without timestamps a retransmission gives no measurement, so the back-off
    // stays.
    host.get("ack 1001");
    assert_eq!(host.tcp.stats().rto, ms(4_800));
    host.write(1000);
    host.wait(100);
    host.get("ack 2001");
    assert_eq!(host.tcp.stats().rto, ms(250));
}

#[test]
fn with_timestamps_a_retransmission_is_a_measurement_too() {
    let mut host = Host::new(Tcp { timestamps: true, ..config() });
    host.tcp.connect();
    host.poll();
    host.wait(100);
    host.get("syn seq 0 ack 1 ts 1/1");
    host.write(1000);
    host.wait(2_200);
    // Sent at 100, 400, 1000 and 2200; the echo belongs to the last, 2200 + 1.
    host.get("seq 1 ack 1001 ts 2/2201");
    // R' = 100 after R = 100: SRTT 100, RTTVAR 37.5.
    assert_eq!(host.tcp.stats().rto, ms(250));
}

#[test]
fn the_first_holes_retransmission_restarts_the_timer() {
    let mut host = ten_out(config());
    host.wait(190);
    // 390: ten milliseconds before the timer.
    host.get("ack 1 sack 1001-4001");
    assert!(host.sent().contains(&"1+1000".to_owned()));
    let rto = host.tcp.stats().rto;
    assert_eq!(host.tcp.timers(host.now)[0], Some(host.now + rto));
    host.wait(20);
    assert_eq!(host.tcp.stats().timeouts, 0);
    // It is lost too.
    host.wait(rto.as_millis() as u64);
    assert_eq!(host.tcp.stats().timeouts, 1);
    assert!(host.sent().contains(&"1+1000".to_owned()));
}

#[test]
fn a_timeout_retransmits_unsacked_data_from_a_window_of_one() {
    // Without F-RTO, which would send new data first.
    let mut host = ten_out(Tcp { undo: false, ..config() });
    host.get("ack 1 sack 3001-5001");
    host.sent();
    host.wait(2_000);
    assert_eq!(host.sent()[0], "1+1000");
    assert_eq!(host.cwnd(), 1.0);
    host.get("ack 1001 sack 3001-5001");
    assert_eq!(host.sent(), ["1001+1000", "2001+1000"]);
    host.get("ack 5001");
    assert_eq!(host.sent()[..2], ["5001+1000", "6001+1000"]);
}

/// After a timeout, slow start ends at the window reached, not at ssthresh.
#[test]
fn the_end_of_a_timeouts_recovery_does_not_open_the_window() {
    // Without undo, which would restore the window.
    let mut host = ten_out(Tcp { undo: false, ..config() });
    host.wait(1_000);
    assert_eq!(host.tcp.stats().timeouts, 2);
    assert_eq!((host.cwnd(), host.ssthresh()), (1.0, 5.0));
    // The timeout was spurious: all had arrived.
    host.get("ack 10001");
    // One segment, and the two that an acknowledgement in slow start may add.
    assert_eq!(host.cwnd(), 3.0);
}

/// A segment sent after the recovery began and lost is a second congestion event, even if the first
/// recovery repairs it.
#[test]
fn a_loss_in_the_next_window_halves_again() {
    let mut host = ten_out(config());
    for sacked in (2001..=12_001).step_by(1000) {
        host.get(&format!("ack 1 sack 1001-{sacked}"));
    }
    assert_eq!(host.sent().last().unwrap(), "15001+1000");
    assert_eq!(host.tcp.stats().reductions, 1);
    // The first of the new segments is lost, and retransmitted within the recovery.
    host.get("ack 1 sack 13001-16001 sack 1001-12001");
    assert!(host.sent().contains(&"12001+1000".to_owned()));
    host.get("ack 12001 sack 13001-16001");
    assert_eq!(host.tcp.stats().reductions, 2);
    assert_eq!(host.ssthresh(), 2.0);
    host.get("ack 16001");
    assert_eq!(host.tcp.stats().reductions, 2);
}

#[test]
fn losses_are_repaired_across_the_wrap_of_the_sequence() {
    let mut host = sends_ten(Host::numbered(u32::MAX - 2_500, config()).connect());
    host.get("ack 1 sack 1001-4001");
    assert!(host.sent().contains(&"1+1000".to_owned()));
    host.get("ack 10001");
    host.get("ack 20001");
    assert_eq!(host.tcp.stats().delivered, Bytes::new(10_000));
    host.wait(50);
    assert_eq!(host.tcp.stats().retransmissions, 1);
}

#[test]
fn an_acknowledgement_of_what_was_never_sent_is_ignored() {
    let mut host = ten_out(config());
    let before = host.tcp.stats();
    host.get("ack 10002");
    host.get("ack 4294967290");
    assert_eq!(host.tcp.stats(), before);
    // SACK blocks beyond SND.NXT, with reversed edges, or of acknowledged data are ignored too.
    host.get("ack 1 sack 20001-30001 sack 5001-4001 sack 9001-12001");
    assert_eq!(host.tcp.stats(), before);
}

/// Acknowledgements that deliver nothing, such as those on the other end's data, do not open the
/// window in recovery.
#[test]
fn data_from_the_peer_does_not_inflate_the_window_in_recovery() {
    let mut host = ten_out(config());
    host.get("ack 1 sack 1001-9001");
    host.sent();
    let in_flight = host.tcp.stats().in_flight;
    for i in 0..5 {
        host.get(&format!("seq {} len 1000 ack 1 sack 1001-9001", 1 + 1000 * i));
    }
    assert_eq!(host.tcp.stats().in_flight, in_flight);
}

fn without_sack() -> Tcp {
    Tcp { sack: false, ..config() }
}

/// RFC 6582: the third duplicate triggers a retransmission of the hole, and each partial
/// acknowledgement the next one.
#[test]
fn without_sack_losses_are_repaired_one_a_round_trip() {
    let mut host = ten_out(without_sack());
    // 1 and 4001 are lost: eight duplicates, the first two of which release new segments (RFC
    // 3042).
    host.get("ack 1");
    assert_eq!(host.sent(), ["10001+1000"]);
    host.get("ack 1");
    assert_eq!(host.sent(), ["11001+1000"]);
    host.get("ack 1");
    assert_eq!(host.sent(), ["1+1000"]);
    for _ in 0..5 {
        host.get("ack 1");
    }
    host.sent();
    host.wait(100);
    host.get("ack 4001");
    assert_eq!(host.sent()[0], "4001+1000");
    host.wait(100);
    host.get("ack 12001");
    let stats = host.tcp.stats();
    assert_eq!((stats.retransmissions, stats.reductions, stats.timeouts), (2, 1, 0));
    assert_eq!(host.ssthresh(), 5.0);
    assert_eq!(host.cwnd(), 5.0);
}

#[test]
fn without_sack_two_duplicates_are_reordering() {
    let mut host = ten_out(without_sack());
    host.get("ack 1");
    host.get("ack 1");
    host.get("ack 4001");
    host.get("ack 5001");
    let stats = host.tcp.stats();
    assert_eq!((stats.retransmissions, stats.reductions), (0, 0));
    let unacknowledged = 10_000 + 1000 * host.sent().len() as u64 - 5000;
    assert_eq!(stats.in_flight, Bytes::new(unacknowledged));
}

#[test]
fn without_sack_a_timeout_sends_everything_again() {
    let mut host = ten_out(without_sack());
    host.get("ack 1");
    host.get("ack 1");
    host.sent();
    host.wait(2000);
    assert_eq!(host.sent()[0], "1+1000");
    host.get("ack 1001");
    host.get("ack 2001");
    assert!(host.sent().len() >= 2);
    assert!(host.tcp.stats().retransmissions >= 3);
}

#[test]
fn sack_needs_both_ends() {
    let syn = |config: Tcp, answer: &str| {
        let mut host = Host::new(config);
        host.tcp.connect();
        host.poll();
        let offered = host.out[0].1.sack_permitted;
        host.wait(100);
        host.get(answer);
        host.sent();
        host.get("seq 1001 len 1000 ack 1");
        (offered, host.sent())
    };
    assert_eq!(syn(config(), "syn seq 0 ack 1"), (true, vec!["ack 1 sack 1001-2001".to_owned()]));
    assert_eq!(syn(config(), "syn nosack seq 0 ack 1"), (true, vec!["ack 1".to_owned()]));
    assert_eq!(syn(without_sack(), "syn seq 0 ack 1"), (false, vec!["ack 1".to_owned()]));
}

/// RFC 5681 §2: a duplicate has the window of the acknowledgement before, carries nothing, and finds data in flight.
#[test]
fn without_sack_only_bare_repetitions_are_duplicates() {
    let repeat = |text: &str| {
        let mut host = ten_out(without_sack());
        for round in 0..4 {
            host.get(&text.replace('#', &format!("{}", 50_000 + round)));
        }
        host.tcp.stats().reductions
    };
    assert_eq!(repeat("ack 1"), 1);
    // An update of the window, data, and the end of data are none.
    assert_eq!(repeat("ack 1 win #"), 0);
    assert_eq!(repeat("seq 1 len 10 ack 1"), 0);
    assert_eq!(repeat("fin seq 1 ack 1"), 0);
    let mut idle = Host::connected(without_sack());
    for _ in 0..4 {
        idle.get("ack 1");
    }
    idle.write(1000);
    idle.get("ack 1");
    assert_eq!((idle.tcp.stats().reductions, idle.tcp.stats().retransmissions), (0, 0));
}

/// RFC 9293 §3.8.6.1, §3.10.7.4: a probe lies outside of the window, and asks for an acknowledgement.
#[test]
fn a_segment_from_before_is_answered_and_a_bare_one_is_not() {
    let mut host = Host::connected(config());
    host.get("seq 1 len 1000 ack 1");
    assert_eq!(host.sent(), ["ack 1001"]);
    for (segment, answers) in [
        ("seq 1000 ack 1", true),
        ("seq 1 ack 1", true),
        ("seq 1001 ack 1", false),
        ("seq 1001 ack 1 win 9000", false),
        ("seq 1 len 1000 ack 1", true),
        ("seq 2000001 len 1000 ack 1", true),
    ] {
        host.get(segment);
        let sent = host.sent();
        assert_eq!(sent.iter().any(|text| text.starts_with("ack 1001")), answers, "{segment}: {sent:?}");
    }
}
