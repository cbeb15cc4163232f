//! Requests of a connection: each is decided about, and its handler begins.

use std::mem;
use std::sync::Arc;
use std::task::{Context as Poller, Poll};

use ::h2::server::SendResponse;
use ::h2::{Reason, RecvStream};
use http::Request;
use marcato_sched::order::StreamId;
use marcato_units::Priority;

use super::driver::Driver;
use super::granted::Granted;
use super::stream::{Sender, Stream};
use super::tunnel::Tunnel;
use crate::body::Body;
use crate::early_end::EarlyEnd;
use crate::handler::{Handling, WebService};
use crate::hints::{content_length, decide_request, request_hints};
use crate::inbox::Bell;
use crate::record::Record;
use crate::stage::Stage;

impl<S: WebService> Driver<S> {
    /// Lets the library read and write, and takes the requests that have arrived. Returns true if the
    /// connection is over.
    pub(super) fn take_requests(&mut self, cx: &mut Poller<'_>) -> Result<bool, EarlyEnd> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, respond)))) => self.request(request, respond),
                Poll::Ready(Some(Err(error))) => return Err(error.into()),
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => return Ok(false),
            }
        }
    }

    /// Takes a request: decides about its urgency, and lets its handler begin.
    fn request(&mut self, request: Request<RecvStream>, mut respond: SendResponse<Granted>) {
        let id = StreamId(respond.stream_id().as_u32().into());
        let config = &self.context.config;
        let (head, body) = request.into_parts();
        let hints = request_hints(&head.headers, head.uri.path());
        let decision = {
            let mut inner = self.wire.inner();
            inner.granted();
            decide_request(&mut inner.signals, &config.guess, id, &head.headers, &hints)
        };
        let Ok(decision) = decision else {
            // The library allows no more streams than the signals do, so this is never reached.
            self.context.counters.refused.one();
            respond.send_reset(Reason::REFUSED_STREAM);
            return;
        };
        self.context.counters.requests.one();
        if decision.source.is_of_ordering_client() {
            // Urgent data will come: what is in flight before it decides how long that takes. Coupled mode
            // does not wait for the first of it.
            self.budget.uses(Priority::P0);
        }
        let bell = Bell::new(id, Arc::clone(&self.inbox));
        let stage = Arc::new(Stage::new(bell, config.staged()));
        let record = Record::begin(&head, decision, &self.context);
        let mut stream = Stream::new(Sender::Head(respond), Arc::clone(&stage), record);
        let mut waits = false;
        if let Some(response) = self.context.refusal(&head) {
            stage.head(response, true);
            stage.announce();
        } else if config.guess.declines(&hints) {
            self.context.counters.declined.one();
            stage.head(self.context.declined(), true);
            stage.announce();
        } else {
            let announced = content_length(&head.headers);
            let (body, tunnel) = match head.extensions.get::<::h2::ext::Protocol>() {
                Some(_) => {
                    let (body, upload) = Body::shared(body);
                    (body, Tunnel::new(upload))
                }
                None => (Body::http2(body, announced), None),
            };
            let mut request = Request::from_parts(head, body);
            let patience = self.context.equip(&mut request, decision, &stage);
            let dates = Arc::clone(&self.context.dates);
            let memory = mem::take(&mut self.memory);
            let tunnel = tunnel.map(|(tunnel, offer)| {
                request.extensions_mut().insert(offer);
                // The name by which handlers for hyper know it.
                #[cfg(any(feature = "axum", feature = "proxy"))]
                request.extensions_mut().insert(hyper::ext::Protocol::from_static(super::WEBSOCKET));
                tunnel
            });
            let handling = Handling::new(self.service.clone(), request, stage, dates, memory);
            let mut handling = handling.watched(patience).offer(tunnel);
            let ended = if config.spawn { None } else { handling.begin() };
            match ended {
                Some(memory) => self.memory = memory,
                None => {
                    stream.spawn(handling);
                    waits = true;
                }
            }
        }
        // The first look registers the stream for a reset by the client.
        stream.ring();
        self.streams.insert(id, stream, waits);
    }
}
