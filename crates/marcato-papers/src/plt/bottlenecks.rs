//! Fig. 10: nine flows over two bottlenecks, the second of which also carries UDP.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{
    Arrivals, Bulk, Congestion, Distribution, LinkConfig, Network, PltConfig, Side, TcpFlow, UdpFlow,
};
use marcato_units::{Bytes, Duration, Rate, Seed, Time};
use serde::{Deserialize, Serialize};

use super::published::{
    APART, BOTTLENECK_FLOWS, GAIN, GAIN_AT, LARGE_BUFFER, PACKET, RATE, REPAIRS, RTT, SMALL_BUFFER,
    UDP_RATES, UTILISATION,
};
use super::scale::{Plan, Span};
use super::world::{self, bottleneck, plt};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// Pattern of the UDP traffic on the second bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Udp {
    Constant,
    /// One second on, one second off. The rate applies to the seconds in which it is on.
    OnOff,
    /// Ten seconds on, ten off.
    Slow,
}

impl Udp {
    fn arrivals(self) -> Arrivals {
        let on_off = |secs| {
            let span = Distribution::constant(Duration::from_secs(secs));
            Arrivals::OnOff { on: span, off: span }
        };
        match self {
            Self::Constant => Arrivals::Constant,
            Self::OnOff => on_off(1),
            Self::Slow => on_off(10),
        }
    }

    const fn suffix(self) -> &'static str {
        match self {
            Self::Constant => "",
            Self::OnOff => ".onoff",
            Self::Slow => ".slow",
        }
    }
}

/// Network of the paper's Fig. 2.
#[derive(Clone, Debug)]
struct Bottlenecks {
    /// Rate of UDP in Mbit/s.
    udp: u64,
    kind: Udp,
    buffer: u64,
    plt: Option<PltConfig>,
    /// Time between the starts of two flows.
    apart: Duration,
    span: Span,
}

/// Rates at which UDP is also on and off more slowly, in Mbit/s.
const SLOW_RATES: [u64; 2] = [75, 100];

/// Outcome of a run, for both links.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Used {
    /// Share of each link that was used in the last part of the run, in %.
    last: [f64; 2],
    /// Share of each link that was used in the whole run, in %.
    all: [f64; 2],
    /// Repairs by the HCMs for the LCMs in the last part, in % of what a bottleneck could carry.
    repairs: f64,
    /// Distinct packets of all flows that arrived in the last part, in Mbit/s.
    goodput: f64,
}

impl Setup for Bottlenecks {
    type Outcome = Used;

    kept_as_json!();

    fn cost(&self) -> u64 {
        self.span.whole() * 2
    }

