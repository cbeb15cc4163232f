//! Configurations from which a discipline is built without naming its type.

use core::error::Error;

use marcato_units::Stream;

use crate::{Discipline, Limit, Packet};

/// Configuration of a discipline with one buffer, for users that choose the discipline at run time.
///
/// ```
/// use marcato_queue::{Configuration, Discipline, Packet};
/// use marcato_units::Stream;
///
/// /// Builds any queue.
/// fn boxed<C: Configuration, P: Packet + Send + 'static>(
///     config: &C,
///     stream: Stream,
/// ) -> Result<Box<dyn Discipline<P> + Send>, C::Error> {
///     Ok(Box::new(config.build(stream)?))
/// }
/// ```
pub trait Configuration {
    /// Error of a configuration that cannot work.
    type Error: Error + Send + Sync + 'static;

    /// Discipline for packets of type `P`.
    type Queue<P: Packet + Send + 'static>: Discipline<P> + Send + 'static;

    /// Builds an empty queue. It draws its random numbers, if any, from `stream`.
    ///
    /// # Errors
    /// [`Self::Error`] if the configuration cannot work.
    fn build<P: Packet + Send + 'static>(&self, stream: Stream) -> Result<Self::Queue<P>, Self::Error>;

    /// Returns whether the queue draws random numbers.
    fn is_random(&self) -> bool;

    /// Returns whether the queue marks packets that are capable of ECN.
    fn marks(&self) -> bool;

    /// Returns the room of the buffer.
    fn limit(&self) -> Limit;
}
