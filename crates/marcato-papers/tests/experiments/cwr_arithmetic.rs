//! Comparison of the arithmetic about CWR with the schedulers themselves, on fixed windows.

use std::collections::VecDeque;

use marcato_papers::cwr::predict::{Reduction, collides, mean_window, utilisation};
use marcato_papers::cwr::published::{LOSS, PACKET, Periodic, RATE, SAME_RTT, Scheduler, TABLE_1};
use marcato_sched::conductor::Redundancy;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_sched::schedule::{Choice, Cwr, CwrConfig, CwrRed, Fresh, LaneScheduler, LowRtt, Offer};
use marcato_sched::{LaneId, LaneView, Purpose};
use marcato_units::{Bytes, Priority, Time};

const KEY: SourceKey = SourceKey(1);

/// A lane that transmits packets one after the other. Each is acknowledged a round trip after its
/// transmission.
struct Lane {
    view: LaneView,
    free_at: Time,
    flying: VecDeque<(Time, Bytes)>,
    acknowledged: Bytes,
}

struct World {
    scheduler: Box<dyn LaneScheduler>,
    lanes: [Lane; 2],
    now: Time,
}

impl World {
    fn new(scheduler: Scheduler, source: Periodic, window: Bytes) -> Self {
        let announced = Source::new(source.period, source.size, Time::ZERO + source.period);
        let scheduler: Box<dyn LaneScheduler> = match scheduler {
            Scheduler::LowRtt => Box::new(LowRtt::new()),
            Scheduler::Cwr => {
                let mut cwr = Cwr::new(CwrConfig::paper()).unwrap();
                cwr.declare(KEY, announced).unwrap();
                Box::new(cwr)
            }
            Scheduler::CwrRed => {
                let mut red = CwrRed::new(CwrConfig::paper()).unwrap();
                red.declare(KEY, announced).unwrap();
                Box::new(red)
            }
        };
        let lanes = [0, 1].map(|index| Lane {
            view: LaneView::new(LaneId::new(index).unwrap(), window, SAME_RTT[0]),
            free_at: Time::ZERO,
            flying: VecDeque::new(),
            acknowledged: Bytes::ZERO,
        });
        Self { scheduler, lanes, now: Time::ZERO }
    }

    fn send(&mut self, fresh: Fresh, len: Bytes) -> bool {
        let views = [0, 1].map(|index: usize| self.lanes[index].view);
        let choice = self.scheduler.choose(self.now, &views, Purpose::New(fresh), len);
        for on in choice.lanes().iter() {
            let lane = &mut self.lanes[on.index()];
            self.scheduler.sent(self.now, &lane.view, Purpose::New(fresh), len);
            lane.view.in_flight += len;
            lane.free_at = lane.free_at.max(self.now) + RATE.transmission_time(len);
            lane.flying.push_back((lane.free_at + SAME_RTT[0], len));
        }
        !matches!(choice, Choice::Wait(_))
    }

    /// Sends waiting data: the urgent message first, then endless background data.
    fn pump(&mut self, urgent: &mut Option<Fresh>) {
        while let Some(fresh) = *urgent {
            let len = fresh.rest.min(PACKET);
            if !self.send(fresh, len) {
                break;
            }
            let rest = fresh.after(len);
            *urgent = (!rest.rest.is_zero()).then_some(rest);
            if urgent.is_none() {
                self.scheduler.message_complete(self.now, fresh.message);
            }
        }
        // Background data waits until the message has left (CWR §III-C).
        while urgent.is_none() && self.send(Fresh::new(0, Priority::P4, Bytes::MAX), PACKET) {}
    }

    /// Shares of both windows that are acknowledged in a round trip.
    fn run(mut self, source: Periodic, warm_up: Time, until: Time) -> [f64; 2] {
        let mut release = Time::ZERO + source.period;
        let mut message = 0;
        let mut urgent = None;
        let mut before = [Bytes::ZERO; 2];
        self.pump(&mut urgent);
        while self.now < until {
            let acks = self.lanes.iter().filter_map(|lane| lane.flying.front().map(|(at, _)| *at));
            let next = acks.chain([release]).chain(self.scheduler.wakeup().filter(|at| *at > self.now));
            self.now = next.min().unwrap();
            for (lane, before) in self.lanes.iter_mut().zip(&mut before) {
                while let Some(&(_, len)) = lane.flying.front().filter(|(at, _)| *at <= self.now) {
                    lane.flying.pop_front();
                    lane.view.in_flight -= len;
                    lane.acknowledged += len;
                    self.scheduler.acked(self.now, lane.view.id, len);
                }
                if self.now <= warm_up {
                    *before = lane.acknowledged;
                }
            }
            if release <= self.now {
                release += source.period;
                message += 1;
                let (priority, redundancy) = (Priority::P0, Redundancy::EveryLane);
                let offer = Offer { message, source: Some(KEY), priority, len: source.size, redundancy };
                self.scheduler.message_offered(self.now, &offer);
                urgent = Some(Fresh { redundancy, ..Fresh::new(message, priority, source.size) });
            }
            self.pump(&mut urgent);
        }
        let round_trips = until.since(warm_up).as_secs_f64() / SAME_RTT[0].as_secs_f64();
        [0, 1].map(|index: usize| {
            let lane = &self.lanes[index];
            (lane.acknowledged - before[index]).get() as f64 / lane.view.cwnd.get() as f64 / round_trips
        })
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a window is far below 2^53 bytes")]
#[test]
fn schedulers_use_fixed_windows_as_the_arithmetic_predicts() {
    let mut bounds = 0;
    for reduction in Reduction::ALL {
        let window = mean_window(reduction, LOSS, PACKET);
        for row in TABLE_1 {
            let fixed = Bytes::new(libm::round(window) as u64);
            let world = World::new(row.scheduler, row.source, fixed);
            let used = world.run(row.source, Time::from_secs(5), Time::from_secs(65));
            let predicted = utilisation(row.scheduler, row.source, SAME_RTT[0], window);
            let at_most = collides(row.scheduler, row.source, SAME_RTT[0], window);
            // A partial packet that fits neither into the window nor next to a hold is not sent:
            // two in a round trip.
            let packets = if at_most { f64::INFINITY } else { 2.0 };
            let least = predicted - packets * PACKET.get() as f64 / window;
            for used in used {
                let at = format!("{reduction:?}, {} and {:?}: {used:.3}", row.scheduler, row.source);
                assert!((least..=predicted).contains(&used), "{at}, predicted {predicted:.3}");
            }
            bounds += usize::from(at_most);
        }
    }
    assert_eq!(bounds, 1, "messages of 50 kB every 50 ms on both lanes, with a window of 74 kB");
}
