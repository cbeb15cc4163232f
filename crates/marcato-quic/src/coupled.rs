//! Coupled mode of a lane: its governor, and the measurements on their way to it.
//!
//! A sample is the acknowledgement of a packet of at least half the full size. `Session::view` holds data
//! back: a lane at its cap looks full to the scheduler.

use marcato_sched::coupled::{
    Counters, CoupledConfig, Demand, Governor, Mode, PeerClock, Sample, Transition,
};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};

use crate::gate::Gate;

/// State of coupled mode on a lane, since its address last changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneCoupling {
    /// Set once the cap applies ([`Coupling`](marcato_sched::coupled::Coupling)).
    pub acts: bool,
    /// Mode of the governor.
    pub mode: Mode,
    /// Limit of the bytes in flight while only background data waits; `None` if there is none.
    pub cap: Option<Bytes>,
    /// Counts of rounds, cuts and transitions, and the time in each mode.
    pub counters: Counters,
}

/// Governor of a lane.
#[derive(Debug)]
pub(crate) struct LaneGovernor {
    governor: Governor,
    queued_packets: u64,
    mss: Bytes,
    /// Set once the cap applies.
    acts: bool,
    /// Least round trip of the data packets, and whether one was lost, since the last sample.
    rtt: Option<Duration>,
    lost: bool,
    /// Set if there is something for a sample.
    news: bool,
    /// Largest window since the last congestion.
    granted: Bytes,
    /// The cap, and not the window, held data back when the session last asked.
    pub(crate) capped: bool,
}

impl LaneGovernor {
    /// Governor that lets `queued_packets` packets stand in the queue, which it keeps short for the `urgent` levels.
    pub(crate) fn new(mss: Bytes, queued_packets: u64, urgent: PrioritySet) -> Self {
        Self {
            governor: Governor::new(CoupledConfig { queued_packets, urgent, ..CoupledConfig::new(mss) }),
            queued_packets,
            mss,
            acts: false,
            rtt: None,
            lost: false,
            news: false,
            granted: Bytes::ZERO,
            capped: false,
        }
    }

    /// Starts over: the path is another one.
    pub(crate) fn restart(&mut self) {
        *self = Self { acts: self.acts, ..Self::new(self.mss, self.queued_packets, self.governor.urgent()) };
    }

    /// Records an acknowledged packet, and its round trip if it carried `data`.
    pub(crate) fn acked(&mut self, took: Duration, bytes: Bytes, data: bool) {
        self.news = true;
        // A short packet takes less time on the link. As the least round trip, it would make a
        // queue of each full one.
        if data && bytes * 2 >= self.mss {
            self.rtt = Some(self.rtt.map_or(took, |least| least.min(took)));
        }
    }

    /// Records a lost packet.
    pub(crate) fn lost(&mut self) {
        (self.news, self.lost) = (true, true);
    }

    /// Passes on what was recorded, and what the peer's clock tells. `acts` means that the cap applies from now on.
    pub(crate) fn sample(
        &mut self,
        now: Time,
        (delivered, gate): (Bytes, &Gate),
        clock: &PeerClock,
        urgent: bool,
        acts: bool,
    ) -> Option<Transition> {
        let (in_flight, mtu) = (gate.in_flight(), gate.mtu());
        if !std::mem::take(&mut self.news) {
            return None;
        }
        if mtu != self.mss {
            self.mss = mtu;
            self.governor.set_mss(mtu);
        }
        if gate.take_congested() {
            self.granted = Bytes::ZERO;
        }
        self.granted = self.granted.max(gate.window());
        self.acts = acts;
        let (rtt, lost) = (self.rtt.take(), std::mem::take(&mut self.lost));
        let back = clock.back(now, rtt, self.governor.base());
        let sample = Sample { delivered, in_flight, rtt, back, lost, urgent };
        if acts {
            return self.governor.sample(now, &sample);
        }
        self.governor.observe(now, &sample);
        None
    }

