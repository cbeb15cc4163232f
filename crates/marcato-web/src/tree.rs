//! Weights and dependencies of RFC 7540 §5.3.
//!
//! Weights map to the urgencies that the same browser writes into its `priority` field, so that all clients
//! have one order. `tests/plane/order.rs` loads a page by field, by weights, by both and by neither, and
//! compares every grant.

use marcato_sched::exchange::Urgency;
use marcato_sched::order::StreamId;
use marcato_sched::streams::StreamMap;

/// Weight of a stream, 1 to 256 (RFC 7540 §5.3.2). The default is 16 (RFC 7540 §5.3.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Weight(u8);

impl Weight {
    /// Weight of a stream without any: 16 (RFC 7540 §5.3.5).
    pub const DEFAULT: Self = Self(15);

    /// Returns the weight of this number; `None` outside 1 to 256.
    pub const fn new(weight: u16) -> Option<Self> {
        match weight {
            1..=256 => Some(Self((weight - 1).to_le_bytes()[0])),
            _ => None,
        }
    }

    /// Returns the weight that a byte in a frame stands for: one more (RFC 7540 §6.3).
    pub const fn from_wire(byte: u8) -> Self {
        Self(byte)
    }

    /// Number of the weight, 1 to 256.
    pub const fn get(self) -> u16 {
        self.0 as u16 + 1
    }

    /// Value of the entry of `table` whose weight is nearest.
    fn nearest(self, table: &[(u16, u8)]) -> u8 {
        let nearest = table.iter().min_by_key(|(weight, _)| weight.abs_diff(self.get()));
        nearest.map_or(Urgency::DEFAULT.get(), |&(_, urgency)| urgency)
    }
}

impl Default for Weight {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Priority of a stream in a HEADERS or PRIORITY frame (RFC 7540 §5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dependency {
    /// Stream that it depends on; 0 is the root.
    pub parent: StreamId,
    /// Weight among the dependents of its parent.
    pub weight: Weight,
    /// True if it becomes the only dependent of its parent.
    pub exclusive: bool,
}

/// Weights that Chromium gives to its priorities, with the urgencies that it puts into the header field
/// for them. Firefox and Safari send the field only.
const STREAMS: [(u16, u8); 8] = [(256, 0), (220, 1), (183, 2), (147, 3), (110, 4), (74, 5), (37, 6), (1, 7)];

/// Weights of Firefox's groups, with the urgencies that it puts into the header field for their
/// members: urgent start, leaders, others, background.
const GROUPS: [(u16, u8); 4] = [(241, 1), (201, 2), (101, 3), (1, 6)];

/// Least urgent member of a group in Firefox's header field.
const LEAST_OF_MEMBERS: u8 = 6;

/// Deepest nesting of groups that is followed. Firefox nests two.
const DEPTH: u8 = 4;

/// Urgencies of streams by weights and dependencies (RFC 7540 §5.3).
///
/// Browsers use the tree in two ways, and both are read as the header field that the same browser
/// sends:
///
/// - Chromium puts all streams into a chain. A stream is more urgent the larger its weight. The
///   nearest weight of Chromium counts.
/// - Firefox made groups: streams that never open, by PRIORITY frames. Requests depend on a group,
///   whose weight tells their urgency. A group within a group lies halfway between both. The weight of
///   the request moves it by up to two.
///
/// The default weight means nothing, unless the dependency is exclusive or in a group. Dependencies
/// between requests do not change urgencies: in Chromium's chain they follow the weights.
///
/// It keeps open streams up to a limit and at most [`MAX_GROUPS`](Self::MAX_GROUPS) groups. Beyond,
/// the oldest stream or the group that was unused for longest is evicted and counted.
///
/// ```
/// use marcato_sched::exchange::Urgency;
/// use marcato_sched::order::StreamId;
/// use marcato_web::{Dependency, Tree, Weight};
///
/// let mut tree = Tree::new(100);
/// let weight = Weight::new(220).unwrap();
/// tree.open(StreamId(1), Some(Dependency { parent: StreamId(0), weight, exclusive: true }));
/// assert_eq!(tree.urgency(StreamId(1)), Urgency::new(1));
/// ```
#[derive(Clone, Debug)]
pub struct Tree {
    limit: usize,
    streams: StreamMap<Option<Dependency>>,
    /// Idle streams, those used last at the end.
    groups: Vec<(StreamId, Dependency)>,
    /// Newest stream that was opened. All idle streams before it are closed (RFC 9113 §5.1.1).
    newest: StreamId,
    /// True once a stream or group has had a priority.
    weighted: bool,
    counters: TreeCounters,
}

/// Counts of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeCounters {
    /// Open streams and groups that were forgotten because a limit was reached.
    pub evicted: u64,
    /// Priorities without effect: of closed streams, of stream 0, and of streams that depend on
    /// themselves.
    pub ignored: u64,
}

/// Part of a tree that a PRIORITY frame has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TreeChange {
    /// Nothing.
    Nothing,
    /// One open stream.
    Stream,
    /// A group, and so the streams that depend on it: it is new, is none any more, or has another priority.
    Group,
}

