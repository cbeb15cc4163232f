//! Queues of a device behind one HTB, which share its rate: CRQ §III-B, and a place for young flows.

use std::fmt;

use marcato_queue::Class;
use marcato_units::{Duration, Rate};

use crate::device::Device;

/// Handle of the root queue; "c4" for CRQ. Its classes have it as their major number.
const MAJOR: u16 = 0x00c4;
/// Minor numbers of the classes: all, the standard queue's, the responsive queue's.
const ALL: u16 = 0x1;
const STANDARD: u16 = 0x10;
const RESPONSIVE: u16 = 0x20;
/// Minor number of the class of young flows, if they have a place.
const YOUNG: u16 = 0x30;

/// Bytes of an Ethernet header.
const LINK_HEADER: u64 = 14;
/// Most that a class may send before the other one has its turn, unless a packet is larger.
const MOST_QUANTUM: u64 = 60_000;
/// Least limit of a drop-tail queue, in bytes: a packet of 64 kB that offloads made has to fit, with the headers
/// of its segments, or it would never pass.
const LEAST_BYTES: u128 = 80_000;
/// Most packets in CoDel's queue, Linux's own default. CoDel has no limit in bytes, and each packet may be one
/// of 64 kB: they then take 66 MB.
const MOST_PACKETS: u128 = 1000;

/// Discipline within a queue, of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueKind {
    /// First in, first out, with a limit of one bandwidth-delay product in bytes.
    DropTail,
    /// CoDel (RFC 8289), which drops.
    Codel,
    /// CoDel, which marks packets that allow it.
    CodelEcn,
    /// FQ-CoDel (RFC 8290), which drops.
    FqCodel,
}