    /// Limit of the bytes in flight for the next packet, while data of these levels waits.
    pub(crate) fn limit(&self, waiting: PrioritySet) -> Option<Bytes> {
        self.acts.then(|| self.governor.bound(waiting))
    }

    /// Window that a packet of `level` may use in place of a smaller one.
    ///
    /// BBR gives up most of its window every few seconds, not because of congestion but to measure
    /// (draft-ietf-ccwg-bbr §5.3.4, ProbeRTT), and the pipe then takes a round trip to fill. Urgent
    /// data may use what the controller has granted since the last congestion, up to the cap, with
    /// which there is hardly a queue. The windows of others shrink only by congestion, so this never
    /// exceeds them.
    pub(crate) fn granted(&self, level: Priority) -> Bytes {
        let cap = self.governor.cap().filter(|_| self.acts && self.governor.mode() == Mode::Steady);
        let cap = cap.filter(|_| self.governor.urgent().contains(level));
        cap.map_or(Bytes::ZERO, |cap| cap.min(self.granted))
    }

    /// Decides whether a packet has to wait although the window has room, while data of these levels waits.
    pub(crate) fn caps(
        &mut self,
        waiting: PrioritySet,
        in_flight: Bytes,
        packet: Bytes,
        window: Bytes,
    ) -> bool {
        let demand = Demand { waiting, outstanding: in_flight };
        // Where the window is the limit, the governor is not asked.
        self.capped =
            self.acts && in_flight + packet <= window && !self.governor.room(demand, packet).is_whole(packet);
        self.capped
    }

