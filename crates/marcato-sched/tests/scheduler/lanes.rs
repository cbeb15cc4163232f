//! Guarantees of lane schedulers, on engines with constant windows and no loss, except where a test
//! injects one.

use std::collections::{HashMap, VecDeque};

use marcato_sched::conductor::{Message, Redundancy};
use marcato_sched::lane::PathId;
use marcato_sched::reserve::{Source, SourceKey};
use marcato_sched::schedule::{
    Budget, Choice, Cwr, CwrConfig, CwrRed, Fresh, LaneScheduler, Layered, LayeredConfig, LowRepairs, LowRtt,
    Offer, Preference, Purpose, RoundRobin, Selective, Wait,
};
use marcato_sched::{Conductor, Config, Debt, LaneId, LaneSet, LaneView};
use marcato_units::{Bytes, Duration, Layer, Priority, Time};
use proptest::prelude::*;

const PACKET: Bytes = Bytes::kb(1);

fn cases() -> ProptestConfig {
    ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() }
}

fn ms(millis: u64) -> Time {
    Time::from_millis(millis)
}

fn id(index: u8) -> LaneId {
    LaneId::new(index).expect("there are sixteen")
}

fn lane(index: u8, window: Bytes, rtt: u64) -> LaneView {
    LaneView::new(id(index), window, Duration::from_millis(rtt))
}

/// Lanes that acknowledge each packet exactly one round trip after it was sent.
struct World<S> {
    scheduler: S,
    lanes: Vec<LaneView>,
    /// Packets in flight on each lane: time of the acknowledgement and length.
    flying: Vec<VecDeque<(Time, Bytes)>>,
    now: Time,
    messages: u64,
    /// Background bytes sent.
    background: Bytes,
    /// Copied bytes, counted independently of the scheduler.
    copies: Bytes,
    first: Bytes,
}

impl<S: LaneScheduler> World<S> {
    fn new(scheduler: S, lanes: Vec<LaneView>) -> Self {
        let flying = vec![VecDeque::new(); lanes.len()];
        let (background, copies, first) = (Bytes::ZERO, Bytes::ZERO, Bytes::ZERO);
        Self { scheduler, lanes, flying, now: Time::ZERO, messages: 0, background, copies, first }
    }

    /// Advances to `now`; packets acknowledged by then free their room.
    fn pass_to(&mut self, now: Time) {
        self.now = now;
        for (lane, flying) in self.lanes.iter_mut().zip(&mut self.flying) {
            while let Some(&(_, len)) = flying.front().filter(|(at, _)| *at <= now) {
                flying.pop_front();
                lane.in_flight -= len;
                self.scheduler.acked(now, lane.id, len);
            }
        }
    }

    fn send(&mut self, purpose: Purpose, len: Bytes) -> Choice {
        let choice = self.scheduler.choose(self.now, &self.lanes, purpose, len);
        assert_eq!(
            choice,
            self.scheduler.choose(self.now, &self.lanes, purpose, len),
            "asking changes nothing"
        );
        for (copy, on) in choice.lanes().iter().enumerate() {
            let lane = &mut self.lanes[on.index()];
            assert!(lane.free() >= len, "room is there");
            self.scheduler.sent(self.now, lane, purpose, len);
            lane.in_flight += len;
            self.flying[on.index()].push_back((self.now + lane.srtt, len));
            *(if copy == 0 { &mut self.first } else { &mut self.copies }) += len;
        }
        choice
    }

    /// Sends background data until it has to wait; returns the reason.
    fn saturate(&mut self) -> Wait {
        loop {
            match self.send(background(), PACKET) {
                Choice::Wait(why) => return why,
                _ => self.background += PACKET,
            }
        }
    }

    /// Releases an urgent message and sends as much as possible at once; returns the choices and
    /// the unsent rest.
    fn release(
        &mut self,
        source: Option<SourceKey>,
        len: Bytes,
        redundancy: Redundancy,
    ) -> (Vec<Choice>, Bytes) {
        self.messages += 1;
        let message = self.messages;
        let offer = Offer { message, source, priority: Priority::P0, len, redundancy };
        self.scheduler.message_offered(self.now, &offer);
        let mut fresh = Fresh { redundancy, ..Fresh::new(message, Priority::P0, len) };
        let mut choices = Vec::new();
        while !fresh.rest.is_zero() {
            let packet = fresh.rest.min(PACKET);
            match self.send(Purpose::New(fresh), packet) {
                Choice::Wait(_) => return (choices, fresh.rest),
                choice => choices.push(choice),
            }
            fresh = fresh.after(packet);
        }
        self.scheduler.message_complete(self.now, message);
        (choices, Bytes::ZERO)
    }
}

/// Purpose of an endless background message's packet.
fn background() -> Purpose {
    Purpose::New(Fresh::new(u64::MAX, Priority::P4, Bytes::MAX))
}

/// First packet of a message of `len`.
fn fresh(message: u64, priority: Priority, len: Bytes, redundancy: Redundancy) -> Fresh {
    Fresh { redundancy, ..Fresh::new(message, priority, len) }
}

/// A copy of bytes that lane `on` carries.
fn copy_of(on: u8) -> Purpose {
    Purpose::Duplicate { priority: Priority::P0, carried: LaneSet::one(id(on)) }
}

fn paper() -> CwrConfig {
    CwrConfig::paper()
}

/// Link that sends packets one after the other, each in the same time.
struct Serial {
    packet_time: Duration,
    free_at: Time,
}

impl Serial {
    fn new(packet_time: Duration) -> Self {
        Self { packet_time, free_at: Time::ZERO }
    }

    /// Returns the end of transmission of a packet that arrives at `now`.
    fn pass(&mut self, now: Time) -> Time {
        self.free_at = self.free_at.max(now) + self.packet_time;
        self.free_at
    }
}

