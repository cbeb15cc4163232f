//! Tests of segmentation offload: new data in bursts.

use super::*;

fn offloading() -> Tcp {
    Tcp { segmentation_offload: Some(Bytes::new(65_536)), ..config() }
}

/// Sends ten segments.
fn sending(config: Tcp) -> Host {
    let mut host = Host::connected(config);
    host.write(100_000);
    assert_eq!(host.sent().len(), 10);
    host
}

#[test]
fn new_data_waits_until_two_segments_may_leave() {
    let mut host = sending(offloading());
    host.wait(40);
    // Half a segment, and the half by which the window grows, make room for one.
    host.get("ack 501");
    assert_eq!(host.sent(), [""; 0]);
    host.get("ack 1001");
    assert_eq!(host.sent(), ["10001+1000", "11001+1000"]);
    let mut without = sending(config());
    without.wait(40);
    without.get("ack 501");
    assert_eq!(without.sent(), ["10001+1000"]);
}

#[test]
fn new_data_waits_for_half_a_round_trip_at_most() {
    let mut host = sending(offloading());
    host.wait(40);
    host.get("ack 501");
    assert_eq!(host.sent(), [""; 0]);
    host.wait(60);
    host.get("ack 502");
    assert_eq!(host.sent(), ["10001+1000"]);
}

#[test]
fn a_window_that_waits_for_a_burst_is_in_use_and_grows() {
    let mut host = sending(offloading());
    host.wait(40);
    let mut before = host.tcp.stats().cwnd;
    for ack in [501, 1001, 1501, 2001, 2501, 3001] {
        host.get(&format!("ack {ack}"));
        let after = host.tcp.stats().cwnd;
        assert!(after > before, "{after} after {before} at {ack}");
        before = after;
    }
}

#[test]
fn the_last_segment_and_retransmissions_leave_without_waiting() {
    let mut host = Host::connected(offloading());
    host.write(10_500);
    assert_eq!(host.sent().len(), 10);
    host.wait(100);
    host.get("ack 501");
    assert_eq!(host.sent(), ["10001+500"]);
    for sack in [3001, 4001, 5001] {
        host.get(&format!("ack 1001 sack 2001-{sack}"));
    }
    assert_eq!(host.sent(), ["1001+1000"]);
}

/// CATS §II-D2: receivers serve a segment as its most urgent byte asks.
#[test]
fn a_segment_has_the_priority_of_its_most_urgent_byte() {
    for order in [[Priority::P3, Priority::P1], [Priority::P1, Priority::P3]] {
        let config = Tcp { priority_option: Some(PriorityOption::Rfc6994), ..config() };
        let mut host = Host::connected(config);
        for priority in order {
            host.tcp.write(Bytes::new(400), priority);
        }
        host.poll();
        let sent: Vec<_> =
            host.out.iter().map(|(_, segment, _)| (segment.payload, segment.priority)).collect();
        assert_eq!(sent, [(800, Some(Priority::P1))], "{order:?}");
    }
}
