//! Early hints: fields that a client can use before the response.

use std::sync::Arc;

use http::{HeaderMap, Response, StatusCode};

use crate::stage::Stage;

/// Sender of interim responses 103 (RFC 8297), which every request has as an extension.
///
/// A handler that takes long names the page's stylesheets and fonts before it begins, so that the
/// client asks for them meanwhile. Over HTTP/1.1 nothing is sent.
///
/// ```
/// use http::{HeaderMap, HeaderValue, Request};
/// use marcato_web::{Body, EarlyHints};
///
/// fn hint(request: &Request<Body>) {
///     let mut fields = HeaderMap::new();
///     fields.insert("link", HeaderValue::from_static("</site.css>; rel=preload; as=style"));
///     if let Some(hints) = request.extensions().get::<EarlyHints>() {
///         hints.send(fields);
///     }
/// }
/// # hint(&Request::new(Body::empty()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct EarlyHints {
    stage: Option<Arc<Stage>>,
}

impl EarlyHints {
    pub(crate) const fn new(stage: Arc<Stage>) -> Self {
        Self { stage: Some(stage) }
    }

    /// Sends fields in a response 103. Returns false if they are not sent: over HTTP/1.1, after the
    /// final response, and while eight of them wait.
    pub fn send(&self, fields: HeaderMap) -> bool {
        let Some(stage) = &self.stage else { return false };
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::EARLY_HINTS;
        *response.headers_mut() = fields;
        stage.interim(response)
    }
}
