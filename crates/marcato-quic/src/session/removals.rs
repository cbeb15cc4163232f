//! Messages that the Conductor removed.

use marcato_sched::conductor::{self, MessageId, Removal};
use marcato_units::Bytes;

/// Collects the messages that the Conductor removed by itself.
#[derive(Debug, Default)]
pub(super) struct Removals(pub(super) Vec<(MessageId, Bytes, Removal)>);

impl conductor::Observer for Removals {
    fn observe(&mut self, event: conductor::Event) {
        if let conductor::Event::Removed { id, sent, reason, .. } = event {
            self.0.push((id, sent, reason));
        }
    }
}
