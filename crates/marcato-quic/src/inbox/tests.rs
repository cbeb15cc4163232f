//! Scenarios of one or two messages, in bytes on streams. Random ones are in `tests/inbox.rs`.

use marcato_wire::{EndReason, Exchange, Fate};

use super::*;

const PEER_UNI: u64 = 3;
const PEER_BIDI: u64 = 1;
const OUR_UNI: u64 = 2;
const OUR_BIDI: u64 = 0;

/// Inbox of a client, to which the server sends.
fn inbox() -> Inbox {
    Inbox::new(Side::Client, InboxLimits::default())
}

fn limited(change: impl FnOnce(&mut InboxLimits)) -> Inbox {
    let mut limits = InboxLimits::default();
    change(&mut limits);
    Inbox::new(Side::Client, limits)
}

/// Message `id`, P1, `len` bytes from `offset`, LAST.
fn run(id: u64, offset: u64, len: u64) -> MessageFrame {
    MessageFrame {
        id: MessageNumber(id),
        priority: Priority::P1,
        offset: Bytes::new(offset),
        len: Bytes::new(len),
        last: true,
        receipt: false,
        report: false,
        exchange: Exchange::None,
        duplicate: None,
    }
}

fn copy(frame: MessageFrame, index: u8, copies: u8) -> MessageFrame {
    MessageFrame { duplicate: Some(Duplicate { index, copies }), ..frame }
}

/// Payload of `frame`, then `payload`.
fn message(frame: MessageFrame, payload: &[u8]) -> Payload {
    [control(Frame::Message(frame)), Payload::copy_from_slice(payload)].concat().into()
}

fn control(frame: Frame) -> Payload {
    let mut header = [0; MAX_FRAME_HEADER];
    let len = frame.encode(&mut header).unwrap();
    Payload::copy_from_slice(&header[..len])
}

fn actions(inbox: &mut Inbox) -> Vec<Action> {
    std::iter::from_fn(|| inbox.poll()).collect()
}

/// All readable messages, in the order of reading: number, bytes, and whether each is complete.
fn read(inbox: &mut Inbox) -> Vec<(u64, Vec<u8>, bool)> {
    let mut messages: Vec<(u64, Vec<u8>, bool)> = Vec::new();
    while let Some(piece) = inbox.read() {
        match messages.last_mut() {
            Some((id, bytes, last)) if *id == piece.message.0 => {
                assert!(!*last, "something follows the last piece");
                bytes.extend(&piece.bytes);
                *last = piece.last;
            }
            _ => messages.push((piece.message.0, piece.bytes.to_vec(), piece.last)),
        }
    }
    messages
}

fn whole(id: u64, bytes: &[u8]) -> Vec<(u64, Vec<u8>, bool)> {
    vec![(id, bytes.to_vec(), true)]
}

const TEN: &[u8] = b"0123456789";
/// Length of the header of a copy of `TEN`.
const HEADER: u64 = 8;

#[test]
fn a_message_on_one_stream_is_read_as_it_arrives_without_a_stop() {
    let mut inbox = inbox();
    let bytes = message(run(0, 0, 10), TEN);
    inbox.stream_data(PEER_UNI, 0, bytes.slice(..9)).unwrap();
    assert_eq!(read(&mut inbox), vec![(0, b"012".to_vec(), false)]);
    inbox.stream_data(PEER_UNI, 9, bytes.slice(9..)).unwrap();
    inbox.stream_finished(PEER_UNI, bytes.len() as u64).unwrap();
    assert_eq!(read(&mut inbox), vec![(0, b"3456789".to_vec(), true)]);
    assert_eq!(actions(&mut inbox), []);
    assert_eq!(inbox.load(), InboxLoad::default());
    assert_eq!(inbox.counters().accepted.get(), 10);
}

#[test]
fn two_copies_with_different_gaps_jointly_complete_the_message() {
    let mut inbox = inbox();
    let a = message(copy(run(0, 0, 10), 0, 2), TEN);
    let b = message(copy(run(0, 0, 10), 1, 2), TEN);
    // The first copy lacks 3..6, the second all except 2..7.
    inbox.stream_data(PEER_UNI, 0, a.slice(..11)).unwrap();
    inbox.stream_data(PEER_UNI, 14, a.slice(14..)).unwrap();
    inbox.stream_data(PEER_UNI + 4, 0, b.slice(..8)).unwrap();
    inbox.stream_data(PEER_UNI + 4, 10, b.slice(10..15)).unwrap();
    assert_eq!(read(&mut inbox), whole(0, TEN));
    // Neither copy has wholly arrived, so both are stopped.
    assert_eq!(
        actions(&mut inbox),
        [Action::Stop { stream: PEER_UNI }, Action::Stop { stream: PEER_UNI + 4 }]
    );
    // Later bytes are ignored.
    inbox.stream_data(PEER_UNI, 11, a.slice(11..14)).unwrap();
    assert_eq!(read(&mut inbox), []);
    assert_eq!(inbox.load(), InboxLoad::default());
    let counters = inbox.counters();
    assert_eq!((counters.duplicate.get(), counters.late.get()), (2, 3));
}

