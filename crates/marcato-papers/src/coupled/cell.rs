//! One run: late urgent messages beside our own background data, over one bottleneck.

use marcato_report::{Percentile, Samples, World};
use marcato_sched::coupled::Mode;
use marcato_sim::scenario::FlowOutcome;
use marcato_units::{Bytes, Duration, Rate};
use serde::{Deserialize, Serialize};

use crate::error::SimulationError;
use crate::lab;
use crate::plan::kept_as_json;

/// Bytes of an urgent message.
const URGENT: u32 = 20_000;
/// Payload and wire bytes of a full segment: timestamps leave 1448 of 1500.
const SEGMENT: u32 = 1448;
const PACKET: u32 = 1500;
/// Wire bytes of an urgent message: 52 of headers for each segment.
const WIRE: u32 = URGENT + URGENT.div_ceil(SEGMENT) * (PACKET - SEGMENT);
/// Least buffer: three packets. A smaller one holds no window.
const LEAST_BUFFER: Bytes = Bytes::new(4500);

/// Congestion controls of the sender.
pub(super) const CONTROLS: [&str; 3] = ["cubic", "reno", "bbr"];

/// Path with one bottleneck.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Path {
    pub(super) mbit: u32,
    /// Round trip without queues, in ms.
    pub(super) rtt: u32,
    /// Buffer, in bandwidth-delay products.
    pub(super) bdp: f64,
}

impl Path {
    /// Bytes that this many bandwidth-delay products are.
    fn products(self, number: f64) -> Bytes {
        Rate::from_mbps(self.mbit.into()).bytes_in(Duration::from_millis(self.rtt.into()).mul_f64(number))
    }

    /// Bandwidth-delay product.
    pub(super) fn product(self) -> Bytes {
        self.products(1.0)
    }

    /// Drop-tail queue of its buffer, as in a scenario.
    pub(super) fn droptail(self) -> String {
        let limit = self.products(self.bdp).max(LEAST_BUFFER);
        format!(r#"{{ kind = "droptail", limit = "{} B" }}"#, limit.get())
    }

    /// Least completion time of an urgent message, in ms: one-way delay, its time on the wire, and that of
    /// the packet that is being sent when it comes.
    pub(super) fn limit(self) -> f64 {
        f64::from(self.rtt) / 2.0 + f64::from(WIRE + PACKET) * 8.0 / (f64::from(self.mbit) * 1e3)
    }

    /// Name in row ids.
    pub(super) fn id(self) -> String {
        format!("{}.{}.{}", self.mbit, self.rtt, self.bdp)
    }

    /// Name in words.
    pub(super) fn name(self) -> String {
        format!("{} Mbit/s, {} ms, {} BDP", self.mbit, self.rtt, self.bdp)
    }
}

/// A run, apart from its seed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) path: Path,
    /// Queue of the bottleneck, as in a scenario.
    pub(super) queue: String,
    /// Losses of the wire, as in a scenario.
    pub(super) loss: &'static str,
    /// Further keys of the link.
    pub(super) link: String,
    /// Keys of the way back.
    pub(super) back: &'static str,
    pub(super) congestion: &'static str,
    /// Value of the key `coupled`.
    pub(super) coupled: &'static str,
    /// Time at which our flows begin.
    pub(super) start: Duration,
    /// Number of our flows, and the time between their starts in ms.
    pub(super) flows: (u32, u32),
    /// True if background data fills our connections.
    pub(super) bulk: bool,
    /// Further keys of our flows, and tables of other flows.
    pub(super) keys: &'static str,
    pub(super) others: String,
    /// Warm-up and length of the measurement.
    pub(super) warm_up: Duration,
    pub(super) length: Duration,
    /// First seed, less one.
    pub(super) seeds_from: u64,
    /// Largest number of seeds.
    pub(super) seeds: usize,
}

/// Table of other TCP flows over the same bottleneck.
pub(super) fn tcp(congestion: &str, count: u32) -> String {
    format!(
        r#"
        [[flow]]
        name = "other"
        kind = "tcp"
        from = "sender"
        to = "receiver"
        congestion = "{congestion}"
        count = {count}
        start-jitter = "2 s"
        tcp = {{ send-buffer = "64 MB", receive-buffer = "64 MB" }}
        "#
    )
}

/// Head of a scenario of two hosts that runs for `seconds` after a warm-up of so many.
pub(super) fn head(name: &str, warm_up: u64, seconds: u64, seed: u64) -> String {
    format!(
        r#"
        name = "{name}"
        duration = "{} s"
        warm-up = "{warm_up} s"
        seed = {seed}
        nodes = ["sender", "receiver"]
        "#,
        warm_up + seconds
    )
}

