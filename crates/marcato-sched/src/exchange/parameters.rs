//! Priority parameters of a response.

use core::fmt;

use marcato_units::Priority;

use super::group::GroupId;
use super::urgency::{LevelTable, Urgency};

/// Priority parameters of a response. HTTP has urgency and `incremental` (RFC 9218 §4). The default is
/// `u=3`, not incremental.
///
/// ```
/// use marcato_sched::exchange::{GroupId, Parameters, Urgency};
/// use marcato_units::Priority;
///
/// // Video of one subscription, whose newest pictures leave first.
/// let picture = |number| {
///     let video = Parameters::sequential(Urgency::exact(60)).at_level(Priority::P2);
///     video.in_group(GroupId(7)).ordered(number)
/// };
/// assert_eq!(picture(3).order, 3);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Urgency (RFC 9218 §4.1).
    pub urgency: Urgency,
    /// True if the client can use parts of the response as they arrive (RFC 9218 §4.2). It then takes
    /// turns with others of its group and order.
    pub incremental: bool,
    /// Level; `None` for that of the urgency in the [`LevelTable`].
    pub level: Option<Priority>,
    /// Group, which shares with others by bytes.
    pub group: GroupId,
    /// Order within the group, the greater first.
    pub order: i64,
}

impl Parameters {
    /// Creates the parameters of a response that is only useful when whole.
    pub const fn sequential(urgency: Urgency) -> Self {
        Self { urgency, incremental: false, level: None, group: GroupId::DEFAULT, order: 0 }
    }

    /// Creates the parameters of a response whose parts are useful as they arrive.
    pub const fn incremental(urgency: Urgency) -> Self {
        Self { incremental: true, ..Self::sequential(urgency) }
    }

    /// Returns them with a level, regardless of the urgency.
    #[must_use]
    pub const fn at_level(self, level: Priority) -> Self {
        Self { level: Some(level), ..self }
    }

    /// Returns them with a group.
    #[must_use]
    pub const fn in_group(self, group: GroupId) -> Self {
        Self { group, ..self }
    }

    /// Returns them with an order within the group.
    #[must_use]
    pub const fn ordered(self, order: i64) -> Self {
        Self { order, ..self }
    }

    /// Returns the level by which they are ordered.
    #[inline]
    pub const fn level_in(&self, levels: &LevelTable) -> Priority {
        match self.level {
            Some(level) => level,
            None => levels.level(self.urgency),
        }
    }
}

impl fmt::Display for Parameters {
    /// Writes the parameters of HTTP as a header field has them: `u=3` or `u=3, i`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.urgency, if self.incremental { ", i" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn parameters_print_as_the_header_field_does() {
        assert_eq!(Parameters::default().to_string(), "u=3");
        assert_eq!(Parameters::incremental(Urgency::MOST).to_string(), "u=0, i");
        assert_eq!(Parameters::sequential(Urgency::LEAST).to_string(), "u=7");
    }
}
