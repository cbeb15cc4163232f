//! A queue discipline of one's own: if it is full, the oldest packet makes room for the newest.
//!
//! `cargo run --release -p marcato-sim --example own_queue` compares it with drop-tail under a
//! flood.

use std::collections::VecDeque;
use std::error::Error;

use marcato_queue::{Backlog, Counters, Discipline, Limit, LimitError, Packet, Verdict};
use marcato_scenario::Reader;
use marcato_sim::scenario::{FlowOutcome, Plugins, Traces, build_with};
use marcato_units::{Bytes, Time};

/// First in, first out; an arriving packet that finds the queue full displaces the oldest.
#[derive(Debug)]
struct HeadDrop<P> {
    limit: Limit,
    queue: VecDeque<P>,
    backlog: Backlog,
    counters: Counters,
}

impl<P> HeadDrop<P> {
    fn new(limit: Limit) -> Result<Self, LimitError> {
        let (limit, queue) = (limit.checked()?, VecDeque::new());
        Ok(Self { limit, queue, backlog: Backlog::default(), counters: Counters::default() })
    }
}

impl<P: Packet> Discipline<P> for HeadDrop<P> {
    fn enqueue_with(&mut self, _now: Time, packet: P, on_drop: &mut dyn FnMut(P)) -> Verdict<P> {
        while !self.limit.admits(self.backlog, packet.len()) {
            let Some(oldest) = self.queue.pop_front() else { break };
            self.backlog.pop(oldest.len());
            self.counters.overflow(&oldest);
            on_drop(oldest);
        }
        // Counts the packet in. It is refused only if it exceeds an empty queue.
        match self.limit.take(packet, &mut self.backlog, &mut self.counters) {
            Ok(packet) => {
                self.queue.push_back(packet);
                Verdict::Queued
            }
            Err(packet) => Verdict::Dropped(packet),
        }
    }

    fn dequeue_with(&mut self, _now: Time, _on_drop: &mut dyn FnMut(P)) -> Option<P> {
        let packet = self.queue.pop_front()?;
        self.backlog.pop(packet.len());
        self.counters.dequeued.count(packet.len());
        Some(packet)
    }

    fn next_ready(&self, now: Time) -> Option<Time> {
        (!self.queue.is_empty()).then_some(now)
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }

    fn counters(&self) -> &Counters {
        &self.counters
    }
}

/// A flood of twice the link's rate, before two queues of the same length.
const SCENARIO: &str = r#"
    name = "own-queue"
    duration = "10 s"
    warm-up = "1 s"
    nodes = ["client", "server"]
    link = [{ between = ["client", "server"], rate = "10 Mbit/s", delay = "20 ms" }]
    flow = [{ name = "flood", kind = "udp", from = "client", to = "server", rate = "20 Mbit/s" }]
    [grid]
    vary = { "link.client-server.queue" = [{ kind = "droptail", limit = "150 kB" }, { kind = "head-drop", limit = "150 kB" }] }
"#;

/// Runs the scenario, and returns the name and the results of each run.
pub(crate) fn compare() -> Result<Vec<(String, FlowOutcome)>, Box<dyn Error>> {
    let plugins = Plugins::new().queue("head-drop", &["limit"], |parameters, _site| {
        let limit = parameters.size("limit")?.unwrap_or(Bytes::kb(1500));
        Ok(Box::new(HeadDrop::new(Limit::Bytes(limit))?))
    })?;
    let scenario = Reader::new().plugins(plugins.names()).parse("own_queue", SCENARIO)?;
    let run = |run: marcato_scenario::Run| {
        let outcome = build_with(&run.experiment, &Traces::new(), &plugins)?.run(&mut |_: Time| ())?;
        Ok((run.settings[0].value.clone(), outcome.flows[0].clone()))
    };
    scenario.runs().map(run).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (queue, flow) in compare()? {
        let delay = flow.delay.unwrap_or_default();
        println!("{queue:<45} {:.2} Mbit/s, one-way delay {delay:.1} ms", flow.goodput);
    }
    Ok(())
}
