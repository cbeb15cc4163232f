//! The page as users get it today, next to CATS: six connections (HTTP/1.1), round-robin frames
//! (HTTP/2), FIFO, and strict priority.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use marcato_report::chart::{Axis, BarChart, Bars};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_sim::{App, Collector, Side, Socket, Tag, TcpFlow};
use marcato_units::{Bytes, Layer, Priority, Time};

use super::load::Load;
use super::page;
use super::path::{Feeding, Path, Scheme};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

/// Connections that browsers open to a host under HTTP/1.1.
const CONNECTIONS: usize = 6;
/// Largest resource of a group under HTTP/1.1.
const RESOURCE: Bytes = Bytes::kb(10);
/// Largest payload of a frame. RFC 9113 §6.5.2: the initial SETTINGS_MAX_FRAME_SIZE.
const FRAME: Bytes = Bytes::new(16_384);

/// Completion of each group and the longest wait of P4, in ms since the first byte.
struct Outcome {
    done: [f64; Priority::COUNT],
    longest_wait_p4: f64,
}

impl From<Load> for Outcome {
    fn from(load: Load) -> Self {
        Self { done: load.done, longest_wait_p4: load.longest_wait[Priority::P4.index()] }
    }
}

/// All schemes side by side.
pub(super) fn today(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let path = &Path::authors();
    let outcomes: Vec<(&str, &str, Outcome)> = vec![
        ("fifo", "FIFO", Load::run(path, Scheme::Fifo, seed)?.into()),
        ("http1", "HTTP/1.1 ×6", http1(path, seed)?),
        ("http2", "HTTP/2 RR", http2(path, seed)?),
        ("strict", "strict", Load::run(path, Scheme::strict(), seed)?.into()),
        ("cats", "CATS", Load::run(path, Scheme::cats(), seed)?.into()),
        (
            "cats-lean",
            "CATS lean",
            Load::run(path, Scheme::Conductor(Debt::authors(), Feeding::Lean), seed)?.into(),
        ),
    ];
    let mut rows = Vec::new();
    for (id, name, outcome) in &outcomes {
        for priority in Priority::ALL {
            let group = priority.index();
            rows.push(
                Row::new(
                    format!("cats.today.{id}.p{group}"),
                    format!("{} complete, {name}", page::NAMES[group]),
                    Unit::Ms,
                )
                .measured(outcome.done[group]),
            );
        }
        rows.push(
            Row::new(format!("cats.today.{id}.p4.wait"), format!("P4's longest wait, {name}"), Unit::Ms)
                .measured(outcome.longest_wait_p4),
        );
    }
    let chart = BarChart::new("The page with today's schemes, and with CATS", Axis::new("completion", "ms"))
        .groups(outcomes.iter().map(|(_, name, _)| *name));
    let chart = Priority::ALL.into_iter().fold(chart, |chart, priority| {
        let group = priority.index();
        chart.bars(Bars::new(page::NAMES[group], outcomes.iter().map(|(_, _, outcome)| outcome.done[group])))
    });
    let mut answer = Answer::new("Schemes in use today", prose::text(include_str!("today.md")), rows);
    answer.section = answer.section.figure(Figure::new(
        "today",
        chart,
        "Completion of each group, ms since the first data byte, by scheme.",
    ));
    Ok(answer)
}

/// Resources not yet taken by a connection: group and size.
type Pool = Rc<RefCell<VecDeque<(Priority, Bytes)>>>;

/// A server's end of an HTTP/1.1 connection without pipelining: one resource at a time.
struct OneAtATime {
    pool: Pool,
    current: Option<(Priority, Bytes)>,
}

impl OneAtATime {
    fn write(&mut self, socket: &mut Socket<'_>) {
        if self.current.is_none() {
            // The next request comes when the last response has arrived.
            let stats = socket.stats();
            if socket.is_connected() && stats.in_flight.is_zero() && stats.unsent.is_zero() {
                self.current = self.pool.borrow_mut().pop_front();
            }
        }
        if let Some((priority, left)) = &mut self.current {
            *left -= socket.write(*left, *priority, Tag(priority.index() as u64));
            if left.is_zero() {
                self.current = None;
            }
        }
    }
}

