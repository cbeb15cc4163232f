//! Worlds in which an experiment runs.

use core::fmt;

use serde::{Serialize, Serializer};

/// World in which an experiment runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum World {
    /// Virtual time: the discrete-event simulator.
    #[default]
    Virtual,
    /// Real time: real sockets through the link emulator.
    Lab,
}

impl World {
    /// Name of the world on the command line and in every output.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Virtual => "virtual",
            Self::Lab => "lab",
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for World {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
