//! Coupled mode above the kernel's TCP: what may be written now, by the kernel's measurements.
//!
//! The kernel does not announce acknowledgements to the owner of a socket. While data is held back, the
//! driver asks for them at an interval, and otherwise when it writes.
//!
//! Timestamps on acknowledgement (`SOF_TIMESTAMPING_TX_ACK`) would announce each chunk, with one wake-up.
//! They are no use here, for two reasons. They arrive as an error condition of the socket. mio reports
//! that as the end of the writing direction, which tokio never forgets: from then on, waiting until the
//! socket is writable returns at once. And until they are read, they take room in the socket's receive
//! buffer.

use std::io;

use marcato_sched::coupled::{CoupledConfig, Coupling, Governor, Sample};
use marcato_units::{Bytes, Duration, PrioritySet, Time};
use socket2::SockRef;
use tokio::time::Instant;

use crate::stats::CoupledStats;
use crate::sys::{self, TcpInfo};

/// Interval at which acknowledgements are looked for while data is held back.
const POLL: Duration = Duration::from_millis(1);
/// Deadline of the timer for it. tokio rounds a deadline up to its next millisecond, and the wait for
/// that once more: asked for a millisecond, it takes more than two.
const TIMER: Duration = Duration::from_micros(100);
/// Time for which a sample is used while the driver writes.
const FRESH: Duration = Duration::from_micros(250);

/// Coupled mode of a connection.
#[derive(Debug)]
pub(super) struct Coupled {
    switch: Coupling,
    /// State, once the mode acts.
    acting: Option<Acting>,
    /// Time of the next look; `None` while nothing is held back.
    look: Option<Instant>,
}

#[derive(Debug)]
struct Acting {
    governor: Governor,
    mss: Bytes,
    /// Bytes written, and their number when the last urgent data had been.
    written: Bytes,
    urgent_until: Bytes,
    /// Set if the latest chunk is an urgent one.
    urgent_chunk: bool,
    /// Latest sample, and its time. Of its bytes in flight, those that were written since are part.
    sample: Sample,
    sampled_at: Time,
    /// Beginning of the governor's time.
    epoch: Time,
    srtt: Duration,
    retransmitted: u32,
    /// Bytes delivered when all has arrived that was written before the mode acted.
    own: Bytes,
    looks: u64,
}

impl Coupled {
    pub(super) const fn new(switch: Coupling) -> Self {
        Self { switch, acting: None, look: None }
    }

    /// Begins to act if messages of these levels are the condition for it. Returns whether it did.
    pub(super) fn begin(&mut self, now: Time, socket: &SockRef<'_>, used: PrioritySet) -> bool {
        if self.acting.is_some() || !self.is_due(used) {
            return false;
        }
        match Acting::begin(now, socket) {
            Ok(acting) => self.acting = Some(acting),
            Err(error) => {
                // Without measurements there is nothing to go by.
                tracing::debug!(%error, "coupled mode is off");
                self.switch = Coupling::Off;
            }
        }
        self.acting.is_some()
    }

    /// Returns how many bytes may be written now, in whole segments: at most `size`. Zero means that
    /// data is held back, and that [`look`](Self::look) is the time to ask again.
    pub(super) fn room(
        &mut self,
        now: Time,
        socket: &SockRef<'_>,
        waiting: PrioritySet,
        size: Bytes,
    ) -> Bytes {
        let Some(acting) = &mut self.acting else { return size };
        let room = acting.room(now, socket, waiting, size);
        self.look = room.is_zero().then(|| Instant::now() + TIMER);
        room
    }

    fn is_due(&self, used: PrioritySet) -> bool {
        self.switch.acts(used, CoupledConfig::new(Bytes::ZERO).urgent)
    }

    /// Ends the wait for the next look. [`room`](Self::room) begins it again if data is still held
    /// back. If nothing waits, or the kernel takes no more, there is none: it reports that it does.
    pub(super) const fn release(&mut self) {
        self.look = None;
    }

    /// Time of the next look; `None` while nothing is held back.
    pub(super) const fn look(&self) -> Option<Instant> {
        self.look
    }

    /// Takes note of the levels of a chunk that is written next.
    pub(super) fn chunk(&mut self, waiting: PrioritySet) {
        if let Some(acting) = &mut self.acting {
            acting.urgent_chunk = acting.is_urgent(waiting);
        }
    }

    /// Takes note of bytes that the socket has accepted.
    pub(super) fn wrote(&mut self, bytes: usize) {
        if let Some(acting) = &mut self.acting {
            let bytes = Bytes::new(bytes as u64);
            acting.written += bytes;
            acting.sample.in_flight += bytes;
            if acting.urgent_chunk {
                acting.urgent_until = acting.written;
            }
        }
    }

