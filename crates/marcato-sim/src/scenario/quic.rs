//! Flow of messages over multipath QUIC.

use std::collections::{HashMap, HashSet};
use std::time::Instant;

use bytes::Bytes as Payload;
use marcato_quic::{
    Batch, Congestion, Coupling, Event, Growth, Identity, LaneCoupling, Message, Pacing, PathScheduler,
    Piece, Secrets, SessionConfig, StreamUse, Trust,
};
use marcato_scenario::quic as spec;
use marcato_scenario::traffic;
use marcato_sched::conductor::Redundancy;
use marcato_sched::coupled::{Counters, Mode};
use marcato_sched::schedule::{Budget, BudgetError, CwrConfig};
use marcato_units::{Bytes, Priority, Time};

use super::convert;
use super::error::BuildError;
use super::fabric::Fabric;
use super::outcome::{self, LaneOutcome, Single, Timed, Times};
use super::plugins::Plugins;
use crate::quic::{
    Background, Completion, MessageCollector, Periodic, QuicApp, QuicContext, QuicHost, QuicRole, Release,
    Traffic,
};
use crate::{DatagramFlow, FlowId, HostContext, Route, Side};

/// Length of the header of each message, which names its source in the format of [`Traffic`].
const HEADER: usize = 16;

fn reserving(reserving: spec::Reserving) -> Result<CwrConfig, BudgetError> {
    Ok(CwrConfig {
        threshold: reserving.threshold,
        background_share: reserving.background_share,
        learn: reserving.learn,
        budget: match reserving.budget {
            None => Budget::UNLIMITED,
            Some(budget) => Budget::new(budget.allowance, budget.share)?,
        },
        ..CwrConfig::paper()
    })
}

#[expect(clippy::cast_possible_truncation, reason = "a factor needs no more digits")]
fn session(name: &str, quic: &spec::Quic, plugins: &Plugins) -> Result<SessionConfig, BuildError> {
    let default = SessionConfig::default();
    let refused = |source| BuildError::Budget { flow: name.to_owned(), source };
    let coupling = convert::coupling(quic.messaging.coupled);
    let packets = usize::try_from(quic.batch).unwrap_or(usize::MAX);
    let config = SessionConfig {
        conductor: convert::conductor(quic.messaging.preset, quic.messaging.chunk),
        path_scheduler: match &quic.scheduler {
            spec::Scheduler::LowRtt => PathScheduler::LowRtt,
            spec::Scheduler::RoundRobin => PathScheduler::RoundRobin,
            spec::Scheduler::Cwr(config) => PathScheduler::Cwr(reserving(*config).map_err(refused)?),
            spec::Scheduler::CwrRed(config) => PathScheduler::CwrRed(reserving(*config).map_err(refused)?),
            spec::Scheduler::Selective(selective) => PathScheduler::Selective(selective.threshold),
            spec::Scheduler::Plugin(_) => default.path_scheduler,
        },
        own_scheduler: match &quic.scheduler {
            spec::Scheduler::Plugin(plugin) => Some(plugins.make_scheduler(name, plugin)?),
            _ => None,
        },
        congestion: match quic.controller {
            spec::Controller::NewReno(new_reno) => {
                Congestion::NewReno { loss_reduction_factor: new_reno.loss_reduction as f32 }
            }
            spec::Controller::Cubic => Congestion::Cubic,
            spec::Controller::Bbr3 => Congestion::Bbr3,
        },
        initial_window: quic.initial_window,
        pacing: match quic.pacing {
            spec::Pacing::Off => Pacing::Off,
            spec::Pacing::Session => Pacing::Session,
            spec::Pacing::Strict => Pacing::Strict,
        },
        growth: match quic.growth {
            spec::Growth::Acknowledged => Growth::Acknowledged,
            spec::Growth::Credited => Growth::Credited,
        },
        streams: match quic.streams {
            spec::StreamUse::PerMessage => StreamUse::PerMessage,
            spec::StreamUse::Reuse => StreamUse::Reuse,
        },
        batch: if packets == 1 { Batch::ONE } else { Batch { packets, ..default.batch } },
        initial_mtu: u16::try_from(quic.initial_mtu.get()).unwrap_or(u16::MAX),
        mtu_discovery: quic.mtu_discovery,
        packet_threshold: quic.packet_threshold,
        time_threshold: quic.time_threshold as f32,
        initial_rtt: quic.initial_rtt,
        // Over TCP, too, it acts from the beginning.
        coupled: if coupling.is_some() { Coupling::On } else { Coupling::Off },
        queued_packets: coupling.unwrap_or(default.queued_packets),
        max_lanes: u8::try_from(quic.paths.len()).unwrap_or(u8::MAX).max(default.max_lanes),
        ..default
    };
    Ok(if quic.layered { config.layered() } else { config })
}

