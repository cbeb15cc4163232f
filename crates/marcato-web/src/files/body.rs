//! Body of a response.

use std::collections::VecDeque;
use std::fs::File;
use std::future::Future;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use super::counters::Counts;
use super::read::{Now, read_now, read_waiting};

/// Most bytes of a file that are read at once: with what may be staged before it, less than 64 kB.
const CHUNK: usize = 16 << 10;

/// Body of a response of [`Files`](super::Files): content in memory, or a file that is read in
/// chunks.
///
/// Its length is known from the beginning. A file that has become shorter ends it with an error of kind
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof).
#[derive(Debug)]
pub struct FileBody {
    content: Content,
    /// Bytes that are still to come.
    remaining: u64,
}

#[derive(Debug)]
enum Content {
    /// One piece in memory; empty at the end.
    Held(Bytes),
    /// Pieces, some of them of a file.
    Pieces(Box<Pieces>),
}

/// Location of the content of a response.
#[derive(Clone, Debug)]
pub(super) enum Source {
    /// Memory of the cache.
    Memory(Bytes),
    /// Open file.
    Disk(Arc<File>, Arc<Counts>),
}

/// Piece of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// Text between the parts of a file.
    Text(Bytes),
    /// Part of the file.
    Part(Range<u64>),
}

impl FileBody {
    /// Creates a body without content.
    pub(super) const fn empty() -> Self {
        Self { content: Content::Held(Bytes::new()), remaining: 0 }
    }

    /// Creates a body of one piece.
    pub(super) fn held(bytes: Bytes) -> Self {
        let remaining = length(&bytes);
        Self { content: Content::Held(bytes), remaining }
    }

    /// Creates a body of one part of the source.
    pub(super) fn part(source: Source, part: Range<u64>) -> Self {
        match source {
            Source::Memory(bytes) => Self::held(cut(&bytes, &part)),
            Source::Disk(..) => Self::pieces(source, [Piece::Part(part)].into()),
        }
    }

    /// Creates a body of several pieces. Their parts lie within the source.
    pub(super) fn pieces(source: Source, mut pieces: VecDeque<Piece>) -> Self {
        let file = match source {
            Source::Memory(bytes) => {
                for piece in &mut pieces {
                    if let Piece::Part(part) = piece {
                        *piece = Piece::Text(cut(&bytes, part));
                    }
                }
                None
            }
            Source::Disk(file, counts) => Some(Reader { file, counts, waiting: None, tries: true }),
        };
        let remaining = pieces.iter().map(Piece::len).sum();
        Self { content: Content::Pieces(Box::new(Pieces { pieces, file })), remaining }
    }
}

impl Body for FileBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let body = self.get_mut();
        let next = match &mut body.content {
            Content::Held(bytes) => Some(Ok(std::mem::take(bytes))).filter(|_| body.remaining > 0),
            Content::Pieces(pieces) => ready!(pieces.poll(context)),
        };
        Poll::Ready(match next {
            Some(Ok(bytes)) => {
                body.remaining = body.remaining.saturating_sub(length(&bytes));
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(error)) => {
                *body = Self::empty();
                Some(Err(error))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.remaining == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.remaining)
    }
}

impl Piece {
    fn len(&self) -> u64 {
        match self {
            Self::Text(bytes) => length(bytes),
            Self::Part(part) => part.end.saturating_sub(part.start),
        }
    }
}

/// Pieces that are still to come.
#[derive(Debug)]
struct Pieces {
    pieces: VecDeque<Piece>,
    /// Reader of the parts; `None` if all pieces are in memory.
    file: Option<Reader>,
}

impl Pieces {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        while let Some(piece) = self.pieces.front_mut() {
            match (piece, &mut self.file) {
                (Piece::Part(part), Some(file)) if part.start < part.end => {
                    let result = ready!(file.poll(part, context));
                    if let Ok(bytes) = &result {
                        part.start += length(bytes);
                    }
                    return Poll::Ready(Some(result));
                }
                (Piece::Text(bytes), _) if !bytes.is_empty() => {
                    return Poll::Ready(Some(Ok(std::mem::take(bytes))));
                }
                _ => {
                    self.pieces.pop_front();
                }
            }
        }
        Poll::Ready(None)
    }
}

/// Reader of an open file.
#[derive(Debug)]
struct Reader {
    file: Arc<File>,
    counts: Arc<Counts>,
    /// Read in the blocking pool.
    waiting: Option<JoinHandle<io::Result<Bytes>>>,
    /// True until the file system turns out to have no reads that do not wait.
    tries: bool,
}

impl Reader {
    /// Reads the beginning of a part, at least one byte.
    fn poll(&mut self, part: &Range<u64>, context: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        let mut waiting = match self.waiting.take() {
            Some(waiting) => waiting,
            None => {
                let size = usize::try_from(part.end - part.start).map_or(CHUNK, |rest| rest.min(CHUNK));
                if self.tries {
                    let mut buffer = vec![0; size];
                    match read_now(&self.file, part.start, &mut buffer)? {
                        Now::Read(read) => return Poll::Ready(chunk(buffer, read)),
                        Now::WouldBlock => {}
                        Now::Unsupported => self.tries = false,
                    }
                }
                self.counts.blocking.one();
                let (file, offset) = (Arc::clone(&self.file), part.start);
                let read = move || {
                    let mut buffer = vec![0; size];
                    let read = read_waiting(&file, offset, &mut buffer)?;
                    chunk(buffer, read)
                };
                // Without a runtime, no other task waits for this thread.
                let Ok(runtime) = Handle::try_current() else { return Poll::Ready(read()) };
                runtime.spawn_blocking(read)
            }
        };
        match Pin::new(&mut waiting).poll(context) {
            Poll::Pending => {
                self.waiting = Some(waiting);
                Poll::Pending
            }
            Poll::Ready(result) => Poll::Ready(result.unwrap_or_else(|error| Err(io::Error::other(error)))),
        }
    }
}

