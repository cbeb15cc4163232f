//! Responses that can send, in the order of their turns.
//!
//! Three layers of heaps: each level has branches, a branch has cells, and a cell has the responses of
//! one urgency and group. Branches are urgencies and order strictly, and the cells of one share; or the
//! other way round if groups stand [above](Grouping::AboveUrgency) urgency. A layer has only what can
//! send.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;

use marcato_units::{Bytes, Priority};

use super::group::{GroupId, Grouping, Weight};
use super::heap::{Heap, Positions};
use super::share::{Clock, Share, Virtual};
use super::urgency::{LevelTable, Urgency};
use crate::ledger::Levels;

/// Index of a response in the table.
pub(super) type Slot = u32;

/// Index of a cell.
pub(super) type CellId = u32;

/// Index of no cell.
const NONE: u32 = u32::MAX;

/// Cells without open responses that are kept besides as many as have some.
const SPARE: usize = 32;

/// Heap in which a response waits: the sequential or the incremental ones of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) cell: CellId,
    pub(super) incremental: bool,
}

/// Rank of a response in its heap; the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank(u128);

impl Rank {
    /// Returns the rank by order, the greater first, and then by turn, the smaller first.
    #[inline]
    pub(super) const fn new(order: i64, turn: u64) -> Self {
        // Flipping the sign makes the integers ordered as unsigned ones. The others turn that around.
        let order = order.cast_unsigned() ^ !(1 << 63);
        Self((order as u128) << 64 | turn as u128)
    }

    /// Order of the rank, less for a greater one.
    #[inline]
    pub(super) const fn order(self) -> u64 {
        (self.0 >> 64) as u64
    }
}

/// Rank of a branch or cell; the smallest is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    first: Virtual,
    then: u64,
}

impl Key {
    /// Key among groups.
    const fn shared(share: &Share, group: u64) -> Self {
        Self { first: share.at, then: group }
    }

    /// Key among urgencies.
    const fn strict(urgency: u64) -> Self {
        Self { first: 0, then: urgency }
    }
}

/// Branches of a level, or cells of a branch, that can send.
#[derive(Clone, Debug)]
struct Siblings {
    heap: Heap<Key>,
    /// Clock of the groups, if these are groups.
    clock: Clock,
    /// Number of all, also of those that cannot send.
    members: u32,
}

impl Siblings {
    const fn new() -> Self {
        Self { heap: Heap::new(), clock: Clock::NEW, members: 0 }
    }
}

/// One urgency of a level, or one group of it if groups stand above.
#[derive(Clone, Debug)]
struct Branch {
    level: Priority,
    /// Number of the urgency or of the group.
    name: u64,
    /// Share of the group, if groups stand above.
    share: Share,
    cells: Siblings,
}

/// Responses of one level, urgency and group.
#[derive(Clone, Debug)]
struct Cell {
    branch: u32,
    key: CellKey,
    /// Share of the group, unless groups stand above.
    share: Share,
    sequential: Heap<Rank>,
    incremental: Heap<Rank>,
    /// True if its incremental responses are next, if both kinds wait.
    incremental_next: bool,
    /// Open responses, also those that cannot send.
    open: u32,
}

impl Cell {
    #[inline]
    const fn waiting(&self) -> usize {
        self.sequential.len() + self.incremental.len()
    }
}

/// Identity of a cell. The group is first, so that those of a group are adjacent.
pub(super) type CellKey = (GroupId, Priority, Urgency);

/// Response whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Next {
    pub(super) slot: Slot,
    pub(super) cell: CellId,
    /// True if it takes turns with others, so that a grant has one turn at most.
    pub(super) takes_turns: bool,
}

/// State of a cell before a grant.
#[derive(Clone, Copy, Debug)]
pub(super) struct Before {
    pub(super) cell: CellId,
    incremental_next: bool,
}

/// Share that was brought up to date since the latest grant.
#[derive(Clone, Copy, Debug)]
struct Raised {
    /// Branch or cell of the share.
    id: u32,
    before: Share,
}

