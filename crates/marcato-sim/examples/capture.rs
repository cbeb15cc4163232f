//! Capture of a transfer of 200 kB with losses, as a pcap file:
//! `cargo run -p marcato-sim --example capture [snaplen] > transfer.pcap`.

use marcato_sim::{
    Arrivals, Bulk, Congestion, Distribution, LinkConfig, Loss, Network, PriorityOption, Tap, TapPoint, Tcp,
    TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let snaplen = std::env::args().nth(1).map_or(Ok(128), |s| s.parse())?;
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
    let (there, _) = net.link(client, server, link().loss(Loss::Every(40)), link());
    net.tap(there, Tap::default().point(TapPoint::Entry).snaplen(snaplen));
    let config = Tcp { priority_option: Some(PriorityOption::Rfc6994), ..Tcp::with(Congestion::Reno) };
    let app = Bulk::new(Bytes::kb(200)).priority(Priority::P1);
    net.tcp(TcpFlow::new(client, server, config, app))?;
    let spans = Distribution::exponential(Duration::from_millis(100))?;
    let voice = UdpFlow::new(client, server, Rate::from_kbps(64), Bytes::new(160));
    net.udp(UdpFlow { arrivals: Arrivals::OnOff { on: spans, off: spans }, ..voice })?;
    let mut out = std::io::stdout().lock();
    for ms in (100..=3_000).step_by(100) {
        net.run_until(Time::from_millis(ms));
        net.drain_tap(there, &mut out)?;
    }
    Ok(())
}
