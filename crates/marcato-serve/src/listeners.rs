//! Listeners that are open.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ipnet::IpNet;
use marcato_document::nearest::hint;
use marcato_web::{Server, Watched};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::config::{Config, ConfigError, Listen, ListenAt};
use crate::router::{ListenerState, Router};
use crate::supervisor::Sockets;

/// Sockets of a new configuration, before it is used.
#[derive(Default)]
pub(crate) struct Bound(BTreeMap<ListenAt, Vec<TcpListener>>);

/// Listener with its task.
struct Active {
    /// Sockets, which are kept to be handed to another task.
    sockets: Vec<TcpListener>,
    plaintext: bool,
    balancers: Vec<IpNet>,
    state: Arc<ListenerState>,
    /// Ends the tasks when it is dropped or set.
    end: watch::Sender<bool>,
}

/// All listeners.
#[derive(Default)]
pub(crate) struct Listeners {
    active: HashMap<ListenAt, Active>,
    tasks: JoinSet<()>,
}

impl Listeners {
    /// Opens the sockets of a configuration that are not open yet.
    ///
    /// # Errors
    /// All that cannot be opened, each with its place. Nothing has changed then.
    pub(crate) fn bind(&self, config: &Config, sockets: &Sockets) -> Result<Bound, ConfigError> {
        let faults = config.faults();
        let mut bound = Bound::default();
        for Listen { at, .. } in &config.listen {
            if self.active.contains_key(&at.value) {
                continue;
            }
            let opened = match &at.value {
                ListenAt::Address(addr) => open(*addr).map(|listener| vec![listener]),
                ListenAt::Socket(name) => match sockets.of(name) {
                    [] => {
                        let advice = hint(name, sockets.names().collect::<Vec<_>>());
                        faults.add(at.place, format!("the supervisor has no socket `{name}`: {advice}"));
                        continue;
                    }
                    found => found.iter().map(TcpListener::try_clone).collect(),
                },
            };
            match opened {
                Ok(listeners) => _ = bound.0.insert(at.value.clone(), listeners),
                Err(error) => {
                    let problem = format!("cannot listen at {}: {error}; choose another address", at.value);
                    faults.add(at.place, problem);
                }
            }
        }
        faults.into_result()?;
        Ok(bound)
    }

    /// Uses the listeners of a configuration: those that stay are kept, new ones begin, and the connections
    /// of the others end after their open requests.
    ///
    /// # Errors
    /// If the system has no more file descriptors.
    pub(crate) fn apply(
        &mut self,
        config: &Config,
        mut bound: Bound,
        mut serve: impl FnMut(bool) -> (Server, Box<dyn Fn(Arc<ListenerState>) -> Watched<Router>>),
    ) -> io::Result<()> {
        let stays = |at: &ListenAt| config.listen.iter().find(|listen| listen.at.value == *at);
        self.active.retain(|at, _| stays(at).is_some());
        for Listen { at, plaintext, redirect_to_https, balancers } in &config.listen {
            let redirect = redirect_to_https.map_or(0, u32::from);
            if let Some(active) = self
                .active
                .get(&at.value)
                .filter(|it| (it.plaintext, &it.balancers) == (*plaintext, balancers))
            {
                active.state.redirect.store(redirect, Relaxed);
                continue;
            }
            // A listener that changes between TLS and cleartext, or its balancers, keeps its sockets.
            let before = self.active.remove(&at.value).map(|active| active.sockets);
            let sockets = bound.0.remove(&at.value).or(before).unwrap_or_default();
            let state = Arc::new(ListenerState::default());
            state.redirect.store(redirect, Relaxed);
            let (end, _) = watch::channel(false);
            let (server, router) = serve(*plaintext);
            let server = server.balancers(balancers.clone());
            for socket in &sockets {
                let listener = socket.try_clone()?;
                listener.set_nonblocking(true)?;
                let listener = tokio::net::TcpListener::from_std(listener)?;
                let (server, router) = (server.clone(), router(Arc::clone(&state)));
                let mut ended = end.subscribe();
                self.tasks.spawn(async move {
                    // A sender that is gone ends the listener too.
                    let end = async { _ = ended.wait_for(|ended| *ended).await };
                    server.serve_until(listener, router, end).await;
                });
            }
            let active = Active { sockets, plaintext: *plaintext, balancers: balancers.clone(), state, end };
            self.active.insert(at.value.clone(), active);
        }
        Ok(())
    }

    /// Returns the addresses, and whether each is for TLS, in the order of the configuration.
    pub(crate) fn addresses(&self, config: &Config) -> Vec<(bool, SocketAddr)> {
        let of = |listen: &Listen| {
            let active = self.active.get(&listen.at.value)?;
            let addresses = active.sockets.iter().filter_map(|socket| socket.local_addr().ok());
            Some(addresses.map(|addr| (!active.plaintext, addr)).collect::<Vec<_>>())
        };
        config.listen.iter().filter_map(of).flatten().collect()
    }

    /// Ends all listeners. Their open requests are finished.
    pub(crate) fn end(&mut self) {
        for active in self.active.values() {
            let _ = active.end.send(true);
        }
        self.active.clear();
    }

    /// Waits for the end of a task; false if there is none left.
    pub(crate) async fn next_ended(&mut self) -> bool {
        self.tasks.join_next().await.is_some()
    }
}

/// Opens a socket with the options of tokio's listeners.
pub(crate) fn open(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = match addr {
        SocketAddr::V4(_) => tokio::net::TcpSocket::new_v4()?,
        SocketAddr::V6(_) => tokio::net::TcpSocket::new_v6()?,
    };
    // A restart need not wait for old connections.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(1024)?.into_std()
}