/// CWR, Fig. 3: a window of four packets, empty; stream 1 has data at t1; stream 2 gets three
/// urgent packets at t3. One packet of stream 1 leaves at t2. The urgent ones leave at once, the
/// last being sent shortly after t4, and the rest of stream 1 leaves at t5, t6, t7 and t8.
///
/// The following model of time reproduces all of this. t1 to t8 are one step apart. The path
/// carries one packet per step, and acknowledges each by itself. The sender's own link takes half a
/// step for a packet, so that three are sent in one and a half. The round trip of a packet that
/// does not queue is three steps, of which one and a half are propagation, in both directions
/// together. In the figure, data available at t1 leaves at t2: the sender first asks then.
#[test]
fn the_example_of_figure_3() {
    let step = Duration::from_millis(10);
    let t = |half_steps: u64| Time::ZERO + step / 2 * u32::try_from(half_steps).unwrap();
    let (mut link, mut path) = (Serial::new(step / 2), Serial::new(step));
    let propagation = step * 3 / 2;

    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(2), Source::new(Duration::from_secs(1), PACKET * 3, t(2 * 3))).unwrap();
    // By priority, and within a level first in, first out: CWR Fig. 2b.
    let mut conductor =
        Conductor::new(Config { chunk: PACKET, ..Config::with_debt(Debt::strict()) }).unwrap();
    let mut messages = HashMap::from([
        (Priority::P4, Fresh::new(1, Priority::P4, PACKET * 5)),
        (Priority::P0, Fresh::new(2, Priority::P0, PACKET * 3)),
    ]);
    let mut lane = lane(0, PACKET * 4, 30);
    let mut acknowledged = VecDeque::new();
    // Start of each packet in half steps, and its level.
    let mut sent = Vec::new();
    let mut urgent_sent = Time::ZERO;
    for half in 2..=16 {
        let now = t(half);
        while acknowledged.front().is_some_and(|at| *at <= now) {
            acknowledged.pop_front();
            lane.in_flight -= PACKET;
            scheduler.acked(now, lane.id, PACKET);
        }
        if half == 2 {
            conductor.offer(now, Message::new(PACKET * 5, Priority::P4)).unwrap();
        }
        if half == 2 * 3 {
            conductor.offer(now, Message::new(PACKET * 3, Priority::P0)).unwrap();
            let (source, redundancy) = (Some(SourceKey(2)), Redundancy::Once);
            let offer = Offer { message: 2, source, priority: Priority::P0, len: PACKET * 3, redundancy };
            scheduler.message_offered(now, &offer);
        }
        if half < 2 * 2 || link.free_at > now {
            continue;
        }
        let Some(next) = conductor.peek(now) else { continue };
        let fresh = messages[&next.priority];
        match scheduler.choose(now, &[lane], Purpose::New(fresh), PACKET) {
            Choice::Wait(why) => {
                assert_eq!(next.priority, Priority::P4, "urgent data never waits");
                let reserved = if half < 2 * 3 { Wait::Reserved } else { Wait::NoRoom };
                assert_eq!(why, reserved, "at half step {half}");
            }
            choice => {
                assert_eq!(choice, Choice::One(lane.id));
                let grant = conductor.grant(now, PACKET).unwrap();
                assert_eq!((grant.priority, grant.len), (next.priority, PACKET));
                scheduler.sent(now, &lane, Purpose::New(fresh), grant.len);
                lane.in_flight += grant.len;
                messages.insert(grant.priority, fresh.after(grant.len));
                let left_link = link.pass(now);
                acknowledged.push_back(path.pass(left_link) + propagation);
                if grant.priority == Priority::P0 {
                    urgent_sent = left_link;
                }
                sent.push((half, grant.priority));
            }
        }
    }
    let sent: Vec<_> = sent.iter().map(|(half, level)| (*half, level.index())).collect();
    assert_eq!(sent, [(4, 4), (6, 0), (7, 0), (8, 0), (10, 4), (12, 4), (14, 4), (16, 4)]);
    assert_eq!(urgent_sent, t(9), "half a step after t4");
    assert!(conductor.is_empty());
}

#[test]
fn without_a_reservation_the_message_of_figure_3_has_to_wait() {
    let mut world = World::new(LowRtt::new(), vec![lane(0, PACKET * 4, 30)]);
    world.pass_to(ms(20));
    assert_eq!(world.saturate(), Wait::NoRoom);
    world.pass_to(ms(30));
    assert_eq!(world.release(None, PACKET * 3, Redundancy::Once), (vec![], PACKET * 3));
}

#[test]
fn a_redundant_message_takes_all_lanes_or_one() {
    let mut world =
        World::new(CwrRed::new(paper()).unwrap(), vec![lane(0, PACKET * 8, 20), lane(1, PACKET * 4, 50)]);
    let both: LaneSet = [id(0), id(1)].into_iter().collect();
    assert_eq!(world.release(None, PACKET * 4, Redundancy::EveryLane).0, [Choice::Each(both); 4]);
    // The slow lane is full now.
    assert_eq!(world.release(None, PACKET * 2, Redundancy::EveryLane).0, [Choice::One(id(0)); 2]);
    world.pass_to(ms(20));
    // The message fits neither lane, but both together: it is split, and no part of it is sent
    // twice.
    world.lanes[0].cwnd = PACKET * 3;
    world.pass_to(ms(60));
    world.lanes[1].cwnd = PACKET * 3;
    let (choices, left) = world.release(None, PACKET * 5, Redundancy::EveryLane);
    assert_eq!(choices, [vec![Choice::One(id(0)); 3], vec![Choice::One(id(1)); 2]].concat());
    assert_eq!((left, world.copies), (Bytes::ZERO, PACKET * 4));
}

#[test]
fn a_message_sent_once_at_first_is_not_duplicated_later() {
    let mut world =
        World::new(CwrRed::new(paper()).unwrap(), vec![lane(0, PACKET * 4, 20), lane(1, PACKET * 4, 50)]);
    let (choices, left) = world.release(None, PACKET * 12, Redundancy::EveryLane);
    assert_eq!((choices.len(), left), (8, PACKET * 4));
    world.pass_to(ms(100));
    let rest = fresh(1, Priority::P0, PACKET * 12, Redundancy::EveryLane).after(PACKET * 8);
    assert_eq!(world.send(Purpose::New(rest), PACKET), Choice::One(id(0)));
}

