//! Comparison of the Conductor with a slow model, which keeps every message in a vector and undoes
//! a grant by restoring the state before it. Every reply, counter, debt and state has to agree
//! after every operation.

use std::collections::VecDeque;

use marcato_sched::conductor::{
    CancelError, CancelOutcome, Candidates, Conductor, Config, Counters, Debt, Fixed, Grant, Message,
    MessageId, OfferError, RefuseError, ReprioritiseError, ShedPolicy, Store, Tally,
};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use proptest::prelude::*;

use crate::common::{CHUNK, rules};

/// Candidates of a grant: levels, and the level that no debtor may overtake.
#[derive(Clone, Copy, Debug)]
struct Among {
    levels: PrioritySet,
    protected: Option<Priority>,
}

impl Among {
    const ALL: Self = Self { levels: PrioritySet::ALL, protected: None };
}

impl From<Among> for Candidates {
    fn from(among: Among) -> Self {
        let candidates = Self::of(among.levels);
        among.protected.map_or(candidates, |level| candidates.protecting(level))
    }
}

#[derive(Clone, Debug)]
struct Waiting {
    id: usize,
    message: Message,
    sent: u64,
    offered: Time,
    deadline: Option<Time>,
}

impl Waiting {
    fn rest(&self) -> Tally {
        Tally { messages: 1, bytes: self.message.len - Bytes::new(self.sent) }
    }

    fn droppable(&self) -> bool {
        self.sent == 0 || self.message.partial_ok
    }
}

/// Change since the latest grant, to be replayed when the grant is undone.
#[derive(Clone, Debug)]
enum Change {
    Offered(Waiting),
    OfferRefused(Message),
    Removed(usize, Why),
    Moved(usize, Priority),
    Threshold(Priority),
}

#[derive(Clone, Copy, Debug)]
enum Why {
    Cancelled,
    Discarded,
    Expired,
    Shed,
    Evicted,
}

#[derive(Clone, Debug)]
struct State {
    levels: [VecDeque<Waiting>; 5],
    debts: [u128; 5],
    in_debt: [bool; 5],
    threshold: Priority,
    counters: Counters,
}

struct Model {
    rules: Debt,
    max_len: u64,
    /// Most messages and bytes queued when one of P1 to P4 is offered, and when one of P0 is.
    bounds: (usize, u64),
    urgent_bounds: (usize, u64),
    state: State,
    offers: usize,
    /// State before the latest grant, that grant's message and length, and its candidates.
    latest: Option<(State, usize, u64, Among)>,
    changes: Vec<Change>,
}

impl Model {
    /// Creates a model of a Conductor with these bounds in messages, without and with P0's reserve.
    fn new(config: &Config, messages: usize, urgent: usize) -> Self {
        let bytes = config.max_queued.get();
        Self {
            rules: config.debt,
            max_len: bytes,
            bounds: (messages, bytes),
            urgent_bounds: (urgent, bytes + bytes.div_ceil(8)),
            state: State {
                levels: Default::default(),
                debts: [0; 5],
                in_debt: [false; 5],
                threshold: Priority::P4,
                counters: Counters::default(),
            },
            offers: 0,
            latest: None,
            changes: Vec::new(),
        }
    }

    fn find(&self, id: usize) -> Option<(usize, usize)> {
        (0..5).find_map(|l| Some((l, self.state.levels[l].iter().position(|w| w.id == id)?)))
    }

    fn queued(&self) -> Tally {
        self.state.levels.iter().flatten().fold(Tally::default(), |sum, w| sum + w.rest())
    }

    fn apply(&mut self, change: Change) {
        self.changes.push(change.clone());
        let state = &mut self.state;
        match change {
            Change::Offered(waiting) => {
                let l = waiting.message.priority.index();
                state.counters.levels[l].offered += waiting.rest();
                state.levels[l].push_back(waiting);
            }
            Change::OfferRefused(message) => {
                state.counters.levels[message.priority.index()].refused +=
                    Tally { messages: 1, bytes: message.len };
            }
            Change::Removed(id, why) => {
                let (l, at) = self.find(id).expect("it waits");
                let waiting = self.state.levels[l].remove(at).expect("it waits");
                let counters = &mut self.state.counters.levels[l];
                match why {
                    Why::Cancelled => counters.cancelled += waiting.rest(),
                    Why::Discarded => counters.discarded += waiting.rest(),
                    Why::Expired => counters.expired += waiting.rest(),
                    Why::Shed => counters.shed += waiting.rest(),
                    Why::Evicted => counters.evicted += waiting.rest(),
                }
            }
            Change::Moved(id, to) => {
                let (l, at) = self.find(id).expect("it waits");
                let waiting = self.state.levels[l].remove(at).expect("it waits");
                self.state.counters.levels[l].moved_out += waiting.rest();
                self.state.counters.levels[to.index()].moved_in += waiting.rest();
                self.state.levels[to.index()].push_back(waiting);
            }
            Change::Threshold(threshold) => state.threshold = threshold,
        }
    }