#[test]
fn the_copy_that_arrives_second_is_stopped() {
    let mut inbox = inbox();
    inbox.stream_data(PEER_UNI, 0, message(copy(run(0, 0, 10), 0, 2), TEN)).unwrap();
    assert_eq!(actions(&mut inbox), []);
    assert_eq!(read(&mut inbox), whole(0, TEN));
    let b = message(copy(run(0, 0, 10), 1, 2), TEN);
    inbox.stream_data(PEER_UNI + 4, 0, b.slice(..12)).unwrap();
    assert_eq!(actions(&mut inbox), [Action::Stop { stream: PEER_UNI + 4 }]);
    assert_eq!(read(&mut inbox), []);
    assert_eq!(inbox.counters().late.get(), 4);
}

#[test]
fn a_copy_without_its_header_counts_by_its_duplicates() {
    for header_first in [true, false] {
        let mut inbox = inbox();
        let a = message(copy(run(0, 0, 10), 0, 2), TEN);
        let b = message(copy(run(0, 0, 10), 1, 2), TEN);
        if header_first {
            inbox.stream_data(PEER_UNI, 0, a.slice(..11)).unwrap();
        }
        inbox.stream_data(PEER_UNI + 4, HEADER + 2, b.slice(10..)).unwrap();
        if !header_first {
            assert_eq!(inbox.load().parked.get(), 8);
            inbox.stream_data(PEER_UNI, 0, a.slice(..11)).unwrap();
        }
        assert_eq!(inbox.load().parked.get(), 0);
        assert_eq!(read(&mut inbox), whole(0, TEN));
        assert_eq!(inbox.counters().announced, 1);
        assert_eq!(
            actions(&mut inbox),
            [Action::Stop { stream: PEER_UNI }, Action::Stop { stream: PEER_UNI + 4 }]
        );
    }
}

#[test]
fn a_header_after_its_announcement_has_to_agree() {
    let a = message(copy(run(0, 0, 10), 0, 2), TEN);
    let b = message(copy(run(0, 0, 10), 1, 2), TEN);
    let broken = |header: &Payload| {
        let mut inbox = inbox();
        inbox.stream_data(PEER_UNI + 4, HEADER, b.slice(8..9)).unwrap();
        inbox.stream_data(PEER_UNI, 0, a.slice(..8)).unwrap();
        let result = inbox.stream_data(PEER_UNI + 4, 0, header.slice(..8));
        (result, inbox)
    };
    let (agrees, mut inbox) = broken(&b);
    assert_eq!(agrees, Ok(()));
    inbox.stream_data(PEER_UNI + 4, HEADER + 1, b.slice(9..)).unwrap();
    assert_eq!(read(&mut inbox), whole(0, TEN));

    let differs = Err(InboxError::DuplicateDiffers { stream: PEER_UNI + 4, message: MessageNumber(0) });
    assert_eq!(broken(&message(copy(run(1, 0, 10), 1, 2), TEN)).0, differs, "another message");
    assert_eq!(broken(&message(copy(run(0, 0, 10), 0, 2), TEN)).0, differs, "another copy");
    assert_eq!(broken(&message(run(0, 0, 10), TEN)).0, differs, "a shorter header");
    assert_eq!(broken(&message(copy(run(64, 0, 10), 1, 2), TEN)).0, differs, "a longer header");
    let mut first = self::inbox();
    assert_eq!(
        first.stream_data(PEER_UNI, 0, b.clone()),
        Err(InboxError::DuplicateDiffers { stream: PEER_UNI, message: MessageNumber(0) }),
        "a second copy on the first stream of all"
    );
}

#[test]
fn a_late_copy_is_stopped_if_only_its_duplicate_announced_it() {
    let mut inbox = inbox();
    inbox.stream_data(PEER_UNI, 0, message(copy(run(0, 0, 10), 0, 2), TEN)).unwrap();
    inbox.stream_data(PEER_UNI + 4, HEADER + 4, Payload::from_static(b"45")).unwrap();
    assert_eq!(actions(&mut inbox), [Action::Stop { stream: PEER_UNI + 4 }]);
    assert_eq!((inbox.load().parked.get(), inbox.counters().late.get()), (0, 2));
}

