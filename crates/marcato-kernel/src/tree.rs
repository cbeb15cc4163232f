//! Trees of HTB that somebody else has set up, and CRQ's places in them.
//!
//! CRQ below a class is an HTB of its own in place of the class's queue, and not classes below the class:
//!
//! - *The class stays a leaf.* HTB gives the excess of a tree to its leaves by their `prio`, and each has a turn by its
//!   `quantum` (`htb_dequeue_tree`). Three leaves instead of one would take three turns, and their `prio` would compete
//!   with that of other classes. As it is, the tree shares and borrows as before.
//! - *The class keeps its packets.* HTB sends a packet directly, without a limit, if its `default` is no leaf any more
//!   (`htb_classify`). Filters and `skb->priority` choose the class as before. A filter of the inner HTB then chooses the
//!   queue by the flow's verdict, for packets of this class only.
//! - *One limit.* The inner HTB has a rate far above that of the class, unless a lower one is asked for. It takes turns
//!   among its queues, whatever rate the class gets, and never holds a packet that the class could send.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use marcato_units::Rate;

use crate::error::{ParentError, TcError};
use crate::leaf::Leaf;
use crate::queues::Queue;
use crate::shaper::{Shaper, TcCommand};
use crate::subscribers::Subscriber;

/// Name of a class: the number of its queue's handle, and its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId {
    /// Number of the queue.
    pub major: u16,
    /// Number within the queue.
    pub minor: u16,
}

impl FromStr for ClassId {
    type Err = String;

    /// Reads a name as `tc` has it: two hexadecimal numbers.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| match digits {
            "" => None,
            digits if digits.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                u16::from_str_radix(digits, 16).ok()
            }
            _ => None,
        };
        let both = text.split_once(':').and_then(|(major, minor)| number(major).zip(number(minor)));
        let (major, minor) = both.filter(|(_, minor)| *minor > 0).ok_or_else(|| {
            format!("`{text}` is no class: write its name as `tc class show` has it, such as 1:10")
        })?;
        Ok(Self { major, minor })
    }
}

impl fmt::Display for ClassId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}:{:x}", self.major, self.minor)
    }
}

impl serde::Serialize for ClassId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for ClassId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Class of somebody's tree that has CRQ in place of its queue.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seat {
    /// The class.
    pub class: ClassId,
    /// Number in the handle of CRQ's queue.
    pub handle: u16,
    /// Queue that the class had before; `None` if it was HTB's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Leaf>,
}

impl Seat {
    /// Numbers of the handles of CRQ's queues below classes: as many classes of a device can have one.
    pub const HANDLES: RangeInclusive<u16> = 0xc500..=0xc5ff;

    /// Returns whether a queue is CRQ's of this class.
    pub fn is(&self, queue: &Queue) -> bool {
        queue.major() == Some(self.handle) && queue.parent.as_deref() == Some(self.class.to_string().as_str())
    }

    /// Command that puts the queue back that the class had before.
    pub fn undo(&self, device: &str) -> TcCommand {
        let Self { class, handle, before } = self;
        let words = match before {
            None => format!("qdisc del dev {device} parent {class} handle {handle:x}:"),
            Some(leaf) => format!("qdisc replace dev {device} parent {class} {leaf}"),
        };
        TcCommand(words.split_whitespace().map(str::to_owned).collect())
    }
}

/// Class of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    kind: String,
    id: ClassId,
    parent: Option<ClassId>,
    /// Rate that it may use, if it is one of HTB.
    ceil: Option<Rate>,
}

/// Classes and queues of a device.
#[derive(Clone, Debug)]
pub struct Tree {
    device: String,
    classes: Vec<Class>,
    queues: Vec<Queue>,
}

/// Kinds of queue that have classes of their own.
const CLASSFUL: [&str; 14] = [
    "htb", "hfsc", "cbq", "drr", "qfq", "prio", "multiq", "mqprio", "mq", "ets", "taprio", "atm", "dsmark",
    "cbs",
];

impl Tree {
    /// Reads the classes and queues of a device.
    ///
    /// # Errors
    /// [`TcError`] if `tc` cannot be run or understood.
    pub fn read(device: &str) -> Result<Self, TcError> {
        let command = TcCommand(["class", "show", "dev", device].map(str::to_owned).to_vec());
        Ok(Self { device: device.to_owned(), classes: classes(&command.run()?), queues: Queue::all(device)? })
    }

    /// Rate that a class may use: its `ceil`.
    pub fn rate(&self, class: ClassId) -> Option<Rate> {
        self.classes.iter().find(|it| it.id == class)?.ceil
    }

    /// Returns whether a class has CRQ's queue.
    pub fn has(&self, seat: &Seat) -> bool {
        self.own(seat.class) == Some(seat.handle)
    }

