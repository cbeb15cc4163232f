//! Tracks: synthetic frames with the time at which they were made, and how late they are read.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use moq_net::{Timestamp, origin, track};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use crate::Stack;

const BROADCAST: &str = "live";
/// Frames of video in a second, and in a group.
const FRAMES: u32 = 30;
const GROUP: u32 = 60;

/// Nanoseconds of the clock that all processes of this machine share.
fn clock() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Returns a frame of at least 8 bytes that begins with the time.
fn frame(len: usize) -> Bytes {
    let mut frame = vec![0; len.max(8)];
    frame[..8].copy_from_slice(&clock().to_be_bytes());
    frame.into()
}

fn timestamp(begun: Instant) -> anyhow::Result<Timestamp> {
    Ok(Timestamp::from_millis(u64::try_from(begun.elapsed().as_millis())?)?)
}

/// Begins to publish all tracks.
pub fn publish(mbps: f64) -> anyhow::Result<origin::Producer> {
    let (publisher, driver) = origin::Producer::new(origin::Config::new(moq_net::Hop::random()));
    tokio::spawn(moq_net::time::run(driver));
    let broadcast = publisher.publish(BROADCAST, origin::Route::default())?;
    let begun = Instant::now();
    // The defaults of `moq`'s catalog.
    let tracks = [("catalog", 100), ("audio", 80), ("low", 60), ("low-2", 60), ("high", 50)];
    for (name, priority) in tracks {
        let info = track::Info::default().with_priority(priority).with_max_age(Duration::from_secs(2));
        let mut track = broadcast.create_track(name, info)?;
        let rate = match name {
            "low" | "low-2" => mbps / 8.0,
            _ => mbps,
        };
        // A group has one key frame of five times the others' size.
        let unit = rate * 1e6 / 8.0 / f64::from(FRAMES) * f64::from(GROUP) / f64::from(GROUP + 4);
        tokio::spawn(async move {
            let result: anyhow::Result<()> = async {
                let period = match name {
                    "catalog" => Duration::from_secs(1),
                    "audio" => Duration::from_millis(20),
                    _ => Duration::from_secs(1) / FRAMES,
                };
                let mut ticks = interval(period);
                ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
                let mut group = None;
                for number in 0u32.. {
                    ticks.tick().await;
                    let now = timestamp(begun)?;
                    match name {
                        "catalog" => track.write_frame(now, frame(2000))?,
                        "audio" => track.write_frame(now, frame(160))?,
                        _ => {
                            if number % GROUP == 0 {
                                if let Some(ended) = group.replace(track.append_group()?) {
                                    ended.finish()?;
                                }
                                group
                                    .as_mut()
                                    .context("begun")?
                                    .write_frame(now, frame((unit * 5.0) as usize))?;
                            } else {
                                group.as_mut().context("begun")?.write_frame(now, frame(unit as usize))?;
                            }
                        }
                    }
                }
                Ok(())
            }
            .await;
            if let Err(error) = result {
                eprintln!("{name} ended: {error}");
            }
        });
    }
    // The broadcast lives as long as the program.
    std::mem::forget(broadcast);
    Ok(publisher)
}

/// Frames of a track that were read, and their lateness.
pub struct Read {
    name: String,
    bytes: u64,
    frames: u64,
    groups: u64,
    /// Lateness of each frame in milliseconds.
    late: Vec<f64>,
    /// Longest time without a frame in milliseconds.
    gap: f64,
    /// Latest frame of each second.
    seconds: Vec<f64>,
}

impl Read {
    pub fn json(mut self, stack: Stack) -> serde_json::Value {
        self.late.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let index = (self.late.len() as f64 * part).ceil() as usize;
            self.late.get(index.max(1) - 1).map(|late| (late * 10.0).round() / 10.0)
        };
        json!({
            "stack": format!("{stack:?}"), "track": self.name, "frames": self.frames, "groups": self.groups, "bytes": self.bytes,
            "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1.0), "longest_gap_ms": self.gap.round(),
            "max_by_second_ms": self.seconds.iter().map(|late| late.round()).collect::<Vec<_>>(),
        })
    }
}

/// Reads the tracks for a while.
pub async fn read(consumer: &origin::Consumer, span: Duration, equal: bool) -> anyhow::Result<Vec<Read>> {
    let broadcast = consumer.routed_broadcast(BROADCAST).await?;
    let names =
        if equal { ["catalog", "audio", "low", "low-2"] } else { ["catalog", "audio", "low", "high"] };
    let begun = Instant::now();
    let until = begun + span;
    let mut tasks = Vec::new();
    for (name, priority) in names.into_iter().zip([100, 80, 60, if equal { 60 } else { 50 }]) {
        let track = broadcast.track(name)?;
        let subscription =
            track::Subscription::default().with_priority(priority).with_max_age(Duration::from_secs(1));
        tasks.push(tokio::spawn(async move {
            let mut subscriber = track.subscribe(subscription).await?;
            let mut read = Read {
                name: name.to_owned(),
                bytes: 0,
                frames: 0,
                groups: 0,
                late: Vec::new(),
                gap: 0.0,
                seconds: Vec::new(),
            };
            let (mut first, mut last): (Option<u64>, Option<u64>) = (None, None);
            while let Ok(Ok(Some(mut group))) = timeout_at(until, subscriber.recv_group()).await {
                read.groups += 1;
                // A group that is abandoned ends with an error, and the next one follows.
                while let Ok(Ok(Some(frame))) = timeout_at(until, group.read_frame()).await {
                    let Some(made) = frame.payload.first_chunk::<8>() else { continue };
                    let (now, made) = (clock(), u64::from_be_bytes(*made));
                    // Frames from before the first was read were made for nobody, or for the subscription on its way.
                    if made < *first.get_or_insert(now) {
                        continue;
                    }
                    let late = now.saturating_sub(made) as f64 / 1e6;
                    read.late.push(late);
                    let second = begun.elapsed().as_secs() as usize;
                    read.seconds.resize(read.seconds.len().max(second + 1), 0.0);
                    read.seconds[second] = read.seconds[second].max(late);
                    if let Some(last) = last.replace(now) {
                        read.gap = read.gap.max((now - last) as f64 / 1e6);
                    }
                    read.bytes += frame.payload.len() as u64;
                    read.frames += 1;
                }
            }
            anyhow::Ok(read)
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await??);
    }
    Ok(all)
}
