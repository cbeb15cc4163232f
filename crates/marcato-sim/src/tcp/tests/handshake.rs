//! Tests of opening, closing, and the options that both ends agree on.

use super::*;

#[test]
fn a_lost_syn_is_repeated_after_one_two_and_four_seconds() {
    let mut host = Host::new(config());
    host.tcp.connect();
    host.poll();
    host.wait(7_500);
    let times: Vec<u64> = host.sent_when().into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [0, 1_000, 3_000, 7_000]);
    host.get("syn seq 0 ack 1");
    assert!(host.tcp.is_established());
    // Karn's rule: a retransmitted SYN gives no round trip.
    assert_eq!(host.tcp.stats().srtt, None);
}

#[test]
fn nobody_tries_to_open_for_ever() {
    let mut host = Host::new(config());
    host.tcp.connect();
    host.poll();
    let mut given_up = Vec::new();
    while let Some(at) = host.tcp.timers(host.now).into_iter().flatten().min() {
        host.now = at;
        given_up.push(host.tcp.on_timer(at));
        host.poll();
    }
    assert_eq!(host.sent().len(), 7);
    assert_eq!(given_up, [false, false, false, false, false, false, true]);
    assert!(!host.tcp.is_established());
    assert_eq!(host.tcp.stats().timeouts, 7);
}

/// The handshake is no idle time: a window that has just opened is not that of a pause.
#[test]
fn data_that_follows_the_handshake_follows_no_pause() {
    let tcp = Tcp { slow_start_after_idle: true, idle_decay: true, initial_ssthresh: Some(4), ..config() };
    let mut host = Host::new(tcp);
    host.now = Time::from_secs(50);
    let mut host = host.connect();
    host.write(1000);
    assert_eq!(host.ssthresh(), 4.0);
}

#[test]
fn a_server_retransmits_its_syn_ack_on_a_repeat_syn_or_timeout() {
    let mut host = Host::new(config());
    host.get("syn seq 0");
    host.wait(500);
    host.get("syn seq 0");
    host.wait(2_500);
    let sent = host.sent_when();
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 500, 2_500]);
    assert!(sent.iter().all(|(_, text)| text == "syn 0"));
}

#[test]
fn data_establishes_a_server_that_missed_the_last_handshake_ack() {
    let mut host = Host::new(config());
    host.get("syn seq 0");
    host.wait(100);
    let delivered = host.get("seq 1 len 1000 ack 1");
    assert!(delivered.connected);
    assert_eq!(delivered.bytes, 1000);
    assert_eq!(host.sent(), ["syn 0", "ack 1001"]);
}

#[test]
fn an_ack_of_another_sequence_number_does_not_open_a_server() {
    let mut host = Host::new(config());
    host.get("syn seq 0");
    for text in ["seq 1 ack 0", "seq 1 ack 2", "seq 1 ack 4000000000"] {
        assert!(!host.get(text).connected, "{text}");
    }
    assert!(host.get("seq 1 ack 1").connected);
}

#[test]
fn a_repeated_answer_is_acknowledged_again() {
    let mut host = Host::connected(config());
    host.get("syn seq 0 ack 1");
    assert_eq!(host.sent(), ["ack 1"]);
}

#[test]
fn the_window_of_a_syn_is_not_scaled() {
    let mut host = Host::new(Tcp { receive_buffer: Bytes::new(1 << 20), ..config() });
    host.tcp.connect();
    host.poll();
    assert_eq!(host.out[0].1.window, 65_535);
    host.get("syn seq 0 ack 1");
    assert_eq!(host.out[1].1.window, 1 << 20);
}

#[test]
fn timestamps_are_used_when_both_ends_offer_them() {
    for (ours, theirs) in [(true, true), (true, false), (false, true)] {
        let mut host = Host::new(Tcp { timestamps: ours, ..config() });
        host.tcp.connect();
        host.poll();
        assert_eq!(host.out[0].1.timestamps.is_some(), ours);
        host.get(if theirs { "syn seq 0 ack 1 ts 9/1" } else { "syn seq 0 ack 1" });
        assert_eq!(host.out[1].1.timestamps.is_some(), ours && theirs, "{ours} {theirs}");
    }
}

