//! What became of a world.

use std::ops::Sub;

use marcato_scenario::record::Series;
use marcato_scenario::traffic::Message;
use marcato_units::{Bytes, Duration, Priority, Time};

use super::group::GroupOutcome;
use super::warning::Warning;
use crate::DelaySummary;

/// What became of a world: from the end of the warm-up to the end of the run, unless it is said otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Events that the simulator processed, over the whole run.
    pub events: u64,
    /// How long was measured.
    pub span: Duration,
    /// The flows, each instance on its own, in the experiment's order.
    pub flows: Vec<FlowOutcome>,
    /// What flows with several instances and processes did together, in the experiment's order.
    pub groups: Vec<GroupOutcome>,
    /// The links, first there and then back, in the experiment's order.
    pub links: Vec<LinkOutcome>,
    /// What was recorded, over the whole run, in the experiment's order.
    pub series: Vec<SeriesOutcome>,
    /// Signs that the run did not do what the experiment meant: of the flows, and then of the links, in its order.
    pub warnings: Vec<Warning>,
}

/// What became of a flow.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowOutcome {
    /// Its name.
    pub name: String,
    /// Its kind, as a file has it.
    pub kind: &'static str,
    /// When it began.
    pub start: Time,
    /// When all that it had to send had arrived; `None` if that never came, or it has no end.
    pub finished: Option<Time>,
    /// Payload that the receiving application got; of a request-response flow, the answers.
    pub bytes: Bytes,
    /// The same in Mbit/s over the time that the flow lasted: from its beginning or the warm-up's end, to its end or stop, but
    /// no earlier than its last byte arrived, or to the run's end.
    pub goodput: f64,
    /// Packets that the sending end sent.
    pub sent: u64,
    /// Of the packets that either end sent: those that a queue dropped or a wire lost.
    pub losses: u64,
    /// Segments or packets that repeat what was lost.
    pub retransmissions: u64,
    /// Expiries of TCP's retransmission timer.
    pub timeouts: u64,
    /// The mean of the round-trip times that TCP measured, in ms; of QUIC the smoothed one of the fastest lane, looked at every
    /// 10 ms. `None` of UDP and of processes.
    pub rtt: Option<f64>,
    /// What 95 % of them do not exceed. TCP.
    pub rtt_p95: Option<f64>,
    /// The least of the whole run, in ms. TCP.
    pub min_rtt: Option<f64>,
    /// The mean one-way delay of the packets of the sending end that arrived, in ms. Not of processes.
    pub delay: Option<f64>,
    /// What 95 % of these do not exceed.
    pub delay_p95: Option<f64>,
    /// Completion times: of the transfer, of each transfer or answer, or of the messages of each source.
    pub times: Vec<Times>,
    /// The low layer, of a TCP that has one. Not of processes.
    pub low: Option<LowLayerOutcome>,
    /// The lanes, of QUIC.
    pub lanes: Vec<LaneOutcome>,
}

impl FlowOutcome {
    /// Completion times of all but bulk data, as they are to be [judged](Times::samples), in ms. Single messages are judged
    /// together, so a name changes nothing.
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

/// What became of the low layer of a flow's sending end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LowLayerOutcome {
    /// Packets with data that it sent.
    pub packets: u64,
    /// Of these, those that it took for lost.
    pub lost: u64,
    /// Segments of the high layer that repeat what the low one had lost.
    pub repairs: u64,
    /// Payload that came first by the low layer, in whatever order.
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

/// Instants of a transfer or message, from the run's beginning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alone {
    /// When it was released.
    pub released: Time,
    /// When it was complete; `None` if that never came.
    pub completed: Option<Time>,
}

/// Completion times of things of one kind. Only what began after the warm-up counts, except for single transfers and
/// single messages, which always count.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// What: `transfer`, `response`, `source-1`, `messages`, `bulk-1` and so on, or the name of a message.
    pub name: String,
    /// How much they matter.
    pub priority: Option<Priority>,
    /// Instants of the one thing that the line is about: a single transfer, or a message with a name.
    pub alone: Option<Alone>,
    /// How many were released.
    pub released: u64,
    /// Of those, how many were refused, because too much waited already.
    pub refused: u64,
    /// How long each took that was completed, in ms, in the order in which they were released.
    pub done: Vec<f64>,
    /// How long each has been under way that was not completed when the run ended, in ms.
    pub open: Vec<f64>,
}

/// A single message, as it was released.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    /// When it was released.
    pub(super) at: Time,
    pub(super) is_refused: bool,
    /// When its last byte arrived.
    pub(super) done: Option<Time>,
}

