//! Site of the web experiments: its files, in memory and on disk.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::Full;
use marcato_web::Body;
use tower_service::Service;

use crate::error::SimulationError;
use crate::lab::failed;

/// Content types of the files, by extension. Each server is given them.
pub(super) const TYPES: [(&str, &str); 6] = [
    ("html", "text/html"),
    ("css", "text/css"),
    ("js", "text/javascript"),
    ("bmp", "image/bmp"),
    ("jpg", "image/jpeg"),
    ("ttf", "font/ttf"),
];

/// File of a site.
#[derive(Clone, Debug)]
pub(super) struct File {
    /// Name, which is also its path below the root.
    pub(super) name: String,
    pub(super) content: Bytes,
}

impl File {
    pub(super) fn new(name: impl Into<String>, content: impl Into<Bytes>) -> Self {
        Self { name: name.into(), content: content.into() }
    }

    /// Content type; that of bytes for an unknown extension.
    fn content_type(&self) -> &'static str {
        let extension = self.name.rsplit_once('.').map_or("", |(_, extension)| extension);
        let found = TYPES.iter().find(|(known, _)| *known == extension);
        found.map_or("application/octet-stream", |(_, content_type)| content_type)
    }
}

/// Files of a site. As a service it answers from memory.
#[derive(Clone, Debug)]
pub(super) struct Site {
    files: Arc<[File]>,
    /// Value of the field `priority` of each response.
    priority: Option<&'static str>,
}

impl Site {
    pub(super) fn new(files: impl IntoIterator<Item = File>) -> Self {
        Self { files: files.into_iter().collect(), priority: None }
    }

    /// Sets the field `priority` of each response, which replaces what clients ask for (RFC 9218 §8).
    pub(super) fn with_priority(self, priority: &'static str) -> Self {
        Self { priority: Some(priority), ..self }
    }

    #[cfg(test)]
    pub(super) fn files(&self) -> &[File] {
        &self.files
    }

    /// Writes the files into a directory.
    pub(super) fn write(&self, directory: &Path) -> Result<(), SimulationError> {
        let write = |file: &File| std::fs::write(directory.join(&file.name), &file.content);
        self.files.iter().try_for_each(write).map_err(failed)
    }

    /// Answers a request from memory.
    pub(super) fn answer(&self, path: &str) -> Response<Full<Bytes>> {
        let name = path.trim_start_matches('/');
        let name = if name.is_empty() { "index.html" } else { name };
        let found = self.files.iter().find(|file| file.name == name);
        let mut response =
            Response::new(Full::new(found.map(|file| file.content.clone()).unwrap_or_default()));
        match found {
            Some(file) => {
                let value = header::HeaderValue::from_static(file.content_type());
                response.headers_mut().insert(header::CONTENT_TYPE, value);
            }
            None => *response.status_mut() = StatusCode::NOT_FOUND,
        }
        if let Some(priority) = self.priority {
            response.headers_mut().insert("priority", header::HeaderValue::from_static(priority));
        }
        response
    }
}

impl Service<Request<Body>> for Site {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(self.answer(request.uri().path())))
    }
}

/// Letters that differ from segment to segment.
pub(super) fn letters(length: u64) -> Bytes {
    (0..length).map(|at| b'a' + u8::try_from(at / 1000 % 26).unwrap_or(0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_their_path_and_the_root_is_the_index() {
        let site = Site::new([File::new("index.html", "page"), File::new("a.css", "style")]);
        let found = ["/", "/a.css", "/b.css"].map(|path| {
            let answer = site.answer(path);
            let content_type = answer.headers().get(header::CONTENT_TYPE).cloned();
            (answer.status().as_u16(), content_type.map(|value| value.to_str().unwrap().to_owned()))
        });
        let expected = [(200, Some("text/html".to_owned())), (200, Some("text/css".to_owned())), (404, None)];
        assert_eq!(found, expected);
    }
}
