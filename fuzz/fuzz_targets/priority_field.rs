//! No value of a `priority` field makes its parser panic. A parsed field is written and read back.
#![no_main]

use marcato_sched::exchange::Parameters;
use marcato_web::{FieldError, PriorityField, Update};

libfuzzer_sys::fuzz_target!(|value: &[u8]| {
    let parsed = PriorityField::parse(value);
    match parsed {
        Ok(field) => {
            let written = field.to_string();
            assert_eq!(PriorityField::parse(written.as_bytes()), Ok(field));
            assert_eq!(
                PriorityField::from(field.parameters()).over(Parameters::default()),
                field.parameters()
            );
        }
        Err(FieldError::TooLong) => assert!(value.len() > PriorityField::MAX_LEN),
        Err(FieldError::Malformed) => {}
    }
    // Lines of a message form one value: here they are parted at line feeds.
    let lines: Vec<&[u8]> = value.split(|byte| *byte == b'\n').collect();
    assert_eq!(PriorityField::combine(lines.iter().copied()), PriorityField::parse(&lines.join(&b", "[..])));
    // The same value in frames, after the id of stream 1 or 4.
    let http2 = Update::from_http2(0, &[b"\0\0\0\x01", value].concat());
    let http3 = Update::from_http3(Update::HTTP3_REQUEST_TYPE, &[b"\x04", value].concat());
    assert_eq!(http2.ok().map(|update| update.field), parsed.ok());
    assert_eq!(http3.ok().map(|update| update.field), parsed.ok());
});
