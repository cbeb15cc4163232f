//! Composition of all signals of one response.

use core::fmt;

use marcato_sched::exchange::{Parameters, Urgency};

use crate::guess::Guess;
use crate::priority::PriorityField;

/// Source of an urgency, for logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// `u` in the origin's response (RFC 9218 §8).
    Origin,
    /// PRIORITY_UPDATE frame (RFC 9218 §7).
    Update,
    /// `priority` field of the request (RFC 9218 §5).
    Header,
    /// Weights and dependencies (RFC 7540 §5.3).
    Weights,
    /// `Sec-Purpose` of the request.
    Purpose,
    /// `Sec-Fetch-Dest` of the request.
    Destination,
    /// `Content-Disposition: attachment` of the response.
    Attachment,
    /// `Content-Type` of the response.
    ContentType,
    /// Extension of the path.
    Extension,
    /// Length of the response.
    Length,
    /// No source: the default of RFC 9218 §4.
    Default,
}

impl Source {
    /// True if it shows a client that asks for some responses before others, as browsers do.
    #[cfg(feature = "server")]
    pub(crate) const fn is_of_ordering_client(self) -> bool {
        match self {
            Self::Update | Self::Header | Self::Weights | Self::Purpose | Self::Destination => true,
            Self::Origin
            | Self::Attachment
            | Self::ContentType
            | Self::Extension
            | Self::Length
            | Self::Default => false,
        }
    }

    /// All sources.
    pub const ALL: [Self; 11] = [
        Self::Origin,
        Self::Update,
        Self::Header,
        Self::Weights,
        Self::Purpose,
        Self::Destination,
        Self::Attachment,
        Self::ContentType,
        Self::Extension,
        Self::Length,
        Self::Default,
    ];

    /// Name of the source in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Origin => "origin",
            Self::Update => "update",
            Self::Header => "header",
            Self::Weights => "weights",
            Self::Purpose => "purpose",
            Self::Destination => "destination",
            Self::Attachment => "attachment",
            Self::ContentType => "content-type",
            Self::Extension => "extension",
            Self::Length => "length",
            Self::Default => "default",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Parameters of a response, and the source of its urgency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Parameters by which the response is ordered.
    pub parameters: Parameters,
    /// Source of the urgency.
    pub source: Source,
}

/// Signals of one request and its response.
///
/// ```
/// use marcato_web::{Evidence, PriorityField, Source};
///
/// let evidence = Evidence {
///     header: Some(PriorityField::parse(b"u=5, i")?),
///     origin: PriorityField::parse(b"u=1")?,
///     extensible: true,
///     ..Evidence::default()
/// };
/// let decision = evidence.decide();
/// assert_eq!(decision.parameters.to_string(), "u=1, i");
/// assert_eq!(decision.source, Source::Origin);
/// # Ok::<(), marcato_web::FieldError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Evidence {
    /// Latest PRIORITY_UPDATE frame.
    pub update: Option<PriorityField>,
    /// `priority` field of the request.
    pub header: Option<PriorityField>,
    /// True if the client has shown any signal of RFC 9218 on this connection.
    pub extensible: bool,
    /// Urgency by weights and dependencies.
    pub weights: Option<Urgency>,
    /// Guess for a client that signals nothing.
    pub guess: Option<Guess>,
    /// `priority` field of the origin's response.
    pub origin: PriorityField,
}

