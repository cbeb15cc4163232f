//! Intra-flow fairness: debts, watermarks and paybacks (CATS §II-E).
//!
//! A level that sends runs up debt, and pays back debt of every more urgent level. At its high
//! watermark it is *in debt* and passed over, until paybacks bring its debt below its low watermark
//! and it is *eligible* again. The most urgent non-empty eligible level sends.

use marcato_units::{Bytes, Duration, Priority, Rate};
use thiserror::Error;

const LEVELS: usize = Priority::COUNT;

/// Debts at which a level falls into debt and leaves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Watermarks {
    /// H: at this debt or above, the level falls into debt.
    pub high: Bytes,
    /// L: below this debt, it becomes eligible again.
    pub low: Bytes,
}

impl Watermarks {
    /// Returns `high` as the high watermark and half of it as the low one.
    pub const fn half_of(high: Bytes) -> Self {
        Self { high, low: Bytes::new(high.get() / 2) }
    }
}

/// M: debt of each more urgent level that one sent byte pays back. In thousandths, so that debts
/// are exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Multiplier(u32);

impl Multiplier {
    /// Largest multiplier of a valid configuration: a thousand bytes paid back per byte sent.
    pub const MAX: Self = Self(1_000_000);

    /// Creates a multiplier from thousandths of a byte per byte.
    pub const fn from_thousandths(thousandths: u32) -> Self {
        Self(thousandths)
    }

    /// Returns the thousandths of a byte per byte.
    pub const fn as_thousandths(self) -> u32 {
        self.0
    }

    /// Returns the payback for `bytes`, truncated to whole bytes. The authors' code truncates here
    /// too; the paper does not say.
    pub const fn payback(self, bytes: Bytes) -> Bytes {
        // In two parts, exact for any number of bytes: trunc(n m / 1000) of n = 1000 q + r.
        let (m, whole, rest) = (self.0 as u64, bytes.get() / 1000, bytes.get() % 1000);
        Bytes::new(whole.saturating_mul(m).saturating_add(rest * m / 1000))
    }
}

/// Levels over which M_total is summed when debts are redistributed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Redistribution {
    /// All five, empty or not, as in the authors' code: with the paper's parameters this always
    /// frees a level.
    AllLevels,
    /// The non-empty levels in debt, as eq. 1 is printed: a level alone in debt keeps all of it.
    InDebt,
}

/// Rules by which levels run up and pay back debt.
///
/// After N bytes of level j: D_j += N, in debt at D_j >= H_j; for each i < j: D_i = max(0, D_i -
/// trunc(N M_j)), eligible at D_i < L_i. A debt changes in no other way, and is kept while its
/// level is empty.
///
/// When every non-empty level is in debt, the debt of each becomes trunc(D_i M_i / M_total) (eq.
/// 1). Contrary to the paper this need not free any of them: eq. 1 leaves a level that is alone in
/// debt as it is. If none is free after one redistribution, the debt of the most urgent non-empty
/// level is set to L - 1. Some level can therefore always send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Debt {
    /// Watermarks of each level; a level with `None` never runs up debt.
    pub watermarks: [Option<Watermarks>; LEVELS],
    /// Payback multiplier of each level. That of P0 counts in redistributions only.
    pub multipliers: [Multiplier; LEVELS],
    /// Levels over which M_total is summed.
    pub redistribution: Redistribution,
    /// If true, bytes sent while every other level was empty run up no debt. Not in the paper. See
    /// [`marcato`](Self::marcato).
    pub forgive_unopposed: bool,
}

/// Error returned for an invalid configuration of debt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DebtError {
    /// The chunk size is zero.
    #[error("`chunk` is zero: set it to the size of the chunks that will be granted")]
    ChunkIsZero,
    /// No debt is below zero, so the level would never become eligible again.
    #[error("the low watermark of {priority} is zero, so it would never leave debt: raise it")]
    LowIsZero {
        /// Affected level.
        priority: Priority,
    },
    /// The level would be in debt and eligible at once.
    #[error("the low watermark of {priority} is above its high one: lower it")]
    LowAboveHigh {
        /// Affected level.
        priority: Priority,
    },
    /// The level would fall into debt with every chunk.
    #[error(
        "the high watermark of {priority} is less than a chunk of {chunk}: raise it or send smaller chunks"
    )]
    HighBelowChunk {
        /// Affected level.
        priority: Priority,
        /// Configured chunk size.
        chunk: Bytes,
    },
    /// The level would never pay back anything. For P0 under eq. 1 as printed, redistribution would
    /// take all debt from P0 and none from P1, which would then starve.
    #[error("the payback multiplier of {priority} is zero, so debts would never be paid back: raise it")]
    MultiplierIsZero {
        /// Affected level.
        priority: Priority,
    },
    /// The multiplier is above [`Multiplier::MAX`].
    #[error("the payback multiplier of {priority} is above 1000: lower it")]
    MultiplierTooLarge {
        /// Affected level.
        priority: Priority,
    },
}

