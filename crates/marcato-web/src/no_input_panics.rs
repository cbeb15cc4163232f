//! One test of all readers of bytes from clients and from files: none panics.

use http::HeaderValue;
use marcato_units::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::string::bytes_regex;
use proptest::test_runner::TestRunner;

use crate::encoding::Accepted;
use crate::{FrameReader, GuessTable, PriorityField, RequestHints, ResponseHints, Update, files, proxy};

/// Name of a reader, inputs near those that it accepts, and a call of it.
type Reader = (&'static str, &'static str, fn(&[u8]));

const READERS: &[Reader] = &[
    ("priority field", "[ui=?01239,; ()\":@%.a-]{0,40}", |bytes| _ = PriorityField::parse(bytes)),
    ("updates", "(?s-u:\\x00\\x00\\x00.[ui=?0-9, ]{0,40})", |bytes| {
        for number in bytes.first_chunk().map_or(0, |first| u32::from_be_bytes(*first)).to_be_bytes() {
            let _ = Update::from_http2(number.into(), bytes);
            let _ = Update::from_http3(number.into(), bytes);
        }
        let _ = Update::from_http3(Update::HTTP3_REQUEST_TYPE, bytes);
    }),
    (
        "frames",
        "(?s-u:PRI \\* HTTP/2\\.0\r\n\r\nSM\r\n\r\n(\\x00\\x00..[\\x00-\\x30].{0,60}){0,5})",
        |bytes| {
            for piece in [1, 7, usize::MAX] {
                let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
                let _ = bytes.chunks(piece).try_for_each(|piece| reader.feed(piece, |_| {}));
            }
        },
    ),
    ("accept-encoding", "((br|gzip|zstd|\\*|x)(;q=[01]\\.?[0-9]{0,4})?,? ?){0,6}", |bytes| {
        if let Ok(line) = HeaderValue::from_bytes(bytes) {
            Accepted::parse([&line]).choose(|_| true);
        }
    }),
    (
        "fields of files",
        "(bytes=[0-9, -]{0,30}|(W/)?\"[a-f0-9-]{0,20}\"(, ?\"a\")?|\\*)",
        files::read_as_fields,
    ),
    ("guess", "(/[a-z.?#%]{0,20}|[a-z/+;= \"-]{0,30})", |bytes| {
        let (table, value) = (GuessTable::default(), Some(bytes));
        let path = String::from_utf8_lossy(bytes);
        let hints = RequestHints { path: &path, destination: value, purpose: value, save_data: value };
        let length = bytes.first_chunk().map(|first| Bytes::new(u64::from_be_bytes(*first)));
        let response = ResponseHints { content_type: value, disposition: value, length };
        table.response(table.request(&hints), &response);
        table.declines(&hints);
    }),
    ("upstream", "(http://|h2c://|https://)?[a-z0-9.:/@\\[\\]?-]{0,20}", |bytes| {
        let _ = proxy::ProxyConfig::to(String::from_utf8_lossy(bytes)).validate();
    }),
];

#[test]
fn no_input_makes_a_reader_panic() {
    for &(name, near, read) in READERS {
        let noise = vec(any::<u8>(), 0..400).boxed();
        let near = bytes_regex(near).unwrap().boxed();
        let run = TestRunner::default().run(&prop_oneof![noise, near], |bytes| {
            read(&bytes);
            Ok(())
        });
        assert!(run.is_ok(), "{name}: {run:?}");
    }
}
