//! The web page of CATS §III-A.

use marcato_sim::Planned;
use marcato_units::{Bytes, Priority};

/// Bytes of each priority group: HTML and critical CSS, CSS, JavaScript, images, analytics.
pub const GROUPS: [Bytes; Priority::COUNT] =
    [Bytes::kb(8), Bytes::kb(25), Bytes::kb(40), Bytes::kb(60), Bytes::kb(150)];

/// Names of the groups, for people.
pub const NAMES: [&str; Priority::COUNT] =
    ["P0 HTML/CSS", "P1 CSS", "P2 JavaScript", "P3 images", "P4 analytics"];

/// Order in which the application hands the groups over: the least urgent first, the paper's worst
/// case.
pub const ORDER: [Priority; Priority::COUNT] =
    [Priority::P4, Priority::P3, Priority::P2, Priority::P1, Priority::P0];

/// The page as a plan: all groups at once, in [`ORDER`].
pub(super) fn plan() -> Vec<Planned> {
    ORDER.into_iter().map(|priority| Planned::now(GROUPS[priority.index()], priority)).collect()
}