fn periodic(source: &traffic::Source, start: Time) -> Periodic {
    Periodic {
        period: source.period,
        size: source.size,
        first: start + source.first,
        release: match source.release {
            traffic::Release::Periodic => Release::Periodic,
            traffic::Release::Jittered(jitter) => Release::Jittered(jitter),
            traffic::Release::Poisson => Release::Poisson,
        },
        priority: source.priority,
        redundancy: match source.redundancy {
            traffic::Redundancy::Once => Redundancy::Once,
            traffic::Redundancy::EveryLane => Redundancy::EveryLane,
        },
        lifetime: source.lifetime,
        declared: source.declared,
        named: source.named,
    }
}

/// Sending application: messages of sources, background data, and single messages.
pub(super) struct Talker {
    traffic: Traffic,
    /// Single messages in order of time. `planned` is the number released so far.
    messages: Vec<(Time, traffic::Message)>,
    planned: u32,
    /// Release time of each, and true if the session accepted it.
    handed: Vec<(Time, bool)>,
    /// Source number in the headers of single messages, which belong to no source.
    group: u32,
    stop: Time,
    open: bool,
}

impl Talker {
    fn due(&self) -> Option<&(Time, traffic::Message)> {
        let next = usize::try_from(self.planned).ok()?;
        self.messages.get(next).filter(|&&(at, _)| self.open && at < self.stop)
    }
}

impl QuicApp for Talker {
    fn start(&mut self, now: Time, host: &HostContext<'_>) {
        self.traffic.start(now, host);
    }

    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        self.open |= *event == Event::Connected;
        self.traffic.event(event, context);
    }

    fn received(&mut self, piece: Piece, context: &mut QuicContext<'_>) {
        self.traffic.received(piece, context);
    }

    fn timer(&mut self, context: &mut QuicContext<'_>) {
        self.traffic.timer(context);
        let now = context.now();
        while let Some((_, it)) = self.due().filter(|&&(at, _)| at <= now) {
            let mut body = vec![0; usize::try_from(it.size.get()).unwrap_or(0).max(HEADER)];
            body[..4].copy_from_slice(&self.group.to_le_bytes());
            body[4..8].copy_from_slice(&self.planned.to_le_bytes());
            body[8..HEADER].copy_from_slice(&now.as_nanos().to_le_bytes());
            let mut message = Message::new(Payload::from(body)).with_priority(it.priority);
            message.lifetime = it.lifetime;
            let is_taken = context.session().send(now, message).is_ok();
            self.handed.push((now, is_taken));
            self.planned += 1;
        }
    }

    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        context.now() < self.stop && self.traffic.idle(context)
    }

    fn next_timer(&self) -> Option<Time> {
        let single = self.due().map(|&(at, _)| at);
        self.traffic.next_timer().into_iter().chain(single).min()
    }
}

/// Adds a session to the network.
pub(super) fn add(
    net: &mut dyn Fabric,
    name: &str,
    quic: &spec::Quic,
    routes: Vec<Route>,
    [start, stop]: [Time; 2],
    secrets: Option<&Secrets>,
    plugins: &Plugins,
) -> Result<FlowId, BuildError> {
    let flow = || name.to_owned();
    let config = session(name, quic, plugins)?;
    let begun = |source| BuildError::Identity { flow: flow(), source };
    let identity = Identity::self_signed("server").map_err(begun)?;
    let identity = match secrets {
        Some(secrets) => identity.log_secrets(secrets),
        None => identity,
    };
    let certificate = identity.certificate().cloned().ok_or_else(|| BuildError::Session {
        flow: flow(),
        problem: "the server has no certificate".to_owned(),
    })?;
    let trust = Trust::Certificate(certificate);
    let traffic = Traffic::new(quic.messaging.sources.iter().map(|source| periodic(source, start)).collect())
        .until(stop);
    let traffic = quic.messaging.bulk.iter().fold(traffic, |traffic, bulk| {
        traffic.background(Background { priority: bulk.priority, size: bulk.size })
    });
    let talker = Talker {
        traffic,
        messages: quic.messaging.messages.iter().map(|it| (start + it.after, it.clone())).collect(),
        planned: 0,
        handed: Vec::new(),
        group: u32::try_from(quic.messaging.sources.len()).unwrap_or(u32::MAX - 1),
        stop,
        open: false,
    };
    // The engine measures time as instants; no result depends on the origin.
    let epoch = Instant::now();
    let role = QuicRole::Client { trust, name: "server".to_owned() };
    let client = QuicHost::new(role, config.clone(), epoch, talker);
    let server = QuicHost::new(QuicRole::Server { identity }, config, epoch, MessageCollector::default());
    net.datagrams(DatagramFlow::new(client, server, routes).start(start))
        .map_err(|source| BuildError::Flow { flow: flow(), source })
}

