//! Drivers of a listening endpoint: the datagrams that they hand to one another, and their end.
//!
//! The kernel gives a datagram to the driver that owns its connection, where it can be programmed
//! to. Elsewhere, any driver may get it, and hands it over.
//!
//! Drivers hand over also the datagrams of several connections that the kernel has combined. The queues
//! between them are bounded, and `EndpointStats` counts what passes them.

use crate::signal::lock;
use std::collections::VecDeque;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex};

use bytes::BytesMut;
use marcato_quic::{Arrival, Steering};
use marcato_units::Bytes;
use tokio::sync::Notify;

/// Memory of a waiting datagram beyond its own bytes, in bytes.
const OVERHEAD: usize = 256;

/// Datagram on its way to the driver that owns its connection.
#[derive(Debug)]
pub(super) struct Passed {
    pub(super) arrival: Arrival,
    pub(super) datagram: BytesMut,
}

/// State that the drivers of an endpoint share.
#[derive(Debug)]
pub(super) struct Drivers {
    steering: Steering,
    queues: Box<[Queue]>,
    /// Limit of the bytes that wait for one driver.
    most: usize,
}

/// Datagrams that wait for one driver.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    wake: Notify,
    taken: AtomicU64,
    discarded: AtomicU64,
    /// Set once the driver has nothing left to drive.
    idle: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    datagrams: VecDeque<Passed>,
    bytes: usize,
}

impl Drivers {
    /// Creates the state of as many drivers as the steering has members. At most `most` bytes wait
    /// for each.
    pub(super) fn new(steering: Steering, most: Bytes) -> Self {
        let queues = (0..steering.members().get()).map(|_| Queue::default()).collect();
        Self { steering, queues, most: usize::try_from(most.get()).unwrap_or(usize::MAX) }
    }

    /// Returns the datagrams handed over so far, and those discarded because too many waited.
    pub(super) fn counters(&self) -> (u64, u64) {
        let sum = |counter: fn(&Queue) -> &AtomicU64| {
            self.queues.iter().map(|queue| counter(queue).load(Relaxed)).sum()
        };
        (sum(|queue| &queue.taken), sum(|queue| &queue.discarded))
    }
}

/// Place of one driver among all of its endpoint.
#[derive(Clone, Debug)]
pub(super) struct Seat {
    drivers: Arc<Drivers>,
    index: u8,
}

impl Seat {
    pub(super) fn new(drivers: &Arc<Drivers>, index: u8) -> Self {
        Self { drivers: Arc::clone(drivers), index }
    }

    fn queue(&self) -> &Queue {
        &self.drivers.queues[usize::from(self.index)]
    }

    /// Returns the length of the first datagrams, of `segment` bytes except the last, that belong to
    /// one driver, and that driver if it is another one.
    pub(super) fn run(&self, datagrams: &[u8], segment: usize) -> (usize, Option<u8>) {
        let mut all = datagrams.chunks(segment.max(1)).map(|datagram| self.drivers.steering.owner(datagram));
        let Some(owner) = all.next() else { return (0, None) };
        let count = 1 + all.take_while(|next| *next == owner).count();
        let len = count.saturating_mul(segment.max(1)).min(datagrams.len());
        (len, Some(owner).filter(|owner| *owner != self.index))
    }

    /// Hands datagrams to the driver that owns them. Those beyond its limit are discarded, which to
    /// QUIC is an ordinary loss.
    pub(super) fn pass(&self, owner: u8, arrival: Arrival, datagrams: &[u8]) {
        let Some(queue) = self.drivers.queues.get(usize::from(owner)) else { return };
        let mut waiting = lock(&queue.waiting);
        for datagram in datagrams.chunks(arrival.segment.max(1)) {
            let bytes = datagram.len() + OVERHEAD;
            if waiting.bytes + bytes > self.drivers.most {
                queue.discarded.fetch_add(1, Relaxed);
                continue;
            }
            waiting.bytes += bytes;
            // Memory of its own, so that a few bytes do not keep a whole slab.
            let passed = Passed { arrival, datagram: BytesMut::from(datagram) };
            waiting.datagrams.push_back(passed);
            queue.taken.fetch_add(1, Relaxed);
        }
        drop(waiting);
        queue.wake.notify_one();
    }