    fn run(&self, seed: u64) -> Result<Used, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let [left, middle, right] = ["left", "middle", "right"].map(|name| net.node(name));
        // A round trip takes 80 ms over one bottleneck and 120 ms over both: each bottleneck takes
        // 40 ms, and the access links 40 ms. Links without a queue only add delay. So the ends are
        // at the routers, and acknowledgements take the rest of the round trip in one step, also
        // past both bottlenecks. This needs far fewer events than separate hosts and links.
        let own = RTT / 4;
        let back = LinkConfig::delay_only;
        let (first, _) = net.link(left, middle, bottleneck(own, self.buffer, 0.0)?, back(RTT - own));
        let (second, _) = net.link(middle, right, bottleneck(own, self.buffer, 0.0)?, back(RTT - own));
        net.one_way(right, left, back(RTT * 3 / 2 - own * 2));
        let mut flows = Vec::with_capacity(BOTTLENECK_FLOWS);
        for number in 0..BOTTLENECK_FLOWS {
            let (client, server) = match number / 3 {
                0 => (left, middle),
                1 => (middle, right),
                _ => (left, right),
            };
            let start = Time::ZERO + self.apart * u32::try_from(number).unwrap_or(0);
            let config = world::tcp(self.plt, Congestion::Reno);
            flows.push(net.tcp(TcpFlow::new(client, server, config, Bulk::endless()).start(start))?);
        }
        if self.udp > 0 {
            let payload = Bytes::from(PACKET - 28);
            let udp = UdpFlow::new(middle, right, Rate::from_mbps(self.udp), payload);
            let arrivals = self.kind.arrivals();
            net.udp(UdpFlow { arrivals, ..udp })?;
        }
        let links = [first, second];
        let carried = |net: &Network| links.map(|link| net.link_counters(link).carried_bytes.get() as f64);
        let repairs = |net: &Network| {
            let of = |flow: &_| net.plt_stats(*flow, Side::Client).map_or(0, |stats| stats.repairs);
            flows.iter().map(of).sum::<u64>()
        };
        let arrived = |net: &Network| flows.iter().map(|&flow| world::received(net, flow)).sum::<u64>();
        net.run_until(self.span.from());
        let (before, repaired, received) = (carried(&net), repairs(&net), arrived(&net));
        net.run_until(self.span.until());
        let after = carried(&net);
        let could = |span: Duration| RATE.bytes_in(span).get() as f64;
        let (last, all) = (could(self.span.length), could(self.span.warm_up + self.span.length));
        Ok(Used {
            last: [0, 1].map(|link| 100.0 * (after[link] - before[link]) / last),
            all: after.map(|carried| 100.0 * carried / all),
            repairs: 100.0 * (repairs(&net) - repaired) as f64 * f64::from(PACKET) / last,
            goodput: world::goodput(arrived(&net) - received, self.span.length),
        })
    }
}

/// One kind of UDP and one buffer.
struct Combination {
    kind: Udp,
    buffer: u64,
    /// For each rate of UDP, the runs of TCP and PLT.
    cells: Vec<(u64, [Ticket<Bottlenecks>; 2])>,
}

impl Combination {
    fn plan(plan: &mut Plan, kind: Udp, buffer: u64) -> Self {
        let (span, apart) = (plan.scale.bottlenecks, APART / plan.scale.apart_divisor);
        let cells = UDP_RATES.map(|udp| {
            // Without UDP both patterns are the same run.
            let kind = if udp == 0 { Udp::Constant } else { kind };
            let run = |plt| Bottlenecks { udp, kind, buffer, plt, apart, span };
            (udp, [None, Some(plt())].map(|plt| plan.add(run(plt))))
        });
        Self { kind, buffer, cells: cells.to_vec() }
    }

    fn is_first(&self) -> bool {
        (self.kind, self.buffer) == (Udp::Constant, SMALL_BUFFER)
    }

    /// Suffix of the rows: empty, or the difference from constant UDP and the small buffer.
    fn suffix(&self) -> String {
        let buffer = if self.buffer == LARGE_BUFFER { ".large" } else { "" };
        format!("{}{buffer}", self.kind.suffix())
    }

    fn name(&self) -> String {
        let kind = if self.kind == Udp::Constant { "constant" } else { "on-off" };
        format!("{kind} UDP, buffers of {} packets", self.buffer)
    }

    fn rows(&self, runs: &Runs, claims: bool, span: Span) -> Vec<Row> {
        let (suffix, name, late) = (self.suffix(), self.name(), last(span));
        let mut rows = Vec::new();
        for &(udp, [tcp, plt]) in &self.cells {
            for link in [0, 1] {
                for (who, protocol, ticket) in [("tcp", "TCP", tcp), ("plt", "PLT", plt)] {
                    let id = format!("plt.fig10.{udp}.link{}.{who}{suffix}", link + 1);
                    let what = format!("link {} used, {protocol}, {udp} Mbit/s of {name}", link + 1);
                    let last = Row::new(&id, format!("{what}, {late}"), Unit::Percent)
                        .samples(&runs.each(ticket, |used| used.last[link]));
                    let claimed = claims && who == "plt" && self.kind == Udp::Constant;
                    rows.push(if claimed { last.at_least(100.0 * UTILISATION) } else { last });
                    rows.push(
                        Row::new(format!("{id}.all"), format!("{what}, whole run"), Unit::Percent)
                            .samples(&runs.each(ticket, |used| used.all[link])),
                    );
                }
            }
            let repairs = format!("repairs by the HCM for the LCM, of a bottleneck, {udp} Mbit/s of {name}");
            rows.push(
                Row::new(format!("plt.fig10.{udp}.repairs{suffix}"), repairs, Unit::Percent)
                    .samples(&runs.each(plt, |used| used.repairs)),
            );
            if udp == GAIN_AT {
                for link in [0, 1] {
                    for (part, words, of) in parts(span) {
                        let gains = gains(runs, [tcp, plt], |used| of(used)[link]);
                        rows.push(
                            Row::new(
                                format!("plt.fig10.gain.link{}{suffix}{part}", link + 1),
                                format!(
                                    "gain of PLT over TCP in use of link {}, {udp} Mbit/s of {name}, {words}",
                                    link + 1
                                ),
                                Unit::Percent,
                            )
                            .paper(GAIN)
                            .samples(&gains)
                            .unclaimed_because(WHOSE_GAIN),
                        );
                    }
                }
            }
        }
        rows
    }
}

