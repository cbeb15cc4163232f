//! Congestion controls, lane schedulers and workloads that Python classes implement.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_quic::SchedulerFactory;
use marcato_scenario::plugin::{Parameter, Parameters, PluginKind, PluginNameError, PluginNames};
use marcato_sched::schedule::{Choice, LaneScheduler, Wait, eligible, fastest, one_or_wait};
use marcato_sched::{LaneId, LaneSet, LaneView, Purpose};
use marcato_sim::CongestionFactory;
use marcato_sim::scenario::{Plugins, Release, Workload};
use marcato_sim::tcp::congestion::{AckEvent, CongestionControl, LossState, Signal};
use marcato_units::{Bytes, Duration, Layer, Priority, Rate, Seed, Stream, Time};
use pyo3::call::PyCallArgs;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

/// Class that implements a part of a scenario.
pub(crate) struct PluginClass {
    pub(crate) kind: PluginKind,
    pub(crate) name: String,
    pub(crate) parameters: Vec<String>,
    pub(crate) class: Py<PyAny>,
    /// Text that stands for the class's code in identities of runs.
    pub(crate) code: String,
}

/// Returns the names of classes, for the reader of scenarios.
pub(crate) fn names(classes: &[PluginClass]) -> Result<PluginNames, PluginNameError> {
    let mut names = PluginNames::default();
    for one in classes {
        let parameters: Vec<&str> = one.parameters.iter().map(String::as_str).collect();
        names.add(one.kind, &one.name, &parameters)?;
    }
    Ok(names)
}

/// First exception of the classes of a run. The run stops after it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Exceptions(Arc<Mutex<Option<PyErr>>>);

impl Exceptions {
    pub(crate) fn is_some(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(crate) fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn set(&self, error: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }

    /// Returns the result of a call, unless it raised an exception, or an earlier one did.
    fn guard<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> Option<T> {
        if self.is_some() {
            return None;
        }
        Python::attach(call).map_err(|error| self.set(error)).ok()
    }
}

/// Returns the plug-ins of a run.
pub(crate) fn plugins(
    classes: &Arc<Vec<PluginClass>>,
    exceptions: &Exceptions,
) -> Result<Plugins, PluginNameError> {
    (0..classes.len()).try_fold(Plugins::new(), |plugins, place| {
        let (all, exceptions) = (Arc::clone(classes), exceptions.clone());
        let PluginClass { kind, name, parameters, .. } = &classes[place];
        let parameters: Vec<&str> = parameters.iter().map(String::as_str).collect();
        match kind {
            PluginKind::Congestion => plugins.congestion(name, &parameters, move |given| {
                let (all, exceptions, given) = (Arc::clone(&all), exceptions.clone(), given.clone());
                Ok(CongestionFactory::new(&all[place].name.clone(), move |config, mut stream| {
                    let start = Start {
                        mss: u64::from(config.mss),
                        initial_cwnd: config.initial_cwnd(),
                        initial_ssthresh: config.initial_threshold(),
                        seed: stream.next_u64(),
                    };
                    Box::new(Control::new(&all[place].class, start, &given, exceptions.clone()))
                }))
            }),
            PluginKind::Scheduler => plugins.scheduler(name, &parameters, move |given| {
                let (all, exceptions, given) = (Arc::clone(&all), exceptions.clone(), given.clone());
                Ok(SchedulerFactory::new(&all[place].name.clone(), move |_framing| {
                    Box::new(Scheduler::new(&all[place].class, &given, exceptions.clone()))
                }))
            }),
            PluginKind::Workload => plugins.workload(name, &parameters, move |given| {
                Ok(Box::new(Source::new(&all[place].class, given, exceptions.clone())))
            }),
            // The constructor of a scenario accepts none.
            PluginKind::Queue => Ok(plugins),
        }
    })
}

/// Creates an instance of a class with the parameters of the scenario as keywords.
fn instance(
    py: Python<'_>,
    class: &Py<PyAny>,
    start: Option<Start>,
    given: &Parameters,
) -> PyResult<Py<PyAny>> {
    let keywords = PyDict::new(py);
    for (name, value) in given.iter() {
        let name = name.replace('-', "_");
        match value {
            Parameter::Number(number) => keywords.set_item(name, number)?,
            Parameter::Text(text) => keywords.set_item(name, text)?,
            Parameter::Flag(flag) => keywords.set_item(name, flag)?,
        }
    }
    match start {
        Some(start) => class.call(py, (start,), Some(&keywords)),
        None => class.call(py, (), Some(&keywords)),
    }
}

/// Returns a span in ns.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Values with which a congestion control begins.
#[pyclass(frozen, get_all, module = "pymarcato._native")]
#[derive(Clone, Copy)]
pub(crate) struct Start {
    /// Payload of a full segment, in bytes.
    mss: u64,
    /// Initial window, in bytes.
    initial_cwnd: u64,
    /// Initial slow start threshold, in bytes; 2⁶⁴ − 1 is none.
    initial_ssthresh: u64,
    /// Seed for random numbers of this sender.
    seed: u64,
}

/// Effects of an acknowledgement.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Ack(AckEvent);

#[pymethods]
impl Ack {
    /// Arrival time, in ns.
    #[getter]
    fn now_ns(&self) -> u64 {
        self.0.now.as_nanos()
    }

