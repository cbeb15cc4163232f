//! Body of a request.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use marcato_units::Duration;
use thiserror::Error;
use tokio::time::Instant;

use super::activity::{Activity, IdleTimer};
use super::counters::{Tally, Totals};
use super::headers::strip_trailers;

pub(super) type BoxError = Box<dyn Error + Send + Sync>;

/// Body of a request, which outlives the attempts to send it.
///
/// It can be sent again as long as all that was taken from it is kept.
pub(super) struct Upload {
    state: Mutex<State>,
    pub(super) activity: Arc<Activity>,
    idle: Duration,
    empty: bool,
    hint: SizeHint,
}

struct State {
    body: Option<UnsyncBoxBody<Bytes, BoxError>>,
    /// Part that was taken; `None` if more was taken than may be kept.
    kept: Option<Kept>,
    /// Number of the attempt that owns the body.
    attempt: u32,
    /// True while the client owes the next frame.
    owed: bool,
    fault: Option<UploadFault>,
}

/// Part of a body that was taken and can be sent again.
struct Kept {
    /// Copies: frames could hold on to much larger buffers.
    data: BytesMut,
    trailers: Option<HeaderMap>,
    limit: usize,
    totals: Arc<Totals>,
}

impl Kept {
    fn new(limit: usize, totals: Arc<Totals>) -> Self {
        Self { data: BytesMut::new(), trailers: None, limit, totals }
    }

    /// Keeps a frame. Returns false if there is no room for it.
    fn keep(&mut self, frame: &Frame<Bytes>) -> bool {
        if let Some(data) = frame.data_ref() {
            if data.len() > self.limit - self.data.len() {
                self.totals.unkept_bodies.one();
                return false;
            }
            self.data.extend_from_slice(data);
            self.totals.kept.add(data.len());
        } else {
            self.trailers = frame.trailers_ref().cloned();
        }
        true
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.totals.kept.less(self.data.len() as u64);
    }
}

/// Fault of the client in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UploadFault {
    /// Nothing came for too long.
    Idle,
    /// The body broke.
    Broken,
    /// The body is longer than it may be.
    TooLong,
}

impl Upload {
    /// Takes a body that is kept up to a limit.
    pub(super) fn new<B>(body: B, idle: Duration, limit: usize, totals: &Arc<Totals>) -> Arc<Self>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let hint = body.size_hint();
        let empty = body.is_end_stream() || hint.exact() == Some(0);
        let body = (!empty).then(|| UnsyncBoxBody::new(body.map_err(Into::into)));
        let hint = if empty { SizeHint::with_exact(0) } else { hint };
        // A body that will not fit is not even begun to be copied.
        let limit = if hint.lower() > limit as u64 { 0 } else { limit };
        let kept = Some(Kept::new(limit, Arc::clone(totals)));
        let state = State { body, kept, attempt: 0, owed: false, fault: None };
        Arc::new(Self { state: Mutex::new(state), activity: Arc::new(Activity::new()), idle, empty, hint })
    }

    /// Takes the body back from an earlier attempt; `None` if it cannot be sent again.
    pub(super) fn renew(self: &Arc<Self>, tally: &Arc<Tally>) -> Option<Outbound> {
        let mut state = self.lock();
        if state.fault.is_some() {
            return None;
        }
        let kept = state.kept.as_ref()?;
        let data = (!kept.data.is_empty()).then(|| Bytes::copy_from_slice(&kept.data));
        let trailers = kept.trailers.clone();
        if data.is_some() {
            tally.replayed_bodies.one();
        }
        state.attempt += 1;
        state.owed = false;
        Some(Outbound {
            upload: Arc::clone(self),
            attempt: state.attempt,
            timer: IdleTimer::new(Arc::clone(&self.activity), self.idle),
            tally: Arc::clone(tally),
            data,
            trailers,
            ended: self.empty,
        })
    }

    /// Keeps the body no longer: its response has begun.
    pub(super) fn release(&self) {
        self.lock().kept = None;
    }

    /// True if the body's length is known before it is sent.
    pub(super) fn has_length(&self) -> bool {
        self.hint.exact().is_some()
    }

    /// True if the body can be sent again.
    pub(super) fn is_whole(&self) -> bool {
        let state = self.lock();
        state.kept.is_some() && state.fault.is_none()
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
    /// Part that an earlier attempt took.
    data: Option<Bytes>,
    /// Trailers that an earlier attempt took.
    trailers: Option<HeaderMap>,
    ended: bool,
}