#[test]
fn a_message_too_large_for_the_fast_window_takes_the_slow_lane() {
    // CWR §IV-C2: if the reservation is not successful, the slower path may be selected.
    let mut world =
        World::new(Cwr::new(paper()).unwrap(), vec![lane(0, PACKET * 2, 20), lane(1, PACKET * 9, 50)]);
    assert_eq!(world.release(None, PACKET * 3, Redundancy::Once).0, [Choice::One(id(1)); 3]);
    assert_eq!(world.release(None, PACKET * 2, Redundancy::Once).0, [Choice::One(id(0)); 2]);
}

#[test]
fn a_message_of_one_source_leaves_the_room_of_another_alone() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 40), lane(1, PACKET * 4, 50)]);
    // Room is held on lane 0, so a message without a source takes the slower lane.
    assert_eq!(world.release(None, PACKET * 2, Redundancy::Once).0, [Choice::One(id(1)); 2]);
    // A third finds no other room: urgent data is not refused.
    assert_eq!(world.release(None, PACKET * 3, Redundancy::Once).0, [Choice::One(id(0)); 3]);
}

#[test]
fn copies_of_undeclared_messages_leave_reserved_room_untouched() {
    let mut scheduler = CwrRed::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 50), lane(1, PACKET * 6, 50)]);
    let both: LaneSet = [id(0), id(1)].into_iter().collect();
    // It would fit both lanes, but one of them only within the room held there.
    assert_eq!(world.release(None, PACKET * 2, Redundancy::EveryLane).0, [Choice::One(id(1)); 2]);
    // A message that fits both lanes outside the held room is duplicated.
    assert_eq!(world.release(None, PACKET, Redundancy::EveryLane).0, [Choice::Each(both)]);
    // The source still finds its reservation.
    world.pass_to(ms(30));
    let (choices, left) = world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::EveryLane);
    assert_eq!((choices, left), (vec![Choice::Each(both); 3], Bytes::ZERO));
}

#[test]
fn only_urgent_retransmissions_may_use_reserved_room() {
    let again = |priority| Purpose::Retransmission { priority, lost_on: id(0) };
    let schedulers: [Box<dyn Fn() -> Box<dyn LaneScheduler>>; 2] = [
        Box::new(|| {
            let mut cwr = Cwr::new(paper()).unwrap();
            cwr.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
            Box::new(cwr)
        }),
        Box::new(|| {
            let mut red = CwrRed::new(paper()).unwrap();
            red.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
            Box::new(red)
        }),
    ];
    for scheduler in &schedulers {
        let mut scheduler = scheduler();
        let mut lanes = [lane(0, PACKET * 4, 50)];
        // One packet fits outside the held room, whatever its priority.
        let background = again(Priority::P4);
        assert_eq!(scheduler.choose(Time::ZERO, &lanes, background, PACKET), Choice::One(id(0)));
        scheduler.sent(Time::ZERO, &lanes[0], background, PACKET);
        lanes[0].in_flight += PACKET;
        assert_eq!(scheduler.choose(Time::ZERO, &lanes, background, PACKET), Choice::Wait(Wait::Reserved));
        assert_eq!(scheduler.choose(Time::ZERO, &lanes, again(Priority::P0), PACKET), Choice::One(id(0)));
        // If there is unreserved room, urgent data takes that.
        let both = [lanes[0], lane(1, PACKET * 9, 90)];
        let elsewhere = scheduler.choose(Time::ZERO, &both, again(Priority::P0), PACKET);
        assert_eq!(elsewhere, Choice::One(id(1)));
    }
}

#[test]
fn after_a_loss_a_message_is_sent_as_low_rtt_would() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_millis(100), PACKET * 3, ms(100))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 8, 50), lane(1, PACKET * 8, 90)]);
    world.pass_to(ms(60));
    assert_eq!(world.saturate(), Wait::Reserved);
    world.scheduler.lost(world.now, id(0));
    world.lanes[0].cwnd = PACKET * 6;
    // The hold is gone, but the smaller window is full ...
    assert_eq!(world.saturate(), Wait::NoRoom);
    world.pass_to(ms(100));
    // ... and the message waits.
    assert_eq!(world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once).1, PACKET * 3);
    // For the next release, room is held again.
    world.pass_to(ms(199));
    world.saturate();
    world.pass_to(ms(200));
    let (choices, left) = world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once);
    assert_eq!((choices.len(), left), (3, Bytes::ZERO));
}

#[test]
fn on_equal_round_trips_both_lanes_give_room_in_turn() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_millis(100), PACKET * 3, ms(100))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 8, 50), lane(1, PACKET * 8, 50)]);
    let mut order = Vec::new();
    for release in (100..=600).step_by(100) {
        for step in (release - 100..release).step_by(10) {
            world.pass_to(ms(step));
            world.saturate();
        }
        world.pass_to(ms(release));
        let (choices, _) = world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once);
        order.extend(choices.first().map(|choice| choice.lanes().first().unwrap().index()));
        assert_eq!(choices.len(), 3);
    }
    assert_eq!(order, [0, 1, 0, 1, 0, 1]);
}

#[test]
fn the_preset_leaves_half_of_a_window_learns_and_has_a_budget() {
    let preset = CwrConfig::marcato();
    assert_eq!((preset.threshold, preset.background_share, preset.learn), (Priority::P0, 500, true));
    assert_eq!(preset.budget, Budget::default());
    assert_ne!(preset.budget, Budget::UNLIMITED);
}

#[test]
fn a_source_is_withdrawn_once() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
    assert!(scheduler.withdraw(SourceKey(1)));
    assert!(!scheduler.withdraw(SourceKey(1)));
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 40)]);
    assert_eq!((world.saturate(), world.background), (Wait::NoRoom, PACKET * 4));
    assert_eq!(world.scheduler.first(), PACKET * 4);
    assert!(!CwrRed::new(paper()).unwrap().withdraw(SourceKey(1)));
}