    /// Removes or moves a message; its latest grant can then not be undone.
    fn apply_to(&mut self, id: usize, change: Change) {
        if self.latest.as_ref().is_some_and(|latest| latest.1 == id) {
            self.latest = None;
        }
        self.apply(change);
    }

    fn expire(&mut self, now: Time) {
        let over = |w: &&Waiting| w.droppable() && w.deadline.is_some_and(|deadline| now > deadline);
        let gone: Vec<usize> = self.state.levels.iter().flatten().filter(over).map(|w| w.id).collect();
        for id in gone {
            self.apply_to(id, Change::Removed(id, Why::Expired));
        }
    }

    /// Returns the error if `message` exceeds a bound in addition to `queued`.
    fn full(&self, queued: Tally, message: &Message) -> Option<OfferError> {
        let urgent = message.priority == Priority::P0;
        let (messages, bytes) = if urgent { self.urgent_bounds } else { self.bounds };
        if queued.messages >= messages as u64 {
            Some(OfferError::TooManyMessages { limit: messages })
        } else if queued.bytes.get() + message.len.get() > bytes {
            Some(OfferError::TooManyBytes { limit: Bytes::new(bytes) })
        } else {
            None
        }
    }

    /// Returns the messages that may be evicted for one of this level, in the order of eviction.
    fn evictable(&self, level: Priority) -> Vec<Waiting> {
        let levels = (level.index() + 1..5).rev();
        levels.flat_map(|l| self.state.levels[l].iter().filter(|w| w.droppable()).cloned()).collect()
    }

    fn offer(&mut self, now: Time, message: Message) -> Result<usize, OfferError> {
        self.expire(now);
        let threshold = self.state.threshold;
        let evictable = self.evictable(message.priority);
        let spare = evictable.iter().fold(Tally::default(), |sum, w| sum + w.rest());
        let all = self.queued();
        let stays = Tally { messages: all.messages - spare.messages, bytes: all.bytes - spare.bytes };
        let error = if message.len.is_zero() {
            Some(OfferError::Empty)
        } else if message.priority > threshold {
            Some(OfferError::Discarding { threshold })
        } else if message.len.get() > self.max_len {
            Some(OfferError::TooLong { limit: Bytes::new(self.max_len) })
        } else {
            self.full(stays, &message)
        };
        if let Some(error) = error {
            self.apply(Change::OfferRefused(message));
            return Err(error);
        }
        for victim in evictable {
            if self.full(self.queued(), &message).is_some() {
                self.apply_to(victim.id, Change::Removed(victim.id, Why::Evicted));
            }
        }
        let id = self.offers;
        self.offers += 1;
        let deadline = message.lifetime.map(|lifetime| now + lifetime);
        self.apply(Change::Offered(Waiting { id, message, sent: 0, offered: now, deadline }));
        Ok(id)
    }

    /// Returns the level whose turn it is, after redistribution if needed.
    fn choose(&mut self, among: Among) -> Option<usize> {
        let before = self.state.clone();
        let chosen = self.choose_any(among)?;
        let overtakes = among.protected.is_some_and(|protected| chosen < protected.index());
        if before.in_debt[chosen] && overtakes {
            self.state = before;
            return None;
        }
        Some(chosen)
    }

    /// As [`choose`](Self::choose), without the protected level.
    fn choose_any(&mut self, among: Among) -> Option<usize> {
        let rules = self.rules;
        let State { levels, debts, in_debt, counters, .. } = &mut self.state;
        let may = |l: usize| among.levels.contains(Priority::ALL[l]) && !levels[l].is_empty();
        let waiting: Vec<usize> = (0..5).filter(|&l| may(l)).collect();
        let first = *waiting.first()?;
        if let Some(&l) = waiting.iter().find(|&&l| !in_debt[l]) {
            return Some(l);
        }
        counters.redistributions += 1;
        let m = |l: usize| u128::from(rules.multipliers[l].as_thousandths());
        let total: u128 = match rules.redistribution {
            marcato_sched::conductor::Redistribution::AllLevels => (0..5).map(m).sum(),
            marcato_sched::conductor::Redistribution::InDebt => waiting.iter().map(|&l| m(l)).sum(),
        };
        let low = |l: usize| u128::from(rules.watermarks[l].expect("it is in debt").low.get());
        for &l in &waiting {
            debts[l] = debts[l] * m(l) / total;
            in_debt[l] = debts[l] >= low(l);
        }
        if waiting.iter().all(|&l| in_debt[l]) {
            debts[first] = low(first) - 1;
            in_debt[first] = false;
        }
        waiting.into_iter().find(|&l| !in_debt[l])
    }

