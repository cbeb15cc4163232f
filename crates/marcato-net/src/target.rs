//! Target of a connection: a server by its addresses or by its name.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use marcato_identity::{Identity, Trust};
use tokio::task::JoinSet;

use crate::config::{ClientSecurity, Config, Remote};
use crate::connection::Connection;
use crate::error::{ConfigError, ConnectError};
use crate::sessions::Sessions;

/// Delay after which the next address is tried beside those that have not answered (RFC 8305 §5).
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Limit of the addresses of one name that are tried.
const ADDRESSES: usize = 16;

/// Server by its name and port, as in `"example.com:4433"`.
///
/// All addresses of the name are tried, IPv6 and IPv4 in turn, each 250 ms after the one before or
/// as soon as that has failed (RFC 8305). The first that answers is used, over one lane; more can
/// be [added](Connection::add_lane). The server's certificate has to be for the name.
///
/// ```
/// use marcato_net::{Config, Endpoint, Identity, Named, ServerSecurity, Trust};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let config = Config::default();
/// let identity = Identity::self_signed("localhost")?;
/// let certificate = identity.certificate().ok_or("none")?.clone();
/// let at = ["127.0.0.1:0".parse::<std::net::SocketAddr>()?.into()];
/// let server = Endpoint::listen(&config, &at, &ServerSecurity::Tls(identity)).await?;
///
/// let port = server.local_addrs()[0].port();
/// let name = format!("localhost:{port}");
/// // A server with a certificate of a public authority needs only `connect(&config, "name:port")`.
/// let to = Named::new(&name).trusting(Trust::Certificate(certificate));
/// let client = Endpoint::connect(&config, to).await?;
/// assert_eq!(client.remote_addr().map(|addr| addr.port()), Some(port));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Named {
    name: String,
    trust: Option<Trust>,
    identity: Option<Identity>,
    plaintext: bool,
    sessions: Sessions,
}

impl Named {
    /// Creates a target of this name and port. The system's authorities vouch for its certificate.
    pub fn new(name: &str) -> Self {
        let sessions = Sessions::default();
        Self { name: name.to_owned(), trust: None, identity: None, plaintext: false, sessions }
    }

    /// Returns this target, resuming these sessions.
    #[must_use]
    pub fn with_sessions(self, sessions: &Sessions) -> Self {
        Self { sessions: sessions.clone(), ..self }
    }

    /// Returns this target, with a certificate that `trust` accepts.
    #[must_use]
    pub fn trusting(self, trust: Trust) -> Self {
        Self { trust: Some(trust), ..self }
    }

    /// Returns this target, with a certificate for a server that
    /// [asks for one](crate::ServerSecurity::Mutual).
    #[must_use]
    pub fn presenting(self, identity: Identity) -> Self {
        Self { identity: Some(identity), ..self }
    }

    /// Returns this target without encryption and authentication. Only over TCP.
    #[must_use]
    pub fn plaintext(self) -> Self {
        Self { plaintext: true, ..self }
    }

    /// Returns the host and the port.
    fn parts(&self) -> Result<(&str, u16), ConfigError> {
        let wrong = || ConfigError::Target { given: self.name.clone() };
        let (host, port) = self.name.rsplit_once(':').ok_or_else(wrong)?;
        let host = match host.strip_prefix('[') {
            Some(v6) => v6.strip_suffix(']').ok_or_else(wrong)?,
            // An IPv6 address without brackets: its last part is no port.
            None if host.contains(':') => return Err(wrong()),
            None => host,
        };
        match port.parse() {
            Ok(port) if port > 0 && !host.is_empty() => Ok((host, port)),
            _ => Err(wrong()),
        }
    }

    fn security(&self, host: &str) -> ClientSecurity {
        match &self.trust {
            _ if self.plaintext => ClientSecurity::Plaintext,
            trust => {
                let (name, trust, identity) = (host.to_owned(), trust.clone(), self.identity.clone());
                ClientSecurity::Tls { name, trust, identity, sessions: self.sessions.clone() }
            }
        }
    }
}