#[test]
fn a_resumed_message_ignores_the_plan_of_another_of_its_level() {
    let mut world =
        World::new(Cwr::new(paper()).unwrap(), vec![lane(0, PACKET * 3, 20), lane(1, PACKET * 9, 50)]);
    let first = fresh(1, Priority::P0, PACKET * 3, Redundancy::Once);
    assert_eq!(world.send(Purpose::New(first), PACKET), Choice::One(id(0)));
    // It fits lane 1 alone.
    let second = fresh(2, Priority::P0, PACKET * 4, Redundancy::Once);
    assert_eq!(world.send(Purpose::New(second), PACKET), Choice::One(id(1)));
    assert_eq!(world.send(Purpose::New(first.after(PACKET)), PACKET), Choice::One(id(0)));
}

#[test]
fn the_end_of_a_message_leaves_the_plans_of_other_levels_alone() {
    let config = CwrConfig { threshold: Priority::P1, ..paper() };
    let mut world =
        World::new(Cwr::new(config).unwrap(), vec![lane(0, PACKET * 2, 20), lane(1, PACKET * 9, 50)]);
    let first = fresh(1, Priority::P0, PACKET * 3, Redundancy::Once);
    assert_eq!(world.send(Purpose::New(first), PACKET), Choice::One(id(1)));
    let second = fresh(2, Priority::P1, PACKET, Redundancy::Once);
    assert_eq!(world.send(Purpose::New(second), PACKET), Choice::One(id(0)));
    world.scheduler.message_complete(world.now, 2);
    // Lane 0 has room for a packet, but the message was to go whole.
    assert_eq!(world.send(Purpose::New(first.after(PACKET)), PACKET), Choice::One(id(1)));
}

#[test]
fn a_message_that_is_cancelled_gives_its_room_back() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 40)]);
    assert_eq!(world.saturate(), Wait::Reserved);
    let (source, redundancy) = (Some(SourceKey(1)), Redundancy::Once);
    let offer = Offer { message: 1, source, priority: Priority::P0, len: PACKET * 3, redundancy };
    world.pass_to(ms(30));
    world.scheduler.message_offered(world.now, &offer);
    assert_eq!(world.scheduler.reserve().reserved(id(0)), PACKET * 3);
    world.scheduler.message_complete(world.now, 1);
    assert_eq!(world.scheduler.reserve().reserved(id(0)), Bytes::ZERO);
}

/// Records its calls and returns its own answers.
#[derive(Default)]
struct Told(Vec<String>);

impl LaneScheduler for Told {
    fn choose(&mut self, _: Time, lanes: &[LaneView], _: Purpose, _: Bytes) -> Choice {
        Choice::One(lanes[0].id)
    }

    fn sent(&mut self, _: Time, lane: &LaneView, _: Purpose, len: Bytes) {
        self.0.push(format!("sent {len} on {:?}", lane.id));
    }

    fn acked(&mut self, _: Time, lane: LaneId, len: Bytes) {
        self.0.push(format!("acked {len} on {lane:?}"));
    }

    fn lost(&mut self, _: Time, lane: LaneId) {
        self.0.push(format!("lost on {lane:?}"));
    }

    fn owes(&mut self, waiting: Bytes) {
        self.0.push(format!("owes {waiting}"));
    }

    fn message_offered(&mut self, _: Time, offer: &Offer) {
        self.0.push(format!("offered {}", offer.message));
    }

    fn message_complete(&mut self, _: Time, message: u64) {
        self.0.push(format!("complete {message}"));
    }

    fn reserved(&self, _: Time, _: &LaneView) -> Bytes {
        Bytes::new(42)
    }

    fn wakeup(&self) -> Option<Time> {
        Some(ms(42))
    }
}

/// Makes each of the reporting calls to a scheduler once.
fn tell(scheduler: &mut impl LaneScheduler) {
    let lane = lane(0, PACKET * 4, 40);
    let (source, redundancy) = (Some(SourceKey(1)), Redundancy::Once);
    let offer = Offer { message: 7, source, priority: Priority::P0, len: PACKET, redundancy };
    scheduler.message_offered(ms(1), &offer);
    scheduler.sent(ms(2), &lane, Purpose::New(Fresh::new(7, Priority::P0, PACKET)), PACKET);
    scheduler.message_complete(ms(3), 7);
    scheduler.owes(PACKET * 2);
    scheduler.acked(ms(4), lane.id, PACKET);
    scheduler.lost(ms(5), lane.id);
}

#[test]
fn a_layered_scheduler_passes_on_whatever_it_is_told_and_asked() {
    let mut base = Told::default();
    tell(&mut base);
    assert_eq!(base.0.len(), 6);
    let mut layered = Layered::new(Told::default(), LayeredConfig::paper());
    tell(&mut layered);
    assert_eq!(layered.base().0, base.0);
    let high = lane(0, PACKET * 4, 40);
    let low = LaneView { layer: Layer::Low, ..high };
    assert_eq!((layered.wakeup(), layered.reserved(ms(6), &high)), (Some(ms(42)), Bytes::new(42)));
    assert_eq!(layered.reserved(ms(6), &low), Bytes::ZERO);
    assert_eq!(layered.choose(ms(6), &[high], copy_of(0), PACKET), Choice::One(id(0)));
}

#[test]
fn a_redundant_reservation_is_held_dropped_freed_and_withdrawn() {
    let lanes = [lane(0, PACKET * 4, 40), lane(1, PACKET * 4, 40)];
    let open = || {
        let mut scheduler = CwrRed::new(paper()).unwrap();
        scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(30))).unwrap();
        scheduler.choose(Time::ZERO, &lanes, background(), PACKET);
        scheduler
    };
    let held = |scheduler: &CwrRed| [0, 1].map(|at| scheduler.reserved(ms(1), &lanes[at]).get() / 1000);
    let mut scheduler = open();
    assert_eq!(held(&scheduler), [3, 3]);
    // An eighth of the period after the release.
    assert_eq!(scheduler.wakeup(), Some(ms(155)));
    scheduler.lost(ms(2), lanes[1].id);
    assert_eq!(held(&scheduler), [3, 0]);
    assert!(scheduler.withdraw(SourceKey(1)));
    assert_eq!((held(&scheduler), scheduler.wakeup()), ([0, 0], None));
    let mut scheduler = open();
    let (source, redundancy) = (Some(SourceKey(1)), Redundancy::EveryLane);
    let offer = Offer { message: 1, source, priority: Priority::P0, len: PACKET * 3, redundancy };
    scheduler.message_offered(ms(30), &offer);
    assert_eq!(held(&scheduler), [3, 3]);
    scheduler.message_complete(ms(30), 1);
    assert_eq!(held(&scheduler), [0, 0]);
}

