//! Values that the CATS paper prints.

use marcato_units::Priority;

/// Table I, baseline TCP: completion in ms by priority.
pub(super) const TABLE1_FIFO: [f64; Priority::COUNT] = [1327.0, 1293.0, 1187.0, 1018.0, 764.0];
/// Table I, CATS: completion in ms by priority.
pub(super) const TABLE1_CATS: [f64; Priority::COUNT] = [130.0, 282.0, 523.0, 815.0, 1327.0];
/// Table I, total page load of both, in ms.
pub(super) const PAGE_LOAD: f64 = 1327.0;
/// Table II: metric, baseline ms, CATS ms, improvement in %.
pub(super) const TABLE2: [(&str, f64, f64, f64); 3] =
    [("fcp", 1327.0, 282.0, 78.7), ("tti", 1327.0, 523.0, 60.6), ("lcp", 1018.0, 815.0, 19.9)];
/// Time from `connect()` to the first data byte, in ms, measured by running the authors' program.
pub(super) const FIRST_BYTE: f64 = 186.617;