/// Target of [`Endpoint::connect`](crate::Endpoint::connect): a [`Remote`] with addresses, or a
/// server by its name.
#[derive(Clone, Debug)]
pub enum Target {
    /// Server by the addresses of its lanes.
    Remote(Remote),
    /// Server by its name.
    Named(Named),
}

impl From<Remote> for Target {
    fn from(remote: Remote) -> Self {
        Self::Remote(remote)
    }
}

impl From<&Remote> for Target {
    fn from(remote: &Remote) -> Self {
        Self::Remote(remote.clone())
    }
}

impl From<Named> for Target {
    fn from(named: Named) -> Self {
        Self::Named(named)
    }
}

impl From<&str> for Target {
    fn from(name: &str) -> Self {
        Self::Named(Named::new(name))
    }
}

/// Connects to a server by its name.
pub(crate) async fn connect(config: &Config, to: &Named) -> Result<Connection, ConnectError> {
    let (host, port) = to.parts()?;
    let security = to.security(host);
    let unknown = |source| ConnectError::Unknown { host: host.to_owned(), source };
    let found = tokio::net::lookup_host((host, port)).await.map_err(unknown)?;
    let mut waiting = in_turn(found);
    let mut attempts = JoinSet::new();
    let mut error = unknown(io::ErrorKind::NotFound.into());
    loop {
        if let Some(addr) = waiting.pop_front() {
            let (config, remote) = (config.clone(), Remote::new(addr, security.clone()));
            attempts.spawn(async move { crate::connect::connect(&config, &remote).await });
        }
        let delay = async {
            match waiting.is_empty() {
                true => std::future::pending().await,
                false => tokio::time::sleep(ATTEMPT_DELAY).await,
            }
        };
        tokio::select! {
            // Dropping the set ends the other attempts.
            done = attempts.join_next() => match done {
                Some(Ok(Ok(connection))) => return Ok(connection),
                Some(Ok(Err(failed))) => error = failed,
                Some(Err(_)) => {}
                None if waiting.is_empty() => return Err(error),
                None => {}
            },
            () = delay => {}
        }
    }
}

/// Returns addresses with the families in turn, in the system's order within each (RFC 8305 §4).
fn in_turn(found: impl Iterator<Item = SocketAddr>) -> VecDeque<SocketAddr> {
    let found: Vec<SocketAddr> = found.take(ADDRESSES).collect();
    let first_is_v6 = found.first().is_some_and(SocketAddr::is_ipv6);
    let (mut first, mut second): (VecDeque<_>, VecDeque<_>) =
        found.into_iter().partition(|addr| addr.is_ipv6() == first_is_v6);
    let mut order = VecDeque::new();
    while let Some(addr) = first.pop_front() {
        order.push_back(addr);
        std::mem::swap(&mut first, &mut second);
        if first.is_empty() {
            std::mem::swap(&mut first, &mut second);
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_needs_a_host_and_a_port() {
        for (name, parts) in [
            ("example.com:4433", ("example.com", 4433)),
            ("192.0.2.1:1", ("192.0.2.1", 1)),
            ("[2001:db8::1]:443", ("2001:db8::1", 443)),
        ] {
            assert_eq!(Named::new(name).parts().unwrap(), parts);
        }
        for name in
            ["example.com", "example.com:", "example.com:0", ":443", "2001:db8::1:443", "[::1:443", "a:b"]
        {
            let error = Named::new(name).parts().unwrap_err().to_string();
            assert!(error.contains(&format!("`{name}`")), "{error}");
        }
    }

    #[test]
    fn addresses_of_both_families_are_tried_in_turn() {
        let addr = |text: &str| text.parse::<SocketAddr>().unwrap();
        let found = ["[::1]:1", "[::2]:1", "[::3]:1", "192.0.2.1:1"].map(addr);
        let order = ["[::1]:1", "192.0.2.1:1", "[::2]:1", "[::3]:1"].map(addr);
        assert_eq!(in_turn(found.into_iter()), order);
        let found = ["192.0.2.1:1", "[::1]:1", "192.0.2.2:1"].map(addr);
        assert_eq!(in_turn(found.into_iter()), found);
    }
}