    /// Command that puts the queue of a class back, by another handle if its own has been given away meanwhile.
    pub fn undo(&self, seat: &Seat) -> TcCommand {
        let is_taken = |leaf: &&Leaf| self.queues.iter().any(|queue| leaf.has_handle(&queue.handle));
        let before = match &seat.before {
            Some(leaf) if is_taken(&leaf) => Some(leaf.without_handle()),
            leaf => leaf.clone(),
        };
        Seat { before, ..seat.clone() }.undo(&self.device)
    }

    /// Handles of subscribers' queues that stand below their classes.
    pub fn subscribers(&self) -> BTreeSet<u16> {
        let handle = |queue: &Queue| {
            let ClassId { major, minor } = queue.parent.as_ref()?.parse().ok()?;
            let is_one =
                major == Shaper::MAJOR && minor != Subscriber::OTHERS && Subscriber::HANDLES.contains(&minor);
            queue.major().filter(|handle| is_one && *handle == minor && queue.kind == "htb")
        };
        self.queues.iter().filter_map(handle).collect()
    }

    /// Number in the handle of CRQ's queue of a class, if it has one.
    fn own(&self, class: ClassId) -> Option<u16> {
        let queue = self.queue(class)?;
        queue.major().filter(|major| queue.kind == "htb" && Seat::HANDLES.contains(major))
    }

    fn queue(&self, class: ClassId) -> Option<&Queue> {
        let name = class.to_string();
        self.queues.iter().find(|queue| queue.parent.as_deref() == Some(&name) && !queue.is_default())
    }

    /// Places of CRQ's queues that are there, as a crash may have left them. Nobody knows what was there before.
    pub fn left(&self) -> Vec<Seat> {
        let seat = |queue: &Queue| {
            let class = queue.parent.as_ref()?.parse().ok()?;
            self.own(class).map(|handle| Seat { class, handle, before: None })
        };
        self.queues.iter().filter_map(seat).collect()
    }

    /// Places for CRQ's queues below these classes. `known` are those that were there before, with their queues. With
    /// `replace`, a queue that cannot be put back may go.
    ///
    /// # Errors
    /// [`ParentError`] for each class that can have none.
    pub fn seats(
        &self,
        parents: &[ClassId],
        known: &[Seat],
        replace: bool,
    ) -> Result<Vec<Seat>, Vec<ParentError>> {
        let mut taken: BTreeSet<u16> = self.queues.iter().filter_map(Queue::major).collect();
        let (mut seats, mut errors): (Vec<Seat>, Vec<ParentError>) = (Vec::new(), Vec::new());
        let parents: BTreeSet<ClassId> = parents.iter().copied().collect();
        let mut handles = Seat::HANDLES;
        for class in parents {
            let before = match self.before(class, known, replace) {
                Ok(before) => before,
                Err(error) => {
                    errors.push(error);
                    continue;
                }
            };
            // A queue that is to be removed first leaves its handle.
            let Some(handle) = self.own(class).or_else(|| handles.find(|handle| !taken.contains(handle)))
            else {
                errors.push(ParentError::Many { device: self.device.clone() });
                break;
            };
            taken.insert(handle);
            seats.push(Seat { class, handle, before });
        }
        if errors.is_empty() { Ok(seats) } else { Err(errors) }
    }

    /// Queue of a class that can have CRQ's.
    fn before(&self, class: ClassId, known: &[Seat], replace: bool) -> Result<Option<Leaf>, ParentError> {
        let device = self.device.clone();
        let Some(Class { kind, .. }) = self.classes.iter().find(|it| it.id == class) else {
            // Those of HTB that have no classes below are the possible ones.
            let possible = |it: &&Class| it.kind == "htb" && self.below(it.id).is_empty() && !is_own(it.id);
            let there = self.classes.iter().filter(possible).map(|it| it.id).collect();
            return Err(ParentError::Unknown { device, class, there });
        };
        if kind != "htb" {
            return Err(ParentError::NotHtb { device, class, kind: kind.clone() });
        }
        if is_own(class) {
            return Err(ParentError::Own { device, class });
        }
        let below = self.below(class);
        if !below.is_empty() {
            return Err(ParentError::Inner { device, class, below });
        }
        if let Some(seat) = known.iter().find(|seat| seat.class == class && self.has(seat)) {
            return Ok(seat.before.clone());
        }
        let Some(queue) = self.queue(class) else { return Ok(None) };
        if self.own(class).is_some() {
            return Ok(None);
        }
        match Leaf::of(queue).filter(|_| !has_filters(&self.device, &queue.handle)) {
            Some(leaf) => Ok(Some(leaf)),
            None if replace => Ok(None),
            None => {
                let Queue { kind, handle, .. } = queue.clone();
                Err(ParentError::Queue {
                    device,
                    class,
                    is_classful: CLASSFUL.contains(&kind.as_str()),
                    kind,
                    handle,
                })
            }
        }
    }

