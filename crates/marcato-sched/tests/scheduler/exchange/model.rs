//! Comparison of the exchange with a slow model. It keeps its responses in a vector, looks at all of
//! them for each grant, and undoes a grant by restoring the state before it. Every reply, debt and
//! state has to agree after every operation.

use std::collections::BTreeMap;

use marcato_sched::Debt;
use marcato_sched::conductor::{Candidates, Redistribution};
use marcato_sched::exchange::{
    Counters, Exchange, Grant, GroupId, Grouping, LevelTable, OpenError, Parameters, Peek, RefuseError,
    Rules, SentError, SupplyError, Urgency, Weight, WeightError,
};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Priority, PrioritySet, Rate};
use proptest::prelude::*;

use super::{config, urgency};
use crate::common::{CHUNK, cases, level, rules};

/// Most open responses of these tests.
const LIMIT: usize = 8;
/// Most weights of these tests.
const WEIGHTS: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq)]
struct Entry {
    stream: u64,
    parameters: Parameters,
    staged: u64,
    granted: u64,
    outstanding: u64,
    held: bool,
    finished: bool,
    ended: bool,
    /// Time of its latest turn as an incremental response.
    turn: Option<u64>,
}

impl Entry {
    fn can_send(&self) -> bool {
        !self.held && (self.staged > 0 || self.finished && !self.ended)
    }

    fn level(&self) -> usize {
        self.parameters.level_in(&LevelTable::DEFAULT).index()
    }

    /// Level, urgency and group.
    fn cell(&self) -> (usize, Urgency, u64) {
        (self.level(), self.parameters.urgency, self.parameters.group.0)
    }

    fn is(&self, incremental: bool) -> bool {
        self.parameters.incremental == incremental
    }
}

/// Change that comes off, to be repeated when a grant before it is undone.
#[derive(Clone, Copy, Debug)]
enum Change {
    Open(u64, Parameters),
    Supply(u64, u64),
    Finish(u64),
    Hold(u64, bool),
    Reprioritise(u64, Parameters),
    Close(u64),
    Sent(u64, u64),
    Rules(Debt),
    Weight(u64, u16),
}

/// Groups that share bytes: those of a level and urgency, or of a level.
type Party = (usize, Option<Urgency>);

#[derive(Clone)]
struct State {
    rules: Debt,
    responses: Vec<Entry>,
    debts: [u128; 5],
    in_debt: [bool; 5],
    /// Kind of the latest turn of each urgency and group: true for incremental.
    incremental_last: BTreeMap<(usize, Urgency, u64), bool>,
    turns: u64,
    counters: Counters,
    grouping: Grouping,
    weights: BTreeMap<u64, u16>,
    /// Bytes of each group divided by its weight, in units of 1/4096.
    shares: BTreeMap<(Party, u64), u64>,
    /// Share of the group of the latest grant of each party, before and after it.
    clocks: BTreeMap<Party, (u64, u64)>,
}

impl State {
    fn find(&mut self, stream: u64) -> &mut Entry {
        self.responses.iter_mut().find(|r| r.stream == stream).expect("it is open")
    }

    fn low(&self, level: usize) -> u128 {
        self.rules.watermarks[level].map_or(u128::MAX, |marks| marks.low.get().into())
    }

    fn high(&self, level: usize) -> u128 {
        self.rules.watermarks[level].map_or(u128::MAX, |marks| marks.high.get().into())
    }

    /// Party in which a response's group has a share.
    fn party(&self, r: &Entry) -> Party {
        let (level, urgency, _) = r.cell();
        (level, (self.grouping == Grouping::WithinUrgency).then_some(urgency))
    }

