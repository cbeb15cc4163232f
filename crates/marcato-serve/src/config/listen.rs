//! Listeners.

use std::fmt;
use std::net::SocketAddr;

use marcato_document::Table;

use super::error::Faults;
use super::keys::Keys;
use super::located::Located;

/// Most listeners.
pub(crate) const MAX_LISTENERS: usize = 64;

/// Listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listen {
    /// Place at which connections arrive.
    pub at: Located<ListenAt>,
    /// True for HTTP in cleartext, false for TLS.
    pub plaintext: bool,
    /// Port of `https` to which all requests are redirected.
    pub redirect_to_https: Option<u16>,
}

/// Place at which connections arrive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ListenAt {
    /// Address of this host.
    Address(SocketAddr),
    /// Socket that a supervisor has opened, by its name (`FileDescriptorName=` of systemd).
    Socket(String),
}

impl fmt::Display for ListenAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(addr) => write!(f, "{addr}"),
            Self::Socket(name) => write!(f, "socket {name}"),
        }
    }
}

impl Listen {
    const KEYS: [&'static str; 5] = ["address", "socket", "plaintext", "redirect-to-https", "https-port"];

    pub(crate) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, "a listener", &Self::KEYS, faults);
        let address = keys.string("address").map(|text| (text, text.parse::<SocketAddr>()));
        let socket = keys.string("socket");
        let at = match (address, socket) {
            (Some(_), Some(_)) => {
                keys.fault("socket", "a listener has an `address` or a `socket`: remove one");
                None
            }
            (Some((_, Ok(address))), None) => Some(ListenAt::Address(address)),
            (Some((text, Err(_))), None) => {
                keys.fault("address", format!("{text:?} is no address with a port: {}", remedy(text)));
                None
            }
            (None, Some(name)) => Some(ListenAt::Socket(name.to_owned())),
            (None, None) => {
                if !keys.has("address") && !keys.has("socket") {
                    keys.need("address", "give one, as \"[::]:443\", or the `socket` of a supervisor");
                }
                None
            }
        };
        let plaintext = keys.boolean("plaintext");
        let redirects = keys.boolean("redirect-to-https").unwrap_or(false);
        let port = keys.whole("https-port", 1..=65_535).and_then(|port| u16::try_from(port).ok());
        if redirects && plaintext == Some(false) {
            keys.fault("redirect-to-https", "a listener with TLS has nothing to redirect: remove this key");
        }
        if port.is_some() && !redirects {
            keys.fault("https-port", "`https-port` needs `redirect-to-https = true`: add it");
        }
        let place = keys.place(if socket.is_some() { "socket" } else { "address" });
        Some(Self {
            at: Located::at(place, at?),
            plaintext: plaintext.unwrap_or(redirects),
            redirect_to_https: redirects.then_some(port.unwrap_or(443)),
        })
    }
}

/// Returns what probably was meant.
pub(super) fn remedy(text: &str) -> String {
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return format!("write \"[{text}]:443\"");
    }
    if text.parse::<std::net::IpAddr>().is_ok() {
        return format!("write \"{text}:443\"");
    }
    match text.strip_prefix('*').unwrap_or(text).strip_prefix(':') {
        Some(port) if port.parse::<u16>().is_ok() => format!("write \"[::]:{port}\" for all addresses"),
        _ if text.parse::<u16>().is_ok() => format!("write \"[::]:{text}\" for all addresses"),
        _ => "write numbers, as \"192.0.2.1:443\" or \"[::]:443\"".to_owned(),
    }
}
