//! Scenarios of an application over the Conductor, in virtual time.

use marcato_sched::conductor::{
    CancelOutcome, Conductor, Config, Debt, Event, Message, MessageId, OfferError, Removal,
    ReprioritiseError, ShedPolicy, Shedding, Slab, Tally,
};
use marcato_units::{Bytes, Duration, Priority, Time};

const CHUNK: Bytes = Bytes::kb(1);
const START: Time = Time::ZERO;

fn message(kilobytes: u64, priority: Priority) -> Message {
    Message::new(Bytes::kb(kilobytes), priority)
}

fn conductor(debt: Debt) -> Conductor {
    Conductor::new(Config::with_debt(debt)).expect("a preset")
}

fn tally(messages: u64, kilobytes: u64) -> Tally {
    Tally { messages, bytes: Bytes::kb(kilobytes) }
}

#[test]
fn save_data_discards_queued_and_refuses_new_data_until_lifted() {
    let mut conductor = conductor(Debt::authors());
    conductor.offer(START, message(5, Priority::P1)).unwrap();
    let images = conductor.offer(START, message(60, Priority::P3)).unwrap();
    conductor.offer(START, message(150, Priority::P4)).unwrap();

    assert_eq!(conductor.discard_less_urgent_than(Priority::P2), tally(2, 210));
    assert_eq!(conductor.queued(), tally(1, 5));
    assert_eq!(conductor.message(images), None);
    let refused = OfferError::Discarding { threshold: Priority::P2 };
    assert_eq!(conductor.offer(START, message(1, Priority::P3)), Err(refused));
    let kept = conductor.offer(START, message(1, Priority::P2)).unwrap();
    assert_eq!(
        conductor.reprioritise(kept, Priority::P3),
        Err(ReprioritiseError::Discarding { threshold: Priority::P2 })
    );

    assert_eq!(conductor.discard_less_urgent_than(Priority::P4), Tally::default());
    assert!(conductor.offer(START, message(1, Priority::P4)).is_ok());
    assert_eq!(conductor.counters().level(Priority::P4).discarded, tally(1, 150));
}

#[test]
fn save_data_finishes_begun_messages_unless_partial_is_allowed() {
    let mut conductor = conductor(Debt::authors());
    let whole = conductor.offer(START, message(3, Priority::P4)).unwrap();
    conductor.grant(START, CHUNK).unwrap();
    assert_eq!(conductor.discard_less_urgent_than(Priority::P0), Tally::default());
    assert_eq!(conductor.cancel(whole), Ok(CancelOutcome::PartSent { sent: CHUNK }));

    conductor.discard_less_urgent_than(Priority::P4);
    conductor.offer(START, message(3, Priority::P4).allowing_partial_delivery()).unwrap();
    conductor.grant(START, CHUNK).unwrap();
    assert_eq!(conductor.discard_less_urgent_than(Priority::P0), tally(1, 2));
    assert!(conductor.is_empty());
}

#[test]
fn shedding_takes_old_messages_of_the_least_urgent_level_first() {
    let mut conductor = conductor(Debt::authors());
    let at = Time::from_millis;
    let old_image = conductor.offer(at(0), message(10, Priority::P3)).unwrap();
    let old_sync = conductor.offer(at(1), message(10, Priority::P4)).unwrap();
    let young_sync = conductor.offer(at(100), message(10, Priority::P4)).unwrap();
    let policy =
        ShedPolicy { spare: Priority::P1, older_than: Duration::from_millis(99), down_to: Bytes::kb(20) };
    assert_eq!(conductor.shed(at(100), &policy), tally(1, 10));
    assert_eq!(conductor.message(old_sync), None, "P4 before P3, although the image is older");
    assert_eq!(conductor.shed(at(100), &ShedPolicy { down_to: Bytes::ZERO, ..policy }), tally(1, 10));
    assert_eq!(conductor.message(old_image), None);
    assert!(conductor.message(young_sync).is_some(), "not old enough");
    assert_eq!(conductor.counters().total().shed, tally(2, 20));
}

/// Conductor with default shedding, over a path that takes a chunk whenever it has carried the one
/// before; records the messages shed.
struct Congested<'a> {
    conductor: Conductor<Slab, &'a mut dyn FnMut(Event)>,
    now: Time,
}