    /// Groups that can send.
    fn busy(&self) -> Vec<(Party, u64)> {
        let mut busy = self.responses.iter().filter(|r| r.can_send());
        let mut groups: Vec<_> = busy.by_ref().map(|r| (self.party(r), r.parameters.group.0)).collect();
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// Applies a change. A group that begins to send, and is behind the latest grant's begin, continues at
    /// its end.
    fn apply(&mut self, change: Change) {
        let before = self.busy();
        self.change(change);
        for group in self.busy().into_iter().filter(|group| !before.contains(group)) {
            let (start, finish) = self.clocks.get(&group.0).copied().unwrap_or((0, 0));
            let share = self.shares.entry(group).or_insert(finish);
            if *share < start {
                *share = finish;
            }
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Weight(group, weight) => _ = self.weights.insert(group, weight),
            Change::Open(stream, parameters) => {
                self.responses.push(Entry {
                    stream,
                    parameters,
                    staged: 0,
                    granted: 0,
                    outstanding: 0,
                    held: false,
                    finished: false,
                    ended: false,
                    turn: None,
                });
                self.counters.opened += 1;
            }
            Change::Supply(stream, bytes) => {
                self.find(stream).staged += bytes;
                self.counters.supplied += Bytes::new(bytes);
            }
            Change::Finish(stream) => self.find(stream).finished = true,
            Change::Hold(stream, held) => self.find(stream).held = held,
            Change::Reprioritise(stream, parameters) => self.find(stream).parameters = parameters,
            Change::Close(stream) => {
                let staged = self.find(stream).staged;
                self.responses.retain(|r| r.stream != stream);
                self.counters.closed += 1;
                self.counters.dropped += Bytes::new(staged);
            }
            Change::Sent(stream, bytes) => self.find(stream).outstanding -= bytes,
            Change::Rules(rules) => {
                let old = std::array::from_fn::<_, 5, _>(|l| self.high(l));
                self.rules = rules;
                for (l, old) in old.into_iter().enumerate() {
                    let new = self.high(l);
                    if old != new {
                        self.debts[l] = (self.debts[l] * new / old).min(new);
                    }
                    self.in_debt[l] &= self.debts[l] >= self.low(l);
                }
            }
        }
    }

    /// Returns the level whose turn it is, after redistribution if needed.
    fn choose(&mut self, waiting: &[usize]) -> Option<usize> {
        let first = *waiting.first()?;
        if let Some(&l) = waiting.iter().find(|&&l| !self.in_debt[l]) {
            return Some(l);
        }
        self.counters.redistributions += 1;
        let m = |l: usize| u128::from(self.rules.multipliers[l].as_thousandths());
        let total: u128 = match self.rules.redistribution {
            Redistribution::AllLevels => (0..5).map(m).sum(),
            Redistribution::InDebt => waiting.iter().map(|&l| m(l)).sum(),
        };
        let debts = waiting.iter().map(|&l| self.debts[l] * m(l) / total).collect::<Vec<_>>();
        for (&l, debt) in waiting.iter().zip(debts) {
            self.debts[l] = debt;
            self.in_debt[l] = debt >= self.low(l);
        }
        if waiting.iter().all(|&l| self.in_debt[l]) {
            self.debts[first] = self.low(first) - 1;
            self.in_debt[first] = false;
        }
        waiting.iter().copied().find(|&l| !self.in_debt[l])
    }

    fn waiting(&self) -> Vec<usize> {
        (0..5).filter(|&l| self.responses.iter().any(|r| r.can_send() && r.level() == l)).collect()
    }

    /// Returns the responses of `level` that can send, of the urgency and group whose turn it is, and the
    /// number of groups that share with it.
    fn candidates(&self, level: usize) -> (Vec<Entry>, usize) {
        let mut here = self.responses.clone();
        here.retain(|r| r.can_send() && r.level() == level);
        let (mut sharing, most) = (0, |here: &[Entry]| here.iter().map(|r| r.parameters.urgency).min());
        let share = |r: &Entry| (self.shares[&(self.party(r), r.parameters.group.0)], r.parameters.group);
        for by_group in [self.grouping == Grouping::AboveUrgency, self.grouping != Grouping::AboveUrgency] {
            if by_group {
                let mut groups: Vec<_> = here.iter().map(share).collect();
                groups.sort_unstable();
                groups.dedup();
                sharing = groups.len();
                here.retain(|r| Some(share(r)) == groups.first().copied());
            } else {
                let urgency = most(&here);
                here.retain(|r| Some(r.parameters.urgency) == urgency);
            }
        }
        (here, sharing)
    }

    /// Returns the response of `level` whose turn it is.
    fn next(&self, level: usize) -> Option<Entry> {
        let (mut candidates, _) = self.candidates(level);
        let order = candidates.iter().map(|r| r.parameters.order).max()?;
        candidates.retain(|r| r.parameters.order == order);
        let next = |incremental: bool| {
            let of_kind = candidates.iter().filter(|r| r.is(incremental));
            of_kind.min_by_key(|r| (if incremental { r.turn } else { None }, r.stream)).copied()
        };
        let kind = !self.incremental_last.get(&candidates.first()?.cell()).copied().unwrap_or(true);
        next(kind).or_else(|| next(!kind))
    }

    /// Returns the waiting candidates; `None` if a grant would overtake a protected level.
    fn among(&self, levels: PrioritySet, protected: Option<Priority>) -> Option<Vec<usize>> {
        let mut among = self.waiting();
        among.retain(|&l| levels.contains(Priority::ALL[l]));
        let chosen = self.clone().choose(&among);
        let overtakes = among.iter().all(|&l| self.in_debt[l])
            && protected.is_some_and(|protected| chosen.is_some_and(|chosen| chosen < protected.index()));
        (!overtakes).then_some(among)
    }

    /// Grants from the level whose turn it is among some, or from `level`.
    fn grant(&mut self, budget: u64, among: &[usize], level: Option<usize>) -> Option<Grant> {
        let waiting = self.waiting();
        let chosen = self.choose(among)?;
        let level = level.unwrap_or(chosen);
        let next = self.next(level)?;
        let (candidates, sharing) = self.candidates(level);
        let turns = sharing > 1 || candidates.len() > 1 && candidates.iter().any(|r| r.is(true));
        let len = next.staged.min(budget).min(if turns { CHUNK.get() / 2 } else { u64::MAX });
        let group = (self.party(&next), next.parameters.group.0);
        let weight = self.weights.get(&group.1).copied().unwrap_or(16);
        let start = self.shares[&group];
        let finish = start + len * 4096 / u64::from(weight);
        self.shares.insert(group, finish);
        self.clocks.insert(group.0, (start, finish));

        let turn = self.turns;
        let response = self.find(next.stream);
        response.staged -= len;
        response.granted += len;
        response.outstanding += len;
        let fin = response.finished && response.staged == 0;
        response.ended = fin;
        if next.parameters.incremental {
            response.turn = Some(turn);
            self.turns += 1;
        }
        self.incremental_last.insert(next.cell(), next.parameters.incremental);
        self.counters.granted[level] += Bytes::new(len);

        let unopposed = waiting == [level];
        if self.rules.watermarks[level].is_some() && !(self.rules.forgive_unopposed && unopposed) {
            self.debts[level] += u128::from(len);
            self.in_debt[level] |= self.debts[level] >= self.high(level);
        }
        let payback = u128::from(len) * u128::from(self.rules.multipliers[level].as_thousandths()) / 1000;
        for i in 0..level {
            self.debts[i] = self.debts[i].saturating_sub(payback);
            self.in_debt[i] &= self.debts[i] >= self.low(i);
        }
        Some(Grant {
            stream: StreamId(next.stream),
            offset: Bytes::new(next.granted),
            len: Bytes::new(len),
            fin,
            priority: Priority::ALL[level],
        })
    }
}

struct Model {
    state: State,
    most_staged: u64,
    /// State before the latest grant, and the grant.
    latest: Option<(State, Grant, Vec<usize>)>,
    /// Changes since the latest grant.
    changes: Vec<Change>,
}

impl Model {
    fn new(rules: Debt, most_staged: u64, grouping: Grouping) -> Self {
        let state = State {
            rules,
            responses: Vec::new(),
            debts: [0; 5],
            in_debt: [false; 5],
            incremental_last: BTreeMap::new(),
            turns: 0,
            counters: Counters::default(),
            grouping,
            weights: BTreeMap::new(),
            shares: BTreeMap::new(),
            clocks: BTreeMap::new(),
        };
        Self { state, most_staged, latest: None, changes: Vec::new() }
    }

