//! Place on the heap that is used again.

use std::pin::Pin;

/// Place on the heap for a value that must not move, used again for the next one.
#[derive(Debug)]
pub(crate) struct Place<T>(Option<Pin<Box<Option<T>>>>);

impl<T> Default for Place<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T> Place<T> {
    /// Puts a value into the place, and drops the one before.
    pub(crate) fn put(&mut self, value: T) {
        match &mut self.0 {
            Some(place) => place.set(Some(value)),
            none => *none = Some(Box::pin(Some(value))),
        }
    }

    /// Returns the value.
    pub(crate) fn get(&mut self) -> Option<Pin<&mut T>> {
        self.0.as_mut()?.as_mut().as_pin_mut()
    }

    /// Drops the value. Its memory stays.
    pub(crate) fn clear(&mut self) {
        if let Some(place) = &mut self.0 {
            place.set(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_of_a_value_serves_the_next() {
        let mut place = Place::default();
        assert!(place.get().is_none());
        place.put(1_u64);
        let first = std::ptr::from_ref(&*place.get().unwrap());
        place.clear();
        assert!(place.get().is_none());
        place.put(2);
        let second = place.get().unwrap();
        assert_eq!((*second, std::ptr::from_ref(&*second)), (2, first));
    }
}