/// Table of our flow: urgent messages, with background if `bulk`. `coupled` is the value of that key, and
/// `tcp` are the keys of TCP.
pub(super) fn ours(congestion: &str, coupled: &str, bulk: bool, tcp: &str) -> String {
    let bulk = if bulk { r#"bulk = "p3""# } else { "" };
    format!(
        r#"
        [[flow]]
        name = "ours"
        kind = "messages"
        from = "sender"
        to = "receiver"
        congestion = "{congestion}"
        coupled = {coupled}
        chunk = "{SEGMENT} B"
        {bulk}
        sources = [{{ period = "1 s", jitter = "300 ms", size = "{URGENT} B", priority = "p0" }}]
        tcp = {{ {tcp} }}
        "#
    )
}

impl Cell {
    /// One flow of ours alone behind a drop-tail queue, for so many seconds after a warm-up of eight.
    pub(super) fn new(path: Path, congestion: &'static str, coupled: &'static str, seconds: u64) -> Self {
        Self {
            path,
            queue: path.droptail(),
            loss: r#""none""#,
            link: String::new(),
            back: r#"queue = { kind = "droptail", limit = "10 MB" }, loss = "none""#,
            congestion,
            coupled,
            start: Duration::ZERO,
            flows: (1, 0),
            bulk: true,
            keys: "",
            others: String::new(),
            warm_up: Duration::from_secs(8),
            length: Duration::from_secs(seconds),
            seeds_from: 0,
            seeds: 1,
        }
    }

    /// Scenario of the run, which `marcato sim` can run as well.
    fn scenario(&self, seed: u64) -> String {
        let Path { mbit, rtt, .. } = self.path;
        let Self {
            queue, loss, link, back, congestion, coupled, flows: (count, stagger), keys, others, ..
        } = self;
        let head = head("coupled", self.warm_up.as_secs(), self.length.as_secs(), self.seeds_from + seed);
        let tcp = format!(r#"send-buffer = "64 MB", receive-buffer = "64 MB"{keys}"#);
        let ours = ours(congestion, &format!("\"{coupled}\""), self.bulk, &tcp);
        format!(
            r#"
            {head}
            [[link]]
            name = "bottleneck"
            between = ["sender", "receiver"]
            rate = "{mbit} Mbit/s"
            delay = "{delay} us"
            queue = {queue}
            loss = {loss}
            back = {{ {back} }}
            {link}
            {ours}
            start = "{start} s"
            count = {count}
            stagger = "{stagger} ms"
            {others}
            "#,
            start = self.start.as_secs(),
            delay = rtt * 500,
        )
    }
}

/// Measurements of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Seen {
    /// Completion times of urgent messages over the path's limit, ascending.
    ratios: Vec<f64>,
    /// Goodput of each of our flows in Mbit/s.
    pub(super) goodput: Vec<f64>,
    /// Share of the time in which our first flow had no cap, in percent.
    pub(super) compete: f64,
}

impl Seen {
    fn of(flows: &[FlowOutcome], limit: f64) -> Self {
        let ours: Vec<&FlowOutcome> = flows.iter().filter(|flow| flow.name.starts_with("ours")).collect();
        let completions = ours.iter().flat_map(|flow| flow.completions());
        let share = |flow: &&FlowOutcome| flow.coupled?.share(Mode::Compete);
        Self {
            ratios: Samples::new(completions.map(|ms| ms / limit)).sorted().to_vec(),
            goodput: ours.iter().map(|flow| flow.goodput).collect(),
            compete: 100.0 * ours.first().and_then(share).unwrap_or(0.0),
        }
    }

    /// Completion times over the limit, ascending.
    pub(super) fn ratios(&self) -> &[f64] {
        &self.ratios
    }

    /// Percentile of the completion times over the limit.
    pub(super) fn percentile(&self, percentile: Percentile) -> f64 {
        Samples::new(self.ratios.iter().copied()).percentile(percentile).unwrap_or(f64::NAN)
    }

    /// Goodput of all our flows in Mbit/s.
    pub(super) fn sum(&self) -> f64 {
        self.goodput.iter().sum()
    }

    /// Jain's index over our flows.
    pub(super) fn jain(&self) -> f64 {
        let squares: f64 = self.goodput.iter().map(|goodput| goodput * goodput).sum();
        self.sum() * self.sum() / (squares * self.goodput.len() as f64)
    }
}

impl crate::plan::Setup for Cell {
    type Outcome = Seen;

    kept_as_json!();

    fn cost(&self) -> u64 {
        (self.warm_up + self.length).as_secs() * u64::from(self.path.mbit).div_ceil(10)
    }

    fn seeds(&self) -> usize {
        self.seeds
    }

    fn run(&self, seed: u64) -> Result<Seen, SimulationError> {
        let outcome = lab::run(World::Virtual, &self.scenario(seed))?;
        Ok(Seen::of(&outcome.flows, self.path.limit()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Setup as _;

    const PATH: Path = Path { mbit: 10, rtt: 100, bdp: 4.0 };

    #[test]
    fn the_limit_is_delay_and_packets() {
        // 20 kB in 14 packets with 52 B of headers, and a packet of 1500 B: 22 228 B.
        assert!((PATH.limit() - (50.0 + 17.7824)).abs() < 1e-9, "{}", PATH.limit());
        assert_eq!((PATH.product(), PATH.id().as_str()), (Bytes::kb(125), "10.100.4"));
    }

    #[test]
    fn coupled_urgent_data_is_near_the_limit_and_plain_is_not() {
        let run = |coupled| Cell::new(PATH, "cubic", coupled, 30).run(1).unwrap();
        let (plain, coupled) = (run("off"), run("fast"));
        let p50 = |seen: &Seen| seen.percentile(Percentile::P50);
        assert!(p50(&coupled) < 1.1 && p50(&plain) > 3.0, "{} {}", p50(&coupled), p50(&plain));
        assert!(coupled.sum() > 0.985 * plain.sum(), "{} {}", coupled.sum(), plain.sum());
        assert_eq!(coupled.compete, 0.0);
    }

    #[test]
    fn jains_index_is_1_for_equal_flows_and_half_for_one_of_two() {
        let of = |goodput: [f64; 2]| Seen { goodput: goodput.to_vec(), ..Seen::default() }.jain();
        assert_eq!((of([3.0, 3.0]), of([3.0, 0.0])), (1.0, 0.5));
    }
}