    fn entry(&self, stream: u64) -> Option<&Entry> {
        self.state.responses.iter().find(|r| r.stream == stream)
    }

    fn apply(&mut self, change: Change) {
        self.changes.push(change);
        self.state.apply(change);
    }

    /// Applies a change to an open response.
    fn apply_to(&mut self, stream: u64, change: Change) -> Option<()> {
        self.entry(stream)?;
        self.apply(change);
        Some(())
    }

    fn open(&mut self, stream: u64, parameters: Parameters) -> Result<(), OpenError> {
        let error = if self.entry(stream).is_some() {
            OpenError::AlreadyOpen
        } else if self.state.responses.len() == LIMIT {
            OpenError::TooMany { limit: LIMIT }
        } else {
            self.apply(Change::Open(stream, parameters));
            return Ok(());
        };
        self.state.counters.not_opened += 1;
        Err(error)
    }

    fn supply(&mut self, stream: u64, bytes: u64) -> Option<Result<(), SupplyError>> {
        let response = *self.entry(stream)?;
        if response.finished {
            return Some(Err(SupplyError::Finished));
        }
        if response.staged + bytes > self.most_staged {
            self.state.counters.not_supplied += Bytes::new(bytes);
            return Some(Err(SupplyError::TooMuch { limit: Bytes::new(self.most_staged) }));
        }
        self.apply(Change::Supply(stream, bytes));
        Some(Ok(()))
    }