impl Tree {
    /// Most groups at once: 16. Firefox makes six.
    pub const MAX_GROUPS: usize = 16;

    /// Creates a tree of at most `limit` open streams: as many as the client may have open.
    pub const fn new(limit: usize) -> Self {
        Self {
            limit,
            streams: StreamMap::new(),
            groups: Vec::new(),
            newest: StreamId(0),
            weighted: false,
            counters: TreeCounters { evicted: 0, ignored: 0 },
        }
    }

    /// Opens the stream of a HEADERS frame. Frames with trailers change nothing. A group that is opened
    /// is none any more.
    pub fn open(&mut self, stream: StreamId, dependency: Option<Dependency>) -> TreeChange {
        if stream <= self.newest {
            return TreeChange::Nothing;
        }
        self.newest = stream;
        let group = self.groups.iter().position(|(group, _)| *group == stream);
        let earlier = group.map(|index| self.groups.remove(index).1);
        let change = if group.is_some() { TreeChange::Group } else { TreeChange::Nothing };
        if self.streams.len() >= self.limit {
            self.counters.evicted += 1;
            if self.streams.pop_first().is_none() {
                return change;
            }
        }
        let dependency = dependency.filter(|new| self.is_valid(stream, *new)).or(earlier);
        self.weighted |= dependency.is_some();
        self.streams.insert(stream, dependency);
        self.touch(dependency);
        change
    }

    /// Changes the priority of an open or idle stream by a PRIORITY frame.
    pub fn prioritise(&mut self, stream: StreamId, dependency: Dependency) -> TreeChange {
        if !self.is_valid(stream, dependency) {
            self.counters.ignored += 1;
            return TreeChange::Nothing;
        }
        self.weighted = true;
        if let Some(open) = self.streams.get_mut(stream) {
            let changed = *open != Some(dependency);
            *open = Some(dependency);
            self.touch(Some(dependency));
            return if changed { TreeChange::Stream } else { TreeChange::Nothing };
        }
        if let Some(index) = self.groups.iter().position(|(group, _)| *group == stream) {
            let (_, earlier) = self.groups.remove(index);
            self.groups.push((stream, dependency));
            return if earlier == dependency { TreeChange::Nothing } else { TreeChange::Group };
        }
        if stream <= self.newest {
            self.counters.ignored += 1;
            return TreeChange::Nothing;
        }
        if self.groups.len() >= Self::MAX_GROUPS {
            self.counters.evicted += 1;
            self.groups.remove(0);
        }
        self.groups.push((stream, dependency));
        TreeChange::Group
    }

    /// Forgets a stream that has ended.
    pub fn close(&mut self, stream: StreamId) {
        self.streams.remove(stream);
    }