#[test]
fn a_lane_that_is_full_gets_no_copy_of_the_rest() {
    let mut world =
        World::new(CwrRed::new(paper()).unwrap(), vec![lane(0, PACKET * 4, 20), lane(1, PACKET * 4, 50)]);
    let both: LaneSet = [id(0), id(1)].into_iter().collect();
    let message = fresh(1, Priority::P0, PACKET * 3, Redundancy::EveryLane);
    assert_eq!(world.send(Purpose::New(message), PACKET), Choice::Each(both));
    world.lanes[1].cwnd = PACKET;
    assert_eq!(world.send(Purpose::New(message.after(PACKET)), PACKET), Choice::One(id(0)));
}

#[test]
fn a_message_whose_copies_exceed_the_budget_has_none() {
    for (packets, copied) in [(2, false), (3, true)] {
        let config = CwrConfig { budget: Budget::new(PACKET * packets, 0).unwrap(), ..paper() };
        let mut world =
            World::new(CwrRed::new(config).unwrap(), vec![lane(0, PACKET * 9, 20), lane(1, PACKET * 9, 50)]);
        let both: LaneSet = [id(0), id(1)].into_iter().collect();
        let message = fresh(1, Priority::P0, PACKET * 3, Redundancy::EveryLane);
        let expected = if copied { Choice::Each(both) } else { Choice::One(id(0)) };
        // CWR §III-D2: all of it or none. Two packets of three could still be copied.
        for sent in 0..3 {
            let rest = if sent == 0 { message } else { message.after(PACKET * sent) };
            assert_eq!(world.send(Purpose::New(rest), PACKET), expected, "packet {sent}");
        }
        assert_eq!(world.scheduler.copies(), if copied { PACKET * 3 } else { Bytes::ZERO });
    }
}

#[test]
fn copies_end_with_their_budget_in_the_middle_of_a_message() {
    let config = CwrConfig { budget: Budget::new(PACKET * 3, 0).unwrap(), ..paper() };
    let mut world =
        World::new(CwrRed::new(config).unwrap(), vec![lane(0, PACKET * 9, 20), lane(1, PACKET * 9, 50)]);
    let both: LaneSet = [id(0), id(1)].into_iter().collect();
    let message = fresh(1, Priority::P0, PACKET * 3, Redundancy::EveryLane);
    assert_eq!(world.send(Purpose::New(message), PACKET), Choice::Each(both));
    // Copies of another message use up the budget, so the message is no longer duplicated.
    let copy = copy_of(0);
    assert_eq!(world.send(copy, PACKET), Choice::One(id(1)));
    assert_eq!(world.send(copy, PACKET), Choice::One(id(1)));
    assert_eq!(world.scheduler.copies(), PACKET * 3);
    assert_eq!(world.send(copy, PACKET), Choice::Wait(Wait::Budget));
    assert_eq!(world.send(Purpose::New(message.after(PACKET)), PACKET), Choice::One(id(0)));
}

#[test]
fn a_message_larger_than_announced_takes_its_own_room_as_well() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 2, ms(10))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 20), lane(1, PACKET * 9, 50)]);
    assert_eq!((world.saturate(), world.background), (Wait::Reserved, PACKET * 11));
    world.pass_to(ms(60));
    world.scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 2, ms(70))).unwrap();
    world.scheduler.choose(world.now, &world.lanes, background(), PACKET);
    world.pass_to(ms(70));
    assert_eq!(world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once).0, [Choice::One(id(0)); 3]);
}

#[test]
fn a_message_leaves_its_reserved_room_for_a_now_faster_lane() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(10))).unwrap();
    scheduler.choose(Time::ZERO, &[lane(0, PACKET * 4, 20), lane(1, PACKET * 4, 40)], background(), PACKET);
    assert_eq!(scheduler.reserve().reserved(id(0)), PACKET * 3);
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 60), lane(1, PACKET * 4, 40)]);
    world.pass_to(ms(10));
    assert_eq!(world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once).0, [Choice::One(id(1)); 3]);
}

#[test]
fn room_below_one_packet_is_not_unused_capacity() {
    let mut scheduler = CwrRed::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(40))).unwrap();
    let narrow = LaneView { in_flight: PACKET * 2, ..lane(1, Bytes::new(2500), 40) };
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 40), narrow]);
    assert_eq!(world.saturate(), Wait::Reserved);
    world.pass_to(ms(10));
    world.saturate();
    // Three packets' room for 10 ms, and nothing for half a packet's on the other lane.
    assert_eq!(world.scheduler.unused().byte_nanos, 3_000 * 10_000_000);
}

#[test]
fn unused_capacity_is_counted() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_secs(1), PACKET * 3, ms(40))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 40)]);
    assert_eq!(world.saturate(), Wait::Reserved);
    world.pass_to(ms(30));
    assert_eq!(world.saturate(), Wait::Reserved);
    // Three packets' room for 30 ms.
    let unused = world.scheduler.unused();
    assert_eq!(unused.byte_nanos, 3_000 * 30_000_000);
    assert!(unused.refusals >= 2);
    // Room that the message takes no longer counts as unused.
    world.pass_to(ms(40));
    world.release(Some(SourceKey(1)), PACKET * 3, Redundancy::Once);
    world.pass_to(ms(60));
    world.saturate();
    assert_eq!(world.scheduler.unused().byte_nanos, 3_000 * 40_000_000);
}

