//! HTTP API of proxies, with the paths and documents of toxiproxy's.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue, ORIGIN, USER_AGENT};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use marcato_lab::proxy::{Proxies, ProxyError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::document::{self, Given, GivenToxic};

/// Largest body of a request.
const MAX_BODY: usize = 1 << 20;
/// Most connections of clients at a time. Others wait.
const MAX_CLIENTS: usize = 64;
/// Time for the head of a request, and for its body.
const PATIENCE: Duration = Duration::from_secs(10);

/// Error of a request: its status, and a text.
struct Refused(StatusCode, String);

impl From<ProxyError> for Refused {
    fn from(error: ProxyError) -> Self {
        let status = match &error {
            ProxyError::NotFound(_) | ProxyError::NoToxic(_) => StatusCode::NOT_FOUND,
            ProxyError::Exists(_) | ProxyError::ToxicExists(_) => StatusCode::CONFLICT,
            ProxyError::Listen { .. } => StatusCode::INTERNAL_SERVER_ERROR,
            _ => StatusCode::BAD_REQUEST,
        };
        Self(status, error.to_string())
    }
}

fn bad(problem: impl Into<String>) -> Refused {
    Refused(StatusCode::BAD_REQUEST, problem.into())
}

/// Serves the API until it is dropped.
pub(super) async fn serve(listener: TcpListener, proxies: Arc<Proxies>) {
    let room = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((client, _)) = listener.accept().await else {
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let proxies = Arc::clone(&proxies);
        tokio::spawn(async move {
            let _place = place;
            let service = service_fn(move |request| {
                let proxies = Arc::clone(&proxies);
                async move { Ok::<_, Infallible>(answer(request, &proxies).await) }
            });
            let mut server = hyper::server::conn::http1::Builder::new();
            server.timer(TokioTimer::new()).header_read_timeout(PATIENCE);
            // A client that breaks off needs no answer.
            let _ = server.serve_connection(TokioIo::new(client), service).await;
        });
    }
}