    /// Returns the urgency of an open stream; `None` if its weight tells nothing.
    pub fn urgency(&self, stream: StreamId) -> Option<Urgency> {
        // Few clients have priorities of this kind.
        if !self.weighted {
            return None;
        }
        let dependency = (*self.streams.get(stream)?)?;
        if let Some(group) = self.group_urgency(dependency.parent, DEPTH) {
            // Firefox sends 22 less its priority, which is -20 to 20, and moves the urgency in its
            // header field by the same steps.
            let change = match dependency.weight.get() {
                42.. => -2,
                32.. => -1,
                13.. => 0,
                3.. => 1,
                _ => 2,
            };
            return Urgency::new(group.saturating_add_signed(change).min(LEAST_OF_MEMBERS));
        }
        // RFC 7540 §5.3.5: clients that do not prioritise send this, if anything.
        if dependency.weight == Weight::DEFAULT && !dependency.exclusive {
            return None;
        }
        Urgency::new(dependency.weight.nearest(&STREAMS))
    }

    /// Number of open streams and groups that are kept.
    pub fn len(&self) -> usize {
        self.streams.len() + self.groups.len()
    }

    /// Returns true if neither streams nor groups are kept.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Counts since the beginning.
    pub const fn counters(&self) -> TreeCounters {
        self.counters
    }

    /// Returns false if the library of HTTP/2 refuses the priority (RFC 7540 §5.3.1, §6.3).
    fn is_valid(&self, stream: StreamId, dependency: Dependency) -> bool {
        stream.0 != 0 && dependency.parent != stream
    }

    /// Urgency of the members of a group; `None` for a stream that is no group.
    fn group_urgency(&self, group: StreamId, depth: u8) -> Option<u8> {
        let (_, dependency) = self.groups.iter().find(|(known, _)| *known == group)?;
        let own = dependency.weight.nearest(&GROUPS);
        // A peer can make groups depend on each other in a circle, so that the depth has a limit.
        let above = depth.checked_sub(1).and_then(|depth| self.group_urgency(dependency.parent, depth));
        Some(above.map_or(own, |above| own.midpoint(above)))
    }

