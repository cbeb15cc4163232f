//! Congestion controls of other crates.

use std::fmt;
use std::sync::Arc;

use marcato_scenario::tcp::Tcp;
use marcato_units::Stream;

use super::CongestionControl;

type Make = dyn Fn(&Tcp, Stream) -> Box<dyn CongestionControl> + Send + Sync;

/// Constructor of a congestion control that another crate implements, with a name.
///
/// Each sender builds its own congestion control with it. The constructor gets the configuration of
/// its end and a random stream of its own.
///
/// ```
/// use marcato_sim::tcp::congestion::{AckEvent, CongestionControl, CongestionFactory, Signal};
/// use marcato_sim::TcpEnd;
/// use marcato_units::{Duration, Time};
///
/// /// A window that never changes.
/// #[derive(Debug)]
/// struct Constant(u64);
///
/// impl CongestionControl for Constant {
///     fn on_ack(&mut self, _: &AckEvent) {}
///     fn on_congestion(&mut self, _: Time, _: u64, _: Signal) {}
///     fn on_recovered(&mut self, _: Time) {}
///     fn on_rto(&mut self, _: Time, _: u64, _: bool) {}
///     fn on_idle_restart(&mut self, _: Time, _: bool, _: bool) {}
///     fn on_established(&mut self, _: Time, _: Option<Duration>) {}
///     fn cwnd(&self) -> u64 {
///         self.0
///     }
///     fn ssthresh(&self) -> u64 {
///         self.0
///     }
/// }
///
/// let constant = CongestionFactory::new("constant", |config, _| Box::new(Constant(config.initial_cwnd())));
/// let config = TcpEnd { own_congestion: Some(constant), ..TcpEnd::default() };
/// # let _ = config;
/// ```
#[derive(Clone)]
pub struct CongestionFactory {
    name: Arc<str>,
    make: Arc<Make>,
    echoes_each_mark: bool,
}

impl CongestionFactory {
    /// Creates a factory that calls `make` for each sender. `name` appears in debug output only.
    pub fn new(
        name: &str,
        make: impl Fn(&Tcp, Stream) -> Box<dyn CongestionControl> + Send + Sync + 'static,
    ) -> Self {
        Self { name: name.into(), make: Arc::new(make), echoes_each_mark: false }
    }

    /// Makes the receiving half of an end echo each ECN mark once, as DCTCP needs it (RFC 8257
    /// §3.2), instead of until the sender reports a reduction: configure both ends alike.
    #[must_use]
    pub fn echo_each_mark(mut self) -> Self {
        self.echoes_each_mark = true;
        self
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Builds a congestion control.
    pub fn build(&self, config: &Tcp, stream: Stream) -> Box<dyn CongestionControl> {
        (self.make)(config, stream)
    }

    pub(crate) fn echoes_each_mark(&self) -> bool {
        self.echoes_each_mark
    }
}

impl fmt::Debug for CongestionFactory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("CongestionFactory").field(&self.name).finish()
    }
}

impl PartialEq for CongestionFactory {
    /// Compares the identity of the factories: only clones are equal.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.make, &other.make) && self.echoes_each_mark == other.echoes_each_mark
    }
}

impl Eq for CongestionFactory {}
