//! Flows that come and go: the seam between processes and the network.

use marcato_units::Time;

use super::Network;
use crate::app::{App, Bulk, Sink};
use crate::event::Event;
use crate::flow::{End, Flow, Kind};
use crate::packet::{FlowId, Side};
use crate::process::{
    FlowArrival, FlowOutcome, FlowProcess, FlowRecord, Process, ProcessId, ProcessStats, SpawnError, Spawned,
};
use crate::route::Path;
use crate::tcp::Connection;

impl Network {
    /// Adds TCP flows that come and go while the network runs.
    ///
    /// Arrivals, sizes and the connections' draws come from streams named after the process' ends,
    /// a count of the processes between these, and the flow's number. No other flow's draws depend
    /// on them.
    ///
    /// # Errors
    ///
    /// [`SpawnError`] if there is no route, the TCP configuration is invalid, or flows would never
    /// begin or all at once.
    pub fn spawn(&mut self, process: FlowProcess) -> Result<ProcessId, SpawnError> {
        let links = [
            self.topology.route(process.client, process.server)?,
            self.topology.route(process.server, process.client)?,
        ];
        let name = self.name("process/", process.client, process.server);
        let path = Path { layer: process.layer, links };
        let mut process = Process::new(process, name, self.seed)?;
        let id = self.tallies.add_group();
        self.agenda.at(process.first(self.now), Event::Spawn { process: id });
        self.processes.push((process, path));
        Ok(ProcessId(id))
    }

    /// Begins the next flow of a process, within its limits.
    pub(super) fn spawn_next(&mut self, now: Time, id: u32) {
        let (process, path) = &mut self.processes[id as usize];
        let Some(FlowArrival { next, begun }) = process.arrive(now) else { return };
        self.agenda.at(next, Event::Spawn { process: id });
        let Some((number, size)) = begun else { return };
        let name = format!("{}/{number}", process.name);
        let connection = |config, side| Connection::new(config, self.seed, &format!("{name}/{side}"));
        // Both configurations were checked when the process was added.
        let (Ok(mut client), Ok(mut server)) = (
            connection(process.config.client_config.clone(), "client"),
            connection(process.config.server_config.clone(), "server"),
        ) else {
            return;
        };
        client.agree_on_layers(&mut server);
        let (bulk, sink): (Box<dyn App>, Box<dyn App>) =
            (Box::new(Bulk::new(size).priority(process.config.priority)), Box::new(Sink));
        let (client_app, server_app) = match process.config.sender {
            Side::Client => (bulk, sink),
            Side::Server => (sink, bulk),
        };
        let ends = [End::new(client, client_app), End::new(server, server_app)];
        let nodes = [process.config.client, process.config.server];
        let flow = Flow {
            spawned: Some(Spawned { process: id, number, size }),
            ..Flow::new(Kind::Tcp(Box::new(ends)), vec![path.clone()], nodes, now)
        };
        let flow = match self.tallies.take_free() {
            Some(slot) => {
                self.flows[slot.0 as usize] = flow;
                slot
            }
            None => self.push_flow(flow),
        };
        self.start(now, flow);
        self.settle(flow);
    }

    /// Frees a flow if it was spawned and has ended.
    #[inline]
    pub(super) fn settle(&mut self, flow: FlowId) {
        if let Some(spawned) = self.flows[flow.0 as usize].spawned {
            self.settle_spawned(flow, spawned);
        }
    }

    fn settle_spawned(&mut self, flow: FlowId, spawned: Spawned) {
        let record = &mut self.flows[flow.0 as usize];
        let Kind::Tcp(ends) = &record.kind else { return };
        let any = |of: fn(&End) -> bool| ends.iter().any(of);
        let outcome = if ends.iter().all(|end| end.tcp.all_acked()) {
            FlowOutcome::Completed
        } else if any(|end| end.reception.reset_at.is_some()) {
            FlowOutcome::Reset
        } else if any(|end| end.reception.failed_at.is_some()) {
            FlowOutcome::Failed
        } else {
            return;
        };
        let (process, _) = &mut self.processes[spawned.process as usize];
        process.note(describe(ends, record.start, spawned, process.config.sender, outcome));
        // Both ends have closed, and no packet still in flight changes that. Packets and events
        // that name the slot keep it, but not the connections.
        record.kind = Kind::Gone;
        self.tallies.retire(flow, spawned.process);
    }

    /// Returns the counters of a process.
    pub fn process_stats(&self, process: ProcessId) -> ProcessStats {
        let [from_clients, from_servers] = self.tallies.of_group(process.0);
        ProcessStats { from_clients, from_servers, ..self.processes[process.0 as usize].0.stats }
    }

    /// Returns the records of a process' flows that have ended, in the order in which they ended.
    pub fn flow_records(&self, process: ProcessId) -> &[FlowRecord] {
        &self.processes[process.0 as usize].0.records
    }

    /// Returns records of a process' open flows, in the order in which they began.
    pub fn open_flows(&self, process: ProcessId) -> Vec<FlowRecord> {
        let sender = self.processes[process.0 as usize].0.config.sender;
        let of_flow = |flow: &Flow| match (&flow.kind, flow.spawned) {
            (Kind::Tcp(ends), Some(spawned)) if spawned.process == process.0 => {
                Some(describe(ends, flow.start, spawned, sender, FlowOutcome::Open))
            }
            _ => None,
        };
        let mut open: Vec<_> = self.flows.iter().filter_map(of_flow).collect();
        open.sort_by_key(|record| (record.start, record.number));
        open
    }

    /// Returns the number of slots for flows: one per flow added singly, and the most that spawned
    /// flows have needed at once. A spawned flow that has ended keeps its slot until its last
    /// packet and timer are gone.
    pub fn flow_slots(&self) -> usize {
        self.flows.len()
    }
}

fn describe(
    ends: &[End; 2],
    start: Time,
    spawned: Spawned,
    sender: Side,
    outcome: FlowOutcome,
) -> FlowRecord {
    let (from, to) = (&ends[sender.index()], &ends[sender.peer().index()]);
    let Spawned { number, size, .. } = spawned;
    let record = FlowRecord::new((number, size), start, &to.reception, &from.tcp.stats(), outcome);
    FlowRecord { first_sent: from.first_sent_at.unwrap_or(Time::MAX), ..record }
}