/// Reason for claiming nothing about PLT's gain.
const WHOSE_GAIN: &str = "the paper does not say to which link, kind of UDP, buffer and part of the run \
    its gain belongs, so all of them are shown";

/// The checked part of a run, in words.
fn last(span: Span) -> String {
    format!("last {} s", span.length.as_secs_f64())
}

type Part = (&'static str, String, fn(&Used) -> [f64; 2]);

fn parts(span: Span) -> [Part; 2] {
    [("", last(span), |used| used.last), (".all", "whole run".to_owned(), |used| used.all)]
}

fn text(span: Span, apart: Duration) -> String {
    let (length, whole, apart) = (span.length.as_secs_f64(), span.whole(), apart.as_secs_f64());
    prose::text(&format!(
        include_str!("bottlenecks.md"),
        apart = apart,
        length = length,
        whole = whole,
        first = 3.0 * apart,
    ))
}

/// Fig. 10: utilisation of two bottlenecks, for each pattern of UDP and each buffer.
pub(super) fn bottlenecks(plan: &mut Plan) -> Ask {
    let claims = plan.scale.claims;
    let mut combinations = Vec::new();
    for kind in [Udp::Constant, Udp::OnOff] {
        for buffer in [SMALL_BUFFER, LARGE_BUFFER] {
            combinations.push(Combination::plan(plan, kind, buffer));
        }
    }
    let (span, apart) = (plan.scale.bottlenecks, APART / plan.scale.apart_divisor);
    let slow = SLOW_RATES.map(|udp| {
        let (kind, buffer, plt) = (Udp::Slow, SMALL_BUFFER, Some(plt()));
        (udp, plan.add(Bottlenecks { udp, kind, buffer, plt, apart, span }))
    });
    Box::new(move |runs| {
        let mut rows: Vec<Row> = combinations.iter().flat_map(|it| it.rows(runs, claims, span)).collect();
        for (kind, words) in [(Udp::Constant, "constant"), (Udp::OnOff, "on-off")] {
            let repairs = Row::new(
                format!("plt.retx_share{}", kind.suffix()),
                format!("repairs by the HCM for the LCM, of a bottleneck, in the worst combination with {words} UDP"),
                Unit::Percent,
            )
            .measured(worst_repairs(runs, combinations.iter().filter(|it| it.kind == kind)));
            let claimed = claims && kind == Udp::Constant;
            rows.push(if claimed { repairs.at_most(100.0 * REPAIRS) } else { repairs });
        }
        for &(udp, ticket) in &slow {
            for link in [0, 1] {
                rows.push(
                    Row::new(
                        format!("plt.fig10.{udp}.link{}.plt.slow", link + 1),
                        format!(
                            "link {} used, PLT, {udp} Mbit/s of UDP for 10 s of 20, small buffers, {}",
                            link + 1,
                            last(span)
                        ),
                        Unit::Percent,
                    )
                    .samples(&runs.each(ticket, |used| used.last[link])),
                );
            }
        }
        for &(udp, [tcp, plt]) in combinations.iter().filter(|it| it.is_first()).flat_map(|it| &it.cells) {
            for (who, protocol, ticket) in [("tcp", "TCP", tcp), ("plt", "PLT", plt)] {
                rows.push(
                    Row::new(
                        format!("plt.fig10.{udp}.goodput.{who}"),
                        format!("goodput of all nine flows, {protocol}, {udp} Mbit/s of constant UDP, small buffers"),
                        Unit::MbitPerS,
                    )
                    .samples(&runs.each(ticket, |used| used.goodput)),
                );
            }
        }
        let text = format!("{} {}", text(span, apart), who_gains(runs, &combinations, span));
        let mut answer = Answer::new("Fig. 10: two bottlenecks", text, rows);
        for combination in &combinations {
            answer.section = answer.section.figure(figure(runs, combination, span));
        }
        answer
    })
}

/// Additional use of a link with low layers, in % of the link, for each seed.
fn gains(runs: &Runs, [tcp, plt]: [Ticket<Bottlenecks>; 2], of: impl Fn(&Used) -> f64) -> Vec<f64> {
    runs.of(plt).into_iter().zip(runs.of(tcp)).map(|(plt, tcp)| of(plt) - of(tcp)).collect()
}

/// Combinations that come nearest to the paper's gain, in words.
fn who_gains(runs: &Runs, combinations: &[Combination], span: Span) -> String {
    let mut shown: Vec<(f64, String)> = Vec::new();
    for it in combinations {
        let Some(&(_, tickets)) = it.cells.iter().find(|cell| cell.0 == GAIN_AT) else { continue };
        for link in [0, 1] {
            for (_, words, of) in parts(span) {
                let gain = marcato_report::Mean::of(&gains(runs, tickets, |used| of(used)[link])).value;
                shown.push((gain, format!("link {}, {}, {words}", link + 1, it.name())));
            }
        }
    }
    shown.sort_by(|a, b| (a.0 - GAIN).abs().total_cmp(&(b.0 - GAIN).abs()));
    let most = shown.iter().map(|it| it.0).fold(f64::NEG_INFINITY, f64::max);
    let nearest: Vec<String> =
        shown.iter().take(3).map(|(gain, what)| format!("{gain:.1} % ({what})")).collect();
    format!(
        "The combinations nearest to that gain show {}; the largest gain is {most:.1} %.",
        nearest.join("; ")
    )
}

fn worst_repairs<'a>(runs: &Runs, combinations: impl Iterator<Item = &'a Combination>) -> f64 {
    let cells = combinations.flat_map(|it| &it.cells);
    let each = cells.flat_map(|&(_, [_, plt])| runs.each(plt, |used| used.repairs));
    each.fold(0.0, f64::max)
}