#[test]
fn a_range_sent_again_on_another_stream_fills_the_gap() {
    let mut inbox = inbox();
    let first = message(run(0, 0, 10), TEN);
    inbox.stream_data(PEER_UNI, 0, first.slice(..8)).unwrap();
    inbox.stream_data(PEER_UNI, 12, first.slice(12..)).unwrap();
    assert_eq!(inbox.load().ahead.get(), 4);
    let again = MessageFrame { last: false, ..run(0, 2, 4) };
    inbox.stream_data(PEER_UNI + 8, 0, message(again, &TEN[2..6])).unwrap();
    assert_eq!(read(&mut inbox), whole(0, TEN));
    assert_eq!(actions(&mut inbox), [Action::Stop { stream: PEER_UNI }]);
}

#[test]
fn a_bidirectional_stream_carries_the_next_message_after_done() {
    let mut inbox = inbox();
    let receipt = |id| MessageFrame { receipt: true, ..run(id, 0, 10) };
    let bytes = [message(receipt(0), TEN), message(receipt(1), TEN)].concat();
    let bytes = Payload::from(bytes);
    let next = message(receipt(0), TEN).len();
    inbox.stream_data(PEER_BIDI, 0, bytes.slice(..next)).unwrap();
    assert_eq!(actions(&mut inbox), [Action::Done { stream: PEER_BIDI, message: MessageNumber(0) }]);
    inbox.stream_data(PEER_BIDI, next as u64 + 6, bytes.slice(next + 6..)).unwrap();
    inbox.stream_data(PEER_BIDI, next as u64, bytes.slice(next..next + 6)).unwrap();
    inbox.stream_finished(PEER_BIDI, bytes.len() as u64).unwrap();
    assert_eq!(actions(&mut inbox), [Action::Done { stream: PEER_BIDI, message: MessageNumber(1) }]);
    assert_eq!(read(&mut inbox), [whole(0, TEN), whole(1, TEN)].concat());
    assert_eq!(inbox.load(), InboxLoad::default());
}

#[test]
fn a_next_message_is_an_error_before_done_or_without_a_receipt() {
    for (id, receipt) in [(PEER_BIDI, true), (PEER_BIDI, false), (PEER_UNI, false), (PEER_UNI, true)] {
        let first = message(MessageFrame { receipt, ..run(0, 0, 10) }, TEN);
        let end = first.len() as u64;
        let refused = Err(InboxError::AfterMessage { stream: id, at: end });
        let mut incomplete = inbox();
        incomplete.stream_data(id, 0, first.slice(..12)).unwrap();
        assert_eq!(incomplete.stream_data(id, end, first.clone()), refused);
        let mut headless = inbox();
        headless.stream_data(id, end, first.clone()).unwrap();
        assert_eq!(headless.stream_data(id, 0, first.slice(..8)), refused);
        let mut complete = inbox();
        complete.stream_data(id, 0, first.clone()).unwrap();
        let again = complete.stream_data(id, end, first.clone());
        assert_eq!(again, if id == PEER_BIDI && receipt { Ok(()) } else { refused });
    }
}

#[test]
fn a_late_copy_is_discarded_and_its_reused_stream_goes_on() {
    let mut inbox = inbox();
    let copies = |id, index| copy(MessageFrame { receipt: true, ..run(id, 0, 10) }, index, 2);
    inbox.stream_data(PEER_BIDI, 0, message(copies(0, 0), TEN)).unwrap();
    let slow = message(copies(0, 1), TEN);
    inbox.stream_data(PEER_BIDI + 4, 0, slow.slice(..10)).unwrap();
    let done = |stream, id| Action::Done { stream, message: MessageNumber(id) };
    assert_eq!(actions(&mut inbox), [done(PEER_BIDI, 0), done(PEER_BIDI + 4, 0)]);
    // The next message overtakes the rest of the copy.
    inbox.stream_data(PEER_BIDI + 4, 18, message(copies(1, 1), TEN)).unwrap();
    inbox.stream_data(PEER_BIDI + 4, 10, slow.slice(10..)).unwrap();
    assert_eq!(actions(&mut inbox), [done(PEER_BIDI + 4, 1)]);
    assert_eq!(read(&mut inbox), [whole(0, TEN), whole(1, TEN)].concat());
    assert_eq!(inbox.counters().late.get(), 10);
}