#[test]
fn an_old_duplicate_is_known_by_its_timestamp() {
    let mut host = Host::new(Tcp { timestamps: true, ..config() });
    host.get("syn seq 0 ts 100/0");
    assert_eq!(host.get("seq 1 len 1000 ack 1 ts 200/1").bytes, 1000);
    host.sent();
    // PAWS: the segment would fit the window, but its timestamp is old; it is answered and dropped.
    assert_eq!(host.get("seq 1001 len 1000 ack 1 ts 150/1").bytes, 0);
    assert_eq!(host.sent(), ["ack 1001"]);
    assert_eq!(host.get("seq 1001 len 1000 ack 1 ts 198/1").bytes, 0);
    // Linux, `TCP_PAWS_WINDOW`: it may be older by one tick.
    assert_eq!(host.get("seq 1001 len 1000 ack 1 ts 199/1").bytes, 1000);
}

#[test]
fn of_several_segments_the_first_ones_timestamp_is_echoed() {
    let delayed_ack = DelayedAck { first_at_once: false, ..DelayedAck::default() };
    let mut host = Host::new(Tcp { timestamps: true, delayed_ack, ..config() });
    host.get("syn seq 0 ts 100/0");
    host.get("seq 1 len 1000 ack 1 ts 200/1");
    host.get("seq 1001 len 1000 ack 1 ts 210/1");
    // RFC 7323 §4.3: so that the measured round trip includes the acknowledgement's delay.
    assert_eq!(host.out.last().unwrap().1.timestamps.unwrap().1, 200);
}

#[test]
fn a_lost_fin_is_sent_again() {
    let mut host = Host::connected(config());
    host.write(1500);
    host.close();
    assert_eq!(host.sent(), ["1+1000", "1001+500", "fin 1501"]);
    host.wait(100);
    host.get("ack 1501");
    host.wait(1_000);
    assert_eq!(host.sent().first().map(String::as_str), Some("fin 1501"));
    host.get("ack 1502");
    assert!(host.tcp.all_acked());
    host.wait(100_000);
    assert!(host.sent().is_empty());
}

/// A full segment with its FIN exceeds the window of one segment after a timeout by a byte.
#[test]
fn a_lost_last_segment_with_its_fin_is_sent_again() {
    let mut host = Host::connected(config());
    host.tcp.write(Bytes::new(1000), Priority::P2);
    host.close();
    assert_eq!(host.sent(), ["1+1000 fin"]);
    host.wait(350);
    assert_eq!(host.sent_when(), [(400, "1+1000 fin".to_owned())]);
    host.get("ack 1002");
    assert!(host.tcp.all_acked());
}

#[test]
fn a_fin_is_reported_once_all_data_before_it_has_arrived() {
    let mut host = Host::connected(config());
    assert!(!host.get("fin seq 1001 len 500 ack 1").finished);
    assert_eq!(host.sent(), ["ack 1 sack 1001-1502"]);
    let delivered = host.get("seq 1 len 1000 ack 1");
    assert_eq!((delivered.bytes, delivered.finished), (1500, true));
    assert_eq!(host.sent(), ["ack 1502"]);
    // The retransmitted FIN is acknowledged, but not reported again.
    let again = host.get("fin seq 1501 ack 1");
    assert_eq!((again.bytes, again.finished), (0, false));
    assert_eq!(host.sent(), ["ack 1502 sack 1501-1502"]);
}

#[test]
fn both_ends_may_send_at_once_and_acknowledge_with_data() {
    let mut host = Host::connected(config());
    host.write(2000);
    host.get("seq 1 len 1000 ack 1001");
    host.get("seq 1001 len 1000 ack 2001");
    host.write(1000);
    assert_eq!(host.sent(), ["1+1000", "1001+1000", "ack 1001", "ack 2001", "2001+1000"]);
    assert_eq!(host.tcp.stats().in_flight, Bytes::new(1000));
}

