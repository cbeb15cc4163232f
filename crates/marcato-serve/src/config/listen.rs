//! Listeners.

use std::fmt;
use std::net::SocketAddr;

use ipnet::IpNet;
use marcato_document::form::{Flag, Small, SomeText};
use marcato_document::{Faults, Keyed as _, Keys, Table, keyed};

use super::form::{By, Placed, Serve};
use super::located::Located;
use super::rates::networks;

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
    /// Networks whose connections begin with a header of the PROXY protocol.
    pub balancers: Vec<IpNet>,
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

/// Keys of a listener.
#[derive(Default)]
pub(super) struct ListenKeys {
    address: Option<Located<SocketAddr>>,
    socket: Option<Located<String>>,
    plaintext: Option<bool>,
    redirects: bool,
    port: u32,
    balancers: Vec<IpNet>,
}

keyed! {
    ListenKeys, "a listener", |of: Serve|, onto Self { port: 443, ..Self::default() };
    /// address with a port, as `"[::]:443"`
    "address" => address: By(address), optional("required, or `socket`");
    /// socket of a supervisor, by its name
    "socket" => socket: Placed(SomeText), optional("none");
    /// HTTP in cleartext
    "plaintext" => plaintext: Flag, optional("`false`, and `true` with `redirect-to-https`");
    /// redirect of all requests to `https`
    "redirect-to-https" => redirects: Flag, own();
    /// port of `https` for these redirects
    "https-port" => port: Small(1..=65_535), own();
    /// networks whose connections begin with a header of the PROXY protocol, version 1 or 2; HTTP/3 is then not answered here
    "proxy-protocol" => balancers: By(networks), own("none");
}

impl Listen {
    pub(crate) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, &ListenKeys::SCHEMA, faults);
        let ListenKeys { address, socket, plaintext, redirects, port, balancers } =
            ListenKeys::read(&keys, &Serve)?;
        if keys.has("address") && socket.is_some() {
            keys.fault("socket", "a listener has an `address` or a `socket`: remove one");
        }
        if !keys.has("address") && !keys.has("socket") {
            keys.need("address", "give one, as \"[::]:443\", or the `socket` of a supervisor");
        }
        if redirects && plaintext == Some(false) {
            keys.fault("redirect-to-https", "a listener with TLS has nothing to redirect: remove this key");
        }
        if keys.has("https-port") && !redirects {
            keys.fault("https-port", "`https-port` needs `redirect-to-https = true`: add it");
        }
        let address = address.map(|at| Located::at(at.place, ListenAt::Address(at.value)));
        let socket = socket.map(|at| Located::at(at.place, ListenAt::Socket(at.value)));
        Some(Self {
            at: address.or(socket)?,
            plaintext: plaintext.unwrap_or(redirects),
            redirect_to_https: u16::try_from(port).ok().filter(|_| redirects),
            balancers,
        })
    }
}

/// Reads an address with a port.
pub(super) fn address(keys: &Keys<'_>, key: &'static str) -> Option<Located<SocketAddr>> {
    let text = keys.some_string(key)?;
    match text.parse() {
        Ok(address) => Some(Located::at(keys.place(key), address)),
        Err(_) => {
            keys.fault(key, format!("{text:?} is no address with a port: {}", remedy(text)));
            None
        }
    }
}

/// Returns what probably was meant.
fn remedy(text: &str) -> String {
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
