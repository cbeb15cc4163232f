//! Two layers over real sockets: QUIC with a lane of low priority, through a strict-priority link of
//! the lab, and simulated.

use marcato_report::{Config, Document, Report, Row, Unit, World};
use marcato_units::{Duration, Rate};

use super::htb;
use super::published::RTT;
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::plan::{Plan, Runs, Setup, Ticket};
use crate::{Progress, RunError, RunOptions, lab, prose};

/// Rate of the bottleneck: a fifth of the paper's, which leaves the processors time for the emulator.
const LINK: Rate = Rate::from_mbps(50);
/// Room of each class: a bandwidth-delay product.
const BUFFER: u64 = 500;
/// The dumbbell's bottleneck among its links: it is the first.
const BOTTLENECK: usize = 0;
/// Random losses of the bottleneck, with their names in row ids.
const LOSSES: [(f64, &str); 4] = [(0.0, "0"), (1e-4, "1e-4"), (1e-3, "1e-3"), (1e-2, "1e-2")];
/// Loss beside which the harm to others is measured: TCP then leaves most of the link to a low layer.
const HARM_AT: f64 = 1e-3;

/// Sender of endless data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sender {
    /// TCP CUBIC, the kernel's in the lab.
    Tcp,
    /// QUIC with one lane, CUBIC.
    OneLane,
    /// QUIC with two lanes: the second is of the low layer, and carries what the first has no room
    /// for.
    TwoLayers,
}

impl Sender {
    const ALL: [Self; 3] = [Self::Tcp, Self::OneLane, Self::TwoLayers];

    const fn id(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::OneLane => "one-lane",
            Self::TwoLayers => "two-layers",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "TCP CUBIC",
            Self::OneLane => "QUIC with one lane",
            Self::TwoLayers => "QUIC with two layers",
        }
    }

    /// Table of its flow in a scenario.
    fn flow(self) -> String {
        let paths = match self {
            Self::Tcp => return tcp("sender", 1),
            Self::OneLane => r#"["client-1", "server-1"]"#,
            Self::TwoLayers => {
                r#"["client-1", "server-1"], { from = "client-1", to = "server-1", layer = "low" }"#
            }
        };
        format!(
            r#"
            [[flow]]
            name = "sender"
            kind = "quic"
            paths = [{paths}]
            scheduler = "low-rtt"
            layered = {layered}
            bulk = "p2"
            "#,
            layered = self == Self::TwoLayers,
        )
    }
}

/// Table of an endless TCP flow between the hosts of a pair, with buffers that limit nothing.
fn tcp(name: &str, pair: u8) -> String {
    format!(
        r#"
        [[flow]]
        name = "{name}"
        kind = "tcp"
        from = "client-{pair}"
        to = "server-{pair}"
        tcp = {{ send-buffer = "16 MiB", receive-buffer = "16 MiB" }}
        "#
    )
}

/// Queue of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Router {
    /// The `strict` queue of `marcato-queue`.
    Strict,
    /// HTB of the Linux kernel; in virtual time, the `strict` queue stands for it.
    Htb,
}

impl Router {
    /// First part of row ids.
    const fn id(self) -> &'static str {
        match self {
            Self::Strict => "plt.lanes",
            Self::Htb => "plt.htb",
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Strict => "",
            Self::Htb => ", HTB of the kernel",
        }
    }
}

/// A sender over the bottleneck, alone or beside TCP CUBIC.
#[derive(Clone, Debug)]
struct Path {
    world: World,
    router: Router,
    loss: f64,
    sender: Sender,
    /// True if TCP CUBIC shares the link.
    beside: bool,
    warm_up: Duration,
    length: Duration,
}

/// Outcome of a run: goodput in Mbit/s.
struct Seen {
    sender: f64,
    /// Goodput of the TCP that shares the link.
    other: Option<f64>,
}

impl Path {
    /// Returns whether the kernel has the queue and the rate.
    fn is_shaped(&self) -> bool {
        self.world == World::Lab && self.router == Router::Htb
    }

