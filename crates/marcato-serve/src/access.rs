//! Access log: lines on their way from the connections to standard output or a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use arc_swap::ArcSwap;
use marcato_web::{Log, LogFormat, Record};
use tokio::sync::mpsc;

use crate::config::{AccessLog, Config, ConfigError};

/// Lines that wait to be written. If the output is slower than the requests, later lines are counted and
/// dropped: a reader of the log never delays a response.
const WAITING: usize = 10_000;
/// Bytes that are written to a file at once, if so many wait.
const BATCH: usize = 64 << 10;

/// Access log, on the side of the connections.
#[derive(Clone)]
pub(crate) struct Access {
    printed: mpsc::Sender<String>,
    /// File of the lines; none if they are printed.
    file: Arc<ArcSwap<Option<Arc<Writer>>>>,
    missed: Arc<AtomicU64>,
}

/// File of a new configuration, before it is used.
pub(crate) struct OpenLog(Option<(PathBuf, File)>);

impl Access {
    /// Creates a log, and the lines to be printed.
    pub(crate) fn new() -> (Self, mpsc::Receiver<String>) {
        let (printed, lines) = mpsc::channel(WAITING);
        let file = Arc::new(ArcSwap::from_pointee(None));
        (Self { printed, file, missed: Arc::default() }, lines)
    }

    /// Opens the file of a configuration.
    ///
    /// # Errors
    /// If it cannot be opened. Nothing has changed then.
    pub(crate) fn open(config: &Config) -> Result<OpenLog, ConfigError> {
        let faults = config.faults();
        let file = config.access_log.as_ref().and_then(|log| log.file.as_ref());
        let open = file.and_then(|file| {
            let path = config.path(&file.value);
            match append(&path) {
                Ok(open) => Some((path, open)),
                Err(error) => {
                    faults.add(file.place, unusable(&path, &error));
                    None
                }
            }
        });
        faults.into_result()?;
        Ok(OpenLog(open))
    }

    /// Checks that the file of a configuration can be opened, and creates none.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
        let faults = config.faults();
        if let Some(file) = config.access_log.as_ref().and_then(|log| log.file.as_ref()) {
            let path = config.path(&file.value);
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            let result = match path.exists() {
                true => append(&path).map(|_| ()),
                false => std::fs::read_dir(parent.unwrap_or(Path::new("."))).map(|_| ()),
            };
            if let Err(error) = result {
                faults.add(file.place, unusable(&path, &error));
            }
        }
        Ok(faults.into_result()?)
    }

    /// Writes lines to the file of a configuration from now on, or prints them if it has none.
    ///
    /// # Errors
    /// If the system has no more threads.
    pub(crate) fn apply(&self, open: OpenLog) -> io::Result<()> {
        let before = self.file.load_full();
        let next = match (open.0, &*before) {
            (Some((path, file)), Some(writer)) if writer.path == path => {
                writer.replace(file);
                return Ok(());
            }
            (Some((path, file)), _) => Some(Arc::new(Writer::start(path, file, &self.missed)?)),
            (None, _) => None,
        };
        self.file.store(Arc::new(next));
        if let Some(writer) = &*before {
            writer.end();
        }
        Ok(())
    }

    /// Opens the file again, which may have been moved away. Returns whether there is one.
    ///
    /// # Errors
    /// If it cannot be opened. Lines go to the one before then.
    pub(crate) fn reopen(&self) -> Result<bool, String> {
        let current = self.file.load_full();
        let Some(writer) = &*current else { return Ok(false) };
        let file = append(&writer.path).map_err(|error| unusable(&writer.path, &error))?;
        writer.replace(file);
        Ok(true)
    }

    /// Writes what waits for the file, and ends.
    pub(crate) fn end(&self) {
        if let Some(writer) = &*self.file.swap(Arc::new(None)) {
            writer.end();
        }
    }

    /// Returns the receiver of the records.
    pub(crate) fn log(&self, format: LogFormat) -> Log {
        let Self { printed, file, missed } = self.clone();
        Arc::new(move |record: &Record| {
            let mut line = format.line(record);
            line.push('\n');
            let is_taken = match &**file.load() {
                Some(writer) => writer.lines.try_send(Entry::Line(line)).is_ok(),
                None => printed.try_send(line).is_ok(),
            };
            if !is_taken {
                missed.fetch_add(1, Ordering::Relaxed);
            }
        })
    }

    /// Number of lines that were dropped.
    pub(crate) fn missed(&self) -> u64 {
        self.missed.load(Ordering::Relaxed)
    }
}

impl AccessLog {
    /// Returns the receiver of the records of a log.
    pub(crate) fn receiver(&self, access: &Access) -> Log {
        access.log(self.format)
    }
}

fn append(path: &Path) -> io::Result<File> {
    File::options().append(true).create(true).open(path)
}

fn unusable(path: &Path, error: &io::Error) -> String {
    format!("the access log {} cannot be opened: {error}", path.display())
}

enum Entry {
    Line(String),
    /// Another file waits.
    Replaced,
    End,
}

/// Thread that writes lines to a file.
struct Writer {
    path: PathBuf,
    lines: SyncSender<Entry>,
    /// File to be used from now on.
    next: Arc<Mutex<Option<File>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Writer {
    fn start(path: PathBuf, file: File, missed: &Arc<AtomicU64>) -> io::Result<Self> {
        let (lines, entries) = sync_channel(WAITING);
        let next = Arc::<Mutex<Option<File>>>::default();
        let (replaced, missed) = (Arc::clone(&next), Arc::clone(missed));
        let write = move || write(&entries, file, &replaced, &missed);
        let thread = std::thread::Builder::new().name("access-log".to_owned()).spawn(write)?;
        Ok(Self { path, lines, next, thread: Mutex::new(Some(thread)) })
    }

    fn replace(&self, file: File) {
        *self.next.lock().unwrap_or_else(PoisonError::into_inner) = Some(file);
        // A thread that has more to write looks anyway.
        let _ = self.lines.try_send(Entry::Replaced);
    }

    fn end(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread is gone only after a panic, which was reported where it happened.
            let _ = self.lines.send(Entry::End);
            let _ = thread.join();
        }
    }
}

fn write(entries: &Receiver<Entry>, mut file: File, next: &Mutex<Option<File>>, missed: &AtomicU64) {
    let (mut batch, mut is_over, mut complained) = (String::new(), false, false);
    while !is_over && let Ok(first) = entries.recv() {
        let (mut count, mut entry) = (0, Some(first));
        while let Some(one) = entry {
            match one {
                Entry::Line(line) => {
                    batch.push_str(&line);
                    count += 1;
                }
                Entry::Replaced => {}
                Entry::End => is_over = true,
            }
            entry = if is_over || batch.len() >= BATCH { None } else { entries.try_recv().ok() };
        }
        if let Some(other) = next.lock().unwrap_or_else(PoisonError::into_inner).take() {
            file = other;
        }
        match file.write_all(batch.as_bytes()) {
            Ok(()) => complained = false,
            Err(error) => {
                missed.fetch_add(count, Ordering::Relaxed);
                if !std::mem::replace(&mut complained, true) {
                    tracing::warn!(%error, "lines of the access log cannot be written");
                }
            }
        }
        batch.clear();
    }
}