/// All responses that can send.
///
/// Each response is in one heap at most. A heap keeps its memory, so what leaves it may return without
/// an allocation.
#[derive(Clone, Debug)]
pub(super) struct Ready {
    grouping: Grouping,
    levels: [Siblings; Priority::COUNT],
    branches: Vec<Branch>,
    cells: Vec<Cell>,
    /// Positions of branches, of cells, and of the slots of responses.
    branch_positions: Positions,
    cell_positions: Positions,
    positions: Positions,
    /// Levels with a response that can send.
    waiting: Levels,
    /// Cells of the default group at the usual levels of HTTP's urgencies. They are never removed.
    usual: [CellId; Urgency::COUNT],
    cell_ids: BTreeMap<CellKey, CellId>,
    branch_ids: BTreeMap<(Priority, u64), u32>,
    free_branches: Vec<u32>,
    free_cells: Vec<CellId>,
    /// Cells without open responses, besides the usual ones.
    idle: usize,
    /// Shares that were brought up to date since the latest grant.
    raised: Vec<Raised>,
    /// Share and clock of the group of the latest grant before it, if that shares with others.
    shared: Option<(Share, Clock)>,
}

/// Cells and their branches.
impl Ready {
    pub(super) const fn new(grouping: Grouping) -> Self {
        Self {
            grouping,
            levels: [const { Siblings::new() }; Priority::COUNT],
            branches: Vec::new(),
            cells: Vec::new(),
            branch_positions: Positions::new(),
            cell_positions: Positions::new(),
            positions: Positions::new(),
            waiting: 0,
            usual: [NONE; Urgency::COUNT],
            cell_ids: BTreeMap::new(),
            branch_ids: BTreeMap::new(),
            free_branches: Vec::new(),
            free_cells: Vec::new(),
            idle: 0,
            raised: Vec::new(),
            shared: None,
        }
    }

    /// Makes room for the position of one more slot.
    pub(super) fn grow(&mut self) {
        self.positions.grow();
    }

    /// Capacities of everything that grows.
    #[cfg(test)]
    pub(super) fn capacities(&self) -> Vec<usize> {
        let tables = [self.branches.capacity(), self.cells.capacity(), self.raised.capacity()];
        let levels = self.levels.iter().map(|level| level.heap.capacity());
        let branches = self.branches.iter().map(|branch| branch.cells.heap.capacity());
        let cells = self.cells.iter().map(|cell| [cell.sequential.capacity(), cell.incremental.capacity()]);
        levels.chain(branches).chain(cells.flatten()).chain(tables).collect()
    }

    /// Levels with a response that can send.
    #[inline]
    pub(super) const fn waiting(&self) -> Levels {
        self.waiting
    }

    /// True if a response with this key is of the cell.
    #[inline]
    pub(super) fn is(&self, cell: CellId, key: CellKey) -> bool {
        self.cells[cell as usize].key == key
    }

    /// Returns the cell of a response that is opened, or that comes from another cell. `latest` is the
    /// cell of the latest grant.
    pub(super) fn join(
        &mut self,
        key: CellKey,
        levels: &LevelTable,
        weights: &BTreeMap<GroupId, Weight>,
        latest: Option<CellId>,
    ) -> CellId {
        let (group, level, urgency) = key;
        let is_usual =
            group == GroupId::DEFAULT && urgency.index() < Urgency::COUNT && levels.level(urgency) == level;
        let weight = || weights.get(&group).copied().unwrap_or_default();
        if is_usual {
            let usual = self.usual[urgency.index()];
            let cell = if usual == NONE { self.add(key, weight()) } else { usual };
            self.usual[urgency.index()] = cell;
            self.cells[cell as usize].open += 1;
            return cell;
        }
        let cell = match self.cell_ids.get(&key) {
            Some(&cell) => {
                self.idle -= usize::from(self.cells[cell as usize].open == 0);
                cell
            }
            None => {
                // Joins pay for it: at least half as many came before it as there are cells to look at.
                if self.idle > SPARE && 2 * self.idle > self.cell_ids.len() {
                    self.forget(latest);
                }
                let cell = self.add(key, weight());
                self.cell_ids.insert(key, cell);
                cell
            }
        };
        self.cells[cell as usize].open += 1;
        cell
    }

    /// Takes a response out of its cell, which is closed or goes to another cell.
    pub(super) fn leave(&mut self, cell: CellId) {
        let left = &mut self.cells[cell as usize];
        left.open -= 1;
        if left.open == 0 && !self.usual.contains(&cell) {
            self.idle += 1;
        }
    }