#[test]
fn a_reservation_that_nobody_uses_ends_at_the_announced_time() {
    let mut scheduler = Cwr::new(paper()).unwrap();
    scheduler.declare(SourceKey(1), Source::new(Duration::from_millis(800), PACKET * 3, ms(40))).unwrap();
    let mut world = World::new(scheduler, vec![lane(0, PACKET * 4, 1000)]);
    assert_eq!(world.saturate(), Wait::Reserved);
    let wakeup = world.scheduler.wakeup().unwrap();
    assert_eq!(wakeup, ms(140));
    world.pass_to(wakeup + Duration::from_nanos(1));
    // The next release lies within the long round trip already.
    assert_eq!((world.saturate(), world.scheduler.reserve().counters().missed), (Wait::Reserved, 1));
}

#[test]
fn an_undeclared_source_is_learned_and_then_finds_room() {
    // With a round trip of 53 ms, the window is full of background data when a message arrives.
    let mut world = World::new(Cwr::new(CwrConfig::marcato()).unwrap(), vec![lane(0, Bytes::kb(40), 53)]);
    let mut at_once = Vec::new();
    for release in 1..=30 {
        for step in 0..10 {
            world.pass_to(ms(release * 100 + step * 10 - 100));
            world.saturate();
        }
        world.pass_to(ms(release * 100));
        at_once.push(world.release(Some(SourceKey(5)), Bytes::kb(10), Redundancy::Once).1.is_zero());
    }
    assert!(at_once[..11].iter().filter(|at_once| !**at_once).count() > 5, "nobody knew: {at_once:?}");
    assert!(at_once[13..].iter().all(|at_once| *at_once), "{at_once:?}");
}

#[test]
fn a_source_once_declared_is_learned_from_new_messages_alone() {
    let key = SourceKey(5);
    let mut world = World::new(Cwr::new(CwrConfig::marcato()).unwrap(), vec![lane(0, Bytes::kb(40), 53)]);
    let release = |world: &mut World<Cwr>, at: u64| {
        world.pass_to(ms(at));
        world.release(Some(key), Bytes::kb(10), Redundancy::Once);
    };
    for number in 1..=20 {
        release(&mut world, number * 100);
    }
    assert!(world.scheduler.reserve().source(key).is_some());
    let source = Source::new(Duration::from_millis(300), Bytes::kb(10), ms(2300));
    world.scheduler.declare(key, source).unwrap();
    assert!(world.scheduler.withdraw(key));
    // One message says nothing of a period, and the old ones count no more.
    release(&mut world, 2100);
    assert!(world.scheduler.reserve().source(key).is_none());
}

/// Returns the releases of several sources, in order of time.
fn schedule(sources: &[Source], until: Time) -> Vec<(Time, usize)> {
    let mut releases = Vec::new();
    for (index, source) in sources.iter().enumerate() {
        let mut at = source.next_release;
        while at < until {
            releases.push((at, index));
            at += source.period;
        }
    }
    releases.sort();
    releases
}

/// Runs saturating background against sources; returns the number of messages that left at once,
/// and of all.
fn honoured<S: LaneScheduler>(
    world: &mut World<S>,
    sources: &[Source],
    redundancy: Redundancy,
    until: Time,
) -> (usize, usize) {
    let releases = schedule(sources, until);
    let mut at_once = 0;
    let mut next = 0;
    let mut step = 0;
    while next < releases.len() {
        let (at, index) = releases[next];
        let tick = ms(step);
        if tick < at {
            world.pass_to(tick);
            step += 1;
        } else {
            world.pass_to(at);
            let (_, left) = world.release(Some(SourceKey(index as u64)), sources[index].size, redundancy);
            at_once += usize::from(left.is_zero());
            next += 1;
        }
        world.saturate();
    }
    (at_once, releases.len())
}

fn table_2() -> Vec<Source> {
    [(100, 10), (70, 7), (135, 5)]
        .map(|(period, kb)| Source::new(Duration::from_millis(period), Bytes::kb(kb), ms(period)))
        .to_vec()
}

#[test]
fn the_sources_of_table_2_all_find_room() {
    for (first, second) in [(50, 50), (50, 100), (20, 100)] {
        let lanes = vec![lane(0, Bytes::kb(60), first), lane(1, Bytes::kb(60), second)];
        let declare = |declare: &mut dyn FnMut(SourceKey, Source)| {
            for (key, source) in table_2().into_iter().enumerate() {
                declare(SourceKey(key as u64), source);
            }
        };
        let until = Time::from_secs(20);

        let mut scheduler = Cwr::new(paper()).unwrap();
        declare(&mut |key, source| scheduler.declare(key, source).unwrap());
        let mut world = World::new(scheduler, lanes.clone());
        let (at_once, all) = honoured(&mut world, &table_2(), Redundancy::Once, until);
        assert_eq!(at_once, all, "Cwr at {first}/{second} ms");
        assert_eq!(world.copies, Bytes::ZERO);

        let mut scheduler = CwrRed::new(paper()).unwrap();
        declare(&mut |key, source| scheduler.declare(key, source).unwrap());
        let mut world = World::new(scheduler, lanes.clone());
        let (at_once, all) = honoured(&mut world, &table_2(), Redundancy::EveryLane, until);
        assert_eq!(at_once, all, "CwrRed at {first}/{second} ms");
        let messages: Bytes =
            schedule(&table_2(), until).iter().map(|(_, index)| table_2()[*index].size).sum();
        assert_eq!(world.copies, messages, "each is sent twice, whole");

        let mut world = World::new(LowRtt::new(), lanes);
        let (at_once, all) = honoured(&mut world, &table_2(), Redundancy::Once, until);
        assert!(at_once < all, "LowRtt makes none wait: {at_once} of {all}");
    }
}