impl<'a> Congested<'a> {
    fn new(shedding: Shedding, observer: &'a mut dyn FnMut(Event)) -> Self {
        let config = Config { shedding: Some(shedding), ..Config::with_debt(Debt::strict()) };
        Self { conductor: Conductor::new(config).expect("a preset").observed_by(observer), now: START }
    }

    fn offer(&mut self, message: Message) -> MessageId {
        self.conductor.offer(self.now, message).expect("there is room")
    }

    /// Carries `rate` bytes per second for `millis`.
    fn carry(&mut self, rate: u64, millis: u64) {
        let until = self.now + Duration::from_millis(millis);
        let chunk = Duration::from_nanos(1_000_000_000 * CHUNK.get() / rate);
        while self.now + chunk <= until {
            self.now += chunk;
            self.conductor.grant(self.now, CHUNK);
        }
        self.now = until;
    }

    /// Carries nothing for `millis`, while the application keeps checking.
    fn stall(&mut self, millis: u64) {
        for _ in 0..millis / 100 {
            self.now += Duration::from_millis(100);
            self.conductor.peek(self.now);
        }
    }

    fn shed(&self) -> Tally {
        self.conductor.counters().total().shed
    }
}

#[test]
fn two_large_files_at_a_steady_rate_lose_nothing() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    for _ in 0..2 {
        path.offer(message(10_000, Priority::P3));
    }
    path.carry(1_000_000, 21_000);
    assert_eq!(path.shed(), Tally::default());
    assert!(path.conductor.is_empty());
}

#[test]
fn more_offered_than_a_steady_path_carries_is_no_congestion() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    for _ in 0..120 {
        path.offer(message(100, Priority::P4));
        path.carry(50_000, 1000);
    }
    assert_eq!(path.shed(), Tally::default());
}

#[test]
fn a_rate_collapse_sheds_the_least_urgent_level_oldest_first() {
    let mut shed = Vec::new();
    let mut watch = |event| {
        if let Event::Removed { id, reason: Removal::Shed, .. } = event {
            shed.push(id);
        }
    };
    let (old_image, sync, young_sync, vital);
    {
        let mut path = Congested::new(Shedding::default(), &mut watch);
        vital = path.offer(message(20_000, Priority::P1));
        path.carry(1_000_000, 10_000);
        old_image = path.offer(message(1000, Priority::P3));
        sync = [(); 2].map(|()| path.offer(message(1000, Priority::P4)));
        // Less than a quarter of the rate; at the end of the third second of it, messages older
        // than 2 s are shed.
        path.carry(240_000, 1900);
        young_sync = path.offer(message(1000, Priority::P4));
        path.carry(240_000, 1000);
        assert_eq!(path.shed(), Tally::default());
        path.carry(240_000, 200);
        assert_eq!(path.shed().messages, 3);
        assert_eq!(path.conductor.counters().sheddings, 1);
        assert!(path.conductor.message(young_sync).is_some() && path.conductor.message(vital).is_some());
        // It lasts, and young messages become old enough.
        path.carry(240_000, 1000);
        assert_eq!(path.conductor.counters().sheddings, 2);
        assert!(path.conductor.message(vital).is_some(), "P1 is spared");
    }
    assert_eq!(shed, [sync[0], sync[1], old_image, young_sync]);
}

/// A transport may take much less than it asks for.
#[test]
fn refused_bytes_are_no_part_of_the_usual_rate() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    for _ in 0..20 {
        path.offer(message(1000, Priority::P4));
    }
    for _ in 0..100 {
        path.carry(200_000, 100);
        let grant = path.conductor.grant(path.now, Bytes::kb(200)).unwrap();
        path.conductor.refuse(grant, Bytes::ZERO).unwrap();
    }
    // A third of what was carried, and much less than a quarter of what was granted.
    path.carry(67_000, 10_000);
    assert_eq!(path.shed(), Tally::default());
}