    /// State for the application; `None` until the mode acts.
    pub(super) fn stats(&self) -> Option<CoupledStats> {
        self.acting.as_ref().map(|Acting { governor, looks, .. }| CoupledStats {
            mode: governor.mode(),
            cap: governor.cap(),
            counters: governor.counters(),
            looks: *looks,
        })
    }
}

impl Acting {
    fn begin(now: Time, socket: &SockRef<'_>) -> io::Result<Self> {
        let info = sys::tcp_info(socket)?;
        let governor = Governor::new(CoupledConfig { poll: POLL, ..CoupledConfig::new(info.mss) });
        let (delivered, in_flight) = (delivered(&info), in_flight(&info, socket)?);
        // The queue may already be full. The kernel's least round trip is older, but may be that of
        // the handshake, which is shorter than one of data by the serialisation of a packet.
        let least = info.min_rtt.saturating_add(info.delivery_rate.transmission_time(info.mss));
        let rtt = Some(info.srtt.min(least)).filter(|rtt| !rtt.is_zero());
        let sample = Sample { delivered, in_flight, rtt, lost: false, urgent: false };
        let mut acting = Self {
            governor,
            mss: info.mss.max(Bytes::new(1)),
            written: Bytes::ZERO,
            urgent_until: Bytes::ZERO,
            urgent_chunk: false,
            sample,
            sampled_at: now,
            epoch: now,
            srtt: info.srtt,
            retransmitted: info.retransmitted_segments,
            own: delivered + in_flight,
            looks: 0,
        };
        // No data of ours has been acknowledged. Taken for a first acknowledgement, it would begin a train of
        // packets that lasts until the first window comes back: a rate far below the path's.
        acting.governor.observe(Time::ZERO, &sample);
        Ok(acting)
    }

    fn is_urgent(&self, levels: PrioritySet) -> bool {
        !levels.and(self.governor.urgent()).is_empty()
    }

    fn room(&mut self, now: Time, socket: &SockRef<'_>, waiting: PrioritySet, size: Bytes) -> Bytes {
        let urgent = self.is_urgent(waiting);
        if urgent != self.sample.urgent || now.since(self.sampled_at) >= FRESH {
            self.take_sample(now, socket, urgent);
        }
        let allowance = self.governor.allowance();
        // A grant may be one of background although urgent data waits: it pays that level's debt back.
        let allowed = if urgent { allowance.urgent } else { allowance.background };
        let room = allowed - self.sample.in_flight;
        if room >= size {
            return size;
        }
        // Whole segments: small ones would go between full ones.
        let room = Bytes::new(room.get() / self.mss.get() * self.mss.get());
        if room < size && !urgent {
            self.governor.held();
        }
        self.looks += u64::from(room.is_zero());
        room
    }

    fn take_sample(&mut self, now: Time, socket: &SockRef<'_>, urgent: bool) {
        let measured = sys::tcp_info(socket).and_then(|info| Ok((info, in_flight(&info, socket)?)));
        // The connection is over. Its last state will do until the driver sees that.
        let Ok((info, in_flight)) = measured else { return };
        let before = self.sample.delivered;
        // A selective acknowledgement may be withdrawn (RFC 2018 §8).
        let delivered = delivered(&info).max(before);
        let sample = Sample {
            delivered,
            in_flight,
            rtt: (delivered > before).then(|| latest_rtt(&info, self.srtt, delivered - before)),
            // A loss in a queue that was filled before says nothing about the cap.
            lost: delivered >= self.own && info.retransmitted_segments != self.retransmitted,
            // Urgent data that the kernel has not sent waits as well.
            urgent: urgent || self.written < self.urgent_until + info.unsent,
        };
        self.srtt = info.srtt;
        self.retransmitted = info.retransmitted_segments;
        (self.sample, self.sampled_at) = (sample, now);
        if let Some(change) = self.governor.sample(Time::ZERO + now.since(self.epoch), &sample) {
            tracing::debug!(from = change.from.name(), to = change.to.name(), "coupled mode");
        }
    }
}

/// Round trip of the latest bytes, from the smoothed ones before and after them. Each measurement
/// moves that by an eighth of the difference (RFC 6298 §2), so it lags by many acknowledgements: a
/// queue that has gone would be seen for several round trips.
fn latest_rtt(info: &TcpInfo, before: Duration, bytes: Bytes) -> Duration {
    // At most one measurement for each segment. With fewer, the result lags a little.
    let segments = bytes.get() / info.mss.get().max(1);
    let rest = 0.875f64.powi(i32::try_from(segments.clamp(1, 64)).unwrap_or(64));
    let change = info.srtt.as_secs_f64() - before.as_secs_f64();
    let latest = info.srtt.as_secs_f64() + change * rest / (1.0 - rest);
    Duration::try_from_secs_f64(latest).unwrap_or(info.srtt).max(info.min_rtt)
}

