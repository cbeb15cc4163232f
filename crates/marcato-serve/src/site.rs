//! Site: the files of a directory, or an origin behind this server.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use http_body_util::Either;
use marcato_web::Body;
use marcato_web::files::{FileBody, Files, FilesFuture};
use marcato_web::proxy::{Proxy, ProxyBody, ProxyFuture};
use tower_service::Service;

/// Source of the responses.
#[derive(Clone, Debug)]
pub(crate) enum Site {
    Files(Files),
    Origin(Proxy),
}

/// Response of a site that is being made.
pub(crate) enum Answer {
    Files(FilesFuture),
    Origin(ProxyFuture),
}

impl Service<Request<Body>> for Site {
    type Response = Response<Either<FileBody, ProxyBody>>;
    type Error = Infallible;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        // Both are always ready, and bound what they do at once by their answers.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answer {
        match self {
            Self::Files(files) => Answer::Files(files.call(request)),
            Self::Origin(proxy) => Answer::Origin(proxy.call(request)),
        }
    }
}

impl Future for Answer {
    type Output = Result<Response<Either<FileBody, ProxyBody>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Files(future) => Pin::new(future).poll(cx).map_ok(|response| response.map(Either::Left)),
            Self::Origin(future) => Pin::new(future).poll(cx).map_ok(|response| response.map(Either::Right)),
        }
    }
}
