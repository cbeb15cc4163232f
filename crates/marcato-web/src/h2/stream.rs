//! Stream of a request and its response.

use std::future::Future;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use ::h2::server::SendResponse;
use ::h2::{Error, Reason, SendStream};
use http::{HeaderMap, Response, StatusCode};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::granted::Granted;
use super::refill::Pace;
use crate::record::Record;
use crate::stage::Stage;

/// Stream of a request, from its head to the last byte of its response.
///
/// Its handler ends with it.
pub(super) struct Stream {
    sender: Sender,
    pub(super) stage: Arc<Stage>,
    /// Rings the bell when the client resets the stream, or gives it credit.
    waker: Waker,
    handler: Option<AbortHandle>,
    pub(super) trailers: Option<HeaderMap>,
    /// True while the response waits for credit.
    pub(super) held: bool,
    /// Time since which the client has given no credit for bytes that wait; `None` if none do.
    pub(super) stalled_since: Option<Instant>,
    /// Time since which its stage is empty; `None` if it is not.
    pub(super) empty_since: Option<Instant>,
    /// Pace at which its stage was filled when it was last empty.
    pub(super) pace: Pace,
    /// Number of the latest round in which it was granted anything.
    pub(super) round: u64,
    pub(super) record: Record,
}

/// Half of the stream that we send on.
pub(super) enum Sender {
    /// The head is yet to be sent.
    Head(SendResponse<Granted>),
    Content(SendStream<Granted>),
}

impl Drop for Stream {
    fn drop(&mut self) {
        if let Some(handler) = &self.handler {
            handler.abort();
        }
    }
}

impl Stream {
    pub(super) fn new(sender: Sender, stage: Arc<Stage>, record: Record) -> Self {
        let waker = Waker::from(Arc::clone(&stage));
        Self {
            sender,
            stage,
            waker,
            handler: None,
            trailers: None,
            held: false,
            stalled_since: None,
            empty_since: None,
            pace: Pace::default(),
            round: 0,
            record,
        }
    }

    /// Lets the handler run in a task of its own.
    pub(super) fn spawn(&mut self, handler: impl Future<Output = ()> + Send + 'static) {
        self.handler = Some(tokio::spawn(handler).abort_handle());
    }

    /// Asks for a look at the stream.
    pub(super) fn ring(&self) {
        self.stage.ring();
    }

    /// Sends an interim response, unless the final one has been sent.
    pub(super) fn interim(&mut self, response: Response<()>) -> Result<(), Error> {
        match &mut self.sender {
            Sender::Head(sender) => sender.send_informational(response),
            Sender::Content(_) => Ok(()),
        }
    }

    /// Sends the head of the response, once.
    pub(super) fn head(&mut self, response: Response<()>, is_end: bool) -> Result<(), Error> {
        if let Sender::Head(sender) = &mut self.sender {
            self.sender = Sender::Content(sender.send_response(response, is_end)?);
        }
        Ok(())
    }

    /// Answers for a handler that failed: with a response if none has begun, else with a reset.
    pub(super) fn fail(&mut self) {
        if let Sender::Head(sender) = &mut self.sender {
            let mut response = Response::new(());
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            self.record.head(response.status(), None);
            if sender.send_response(response, true).is_ok() {
                return;
            }
        }
        self.reset(Reason::INTERNAL_ERROR);
    }

    pub(super) fn reset(&mut self, reason: Reason) {
        match &mut self.sender {
            Sender::Head(sender) => sender.send_reset(reason),
            Sender::Content(sender) => sender.send_reset(reason),
        }
    }

    /// Returns true if the client has reset the stream. If not, the bell rings when it does.
    pub(super) fn poll_reset(&mut self) -> Result<bool, Error> {
        let mut cx = Context::from_waker(&self.waker);
        let reset = match &mut self.sender {
            Sender::Head(sender) => sender.poll_reset(&mut cx),
            Sender::Content(sender) => sender.poll_reset(&mut cx),
        };
        match reset {
            Poll::Ready(reset) => reset.map(|_| true),
            Poll::Pending => Ok(false),
        }
    }

    /// Returns the bytes that may be sent now: at most `wanted`. If they are fewer, the bell rings when
    /// there are more.
    pub(super) fn credit(&mut self, wanted: usize) -> usize {
        let Sender::Content(sender) = &mut self.sender else { return 0 };
        sender.reserve_capacity(wanted);
        sender.capacity().min(wanted)
    }

    /// Returns true if there is credit. If not, the bell rings when there is.
    pub(super) fn poll_credit(&mut self) -> Result<bool, Error> {
        let Sender::Content(sender) = &mut self.sender else { return Ok(false) };
        if sender.capacity() > 0 {
            return Ok(true);
        }
        match sender.poll_capacity(&mut Context::from_waker(&self.waker)) {
            Poll::Ready(Some(credit)) => credit.map(|credit| credit > 0),
            Poll::Ready(None) | Poll::Pending => Ok(false),
        }
    }

    /// Sends content for which there is credit.
    pub(super) fn send(&mut self, content: Granted, ends: bool) -> Result<(), Error> {
        match &mut self.sender {
            Sender::Content(sender) => sender.send_data(content, ends),
            Sender::Head(_) => Ok(()),
        }
    }

    pub(super) fn send_trailers(&mut self, trailers: HeaderMap) -> Result<(), Error> {
        match &mut self.sender {
            Sender::Content(sender) => sender.send_trailers(trailers),
            Sender::Head(_) => Ok(()),
        }
    }
}
