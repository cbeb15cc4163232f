//! Samples of a sender's lanes.

use std::net::SocketAddr;
use std::time::Duration;

use marcato_net::LaneStats;
use marcato_sched::lane::LaneId;
use marcato_units::{Bytes, Layer};

use super::outcome::LaneOutcome;
use super::protocol::ReportedLane;

/// State of a lane of either end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LaneSample {
    pub(crate) id: u8,
    /// Addresses; `None` for a lane that the server has reported.
    pub(crate) local: Option<SocketAddr>,
    pub(crate) remote: Option<SocketAddr>,
    pub(crate) layer: Layer,
    pub(crate) srtt: Duration,
    pub(crate) cwnd: Bytes,
    pub(crate) unsent: Bytes,
    pub(crate) packets: u64,
    pub(crate) lost: u64,
}

/// Returns the number of a lane.
fn number(id: LaneId) -> u8 {
    u8::try_from(id.index()).unwrap_or(u8::MAX)
}

impl From<&LaneStats> for LaneSample {
    fn from(lane: &LaneStats) -> Self {
        Self {
            id: number(lane.id),
            local: lane.local,
            remote: lane.remote,
            layer: lane.layer,
            srtt: lane.srtt,
            cwnd: lane.cwnd,
            unsent: lane.backlog,
            packets: lane.sent,
            lost: lane.lost,
        }
    }
}

impl From<&ReportedLane> for LaneSample {
    fn from(lane: &ReportedLane) -> Self {
        let ReportedLane { id, layer, srtt, cwnd, unsent, packets, lost } = *lane;
        Self { id, local: None, remote: None, layer, srtt, cwnd, unsent, packets, lost }
    }
}

impl From<&LaneStats> for ReportedLane {
    fn from(lane: &LaneStats) -> Self {
        let LaneSample { id, layer, srtt, cwnd, unsent, packets, lost, .. } = lane.into();
        Self { id, layer, srtt, cwnd, unsent, packets, lost }
    }
}

/// Sums over the samples of one lane.
#[derive(Clone, Debug)]
struct Watched {
    first: LaneSample,
    last: LaneSample,
    looks: u32,
    srtt: Duration,
    cwnd: u64,
    unsent: u64,
    most_unsent: Bytes,
}

/// Samples of all lanes of one sender.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lanes(Vec<Watched>);

impl Lanes {
    /// Takes a sample of each lane. Lanes may disappear, and new ones may appear.
    pub(crate) fn look(&mut self, lanes: &[LaneSample]) {
        for lane in lanes {
            match self.0.iter_mut().find(|watched| watched.last.id == lane.id) {
                Some(watched) => watched.look(*lane),
                None => self.0.push(Watched::begin(*lane)),
            }
        }
    }

    /// Returns the means and sums of each lane of the connection with this number.
    pub(crate) fn outcome(&self, connection: usize) -> Vec<LaneOutcome> {
        self.0.iter().map(|watched| watched.outcome(connection)).collect()
    }
}

impl Watched {
    fn begin(lane: LaneSample) -> Self {
        let mut watched = Self {
            first: lane,
            last: lane,
            looks: 0,
            srtt: Duration::ZERO,
            cwnd: 0,
            unsent: 0,
            most_unsent: Bytes::ZERO,
        };
        watched.look(lane);
        watched
    }

    // A server reports its lanes, so sums must not overflow whatever it says.
    fn look(&mut self, lane: LaneSample) {
        self.last = lane;
        self.looks = self.looks.saturating_add(1);
        self.srtt = self.srtt.saturating_add(lane.srtt);
        self.cwnd = self.cwnd.saturating_add(lane.cwnd.get());
        self.unsent = self.unsent.saturating_add(lane.unsent.get());
        self.most_unsent = self.most_unsent.max(lane.unsent);
    }

    fn outcome(&self, connection: usize) -> LaneOutcome {
        let (first, last) = (&self.first, &self.last);
        let looks = self.looks.max(1);
        LaneOutcome {
            connection,
            local: last.local,
            remote: last.remote,
            layer: last.layer,
            srtt_ms: self.srtt.as_secs_f64() * 1e3 / f64::from(looks),
            cwnd: Bytes::new(self.cwnd / u64::from(looks)),
            unsent: Bytes::new(self.unsent / u64::from(looks)),
            most_unsent: self.most_unsent,
            packets: last.packets.saturating_sub(first.packets),
            lost: last.lost.saturating_sub(first.lost),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(id: u8, cwnd: u64, packets: u64) -> ReportedLane {
        let (layer, srtt) = (Layer::High, Duration::from_millis(cwnd));
        let unsent = Bytes::new(cwnd / 2);
        ReportedLane { id, layer, srtt, cwnd: Bytes::new(cwnd), unsent, packets, lost: packets / 10 }
    }

    fn look(lanes: &mut Lanes, reported: &[ReportedLane]) {
        let samples: Vec<LaneSample> = reported.iter().map(LaneSample::from).collect();
        lanes.look(&samples);
    }

    #[test]
    fn states_are_means_and_counters_are_differences() {
        let mut lanes = Lanes::default();
        look(&mut lanes, &[lane(0, 10, 100)]);
        look(&mut lanes, &[lane(0, 30, 150), lane(3, 8, 7)]);
        look(&mut lanes, &[lane(3, 8, 17)]);
        let [first, second] = lanes.outcome(2).try_into().unwrap();
        assert_eq!((first.cwnd.get(), first.unsent.get(), first.most_unsent.get()), (20, 10, 15));
        assert!((first.srtt_ms - 20.0).abs() < 1e-9);
        assert_eq!((first.packets, first.lost, first.connection), (50, 5, 2));
        assert_eq!((second.packets, second.remote), (10, None));
    }

    #[test]
    fn reports_of_any_size_are_summed() {
        let mut lanes = Lanes::default();
        let wild = ReportedLane { srtt: Duration::MAX, ..lane(0, u64::MAX, u64::MAX) };
        look(&mut lanes, &[wild]);
        look(&mut lanes, &[wild]);
        look(&mut lanes, &[lane(0, 0, 0)]);
        assert_eq!(lanes.outcome(1)[0].packets, 0);
    }
}