/// Read access to a session in a network.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) net: &'a dyn Fabric,
    pub(super) flow: FlowId,
}

impl<'a> Look<'a> {
    pub(super) fn sending(self) -> Option<&'a QuicHost> {
        self.net.host(self.flow, Side::Client)
    }

    fn talker(self) -> Option<&'a Talker> {
        self.sending()?.app()
    }

    pub(super) fn collector(self) -> Option<&'a MessageCollector> {
        self.net.host::<QuicHost>(self.flow, Side::Server)?.app()
    }

    /// Returns the completion times of messages released from `from` on.
    pub(super) fn times(self, quic: &spec::Quic, from: Time, timed: &mut Timed<'_>) -> Vec<Times> {
        let (Some(talker), Some(collector)) = (self.talker(), self.collector()) else { return Vec::new() };
        let mut done: HashMap<(u32, u32), Time> = HashMap::new();
        for &Completion { source, sequence, completed, .. } in &collector.completions {
            // Later copies do not count.
            done.entry((source, sequence)).or_insert(completed);
        }
        let mut all = Vec::new();
        let sources = (0..).zip(quic.messaging.sources.iter().zip(&talker.traffic.releases));
        for (source, (spec, releases)) in sources {
            let mut times = Times::empty(format!("source-{}", source + 1), Some(spec.priority));
            let refused: HashSet<u32> = talker.traffic.refusals(source).iter().copied().collect();
            let until = timed.until;
            for &(sequence, at) in releases.iter().filter(|&&(_, at)| at >= from && at < until) {
                let end = done.get(&(source, sequence)).copied();
                let is_refused = refused.contains(&sequence);
                let one = outcome::Completion::of(spec.size, at, end);
                times.judge(outcome::Completion { is_refused, ..one }, timed);
            }
            all.push(times);
        }
        let single = |(sequence, &(at, is_taken)): (u32, &(Time, bool))| Single {
            at,
            is_refused: !is_taken,
            done: done.get(&(talker.group, sequence)).copied(),
        };
        let singles: Vec<Single> = (0..).zip(&talker.handed).map(single).collect();
        all.extend(Times::of_singles(&quic.messaging, &singles, from, timed));
        all
    }

    /// Returns the results of the lanes, by index of their path.
    pub(super) fn lanes(self, names: &[String]) -> Vec<LaneOutcome> {
        let Some(session) = self.sending().and_then(QuicHost::session) else { return Vec::new() };
        let arrived = |route: usize| {
            let route = crate::RouteId::new(u8::try_from(route).unwrap_or(u8::MAX));
            self.net.route_stats(self.flow, Side::Client, route).unwrap_or_default().bytes
        };
        let mut lanes: Vec<_> = (0..)
            .zip(names)
            .map(|(route, name)| LaneOutcome {
                name: name.clone(),
                packets: 0,
                bytes: arrived(route),
                lost: 0,
                repairs: 0,
                srtt: None,
            })
            .collect();
        for (view, _, stats) in session.lanes() {
            // The socket of a lane has its route's number.
            let Some(lane) =
                session.route(view.id).and_then(|(socket, _)| lanes.get_mut(usize::from(socket.0)))
            else {
                continue;
            };
            lane.packets = stats.packets;
            lane.lost = stats.lost;
            lane.repairs = stats.repairs;
            lane.srtt = Some(view.srtt.as_secs_f64() * 1e3);
        }
        lanes
    }

    /// Returns the state of coupled mode on the lanes of the high layer, in the order of their lanes.
    fn coupling(self) -> impl Iterator<Item = LaneCoupling> {
        let session = self.sending().and_then(QuicHost::session);
        session.into_iter().flat_map(|session| session.coupling().map(|(_, state)| state))
    }

    /// Returns the sum of the lanes' caps; `None` while one of them has none.
    pub(super) fn cap(self) -> Option<Bytes> {
        let mut caps = self.coupling().map(|state| state.cap).peekable();
        caps.peek()?;
        caps.sum()
    }

    /// Returns the mode of the first lane.
    pub(super) fn mode(self) -> Option<Mode> {
        self.coupling().next().map(|state| state.mode)
    }

    /// Returns the sums of the lanes' counts; `None` if the session does not couple.
    pub(super) fn counters(self) -> Option<Counters> {
        self.coupling().map(|state| state.counters).reduce(|mut sum, counters| {
            sum += counters;
            sum
        })
    }

    /// Returns the bytes that arrived, by priority, the most urgent first.
    pub(super) fn received(self) -> [Bytes; Priority::COUNT] {
        self.collector().map(|collector| collector.bytes).unwrap_or_default()
    }
}
