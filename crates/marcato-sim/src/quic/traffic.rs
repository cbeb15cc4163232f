//! Periodic sources with background data: the traffic generator of CWR §III-A.

use bytes::Bytes as Payload;
use marcato_quic::{Event, Message};
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_units::{Bytes, Duration, Priority, Stream, Time};

use super::app::{QuicApp, QuicContext};
use super::collector::{HEADER, SOURCE_BULK};
use crate::host::HostContext;

/// Release process of a source's messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Release {
    /// Constant period.
    Periodic,
    /// Constant period, with each release moved uniformly by up to this time, earlier or later.
    Jittered(Duration),
    /// Poisson process, with the period as the mean gap.
    Poisson,
}

/// Configuration of a source of messages.
#[derive(Clone, Copy, Debug)]
pub struct Periodic {
    /// Time between releases.
    pub period: Duration,
    /// Size of each message, at least 16 bytes.
    pub size: Bytes,
    /// Time of the first release.
    pub first: Time,
    /// Release process.
    pub release: Release,
    /// Priority of its messages.
    pub priority: Priority,
    /// Redundancy of its messages: the lanes on which they are duplicated.
    pub redundancy: Redundancy,
    /// Lifetime of its messages; `None` is unlimited.
    pub lifetime: Option<Duration>,
    /// Declares the source to the session.
    pub declared: bool,
    /// Names the source in its messages, so that the session can learn it.
    pub named: bool,
}

impl Periodic {
    /// Declared source of P0 messages with a constant period, without redundancy.
    pub const fn new(period: Duration, size: Bytes) -> Self {
        Self {
            period,
            size,
            first: Time::ZERO,
            release: Release::Periodic,
            priority: Priority::P0,
            redundancy: Redundancy::Once,
            lifetime: None,
            declared: true,
            named: true,
        }
    }
}

/// Background data that fills all available room.
#[derive(Clone, Copy, Debug)]
pub struct Background {
    /// Priority of the data.
    pub priority: Priority,
    /// Size of each message.
    pub size: Bytes,
}

impl Default for Background {
    /// P4 in messages of 1 MB.
    fn default() -> Self {
        Self { priority: Priority::P4, size: Bytes::kb(1000) }
    }
}

struct State {
    periodic: Periodic,
    /// Index of the next message.
    sequence: u32,
    /// Time of its release.
    next: Time,
    stream: Option<Stream>,
    declared: bool,
}

/// Application that sends the messages of its sources, and background data.
pub struct Traffic {
    sources: Vec<State>,
    background: Vec<(Background, Payload)>,
    until: Time,
    /// Messages that sources released.
    pub released: u64,
    /// Index and time of each released message, by source.
    pub releases: Vec<Vec<(u32, Time)>>,
    /// Messages that the session refused.
    pub refused: u64,
    /// Indices of the refused messages, by source.
    refusals: Vec<Vec<u32>>,
    open: bool,
}

impl Traffic {
    /// Traffic of these sources, without background.
    pub fn new(sources: Vec<Periodic>) -> Self {
        let state = |periodic: Periodic| State {
            periodic,
            sequence: 0,
            next: periodic.first,
            stream: None,
            declared: false,
        };
        Self {
            releases: vec![Vec::new(); sources.len()],
            refusals: vec![Vec::new(); sources.len()],
            sources: sources.into_iter().map(state).collect(),
            background: Vec::new(),
            until: Time::MAX,
            released: 0,
            refused: 0,
            open: false,
        }
    }

    /// Adds background data; several calls add several kinds.
    #[must_use]
    pub fn background(mut self, background: Background) -> Self {
        let mut body = vec![0; usize::try_from(background.size.get()).unwrap_or(0).max(HEADER)];
        body[..4].copy_from_slice(&SOURCE_BULK.to_le_bytes());
        self.background.push((background, body.into()));
        self
    }

    /// Returns the indices of a source's messages that the session refused, ascending.
    pub fn refusals(&self, source: u32) -> &[u32] {
        usize::try_from(source).ok().and_then(|source| self.refusals.get(source)).map_or(&[], Vec::as_slice)
    }

