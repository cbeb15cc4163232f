//! Time of the exchange's decisions.
//!
//! `cargo bench -p marcato-sched --bench exchange`; limit: a grant at 1000 open responses takes at most
//! 100 ns.
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use marcato_sched::exchange::{Config, Deadline, Exchange, GroupId, Parameters, Urgency};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Duration, Rate, Time};

const CHUNK: Bytes = Bytes::new(1400);

/// Returns an exchange with so many responses that never end.
fn filled(responses: u64, parameters: impl Fn(u64) -> Parameters) -> Exchange {
    let config = Config { max_responses: 10_001, max_staged: Bytes::MAX, ..Config::default() };
    let mut exchange = Exchange::new(config).unwrap();
    for stream in 0..responses {
        let mut response = exchange.open(StreamId(4 * stream), parameters(stream)).unwrap();
        response.supply(Bytes::new(1 << 40)).unwrap();
    }
    exchange
}

fn sequential(_: u64) -> Parameters {
    Parameters::default()
}

fn incremental(_: u64) -> Parameters {
    Parameters::incremental(Urgency::DEFAULT)
}

/// Returns parameters of all urgencies and both kinds.
fn mixed(stream: u64) -> Parameters {
    let urgency = u8::try_from(stream % 8).ok().and_then(Urgency::new).unwrap();
    Parameters { incremental: stream / 8 % 2 == 1, ..Parameters::sequential(urgency) }
}

/// Returns parameters of 16 groups that share.
fn grouped(stream: u64) -> Parameters {
    Parameters::default().in_group(GroupId(stream % 16)).ordered(stream.cast_signed())
}

/// Returns parameters of a group for each response.
fn alone(stream: u64) -> Parameters {
    Parameters::default().in_group(GroupId(stream))
}

fn exchange(c: &mut Criterion) {
    type Fill = fn(u64) -> Parameters;
    let kinds: [(&str, Fill); 5] = [
        ("sequential", sequential),
        ("incremental", incremental),
        ("mixed", mixed),
        ("16 groups", grouped),
        ("group for each", alone),
    ];
    for (kind, parameters) in kinds {
        let mut group = c.benchmark_group(format!("grant/{kind}"));
        for responses in [1, 100, 1000, 10_000] {
            let mut exchange = filled(responses, parameters);
            group.bench_function(BenchmarkId::new("responses", responses), |b| {
                b.iter(|| exchange.grant(black_box(CHUNK)));
            });
        }
        group.finish();
    }

    let mut refusing = filled(1000, mixed);
    c.bench_function("grant and refuse half/1000 responses", |b| {
        b.iter(|| {
            let grant = refusing.grant(black_box(CHUNK)).unwrap();
            refusing.refuse(grant, black_box(CHUNK / 2))
        });
    });

    let mut steady = filled(1000, mixed);
    c.bench_function("grant, sent and supply/1000 responses", |b| {
        b.iter(|| {
            let grant = steady.grant(black_box(CHUNK)).unwrap();
            let mut response = steady.response_mut(grant.stream).unwrap();
            response.sent(grant.len).unwrap();
            response.supply(grant.len)
        });
    });

    let mut due = filled(1000, grouped);
    let at = Time::from_secs(1 << 32);
    due.response_mut(StreamId(0)).unwrap().set_deadline(Some(Deadline { at, drops: true }));
    c.bench_function("expire/1000 responses", |b| {
        b.iter(|| due.expire(black_box(Time::ZERO), Rate::from_mbps(1_000_000), Duration::ZERO, |_| {}));
    });

    let mut changing = filled(1000, mixed);
    let stream = StreamId(2001);
    c.bench_function("open, supply, finish and close/1000 responses", |b| {
        b.iter(|| {
            let mut response = changing.open(stream, black_box(Parameters::default())).unwrap();
            response.supply(black_box(CHUNK)).unwrap();
            response.finish();
            changing.close(stream)
        });
    });
}

criterion_group!(benches, exchange);
criterion_main!(benches);
