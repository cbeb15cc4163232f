//! No bytes of an HTTP/2 client make the reader of its signals panic, or any table exceed its limit.
//! The split of the bytes changes no event.
#![no_main]

use marcato_sched::order::StreamId;
use marcato_web::{Event, FrameReader, Protocol, Signals};

/// Most open requests.
const LIMIT: usize = 4;

libfuzzer_sys::fuzz_target!(|script: &[u8]| {
    let Some((&[cut, begun], bytes)) = script.split_first_chunk() else { return };
    // Half of the inputs are frames, as few would have the preface.
    let preface: &[u8] = if begun & 1 == 0 { b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" } else { b"" };
    let bytes = [preface, bytes].concat();
    let mut whole = Vec::new();
    let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
    let outcome = reader.feed(&bytes, |event| whole.push(event));

    let mut split = Vec::new();
    let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
    let mut last = Ok(());
    for piece in bytes.chunks(usize::from(cut) + 1) {
        last = last.and(reader.feed(piece, |event| split.push(event)));
    }
    assert_eq!((&split, last), (&whole, outcome));
    assert!(whole.len() <= bytes.len());
    assert!(outcome.is_ok() || reader.has_stopped());

    let mut signals = Signals::new(Protocol::Http2, LIMIT);
    for event in whole {
        if signals.event(event).is_err() {
            return;
        }
        // Every other stream that opens becomes a request; the oldest makes room for it.
        if let Event::Headers { stream, .. } = event
            && stream.0 % 4 == 1
        {
            if signals.open() == LIMIT {
                let open = (0..stream.0).map(StreamId).find(|stream| signals.decision(*stream).is_some());
                open.map(|oldest| signals.close(oldest));
            }
            let _ = signals.request(stream, [b"u=2".as_slice()].into_iter().filter(|_| begun & 2 != 0), None);
        }
        while let Some((stream, decision)) = signals.next_change() {
            assert_eq!(signals.decision(stream), Some(decision));
        }
        assert!(signals.open() <= LIMIT && signals.waiting().len() <= LIMIT);
    }
});
