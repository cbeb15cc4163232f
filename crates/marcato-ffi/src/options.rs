//! Options of a connection, as C gives them, as the library takes them.

use std::net::SocketAddr;
use std::time::Duration;

use marcato_net::{
    ClientSecurity, Config, Coupling, Engine, Fingerprint, Identity, LocalAddress, LongMessages, Named,
    Remote, ServerSecurity, Target, Trust,
};

use crate::abi::{
    MARCATO_LAYERED, MARCATO_LONG, MARCATO_PLAINTEXT, MARCATO_QUIC, MARCATO_TCP, MARCATO_UNCOUPLED,
};
use crate::failure::Failure;

/// Options of a connection, with texts in place of pointers.
#[derive(Debug, Default)]
pub(crate) struct Settings<'a> {
    pub(crate) engine: u32,
    pub(crate) flags: u32,
    pub(crate) server_name: Option<&'a str>,
    pub(crate) authorities_pem: Option<&'a str>,
    pub(crate) fingerprint: Option<&'a str>,
    pub(crate) certificate_pem: Option<&'a str>,
    pub(crate) key_pem: Option<&'a str>,
    pub(crate) protocol: Option<&'a str>,
    pub(crate) idle_timeout: Duration,
}

impl Settings<'_> {
    /// Returns the configuration of both ends.
    pub(crate) fn config(&self) -> Result<Config, Failure> {
        let engine = match self.engine {
            MARCATO_QUIC => Engine::Quic,
            MARCATO_TCP => Engine::Tcp,
            other => {
                return Err(Failure::invalid(format!("engine {other}: choose MARCATO_QUIC or MARCATO_TCP")));
            }
        };
        let known = MARCATO_LAYERED | MARCATO_LONG | MARCATO_PLAINTEXT | MARCATO_UNCOUPLED;
        if self.flags & !known != 0 {
            return Err(Failure::invalid(format!(
                "flags {:#x}: this library does not know them",
                self.flags & !known
            )));
        }
        let mut config = Config::new(engine).layered(self.has(MARCATO_LAYERED));
        if let Some(protocol) = self.protocol {
            config.alpn = vec![protocol.as_bytes().to_vec()];
        }
        if self.has(MARCATO_UNCOUPLED) {
            config.coupled = Coupling::Off;
        }
        if self.has(MARCATO_LONG) {
            config.limits.long_messages = LongMessages::Stream;
        }
        if !self.idle_timeout.is_zero() {
            let idle = self.idle_timeout;
            config.tcp.idle_timeout = idle;
            config.quic.session.idle_timeout = idle;
        }
        Ok(config)
    }

    const fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    fn identity(&self) -> Result<Option<Identity>, Failure> {
        match (self.certificate_pem, self.key_pem) {
            (Some(chain), Some(key)) => Ok(Some(Identity::from_pem(chain.as_bytes(), key.as_bytes())?)),
            (None, None) => Ok(None),
            _ => Err(Failure::invalid(
                "a certificate needs its key, and a key its certificate: give both or none",
            )),
        }
    }

    pub(crate) fn server(&self) -> Result<ServerSecurity, Failure> {
        match self.identity()? {
            _ if self.has(MARCATO_PLAINTEXT) => Ok(ServerSecurity::Plaintext),
            Some(identity) => Ok(ServerSecurity::Tls(identity)),
            None => Err(Failure::invalid(
                "a server needs `certificate_pem` and `key_pem`: marcato_self_signed makes them for tests",
            )),
        }
    }

    fn trust(&self) -> Result<Option<Trust>, Failure> {
        match (self.fingerprint, self.authorities_pem) {
            (Some(_), Some(_)) => Err(Failure::invalid("give `fingerprint` or `authorities_pem`, not both")),
            (Some(fingerprint), None) => {
                let fingerprint: Fingerprint = fingerprint
                    .parse()
                    .map_err(|error| Failure::invalid(format!("`fingerprint`: {error}")))?;
                Ok(Some(Trust::Fingerprint(fingerprint)))
            }
            (None, Some(authorities)) => Ok(Some(Trust::from_pem(authorities.as_bytes())?)),
            (None, None) => Ok(None),
        }
    }

    /// Returns the server at an address or at a name with a port.
    pub(crate) fn target(&self, at: &str) -> Result<Target, Failure> {
        let (trust, identity) = (self.trust()?, self.identity()?);
        let Ok(addr) = at.parse::<SocketAddr>() else {
            if self.server_name.is_some() {
                return Err(Failure::invalid(
                    "`server_name` goes with a numeric address: a name is checked by itself",
                ));
            }
            let mut named = Named::new(at);
            if let Some(trust) = trust {
                named = named.trusting(trust);
            }
            if let Some(identity) = identity {
                named = named.presenting(identity);
            }
            return Ok(Target::Named(if self.has(MARCATO_PLAINTEXT) { named.plaintext() } else { named }));
        };
        if self.has(MARCATO_PLAINTEXT) {
            return Ok(Remote::new(addr, ClientSecurity::Plaintext).into());
        }
        let name = self.server_name.map_or_else(|| addr.ip().to_string(), str::to_owned);
        let mut security = match trust {
            Some(trust) => ClientSecurity::trusting(name, trust),
            None => ClientSecurity::verified(name),
        };
        if let Some(identity) = identity {
            security = security.presenting(identity);
        }
        Ok(Remote::new(addr, security).into())
    }
}

/// Returns the addresses that a text names: one, or `:PORT` for all of this host.
pub(crate) fn addresses(text: &str) -> Result<Vec<LocalAddress>, Failure> {
    if let Some(Ok(port)) = text.strip_prefix(':').map(str::parse) {
        return Ok(LocalAddress::any(port));
    }
    let addr: SocketAddr = text.parse().map_err(|_| {
        Failure::invalid(format!(
            "{text:?} is no address: write 127.0.0.1:4433, [::1]:4433, or :4433 for all"
        ))
    })?;
    Ok(vec![addr.into()])
}
