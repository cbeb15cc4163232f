//! Name that a client gave in its handshake of TLS, as a request's extension.

use std::sync::Arc;

/// Name that a client gave in its handshake of TLS (RFC 6066 §3), in lower case. A request has it as an
/// extension if its client gave one.
///
/// The certificate was chosen by this name. A request for another host is misdirected, unless the
/// certificate covers that host too (RFC 9110 §15.5.20).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ServerName(pub Arc<str>);