fn figure(runs: &Runs, combination: &Combination, span: Span) -> Figure {
    let curve = |name: &str, which: usize, link: usize| {
        let point = |&(udp, tickets): &(u64, [Ticket<Bottlenecks>; 2])| {
            (udp as f64, runs.mean(tickets[which], |used| used.last[link]))
        };
        let interval = |&(_, tickets): &(u64, [Ticket<Bottlenecks>; 2])| {
            runs.ci95(tickets[which], |used| used.last[link])
        };
        Series::line(name, combination.cells.iter().map(point).collect::<Vec<_>>())
            .intervals(combination.cells.iter().map(interval).collect::<Vec<_>>())
            .marks()
    };
    let chart = LineChart::new(
        "Use of the bottlenecks",
        Axis::new("UDP", "Mbit/s"),
        Axis::new(format!("used in the {}", last(span)), "%").range(40.0, 100.0),
    )
    .series(curve("PLT, link 1", 1, 0))
    .series(curve("PLT, link 2", 1, 1))
    .series(curve("TCP, link 1", 0, 0))
    .series(curve("TCP, link 2", 0, 1));
    let id = format!("fig10{}", combination.suffix().replace('.', "-"));
    Figure::new(id, chart, format!("As Fig. 10: {}.", combination.name()))
}
