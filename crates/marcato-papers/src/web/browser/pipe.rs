//! Pipe to a browser: messages of its DevTools protocol, with a zero byte after each.

use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::error::SimulationError;
use crate::lab::failed;

/// Messages of the browser that wait to be read. It waits when there are more.
const WAITING: usize = 1000;
/// Events that are kept while an answer is awaited. Older ones are dropped.
const MAX_EVENTS: usize = 1000;

/// Pipe to a browser.
pub(super) struct Pipe {
    input: ChildStdin,
    messages: Receiver<Value>,
    events: VecDeque<Value>,
    last: u64,
}

impl Pipe {
    pub(super) fn new(input: ChildStdin, output: ChildStdout) -> Self {
        let (sender, messages) = sync_channel(WAITING);
        std::thread::spawn(move || read(output, &sender));
        Self { input, messages, events: VecDeque::new(), last: 0 }
    }

    /// Calls a method, of a session or of the browser, and returns its result.
    pub(super) fn call(
        &mut self,
        session: Option<&str>,
        method: &str,
        params: Value,
        patience: Duration,
    ) -> Result<Value, SimulationError> {
        self.last += 1;
        let id = self.last;
        let mut message = json!({ "id": id, "method": method, "params": params });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        self.input.write_all(format!("{message}\0").as_bytes()).map_err(failed)?;
        self.input.flush().map_err(failed)?;
        let until = Instant::now() + patience;
        while let Some(mut message) = self.next(until)? {
            if message["id"] == id {
                return match message.get("error") {
                    Some(error) => {
                        Err(SimulationError::Lab(format!("the browser refuses {method}: {error}")))
                    }
                    None => Ok(message["result"].take()),
                };
            }
            if self.events.len() == MAX_EVENTS {
                self.events.pop_front();
            }
            self.events.push_back(message);
        }
        Err(SimulationError::Lab(format!("the browser does not answer {method} within {patience:?}")))
    }

    /// Next event; `None` if there is none until then.
    pub(super) fn event(&mut self, until: Instant) -> Result<Option<Value>, SimulationError> {
        match self.events.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.next(until),
        }
    }

    /// Drops the events that have come so far.
    pub(super) fn forget(&mut self) {
        self.events.clear();
    }

    fn next(&mut self, until: Instant) -> Result<Option<Value>, SimulationError> {
        match self.messages.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(message) => Ok(Some(message)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                Err(SimulationError::Lab("the browser has ended".to_owned()))
            }
        }
    }
}

/// Reads messages until the browser ends, or nobody wants them.
fn read(output: ChildStdout, messages: &SyncSender<Value>) {
    let mut output = BufReader::new(output);
    let mut message = Vec::new();
    while output.read_until(0, &mut message).is_ok_and(|read| read > 0) {
        let Some((0, json)) = message.split_last() else { break };
        let Ok(value) = serde_json::from_slice(json) else { break };
        if messages.send(value).is_err() {
            break;
        }
        message.clear();
    }
}
