//! Tests of scenarios as a file has them, between two nodes `a` and `b` on one link.

use marcato_sim::scenario::{FlowOutcome, Outcome};
use marcato_sim::{Bulk, Congestion, LinkConfig, Network, Side, SlowReader, Tcp, TcpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

use crate::outcome::outcome;

/// Runs a scenario of this length, with these keys of the whole file, of the link and of the flow `f`.
fn run(seconds: u64, file: &str, link: &str, flow: &str) -> Outcome {
    let text = format!(
        "name = \"written\"\nduration = \"{seconds} s\"\nnodes = [\"a\", \"b\"]\n{file}\n\
         [[link]]\nname = \"l\"\nbetween = [\"a\", \"b\"]\n{link}\n\
         [[flow]]\nname = \"f\"\nkind = \"tcp\"\nfrom = \"a\"\nto = \"b\"\n{flow}\n"
    );
    outcome(&text)
}

fn one(outcome: &Outcome) -> &FlowOutcome {
    &outcome.flows[0]
}

const TEN: &str =
    "rate = \"10 Mbit/s\"\ndelay = \"10 ms\"\nqueue = { kind = \"droptail\", limit = \"25 packets\" }";

#[test]
fn a_group_has_no_more_goodput_than_its_link() {
    let outcome = run(50, "", TEN, "count = 10\nstagger = \"5 s\"");
    let group = &outcome.groups[0];
    // Payload's share of a packet is 1448 of 1500 bytes.
    assert!((9.4..=9.66).contains(&group.goodput), "{}", group.goodput);
    let sum: f64 = group.members.iter().sum();
    assert!(sum > 12.0, "each member's own span is shorter: {sum}");
}

#[test]
fn flows_that_ended_in_the_warm_up_are_no_members() {
    let flow = "size = \"5 MB\"\ncount = 8\nstagger = \"5 s\"";
    let group = &run(60, "warm-up = \"10 s\"", TEN, flow).groups[0];
    assert_eq!(group.members.len(), 6);
    let (mean, jain) = (group.mean().unwrap(), group.jain().unwrap());
    assert!((9.4..=9.66).contains(&mean), "{mean}");
    assert!(jain > 0.9999, "{jain}");
    // 30 MB from 10 s on, when the third one starts, until the end of the eighth, 4.2 s after 35 s.
    assert!((group.goodput - 8.21).abs() < 0.02, "{}", group.goodput);
    // One that ends in the warm-up, and one that is measured in part.
    let group = &run(60, "warm-up = \"8 s\"", TEN, flow).groups[0];
    assert_eq!(group.members.len(), 7);
    assert!(group.jain().unwrap() > 0.999, "{:?}", group.members);
}

const REORDERED: &str = "rate = \"50 Mbit/s\"\ndelay = \"20 ms\"\n\
     jitter = { kind = \"uniform\", most = \"15 ms\", reorder = true }\nback = { jitter = \"none\" }";

/// Linux 6.18 over the same link in a lab has 42.8 and 47.8 Mbit/s in two runs.
#[test]
fn reordering_costs_little_as_spurious_reductions_are_undone() {
    for (tcp, least) in [
        ("congestion = \"cubic\"", 42.0),
        ("timestamps = false", 45.0),
        ("congestion = \"reno\", timestamps = false", 45.0),
        ("loss-detection = \"dup-thresh\"", 40.0),
    ] {
        let goodput =
            |undo| one(&run(30, "", REORDERED, &format!("tcp = {{ {tcp}, undo = {undo} }}"))).goodput;
        let (with, without) = (goodput(true), goodput(false));
        assert!(with > least && with > 1.2 * without, "{tcp}: {with} and {without}");
    }
}

#[test]
fn a_delay_that_jumps_beyond_the_timeout_halves_no_window() {
    let link = "rate = \"50 Mbit/s\"\ndelay = \"20 ms\"\nback = { delay = \"20 ms\" }\n\
         changes = [{ at = \"5 s\", way = \"back\", delay = \"520 ms\" }, { at = \"5.6 s\", way = \"back\", delay = \"20 ms\" }]";
    let file = "[record]\nevery = \"500 ms\"\nseries = [\"flow.f.cwnd\"]";
    for timestamps in [true, false] {
        let flow = |undo| {
            format!(
                "tcp = {{ congestion = \"reno\", undo = {undo}, timestamps = {timestamps}, initial-ssthresh = 100 }}"
            )
        };
        let windows = |undo| {
            let outcome = run(8, file, link, &flow(undo));
            assert!(one(&outcome).timeouts > 0, "{timestamps}");
            let at = |ms| {
                let points = &outcome.series[0].points;
                points.iter().find(|(at, _)| *at == Time::from_millis(ms)).unwrap().1.unwrap()
            };
            [at(4500), at(7000)]
        };
        let [before, after] = windows(true);
        assert!(after >= before, "{timestamps}: {before} {after}");
        let [before, after] = windows(false);
        assert!(after < 0.8 * before, "{timestamps}: {before} {after}");
    }
}

#[test]
fn two_lost_syns_leave_an_initial_window_of_one_segment() {
    let link = |lost| {
        format!(
            "rate = \"10 Mbit/s\"\ndelay = \"20 ms\"\nloss = {{ kind = \"script\", packets = {lost} }}\n\
             back = {{ loss = \"none\" }}"
        )
    };
    let file = "[record]\nevery = \"1 ms\"\nseries = [\"flow.f.cwnd\"]";
    for congestion in ["reno", "cubic", "ledbat++", "bbr"] {
        // The SYN leaves at 0, 1 and 3 s.
        for (lost, timeouts, at, segments) in
            [("[99999]", 0, 45, 10.0), ("[0]", 1, 1045, 10.0), ("[0, 1]", 2, 3045, 1.0)]
        {
            let flow = format!("size = \"200 kB\"\ncongestion = \"{congestion}\"");
            let outcome = run(20, file, &link(lost), &flow);
            let window = outcome.series[0].points.iter().find(|(when, _)| *when == Time::from_millis(at));
            assert_eq!(window.unwrap().1, Some(1448.0 * segments), "{congestion} {lost}");
            let flow = one(&outcome);
            assert_eq!((flow.timeouts, flow.bytes), (timeouts, Bytes::kb(200)), "{congestion} {lost}");
        }
    }
}

#[test]
fn lost_syn_acks_restrict_the_window_of_the_answering_end() {
    let link = "delay = \"20 ms\"\nback = { loss = { kind = \"script\", packets = [0, 1] } }";
    let text = |link: &str| {
        format!(
            "name = \"w\"\nduration = \"20 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n{link}\n\
             [[flow]]\nname = \"f\"\nkind = \"request-response\"\nfrom = \"a\"\nto = \"b\"\nresponse = \"14480 B\"\nrequests = 1\n\
             tcp = {{ delayed-ack = {{ every = 1 }} }}"
        )
    };
    let took = |link: &str| {
        let outcome = outcome(&text(link));
        (outcome.flows[0].times[0].done[0], outcome.flows[0].timeouts)
    };
    // Ten segments in one round trip of 40 ms, or 1, 2, 4 and 3 in four. The request adds half of one.
    let (whole, none) = took("delay = \"20 ms\"");
    let (restricted, timeouts) = took(link);
    assert_eq!(none, 0);
    assert!((2..=4).contains(&timeouts), "those of both ends: {timeouts}");
    assert!((restricted - whole - 120.0).abs() < 1.0, "{whole} {restricted}");
}

#[test]
fn a_policer_passes_its_rate_and_queues_nothing() {
    let link = "rate = \"100 Mbit/s\"\ndelay = \"10 ms\"\n\
         queue = { kind = \"policer\", rate = \"8 Mbit/s\", burst = \"40 kB\" }";
    let outcome = run(
        20,
        "warm-up = \"2 s\"\n[[flow]]\nname = \"u\"\nkind = \"udp\"\nfrom = \"a\"\nto = \"b\"\nrate = \"20 Mbit/s\"",
        link,
        "start = \"19 s\"",
    );
    let there = &outcome.links[0];
    // A second of TCP at the end shares the tokens.
    assert!((there.throughput - 8.0).abs() < 0.01, "{}", there.throughput);
    assert!((0.59..0.61).contains(&(there.drops as f64 / there.offered as f64)), "{there:?}");
    assert!(there.queue_delay.unwrap().max < std::time::Duration::from_micros(500));
    // TCP's sawtooth stays below the rate, and takes all its losses here.
    let outcome = run(20, "warm-up = \"2 s\"", link, "");
    assert!((4.0..7.8).contains(&one(&outcome).goodput), "{}", one(&outcome).goodput);
    assert!(one(&outcome).losses > 20);
}

#[test]
fn a_burst_passes_a_policer_at_once_and_the_rest_is_lost() {
    let link = "delay = \"10 ms\"\nrate = \"1 Gbit/s\"\n\
         queue = { kind = \"policer\", rate = \"1 Mbit/s\", burst = \"30 kB\", queue = { kind = \"droptail\", limit = \"15 packets\" } }";
    let udp = "[[flow]]\nname = \"u\"\nkind = \"udp\"\nfrom = \"a\"\nto = \"b\"\nrate = \"500 Mbit/s\"\npayload = \"1472 B\"\nstop = \"1 ms\"";
    let outcome = run(1, udp, link, "start = \"900 ms\"");
    // 42 packets of 1500 B in a millisecond: 20 fit the bucket, and 125 B came meanwhile.
    assert_eq!(outcome.flows[0].bytes, Bytes::new(20 * 1472));
}

#[test]
fn a_slow_reader_closes_the_window_and_probes_reopen_it() {
    let link = "rate = \"100 Mbit/s\"\ndelay = \"10 ms\"";
    for buffer in ["16 KiB", "64 KiB", "1 MiB"] {
        let flow = format!("read-rate = \"2 Mbit/s\"\ntcp = {{ receive-buffer = \"{buffer}\" }}");
        let outcome = run(30, "warm-up = \"10 s\"", link, &flow);
        let flow = one(&outcome);
        assert!((flow.goodput - 2.0).abs() < 0.01, "{buffer}: {}", flow.goodput);
        assert_eq!((flow.losses, flow.timeouts), (0, 0), "{buffer}");
        // No silly windows: a segment is full, except at the edge of a window.
        let segments = flow.bytes.get() / 1448;
        assert!(flow.sent < segments * 13 / 10, "{buffer}: {} for {segments}", flow.sent);
    }
    // Reading begins after 5 s. Until then the buffer fills once, and probes follow at growing
    // intervals. The update that opens the window is lost, so that only a probe can find it open.
    let link = "rate = \"100 Mbit/s\"\ndelay = \"10 ms\"\nchanges = [{ at = \"4.9 s\", way = \"back\", up = false }, { at = \"5.1 s\", way = \"back\", up = true }]";
    let flow = "read-after = \"5 s\"\nsize = \"500 kB\"\ntcp = { receive-buffer = \"64 KiB\" }";
    let outcome = run(20, "", link, flow);
    let flow = one(&outcome);
    assert_eq!((flow.bytes, flow.timeouts, flow.retransmissions), (Bytes::kb(500), 0, 0));
    let end = flow.finished.unwrap();
    assert!(end > Time::from_millis(5_200) && end < Time::from_secs(12), "{end}");
}

#[test]
fn a_stream_ends_when_a_slow_reader_has_read_all_of_it() {
    const SIZE: Bytes = Bytes::kb(100);
    let mut net = Network::new(Seed::new(1));
    let (a, b) = (net.node("a"), net.node("b"));
    let link = || LinkConfig::new(Rate::from_mbps(100), Duration::from_millis(10));
    net.link(a, b, link(), link());
    let reader = SlowReader::new(Some(Rate::from_mbps(1)), Duration::ZERO);
    let flow =
        net.tcp(TcpFlow::new(a, b, Tcp::with(Congestion::Reno), Bulk::new(SIZE)).server_app(reader)).unwrap();
    let mut early = 0;
    for ms in (10..1_000).step_by(10) {
        net.run_until(Time::from_millis(ms));
        let reception = net.reception(flow, Side::Server);
        assert_eq!(reception.finished_at.is_some(), reception.bytes == SIZE, "{ms} ms, {}", reception.bytes);
        // All has been acknowledged, the end of the stream with it.
        early += u32::from(net.is_finished(flow, Side::Client) && reception.bytes < SIZE);
    }
    assert!(early > 50, "the end came long before it was read: {early}");
}

/// RFC 9293 §3.8.6.1: the interval between probes grows, although the receiver answers them.
#[test]
fn probes_of_a_closed_window_grow_rare_although_answered() {
    let link = "rate = \"100 Mbit/s\"\ndelay = \"10 ms\"";
    let flow = "read-after = \"55 s\"\ntcp = { receive-buffer = \"16 KiB\" }";
    let outcome = run(50, "", link, flow);
    let probes = one(&outcome).sent - 16 * 1024 / 1448 - 1;
    // From 0.2 s on, each interval is twice the one before: 0.2, 0.4, …, 25.6 s.
    assert!((6..=12).contains(&probes), "{probes}");
}

/// Linux pushes the last segment; RFC 9293 §3.7.4 would have it wait for 100 ms.
#[test]
fn nagle_does_not_hold_the_last_segment_before_a_close() {
    let took = |nagle: &str| {
        let flow = format!("size = \"1948 B\"\ntcp = {{ nagle = \"{nagle}\" }}");
        one(&run(2, "", "delay = \"50 ms\"", &flow)).finished.unwrap()
    };
    let off = took("off");
    assert_eq!(off, Time::from_millis(150), "a handshake and a one-way delay");
    assert_eq!([took("standard"), took("minshall")], [off; 2]);
}

/// Time of the second of two responses of 600 kB, three seconds apart, in ms. Meanwhile the round trip grows by 20 ms
/// every 100 ms. With an outage of the link, the first loses segments and so ends the initial slow start.
fn second_response(slow_start: &str, congestion: &str, outage: bool) -> f64 {
    let mut changes = String::new();
    if outage {
        changes += "{ at = \"450200 us\", up = false }, { at = \"450400 us\", up = true }, ";
    }
    for step in 0..20 {
        changes += &format!("{{ at = \"{} ms\", delay = \"{} ms\" }}, ", 2_600 + 100 * step, 60 + 10 * step);
    }
    let congestion = if congestion == "cubic" { "{ kind = \"cubic\", hystart = false }" } else { "\"reno\"" };
    let text = format!(
        "name = \"w\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\n\
         rate = \"1 Gbit/s\"\ndelay = \"50 ms\"\nchanges = [{changes}]\n\
         [[flow]]\nname = \"f\"\nkind = \"request-response\"\nfrom = \"a\"\nto = \"b\"\nresponse = \"600 kB\"\n\
         think = \"2 s\"\nrequests = 2\n\
         tcp = {{ congestion = {congestion}, slow-start = \"{slow_start}\", delayed-ack = {{ every = 1 }} }}"
    );
    let outcome = outcome(&text);
    assert_eq!(outcome.flows[0].losses > 0, outage);
    outcome.flows[0].times[0].done[1]
}

/// RFC 9406 §4.3.
#[test]
fn hystart_plus_plus_leaves_later_slow_starts_alone() {
    for congestion in ["reno", "cubic"] {
        let took = |outage| ["standard", "hystart++"].map(|start| second_response(start, congestion, outage));
        let [standard, plus_plus] = took(false);
        assert!(plus_plus > standard + 100.0, "{congestion}: no loss before: {plus_plus}, {standard}");
        let [standard, plus_plus] = took(true);
        // A conservative start would take several round trips more, of 120 ms and longer.
        assert!(plus_plus < standard + 200.0, "{congestion}: a loss before: {plus_plus}, {standard}");
    }
}

/// Completion times of messages of 200 B, in ms, whose sender has this rule.
fn small_messages(nagle: &str) -> Vec<f64> {
    let text = format!(
        "name = \"w\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"50 ms\"\n\
         [[flow]]\nname = \"f\"\nkind = \"messages\"\nfeeder = \"fifo\"\nfrom = \"a\"\nto = \"b\"\ntcp = {{ nagle = \"{nagle}\" }}\n\
         sources = [{{ period = \"30 ms\", first = \"1 s\", size = \"200 B\" }}]"
    );
    let outcome = outcome(&text);
    outcome.flows[0].times[0].done.clone()
}

#[test]
fn nagle_has_small_messages_wait_for_a_round_trip() {
    let longest = |times: &[f64]| times.iter().copied().fold(0.0, f64::max);
    let off = small_messages("off");
    assert!(longest(&off) < 51.0, "{off:?}");
    for nagle in ["standard", "minshall"] {
        let times = small_messages(nagle);
        // The acknowledgement of the one before takes a round trip, and may be delayed by 40 ms.
        assert!((140.0..200.0).contains(&longest(&times)), "{nagle}: {}", longest(&times));
    }
}

#[test]
fn minshall_holds_a_write_only_behind_a_small_segment() {
    let took = |nagle: &str| {
        let text = format!(
            "name = \"w\"\nduration = \"10 s\"\nnodes = [\"a\", \"b\"]\n[[link]]\nbetween = [\"a\", \"b\"]\ndelay = \"50 ms\"\n\
             [[flow]]\nname = \"f\"\nkind = \"request-response\"\nfrom = \"a\"\nto = \"b\"\nrequest = \"2000 B\"\nresponse = \"100 B\"\n\
             think = \"1 s\"\nrequests = 3\ntcp = {{ nagle = \"{nagle}\", delayed-ack = {{ every = 1 }} }}"
        );
        let outcome = outcome(&text);
        outcome.flows[0].times[0].done[1]
    };
    // 1448 B leave at once, and 552 B with them, or after their acknowledgement.
    let (off, standard, minshall) = (took("off"), took("standard"), took("minshall"));
    assert!((99.0..102.0).contains(&off), "{off}");
    assert!((minshall - off).abs() < 1.0, "{minshall}");
    assert!((199.0..202.0).contains(&standard), "{standard}");
}

#[test]
fn hystart_plus_plus_loses_less_in_slow_start() {
    let link =
        "rate = \"100 Mbit/s\"\ndelay = \"40 ms\"\nqueue = { kind = \"droptail\", limit = \"2500 packets\" }";
    for congestion in ["reno", "cubic"] {
        let losses = |slow_start: &str| {
            let kind =
                if congestion == "cubic" { "{ kind = \"cubic\", hystart = false }" } else { "\"reno\"" };
            let flow = format!(
                "tcp = {{ congestion = {kind}, slow-start = \"{slow_start}\", send-buffer = \"64 MiB\", receive-buffer = \"64 MiB\" }}"
            );
            let outcome = run(6, "", link, &flow);
            assert!(one(&outcome).goodput > 60.0, "{congestion}: {}", one(&outcome).goodput);
            one(&outcome).losses
        };
        // The conservative start grows by a quarter a round trip, where the standard one doubles.
        let (standard, plus_plus) = (losses("standard"), losses("hystart++"));
        assert!(plus_plus * 3 < standard, "{congestion}: {plus_plus} of {standard}");
    }
}
