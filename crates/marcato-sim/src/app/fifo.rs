//! What applications do today: write in the order in which they have something to say.

use std::collections::VecDeque;

use marcato_units::{Bytes, Priority, Time};

use super::{App, Planned, Socket, Tag};

/// Writes each message of a plan when its time comes, one after the other. The label of a message is its place in
/// the plan.
#[derive(Clone, Debug)]
pub struct Fifo {
    plan: Vec<Planned>,
    next: usize,
    origin: Time,
    waiting: VecDeque<(Tag, Priority, Bytes)>,
}

impl Fifo {
    /// An application with this plan, sorted by time.
    pub fn new(plan: Vec<Planned>) -> Self {
        Self { plan, next: 0, origin: Time::ZERO, waiting: VecDeque::new() }
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
        while let Some(planned) = self.plan.get(self.next) {
            let at = self.origin + planned.after;
            if at > socket.now() {
                socket.set_timer(at, 0);
                break;
            }
            let tag = Tag(self.next as u64);
            self.waiting.push_back((tag, planned.message.priority, planned.message.len));
            self.next += 1;
        }
        self.write(socket);
    }
}

impl App for Fifo {
    fn start(&mut self, socket: &mut Socket<'_>) {
        self.origin = socket.now();
        self.take_due(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.take_due(socket);
    }
}
