//! PLT under CATS: the page of CATS Table I over two layers. No paper combines them.

use marcato_queue::{DropTailConfig, Strict, StrictConfig};
use marcato_report::{Row, Unit};
use marcato_sched::{Conductor, Config, Debt, Feeder, LcmConfig};
use marcato_sim::{
    Collector, Conducted, Congestion, LinkConfig, Network, Planned, PltConfig, Side, Tag, Tcp, TcpEnd,
    TcpFlow,
};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Time};
use serde::{Deserialize, Serialize};

use super::scale::Plan;
use super::world::random;
use crate::answer::Answer;
use crate::cats::page;
use crate::cats::path::authors_tcp;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::{Runs, Setup, Ticket, kept_as_json};
use crate::prose;

/// Lower bound of the first contentful paint from `connect`, in ms: the first byte, then P0 and P1
/// at the bottleneck's rate.
const FCP_LIMIT: f64 = 322.0;
/// Lower bound of the page load from `connect`, in ms: the first byte, then everything at that
/// rate.
const PAGE_LIMIT: f64 = 1380.0;

/// A page load over the path of CATS §III-A, as its authors ran it.
#[derive(Clone, Debug)]
struct Page {
    congestion: Congestion,
    /// Low layer, if there is one.
    low: Option<Low>,
    /// Share of packets that the bottleneck loses.
    loss: f64,
    /// Index of the run among those derived from a seed.
    part: u64,
}

/// A low layer.
#[derive(Clone, Copy, Debug)]
struct Low {
    initial_window: Bytes,
    /// True if P2 to P4 may only be sent low.
    parted: bool,
}

/// Completion times in ms since `connect`.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Load {
    /// Completion of the later of P0 and P1.
    fcp: f64,
    page: f64,
    /// Share of the page that arrived low, in %.
    low: f64,
}

/// Payload of a segment.
const MSS: u32 = 1000;

impl Page {
    fn tcp(&self) -> TcpEnd {
        let plt = self.low.map(|Low { initial_window, parted }| {
            // Packets on the wire: 1000 bytes, 40 of headers, timestamps. The path's
            // bandwidth-delay product is 30 kB; the window may grow to the buffers of both ends.
            let packet = Bytes::from(MSS + 52);
            let max_window = Bytes::new(1 << 20);
            let lcm = LcmConfig { initial_window, packet, max_window, ..LcmConfig::paper() };
            PltConfig { high_for: parted.then_some(Priority::P1), ..PltConfig::new(lcm) }
        });
        let tcp = Tcp {
            // The lean feeder keeps about one chunk unsent.
            notsent_lowat: Some(Bytes::from(MSS)),
            congestion: self.congestion.clone(),
            ..authors_tcp()
        };
        TcpEnd { plt, ..tcp.into() }
    }
}

impl Setup for Page {
    type Outcome = Load;

    kept_as_json!();

    fn cost(&self) -> u64 {
        1
    }

    fn run(&self, seed: u64) -> Result<Load, SimulationError> {
        // Fewer than 1000 parts per seed, so that parts of two seeds never coincide.
        let mut net = Network::new(Seed::new(seed.wrapping_mul(1000).wrapping_add(self.part)));
        let [sender, left, right, receiver] =
            ["sender", "left", "right", "receiver"].map(|name| net.node(name));
        let link = |rate, delay, loss| {
            let class = DropTailConfig::default();
            let link = LinkConfig::new(Rate::from_mbps(rate), Duration::from_millis(delay));
            let queue = Strict::new(StrictConfig { high: class, low: class })?;
            Ok::<_, SimulationError>(link.framing(Bytes::new(2)).queue(queue).loss(random(loss)))
        };
        net.link(sender, left, link(10, 5, 0.0)?, link(10, 5, 0.0)?);
        net.link(left, right, link(2, 50, self.loss)?, link(2, 50, 0.0)?);
        net.link(right, receiver, link(10, 5, 0.0)?, link(10, 5, 0.0)?);
        let plan: Vec<Planned> = page::ORDER
            .into_iter()
            .map(|priority| Planned::now(page::GROUPS[priority.index()], priority))
            .collect();
        let chunk = Bytes::from(MSS);
        let conductor = Conductor::new(Config { chunk, ..Config::with_debt(Debt::authors()) })?;
        let flow = net.tcp(TcpFlow {
            client: sender,
            server: receiver,
            start: Time::ZERO,
            client_config: self.tcp(),
            server_config: self.tcp(),
            client_app: Box::new(Conducted::new(conductor, Feeder::lean(chunk), plan)),
            server_app: Box::new(Collector::default()),
            layer: Layer::High,
        })?;
        net.run_until(Time::from_secs(60));
        let collector: &Collector =
            net.app(flow, Side::Server).ok_or(SimulationError::Missing("receiver"))?;
        let mut load = Load::default();
        for (place, priority) in (0u64..).zip(page::ORDER) {
            let at = collector.complete(Tag(place), page::GROUPS[priority.index()]);
            let at = at.map_or(f64::INFINITY, Time::as_millis_f64);
            load.page = load.page.max(at);
            if priority <= Priority::P1 {
                load.fcp = load.fcp.max(at);
            }
        }
        let total: u64 = page::GROUPS.iter().map(|group| group.get()).sum();
        let low = net.plt_stats(flow, Side::Server).map_or(0, |stats| stats.received_low.get());
        load.low = 100.0 * low as f64 / total as f64;
        Ok(load)
    }
}

