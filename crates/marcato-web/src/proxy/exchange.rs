//! One attempt to pass a request to an upstream.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;

use http::header::{self, HeaderMap, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Response, StatusCode, Uri, Version};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use marcato_units::Duration;
use tokio::time::{Instant, sleep_until};

use super::connect::{Connected, Purpose};
use super::headers::{rarely_has_body, strip_hop_by_hop};
use super::origin::Origin;
use super::pool::Lease;
use super::retry::Fault;
use super::upload::{Outbound, Upload};
use super::upstream::{Scheme, Target};
use crate::early_hints::EarlyHints;

/// Head of a request, before the version of an upstream is known.
pub(super) struct Template {
    pub(super) method: Method,
    pub(super) path: PathAndQuery,
    /// Fields that concern more than one connection.
    pub(super) headers: HeaderMap,
    /// Host to ask for; the upstream's if absent.
    pub(super) host: Option<Authority>,
    /// True if the client accepts trailers.
    pub(super) trailers: bool,
    /// Protocol to upgrade to.
    pub(super) upgrade: Option<HeaderValue>,
    /// Sender of early hints to the client.
    pub(super) hints: Option<EarlyHints>,
    /// Client, for upstreams that are told of it before the request.
    pub(super) client: Option<SocketAddr>,
}

impl Template {
    /// Head of a GET request without a body.
    pub(super) const fn get(path: PathAndQuery, headers: HeaderMap) -> Self {
        Self {
            method: Method::GET,
            path,
            headers,
            host: None,
            trailers: false,
            upgrade: None,
            hints: None,
            client: None,
        }
    }

    fn request(
        &self,
        version: Version,
        target: &Target,
        upload: &Upload,
        body: Outbound,
    ) -> Result<Request<Outbound>, http::Error> {
        let authority = self.host.as_ref().unwrap_or(&target.authority);
        let mut headers = self.headers.clone();
        headers.remove(header::HOST);
        let uri = if version == Version::HTTP_2 {
            let scheme = if target.scheme == Scheme::Tls { "https" } else { "http" };
            let uri = Uri::builder().scheme(scheme).authority(authority.clone());
            uri.path_and_query(self.path.clone()).build()?
        } else {
            headers.try_insert(header::HOST, HeaderValue::from_str(authority.as_str())?)?;
            let mut options = Vec::new();
            if self.trailers {
                // RFC 9110 §10.1.4: a sender of TE MUST name it in Connection.
                options.push("te");
            }
            if let Some(upgrade) = &self.upgrade {
                // RFC 9110 §7.8: a sender of Upgrade MUST name it in Connection.
                options.push("upgrade");
                headers.try_insert(header::UPGRADE, upgrade.clone())?;
            }
            if !options.is_empty() {
                headers.try_insert(header::CONNECTION, HeaderValue::from_str(&options.join(", "))?)?;
            }
            // The library sends no body with these methods unless a field frames it. The origin
            // would then see another request than the client sent.
            let framed = upload.has_length() || headers.contains_key(header::CONTENT_LENGTH);
            if rarely_has_body(&self.method) && !framed {
                headers.try_insert(header::TRANSFER_ENCODING, HeaderValue::from_static("chunked"))?;
            }
            Uri::from(self.path.clone())
        };
        if self.trailers {
            headers.try_insert(header::TE, HeaderValue::from_static("trailers"))?;
        }
        let mut request = Request::new(body);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = uri;
        *request.version_mut() = version;
        *request.headers_mut() = headers;
        // RFC 9110 §15.2: a proxy MUST forward interim responses. The library reports them over HTTP/1.1
        // only. It answers 100 itself by reading the body.
        if version == Version::HTTP_11
            && let Some(hints) = self.hints.clone()
        {
            hyper::ext::on_informational(&mut request, move |interim| {
                if interim.status() == StatusCode::EARLY_HINTS {
                    let mut fields = interim.headers().clone();
                    strip_hop_by_hop(&mut fields);
                    hints.send(fields);
                }
            });
        }
        Ok(request)
    }
}

/// Demand on the connection of an attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) purpose: Purpose,
    /// True to use no idle connection.
    pub(super) fresh: bool,
}

impl Default for Route {
    fn default() -> Self {
        Self { purpose: Purpose::Requests, fresh: false }
    }
}

/// Response of an upstream, and the connection that it occupies.
pub(super) struct Answer {
    pub(super) response: Response<Incoming>,
    pub(super) lease: Option<Lease>,
}

impl Answer {
    /// Most bytes of a body that are read for the sake of its connection.
    const MAX_DISCARDED: usize = 64 * 1024;