    fn grant_now(&mut self, budget: u64, among: Among) -> Option<(usize, u64, u64, bool)> {
        let l = self.choose(among)?;
        let state = &mut self.state;
        let unopposed = (0..5).all(|k| k == l || state.levels[k].is_empty());
        let head = state.levels[l].front_mut().expect("chosen");
        let (id, offset) = (head.id, head.sent);
        let len = head.rest().bytes.get().min(budget);
        head.sent += len;
        let fin = head.sent == head.message.len.get();
        if fin {
            state.levels[l].pop_front();
        }
        state.counters.levels[l].granted += Tally { messages: u64::from(fin), bytes: Bytes::new(len) };
        if let Some(marks) = self.rules.watermarks[l]
            && !(unopposed && self.rules.forgive_unopposed)
        {
            state.debts[l] += u128::from(len);
            if state.debts[l] >= u128::from(marks.high.get()) {
                state.in_debt[l] = true;
            }
        }
        let payback = u128::from(len) * u128::from(self.rules.multipliers[l].as_thousandths()) / 1000;
        for i in 0..l {
            state.debts[i] = state.debts[i].saturating_sub(payback);
            if self.rules.watermarks[i].is_none_or(|marks| state.debts[i] < u128::from(marks.low.get())) {
                state.in_debt[i] = false;
            }
        }
        Some((id, offset, len, fin))
    }

    fn grant(&mut self, now: Time, budget: u64, among: Among) -> Option<(usize, u64, u64, bool)> {
        self.expire(now);
        if budget == 0 {
            return None;
        }
        let before = self.state.clone();
        let grant = self.grant_now(budget, among)?;
        self.latest = Some((before, grant.0, grant.2, among));
        self.changes.clear();
        Some(grant)
    }

    fn refuse(&mut self, taken: u64) {
        let (before, _, len, among) = self.latest.take().expect("there is a latest grant");
        if taken < len {
            let refusals = self.state.counters.refusals;
            self.state = before;
            self.state.counters.refusals = refusals + 1;
            if taken > 0 {
                self.grant_now(taken, among);
            }
            for change in std::mem::take(&mut self.changes) {
                self.apply(change);
            }
        }
    }

    fn ids(&self, level: usize) -> Vec<usize> {
        self.state.levels[level].iter().map(|w| w.id).collect()
    }
}

#[derive(Clone, Debug)]
enum Op {
    Offer(Message),
    Grant(u64, Among),
    /// Part taken, in thousandths of the latest grant.
    Refuse(u64),
    Reprioritise(usize, Priority),
    Cancel(usize),
    Discard(Priority),
    Shed(ShedPolicy),
    Advance(u64),
    Peek(Among),
    /// Makes room for a message of this level.
    MakeRoom(Priority),
}

fn op() -> impl Strategy<Value = Op> {
    let level = || crate::common::level();
    let lifetime =
        prop_oneof![3 => Just(None), 2 => (0u64..40).prop_map(|ms| Some(Duration::from_millis(ms)))];
    let message =
        (0u64..5000, level(), lifetime, any::<bool>()).prop_map(|(len, priority, lifetime, partial_ok)| {
            Message { lifetime, partial_ok, ..Message::new(Bytes::new(len), priority) }
        });
    let policy = (level(), 0u64..30, 0u64..20_000).prop_map(|(spare, ms, down_to)| ShedPolicy {
        spare,
        older_than: Duration::from_millis(ms),
        down_to: Bytes::new(down_to),
    });
    // All levels, as over TCP, or some, as where flow control or a retransmission holds others
    // back.
    let among = || {
        let some = prop::collection::vec(level(), 0..5)
            .prop_map(|levels| levels.into_iter().fold(PrioritySet::ALL, PrioritySet::without));
        let some =
            (some, prop::option::of(level())).prop_map(|(levels, protected)| Among { levels, protected });
        prop_oneof![1 => Just(Among::ALL), 1 => some]
    };
    prop_oneof![
        30 => message.prop_map(Op::Offer),
        40 => (0..=CHUNK.get(), among()).prop_map(|(budget, among)| Op::Grant(budget, among)),
        12 => (0u64..=1000).prop_map(Op::Refuse),
        2 => Just(Op::Refuse(0)),
        6 => (any::<usize>(), level()).prop_map(|(pick, level)| Op::Reprioritise(pick, level)),
        4 => any::<usize>().prop_map(Op::Cancel),
        1 => level().prop_map(Op::Discard),
        2 => Just(Op::Discard(Priority::P4)),
        1 => policy.prop_map(Op::Shed),
        8 => (0u64..20).prop_map(Op::Advance),
        4 => among().prop_map(Op::Peek),
        2 => level().prop_map(Op::MakeRoom),
    ]
}

