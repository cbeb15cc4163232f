//! Task of a request.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use ::h3::error::Code;
use ::h3::server::RequestResolver;
use bytes::Bytes;
use http::header::{HeaderName, TE};
use http::request::Parts;
use http::{HeaderMap, Request};
use marcato_sched::order::StreamId;

use super::response::Responder;
use super::shared::Shared;
use super::transport::{Outgoing, Transport};
use super::upload::{First, Upload};
use crate::body::Body;
use crate::handler::{CONNECTION_FIELDS, Handling, Memory, WebService};
use crate::hints::{content_length, request_hints};
use crate::inbox::{Bell, Inbox};
use crate::server::Context;
use crate::stage::Stage;

/// Serves the request of a stream, from its head to the last byte of its response.
pub(super) async fn serve<S: WebService>(
    resolver: RequestResolver<Transport, Bytes>,
    outgoing: Arc<Outgoing>,
    shared: Arc<Shared>,
    service: S,
    context: Arc<Context>,
) {
    let limits = context.config.limits;
    let resolved = tokio::time::timeout(limits.handshake, resolver.resolve_request()).await;
    let (request, stream) = match resolved {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => {
            // The library has answered, or reset the stream.
            tracing::debug!(%error, "a request was refused");
            context.counters.malformed.one();
            return;
        }
        Err(_) => {
            context.counters.slow_heads.one();
            outgoing.reset(Code::H3_REQUEST_REJECTED);
            return;
        }
    };
    let (sender, receiver) = stream.split();
    let (mut head, ()) = request.into_parts();
    let announced = content_length(&head.headers);
    let mut upload = Upload::new(receiver, announced);
    // The end of a request without a body comes with its head.
    let first = poll_fn(|cx| Poll::Ready(upload.look(cx))).await;
    if is_malformed(&head.headers) || matches!(first, First::Malformed) {
        context.counters.malformed.one();
        outgoing.reset(Code::H3_MESSAGE_ERROR);
        return;
    }
    name_protocol(&mut head);
    let Some(entry) = shared.request(&head, &outgoing) else {
        // QUIC allows no more streams than the signals do, so this is never reached.
        context.counters.refused.one();
        outgoing.reset(Code::H3_REQUEST_REJECTED);
        return;
    };
    context.counters.requests.one();
    let inbox = Arc::<Inbox>::default();
    let bell = Bell::new(StreamId(outgoing.id()), Arc::clone(&inbox));
    let stage = Arc::new(Stage::new(bell, context.config.staged()));
    let mut responder = Responder::new(entry, outgoing, sender, Arc::clone(&stage), inbox);
    if let Some(response) = context.refusal(&head) {
        stage.head(response, true);
        stage.announce();
    } else if context.config.guess.declines(&request_hints(&head.headers, head.uri.path())) {
        context.counters.declined.one();
        stage.head(context.declined(), true);
        stage.announce();
    } else {
        let body = match first {
            First::Over => Body::empty(),
            _ => Body::http3(upload),
        };
        let mut request = Request::from_parts(head, body);
        let patience = context.equip(&mut request, responder.decision(), &stage);
        let dates = Arc::clone(&context.dates);
        let handling = Handling::new(service, request, stage, dates, Memory::default());
        let mut handling = handling.watched(patience);
        if context.config.spawn || handling.begin().is_none() {
            responder.spawn(handling);
        }
    }
    responder.run().await;
}

/// True if a head has fields that belong to a connection (RFC 9114 §4.2).
fn is_malformed(headers: &HeaderMap) -> bool {
    let is_of_connection = |name: &HeaderName| CONNECTION_FIELDS.contains(name);
    headers.keys().any(is_of_connection) || headers.get_all(TE).iter().any(|value| value != "trailers")
}

/// Names the protocol of an extended CONNECT as requests of HTTP/2 have it.
fn name_protocol(head: &mut Parts) {
    if let Some(protocol) = head.extensions.remove::<::h3::ext::Protocol>() {
        let name = match protocol {
            ::h3::ext::Protocol::WEB_TRANSPORT => "webtransport",
            _ => "connect-udp",
        };
        head.extensions.insert(::h2::ext::Protocol::from_static(name));
    }
}
