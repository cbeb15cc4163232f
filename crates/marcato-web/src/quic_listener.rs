//! Listener of HTTP/3 beside that of the other versions.

use std::net::SocketAddr;
#[cfg(feature = "http3")]
use std::net::{Ipv4Addr, Ipv6Addr};

use http::HeaderValue;

use crate::server::Server;

/// Listener of HTTP/3, if it is answered.
#[cfg(feature = "http3")]
pub(crate) struct QuicListener(Option<marcato_net::streams::Endpoint>);

#[cfg(feature = "http3")]
impl QuicListener {
    /// Binds the UDP port of the same number as a listener's, if HTTP/3 is to be answered there.
    pub(crate) async fn bind(server: &Server, beside: Option<SocketAddr>) -> Self {
        let (Some(streams), Some(tls), Some(addr)) = (server.quic_streams(), server.quic_tls(), beside)
        else {
            return Self(None);
        };
        let security = marcato_net::ServerSecurity::Custom(tls);
        let mut at = vec![addr.into()];
        if addr.ip() == Ipv6Addr::UNSPECIFIED {
            // TCP takes clients of both families there, and a socket of QUIC those of one.
            at.push(SocketAddr::from((Ipv4Addr::UNSPECIFIED, addr.port())).into());
        }
        match marcato_net::streams::Endpoint::listen(&streams, &at, &security).await {
            Ok(endpoint) => Self(Some(endpoint)),
            Err(error) => {
                tracing::warn!(%error, %addr, "http/3 is not answered");
                Self(None)
            }
        }
    }

    /// Field that tells clients of HTTP/3: for a day.
    pub(crate) fn alt_svc(&self) -> Option<HeaderValue> {
        let addr = self.0.as_ref()?.local_addrs().first()?;
        HeaderValue::try_from(format!("h3=\":{}\"; ma=86400", addr.port())).ok()
    }

    /// Waits for the next client. The future can be dropped without loss.
    pub(crate) async fn accept(&self) -> marcato_net::streams::Connection {
        if let Some(endpoint) = &self.0 {
            match endpoint.accept().await {
                Ok(client) => return client,
                Err(error) => tracing::warn!(%error, "http/3 is not answered any more"),
            }
        }
        std::future::pending().await
    }

    /// Accepts no more clients. Those that were accepted stay.
    pub(crate) fn refuse(self) {
        drop(self.0);
    }
}

/// Listener of HTTP/3, which this build does not answer.
#[cfg(not(feature = "http3"))]
pub(crate) struct QuicListener;

#[cfg(not(feature = "http3"))]
impl QuicListener {
    pub(crate) async fn bind(_: &Server, _: Option<SocketAddr>) -> Self {
        Self
    }

    pub(crate) const fn alt_svc(&self) -> Option<HeaderValue> {
        None
    }

    pub(crate) async fn accept(&self) -> std::convert::Infallible {
        std::future::pending().await
    }

    pub(crate) const fn refuse(self) {}
}
