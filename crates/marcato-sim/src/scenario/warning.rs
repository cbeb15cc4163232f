//! Warnings of likely mistakes in a scenario.

use std::fmt;

/// Sign that a run did not do what its scenario meant. It changes no result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// Valid part of the scenario that most likely does not mean what its author intended: see
    /// [`Experiment::warnings`](marcato_scenario::Experiment::warnings).
    Scenario(String),
    /// Flow of which nothing arrived in the whole run.
    NothingDelivered {
        /// Name of the flow, or of the instance if there are several.
        flow: String,
    },
    /// Direction of a link that refused packets larger than its MTU.
    TooBig {
        /// Name of the link.
        link: String,
        /// True for the direction back.
        back: bool,
        /// Packets refused in the whole run.
        packets: u64,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scenario(warning) => f.write_str(warning),
            Self::NothingDelivered { flow } => write!(
                f,
                "nothing of the flow `{flow}` arrived: check the mtu, loss, outages and queues on its path, and its start"
            ),
            Self::TooBig { link, back, packets } => {
                let way = if *back { ", back" } else { "" };
                write!(
                    f,
                    "the link `{link}`{way} refused {packets} packets larger than its `mtu`: raise it, or send smaller ones"
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warning_says_what_to_do() {
        let nothing = Warning::NothingDelivered { flow: "bulk-2".into() };
        assert_eq!(
            nothing.to_string(),
            "nothing of the flow `bulk-2` arrived: check the mtu, loss, outages and queues on its path, and its start"
        );
        let too_big = Warning::TooBig { link: "slow".into(), back: true, packets: 3 };
        assert_eq!(
            too_big.to_string(),
            "the link `slow`, back refused 3 packets larger than its `mtu`: raise it, or send smaller ones"
        );
    }
}