/// M of the authors' code, for P0 to P4: 0.25, 0.5, 1, 1.5, 2.
const AUTHORS_MULTIPLIERS: [Multiplier; LEVELS] =
    [Multiplier(250), Multiplier(500), Multiplier(1000), Multiplier(1500), Multiplier(2000)];

/// Spans of [`Debt::web_at`] for P0 to P3, in milliseconds. A page's images of P1 together take less than
/// that of P1: with half of it, scripts came in between and delayed the largest image by a sixth
/// (docs/results.md). An event of P2 waits for that of P0 at most, which is why they are not longer.
const WEB_SPANS: [u64; LEVELS - 1] = [2000, 1000, 500, 250];
/// Least rate of [`Debt::web_at`]. It carries 256 kB in two seconds.
const WEB_FLOOR: Rate = Rate::from_kbps(1024);

impl Debt {
    /// Returns the parameters that the authors ran for Table I: H 60, 30, 15 and 6 kB, L half of
    /// it, M 0.25, 0.5, 1, 1.5 and 2; P4 is never in debt; M_total over all five levels. The paper
    /// prints none of these numbers; they are in its code.
    pub const fn authors() -> Self {
        Self {
            watermarks: [
                Some(Watermarks::half_of(Bytes::kb(60))),
                Some(Watermarks::half_of(Bytes::kb(30))),
                Some(Watermarks::half_of(Bytes::kb(15))),
                Some(Watermarks::half_of(Bytes::kb(6))),
                None,
            ],
            multipliers: AUTHORS_MULTIPLIERS,
            redistribution: Redistribution::AllLevels,
            forgive_unopposed: false,
        }
    }

    /// Returns the rules as printed: all five levels have watermarks, and eq. 1 sums M_total over
    /// the non-empty levels in debt. The numbers are the authors'; P4, which has none there, gets
    /// those of P3 (H 6 kB, L 3 kB).
    pub const fn paper() -> Self {
        let mut debt = Self::authors();
        debt.watermarks[Priority::P4.index()] = Some(Watermarks::half_of(Bytes::kb(6)));
        debt.redistribution = Redistribution::InDebt;
        debt
    }

    /// Returns the authors' parameters, except that a level sending while no other waits runs up no
    /// debt.
    ///
    /// A grant leaves its level's debt unchanged if every other level was empty at that time. Debt
    /// is meant to compensate levels that had to wait. Under the authors' rules an urgent level
    /// also owes for an hour of quiet telemetry that delayed no message. It may then be in debt at
    /// the first byte of competition.
    ///
    /// A level that sends while a *more* urgent one waits in debt is charged, even if nothing less
    /// urgent waits. Otherwise messages of one byte, whose payback may truncate to nothing, could
    /// starve the urgent one.
    pub const fn marcato() -> Self {
        let mut debt = Self::authors();
        debt.forgive_unopposed = true;
        debt
    }

    /// Returns rules without debt: the most urgent non-empty level always sends, and the others may
    /// starve.
    pub const fn strict() -> Self {
        let mut debt = Self::authors();
        debt.watermarks = [None; LEVELS];
        debt
    }

    /// Returns the rules of [`marcato`](Self::marcato) with watermarks for web pages: H 256, 128, 64 and
    /// 32 kB, L half of it.
    ///
    /// The other presets suit messages of some kilobytes. A stylesheet of 300 kB would be in debt
    /// after 60 kB, and the page would wait for its images. [`web_at`](Self::web_at) also follows the
    /// rate of the connection.
    pub const fn web() -> Self {
        let mut debt = Self::marcato();
        debt.watermarks = [
            Some(Watermarks::half_of(Bytes::kb(256))),
            Some(Watermarks::half_of(Bytes::kb(128))),
            Some(Watermarks::half_of(Bytes::kb(64))),
            Some(Watermarks::half_of(Bytes::kb(32))),
            None,
        ];
        debt
    }

