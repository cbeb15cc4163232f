//! Figs. 3 to 8: a single endless flow over one bottleneck with random loss.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::{Bulk, Congestion, LinkConfig, Network, PltConfig, Side, TcpFlow};
use marcato_units::{Duration, Seed, Time};
use serde::{Deserialize, Serialize};

use super::published::{
    LARGE_BUFFER, LOSSES, NEAR_PERFECT, NEAR_PERFECT_UP_TO, PACKET, RATE, RTT, SMALL_BUFFER,
    SMALL_BUFFER_PLT, SMALL_BUFFER_RENO, VERY_POOR, VERY_POOR_AT,
};
use super::scale::{Plan, Span};
use super::world::{self, PAYLOAD, bottleneck, goodput, literal, plt, received};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// A single flow.
#[derive(Clone, Debug)]
pub(super) struct Single {
    pub(super) loss: f64,
    /// Buffer of each class, in packets.
    pub(super) buffer: u64,
    pub(super) congestion: Congestion,
    /// Low layer, if the flow has one.
    pub(super) plt: Option<PltConfig>,
    pub(super) span: Span,
}

/// Outcome of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Flow {
    /// Distinct packets that arrived in the measured span, times 1000 bytes, in Mbit/s.
    pub(super) goodput: f64,
    /// One sample for each second of the whole run.
    pub(super) trace: Vec<Sample>,
    /// Packets that the HCM repaired for the LCM in the measured span, in % of what the link could
    /// carry.
    pub(super) repairs: f64,
}

/// State of a flow at one time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sample {
    /// Time in s.
    pub(super) at: f64,
    /// Windows, low packets in flight, and data that waits for repair, in packets.
    pub(super) high: f64,
    pub(super) low: f64,
    pub(super) low_in_flight: f64,
    pub(super) waiting: f64,
    /// Goodput since the previous sample, in Mbit/s.
    pub(super) goodput: f64,
}

impl Single {
    /// Flow as in the paper, with this loss and buffer.
    pub(super) const fn paper(loss: f64, buffer: u64, plt: Option<PltConfig>, span: Span) -> Self {
        Self { loss, buffer, congestion: Congestion::Reno, plt, span }
    }
}

impl Setup for Single {
    type Outcome = Flow;

    kept_as_json!();

    fn cost(&self) -> u64 {
        // TCP with loss carries next to nothing, so that its runs are cheap.
        if self.plt.is_none() && self.loss > 0.0 { 1 + self.span.whole() / 10 } else { self.span.whole() }
    }

    fn run(&self, seed: u64) -> Result<Flow, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let (client, server) = (net.node("client"), net.node("server"));
        let there = bottleneck(RTT / 2, self.buffer, self.loss)?;
        net.link(client, server, there, LinkConfig::delay_only(RTT / 2));
        let config = world::tcp(self.plt, self.congestion.clone());
        let flow = net.tcp(TcpFlow::new(client, server, config, Bulk::endless()))?;
        let sender = |net: &Network| net.plt_stats(flow, Side::Client).unwrap_or_default();

        let mut trace = Vec::new();
        let (mut last, mut begun, mut at) = (0, None, Time::ZERO);
        while at < self.span.until() {
            at += Duration::from_secs(1);
            net.run_until(at);
            let (now, low) = (received(&net, flow), sender(&net));
            let high = net.tcp_stats(flow, Side::Client).ok_or(SimulationError::Missing("window"))?;
            let packets = |bytes: u64| bytes as f64 / f64::from(PACKET);
            let segments = |bytes: u64| bytes as f64 / f64::from(PAYLOAD);
            trace.push(Sample {
                at: at.as_secs_f64(),
                high: segments(high.cwnd.get()),
                low: packets(low.low_window.get()),
                low_in_flight: packets(low.low_in_flight.get()),
                waiting: segments(low.repairs_waiting.get()),
                goodput: goodput(now - last, Duration::from_secs(1)),
            });
            last = now;
            if at >= self.span.from() {
                begun.get_or_insert((now, low));
            }
        }
        let (before, low) = begun.ok_or(SimulationError::Missing("measured span"))?;
        let end = sender(&net);
        let link = RATE.bytes_in(self.span.length).get() as f64;
        Ok(Flow {
            goodput: goodput(last - before, self.span.length),
            trace,
            repairs: 100.0 * (end.repairs - low.repairs) as f64 * f64::from(PACKET) / link,
        })
    }
}