async fn answer(request: Request<Incoming>, proxies: &Proxies) -> Response<Full<Bytes>> {
    let (status, document) = match handle(request, proxies).await {
        Ok(answer) => answer,
        Err(Refused(status, error)) => (status, Some(json!({ "error": error, "status": status.as_u16() }))),
    };
    let is_document = document.is_some();
    let body = document.map(|document| format!("{document}\n")).unwrap_or_default();
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    if is_document {
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    response
}

type Answer = Result<(StatusCode, Option<Value>), Refused>;

async fn handle(request: Request<Incoming>, proxies: &Proxies) -> Answer {
    // A page that a browser shows must not change proxies.
    let agent = request.headers().get(USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
    if request.headers().contains_key(ORIGIN) || agent.starts_with("Mozilla/") {
        return Err(Refused(
            StatusCode::FORBIDDEN,
            "browsers may not use this API: call it by a program".to_owned(),
        ));
    }
    let (head, body) = request.into_parts();
    let body = tokio::time::timeout(PATIENCE, Limited::new(body, MAX_BODY).collect()).await;
    let body = match body {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(_)) => {
            return Err(bad(format!("bad request body: it is cut off, or has more than {MAX_BODY} bytes")));
        }
        Err(_) => return Err(Refused(StatusCode::REQUEST_TIMEOUT, "the body came too slowly".to_owned())),
    };
    let path: Vec<String> = head.uri.path().trim_matches('/').split('/').map(decoded).collect();
    let path: Vec<&str> = path.iter().map(String::as_str).collect();
    let ok = |document: Value| Ok((StatusCode::OK, Some(document)));
    let get = head.method == Method::GET;
    let post = head.method == Method::POST || head.method == Method::PATCH;
    let delete = head.method == Method::DELETE;
    match path[..] {
        ["version"] if get => ok(json!({ "version": env!("CARGO_PKG_VERSION") })),
        ["reset"] if post => {
            proxies.reset().await?;
            Ok((StatusCode::NO_CONTENT, None))
        }
        ["proxies"] if get => {
            let all = proxies.all().await;
            ok(all.iter().map(|view| (view.config.name.clone(), document::of_proxy(view))).collect())
        }
        ["proxies"] if post => {
            let view = proxies.create(document::config(read::<Given>(&body)?).map_err(bad)?).await?;
            Ok((StatusCode::CREATED, Some(document::of_proxy(&view))))
        }
        ["populate"] if post => populate(read(&body)?, proxies).await,
        ["proxies", name] if get => ok(document::of_proxy(&proxies.get(name).await?)),
        ["proxies", name] if post => {
            let Given { listen, upstream, enabled, .. } = read(&body)?;
            let (listen, upstream) =
                (listen.filter(|to| !to.is_empty()), upstream.filter(|to| !to.is_empty()));
            ok(document::of_proxy(&proxies.update(name, listen, upstream, enabled).await?))
        }
        ["proxies", name] if delete => {
            proxies.delete(name).await?;
            Ok((StatusCode::NO_CONTENT, None))
        }
        ["proxies", name, "counters"] if get => ok(document::of_counters(&proxies.get(name).await?)),
        ["proxies", name, "toxics"] if get => {
            let view = proxies.get(name).await?;
            ok(view.config.toxics.iter().map(document::of_toxic).collect())
        }
        ["proxies", name, "toxics"] if post => {
            // An unknown proxy is the first fault.
            proxies.get(name).await?;
            let toxic = document::toxic(read::<GivenToxic>(&body)?).map_err(bad)?;
            let document = document::of_toxic(&toxic);
            proxies.add_toxic(name, toxic).await?;
            ok(document)
        }
        ["proxies", name, "toxics", toxic] => {
            let view = proxies.get(name).await?;
            let old = view.config.toxics.iter().find(|of| of.name == toxic);
            let old = old.ok_or_else(|| ProxyError::NoToxic(toxic.to_owned()))?;
            if get {
                ok(document::of_toxic(old))
            } else if post {
                let new = document::changed(old, read(&body)?).map_err(bad)?;
                let document = document::of_toxic(&new);
                proxies.update_toxic(name, new).await?;
                ok(document)
            } else if delete {
                proxies.remove_toxic(name, toxic).await?;
                Ok((StatusCode::NO_CONTENT, None))
            } else {
                Err(no_method(&head.method))
            }
        }
        ["version" | "reset" | "proxies" | "populate"]
        | ["proxies", _]
        | ["proxies", _, "toxics" | "counters"] => Err(no_method(&head.method)),
        _ => Err(Refused(StatusCode::NOT_FOUND, format!("there is nothing at {}", head.uri.path()))),
    }
}

fn no_method(method: &Method) -> Refused {
    Refused(StatusCode::METHOD_NOT_ALLOWED, format!("{method} is not possible here"))
}

/// Creates proxies; those that exist with another address or target are replaced.
async fn populate(given: Vec<Given>, proxies: &Proxies) -> Answer {
    let configs = given.into_iter().map(document::config).collect::<Result<Vec<_>, _>>().map_err(bad)?;
    let mut made = Vec::new();
    for config in configs {
        let view = match proxies.get(&config.name).await {
            Ok(old) if old.config.listen == config.listen && old.config.target == config.target => {
                proxies.update(&config.name, None, None, Some(config.enabled)).await?
            }
            Ok(_) => {
                proxies.delete(&config.name).await?;
                proxies.create(config).await?
            }
            Err(_) => proxies.create(config).await?,
        };
        made.push(document::of_proxy(&view));
    }
    Ok((StatusCode::CREATED, Some(json!({ "proxies": made }))))
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| bad(format!("bad request body: {error}")))
}

/// Decodes a segment of a path (RFC 3986 §2.1).
fn decoded(segment: &str) -> String {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if first == b'%' => {
                bytes.push(byte);
                rest = &after[2..];
            }
            _ => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_paths_are_decoded() {
        for (segment, name) in [("a%20b", "a b"), ("100%", "100%"), ("%zz", "%zz"), ("%c3%a9", "é"), ("", "")]
        {
            assert_eq!(decoded(segment), name);
        }
    }
}
