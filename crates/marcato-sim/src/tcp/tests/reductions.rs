//! Tests of ECN: RFC 3168.

use super::*;

fn ecn() -> Tcp {
    Tcp { ecn: true, ..config() }
}

/// Client that has agreed on ECN.
fn connected(config: Tcp) -> Host {
    let mut host = Host::new(config);
    host.tcp.connect();
    host.poll();
    host.wait(100);
    host.get("syn ece seq 0 ack 1");
    assert_eq!(host.sent(), ["syn 0 ece cwr", "ack 1"]);
    host
}

/// Returns the code points of segments that have left, and their texts.
fn code_points(host: &mut Host) -> Vec<(Ecn, String)> {
    let ecn: Vec<Ecn> = host.out.iter().map(|&(_, _, ecn)| ecn).collect();
    ecn.into_iter().zip(host.sent()).collect()
}

#[test]
fn a_server_accepts_ecn_when_both_want_it() {
    for (config, syn, answer) in [
        (ecn(), "syn ece cwr seq 0", "syn 0 ece"),
        (ecn(), "syn seq 0", "syn 0"),
        (config(), "syn ece cwr seq 0", "syn 0"),
    ] {
        let mut host = Host::new(config);
        host.get(syn);
        assert_eq!(host.sent(), [answer]);
    }
}

#[test]
fn only_new_data_is_ecn_capable() {
    let mut host = connected(ecn());
    host.write(1000);
    assert_eq!(code_points(&mut host), [(Ecn::Ect0, "1+1000".to_owned())]);
    host.wait(400);
    assert_eq!(code_points(&mut host), [(Ecn::NotEct, "1+1000".to_owned())]);
    host.get("seq 1 len 1000 ack 1001");
    assert_eq!(code_points(&mut host), [(Ecn::NotEct, "ack 1001".to_owned())]);
}

#[test]
fn a_mark_is_echoed_until_the_sender_confirms_its_reduction() {
    let mut host = Host::new(ecn());
    host.get("syn ece cwr seq 0");
    host.get("seq 1 ack 1");
    host.sent();
    host.get("ce seq 1 len 1000 ack 1");
    host.get("seq 1001 len 1000 ack 1");
    host.get("cwr seq 2001 len 1000 ack 1");
    // A new mark in the same segment as the CWR for the old one.
    host.get("ce cwr seq 3001 len 1000 ack 1");
    assert_eq!(host.sent(), ["ack 1001 ece", "ack 2001 ece", "ack 3001", "ack 4001 ece"]);
}

/// RFC 3168 §6.1.2: the timeout has answered for the whole window.
#[test]
fn an_echo_of_the_window_of_a_timeout_reduces_nothing_more() {
    let mut host = connected(Tcp { undo: false, ..ecn() });
    host.write(2_000);
    host.wait(400);
    assert_eq!((host.tcp.stats().timeouts, host.tcp.stats().reductions), (1, 0));
    host.get("ack 2001 ece");
    assert_eq!(host.tcp.stats().reductions, 0);
    host.write(1_000);
    host.get("ack 3001 ece");
    assert_eq!(host.tcp.stats().reductions, 1, "of the next window");
}

#[test]
fn ece_halves_the_window_once_per_window_without_retransmitting() {
    let mut host = connected(ecn());
    host.write(100_000);
    assert_eq!(host.sent().len(), 10);
    host.wait(100);
    for ack in (1001..=10_001).step_by(1000) {
        host.get(&format!("ack {ack} ece"));
    }
    let stats = host.tcp.stats();
    assert_eq!((stats.reductions, stats.retransmissions), (1, 0));
    assert_eq!((host.cwnd(), host.ssthresh()), (5.0, 5.0));
    // One segment leaves per two acknowledged; the first of them carries CWR.
    let sent = host.sent();
    assert_eq!(sent, ["10001+1000 cwr", "11001+1000", "12001+1000", "13001+1000", "14001+1000"]);
    // The echo continues until that segment arrives, and causes no other reduction.
    host.get("ack 10001 ece");
    assert_eq!(host.tcp.stats().reductions, 1);
    host.get("ack 11001");
    // A mark in the next window does.
    host.get("ack 12001 ece");
    assert_eq!(host.tcp.stats().reductions, 2);
}

#[test]
fn a_reduction_for_loss_is_confirmed_as_well() {
    let mut host = connected(ecn());
    host.write(100_000);
    host.sent();
    host.wait(100);
    host.get("ack 1 sack 1001-4001");
    host.get("ack 10001");
    let sent = host.sent();
    assert_eq!(sent.iter().filter(|text| text.ends_with("cwr")).count(), 1, "{sent:?}");
    assert!(sent.iter().find(|text| !text.starts_with("1+")).unwrap().ends_with("cwr"), "{sent:?}");
}

#[test]
fn ecn_and_loss_in_one_window_cut_it_once_and_repair_the_loss() {
    let mut host = connected(ecn());
    host.write(100_000);
    host.sent();
    host.wait(100);
    host.get("ack 1001 ece");
    assert_eq!(host.ssthresh(), 5.0);
    host.get("ack 1001 ece sack 2001-5001");
    assert!(host.sent().contains(&"1001+1000".to_owned()));
    host.get("ack 10001 ece");
    let stats = host.tcp.stats();
    assert_eq!((stats.reductions, stats.retransmissions), (1, 1));
    assert_eq!(host.ssthresh(), 5.0);
}

#[test]
fn bbr_pays_no_attention_to_ecn() {
    let mut host = connected(Tcp { congestion: Congestion::Bbr, ..ecn() });
    host.write(100_000);
    host.wait(200);
    let before = host.cwnd();
    host.get("ack 1001 ece");
    host.get("ack 2001 ece");
    assert!(host.cwnd() >= before, "{} after {before}", host.cwnd());
}