    /// First byte that is not acknowledged, counted from the SYN, which is 0.
    #[getter]
    fn una(&self) -> u64 {
        self.0.una
    }

    /// Next byte that was never sent.
    #[getter]
    fn nxt(&self) -> u64 {
        self.0.nxt
    }

    /// Bytes cumulatively acknowledged for the first time.
    #[getter]
    fn newly_acked(&self) -> u64 {
        self.0.newly_acked
    }

    /// Bytes acknowledged for the first time, selectively or not.
    #[getter]
    fn delivered(&self) -> u64 {
        self.0.delivered
    }

    /// Bytes newly marked lost.
    #[getter]
    fn newly_lost(&self) -> u64 {
        self.0.newly_lost
    }

    /// Bytes in flight before this acknowledgement.
    #[getter]
    fn prior_in_flight(&self) -> u64 {
        self.0.prior_in_flight
    }

    /// Bytes of the window that count as used.
    #[getter]
    fn used(&self) -> u64 {
        self.0.used
    }

    /// Bytes in flight now.
    #[getter]
    fn in_flight(&self) -> u64 {
        self.0.in_flight
    }

    /// Round trip of the segment that was sent last among those acknowledged, in ns.
    #[getter]
    fn rtt_ns(&self) -> Option<u64> {
        self.0.rtt.map(nanos)
    }

    /// Smoothed round-trip time, in ns.
    #[getter]
    fn srtt_ns(&self) -> Option<u64> {
        self.0.srtt.map(nanos)
    }

    /// Bytes delivered in total.
    #[getter]
    fn total_delivered(&self) -> u64 {
        self.0.total_delivered
    }

    /// Bytes marked lost in total.
    #[getter]
    fn total_lost(&self) -> u64 {
        self.0.total_lost
    }

    /// State of loss recovery: `open`, `reduction`, `recovery` or `loss`.
    #[getter]
    fn state(&self) -> &'static str {
        match self.0.state {
            LossState::Open => "open",
            LossState::Reduction => "reduction",
            LossState::Recovery => "recovery",
            LossState::Loss => "loss",
        }
    }
}

/// Congestion control of an instance of a Python class.
struct Control {
    /// Instance; `None` if its constructor raised an exception.
    instance: Option<Py<PyAny>>,
    exceptions: Exceptions,
    cwnd: u64,
    ssthresh: u64,
    pacing: Option<Rate>,
    uses_prr: bool,
    limits_itself: bool,
    /// Optional handlers that the class has.
    has_echo: bool,
    has_decay: bool,
    has_pacing: bool,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("cwnd", &self.cwnd)
            .field("ssthresh", &self.ssthresh)
            .finish_non_exhaustive()
    }
}