#[test]
fn a_rate_just_above_a_quarter_and_short_stalls_shed_nothing() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    for _ in 0..60 {
        path.offer(message(1000, Priority::P4));
    }
    path.carry(1_000_000, 10_000);
    path.carry(260_000, 10_000);
    assert_eq!(path.shed(), Tally::default());
    // Each stall is too short by itself, and is forgotten as soon as the rate recovers.
    for _ in 0..5 {
        path.carry(1_000_000, 3000);
        path.stall(2400);
    }
    assert_eq!(path.shed(), Tally::default());
    path.stall(2000);
    assert_eq!(path.conductor.counters().sheddings, 1);
}

#[test]
fn a_backlog_that_drains_in_time_survives_a_rate_collapse() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    path.offer(message(10_000, Priority::P1));
    path.carry(1_000_000, 10_000);
    // A twentieth of the rate, and a backlog that waits for 1.6 s and more.
    for _ in 0..8 {
        path.offer(message(10, Priority::P4));
    }
    for _ in 0..10 {
        for _ in 0..5 {
            path.offer(message(10, Priority::P4));
        }
        path.carry(50_000, 1000);
        assert_eq!(path.conductor.queued().bytes, Bytes::kb(80));
    }
    assert_eq!(path.shed(), Tally::default());
}

#[test]
fn after_a_minute_a_lower_rate_is_the_usual_one() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    path.offer(message(60_000, Priority::P1));
    path.carry(1_000_000, 10_000);
    let sheddings = |path: &mut Congested<'_>| {
        let before = path.conductor.counters().sheddings;
        path.offer(message(10, Priority::P4));
        path.carry(100_000, 5000);
        path.conductor.counters().sheddings - before
    };
    assert_eq!(sheddings(&mut path), 1);
    path.carry(100_000, 45_000);
    assert_eq!(sheddings(&mut path), 1);
    path.carry(100_000, 5000);
    assert_eq!(sheddings(&mut path), 0);
    assert_eq!(path.conductor.counters().sheddings, 2);
}

#[test]
fn application_limited_traffic_does_not_lower_the_usual_rate() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    path.offer(message(10_000, Priority::P2));
    path.carry(1_000_000, 11_000);
    // For two minutes the application offers a hundredth of that.
    for _ in 0..120 {
        path.offer(message(10, Priority::P2));
        path.carry(1_000_000, 1000);
    }
    path.offer(message(1000, Priority::P1));
    path.offer(message(1000, Priority::P4));
    path.carry(100_000, 4200);
    assert_eq!(path.shed().messages, 1);
}

#[test]
fn silence_that_nobody_watched_says_nothing() {
    let mut nobody = |_| ();
    let mut path = Congested::new(Shedding::default(), &mut nobody);
    for _ in 0..20 {
        path.offer(message(1000, Priority::P4));
    }
    path.carry(1_000_000, 10_000);
    path.now += Duration::from_secs(6);
    path.carry(1_000_000, 9000);
    assert_eq!(path.shed(), Tally::default());
}

#[test]
fn a_message_whose_lifetime_is_over_is_never_granted() {
    let mut events = Vec::new();
    {
        let mut conductor = conductor(Debt::authors()).observed_by(|event| events.push(event));
        let at = Time::from_millis;
        let position = |ms| message(1, Priority::P0).with_lifetime(Duration::from_millis(ms));
        conductor.offer(at(0), position(50)).unwrap();
        conductor.offer(at(0), position(100)).unwrap();
        conductor.offer(at(0), message(1, Priority::P0)).unwrap();
        let grant = conductor.grant(at(100), CHUNK).unwrap();
        assert_eq!(grant.len, CHUNK, "at its last instant it still goes");
        assert_eq!(conductor.counters().level(Priority::P0).expired, tally(1, 1));
        assert_eq!(conductor.queued(), tally(1, 1));
    }
    let expired =
        events.iter().filter(|e| matches!(e, Event::Removed { reason: Removal::Expired, .. })).count();
    assert_eq!(expired, 1);
}

#[test]
fn a_begun_message_outlives_its_lifetime_unless_partial_is_ok() {
    let lifetime = Duration::from_millis(10);
    let whole = message(3, Priority::P2).with_lifetime(lifetime);
    for (message, rest) in [(whole, 2), (whole.allowing_partial_delivery(), 0)] {
        let mut conductor = conductor(Debt::authors());
        conductor.offer(START, message).unwrap();
        conductor.grant(START, CHUNK).unwrap();
        assert_eq!(conductor.grant(Time::from_millis(11), Bytes::kb(9)).map(|g| g.len), {
            (rest > 0).then_some(Bytes::kb(rest))
        });
        assert!(conductor.is_empty());
    }
}

