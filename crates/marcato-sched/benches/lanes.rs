//! Time of a lane scheduler's decision.
//!
//! `cargo bench -p marcato-sched --bench lanes`; limit: a choice among 8 lanes with 8 sources takes
//! less than 100 ns.
#![allow(missing_docs, reason = "criterion's macros generate undocumented items")]
#![allow(clippy::unwrap_used, reason = "a benchmark that fails should stop")]

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_sched::schedule::{
    Cwr, CwrConfig, CwrRed, Fresh, LaneScheduler, Layered, LayeredConfig, LowRtt, Offer, RoundRobin,
    Selective,
};
use marcato_sched::{LaneId, LaneView, Purpose};
use marcato_units::{Bytes, Duration, Layer, Priority, Time};

const PACKET: Bytes = Bytes::new(1350);

fn lanes() -> [LaneView; 8] {
    core::array::from_fn(|i| {
        let id = LaneId::new(u8::try_from(i).unwrap()).unwrap();
        let lane = LaneView::new(id, Bytes::kb(200), Duration::from_millis(20 + 10 * i as u64));
        LaneView { in_flight: Bytes::kb(100 + 5 * i as u64), ..lane }
    })
}

fn source(i: u64) -> (SourceKey, Source) {
    (
        SourceKey(i),
        Source::new(Duration::from_millis(40 + 15 * i), Bytes::kb(5), Time::from_millis(10 + 7 * i)),
    )
}

fn bench(c: &mut Criterion, name: &str, scheduler: impl LaneScheduler) {
    bench_over(c, name, scheduler, lanes());
}

/// Every other lane is of the low layer, and the high ones are full.
fn layers() -> [LaneView; 8] {
    let mut lanes = lanes();
    for lane in &mut lanes {
        if lane.id.index() % 2 == 1 {
            lane.layer = Layer::Low;
        } else {
            lane.in_flight = lane.cwnd;
        }
    }
    lanes
}

fn bench_over(c: &mut Criterion, name: &str, mut scheduler: impl LaneScheduler, lanes: [LaneView; 8]) {
    let background = Purpose::New(Fresh::new(1, Priority::P4, Bytes::MAX));
    let redundancy = Redundancy::EveryLane;
    let urgent = Purpose::New(Fresh { redundancy, ..Fresh::new(2, Priority::P0, Bytes::kb(20)) });
    let mut group = c.benchmark_group(format!("choose/8 lanes, 8 sources/{name}"));
    let now = Time::from_millis(5);
    for (what, purpose) in [("background", background), ("urgent", urgent)] {
        group.bench_function(what, |b| {
            b.iter(|| {
                scheduler.choose(black_box(now), black_box(&lanes), black_box(purpose), black_box(PACKET))
            });
        });
    }
    // Calls are a microsecond apart, and the sources send: horizons open, holds are used.
    let mut moving = now;
    let mut releases: Vec<_> = (0..8).map(|i| (source(i), source(i).1.next_release)).collect();
    let mut message = 10;
    group.bench_function("background, time passing", |b| {
        b.iter(|| {
            moving += Duration::from_micros(1);
            if moving.as_nanos().is_multiple_of(1_000_000) {
                for ((key, source), next) in releases.iter_mut().filter(|(_, next)| *next <= moving) {
                    let (priority, len) = (Priority::P0, source.size);
                    scheduler.message_offered(
                        moving,
                        &Offer { message, source: Some(*key), priority, len, redundancy },
                    );
                    scheduler.message_complete(moving, message);
                    message += 1;
                    *next += source.period;
                }
            }
            scheduler.choose(black_box(moving), black_box(&lanes), black_box(background), black_box(PACKET))
        });
    });
    group.finish();
}

fn schedulers(c: &mut Criterion) {
    let mut cwr = Cwr::new(CwrConfig::paper()).unwrap();
    let mut red = CwrRed::new(CwrConfig::paper()).unwrap();
    for (key, source) in (0..8).map(source) {
        cwr.declare(key, source).unwrap();
        red.declare(key, source).unwrap();
    }
    bench(c, "LowRtt", LowRtt::new());
    bench(c, "RoundRobin", RoundRobin::new());
    bench(c, "Selective", Selective::new(Priority::P0));
    bench(c, "Cwr", cwr);
    bench(c, "CwrRed", red);
    bench_over(c, "Layered", Layered::new(LowRtt::new(), LayeredConfig::paper()), layers());
}

criterion_group!(benches, schedulers);
criterion_main!(benches);