    /// Classes below a class.
    fn below(&self, class: ClassId) -> Vec<ClassId> {
        self.classes.iter().filter(|it| it.parent == Some(class)).map(|it| it.id).collect()
    }
}

/// Returns whether a class is CRQ's own.
fn is_own(class: ClassId) -> bool {
    Seat::HANDLES.contains(&class.major) || Shaper::is_root(&format!("{:x}:", class.major))
}

/// Returns whether a queue has filters, which would be lost with it.
fn has_filters(device: &str, handle: &str) -> bool {
    let command = TcCommand(["filter", "show", "dev", device, "parent", handle].map(str::to_owned).to_vec());
    command.run().is_ok_and(|said| !said.trim().is_empty())
}

/// Reads the output of `tc class show`.
fn classes(text: &str) -> Vec<Class> {
    text.lines().filter_map(class).collect()
}

fn class(line: &str) -> Option<Class> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let (&["class", kind, id], rest) = words.split_at_checked(3)? else { return None };
    let after = |name: &str| {
        let at = rest.iter().position(|word| *word == name)?;
        rest.get(at + 1).copied()
    };
    Some(Class {
        kind: kind.to_owned(),
        id: id.parse().ok()?,
        parent: after("parent").and_then(|parent| parent.parse().ok()),
        ceil: after("ceil").and_then(rate),
    })
}