impl App for OneAtATime {
    fn connected(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }
}

fn http1(path: &Path, seed: u64) -> Result<Outcome, SimulationError> {
    let mut resources = VecDeque::new();
    for priority in page::ORDER {
        let mut left = page::GROUPS[priority.index()];
        while !left.is_zero() {
            resources.push_back((priority, left.min(RESOURCE)));
            left -= RESOURCE;
        }
    }
    let pool: Pool = Rc::new(RefCell::new(resources));
    let mut dumbbell = path.build(seed)?;
    let mut flows = Vec::new();
    for _ in 0..CONNECTIONS {
        let app = OneAtATime { pool: Rc::clone(&pool), current: None };
        flows.push(
            dumbbell.net.tcp(
                TcpFlow::new(dumbbell.sender, dumbbell.receiver, path.tcp.clone(), app)
                    .server_app(Collector::logging()),
            )?,
        );
    }
    dumbbell.net.run_until(Time::from_secs(30))?;
    let mut arrivals = Vec::new();
    for flow in flows {
        let collector: Option<&Collector> = dumbbell.net.app(flow, Side::Server);
        arrivals.extend(collector.map(Collector::log).unwrap_or(&[]).iter().copied());
    }
    arrivals.sort_by_key(|arrival| arrival.0);
    outcome(&arrivals)
}

/// A server without priorities: its streams take turns.
struct RoundRobin {
    streams: VecDeque<(Priority, Bytes)>,
    /// Rest of the frame at the front.
    frame: Bytes,
}

impl App for RoundRobin {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        while let Some((priority, left)) = self.streams.front_mut() {
            let taken = socket.write(self.frame.min(*left), *priority, Tag(priority.index() as u64));
            *left -= taken;
            self.frame -= taken;
            if left.is_zero() {
                self.streams.pop_front();
            } else if self.frame.is_zero() {
                self.streams.rotate_left(1);
            } else {
                return;
            }
            self.frame = FRAME;
        }
    }
}

fn http2(path: &Path, seed: u64) -> Result<Outcome, SimulationError> {
    let streams = page::ORDER.into_iter().map(|p| (p, page::GROUPS[p.index()])).collect();
    let app = RoundRobin { streams, frame: FRAME };
    let mut dumbbell = path.build(seed)?;
    let flow = dumbbell.net.tcp(TcpFlow {
        client: dumbbell.sender,
        server: dumbbell.receiver,
        start: dumbbell.start,
        client_config: path.tcp.clone().into(),
        server_config: path.tcp.clone().into(),
        client_app: Box::new(app),
        server_app: Box::new(Collector::logging()),
        layer: Layer::High,
    })?;
    dumbbell.net.run_until(Time::from_secs(30))?;
    let collector: Option<&Collector> = dumbbell.net.app(flow, Side::Server);
    outcome(collector.map(Collector::log).unwrap_or(&[]))
}

/// Computes the outcome from deliveries in order of time, labelled by group.
fn outcome(arrivals: &[(Time, Tag, Bytes)]) -> Result<Outcome, SimulationError> {
    let origin = arrivals.first().ok_or_else(|| SimulationError::Incomplete("the page".into()))?.0;
    let mut left = page::GROUPS;
    let mut done = [0.0; Priority::COUNT];
    let (mut last_p4, mut longest_wait_p4) = (0.0, 0.0);
    for &(at, tag, bytes) in arrivals {
        let at = (at - origin).as_secs_f64() * 1e3;
        let group = usize::try_from(tag.0).unwrap_or(usize::MAX);
        let Some(rest) = left.get_mut(group) else { continue };
        *rest -= bytes;
        done[group] = at;
        if group == Priority::P4.index() {
            longest_wait_p4 = f64::max(longest_wait_p4, at - last_p4);
            last_p4 = at;
        }
    }
    match left.iter().position(|rest| !rest.is_zero()) {
        Some(group) => Err(SimulationError::Incomplete(page::NAMES[group].into())),
        None => Ok(Outcome { done, longest_wait_p4 }),
    }
}
