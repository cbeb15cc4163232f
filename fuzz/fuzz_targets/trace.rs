//! No text makes the trace parser panic, and a parsed trace survives writing and parsing unchanged.
//! A link that follows the trace accounts for every packet.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_sim::{LinkConfig, Network, Trace, UdpFlow};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};

fuzz_target!(|text: &str| {
    let Ok(trace) = text.parse::<Trace>() else { return };
    let millis = trace.millis();
    assert!(
        millis.is_sorted() && millis.len() <= Trace::MAX_OPPORTUNITIES && trace.period() > Duration::ZERO
    );
    let written: String = millis.iter().map(|ms| format!("{ms}\n")).collect();
    assert_eq!(written.parse().as_ref(), Ok(&trace));

    let mut net = Network::new(Seed::new(1));
    let (a, b) = (net.node("a"), net.node("b"));
    let link = || LinkConfig::from_trace(trace.clone(), Duration::from_millis(1));
    let (there, _) = net.link(a, b, link(), link());
    // More than one opportunity for each packet.
    let udp = UdpFlow::new(a, b, Rate::from_mbps(2), Bytes::new(4000));
    net.udp(UdpFlow { stop: Time::from_millis(100), ..udp }).expect("a rate and a payload");
    for ms in [1, 10, 50, 200] {
        net.run_until(Time::from_millis(ms));
        net.check_conservation().expect("no packet goes missing");
    }
    let end = Time::ZERO + trace.period() * 40;
    net.run_until(end.max(Time::from_millis(200)));
    net.check_conservation().expect("no packet goes missing");
    // Seven packets of 4032 bytes take three opportunities each, less the shared ones.
    let counters = net.link_counters(there);
    assert_eq!((counters.offered, counters.delivered), (7, 7));
});