struct Bench<S> {
    conductor: Conductor<S>,
    model: Model,
    /// Ids in the Conductor of the model's messages.
    names: Vec<MessageId>,
    now: Time,
    latest: Option<Grant>,
}

impl<S: Store> Bench<S> {
    fn step(&mut self, op: &Op) -> Result<(), TestCaseError> {
        let Self { conductor, model, names, now, latest } = self;
        let now = *now;
        match *op {
            Op::Offer(message) => {
                let offered = conductor.offer(now, message);
                let expected = model.offer(now, message);
                prop_assert_eq!(offered.err(), expected.err());
                if let Ok(name) = offered {
                    prop_assert!(!names.contains(&name), "a name given twice");
                    names.push(name);
                }
            }
            Op::Grant(budget, among) => {
                let grant = conductor.grant_among(now, Bytes::new(budget), among);
                let expected = model.grant(now, budget, among);
                let plain = grant.map(|g| (g.message, g.offset.get(), g.len.get(), g.fin));
                prop_assert_eq!(plain, expected.map(|(id, offset, len, fin)| (names[id], offset, len, fin)));
                let waits = (0..5)
                    .any(|l| among.levels.contains(Priority::ALL[l]) && !model.state.levels[l].is_empty());
                let free = among.protected.is_none();
                prop_assert!(grant.is_some() || budget == 0 || !waits || !free, "not live");
                *latest = grant.or(*latest);
            }
            Op::Refuse(thousandths) => {
                let Some(grant) = *latest else { return Ok(()) };
                let taken = Bytes::new(grant.len.get() * thousandths / 1000);
                let refused = conductor.refuse(grant, taken);
                if model.latest.is_none() {
                    prop_assert_eq!(refused, Err(RefuseError::NotTheLatest));
                } else {
                    prop_assert_eq!(refused, Ok(()));
                    model.refuse(taken.get());
                }
                prop_assert_eq!(conductor.refuse(grant, taken), Err(RefuseError::NotTheLatest));
            }
            Op::Reprioritise(pick, level) => {
                let Some(id) = pick.checked_rem(names.len()) else { return Ok(()) };
                let threshold = model.state.threshold;
                let expected = match model.find(id) {
                    None => Err(ReprioritiseError::Unknown),
                    Some(_) if level > threshold => Err(ReprioritiseError::Discarding { threshold }),
                    Some((from, _)) => {
                        if from != level.index() {
                            model.apply_to(id, Change::Moved(id, level));
                        }
                        Ok(())
                    }
                };
                prop_assert_eq!(conductor.reprioritise(names[id], level), expected);
            }
            Op::Cancel(pick) => {
                let Some(id) = pick.checked_rem(names.len()) else { return Ok(()) };
                let expected = match model.find(id).map(|(l, at)| model.state.levels[l][at].sent) {
                    None => Err(CancelError::Unknown),
                    Some(0) => Ok(CancelOutcome::Unsent),
                    Some(sent) => Ok(CancelOutcome::PartSent { sent: Bytes::new(sent) }),
                };
                if expected.is_ok() {
                    model.apply_to(id, Change::Removed(id, Why::Cancelled));
                }
                prop_assert_eq!(conductor.cancel(names[id]), expected);
            }
            Op::Discard(threshold) => {
                model.apply(Change::Threshold(threshold));
                let gone: Vec<Waiting> = (threshold.index() + 1..5)
                    .flat_map(|l| model.state.levels[l].iter().filter(|w| w.droppable()).cloned())
                    .collect();
                let expected = gone.iter().fold(Tally::default(), |sum, w| sum + w.rest());
                for w in gone {
                    model.apply_to(w.id, Change::Removed(w.id, Why::Discarded));
                }
                prop_assert_eq!(conductor.discard_less_urgent_than(threshold), expected);
            }
            Op::Shed(policy) => {
                let mut expected = Tally::default();
                for l in (policy.spare.index() + 1..5).rev() {
                    for w in model.state.levels[l].clone() {
                        let old = now - w.offered >= policy.older_than;
                        if old && w.droppable() && model.queued().bytes > policy.down_to {
                            model.apply_to(w.id, Change::Removed(w.id, Why::Shed));
                            expected += w.rest();
                        }
                    }
                }
                prop_assert_eq!(conductor.shed(now, &policy), expected);
            }
            Op::Advance(ms) => self.now = now + Duration::from_millis(ms),
            Op::MakeRoom(level) => {
                let before = model.queued().messages;
                model.expire(now);
                if model.queued().messages == before
                    && let Some(victim) = model.evictable(level).first()
                {
                    model.apply_to(victim.id, Change::Removed(victim.id, Why::Evicted));
                }
                let expected = model.queued().messages < before;
                prop_assert_eq!(conductor.make_room(now, level), expected);
            }
            Op::Peek(among) => {
                let peeked =
                    conductor.peek_among(now, among).map(|pending| (pending.message, pending.rest()));
                model.expire(now);
                let before = model.state.clone();
                let chosen = model.choose(among).map(|l| &model.state.levels[l][0]);
                prop_assert_eq!(peeked, chosen.map(|w| (names[w.id], w.rest().bytes)));
                model.state = before;
            }
        }
        self.agree()
    }