#[test]
fn a_receipt_for_unidirectional_copies_is_sent_once() {
    let mut inbox = inbox();
    let receipt = MessageFrame { receipt: true, ..run(0, 0, 10) };
    let a = message(copy(receipt, 0, 2), TEN);
    let b = message(copy(receipt, 1, 2), TEN);
    inbox.stream_data(PEER_UNI, 0, a.slice(..12)).unwrap();
    inbox.stream_data(PEER_UNI + 4, 0, b).unwrap();
    assert_eq!(
        actions(&mut inbox),
        [Action::Done { stream: PEER_UNI, message: MessageNumber(0) }, Action::Stop { stream: PEER_UNI },]
    );
}

#[test]
fn an_empty_message_is_one_empty_last_piece() {
    let mut inbox = inbox();
    inbox.stream_data(PEER_UNI, 0, message(run(5, 0, 0), b"")).unwrap();
    let piece = inbox.read().unwrap();
    assert!(piece.last && piece.bytes.is_empty());
    assert_eq!((piece.message, piece.priority), (MessageNumber(5), Priority::P1));
    assert_eq!(inbox.read(), None);
}

#[test]
fn an_end_that_arrives_after_all_data_is_an_empty_last_piece() {
    let mut inbox = inbox();
    let first = MessageFrame { last: false, ..run(0, 0, 10) };
    inbox.stream_data(PEER_UNI, 0, message(first, TEN)).unwrap();
    assert_eq!(read(&mut inbox), vec![(0, TEN.to_vec(), false)]);
    inbox.stream_data(PEER_UNI + 4, 0, message(run(0, 10, 0), b"")).unwrap();
    assert_eq!(read(&mut inbox), whole(0, b""));
}

#[test]
fn the_most_urgent_message_is_read_first() {
    let mut inbox = inbox();
    for (id, priority) in [(0, Priority::P4), (1, Priority::P0), (2, Priority::P2), (3, Priority::P0)] {
        let frame = MessageFrame { priority, ..run(id, 0, 10) };
        inbox.stream_data(PEER_UNI + 4 * id, 0, message(frame, TEN)).unwrap();
    }
    let order: Vec<u64> = read(&mut inbox).into_iter().map(|(id, ..)| id).collect();
    assert_eq!(order, [1, 3, 2, 0]);
}

#[test]
fn a_reset_message_is_discarded_and_its_streams_are_stopped() {
    let mut inbox = inbox();
    let bytes = message(run(0, 0, 10), TEN);
    inbox.stream_data(PEER_UNI, 0, bytes.slice(..10)).unwrap();
    inbox.stream_data(PEER_UNI + 4, 0, control(Frame::Reset { id: MessageNumber(0), code: 42 })).unwrap();
    assert_eq!(
        actions(&mut inbox),
        [Action::Reset { message: MessageNumber(0), code: 42 }, Action::Stop { stream: PEER_UNI }]
    );
    assert_eq!(inbox.read(), None);
    inbox.stream_data(PEER_UNI + 8, 0, bytes.slice(..10)).unwrap();
    assert_eq!(actions(&mut inbox), [Action::Stop { stream: PEER_UNI + 8 }]);
    assert_eq!(inbox.read(), None);
    let load = inbox.load();
    assert_eq!((load.open_messages, load.unread.get(), load.streams), (0, 0, 1), "the control stream stays");
    assert_eq!(inbox.counters().discarded.get(), 4);
}

#[test]
fn a_complete_message_cannot_be_given_up_any_more() {
    let mut inbox = inbox();
    inbox.stream_data(PEER_UNI, 0, message(run(0, 0, 10), TEN)).unwrap();
    inbox.stream_data(PEER_UNI + 4, 0, control(Frame::Reset { id: MessageNumber(0), code: 42 })).unwrap();
    assert_eq!(actions(&mut inbox), []);
    assert_eq!(read(&mut inbox), whole(0, TEN));
}

#[test]
fn after_a_stream_reset_another_stream_may_carry_the_rest() {
    let mut inbox = inbox();
    let bytes = message(run(0, 0, 10), TEN);
    inbox.stream_data(PEER_UNI, 0, bytes.slice(..10)).unwrap();
    inbox.stream_reset(PEER_UNI).unwrap();
    inbox.stream_data(PEER_UNI, 10, bytes.slice(10..)).unwrap();
    assert_eq!(read(&mut inbox), vec![(0, b"0123".to_vec(), false)]);
    inbox.stream_data(PEER_UNI + 4, 0, message(run(0, 4, 6), &TEN[4..])).unwrap();
    assert_eq!(read(&mut inbox), vec![(0, b"456789".to_vec(), true)]);
    assert_eq!(actions(&mut inbox), []);
}

