//! Receiving application that reads slowly.

use marcato_units::{Bytes, Duration, Rate, Time};

use super::{App, Socket, Tag};

/// Most that one read takes: a usual buffer of a program.
const PIECE: Bytes = Bytes::new(16 << 10);

/// Application that begins to read after a time, and reads no faster than at a rate. What it has not
/// read closes the window of the sender. It writes nothing, and closes when the other end does.
#[derive(Clone, Copy, Debug)]
pub struct SlowReader {
    /// Rate at which it handles what it has read, before it reads on; `None` is at once.
    rate: Option<Rate>,
    /// Time from the flow's start until it begins to read.
    after: Duration,
    /// Time until which it handles what it has read.
    busy_until: Time,
}

impl SlowReader {
    /// Reader that begins after this time, and reads at this rate; `None` is at once.
    pub const fn new(rate: Option<Rate>, after: Duration) -> Self {
        Self { rate, after, busy_until: Time::ZERO }
    }

    fn pause(&mut self, until: Time, socket: &mut Socket<'_>) {
        self.busy_until = until;
        socket.set_reading(false);
        socket.set_timer(until, 0);
    }
}

impl App for SlowReader {
    fn start(&mut self, socket: &mut Socket<'_>) {
        if self.rate.is_some() {
            socket.bound_reads(PIECE);
        }
        if !self.after.is_zero() {
            self.pause(socket.now() + self.after, socket);
        }
    }

    fn received(&mut self, _tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        if let Some(rate) = self.rate {
            // Of a read with several labels, the parts come one after the other.
            self.pause(self.busy_until.max(socket.now()) + rate.transmission_time(bytes), socket);
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        if socket.now() >= self.busy_until {
            socket.set_reading(true);
        }
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}
