//! Data that the engine holds back from the network, as far as the session can tell.

use std::collections::VecDeque;

use marcato_sched::lane::LaneId;
use marcato_units::Priority;

use crate::lane::Load;

/// Packet's worth of lost data that the engine has to retransmit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owed {
    /// Set for a copy that has another copy on another lane. It stays on its lane if possible.
    pub(crate) pinned: bool,
    /// Lane on which it was lost.
    pub(crate) lost_on: LaneId,
}

/// Content of the engine at the last look behind shut gates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Engine {
    /// It sends what it is given, at once.
    #[default]
    Empty,
    /// It holds data that the gates keep back.
    Holding {
        /// Set when a held packet was larger than control frames alone would be.
        bulky: bool,
        /// Priority of the held data, if it waits only for window room.
        crowded: Option<Priority>,
    },
}

/// State of the engine between the session's polls.
///
/// The session writes only what leaves at once, so the engine normally holds nothing. Lost data and
/// control frames are the exceptions. Only a poll with every gate shut shows them: a *look*.
#[derive(Debug)]
pub(super) struct SendState {
    /// Set when the engine may have packets to send without a new chunk.
    look: bool,
    engine: Engine,
    /// Load of the next packet, which was meant for a packet that did not leave.
    kept: Option<Load>,
    /// Packets that the engine has to retransmit, by priority, earliest lost first.
    owed: [VecDeque<Owed>; Priority::COUNT],
}

impl Default for SendState {
    fn default() -> Self {
        Self { look: true, engine: Engine::Empty, kept: None, owed: Default::default() }
    }
}

impl SendState {
    /// Requests a look, because the engine may have packets to send without a new chunk.
    pub(super) fn request_look(&mut self) {
        self.look = true;
    }

    /// Returns whether a look is due.
    pub(super) const fn look_is_due(&self) -> bool {
        self.look
    }

    /// Records a look by which nothing left. `refused` means that a gate kept something back.
    /// Returns whether the engine is empty.
    pub(super) fn looked(&mut self, refused: bool) -> bool {
        self.look = false;
        match (refused, self.engine) {
            (true, Engine::Empty) => self.engine = Engine::Holding { bulky: false, crowded: None },
            (true, Engine::Holding { .. }) => {}
            (false, _) => {
                self.engine = Engine::Empty;
                self.kept = None;
                self.owed.iter_mut().for_each(VecDeque::clear);
            }
        }
        !refused
    }

    /// Returns whether the engine held data at the last look.
    pub(super) const fn is_held(&self) -> bool {
        matches!(self.engine, Engine::Holding { .. })
    }

    /// Returns whether the held data is more than control frames.
    pub(super) const fn is_bulky(&self) -> bool {
        matches!(self.engine, Engine::Holding { bulky: true, .. })
    }

    /// Records that a held packet was larger than control frames alone would be.
    pub(super) fn set_bulky(&mut self) {
        if let Engine::Holding { bulky, .. } = &mut self.engine {
            *bulky = true;
        }
    }

    /// Returns the priority of the held data, if it waits only for window room.
    pub(super) const fn crowded(&self) -> Option<Priority> {
        match self.engine {
            Engine::Holding { crowded, .. } => crowded,
            Engine::Empty => None,
        }
    }

    /// Sets the priority of the held data, if it waits only for window room.
    pub(super) fn set_crowded(&mut self, level: Option<Priority>) {
        if let Engine::Holding { crowded, .. } = &mut self.engine {
            *crowded = level;
        }
    }

    /// Disregards held control frames, because nothing can leave before a look is requested. Bulky
    /// data still counts.
    pub(super) fn disregard_control(&mut self) {
        if !self.is_bulky() {
            self.engine = Engine::Empty;
        }
    }

    /// Records the load of a chunk that stayed in the engine, and requests a look.
    pub(super) fn keep(&mut self, load: Load) {
        self.kept = Some(load);
        self.look = true;
    }

    /// Returns the load of the chunk that stayed in the engine.
    pub(super) const fn kept(&self) -> Option<Load> {
        self.kept
    }

    /// Records that the chunk has left; returns `false` if there was none.
    pub(super) fn release(&mut self) -> bool {
        self.kept.take().is_some()
    }

