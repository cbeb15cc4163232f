//! Receiving direction: decodes bytes into frames, and frames into messages.

use std::collections::HashMap;

use marcato_wire::{Decoded, Frame, FrameError, MAX_FRAME_HEADER, Manner, MessageFrame, MessageNumber};

use crate::sender::NotAwaited;
use crate::{CloseReason, Closed, Head, Inbound, Overrun, Sender, Ticket};

/// Violation of the protocol on TCP by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerError {
    /// Bytes that are no frame.
    #[error("the peer sent an invalid frame: {0}")]
    Frame(#[from] FrameError),
    /// More data than a limit allows.
    #[error(transparent)]
    Overrun(#[from] Overrun),
    /// Acknowledgement of a message that was not sent whole.
    #[error(transparent)]
    Receipt(#[from] NotAwaited),
    /// Message number out of sequence.
    #[error("the peer began message {number}, but the next is {next}")]
    Number {
        /// Number given.
        number: MessageNumber,
        /// Number expected.
        next: u64,
    },
    /// Data of a message that is complete or abandoned.
    #[error("the peer sent more of message {number}, which is settled")]
    Settled {
        /// Number of the message.
        number: MessageNumber,
    },
    /// Priority that changed within a message.
    #[error("the peer changed the priority of message {number} after its first frame")]
    Priority {
        /// Number of the message.
        number: MessageNumber,
    },
    /// Frames of one message that differ in what they ask for, or in their exchange.
    #[error(
        "the peer changed REPORT, REQUEST, REPLY or the exchange of message {number} after its first frame"
    )]
    Flags {
        /// Number of the message.
        number: MessageNumber,
    },
    /// Bytes that do not follow the previous ones of their message.
    #[error("the peer sent byte {offset} of message {number}, but the next is {next}")]
    Gap {
        /// Number of the message.
        number: MessageNumber,
        /// Offset given, in bytes.
        offset: u64,
        /// Offset expected, in bytes.
        next: u64,
    },
    /// Copy of a message: TCP carries each once.
    #[error("the peer sent a copy over tcp")]
    Copy,
    /// A message begins after FINISH.
    #[error("the peer began message {number} after it had finished sending")]
    Finished {
        /// Number of the message.
        number: MessageNumber,
    },
    /// Bytes follow CLOSE.
    #[error("the peer sent more after it had closed the connection")]
    AfterClose,
}

/// CLOSE frame whose reason is arriving.
#[derive(Debug)]
struct Close {
    manner: Manner,
    code: u32,
    /// Bytes of the reason, and the number of those that are missing.
    text: Vec<u8>,
    rest: usize,
}

/// Frame whose payload is arriving.
#[derive(Clone, Copy, Debug)]
struct Arriving {
    frame: MessageFrame,
    rest: u64,
}

/// Head of the message that a frame belongs to.
const fn head(frame: &MessageFrame) -> Head {
    Head::new(frame.id, frame.priority).with_report(frame.report).with_exchange(frame.exchange)
}

/// Reader of one direction of a connection.
#[derive(Debug)]
pub struct Reader {
    /// Part of a frame's header that has arrived; `have` is its length.
    header: [u8; MAX_FRAME_HEADER],
    have: usize,
    arriving: Option<Arriving>,
    next_number: u64,
    /// Number of receipts due for each open message. As many entries as there are open messages.
    due: HashMap<u64, u32>,
    /// Set once the peer has finished sending.
    finished: bool,
    close: Option<Close>,
    news: ReaderNews,
}

/// News for the owner of a [`Reader`] that concern neither messages nor exchanges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderNews {
    /// Set if payload of a message has arrived.
    pub data: bool,
    /// Interval in ms at which the peer wants this end's clock, if it has said so; 0 for no more.
    pub watch: Option<u64>,
    /// Latest clock of the peer, in ms modulo 2^32, if one has arrived.
    pub clock: Option<u32>,
}

impl Default for Reader {
    fn default() -> Self {
        Self::new()
    }
}

impl Reader {
    /// Creates a reader at the beginning of a stream.
    pub fn new() -> Self {
        Self {
            header: [0; MAX_FRAME_HEADER],
            have: 0,
            arriving: None,
            next_number: 0,
            due: HashMap::new(),
            finished: false,
            close: None,
            news: ReaderNews::default(),
        }
    }

    /// Takes what has arrived since the last call.
    pub fn take_news(&mut self) -> ReaderNews {
        std::mem::take(&mut self.news)
    }

    /// Returns whether the connection may end here: not within a frame.
    pub const fn is_between_frames(&self) -> bool {
        let closing = match &self.close {
            Some(close) => close.rest > 0,
            None => false,
        };
        self.have == 0 && self.arriving.is_none() && !closing
    }