/// Reads a rate as `tc` shows it.
fn rate(text: &str) -> Option<Rate> {
    let bits = text.strip_suffix("bit")?;
    let digits = bits.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let (unit, base): (_, u64) = match bits[digits.len()..].strip_suffix('i') {
        Some(unit) => (unit, 1024),
        None => (&bits[digits.len()..], 1000),
    };
    let exponent = ["", "K", "M", "G", "T"].iter().position(|it| *it == unit)?;
    let one = base.checked_pow(u32::try_from(exponent).ok()?)?;
    digits.parse::<u64>().ok()?.checked_mul(one).map(Rate::from_bps).filter(|rate| rate.as_bps() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLASSES: &str = "\
class htb 1:10 parent 1:1 prio 3 rate 12345Kbit ceil 100Mbit burst 1597b cburst 1600b 
class htb 1:1 root rate 100Mbit ceil 1Gbit burst 1600b cburst 1600b 
class htb 1:20 parent 1:1 leaf 20: prio 0 rate 10Mbit ceil 12345678bit burst 1600b cburst 1600b 
class htb 1:30 parent 1:1 leaf 30: prio 0 rate 10Mbit ceil 100Mbit burst 1600b cburst 1600b 
class htb 30:1 root prio 0 rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b 
class htb 1:40 parent 1:1 leaf c501: prio 0 rate 8bit ceil 8bit burst 1600b cburst 1600b 
class htb c501:10 root prio 0 rate 10Mbit ceil 10Mbit burst 1600b cburst 1600b 
class htb 1:50 parent 1:1 leaf 50: prio 0 rate fast ceil fast burst 1600b cburst 1600b 
class fq_codel 8001:1a parent 8001: 
class mq :1 root 
";

    const QUEUES: &str = r#"[
        {"kind":"htb","handle":"1:","root":true,"options":{"r2q":10,"default":"0x30"}},
        {"kind":"bfifo","handle":"20:","parent":"1:20","options":{"limit":9000}},
        {"kind":"htb","handle":"30:","parent":"1:30","options":{"r2q":10}},
        {"kind":"htb","handle":"c501:","parent":"1:40","options":{"r2q":10}},
        {"kind":"htb","handle":"c500:","options":{}},
        {"kind":"red","handle":"50:","parent":"1:50","options":{"limit":9000}}]"#;

    fn tree() -> Tree {
        let queues: Vec<Queue> = serde_json::from_str(QUEUES).unwrap();
        Tree { device: "no-such-device".to_owned(), classes: classes(CLASSES), queues }
    }

    fn ids(names: &[&str]) -> Vec<ClassId> {
        names.iter().map(|name| name.parse().unwrap()).collect()
    }

    #[test]
    fn classes_are_read_from_the_output_of_tc() {
        let tree = tree();
        let rate = |class: &str| tree.rate(class.parse().unwrap()).map(Rate::as_bps);
        assert_eq!(rate("1:10"), Some(100_000_000));
        assert_eq!(rate("1:1"), Some(1_000_000_000));
        assert_eq!(rate("1:20"), Some(12_345_678));
        assert_eq!((rate("1:40"), rate("1:50"), rate("8001:1a"), rate("1:99")), (Some(8), None, None, None));
        assert_eq!(tree.below("1:1".parse().unwrap()).len(), 5);
        assert_eq!(super::rate("2Kibit"), Some(Rate::from_bps(2048)));
        for wrong in ["", "bit", "0bit", "5", "5Xbit", "5Mbps", "-5bit"] {
            assert_eq!(super::rate(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_class_name_has_two_numbers() {
        assert_eq!("1:10".parse(), Ok(ClassId { major: 1, minor: 0x10 }));
        assert_eq!(ClassId { major: 0xc500, minor: 0xa }.to_string(), "c500:a");
        for wrong in ["", "1", "1:", ":1", "1:0", "1:x", "1:+2", "10000:1", "1:2:3", "root"] {
            assert!(wrong.parse::<ClassId>().unwrap_err().contains("such as 1:10"), "{wrong}");
        }
    }

    #[test]
    fn seats_keep_what_was_there_and_take_free_handles() {
        let seats = tree().seats(&ids(&["1:20", "1:10", "1:40", "1:20"]), &[], false).unwrap();
        let shown: Vec<_> = seats
            .iter()
            .map(|seat| (seat.class.to_string(), seat.handle, seat.undo("wan").to_string()))
            .collect();
        let expected = [
            // c500 is somebody's, and c501 stands there already.
            ("1:10", 0xc502, "tc qdisc del dev wan parent 1:10 handle c502:"),
            ("1:20", 0xc503, "tc qdisc replace dev wan parent 1:20 handle 20: bfifo limit 9000"),
            ("1:40", 0xc501, "tc qdisc del dev wan parent 1:40 handle c501:"),
        ];
        assert_eq!(shown, expected.map(|(class, handle, undo)| (class.to_owned(), handle, undo.to_owned())));
        // Somebody has taken the handle meanwhile.
        let taken = Seat { class: seats[0].class, ..seats[1].clone() };
        assert_eq!(
            tree().undo(&taken).to_string(),
            "tc qdisc replace dev no-such-device parent 1:10 bfifo limit 9000"
        );
        assert_eq!(tree().undo(&seats[0]), seats[0].undo("no-such-device"));
        let left = tree().left();
        assert_eq!(left.len(), 1);
        assert!(tree().has(&left[0]) && !tree().has(&seats[0]));
        // The note of an earlier attachment tells what a queue of CRQ has replaced.
        let known = Seat { before: seats[1].before.clone(), ..left[0].clone() };
        assert_eq!(tree().seats(&ids(&["1:40"]), std::slice::from_ref(&known), false).unwrap(), [known]);
    }

    #[test]
    fn queues_of_subscribers_are_told_from_others() {
        let queues = r#"[
            {"kind":"htb","handle":"c4:","root":true},
            {"kind":"htb","handle":"fff:","parent":"c4:fff"},
            {"kind":"htb","handle":"1000:","parent":"c4:1000"},
            {"kind":"htb","handle":"1002:","parent":"c4:1001"},
            {"kind":"htb","handle":"1003:","parent":"1:1003"},
            {"kind":"bfifo","handle":"1004:","parent":"c4:1004"},
            {"kind":"htb","handle":"1005:","parent":"c4:1005"}]"#;
        let tree = Tree { queues: serde_json::from_str(queues).unwrap(), ..tree() };
        assert_eq!(tree.subscribers(), BTreeSet::from([0x1000, 0x1005]));
    }

    #[test]
    fn classes_that_can_have_no_queue_are_told_all_at_once() {
        let names = ["1:99", "8001:1a", "1:1", "1:30", "1:50", "c501:10"];
        let errors = tree().seats(&ids(&names), &[], false).unwrap_err();
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts.len(), names.len(), "{texts:?}");
        for (class, said) in [
            ("1:99", "has no class 1:99: 1:10, 1:20, 1:30, 30:1, 1:40, 1:50 can be named"),
            ("8001:1a", "is one of `fq_codel`: CRQ goes below a class of `htb`"),
            ("1:1", "has classes below it: name these instead, as 1:10, 1:20"),
            ("1:30", "has a queue with classes of its own (`htb 30:`): name one of these"),
            ("1:50", "has a queue that CRQ cannot put back (`red 50:`)"),
            ("c501:10", "is CRQ's own"),
        ] {
            let of = texts
                .iter()
                .find(|text| text.contains(&format!(" {class} ")))
                .or(texts.iter().find(|text| text.contains(class)));
            assert!(of.is_some_and(|text| text.contains(said)), "{class}: {texts:?}");
        }
        assert!(texts.iter().any(|text| text.contains("--replace")));
        let replaced = tree().seats(&ids(&["1:30", "1:50"]), &[], true).unwrap();
        assert!(replaced.iter().all(|seat| seat.before.is_none()));
    }
}