    fn close(&mut self, stream: u64) -> Option<(u64, u64, u64, bool)> {
        let r = *self.entry(stream)?;
        if self.latest.as_ref().is_some_and(|latest| latest.1.stream.0 == stream) {
            self.latest = None;
        }
        self.apply(Change::Close(stream));
        Some((r.granted, r.staged, r.outstanding, r.ended))
    }

    fn sent(&mut self, stream: u64, bytes: u64) -> Option<Result<(), SentError>> {
        let outstanding = self.entry(stream)?.outstanding;
        if bytes > outstanding {
            return Some(Err(SentError { outstanding: Bytes::new(outstanding) }));
        }
        self.apply(Change::Sent(stream, bytes));
        Some(Ok(()))
    }

    fn grant(&mut self, budget: u64, levels: PrioritySet, protected: Option<Priority>) -> Option<Grant> {
        let before = self.state.clone();
        let among = self.state.among(levels, protected)?;
        let grant = if budget == 0 { None } else { self.state.grant(budget, &among, None) };
        if let Some(grant) = grant {
            self.latest = Some((before, grant, among));
            self.changes.clear();
        }
        grant
    }

    fn weigh(&mut self, group: u64, weight: u16) -> Result<(), WeightError> {
        let others = self.state.weights.iter().filter(|&(&other, &weight)| other != group && weight != 16);
        if weight != 16 && others.count() >= WEIGHTS {
            self.state.counters.weights_not_set += 1;
            return Err(WeightError::TooMany { limit: WEIGHTS });
        }
        self.apply(Change::Weight(group, weight));
        Ok(())
    }

