//! What an operator sees: metrics at an address of their own, and the page of the last connections.

use std::io;
use std::net::{SocketAddr, TcpListener};

use marcato_web::{Config as WebConfig, Metrics, Server, Traces, Watched};
use tokio::task::AbortHandle;

use crate::config::{Config, ConfigError, Watch};
use crate::listeners::open;
use crate::opened::Opened;

/// Connections to the metrics at once.
const SCRAPERS: usize = 64;

/// Metrics and traces of a server. They begin with it, and stay when its configuration is read again.
#[derive(Default)]
pub(crate) struct Monitor {
    metrics: Option<(Metrics, TcpListener)>,
    watch: Option<(Traces, Watch)>,
    task: Option<AbortHandle>,
}

impl Drop for Monitor {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Monitor {
    /// Opens the address of the metrics.
    pub(crate) fn new(config: &Config) -> Result<Self, ConfigError> {
        let faults = config.faults();
        let metrics = config.metrics.as_ref().and_then(|at| match open(at.value) {
            Ok(listener) => Some((Metrics::new(), listener)),
            Err(error) => {
                let problem =
                    format!("cannot serve metrics at {}: {error}; choose another address", at.value);
                faults.add(at.place, problem);
                None
            }
        });
        faults.into_result()?;
        let watch = config.watch.clone().map(|watch| (Traces::new(watch.connections), watch));
        Ok(Self { metrics, watch, task: None })
    }

    /// Lets a server report to it.
    pub(crate) fn configure(&self, web: &mut WebConfig) {
        if let Some((metrics, _)) = &self.metrics {
            web.log = Some(metrics.log(web.log.take()));
        }
        web.traces = self.watch.as_ref().map(|(traces, _)| traces.clone());
    }

    /// Begins to serve the metrics of a server.
    pub(crate) fn begin(&mut self, server: &Server) -> io::Result<()> {
        let Some((metrics, listener)) = &self.metrics else { return Ok(()) };
        metrics.watch(server);
        let listener = listener.try_clone()?;
        listener.set_nonblocking(true)?;
        let listener = tokio::net::TcpListener::from_std(listener)?;
        let mut config = WebConfig::default();
        config.limits.connections = SCRAPERS;
        let metrics = metrics.clone();
        let task = tokio::spawn(async move {
            // The server tells when it ends.
            Server::with_config(config).serve_until(listener, metrics, std::future::pending()).await;
        });
        self.task = Some(task.abort_handle());
        Ok(())
    }

    /// Reports the directories and origins of a configuration from now on.
    pub(crate) fn opened(&self, opened: &Opened) {
        let Some((metrics, _)) = &self.metrics else { return };
        metrics.forget_sites();
        metrics.watch_compression(&opened.compression);
        let passwords = opened.sites.passwords();
        metrics.watch_counter("passwords", "Passwords that were checked", "result", move || {
            let (right, wrong, busy) = passwords.counts();
            vec![("right", right), ("wrong", wrong), ("busy", busy)]
        });
        for (directory, files) in opened.files() {
            metrics.watch_files(&directory.display().to_string(), files);
        }
        for (origin, proxy) in opened.proxies() {
            metrics.watch_proxy(origin, proxy);
        }
    }

    /// Puts the page in front of a service, if it is asked for.
    pub(crate) fn watched<S>(&self, service: S) -> Watched<S> {
        match &self.watch {
            Some((traces, watch)) => Watched::new(service, traces.clone()).allow(watch.allow.clone()),
            None => Watched::off(service),
        }
    }

    /// True if another configuration differs in what stays until the server is started again.
    pub(crate) fn differs(&self, before: &Config, after: &Config) -> bool {
        let address = |config: &Config| config.metrics.as_ref().map(|at| at.value);
        (address(before), &before.watch) != (address(after), &after.watch)
    }

    /// Address of the metrics.
    pub(crate) fn metrics(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|(_, listener)| listener.local_addr().ok())
    }

    /// True if there is a page of the last connections.
    pub(crate) const fn is_watched(&self) -> bool {
        self.watch.is_some()
    }
}