impl QueueKind {
    /// Number of the kernel's discipline, by which handles of queues differ. A handle keeps its discipline: a queue of
    /// another one needs another handle, and then takes the place of the first in one step, or not at all.
    const fn discipline(self) -> u16 {
        match self {
            Self::DropTail => 0,
            Self::Codel | Self::CodelEcn => 1,
            Self::FqCodel => 2,
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
    /// Place for flows that are young or sparse. `None`: every flow begins in the standard queue.
    pub young: Option<YoungQueue>,
}

/// Queue for flows that are young or sparse. It is served first, up to its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct YoungQueue {
    /// Percentage of the rate that the queue has before the others, 1 to 90. The others share the
    /// rest, and take what this queue leaves.
    pub share: u8,
    /// Discipline.
    pub kind: QueueKind,
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

    /// Value of `skb->priority` that names the class of young flows.
    pub const fn young_priority(&self) -> u32 {
        class(YOUNG)
    }

    /// Commands that set the queues up on a device, in place of its root queue.
    ///
    /// The classes have a parent, so that each borrows what the other leaves. Packets that no
    /// program has classified go to the standard queue, which may use the whole rate: without the
    /// programs, all traffic has one queue and the full rate.
    pub fn commands(&self, device: &Device) -> Vec<TcCommand> {
        let Device { name, .. } = device;
        let packet = device.mtu.get().saturating_add(LINK_HEADER);
        let bps = self.rate.as_bps();
        let part = |of: u64, percent: u64| (of / 100).saturating_mul(percent).max(8);
        let young = self.young.map_or(0, |young| part(bps, u64::from(young.share.clamp(1, 90))));
        let shares = |of: u64| {
            let share = u64::from(self.share.clamp(1, 99));
            [part(of, 100 - share), part(of, share)]
        };
        let [standard, responsive] = shares(bps - young);
        // Two milliseconds of the link at least, and two packets: a timer of the kernel may be late.
        let burst = (bps / 8 / 500).max(2 * packet);
        // A millisecond of the class. With less than a packet, HTB would take turns by packets and not by bytes.
        let quantum = |rate: u64| (rate / 8 / 1000).clamp(packet, MOST_QUANTUM.max(packet));
        // What young flows leave is divided by quanta alone: these have to be in the ratio of the shares.
        let quanta = match self.young {
            None => [quantum(standard), quantum(responsive)],
            Some(_) => {
                let whole = shares(bps);
                let least = whole[0].min(whole[1]);
                let unit = quantum(least);
                whole.map(|rate| {
                    let quantum = u128::from(unit) * u128::from(rate) / u128::from(least);
                    u64::try_from(quantum).unwrap_or(u64::MAX).clamp(packet, MOST_QUANTUM.max(packet))
                })
            }
        };
        let prio = |prio: u8| self.young.map_or(String::new(), |_| format!(" prio {prio}"));
        let class = |parent: &str, minor: u16, rate: u64, quantum: u64, prio: &str| {
            TcCommand::new(&format!(
                "class replace dev {name} parent {parent} classid {MAJOR:x}:{minor:x} htb rate {rate}bit ceil {bps}bit burst {burst} cburst {burst} quantum {quantum}{prio}"
            ))
        };
        let root = format!("{MAJOR:x}:");
        let all = format!("{MAJOR:x}:{ALL:x}");
        let queue = |minor: u16, kind| self.queue(name, minor, kind);
        let mut commands = vec![
            TcCommand::new(&format!("qdisc replace dev {name} root handle {root} htb default {STANDARD:x}")),
            class(&root, ALL, bps, quantum(bps), ""),
            class(&all, STANDARD, standard, quanta[0], &prio(1)),
            class(&all, RESPONSIVE, responsive, quanta[1], &prio(1)),
        ];
        commands.extend(self.young.map(|_| class(&all, YOUNG, young, quantum(young), &prio(0))));
        commands.extend([queue(STANDARD, self.standard), queue(RESPONSIVE, self.responsive)]);
        commands.extend(self.young.map(|young| queue(YOUNG, young.kind)));
        commands
    }

    fn queue(&self, device: &str, minor: u16, kind: QueueKind) -> TcCommand {
        let product = u128::from(self.rate.as_bps()) * self.round_trip.as_nanos() / 8_000_000_000;
        // The kernel's limits have 32 bits.
        let bytes = product.clamp(LEAST_BYTES, u128::from(u32::MAX));
        let packets = (product / 1500).clamp(20, MOST_PACKETS);
        let handle = MAJOR << 8 | minor | kind.discipline();
        let kind = match kind {
            QueueKind::DropTail => format!("bfifo limit {bytes}"),
            QueueKind::Codel => format!("codel limit {packets} noecn"),
            QueueKind::CodelEcn => format!("codel limit {packets} ecn"),
            QueueKind::FqCodel => "fq_codel noecn".to_owned(),
        };
        TcCommand::new(&format!(
            "qdisc replace dev {device} parent {MAJOR:x}:{minor:x} handle {handle:x}: {kind}"
        ))
    }

    /// Commands that change the queues of a device to these. Packets that wait in a queue whose kind changes
    /// are lost; others stay. A command that the kernel refuses changes nothing.
    pub fn changes(&self, device: &Device) -> Vec<TcCommand> {
        // HTB itself has nothing to change, and the kernel refuses it.
        self.commands(device).split_off(1)
    }

    /// Commands that remove what `before` has and these queues have not. They come last, when no program names it any
    /// more.
    pub fn removals(&self, device: &Device, before: &Self) -> Vec<TcCommand> {
        let gone = format!("class del dev {} classid {MAJOR:x}:{YOUNG:x}", device.name);
        let is_gone = before.young.is_some() && self.young.is_none();
        is_gone.then(|| TcCommand::new(&gone)).into_iter().collect()
    }

    /// Time that the link takes for the largest packet that offloads make for a device; `None` if they make none.
    pub fn largest_takes(&self, device: &Device) -> Option<Duration> {
        (device.largest > device.mtu).then(|| self.rate.transmission_time(device.largest))
    }

    /// Queue that belongs to the class of this name, if the class is one of these.
    pub fn class_of(name: &str) -> Option<Class> {
        [(STANDARD, Class::Standard), (RESPONSIVE, Class::Responsive), (YOUNG, Class::Young)]
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
    use marcato_units::Bytes;

    use super::*;

    const SHAPER: Shaper = Shaper {
        rate: Rate::from_mbps(50),
        share: 60,
        standard: QueueKind::DropTail,
        responsive: QueueKind::CodelEcn,
        round_trip: Duration::from_millis(100),
        young: None,
    };

    fn wan() -> Device {
        let (mtu, largest) = (Bytes::new(1500), Bytes::new(65_536));
        Device {
            name: "wan".to_owned(),
            ifindex: 3,
            netns: 4,
            ethernet: true,
            queues: 1,
            mtu,
            largest,
            ifb: false,
        }
    }

    #[test]
    fn both_classes_borrow_from_one_parent_with_a_default() {
        let commands: Vec<String> = SHAPER.commands(&wan()).iter().map(ToString::to_string).collect();
        assert_eq!(
            commands,
            [
                "tc qdisc replace dev wan root handle c4: htb default 10",
                "tc class replace dev wan parent c4: classid c4:1 htb rate 50000000bit ceil 50000000bit burst 12500 cburst 12500 quantum 6250",
                "tc class replace dev wan parent c4:1 classid c4:10 htb rate 20000000bit ceil 50000000bit burst 12500 cburst 12500 quantum 2500",
                "tc class replace dev wan parent c4:1 classid c4:20 htb rate 30000000bit ceil 50000000bit burst 12500 cburst 12500 quantum 3750",
                "tc qdisc replace dev wan parent c4:10 handle c410: bfifo limit 625000",
                "tc qdisc replace dev wan parent c4:20 handle c421: codel limit 416 ecn",
            ]
        );
        assert_eq!(SHAPER.priority(), [0x00c4_0010, 0x00c4_0020]);
        assert_eq!(Shaper::undo("wan").to_string(), "tc qdisc del dev wan root handle c4:");
        assert_eq!(
            ["c4:10", "c4:20", "c4:30", "c4:1", "1:10"].map(Shaper::class_of),
            [Some(Class::Standard), Some(Class::Responsive), Some(Class::Young), None, None]
        );
        assert_eq!(["c4:", "c410:", "0:", "c4"].map(Shaper::is_root), [true, false, false, false]);
    }

    #[test]
    fn only_a_queue_of_another_kind_is_made_anew() {
        let texts = |after: Shaper| -> Vec<String> {
            after.changes(&wan()).iter().map(ToString::to_string).collect()
        };
        let same = texts(Shaper { share: 50, responsive: QueueKind::Codel, ..SHAPER });
        assert!(
            same.iter().all(|command| !command.contains("root") && !command.contains(" del ")),
            "{same:?}"
        );
        assert_eq!(same[4], "tc qdisc replace dev wan parent c4:20 handle c421: codel limit 416 noecn");
        let other = texts(Shaper { standard: QueueKind::FqCodel, ..SHAPER });
        assert_eq!(other[3], "tc qdisc replace dev wan parent c4:10 handle c412: fq_codel noecn");
    }

    const YOUNG_FIRST: Shaper =
        Shaper { young: Some(YoungQueue { share: 75, kind: QueueKind::FqCodel }), ..SHAPER };

    #[test]
    fn young_flows_go_first_and_the_others_keep_a_part() {
        let commands: Vec<String> = YOUNG_FIRST.commands(&wan()).iter().map(ToString::to_string).collect();
        let class = |minor: &str, rate: &str, quantum: u32, prio: u32| {
            format!(
                "tc class replace dev wan parent c4:1 classid c4:{minor} htb rate {rate}bit ceil 50000000bit burst 12500 cburst 12500 quantum {quantum} prio {prio}"
            )
        };
        // A quarter is shared as 40 to 60, and so is what young flows leave, by quanta.
        assert_eq!(commands[2], class("10", "5000000", 2500, 1));
        assert_eq!(commands[3], class("20", "7500000", 3750, 1));
        assert_eq!(commands[4], class("30", "37500000", 4687, 0));
        assert_eq!(commands[7], "tc qdisc replace dev wan parent c4:30 handle c432: fq_codel noecn");
        assert_eq!((commands.len(), YOUNG_FIRST.young_priority()), (8, 0x00c4_0030));
    }

    #[test]
    fn the_place_for_young_flows_comes_and_goes_with_its_class() {
        let texts =
            |commands: Vec<TcCommand>| -> Vec<String> { commands.iter().map(ToString::to_string).collect() };
        let come = texts(YOUNG_FIRST.changes(&wan()));
        assert!(come.iter().any(|command| command.contains("classid c4:30 ")), "{come:?}");
        assert!(texts(SHAPER.changes(&wan())).iter().all(|command| !command.contains("c4:30")));
        assert_eq!(YOUNG_FIRST.removals(&wan(), &SHAPER), []);
        assert_eq!(YOUNG_FIRST.removals(&wan(), &YOUNG_FIRST), []);
        assert_eq!(texts(SHAPER.removals(&wan(), &YOUNG_FIRST)), ["tc class del dev wan classid c4:30"]);
    }

    #[test]
    fn every_class_takes_turns_by_an_mtu_and_no_more_than_60_kb() {
        let quanta = |mbps, mtu| -> Vec<u64> {
            let shaper = Shaper { rate: Rate::from_mbps(mbps), share: 90, ..SHAPER };
            let device = Device { mtu: Bytes::new(mtu), ..wan() };
            let commands = shaper.commands(&device);
            let classes = commands.iter().filter(|command| command.0[0] == "class");
            classes.map(|command| command.0.last().unwrap().parse().unwrap()).collect()
        };
        assert_eq!(quanta(1, 1500), [1514, 1514, 1514]);
        assert_eq!(quanta(1, 9000), [9014, 9014, 9014]);
        assert_eq!(quanta(100, 1500), [12_500, 1514, 11_250]);
        assert_eq!(quanta(10_000, 1500), [60_000, 60_000, 60_000]);
    }

    #[test]
    fn a_queue_has_room_for_one_packet_of_offloads_and_not_for_many() {
        let leaves = |kbps: u64, kind| {
            let rate = Rate::from_bps(1000 * kbps);
            let shaper = Shaper { rate, standard: kind, ..SHAPER };
            shaper.commands(&wan())[4].to_string().split(": ").nth(1).unwrap().to_owned()
        };
        assert_eq!(leaves(100, QueueKind::DropTail), "bfifo limit 80000");
        assert_eq!(leaves(20_000, QueueKind::DropTail), "bfifo limit 250000");
        assert_eq!(leaves(1_000_000_000, QueueKind::DropTail), "bfifo limit 4294967295");
        assert_eq!(leaves(100, QueueKind::Codel), "codel limit 20 noecn");
        assert_eq!(leaves(10_000_000, QueueKind::Codel), "codel limit 1000 noecn");
        let largest = Bytes::new(65_536);
        assert_eq!(SHAPER.largest_takes(&wan()), Some(SHAPER.rate.transmission_time(largest)));
        assert_eq!(SHAPER.largest_takes(&Device { largest: wan().mtu, ..wan() }), None);
    }

    #[test]
    fn any_share_leaves_both_queues_some_rate() {
        for share in [0, 1, 99, 100, 255] {
            let shaper = Shaper { share, rate: Rate::from_bps(1000), ..SHAPER };
            for command in shaper.commands(&wan()) {
                assert!(!command.to_string().contains("rate 0bit"), "{command}");
            }
        }
    }
}
