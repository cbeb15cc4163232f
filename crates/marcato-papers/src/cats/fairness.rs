//! A parking lot: tests that the Conductor does not change its connection's share. CATS §IV leaves
//! the question open.

use marcato_queue::{DropTail, DropTailConfig, Limit};
use marcato_report::chart::{Axis, BarChart, Bars};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::{Config, Debt};
use marcato_sim::{App, Bulk, Congestion, LinkConfig, Network, Planned, Side, Sink, Tcp, TcpFlow};
use marcato_units::{Bytes, Duration, Layer, Priority, Seed, Time};

use super::path::{Feeding, Path};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

const HOPS: usize = 3;
const WARM: Time = Time::from_secs(30);

/// Sender of the long flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    Plain,
    Conducted(Feeding),
}

const SENDERS: [(&str, &str, Sender); 3] = [
    ("fifo", "FIFO", Sender::Plain),
    ("lean", "CATS, lean", Sender::Conducted(Feeding::Lean)),
    ("greedy", "CATS, greedy", Sender::Conducted(Feeding::Greedy)),
];

/// Goodputs in Mbit/s after the warm-up.
#[derive(Clone, Copy, Debug, Default)]
struct Goodput {
    long: f64,
    cross: [f64; HOPS],
}

impl Goodput {
    fn mean_cross(&self) -> f64 {
        self.cross.iter().sum::<f64>() / HOPS as f64
    }

    /// Jain's index: (sum x)^2 / (n sum x^2).
    fn jain(&self) -> f64 {
        let all = || self.cross.into_iter().chain([self.long]);
        all().sum::<f64>().powi(2) / ((HOPS + 1) as f64 * all().map(|x| x * x).sum::<f64>())
    }

    fn run(sender: Sender, congestion: Congestion, until: Time, seed: u64) -> Result<Self, SimulationError> {
        let path = Path::authors().with_tcp(|tcp| {
            tcp.congestion = congestion;
            // The buffers limit no window.
            (tcp.send_buffer, tcp.receive_buffer) = (Bytes::kb(1_000), Bytes::kb(1_000));
        });
        let mut net = Network::new(Seed::new(seed));
        let access = || LinkConfig::new(path.access, path.access_delay).framing(path.framing);
        let routers: Vec<_> = (0..=HOPS).map(|k| net.node(&format!("router{k}"))).collect();
        for pair in routers.windows(2) {
            let link = || {
                let queue = DropTail::new(DropTailConfig { limit: Limit::Packets(50) })?;
                let link = LinkConfig::new(path.bottleneck, Duration::from_millis(15));
                Ok::<_, SimulationError>(link.framing(path.framing).queue(queue))
            };
            net.link(pair[0], pair[1], link()?, link()?);
        }
        let mut ends = |name: &str, from: usize, to: usize| {
            let (client, server) = (net.node(&format!("{name}>")), net.node(&format!(">{name}")));
            net.link(client, routers[from], access(), access());
            net.link(routers[to], server, access(), access());
            (client, server)
        };
        let mut hosts = vec![ends("long", 0, HOPS)];
        hosts.extend((0..HOPS).map(|k| ends(&format!("cross{k}"), k, k + 1)));

        let mut starts = Seed::new(seed).stream("cats/fairness");
        let mut flows = Vec::new();
        for (index, (client, server)) in hosts.into_iter().enumerate() {
            let long = index == 0;
            let (client_app, client_config): (Box<dyn App>, Tcp) = match sender {
                Sender::Conducted(feeding) if long => {
                    // More of each level than the bottleneck carries during the run.
                    let plan =
                        Priority::ALL.map(|priority| Planned::now(Bytes::kb(40_000), priority)).to_vec();
                    let config = Config {
                        chunk: path.chunk(),
                        max_queued: Bytes::kb(200_000),
                        ..Config::with_debt(Debt::authors())
                    };
                    (Box::new(path.conducted(config, feeding, plan)?), path.tcp_for(feeding))
                }
                Sender::Conducted(_) | Sender::Plain => (Box::new(Bulk::endless()), path.tcp.clone()),
            };
            flows.push(net.tcp(TcpFlow {
                client,
                server,
                start: Time::from_millis(starts.below(1_000)),
                client_config: client_config.into(),
                server_config: path.tcp.clone().into(),
                client_app,
                server_app: Box::new(Sink),
                layer: Layer::High,
            })?);
        }
        let received = |net: &Network| -> Vec<Bytes> {
            flows.iter().map(|&flow| net.reception(flow, Side::Server).bytes).collect()
        };
        net.run_until(WARM);
        let warm = received(&net);
        net.run_until(until);
        let span = until.since(WARM).as_secs_f64();
        let mut rates = received(&net)
            .into_iter()
            .zip(warm)
            .map(|(end, warm)| (end - warm).get() as f64 * 8.0 / span / 1e6);
        let long = rates.next().unwrap_or(f64::NAN);
        Ok(Self { long, cross: std::array::from_fn(|_| rates.next().unwrap_or(f64::NAN)) })
    }
}

