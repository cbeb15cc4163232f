//! No bytes within TLS make the reader of a TCP connection panic, or keep more than its limits
//! allow.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| marcato_net::fuzzing::tcp_frames(script));
