//! Tests of reductions that prove spurious: RFC 3522, 4015, 5682 and 2883.

use super::*;

/// Client with a full initial window of ten segments in flight, since 100 ms.
fn sending(config: Tcp) -> Host {
    let mut host = Host::connected(config);
    host.write(100_000);
    host.sent();
    host
}

/// Client with timestamps whose first window left at 100 ms. Its clock shows 101 then.
fn stamped(config: Tcp) -> Host {
    let mut host = Host::new(Tcp { timestamps: true, ..config });
    host.tcp.connect();
    host.poll();
    host.wait(100);
    host.get("syn seq 0 ack 1 ts 1/1");
    host.write(100_000);
    host.sent();
    host
}

/// Returns the reductions that were undone, and the window in segments.
fn undone(host: &Host) -> (u64, f64) {
    (host.tcp.stats().undone, host.cwnd())
}

#[test]
fn after_a_timeout_new_data_leaves_before_retransmissions() {
    let mut host = sending(config());
    host.wait(300);
    assert_eq!((host.sent(), host.cwnd()), (vec!["1+1000".to_owned()], 1.0));
    // F-RTO, RFC 5682 §3.1 step 2b.
    host.get("ack 1001");
    assert_eq!(host.sent(), ["10001+1000", "11001+1000"]);
    // Step 3b: this segment was never retransmitted.
    host.get("ack 2001");
    let (times, cwnd) = undone(&host);
    assert_eq!((times, host.ssthresh()), (1, u64::MAX as f64 / 1000.0));
    assert!((10.0..=13.0).contains(&cwnd), "{cwnd}");
    let stats = host.tcp.stats();
    assert_eq!((stats.retransmissions, stats.timeouts), (1, 1));
    assert!(host.sent().iter().all(|text| !text.starts_with("2001+")), "nothing is lost");
}

#[test]
fn an_original_that_is_sacked_after_a_timeout_shows_it_spurious() {
    let mut host = sending(config());
    host.wait(300);
    host.get("ack 1 sack 3001-4001");
    assert_eq!(undone(&host).0, 1);
    assert!(host.cwnd() >= 10.0);
}

#[test]
fn new_data_alone_that_arrives_shows_a_real_loss() {
    let mut host = sending(config());
    host.wait(300);
    host.get("ack 1001");
    assert_eq!(host.sent(), ["1+1000", "10001+1000", "11001+1000"]);
    // Step 3a.
    host.get("ack 1001 sack 10001-11001");
    assert_eq!(host.sent()[0], "1001+1000");
    host.get("ack 2001 sack 10001-11001");
    assert_eq!((undone(&host).0, host.ssthresh()), (0, 5.0));
    host.get("ack 12001");
    assert_eq!(undone(&host).0, 0);
}

#[test]
fn without_new_data_a_timeout_is_repaired_at_once() {
    let mut host = Host::connected(config());
    host.write(10_000);
    host.sent();
    host.wait(300);
    assert_eq!(host.sent(), ["1+1000"]);
    host.get("ack 1001");
    assert_eq!(host.sent(), ["1001+1000", "2001+1000"]);
    // RFC 5682 §3.1 step 2b: without new data, an answer to what was sent once proves nothing.
    host.get("ack 4001");
    assert_eq!(undone(&host).0, 0);
}

#[test]
fn a_closed_window_lets_a_timeout_be_repaired_at_once() {
    let mut host = sending(config());
    host.wait(300);
    host.sent();
    host.get("ack 1001 win 9000");
    assert_eq!(host.sent(), ["1001+1000", "2001+1000"]);
}

#[test]
fn an_echo_from_before_a_retransmission_undoes_a_timeout() {
    for (echo, times) in [(101, 1), (399, 1), (402, 0)] {
        let mut host = stamped(config());
        host.wait(300);
        assert_eq!(host.sent().len(), 1);
        host.wait(10);
        host.get(&format!("ack 1001 ts 2/{echo}"));
        let (undone, cwnd) = undone(&host);
        assert_eq!((undone, cwnd >= 10.0), (times, times == 1), "{echo}: {cwnd}");
    }
}

#[test]
fn an_echo_from_before_a_retransmission_undoes_a_fast_recovery() {
    for (config, echo, times) in [
        (config(), 101, 1),
        (config(), 201, 0),
        (Tcp { undo: false, ..config() }, 101, 0),
        (Tcp { congestion: Congestion::CUBIC, ..config() }, 101, 1),
        (Tcp { congestion: Congestion::LedbatPlusPlus, ..config() }, 101, 1),
    ] {
        let what = format!("{:?} {} {echo}", config.congestion, config.undo);
        let mut host = stamped(config);
        host.wait(100);
        host.get("ack 1 ts 2/1 sack 1001-4001");
        assert!(host.sent().contains(&"1+1000".to_owned()));
        assert!(host.ssthresh() < 8.0, "{what}: {}", host.ssthresh());
        host.wait(5);
        host.get(&format!("ack 4001 ts 2/{echo}"));
        let (undone, cwnd) = undone(&host);
        assert_eq!((undone, cwnd >= 10.0), (times, times == 1), "{what}: {cwnd}");
        assert_eq!(host.tcp.stats().reductions, 1);
    }
}

