//! Results of a run.

use std::ops::Sub;

pub use marcato_link::Waiting;
use marcato_queue::FlowReport;
use marcato_scenario::record::Series;
use marcato_scenario::traffic::Messaging;
use marcato_sched::coupled::Counters;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::group::GroupOutcome;
use super::warning::Warning;
use crate::DelaySummary;

/// Results of a run, from the end of the warm-up to the end of the run unless stated otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Events that the simulator processed over the whole run.
    pub events: u64,
    /// Duration of the measurement.
    pub span: Duration,
    /// Results of flows, one per instance, in the experiment's order.
    pub flows: Vec<FlowOutcome>,
    /// Joint results of processes and of flows with several instances, in the experiment's order.
    pub groups: Vec<GroupOutcome>,
    /// Results of links, first there and then back, in the experiment's order.
    pub links: Vec<LinkOutcome>,
    /// Recorded series over the whole run, in the experiment's order.
    pub series: Vec<SeriesOutcome>,
    /// Signs that the run did not do what the experiment meant: of flows, then of links, in the
    /// experiment's order.
    pub warnings: Vec<Warning>,
}

/// Results of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Name of the instance.
    pub name: String,
    /// Kind of the flow, as in a file.
    pub kind: &'static str,
    /// Time at which it began.
    pub start: Time,
    /// Time at which all its data had arrived; `None` if it did not, or the flow has no end.
    pub finished: Option<Time>,
    /// Time from the start to the arrival of the first byte of payload, in ms; `None` for UDP, QUIC and
    /// processes.
    pub first_byte: Option<f64>,
    /// Payload delivered to the receiving application; of a request-response flow, the responses.
    pub bytes: Bytes,
    /// Goodput in Mbit/s over the flow's lifetime. It begins with the flow or at the end of the
    /// warm-up. It ends with the flow or at its stop, but no earlier than its last arrival, or at
    /// the end of the run.
    pub goodput: f64,
    /// Packets that the sending end sent.
    pub sent: u64,
    /// Packets of either end that a queue dropped or a wire lost.
    pub losses: u64,
    /// Segments or packets that repeat lost data.
    pub retransmissions: u64,
    /// Expiries of TCP's retransmission timer.
    pub timeouts: u64,
    /// Mean round-trip time in ms: of TCP's measurements; of QUIC, of the fastest lane's smoothed
    /// one, sampled every 10 ms. `None` for UDP and processes.
    pub rtt: Option<f64>,
    /// 95th percentile of the round-trip time, in ms. TCP only.
    pub rtt_p95: Option<f64>,
    /// Least round-trip time of the whole run, in ms. TCP only.
    pub min_rtt: Option<f64>,
    /// Mean one-way delay of the sending end's packets that arrived, in ms. `None` for processes.
    pub delay: Option<f64>,
    /// 95th percentile of the one-way delay, in ms.
    pub delay_p95: Option<f64>,
    /// Completion times: of the transfer, of each transfer or response, or of the messages of each
    /// source.
    pub times: Vec<Times>,
    /// Results of the low layer, of a TCP that has one. `None` for processes.
    pub low: Option<LowLayerOutcome>,
    /// Results of lanes, of QUIC.
    pub lanes: Vec<LaneOutcome>,
    /// Report of the first queue that judges its packets, of the whole run; on the first path of QUIC.
    /// `None` if no queue does.
    pub report: Option<FlowReport>,
    /// Counts of the governor of coupled mode, of the whole run; of QUIC the sums over its lanes of the
    /// high layer. `None` if the flow is not coupled.
    pub coupled: Option<Counters>,
}

impl FlowOutcome {
    /// Returns the completion times of all except bulk data as [samples](Times::samples), in ms.
    /// Single messages form one group, so a name changes nothing.
    pub fn completions(&self) -> Vec<f64> {
        let mut singles = Times::empty(String::new(), None);
        let mut all = Vec::new();
        for times in self.times.iter().filter(|times| !times.name.starts_with("bulk-")) {
            if times.alone.is_some() || times.name == "messages" {
                singles.done.extend(&times.done);
                singles.open.extend(&times.open);
            } else {
                all.extend(times.samples());
            }
        }
        all.extend(singles.samples());
        all
    }
}

