//! Lane scheduler of a session, and factories of other crates for it.

use std::fmt;
use std::sync::Arc;

use marcato_sched::reserve::Framing;
use marcato_sched::schedule::LaneScheduler;

/// Lane scheduler of a session.
pub(crate) type Scheduler = Box<dyn LaneScheduler + Send + Sync>;

/// Constructor of a lane scheduler that another crate implements, with a name.
///
/// A session builds its own scheduler with it. Each call gets the [`Framing`] of the session: the
/// bytes that messages count against congestion windows.
///
/// ```
/// use marcato_quic::{SchedulerFactory, SessionConfig};
/// use marcato_sched::schedule::{Choice, LaneScheduler, LowRtt};
/// use marcato_sched::{LaneView, Purpose};
/// use marcato_units::{Bytes, Time};
///
/// /// Counts the packets that the scheduler of the lowest round-trip time places.
/// #[derive(Default)]
/// struct Counting(LowRtt, u64);
///
/// impl LaneScheduler for Counting {
///     fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
///         self.0.choose(now, lanes, purpose, len)
///     }
///
///     fn sent(&mut self, _: Time, _: &LaneView, _: Purpose, _: Bytes) {
///         self.1 += 1;
///     }
/// }
///
/// let counting = SchedulerFactory::new("counting", |_framing| Box::new(Counting::default()));
/// let config = SessionConfig { own_scheduler: Some(counting), ..SessionConfig::default() };
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct SchedulerFactory {
    name: Arc<str>,
    make: Arc<dyn Fn(Framing) -> Scheduler + Send + Sync>,
}

impl SchedulerFactory {
    /// Creates a factory that calls `make` for each session. `name` appears in debug output only.
    pub fn new(
        name: &str,
        make: impl Fn(Framing) -> Box<dyn LaneScheduler + Send + Sync> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), make: Arc::new(make) }
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Builds a scheduler.
    pub fn build(&self, framing: Framing) -> Box<dyn LaneScheduler + Send + Sync> {
        (self.make)(framing)
    }
}

impl fmt::Debug for SchedulerFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SchedulerFactory").field(&self.name).finish()
    }
}

impl PartialEq for SchedulerFactory {
    /// Compares the identity of the factories: only clones are equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make)
    }
}

impl Eq for SchedulerFactory {}
