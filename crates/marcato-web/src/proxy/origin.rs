//! State of an upstream in use.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use http::StatusCode;
use http::header::{self, HeaderMap, HeaderValue};
use http::uri::PathAndQuery;
use http_body_util::Empty;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::choice::Candidate;
use super::complaints::{Complaints, Kind};
use super::config::{HealthConfig, ProxyConfig};
use super::connect::{Connector, TlsConfigs};
use super::counters::{Tally, UpstreamState};
use super::error::ProxyError;
use super::exchange::{Answer, Route, Template, attempt};
use super::health::Health;
use super::pool::Pool;
use super::retry::Fault;
use super::upload::Upload;
use super::upstream::{Target, Upstream};

/// Upstream with its connections, its health and its counters.
pub(super) struct Origin {
    pub(super) target: Target,
    pub(super) pool: Arc<Pool>,
    pub(super) tally: Arc<Tally>,
    uri: String,
    /// Digest of the URI, which names the upstream to clients.
    seed: u64,
    weight: u32,
    limit: u32,
    in_flight: AtomicU32,
    health: Mutex<Health>,
    complaints: Complaints,
}

impl Origin {
    pub(super) fn new(
        upstream: &Upstream,
        target: Target,
        config: &ProxyConfig,
        tls: Option<&TlsConfigs>,
    ) -> Result<Self, ProxyError> {
        let tally = Arc::<Tally>::default();
        let connector = Connector::new(&target, tls, config)?;
        let pool = Pool::new(
            connector,
            config.connect_timeout,
            config.idle_timeout,
            config.max_idle,
            Arc::clone(&tally),
        );
        Ok(Self {
            target,
            pool: Arc::new(pool),
            tally,
            uri: upstream.uri.clone(),
            seed: digest(upstream.uri.as_bytes()),
            weight: upstream.weight,
            limit: config.max_in_flight,
            in_flight: AtomicU32::new(0),
            health: Mutex::new(Health::new(config.passive, config.health.as_ref())),
            complaints: Complaints::default(),
        })
    }

    /// Digest of the URI.
    pub(super) const fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn uri(&self) -> &str {
        &self.uri
    }

    /// Writes a warning about the upstream, unless there were many of its kind. `outcome` is the effect for
    /// the client.
    pub(super) fn complain(&self, kind: Kind, outcome: &str, reason: impl FnOnce() -> String) {
        if let Some(omitted) = self.complaints.may_write(kind, Instant::now()) {
            let omitted = (omitted > 0).then_some(omitted);
            tracing::warn!(origin = self.uri, outcome, omitted, "{}", reason());
        }
    }

    pub(super) fn candidate(&self, now: Instant, tried: bool) -> Candidate {
        let health = self.health();
        Candidate {
            in_flight: self.in_flight.load(Ordering::Relaxed),
            limit: self.limit,
            weight: self.weight,
            healthy: health.is_healthy(now),
            last_failure: health.last_failure(),
            tried,
            seed: self.seed,
        }
    }

    /// Counts a request in flight until the permit is dropped.
    pub(super) fn admit(self: &Arc<Self>) -> Permit {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        Permit { origin: Arc::clone(self) }
    }

    pub(super) fn success(&self) {
        self.health().success();
    }

    pub(super) fn failure(&self) {
        self.tally.failures.one();
        self.health().failure(Instant::now());
    }

    pub(super) fn state(&self) -> UpstreamState {
        UpstreamState {
            uri: self.uri.clone(),
            healthy: self.health().is_healthy(Instant::now()),
            in_flight: self.in_flight.load(Ordering::Relaxed),
            idle: self.pool.idle(),
            ..self.tally.read()
        }
    }

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks the upstream for ever. The proxy ends the task.
    pub(super) async fn check_health(self: Arc<Self>, config: HealthConfig, path: PathAndQuery) {
        let mut ticks = interval(config.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let answer = timeout(config.timeout, self.check(&config, path.clone())).await;
            let (answer, reason) = match answer {
                Ok(Ok(answer)) => {
                    let status = answer.response.status();
                    let passed = (StatusCode::OK..StatusCode::BAD_REQUEST).contains(&status);
                    (Some(answer), (!passed).then(|| format!("its status is {status}")))
                }
                Ok(Err(fault)) => (None, Some(fault.reason())),
                Err(_) => (None, Some(format!("no answer within {:?}", config.timeout))),
            };
            let passed = reason.is_none();
            self.tally.checks.one();
            if !passed {
                self.tally.failed_checks.one();
            }
            let change = self.health().check(passed, Instant::now());
            match change {
                Some(true) => tracing::info!(origin = self.uri, "upstream is healthy"),
                Some(false) => tracing::warn!(origin = self.uri, reason, "upstream is unhealthy"),
                None => {}
            }
            if let Some(answer) = answer {
                // A short body is read, so that the connection can be used again.
                let _ = timeout(config.timeout, answer.discard()).await;
            }
        }
    }

    /// Sends one check, and returns the answer.
    async fn check(self: &Arc<Self>, config: &HealthConfig, path: PathAndQuery) -> Result<Answer, Fault> {
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, HeaderValue::from_static("marcato-health"));
        let template = Template::get(path, headers);
        let upload = Upload::new(Empty::new(), config.timeout, 0, &Arc::default());
        // A new body can be renewed.
        let outbound = upload.renew(&self.tally).ok_or(Fault::Late)?;
        attempt(self, &template, &upload, outbound, Route::default(), config.timeout).await
    }
}

/// Returns the first 64 bits of a digest by SHA-256. It is the same in every process, and tells nothing of what it
/// was made from.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    digest.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first))
}

/// Place of a request in flight.
pub(super) struct Permit {
    pub(super) origin: Arc<Origin>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.origin.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}
