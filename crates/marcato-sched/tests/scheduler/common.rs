//! Random valid rules of debt.

use marcato_sched::conductor::{Debt, Multiplier, Redistribution, Watermarks};
use marcato_units::{Bytes, Priority};
use proptest::prelude::*;

/// Largest grant of these tests.
pub(crate) const CHUNK: Bytes = Bytes::kb(1);

pub(crate) fn level() -> impl Strategy<Value = Priority> {
    prop::sample::select(&Priority::ALL[..])
}

/// Generates a preset, or any other rules that are valid for grants of [`CHUNK`].
pub(crate) fn rules() -> impl Strategy<Value = Debt> {
    let watermarks = (CHUNK.get()..20_000, any::<prop::sample::Index>()).prop_map(|(high, low)| Watermarks {
        high: Bytes::new(high),
        low: Bytes::new(low.index(usize::try_from(high).expect("20 kB fit")) as u64 + 1),
    });
    let any = (
        prop::array::uniform5(prop::option::weighted(0.8, watermarks)),
        prop::array::uniform5((1u32..4000).prop_map(Multiplier::from_thousandths)),
        prop::sample::select(vec![Redistribution::AllLevels, Redistribution::InDebt]),
        any::<bool>(),
    );
    let any = any.prop_map(|(watermarks, multipliers, redistribution, forgive_unopposed)| Debt {
        watermarks,
        multipliers,
        redistribution,
        forgive_unopposed,
    });
    prop_oneof![
        1 => prop::sample::select(vec![Debt::authors(), Debt::paper(), Debt::marcato(), Debt::strict()]),
        3 => any,
    ]
    .prop_filter("valid", |rules| rules.validate(CHUNK).is_ok())
}

/// Sets the number of cases; a failing one is printed, not stored.
pub(crate) fn cases() -> ProptestConfig {
    ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() }
}

/// Bytes of others granted while each level waited.
#[derive(Default)]
pub(crate) struct Waits {
    pub(crate) eligible: [u64; 5],
    pub(crate) any: [u64; 5],
    pub(crate) worst_eligible: [u64; 5],
}

impl Waits {
    /// Counts a grant of `len` bytes to `level`. Per level, `before` has two flags at the time of the
    /// grant: waiting, and eligible.
    pub(crate) fn count(&mut self, level: Priority, len: Bytes, before: [(bool, bool); 5]) {
        for (l, (waiting, eligible)) in before.into_iter().enumerate() {
            let passed_over = waiting && l != level.index();
            self.any[l] = if passed_over { self.any[l] + len.get() } else { 0 };
            self.eligible[l] = if passed_over && eligible { self.eligible[l] + len.get() } else { 0 };
            self.worst_eligible[l] = self.worst_eligible[l].max(self.eligible[l]);
        }
    }

    /// Ends the waits of levels that no longer wait, or are no longer eligible.
    pub(crate) fn stop(&mut self, now: [(bool, bool); 5]) {
        for (l, (waiting, eligible)) in now.into_iter().enumerate() {
            self.any[l] *= u64::from(waiting);
            self.eligible[l] *= u64::from(waiting && eligible);
        }
    }
}
