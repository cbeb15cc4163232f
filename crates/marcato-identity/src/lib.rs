//! Identities of both ends, and the trust in them, for TLS over TCP and over QUIC.
//!
//! A server presents an [`Identity`]: a certificate and its key. A client accepts the certificates
//! of its [`Trust`]: those signed by known authorities, one certificate, or the one with a
//! [`Fingerprint`]. A client may present an [`Identity`] as well, and a server's [`ClientAuth`]
//! decides which it accepts.
#![cfg_attr(docsrs, feature(doc_cfg))]
#![forbid(unsafe_code)]

mod alert;
mod client_auth;
mod fingerprint;
mod identity;
mod peer_identity;
mod pem;
mod secrets;
mod server_identity;
mod trust;

pub use alert::explain_alert;
pub use client_auth::ClientAuth;
pub use fingerprint::{Fingerprint, FingerprintError};
pub use identity::{Identity, IdentityError};
pub use peer_identity::PeerIdentity;
pub use pem::{PemError, PemOrigin};
pub use secrets::Secrets;
pub use server_identity::ServerIdentity;
pub use trust::Trust;

/// README of the crate, compiled and run.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
