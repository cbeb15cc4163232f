//! Questions of CATS that are files.

use crate::files::{File, Files};

/// Returns a file of `experiments/cats`, with its text.
macro_rules! file {
    ($name:literal) => {
        File {
            path: concat!("experiments/cats/", $name, ".toml").to_owned(),
            scenario: include_str!(concat!("../../../../experiments/cats/", $name, ".toml")).to_owned(),
            text: include_str!(concat!("../../../../experiments/cats/", $name, ".md")).to_owned(),
        }
    };
}

/// Table I, the authors' time of the first byte, Figs. 2 and 3.
pub(super) fn table1() -> File {
    file!("table1")
}

/// Table II, and the ratio to the physical limit.
pub(super) fn table2() -> File {
    file!("table2")
}

/// The page on other paths and with other stacks.
pub(super) fn variants() -> File {
    file!("variants")
}

/// Returns all files, in the order of the report.
pub(super) fn all() -> Files {
    Files::built_in("cats", vec![table1(), table2(), variants()])
}
