//! Random operations on a reservation table, for property tests.

use core::time::Duration;
use std::vec::Vec;

use marcato_units::{Bytes, Time};
use proptest::prelude::*;

use super::{Reserve, Source, SourceKey};
use crate::lane::{LaneId, LaneView};

#[derive(Clone, Copy, Debug)]
enum Operation {
    Declare {
        key: u64,
        period: u64,
        size: u64,
        next: u64,
    },
    Learn {
        key: u64,
        period: u64,
    },
    Release {
        key: u64,
        len: u64,
    },
    /// Uses room of a message, counted back from the latest.
    Use {
        back: u64,
        left: u64,
    },
    Lose(u8),
    Withdraw(u64),
    /// Advances among a set of three lanes, one bit each.
    Advance {
        among: u8,
        rtt: u64,
    },
}

/// Operation at a time. Messages are numbered by their steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    operation: Operation,
    now: Time,
    number: u64,
}

fn operation() -> impl Strategy<Value = Operation> {
    prop_oneof![
        (0..20u64, prop_oneof![1..300u64, Just(u64::MAX)], 0..50u64, any::<u64>())
            .prop_map(|(key, period, size, next)| Operation::Declare { key, period, size, next }),
        (0..20u64, 1..300u64).prop_map(|(key, period)| Operation::Learn { key, period }),
        (0..20u64, 0..50u64).prop_map(|(key, len)| Operation::Release { key, len }),
        (0..40u64, 0..50u64).prop_map(|(back, left)| Operation::Use { back, left }),
        (0..3u8).prop_map(Operation::Lose),
        (0..20u64).prop_map(Operation::Withdraw),
        (0..8u8, prop_oneof![1..200u64, Just(u64::MAX / 1_000_000)])
            .prop_map(|(among, rtt)| Operation::Advance { among, rtt }),
    ]
}

/// Generates up to 199 steps, up to 59 ms apart and rarely a day.
pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pause = prop_oneof![20 => 0..60u64, 1 => Just(100_000_000u64)];
    prop::collection::vec((operation(), pause), 1..200).prop_map(|operations| {
        let mut now = Time::ZERO;
        let step = |(number, (operation, pause))| {
            now += Duration::from_millis(pause);
            Step { operation, now, number }
        };
        (0..).zip(operations).map(step).collect()
    })
}

impl Step {
    /// Returns the number of its message, if it offers one.
    pub(super) const fn number(&self) -> u64 {
        self.number
    }

    /// Returns its time, if the table looks for holds that have lapsed.
    pub(super) const fn looks_at(&self) -> Option<Time> {
        match self.operation {
            Operation::Advance { .. } | Operation::Release { .. } => Some(self.now),
            _ => None,
        }
    }

    pub(super) fn apply(self, reserve: &mut Reserve) {
        let Self { operation, now, number } = self;
        match operation {
            Operation::Declare { key, period, size, next } => {
                // A near time or an extreme one.
                let near = now + Duration::from_millis(next % 300);
                let next = if next % 4 == 0 { Time::from_nanos(next) } else { near };
                let source = Source::new(Duration::from_millis(period), Bytes::kb(size), next);
                let _ = reserve.declare(SourceKey(key), source);
            }
            Operation::Learn { key, period } => {
                let period = Duration::from_millis(period);
                let _ = reserve.learn(SourceKey(key), Source::new(period, Bytes::kb(1), now + period));
            }
            Operation::Release { key, len } => reserve.released(now, SourceKey(key), number, Bytes::kb(len)),
            Operation::Use { back, left } => reserve.used(number.saturating_sub(back), Bytes::kb(left)),
            Operation::Lose(index) => reserve.lost(LaneId::new(index).unwrap()),
            Operation::Withdraw(key) => {
                reserve.withdraw(SourceKey(key));
            }
            Operation::Advance { among, rtt } => {
                let lanes = [0u8, 1, 2].map(|index| {
                    let rtt = Duration::from_millis(rtt / (u64::from(index) + 1));
                    LaneView::new(LaneId::new(index).unwrap(), Bytes::kb(100), rtt)
                });
                let among = lanes.iter().map(|lane| lane.id).filter(|lane| among & (1 << lane.index()) != 0);
                reserve.advance(now, &lanes, among.collect());
            }
        }
    }
}
