//! Queues of a device behind one HTB, which share its rate: CRQ §III-B, and a place for young flows.

use std::fmt;

use marcato_queue::Class;
use marcato_units::{Duration, Rate};

use crate::device::Device;
use crate::subscribers::Subscriber;
use crate::tree::{ClassId, Seat};

/// Handle of the root queue; its classes have it as their major number.
const MAJOR: u16 = Shaper::MAJOR;
/// Minor numbers of the classes: all, the standard queue's, the responsive queue's.
const ALL: u16 = 0x1;
const STANDARD: u16 = 0x10;
const RESPONSIVE: u16 = 0x20;
/// Minor number of the class of young flows, if they have a place.
const YOUNG: u16 = 0x30;

/// Rate of queues below a class that limits them itself: they never wait for their own HTB.
const UNLIMITED: Rate = Rate::from_mbps(100_000);
/// Most that a class of such queues may send before the others have their turn. Their shares are those of these
/// numbers alone, so the bound is wider than [`MOST_QUANTUM`].
const MOST_TURN: u64 = 200_000;

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
    /// Number in the handle of the root queue: "c4" for CRQ.
    pub(crate) const MAJOR: u16 = 0x00c4;

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
        let packet = device.mtu.get().saturating_add(LINK_HEADER);
        let bps = self.rate.as_bps();
        let part = |of: u64, percent: u64| (of / 100).saturating_mul(percent).max(8);
        let young = self.young.map_or(0, |young| part(bps, u64::from(young.share.clamp(1, 90))));
        let shares = |of: u64| {
            let share = u64::from(self.share.clamp(1, 99));
            [part(of, 100 - share), part(of, share)]
        };
        let [standard, responsive] = shares(bps - young);
        // A millisecond of the class. With less than a packet, HTB would take turns by packets and not by bytes.
        let quantum = |rate: u64| (rate / 8 / 1000).clamp(packet, MOST_QUANTUM.max(packet));
        // What young flows leave is divided by quanta alone: these have to be in the ratio of the shares.
        let quanta = match self.young {
            None => [quantum(standard), quantum(responsive)],
            Some(_) => turns(shares(bps), packet, MOST_QUANTUM),
        };
        let [first, others] = if self.young.is_some() { [" prio 0", " prio 1"] } else { [""; 2] };
        let classes = [
            HtbClass { minor: STANDARD, rate: standard, quantum: quanta[0], prio: others },
            HtbClass { minor: RESPONSIVE, rate: responsive, quantum: quanta[1], prio: others },
            HtbClass { minor: YOUNG, rate: young, quantum: quantum(young), prio: first },
        ];
        self.tree(device, "root", MAJOR, bps, quantum(bps), &classes)
    }

    /// Commands that set the queues up below a class of somebody's tree, in place of the class's own queue. Without
    /// `limited`, the class alone limits the rate.
    ///
    /// The class may get less than its rate, as when it borrows. So the queues share what it gets by their turns alone:
    /// young flows go before none, but have the longest turns.
    pub fn commands_below(&self, device: &Device, seat: &Seat, limited: bool) -> Vec<TcCommand> {
        let packet = device.mtu.get().saturating_add(LINK_HEADER);
        let bps = if limited { self.rate } else { UNLIMITED }.as_bps();
        let young = self.young.map_or(0, |young| u64::from(young.share.clamp(1, 90)));
        let share = u64::from(self.share.clamp(1, 99));
        // In ten-thousandths.
        let parts = [(100 - young) * (100 - share), (100 - young) * share, young * 100];
        let of = |whole: Rate| parts.map(|part| (whole.as_bps().saturating_mul(part) / 10_000).max(8));
        let rates = of(Rate::from_bps(bps));
        let [standard, responsive, young] = of(self.rate);
        let [standard, responsive, young] = match self.young {
            Some(_) => turns([standard, responsive, young], packet, MOST_TURN),
            None => {
                let [standard, responsive] = turns([standard, responsive], packet, MOST_TURN);
                [standard, responsive, packet]
            }
        };
        let class = |minor, rate, quantum| HtbClass { minor, rate, quantum, prio: "" };
        let classes = [
            class(STANDARD, rates[0], standard),
            class(RESPONSIVE, rates[1], responsive),
            class(YOUNG, rates[2], young),
        ];
        self.tree(device, &format!("parent {}", seat.class), seat.handle, bps, packet, &classes)
    }

    /// Commands that set up the root of a device with subscribers, in place of its root queue, and a class for packets of
    /// nobody. The rate is that of the link.
    pub fn commands_shared(&self, device: &Device) -> Vec<TcCommand> {
        let Device { name, .. } = device;
        let bps = self.rate.as_bps();
        let burst = self.burst(device);
        let quantum = self.turn(device);
        let mut commands = vec![
            TcCommand::new(&format!(
                "qdisc replace dev {name} root handle {MAJOR:x}: htb default {:x}",
                Subscriber::OTHERS
            )),
            TcCommand::new(&format!(
                "class replace dev {name} parent {MAJOR:x}: classid {MAJOR:x}:{ALL:x} htb rate {bps}bit ceil {bps}bit burst {burst} cburst {burst} quantum {quantum}"
            )),
        ];
        commands.extend(self.commands_of(device, &self.others()));
        commands
    }

    /// Class for packets of nobody, which has what subscribers leave.
    fn others(&self) -> Subscriber {
        Subscriber { name: String::new(), handle: Subscriber::OTHERS, min: Rate::default(), max: self.rate }
    }

    /// Commands that change the root of a device with subscribers to these queues.
    pub fn changes_shared(&self, device: &Device) -> Vec<TcCommand> {
        // Neither HTB is made again: the kernel has no change of it.
        let mut commands = self.commands_shared(device);
        commands.retain(|command| command.0[0] == "class");
        commands.truncate(1);
        commands.extend(self.changes_of(device, &self.others()));
        commands
    }

    /// Commands that remove what `before` has at the root and these queues have not.
    pub fn removals_shared(&self, device: &Device, before: &Self) -> Vec<TcCommand> {
        self.removals_below(device, &self.others().seat(), before)
    }

    /// Commands that make a subscriber's class and the queues below it. The rate is the subscriber's largest.
    pub fn commands_of(&self, device: &Device, subscriber: &Subscriber) -> Vec<TcCommand> {
        let seat = subscriber.seat();
        let mut commands = vec![self.class_of_subscriber(device, subscriber)];
        commands.extend(self.commands_below(device, &seat, false));
        commands
    }

    /// Commands that change a subscriber's class and queues to these.
    pub fn changes_of(&self, device: &Device, subscriber: &Subscriber) -> Vec<TcCommand> {
        let mut commands = vec![self.class_of_subscriber(device, subscriber)];
        commands.extend(self.changes_below(device, &subscriber.seat(), false));
        commands
    }

    /// Command that removes a subscriber's class, with its queues.
    pub fn removal_of(device: &Device, handle: u16) -> TcCommand {
        TcCommand::new(&format!("class del dev {} classid {MAJOR:x}:{handle:x}", device.name))
    }

    fn class_of_subscriber(&self, device: &Device, subscriber: &Subscriber) -> TcCommand {
        let Subscriber { handle, min, max, .. } = subscriber;
        let [min, max] = [min, max].map(|rate| rate.as_bps().max(8));
        let burst = self.burst(device);
        let quantum = self.turn(device);
        TcCommand::new(&format!(
            "class replace dev {} parent {MAJOR:x}:{ALL:x} classid {MAJOR:x}:{handle:x} htb rate {min}bit ceil {max}bit burst {burst} cburst {burst} quantum {quantum}",
            device.name
        ))
    }

    /// Two milliseconds of the rate at least, and two packets: a timer of the kernel may be late.
    fn burst(&self, device: &Device) -> u64 {
        (self.rate.as_bps() / 8 / 500).max(2 * device.mtu.get().saturating_add(LINK_HEADER))
    }

    /// Bytes of a turn: a millisecond of the rate.
    fn turn(&self, device: &Device) -> u64 {
        let packet = device.mtu.get().saturating_add(LINK_HEADER);
        (self.rate.as_bps() / 8 / 1000).clamp(packet, MOST_QUANTUM.max(packet))
    }

    /// Commands for an HTB with these classes and their queues.
    fn tree(
        &self,
        device: &Device,
        place: &str,
        major: u16,
        bps: u64,
        quantum: u64,
        classes: &[HtbClass; 3],
    ) -> Vec<TcCommand> {
        let Device { name, .. } = device;
        let burst = Self { rate: Rate::from_bps(bps), ..*self }.burst(device);
        let class = |parent: &str, minor: u16, rate: u64, quantum: u64, prio: &str| {
            TcCommand::new(&format!(
                "class replace dev {name} parent {parent} classid {major:x}:{minor:x} htb rate {rate}bit ceil {bps}bit burst {burst} cburst {burst} quantum {quantum}{prio}"
            ))
        };
        let root = format!("{major:x}:");
        let all = format!("{major:x}:{ALL:x}");
        let has_place = |minor: u16| minor != YOUNG || self.young.is_some();
        let mut commands = vec![
            TcCommand::new(&format!(
                "qdisc replace dev {name} {place} handle {root} htb default {STANDARD:x}"
            )),
            class(&root, ALL, bps, quantum, ""),
        ];
        for HtbClass { minor, rate, quantum, prio } in classes {
            commands.extend(has_place(*minor).then(|| class(&all, *minor, *rate, *quantum, prio)));
        }
        commands.extend(
            [(STANDARD, self.standard), (RESPONSIVE, self.responsive)]
                .map(|(minor, kind)| self.queue(name, major, minor, kind)),
        );
        commands.extend(self.young.map(|young| self.queue(name, major, YOUNG, young.kind)));
        commands
    }

    fn queue(&self, device: &str, major: u16, minor: u16, kind: QueueKind) -> TcCommand {
        let product = u128::from(self.rate.as_bps()) * self.round_trip.as_nanos() / 8_000_000_000;
        // The kernel's limits have 32 bits.
        let bytes = product.clamp(LEAST_BYTES, u128::from(u32::MAX));
        let packets = (product / 1500).clamp(20, MOST_PACKETS);
        // Below a class, the kernel chooses handles: a queue of the same discipline is changed, and one of another takes its
        // place in one step, or not at all.
        let handle = match major {
            MAJOR => format!(" handle {:x}:", MAJOR << 8 | minor | kind.discipline()),
            _ => String::new(),
        };
        let kind = match kind {
            QueueKind::DropTail => format!("bfifo limit {bytes}"),
            QueueKind::Codel => format!("codel limit {packets} noecn"),
            QueueKind::CodelEcn => format!("codel limit {packets} ecn"),
            QueueKind::FqCodel => "fq_codel noecn".to_owned(),
        };
        TcCommand::new(&format!("qdisc replace dev {device} parent {major:x}:{minor:x}{handle} {kind}"))
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
        self.removals_of(device, MAJOR, before)
    }

    /// Commands that change the queues below a class to these.
    pub fn changes_below(&self, device: &Device, seat: &Seat, limited: bool) -> Vec<TcCommand> {
        self.commands_below(device, seat, limited).split_off(1)
    }

    /// Commands that remove what `before` has below a class and these queues have not.
    pub fn removals_below(&self, device: &Device, seat: &Seat, before: &Self) -> Vec<TcCommand> {
        self.removals_of(device, seat.handle, before)
    }

    fn removals_of(&self, device: &Device, major: u16, before: &Self) -> Vec<TcCommand> {
        let gone = format!("class del dev {} classid {major:x}:{YOUNG:x}", device.name);
        let is_gone = before.young.is_some() && self.young.is_none();
        is_gone.then(|| TcCommand::new(&gone)).into_iter().collect()
    }

    /// Time that the link takes for the largest packet that offloads make for a device; `None` if they make none.
    pub fn largest_takes(&self, device: &Device) -> Option<Duration> {
        (device.largest > device.mtu).then(|| self.rate.transmission_time(device.largest))
    }

    /// Queue that belongs to the class of this name, and the handle of its HTB, if the class is one of these.
    pub fn class_of(name: &str) -> Option<(u16, Class)> {
        let ClassId { major, minor } = name.parse().ok()?;
        let class = [(STANDARD, Class::Standard), (RESPONSIVE, Class::Responsive), (YOUNG, Class::Young)]
            .into_iter()
            .find_map(|(of, class)| (of == minor).then_some(class))?;
        let is_own = major == MAJOR || Seat::HANDLES.contains(&major) || Subscriber::HANDLES.contains(&major);
        is_own.then_some((major, class))
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

/// Class of a queue, as it is made.
struct HtbClass {
    minor: u16,
    rate: u64,
    quantum: u64,
    prio: &'static str,
}

/// Bytes that each class sends in its turn, in the ratio of rates: a millisecond of the least, a packet at least and so
/// many bytes at most.
fn turns<const N: usize>(rates: [u64; N], packet: u64, most: u64) -> [u64; N] {
    let least = rates.iter().copied().min().unwrap_or(1).max(1);
    let unit = (least / 8 / 1000).clamp(packet, MOST_QUANTUM.max(packet));
    rates.map(|rate| {
        let turn = u128::from(unit) * u128::from(rate) / u128::from(least);
        u64::try_from(turn).unwrap_or(u64::MAX).clamp(packet, most.max(packet))
    })
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
            ["c4:10", "c4:20", "c500:30", "c4:1", "1:10"].map(Shaper::class_of),
            [
                Some((0xc4, Class::Standard)),
                Some((0xc4, Class::Responsive)),
                Some((0xc500, Class::Young)),
                None,
                None
            ]
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

    fn seat() -> Seat {
        Seat { class: "1:10".parse().unwrap(), handle: 0xc507, before: None }
    }

    #[test]
    fn below_a_class_turns_alone_share_what_it_gets() {
        let texts = |shaper: Shaper, limited| -> Vec<String> {
            shaper.commands_below(&wan(), &seat(), limited).iter().map(ToString::to_string).collect()
        };
        let fast = "ceil 100000000000bit burst 25000000 cburst 25000000";
        assert_eq!(
            texts(YOUNG_FIRST, false),
            [
                "tc qdisc replace dev wan parent 1:10 handle c507: htb default 10".to_owned(),
                format!(
                    "tc class replace dev wan parent c507: classid c507:1 htb rate 100000000000bit {fast} quantum 1514"
                ),
                // A tenth, three twentieths and three quarters.
                format!(
                    "tc class replace dev wan parent c507:1 classid c507:10 htb rate 10000000000bit {fast} quantum 1514"
                ),
                format!(
                    "tc class replace dev wan parent c507:1 classid c507:20 htb rate 15000000000bit {fast} quantum 2271"
                ),
                format!(
                    "tc class replace dev wan parent c507:1 classid c507:30 htb rate 75000000000bit {fast} quantum 11355"
                ),
                "tc qdisc replace dev wan parent c507:10 bfifo limit 625000".to_owned(),
                "tc qdisc replace dev wan parent c507:20 codel limit 416 ecn".to_owned(),
                "tc qdisc replace dev wan parent c507:30 fq_codel noecn".to_owned(),
            ]
        );
        let limited = texts(SHAPER, true);
        assert_eq!(limited.len(), 6);
        assert!(limited[2].contains("rate 20000000bit ceil 50000000bit"), "{limited:?}");
        let changes = SHAPER.changes_below(&wan(), &seat(), true);
        assert_eq!(changes.iter().map(ToString::to_string).collect::<Vec<_>>(), limited[1..]);
        let removed = SHAPER.removals_below(&wan(), &seat(), &YOUNG_FIRST);
        assert_eq!(removed[0].to_string(), "tc class del dev wan classid c507:30");
    }

    #[test]
    fn a_subscriber_has_a_class_of_its_rates_and_queues_below() {
        let subscriber = |handle| Subscriber {
            name: "anna".to_owned(),
            handle,
            min: Rate::from_mbps(5),
            max: SHAPER.rate,
        };
        let texts =
            |commands: Vec<TcCommand>| -> Vec<String> { commands.iter().map(ToString::to_string).collect() };
        let made = texts(SHAPER.commands_of(&wan(), &subscriber(0x1007)));
        assert_eq!(
            made[..2],
            [
                "tc class replace dev wan parent c4:1 classid c4:1007 htb rate 5000000bit ceil 50000000bit burst 12500 cburst 12500 quantum 6250",
                "tc qdisc replace dev wan parent c4:1007 handle 1007: htb default 10",
            ]
        );
        assert_eq!(made[5], "tc qdisc replace dev wan parent 1007:10 bfifo limit 625000");
        let changed = texts(SHAPER.changes_of(&wan(), &subscriber(0x1007)));
        assert_eq!(changed, [&made[..1], &made[2..]].concat());
        let shared = texts(SHAPER.commands_shared(&wan()));
        assert_eq!(shared[0], "tc qdisc replace dev wan root handle c4: htb default fff");
        assert!(shared[2].contains("classid c4:fff htb rate 8bit ceil 50000000bit"), "{shared:?}");
        let change = texts(SHAPER.changes_shared(&wan()));
        assert!(
            change.len() + 2 == shared.len()
                && change.iter().all(|it| shared.contains(it) && !it.contains(": htb default")),
            "{change:?}"
        );
        assert_eq!(Shaper::removal_of(&wan(), 0x1007).to_string(), "tc class del dev wan classid c4:1007");
    }

    #[test]
    fn turns_keep_the_ratio_of_shares_at_every_rate() {
        for mbps in [1, 10, 100, 1000, 10_000] {
            let shaper = Shaper { rate: Rate::from_mbps(mbps), share: 75, ..YOUNG_FIRST };
            let commands = shaper.commands_below(&wan(), &seat(), false);
            let quanta: Vec<u64> =
                commands[2..5].iter().map(|it| it.0.last().unwrap().parse().unwrap()).collect();
            // 6.25, 18.75 and 75 %, until a turn would be too long.
            assert!(quanta[0] >= 1514, "{mbps}: {quanta:?}");
            if quanta[2] < MOST_TURN {
                assert!(quanta[2].abs_diff(12 * quanta[0]) <= 12, "{mbps}: {quanta:?}");
            }
            assert!(quanta[1].abs_diff(3 * quanta[0]) <= 3, "{mbps}: {quanta:?}");
        }
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