#[test]
fn done_comes_back_on_our_own_streams_and_on_the_control_stream() {
    let mut inbox = inbox();
    let done = |id| control(Frame::Done { id: MessageNumber(id) });
    inbox.stream_data(OUR_BIDI, 0, done(3)).unwrap();
    inbox.stream_data(PEER_UNI, 2, done(5)).unwrap();
    inbox.stream_data(PEER_UNI, 0, done(4)).unwrap();
    let acknowledged = |stream, id| Action::Acknowledged { stream, message: MessageNumber(id) };
    assert_eq!(
        actions(&mut inbox),
        [acknowledged(OUR_BIDI, 3), acknowledged(PEER_UNI, 4), acknowledged(PEER_UNI, 5)]
    );
}

#[test]
fn reports_and_ends_come_on_the_control_stream() {
    let mut inbox = inbox();
    let report = control(Frame::Report { id: MessageNumber(4), fate: Fate::Discarded });
    let end = control(Frame::End { exchange: 5, reason: EndReason::Withdrawn });
    inbox.stream_data(PEER_UNI, 0, [report, end].concat().into()).unwrap();
    let reported = Action::Reported { message: MessageNumber(4), fate: Fate::Discarded };
    let ended = Action::Ended { exchange: 5, reason: EndReason::Withdrawn };
    assert_eq!(actions(&mut inbox), [reported, ended]);
}

#[test]
fn pieces_name_what_their_message_asks_for() {
    let mut inbox = inbox();
    let asks = MessageFrame { report: true, exchange: Exchange::Request(9), ..run(0, 0, 10) };
    inbox.stream_data(PEER_UNI, 0, message(asks, TEN)).unwrap();
    let piece = inbox.read().unwrap();
    assert_eq!((piece.report, piece.exchange), (true, Exchange::Request(9)));
}

#[test]
fn frames_go_only_where_they_belong() {
    let message = message(run(0, 0, 10), TEN);
    let reset = control(Frame::Reset { id: MessageNumber(0), code: 0 });
    let done = control(Frame::Done { id: MessageNumber(0) });
    let report = control(Frame::Report { id: MessageNumber(0), fate: Fate::Taken });
    let end = control(Frame::End { exchange: 0, reason: EndReason::Refused });
    for (id, bytes) in [
        (OUR_BIDI, &message),
        (OUR_BIDI, &reset),
        (OUR_BIDI, &report),
        (OUR_BIDI, &end),
        (PEER_BIDI, &reset),
        (PEER_BIDI, &done),
        (PEER_BIDI, &report),
        (PEER_BIDI, &end),
    ] {
        assert_eq!(
            inbox().stream_data(id, 0, bytes.clone()),
            Err(InboxError::Misplaced { stream: id, at: 0 })
        );
    }
    let mut inbox = inbox();
    assert_eq!(
        inbox.stream_data(OUR_UNI, 0, done.clone()),
        Err(InboxError::NotReceiving { stream: OUR_UNI })
    );
    let mut inbox = self::inbox();
    inbox.stream_data(PEER_UNI, 0, done.clone()).unwrap();
    let second = Err(InboxError::SecondControlStream { stream: PEER_UNI + 4 });
    assert_eq!(inbox.stream_data(PEER_UNI + 4, 0, reset), second);
    assert_eq!(inbox.stream_data(PEER_UNI, 2, done), second, "an inbox that failed stays so");
    let mut inbox = self::inbox();
    inbox.stream_data(PEER_UNI, 0, control(Frame::Done { id: MessageNumber(0) })).unwrap();
    assert_eq!(
        inbox.stream_data(PEER_UNI, 2, message),
        Err(InboxError::Misplaced { stream: PEER_UNI, at: 2 })
    );
}

#[test]
fn frames_of_one_message_have_to_agree() {
    let open = |offset, len| MessageFrame { last: false, ..run(0, offset, len) };
    let number = MessageNumber(0);
    let bytes = Bytes::new;
    let cases = [
        (
            run(0, 0, 10),
            MessageFrame { priority: Priority::P2, ..run(0, 0, 10) },
            InboxError::Priority { message: number, was: Priority::P1, now: Priority::P2 },
        ),
        (
            run(0, 0, 10),
            MessageFrame { report: true, ..run(0, 0, 10) },
            InboxError::FlagsDiffer { message: number },
        ),
        (
            run(0, 0, 10),
            MessageFrame { exchange: Exchange::Reply(0), ..run(0, 0, 10) },
            InboxError::FlagsDiffer { message: number },
        ),
        (run(0, 0, 10), run(0, 0, 9), InboxError::TwoEnds { message: number, was: bytes(10), now: bytes(9) }),
        (
            run(0, 0, 10),
            open(5, 6),
            InboxError::BeyondEnd { message: number, end: bytes(10), reach: bytes(11) },
        ),
        (
            open(5, 6),
            run(0, 0, 10),
            InboxError::BeyondEnd { message: number, end: bytes(10), reach: bytes(11) },
        ),
        (run(0, 0, 10), open(5, 5), InboxError::LastDiffers { message: number, end: bytes(10) }),
        (open(5, 5), run(0, 0, 10), InboxError::LastDiffers { message: number, end: bytes(10) }),
    ];
    for (first, second, error) in cases {
        let mut inbox = inbox();
        inbox.stream_data(PEER_UNI, 0, message(first, b"")).unwrap();
        assert_eq!(inbox.stream_data(PEER_UNI + 4, 0, message(second, b"")), Err(error));
    }
    // The end may be given late, without payload, in any order.
    for (first, second) in [(run(0, 10, 0), open(5, 5)), (open(5, 5), run(0, 10, 0))] {
        let mut inbox = inbox();
        inbox.stream_data(PEER_UNI, 0, message(first, b"")).unwrap();
        inbox.stream_data(PEER_UNI + 4, 0, message(second, b"")).unwrap();
    }
}