/// Goodputs on the parking lot with a long flow that is plain, lean or greedy.
pub(super) fn fairness(seed: u64, quick: bool) -> Result<Answer, SimulationError> {
    let until = Time::from_secs(if quick { 60 } else { 120 });
    let mut rows = Vec::new();
    let mut bars = SENDERS.map(|_| Vec::new());
    for (cc, control, congestion) in [("reno", "Reno", Congestion::Reno), ("bbr", "BBR", Congestion::Bbr)] {
        let mut plain = None;
        for ((id, name, sender), values) in SENDERS.into_iter().zip(&mut bars) {
            let goodput = Goodput::run(sender, congestion.clone(), until, seed)?;
            let plain = *plain.get_or_insert(goodput);
            for (metric, what, value, before) in [
                ("long", "goodput of the long flow", goodput.long, plain.long),
                ("cross", "mean goodput of the cross flows", goodput.mean_cross(), plain.mean_cross()),
            ] {
                let row = |suffix: &str, what: String, unit| {
                    Row::new(format!("cats.fairness.{cc}.{id}.{metric}{suffix}"), what, unit)
                };
                rows.push(
                    row("", format!("{what}, the long one {name}, all {control}"), Unit::MbitPerS)
                        .measured(value),
                );
                if sender != Sender::Plain {
                    rows.push(
                        row(".ratio", format!("{what}, {name} over FIFO, all {control}"), Unit::Ratio)
                            .measured(value / before)
                            .within(0.95, 1.05),
                    );
                }
                values.push(value);
            }
            rows.push(
                Row::new(
                    format!("cats.fairness.{cc}.{id}.jain"),
                    format!("Jain's index of the four flows, the long one {name}, all {control}"),
                    Unit::Ratio,
                )
                .measured(goodput.jain()),
            );
        }
    }
    let mut answer = Answer::new(
        "Inter-flow fairness on a parking lot",
        prose::text(&format!(include_str!("fairness.md"), end = until.as_secs_f64())),
        rows,
    );
    let chart = BarChart::new("Goodput on a parking lot", Axis::new("goodput", "Mbit/s")).groups([
        "Reno, long",
        "Reno, cross",
        "BBR, long",
        "BBR, cross",
    ]);
    let chart = SENDERS
        .into_iter()
        .zip(bars)
        .fold(chart, |chart, ((_, name, _), values)| chart.bars(Bars::new(name, values)));
    answer.section = answer.section.figure(Figure::new(
        "fairness",
        chart,
        "The long flow, and the mean of the cross flows, by sender of the long flow.",
    ));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_for_equals_and_a_quarter_for_one_of_four() {
        assert_eq!(Goodput { long: 0.5, cross: [0.5; HOPS] }.jain(), 1.0);
        assert_eq!(Goodput { long: 2.0, cross: [0.0; HOPS] }.jain(), 0.25);
    }

    #[test]
    fn a_long_flow_that_sends_less_shows() {
        // Checks that the ratio can differ from 1: the same flow under another congestion control.
        let [reno, bbr] = [Congestion::Reno, Congestion::Bbr]
            .map(|control| Goodput::run(Sender::Plain, control, Time::from_secs(60), 1).unwrap());
        assert!(reno.long < 0.95 * bbr.long && reno.mean_cross() > 1.05 * bbr.mean_cross());
    }
}
