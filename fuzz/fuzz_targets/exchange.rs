//! No calls make the exchange panic, lose count of a byte, idle while a stream can send, grant what it did
//! not announce, or keep a trace of a grant that was refused.
#![no_main]

use libfuzzer_sys::fuzz_target;
use marcato_sched::conductor::{Candidates, Debt};
use marcato_sched::exchange::{
    Config, Deadline, Exchange, Grant, GroupId, Grouping, Parameters, Peek, Response, Rules, Urgency, Weight,
};
use marcato_sched::order::StreamId;
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Rate, Time};

/// Streams of a run. Fewer may be open at once.
const STREAMS: u8 = 24;

/// The input as small numbers, with zeroes after its end.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    /// Mostly small numbers, and a few that are near the largest.
    fn bytes(&mut self) -> Bytes {
        let (number, scale) = (u64::from(self.byte()), self.byte());
        Bytes::new(if scale == 255 { u64::MAX - number } else { number << (scale % 8) })
    }

    fn stream(&mut self) -> StreamId {
        StreamId(u64::from(self.byte() % STREAMS))
    }

    fn level(&mut self) -> Option<Priority> {
        Priority::from_index(usize::from(self.byte() % 8))
    }

    fn parameters(&mut self) -> Parameters {
        let urgency = self.byte();
        let level = self.level();
        let group = GroupId(u64::from(self.byte() % 6));
        let order = self.byte();
        let incremental = order.is_multiple_of(2);
        let order = i64::from_le_bytes([order; 8]);
        Parameters { urgency: Urgency::exact(urgency), incremental, level, group, order }
    }

    fn candidates(&mut self) -> Candidates {
        let candidates = Candidates::of(PrioritySet::from_bits(self.byte()));
        self.level().map_or(candidates, |level| candidates.protecting(level))
    }
}

fn can_send(response: &Response) -> bool {
    !response.held && (!response.staged.is_zero() || response.finished && !response.ended)
}

/// Checks a grant against the announcement.
fn check(peek: Option<Peek>, grant: Option<Grant>, budget: Bytes) {
    let Some(peek) = peek else { return assert_eq!(grant, None) };
    let grant = grant.expect("it was announced");
    assert_eq!((grant.stream, grant.priority, grant.offset), (peek.stream, peek.priority, peek.offset));
    assert_eq!((grant.len, grant.fin), (peek.len.min(budget), peek.fin && peek.len <= budget));
    assert!(!grant.len.is_zero() || grant.fin);
}

fuzz_target!(|data: &[u8]| {
    let mut input = Input(data);
    let kind = input.byte();
    let config = Config {
        rules: if kind & 1 == 0 { Rules::FollowRate } else { Rules::Fixed(Debt::paper()) },
        grouping: if kind & 2 == 0 { Grouping::WithinUrgency } else { Grouping::AboveUrgency },
        turn: Bytes::new(u64::from(kind / 4) + 1),
        max_responses: 16,
        max_staged: if kind & 4 == 0 { Bytes::kb(64) } else { Bytes::MAX / 64 },
        max_weights: 3,
        ..Config::default()
    };
    let mut exchange = Exchange::new(config).expect("valid rules");
    let mut latest = None;
    let mut now = Time::ZERO;
    while !input.0.is_empty() {
        let op = input.byte() % 16;
        match op {
            0 | 1 => {
                let (stream, parameters) = (input.stream(), input.parameters());
                let _ = exchange.open(stream, parameters);
            }
            2 => _ = exchange.close(input.stream()),
            3 => _ = exchange.close_sent(input.stream()),
            4 => {
                let weight = Weight::new(u16::from_le_bytes([input.byte(), input.byte()]));
                let _ = exchange.set_weight(GroupId(u64::from(input.byte() % 6)), weight.unwrap_or_default());
            }
            5 => exchange.set_rate(Rate::from_kbps(1 << (input.byte() % 32)), Bytes::new(1400)),
            6 | 7 => {
                let (candidates, budget) = (input.candidates(), input.bytes());
                if budget.is_zero() {
                    continue;
                }
                let peek = exchange.peek_among(candidates);
                let grant = exchange.grant_among(budget, candidates);
                check(peek, grant, budget);
                latest = grant.or(latest);
            }
            8 | 9 => {
                let budget = Bytes::new(u64::from(input.byte()) + 1);
                let sends = (0..STREAMS).any(|stream| {
                    exchange.response(StreamId(stream.into())).is_some_and(|response| can_send(&response))
                });
                assert_eq!(exchange.is_idle(), !sends);
                let peek = exchange.peek();
                let grant = exchange.grant(budget);
                check(peek, grant, budget);
                assert_eq!(grant.is_some(), sends);
                if let Some(grant) = grant
                    && input.byte() % 2 == 0
                {
                    exchange.refuse(grant, Bytes::ZERO).expect("nothing came in between");
                    assert_eq!(exchange.peek(), peek);
                    assert_eq!(exchange.grant(budget), Some(grant));
                }
                latest = grant.or(latest);
            }
            10 => {
                let taken = input.bytes();
                if let Some(grant) = latest {
                    let _ = exchange.refuse(grant, taken);
                }
            }
            11 => {
                now += Duration::from_micros(u64::from(input.byte()) << (input.byte() % 32));
                let rate = Rate::from_kbps(u64::from(input.byte()) << (input.byte() % 16));
                let delay = Duration::from_millis(u64::from(input.byte()));
                let (mut late, mut expired) = (0, 0);
                let before = *exchange.counters();
                let next = exchange.expire(now, rate, delay, |response| {
                    late += 1;
                    expired += u64::from(response.closed.is_some());
                    assert!(response.arrival >= now);
                });
                let counters = exchange.counters();
                assert_eq!((counters.late, counters.expired), (before.late + late, before.expired + expired));
                assert_eq!(counters.closed, before.closed + expired);
                assert!(next.is_none_or(|next| next > now));
                // What was reported is not reported again. Outstanding bytes of what was closed no longer count.
                let again = exchange.expire(now, rate, delay, |late| panic!("{late:?}"));
                assert!(again >= next && again.is_some() == next.is_some());
            }
            _ => {
                let stream = input.stream();
                let Some(mut response) = exchange.response_mut(stream) else { continue };
                match op {
                    12 => _ = response.supply(input.bytes()),
                    13 => match input.byte() % 3 {
                        0 => response.finish(),
                        1 => response.hold(),
                        _ => response.release(),
                    },
                    14 => response.reprioritise(input.parameters()),
                    _ => {
                        let at = now + Duration::from_micros(u64::from(input.byte()) << (input.byte() % 24));
                        let kind = input.byte();
                        response.set_deadline((kind > 20).then_some(Deadline { at, drops: kind % 2 == 0 }));
                        let _ = response.sent(Bytes::new(kind.into()));
                    }
                }
            }
        }
        let open = || (0..STREAMS).filter_map(|stream| exchange.response(StreamId(stream.into())));
        assert_eq!(exchange.responses(), open().count());
        assert_eq!(exchange.staged(), open().map(|response| response.staged).sum());
        assert_eq!(exchange.outstanding(), open().map(|response| response.outstanding).sum());
        let counters = exchange.counters();
        assert_eq!(counters.supplied, counters.total_granted() + counters.dropped + exchange.staged());
    }
    for stream in 0..STREAMS {
        let _ = exchange.close(StreamId(stream.into()));
    }
    assert!(exchange.is_idle() && exchange.outstanding().is_zero() && exchange.staged().is_zero());
});