#[test]
fn a_stream_that_ends_within_a_frame_or_twice_is_an_error() {
    let bytes = message(run(0, 0, 10), TEN);
    for cut in [1, 5, 6, 15] {
        let short = Err(InboxError::CutShort { stream: PEER_UNI, end: cut as u64 });
        let mut end_last = inbox();
        end_last.stream_data(PEER_UNI, 0, bytes.slice(..cut)).unwrap();
        assert_eq!(end_last.stream_finished(PEER_UNI, cut as u64), short);
        let mut end_first = inbox();
        end_first.stream_finished(PEER_UNI, cut as u64).unwrap();
        assert_eq!(end_first.stream_data(PEER_UNI, 0, bytes.slice(..cut)), short);
    }
    let mut inbox = inbox();
    inbox.stream_finished(PEER_UNI, 16).unwrap();
    assert_eq!(inbox.stream_finished(PEER_UNI, 17), Err(InboxError::FinalSize { stream: PEER_UNI, end: 17 }));
    let mut inbox = self::inbox();
    inbox.stream_finished(PEER_UNI, 15).unwrap();
    assert_eq!(
        inbox.stream_data(PEER_UNI, 0, bytes),
        Err(InboxError::FinalSize { stream: PEER_UNI, end: 16 })
    );
    let mut inbox = self::inbox();
    inbox.stream_finished(PEER_UNI, 0).unwrap();
    assert_eq!(inbox.load().streams, 0, "a stream without anything is none");
}

#[test]
fn bytes_that_are_no_frame_are_named_by_place() {
    let mut inbox = inbox();
    let error = inbox.stream_data(PEER_UNI, 0, Payload::from_static(b"\x01\x00\x07")).unwrap_err();
    assert_eq!(
        error.to_string(),
        "invalid frame at byte 0 of stream 3: priority 7 at byte 2 is unknown: it must be 0 to 4"
    );
    assert_eq!(error.code(), marcato_wire::ErrorCode::ProtocolViolation);
}

#[test]
fn a_slow_reader_pushes_back_before_it_is_overfed() {
    let mut inbox = limited(|limits| {
        limits.unread = Bytes::new(15);
        limits.ahead = Bytes::ZERO;
        limits.parked = Bytes::ZERO;
    });
    let mut next = 0;
    let mut feed = |inbox: &mut Inbox| {
        next += 1;
        inbox.stream_data(PEER_UNI + 4 * (next - 1), 0, message(run(next - 1, 0, 10), TEN))
    };
    assert!(inbox.wants_data());
    feed(&mut inbox).unwrap();
    assert!(inbox.wants_data());
    feed(&mut inbox).unwrap();
    assert!(!inbox.wants_data());
    inbox.read().unwrap();
    assert!(inbox.wants_data());
    feed(&mut inbox).unwrap();
    feed(&mut inbox).unwrap();
    assert_eq!(feed(&mut inbox), Err(InboxError::Overfed));
    assert_eq!(InboxError::Overfed.code(), marcato_wire::ErrorCode::LimitExceeded);
}

#[test]
fn a_message_with_a_gap_never_pushes_back() {
    let mut inbox = limited(|limits| limits.unread = Bytes::new(5));
    let bytes = message(run(0, 0, 10), TEN);
    inbox.stream_data(PEER_UNI, 7, bytes.slice(7..)).unwrap();
    inbox.stream_data(PEER_UNI, 0, bytes.slice(..6)).unwrap();
    assert_eq!(inbox.load().ahead.get(), 9);
    assert!(inbox.wants_data(), "otherwise what fills the gap would never be read");
    inbox.stream_data(PEER_UNI, 6, bytes.slice(6..7)).unwrap();
    assert!(!inbox.wants_data());
}