    /// Returns the rules of [`web`](Self::web) for a connection that carries `rate` and sends chunks
    /// of `chunk`. H of P0 to P3 is the data that it carries in 2000, 1000, 500 and 250 ms, and
    /// at least that of `web`. No watermark is below a chunk.
    ///
    /// A level may then run ahead for the same time at every rate. All watermarks grow by the same
    /// factor.
    ///
    /// ```
    /// use marcato_sched::Debt;
    /// use marcato_units::{Bytes, Rate};
    /// let debt = Debt::web_at(Rate::from_mbps(80), Bytes::kb(10));
    /// assert_eq!(debt.watermarks[0].map(|marks| marks.high), Some(Bytes::kb(20_000)));
    /// assert_eq!(Debt::web_at(Rate::ZERO, Bytes::kb(1)), Debt::web());
    /// ```
    pub fn web_at(rate: Rate, chunk: Bytes) -> Self {
        let mut debt = Self::web();
        for (watermarks, millis) in debt.watermarks.iter_mut().zip(WEB_SPANS) {
            let high = rate.max(WEB_FLOOR).bytes_in(Duration::from_millis(millis)).max(chunk);
            *watermarks = Some(Watermarks::half_of(high));
        }
        debt
    }

    /// Checks that these rules work for grants of up to `chunk`.
    ///
    /// # Errors
    /// Names the first setting, most urgent level first, that would starve a level.
    pub fn validate(&self, chunk: Bytes) -> Result<(), DebtError> {
        if chunk.is_zero() {
            return Err(DebtError::ChunkIsZero);
        }
        for priority in Priority::ALL {
            if let Some(Watermarks { high, low }) = self.watermarks[priority.index()] {
                if low.is_zero() {
                    return Err(DebtError::LowIsZero { priority });
                }
                if low > high {
                    return Err(DebtError::LowAboveHigh { priority });
                }
                if high < chunk {
                    return Err(DebtError::HighBelowChunk { priority, chunk });
                }
            }
            let multiplier = self.multipliers[priority.index()];
            // M_0 pays back no level's debt, so only eq. 1 as printed needs it.
            let needed = priority != Priority::P0 || matches!(self.redistribution, Redistribution::InDebt);
            if needed && multiplier.0 == 0 {
                return Err(DebtError::MultiplierIsZero { priority });
            }
            if multiplier > Multiplier::MAX {
                return Err(DebtError::MultiplierTooLarge { priority });
            }
        }
        Ok(())
    }

    /// Returns the most bytes of other levels granted while `level` waits and stays eligible, for
    /// grants of at most `chunk`. `None` if a more urgent level has no watermarks: there is no
    /// bound.
    ///
    /// The bound is the sum of B_j over the more urgent levels j, where B_j = H_j + sum of M_k B_k
    /// over the levels k between j and `level` + one chunk. B_j is the number of bytes that j can
    /// send before it stays in debt. The chunk is added because a level falls into debt after a
    /// chunk, not within one. The sum is what the levels after j pay back while they send their own
    /// B_k.
    ///
    /// ```
    /// use marcato_sched::Debt;
    /// use marcato_units::{Bytes, Priority};
    /// let bound = Debt::authors().wait_bound(Priority::P4, Bytes::kb(1));
    /// assert_eq!(bound, Some(Bytes::new(233_500)));
    /// ```
    pub fn wait_bound(&self, level: Priority, chunk: Bytes) -> Option<Bytes> {
        let mut bounds = [Bytes::ZERO; LEVELS];
        for j in (0..level.index()).rev() {
            bounds[j] = self.watermarks[j]?.high + chunk + self.paybacks(&bounds, j);
        }
        Some(bounds.into_iter().sum())
    }

