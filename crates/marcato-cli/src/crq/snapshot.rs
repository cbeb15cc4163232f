//! State of CRQ on a device at one moment.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;

use marcato_kernel::{
    Attachment, ClassId, Counter, Device, FlowId, FlowState, Pinned, Queue, Seat, Shaper, Subscriber,
};
use marcato_queue::Class;
use marcato_queue::trap::{TrapKind, Verdict};
use marcato_report::{COMMIT, VERSION};
use marcato_units::{Rate, Time};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::note::Note;
use super::settings::Settings;
use super::{CrqError, remains};

/// State of CRQ on a device.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Snapshot {
    pub(super) version: &'static str,
    pub(super) commit: &'static str,
    pub(super) device: String,
    /// Seconds of the kernel's monotonic clock.
    pub(super) time_s: f64,
    pub(super) settings: Settings,
    /// Condition of the attachment, in words.
    pub(super) state: String,
    pub(super) queues: Vec<QueueRow>,
    /// Number of subscribers with a class.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscribers: Option<usize>,
    pub(super) counters: BTreeMap<&'static str, Count>,
    /// Number of flows with a state.
    pub(super) followed: usize,
    /// The largest flows, by bytes.
    pub(super) flows: Vec<FlowRow>,
    /// Number of flows by queue and verdicts on loss and marks.
    #[serde(skip)]
    pub(super) groups: BTreeMap<[&'static str; 3], u64>,
}

/// Packets and bytes of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

/// Queue of the device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct QueueRow {
    pub(super) name: &'static str,
    /// Class of somebody's tree that the queue is below, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) class: Option<String>,
    /// Subscriber that the queue belongs to, if there are any; `-` for packets of nobody.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) subscriber: Option<String>,
    /// Largest rate of the subscriber, in bit/s, beside the sum of its queues.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_bps: Option<u64>,
    pub(super) kind: String,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: u64,
    pub(super) marks: u64,
    pub(super) waiting_packets: u64,
    pub(super) waiting_bytes: u64,
}

/// Flow that is followed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct FlowRow {
    #[serde(skip)]
    pub(super) id: FlowId,
    pub(super) protocol: &'static str,
    /// Addresses and ports, if they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    pub(super) queue: &'static str,
    pub(super) on_loss: &'static str,
    pub(super) on_marks: &'static str,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) drops: u32,
    pub(super) marks: u32,
    pub(super) changes: u32,
    pub(super) cycles: u32,
    pub(super) rtt_ms: Option<f64>,
    pub(super) idle_s: f64,
}

/// Selection of flows in a snapshot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Selection {
    /// Largest number of flows; 0 for all.
    pub(crate) top: usize,
    /// Show addresses and ports.
    pub(crate) addresses: bool,
    /// Largest number of subscribers.
    pub(crate) subscribers: usize,
}

pub(super) const fn verdict_name(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Unclassified => "none",
        Verdict::Responsive => "responsive",
        Verdict::Unresponsive => "unresponsive",
    }
}

const fn queue_name(queue: Option<Class>) -> &'static str {
    match queue {
        Some(Class::Standard) => "standard",
        Some(Class::Responsive | Class::EcnResponsive) => "responsive",
        Some(Class::Young) => "young",
        None => "-",
    }
}

impl Snapshot {
    /// Reads the state of CRQ on a device.
    pub(super) fn take(device: &Device, pins: &Path, selection: Selection) -> Result<Self, CrqError> {
        let attachment = Attachment::open(pins, device)?;
        let note = Note::of(&attachment, device)?;
        let subscribers = match note.settings.subscribers {
            None => Vec::new(),
            Some(_) => attachment.subscribers()?,
        };
        let mut counters = BTreeMap::new();
        for counter in Counter::ALL {
            let tally = attachment.counter(counter)?;
            counters.insert(counter.name(), Count { packets: tally.packets, bytes: tally.bytes });
        }
        let clock = clock_gettime(ClockId::Monotonic);
        let nanos = u64::try_from(clock.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(clock.tv_nsec).unwrap_or(0);
        let now = Time::from_nanos(nanos);
        let (mut flows, mut groups) = (Vec::new(), BTreeMap::new());
        for (id, state) in attachment.flows() {
            let row = FlowRow::new(id, &state, now, selection.addresses);
            *groups.entry([row.queue, row.on_loss, row.on_marks]).or_default() += 1;
            flows.push(row);
        }
        let followed = flows.len();
        flows.sort_by_key(|flow| std::cmp::Reverse((flow.bytes, flow.id)));
        let mut snapshot = Self {
            version: VERSION,
            commit: COMMIT,
            device: device.name.clone(),
            time_s: now.since(Time::ZERO).as_secs_f64(),
            state: Pinned::of(pins, device)
                .map_or(String::new(), |pinned| remains::state(&pinned, Some(&note))),
            subscribers: note.settings.subscribers.as_ref().map(|_| subscribers.len()),
            queues: match note.settings.subscribers {
                None => QueueRow::all(Queue::all(&device.name)?, &note.seats),
                Some(_) => QueueRow::of_subscribers(Queue::all(&device.name)?, &subscribers),
            },
            settings: note.settings,
            counters,
            followed,
            flows,
            groups,
        };
        snapshot.show(selection);
        Ok(snapshot)
    }

    /// Leaves out flows and subscribers beyond so many as are to be shown.
    pub(super) fn show(&mut self, selection: Selection) {
        let mut names = std::collections::BTreeSet::new();
        self.queues.retain(|row| match &row.subscriber {
            None => true,
            Some(name) if names.contains(name) => true,
            Some(name) => names.len() < selection.subscribers && names.insert(name.clone()),
        });
        if selection.top > 0 {
            self.flows.truncate(selection.top);
        }
    }

    /// Leaves out the queues of other subscribers. Returns whether there is one of this name.
    pub(super) fn only(&mut self, name: &str) -> bool {
        self.queues.retain(|row| row.subscriber.as_ref().is_none_or(|of| of == name));
        self.queues.iter().any(|row| row.subscriber.is_some())
    }

    pub(super) fn count(&self, counter: Counter) -> Count {
        self.counters.get(counter.name()).copied().unwrap_or_default()
    }
}

impl QueueRow {
    /// Returns the rows of the queues of a device. Queues of classes that are not CRQ's are left out.
    fn all(queues: Vec<Queue>, seats: &[Seat]) -> Vec<Self> {
        let class = |handle: u16| seats.iter().find(|seat| seat.handle == handle).map(|seat| seat.class);
        let mut rows: Vec<Self> =
            queues.into_iter().filter_map(|queue| Self::new(queue, &class, seats)).collect();
        // Those of a class stand together.
        let place = |row: &Self| {
            row.class.as_ref().map(|name| seats.iter().position(|it| it.class.to_string() == *name))
        };
        rows.sort_by_key(place);
        rows
    }

