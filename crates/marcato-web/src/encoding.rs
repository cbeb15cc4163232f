//! Content codings: RFC 9110 §8.4.1 and §12.5.3.

use http::HeaderValue;

/// Content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Content as it is.
    Identity,
    /// Brotli (RFC 7932).
    Brotli,
    /// Zstandard (RFC 8878).
    Zstd,
    /// Gzip (RFC 1952).
    Gzip,
}

impl Coding {
    /// All codings except identity, the preferred one first.
    pub(crate) const COMPRESSED: [Self; 3] = [Self::Brotli, Self::Zstd, Self::Gzip];

    /// Suffix of the file's name.
    pub(crate) const fn suffix(self) -> &'static str {
        match self {
            Self::Identity => "",
            Self::Brotli => ".br",
            Self::Zstd => ".zst",
            Self::Gzip => ".gz",
        }
    }

    /// Name in `Content-Encoding`; `None` for identity, which that field never names (RFC 9110 §8.4).
    pub(crate) const fn name(self) -> Option<&'static str> {
        match self {
            Self::Identity => None,
            Self::Brotli => Some("br"),
            Self::Zstd => Some("zstd"),
            Self::Gzip => Some("gzip"),
        }
    }

    /// Returns true if a file of this name is compressed already.
    pub(crate) fn is_compressed(path: &str) -> bool {
        Self::COMPRESSED.iter().any(|coding| path.ends_with(coding.suffix()))
    }
}

/// Weight of a coding in thousandths, 1000 at most (RFC 9110 §12.4.2).
type Weight = u16;

/// Codings that a client accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted {
    identity: Option<Weight>,
    brotli: Option<Weight>,
    zstd: Option<Weight>,
    gzip: Option<Weight>,
    /// Weight of `*`: of the codings that are not named.
    any: Option<Weight>,
}

impl Accepted {
    /// Parses all lines of `Accept-Encoding`. Members that are malformed or unknown are ignored.
    pub(crate) fn parse<'a>(lines: impl IntoIterator<Item = &'a HeaderValue>) -> Self {
        let mut accepted = Self::default();
        for line in lines {
            for member in line.as_bytes().split(|byte| *byte == b',') {
                accepted.add(member);
            }
        }
        accepted
    }

    fn add(&mut self, member: &[u8]) {
        let mut parts = member.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let coding = parts.next().unwrap_or_default();
        let mut weight = 1000;
        for parameter in parts {
            if let [b'q' | b'Q', b'=', value @ ..] = parameter {
                match parse_weight(value) {
                    Some(value) => weight = value,
                    None => return,
                }
            }
        }
        // RFC 9110 §8.4.1: codings are case-insensitive. §8.4.1.3: `x-gzip` is equivalent to `gzip`.
        let named = |name: &[u8]| coding.eq_ignore_ascii_case(name);
        let place = if named(b"br") {
            &mut self.brotli
        } else if named(b"zstd") {
            &mut self.zstd
        } else if named(b"gzip") || named(b"x-gzip") {
            &mut self.gzip
        } else if named(b"identity") {
            &mut self.identity
        } else if named(b"*") {
            &mut self.any
        } else {
            return;
        };
        *place = Some(weight);
    }

    /// Returns the weight of a coding. Zero means that the client does not accept it.
    ///
    /// Identity is acceptable unless excluded (RFC 9110 §12.5.3). An unnamed identity has weight zero
    /// here: every named coding precedes it, and it remains the last choice.
    fn weight(&self, coding: Coding) -> Weight {
        let named = match coding {
            Coding::Identity => self.identity,
            Coding::Brotli => self.brotli,
            Coding::Zstd => self.zstd,
            Coding::Gzip => self.gzip,
        };
        named.or(self.any).unwrap_or(0)
    }

    /// Returns the coding to send, of identity and those available.
    ///
    /// The heaviest is chosen, in the order of [`Coding::COMPRESSED`] among equals, identity last. If
    /// the client excludes all of them, identity is sent nevertheless (RFC 9110 §12.1 permits it).
    pub(crate) fn choose(&self, available: impl Fn(Coding) -> bool) -> Coding {
        self.choose_of(Coding::COMPRESSED.into_iter().filter(|coding| available(*coding)))
    }

    /// Returns the coding to send, of identity and others, of which the preferred one comes first.
    pub(crate) fn choose_of(&self, codings: impl IntoIterator<Item = Coding>) -> Coding {
        let mut best = (0, Coding::Identity);
        for coding in codings {
            let weight = self.weight(coding);
            if weight > best.0 {
                best = (weight, coding);
            }
        }
        if self.weight(Coding::Identity) > best.0 { Coding::Identity } else { best.1 }
    }

    /// Returns true if the client excludes content without a coding (RFC 9110 §12.5.3).
    #[cfg(feature = "compression")]
    pub(crate) fn refuses_identity(&self) -> bool {
        self.identity.or(self.any) == Some(0)
    }
}

