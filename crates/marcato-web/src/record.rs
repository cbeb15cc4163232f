//! Record of a request, for the access log.

use std::fmt;
use std::time::{Duration, SystemTime};

use http::header::{REFERER, USER_AGENT};
use http::request::Parts;
use http::{HeaderValue, Method, StatusCode, Uri, Version};
use marcato_units::{Bytes, Priority};
use tokio::time::Instant;

use crate::decision::Decision;
use crate::log_format::{escaped, rfc3339};
use crate::peer_addr::PeerAddr;
use crate::server::Context;
use crate::trace::{Outcome, Traced};

/// Path of the page that shows the traces.
pub(crate) const WATCH: &str = "/.marcato/";

/// Record of a request and its response, for the access log.
///
/// It prints as one line of `key=value` pairs. [`LogFormat`](crate::LogFormat) has others.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Record {
    /// Time of the request.
    pub time: SystemTime,
    /// Address of the client.
    pub peer: PeerAddr,
    /// Method of the request.
    pub method: Method,
    /// Target of the request, with its host over both versions.
    pub uri: Uri,
    /// Version of HTTP.
    pub version: Version,
    /// Field `Referer` of the request.
    pub referer: Option<HeaderValue>,
    /// Field `User-Agent` of the request.
    pub user_agent: Option<HeaderValue>,
    /// Parameters by which the response was ordered last, and their source.
    pub decision: Decision,
    /// Status of the response; `None` if there was none.
    pub status: Option<StatusCode>,
    /// Bytes of content that were granted.
    pub bytes: Bytes,
    /// Time from the first byte of content that could be sent to the first that was granted: the wait
    /// for other responses, and for the queues below. `None` without content, and over HTTP/1.1.
    pub waited: Option<Duration>,
    /// Time from the request to the end of the response.
    pub took: Duration,
    /// Level of the latest bytes; `None` without content, and over HTTP/1.1.
    pub level: Option<Priority>,
    /// True if the response was sent as a whole.
    pub complete: bool,
    asked_at: Instant,
    supplied_at: Option<Instant>,
    trace: Option<Traced>,
}

impl Record {
    pub(crate) fn begin(head: &Parts, decision: Decision, context: &Context) -> Self {
        // The page that shows the traces is not in them.
        let trace = context.trace.as_ref().filter(|_| !head.uri.path().starts_with(WATCH));
        let field = |name| head.headers.get(name).cloned();
        Self {
            time: SystemTime::now(),
            peer: context.peer,
            method: head.method.clone(),
            uri: head.uri.clone(),
            version: head.version,
            referer: field(REFERER),
            user_agent: field(USER_AGENT),
            decision,
            status: None,
            bytes: Bytes::ZERO,
            waited: None,
            took: Duration::ZERO,
            level: None,
            complete: false,
            asked_at: Instant::now(),
            supplied_at: None,
            trace: trace.map(|trace| trace.request(head, decision)),
        }
    }

    /// Host of the request, with its port if the client named one.
    pub fn host(&self) -> Option<&str> {
        self.uri.authority().map(http::uri::Authority::as_str)
    }

    pub(crate) fn decide(&mut self, decision: Decision) {
        self.decision = decision;
        if let Some(trace) = &self.trace {
            trace.decided(decision);
        }
    }

    /// Notes the head of the response: its status, and the length that it announces.
    pub(crate) fn head(&mut self, status: StatusCode, length: Option<u64>) {
        self.status = Some(status);
        if let Some(trace) = &self.trace {
            trace.head(status, length);
        }
    }

    /// Notes that content could be sent from now on.
    pub(crate) fn supplied(&mut self, now: Instant) {
        if self.supplied_at.is_none() {
            self.supplied_at = Some(now);
            if let Some(trace) = &self.trace {
                trace.supplied(now);
            }
        }
    }

    /// Notes that bytes of content have been granted.
    pub(crate) fn granted(&mut self, now: Instant, bytes: usize, level: Priority) {
        self.bytes += Bytes::new(bytes as u64);
        self.level = Some(level);
        if let Some(supplied_at) = self.supplied_at {
            self.waited.get_or_insert(now - supplied_at);
        }
        if let Some(trace) = &self.trace {
            trace.granted(now, bytes, level);
        }
    }

    /// Notes that bytes of content have been passed to HTTP/1.1, which has no order.
    pub(crate) fn passed(&mut self, bytes: usize, level: Priority) {
        self.bytes += Bytes::new(bytes as u64);
        if let Some(trace) = &self.trace {
            trace.granted(Instant::now(), bytes, level);
        }
    }

    /// Notes why the response ends early. The first reason is kept.
    pub(crate) fn trace_failure(&self, outcome: Outcome) {
        if let Some(trace) = &self.trace {
            trace.ended(outcome);
        }
    }

    /// Notes the end of the response.
    pub(crate) fn trace_end(&self) {
        self.trace_failure(if self.complete { Outcome::Complete } else { Outcome::Broken });
    }

    /// Returns the record at its end.
    pub(crate) fn ended(&self, now: Instant) -> Self {
        Self { took: now - self.asked_at, ..self.clone() }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { peer, method, uri, version, decision, bytes, took, complete, .. } = self;
        let Decision { parameters, source } = decision;
        let time = rfc3339(self.time);
        write!(f, "time={time} peer={} method={method} uri={uri} version={version:?}", peer.0)?;
        match self.status {
            Some(status) => write!(f, " status={}", status.as_u16())?,
            None => write!(f, " status=-")?,
        }
        write!(f, " bytes={} priority=\"{parameters}\" source={source}", bytes.get())?;
        if let Some(level) = self.level {
            write!(f, " level={level}")?;
        }
        if let Some(waited) = self.waited {
            write!(f, " waited={:.3}ms", waited.as_secs_f64() * 1e3)?;
        }
        write!(f, " took={:.3}ms complete={complete}", took.as_secs_f64() * 1e3)?;
        for (name, value) in [("referer", &self.referer), ("user_agent", &self.user_agent)] {
            if let Some(value) = value {
                write!(f, " {name}=\"{}\"", escaped(value.as_bytes()))?;
            }
        }
        Ok(())
    }
}