/// One thing whose completion was timed: a transfer, an answer, or a message. [`Times`] counts exactly these.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Completion<'a> {
    /// The flow's name.
    pub flow: &'a str,
    /// The kind of thing, as [`Times::name`] has it.
    pub what: &'a str,
    /// Its priority, where it has one.
    pub priority: Option<Priority>,
    /// Its length.
    pub size: Bytes,
    /// The time from which it counts.
    pub start: Time,
    /// The time at which it was complete; `None` if it was not when the run ended.
    pub end: Option<Time>,
    /// Whether it was refused, because too much waited already.
    pub is_refused: bool,
}

/// Receives the completions of one flow up to a time.
pub(super) struct Timed<'a> {
    pub(super) flow: &'a str,
    pub(super) until: Time,
    pub(super) each: &'a mut dyn FnMut(&Completion<'_>),
}

impl Completion<'_> {
    /// One that began at `start` and ended at `end`, if it did.
    pub(super) const fn of(size: Bytes, start: Time, end: Option<Time>) -> Self {
        Self { flow: "", what: "", priority: None, size, start, end, is_refused: false }
    }
}

impl Times {
    pub(super) const fn empty(name: String, priority: Option<Priority>) -> Self {
        Self { name, priority, alone: None, released: 0, refused: 0, done: Vec::new(), open: Vec::new() }
    }

    /// Counts `one`, whose flow and kind are filled in, and hands it on.
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

    /// Completion times of single messages: those without a name on one line, if there are any, and a line for each that
    /// has one. `singles` are those of `messages` that were released so far, in the same order.
    pub(super) fn of_singles(messages: &[Message], singles: &[Single], timed: &mut Timed<'_>) -> Vec<Self> {
        let mut unnamed = Self::empty("messages".into(), None);
        let mut named = Vec::new();
        for (place, message) in messages.iter().enumerate() {
            let single = singles.get(place);
            let mut judge = |times: &mut Self| {
                if let Some(&Single { at, is_refused, done }) = single {
                    let priority = Some(message.priority);
                    let one = Completion::of(message.size, at, done);
                    times.judge(Completion { priority, is_refused, ..one }, timed);
                }
            };
            let Some(name) = &message.name else {
                judge(&mut unnamed);
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
        let unnamed = (unnamed.released > 0).then_some(unnamed);
        unnamed.into_iter().chain(named).collect()
    }

    /// The times as they are to be judged, in ms. What has been under way for longer than anything took that came is
    /// infinite, for example a message that has expired; what has been under way for less is left out, since it might
    /// still have come in time.
    pub fn samples(&self) -> impl Iterator<Item = f64> + '_ {
        let longest = self.done.iter().copied().fold(0.0, f64::max);
        let never = self.open.iter().filter(move |&&age| age > longest).map(|_| f64::INFINITY);
        self.done.iter().copied().chain(never)
    }
}

/// What became of a lane.
#[derive(Clone, Debug, PartialEq)]
pub struct LaneOutcome {
    /// Its nodes: `from>to`.
    pub name: String,
    /// Packets that had to be acknowledged.
    pub packets: u64,
    /// Payload of datagrams that arrived, of the sender's.
    pub bytes: Bytes,
    /// Packets declared lost.
    pub lost: u64,
    /// Packets that repeat what was lost or stuck.
    pub repairs: u64,
    /// The smoothed round-trip time at the end, in ms.
    pub srtt: Option<f64>,
}

/// What waited before a transmitter.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Waiting {
    /// Packets, on average over time.
    pub mean_packets: f64,
    /// Bytes, on average over time.
    pub mean_bytes: f64,
    /// Packets, at most.
    pub most_packets: u64,
    /// Bytes, at most.
    pub most_bytes: Bytes,
}

/// What became of one direction of a link.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkOutcome {
    /// The link's name.
    pub name: String,
    /// Whether it is the direction back.
    pub back: bool,
    /// Packets handed to it.
    pub offered: u64,
    /// Packets that came out at the far end.
    pub delivered: u64,
    /// IP bytes that came out at the far end.
    pub bytes: Bytes,
    /// The same in Mbit/s.
    pub throughput: f64,
    /// The share of what the link could carry that was put on the wire, framing included; `None` without a rate.
    pub utilisation: Option<f64>,
    /// What waited.
    pub waiting: Waiting,
    /// How long the packets waited that left its queue; `None` if none did.
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
    /// Where the queue judges flows: of what came to it, the share in bytes that came of flows which answer congestion
    /// signals. `None` if nothing came.
    pub responsive: Option<f64>,
}

/// A recorded series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesOutcome {
    /// What the file asked for.
    pub series: Series,
    /// The flow or link that it is of; of a flow the instance.
    pub of: String,
    /// Its name: that of the file, with the instance's in the flow's place.
    pub name: String,
    /// When it was looked at, and what was seen; `None` if there was nothing to see.
    pub points: Vec<(Time, Option<f64>)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_overdue_is_infinite_and_what_may_still_come_is_left_out() {
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