/// Results of the low layer of a flow's sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowLayerOutcome {
    /// Packets with data that it sent.
    pub packets: u64,
    /// Packets that it marked lost.
    pub lost: u64,
    /// Segments of the high layer that repeat losses of the low layer.
    pub repairs: u64,
    /// Payload that arrived first by the low layer, in any order.
    pub bytes: Bytes,
}

impl Sub for LowLayerOutcome {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            packets: self.packets - before.packets,
            lost: self.lost - before.lost,
            repairs: self.repairs - before.repairs,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Times of a transfer or message, from the beginning of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// Time at which it was released.
    pub released: Time,
    /// Time at which it was complete; `None` if it never was.
    pub completed: Option<Time>,
}

/// Completion times of one kind. Only releases after the warm-up count, except for single transfers
/// and single messages, which always count.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// Kind: `transfer`, `response`, `source-1`, `messages`, `bulk-1` and so on, or the name of a
    /// message. With a workload there is `messages-p0` and so on instead of `messages`.
    pub name: String,
    /// Priority.
    pub priority: Option<Priority>,
    /// Times of a single transfer or a named message; `None` for other kinds.
    pub alone: Option<Alone>,
    /// Number released.
    pub released: u64,
    /// Number refused because the backlog was full.
    pub refused: u64,
    /// Completion times in ms, in order of release.
    pub done: Vec<f64>,
    /// Ages of those incomplete at the end of the run, in ms.
    pub open: Vec<f64>,
}

/// State of a single message that was released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    /// Time at which it was released.
    pub(super) at: Time,
    pub(super) is_refused: bool,
    /// Arrival time of its last byte.
    pub(super) done: Option<Time>,
}

/// Completion of a transfer, response or message. [`Times`] counts exactly these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion<'a> {
    /// Name of the flow.
    pub flow: &'a str,
    /// Kind, as in [`Times::name`].
    pub what: &'a str,
    /// Priority, if any.
    pub priority: Option<Priority>,
    /// Size.
    pub size: Bytes,
    /// Time from which it counts.
    pub start: Time,
    /// Time at which it was complete; `None` if it was not at the end of the run.
    pub end: Option<Time>,
    /// Set if it was refused because the backlog was full.
    pub is_refused: bool,
}

/// Receiver of the completions of one flow up to a time.
pub(super) struct Timed<'a> {
    pub(super) flow: &'a str,
    pub(super) until: Time,
    pub(super) each: &'a mut dyn FnMut(&Completion<'_>),
}

impl Completion<'_> {
    /// Completion from `start` to `end`, if it ended.
    pub(super) const fn of(size: Bytes, start: Time, end: Option<Time>) -> Self {
        Self { flow: "", what: "", priority: None, size, start, end, is_refused: false }
    }
}

impl Times {
    pub(super) const fn empty(name: String, priority: Option<Priority>) -> Self {
        Self { name, priority, alone: None, released: 0, refused: 0, done: Vec::new(), open: Vec::new() }
    }

    /// Fills in the flow and kind of `one`, counts it and passes it on.
    pub(super) fn judge(&mut self, one: Completion<'_>, timed: &mut Timed<'_>) {
        let ms = |until: Time| until.since(one.start).as_secs_f64() * 1e3;
        self.released += 1;
        match one.end {
            _ if one.is_refused => self.refused += 1,
            Some(end) => self.done.push(ms(end)),
            None => self.open.push(ms(timed.until)),
        }
        let end = one.end.filter(|_| !one.is_refused);
        let priority = one.priority.or(self.priority);
        (timed.each)(&Completion { flow: timed.flow, what: &self.name, priority, end, ..one });
    }