    fn refuse(&mut self, grant: Grant, taken: u64) -> Result<(), RefuseError> {
        let latest =
            self.latest.as_ref().filter(|latest| latest.1 == grant).ok_or(RefuseError::NotTheLatest)?;
        if taken > grant.len.get() {
            return Err(RefuseError::TakenExceedsGrant { taken: Bytes::new(taken), granted: grant.len });
        }
        if taken == grant.len.get() && taken > 0 {
            self.latest = None;
            return Ok(());
        }
        let outstanding = self.entry(grant.stream.0).expect("it is open").outstanding;
        if outstanding < grant.len.get() - taken {
            return Err(RefuseError::Sent);
        }
        let (before, _, among) = latest.clone();
        let Counters { not_opened, not_supplied, refusals, weights_not_set, .. } = self.state.counters;
        self.state = before;
        // A new rate counts as if it had come before the grant.
        let (rules, others): (Vec<_>, Vec<_>) =
            self.changes.iter().copied().partition(|change| matches!(change, Change::Rules(_)));
        rules.into_iter().for_each(|change| self.state.apply(change));
        if taken > 0 {
            self.state.grant(taken, &among, Some(grant.priority.index()));
        }
        others.into_iter().for_each(|change| self.state.apply(change));
        let counters = &mut self.state.counters;
        (counters.not_opened, counters.not_supplied, counters.refusals) =
            (not_opened, not_supplied, refusals + 1);
        counters.weights_not_set = weights_not_set;
        self.latest = None;
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Open(u64, Parameters),
    Supply(u64, u64),
    Finish(u64),
    Hold(u64),
    Release(u64),
    Reprioritise(u64, Parameters),
    Close(u64),
    Grant(u64),
    /// Grants from these levels, while one is protected.
    GrantAmong(u64, u8, Option<Priority>),
    Weight(u64, u16),
    /// Refuses the latest grant, or the one before it if true, with so many thousandths taken.
    Refuse(bool, u64),
    Sent(u64, u64),
    Rate(u64),
}

/// Generates operations with lengths in units of `scale` bytes.
fn op(scale: u64) -> impl Strategy<Value = Op> {
    let stream = || 0u64..12;
    let parameters = || {
        let urgencies = prop_oneof![Just(1u8), Just(2), Just(3), 0u8..8].prop_map(urgency);
        let of_http = (urgencies, any::<bool>())
            .prop_map(|(urgency, incremental)| Parameters { incremental, ..Parameters::sequential(urgency) });
        let urgencies = prop::sample::select(vec![1, 3, 200]).prop_map(Urgency::exact);
        let level = prop::option::weighted(0.3, Just(Priority::P2));
        let grouped = (urgencies, prop::bool::weighted(0.3), level, 0u64..3, -1i64..2);
        let grouped = grouped.prop_map(|(urgency, incremental, level, group, order)| Parameters {
            urgency,
            incremental,
            level,
            group: GroupId(group),
            order: if order < 0 { i64::MIN } else { order },
        });
        prop_oneof![of_http, grouped]
    };
    prop_oneof![
        4 => (stream(), parameters()).prop_map(|(s, p)| Op::Open(s, p)),
        6 => (stream(), prop_oneof![0u64..20, (1u64..3000).prop_map(move |n| n * scale)]).prop_map(|(s, n)| Op::Supply(s, n)),
        1 => stream().prop_map(Op::Finish),
        1 => stream().prop_map(Op::Hold),
        1 => stream().prop_map(Op::Release),
        1 => (stream(), parameters()).prop_map(|(s, p)| Op::Reprioritise(s, p)),
        1 => stream().prop_map(Op::Close),
        12 => prop_oneof![Just(0), Just(1), 1u64..=CHUNK.get() * scale].prop_map(Op::Grant),
        3 => (1u64..=CHUNK.get() * scale, 0u8..32, prop::option::of(level())).prop_map(|(n, l, p)| Op::GrantAmong(n, l, p)),
        1 => (0u64..4, 0u32..8).prop_map(|(group, log)| Op::Weight(group, 1 << log)),
        4 => (prop::bool::weighted(0.1), prop_oneof![Just(0), Just(1000), 0u64..1100]).prop_map(|(p, n)| Op::Refuse(p, n)),
        1 => (stream(), (0u64..3000).prop_map(move |n| n * scale)).prop_map(|(s, n)| Op::Sent(s, n)),
        1 => (0u64..40).prop_map(Op::Rate),
    ]
}

fn run(rules: Rules, grouping: Grouping, ops: &[Op]) -> Result<(), TestCaseError> {
    let config = marcato_sched::exchange::Config {
        max_responses: LIMIT,
        max_weights: WEIGHTS,
        grouping,
        ..config(rules)
    };
    let mut exchange = Exchange::new(config).expect("valid rules");
    let mut model = Model::new(*exchange.rules(), config.max_staged.get(), grouping);
    let mut grants: Vec<Grant> = Vec::new();
    for &op in ops {
        match op {
            Op::Open(stream, parameters) => {
                prop_assert_eq!(
                    exchange.open(StreamId(stream), parameters).map(drop),
                    model.open(stream, parameters)
                );
            }
            Op::Supply(stream, bytes) => {
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.supply(Bytes::new(bytes))),
                    model.supply(stream, bytes)
                );
            }
            Op::Finish(stream) => {
                let expected = model.apply_to(stream, Change::Finish(stream));
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.finish()),
                    expected
                );
            }
            Op::Hold(stream) => {
                let expected = model.apply_to(stream, Change::Hold(stream, true));
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.hold()),
                    expected
                );
            }
            Op::Release(stream) => {
                let expected = model.apply_to(stream, Change::Hold(stream, false));
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.release()),
                    expected
                );
            }
            Op::Reprioritise(stream, parameters) => {
                let change = Change::Reprioritise(stream, parameters);
                let expected = model.apply_to(stream, change);
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.reprioritise(parameters)),
                    expected
                );
            }
            Op::Close(stream) => {
                let closed = exchange.close(StreamId(stream)).map(|closed| {
                    (closed.granted.get(), closed.dropped.get(), closed.returned.get(), closed.ended)
                });
                prop_assert_eq!(closed, model.close(stream));
            }
            Op::Grant(budget) => {
                let expected = model.grant(budget, PrioritySet::ALL, None);
                let peek = exchange.peek();
                prop_assert_eq!(exchange.grant(Bytes::new(budget)), expected);
                if budget > 0 {
                    announces(peek, expected, budget)?;
                }
                grants.extend(expected);
            }
            Op::GrantAmong(budget, levels, protected) => {
                let levels = PrioritySet::from_bits(levels);
                let expected = model.grant(budget, levels, protected);
                let candidates =
                    protected.map_or(Candidates::of(levels), |p| Candidates::of(levels).protecting(p));
                let peek = exchange.peek_among(candidates);
                prop_assert_eq!(exchange.grant_among(Bytes::new(budget), candidates), expected);
                announces(peek, expected, budget)?;
                grants.extend(expected);
            }
            Op::Weight(group, weight) => {
                let expected = model.weigh(group, weight);
                prop_assert_eq!(
                    exchange.set_weight(GroupId(group), Weight::new(weight).expect("not zero")),
                    expected
                );
            }
            Op::Refuse(earlier, thousandths) => {
                let Some(&grant) = grants.iter().nth_back(usize::from(earlier)) else { continue };
                let taken = grant.len.get() * thousandths / 1000;
                prop_assert_eq!(exchange.refuse(grant, Bytes::new(taken)), model.refuse(grant, taken));
            }
            Op::Sent(stream, bytes) => {
                prop_assert_eq!(
                    exchange.response_mut(StreamId(stream)).map(|mut open| open.sent(Bytes::new(bytes))),
                    model.sent(stream, bytes)
                );
            }
            Op::Rate(mbps) => {
                exchange.set_rate(Rate::from_mbps(mbps), CHUNK);
                if matches!(rules, Rules::FollowRate) {
                    model.apply(Change::Rules(Debt::web_at(Rate::from_mbps(mbps), CHUNK)));
                }
            }
        }
        agree(&exchange, &model)?;
    }
    Ok(())
}

