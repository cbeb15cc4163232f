//! Dispatch to the lane scheduler of a session.

use marcato_sched::lane::{LaneId, LaneView};
use marcato_sched::reserve::{DeclareError, Source, SourceKey};
use marcato_sched::schedule::{
    Choice, Cwr, CwrRed, LaneScheduler, Layered, LowRtt, Offer, Purpose, RoundRobin, Selective, Unused,
};
use marcato_units::{Bytes, Time};

/// One of the lane schedulers. An enum rather than a trait object, because only some of them take
/// sources.
#[derive(Debug)]
pub(crate) enum Scheduler {
    LowRtt(LowRtt),
    RoundRobin(RoundRobin),
    Cwr(Box<Cwr>),
    CwrRed(Box<CwrRed>),
    Selective(Box<Selective>),
    Layered(Box<Layered<Self>>),
}

impl Scheduler {
    fn inner(&self) -> &dyn LaneScheduler {
        match self {
            Self::LowRtt(scheduler) => scheduler,
            Self::RoundRobin(scheduler) => scheduler,
            Self::Cwr(scheduler) => &**scheduler,
            Self::CwrRed(scheduler) => &**scheduler,
            Self::Selective(scheduler) => &**scheduler,
            Self::Layered(scheduler) => &**scheduler,
        }
    }

    fn inner_mut(&mut self) -> &mut dyn LaneScheduler {
        match self {
            Self::LowRtt(scheduler) => scheduler,
            Self::RoundRobin(scheduler) => scheduler,
            Self::Cwr(scheduler) => &mut **scheduler,
            Self::CwrRed(scheduler) => &mut **scheduler,
            Self::Selective(scheduler) => &mut **scheduler,
            Self::Layered(scheduler) => &mut **scheduler,
        }
    }

    /// Declares a periodic source; schedulers without reservations ignore it.
    pub(crate) fn declare(&mut self, key: SourceKey, source: Source) -> Result<(), DeclareError> {
        match self {
            Self::Cwr(scheduler) => scheduler.declare(key, source),
            Self::CwrRed(scheduler) => scheduler.declare(key, source),
            Self::Layered(scheduler) => scheduler.base_mut().declare(key, source),
            Self::LowRtt(_) | Self::RoundRobin(_) | Self::Selective(_) => Ok(()),
        }
    }

    /// Withdraws a source.
    pub(crate) fn withdraw(&mut self, key: SourceKey) -> bool {
        match self {
            Self::Cwr(scheduler) => scheduler.withdraw(key),
            Self::CwrRed(scheduler) => scheduler.withdraw(key),
            Self::Layered(scheduler) => scheduler.base_mut().withdraw(key),
            Self::LowRtt(_) | Self::RoundRobin(_) | Self::Selective(_) => false,
        }
    }

    /// Parameters of a source.
    pub(crate) fn source(&self, key: SourceKey) -> Option<Source> {
        match self {
            Self::Cwr(scheduler) => scheduler.reserve().source(key),
            Self::CwrRed(scheduler) => scheduler.reserve().source(key),
            Self::Layered(scheduler) => scheduler.base().source(key),
            Self::LowRtt(_) | Self::RoundRobin(_) | Self::Selective(_) => None,
        }
    }

    /// Capacity that background data was denied.
    pub(crate) fn unused(&self) -> Unused {
        match self {
            Self::Cwr(scheduler) => scheduler.unused(),
            Self::CwrRed(scheduler) => scheduler.unused(),
            Self::Layered(scheduler) => scheduler.base().unused(),
            Self::LowRtt(_) | Self::RoundRobin(_) | Self::Selective(_) => Unused::default(),
        }
    }
}

impl LaneScheduler for Scheduler {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        self.inner_mut().choose(now, lanes, purpose, len)
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        self.inner_mut().sent(now, lane, purpose, len);
    }

    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        self.inner_mut().acked(now, lane, len);
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        self.inner_mut().lost(now, lane);
    }

    fn owes(&mut self, waiting: Bytes) {
        self.inner_mut().owes(waiting);
    }

    fn message_offered(&mut self, now: Time, offer: &Offer) {
        self.inner_mut().message_offered(now, offer);
    }

    fn message_complete(&mut self, now: Time, message: u64) {
        self.inner_mut().message_complete(now, message);
    }

    fn reserved(&self, now: Time, lane: &LaneView) -> Bytes {
        self.inner().reserved(now, lane)
    }

    fn wakeup(&self) -> Option<Time> {
        self.inner().wakeup()
    }
}