/// A congestion controller with and without a low layer.
struct Case {
    /// Suffix of its rows.
    suffix: String,
    name: String,
    /// Runs without and with a low layer.
    tickets: [Vec<Ticket<Page>>; 2],
    claimed: bool,
}

impl Case {
    fn plan(
        plan: &mut Plan,
        (control, congestion): (&str, Congestion),
        window: u64,
        parted: bool,
        loss: f64,
    ) -> Self {
        let parts = if loss > 0.0 { 20 } else { 1 };
        let mut add = |low| {
            (0..parts)
                .map(|part| plan.add(Page { congestion: congestion.clone(), low, loss, part }))
                .collect()
        };
        let claimed = control == "bbr" && window == BDP_KB && loss == 0.0 && parted;
        let mut suffix = String::new();
        if control != "bbr" {
            suffix += &format!(".{control}");
        }
        if window != BDP_KB {
            suffix += &format!(".iw{window}");
        }
        if !parted {
            suffix += ".any";
        }
        if loss > 0.0 {
            suffix += ".loss";
        }
        let who = if parted { "P2 to P4 low only" } else { "the high layer takes any priority" };
        let name = format!("{control}, LCM initial window {window} kB, {who}, loss {} %", 100.0 * loss);
        let low = Low { initial_window: Bytes::kb(window), parted };
        Self { suffix, name, tickets: [add(None), add(Some(low))], claimed }
    }

    fn rows(&self, runs: &Runs) -> Vec<Row> {
        let Self { suffix, name, tickets, claimed } = self;
        let each = |which: usize, value: fn(&Load) -> f64| -> Vec<f64> {
            tickets[which].iter().flat_map(|&ticket| runs.each(ticket, value)).collect()
        };
        let mut rows = Vec::new();
        let metrics: [Metric; 2] = [
            ("fcp", "first contentful paint", FCP_LIMIT, 1.15, |load| load.fcp),
            ("page", "page load", PAGE_LIMIT, 1.05, |load| load.page),
        ];
        for (metric, text, limit, most, value) in metrics {
            for (which, (who, arm)) in
                [("cats", "CATS alone"), ("plt", "CATS over two layers")].into_iter().enumerate()
            {
                rows.push(
                    Row::new(
                        format!("plt.joint.{metric}.{who}{suffix}"),
                        format!("{text} from connect, {arm}, {name}"),
                        Unit::Ms,
                    )
                    .samples(&each(which, value)),
                );
            }
            let ratios: Vec<f64> = each(1, value).into_iter().map(|ms| ms / limit).collect();
            let ratio = Row::new(
                format!("plt.joint.{metric}.ratio{suffix}"),
                format!("{text} over two layers, over the limit of the path, {limit:.0} ms, {name}"),
                Unit::Ratio,
            )
            .samples(&ratios);
            rows.push(if *claimed { ratio.at_most(most) } else { ratio });
        }
        rows.push(
            Row::new(
                format!("plt.joint.low{suffix}"),
                format!("of the page came low, {name}"),
                Unit::Percent,
            )
            .samples(&each(1, |load| load.low)),
        );
        rows
    }
}

/// A metric: its name in rows and in words, the lower bound of the path in ms, the claimed factor
/// above it, and its value.
type Metric = (&'static str, &'static str, f64, f64, fn(&Load) -> f64);

/// Bandwidth-delay product of the path in kB: the paper's initial window is "high enough to fill
/// the pipe".
const BDP_KB: u64 = 30;

/// The page over two layers.
pub(super) fn joint(plan: &mut Plan) -> Ask {
    let (bbr, reno) = (("bbr", Congestion::Bbr), ("reno", Congestion::Reno));
    let cases = [
        Case::plan(plan, bbr.clone(), BDP_KB, true, 0.0),
        Case::plan(plan, bbr.clone(), 100, true, 0.0),
        Case::plan(plan, bbr.clone(), 300, true, 0.0),
        Case::plan(plan, reno.clone(), BDP_KB, true, 0.0),
        Case::plan(plan, bbr.clone(), BDP_KB, false, 0.0),
        Case::plan(plan, bbr, BDP_KB, true, 0.01),
        Case::plan(plan, reno, BDP_KB, true, 0.01),
    ];
    Box::new(move |runs| {
        let rows = cases.iter().flat_map(|case| case.rows(runs)).collect();
        Answer::new("The page of CATS over two layers", prose::text(include_str!("joint.md")), rows)
    })
}