/// At 370 ms the lane that holds room for the second message also holds as much for another, which
/// is not free yet. If the message avoided that lane for this reason, it would take the room of the
/// message at 380 ms.
#[test]
fn a_message_takes_its_room_while_another_hold_is_not_free_yet() {
    let source = |period, kb, next| {
        Source::new(Duration::from_millis(period), Bytes::kb(kb), ms(next) + Duration::from_nanos(1))
    };
    let sources = [source(19, 1, 361), source(70, 5, 376), source(48, 3, 370)];
    let mut scheduler = Cwr::new(paper()).unwrap();
    for (key, source) in sources.iter().enumerate() {
        scheduler.declare(SourceKey(key as u64), *source).unwrap();
    }
    let mut world = World::new(scheduler, vec![lane(0, Bytes::kb(43), 78), lane(1, Bytes::kb(43), 78)]);
    let (at_once, all) = honoured(&mut world, &sources, Redundancy::Once, ms(1500));
    assert_eq!(at_once, all);
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    let source = (15u64..200, 1u64..6, 1u64..100, 0u64..1_000_000).prop_map(|(period, kb, next, nanos)| {
        let next = ms(next + 300) + Duration::from_nanos(nanos);
        Source::new(Duration::from_millis(period), Bytes::kb(kb), next)
    });
    prop::collection::vec(source, 1..5)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn an_announced_reservation_is_honoured_absent_loss(
        sources in sources(),
        rtts in prop::collection::vec(5u64..120, 1..4),
        redundant in any::<bool>(),
    ) {
        // Windows that hold all concurrent releases of the sources, and the background packet that
        // always fits. Releases are concurrent if they lie within a round trip before or after any
        // instant.
        let longest = *rtts.iter().max().unwrap();
        let releases = |source: &Source| (1..).take_while(|k| source.period * *k <= Duration::from_millis(longest)).count();
        let per_lane = |source: &Source| source.size * (2 * (releases(source) as u64 + 1));
        let window = sources.iter().map(per_lane).sum::<Bytes>() + PACKET;
        // No more releases within a round trip than are held ahead.
        prop_assume!(sources.iter().all(|source| Duration::from_millis(longest) < source.period * 8));
        let lanes: Vec<_> = rtts.iter().zip(0..).map(|(rtt, index)| lane(index, window, *rtt)).collect();
        let until = ms(1500);
        if redundant {
            let mut scheduler = CwrRed::new(paper()).unwrap();
            for (key, source) in sources.iter().enumerate() {
                scheduler.declare(SourceKey(key as u64), *source).unwrap();
            }
            let mut world = World::new(scheduler, lanes);
            let (at_once, all) = honoured(&mut world, &sources, Redundancy::EveryLane, until);
            prop_assert_eq!(at_once, all);
            prop_assert!(world.background > Bytes::ZERO);
            // On every lane, too.
            let messages: Bytes = schedule(&sources, until).iter().map(|(_, index)| sources[*index].size).sum();
            prop_assert_eq!(world.copies, messages * (rtts.len() as u64 - 1));
        } else {
            let mut scheduler = Cwr::new(paper()).unwrap();
            for (key, source) in sources.iter().enumerate() {
                scheduler.declare(SourceKey(key as u64), *source).unwrap();
            }
            let mut world = World::new(scheduler, lanes);
            let (at_once, all) = honoured(&mut world, &sources, Redundancy::Once, until);
            prop_assert_eq!(at_once, all);
            prop_assert!(world.background > Bytes::ZERO);
        }
    }

    #[test]
    fn background_keeps_its_share_of_every_window(
        sources in sources(),
        share in 0u32..=1000,
        window in 1u64..60,
        rtts in prop::collection::vec(5u64..120, 1..4),
    ) {
        let config = CwrConfig { background_share: share, ..paper() };
        let mut scheduler = CwrRed::new(config).unwrap();
        for (key, source) in sources.iter().enumerate() {
            scheduler.declare(SourceKey(key as u64), Source { size: source.size * 20, ..*source }).unwrap();
        }
        let window = Bytes::kb(window);
        let lanes: Vec<_> = rtts.iter().zip(0..).map(|(rtt, index)| lane(index, window, *rtt)).collect();
        let mut world = World::new(scheduler, lanes);
        for step in 0..60 {
            world.pass_to(ms(step * 10));
            world.saturate();
            for lane in &world.lanes {
                let least = Bytes::new(window.get() * u64::from(share) / 1000).max(PACKET);
                prop_assert!(lane.in_flight + PACKET > least, "{:?} of {least}", lane);
            }
        }
    }

    #[test]
    fn no_duplicate_goes_beyond_the_budget(
        allowance in 0u64..20_000,
        thousandths in 0u32..2000,
        steps in prop::collection::vec((0u64..30, 1u64..12_000, any::<bool>()), 1..60),
    ) {
        let budget = Budget::new(Bytes::new(allowance), thousandths).unwrap();
        let config = CwrConfig { budget, ..paper() };
        let lanes = vec![lane(0, Bytes::kb(30), 20), lane(1, Bytes::kb(20), 50), lane(2, Bytes::kb(25), 50)];
        let mut world = World::new(CwrRed::new(config).unwrap(), lanes);
        let mut now = Time::ZERO;
        for (pause, len, copy) in steps {
            now += Duration::from_millis(pause);
            world.pass_to(now);
            if copy {
                let purpose = copy_of(0);
                let choice = world.send(purpose, PACKET);
                if !choice.lanes().is_empty() {
                    // `send` counted this copy as sent for the first time.
                    world.first -= PACKET;
                    world.copies += PACKET;
                }
            } else {
                world.release(None, Bytes::new(len), Redundancy::EveryLane);
            }
            prop_assert!(world.copies <= budget.limit(world.first), "{} of {}", world.copies, world.first);
            prop_assert_eq!((world.scheduler.copies(), world.scheduler.first()), (world.copies, world.first));
        }
    }

    #[test]
    fn layers_keep_their_order(
        lanes in prop::collection::vec((0u64..8, 0u64..8, 1u64..100, any::<bool>(), any::<bool>()), 1..6),
        level in 0usize..5,
        again in any::<bool>(),
        owed in 0u64..40,
        which in 0u8..3,
    ) {
        let lanes: Vec<_> = lanes.iter().zip(0..).map(|((window, in_flight, rtt, low, usable), index)| LaneView {
            layer: if *low { Layer::Low } else { Layer::High },
            in_flight: Bytes::kb(*in_flight),
            usable: *usable,
            ..lane(index, Bytes::kb(*window), *rtt)
        }).collect();
        let config = [LayeredConfig::paper(), LayeredConfig::marcato(), LayeredConfig::cats()][usize::from(which)];
        let mut scheduler = Layered::new(LowRtt::new(), config);
        scheduler.owes(Bytes::kb(owed));
        let priority = Priority::ALL[level];
        let purpose = if again {
            Purpose::Retransmission { priority, lost_on: id(0) }
        } else {
            Purpose::New(Fresh::new(1, priority, Bytes::kb(100)))
        };
        let choice = scheduler.choose(Time::ZERO, &lanes, purpose, PACKET);
        let of = |layer| lanes.iter().filter(move |lane| lane.usable && lane.layer == layer);
        let roomy = |layer| of(layer).any(|lane| lane.free() >= PACKET);
        let works = |layer| of(layer).any(|lane| lane.cwnd >= PACKET);
        let only_low = !again && which == 2 && level >= 2 && works(Layer::Low) && of(Layer::High).count() > 0;
        let may_overflow = if again { which > 0 && owed > 0 } else { !(which == 2 && level >= 2) };
        let on = choice.lanes().first().map(|on| lanes[on.index()].layer);
        match on {
            Some(Layer::High) => prop_assert!(!only_low),
            Some(Layer::Low) => prop_assert!(
                of(Layer::High).count() == 0 || only_low || may_overflow && !roomy(Layer::High)
            ),
            // A packet waits only if the lanes that it may take have no room. The reason is
            // `NoLane` only if no lane is usable.
            None => {
                prop_assert!(only_low || !roomy(Layer::High));
                prop_assert!(!roomy(Layer::Low) || of(Layer::High).count() > 0 && !may_overflow && !only_low);
                prop_assert_eq!(choice == Choice::Wait(Wait::NoLane), lanes.iter().all(|lane| !lane.usable));
            }
        }
    }

    #[test]
    fn nothing_panics_and_only_lanes_that_can_are_chosen(
        calls in prop::collection::vec(
            (0u8..7, absurd(), prop::collection::vec(view(), 0..6), 0usize..5, absurd(), absurd()), 1..80),
        which in 0u8..8,
    ) {
        let mut scheduler: Box<dyn LaneScheduler> = match which {
            0 => Box::new(LowRtt::new()),
            1 => Box::new(RoundRobin::new()),
            2 => Box::new(Selective::new(Priority::P1)),
            3 => {
                let mut cwr = Cwr::new(CwrConfig::marcato()).unwrap();
                cwr.declare(SourceKey(0), Source::new(Duration::from_nanos(1), Bytes::MAX, Time::ZERO)).unwrap();
                cwr.declare(SourceKey(1), Source::new(Duration::MAX, Bytes::new(1), Time::MAX)).unwrap();
                Box::new(cwr)
            }
            5 => Box::new(Layered::new(RoundRobin::new(), LayeredConfig::cats())),
            6 => {
                let low_repairs = LowRepairs::LowBeyond { thousandths: u32::MAX };
                let config = LayeredConfig { low_repairs, ..LayeredConfig::paper() };
                Box::new(Layered::new(LowRtt::new(), config.prefer(Priority::P3, Preference::HighOnly)))
            }
            7 => {
                let mut red = CwrRed::new(paper()).unwrap();
                red.declare(SourceKey(0), Source::new(Duration::from_millis(1), Bytes::kb(1), ms(5))).unwrap();
                Box::new(Layered::new(red, LayeredConfig::marcato()))
            }
            _ => {
                let mut red = CwrRed::new(paper()).unwrap();
                red.declare(SourceKey(0), Source::new(Duration::from_millis(1), Bytes::kb(1), ms(5))).unwrap();
                Box::new(red)
            }
        };
        let mut now = Time::ZERO;
        let mut messages: HashMap<u64, Fresh> = HashMap::new();
        for (call, time, lanes, level, len, size) in calls {
            now = now.max(Time::from_nanos(time));
            let (len, priority) = (Bytes::new(len), Priority::ALL[level]);
            let message = size % 4;
            let fresh = *messages.entry(message).or_insert(Fresh::new(message, priority, Bytes::new(size)));
            let purpose = match call {
                0 => Purpose::Retransmission { priority, lost_on: id(0) },
                1 => Purpose::Duplicate { priority, carried: lanes.iter().take(2).map(|lane| lane.id).collect() },
                2 => {
                    let source = Some(SourceKey(size % 3));
                    let offer = Offer { message, source, priority, len, redundancy: Redundancy::EveryLane };
                    scheduler.message_offered(now, &offer);
                    Purpose::New(fresh)
                }
                3 => { scheduler.owes(len); scheduler.lost(now, id(u8::try_from(level).unwrap())); Purpose::New(fresh) }
                4 => { scheduler.message_complete(now, message); messages.remove(&message); Purpose::New(fresh) }
                _ => Purpose::New(Fresh { redundancy: Redundancy::EveryLane, ..fresh }),
            };
            let choice = scheduler.choose(now, &lanes, purpose, len);
            for on in choice.lanes().iter() {
                // Ids may be duplicates here, which only a careless session causes.
                let mut named = lanes.iter().filter(|lane| lane.id == on);
                prop_assert!(named.clone().any(|lane| lane.usable));
                prop_assert!(which == 2 || named.clone().any(|lane| lane.free() >= len));
                let lane = named.next().unwrap();
                scheduler.sent(now, lane, purpose, len);
                prop_assert!(scheduler.reserved(now, lane) <= lane.cwnd || which == 2);
            }
            if let (Some(fresh), false) = (messages.get_mut(&message), choice.lanes().is_empty()) {
                *fresh = fresh.after(len);
            }
            let _ = scheduler.wakeup();
        }
    }
}

fn absurd() -> impl Strategy<Value = u64> {
    prop_oneof![4 => 0..100_000_000u64, 1 => Just(0), 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn view() -> impl Strategy<Value = LaneView> {
    (0u8..16, absurd(), absurd(), absurd(), any::<bool>(), any::<bool>(), any::<bool>()).prop_map(
        |(index, cwnd, in_flight, srtt, low, usable, backup)| LaneView {
            id: id(index),
            path: PathId(0),
            layer: if low { Layer::Low } else { Layer::High },
            cwnd: Bytes::new(cwnd),
            in_flight: Bytes::new(in_flight),
            srtt: Duration::from_nanos(srtt),
            usable,
            backup,
        },
    )
}