    /// Returns the most bytes of other levels granted while `level` waits, at any debt, for grants
    /// of at most `chunk`. `None` if there is no bound. This is so if a more urgent level has no
    /// watermarks. It is also so if a less urgent one has neither watermarks nor a multiplier of at
    /// least 1: its shortest messages may then pay back nothing.
    ///
    /// Until the level is eligible, others send in rounds that end with a redistribution. In a
    /// round each sends at most its B, as in [`wait_bound`](Self::wait_bound). A less urgent level
    /// without watermarks sends at most the bytes that pay the debt back. Each redistribution
    /// multiplies the debt by M_i / M_total or less. This bound is safe, not tight.
    pub fn wait_bound_in_debt(&self, level: Priority, chunk: Bytes) -> Option<Bytes> {
        let eligible = self.wait_bound(level, chunk)?;
        let i = level.index();
        let Some(own) = self.watermarks[i] else { return Some(eligible) };
        let mut bounds = [Bytes::ZERO; LEVELS];
        for j in (0..LEVELS).rev().filter(|&j| j != i) {
            bounds[j] = match self.watermarks[j] {
                Some(watermarks) => watermarks.high + chunk + self.paybacks(&bounds, j),
                None if self.multipliers[j].0 >= 1000 => (own.high + chunk - own.low) + chunk,
                None => return None,
            };
        }
        let round: Bytes = bounds.into_iter().sum();

        let mine = u64::from(self.multipliers[i].0);
        let others =
            self.multipliers.iter().enumerate().filter(|&(j, _)| j != i).map(|(_, m)| u64::from(m.0));
        let total = mine
            + match self.redistribution {
                Redistribution::AllLevels => others.sum::<u64>(),
                // At least one other level takes part. Otherwise this level would be the most
                // urgent and freed at once.
                Redistribution::InDebt => others.min().unwrap_or(0),
            };
        let mut debt = (own.high + chunk).get();
        let mut rounds = 1;
        while debt >= own.low.get() {
            debt = scale(debt, mine, total);
            rounds += 1;
        }
        Some(round * rounds + eligible)
    }

    /// Returns the paybacks of the levels after `j` to its debt if they send `bounds`.
    fn paybacks(&self, bounds: &[Bytes; LEVELS], j: usize) -> Bytes {
        (j + 1..LEVELS).map(|k| self.multipliers[k].payback(bounds[k])).sum()
    }
}

