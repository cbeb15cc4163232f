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
//!
//! The round trip is recovered from the change of `srtt`, which lags so much that its own lag looks like a
//! queue of others.

use std::io;

use marcato_sched::coupled::{CoupledConfig, Coupling, Demand, Governor, Mode, PeerClock, Sample};
use marcato_units::{Bytes, Duration, PrioritySet, Rate, Time};
use socket2::SockRef;
use tokio::time::Instant;

use super::pacer::Pacer;
use crate::stats::CoupledStats;
use crate::sys::{self, TcpInfo};

/// Interval at which acknowledgements are looked for while data is held back.
const POLL: Duration = Duration::from_millis(1);
/// Deadline of the timer for it. tokio rounds a deadline up to its next millisecond, and the wait for
/// that once more: asked for a millisecond, it takes more than two.
const TIMER: Duration = Duration::from_micros(100);
/// Time for which a sample is used while the driver writes.
const FRESH: Duration = Duration::from_micros(250);

/// Segments between two looks up to which background data is paced. At higher rates a window that doubles costs urgent
/// data less than a timer that comes late would cost goodput.
const PACED_SEGMENTS: u64 = 4;

/// Coupled mode of a connection over kernel TCP.
#[derive(Debug)]
pub(super) struct KernelCoupling {
    switch: Coupling,
    /// Levels that are urgent.
    urgent: PrioritySet,
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
    srtt: Duration,
    /// Clock of the peer, for which the driver asks.
    peer: PeerClock,
    segments_in: u32,
    retransmitted: u32,
    /// Bytes that the kernel's congestion window has room for.
    window: Bytes,
    /// Bytes delivered when all has arrived that was written before the mode acted.
    own: Bytes,
    pacer: Pacer,
    looks: u64,
}

impl KernelCoupling {
    pub(super) const fn new(switch: Coupling) -> Self {
        Self { switch, urgent: PrioritySet::URGENT, acting: None, look: None }
    }

    /// Sets the levels that are urgent, before the mode acts.
    pub(super) const fn set_urgent(&mut self, levels: PrioritySet) {
        self.urgent = levels;
    }

    /// Begins to act if messages of these levels are the condition for it. Returns whether it did.
    pub(super) fn begin(&mut self, now: Time, socket: &SockRef<'_>, used: PrioritySet) -> bool {
        if self.acting.is_some() || !self.is_due(used) {
            return false;
        }
        match Acting::begin(now, socket, self.urgent) {
            Ok(acting) => self.acting = Some(acting),
            Err(error) => {
                // Without measurements there is nothing to go by.
                tracing::debug!(%error, "coupled mode is off");
                self.switch = Coupling::Off;
            }
        }
        self.acting.is_some()
    }

    /// Takes note of the peer's clock (docs/wire.md, CLOCK).
    pub(super) fn heard(&mut self, now: Time, clock: u32) {
        if let Some(acting) = &mut self.acting {
            acting.peer.heard(now, clock);
        }
    }

    /// Returns how many bytes may be written now, in whole segments: at most `size`. Zero means that
    /// data is held back, and that [`look`](Self::look) is the time to ask again. On a slow connection a
    /// segment takes longer than the time between looks.
    pub(super) fn room(
        &mut self,
        now: Time,
        socket: &SockRef<'_>,
        waiting: PrioritySet,
        size: Bytes,
        is_slow: bool,
    ) -> Bytes {
        let Some(acting) = &mut self.acting else { return size };
        let room = acting.room(now, socket, waiting, size, is_slow);
        self.look = room.is_zero().then(|| Instant::now() + TIMER);
        room
    }

