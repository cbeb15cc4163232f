//! Body of a request.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use marcato_units::Duration;
use thiserror::Error;
use tokio::time::Instant;

use super::activity::{Activity, IdleTimer};
use super::counters::Tally;
use super::headers::strip_trailers;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Body of a request, which outlives the attempts to send it.
///
/// It can be sent again as long as no frame was taken from it.
pub(super) struct Upload {
    state: Mutex<State>,
    pub(super) activity: Arc<Activity>,
    idle: Duration,
    empty: bool,
    hint: SizeHint,
}

struct State {
    body: Option<UnsyncBoxBody<Bytes, BoxError>>,
    /// Number of the attempt that owns the body.
    attempt: u32,
    /// True once a frame was taken.
    begun: bool,
    /// True while the client owes the next frame.
    owed: bool,
    fault: Option<UploadFault>,
}

/// Fault of the client in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadFault {
    /// Nothing came for too long.
    Idle,
    /// The body broke.
    Broken,
}

impl Upload {
    pub(super) fn new<B>(body: B, idle: Duration) -> Arc<Self>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let hint = body.size_hint();
        let empty = body.is_end_stream() || hint.exact() == Some(0);
        let body = (!empty).then(|| UnsyncBoxBody::new(body.map_err(Into::into)));
        let hint = if empty { SizeHint::with_exact(0) } else { hint };
        let state = State { body, attempt: 0, begun: false, owed: false, fault: None };
        Arc::new(Self { state: Mutex::new(state), activity: Arc::new(Activity::new()), idle, empty, hint })
    }

    /// Takes the body back from an earlier attempt; `None` if a frame was taken from it.
    pub(super) fn renew(self: &Arc<Self>, tally: &Arc<Tally>) -> Option<Outbound> {
        let mut state = self.lock();
        if state.begun || state.fault.is_some() {
            return None;
        }
        state.attempt += 1;
        state.owed = false;
        Some(Outbound {
            upload: Arc::clone(self),
            attempt: state.attempt,
            timer: IdleTimer::new(Arc::clone(&self.activity), self.idle),
            tally: Arc::clone(tally),
            ended: self.empty,
        })
    }

    /// True if the body's length is known before it is sent.
    pub(super) fn has_length(&self) -> bool {
        self.hint.exact().is_some()
    }

    /// True if the body can be sent again.
    pub(super) fn is_unbegun(&self) -> bool {
        let state = self.lock();
        !state.begun && state.fault.is_none()
    }

    pub(super) fn fault(&self) -> Option<UploadFault> {
        self.lock().fault
    }

    /// Time from which the origin has owed its response; `None` while the client owes bytes.
    pub(super) fn owed_since(&self) -> Option<Instant> {
        (!self.lock().owed).then(|| self.activity.last())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Body of one attempt.
pub(super) struct Outbound {
    upload: Arc<Upload>,
    attempt: u32,
    timer: IdleTimer,
    tally: Arc<Tally>,
    ended: bool,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self { upload, attempt, timer, tally, ended } = self.get_mut();
        if *ended {
            return Poll::Ready(None);
        }
        let mut state = upload.lock();
        if state.attempt != *attempt {
            return Poll::Ready(Some(Err(UploadError::Superseded)));
        }
        let Some(body) = state.body.as_mut() else { return Poll::Ready(None) };
        match Pin::new(body).poll_frame(cx) {
            Poll::Pending => {
                state.owed = true;
                if timer.poll(cx).is_pending() {
                    return Poll::Pending;
                }
                state.body = None;
                state.fault = Some(UploadFault::Idle);
                Poll::Ready(Some(Err(UploadError::Idle { idle: upload.idle })))
            }
            Poll::Ready(frame) => {
                state.begun = true;
                state.owed = false;
                timer.progress();
                match frame {
                    Some(Ok(mut frame)) => {
                        if let Some(data) = frame.data_ref() {
                            tally.sent(data.len());
                        } else if let Some(trailers) = frame.trailers_mut() {
                            strip_trailers(trailers);
                        }
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Some(Err(error)) => {
                        state.body = None;
                        state.fault = Some(UploadFault::Broken);
                        Poll::Ready(Some(Err(UploadError::Client(error))))
                    }
                    None => {
                        state.body = None;
                        *ended = true;
                        Poll::Ready(None)
                    }
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.ended || self.upload.lock().body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended {
            return SizeHint::with_exact(0);
        }
        self.upload.lock().body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint)
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let mut state = self.upload.lock();
        // A body that was begun cannot be sent again: the client need not send the rest.
        if state.attempt == self.attempt && state.begun {
            state.body = None;
            state.owed = false;
        }
    }
}

/// Error of a request's body.
#[derive(Debug, Error)]
pub(super) enum UploadError {
    #[error("request was sent elsewhere: drop this attempt")]
    Superseded,
    #[error("client sent nothing for {idle:?}: raise body_idle_timeout for slow clients")]
    Idle { idle: Duration },
    #[error("client's body broke, abandon the request: {0}")]
    Client(BoxError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Empty, Full, StreamBody};
    use std::future::poll_fn;

    const IDLE: Duration = Duration::from_secs(10);

    fn tally() -> Arc<Tally> {
        Arc::default()
    }

    /// Body that owes its first frame for ever.
    struct Silent;

    impl Body for Silent {
        type Data = Bytes;
        type Error = BoxError;
        fn poll_frame(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
            Poll::Pending
        }
    }

    async fn next(body: &mut Outbound) -> Option<Result<Frame<Bytes>, UploadError>> {
        poll_fn(|cx| Pin::new(&mut *body).poll_frame(cx)).await
    }

    #[tokio::test]
    async fn a_body_is_sent_again_until_it_is_begun() {
        let upload = Upload::new(Full::new(Bytes::from_static(b"one")), IDLE);
        let mut first = upload.renew(&tally()).unwrap();
        let mut second = upload.renew(&tally()).unwrap();
        assert!(matches!(next(&mut first).await, Some(Err(UploadError::Superseded))));
        drop(first);
        assert_eq!(next(&mut second).await.unwrap().unwrap().into_data().unwrap(), "one");
        assert!(upload.renew(&tally()).is_none());
        assert!(second.is_end_stream());
    }

    #[tokio::test]
    async fn an_empty_body_is_sent_again_any_number_of_times() {
        let upload = Upload::new(Empty::<Bytes>::new(), IDLE);
        for _ in 0..3 {
            let mut body = upload.renew(&tally()).unwrap();
            assert!(body.is_end_stream() && next(&mut body).await.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up() {
        let upload = Upload::new(Silent, IDLE);
        let mut body = upload.renew(&tally()).unwrap();
        let start = Instant::now();
        assert!(matches!(next(&mut body).await, Some(Err(UploadError::Idle { .. }))));
        assert_eq!((start.elapsed(), upload.fault()), (IDLE, Some(UploadFault::Idle)));
        assert!(upload.renew(&tally()).is_none());
    }

    #[tokio::test]
    async fn a_broken_body_is_the_clients_fault() {
        struct Broken;
        impl Body for Broken {
            type Data = Bytes;
            type Error = BoxError;
            fn poll_frame(
                self: Pin<&mut Self>,
                _: &mut Context<'_>,
            ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
                Poll::Ready(Some(Err("reset".into())))
            }
        }
        let upload = Upload::new(Broken, IDLE);
        let mut body = upload.renew(&tally()).unwrap();
        assert!(matches!(next(&mut body).await, Some(Err(UploadError::Client(_)))));
        assert_eq!(upload.fault(), Some(UploadFault::Broken));
    }

    #[tokio::test(start_paused = true)]
    async fn the_origin_owes_nothing_while_the_client_does() {
        let upload = Upload::new(Silent, IDLE);
        let mut body = upload.renew(&tally()).unwrap();
        assert!(upload.owed_since().is_some());
        let pending = poll_fn(|cx| Poll::Ready(Pin::new(&mut body).poll_frame(cx).is_pending())).await;
        assert!(pending && upload.owed_since().is_none());
    }

    #[tokio::test]
    async fn trailers_lose_what_frames_messages() {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("grpc-status", "0".parse().unwrap());
        trailers.insert("content-length", "9".parse().unwrap());
        trailers.insert("connection", "close".parse().unwrap());
        let frames = [Ok::<_, BoxError>(Frame::trailers(trailers))];
        let upload = Upload::new(StreamBody::new(Frames(frames.into_iter())), IDLE);
        let mut body = upload.renew(&tally()).unwrap();
        let trailers = next(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
        assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["grpc-status"]);
    }

    /// Stream of frames that are all ready.
    struct Frames<I>(I);

    impl<I: Iterator + Unpin> futures_core::Stream for Frames<I> {
        type Item = I::Item;
        fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
            Poll::Ready(self.0.next())
        }
    }
}
