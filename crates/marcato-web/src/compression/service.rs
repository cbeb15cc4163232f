//! Compression before a service.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tower_layer::Layer;
use tower_service::Service;

use super::{CompressedBody, Compression, Negotiated};

/// Service whose responses are compressed.
#[derive(Clone, Debug)]
pub struct Compressed<S> {
    compression: Compression,
    inner: S,
}

impl<S> Compressed<S> {
    pub(super) const fn new(compression: Compression, inner: S) -> Self {
        Self { compression, inner }
    }
}

impl<S> Layer<S> for Compression {
    type Service = Compressed<S>;

    fn layer(&self, inner: S) -> Compressed<S> {
        self.around(inner)
    }
}

impl<S, A, B> Service<Request<A>> for Compressed<S>
where
    S: Service<Request<A>, Response = Response<B>>,
    B: Body,
{
    type Response = Response<CompressedBody<B>>;
    type Error = S::Error;
    type Future = CompressedFuture<S::Future>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<A>) -> Self::Future {
        let negotiated = self.compression.negotiate(&mut request);
        CompressedFuture { future: self.inner.call(request), negotiated }
    }
}

pin_project! {
    /// Future of a response that may be compressed.
    #[derive(Debug)]
    pub struct CompressedFuture<F> {
        #[pin]
        future: F,
        negotiated: Negotiated,
    }
}

impl<F, B, E> Future for CompressedFuture<F>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body,
{
    type Output = Result<Response<CompressedBody<B>>, E>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        let response = ready!(this.future.poll(cx))?;
        Poll::Ready(Ok(this.negotiated.apply(response)))
    }
}
