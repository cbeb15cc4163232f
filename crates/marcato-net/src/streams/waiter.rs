//! Place of a task that waits.

use crate::signal::WakerSlot;

/// Place of a task that waits in one of the `poll` functions of a [`Connection`](super::Connection) or
/// [`SendStream`](super::SendStream).
///
/// Keep one for each kind of operation, between its calls. Dropped, the task is not woken.
#[derive(Debug, Default)]
pub struct Waiter(pub(super) WakerSlot);
