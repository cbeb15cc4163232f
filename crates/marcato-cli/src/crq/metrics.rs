//! Snapshots in the text format of Prometheus. No address of a flow is in it.

use marcato_kernel::Counter;
use prometheus_client::encoding::text;
use prometheus_client::metrics::counter::Counter as Total;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::snapshot::Snapshot;

/// Names of a series, with their values.
type Labels = Vec<(&'static str, String)>;

/// Families that are written for every device.
#[derive(Default)]
struct Families {
    queue_packets: Family<Labels, Total>,
    queue_bytes: Family<Labels, Total>,
    queue_drops: Family<Labels, Total>,
    queue_marks: Family<Labels, Total>,
    queue_waiting: Family<Labels, Gauge>,
    verdict_packets: Family<Labels, Total>,
    verdict_bytes: Family<Labels, Total>,
    signals: Family<Labels, Total>,
    events: Family<Labels, Total>,
    flows: Family<Labels, Gauge>,
    settings: Family<Labels, Gauge>,
}

impl Families {
    fn add(&self, snapshot: &Snapshot) {
        let device = ("device", snapshot.device.clone());
        let with = |labels: &[(&'static str, &str)]| -> Labels {
            let labels = labels.iter().map(|(name, value)| (*name, (*value).to_owned()));
            std::iter::once(device.clone()).chain(labels).collect()
        };
        self.settings.get_or_create(&settings(snapshot)).set(1);
        for queue in &snapshot.queues {
            let mut labels = with(&[("queue", queue.name), ("kind", &queue.kind)]);
            labels.extend(queue.class.clone().map(|class| ("class", class)));
            labels.extend(queue.subscriber.clone().map(|name| ("subscriber", name)));
            for (family, value) in [
                (&self.queue_packets, queue.packets),
                (&self.queue_bytes, queue.bytes),
                (&self.queue_drops, queue.drops),
                (&self.queue_marks, queue.marks),
            ] {
                family.get_or_create(&labels).inc_by(value);
            }
            self.queue_waiting.get_or_create(&labels).set(gauge(queue.waiting_bytes));
        }
        for (signal, verdict, counter) in [
            ("loss", "none", Counter::LossUnclassified),
            ("loss", "responsive", Counter::LossResponsive),
            ("loss", "unresponsive", Counter::LossUnresponsive),
            ("marks", "none", Counter::EcnUnclassified),
            ("marks", "responsive", Counter::EcnResponsive),
            ("marks", "unresponsive", Counter::EcnUnresponsive),
        ] {
            let (labels, count) =
                (with(&[("signal", signal), ("verdict", verdict)]), snapshot.count(counter));
            self.verdict_packets.get_or_create(&labels).inc_by(count.packets);
            self.verdict_bytes.get_or_create(&labels).inc_by(count.bytes);
        }
        for (signal, counter) in
            [("loss", Counter::Drops), ("marks", Counter::Marks), ("unknown", Counter::UnknownSignals)]
        {
            let count = snapshot.count(counter).packets;
            self.signals.get_or_create(&with(&[("signal", signal)])).inc_by(count);
        }
        for counter in [
            Counter::Unassessed,
            Counter::Unreadable,
            Counter::Contended,
            Counter::FlowsAdded,
            Counter::MapFull,
            Counter::Changes,
            Counter::Outgrown,
        ] {
            let labels = with(&[("event", counter.name())]);
            self.events.get_or_create(&labels).inc_by(snapshot.count(counter).packets);
        }
        for ([queue, on_loss, on_marks], count) in &snapshot.groups {
            let labels = with(&[("queue", queue), ("on_loss", on_loss), ("on_marks", on_marks)]);
            self.flows.get_or_create(&labels).set(gauge(*count));
        }
    }

    fn register(self, registry: &mut Registry) {
        registry.register("queue_packets", "Packets that left a queue", self.queue_packets);
        registry.register("queue_bytes", "Bytes that left a queue", self.queue_bytes);
        registry.register("queue_drops", "Packets that a queue dropped", self.queue_drops);
        registry.register("queue_marks", "Packets that a queue marked", self.queue_marks);
        registry.register("queue_waiting_bytes", "Bytes that wait in a queue", self.queue_waiting);
        registry.register("verdict_packets", "Packets by their flow's verdict", self.verdict_packets);
        registry.register("verdict_bytes", "Bytes by their flow's verdict", self.verdict_bytes);
        registry.register("signals", "Drops and marks that were booked", self.signals);
        registry.register("events", "Packets and flows that are no usual case", self.events);
        registry.register("flows", "Flows that are followed", self.flows);
        registry.register("settings_info", "Settings of a device, and where its programs are", self.settings);
    }
}

/// Labels of a device with its settings. All have a value: that of the default where nothing was set.
fn settings(snapshot: &Snapshot) -> Labels {
    let mut labels = vec![("device", snapshot.device.clone()), ("state", snapshot.state.clone())];
    labels.extend(snapshot.settings.labels());
    labels.push(("version", snapshot.version.to_owned()));
    labels
}

fn gauge(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// Returns all values of these devices as text.
pub(super) fn encode(snapshots: &[Snapshot]) -> String {
    let families = Families::default();
    snapshots.iter().for_each(|snapshot| families.add(snapshot));
    let mut registry = Registry::with_prefix("marcato_crq");
    families.register(&mut registry);
    let mut out = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// Returns a text of OpenMetrics in the older format 0.0.4 of Prometheus: there a counter's family has the name of its
/// series, and the text has no end mark.
pub(super) fn classic(text: &str) -> String {
    let counters: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        match (words.next(), words.next(), words.next(), words.next()) {
            (Some("#"), Some("EOF" | "UNIT"), ..) => continue,
            (Some("#"), Some(word), Some(name), Some(rest)) if counters.contains(&name) => {
                out += &format!("# {word} {name}_total {rest}");
            }
            _ => out += line,
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn counters_have_one_name_in_the_classic_format() {
        let open = "# HELP a_packets Packets.\n# TYPE a_packets counter\na_packets_total{device=\"wan\"} 6\n\
                    # HELP a_waiting_bytes Bytes.\n# TYPE a_waiting_bytes gauge\na_waiting_bytes 0\n# EOF\n";
        let classic = "# HELP a_packets_total Packets.\n# TYPE a_packets_total counter\na_packets_total{device=\"wan\"} 6\n\
                       # HELP a_waiting_bytes Bytes.\n# TYPE a_waiting_bytes gauge\na_waiting_bytes 0\n";
        assert_eq!(super::classic(open), classic);
    }
}
