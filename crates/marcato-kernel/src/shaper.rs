//! Two queues of a device behind one HTB, which share its rate: CRQ §III-B.

use std::fmt;

use marcato_queue::Class;
use marcato_units::{Duration, Rate};

/// Handle of the root queue; "c4" for CRQ. Its classes have it as their major number.
const MAJOR: u16 = 0x00c4;
/// Minor numbers of the classes: all, the standard queue's, the responsive queue's.
const ALL: u16 = 0x1;
const STANDARD: u16 = 0x10;
const RESPONSIVE: u16 = 0x20;

/// Discipline within a queue, of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// First in, first out, with a limit of one bandwidth-delay product.
    DropTail,
    /// CoDel (RFC 8289), which drops.
    Codel,
    /// CoDel, which marks packets that allow it.
    CodelEcn,
    /// FQ-CoDel (RFC 8290), which drops.
    FqCodel,
}

impl QueueKind {
    /// Name of the kernel's discipline.
    const fn discipline(self) -> &'static str {
        match self {
            Self::DropTail => "pfifo",
            Self::Codel | Self::CodelEcn => "codel",
            Self::FqCodel => "fq_codel",
        }
    }
}

/// Queues of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shaper {
    /// Rate of the link, below what the device can carry: otherwise the queue is elsewhere.
    pub rate: Rate,
    /// Percentage of the rate that the responsive queue has when both are busy, 1 to 99. What one
    /// queue leaves, the other takes.
    pub share: u8,
    /// Standard queue, in which every flow begins.
    pub standard: QueueKind,
    /// Queue of responsive flows.
    pub responsive: QueueKind,
    /// Round trip by which drop-tail queues are sized.
    pub round_trip: Duration,
}

/// Command of iproute2's `tc`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcCommand(pub Vec<String>);

impl TcCommand {
    fn new(words: &str) -> Self {
        Self(words.split_whitespace().map(str::to_owned).collect())
    }
}

impl fmt::Display for TcCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tc {}", self.0.join(" "))
    }
}

impl Shaper {
    /// Values of `skb->priority` that name the classes: standard, responsive.
    pub const fn priority(&self) -> [u32; 2] {
        [class(STANDARD), class(RESPONSIVE)]
    }

    /// Commands that set the queues up on a device, in place of its root queue.
    ///
    /// The classes have a parent, so that each borrows what the other leaves. Packets that no
    /// program has classified go to the standard queue, which may use the whole rate: without the
    /// programs, all traffic has one queue and the full rate.
    pub fn commands(&self, device: &str) -> Vec<TcCommand> {
        let bps = self.rate.as_bps();
        let part = |percent: u64| (bps / 100).saturating_mul(percent).max(8);
        let responsive = part(u64::from(self.share.clamp(1, 99)));
        let standard = part(100 - u64::from(self.share.clamp(1, 99)));
        // Two milliseconds of the link at least, and two packets: a timer of the kernel may be late.
        let burst = (bps / 8 / 500).max(3028);
        let class = |parent: &str, minor: u16, rate: u64| {
            TcCommand::new(&format!(
                "class replace dev {device} parent {parent} classid {MAJOR:x}:{minor:x} htb rate {rate}bit ceil {bps}bit burst {burst} cburst {burst}"
            ))
        };
        let root = format!("{MAJOR:x}:");
        let all = format!("{MAJOR:x}:{ALL:x}");
        let queue = |minor: u16, kind| self.queue(device, minor, kind);
        vec![
            TcCommand::new(&format!(
                "qdisc replace dev {device} root handle {root} htb default {STANDARD:x} r2q 1000"
            )),
            class(&root, ALL, bps),
            class(&all, STANDARD, standard),
            class(&all, RESPONSIVE, responsive),
            queue(STANDARD, self.standard),
            queue(RESPONSIVE, self.responsive),
        ]
    }

    fn queue(&self, device: &str, minor: u16, kind: QueueKind) -> TcCommand {
        let bytes = u128::from(self.rate.as_bps()) * self.round_trip.as_nanos() / 8_000_000_000;
        let packets = (bytes / 1500).clamp(20, 100_000);
        let kind = match kind {
            QueueKind::DropTail => format!("pfifo limit {packets}"),
            QueueKind::Codel => format!("codel limit {packets} noecn"),
            QueueKind::CodelEcn => format!("codel limit {packets} ecn"),
            QueueKind::FqCodel => "fq_codel noecn".to_owned(),
        };
        TcCommand::new(&format!(
            "qdisc replace dev {device} parent {MAJOR:x}:{minor:x} handle {:x}: {kind}",
            MAJOR << 8 | minor
        ))
    }

