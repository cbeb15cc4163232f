//! Requests and replies of one connection.
//!
//! Both engines match replies to requests by it. On the wire, receipts, requests and replies are small frames
//! (`docs/wire.md`).

use std::collections::{HashMap, HashSet, VecDeque};

use marcato_units::Priority;

use crate::Closed;
use crate::inbound::Ready;

/// Reason for which a request gets no reply.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoReply {
    /// The application at the other end discarded the request, or its reply was abandoned.
    #[error("the application at the other end did not reply")]
    Unanswered,
    /// The other end has too many open requests.
    #[error("the other end has too many open requests: send fewer at once, or raise its `Limits::requests`")]
    Refused,
    /// The connection ended before the reply arrived.
    #[error("the connection ended before the reply arrived: {0}")]
    Closed(#[from] Closed),
}

/// Open exchanges of both directions.
#[derive(Debug, Default)]
pub(crate) struct Exchanges {
    /// Number of this end's next request.
    next: u64,
    /// This end's requests, and the reply or the reason for none once it is known.
    asked: HashMap<u64, Option<Result<Ready, NoReply>>>,
    /// Numbers of the peer's complete requests that have no reply.
    open: HashSet<u64>,
    /// Those of them that the application has not accepted.
    waiting: [VecDeque<(u64, Ready)>; Priority::COUNT],
}

/// Fate of a complete request or reply that has just arrived.
pub(crate) enum Arrival {
    /// It waits for the application.
    Kept,
    /// There are too many open requests.
    Refused(Ready),
    /// Nobody waits for it.
    Stray(Ready),
}

impl Exchanges {
    /// Begins a request, unless `most` are open.
    pub(crate) fn begin(&mut self, most: usize) -> Option<u64> {
        if self.asked.len() >= most {
            return None;
        }
        let number = self.next;
        self.next += 1;
        self.asked.insert(number, None);
        Some(number)
    }

    /// Forgets a request of this end, and returns what has arrived for it. `None` if there is no
    /// such request.
    pub(crate) fn forget(&mut self, number: u64) -> Option<Option<Result<Ready, NoReply>>> {
        self.asked.remove(&number)
    }

    /// Takes the reply to a request of this end, or the reason for none, once it is known.
    pub(crate) fn take_reply(&mut self, number: u64) -> Option<Result<Ready, NoReply>> {
        self.asked.get(&number)?.as_ref()?;
        self.asked.remove(&number)?
    }

    /// Records a complete reply.
    pub(crate) fn reply(&mut self, number: u64, reply: Ready) -> Arrival {
        match self.asked.get_mut(&number) {
            Some(slot @ None) => {
                *slot = Some(Ok(reply));
                Arrival::Kept
            }
            _ => Arrival::Stray(reply),
        }
    }

    /// Records that a request of this end gets no reply. Returns `false` if nobody waits for one.
    pub(crate) fn fail(&mut self, number: u64, reason: NoReply) -> bool {
        let waits = self.asked.get_mut(&number).filter(|slot| slot.is_none());
        waits.map(|slot| *slot = Some(Err(reason))).is_some()
    }

    /// Records a complete request of the peer, of which at most `most` may be open.
    pub(crate) fn request(&mut self, number: u64, request: Ready, most: usize) -> Arrival {
        if self.open.contains(&number) {
            return Arrival::Stray(request);
        }
        if self.open.len() >= most {
            return Arrival::Refused(request);
        }
        self.open.insert(number);
        self.waiting[request.received.priority.index()].push_back((number, request));
        Arrival::Kept
    }

    /// Takes the most urgent request of the peer.
    pub(crate) fn take_request(&mut self) -> Option<(u64, Ready)> {
        self.waiting.iter_mut().find_map(VecDeque::pop_front)
    }

    /// Returns whether the peer waits for a reply to this request.
    pub(crate) fn is_open(&self, number: u64) -> bool {
        self.open.contains(&number)
    }

    /// Ends a request of the peer. Returns whether it was open, and the request if the application
    /// had not accepted it.
    pub(crate) fn close(&mut self, number: u64) -> (bool, Option<Ready>) {
        if !self.open.remove(&number) {
            return (false, None);
        }
        // As many wait as the limit of open requests allows.
        let unaccepted = self.waiting.iter_mut().find_map(|level| {
            let at = level.iter().position(|(waiting, _)| *waiting == number)?;
            level.remove(at)
        });
        (true, unaccepted.map(|(_, request)| request))
    }
}
