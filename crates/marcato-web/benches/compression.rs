//! Price of compression in time of the processor, and what it saves.
//!
//! `cargo bench -p marcato-web --bench compression`. Before the times, it prints the share of the content that is
//! left. The content is the manual of the server: prose with tables.
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::{Request, Response};
use http_body::Body as _;
use http_body_util::Full;
use marcato_web::compression::{Codec, Compression, CompressionConfig};

/// Compresses content as a response, and returns the length that is sent.
fn compress(compression: &Compression, content: &Bytes) -> usize {
    let name = compression.config().codecs[0].name();
    let mut request = Request::get("/").header("accept-encoding", name).body(()).unwrap();
    let negotiated = compression.negotiate(&mut request);
    let response = Response::builder().header("content-type", "text/html");
    let mut body = negotiated.apply(response.body(Full::new(content.clone())).unwrap()).into_body();
    let mut cx = Context::from_waker(Waker::noop());
    let mut sent = 0;
    loop {
        match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(Some(frame)) => sent += frame.unwrap().into_data().unwrap().len(),
            Poll::Ready(None) => return sent,
            // It gives way to other responses.
            Poll::Pending => {}
        }
    }
}

fn compression(criterion: &mut Criterion) {
    let manual = include_bytes!("../../../docs/serve.md");
    for len in [1 << 12, 1 << 15, 1 << 18] {
        let content: Bytes = manual.iter().copied().cycle().take(len).collect();
        let content = if len <= manual.len() { content } else { distinct(len) };
        let mut group = criterion.benchmark_group(format!("{} KiB", len >> 10));
        group.throughput(Throughput::Bytes(len as u64));
        for codec in [
            Codec::Zstd(1),
            Codec::ZSTD,
            Codec::Zstd(9),
            Codec::Brotli(1),
            Codec::BROTLI,
            Codec::Brotli(6),
            Codec::Gzip(1),
            Codec::GZIP,
            Codec::Gzip(9),
        ] {
            let mut config = CompressionConfig::default();
            config.codecs = vec![codec];
            let compression = Compression::new(config).unwrap();
            let share = 100.0 * compress(&compression, &content) as f64 / len as f64;
            println!("{codec:?} of {} KiB leaves {share:.1} %", len >> 10);
            group.bench_function(BenchmarkId::from_parameter(format!("{codec:?}")), |bencher| {
                bencher.iter(|| compress(&compression, &content));
            });
        }
        group.finish();
    }
}

/// Long text without long repetitions: the manuals of the repository, one after the other.
fn distinct(len: usize) -> Bytes {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let mut paths: Vec<_> = std::fs::read_dir(docs).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let texts = paths.iter().filter(|path| path.extension().is_some_and(|it| it == "md"));
    let text: Vec<u8> = texts.flat_map(|path| std::fs::read(path).unwrap()).take(len).collect();
    assert_eq!(text.len(), len, "the manuals are shorter");
    text.into()
}

criterion_group!(benches, compression);
criterion_main!(benches);
