//! Application without a Conductor: it writes messages in the order of their times.

use std::collections::VecDeque;

use marcato_units::{Bytes, Priority};

use super::plan::{Plan, Planned};
use super::{App, Socket, Tag};

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

    fn write(&mut self, socket: &mut Socket<'_>) {
        while let Some((tag, priority, left)) = self.waiting.front_mut() {
            *left -= socket.write(*left, *priority, *tag);
            if !left.is_zero() {
                return;
            }
            self.waiting.pop_front();
        }
    }

    fn take_due(&mut self, socket: &mut Socket<'_>) {
        while let Some((tag, message)) = self.plan.take_due(socket) {
            self.waiting.push_back((tag, message.priority, message.len));
        }
        self.write(socket);
    }
}

impl App for Fifo {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.plan.start(socket.now());
        self.take_due(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.take_due(socket);
    }
}