    /// Sets the time from which sources release nothing.
    #[must_use]
    pub fn until(self, until: Time) -> Self {
        Self { until, ..self }
    }
}

impl State {
    /// Returns the time of the release without jitter.
    fn due(&self) -> Time {
        let periods = u64::try_from(self.periodic.period.as_nanos()).unwrap_or(u64::MAX);
        self.periodic.first + Duration::from_nanos(periods.saturating_mul(u64::from(self.sequence)))
    }

    fn advance(&mut self) {
        self.sequence += 1;
        self.next = match (self.periodic.release, &mut self.stream) {
            (Release::Jittered(jitter), Some(stream)) => {
                let span = u64::try_from(jitter.as_nanos()).unwrap_or(u64::MAX);
                let offset = Duration::from_nanos(stream.below(span.saturating_mul(2).saturating_add(1)));
                self.due() + offset - jitter
            }
            (Release::Poisson, Some(stream)) => self.next + stream.exponential(self.periodic.period),
            _ => self.due(),
        };
    }
}

impl QuicApp for Traffic {
    fn start(&mut self, _: Time, host: &HostContext<'_>) {
        for (index, source) in self.sources.iter_mut().enumerate() {
            source.stream = Some(host.stream(&format!("source/{index}")));
        }
    }

    fn event(&mut self, event: &Event, context: &mut QuicContext<'_>) {
        if *event != Event::Connected {
            return;
        }
        self.open = true;
        for source in &mut self.sources {
            // Releases before the session could send are skipped, not made up for.
            while source.next < context.now() {
                source.advance();
            }
        }
        self.declare(context);
    }

    fn timer(&mut self, context: &mut QuicContext<'_>) {
        let now = context.now();
        let until = self.until;
        let notes = self.releases.iter_mut().zip(&mut self.refusals);
        for ((index, source), (releases, refusals)) in (0u32..).zip(&mut self.sources).zip(notes) {
            while source.next <= now && source.next < until {
                let Periodic { size, priority, redundancy, lifetime, named, .. } = source.periodic;
                let mut body = vec![0; usize::try_from(size.get()).unwrap_or(0).max(HEADER)];
                body[..4].copy_from_slice(&index.to_le_bytes());
                body[4..8].copy_from_slice(&source.sequence.to_le_bytes());
                body[8..HEADER].copy_from_slice(&now.as_nanos().to_le_bytes());
                let mut message = Message::new(body).with_priority(priority);
                message.redundancy = redundancy;
                message.lifetime = lifetime;
                message.source = named.then_some(SourceKey(u64::from(index)));
                self.released += 1;
                releases.push((source.sequence, now));
                if context.session().send(now, message).is_err() {
                    self.refused += 1;
                    refusals.push(source.sequence);
                }
                source.advance();
            }
        }
    }

    fn idle(&mut self, context: &mut QuicContext<'_>) -> bool {
        let now = context.now();
        let mut any = false;
        for (background, body) in &self.background {
            let queued = context.session().conducted().level(background.priority).queued;
            if queued.bytes < background.size {
                let message = Message::new(body.clone()).with_priority(background.priority);
                any |= context.session().send(now, message).is_ok();
            }
        }
        any
    }

    fn next_timer(&self) -> Option<Time> {
        let next = self.sources.iter().map(|source| source.next).filter(|&next| next < self.until).min();
        next.filter(|_| self.open)
    }
}

impl Traffic {
    fn declare(&mut self, context: &mut QuicContext<'_>) {
        for (index, source) in (0u64..).zip(&mut self.sources) {
            let Periodic { period, size, declared, release, .. } = source.periodic;
            if !declared || source.declared {
                continue;
            }
            source.declared = true;
            let jitter = if let Release::Jittered(jitter) = release { jitter } else { Duration::ZERO };
            let announced = Source::new(period, size, source.due()).with_jitter(jitter);
            // A source without a reservation still sends.
            let _ = context.session().reserve(SourceKey(index), announced);
        }
    }
}
