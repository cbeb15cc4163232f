//! Values with their place in a configuration.

use marcato_document::Place;

/// Value with its place in the file, for errors that a later step finds.
#[derive(Clone, Debug)]
pub struct Located<T> {
    /// Value.
    pub value: T,
    pub(crate) place: Place,
}

impl<T> Located<T> {
    pub(crate) const fn at(place: Place, value: T) -> Self {
        Self { value, place }
    }
}

impl<T> From<T> for Located<T> {
    /// Wraps a value that no file has.
    fn from(value: T) -> Self {
        Self { value, place: Place::START }
    }
}

/// Values are equal wherever they stand.
impl<T: PartialEq> PartialEq for Located<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}
