//! Disturbance of existing PLT flows by the initial window of the LCM (PLT §5).

use marcato_report::{Row, Unit};
use marcato_sched::LcmConfig;
use marcato_sim::{
    Bulk, Congestion, Distribution, FlowArrivals, FlowProcess, LinkConfig, Network, PltConfig, TcpFlow,
};
use marcato_units::{Bytes, Duration, Seed};
use serde::{Deserialize, Serialize};

use super::published::{FLOW_PACKETS, PACKET, RTT, SMALL_BUFFER};
use super::scale::{Plan, Span};
use super::third::ThreeClasses;
use super::world::{self, PAYLOAD, bottleneck, goodput, plt, received};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::paper::Ask;
use crate::plan::Setup;
use crate::plan::kept_as_json;
use crate::prose;

/// Two PLT flows whose low layers fill the link, and newcomers.
#[derive(Clone, Debug)]
struct Newcomers {
    plt: Option<PltConfig>,
    /// Number of low packets of each connection that the router serves in the third class.
    last: Option<u64>,
    span: Span,
}

/// Outcome of a run.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct Met {
    /// Goodput of the existing flows, in Mbit/s.
    existing: f64,
    /// Share of the newcomers that took one round trip, in %, and their mean completion time, in
    /// ms.
    one: f64,
    fct: f64,
}

impl Setup for Newcomers {
    type Outcome = Met;

    kept_as_json!();

    fn cost(&self) -> u64 {
        self.span.whole()
    }

    fn run(&self, seed: u64) -> Result<Met, SimulationError> {
        let mut net = Network::new(Seed::new(seed));
        let [left, right, web] = ["left", "right", "web"].map(|name| net.node(name));
        let delay = RTT / 4;
        let there = bottleneck(delay, SMALL_BUFFER, 1e-3)?;
        let there = match self.last {
            Some(window) => there.queue(ThreeClasses::new(SMALL_BUFFER, window)?),
            None => there,
        };
        net.link(left, right, there, LinkConfig::delay_only(delay));
        let access = || LinkConfig::delay_only(delay);
        net.link(web, left, access(), access());
        let mut existing = Vec::new();
        for name in ["first", "second"] {
            let client = net.node(name);
            net.link(client, left, access(), access());
            let config = world::tcp(Some(plt()), Congestion::Reno);
            existing.push(net.tcp(TcpFlow::new(client, right, config, Bulk::endless()))?);
        }
        let payload = u64::from(PAYLOAD);
        let sizes = Distribution::truncated_pareto(
            1.2,
            Bytes::new(FLOW_PACKETS * payload),
            Bytes::new(10_000 * payload),
        )?;
        // 200 flows of 25 packets on average: 40 Mbit/s.
        let arrivals = FlowArrivals::PerSecond(200.0);
        let config = world::tcp(self.plt, Congestion::Reno);
        let flows = FlowProcess::new(web, right, config, sizes, arrivals);
        let flows = net.spawn(flows.stop(self.span.until()))?;
        let all = |net: &Network| existing.iter().map(|&flow| received(net, flow)).sum::<u64>();
        net.run_until(self.span.from());
        let before = all(&net);
        net.run_until(self.span.until());
        let after = all(&net);
        net.run_until(self.span.until() + Duration::from_secs(10));
        let (mut one, mut took_ms, mut count) = (0u32, 0.0, 0u32);
        for flow in net.flow_records(flows).iter().filter(|flow| flow.start() >= self.span.from()) {
            let (Some(first), Some(last)) = (flow.first_sent_at(), flow.last_received_at()) else { continue };
            count += 1;
            one += u32::from(last - first <= RTT);
            took_ms += (last - first).as_secs_f64() * 1e3;
        }
        Ok(Met {
            existing: goodput(after - before, self.span.length),
            one: 100.0 * f64::from(one) / f64::from(count),
            fct: took_ms / f64::from(count),
        })
    }
}

/// Initial windows of the LCM, in packets.
const WINDOWS: [u64; 5] = [2, 10, 100, 625, 2500];

/// Effect of the initial window of the LCM.
pub(super) fn initial(plan: &mut Plan) -> Ask {
    let span = plan.scale.tendency;
    let mut cells =
        vec![("tcp".to_owned(), "plain TCP".to_owned(), plan.add(Newcomers { plt: None, last: None, span }))];
    for packets in WINDOWS {
        let initial_window = Bytes::new(packets * u64::from(PACKET));
        let config = PltConfig::new(LcmConfig { initial_window, ..LcmConfig::paper() });
        let mut add = |last| plan.add(Newcomers { plt: Some(config), last, span });
        let (two, three) = (add(None), add(Some(packets)));
        cells.push((packets.to_string(), format!("initial window {packets} packets"), two));
        let what = format!("initial window {packets} packets in a third class");
        cells.push((format!("{packets}.third"), what, three));
    }
    Box::new(move |runs| {
        let mut rows = Vec::new();
        for (id, what, ticket) in &cells {
            let row = |name: &str, text: &str, unit, value: fn(&Met) -> f64| {
                Row::new(format!("plt.initial.{id}.{name}"), format!("{text}, {what}"), unit)
                    .samples(&runs.each(*ticket, value))
            };
            rows.push(row("existing", "goodput of the existing flows", Unit::MbitPerS, |met| met.existing));
            rows.push(row("one_rtt_share", "newcomers within 80 ms", Unit::Percent, |met| met.one));
            rows.push(row("fct", "mean time from first to last byte of newcomers", Unit::Ms, |met| met.fct));
        }
        Answer::new("The initial window of the LCM", prose::text(include_str!("initial.md")), rows)
    })
}
