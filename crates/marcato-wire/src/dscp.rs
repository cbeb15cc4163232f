//! Code points of differentiated services, and their map from priorities.

use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use marcato_units::Priority;

/// Code point of differentiated services (DSCP): the upper six bits of IPv4's type of service and of IPv6's traffic
/// class. RFC 2474 §3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Dscp(u8);

/// Registered names: RFC 2474 (CS), RFC 2597 (AF), RFC 3246 (EF), RFC 5865, RFC 8622 (LE) and RFC 9956 (NQB).
const NAMES: [(&str, u8); 24] = [
    ("cs0", 0),
    ("le", 1),
    ("cs1", 8),
    ("af11", 10),
    ("af12", 12),
    ("af13", 14),
    ("cs2", 16),
    ("af21", 18),
    ("af22", 20),
    ("af23", 22),
    ("cs3", 24),
    ("af31", 26),
    ("af32", 28),
    ("af33", 30),
    ("cs4", 32),
    ("af41", 34),
    ("af42", 36),
    ("af43", 38),
    ("cs5", 40),
    ("voice-admit", 44),
    ("nqb", 45),
    ("ef", 46),
    ("cs6", 48),
    ("cs7", 56),
];

impl Dscp {
    /// Best effort: the default of all traffic.
    pub const DEFAULT: Self = Self(0);
    /// Lower effort: served after all other traffic. RFC 8622.
    pub const LOWER_EFFORT: Self = Self(1);

    /// Returns the code point with this number, 0 to 63.
    pub const fn new(number: u8) -> Option<Self> {
        if number < 64 { Some(Self(number)) } else { None }
    }

    /// Returns its number, 0 to 63.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Returns the priority of packets in the queues of this host, as `SO_PRIORITY` takes it: the one of `pfifo_fast`'s
    /// bands that fits the code point's class selector. RFC 2474 §4.2.2.
    pub const fn queue_priority(self) -> u8 {
        match self.0 {
            // Lower effort, and CS1 as networks before RFC 8622 use it.
            1 | 8 => BELOW,
            ..16 => STANDARD,
            16..32 => ABOVE,
            _ => FIRST,
        }
    }
}

/// First band, and the most that needs no privilege. socket(7).
const FIRST: u8 = 6;
/// Middle band, before those of the same band by disciplines that look at the number.
const ABOVE: u8 = 4;
/// Middle band: the default.
const STANDARD: u8 = 0;
/// Last band, for transfers of bulk.
const BULK: u8 = 2;
/// Last band.
const BELOW: u8 = 1;

/// Returns the priority of packets in the queues of this host for a level, as `SO_PRIORITY` takes it.
pub const fn queue_priority(priority: Priority) -> u8 {
    match priority {
        Priority::P0 => FIRST,
        Priority::P1 => ABOVE,
        Priority::P2 => STANDARD,
        Priority::P3 => BULK,
        Priority::P4 => BELOW,
    }
}

/// Error returned for a text that names no code point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no code point: write a name such as ef, af41, cs0, le or nqb, or a number from 0 to 63")]
pub struct UnknownDscp(String);

impl FromStr for Dscp {
    type Err = UnknownDscp;

    fn from_str(text: &str) -> Result<Self, UnknownDscp> {
        let is = |name: &str| name.eq_ignore_ascii_case(text);
        let named = NAMES.iter().find(|(name, _)| is(name) || (*name == "cs0" && is("df")));
        let number = || match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
            Some(hex) => u8::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        };
        let number = named.map(|(_, number)| *number).or_else(number);
        number.and_then(Self::new).ok_or_else(|| UnknownDscp(text.to_owned()))
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match NAMES.iter().find(|(_, number)| *number == self.0) {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "{}", self.0),
        }
    }
}

/// Map from priorities to code points.
///
/// | level | default | reason |
/// |---|---|---|
/// | P0 | AF41 | elastic traffic that wants little delay: RFC 4594 §4.3. EF and CS4 are for traffic that keeps a rate |
/// | P1 | AF21 | low-latency data: RFC 4594 §4.7 |
/// | P2, P3 | CS0 | standard: RFC 4594 §4.9. No code point stands between it and lower effort |
/// | P4 | LE | lower effort: RFC 8622 |
///
/// NQB (RFC 9956) is no default: it is for flows that build no queue, and no priority says that of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodePoints([Dscp; Priority::COUNT]);

impl Default for CodePoints {
    fn default() -> Self {
        Self([Dscp(34), Dscp(18), Dscp::DEFAULT, Dscp::DEFAULT, Dscp::LOWER_EFFORT])
    }
}

impl CodePoints {
    /// Returns the code point of a level.
    pub const fn of(&self, priority: Priority) -> Dscp {
        self.0[priority.index()]
    }

    /// Sets the code point of a level.
    pub const fn set(&mut self, priority: Priority, dscp: Dscp) {
        self.0[priority.index()] = dscp;
    }
}

#[cfg(test)]
mod tests {
    use std::format;
    use std::string::ToString as _;

    use super::*;

    #[test]
    fn code_points_have_names_and_numbers() {
        for number in 0..64 {
            let dscp = Dscp::new(number).unwrap();
            assert_eq!(dscp.to_string().parse(), Ok(dscp));
            assert_eq!(format!("{number}").parse(), Ok(dscp));
            assert_eq!(format!("0x{number:x}").parse(), Ok(dscp));
        }
        assert_eq!(("EF".parse(), "df".parse()), (Ok(Dscp(46)), Ok(Dscp::DEFAULT)));
        for wrong in ["64", "", "af44", "-1", "0x40", "ef "] {
            assert_eq!(wrong.parse::<Dscp>(), Err(UnknownDscp(wrong.to_owned())));
        }
    }

    #[test]
    fn less_urgent_levels_have_no_better_code_point_or_band() {
        let points = CodePoints::default();
        // Bands of pfifo_fast by priority. tc-prio(8).
        let band = |priority: u8| [1, 2, 2, 2, 1, 2, 0][usize::from(priority)];
        let bands = Priority::ALL.map(|level| band(queue_priority(level)));
        assert_eq!(bands, [0, 1, 1, 2, 2]);
        let of_points = Priority::ALL.map(|level| band(points.of(level).queue_priority()));
        assert_eq!(of_points, [0, 1, 1, 1, 2]);
        assert!(
            Priority::ALL.iter().all(|level| points.of(*level).get() != 45),
            "NQB is chosen by hand only"
        );
        let mut own = points;
        own.set(Priority::P0, Dscp(45));
        assert_eq!((own.of(Priority::P0), own.of(Priority::P1)), (Dscp(45), points.of(Priority::P1)));
    }
}