/// Feeds `flood` of 0, 1, 2, … until the inbox reports a limit, and returns the limit and the
/// round.
fn flood(mut inbox: Inbox, mut flood: impl FnMut(u64) -> (u64, u64, Payload)) -> (InboxLimit, u64) {
    for round in 0..100 {
        let (id, offset, bytes) = flood(round);
        match inbox.stream_data(id, offset, bytes) {
            Ok(()) => {}
            Err(InboxError::Limit { limit, most }) => {
                assert_eq!(most, 10);
                return (limit, round);
            }
            Err(other) => panic!("{other}"),
        }
        inbox.read();
    }
    panic!("100 rounds were no flood");
}

#[test]
fn every_flood_meets_its_limit() {
    let open = |id, offset, len| message(MessageFrame { last: false, ..run(id, offset, len) }, b"");
    let one = || Payload::from_static(b"x");

    let inbox = limited(|limits| limits.open_messages = 10);
    let messages = flood(inbox, |n| (PEER_UNI + 4 * n, 0, open(n, 0, 1)));
    assert_eq!(messages, (InboxLimit::OpenMessages, 10));

    let inbox = limited(|limits| limits.streams = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI + 4 * n, 9, one())), (InboxLimit::Streams, 10));

    // Every second stream is reset, so that none is open.
    let mut inbox = limited(|limits| limits.streams = 10);
    let streams = (0..100).map_while(|n| inbox.stream_reset(PEER_UNI + 8 * (n + 1)).ok()).count();
    assert_eq!(streams, 10);

    let inbox = limited(|limits| limits.streams_per_message = 10);
    let carriers = flood(inbox, |n| (PEER_UNI + 4 * n, 0, open(0, 2 * n, 1)));
    assert_eq!(carriers, (InboxLimit::StreamsPerMessage, 10));

    let inbox = limited(|limits| limits.parked_per_stream = Bytes::new(10));
    assert_eq!(flood(inbox, |n| (PEER_UNI, n + 1, one())), (InboxLimit::ParkedPerStream, 10));

    let inbox = limited(|limits| limits.parked = Bytes::new(10));
    assert_eq!(flood(inbox, |n| (PEER_UNI + 4 * n, 1, one())), (InboxLimit::Parked, 10));

    let inbox = limited(|limits| limits.pieces = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI, n + 1, one())), (InboxLimit::Pieces, 10));

    let inbox = limited(|limits| limits.gaps_per_stream = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI, 2 * n + 1, one())), (InboxLimit::GapsPerStream, 10));

    let inbox = limited(|limits| limits.gaps = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI + 4 * n, 1, one())), (InboxLimit::Gaps, 10));

    let header = |n: u64| if n == 0 { open(0, 0, 63) } else { one() };
    let at = |n: u64| if n == 0 { 0 } else { 6 + 2 * n };
    let inbox = limited(|limits| limits.ahead = Bytes::new(10));
    assert_eq!(flood(inbox, |n| (PEER_UNI, at(n), header(n))), (InboxLimit::Ahead, 11));

    let inbox = limited(|limits| limits.ahead_pieces_per_message = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI, at(n), header(n))), (InboxLimit::AheadPiecesPerMessage, 11));

    let reset = |id| control(Frame::Reset { id: MessageNumber(id), code: 0 });
    let inbox = limited(|limits| limits.id_gaps = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI, 3 * n, reset(2 * n + 1))), (InboxLimit::IdGaps, 10));

    let inbox = limited(|limits| limits.actions = 10);
    assert_eq!(flood(inbox, |n| (PEER_UNI, 3 * n, reset(n))), (InboxLimit::Actions, 10));
    let inbox = limited(|limits| limits.actions = 10);
    let many = Payload::from((0..60).flat_map(|n| reset(n).to_vec()).collect::<Vec<u8>>());
    assert_eq!(flood(inbox, |_| (PEER_UNI, 0, many.clone())), (InboxLimit::Actions, 0));
}

#[test]
fn old_hints_make_room_for_new_ones() {
    let mut inbox = limited(|limits| limits.hints = 10);
    for n in 0..100 {
        let frame = copy(MessageFrame { last: false, ..run(n, 0, 1) }, 0, 2);
        inbox.stream_data(PEER_UNI + 8 * n, 0, message(frame, b"")).unwrap();
    }
    assert_eq!((inbox.load().hints, inbox.counters().hints_evicted), (10, 90));
}