impl Control {
    fn new(class: &Py<PyAny>, start: Start, given: &Parameters, exceptions: Exceptions) -> Self {
        let made = exceptions.guard(|py| {
            let base = py.import("pymarcato._plugin")?.getattr("CongestionControl")?;
            let overrides = |name: &str| -> PyResult<bool> {
                Ok(class.bind(py).hasattr(name)? && !class.bind(py).getattr(name)?.is(base.getattr(name)?))
            };
            let has = [overrides("on_echo")?, overrides("on_idle_decay")?, overrides("pacing_rate_bps")?];
            let instance = instance(py, class, Some(start), given)?;
            let flag = |name: &str| instance.bind(py).getattr(name)?.extract::<bool>();
            let flags = [flag("uses_prr")?, flag("limits_itself")?];
            Ok((instance, has, flags))
        });
        let (instance, [has_echo, has_decay, has_pacing], [uses_prr, limits_itself]) = match made {
            Some((instance, has, flags)) => (Some(instance), has, flags),
            None => (None, [false; 3], [true, false]),
        };
        let (cwnd, ssthresh) = (start.initial_cwnd, start.initial_ssthresh);
        let mut control = Self {
            instance,
            exceptions,
            cwnd,
            ssthresh,
            pacing: None,
            uses_prr,
            limits_itself,
            has_echo,
            has_decay,
            has_pacing,
        };
        control.call("", ());
        control
    }

    /// Calls a handler, if there is a name, and reads the window that it leaves.
    fn call(&mut self, name: &str, arguments: impl for<'py> PyCallArgs<'py>) {
        let Some(instance) = &self.instance else { return };
        let has_pacing = self.has_pacing;
        let read = self.exceptions.guard(|py| {
            let instance = instance.bind(py);
            if !name.is_empty() {
                instance.call_method1(name, arguments)?;
            }
            let pacing = match has_pacing {
                true => instance.getattr("pacing_rate_bps")?.extract::<Option<u64>>()?,
                false => None,
            };
            let cwnd = whole(&instance.getattr("cwnd")?, "cwnd")?;
            Ok((cwnd, whole(&instance.getattr("ssthresh")?, "ssthresh")?, pacing))
        });
        if let Some((cwnd, ssthresh, pacing)) = read {
            (self.cwnd, self.ssthresh, self.pacing) = (cwnd, ssthresh, pacing.map(Rate::from_bps));
        }
    }
}

/// Returns an attribute as a number of bytes.
fn whole(value: &Bound<'_, PyAny>, name: &str) -> PyResult<u64> {
    value.extract().map_err(|_| {
        PyTypeError::new_err(format!("`{name}` is a whole number of bytes, 0 to 2**64 - 1, not {value}"))
    })
}

impl CongestionControl for Control {
    fn on_echo(&mut self, newly_acked: u64, una: u64, nxt: u64, ece: bool) {
        if self.has_echo {
            self.call("on_echo", (newly_acked, una, nxt, ece));
        }
    }

    fn on_ack(&mut self, ack: &AckEvent) {
        self.call("on_ack", (Ack(*ack),));
    }

    fn on_congestion(&mut self, now: Time, in_flight: u64, signal: Signal) {
        let signal = match signal {
            Signal::Loss => "loss",
            Signal::Ecn => "ecn",
        };
        self.call("on_congestion", (now.as_nanos(), in_flight, signal));
    }

    fn on_recovered(&mut self, now: Time) {
        self.call("on_recovered", (now.as_nanos(),));
    }

    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool) {
        self.call("on_rto", (now.as_nanos(), in_flight, first));
    }

    fn on_idle_restart(&mut self, now: Time, app_limited: bool, expired: bool) {
        self.call("on_idle_restart", (now.as_nanos(), app_limited, expired));
    }

    fn on_idle_decay(&mut self, timeouts: u32) {
        if self.has_decay {
            self.call("on_idle_decay", (timeouts,));
        }
    }

    fn on_established(&mut self, now: Time, rtt: Option<Duration>) {
        self.call("on_established", (now.as_nanos(), rtt.map(nanos)));
    }

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }

    fn pacing_rate(&self) -> Option<Rate> {
        self.pacing
    }

    fn uses_prr(&self) -> bool {
        self.uses_prr
    }

    fn limits_itself(&self) -> bool {
        self.limits_itself
    }
}

/// Lane of a session, as a lane scheduler sees it.
#[pyclass(frozen, get_all, module = "pymarcato._native")]
pub(crate) struct Lane {
    /// Number of the lane.
    id: usize,
    /// Number of its path. Two lanes of one path differ in their layer.
    path: u32,
    /// Class in which the network serves it: `high` or `low`.
    layer: &'static str,
    /// Congestion window, in bytes.
    cwnd: u64,
    /// Bytes sent and neither acknowledged nor declared lost.
    in_flight: u64,
    /// Free bytes of the window.
    free: u64,
    /// Smoothed round-trip time, in ns.
    srtt_ns: u64,
}