/// Checks the chunk that was announced against the one that was granted.
fn announces(peek: Option<Peek>, grant: Option<Grant>, budget: u64) -> Result<(), TestCaseError> {
    let shown = |peek: Peek| {
        let len = peek.len.min(Bytes::new(budget));
        (peek.stream, peek.priority, peek.offset, len, peek.fin && len == peek.len)
    };
    let of_grant = |grant: Grant| (grant.stream, grant.priority, grant.offset, grant.len, grant.fin);
    prop_assert_eq!(peek.map(shown), grant.map(of_grant));
    Ok(())
}

fn agree(exchange: &Exchange, model: &Model) -> Result<(), TestCaseError> {
    let state = &model.state;
    for stream in 0..12 {
        let shown = exchange.response(StreamId(stream)).map(|r| {
            (
                (r.stream.0, r.parameters, r.staged.get(), r.granted.get(), r.outstanding.get()),
                (r.held, r.finished, r.ended),
            )
        });
        let expected = model.entry(stream).map(|r| {
            ((stream, r.parameters, r.staged, r.granted, r.outstanding), (r.held, r.finished, r.ended))
        });
        prop_assert_eq!(shown, expected);
    }
    for (l, level) in Priority::ALL.into_iter().enumerate() {
        prop_assert_eq!(u128::from(exchange.debt(level).get()), state.debts[l], "debt of {}", level);
        prop_assert_eq!(exchange.is_in_debt(level), state.in_debt[l], "state of {}", level);
        prop_assert_eq!(exchange.waiting().contains(level), state.waiting().contains(&l));
    }
    prop_assert_eq!(exchange.counters(), &state.counters);
    prop_assert_eq!(exchange.rules(), &state.rules);
    prop_assert_eq!(exchange.outstanding().get(), state.responses.iter().map(|r| r.outstanding).sum::<u64>());
    prop_assert_eq!(exchange.staged().get(), state.responses.iter().map(|r| r.staged).sum::<u64>());
    prop_assert_eq!(exchange.responses(), state.responses.len());
    Ok(())
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn the_exchange_does_what_the_slow_model_does(rules in rules(), ops in prop::collection::vec(op(1), 1..300)) {
        run(Rules::Fixed(rules), Grouping::WithinUrgency, &ops)?;
    }

    #[test]
    fn the_exchange_equals_its_model_with_groups_above(rules in rules(), ops in prop::collection::vec(op(1), 1..300)) {
        run(Rules::Fixed(rules), Grouping::AboveUrgency, &ops)?;
    }

    /// Lengths are of the order of these watermarks: 32 kB and more.
    #[test]
    fn the_exchange_equals_its_model_while_the_rate_changes(ops in prop::collection::vec(op(30), 1..300)) {
        run(Rules::FollowRate, Grouping::WithinUrgency, &ops)?;
    }
}