/// Returns the bytes read, or an error at the end of the file.
fn chunk(mut buffer: Vec<u8>, read: usize) -> io::Result<Bytes> {
    if read == 0 {
        let message = "the file has become shorter while it was sent: send the request again";
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, message));
    }
    buffer.truncate(read);
    Ok(buffer.into())
}

/// Length as a number of bytes.
fn length(bytes: &Bytes) -> u64 {
    u64::try_from(bytes.len()).unwrap_or(u64::MAX)
}

/// Returns a part of the bytes, as far as it lies within them.
fn cut(bytes: &Bytes, part: &Range<u64>) -> Bytes {
    let within = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(bytes.len());
    let (start, end) = (within(part.start), within(part.end));
    bytes.slice(start.min(end)..end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;
    use std::io::Write;

    /// File with the given content.
    fn disk(content: &[u8]) -> (Source, Arc<File>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        let file = Arc::new(file);
        (Source::Disk(Arc::clone(&file), Arc::default()), file)
    }

    /// Content of a body.
    fn collect(body: FileBody) -> io::Result<Bytes> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        Ok(runtime.block_on(body.collect())?.to_bytes())
    }

    fn content(len: usize) -> Bytes {
        (0..len).map(|at| u8::try_from(at % 251).unwrap()).collect()
    }

    #[test]
    fn files_are_read_in_chunks_of_known_total_length() {
        let content = content(CHUNK * 2 + 5);
        let (source, _) = disk(&content);
        let end = length(&content);
        let mut body = FileBody::part(source, 0..end);
        assert_eq!((body.size_hint().exact(), body.is_end_stream()), (Some(end), false));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut sum = 0;
        while let Some(frame) = runtime.block_on(body.frame()) {
            let bytes = frame.unwrap().into_data().unwrap();
            assert!((1..=CHUNK).contains(&bytes.len()));
            sum += length(&bytes);
            assert_eq!(body.size_hint().exact(), Some(end - sum));
        }
        assert!(body.is_end_stream() && sum == end);
    }

    #[test]
    fn both_sources_yield_equal_pieces() {
        let content = content(200_000);
        let (source, _) = disk(&content);
        let text = Bytes::from_static(b"--x\r\n");
        let pieces = VecDeque::from([
            Piece::Part(3..100_000),
            Piece::Text(text.clone()),
            Piece::Text(Bytes::new()),
            Piece::Part(7..7),
            Piece::Part(199_999..200_000),
        ]);
        let expected = [&content[3..100_000], &text, &content[199_999..]].concat();
        for source in [source, Source::Memory(content.clone())] {
            let body = FileBody::pieces(source, pieces.clone());
            assert_eq!(body.size_hint().exact(), Some(u64::try_from(expected.len()).unwrap()));
            assert_eq!(collect(body).unwrap(), expected);
        }
    }

    #[test]
    fn a_file_that_shrinks_ends_with_an_error() {
        let (source, file) = disk(&content(CHUNK * 3));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let mut body = FileBody::part(source, 0..length(&content(CHUNK * 3)));
        runtime.block_on(body.frame()).unwrap().unwrap();
        file.set_len(10).unwrap();
        let error = runtime.block_on(body.frame()).unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert!(runtime.block_on(body.frame()).is_none() && body.is_end_stream());
    }

    #[test]
    fn the_blocking_pool_reads_what_cannot_be_read_at_once() {
        let content = content(CHUNK + 1);
        let (source, file) = disk(&content);
        let Source::Disk(_, counts) = source else { return };
        let reader = Reader { file, counts: Arc::clone(&counts), waiting: None, tries: false };
        let pieces = [Piece::Part(0..length(&content))].into();
        let pieces = Pieces { pieces, file: Some(reader) };
        let body = FileBody { content: Content::Pieces(Box::new(pieces)), remaining: length(&content) };
        assert_eq!(collect(body).unwrap(), content);
        assert_eq!(counts.read().blocking, 2);
    }

    #[test]
    fn bodies_in_memory_need_no_runtime() {
        let body = FileBody::part(Source::Memory(content(10)), 2..5);
        assert_eq!(body.size_hint().exact(), Some(3));
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut body = std::pin::pin!(body);
        let Poll::Ready(Some(Ok(frame))) = body.as_mut().poll_frame(&mut context) else {
            panic!("a body in memory is ready")
        };
        assert_eq!(frame.into_data().unwrap(), content(10).slice(2..5));
        assert!(body.is_end_stream());
        assert!(matches!(body.poll_frame(&mut context), Poll::Ready(None)));
    }
}
