//! Priority parameters of a response.

use core::fmt;

use super::urgency::Urgency;

/// Priority parameters of a response (RFC 9218 §4). The default is `u=3`, not incremental.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Parameters {
    /// Urgency (RFC 9218 §4.1).
    pub urgency: Urgency,
    /// True if the client can use parts of the response as they arrive (RFC 9218 §4.2).
    pub incremental: bool,
}

impl Parameters {
    /// Creates the parameters of a response that is only useful when whole.
    pub const fn sequential(urgency: Urgency) -> Self {
        Self { urgency, incremental: false }
    }

    /// Creates the parameters of a response whose parts are useful as they arrive.
    pub const fn incremental(urgency: Urgency) -> Self {
        Self { urgency, incremental: true }
    }
}

impl fmt::Display for Parameters {
    /// Writes the parameters as a header field has them: `u=3` or `u=3, i`.
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