/// Bytes that have arrived: those acknowledged, and those that were selectively.
fn delivered(info: &TcpInfo) -> Bytes {
    info.acked + info.mss * u64::from(info.sacked_segments)
}

/// Bytes written and neither arrived nor lost, those that the kernel has not sent among them.
fn in_flight(info: &TcpInfo, socket: &SockRef<'_>) -> io::Result<Bytes> {
    let outstanding = sys::unsent(socket)?;
    let gone = u64::from(info.sacked_segments) + u64::from(info.lost_segments);
    Ok(outstanding - info.mss * gone.saturating_sub(u64::from(info.resent_segments)))
}

#[cfg(test)]
mod tests {
    use marcato_units::Priority;

    use super::*;

    /// State after measurements of round trips in ms, each of one segment.
    fn smoothed(from: f64, rtts: &[f64]) -> TcpInfo {
        let srtt = rtts.iter().fold(from, |srtt, rtt| srtt + (rtt - srtt) / 8.0);
        let (mss, min_rtt) = (Bytes::new(1000), Duration::from_millis(40));
        TcpInfo { mss, srtt: Duration::from_secs_f64(srtt / 1e3), min_rtt, ..TcpInfo::default() }
    }

    fn latest(from: f64, rtts: &[f64], segments: u64) -> f64 {
        let before = Duration::from_secs_f64(from / 1e3);
        let rtt = latest_rtt(&smoothed(from, rtts), before, Bytes::new(segments * 1000));
        (rtt.as_secs_f64() * 1e6).round() / 1e3
    }

    #[test]
    fn the_latest_round_trip_is_found_in_the_smoothed_one() {
        assert_eq!([50.0, 100.0, 300.0].map(|rtt| latest(200.0, &[rtt], 1)), [50.0, 100.0, 300.0]);
        assert_eq!(latest(200.0, &[60.0; 5], 5), 60.0);
        assert_eq!(latest(200.0, &[], 3), 200.0);
    }

    #[test]
    fn the_latest_round_trip_never_overshoots() {
        // Two segments with one acknowledgement.
        let half = latest(200.0, &[100.0], 2);
        assert!(half > 100.0 && half < 160.0, "{half}");
        // Rounding cannot make it shorter than any measurement was.
        assert_eq!(latest(41.0, &[30.0], 1), 40.0);
    }

    /// Two ends of a connection.
    fn connected() -> [std::net::TcpStream; 2] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [near, listener.accept().unwrap().0]
    }

    /// Lets a driver ask a thousand times, 100 µs apart, for a chunk of messages of these levels, and
    /// write it. Returns the answers, and the number of timers.
    fn asked(switch: Coupling, levels: PrioritySet) -> (Vec<Bytes>, usize) {
        let [near, _far] = connected();
        let (mut coupled, mut timers) = (Coupled::new(switch), 0);
        let answers = (0..1000)
            .map(|number| {
                let (now, size) = (Time::from_micros(100 * number), Bytes::new(1 + 7919 * number % 20_000));
                coupled.release();
                coupled.begin(now, &SockRef::from(&near), levels);
                let room = coupled.room(now, &SockRef::from(&near), levels, size);
                coupled.chunk(levels);
                coupled.wrote(usize::try_from(room.get()).unwrap());
                timers += usize::from(coupled.look().is_some());
                room
            })
            .collect();
        (answers, timers)
    }

    fn set(levels: &[Priority]) -> PrioritySet {
        levels.iter().fold(PrioritySet::EMPTY, |set, level| set.with(*level))
    }

    #[test]
    fn with_levels_of_one_kind_auto_asks_and_waits_as_often_as_off() {
        let off = asked(Coupling::Off, set(&[Priority::P4]));
        assert_eq!(off.1, 0);
        for levels in [&[Priority::P0][..], &[Priority::P0, Priority::P1], &[Priority::P2, Priority::P4]] {
            assert!(asked(Coupling::Auto, set(levels)) == off, "{levels:?}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn with_levels_of_both_kinds_auto_measures_once_it_begins() {
        let [near, _far] = connected();
        let mut coupled = Coupled::new(Coupling::Auto);
        let mut begins = |levels: &[Priority]| coupled.begin(Time::ZERO, &SockRef::from(&near), set(levels));
        let both = &[Priority::P1, Priority::P2];
        assert_eq!([&both[..1], both, both].map(&mut begins), [false, true, false]);
        assert_eq!(coupled.stats().map(|stats| stats.looks), Some(0));
    }
}
