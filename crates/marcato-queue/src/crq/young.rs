//! Place for flows that are young or sparse. The paper has none: there, every flow begins in the
//! standard queue, beside the floods.
//!
//! A flow has an [allowance](YoungConfig::allowance) of bytes. What it sends counts against it, and
//! it [regains](YoungConfig::regain) them with time. A flow has the place until its allowance is used
//! up, and again once half of that is regained. So a page, a name look-up and a call that sends less
//! than it regains never meet a flood, as with the new and sparse flows of RFC 8290 §4.2, while a
//! flood has the place for a moment only.
//!
//! Verdicts do not matter there. A short flow that loses a packet would otherwise be called
//! unresponsive, and sent to the floods, before it can answer.
//!
//! Flows are hashed into a fixed number of accounts, as those of RFC 8290 are into queues: memory is
//! bounded, and no flow can push another one out. Flows that share an account share its allowance.

use alloc::vec::Vec;

use marcato_units::{Bytes, Duration, Rate, Time};

use super::{Aqm, Buffer, Class, CrqError};
use crate::{CodelConfig, FlowKey};

/// Unit of time: steps of 2^20 ns, about a millisecond, which wrap after 52 days.
const STEP_SHIFT: u32 = 20;
/// Largest allowance and largest regain of a step, so that sums fit 32 bits.
const MOST_BYTES: u64 = 1 << 30;
/// Largest number of accounts: 2^24.
const MOST_ACCOUNTS: u32 = 1 << 24;

/// Configuration of the place for young flows of a [`CrqConfig`](super::CrqConfig).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct YoungConfig {
    /// Discipline within the place.
    pub aqm: Aqm,
    /// Room of the place's buffer; a bandwidth-delay product is that of its largest part of the link.
    pub buffer: Buffer,
    /// Largest part of the link that the place has while packets wait elsewhere, in thousandths, 1 to
    /// 999. It bounds the gain of a sender that opens many small flows.
    pub most: u16,
    /// Bytes that a flow may send from the place at once.
    pub allowance: Bytes,
    /// Rate at which a flow regains its allowance. A flow that sends less never loses its place.
    pub regain: Rate,
    /// Number of accounts into which flows are hashed, rounded up to a power of two.
    pub accounts: u32,
}

impl YoungConfig {
    /// Default of [`allowance`](Self::allowance): most pages and images are smaller.
    pub const ALLOWANCE: Bytes = Bytes::kb(500);
    /// Default of [`regain`](Self::regain): a call in G.711 takes 87 kbit/s.
    pub const REGAIN: Rate = Rate::from_kbps(128);
    /// Default of [`most`](Self::most): what three new flows have beside a flood under FQ-CoDel.
    pub const MOST: u16 = 750;

    /// Default of [`accounts`](Self::accounts).
    pub const ACCOUNTS: u32 = 16_384;

    /// Default configuration.
    ///
    /// | parameter | value |
    /// |---|---|
    /// | discipline | FQ-CoDel with CoDel's default target and interval, 1024 queues |
    /// | buffer | one BDP at `rtt` |
    /// | most of the link | three quarters |
    /// | allowance | 500 kB, regained at 128 kbit/s |
    /// | accounts | 16 384 |
    pub fn new(rtt: Duration, ecn: bool) -> Self {
        let codel = CodelConfig::default();
        Self {
            aqm: Aqm::FqCodel { target: codel.target, interval: codel.interval, ecn, flows: 1024 },
            buffer: Buffer::Bdp(rtt),
            most: Self::MOST,
            allowance: Self::ALLOWANCE,
            regain: Self::REGAIN,
            accounts: Self::ACCOUNTS,
        }
    }

    /// Bytes regained in a step.
    fn per_step(&self) -> u64 {
        let bytes = (u128::from(self.regain.as_bps()) << STEP_SHIFT) / 8_000_000_000;
        u64::try_from(bytes).unwrap_or(MOST_BYTES).min(MOST_BYTES)
    }
}

/// Part of its allowance that a flow has used.
#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Step of the last packet.
    since: u32,
    /// Bytes used and not regained, at most the allowance.
    used: u32,
    /// Set while the flow has lost the place.
    spent: bool,
}

/// Accounts of all flows.
#[derive(Clone, Debug)]
pub(super) struct Young {
    accounts: Vec<Account>,
    allowance: u32,
    per_step: u32,
    secret: u64,
}