impl Body for Outbound {
    type Data = Bytes;
    type Error = UploadError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UploadError>>> {
        let Self { upload, attempt, timer, tally, data, trailers, ended } = self.get_mut();
        if *ended {
            return Poll::Ready(None);
        }
        let mut state = upload.lock();
        if state.attempt != *attempt {
            return Poll::Ready(Some(Err(UploadError::Superseded)));
        }
        if let Some(data) = data.take() {
            timer.progress();
            tally.sent.add(data.len());
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let Some(body) = state.body.as_mut() else {
            return Poll::Ready(trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
        };
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
                state.owed = false;
                timer.progress();
                match frame {
                    Some(Ok(mut frame)) => {
                        if let Some(trailers) = frame.trailers_mut() {
                            strip_trailers(trailers);
                        }
                        if state.kept.as_mut().is_some_and(|kept| !kept.keep(&frame)) {
                            state.kept = None;
                        }
                        if let Some(data) = frame.data_ref() {
                            tally.sent.add(data.len());
                        }
                        Poll::Ready(Some(Ok(frame)))
                    }
                    Some(Err(error)) => {
                        state.body = None;
                        let is_too_long =
                            matches!(error.downcast_ref(), Some(crate::BodyError::TooLong { .. }));
                        let fault = if is_too_long { UploadFault::TooLong } else { UploadFault::Broken };
                        state.fault = Some(fault);
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
        self.ended
            || self.data.is_none()
                && self.trailers.is_none()
                && self.upload.lock().body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        if self.ended {
            return SizeHint::with_exact(0);
        }
        let mut hint =
            self.upload.lock().body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint);
        let again = self.data.as_ref().map_or(0, |data| data.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper.saturating_add(again));
        }
        hint.set_lower(hint.lower().saturating_add(again));
        hint
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        let mut state = self.upload.lock();
        // A body that cannot be sent again need not be sent to its end by the client.
        if state.attempt == self.attempt && state.kept.is_none() {
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
    #[error("client sent nothing for {idle:?}: raise `body-idle-timeout` for slow clients")]
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

    /// Body of which up to 8 bytes are kept.
    fn upload<B>(body: B) -> Arc<Upload>
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        Upload::new(body, IDLE, 8, &Arc::default())
    }

    fn frames<const N: usize>(
        frames: [Frame<Bytes>; N],
    ) -> StreamBody<impl futures_core::Stream<Item = Result<Frame<Bytes>, BoxError>>> {
        StreamBody::new(Frames(frames.into_iter().map(Ok)))
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

    async fn data(body: &mut Outbound) -> Bytes {
        next(body).await.unwrap().unwrap().into_data().unwrap()
    }

    #[tokio::test]
    async fn a_kept_body_is_sent_again_with_the_rest() {
        let parts = ["one ", "two"].map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
        let upload = upload(frames(parts));
        let tally = tally();
        let mut first = upload.renew(&tally).unwrap();
        assert_eq!(data(&mut first).await, "one ");
        let mut second = upload.renew(&tally).unwrap();
        assert!(matches!(next(&mut first).await, Some(Err(UploadError::Superseded))));
        drop(first);
        assert!(!second.is_end_stream() && second.size_hint().lower() >= 4);
        assert_eq!((data(&mut second).await, data(&mut second).await), ("one ".into(), "two".into()));
        assert!(next(&mut second).await.is_none());
        // Also once it has ended.
        let mut third = upload.renew(&tally).unwrap();
        assert!(!third.is_end_stream());
        assert_eq!(data(&mut third).await, "one two");
        assert!(next(&mut third).await.is_none() && third.is_end_stream());
        assert_eq!(tally.replayed_bodies.get(), 2);
    }

    #[tokio::test]
    async fn more_than_may_be_kept_is_sent_once() {
        for (parts, can_be_repeated) in [(["12345678", ""], true), (["1234", "56789"], false)] {
            let totals = Arc::<Totals>::default();
            let parts = parts.map(|text| Frame::data(Bytes::from_static(text.as_bytes())));
            let upload = Upload::new(frames(parts), IDLE, 8, &totals);
            let mut body = upload.renew(&tally()).unwrap();
            while next(&mut body).await.is_some() {}
            assert_eq!(
                (upload.is_whole(), upload.renew(&tally()).is_some()),
                (can_be_repeated, can_be_repeated)
            );
            assert_eq!(totals.unkept_bodies.get(), u64::from(!can_be_repeated));
            assert_eq!(totals.kept.get(), if can_be_repeated { 8 } else { 0 });
            upload.release();
            assert_eq!(totals.kept.get(), 0);
            assert!(upload.renew(&tally()).is_none());
        }
    }

    #[tokio::test]
    async fn a_body_that_will_not_fit_is_not_copied() {
        let totals = Arc::<Totals>::default();
        let upload = Upload::new(Full::new(Bytes::from_static(b"123456789")), IDLE, 8, &totals);
        let mut body = upload.renew(&tally()).unwrap();
        assert_eq!((data(&mut body).await.len(), totals.kept.get()), (9, 0));
        assert!(!upload.is_whole());
    }

    #[tokio::test]
    async fn an_empty_body_is_sent_again_any_number_of_times() {
        let upload = upload(Empty::<Bytes>::new());
        for _ in 0..3 {
            let mut body = upload.renew(&tally()).unwrap();
            assert!(body.is_end_stream() && next(&mut body).await.is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_client_is_given_up() {
        let upload = upload(Silent);
        let mut body = upload.renew(&tally()).unwrap();
        let start = Instant::now();
        assert!(matches!(next(&mut body).await, Some(Err(UploadError::Idle { .. }))));
        assert_eq!((start.elapsed(), upload.fault()), (IDLE, Some(UploadFault::Idle)));
        assert!(upload.renew(&tally()).is_none());
    }

    #[tokio::test]
    async fn a_broken_body_is_the_clients_fault() {
        let broken: Result<Frame<Bytes>, BoxError> = Err("reset".into());
        let upload = upload(StreamBody::new(Frames(std::iter::once(broken))));
        let mut body = upload.renew(&tally()).unwrap();
        assert!(matches!(next(&mut body).await, Some(Err(UploadError::Client(_)))));
        assert_eq!(upload.fault(), Some(UploadFault::Broken));
    }

    #[tokio::test(start_paused = true)]
    async fn the_origin_owes_nothing_while_the_client_does() {
        let upload = upload(Silent);
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
        trailers.insert("x-forwarded-for", "10.0.0.9".parse().unwrap());
        trailers.insert("x_forwarded_for", "10.0.0.9".parse().unwrap());
        let upload = upload(frames([Frame::trailers(trailers)]));
        // They are kept as well.
        for _ in 0..2 {
            let mut body = upload.renew(&tally()).unwrap();
            assert!(!body.is_end_stream());
            let trailers = next(&mut body).await.unwrap().unwrap().into_trailers().unwrap();
            assert_eq!(trailers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["grpc-status"]);
            assert!(next(&mut body).await.is_none());
        }
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