impl Evidence {
    /// Composes the signals.
    ///
    /// 1. The latest PRIORITY_UPDATE frame overrides any other signal of the client, with all its
    ///    parameters (RFC 9218 §7).
    /// 2. The `priority` field of the request (RFC 9218 §5).
    /// 3. On a connection that has shown a signal of RFC 9218, the defaults: an absent field has a
    ///    meaning (RFC 9218 §4, §5).
    /// 4. Weights (RFC 7540 §5.3). They do not tell whether a response is incremental; the guess does.
    /// 5. The guess.
    /// 6. The defaults.
    ///
    /// Then the parameters that the origin's response has override those (RFC 9218 §8).
    pub fn decide(&self) -> Decision {
        let client = if let Some(update) = self.update {
            // RFC 9218 §7: the frame has a complete set, so that the header is not merged with it.
            Decision { parameters: update.parameters(), source: Source::Update }
        } else if let Some(header) = self.header {
            Decision { parameters: header.parameters(), source: Source::Header }
        } else if self.extensible {
            Decision { parameters: Parameters::default(), source: Source::Default }
        } else if let Some(urgency) = self.weights {
            let incremental = self.guess.is_some_and(|guess| guess.parameters.incremental);
            Decision {
                parameters: Parameters { incremental, ..Parameters::sequential(urgency) },
                source: Source::Weights,
            }
        } else if let Some(guess) = self.guess {
            Decision { parameters: guess.parameters, source: guess.source }
        } else {
            Decision { parameters: Parameters::default(), source: Source::Default }
        };
        // RFC 9218 §8: a parameter that the response omits keeps the client's value.
        Decision {
            parameters: self.origin.over(client.parameters),
            source: if self.origin.urgency.is_some() { Source::Origin } else { client.source },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(value: &str) -> PriorityField {
        PriorityField::parse(value.as_bytes()).unwrap()
    }

    fn decide(evidence: Evidence) -> (String, Source) {
        let decision = evidence.decide();
        (decision.parameters.to_string(), decision.source)
    }

    fn all() -> Evidence {
        Evidence {
            update: Some(field("u=1")),
            header: Some(field("u=2, i")),
            extensible: true,
            weights: Urgency::new(4),
            guess: Some(Guess { parameters: field("u=5, i").parameters(), source: Source::Destination }),
            origin: field("u=6"),
        }
    }

    #[test]
    fn each_signal_gives_way_to_those_before_it() {
        let mut evidence = all();
        assert_eq!(decide(evidence), ("u=6".into(), Source::Origin));
        evidence.origin = PriorityField::default();
        assert_eq!(decide(evidence), ("u=1".into(), Source::Update));
        evidence.update = None;
        assert_eq!(decide(evidence), ("u=2, i".into(), Source::Header));
        evidence.header = None;
        assert_eq!(decide(evidence), ("u=3".into(), Source::Default));
        evidence.extensible = false;
        assert_eq!(decide(evidence), ("u=4, i".into(), Source::Weights));
        evidence.weights = None;
        assert_eq!(decide(evidence), ("u=5, i".into(), Source::Destination));
        evidence.guess = None;
        assert_eq!(decide(evidence), ("u=3".into(), Source::Default));
    }

    #[test]
    fn an_update_replaces_all_parameters_of_the_header() {
        let evidence = Evidence { update: Some(field("")), origin: field(""), ..all() };
        assert_eq!(decide(evidence), ("u=3".into(), Source::Update));
    }

    #[test]
    fn the_origin_overrides_only_what_it_has() {
        let client = Evidence { header: Some(field("u=5, i")), ..Evidence::default() };
        let with = |origin| decide(Evidence { origin: field(origin), ..client });
        assert_eq!(with("u=1"), ("u=1, i".into(), Source::Origin));
        assert_eq!(with("i=?0"), ("u=5".into(), Source::Header));
        assert_eq!(with("u=3"), ("u=3, i".into(), Source::Origin));
        assert_eq!(with(""), ("u=5, i".into(), Source::Header));
    }

    #[test]
    fn weights_without_a_guess_are_sequential() {
        let evidence = Evidence { weights: Urgency::new(4), ..Evidence::default() };
        assert_eq!(decide(evidence), ("u=4".into(), Source::Weights));
    }

    #[test]
    fn names_of_sources_differ() {
        let names: std::collections::BTreeSet<&str> =
            Source::ALL.iter().map(|source| source.name()).collect();
        assert_eq!(names.len(), Source::ALL.len());
    }
}