    fn agree(&self) -> Result<(), TestCaseError> {
        let Self { conductor, model, names, .. } = self;
        let mut counters = model.state.counters;
        for level in Priority::ALL {
            let l = level.index();
            prop_assert_eq!(
                u128::from(conductor.debt(level).get()),
                model.state.debts[l],
                "debt of {}",
                level
            );
            prop_assert_eq!(conductor.is_in_debt(level), model.state.in_debt[l], "state of {}", level);
            counters.levels[l].queued =
                model.state.levels[l].iter().fold(Tally::default(), |sum, w| sum + w.rest());
            for id in model.ids(l) {
                let (_, at) = model.find(id).expect("it waits");
                let pending = conductor.message(names[id]).expect("it waits");
                prop_assert_eq!(pending.priority, level);
                prop_assert_eq!(pending.sent.get(), model.state.levels[l][at].sent);
            }
        }
        prop_assert_eq!(conductor.counters(), &counters);
        prop_assert_eq!(conductor.queued(), model.queued());
        for counters in &conductor.counters().levels {
            let bytes = |tally: Tally| tally.bytes.get();
            let messages = |tally: Tally| tally.messages;
            for count in [bytes as fn(Tally) -> u64, messages] {
                prop_assert_eq!(
                    count(counters.offered) + count(counters.moved_in),
                    count(counters.granted)
                        + count(counters.queued)
                        + count(counters.discarded)
                        + count(counters.expired)
                        + count(counters.shed)
                        + count(counters.evicted)
                        + count(counters.cancelled)
                        + count(counters.moved_out),
                    "conservation"
                );
            }
        }
        Ok(())
    }
}

fn run<S: Store>(config: Config, store: S, bounds: (usize, usize), ops: &[Op]) -> Result<(), TestCaseError> {
    let model = Model::new(&config, bounds.0, bounds.1);
    let conductor = Conductor::with_store(config, store).expect("valid rules");
    let mut bench = Bench { conductor, model, names: Vec::new(), now: Time::ZERO, latest: None };
    for op in ops {
        bench.step(op)?;
    }
    // The remaining messages are granted to the last byte.
    while !bench.conductor.is_empty() {
        bench.step(&Op::Grant(CHUNK.get(), Among::ALL))?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(crate::common::cases())]

    #[test]
    fn the_conductor_does_what_the_slow_model_does(rules in rules(), ops in prop::collection::vec(op(), 1..300)) {
        let config = Config {
            chunk: CHUNK, max_messages: 24, max_queued: Bytes::kb(50), ..Config::with_debt(rules)
        };
        run(config, marcato_sched::conductor::Slab::new(27), (24, 27), &ops)?;
    }

    #[test]
    fn the_fixed_store_does_the_same(rules in rules(), ops in prop::collection::vec(op(), 1..300)) {
        let config = Config { chunk: CHUNK, max_queued: Bytes::kb(50), ..Config::with_debt(rules) };
        run(config, Fixed::<6>::new(), (5, 6), &ops)?;
    }
}
