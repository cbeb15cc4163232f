//! No bytes make the decoder of `marcato perf` panic, and a decoded value survives encoding and
//! decoding unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_cli::perf::protocol::{
    MAX_ARRIVALS, MAX_CONNECTIONS, MAX_DATA_HEADER, MAX_REPORTED_LANES, MAX_SOURCES, Reply, Request,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(request) = Request::decode(bytes) {
        if let Request::Hello(hello) = &request {
            let load = hello.load.as_ref();
            let sources = load.map_or(0, |load| load.sources.len() + usize::from(load.bulk.is_some()));
            assert!(hello.sources.len() <= MAX_SOURCES && sources <= MAX_SOURCES);
            assert!(hello.number < hello.connections && hello.connections <= MAX_CONNECTIONS);
        }
        let mut out = Vec::new();
        request.encode(&mut out);
        if let Request::Data(piece) = request {
            assert!(piece.offset + bytes.len() as u64 <= piece.total && out.len() <= MAX_DATA_HEADER);
            // If the input used a longer encoding than needed, the rest counts as payload.
            out.resize(bytes.len().max(out.len()), 0);
        } else {
            assert!(out.len() <= bytes.len());
        }
        assert_eq!(Request::decode(&out), Ok(request));
    }
    if let Ok(reply) = Reply::decode(bytes) {
        if let Reply::Report(report) = &reply {
            assert!(report.totals.len() <= MAX_SOURCES && report.arrivals.len() <= MAX_ARRIVALS);
            if let Some(progress) = &report.progress {
                assert!(progress.released.len() <= MAX_SOURCES && progress.lanes.len() <= MAX_REPORTED_LANES);
            }
        }
        let mut out = Vec::new();
        reply.encode(&mut out);
        assert!(out.len() <= bytes.len());
        assert_eq!(Reply::decode(&out), Ok(reply));
    }
});
