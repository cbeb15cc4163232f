//! No bytes make the frame decoder panic, and a decoded frame survives encoding and decoding
//! unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_wire::{Decoded, Frame, MAX_FRAME_HEADER, Unreliable};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(unreliable) = Unreliable::decode(bytes) {
        assert_eq!([&[unreliable.header()], unreliable.body].concat(), bytes);
    }
    let decoded = Frame::decode(bytes);
    match decoded {
        Ok(Decoded::Frame { frame, len }) => {
            assert!(len <= bytes.len() && len <= MAX_FRAME_HEADER);
            let mut out = [0xff; MAX_FRAME_HEADER];
            let written = frame.encode(&mut out).expect("what was read can be written");
            assert!(written <= len);
            // Fields have one shortest form, so that the same length means the same bytes.
            assert!(written < len || out[..written] == bytes[..len]);
            assert_eq!(Frame::decode(&out[..written]), Ok(Decoded::Frame { frame, len: written }));
            for cut in 0..len {
                match Frame::decode(&bytes[..cut]) {
                    Ok(Decoded::Incomplete { needed }) => assert!(cut < needed && needed <= len),
                    other => panic!("{other:?} from {cut} of {len} bytes"),
                }
            }
        }
        Ok(Decoded::Incomplete { needed }) => assert!(bytes.len() < needed && needed <= MAX_FRAME_HEADER),
        // More bytes do not turn an error into a frame.
        Err(error) => {
            let mut more = bytes.to_vec();
            more.extend([0; 8]);
            assert_eq!(Frame::decode(&more), Err(error));
        }
    }
});
