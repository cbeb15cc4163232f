//! Generator of requests: connections of HTTP/2 with TLS, each with several requests under way.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use h2::client::SendRequest;
use http::Request;
use marcato_net::rustls::ClientConfig;
use tokio::task::{JoinHandle, JoinSet};

use super::client::{CONNECTION_WINDOW, WINDOW, secured};
use super::server::NAME;
use crate::error::SimulationError;
use crate::lab::failed;

/// Connections to a server.
pub(super) struct Connections {
    clients: Vec<SendRequest<Bytes>>,
    drivers: Vec<JoinHandle<()>>,
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.drivers.iter().for_each(JoinHandle::abort);
    }
}

impl Connections {
    /// Opens connections, one after the other.
    pub(super) async fn open(
        addr: SocketAddr,
        tls: &Arc<ClientConfig>,
        count: usize,
    ) -> Result<Self, SimulationError> {
        let mut connections = Self { clients: Vec::new(), drivers: Vec::new() };
        for _ in 0..count {
            let stream = secured(addr, Arc::clone(tls)).await?;
            let mut builder = h2::client::Builder::new();
            builder.initial_window_size(WINDOW).initial_connection_window_size(CONNECTION_WINDOW);
            let (client, connection) = builder.handshake::<_, Bytes>(stream).await.map_err(failed)?;
            connections.drivers.push(tokio::spawn(async move { _ = connection.await }));
            connections.clients.push(client);
        }
        Ok(connections)
    }

    /// Asks for a file of this length until all requests have been answered. Each connection has
    /// `streams` requests under way.
    pub(super) async fn ask(
        &self,
        name: &str,
        length: usize,
        streams: usize,
        requests: u64,
    ) -> Result<(), SimulationError> {
        let left = Arc::new(AtomicU64::new(requests));
        let uri = format!("https://{NAME}/{name}");
        let mut tasks = JoinSet::new();
        for client in self.clients.iter().flat_map(|client| std::iter::repeat_n(client, streams)) {
            let (mut client, left, uri) = (client.clone(), Arc::clone(&left), uri.clone());
            tasks.spawn(async move {
                let one_less = |left: u64| left.checked_sub(1);
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_ok() {
                    let received = one(&mut client, &uri).await?;
                    if received != length {
                        return Err(SimulationError::Lab(format!("{uri}: {received} of {length} bytes")));
                    }
                }
                Ok(())
            });
        }
        while let Some(ended) = tasks.join_next().await {
            ended.map_err(failed)??;
        }
        Ok(())
    }

    /// Asks for a file `streams` times on each connection, and reads nothing of it. The responses last as
    /// long as what this returns.
    pub(super) async fn neglect(
        &self,
        name: &str,
        streams: usize,
    ) -> Result<Vec<http::Response<h2::RecvStream>>, SimulationError> {
        let uri = format!("https://{NAME}/{name}");
        let mut waiting = Vec::new();
        for client in &self.clients {
            for _ in 0..streams {
                let mut client = client.clone();
                poll_fn(|cx| client.poll_ready(cx)).await.map_err(failed)?;
                let request = Request::get(&uri).body(()).map_err(failed)?;
                waiting.push(client.send_request(request, true).map_err(failed)?.0);
            }
        }
        let mut responses = Vec::new();
        for response in waiting {
            responses.push(response.await.map_err(failed)?);
        }
        Ok(responses)
    }
}

/// Asks once, and returns the number of bytes of the answer.
async fn one(client: &mut SendRequest<Bytes>, uri: &str) -> Result<usize, SimulationError> {
    poll_fn(|cx| client.poll_ready(cx)).await.map_err(failed)?;
    let request = Request::get(uri).body(()).map_err(failed)?;
    let (response, _) = client.send_request(request, true).map_err(failed)?;
    let response = response.await.map_err(failed)?;
    if !response.status().is_success() {
        return Err(SimulationError::Lab(format!("{uri}: status {}", response.status())));
    }
    let (mut body, mut received) = (response.into_body(), 0);
    while let Some(data) = body.data().await {
        let data = data.map_err(failed)?;
        body.flow_control().release_capacity(data.len()).map_err(failed)?;
        received += data.len();
    }
    Ok(received)
}
