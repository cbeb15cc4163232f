//! Identities of servers, and the trust of clients in them, for TLS over TCP and over QUIC.
//!
//! A server presents an [`Identity`]: a certificate and its key. A client accepts the certificates
//! of its [`Trust`]: those signed by known authorities, one certificate, or the one with a
//! [`Fingerprint`].
#![forbid(unsafe_code)]

mod fingerprint;
mod identity;
mod pem;
mod secrets;
mod trust;

pub use fingerprint::{Fingerprint, FingerprintError};
pub use identity::{Identity, IdentityError};
pub use pem::{PemError, PemOrigin};
pub use secrets::Secrets;
pub use trust::Trust;
