//! Congestion window reservation with redundancy (CWR §III-D2).

use marcato_units::{Bytes, Time};

use super::{Choice, Cwr, CwrConfig, CwrConfigError, LaneScheduler, Offer, Purpose, Unused};
use crate::lane::{LaneId, LaneView};
use crate::reserve::{DeclareError, Placement, Reserve, Source, SourceKey};

/// [`Cwr`] that reserves on every lane and sends an urgent message on all of them, if each has room for all of it when
/// its first byte leaves and the budget allows. What was not sent twice then is never sent twice later.
///
/// Only messages that ask for it ([`Redundancy::EveryLane`](crate::conductor::Redundancy)) are duplicated; the paper
/// duplicates all urgent ones, so its reproduction has all of them ask.
#[derive(Clone, Debug)]
pub struct CwrRed(Cwr);

impl CwrRed {
    /// A scheduler that reserves on every lane for each release.
    ///
    /// # Errors
    ///
    /// If the configuration is impossible.
    pub fn new(config: CwrConfig) -> Result<Self, CwrConfigError> {
        Cwr::placed(config, Placement::EveryLane, true).map(Self)
    }

    /// Announces a periodic source; a declared source is never learned.
    ///
    /// # Errors
    ///
    /// If the source is impossible, or as many are declared as may.
    pub fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        self.0.declare(key, source)
    }

    /// Takes an announcement back; `false` if there is no such source.
    pub fn withdraw(&mut self, key: SourceKey) -> bool {
        self.0.withdraw(key)
    }

    /// The sources and what is held for them.
    pub const fn reserve(&self) -> &Reserve {
        self.0.reserve()
    }

    /// What background data could not use, up to the latest question.
    pub const fn unused(&self) -> Unused {
        self.0.unused()
    }

    /// How many bytes have been sent as copies.
    pub const fn copies(&self) -> Bytes {
        self.0.copies()
    }

    /// How many bytes have been sent for the first time.
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
}