    pub(crate) fn state(&self) -> LaneCoupling {
        LaneCoupling {
            acts: self.acts,
            mode: self.governor.mode(),
            cap: self.governor.cap().filter(|_| self.acts),
            counters: self.governor.counters(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Instant;

    use noq_proto::congestion::Controller as _;

    use super::*;
    use crate::controller::Congestion;
    use crate::gate::Gated;

    const MSS: Bytes = Bytes::new(1200);

    /// Controller with a window of 100 packets, and its gate.
    fn gated() -> (Gated, Arc<Gate>) {
        let inner = Congestion::RENO.build(Instant::now(), 1200, Some(MSS * 100));
        let gated = Gated::new(inner, 1200, false, false);
        let gate = Gated::gate_of(&gated).unwrap();
        (gated, gate)
    }

    /// Governor whose cap is its floor of four packets, after a train and a loss.
    fn at_floor(gate: &Gate) -> LaneGovernor {
        let mut lane = LaneGovernor::new(MSS, CoupledConfig::QUEUED_PACKETS, PrioritySet::URGENT);
        for packet in 1..=16 {
            let rtt = Duration::from_micros(packet * 500);
            lane.acked(rtt, MSS, true);
            if packet == 16 {
                lane.lost();
            }
            lane.sample(Time::ZERO + rtt, (MSS * packet, gate), &PeerClock::new(), false, true);
        }
        lane
    }

    #[test]
    fn background_waits_for_the_cap_and_urgent_data_passes_it() {
        let mut lane = at_floor(&gated().1);
        assert_eq!(lane.state().cap, Some(MSS * 4));
        let window = MSS * 100;
        let (background, both) =
            (PrioritySet::one(Priority::P3), PrioritySet::one(Priority::P3).with(Priority::P1));
        assert!(!lane.caps(background, MSS * 3, MSS, window));
        assert!(lane.caps(background, MSS * 4, MSS, window));
        assert!(!lane.caps(both, MSS * 4, MSS, window));
        assert!(!lane.caps(both, MSS * 5, MSS, window));
        assert!(lane.caps(both, MSS * 6, MSS, window));
    }

    #[test]
    fn a_full_window_is_not_the_caps_doing() {
        let mut lane = at_floor(&gated().1);
        assert!(!lane.caps(PrioritySet::one(Priority::P3), MSS * 4, MSS, MSS * 4));
    }

    #[test]
    fn a_packet_leaves_if_nothing_is_in_flight_however_long_it_is() {
        let mut lane = at_floor(&gated().1);
        assert!(!lane.caps(PrioritySet::one(Priority::P3), Bytes::ZERO, MSS * 5, MSS * 100));
        assert!(lane.caps(PrioritySet::one(Priority::P3), Bytes::new(1), MSS * 5, MSS * 100));
    }

    #[test]
    fn before_it_acts_there_is_no_cap() {
        let (_, gate) = gated();
        let mut lane = at_floor(&gate);
        lane.acked(Duration::from_nanos(1), MSS, true);
        lane.sample(Time::from_millis(9), (MSS * 17, &gate), &PeerClock::new(), false, false);
        assert_eq!((lane.state().cap, lane.limit(PrioritySet::EMPTY)), (None, None));
        assert!(!lane.state().acts && at_floor(&gate).state().acts);
        assert_eq!(lane.granted(Priority::P0), Bytes::ZERO);
    }

    /// A governor that begins in a queue knows the round trip without it, if it has seen the path before. One that has
    /// not takes the queue for the path.
    #[test]
    fn samples_from_before_it_acts_count() {
        let (_, gate) = gated();
        let cap = |observed: bool| {
            let mut lane = LaneGovernor::new(MSS, CoupledConfig::QUEUED_PACKETS, PrioritySet::URGENT);
            let mut now = Time::ZERO;
            let mut delivered = Bytes::ZERO;
            let mut packet = |lane: &mut LaneGovernor, rtt: Duration, urgent: bool, acts: bool| {
                now += Duration::from_millis(1);
                delivered += MSS;
                lane.acked(rtt, MSS, true);
                lane.sample(now, (delivered, &gate), &PeerClock::new(), urgent, acts);
            };
            for _ in 0..if observed { 200 } else { 0 } {
                packet(&mut lane, Duration::from_millis(10), false, false);
            }
            for _ in 0..400 {
                packet(&mut lane, Duration::from_millis(60), true, true);
            }
            lane.state().cap
        };
        let (observed, fresh) = (cap(true), cap(false));
        assert!(observed.is_some_and(|cap| fresh.is_none_or(|other| cap < other)), "{observed:?} {fresh:?}");
    }

    #[test]
    fn a_path_that_has_moved_is_measured_anew() {
        let mut lane = at_floor(&gated().1);
        lane.restart();
        let LaneCoupling { acts, mode, cap, counters } = lane.state();
        assert_eq!((acts, mode, cap, counters), (true, Mode::Startup, None, Counters::default()));
        assert_eq!(lane.granted(Priority::P0), Bytes::ZERO);
    }

    #[test]
    fn short_packets_and_those_without_data_have_no_round_trip() {
        let mut lane = LaneGovernor::new(MSS, CoupledConfig::QUEUED_PACKETS, PrioritySet::URGENT);
        lane.acked(Duration::from_millis(9), MSS / 2, true);
        lane.acked(Duration::from_millis(8), MSS, true);
        lane.acked(Duration::from_millis(1), MSS / 2 - Bytes::new(1), true);
        lane.acked(Duration::from_millis(1), MSS, false);
        assert_eq!(lane.rtt, Some(Duration::from_millis(8)));
    }

    #[test]
    fn urgent_data_may_use_the_largest_window_since_congestion() {
        let (mut controller, gate) = gated();
        let mut lane = at_floor(&gate);
        assert_eq!(lane.granted(Priority::P1), MSS * 4);
        assert_eq!(lane.granted(Priority::P2), Bytes::ZERO);
        let now = Instant::now();
        controller.on_congestion_event(now + std::time::Duration::from_millis(1), now, true, false, 1200, 1);
        assert_eq!(gate.window(), MSS * 2);
        lane.acked(Duration::from_nanos(1), MSS, true);
        lane.sample(Time::from_millis(9), (MSS * 17, &gate), &PeerClock::new(), false, true);
        assert_eq!(lane.granted(Priority::P1), MSS * 2);
    }
}