impl Young {
    pub(super) fn new(config: &YoungConfig, secret: u64) -> Result<Self, CrqError> {
        if config.most == 0 || config.most >= 1000 {
            return Err(CrqError::YoungMost(config.most));
        }
        let allowance = config.allowance;
        if allowance.is_zero() || allowance.get() > MOST_BYTES {
            return Err(CrqError::Allowance(allowance));
        }
        if config.per_step() == 0 {
            return Err(CrqError::Regain(config.regain));
        }
        if config.accounts == 0 || config.accounts > MOST_ACCOUNTS {
            return Err(CrqError::Accounts(config.accounts));
        }
        let small = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        Ok(Self {
            accounts: alloc::vec![Account::default(); config.accounts.next_power_of_two() as usize],
            allowance: small(allowance.get()),
            per_step: small(config.per_step()),
            secret,
        })
    }

    /// Takes note of `len` bytes of a flow that arrive at `now`, and returns whether its allowance
    /// covers them.
    #[allow(clippy::cast_possible_truncation, reason = "times wrap, and any bits of the hash are as good")]
    pub(super) fn covers(&mut self, now: Time, key: FlowKey, len: Bytes) -> bool {
        let at = (key.mixed(self.secret) >> 32) as usize & (self.accounts.len() - 1);
        let account = &mut self.accounts[at];
        let now = (now.as_nanos() >> STEP_SHIFT) as u32;
        let passed = now.wrapping_sub(account.since);
        // A clock that went back gives nothing back.
        if passed <= u32::MAX / 2 {
            account.used = account.used.saturating_sub(passed.saturating_mul(self.per_step));
            account.since = now;
        }
        if account.spent && account.used <= self.allowance / 2 {
            account.spent = false;
        }
        let used = u64::from(account.used) + len.get().min(MOST_BYTES);
        if used > u64::from(self.allowance) {
            account.spent = true;
        }
        account.used = used.min(u64::from(self.allowance)) as u32;
        !account.spent
    }
}

/// Class of the place.
pub(super) const YOUNG: usize = Class::Young as usize;

#[cfg(test)]
mod tests {
    use super::*;

    fn young(allowance: u64, kbps: u64) -> Young {
        let config = YoungConfig {
            allowance: Bytes::new(allowance),
            regain: Rate::from_kbps(kbps),
            accounts: 1,
            ..YoungConfig::new(Duration::from_millis(100), false)
        };
        Young::new(&config, 0).unwrap()
    }

    fn covers(young: &mut Young, millis: u64, len: u64) -> bool {
        young.covers(Time::from_millis(millis), FlowKey::new(1), Bytes::new(len))
    }

    #[test]
    fn an_allowance_is_spent_to_the_byte_and_half_of_it_buys_back() {
        let mut young = young(10_000, 80);
        assert!(covers(&mut young, 0, 4000) && covers(&mut young, 0, 6000));
        assert!(!covers(&mut young, 0, 1));
        // 80 kbit/s are 10 bytes in each step of 1.049 ms. 499 steps are not half.
        assert!(!covers(&mut young, 524, 0));
        assert!(covers(&mut young, 525, 0));
        assert!(covers(&mut young, 525, 5000) && !covers(&mut young, 525, 1));
    }

    #[test]
    fn a_flow_below_the_regained_rate_never_loses_its_place() {
        // 80 kbit/s, and a packet of 200 bytes every 20 ms: the same rate.
        let mut sparse = young(10_000, 84);
        assert!((0..10_000).all(|packet| covers(&mut sparse, packet * 20, 200)));
        let mut faster = young(10_000, 84);
        let kept = (0..10_000).filter(|&packet| covers(&mut faster, packet * 20, 400)).count();
        // After the allowance it stays out: at twice the rate it regains nothing.
        assert!((45..60).contains(&kept), "{kept}");
    }

    #[test]
    fn time_that_runs_backwards_gives_nothing_back() {
        let mut young = young(10_000, 80);
        assert!(covers(&mut young, 5000, 10_000));
        assert!(!covers(&mut young, 10, 1) && !covers(&mut young, 5000, 1));
        assert!(!covers(&mut young, 5400, 1));
        assert!(covers(&mut young, 60_000, 10_000));
    }

    #[test]
    fn places_that_cannot_work_are_errors() {
        let good = YoungConfig::new(Duration::from_millis(100), false);
        let made = |config: YoungConfig| Young::new(&config, 0).map(|_| ());
        assert_eq!(made(good), Ok(()));
        for most in [0, 1000] {
            assert_eq!(made(YoungConfig { most, ..good }), Err(CrqError::YoungMost(most)));
        }
        for allowance in [Bytes::ZERO, Bytes::new(MOST_BYTES + 1)] {
            assert_eq!(made(YoungConfig { allowance, ..good }), Err(CrqError::Allowance(allowance)));
        }
        let regain = Rate::from_bps(7000);
        assert_eq!(made(YoungConfig { regain, ..good }), Err(CrqError::Regain(regain)));
        for accounts in [0, MOST_ACCOUNTS + 1] {
            assert_eq!(made(YoungConfig { accounts, ..good }), Err(CrqError::Accounts(accounts)));
        }
    }
}