    fn scenario(&self, seed: u64) -> String {
        let class = format!(r#"{{ kind = "droptail", limit = "{BUFFER} packets" }}"#);
        format!(
            r#"
            name = "plt"
            duration = "{duration} ms"
            warm-up = "{warm_up} ms"
            seed = {seed}
            [topology]
            kind = "dumbbell"
            pairs = 2
            rate = "{rate} bit/s"
            delay = "{delay} ms"
            access-delay = "1 ms"
            loss = {loss}
            queue = {{ kind = "strict", high = {class}, low = {class} }}
            {sender}
            {other}
            "#,
            duration = (self.warm_up + self.length).as_millis(),
            warm_up = self.warm_up.as_millis(),
            // The kernel shapes before the link, which must not.
            rate = if self.is_shaped() { 20 * LINK.as_bps() } else { LINK.as_bps() },
            // Both access links delay by 1 ms, each way.
            delay = RTT.as_millis() / 2 - 2,
            loss = match self.loss {
                0.0 => r#""none""#.to_owned(),
                loss => format!(r#"{{ kind = "random", probability = {loss} }}"#),
            },
            sender = self.sender.flow(),
            other = if self.beside { tcp("other", 2) } else { String::new() },
        )
    }
}

impl Setup for Path {
    type Outcome = Seen;

    fn cost(&self) -> u64 {
        (self.warm_up + self.length).as_secs()
    }

    fn run(&self, seed: u64) -> Result<Seen, SimulationError> {
        let scenario = self.scenario(seed);
        let outcome = match self.is_shaped() {
            true => lab::run_prepared(&scenario, |lab| htb::shape(lab, BOTTLENECK, LINK, BUFFER))?,
            false => lab::run(self.world, &scenario)?,
        };
        let goodput = |place: usize| outcome.flows.get(place).map(|flow| flow.goodput);
        Ok(Seen { sender: goodput(0).ok_or(SimulationError::Missing("flow"))?, other: goodput(1) })
    }
}

/// Runs of one world and router: each sender alone, and beside TCP.
struct Arms {
    router: Router,
    alone: Vec<(&'static str, Sender, Ticket<Path>)>,
    beside: [(Sender, Ticket<Path>); 2],
    runs: Runs,
}

impl Arms {
    fn run(
        world: World,
        router: Router,
        options: &RunOptions,
        progress: &mut dyn Progress,
    ) -> Result<Self, SimulationError> {
        let [warm_up, length] = if options.quick { [2, 4] } else { [10, 20] }.map(Duration::from_secs);
        let mut plan = Plan::new(());
        let mut add =
            |loss, sender, beside| plan.add(Path { world, router, loss, sender, beside, warm_up, length });
        let losses = if options.quick { &LOSSES[2..3] } else { &LOSSES[..] };
        let mut alone = Vec::new();
        for &(loss, id) in losses {
            alone.extend(Sender::ALL.map(|sender| (id, sender, add(loss, sender, false))));
        }
        let beside = [Sender::OneLane, Sender::TwoLayers].map(|sender| (sender, add(HARM_AT, sender, true)));
        let runs = lab::run_plan(&plan, "PLT", world, options, progress)?;
        Ok(Self { router, alone, beside, runs })
    }

    fn rows(&self) -> Vec<Row> {
        let alone = self.alone.iter().map(|&(loss, sender, ticket)| {
            let id = format!("{}.{loss}.{}", self.router.id(), sender.id());
            let what = format!("goodput alone, loss {loss}, {}{}", sender.name(), self.router.name());
            Row::new(id, what, Unit::MbitPerS).samples(&self.runs.each(ticket, |seen| seen.sender))
        });
        let beside = self.beside.iter().flat_map(|&(sender, ticket)| {
            let own = self.runs.each(ticket, |seen| seen.sender);
            let other = self.runs.each(ticket, |seen| seen.other.unwrap_or(f64::NAN));
            [("own", "its goodput", own), ("other", "goodput of TCP CUBIC", other)].map(
                |(id, what, samples)| {
                    let id = format!("{}.harm.{}.{id}", self.router.id(), sender.id());
                    let router = self.router.name();
                    let what = format!("{what}, sharing the link, loss {HARM_AT}, {}{router}", sender.name());
                    Row::new(id, what, Unit::MbitPerS).samples(&samples)
                },
            )
        });
        alone.chain(beside).collect()
    }

    /// Claims: with loss, two layers fill what TCP leaves; and TCP beside them loses nothing by it.
    fn verdicts(&self, claims: bool) -> Vec<Row> {
        let mean = |cells: &[(&str, Sender, Ticket<Path>)], sender: Sender| {
            let found = cells.iter().find(|(_, of, _)| *of == sender);
            found.map_or(f64::NAN, |&(_, _, ticket)| self.runs.mean(ticket, |seen| seen.sender))
        };
        let fills = self
            .alone
            .chunk_by(|one, other| one.0 == other.0)
            .filter(|cells| LOSSES.iter().any(|&(loss, id)| loss >= HARM_AT && id == cells[0].0))
            .all(|cells| mean(cells, Sender::TwoLayers) > mean(cells, Sender::OneLane));
        let other =
            self.beside.map(|(_, ticket)| self.runs.mean(ticket, |seen| seen.other.unwrap_or(f64::NAN)));
        let harmless = other[1] > 0.9 * other[0];
        let of = |id: &str, what: &str, held| {
            let (id, what) = (format!("{}.{id}", self.router.id()), format!("{what}{}", self.router.name()));
            crate::answer::verdict(id, what, held, claims)
        };
        vec![
            of("fills", "two layers carry more than one lane where packets are lost", fills),
            of("harmless", "TCP CUBIC beside two layers keeps 90 % of its goodput beside one lane", harmless),
        ]
    }
}

/// Answers the questions in virtual time and in a lab.
pub(super) fn report(options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
    let mut rows = Vec::new();
    for router in [Router::Strict, Router::Htb] {
        let mut of = |world| {
            let arms = Arms::run(world, router, options, progress);
            arms.map_err(|error| RunError::failed("plt", error))
        };
        let (simulated, real) = (of(World::Virtual)?, of(World::Lab)?);
        rows.extend(lab::beside(real.rows(), &simulated.rows()));
        rows.extend(real.verdicts(!options.quick));
    }
    let config = Config::new()
        .set("rate_mbps", LINK.as_mbps_f64())
        .set("rtt_ms", RTT.as_secs_f64() * 1e3)
        .set("buffers_packets", BUFFER)
        .set("router", "strict priority, drop-tail per class");
    let answer = Answer::new("Two layers over real sockets", prose::text(include_str!("lab.md")), rows);
    let document = Document::new("plt", options).config(config).with_rows(answer.rows);
    let about = "PLT: QUIC with a lane of low priority over real sockets, through a link of the lab";
    Ok(Report::new("PLT in the lab", about, document).section(answer.section))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_layer_fills_what_losses_leave() {
        let path = |sender, beside| {
            let (warm_up, length) = (Duration::from_secs(3), Duration::from_secs(5));
            let router = Router::Strict;
            Path { world: World::Virtual, router, loss: 1e-2, sender, beside, warm_up, length }
                .run(1)
                .unwrap()
        };
        let [tcp, one, two] = Sender::ALL.map(|sender| path(sender, false));
        assert!(
            two.sender > 2.0 * one.sender.max(tcp.sender),
            "{} {} {}",
            tcp.sender,
            one.sender,
            two.sender
        );
        assert!(two.other.is_none());
        let shared = path(Sender::TwoLayers, true);
        assert!(shared.other.unwrap() > 0.5 * tcp.sender, "{:?} beside {}", shared.other, shared.sender);
    }
}