    fn is_due(&self, used: PrioritySet) -> bool {
        self.switch.acts(used, self.urgent)
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
            acting.urgent_chunk = acting.governor.is_urgent(waiting);
        }
    }

    /// Takes note of bytes that the socket has accepted.
    pub(super) fn wrote(&mut self, bytes: usize) {
        if let Some(acting) = &mut self.acting {
            let bytes = Bytes::new(bytes as u64);
            if let Some(pace) = acting.pace() {
                acting.pacer.wrote(pace, bytes);
            }
            acting.written += bytes;
            acting.sample.in_flight += bytes;
            acting.window -= bytes;
            if acting.urgent_chunk {
                acting.urgent_until = acting.written;
            }
        }
    }

    /// Begins, on a path whose packets are larger than any window.
    #[cfg(all(test, target_os = "linux"))]
    pub(super) fn hold_back(&mut self, socket: &SockRef<'_>) {
        assert!(self.begin(Time::ZERO, socket, PrioritySet::ALL));
        if let Some(acting) = &mut self.acting {
            acting.mss = Bytes::new(1 << 60);
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
    fn begin(now: Time, socket: &SockRef<'_>, urgent: PrioritySet) -> io::Result<Self> {
        let info = sys::tcp_info(socket)?;
        let governor = Governor::new(CoupledConfig { urgent, poll: POLL, ..CoupledConfig::new(info.mss) });
        let (delivered, in_flight) = (delivered(&info), in_flight(&info, socket)?);
        // The queue may already be full. The kernel's least round trip is older, but may be that of
        // the handshake, which is shorter than one of data by the serialisation of a packet.
        let least = info.min_rtt.saturating_add(info.delivery_rate.transmission_time(info.mss));
        let rtt = Some(info.srtt.min(least)).filter(|rtt| !rtt.is_zero());
        let sample = Sample { delivered, in_flight, rtt, back: Duration::ZERO, lost: false, urgent: false };
        let mut acting = Self {
            governor,
            mss: info.mss.max(Bytes::new(1)),
            written: Bytes::ZERO,
            urgent_until: Bytes::ZERO,
            urgent_chunk: false,
            sample,
            sampled_at: now,
            srtt: info.srtt,
            peer: PeerClock::new(),
            segments_in: info.segments_in,
            retransmitted: info.retransmitted_segments,
            window: window(&info),
            own: delivered + in_flight,
            pacer: Pacer::default(),
            looks: 0,
        };
        // No data of ours has been acknowledged. Taken for a first acknowledgement, it would begin a train of
        // packets that lasts until the first window comes back: a rate far below the path's.
        // The clock is that of all connections of an endpoint: their governors look and test at the same times.
        acting.governor.observe(now, &sample);
        Ok(acting)
    }

    fn room(
        &mut self,
        now: Time,
        socket: &SockRef<'_>,
        waiting: PrioritySet,
        size: Bytes,
        is_slow: bool,
    ) -> Bytes {
        let urgent = self.governor.is_urgent(waiting);
        if urgent != self.sample.urgent || now.since(self.sampled_at) >= FRESH {
            self.take_sample(now, socket, urgent);
        }
        // In slow start the kernel's window is smaller than the cap, and the kernel keeps what exceeds it. An urgent
        // chunk would stand behind that. Later the cap is the smaller one.
        if is_slow && !urgent && self.window < self.mss && self.governor.mode() == Mode::Startup {
            self.looks += 1;
            return Bytes::ZERO;
        }
        // An urgent chunk would stand behind what leaves faster than the bottleneck sends it on.
        let size = match self.pace() {
            Some(pace) if !urgent => self.pacer.room(now, pace, size, self.mss),
            _ => size,
        };
        if size.is_zero() {
            self.looks += 1;
            return size;
        }
        // Whole segments, as small ones would go between full ones. Of few, the nearest number: a packet less would
        // leave the link idle while the peer delays an acknowledgement.
        let half = if is_slow { self.mss / 2 } else { Bytes::ZERO };
        let room =
            self.governor.room(Demand { waiting, outstanding: self.sample.in_flight - half }, size).bytes();
        let room = if room < size { self.mss * (room.get() / self.mss.get()) } else { size };
        self.looks += u64::from(room.is_zero());
        room
    }

    /// Pace of background data; `None` if there is none, or looks are too rare for it.
    fn pace(&self) -> Option<Rate> {
        self.governor.pace().filter(|pace| pace.bytes_in(POLL) <= self.mss * PACED_SEGMENTS)
    }

    fn take_sample(&mut self, now: Time, socket: &SockRef<'_>, urgent: bool) {
        let measured = sys::tcp_info(socket).and_then(|info| Ok((info, in_flight(&info, socket)?)));
        // The connection is over. Its last state will do until the driver sees that.
        if let Ok((info, in_flight)) = measured {
            self.measured(now, &info, in_flight, urgent);
        }
    }

    /// Takes note of the kernel's measurements; `urgent` if an urgent chunk is the next.
    fn measured(&mut self, now: Time, info: &TcpInfo, in_flight: Bytes, urgent: bool) {
        let before = self.sample.delivered;
        // A selective acknowledgement may be withdrawn (RFC 2018 §8).
        let delivered = delivered(info).max(before);
        let rtt = (delivered > before).then(|| {
            let received = info.segments_in.wrapping_sub(self.segments_in);
            latest_rtt(info, self.srtt, delivered - before, received)
        });
        let sample = Sample {
            delivered,
            in_flight,
            rtt,
            back: self.peer.back(now, rtt, self.governor.base()),
            // A loss in a queue that was filled before says nothing about the cap.
            lost: delivered >= self.own && info.retransmitted_segments != self.retransmitted,
            // Urgent data that the kernel has not sent waits as well.
            urgent: urgent || self.written < self.urgent_until + info.unsent,
        };
        self.window = window(info);
        (self.srtt, self.segments_in) = (info.srtt, info.segments_in);
        self.retransmitted = info.retransmitted_segments;
        (self.sample, self.sampled_at) = (sample, now);
        if let Some(change) = self.governor.sample(now, &sample) {
            tracing::debug!(from = change.from.name(), to = change.to.name(), "coupled mode");
        }
    }
}

/// Round trip of the latest bytes, from the smoothed ones before and after them, and the segments that the
/// peer has sent meanwhile. Each measurement moves the smoothed one by an eighth of the difference (RFC
/// 6298 §2), so it lags by many acknowledgements: a queue that has gone would be seen for several round
/// trips.
fn latest_rtt(info: &TcpInfo, before: Duration, bytes: Bytes, received: u32) -> Duration {
    // One measurement for each acknowledgement, of which there is at most one for each segment (RFC 9293
    // §3.8.6.3). Data of the peer counts as acknowledgements: with some, the result lags a little.
    let most = bytes.get().div_ceil(info.mss.get().max(1)).min(u64::from(received));
    let rest = 0.875f64.powi(i32::try_from(most.clamp(1, 64)).unwrap_or(64));
    let change = info.srtt.as_secs_f64() - before.as_secs_f64();
    let latest = info.srtt.as_secs_f64() + change * rest / (1.0 - rest);
    Duration::try_from_secs_f64(latest).unwrap_or(info.srtt).max(info.min_rtt)
}

/// Bytes that have arrived: those acknowledged, and those that were selectively.
fn delivered(info: &TcpInfo) -> Bytes {
    info.acked + info.mss * u64::from(info.sacked_segments)
}

/// Bytes that the congestion window has room for: what it exceeds the pipe by (RFC 6675 §4, with the kernel's
/// counts), and the unsent bytes do not take.
fn window(info: &TcpInfo) -> Bytes {
    let pipe = u64::from(info.in_flight_segments).saturating_sub(gone(info));
    info.mss * u64::from(info.cwnd_segments).saturating_sub(pipe) - info.unsent
}

/// Segments sent that have left the path, arrived or lost, without those that are on it again.
fn gone(info: &TcpInfo) -> u64 {
    let gone = u64::from(info.sacked_segments) + u64::from(info.lost_segments);
    gone.saturating_sub(u64::from(info.resent_segments))
}

/// Bytes written and neither arrived nor lost, those that the kernel has not sent among them.
fn in_flight(info: &TcpInfo, socket: &SockRef<'_>) -> io::Result<Bytes> {
    let outstanding = sys::unsent(socket)?;
    Ok(outstanding - info.mss * gone(info))
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

    fn latest(from: f64, rtts: &[f64], segments: u64, received: u32) -> f64 {
        let before = Duration::from_secs_f64(from / 1e3);
        let rtt = latest_rtt(&smoothed(from, rtts), before, Bytes::new(segments * 1000), received);
        (rtt.as_secs_f64() * 1e6).round() / 1e3
    }

    #[test]
    fn the_latest_round_trip_is_found_in_the_smoothed_one() {
        assert_eq!([50.0, 100.0, 300.0].map(|rtt| latest(200.0, &[rtt], 1, 1)), [50.0, 100.0, 300.0]);
        assert_eq!(latest(200.0, &[60.0; 5], 5, 5), 60.0);
        assert_eq!(latest(200.0, &[], 3, 3), 200.0);
        // Acknowledgements of two segments each.
        assert_eq!(
            [1u8, 3].map(|acks| latest(200.0, &vec![100.0; acks.into()], 2 * u64::from(acks), acks.into())),
            [100.0; 2]
        );
    }

    #[test]
    fn the_latest_round_trip_never_overshoots() {
        // Two segments with one acknowledgement, beside data of the peer.
        let half = latest(200.0, &[100.0], 2, 2);
        assert!(half > 100.0 && half < 160.0, "{half}");
        // Rounding cannot make it shorter than any measurement was.
        assert_eq!(latest(41.0, &[30.0], 1, 1), 40.0);
    }

    #[test]
    fn the_room_is_the_window_less_flight_and_unsent_bytes() {
        let info = TcpInfo {
            mss: Bytes::new(1000),
            cwnd_segments: 10,
            in_flight_segments: 9,
            sacked_segments: 2,
            lost_segments: 1,
            resent_segments: 1,
            unsent: Bytes::new(500),
            ..TcpInfo::default()
        };
        assert_eq!(window(&info), Bytes::new(2500));
        assert_eq!(window(&TcpInfo { in_flight_segments: 20, ..info }), Bytes::ZERO);
    }

    /// State of coupled mode on a connection of segments of 1000 bytes, 20 kB of which were written before.
    #[cfg(target_os = "linux")]
    fn acting() -> Acting {
        let [near, _far] = connected();
        let mut coupled = KernelCoupling::new(Coupling::On);
        coupled.begin(Time::ZERO, &SockRef::from(&near), set(&[Priority::P0, Priority::P4]));
        let mut acting = coupled.acting.unwrap();
        acting.sample = Sample { delivered: Bytes::ZERO, in_flight: Bytes::kb(20), ..acting.sample };
        (acting.mss, acting.own) = (Bytes::kb(1), Bytes::kb(20));
        (acting.segments_in, acting.retransmitted) = (0, 0);
        acting
    }

    /// State that the kernel tells after it has seen so many kB acknowledged, and sent so many segments again.
    #[cfg(target_os = "linux")]
    fn told(acked: u64, retransmitted: u32) -> TcpInfo {
        TcpInfo {
            mss: Bytes::kb(1),
            acked: Bytes::kb(acked),
            retransmitted_segments: retransmitted,
            segments_in: u32::try_from(acked).unwrap(),
            srtt: Duration::from_millis(40),
            min_rtt: Duration::from_millis(40),
            ..TcpInfo::default()
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn losses_of_data_from_before_the_mode_are_none_of_the_caps() {
        let mut acting = acting();
        let mut lost = |acked, retransmitted| {
            let now = Time::from_millis(acked + u64::from(retransmitted));
            acting.measured(now, &told(acked, retransmitted), Bytes::kb(20), false);
            acting.sample.lost
        };
        assert_eq!([lost(5, 1), lost(19, 2)], [false; 2], "the queue was filled before");
        assert_eq!([lost(20, 3), lost(21, 3), lost(22, 4)], [true, false, true]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peers_clock_takes_the_way_back_from_the_round_trip() {
        let mut coupled = KernelCoupling::new(Coupling::On);
        coupled.acting = Some(acting());
        let mut back = |acked, srtt, (arrives, clock)| {
            coupled.heard(Time::from_millis(arrives), clock);
            let acting = coupled.acting.as_mut().unwrap();
            let srtt = Duration::from_millis(srtt);
            acting.srtt = srtt;
            acting.measured(
                Time::from_millis(arrives),
                &TcpInfo { srtt, ..told(acked, 0) },
                Bytes::kb(20),
                false,
            );
            acting.sample.back.as_millis()
        };
        assert_eq!(back(1, 40, (20, 0)), 0);
        // The clock that left at 20 ms took 45 ms longer.
        assert_eq!(back(2, 100, (85, 20)), 44);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn urgent_data_counts_until_the_kernel_has_sent_it() {
        let mut coupled = KernelCoupling::new(Coupling::On);
        coupled.acting = Some(acting());
        // An urgent chunk of 8 kB, which the socket takes in two parts, and 4 kB of background behind it.
        for (levels, parts) in
            [(&[Priority::P0, Priority::P4][..], [5000, 3000]), (&[Priority::P4], [1000, 3000])]
        {
            coupled.chunk(set(levels));
            parts.into_iter().for_each(|bytes| coupled.wrote(bytes));
        }
        let mut acting = coupled.acting.unwrap();
        let mut urgent = |unsent, next| {
            let info = TcpInfo { unsent: Bytes::new(unsent), ..told(5, 0) };
            acting.measured(Time::from_millis(5), &info, Bytes::kb(20), next);
            acting.sample.urgent
        };
        assert_eq!([urgent(12_000, false), urgent(4001, false), urgent(4000, false)], [true, true, false]);
        assert!(urgent(0, true), "an urgent chunk is the next");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn only_news_of_arrivals_have_a_round_trip() {
        let mut acting = acting();
        let mut rtt = |acked| {
            acting.measured(Time::from_millis(acked), &told(acked, 0), Bytes::kb(20), false);
            (acting.sample.delivered, acting.sample.rtt.is_some())
        };
        assert_eq!(rtt(5), (Bytes::kb(5), true));
        assert_eq!(rtt(5), (Bytes::kb(5), false));
        // RFC 2018 §8: a selective acknowledgement may be withdrawn.
        assert_eq!(rtt(4), (Bytes::kb(5), false));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn background_waits_in_slow_start_while_the_window_is_full() {
        let [near, _far] = connected();
        let (socket, size) = (SockRef::from(&near), Bytes::new(1000));
        let levels = set(&[Priority::P0, Priority::P4]);
        let mut coupled = KernelCoupling::new(Coupling::On);
        coupled.begin(Time::ZERO, &socket, levels);
        // All bytes of the first window are written before the next measurement.
        let first = coupled.acting.as_ref().unwrap().window;
        coupled.wrote(usize::try_from(first.get()).unwrap());
        let mut room = |levels: &[Priority], is_slow| {
            let acting = coupled.acting.as_mut().unwrap();
            acting.sample.urgent = levels[0] == Priority::P0;
            acting.room(Time::ZERO, &socket, set(levels), size, is_slow)
        };
        assert!(!first.is_zero());
        assert_eq!(room(&[Priority::P4], true), Bytes::ZERO);
        assert_eq!(room(&[Priority::P0], true), size);
        // On a fast connection looks would be too rare.
        assert_eq!(room(&[Priority::P4], false), size);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn slow_connections_round_the_cap_to_whole_segments() {
        let [near, _far] = connected();
        let (socket, now) = (SockRef::from(&near), Time::from_secs(1));
        let mut coupled = KernelCoupling::new(Coupling::On);
        coupled.begin(Time::ZERO, &socket, set(&[Priority::P0, Priority::P4]));
        let acting = coupled.acting.as_mut().unwrap();
        let mss = acting.mss;
        first_window(acting, 1000);
        // The first loss ends slow start, and there is a cap.
        let sample = Sample { lost: true, ..acting.sample };
        acting.governor.sample(now, &sample);
        acting.sampled_at = now;
        let cap = acting.governor.cap().unwrap();
        let mut room = |above: u64, is_slow| {
            acting.sample.in_flight = cap - mss * 3 + Bytes::new(mss.get() * above / 100);
            acting.room(now, &socket, set(&[Priority::P4]), mss * 8, is_slow).get() / mss.get()
        };
        assert_eq!([30, 70].map(|above| room(above, true)), [3, 2]);
        assert_eq!([30, 70].map(|above| room(above, false)), [2, 2]);
        assert_eq!([230, 270].map(|above| room(above, true)), [1, 0]);
    }

    /// Takes note of the acknowledgements of a first window: a segment each so many µs, whose round trips grow.
    #[cfg(target_os = "linux")]
    fn first_window(acting: &mut Acting, interval: u64) {
        // The loopback interface has other round trips.
        acting.governor = Governor::new(CoupledConfig { poll: POLL, ..CoupledConfig::new(acting.mss) });
        for segment in 1..=10 {
            let at = Duration::from_micros(50_000 + segment * interval);
            let sample = Sample {
                delivered: acting.mss * segment,
                in_flight: acting.mss * (20 - segment),
                rtt: Some(at),
                back: Duration::ZERO,
                lost: false,
                urgent: false,
            };
            acting.governor.sample(Time::ZERO + at, &sample);
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn slow_start_paces_background_data_and_no_urgent_data() {
        // Of eight segments, those of the time by which a look may be late, and one. At 0.2 ms for each, looks are too
        // rare for a pace.
        for (interval, background) in [(1000, 3), (5000, 1), (200, 8)] {
            let [near, _far] = connected();
            let socket = SockRef::from(&near);
            let mut coupled = KernelCoupling::new(Coupling::On);
            coupled.begin(Time::ZERO, &socket, set(&[Priority::P0, Priority::P4]));
            let acting = coupled.acting.as_mut().unwrap();
            first_window(acting, interval);
            let (mss, now) = (acting.mss, Time::from_secs(1));
            (acting.sample.in_flight, acting.sampled_at) = (Bytes::ZERO, now);
            let mut ask = |level| {
                let acting = coupled.acting.as_mut().unwrap();
                acting.sample.urgent = level == Priority::P0;
                let room = acting.room(now, &socket, set(&[level]), mss * 8, false);
                coupled.wrote(usize::try_from(room.get()).unwrap());
                room.get() / mss.get()
            };
            assert_eq!(ask(Priority::P4), background, "{interval} µs");
            assert_eq!(ask(Priority::P0), 8, "{interval} µs");
            if background < 8 {
                assert_eq!(ask(Priority::P4), 0, "{interval} µs");
            }
        }
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
        let (mut coupled, mut timers) = (KernelCoupling::new(switch), 0);
        let answers = (0..1000)
            .map(|number| {
                let (now, size) = (Time::from_micros(100 * number), Bytes::new(1 + 7919 * number % 20_000));
                coupled.release();
                coupled.begin(now, &SockRef::from(&near), levels);
                let room = coupled.room(now, &SockRef::from(&near), levels, size, true);
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
    fn levels_outside_the_urgent_set_are_background() {
        let [near, _far] = connected();
        let both = set(&[Priority::P0, Priority::P1]);
        let begins = |coupled: &mut KernelCoupling| coupled.begin(Time::ZERO, &SockRef::from(&near), both);
        let mut coupled = KernelCoupling::new(Coupling::Auto);
        assert!(!begins(&mut coupled), "both are urgent");
        coupled.set_urgent(set(&[Priority::P0]));
        assert!(begins(&mut coupled));
        let acting = coupled.acting.unwrap();
        assert_eq!(
            [Priority::P0, Priority::P1].map(|level| acting.governor.is_urgent(set(&[level]))),
            [true, false]
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn with_levels_of_both_kinds_auto_measures_once_it_begins() {
        let [near, _far] = connected();
        let mut coupled = KernelCoupling::new(Coupling::Auto);
        let mut begins = |levels: &[Priority]| coupled.begin(Time::ZERO, &SockRef::from(&near), set(levels));
        let both = &[Priority::P1, Priority::P2];
        assert_eq!([&both[..1], both, both].map(&mut begins), [false, true, false]);
        assert_eq!(coupled.stats().map(|stats| stats.looks), Some(0));
    }
}