impl Lane {
    fn of(view: &LaneView) -> Self {
        Self {
            id: view.id.index(),
            path: view.path.0,
            layer: match view.layer {
                Layer::High => "high",
                Layer::Low => "low",
            },
            cwnd: view.cwnd.get(),
            in_flight: view.in_flight.get(),
            free: view.free().get(),
            srtt_ns: nanos(view.srtt),
        }
    }
}

/// Packet for which a lane is chosen.
#[pyclass(frozen, get_all, module = "pymarcato._native")]
pub(crate) struct Packet {
    /// Purpose: `new`, `retransmission` or `duplicate`.
    purpose: &'static str,
    /// Urgency, 0 (critical) to 4 (background).
    priority: usize,
    /// Bytes that it counts against a window.
    len: u64,
    /// Bytes of its message that are yet to be sent for the first time, those of this packet included; 0 unless new.
    rest: u64,
}

impl Packet {
    fn of(purpose: Purpose, len: Bytes) -> Self {
        let (name, rest) = match purpose {
            Purpose::New(fresh) => ("new", fresh.rest.get()),
            Purpose::Retransmission { .. } => ("retransmission", 0),
            Purpose::Duplicate { .. } => ("duplicate", 0),
        };
        Self { purpose: name, priority: purpose.priority().index(), len: len.get(), rest }
    }
}

/// Lane scheduler of an instance of a Python class.
struct Scheduler {
    instance: Option<Py<PyAny>>,
    exceptions: Exceptions,
    has_sent: bool,
    has_acked: bool,
    has_lost: bool,
}

impl Scheduler {
    fn new(class: &Py<PyAny>, given: &Parameters, exceptions: Exceptions) -> Self {
        let made = exceptions.guard(|py| {
            let base = py.import("pymarcato._plugin")?.getattr("LaneScheduler")?;
            let overrides = |name: &str| -> PyResult<bool> {
                Ok(class.bind(py).hasattr(name)? && !class.bind(py).getattr(name)?.is(base.getattr(name)?))
            };
            let has = [overrides("sent")?, overrides("acked")?, overrides("lost")?];
            Ok((instance(py, class, None, given)?, has))
        });
        let (instance, [has_sent, has_acked, has_lost]) =
            made.map_or((None, [false; 3]), |(one, has)| (Some(one), has));
        Self { instance, exceptions, has_sent, has_acked, has_lost }
    }

    fn call(&self, name: &str, arguments: impl for<'py> PyCallArgs<'py>) {
        if let Some(instance) = &self.instance {
            self.exceptions.guard(|py| instance.bind(py).call_method1(name, arguments).map(drop));
        }
    }
}

/// Answer of a scheduler: a lane, several, or none.
#[derive(FromPyObject)]
enum Chosen {
    One(u8),
    Several(Vec<u8>),
}

impl LaneScheduler for Scheduler {
    fn choose(&mut self, now: Time, lanes: &[LaneView], purpose: Purpose, len: Bytes) -> Choice {
        let among = eligible(lanes).without(purpose.barred());
        if among.is_empty() {
            return Choice::Wait(Wait::NoLane);
        }
        let Some(instance) = &self.instance else { return Choice::Wait(Wait::NoRoom) };
        let chosen = self.exceptions.guard(|py| {
            let shown: Vec<Lane> =
                lanes.iter().filter(|lane| among.contains(lane.id)).map(Lane::of).collect();
            let answer = instance
                .bind(py)
                .call_method1("choose", (now.as_nanos(), shown, Packet::of(purpose, len)))?;
            let ids = match answer.extract::<Option<Chosen>>() {
                Ok(None) => return Ok(LaneSet::EMPTY),
                Ok(Some(Chosen::One(id))) => vec![id],
                Ok(Some(Chosen::Several(ids))) => ids,
                Err(_) => {
                    return Err(PyTypeError::new_err(format!(
                        "a choice is the id of a lane, several ids or None, not {answer}"
                    )));
                }
            };
            let lane = |id: u8| {
                let lane = LaneId::new(id).filter(|lane| among.contains(*lane));
                lane.ok_or_else(|| {
                    PyValueError::new_err(format!("there is no lane {id} to choose: take one of `lanes`"))
                })
            };
            ids.into_iter().map(lane).collect::<PyResult<LaneSet>>()
        });
        let chosen = chosen.unwrap_or(LaneSet::EMPTY);
        let fitting: LaneSet = lanes
            .iter()
            .filter(|lane| chosen.contains(lane.id) && lane.free() >= len)
            .map(|lane| lane.id)
            .collect();
        match fitting.len() {
            0 => Choice::Wait(Wait::NoRoom),
            1 => one_or_wait(fastest(lanes, fitting, len, |_| Bytes::ZERO), fitting),
            _ => Choice::Each(fitting),
        }
    }

