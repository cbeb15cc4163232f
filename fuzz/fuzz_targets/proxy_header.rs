//! Bytes of anyone as a header of the PROXY protocol: no panic, a length within the bytes, and the same from a stream.
#![no_main]

use marcato_web::ProxyHeader;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let parsed = ProxyHeader::parse(bytes);
    if let Ok(Some((header, len))) = parsed {
        assert!(len <= bytes.len());
        // The header is over where it says: what follows changes nothing.
        assert_eq!(ProxyHeader::parse(&bytes[..len]), Ok(Some((header, len))));
        assert_eq!(ProxyHeader::parse(&bytes[..len - 1]), Ok(None));
        let mut stream = bytes;
        let read = output(ProxyHeader::read(&mut stream));
        assert_eq!((read.ok(), stream.len()), (Some(header), bytes.len() - len));
    }
});

/// Returns the output of a future that never waits.
fn output<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    loop {
        if let std::task::Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
}