#[test]
fn streams_that_are_over_count_towards_no_limit() {
    let mut inbox = limited(|limits| {
        limits.streams_per_message = 1;
        limits.streams = 1;
        limits.hints = 1;
    });
    for n in 0..50 {
        let frame = MessageFrame { last: false, ..run(0, 2 * n, 2) };
        let bytes = message(frame, b"xy");
        let id = PEER_UNI + 4 * n;
        let whole = n % 2 == 0;
        inbox.stream_data(id, 0, bytes.slice(..bytes.len() - usize::from(!whole))).unwrap();
        if whole {
            inbox.stream_finished(id, bytes.len() as u64).unwrap();
        } else {
            inbox.stream_reset(id).unwrap();
        }
        assert_eq!(inbox.load().streams, 0);
    }
    let announcing = copy(run(1, 0, 10), 0, 2);
    inbox.stream_data(PEER_UNI + 400, 0, message(announcing, b"")).unwrap();
    assert_eq!(inbox.load().hints, 1);
    inbox.stream_reset(PEER_UNI + 404).unwrap();
    assert_eq!(inbox.load().hints, 0, "a hint is forgotten with its stream");
}

#[test]
fn an_inbox_with_nothing_readable_wants_data_despite_any_limit() {
    let mut inbox = limited(|limits| limits.unread_messages = 0);
    assert!(inbox.wants_data());
    inbox.stream_data(PEER_UNI, 0, message(run(0, 0, 10), TEN)).unwrap();
    assert!(!inbox.wants_data());
    inbox.read().unwrap();
    assert!(inbox.wants_data());
}

#[test]
fn a_readable_message_that_is_given_up_hides_no_other() {
    let mut inbox = inbox();
    inbox.stream_data(PEER_UNI, 0, message(run(0, 0, 10), TEN).slice(..9)).unwrap();
    assert!(inbox.is_readable());
    inbox.stream_data(PEER_UNI + 4, 0, control(Frame::Reset { id: MessageNumber(0), code: 42 })).unwrap();
    assert!(!inbox.is_readable());
    inbox.stream_data(PEER_UNI + 8, 0, message(run(1, 0, 10), TEN)).unwrap();
    assert_eq!(read(&mut inbox), whole(1, TEN));
}

/// A message that is complete waits for the reader, not for the peer.
#[test]
fn only_messages_with_missing_bytes_count_as_open() {
    let mut inbox = limited(|limits| limits.open_messages = 3);
    for n in 0..20 {
        inbox.stream_data(PEER_UNI + 4 * n, 0, message(run(n, 0, 10), TEN)).unwrap();
    }
    assert_eq!((inbox.load().open_messages, inbox.load().unread_messages), (0, 20));
    let begin =
        |inbox: &mut Inbox, n| inbox.stream_data(PEER_UNI + 4 * n, 0, message(run(n, 0, 10), TEN).slice(..8));
    for n in 20..23 {
        begin(&mut inbox, n).unwrap();
    }
    let limit = Err(InboxError::Limit { limit: InboxLimit::OpenMessages, most: 3 });
    assert_eq!((inbox.load().open_messages, begin(&mut inbox, 23)), (3, limit));
}

/// The documentation of each limit names its default.
#[test]
fn the_default_limits_are_those_that_are_documented() {
    let text = include_str!("limits.rs");
    let fields = text.split_once("pub struct InboxLimits {").unwrap().1.split_once("\n}").unwrap().0;
    let mut documented = Vec::new();
    for sentence in fields.split("pub ").filter(|text| text.contains("///")) {
        let Some((_, rest)) = sentence.rsplit_once('(') else { continue };
        let number = rest.split_once(')').unwrap().0;
        let unit = if number.ends_with(" MiB") { 1 << 20 } else { 1 };
        let digits: String = number.chars().filter(char::is_ascii_digit).collect();
        documented.push(digits.parse::<u64>().unwrap() * unit);
    }
    let limits = InboxLimits::default();
    let [unread, ahead, parked_per_stream, parked] =
        [limits.unread, limits.ahead, limits.parked_per_stream, limits.parked].map(Bytes::get);
    let InboxLimits { unread_pieces, unread_messages, open_messages, .. } = limits;
    let InboxLimits { ahead_pieces_per_message, pieces, streams, gaps_per_stream, gaps, .. } = limits;
    let InboxLimits { streams_per_message, id_gaps, hints, actions, .. } = limits;
    let counts = [pieces, streams, gaps_per_stream, gaps, streams_per_message, id_gaps, hints, actions];
    let mut all = vec![unread, unread_pieces as u64, unread_messages as u64, open_messages as u64, ahead];
    all.extend([ahead_pieces_per_message as u64, parked_per_stream, parked]);
    all.extend(counts.map(|count| count as u64));
    assert_eq!(all, documented);
}