#[test]
fn the_fate_of_outstanding_retransmissions_is_awaited() {
    let mut host = stamped(config());
    host.wait(100);
    host.get("ack 1 ts 2/1 sack 2001-6001");
    host.get("ack 1 ts 2/1 sack 2001-9001");
    assert_eq!(host.tcp.stats().retransmissions, 2);
    // The first original was late. The second may be lost.
    host.get("ack 1001 ts 2/101 sack 2001-9001");
    assert_eq!(undone(&host).0, 0);
    host.get("ack 9001 ts 2/101");
    assert_eq!(undone(&host).0, 1);
    assert!(host.cwnd() >= 10.0);
}

#[test]
fn duplicates_of_all_retransmissions_undo_a_past_recovery() {
    let mut host = sending(config());
    host.wait(100);
    host.get("ack 1 sack 2001-6001");
    host.get("ack 1 sack 2001-9001");
    let sent = host.sent();
    assert!(["1+1000", "1001+1000"].iter().all(|text| sent.contains(&(*text).to_owned())), "{sent:?}");
    host.get("ack 10001");
    assert_eq!((undone(&host).0, host.cwnd()), (0, 5.0));
    host.get("ack 10001 sack 1-1001");
    assert_eq!((undone(&host).0, host.cwnd()), (0, 5.0));
    host.get("ack 10001 sack 1001-2001");
    assert_eq!(undone(&host), (1, 10.0));
    // A further duplicate has nothing to undo.
    host.get("ack 10001 sack 1001-2001");
    assert_eq!(undone(&host), (1, 10.0));
}

#[test]
fn duplicates_of_older_data_undo_nothing() {
    let mut host = sending(config());
    host.wait(100);
    host.get("ack 5001");
    host.sent();
    host.get("ack 5001 sack 6001-9001");
    assert_eq!(host.sent()[0], "5001+1000");
    // The network has doubled a segment from before the reduction, and one that was sent once.
    host.get("ack 5001 sack 4001-5001");
    host.get("ack 5001 sack 6001-7001");
    assert_eq!(undone(&host).0, 0);
}

#[test]
fn a_mark_forbids_to_undo() {
    let mut host = Host::new(Tcp { ecn: true, ..config() });
    host.tcp.connect();
    host.poll();
    host.wait(100);
    host.get("syn ece seq 0 ack 1");
    host.write(100_000);
    host.wait(100);
    host.get("ack 1 sack 1001-4001");
    host.get("ack 10001 ece");
    host.get("ack 10001 sack 1-1001");
    assert_eq!((undone(&host).0, host.ssthresh()), (0, 5.0));
}

#[test]
fn the_threshold_of_duplicates_adapts_to_reordering() {
    // A segment that was sent once and overtaken by eight shows that four mean no loss.
    for (undo, reductions) in [(true, 0), (false, 1)] {
        let mut host = Host::connected(Tcp { undo, initial_window: 20, ..config() });
        host.write(20_000);
        host.wait(100);
        host.get("ack 1 sack 8001-9001");
        host.get("ack 1 sack 8001-10001");
        host.get("ack 1 sack 1001-2001");
        assert_eq!(host.tcp.stats().reductions, reductions, "{undo}");
        host.get("ack 20001");
        host.write(5000);
        host.wait(100);
        host.get("ack 20001 sack 21001-25001");
        assert_eq!(host.tcp.stats().reductions, 2 * reductions, "{undo}");
    }
}

/// RFC 2883 §4.2: a duplicate above the cumulative acknowledgement stands before the block that holds it.
#[test]
fn a_duplicate_within_a_sacked_block_is_one_too() {
    for (first, counts) in [("2001-3001", true), ("2001-6001", true), ("6001-7001", false)] {
        let mut host = sending(config());
        host.wait(100);
        // 1 and 2001 are taken for lost.
        host.get("ack 1 sack 3001-6001 sack 1001-2001");
        host.get("ack 1 sack 3001-9001 sack 1001-2001");
        let again = host.tcp.stats().retransmissions;
        assert_eq!(again, 2, "{:?}", host.sent());
        host.get("ack 2001 sack 3001-9001");
        host.get(&format!("ack 2001 sack {first} sack 2001-9001"));
        host.get("ack 10001 sack 1-1001");
        assert_eq!(undone(&host).0 == 1, counts, "{first}");
    }
}