    /// Returns the end of the connection that the peer's application has announced.
    pub fn closed(&self) -> Option<Closed> {
        let close = self.close.as_ref().filter(|close| close.rest == 0)?;
        Some(CloseReason::received(close.code, &close.text).of_peer(close.manner))
    }

    /// Reads `bytes` of the stream into `inbound`, and settles messages with `sender`.
    ///
    /// # Errors
    ///
    /// If the peer violates the protocol or a limit. The connection has to end then.
    pub fn feed<T: Ticket>(
        &mut self,
        mut bytes: &[u8],
        inbound: &mut Inbound,
        sender: &mut Sender<T>,
    ) -> Result<(), PeerError> {
        while !bytes.is_empty() {
            if let Some(Arriving { frame, rest }) = self.arriving.take() {
                let take = usize::try_from(rest).unwrap_or(usize::MAX).min(bytes.len());
                let (payload, behind) = bytes.split_at(take);
                bytes = behind;
                self.news.data = true;
                let rest = rest - take as u64;
                let last = frame.last && rest == 0;
                inbound.piece(head(&frame), payload, last)?;
                if last {
                    self.complete(frame.id, inbound, sender);
                }
                self.arriving = (rest > 0).then_some(Arriving { frame, rest });
                continue;
            }
            if let Some(close) = &mut self.close {
                if close.rest == 0 {
                    return Err(PeerError::AfterClose);
                }
                let (text, behind) = bytes.split_at(close.rest.min(bytes.len()));
                close.text.extend_from_slice(text);
                close.rest -= text.len();
                bytes = behind;
                continue;
            }
            let decoded = if self.have == 0 {
                Frame::decode(bytes)?
            } else {
                let more = bytes.len().min(MAX_FRAME_HEADER - self.have);
                self.header[self.have..self.have + more].copy_from_slice(&bytes[..more]);
                Frame::decode(&self.header[..self.have + more])?
            };
            match decoded {
                Decoded::Frame { frame, len } => {
                    bytes = &bytes[len - self.have..];
                    self.have = 0;
                    self.frame(frame, inbound, sender)?;
                }
                // No header is longer than the buffer, so all remaining `bytes` went into it.
                Decoded::Incomplete { .. } => {
                    if self.have == 0 {
                        self.header[..bytes.len()].copy_from_slice(bytes);
                    }
                    self.have += bytes.len();
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn frame<T: Ticket>(
        &mut self,
        frame: Frame,
        inbound: &mut Inbound,
        sender: &mut Sender<T>,
    ) -> Result<(), PeerError> {
        match frame {
            Frame::Message(message) => self.message(message, inbound, sender),
            Frame::Reset { id, code } => {
                if id.0 < self.next_number && inbound.progress(id).is_none() {
                    // The message is already complete.
                    return Ok(());
                }
                if id.0 >= self.next_number {
                    self.begin(id)?;
                }
                inbound.give_up(id, code);
                self.settle(id, sender);
                Ok(())
            }
            Frame::Done { id } => Ok(sender.done(id)?),
            Frame::Hold { priority, held } => {
                sender.hold(priority, held);
                Ok(())
            }
            Frame::Watch { interval } => {
                self.news.watch = Some(interval);
                Ok(())
            }
            Frame::Clock { time } => {
                self.news.clock = Some(time);
                Ok(())
            }
            Frame::Finish => {
                self.finished = true;
                inbound.finish();
                Ok(())
            }
            Frame::Close { manner, code, len } => {
                self.close = Some(Close { manner, code, text: Vec::new(), rest: len });
                Ok(())
            }
            Frame::End { exchange, reason } => {
                inbound.end_exchange(exchange, reason);
                Ok(())
            }
            Frame::Report { id, fate } => {
                // It may be about a message that this end has abandoned. docs/wire.md, "Frames".
                if !sender.reported(id, fate) {
                    inbound.count_stray_report();
                }
                Ok(())
            }
        }
    }

    fn begin(&mut self, number: MessageNumber) -> Result<(), PeerError> {
        if self.finished {
            return Err(PeerError::Finished { number });
        }
        if number.0 != self.next_number {
            return Err(PeerError::Number { number, next: self.next_number });
        }
        self.next_number += 1;
        Ok(())
    }

    fn message<T: Ticket>(
        &mut self,
        frame: MessageFrame,
        inbound: &mut Inbound,
        sender: &mut Sender<T>,
    ) -> Result<(), PeerError> {
        let number = frame.id;
        if frame.duplicate.is_some() {
            return Err(PeerError::Copy);
        }
        let next = match inbound.progress(number) {
            Some((head, _)) if head.priority != frame.priority => return Err(PeerError::Priority { number }),
            Some((head, _)) if head.report != frame.report || head.exchange != frame.exchange => {
                return Err(PeerError::Flags { number });
            }
            Some((_, received)) => received,
            None if number.0 < self.next_number => return Err(PeerError::Settled { number }),
            None => {
                self.begin(number)?;
                0
            }
        };
        if frame.offset.get() != next {
            return Err(PeerError::Gap { number, offset: frame.offset.get(), next });
        }
        if frame.receipt {
            let due = self.due.entry(number.0).or_default();
            *due = due.saturating_add(1);
        }
        // Even without payload, the message is open from here on.
        inbound.piece(head(&frame), &[], frame.last && frame.len.is_zero())?;
        if frame.len.is_zero() {
            self.complete(number, inbound, sender);
        } else {
            self.arriving = Some(Arriving { frame, rest: frame.len.get() });
        }
        Ok(())
    }

    /// Acknowledges a message whose last byte has arrived, unless it was declined.
    fn complete<T: Ticket>(&mut self, number: MessageNumber, inbound: &Inbound, sender: &mut Sender<T>) {
        if inbound.is_declining() {
            self.due.remove(&number.0);
        } else {
            self.settle(number, sender);
        }
    }

    fn settle<T: Ticket>(&mut self, number: MessageNumber, sender: &mut Sender<T>) {
        if let Some(times) = self.due.remove(&number.0) {
            sender.acknowledge(number, times);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, Receiver};

    use super::*;
    use crate::sender::SLIVER;
    use crate::{Limits, Message, NotDelivered, Pool, SendError};
    use bytes::Bytes as Payload;
    use marcato_sched::conductor::{self, MessageId};
    use marcato_units::{Bytes, Duration, Priority, Time};

    const NOW: Time = Time::ZERO;

    /// Ticket that a test reads.
    #[derive(Debug)]
    struct Slip(mpsc::Sender<Result<(), NotDelivered>>, Option<mpsc::Sender<Result<(), NotDelivered>>>);

    impl Ticket for Slip {
        fn settle(self, outcome: Result<(), NotDelivered>) {
            let _ = self.0.send(outcome);
        }

        fn receipt(&mut self) -> Option<Self> {
            Some(Self(self.1.take()?, None))
        }
    }

    fn slip() -> (Slip, Receiver<Result<(), NotDelivered>>) {
        let (sender, outcome) = mpsc::channel();
        (Slip(sender, None), outcome)
    }

    fn sender(limits: Limits) -> Sender<Slip> {
        Sender::new(conductor::Config::default(), limits).unwrap()
    }

    struct End {
        sender: Sender<Slip>,
        reader: Reader,
        inbound: Inbound,
    }

    impl End {
        fn new() -> Self {
            Self {
                sender: sender(Limits::default()),
                reader: Reader::new(),
                inbound: Inbound::new(Limits::default(), Pool::default()),
            }
        }

        /// End that has offered messages of these lengths.
        fn new_with(lens: &[usize]) -> Self {
            let mut end = Self::new();
            for len in lens {
                end.send(NOW, Message::new(vec![0; *len]));
            }
            end
        }

        fn send(&mut self, now: Time, message: Message) -> (MessageId, Receiver<Result<(), NotDelivered>>) {
            let (ticket, outcome) = slip();
            (self.sender.offer(now, &message, ticket).unwrap(), outcome)
        }

        fn chunk(&mut self, now: Time, budget: usize) -> Vec<u8> {
            let mut out = Vec::new();
            self.sender.fill(now, budget, &mut out);
            assert!(out.len() <= budget.max(MAX_FRAME_HEADER + 1), "{} > {budget}", out.len());
            out
        }

        fn feed(&mut self, bytes: &[u8]) -> Result<(), PeerError> {
            self.reader.feed(bytes, &mut self.inbound, &mut self.sender)
        }
    }

    fn message(len: usize, priority: Priority) -> Message {
        Message::new(vec![priority as u8; len]).with_priority(priority)
    }

    /// All data arrives, whatever the sizes of chunks and reads.
    #[test]
    fn messages_survive_any_cut() {
        for (budget, cut) in [(1, 1), (40, 7), (100, 1000), (1448, 13), (65_000, 65_000)] {
            let (mut a, mut b) = (End::new(), End::new());
            let lens = [1, 300, 2, 5000, 70];
            let outcomes: Vec<_> = lens
                .iter()
                .zip(Priority::ALL)
                .map(|(&len, priority)| a.send(NOW, message(len, priority)).1)
                .collect();
            while a.sender.wants_write() {
                for part in a.chunk(NOW, budget).chunks(cut) {
                    b.feed(part).unwrap();
                }
            }
            for (len, priority) in lens.into_iter().zip(Priority::ALL) {
                let received = b.inbound.take().unwrap();
                assert_eq!((received.bytes.len(), received.priority), (len, priority));
                assert!(received.bytes.iter().all(|&byte| byte == priority as u8));
            }
            assert!(outcomes.iter().all(|outcome| outcome.try_recv().is_err()));
            assert!(!a.sender.is_idle(), "the peer has acknowledged nothing");
            while b.sender.wants_write() {
                a.feed(&b.chunk(NOW, budget)).unwrap();
            }
            assert!(outcomes.iter().all(|outcome| outcome.try_recv() == Ok(Ok(()))));
            assert!(a.sender.is_idle() && b.sender.is_idle() && b.reader.is_between_frames());
            assert_eq!(a.sender.unfinished(), [0; 5]);
        }
    }

    /// A level that the peer holds lets all others pass, and continues where it stopped.
    #[test]
    fn a_held_level_stops_no_other() {
        let (mut a, mut b) = (End::new(), End::new());
        let (_, file) = a.send(NOW, message(5000, Priority::P4));
        b.feed(&a.chunk(NOW, 1448)).unwrap();
        b.sender.answer(crate::Answer::Hold { priority: Priority::P4, held: true });
        b.exchange(&mut a);
        assert!(!a.sender.wants_write() && !a.sender.is_idle());
        a.send(NOW, message(3000, Priority::P1));
        a.exchange(&mut b);
        assert_eq!(b.inbound.take().map(|message| message.priority), Some(Priority::P1));
        assert_eq!(b.inbound.take(), None);
        b.sender.answer(crate::Answer::Hold { priority: Priority::P4, held: false });
        b.exchange(&mut a);
        a.exchange(&mut b);
        b.exchange(&mut a);
        assert_eq!(b.inbound.take().map(|message| message.bytes.len()), Some(5000));
        assert_eq!(file.try_recv(), Ok(Ok(())));
    }

    #[test]
    fn empty_messages_arrive() {
        let (mut a, mut b) = (End::new(), End::new());
        let (_, whole, report) = a.ask(message(0, Priority::P0));
        let long = a.sender.begin_long();
        let (ticket, ended) = slip();
        a.sender.offer_part(NOW, long, &message(0, Priority::P1), true, ticket).unwrap();
        while a.sender.wants_write() {
            for byte in a.chunk(NOW, 7).chunks(1) {
                b.feed(byte).unwrap();
            }
        }
        for priority in [Priority::P0, Priority::P1] {
            let received = b.inbound.take().unwrap();
            assert_eq!((received.bytes.len(), received.priority), (0, priority));
        }
        b.exchange(&mut a);
        for outcome in [whole, ended, report] {
            assert_eq!(outcome.try_recv(), Ok(Ok(())));
        }
        // An empty part says nothing, unless it ends the message.
        let long = a.sender.begin_long();
        let empty = a.sender.offer_part(NOW, long, &message(0, Priority::P1), false, slip().0);
        assert_eq!(empty, Err(crate::SendError::EmptyPart));
        assert!(a.sender.is_idle());
    }

    #[test]
    fn a_direction_does_not_end_before_a_message_that_is_held() {
        let (mut a, mut b) = (End::new(), End::new());
        a.sender.hold(Priority::P4, true);
        a.send(NOW, message(5000, Priority::P4));
        a.sender.finish();
        assert!(!a.sender.wants_write() && a.chunk(NOW, 1448).is_empty());
        a.sender.hold(Priority::P4, false);
        a.exchange(&mut b);
        assert_eq!(b.inbound.take().map(|message| message.bytes.len()), Some(5000));
        assert_eq!(b.inbound.ended(), Some(Closed::Finished));
    }

    #[test]
    fn after_the_last_message_one_direction_ends() {
        let (mut a, mut b) = (End::new(), End::new());
        let (_, last) = a.send(NOW, message(5000, Priority::P4));
        a.sender.finish();
        let refused = a.sender.offer(NOW, &message(1, Priority::P0), slip().0);
        assert_eq!(refused, Err(crate::SendError::Finished));
        a.exchange(&mut b);
        assert_eq!(b.inbound.ended(), Some(Closed::Finished));
        assert_eq!(b.inbound.take().map(|message| message.bytes.len()), Some(5000));
        // The other direction goes on.
        b.send(NOW, message(1000, Priority::P2));
        b.exchange(&mut a);
        assert_eq!(a.inbound.take().map(|message| message.bytes.len()), Some(1000));
        a.exchange(&mut b);
        assert_eq!((last.try_recv(), a.sender.is_idle()), (Ok(Ok(())), true));
        let mut other = End::new();
        other.send(NOW, message(1, Priority::P2));
        other.chunk(NOW, 100);
        other.send(NOW, message(1, Priority::P2));
        let number = MessageNumber(1);
        assert_eq!(b.feed(&other.chunk(NOW, 100)), Err(PeerError::Finished { number }));
    }

    #[test]
    fn the_reason_for_the_end_survives_any_cut() {
        for (manner, cut) in [(Manner::Closed, 1), (Manner::Aborted, 3), (Manner::Closed, 100)] {
            let mut bytes = Vec::new();
            CloseReason::new(70_000, "enough").write(manner, &mut bytes);
            let mut b = End::new();
            for part in bytes.chunks(cut) {
                assert_eq!(b.reader.closed(), None);
                b.feed(part).unwrap();
                assert_eq!(b.reader.is_between_frames(), b.reader.closed().is_some());
            }
            let closed = CloseReason::new(70_000, "enough").of_peer(manner);
            assert_eq!(b.reader.closed(), Some(closed));
            assert_eq!(b.feed(&[6]), Err(PeerError::AfterClose));
        }
    }

    type Outcome = Receiver<Result<(), NotDelivered>>;

    impl End {
        /// Sends a message with a receipt; returns its outcome, and that of the report.
        fn ask(&mut self, message: Message) -> (MessageId, Outcome, Outcome) {
            let (mut ticket, outcome) = slip();
            let (sender, report) = mpsc::channel();
            ticket.1 = Some(sender);
            (self.sender.offer(NOW, &message.with_receipt(), ticket).unwrap(), outcome, report)
        }

        /// Sends everything to the other end, and its reports.
        fn exchange(&mut self, other: &mut Self) {
            while let Some(answer) = self.inbound.take_answer() {
                self.sender.answer(answer);
            }
            while self.sender.wants_write() {
                let chunk = self.chunk(NOW, 1426);
                other.feed(&chunk).unwrap();
            }
        }
    }

    #[test]
    fn a_report_follows_when_the_application_takes_the_message() {
        let (mut a, mut b) = (End::new(), End::new());
        let (_, outcome, report) = a.ask(message(5000, Priority::P2));
        a.exchange(&mut b);
        b.exchange(&mut a);
        assert_eq!((outcome.try_recv(), report.try_recv().is_err()), (Ok(Ok(())), true));
        // Nothing is left to send, so the connection may be closed.
        assert!(a.sender.is_idle());
        b.inbound.take().unwrap();
        b.exchange(&mut a);
        assert_eq!(report.try_recv(), Ok(Ok(())));
        assert_eq!(a.inbound.counters().stray_reports, 0);
    }

    #[test]
    fn a_report_that_nobody_awaits_is_counted() {
        let (mut a, mut b) = (End::new(), End::new());
        a.send(NOW, message(10, Priority::P2));
        let (_, _, report) = a.ask(message(10, Priority::P2));
        // Before the message has left, for one without a receipt, twice, and for an unknown one.
        let before = Frame::Report { id: MessageNumber(1), fate: marcato_wire::Fate::Taken };
        let mut header = [0; MAX_FRAME_HEADER];
        let len = before.encode(&mut header).unwrap();
        a.feed(&header[..len]).unwrap();
        assert!(report.try_recv().is_err());
        a.exchange(&mut b);
        b.exchange(&mut a);
        for number in [0, 1, 1, 9] {
            let report = crate::Report { number: MessageNumber(number), fate: marcato_wire::Fate::Taken };
            b.sender.answer(crate::Answer::Report(report));
        }
        b.exchange(&mut a);
        assert_eq!(report.try_recv(), Ok(Ok(())));
        assert_eq!(a.inbound.counters().stray_reports, 4);
    }

    #[test]
    fn a_request_and_its_reply_keep_their_exchange_over_many_chunks() {
        use marcato_wire::Exchange;
        let (mut a, mut b) = (End::new(), End::new());
        let exchange = a.inbound.begin_request().unwrap();
        let request = Message { exchange: Exchange::Request(exchange), ..message(5000, Priority::P2) };
        a.send(NOW, request);
        a.exchange(&mut b);
        let (number, received) = b.inbound.take_request().unwrap();
        assert_eq!((number, received.bytes.len(), b.inbound.take()), (exchange, 5000, None));
        let reply = Message { exchange: Exchange::Reply(number), ..message(70_000, Priority::P4) };
        b.send(NOW, reply);
        b.exchange(&mut a);
        assert_eq!(a.inbound.take_reply(exchange).unwrap().unwrap().bytes.len(), 70_000);
    }

    #[test]
    fn the_requester_learns_that_a_reply_was_abandoned() {
        use marcato_wire::Exchange;
        let (mut a, mut b) = (End::new(), End::new());
        let exchange = a.inbound.begin_request().unwrap();
        let reply = Message { exchange: Exchange::Reply(exchange), ..message(5000, Priority::P4) };
        let (id, _) = b.send(NOW, reply);
        a.feed(&b.chunk(NOW, 1000)).unwrap();
        b.sender.cancel(id).unwrap();
        b.exchange(&mut a);
        assert_eq!(a.inbound.take_reply(exchange), Some(Err(crate::NoReply::Unanswered)));
    }

    #[test]
    fn awaited_reports_are_bounded_and_end_with_the_connection() {
        let limits = Limits { receipts: 2, ..Limits::default() };
        let (mut a, mut b) = (End { sender: sender(limits), ..End::new() }, End::new());
        let (cancelled, _, gone) = a.ask(message(10, Priority::P2));
        let (_, _, unread) = a.ask(message(10, Priority::P2));
        let another = |a: &mut End| a.sender.offer(NOW, &message(10, Priority::P2).with_receipt(), slip().0);
        assert_eq!(another(&mut a), Err(crate::SendError::Busy { priority: Priority::P2 }));
        a.sender.cancel(cancelled).unwrap();
        assert_eq!(gone.try_recv(), Ok(Err(NotDelivered::Cancelled)));
        a.ask(message(10, Priority::P2));
        a.exchange(&mut b);
        b.exchange(&mut a);
        assert_eq!(another(&mut a), Err(crate::SendError::Busy { priority: Priority::P2 }));
        a.sender.close(&crate::Closed::ByPeer(CloseReason::default()));
        assert_eq!(
            unread.try_recv(),
            Ok(Err(NotDelivered::NotTaken(crate::Closed::ByPeer(CloseReason::default()))))
        );
    }

    #[test]
    fn a_chunk_carries_many_small_messages_and_is_nearly_full() {
        let mut a = End::new();
        for _ in 0..1000 {
            a.send(NOW, message(50, Priority::P2));
        }
        let len = a.chunk(NOW, 1426).len();
        assert!(len > 1426 - SLIVER && len <= 1426, "{len}");
        a.send(NOW, message(100_000, Priority::P0));
        let len = a.chunk(NOW, 1426).len();
        assert!(len > 1420 && len <= 1426, "{len}");
    }

    #[test]
    fn an_urgent_message_leaves_with_the_next_chunk() {
        let (mut a, mut b) = (End::new(), End::new());
        a.send(NOW, message(1_000_000, Priority::P4));
        b.feed(&a.chunk(NOW, 1426)).unwrap();
        a.send(NOW, message(200, Priority::P0));
        b.feed(&a.chunk(NOW, 1426)).unwrap();
        assert_eq!(b.inbound.take().unwrap().priority, Priority::P0);
    }

    /// A chunk consists of many grants, none of which exceeds the Conductor's unit: it is shared as the debts say.
    #[test]
    fn levels_share_a_long_chunk_by_their_debts() {
        let (mut a, mut b) = (End::new(), End::new());
        for level in [Priority::P2, Priority::P3] {
            a.send(NOW, message(1_000_000, level));
        }
        b.feed(&a.chunk(NOW, 64 << 10)).unwrap();
        let bytes = b.inbound.counters().level_bytes.map(Bytes::get);
        // P2 may owe 15 kB, and P3 pays 1.5 bytes of that back with each of its own.
        assert!(bytes[2] > bytes[3] && bytes[3] > 10_000, "{bytes:?}");
    }

    #[test]
    fn the_receiver_learns_of_partial_cancels_and_missed_deadlines() {
        let (mut a, mut b) = (End::new(), End::new());
        let (half, half_outcome) = a.send(NOW, message(5000, Priority::P2));
        b.feed(&a.chunk(NOW, 1000)).unwrap();
        a.sender.cancel(half).unwrap();
        assert_eq!(half_outcome.try_recv(), Ok(Err(NotDelivered::Cancelled)));
        let (unsent, _) = a.send(NOW, message(10, Priority::P2));
        a.sender.cancel(unsent).unwrap();
        let late = message(10, Priority::P1).with_lifetime(Duration::from_millis(5));
        let (_, late_outcome) = a.send(NOW, late);
        let (_, kept) = a.send(NOW, message(10, Priority::P3));
        b.feed(&a.chunk(Time::from_millis(6), 1000)).unwrap();
        assert_eq!(late_outcome.try_recv(), Ok(Err(NotDelivered::Expired)));
        use crate::{Missed, MissedReason};
        let missed = |number, reason, received| {
            Some(Missed { number: MessageNumber(number), reason, received: Bytes::new(received) })
        };
        let halved = b.inbound.take_missed().unwrap();
        assert_eq!((halved.number, halved.reason), (MessageNumber(0), MissedReason::Cancelled));
        assert!(halved.received > Bytes::new(900));
        assert_eq!(b.inbound.take_missed(), missed(1, MissedReason::Expired, 0));
        assert_eq!(b.inbound.take_missed(), None);
        assert_eq!(b.inbound.take().unwrap().number, Some(MessageNumber(2)));
        a.feed(&b.chunk(NOW, 1000)).unwrap();
        assert_eq!(kept.try_recv(), Ok(Ok(())));
        assert!(a.sender.is_idle());
    }

    #[test]
    fn an_evicted_message_is_settled_and_its_bytes_are_released() {
        let limits = Limits { queued: Bytes::new(1000), unfinished: 10, ..Limits::default() };
        let mut sender = sender(limits);
        let offer = |sender: &mut Sender<Slip>, priority| {
            let (ticket, outcome) = slip();
            (sender.offer(NOW, &message(1000, priority), ticket).unwrap(), outcome)
        };
        // Five levels' shares, all moved to one level: only the Conductor's own bound holds.
        let outcomes: Vec<_> = (0..5)
            .map(|_| {
                let (id, outcome) = offer(&mut sender, Priority::P4);
                sender.reprioritise(id, Priority::P3).unwrap();
                outcome
            })
            .collect();
        let (_, urgent) = offer(&mut sender, Priority::P1);
        assert_eq!(outcomes[0].try_recv(), Ok(Err(NotDelivered::Evicted)));
        assert!(outcomes[1..].iter().all(|outcome| outcome.try_recv().is_err()));
        assert!(urgent.try_recv().is_err());
        let counters = sender.counters();
        assert_eq!(counters.level(Priority::P3).evicted.messages, 1);
        assert_eq!(sender.unfinished(), [0, 1, 0, 0, 4]);
    }

    #[test]
    fn a_full_level_keeps_no_other_out() {
        let limits = Limits { queued: Bytes::new(1000), unfinished: 3, ..Limits::default() };
        let mut sender = sender(limits);
        let mut offer = |len, priority| sender.offer(NOW, &message(len, priority), slip().0);
        use crate::SendError;
        assert_eq!(offer(1001, Priority::P4), Err(SendError::TooLong { limit: Bytes::new(1000) }));
        offer(600, Priority::P4).unwrap();
        assert_eq!(offer(600, Priority::P4), Err(SendError::Busy { priority: Priority::P4 }));
        offer(600, Priority::P0).unwrap();
        for _ in 0..2 {
            offer(1, Priority::P4).unwrap();
        }
        assert_eq!(offer(1, Priority::P4), Err(SendError::Busy { priority: Priority::P4 }));
    }

    #[test]
    fn frames_that_break_the_rules_of_tcp_are_refused() {
        let frame = |id, offset, len, last| MessageFrame {
            id: MessageNumber(id),
            priority: Priority::P2,
            offset: Bytes::new(offset),
            len: Bytes::new(len),
            last,
            receipt: false,
            report: false,
            exchange: marcato_wire::Exchange::None,
            duplicate: None,
        };
        let written = |frames: &[Frame]| {
            let mut bytes = Vec::new();
            for frame in frames {
                let mut header = [0; MAX_FRAME_HEADER];
                let len = frame.encode(&mut header).unwrap();
                bytes.extend_from_slice(&header[..len]);
                if let Frame::Message(message) = frame {
                    bytes.resize(bytes.len() + usize::try_from(message.len.get()).unwrap(), 7);
                }
            }
            Payload::from(bytes)
        };
        let refused = |frames: &[Frame]| End::new().feed(&written(frames)).unwrap_err();
        let message = Frame::Message;
        let number = MessageNumber(0);
        assert_eq!(
            refused(&[message(frame(1, 0, 3, true))]),
            PeerError::Number { number: MessageNumber(1), next: 0 }
        );
        assert_eq!(refused(&[message(frame(0, 5, 3, true))]), PeerError::Gap { number, offset: 5, next: 0 });
        assert_eq!(
            refused(&[message(frame(0, 0, 3, false)), message(frame(0, 2, 3, false))]),
            PeerError::Gap { number, offset: 2, next: 3 }
        );
        assert_eq!(
            refused(&[message(frame(0, 0, 3, true)), message(frame(0, 0, 3, true))]),
            PeerError::Settled { number }
        );
        assert_eq!(
            refused(&[Frame::Done { id: number }]),
            PeerError::Receipt(End::new().sender.done(number).unwrap_err())
        );
        let other = MessageFrame { priority: Priority::P1, ..frame(0, 3, 1, true) };
        assert_eq!(
            refused(&[message(frame(0, 0, 3, false)), message(other)]),
            PeerError::Priority { number }
        );
        let other = MessageFrame { report: true, ..frame(0, 3, 1, true) };
        assert_eq!(refused(&[message(frame(0, 0, 3, false)), message(other)]), PeerError::Flags { number });
        let exchange = marcato_wire::Exchange::Request(0);
        let other = MessageFrame { exchange, ..frame(0, 3, 1, true) };
        assert_eq!(refused(&[message(frame(0, 0, 3, false)), message(other)]), PeerError::Flags { number });
        let duplicate = Some(marcato_wire::Duplicate { index: 0, copies: 2 });
        assert_eq!(refused(&[message(MessageFrame { duplicate, ..frame(0, 0, 1, true) })]), PeerError::Copy);
        assert!(matches!(End::new().feed(b"GET / HTTP/1.1\r\n"), Err(PeerError::Frame(_))));
    }

    #[test]
    fn an_empty_last_frame_and_receipts_on_every_frame_are_valid() {
        let mut end = End::new();
        let mut bytes = Vec::new();
        for (offset, len, last) in [(0, 1, false), (1, 1, false), (2, 0, true)] {
            let frame = MessageFrame {
                id: MessageNumber(0),
                priority: Priority::P3,
                offset: Bytes::new(offset),
                len: Bytes::new(len),
                last,
                receipt: true,
                report: false,
                exchange: marcato_wire::Exchange::None,
                duplicate: None,
            };
            let mut header = [0; MAX_FRAME_HEADER];
            let written = Frame::Message(frame).encode(&mut header).unwrap();
            bytes.extend_from_slice(&header[..written]);
            bytes.resize(bytes.len() + usize::try_from(len).unwrap(), b'x');
        }
        end.feed(&bytes).unwrap();
        assert_eq!(end.inbound.take().unwrap().bytes, b"xx"[..]);
        assert_eq!(end.chunk(NOW, 100), [3, 0, 3, 0, 3, 0]);
    }

    /// Frames of messages in a chunk.
    fn messages(mut chunk: &[u8]) -> Vec<MessageFrame> {
        let mut frames = Vec::new();
        while let Decoded::Frame { frame: Frame::Message(frame), len } = Frame::decode(chunk).unwrap() {
            chunk = &chunk[len + usize::try_from(frame.len.get()).unwrap()..];
            frames.push(frame);
        }
        frames
    }

    #[test]
    fn parts_wait_while_as_much_is_queued_as_may_be_streamed() {
        let mut sender = sender(Limits { streamed: Bytes::new(100), ..Limits::default() });
        let long = sender.begin_long();
        let part = |sender: &mut Sender<Slip>, len| {
            sender.offer_part(NOW, long, &Message::new(vec![7; len]), false, slip().0).map(drop)
        };
        assert_eq!([part(&mut sender, 50), part(&mut sender, 50)], [Ok(()), Ok(())]);
        let busy = Err(SendError::Busy { priority: Message::new("").priority });
        assert_eq!(part(&mut sender, 1), busy, "100 bytes wait");
        // With less than the bound, a part of any length is accepted.
        sender.fill(NOW, 20, &mut Vec::new());
        assert_eq!([part(&mut sender, 500), part(&mut sender, 1)], [Ok(()), busy]);
    }

    #[test]
    fn a_part_is_settled_once_it_is_written() {
        let mut end = End::new();
        let long = end.sender.begin_long();
        let outcomes = [false, true].map(|last| {
            let (ticket, outcome) = slip();
            end.sender.offer_part(NOW, long, &Message::new(vec![7; 50]), last, ticket).unwrap();
            outcome
        });
        end.chunk(NOW, 1000);
        // The last one stands for the message, which the peer has not acknowledged.
        assert_eq!(outcomes[0].try_recv(), Ok(Ok(())));
        assert!(outcomes[1].try_recv().is_err());
        assert_eq!(end.sender.unfinished().iter().sum::<usize>(), 1);
    }

    #[test]
    fn a_receipt_is_asked_for_with_the_last_part_only() {
        let mut end = End::new();
        let long = end.sender.begin_long();
        for last in [false, false, true] {
            end.sender.offer_part(NOW, long, &Message::new(vec![7; 50]), last, slip().0).unwrap();
        }
        let frames = messages(&end.chunk(NOW, 1000));
        let asks: Vec<_> = frames.iter().map(|frame| (frame.last, frame.receipt)).collect();
        assert_eq!(asks, [(false, false), (false, false), (true, true)]);
    }

    #[test]
    fn no_frame_begins_with_less_than_a_sliver() {
        for (left, begins) in [(SLIVER - 1, false), (SLIVER + 4, true)] {
            let mut end = End::new();
            end.send(NOW, Message::new(vec![1; 100]));
            end.send(NOW, Message::new(vec![2; 100]));
            // The first with its header, and a header, which may be a few bytes shorter than its bound.
            let whole = messages(&End::new_with(&[100]).chunk(NOW, 1000))[0];
            let first = 100 + Frame::Message(whole).encoded_len().unwrap();
            let second = MessageFrame {
                id: MessageNumber(1),
                len: Bytes::new(left as u64),
                last: false,
                receipt: false,
                ..whole
            };
            let header = Frame::Message(second).encoded_len().unwrap();
            let frames = messages(&end.chunk(NOW, first + header + left));
            assert_eq!(frames.len(), if begins { 2 } else { 1 }, "{left}: {frames:?}");
        }
    }

    #[test]
    fn messages_of_both_urgent_levels_end_the_quiet() {
        let (span, later) = (Duration::from_secs(1), Time::from_millis(999));
        for level in Priority::ALL {
            let mut end = End::new();
            assert!(end.sender.is_quiet(NOW, span));
            end.send(NOW, Message::new("x").with_priority(level));
            assert_eq!(end.sender.is_quiet(later, span), level > Priority::P1, "{level}");
            assert!(end.sender.is_quiet(Time::from_millis(1000), span), "{level}");
        }
    }
}
