//! Congestion window reservation with redundancy (CWR §III-D2).

use marcato_units::{Bytes, Time};

use super::{Choice, Cwr, CwrConfig, CwrConfigError, LaneScheduler, Offer, Purpose, Unused};
use crate::lane::{LaneId, LaneView};
use crate::reserve::{DeclareError, Placement, Reserve, Source, SourceKey};

/// [`Cwr`] with reservations on every lane, which sends an urgent message on all lanes. Each lane
/// must have room for all of it when its first byte is sent, and the budget must allow it. Bytes
/// not duplicated then are never duplicated later (CWR §III-D2).
///
/// Only messages that ask for it ([`Redundancy::EveryLane`](crate::conductor::Redundancy)) are
/// duplicated. The paper duplicates all urgent ones, so in its reproduction all of them ask.
#[derive(Clone, Debug)]
pub struct CwrRed(Cwr);

impl CwrRed {
    /// Creates a scheduler that reserves on every lane for each release.
    ///
    /// # Errors
    ///
    /// If the configuration is invalid.
    pub fn new(config: CwrConfig) -> Result<Self, CwrConfigError> {
        Cwr::placed(config, Placement::EveryLane, true).map(Self)
    }

    /// Declares a periodic source; a declared source is never learned.
    ///
    /// # Errors
    ///
    /// If the source is invalid, or the table is full of declared sources.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.0.declare(key, source)
    }

    /// Withdraws a source; returns false if there is none of this key.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.0.withdraw(key)
    }

    /// Sources and their holds.
    pub const fn reserve(&self) -> &Reserve {
        self.0.reserve()
    }

    /// Capacity withheld from background data, up to the last call.
    pub const fn unused(&self) -> Unused {
        self.0.unused()
    }

    /// Bytes sent as copies.
    pub const fn copies(&self) -> Bytes {
        self.0.copies()
    }

    /// Bytes sent for the first time.
    pub const fn first(&self) -> Bytes {
        self.0.first()
    }
}

impl LaneScheduler for CwrRed {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        self.0.choose(now, lanes, purpose, len)
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        self.0.sent(now, lane, purpose, len);
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        self.0.lost(now, lane);
    }

    fn message_offered(&mut self, now: Time, offer: &Offer) {
        self.0.message_offered(now, offer);
    }

    fn message_complete(&mut self, now: Time, message: u64) {
        self.0.message_complete(now, message);
    }

    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        self.0.reserved(now, lane)
    }

    fn wakeup(&self) -> Option<Time> {
        self.0.wakeup()
    }

    fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.0.declare(key, source)
    }

    fn withdraw(&mut self, key: SourceKey) -> bool {
        self.0.withdraw(key)
    }

    fn source(&self, key: SourceKey) -> Option<Source> {
        self.0.reserve().source(key)
    }

    fn unused(&self) -> Unused {
        self.0.unused()
    }
}