/// Returns trunc(debt m / total), exactly, for m <= total and total of at most five times
/// [`Multiplier::MAX`].
pub(crate) fn scale(debt: u64, m: u64, total: u64) -> u64 {
    if total == 0 {
        return debt;
    }
    debt / total * m + debt % total * m / total
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const CHUNK: Bytes = Bytes::kb(1);

    #[test]
    fn every_preset_is_valid() {
        for debt in [Debt::authors(), Debt::paper(), Debt::marcato(), Debt::strict(), Debt::web()] {
            assert_eq!(debt.validate(CHUNK), Ok(()));
            assert_eq!(debt.validate(Bytes::new(1500)), Ok(()));
        }
    }

    /// The expected bounds come from another program, written from the documentation of the two
    /// functions.
    #[test]
    fn bounds_on_waiting_are_those_of_their_formulas() {
        let bounds =
            |debt: Debt| Priority::ALL.map(|level| debt.wait_bound_in_debt(level, CHUNK).map(Bytes::get));
        assert_eq!(bounds(Debt::authors()), [1_355_000, 936_000, 683_500, 620_500, 233_500].map(Some));
        assert_eq!(bounds(Debt::paper()), [455_000, 833_500, 1_353_750, 1_945_000, 2_335_000].map(Some));
        let with_last = |multiplier| {
            let mut debt = Debt::authors();
            debt.multipliers[4] = Multiplier(multiplier);
            bounds(debt)
        };
        assert_eq!(with_last(1000), [811_000, 647_000, 545_750, 560_500, 233_500].map(Some));
        assert_eq!(with_last(999), [None, None, None, None, Some(233_500)]);
        // Here halving brings a debt exactly to the low watermark, where the level is still in
        // debt.
        let equal = Debt {
            watermarks: [Some(Watermarks { high: Bytes::kb(4), low: Bytes::new(2500) }); LEVELS],
            multipliers: [Multiplier(1000); LEVELS],
            ..Debt::paper()
        };
        assert_eq!(bounds(equal), [225_000, 230_000, 240_000, 260_000, 300_000].map(Some));
    }

    #[test]
    fn the_largest_multiplier_is_valid() {
        let mut debt = Debt::authors();
        debt.multipliers[2] = Multiplier::MAX;
        assert_eq!(debt.validate(CHUNK), Ok(()));
    }

    #[test]
    fn every_dead_configuration_is_refused_by_name() {
        let change = |change: &dyn Fn(&mut Debt)| {
            let mut debt = Debt::authors();
            change(&mut debt);
            debt.validate(CHUNK)
        };
        let marks = |high, low| Some(Watermarks { high: Bytes::new(high), low: Bytes::new(low) });
        let priority = Priority::P2;
        assert_eq!(change(&|d| d.watermarks[2] = marks(15_000, 0)), Err(DebtError::LowIsZero { priority }));
        assert_eq!(
            change(&|d| d.watermarks[2] = marks(15_000, 15_001)),
            Err(DebtError::LowAboveHigh { priority })
        );
        assert_eq!(
            change(&|d| d.watermarks[2] = marks(999, 500)),
            Err(DebtError::HighBelowChunk { priority, chunk: CHUNK })
        );
        for priority in [Priority::P1, Priority::P2, Priority::P3, Priority::P4] {
            assert_eq!(
                change(&|d| d.multipliers[priority.index()] = Multiplier(0)),
                Err(DebtError::MultiplierIsZero { priority })
            );
        }
        assert_eq!(
            change(&|d| d.multipliers[2] = Multiplier(1_000_001)),
            Err(DebtError::MultiplierTooLarge { priority })
        );
        assert_eq!(Debt::authors().validate(Bytes::ZERO), Err(DebtError::ChunkIsZero));
        // L = H and H = one chunk are the last valid values; M_0 matters to eq. 1 as printed only.
        assert_eq!(change(&|d| d.watermarks[2] = marks(1_000, 1_000)), Ok(()));
        assert_eq!(change(&|d| d.multipliers[0] = Multiplier(0)), Ok(()));
        let mut printed = Debt::paper();
        printed.multipliers[0] = Multiplier(0);
        assert_eq!(printed.validate(CHUNK), Err(DebtError::MultiplierIsZero { priority: Priority::P0 }));
    }

    #[test]
    fn watermarks_of_the_web_follow_the_rate() {
        let highs = |debt: Debt| debt.watermarks.map(|marks| marks.map(|marks| marks.high.get() / 1000));
        assert_eq!(highs(Debt::web()), [Some(256), Some(128), Some(64), Some(32), None]);
        // At the floor of 1.024 Mbit/s and below, and with a segment of the loopback interface.
        assert_eq!(Debt::web_at(Rate::from_kbps(1024), CHUNK), Debt::web());
        assert_eq!(
            highs(Debt::web_at(Rate::ZERO, Bytes::kb(65))),
            [Some(256), Some(128), Some(65), Some(65), None]
        );
        assert_eq!(
            highs(Debt::web_at(Rate::from_mbps(1000), Bytes::kb(256))),
            [Some(250_000), Some(125_000), Some(62_500), Some(31_250), None]
        );
    }

    #[test]
    fn the_wait_bound_of_p4_is_the_published_arithmetic() {
        let debt = Debt::authors();
        // B_3 = 6 + 1; B_2 = 15 + 1.5 B_3 + 1; B_1 = 30 + B_2 + 1.5 B_3 + 1; B_0 = 60 + 0.5 B_1 +
        // B_2 + 1.5 B_3 + 1.
        let (b3, b2, b1, b0) = (7_000, 26_500, 68_000, 132_000);
        assert_eq!(debt.wait_bound(Priority::P4, CHUNK), Some(Bytes::new(b3 + b2 + b1 + b0)));
        assert_eq!(debt.wait_bound(Priority::P0, CHUNK), Some(Bytes::ZERO));
        assert_eq!(debt.wait_bound(Priority::P1, CHUNK), Some(Bytes::kb(61)));
        assert_eq!(Debt::strict().wait_bound(Priority::P1, CHUNK), None);
    }

    proptest! {
        #[test]
        fn rules_of_the_web_are_valid_for_their_chunk(bits in any::<u64>(), chunk in 1u64..) {
            let chunk = Bytes::new(chunk);
            prop_assert_eq!(Debt::web_at(Rate::from_bps(bits), chunk).validate(chunk), Ok(()));
        }

        #[test]
        fn a_payback_is_the_truncated_product(bytes in any::<u64>(), m in 0u32..=1_000_000) {
            let exact = u128::from(bytes) * u128::from(m) / 1000;
            let payback = Multiplier(m).payback(Bytes::new(bytes)).get();
            prop_assert_eq!(u128::from(payback), exact.min(u128::from(u64::MAX)));
        }

        #[test]
        fn a_redistributed_debt_is_the_truncated_product(debt in any::<u64>(), m in 0u64..=1_000_000, more in 0u64..=4_000_000) {
            let total = m + more;
            prop_assume!(total > 0);
            prop_assert_eq!(u128::from(scale(debt, m, total)), u128::from(debt) * u128::from(m) / u128::from(total));
        }
    }
}
