//! Links of common access networks, with the sources of their numbers.

use marcato_units::{Duration, Rate};

/// Link of an access network: a rate up and down, and a delay each way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinkPreset {
    /// Name in a text.
    pub name: &'static str,
    /// Rate from the client.
    pub up: Rate,
    /// Rate to the client.
    pub down: Rate,
    /// Delay each way: half of the round trip of the source.
    pub delay: Duration,
    /// Periodic handovers; `None` if the path stays.
    pub handover: Option<Handover>,
    /// Source of the numbers.
    pub source: &'static str,
}

/// Periodic change of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Handover {
    /// Time from one to the next.
    pub every: Duration,
    /// Time without a path, in which packets are lost.
    pub outage: Duration,
    /// Width of the interval around the delay from which each path draws its own.
    pub spread: Duration,
}

const WEBPAGETEST: &str = "profile of WebPageTest (`connectivity.ini.sample`)";

/// All presets.
pub const PRESETS: [LinkPreset; 8] = [
    link("3g", [768, 1_600], 75_000, WEBPAGETEST),
    link("lte", [12_000, 12_000], 35_000, WEBPAGETEST),
    link(
        "5g",
        [130_000, 880_000],
        10_900,
        "Xu et al., SIGCOMM 2020: UDP, and the round trip of a 5G NSA network",
    ),
    link("wifi", [33_000, 40_000], 1_000, "profile of Apple's Network Link Conditioner"),
    link("dsl", [384, 1_500], 25_000, WEBPAGETEST),
    link("cable", [1_000, 5_000], 14_000, WEBPAGETEST),
    link("geo", [10_000, 50_000], 325_000, "draft-jones-tsvwg-transport-for-satellite, medium public access"),
    LinkPreset {
        // The quartiles of the round trip are 40 ms and 60 ms. The outage is an assumption.
        handover: Some(Handover {
            every: Duration::from_secs(15),
            outage: Duration::from_millis(50),
            spread: Duration::from_millis(10),
        }),
        ..link(
            "leo",
            [17_000, 178_000],
            25_000,
            "Michel et al., IMC 2022; a new path each 15 s as in Mohan et al., WWW 2024",
        )
    },
];

/// Creates a preset without handovers, of rates in kbit/s and a delay in microseconds.
const fn link(name: &'static str, kbps: [u64; 2], delay: u64, source: &'static str) -> LinkPreset {
    let [up, down] = [Rate::from_kbps(kbps[0]), Rate::from_kbps(kbps[1])];
    LinkPreset { name, up, down, delay: Duration::from_micros(delay), handover: None, source }
}

#[cfg(test)]
mod tests {
    use marcato_document::quantity;

    use super::*;

    #[test]
    fn the_documentation_has_each_preset_with_its_source() {
        let page = include_str!("../../../docs/lab.md");
        for LinkPreset { name, up, down, delay, source, .. } in PRESETS {
            let [up, down] = [up, down].map(quantity::rate);
            let row = format!("| `{name}` | {up} | {down} | {} | {source} |", quantity::span(delay));
            assert!(page.contains(&row), "docs/lab.md lacks {row}");
        }
    }
}