/// Parses a weight: `0`, `1`, or up to three decimals (RFC 9110 §12.4.2).
fn parse_weight(value: &[u8]) -> Option<Weight> {
    let (whole, decimals) = match value {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] if decimals.len() <= 3 => (whole, decimals),
        _ => return None,
    };
    let mut weight = match whole {
        b'0' => 0,
        b'1' => 1000,
        _ => return None,
    };
    for (digit, unit) in decimals.iter().zip([100, 10, 1]) {
        match digit {
            b'0'..=b'9' => weight += Weight::from(digit - b'0') * unit,
            _ => return None,
        }
    }
    (weight <= 1000).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn accepted(lines: &[&str]) -> Accepted {
        let lines: Vec<_> = lines.iter().map(|line| HeaderValue::from_str(line).unwrap()).collect();
        Accepted::parse(&lines)
    }

    fn choose(line: &str) -> Coding {
        accepted(&[line]).choose(|_| true)
    }

    #[test]
    fn the_heaviest_coding_is_chosen() {
        use Coding::{Brotli, Gzip, Identity, Zstd};
        for (line, coding) in [
            ("gzip, deflate, br, zstd", Brotli),
            ("gzip, zstd", Zstd),
            ("gzip", Gzip),
            ("x-gzip", Gzip),
            ("GZIP;Q=0.5 , Zstd ; q=0.4", Gzip),
            ("br;q=0.1, gzip;q=0.2", Gzip),
            ("br;q=0, gzip;q=0.001", Gzip),
            ("gzip;q=0.5, identity", Identity),
            ("gzip;q=0.5, identity;q=0.5", Gzip),
            ("*", Brotli),
            ("*, br;q=0", Zstd),
            ("*;q=0.5, identity;q=0.6", Identity),
            ("identity;q=0", Identity),
            ("*;q=0", Identity),
            ("", Identity),
            ("deflate, bro", Identity),
        ] {
            assert_eq!(choose(line), coding, "{line}");
        }
    }

    #[test]
    fn only_available_codings_are_chosen() {
        let accepted = accepted(&["br, gzip;q=0.5"]);
        assert_eq!(accepted.choose(|coding| coding == Coding::Gzip), Coding::Gzip);
        assert_eq!(accepted.choose(|coding| coding == Coding::Zstd), Coding::Identity);
        assert_eq!(Accepted::default().choose(|_| true), Coding::Identity);
    }

    #[test]
    fn lines_form_one_list() {
        assert_eq!(accepted(&["gzip;q=0.5", "zstd"]), accepted(&["gzip;q=0.5,, zstd"]));
    }

    #[test]
    fn malformed_weights_void_their_member() {
        for line in
            ["br;q=", "br;q=2", "br;q=1.001", "br;q=0.1234", "br;q=-1", "br;q=.5", "br;q=0.x", "br;q=01"]
        {
            assert_eq!(choose(line), Coding::Identity, "{line}");
        }
        assert_eq!(choose("br;x=1;q=1.000"), Coding::Brotli);
    }

    #[test]
    #[cfg(feature = "compression")]
    fn identity_is_refused_by_its_name_or_by_all() {
        for (line, refuses) in [
            ("identity;q=0, gzip", true),
            ("*;q=0, gzip", true),
            ("*;q=0, identity", false),
            ("*;q=0, identity;q=0.001", false),
            ("identity;q=0, *", true),
            ("gzip", false),
            ("", false),
        ] {
            assert_eq!(accepted(&[line]).refuses_identity(), refuses, "{line}");
        }
    }

    #[test]
    fn equal_weights_leave_the_choice_to_the_order() {
        use Coding::{Brotli, Gzip, Identity, Zstd};
        for (line, order, coding) in [
            ("gzip, br, zstd", vec![Zstd, Brotli, Gzip], Zstd),
            ("gzip, br, zstd", vec![Gzip, Zstd], Gzip),
            ("gzip;q=0.9, br", vec![Gzip, Brotli], Brotli),
            ("br", vec![Gzip, Zstd], Identity),
            ("gzip", vec![], Identity),
        ] {
            assert_eq!(accepted(&[line]).choose_of(order), coding, "{line}");
        }
    }

    #[test]
    fn compressed_names_are_known() {
        assert!(Coding::is_compressed("a.tar.gz") && Coding::is_compressed("a.js.br"));
        assert!(!Coding::is_compressed("a.js") && !Coding::is_compressed("gz"));
    }

    proptest! {
        #[test]
        fn weights_are_read_in_thousandths(weight in 0..=1000_u16) {
            let text = format!("{}.{:03}", weight / 1000, weight % 1000);
            prop_assert_eq!(parse_weight(text.as_bytes()), Some(weight));
        }

        #[test]
        fn excluded_codings_are_never_sent(line in "((br|gzip|zstd|\\*)(;q=(0|1|0\\.5))?,){0,5}") {
            let accepted = accepted(&[&line]);
            let coding = accepted.choose(|_| true);
            prop_assert!(coding == Coding::Identity || accepted.weight(coding) > 0);
        }
    }
}