#[test]
fn the_initial_rto_applies_to_the_syn_and_to_data_before_an_rtt() {
    let config = Tcp { initial_rto: ms(300), ..config() };
    let mut host = Host::new(config);
    host.tcp.connect();
    host.poll();
    host.wait(1000);
    let times: Vec<u64> = host.sent_when().into_iter().map(|(at, _)| at).collect();
    assert_eq!(times, [0, 300, 900]);
    // The SYN was retransmitted, so its acknowledgement gives no round trip (Karn).
    host.get("syn seq 0 ack 1");
    host.sent();
    host.write(1000);
    host.wait(3050);
    let times: Vec<u64> = host.sent_when().into_iter().map(|(at, _)| at).collect();
    // RFC 6298 §5.7: the timeout of the data is three seconds then.
    assert_eq!(times, [1000, 4000]);
}

/// RFC 3168 §6.1.1: ECE alone in the SYN-ACK accepts ECN.
#[test]
fn a_syn_ack_with_ece_and_cwr_accepts_no_ecn() {
    for (answer, echoes) in [("ece", true), ("ece cwr", false), ("", false)] {
        let mut host = Host::new(Tcp { ecn: true, ..config() });
        host.tcp.connect();
        host.poll();
        host.get(&format!("syn {answer} seq 0 ack 1"));
        assert_eq!(host.sent(), ["syn 0 ece cwr", "ack 1"]);
        host.get("ce seq 1 len 1000 ack 1");
        host.wait(200);
        assert_eq!(host.sent(), [if echoes { "ack 1001 ece" } else { "ack 1001" }], "{answer}");
    }
}

/// RFC 2018 §2, RFC 7323 §2 and §3, RFC 3168 §6.1.1.
#[test]
fn a_server_answers_only_the_options_that_a_syn_offers() {
    for (offer, sack, stamp) in [
        ("syn seq 0", true, None),
        ("syn nosack seq 0", false, None),
        ("syn seq 0 ts 700/0", true, Some(700)),
        ("syn nosack seq 0 ts 41/0", false, Some(41)),
    ] {
        for ours in [true, false] {
            let mut host = Host::new(Tcp { timestamps: ours, ..config() });
            host.get(offer);
            let answer = host.out[0].1.clone();
            assert_eq!(answer.sack_permitted, sack, "{offer}");
            assert_eq!(answer.timestamps.map(|(_, echo)| echo), stamp.filter(|_| ours), "{offer}, {ours}");
            host.sent();
            host.get("seq 1001 len 1000 ack 1 ts 800/1");
            let expected = if sack { "ack 1 sack 1001-2001" } else { "ack 1" };
            assert_eq!(host.sent(), [expected], "{offer}, {ours}");
        }
    }
}

/// RFC 9293 §3.10.5 and §3.10.7.1: which of its numbers make the other end believe a reset.
#[test]
fn a_reset_has_the_numbers_that_its_receiver_believes() {
    let reset = |host: &Host| {
        let segment = host.out.last().unwrap().1.clone();
        assert!(segment.flags.rst && segment.payload == 0 && !segment.flags.fin && !segment.flags.syn);
        let ack = segment.flags.ack.then(|| segment.ack.wrapping_sub(PEER));
        (segment.seq, ack, host.isn)
    };
    let mut host = Host::connected(config());
    host.write(3000);
    host.get("seq 1 len 700 ack 1001");
    host.abort();
    let (seq, ack, isn) = reset(&host);
    assert_eq!((seq.wrapping_sub(isn), ack), (3001, Some(701)));
    // The connection is over. What arrives then is answered by its own number, or acknowledged if it has none.
    host.get("seq 701 len 100 ack 2001");
    let (seq, ack, isn) = reset(&host);
    assert_eq!((seq.wrapping_sub(isn), ack), (2001, None));
    host.get("syn seq 50");
    let (seq, ack, _) = reset(&host);
    assert_eq!((seq, ack), (0, Some(51)));
}