    /// Returns the completion times of single messages: one group for those without a name, if
    /// there are any, and one for each with a name. `singles` are the states of those of `messaging`
    /// that were released so far, in the same order.
    ///
    /// With a workload there is a group for each priority of those without a name. As of a source,
    /// only messages released from `from` on count there.
    pub(super) fn of_singles(
        messaging: &Messaging,
        singles: &[Single],
        from: Time,
        timed: &mut Timed<'_>,
    ) -> Vec<Self> {
        let has_workload = messaging.workload.is_some();
        let mut unnamed = match has_workload {
            false => vec![Self::empty("messages".into(), None)],
            true => Priority::ALL
                .map(|level| Self::empty(format!("messages-p{}", level.index()), Some(level)))
                .to_vec(),
        };
        let mut named = Vec::new();
        for (place, message) in messaging.messages.iter().enumerate() {
            let single = singles.get(place);
            let mut judge = |times: &mut Self| {
                if let Some(&Single { at, is_refused, done }) = single {
                    let priority = Some(message.priority);
                    let one = Completion::of(message.size, at, done);
                    times.judge(Completion { priority, is_refused, ..one }, timed);
                }
            };
            let Some(name) = &message.name else {
                if !has_workload {
                    judge(&mut unnamed[0]);
                } else if single.is_some_and(|single| single.at >= from) {
                    judge(&mut unnamed[message.priority.index()]);
                }
                continue;
            };
            let mut own = Self::empty(name.clone(), Some(message.priority));
            own.alone = single.map(|single| Alone {
                released: single.at,
                completed: single.done.filter(|_| !single.is_refused),
            });
            judge(&mut own);
            named.push(own);
        }
        unnamed.into_iter().filter(|times| times.released > 0).chain(named).collect()
    }

    /// Returns the samples of the completion time, in ms. Incomplete ones count as infinite if they
    /// are already slower than every completed one, as a message that has expired. Younger ones are
    /// left out, since they might still complete in time.
    pub fn samples(&self) -> impl Iterator<Item = f64> + '_ {
        let longest = self.done.iter().copied().fold(0.0, f64::max);
        let never = self.open.iter().filter(move |&&age| age > longest).map(|_| f64::INFINITY);
        self.done.iter().copied().chain(never)
    }
}

/// Results of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneOutcome {
    /// Nodes of the lane: `from>to`.
    pub name: String,
    /// Ack-eliciting packets sent.
    pub packets: u64,
    /// Payload of the sender's datagrams that arrived.
    pub bytes: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets that repeat data that was lost or stuck.
    pub repairs: u64,
    /// Smoothed round-trip time at the end, in ms.
    pub srtt: Option<f64>,
}

/// Results of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOutcome {
    /// Name of the link.
    pub name: String,
    /// True for the direction back.
    pub back: bool,
    /// Packets handed to it.
    pub offered: u64,
    /// Packets that arrived at the far end.
    pub delivered: u64,
    /// IP bytes that arrived at the far end.
    pub bytes: Bytes,
    /// Rate of these bytes in Mbit/s.
    pub throughput: f64,
    /// Share of the link's capacity used on the wire, framing included; `None` without a rate.
    pub utilisation: Option<f64>,
    /// Backlog of its queue.
    pub waiting: Waiting,
    /// Sojourn times of the packets that left its queue; `None` if none did.
    pub queue_delay: Option<DelaySummary>,
    /// Packets that its queue dropped.
    pub drops: u64,
    /// Packets larger than its MTU.
    pub too_big: u64,
    /// Packets that its queue marked.
    pub marks: u64,
    /// Packets that its wire lost.
    pub losses: u64,
    /// Copies of packets that its wire made.
    pub duplicates: u64,
    /// Share, in bytes, of responsive flows in the traffic offered to a queue that judges flows.
    /// `None` for other queues, or without traffic.
    pub responsive: Option<f64>,
}

/// Recorded series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesOutcome {
    /// Series as requested in the file.
    pub series: Series,
    /// Flow or link that it describes; of a flow, the instance.
    pub of: String,
    /// Name of the series: that of the file, with the instance in place of the flow.
    pub name: String,
    /// Times and values of the samples; `None` if there was no value.
    pub points: Vec<(Time, Option<f64>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overdue_samples_are_infinite_and_pending_ones_are_omitted() {
        let times = Times {
            name: "source-1".into(),
            priority: None,
            alone: None,
            released: 5,
            refused: 0,
            done: vec![3.0, 5.0, 4.0],
            open: vec![9.0, 2.0],
        };
        assert_eq!(times.samples().collect::<Vec<_>>(), [3.0, 5.0, 4.0, f64::INFINITY]);
    }
}