    /// Sets the weight of a group in all its cells.
    pub(super) fn set_weight(&mut self, group: GroupId, weight: Weight) {
        let first = (group, Priority::P0, Urgency::MOST);
        let of_group = self.cell_ids.range(first..).take_while(|((other, ..), _)| *other == group);
        let usual = self.usual.iter().filter(|cell| **cell != NONE && group == GroupId::DEFAULT);
        for &cell in of_group.map(|(_, cell)| cell).chain(usual) {
            let cell = &mut self.cells[cell as usize];
            cell.share.weight = weight;
            if self.grouping == Grouping::AboveUrgency {
                self.branches[cell.branch as usize].share.weight = weight;
            }
        }
    }

    /// Adds a cell without responses.
    #[expect(clippy::cast_possible_truncation, reason = "a cell has responses, whose number is limited")]
    fn add(&mut self, key: CellKey, weight: Weight) -> CellId {
        let (group, level, urgency) = key;
        let name = match self.grouping {
            Grouping::WithinUrgency => u64::from(urgency.get()),
            Grouping::AboveUrgency => group.0,
        };
        let branch = match self.branch_ids.get(&(level, name)) {
            Some(&branch) => branch,
            None => {
                let share = Share::new(weight);
                let new = Branch { level, name, share, cells: Siblings::new() };
                let id = self.free_branches.pop().unwrap_or(self.branches.len() as u32);
                match self.branches.get_mut(id as usize) {
                    Some(unused) => *unused = new,
                    None => {
                        self.branches.push(new);
                        self.branch_positions.grow();
                    }
                }
                self.branch_ids.insert((level, name), id);
                self.levels[level.index()].members += 1;
                id
            }
        };
        self.branches[branch as usize].cells.members += 1;
        let new = Cell {
            branch,
            key,
            share: Share::new(weight),
            sequential: Heap::new(),
            incremental: Heap::new(),
            incremental_next: false,
            open: 0,
        };
        let id = self.free_cells.pop().unwrap_or(self.cells.len() as u32);
        match self.cells.get_mut(id as usize) {
            Some(unused) => *unused = new,
            None => {
                self.cells.push(new);
                self.cell_positions.grow();
            }
        }
        id
    }

    /// Removes cells without open responses: those that are no different from new ones, or all if too
    /// many are left.
    #[cold]
    fn forget(&mut self, latest: Option<CellId>) {
        for only_passed in [true, false] {
            if self.idle <= SPARE {
                break;
            }
            let Self { cells, branches, levels, cell_ids, .. } = self;
            let mut gone = Vec::new();
            cell_ids.retain(|_, &mut id| {
                let cell = &cells[id as usize];
                let branch = &branches[cell.branch as usize];
                let has_passed = match self.grouping {
                    Grouping::WithinUrgency => branch.cells.clock.has_passed(&cell.share),
                    Grouping::AboveUrgency => levels[branch.level.index()].clock.has_passed(&branch.share),
                };
                let goes = cell.open == 0 && latest != Some(id) && (has_passed || !only_passed);
                if goes {
                    gone.push(id);
                }
                !goes
            });
            self.idle -= gone.len();
            for &id in &gone {
                let branch = self.cells[id as usize].branch;
                let left = &mut self.branches[branch as usize];
                left.cells.members -= 1;
                if left.cells.members == 0 {
                    self.levels[left.level.index()].members -= 1;
                    self.branch_ids.remove(&(left.level, left.name));
                    self.free_branches.push(branch);
                }
                self.cells[id as usize].branch = NONE;
            }
            let Self { cells, branches, raised, .. } = self;
            raised.retain(|raised| match self.grouping {
                Grouping::WithinUrgency => cells[raised.id as usize].branch != NONE,
                Grouping::AboveUrgency => branches[raised.id as usize].cells.members > 0,
            });
            self.free_cells.append(&mut gone);
        }
    }
}

/// Responses.
impl Ready {
    /// Adds the response in `slot`, which must be in no heap.
    pub(super) fn insert(&mut self, place: Place, slot: Slot, rank: Rank) {
        let cell = &mut self.cells[place.cell as usize];
        let was_empty = cell.waiting() == 0;
        let heap = if place.incremental { &mut cell.incremental } else { &mut cell.sequential };
        heap.insert(&mut self.positions, slot, rank);
        if was_empty {
            self.enter(place.cell);
        }
    }