/// Figure of a buffer: its name in row ids, its size, and the figures of windows that belong to it.
struct Buffer {
    figure: &'static str,
    packets: u64,
    name: &'static str,
    windows: [&'static str; 2],
}

const LARGE: Buffer =
    Buffer { figure: "fig3", packets: LARGE_BUFFER, name: "a large buffer", windows: ["fig4", "fig5"] };
const SMALL: Buffer =
    Buffer { figure: "fig6", packets: SMALL_BUFFER, name: "a small buffer", windows: ["fig7", "fig8"] };

/// Flows at one loss.
struct Cell {
    loss: f64,
    id: &'static str,
    tcp: Ticket<Single>,
    plt: Ticket<Single>,
    literal: Ticket<Single>,
}

/// Figs. 3, 4 and 5: the large buffer.
pub(super) fn large_buffer(plan: &mut Plan) -> Ask {
    ask(plan, &LARGE)
}

/// Figs. 6, 7 and 8: the small buffer.
pub(super) fn small_buffer(plan: &mut Plan) -> Ask {
    ask(plan, &SMALL)
}

fn ask(plan: &mut Plan, buffer: &'static Buffer) -> Ask {
    let (span, claims) = (plan.scale.long, plan.scale.claims);
    let cells = LOSSES.map(|(loss, id)| {
        let mut add = |plt| plan.add(Single::paper(loss, buffer.packets, plt, span));
        Cell { loss, id, tcp: add(None), plt: add(Some(plt())), literal: add(Some(literal())) }
    });
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for cell in &cells {
            rows.extend(goodputs(runs, buffer, cell, claims));
        }
        let mut answer = Answer::new(
            &format!("{}: goodput of a single flow with {}", title(buffer), buffer.name),
            text(span),
            rows,
        );
        for figure in figures(runs, buffer, &cells, span) {
            answer.section = answer.section.figure(figure);
        }
        answer
    })
}

fn title(buffer: &Buffer) -> String {
    let number = |id: &str| id.trim_start_matches("fig").to_owned();
    let [high, low] = buffer.windows.map(number);
    format!("Figs. {}, {high} and {low}", number(buffer.figure))
}

fn text(span: Span) -> String {
    let (length, whole) = (span.length.as_secs_f64(), span.whole());
    prose::text(&format!(include_str!("single.md"), length = length, whole = whole))
}

fn goodputs(runs: &Runs, buffer: &Buffer, cell: &Cell, claims: bool) -> Vec<Row> {
    let at = format!("plt.{}.{}", buffer.figure, cell.id);
    let link = world::link();
    let row = |who: &str, what: &str, ticket: Ticket<Single>| {
        let what = format!("goodput, {what}, loss {}, {}", cell.id, buffer.name);
        Row::new(format!("{at}.{who}"), what, Unit::MbitPerS).samples(&runs.each(ticket, |flow| flow.goodput))
    };
    let small_lossless = cell.loss == 0.0 && buffer.packets == SMALL_BUFFER;
    let mut tcp = row("tcp", "Reno", cell.tcp);
    let mut plt = row("plt", "PLT", cell.plt);
    if claims {
        let [least, most] = SMALL_BUFFER_RENO;
        if small_lossless {
            tcp = tcp.within(link * least, link * most);
            plt = plt.at_least(link * SMALL_BUFFER_PLT);
        } else if cell.loss <= NEAR_PERFECT_UP_TO {
            plt = plt.at_least(link * NEAR_PERFECT);
        }
        if cell.loss == VERY_POOR_AT {
            tcp = tcp.at_most(link * VERY_POOR);
        }
    }
    let why = Row::new(
        format!("{at}.literal.why"),
        format!("of the LCM's window in flight, literal reading, loss {}, {}", cell.id, buffer.name),
        Unit::Percent,
    )
    .samples(&runs.each(cell.literal, used));
    let repairs = Row::new(
        format!("{at}.repairs"),
        format!("repairs by the HCM for the LCM, of the link, loss {}, {}", cell.id, buffer.name),
        Unit::Percent,
    )
    .samples(&runs.each(cell.plt, |flow| flow.repairs));
    vec![tcp, plt, repairs, row("literal", "PLT with a reassembly buffer of 3·BW·RTT", cell.literal), why]
}