    /// Returns the rows of a device with subscribers, those who sent most first.
    fn of_subscribers(queues: Vec<Queue>, subscribers: &[Subscriber]) -> Vec<Self> {
        let others = Subscriber {
            name: "-".to_owned(),
            handle: Subscriber::OTHERS,
            min: Rate::default(),
            max: Rate::default(),
        };
        let all = subscribers.iter().chain([&others]);
        let seats: Vec<Seat> = all.clone().map(Subscriber::seat).collect();
        let by_class: HashMap<String, &Subscriber> =
            all.map(|it| (it.seat().class.to_string(), it)).collect();
        let by_handle: HashMap<u16, Seat> = seats.iter().map(|seat| (seat.handle, seat.clone())).collect();
        let class = |handle: u16| by_handle.get(&handle).map(|seat| seat.class);
        let row = |queue: Queue| {
            let own = queue.parent.as_deref().and_then(|parent| by_class.get(parent));
            let seat: Vec<Seat> = own.map(|it| it.seat()).into_iter().collect();
            let mut row = Self::new(queue, &class, &seat)?;
            if let Some(subscriber) = row.class.take().and_then(|class| by_class.get(&class)) {
                row.subscriber = Some(subscriber.name.clone());
                let is_whole = row.name == "all" && subscriber.handle != Subscriber::OTHERS;
                row.max_bps = is_whole.then(|| subscriber.max.as_bps());
            }
            Some(row)
        };
        let mut rows: Vec<Self> = queues.into_iter().filter_map(row).collect();
        let bytes: HashMap<Option<String>, u64> = rows
            .iter()
            .filter(|row| row.name == "all")
            .map(|row| (row.subscriber.clone(), row.bytes))
            .collect();
        rows.sort_by_key(|row| {
            let sent = bytes.get(&row.subscriber).copied().unwrap_or(0);
            (row.subscriber.is_some(), std::cmp::Reverse(sent), row.subscriber.clone(), row.name != "all")
        });
        rows
    }

    fn new(queue: Queue, class: &dyn Fn(u16) -> Option<ClassId>, seats: &[Seat]) -> Option<Self> {
        let parent = queue.parent.as_deref().unwrap_or_default();
        let whole = seats.iter().find(|seat| seat.is(&queue)).map(|seat| seat.class);
        let (name, class) = match (queue.parent.as_deref(), Shaper::class_of(parent), whole) {
            (None, ..) => ("root", None),
            (Some(_), _, Some(class)) => ("all", Some(class)),
            (Some(_), Some((handle, of)), None) => {
                let name = match of {
                    Class::Standard => "standard",
                    Class::Young => "young",
                    Class::Responsive | Class::EcnResponsive => "responsive",
                };
                (name, class(handle))
            }
            (Some(_), None, None) => return None,
        };
        Some(Self {
            name,
            class: class.map(|class| class.to_string()),
            subscriber: None,
            max_bps: None,
            kind: queue.kind,
            packets: queue.packets,
            bytes: queue.bytes,
            drops: queue.drops,
            marks: queue.marks,
            waiting_packets: queue.qlen,
            waiting_bytes: queue.backlog.get(),
        })
    }
}

impl FlowRow {
    fn new(id: FlowId, state: &FlowState, now: Time, addresses: bool) -> Self {
        let tuple = addresses.then(|| id.tuple());
        let place = |address, port| std::net::SocketAddr::new(address, port).to_string();
        Self {
            id,
            protocol: match state.kind {
                Some(TrapKind::Tcp) => "tcp",
                Some(TrapKind::Spin) => "quic",
                None => "-",
            },
            from: tuple.map(|flow| place(flow.source, flow.source_port)),
            to: tuple.map(|flow| place(flow.destination, flow.destination_port)),
            queue: queue_name(state.queue),
            on_loss: verdict_name(state.verdicts[0]),
            on_marks: verdict_name(state.verdicts[1]),
            packets: state.packets,
            bytes: state.bytes,
            drops: state.signals[0],
            marks: state.signals[1],
            changes: state.changes,
            cycles: state.cycles,
            rtt_ms: state.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
            idle_s: if state.packets == 0 { 0.0 } else { now.since(state.seen).as_secs_f64() },
        }
    }
}