    /// Removes the response in `slot` from its place.
    pub(super) fn remove(&mut self, place: Place, slot: Slot) {
        let cell = &mut self.cells[place.cell as usize];
        let heap = if place.incremental { &mut cell.incremental } else { &mut cell.sequential };
        heap.remove(&mut self.positions, slot);
        if cell.waiting() > 0 {
            return;
        }
        let branch = &mut self.branches[cell.branch as usize];
        branch.cells.heap.remove(&mut self.cell_positions, place.cell);
        if branch.cells.heap.len() == 0 {
            let level = &mut self.levels[branch.level.index()];
            level.heap.remove(&mut self.branch_positions, cell.branch);
            if level.heap.len() == 0 {
                self.waiting &= !(1 << branch.level.index());
            }
        }
    }

    /// Changes the rank of the response in `slot`.
    #[inline]
    pub(super) fn rank(&mut self, place: Place, slot: Slot, rank: Rank) {
        let cell = &mut self.cells[place.cell as usize];
        let heap = if place.incremental { &mut cell.incremental } else { &mut cell.sequential };
        heap.set(&mut self.positions, slot, rank);
    }

    /// Puts a cell, whose first response can send, among those of its branch.
    fn enter(&mut self, id: CellId) {
        let cell = &mut self.cells[id as usize];
        let branch = &mut self.branches[cell.branch as usize];
        let level = &mut self.levels[branch.level.index()];
        let is_first = branch.cells.heap.len() == 0;
        // Shares concern only one of the layers.
        let (within, above, raised) = match self.grouping {
            Grouping::WithinUrgency => {
                let before = cell.share;
                let raised = branch.cells.clock.admit(&mut cell.share).then_some(Raised { id, before });
                (Key::shared(&cell.share, cell.key.0.0), Key::strict(branch.name), raised)
            }
            Grouping::AboveUrgency => {
                let before = branch.share;
                let is_raised = is_first && level.clock.admit(&mut branch.share);
                let raised = is_raised.then_some(Raised { id: cell.branch, before });
                (Key::strict(cell.key.2.get().into()), Key::shared(&branch.share, branch.name), raised)
            }
        };
        branch.cells.heap.insert(&mut self.cell_positions, id, within);
        if is_first {
            level.heap.insert(&mut self.branch_positions, cell.branch, above);
            self.waiting |= 1 << branch.level.index();
        }
        self.raised.extend(raised);
    }

    /// Returns the response of `level` whose turn it is.
    #[inline]
    pub(super) fn next(&self, level: Priority) -> Option<Next> {
        let level = &self.levels[level.index()];
        let branch = &self.branches[level.heap.first()? as usize];
        let id = branch.cells.heap.first()?;
        let cell = &self.cells[id as usize];
        let incremental = match (cell.sequential.first_key(), cell.incremental.first_key()) {
            (Some(sequential), Some(incremental)) => match sequential.order().cmp(&incremental.order()) {
                Ordering::Less => false,
                Ordering::Greater => true,
                Ordering::Equal => cell.incremental_next,
            },
            (sequential, _) => sequential.is_none(),
        };
        let slot = if incremental { &cell.incremental } else { &cell.sequential }.first()?;
        let groups = match self.grouping {
            Grouping::WithinUrgency => &branch.cells,
            Grouping::AboveUrgency => level,
        };
        let takes_turns = cell.incremental.len() > 0 && cell.waiting() > 1 || groups.heap.len() > 1;
        Some(Next { slot, cell: id, takes_turns })
    }

    /// Charges a grant to the group of `cell`, whose turn it was. The other kind of its responses is
    /// next. Returns the state before.
    #[inline]
    pub(super) fn charge(&mut self, id: CellId, len: Bytes, incremental: bool) -> Before {
        self.raised.clear();
        let cell = &mut self.cells[id as usize];
        let incremental_next = core::mem::replace(&mut cell.incremental_next, !incremental);
        // The times of a group alone are relative to nothing: another one begins at the time of the latest
        // grant, which was its own.
        let branch = &self.branches[cell.branch as usize];
        let members = match self.grouping {
            Grouping::WithinUrgency => branch.cells.members,
            Grouping::AboveUrgency => self.levels[branch.level.index()].members,
        };
        self.shared = None;
        if members > 1 {
            self.charge_share(id, len);
        }
        Before { cell: id, incremental_next }
    }

    fn charge_share(&mut self, id: CellId, len: Bytes) {
        let (share, clock) = self.share(id);
        let before = (*share, *clock);
        share.charge(len);
        *clock = Clock { start: before.0.at, finish: share.at };
        self.shared = Some(before);
        self.settle(id);
    }

