//! Task of a connection.

use std::sync::Arc;

use ::h3::error::{Code, ConnectionError};
use ::h3::server;
use bytes::Bytes;
use marcato_net::streams::{Connection, End};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use super::MAX_FIELDS;
use super::request;
use super::shared::Shared;
use super::transport::Transport;
use crate::clocks::{Clocks, Due, Seen};
use crate::early_end::EarlyEnd;
use crate::handler::WebService;
use crate::server::{Context, Shutdown};

/// Task of a connection: it accepts requests, and ends.
pub(super) struct Driver<S> {
    library: server::Connection<Transport, Bytes>,
    connection: Connection,
    shared: Arc<Shared>,
    /// Tasks of the open requests.
    requests: JoinSet<()>,
    service: S,
    context: Arc<Context>,
    clocks: Clocks,
}

impl<S: WebService> Driver<S> {
    /// Begins a connection: the settings are sent.
    pub(super) async fn begin(
        connection: &Connection,
        service: S,
        context: Arc<Context>,
    ) -> Result<Self, EarlyEnd> {
        let limits = context.config.limits;
        let shared = Arc::new(Shared::new(connection.clone(), Arc::clone(&context)));
        let transport = Transport::new(connection.clone(), Arc::clone(&shared));
        let mut builder = server::builder();
        // Its reserved frames would delay the first response.
        builder.send_grease(false).max_field_section_size(limits.header_list.get().min(MAX_FIELDS));
        let building = builder.build(transport);
        // A client that allows no streams of ours would keep it waiting.
        let library =
            tokio::time::timeout(limits.handshake, building).await.map_err(|_| EarlyEnd::NoStreams)??;
        let clocks = Clocks::new(limits, Instant::now());
        let connection = connection.clone();
        Ok(Self { library, connection, shared, requests: JoinSet::new(), service, context, clocks })
    }

    /// Serves requests until the connection ends.
    pub(super) async fn run(mut self, mut shutdown: Shutdown) -> Result<(), EarlyEnd> {
        let mut draining = false;
        loop {
            if draining && self.requests.is_empty() {
                return Ok(());
            }
            let has_requests = !self.requests.is_empty();
            // QUIC finds dead clients, and each response those that give it no credit.
            let seen = Seen { has_requests, waits: false, head_since: None };
            let due_at = match self.clocks.next(Instant::now(), seen) {
                Ok(at) => at,
                Err(Due::End(overdue)) => return Err(self.context.overdue(overdue)),
                Err(Due::Drain) => {
                    draining = true;
                    self.drain().await?;
                    continue;
                }
            };
            let due = async {
                match due_at {
                    Some(at) => sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            let accepted = tokio::select! {
                // The library reads control frames only while it is asked for requests.
                accepted = self.library.accept() => accepted,
                Some(_) = self.requests.join_next() => continue,
                () = &mut shutdown, if !draining => {
                    draining = true;
                    self.drain().await?;
                    continue;
                }
                () = due => continue,
            };
            match accepted {
                Ok(Some(resolver)) => {
                    let Some(outgoing) = self.shared.take_accepted() else { continue };
                    let (shared, service) = (Arc::clone(&self.shared), self.service.clone());
                    let context = Arc::clone(&self.context);
                    self.requests.spawn(request::serve(resolver, outgoing, shared, service, context));
                }
                // The client has said that it asks for nothing more.
                Ok(None) => return Ok(()),
                Err(_) if self.is_closed_in_order() => {
                    // Responses of which the last acknowledgement has not arrived are complete all the same.
                    while self.requests.join_next().await.is_some() {}
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// True if the client has ended the connection in order. Some say so with code 0.
    fn is_closed_in_order(&self) -> bool {
        let code = match self.connection.close_reason() {
            Some(End::Application { code, .. }) => code,
            _ => return false,
        };
        code == 0 || code == Code::H3_NO_ERROR.value()
    }

    /// Tells the client to begin nothing more (RFC 9114 §5.2).
    async fn drain(&mut self) -> Result<(), ConnectionError> {
        self.clocks.drain(Instant::now());
        self.shared.drain();
        // The library names the latest request itself without it, as if that was not served.
        self.library.shutdown(1).await
    }
}