/// An hour of a 200-byte reading every 100 ms, and then readings until the debt is at its worst.
fn an_hour_of_quiet_telemetry(debt: Debt) -> (Conductor, Bytes) {
    let mut conductor = conductor(debt);
    let reading = Message::new(Bytes::new(200), Priority::P0);
    let read = |conductor: &mut Conductor, i: u64| {
        let now = Time::from_millis(100 * i);
        conductor.offer(now, reading).expect("there is room");
        assert!(conductor.grant(now, CHUNK).expect("the reading waits").fin);
    };
    for i in 0..36_000 {
        read(&mut conductor, i);
    }
    let after_the_hour = conductor.debt(Priority::P0);
    for i in 36_000..36_300 {
        if !conductor.is_in_debt(Priority::P0) {
            read(&mut conductor, i);
        }
    }
    (conductor, after_the_hour)
}

#[test]
fn quiet_telemetry_delays_p0_under_authors_debt_but_not_ours() {
    let background_before_urgent = |conductor: &mut Conductor| {
        let now = Time::from_secs(4_000);
        conductor.offer(now, message(1000, Priority::P4)).unwrap();
        let urgent = conductor.offer(now, message(1, Priority::P0)).unwrap();
        let mut before = Bytes::ZERO;
        loop {
            let grant = conductor.grant(now, CHUNK).unwrap();
            if grant.message == urgent {
                return before;
            }
            before += grant.len;
        }
    };
    let (mut authors, debt) = an_hour_of_quiet_telemetry(Debt::authors());
    assert!(debt > Bytes::ZERO, "it owes to nobody in particular");
    assert!(authors.is_in_debt(Priority::P0));
    // 60 kB of debt, paid back at 2 bytes per byte until it is below 30 kB.
    assert_eq!(background_before_urgent(&mut authors), Bytes::kb(16));

    let (mut ours, debt) = an_hour_of_quiet_telemetry(Debt::marcato());
    assert_eq!(debt, Bytes::ZERO);
    assert!(!ours.is_in_debt(Priority::P0));
    assert_eq!(background_before_urgent(&mut ours), Bytes::ZERO);
}

#[test]
fn a_level_served_while_p0_waits_in_debt_is_charged() {
    // One byte of P1 pays back trunc(0.5) = 0: without a charge, P0 would wait forever.
    let mut conductor = conductor(Debt::marcato());
    conductor.offer(START, message(61, Priority::P0)).unwrap();
    conductor.offer(START, Message::new(Bytes::new(1), Priority::P1)).unwrap();
    while !conductor.is_in_debt(Priority::P0) {
        conductor.grant(START, CHUNK).unwrap();
    }
    let mut passed_over = 0;
    while conductor.grant(START, CHUNK).unwrap().priority == Priority::P1 {
        passed_over += 1;
        conductor.offer(START, Message::new(Bytes::new(1), Priority::P1)).unwrap();
    }
    assert_eq!(passed_over, 30_000, "until P1 is in debt too");
}

#[test]
fn strict_priority_never_owes_anything() {
    let mut conductor = conductor(Debt::strict());
    conductor.offer(START, message(1, Priority::P4)).unwrap();
    conductor.offer(START, message(1000, Priority::P0)).unwrap();
    for _ in 0..1000 {
        assert_eq!(conductor.grant(START, CHUNK).unwrap().priority, Priority::P0);
    }
    assert_eq!(conductor.grant(START, CHUNK).unwrap().priority, Priority::P4);
}

#[test]
fn one_priority_for_all_is_first_in_first_out() {
    let mut conductor = conductor(Debt::authors());
    let ids: Vec<_> = (0..100).map(|_| conductor.offer(START, message(1, Priority::P2)).unwrap()).collect();
    let order: Vec<_> = core::iter::from_fn(|| conductor.grant(START, CHUNK)).map(|g| g.message).collect();
    assert_eq!(order, ids);
}