    /// Reads a short body to its end, and closes the connection of a long one.
    pub(super) async fn discard(self) {
        let mut body = self.response.into_body();
        let mut read = 0;
        while let Some(frame) = body.frame().await {
            let Ok(frame) = frame else { return };
            read += frame.data_ref().map_or(0, bytes::Bytes::len);
            if read > Self::MAX_DISCARDED {
                return;
            }
        }
        if let Some(lease) = self.lease {
            lease.finish();
        }
    }
}

/// Passes a request on, and waits for the head of its response.
pub(super) async fn attempt(
    origin: &Arc<Origin>,
    template: &Template,
    upload: &Arc<Upload>,
    mut outbound: Outbound,
    route: Route,
    response_timeout: Duration,
) -> Result<Answer, Fault> {
    let Route { purpose, mut fresh } = route;
    loop {
        let checkout = origin.pool.checkout(purpose, fresh, template.client).await.map_err(Fault::Connect)?;
        let write = |version| template.request(version, &origin.target, upload, outbound);
        let sent = match checkout.connection {
            Connected::Http1(mut sender) => {
                let request = write(Version::HTTP_11).map_err(Fault::Request)?;
                await_head(sender.try_send_request(request), upload, response_timeout)
                    .await?
                    .map(|response| (response, Some(Lease::new(Arc::clone(&origin.pool), sender))))
            }
            Connected::Http2(mut sender) => {
                let request = write(Version::HTTP_2).map_err(Fault::Request)?;
                await_head(sender.try_send_request(request), upload, response_timeout)
                    .await?
                    .map(|response| (response, None))
            }
        };
        let mut error = match sent {
            // The library bounds their number over HTTP/1.1 alone.
            Ok((response, _)) if response.headers().len() > origin.pool.most_fields() => {
                return Err(Fault::TooLarge(None));
            }
            Ok((response, lease)) => return Ok(Answer { response, lease }),
            Err(error) => error,
        };
        let unsent = error.take_message().is_some();
        let error = error.into_error();
        if !unsent {
            return Err(Fault::from_error(error, checkout.reused));
        }
        if fresh || !checkout.reused {
            return Err(Fault::Unsent(error));
        }
        // The origin closed an idle connection: that is no fault, and a new one is made at once.
        origin.tally.stale.one();
        fresh = true;
        outbound = upload.renew(&origin.tally).ok_or(Fault::Unsent(error))?;
    }
}

/// Waits for the head of a response, for as long as the client owes bytes or the body moves.
async fn await_head<F: Future>(head: F, upload: &Upload, limit: Duration) -> Result<F::Output, Fault> {
    let mut head = pin!(head);
    let mut end = Instant::now() + limit;
    loop {
        tokio::select! {
            biased;
            output = &mut head => return Ok(output),
            () = sleep_until(end) => {
                let now = Instant::now();
                // The timer of the body ends the wait for a silent client.
                let owed = upload.owed_since().unwrap_or(now);
                if owed + limit <= now {
                    return Err(Fault::Late);
                }
                end = owed + limit;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use http_body::{Body, Frame};
    use http_body_util::Empty;
    use std::future::{pending, poll_fn};
    use std::pin::Pin;
    use std::task::{Context, Poll};

    const LIMIT: Duration = Duration::from_secs(10);

    #[tokio::test(start_paused = true)]
    async fn a_late_head_is_given_up() {
        let upload = Upload::new(Empty::new(), LIMIT, 0, &Arc::default());
        let start = Instant::now();
        let head = await_head(pending::<()>(), &upload, LIMIT).await;
        assert!(matches!(head, Err(Fault::Late)));
        assert_eq!(start.elapsed(), LIMIT);
    }

    /// Body that gives a byte every 7 s, three times.
    struct Slow(u32, Pin<Box<tokio::time::Sleep>>);

    impl Body for Slow {
        type Data = Bytes;
        type Error = std::convert::Infallible;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
            if self.0 == 0 {
                return Poll::Ready(None);
            }
            std::task::ready!(self.1.as_mut().poll(cx));
            self.0 -= 1;
            self.1 = Box::pin(tokio::time::sleep(Duration::from_secs(7)));
            Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"x")))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_limit_runs_from_the_end_of_a_slow_request() {
        let first = Box::pin(tokio::time::sleep(Duration::from_secs(7)));
        let upload = Upload::new(Slow(3, first), LIMIT, 0, &Arc::default());
        let mut body = upload.renew(&Arc::default()).unwrap();
        let start = Instant::now();
        let head = async {
            while poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await.is_some() {}
            pending::<()>().await;
        };
        assert!(matches!(await_head(head, &upload, LIMIT).await, Err(Fault::Late)));
        assert_eq!(start.elapsed(), Duration::from_secs(21) + LIMIT);
    }
}
