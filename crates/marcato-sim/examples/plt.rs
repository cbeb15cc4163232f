//! One PLT flow, and one of plain TCP, alone at a bottleneck of 250 Mbit/s and 80 ms (PLT §4.2):
//! goodput without the first sixth of the run, and CPU time.
//!
//! `cargo run --release -p marcato-sim --example plt -- 1200` prints a table in Markdown for 1200
//! simulated seconds. A second argument, such as `0.001`, selects one loss.

use marcato_queue::{DropTailConfig, Limit, Strict, StrictConfig};
use marcato_sched::lowprio::LcmConfig;
use marcato_sim::{
    Bulk, DelayedAck, LinkConfig, Loss, LossDetection, Network, PltConfig, PltStats, Side, TcpConfig, TcpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use rustix::time::{ClockId, clock_gettime};

/// Results of one run.
struct Outcome {
    goodput: f64,
    cpu: Duration,
    stats: PltStats,
    events: u64,
}

fn run(
    seconds: u64,
    loss: f64,
    buffer: u64,
    plt: Option<PltConfig>,
) -> Result<Outcome, Box<dyn std::error::Error>> {
    let begun = cpu();
    let mut net = Network::new(Seed::new(1));
    let (client, server) = (net.node("client"), net.node("server"));
    let class = || DropTailConfig { limit: Limit::Packets(buffer) };
    let queue = || Strict::new(StrictConfig { high: class(), low: class() });
    let link = |loss| {
        Ok::<_, Box<dyn std::error::Error>>(
            LinkConfig::new(Rate::from_mbps(250), Duration::from_millis(40)).queue(queue()?).loss(loss),
        )
    };
    let lossy = if loss > 0.0 { Loss::Random(loss) } else { Loss::None };
    net.link(client, server, link(lossy)?, link(Loss::None)?);
    // 960 bytes of payload are 1000 on the wire. The receiver window is 3 BW RTT in packets.
    let config = TcpConfig {
        mss: 960,
        timestamps: false,
        initial_window: 2,
        // Losses of the low module wait in the send buffer, here without bound.
        send_buffer: Bytes::new(1 << 40),
        receive_buffer: Bytes::new(7500 * 960),
        delayed_ack: DelayedAck::NONE,
        loss_detection: LossDetection::DupThresh,
        plt,
        ..TcpConfig::default()
    };
    let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()))?;
    let received = |net: &Network| match net.plt_stats(flow, Side::Server) {
        Some(stats) => stats.received.get() / 960,
        None => net.reception(flow, Side::Server).bytes.get() / 960,
    };
    let warm_up = seconds / 6;
    net.run_until(Time::from_secs(warm_up));
    let before = received(&net);
    if std::env::var_os("TRACE").is_some() {
        let mut last = before;
        for second in warm_up + 1..=seconds {
            net.run_until(Time::from_secs(second));
            let (low, high) = (net.plt_stats(flow, Side::Client), net.tcp_stats(flow, Side::Client));
            let now = received(&net);
            if let (Some(low), Some(high)) = (low, high) {
                println!(
                    "{second} goodput {:.1} high cwnd {} low window {} P {:.4} waiting {} srtt {:?} timeouts {} repairs {}",
                    (now - last) as f64 * 8e-3,
                    high.cwnd.get() / 960,
                    low.low_window.get() / 1000,
                    low.loss_rate.as_f64(),
                    low.repairs_waiting.get() / 960,
                    low.low_srtt,
                    low.low_timeouts,
                    low.repairs,
                );
            }
            last = now;
        }
    }
    net.run_until(Time::from_secs(seconds));
    let goodput = (received(&net) - before) as f64 * 8000.0 / (seconds - warm_up) as f64 / 1e6;
    let mut stats = net.plt_stats(flow, Side::Client).unwrap_or_default();
    if let Some(PltStats { duplicates, most_ranges, .. }) = net.plt_stats(flow, Side::Server) {
        stats.duplicates = duplicates;
        stats.most_ranges = most_ranges;
    }
    Ok(Outcome { goodput, cpu: cpu().saturating_sub(begun), stats, events: net.events() })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let seconds: u64 = arguments.next().map_or(Ok(120), |seconds| seconds.parse())?;
    let only: Option<f64> = arguments.next().map(|loss| loss.parse()).transpose()?;
    println!(
        "| loss | buffer | flow | Mbit/s | low sent | lost | repairs | waiting | duplicates | CPU s | events |"
    );
    println!("|---|---|---|---|---|---|---|---|---|---|---|");
    for loss in [0.0, 1e-4, 1e-3, 5e-3].into_iter().filter(|&loss| only.is_none_or(|only| only == loss)) {
        for (buffer, name) in [(2500, "BDP"), (250, "10 %")] {
            let literal =
                PltConfig { reassembly: Some(Bytes::new(7500 * 960)), ..PltConfig::new(LcmConfig::paper()) };
            let flows = [
                ("Reno", None),
                ("PLT", Some(PltConfig::new(LcmConfig::paper()))),
                ("PLT, literal", Some(literal)),
            ];
            for (flow, plt) in flows {
                let Outcome { goodput, cpu, stats, events } = run(seconds, loss, buffer, plt)?;
                println!(
                    "| {loss} | {name} | {flow} | {goodput:.1} | {} | {} | {} | {} | {} | {:.1} | {events} |",
                    stats.low_sent,
                    stats.low_lost,
                    stats.repairs,
                    stats.repairs_waiting.get() / 960,
                    stats.duplicates.get() / 960,
                    cpu.as_secs_f64(),
                );
            }
        }
    }
    Ok(())
}

/// CPU time of this process.
fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