    fn sent(&mut self, now: Time, lane: &LaneView, purpose: Purpose, len: Bytes) {
        if self.has_sent {
            self.call("sent", (now.as_nanos(), Lane::of(lane), Packet::of(purpose, len)));
        }
    }

    fn acked(&mut self, now: Time, lane: LaneId, len: Bytes) {
        if self.has_acked {
            self.call("acked", (now.as_nanos(), lane.index(), len.get()));
        }
    }

    fn lost(&mut self, now: Time, lane: LaneId) {
        if self.has_lost {
            self.call("lost", (now.as_nanos(), lane.index()));
        }
    }
}

/// Random numbers of a workload: the same as those of a workload in Rust.
#[pyclass(frozen, module = "pymarcato._native")]
pub(crate) struct Random(Mutex<Stream>);

impl Random {
    fn stream(&self) -> MutexGuard<'_, Stream> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Random {
    /// Draws 64 random bits.
    fn bits(&self) -> u64 {
        self.stream().next_u64()
    }

    /// Draws a whole number from 0 (included) to `bound` (excluded).
    fn below(&self, bound: u64) -> u64 {
        self.stream().below(bound)
    }

    /// Draws a number from 0 (included) to 1 (excluded).
    fn unit(&self) -> f64 {
        self.stream().unit()
    }

    /// Draws an exponentially distributed span with this mean, in ns.
    fn exponential_ns(&self, mean_ns: u64) -> u64 {
        nanos(self.stream().exponential(Duration::from_nanos(mean_ns)))
    }
}

/// Workload of an instance of a Python class.
struct Source {
    /// Instance and its random numbers; `None` if the constructor raised an exception.
    instance: Option<(Py<PyAny>, Py<Random>)>,
    exceptions: Exceptions,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source").finish_non_exhaustive()
    }
}

/// Message that a workload releases: the gap before it, its size, its priority and its lifetime.
#[derive(FromPyObject)]
struct Released(u64, u64, usize, Option<u64>);

impl Source {
    fn new(class: &Py<PyAny>, given: &Parameters, exceptions: Exceptions) -> Self {
        let made = exceptions.guard(|py| {
            // Each call replaces the state.
            let random = Py::new(py, Random(Mutex::new(Seed::new(0).stream(""))))?;
            Ok((instance(py, class, None, given)?, random))
        });
        Self { instance: made, exceptions }
    }
}

impl Workload for Source {
    fn next(&mut self, now: Time, random: &mut Stream) -> Option<Release> {
        let (instance, numbers) = self.instance.as_ref()?;
        numbers.get().stream().clone_from(random);
        let released = self.exceptions.guard(|py| {
            let answer = instance.bind(py).call_method1("next", (now.as_nanos(), numbers))?;
            if answer.is_none() {
                return Ok(None);
            }
            let wrong = || {
                PyTypeError::new_err(format!(
                    "a workload returns a Release of whole numbers, or None, not {answer}"
                ))
            };
            let Released(gap, size, level, lifetime) = answer.extract().map_err(|_| wrong())?;
            let priority = Priority::from_index(level).ok_or_else(|| {
                PyValueError::new_err(format!("a priority is 0 (most urgent) to 4, not {level}"))
            })?;
            let release = Release::new(Duration::from_nanos(gap), Bytes::new(size), priority);
            Ok(Some(Release { lifetime: lifetime.map(Duration::from_nanos), ..release }))
        });
        random.clone_from(&numbers.get().stream());
        released.flatten()
    }
}