    /// Records a lost packet that the engine has to retransmit.
    pub(super) fn owe(&mut self, level: Priority, owed: Owed) {
        self.owed[level.index()].push_back(owed);
    }

    /// Returns the packet that is the next to be retransmitted, with its priority.
    pub(super) fn next_owed(&self) -> Option<(Priority, Owed)> {
        Priority::ALL.iter().find_map(|level| Some((*level, *self.owed[level.index()].front()?)))
    }

    /// Records that the next packet of this level has been retransmitted.
    pub(super) fn pay(&mut self, level: Priority) {
        self.owed[level.index()].pop_front();
    }

    /// Number of packets to be retransmitted.
    pub(super) fn owed(&self) -> usize {
        self.owed.iter().map(VecDeque::len).sum()
    }

    /// Load of a packet that the engine sends without a new chunk.
    pub(super) fn due(&self) -> Load {
        let repair = self.next_owed().map(|(priority, _)| Load::Repair { priority, pinned: false });
        self.kept.or(repair).unwrap_or(Load::Control)
    }
}

#[cfg(test)]
mod tests {
    use marcato_sched::lane::LaneId;

    use super::*;

    const OWED: Owed = Owed { pinned: false, lost_on: LaneId::FIRST };
    const LOAD: Load = Load::Repair { priority: Priority::P2, pinned: true };

    /// State of an engine that holds data.
    fn holding() -> SendState {
        let mut state = SendState::default();
        assert!(!state.looked(true));
        state
    }

    #[test]
    fn a_session_begins_with_a_look() {
        let mut state = SendState::default();
        assert!(state.look_is_due() && !state.is_held());
        assert!(state.looked(false));
        assert!(!state.look_is_due());
        state.request_look();
        assert!(state.look_is_due());
    }

    #[test]
    fn an_empty_engine_owes_and_keeps_nothing() {
        let mut state = holding();
        state.owe(Priority::P1, OWED);
        state.keep(LOAD);
        state.set_bulky();
        state.set_crowded(Some(Priority::P1));
        assert!(state.looked(false));
        assert!(!state.is_held() && !state.is_bulky());
        assert_eq!((state.crowded(), state.kept(), state.owed()), (None, None, 0));
        // Nor does it remember when it holds something else.
        state.looked(true);
        assert!(state.is_held() && !state.is_bulky());
    }

    #[test]
    fn data_stays_bulky_until_the_engine_is_empty() {
        let mut state = holding();
        state.set_bulky();
        state.looked(true);
        assert!(state.is_bulky());
    }

    #[test]
    fn an_empty_engine_is_neither_bulky_nor_crowded() {
        let mut state = SendState::default();
        state.set_bulky();
        state.set_crowded(Some(Priority::P0));
        assert!(!state.is_bulky() && state.crowded().is_none());
    }

    #[test]
    fn control_frames_can_be_disregarded_and_data_cannot() {
        let mut state = holding();
        state.disregard_control();
        assert!(!state.is_held());
        let mut state = holding();
        state.set_bulky();
        state.disregard_control();
        assert!(state.is_held());
    }

    #[test]
    fn the_most_urgent_lost_packet_is_retransmitted_first() {
        let mut state = holding();
        let other = Owed { pinned: true, ..OWED };
        for (level, owed) in [(Priority::P3, OWED), (Priority::P1, OWED), (Priority::P1, other)] {
            state.owe(level, owed);
        }
        let mut order = Vec::new();
        while let Some((level, owed)) = state.next_owed() {
            state.pay(level);
            order.push((level, owed.pinned, state.owed()));
        }
        assert_eq!(order, [(Priority::P1, false, 2), (Priority::P1, true, 1), (Priority::P3, false, 0)]);
    }

    #[test]
    fn a_chunk_that_stayed_leaves_before_retransmissions() {
        let mut state = holding();
        assert_eq!(state.due(), Load::Control);
        state.owe(Priority::P4, OWED);
        assert_eq!(state.due(), Load::Repair { priority: Priority::P4, pinned: false });
        state.keep(LOAD);
        assert_eq!(state.due(), LOAD);
        assert!(state.look_is_due());
        assert!(state.release() && !state.release());
        assert_eq!(state.due(), Load::Repair { priority: Priority::P4, pinned: false });
    }
}
