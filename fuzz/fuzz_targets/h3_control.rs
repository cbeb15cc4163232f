//! Control streams of HTTP/3: any bytes, in any parts, tell the same updates, and no more frames than there are bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_sched::order::StreamId;
use marcato_web::{ControlReader, Protocol, Signals};

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (cut, bytes) = input;
    // Most inputs should be control streams.
    let stream = [&[0][..], &bytes].concat();
    let read = |len: usize| {
        let (mut reader, mut told) = (ControlReader::default(), Vec::new());
        let mut frames = 0;
        for part in stream.chunks(len.max(1)) {
            reader.feed(part, |update| told.push(update));
            frames += reader.take_frames() as usize;
        }
        (told, frames)
    };
    let whole = read(usize::MAX);
    assert_eq!(whole, read(cut.into()));
    assert!(whole.0.len() <= whole.1 && whole.1 <= stream.len() / 2);
    let mut signals = Signals::new(Protocol::Http3, 8);
    for update in whole.0.into_iter().flatten() {
        signals.update(update).expect("over HTTP/3 the oldest make room");
        assert!(signals.waiting().len() <= 8 && update.stream.0.is_multiple_of(4));
    }
    assert_eq!(signals.decision(StreamId(0)), None);
});