    /// Takes all datagrams that wait for this driver, in exchange for an empty queue.
    pub(super) fn take(&self, empty: &mut VecDeque<Passed>) {
        let mut waiting = lock(&self.queue().waiting);
        std::mem::swap(&mut waiting.datagrams, empty);
        waiting.bytes = 0;
    }

    /// Waits for datagrams, or the end of all drivers.
    pub(super) async fn woken(&self) {
        self.queue().wake.notified().await;
    }

    /// Records that this driver has nothing left to drive, and never will have. Returns whether that
    /// holds for all: until then, each goes on handing over what arrives for others. Sockets that
    /// were closed earlier would also change the order in which the kernel counts them.
    pub(super) fn rest(&self) -> bool {
        // In one order for all, so that the last one sees that it is the last.
        let was_idle = self.queue().idle.swap(true, SeqCst);
        let all = self.drivers.queues.iter().all(|queue| queue.idle.load(SeqCst));
        if all && !was_idle {
            self.drivers.queues.iter().for_each(|queue| queue.wake.notify_one());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU8;

    use marcato_quic::SocketId;
    use marcato_wire::Ecn;

    use super::*;

    fn drivers(count: u8, most: u64) -> Arc<Drivers> {
        let steering = Steering::new([1, 2], NonZeroU8::new(count).unwrap());
        Arc::new(Drivers::new(steering, Bytes::new(most)))
    }

    fn arrival(segment: usize) -> Arrival {
        let from = ([127, 0, 0, 1], 1).into();
        Arrival { socket: SocketId(0), from, to: None, ecn: Ecn::NotEct, segment }
    }

    /// Returns datagrams of 20 bytes, each of a connection of its own, and their owners.
    fn several(drivers: &Drivers, count: u8) -> (Vec<u8>, Vec<u8>) {
        let datagrams: Vec<u8> = (0..count).flat_map(|number| [number & 0x3f; 20]).collect();
        let owners = datagrams.chunks(20).map(|datagram| drivers.steering.owner(datagram)).collect();
        (datagrams, owners)
    }

    #[test]
    fn datagrams_received_together_are_split_by_their_owners() {
        let drivers = drivers(3, 1000);
        let (datagrams, owners) = several(&drivers, 60);
        let seat = Seat::new(&drivers, 1);
        // The last one is shorter than the others.
        let (mut rest, mut found) = (&datagrams[..datagrams.len() - 5], Vec::new());
        while !rest.is_empty() {
            let (len, owner) = seat.run(rest, 20);
            found.extend(rest[..len].chunks(20).map(|_| owner.unwrap_or(1)));
            rest = &rest[len..];
        }
        assert_eq!(found, owners);
        assert_eq!((0..3).filter(|owner| owners.contains(owner)).count(), 3);
    }

    #[test]
    fn a_driver_that_is_late_gets_a_bounded_number_of_datagrams() {
        let drivers = drivers(2, 10 * (20 + OVERHEAD as u64));
        let (from, to) = (Seat::new(&drivers, 0), Seat::new(&drivers, 1));
        let (datagrams, _) = several(&drivers, 30);
        for round in 1..=3 {
            from.pass(1, arrival(20), &datagrams);
            assert_eq!(drivers.counters(), (10 * round, 20 * round));
            let mut taken = VecDeque::new();
            to.take(&mut taken);
            let expected = datagrams.chunks(20).take(10);
            assert!(taken.iter().map(|passed| &passed.datagram[..]).eq(expected));
        }
        let mut none = VecDeque::new();
        from.take(&mut none);
        assert!(none.is_empty());
    }

    #[test]
    fn no_driver_ends_before_the_last_one() {
        let drivers = drivers(3, 1000);
        let seats = [0, 1, 2].map(|index| Seat::new(&drivers, index));
        assert_eq!(seats.each_ref().map(Seat::rest), [false, false, true]);
        assert_eq!(seats.each_ref().map(Seat::rest), [true; 3]);
    }
}