    /// Commands that change the queues of a device from `before` to these. Packets that wait in a
    /// queue whose kind changes are lost; others stay.
    pub fn changes(&self, device: &str, before: &Self) -> Vec<TcCommand> {
        // HTB itself has nothing to change, and the kernel refuses it.
        let mut commands = self.commands(device).split_off(1);
        let kinds =
            [(STANDARD, before.standard, self.standard), (RESPONSIVE, before.responsive, self.responsive)];
        for (minor, before, after) in kinds {
            if before.discipline() != after.discipline() {
                // A handle keeps its kind, so the queue has to go first.
                let gone = format!("qdisc del dev {device} parent {MAJOR:x}:{minor:x}");
                commands.insert(3, TcCommand::new(&gone));
            }
        }
        commands
    }

    /// Queue that belongs to the class of this name, if the class is one of these.
    pub fn class_of(name: &str) -> Option<Class> {
        [(STANDARD, Class::Standard), (RESPONSIVE, Class::Responsive)]
            .into_iter()
            .find(|(minor, _)| name == format!("{MAJOR:x}:{minor:x}"))
            .map(|(_, class)| class)
    }

    /// Returns whether a root queue with this handle is one of these.
    pub fn is_root(handle: &str) -> bool {
        handle.strip_suffix(':').and_then(|major| u16::from_str_radix(major, 16).ok()) == Some(MAJOR)
    }

    /// Command that removes the queues: the device gets the system's default queue.
    pub fn undo(device: &str) -> TcCommand {
        TcCommand::new(&format!("qdisc del dev {device} root handle {MAJOR:x}:"))
    }
}

const fn class(minor: u16) -> u32 {
    (MAJOR as u32) << 16 | minor as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPER: Shaper = Shaper {
        rate: Rate::from_mbps(50),
        share: 60,
        standard: QueueKind::DropTail,
        responsive: QueueKind::CodelEcn,
        round_trip: Duration::from_millis(100),
    };

    #[test]
    fn both_classes_borrow_from_one_parent_with_a_default() {
        let commands: Vec<String> = SHAPER.commands("wan").iter().map(ToString::to_string).collect();
        assert_eq!(
            commands,
            [
                "tc qdisc replace dev wan root handle c4: htb default 10 r2q 1000",
                "tc class replace dev wan parent c4: classid c4:1 htb rate 50000000bit ceil 50000000bit burst 12500 cburst 12500",
                "tc class replace dev wan parent c4:1 classid c4:10 htb rate 20000000bit ceil 50000000bit burst 12500 cburst 12500",
                "tc class replace dev wan parent c4:1 classid c4:20 htb rate 30000000bit ceil 50000000bit burst 12500 cburst 12500",
                "tc qdisc replace dev wan parent c4:10 handle c410: pfifo limit 416",
                "tc qdisc replace dev wan parent c4:20 handle c420: codel limit 416 ecn",
            ]
        );
        assert_eq!(SHAPER.priority(), [0x00c4_0010, 0x00c4_0020]);
        assert_eq!(Shaper::undo("wan").to_string(), "tc qdisc del dev wan root handle c4:");
        assert_eq!(
            ["c4:10", "c4:20", "c4:1", "1:10"].map(Shaper::class_of),
            [Some(Class::Standard), Some(Class::Responsive), None, None]
        );
        assert_eq!(["c4:", "c410:", "0:", "c4"].map(Shaper::is_root), [true, false, false, false]);
    }

    #[test]
    fn only_a_queue_of_another_kind_is_made_anew() {
        let texts = |after: Shaper| -> Vec<String> {
            after.changes("wan", &SHAPER).iter().map(ToString::to_string).collect()
        };
        let same = texts(Shaper { share: 50, responsive: QueueKind::Codel, ..SHAPER });
        assert!(
            same.iter().all(|command| !command.contains("root") && !command.contains(" del ")),
            "{same:?}"
        );
        assert_eq!(same[4], "tc qdisc replace dev wan parent c4:20 handle c420: codel limit 416 noecn");
        let other = texts(Shaper { standard: QueueKind::FqCodel, ..SHAPER });
        assert_eq!(other.len(), 6);
        assert_eq!(other[3], "tc qdisc del dev wan parent c4:10");
    }

    #[test]
    fn any_share_leaves_both_queues_some_rate() {
        for share in [0, 1, 99, 100, 255] {
            let shaper = Shaper { share, rate: Rate::from_bps(1000), ..SHAPER };
            for command in shaper.commands("wan") {
                assert!(!command.to_string().contains("rate 0bit"), "{command}");
            }
        }
    }
}
