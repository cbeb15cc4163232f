//! Application without a Conductor: it writes messages in the order of their times.

use std::collections::VecDeque;

use marcato_sched::conductor::Message;
use marcato_units::{Bytes, Priority};

use super::plan::{Plan, Planned, PlannedApp};
use super::{Socket, Tag};

/// Application that writes each message of a plan at its time, one after the other. The label of a
/// message is its index in the plan.
#[derive(Clone, Debug)]
pub struct Fifo {
    plan: Plan,
    waiting: VecDeque<(Tag, Priority, Bytes)>,
}

impl Fifo {
    /// Application with this plan; messages of the same time keep their order.
    pub fn new(plan: Vec<Planned>) -> Self {
        Self { plan: Plan::new(plan), waiting: VecDeque::new() }
    }
}

impl PlannedApp for Fifo {
    fn plan(&mut self) -> &mut Plan {
        &mut self.plan
    }

    fn accept(&mut self, tag: Tag, message: Message, _socket: &mut Socket<'_>) {
        self.waiting.push_back((tag, message.priority, message.len));
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        while let Some((tag, priority, left)) = self.waiting.front_mut() {
            *left -= socket.write(*left, *priority, *tag);
            if !left.is_zero() {
                return;
            }
            self.waiting.pop_front();
        }
    }
}