/// Mean share of the LCM's window that is in flight, in %.
fn used(flow: &Flow) -> f64 {
    let (window, in_flight) = flow
        .trace
        .iter()
        .fold((0.0, 0.0), |(window, used), it| (window + it.low, used + it.low_in_flight.min(it.low)));
    100.0 * in_flight / window
}

/// Place of zero loss on the logarithmic axis: its left edge.
const NO_LOSS: f64 = 1e-6;

fn figures(runs: &Runs, buffer: &Buffer, cells: &[Cell], span: Span) -> Vec<Figure> {
    let traces = |title, label, of, value| traces(runs, cells, span, (title, label), of, value);
    let curve = |name: &str, of: fn(&Cell) -> Ticket<Single>| {
        let point = |cell: &Cell| (100.0 * cell.loss.max(NO_LOSS), runs.mean(of(cell), |flow| flow.goodput));
        let interval = |cell: &Cell| runs.ci95(of(cell), |flow| flow.goodput);
        Series::line(name, cells.iter().map(point).collect::<Vec<_>>())
            .intervals(cells.iter().map(interval).collect::<Vec<_>>())
            .marks()
    };
    let chart = LineChart::new(
        format!("Goodput with {}", buffer.name),
        Axis::new("loss", "%").log(),
        Axis::new("goodput", "Mbit/s").range(0.0, world::link()),
    )
    .series(curve("PLT", |cell| cell.plt))
    .series(curve("Reno", |cell| cell.tcp))
    .series(curve("PLT, literal reading", |cell| cell.literal).dashed());
    let [high, low] = buffer.windows;
    let number = |id: &str| id.trim_start_matches("fig").to_owned();
    vec![
        Figure::new(
            buffer.figure,
            chart,
            format!("As Fig. {}. No loss is drawn at 0.0001 %.", number(buffer.figure)),
        ),
        Figure::new(
            high,
            traces("Window of the HCM", "window", |cell| cell.plt, |it| it.high),
            format!("As Fig. {}.", number(high)),
        ),
        Figure::new(
            low,
            traces("Window of the LCM", "window", |cell| cell.plt, |it| it.low),
            format!("As Fig. {}.", number(low)),
        ),
        Figure::new(
            format!("{}-literal", buffer.figure),
            traces(
                "Literal reading: low-layer data in flight",
                "in flight",
                |cell| cell.literal,
                |it| it.low_in_flight,
            ),
            "The literal reading misses the paper's statement because the low layer's data in flight \
             falls to zero whenever the reassembly buffer waits for a repair.",
        ),
    ]
}

/// Losses whose windows are drawn.
const DRAWN: [&str; 3] = ["0", "1e-4", "1e-3"];

fn traces(
    runs: &Runs,
    cells: &[Cell],
    span: Span,
    (title, label): (&str, &str),
    of: fn(&Cell) -> Ticket<Single>,
    value: fn(&Sample) -> f64,
) -> LineChart {
    let chart = LineChart::new(title, Axis::new("time", "s"), Axis::new(label, "packets"));
    let chart = chart.shade(0.0, span.warm_up.as_secs_f64(), "warm-up");
    let drawn = cells.iter().filter(|cell| DRAWN.contains(&cell.id));
    drawn.fold(chart, |chart, cell| {
        let trace = runs.first(of(cell)).map_or(&[][..], |flow| &flow.trace);
        chart.series(Series::line(format!("loss {}", cell.id), trace.iter().map(|it| (it.at, value(it)))))
    })
}
