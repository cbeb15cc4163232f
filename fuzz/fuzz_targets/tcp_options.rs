//! No option bytes make the parser panic, and parsed options survive writing and parsing unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_wire::{EmitError, MAX_OPTIONS, TcpOption, TcpOptions, emit_options, options_len};

fuzz_target!(|bytes: &[u8]| {
    assert!(TcpOptions::new(bytes).count() <= bytes.len());
    let options: Vec<TcpOption<'_>> = TcpOptions::new(bytes).filter_map(Result::ok).collect();
    let mut out = [0xff; MAX_OPTIONS];
    match emit_options(&options, &mut out) {
        Ok(written) => {
            assert_eq!(written as u64, options_len(&options).get());
            let back: Result<Vec<_>, _> = TcpOptions::new(&out[..written]).collect();
            assert_eq!(back.as_ref(), Ok(&options));
        }
        // Options parsed from one header fit into another: errors and bytes after the list are left
        // out.
        Err(EmitError::NoRoom { .. } | EmitError::EmptySack | EmitError::NotUnknown { .. }) => {
            panic!("{options:?} were read but cannot be written")
        }
    }
});