    /// Restores the state before the latest grant, as if only its first `taken` bytes had been granted.
    pub(super) fn restore(&mut self, before: Before, taken: Bytes) {
        if taken.is_zero() {
            self.cells[before.cell as usize].incremental_next = before.incremental_next;
        }
        let Some((mut then, clock_then)) = self.shared.take() else { return };
        let (share, clock) = self.share(before.cell);
        let start = then.at;
        then.charge(taken);
        *share = share.at(then);
        *clock = if taken.is_zero() { clock_then } else { Clock { start, finish: then.at } };
        self.settle(before.cell);
        // Groups that have begun to send since the grant were brought up to its time.
        while let Some(Raised { id, before }) = self.raised.pop() {
            match self.grouping {
                Grouping::WithinUrgency => {
                    let Self { cells, branches, cell_positions, .. } = self;
                    let cell = &mut cells[id as usize];
                    let siblings = &mut branches[cell.branch as usize].cells;
                    cell.share = cell.share.at(before);
                    siblings.clock.admit(&mut cell.share);
                    if cell_positions.contains(id) {
                        let key = Key::shared(&cell.share, cell.key.0.0);
                        siblings.heap.set(cell_positions, id, key);
                    }
                }
                Grouping::AboveUrgency => {
                    let Self { branches, levels, branch_positions, .. } = self;
                    let branch = &mut branches[id as usize];
                    let siblings = &mut levels[branch.level.index()];
                    branch.share = branch.share.at(before);
                    siblings.clock.admit(&mut branch.share);
                    if branch_positions.contains(id) {
                        siblings.heap.set(branch_positions, id, Key::shared(&branch.share, branch.name));
                    }
                }
            }
        }
    }

    /// Share of the group of a cell, and the clock of those that share with it.
    #[inline]
    fn share(&mut self, id: CellId) -> (&mut Share, &mut Clock) {
        let Self { cells, branches, levels, .. } = self;
        let cell = &mut cells[id as usize];
        let branch = &mut branches[cell.branch as usize];
        match self.grouping {
            Grouping::WithinUrgency => (&mut cell.share, &mut branch.cells.clock),
            Grouping::AboveUrgency => (&mut branch.share, &mut levels[branch.level.index()].clock),
        }
    }

    /// Puts the group of a cell where its share belongs.
    #[inline]
    fn settle(&mut self, id: CellId) {
        let Self { cells, branches, levels, cell_positions, branch_positions, .. } = self;
        let cell = &cells[id as usize];
        let branch = &mut branches[cell.branch as usize];
        match self.grouping {
            Grouping::WithinUrgency if cell_positions.contains(id) => {
                let key = Key::shared(&cell.share, cell.key.0.0);
                branch.cells.heap.set(cell_positions, id, key);
            }
            Grouping::AboveUrgency if branch_positions.contains(cell.branch) => {
                let key = Key::shared(&branch.share, branch.name);
                levels[branch.level.index()].heap.set(branch_positions, cell.branch, key);
            }
            Grouping::WithinUrgency | Grouping::AboveUrgency => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVELS: LevelTable = LevelTable::DEFAULT;

    fn key(group: u64) -> CellKey {
        (GroupId(group), Priority::P2, Urgency::DEFAULT)
    }

    /// Each group sends a little and is over. One of them stays.
    #[test]
    fn groups_without_responses_are_forgotten() {
        for grouping in [Grouping::WithinUrgency, Grouping::AboveUrgency] {
            let (mut ready, weights) = (Ready::new(grouping), BTreeMap::new());
            let stays = ready.join(key(1), &LEVELS, &weights, None);
            let mut latest = None;
            ready.grow();
            for group in 2..10_000 {
                let cell = ready.join(key(group), &LEVELS, &weights, latest);
                let place = Place { cell, incremental: false };
                ready.insert(place, 0, Rank::new(0, group));
                assert_eq!(ready.next(Priority::P2).map(|next| (next.slot, next.cell)), Some((0, cell)));
                ready.charge(cell, Bytes::kb(1), false);
                latest = Some(cell);
                ready.remove(place, 0);
                ready.leave(cell);
                assert!(ready.is(cell, key(group)) && ready.is(stays, key(1)));
                assert!(ready.raised.len() <= ready.idle + 1, "{} raised", ready.raised.len());
            }
            assert!(ready.cells.len() <= 2 * SPARE, "{} cells", ready.cells.len());
            assert!(ready.branches.len() <= 2 * SPARE, "{} branches", ready.branches.len());
            assert_eq!(ready.cell_ids.len(), ready.idle + 1);
        }
    }
}