    /// Marks the group that a stream depends on, and the groups around it, as used.
    fn touch(&mut self, dependency: Option<Dependency>) {
        let Some(dependency) = dependency else { return };
        let mut group = dependency.parent;
        for _ in 0..DEPTH {
            let Some(index) = self.groups.iter().position(|(known, _)| *known == group) else { return };
            self.groups[index..].rotate_left(1);
            group = self.groups[self.groups.len() - 1].1.parent;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn dependency(parent: u64, weight: u16, exclusive: bool) -> Dependency {
        Dependency { parent: StreamId(parent), weight: Weight::new(weight).unwrap(), exclusive }
    }

    /// Groups that Firefox makes at the beginning of a connection.
    fn firefox() -> Tree {
        let mut tree = Tree::new(100);
        for (group, parent, weight) in
            [(3, 0, 201), (5, 0, 101), (7, 0, 1), (9, 7, 1), (11, 3, 1), (13, 0, 241)]
        {
            let change = tree.prioritise(StreamId(group), dependency(parent, weight, false));
            assert_eq!(change, TreeChange::Group);
        }
        tree
    }

    /// Urgency of a stream that is opened with a priority.
    fn urgency(tree: &mut Tree, stream: u64, with: Dependency) -> Option<u8> {
        tree.open(StreamId(stream), Some(with));
        tree.urgency(StreamId(stream)).map(Urgency::get)
    }

    #[test]
    fn weights_are_1_to_256() {
        assert_eq!((Weight::new(0), Weight::new(257)), (None, None));
        assert_eq!((Weight::from_wire(0).get(), Weight::from_wire(255).get()), (1, 256));
        assert_eq!(Weight::new(256), Some(Weight::from_wire(255)));
        assert_eq!((Weight::default().get(), Weight::new(1).unwrap().get()), (16, 1));
    }

    #[test]
    fn chromiums_weights_are_its_urgencies() {
        let mut tree = Tree::new(100);
        for (index, weight) in [256, 220, 183, 147, 110, 74, 37, 1].into_iter().enumerate() {
            let stream = 2 * index as u64 + 1;
            let parent = if index == 0 { 0 } else { stream - 2 };
            let found = urgency(&mut tree, stream, dependency(parent, weight, true));
            assert_eq!(found.map(usize::from), Some(index), "{weight}");
        }
    }

    #[test]
    fn the_nearest_weight_counts() {
        let mut tree = Tree::new(100);
        for (stream, weight, expected) in
            [(1, 239, 0), (3, 237, 1), (5, 164, 3), (7, 165, 2), (9, 20, 6), (11, 18, 7)]
        {
            assert_eq!(urgency(&mut tree, stream, dependency(0, weight, false)), Some(expected), "{weight}");
        }
    }

    #[test]
    fn firefoxs_groups_are_its_urgencies() {
        let mut tree = firefox();
        for (stream, group, expected) in
            [(15, 13, 1), (17, 3, 2), (19, 5, 3), (21, 11, 4), (23, 7, 6), (25, 9, 6)]
        {
            assert_eq!(urgency(&mut tree, stream, dependency(group, 22, false)), Some(expected), "{group}");
        }
        assert_eq!(tree.counters(), TreeCounters::default());
    }

    #[test]
    fn members_weights_move_their_urgency() {
        let mut tree = firefox();
        // The page itself is `u=0`, and an image `u=5`, in the header field too.
        assert_eq!(urgency(&mut tree, 15, dependency(13, 42, false)), Some(0));
        assert_eq!(urgency(&mut tree, 17, dependency(11, 12, false)), Some(5));
        assert_eq!(urgency(&mut tree, 19, dependency(11, 32, false)), Some(3));
        assert_eq!(urgency(&mut tree, 21, dependency(7, 2, false)), Some(6));
        assert_eq!(urgency(&mut tree, 23, dependency(3, 16, false)), Some(2));
        for (stream, weight, expected) in [(25, 41, 3), (27, 31, 4), (29, 13, 4), (31, 3, 5), (33, 1, 6)] {
            assert_eq!(urgency(&mut tree, stream, dependency(11, weight, false)), Some(expected), "{weight}");
        }
    }

    #[test]
    fn the_default_weight_tells_nothing() {
        let mut tree = Tree::new(100);
        assert_eq!(urgency(&mut tree, 1, dependency(0, 16, false)), None);
        assert_eq!(urgency(&mut tree, 3, dependency(1, 16, false)), None);
        assert_eq!(urgency(&mut tree, 5, dependency(0, 16, true)), Some(7));
        tree.open(StreamId(7), None);
        assert_eq!((tree.urgency(StreamId(7)), tree.urgency(StreamId(9))), (None, None));
    }

    #[test]
    fn priority_frames_change_open_streams() {
        let mut tree = Tree::new(100);
        assert_eq!(urgency(&mut tree, 1, dependency(0, 147, true)), Some(3));
        let raised = dependency(0, 220, true);
        assert_eq!(tree.prioritise(StreamId(1), raised), TreeChange::Stream);
        assert_eq!(tree.prioritise(StreamId(1), raised), TreeChange::Nothing);
        assert_eq!(tree.urgency(StreamId(1)), Urgency::new(1));
    }

    #[test]
    fn streams_may_be_prioritised_before_they_open() {
        let mut tree = Tree::new(100);
        assert_eq!(tree.prioritise(StreamId(1), dependency(0, 220, true)), TreeChange::Group);
        tree.open(StreamId(1), None);
        assert_eq!((tree.urgency(StreamId(1)), tree.len()), (Urgency::new(1), 1));
    }

    #[test]
    fn moved_groups_take_their_members_along() {
        let mut tree = firefox();
        assert_eq!(urgency(&mut tree, 15, dependency(11, 22, false)), Some(4));
        assert_eq!(tree.prioritise(StreamId(11), dependency(7, 1, false)), TreeChange::Group);
        assert_eq!(tree.urgency(StreamId(15)), Urgency::new(6));
        assert_eq!(tree.prioritise(StreamId(11), dependency(7, 1, false)), TreeChange::Nothing);
    }

    #[test]
    fn groups_that_depend_on_each_other_have_an_urgency_between() {
        let mut tree = Tree::new(100);
        let (leaders, background) = (201, 1);
        tree.prioritise(StreamId(3), dependency(5, leaders, false));
        tree.prioritise(StreamId(5), dependency(3, background, false));
        let member = urgency(&mut tree, 7, dependency(3, 22, false)).unwrap();
        assert!((2..=6).contains(&member), "{member} is not between 2, of leaders, and 6, of background");
    }

    #[test]
    fn closed_streams_and_nonsense_are_ignored() {
        let mut tree = Tree::new(100);
        tree.open(StreamId(5), None);
        tree.close(StreamId(5));
        assert_eq!(tree.prioritise(StreamId(5), dependency(0, 220, false)), TreeChange::Nothing);
        assert_eq!(tree.prioritise(StreamId(3), dependency(0, 220, false)), TreeChange::Nothing);
        assert_eq!(tree.prioritise(StreamId(0), dependency(3, 220, false)), TreeChange::Nothing);
        assert_eq!(tree.prioritise(StreamId(7), dependency(7, 220, false)), TreeChange::Nothing);
        assert_eq!(tree.counters().ignored, 4);
        // Trailers of a stream that has ended.
        tree.open(StreamId(5), Some(dependency(0, 220, false)));
        assert!(tree.is_empty());
        tree.open(StreamId(7), Some(dependency(7, 220, false)));
        assert_eq!(tree.urgency(StreamId(7)), None);
    }

    #[test]
    fn floods_of_idle_streams_evict_unused_groups_first() {
        let mut tree = firefox();
        tree.open(StreamId(15), Some(dependency(11, 22, false)));
        for idle in 0..Tree::MAX_GROUPS as u64 - 2 {
            tree.prioritise(StreamId(101 + 2 * idle), dependency(0, 200, false));
        }
        assert_eq!(tree.urgency(StreamId(15)), Urgency::new(4));
        assert_eq!((tree.groups.len(), tree.counters().evicted), (Tree::MAX_GROUPS, 4));
    }

    #[test]
    fn streams_beyond_the_limit_evict_the_oldest() {
        let mut tree = Tree::new(2);
        for stream in [1, 3, 5] {
            assert_eq!(urgency(&mut tree, stream, dependency(0, 220, true)), Some(1));
        }
        assert_eq!((tree.urgency(StreamId(1)), tree.len(), tree.counters().evicted), (None, 2, 1));
        let mut none = Tree::new(0);
        assert_eq!((urgency(&mut none, 1, dependency(0, 220, true)), none.len()), (None, 0));
    }

    proptest! {
        #[test]
        fn the_tree_stays_within_its_limits(
            limit in 0..6_usize,
            steps in proptest::collection::vec((0..4_u8, 0..60_u64, 0..60_u64, any::<u8>(), any::<bool>()), 0..200),
        ) {
            let mut tree = Tree::new(limit);
            for (step, stream, parent, weight, exclusive) in steps {
                let stream = StreamId(stream);
                let with = Dependency { parent: StreamId(parent), weight: Weight::from_wire(weight), exclusive };
                match step {
                    0 => _ = tree.open(stream, Some(with)),
                    1 => tree.close(stream),
                    2 => _ = tree.open(stream, None),
                    _ => {
                        let before = tree.urgency(stream);
                        if tree.prioritise(stream, with) == TreeChange::Nothing {
                            prop_assert_eq!(tree.urgency(stream), before);
                        }
                    }
                }
                prop_assert!(tree.streams.len() <= limit && tree.groups.len() <= Tree::MAX_GROUPS);
                prop_assert!(tree.groups.iter().all(|(group, _)| !tree.streams.contains(*group)));
                tree.urgency(stream);
            }
        }

        #[test]
        fn heavier_streams_are_at_least_as_urgent(a in any::<u8>(), b in any::<u8>()) {
            let mut tree = Tree::new(2);
            let (light, heavy) = (a.min(b), a.max(b));
            let of = |wire| Dependency { parent: StreamId(0), weight: Weight::from_wire(wire), exclusive: true };
            tree.open(StreamId(1), Some(of(light)));
            tree.open(StreamId(3), Some(of(heavy)));
            prop_assert!(tree.urgency(StreamId(3)) <= tree.urgency(StreamId(1)));
        }
    }
}
