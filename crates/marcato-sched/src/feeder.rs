//! The feeder: moves granted chunks into the transport (CATS §II-C).

use marcato_units::{Bytes, Time};

use crate::conductor::{Conductor, Grant, Observer, Store};
use crate::coupled::{Demand, Governor};

/// Transport below the feeder: kernel TCP, a simulated TCP, or a QUIC connection.
pub trait Engine {
    /// Returns the free bytes of its send buffer.
    fn room(&self) -> Bytes;

    /// Returns the bytes that it has taken but not yet transmitted for the first time. Granted
    /// bytes stay ahead of later offers, so an urgent message waits at least for these.
    fn unsent(&self) -> Bytes;

    /// Returns the bytes that it has transmitted, and that are neither acknowledged nor lost.
    fn in_flight(&self) -> Bytes;

    /// Takes the bytes of `grant`, or the first of them; returns the number taken.
    fn feed(&mut self, grant: &Grant) -> Bytes;
}

/// Fill strategy of the feeder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// One chunk whenever the engine has less than `lowat` bytes unsent: the order stays open until
    /// the last moment. This is the feeder that the paper describes (CATS §II-C).
    Lean {
        /// Largest chunk.
        chunk: Bytes,
        /// Low-water mark of unsent bytes (Linux: `TCP_NOTSENT_LOWAT`).
        lowat: Bytes,
    },
    /// Chunk after chunk until the engine's send buffer is full; a chunk goes in whole or not at
    /// all. This is the behaviour of the authors' code.
    Greedy {
        /// Largest chunk; in the authors' code the segment size.
        chunk: Bytes,
    },
}

/// Result of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// The engine took this chunk, or its first bytes: `grant.len` is the number taken.
    Fed(Grant),
    /// Nothing is queued.
    Empty,
    /// The engine has enough or takes no more. Run again when it has sent or freed something.
    Full,
    /// The governor holds the next chunk back. Run again after an acknowledgement.
    Held,
}

/// Moves chunks from a Conductor into an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Feeder {
    mode: Mode,
}

impl Feeder {
    /// Creates a feeder of this mode.
    pub const fn new(mode: Mode) -> Self {
        Self { mode }
    }

    /// Creates a lean feeder, which keeps about one chunk unsent in the engine: it feeds while less
    /// than one is.
    pub const fn lean(chunk: Bytes) -> Self {
        Self::new(Mode::Lean { chunk, lowat: chunk })
    }

    /// Creates a lean feeder that keeps `reserve` bytes unsent below its chunk.
    ///
    /// A congestion control that measures rates (BBR) takes a write that finds nothing unsent for a pause of the
    /// application, and learns nothing from the data before it. With a lean feeder that is every write: the
    /// controller never learns that the path is full, stays in its startup, and keeps twice the
    /// bandwidth-delay product in the queue.
    pub fn lean_above(chunk: Bytes, reserve: Bytes) -> Self {
        Self::new(Mode::Lean { chunk, lowat: chunk.max(reserve + Bytes::new(1)) })
    }

    /// Creates a greedy feeder.
    pub const fn greedy(chunk: Bytes) -> Self {
        Self::new(Mode::Greedy { chunk })
    }

    /// Fill strategy of this feeder.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Low-water mark of unsent bytes; `None` for a greedy feeder.
    pub const fn low_water(&self) -> Option<Bytes> {
        match self.mode {
            Mode::Lean { lowat, .. } => Some(lowat),
            Mode::Greedy { .. } => None,
        }
    }

    /// Makes one decision: feeds at most one chunk. The authors' socket does this immediately, once
    /// for every write.
    pub fn run_once<S: Store, O: Observer>(
        &self,
        now: Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut impl Engine,
    ) -> Run {
        self.decide(now, conductor, engine, |_, _, _| true)
    }

    /// Makes one decision like [`run_once`](Self::run_once), within the allowance of a governor.
    pub fn run_once_within<S: Store, O: Observer>(
        &self,
        now: Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut impl Engine,
        governor: &mut Governor,
    ) -> Run {
        self.decide(now, conductor, engine, |conductor, outstanding, chunk| {
            let demand = Demand { waiting: conductor.queued_levels(), outstanding };
            governor.room(demand, chunk).is_whole(chunk)
        })
    }

    /// Feeds at most one chunk, if `admits` lets so many bytes join those outstanding.
    fn decide<S: Store, O: Observer, E: Engine>(
        &self,
        now: Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut E,
        admits: impl FnOnce(&Conductor<S, O>, Bytes, Bytes) -> bool,
    ) -> Run {
        let room = engine.room();
        let budget = match self.mode {
            Mode::Lean { chunk, lowat } if engine.unsent() < lowat => chunk.min(room),
            Mode::Lean { .. } => Bytes::ZERO,
            // The authors' code cuts the chunk before it checks the engine's room.
            Mode::Greedy { chunk } if !room.is_zero() => chunk,
            Mode::Greedy { .. } => Bytes::ZERO,
        };
        if budget.is_zero() {
            return if conductor.is_empty() { Run::Empty } else { Run::Full };
        }
        if !conductor.is_empty() && !admits(conductor, engine.in_flight() + engine.unsent(), budget) {
            return Run::Held;
        }
        let Some(grant) = conductor.grant(now, budget) else { return Run::Empty };
        let taken = match self.mode {
            Mode::Greedy { .. } if room < grant.len => Bytes::ZERO,
            Mode::Greedy { .. } | Mode::Lean { .. } => engine.feed(&grant).min(grant.len),
        };
        if taken == grant.len {
            return Run::Fed(grant);
        }
        // It is the latest grant, and `taken` is at most its length, so this cannot fail.
        let refused = conductor.refuse(grant, taken);
        debug_assert_eq!(refused, Ok(()));
        if taken.is_zero() { Run::Full } else { Run::Fed(Grant { len: taken, fin: false, ..grant }) }
    }

    /// Runs until nothing is queued or the engine takes no more; returns the bytes taken.
    pub fn run<S: Store, O: Observer>(
        &self,
        now: Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut impl Engine,
    ) -> Bytes {
        let mut fed = Bytes::ZERO;
        while let Run::Fed(grant) = self.run_once(now, conductor, engine) {
            fed += grant.len;
        }
        fed
    }

    /// Runs until nothing is queued, or the engine or the governor takes no more; returns the bytes taken.
    pub fn run_within<S: Store, O: Observer>(
        &self,
        now: Time,
        conductor: &mut Conductor<S, O>,
        engine: &mut impl Engine,
        governor: &mut Governor,
    ) -> Bytes {
        let mut fed = Bytes::ZERO;
        while let Run::Fed(grant) = self.run_once_within(now, conductor, engine, governor) {
            fed += grant.len;
        }
        fed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conductor::{Config, Event, Fixed, Message};
    use crate::coupled::{CoupledConfig, Sample};
    use marcato_units::{Duration, Priority};

    const NOW: Time = Time::ZERO;

    /// A send buffer that takes bytes up to its room and has not sent `unsent` of them.
    struct Pipe {
        room: Bytes,
        unsent: Bytes,
        in_flight: Bytes,
    }

    impl Pipe {
        fn new(room: Bytes, unsent: Bytes) -> Self {
            Self { room, unsent, in_flight: Bytes::ZERO }
        }
    }

    impl Engine for Pipe {
        fn room(&self) -> Bytes {
            self.room
        }

        fn unsent(&self) -> Bytes {
            self.unsent
        }

        fn in_flight(&self) -> Bytes {
            self.in_flight
        }

        fn feed(&mut self, grant: &Grant) -> Bytes {
            // It takes less than its stated room, like a kernel that is short of memory.
            let taken = grant.len.min(self.room / 2);
            self.room -= taken;
            self.unsent += taken;
            taken
        }
    }

    fn conductor() -> Conductor<Fixed<4>> {
        let mut conductor = Conductor::with_store(Config::default(), Fixed::new()).unwrap();
        conductor.offer(NOW, Message::new(Bytes::kb(100), Priority::P2)).unwrap();
        conductor
    }

    #[test]
    fn a_lean_feeder_keeps_one_chunk_unsent() {
        let mut conductor = conductor();
        let mut pipe = Pipe::new(Bytes::kb(64), Bytes::ZERO);
        let feeder = Feeder::lean(Bytes::kb(1));
        assert_eq!(feeder.run(NOW, &mut conductor, &mut pipe), Bytes::kb(1));
        assert_eq!(feeder.run_once(NOW, &mut conductor, &mut pipe), Run::Full);
        for _ in 0..20 {
            pipe.unsent -= Bytes::new(700);
            feeder.run(NOW, &mut conductor, &mut pipe);
            assert!(pipe.unsent >= Bytes::kb(1) && pipe.unsent < Bytes::kb(2), "{}", pipe.unsent);
        }
    }

    #[test]
    fn bytes_that_the_engine_refuses_stay_with_the_conductor() {
        let mut conductor = conductor();
        let mut pipe = Pipe::new(Bytes::new(1000), Bytes::ZERO);
        let feeder = Feeder::lean(Bytes::kb(1));
        let Run::Fed(fed) = feeder.run_once(NOW, &mut conductor, &mut pipe) else {
            panic!("half of it fits")
        };
        assert_eq!(fed.len, Bytes::new(500));
        assert_eq!(conductor.queued().bytes, Bytes::new(99_500));
        assert_eq!(conductor.grant(NOW, Bytes::kb(1)).unwrap().offset, Bytes::new(500));
    }

    #[test]
    fn of_a_message_taken_in_part_the_end_has_not_been_fed() {
        let mut conductor = conductor();
        conductor.offer(NOW, Message::new(Bytes::kb(1), Priority::P0)).unwrap();
        let mut pipe = Pipe::new(Bytes::kb(1), Bytes::ZERO);
        let feeder = Feeder::lean(Bytes::kb(1));
        let Run::Fed(first) = feeder.run_once(NOW, &mut conductor, &mut pipe) else { panic!("half fits") };
        assert_eq!((first.offset, first.len, first.fin), (Bytes::ZERO, Bytes::new(500), false));
        pipe = Pipe::new(Bytes::kb(1), Bytes::ZERO);
        let Run::Fed(second) = feeder.run_once(NOW, &mut conductor, &mut pipe) else {
            panic!("the rest fits")
        };
        assert_eq!((second.offset, second.len, second.fin), (Bytes::new(500), Bytes::new(500), true));
    }

    #[test]
    fn nothing_is_granted_while_the_engine_has_no_room() {
        let mut full = Pipe::new(Bytes::ZERO, Bytes::ZERO);
        for feeder in [Feeder::lean(Bytes::kb(1)), Feeder::greedy(Bytes::kb(1))] {
            let mut granted = 0;
            let mut conductor = conductor().observed_by(|event| {
                granted += u32::from(matches!(event, Event::Granted(_)));
            });
            assert_eq!(feeder.run_once(NOW, &mut conductor, &mut full), Run::Full);
            assert_eq!(granted, 0);
        }
    }

    #[test]
    fn a_greedy_feeder_fills_the_buffer() {
        let mut conductor = conductor();
        let mut pipe = Pipe::new(Bytes::kb(64), Bytes::kb(64));
        let fed = Feeder::greedy(Bytes::kb(1)).run(NOW, &mut conductor, &mut pipe);
        assert_eq!(fed + pipe.room, Bytes::kb(64));
        assert!(pipe.room < Bytes::kb(1), "{}", pipe.room);
    }

    #[test]
    fn a_feeder_without_data_or_room_says_so() {
        let mut full = Pipe::new(Bytes::ZERO, Bytes::ZERO);
        let mut empty = Conductor::with_store(Config::default(), Fixed::<1>::new()).unwrap();
        for feeder in [Feeder::lean(Bytes::kb(1)), Feeder::greedy(Bytes::kb(1))] {
            assert_eq!(feeder.run_once(NOW, &mut conductor(), &mut full), Run::Full);
            assert_eq!(feeder.run_once(NOW, &mut empty, &mut full), Run::Empty);
        }
    }

    /// Governor of a path that holds a packet, after a train and a loss: its cap is the floor of four packets.
    fn governor() -> Governor {
        let mut governor = Governor::new(CoupledConfig::new(Bytes::kb(1)));
        for packet in 1..=16 {
            let rtt = Duration::from_micros(packet * 500);
            let (delivered, in_flight) = (Bytes::kb(packet), Bytes::ZERO);
            let sample = Sample {
                delivered,
                in_flight,
                rtt: Some(rtt),
                back: Duration::ZERO,
                lost: packet == 16,
                urgent: false,
            };
            governor.sample(NOW + rtt, &sample);
        }
        assert_eq!(governor.cap(), Some(Bytes::kb(4)));
        governor
    }

    #[test]
    fn within_a_cap_background_is_held_and_urgent_data_is_not() {
        let (mut conductor, mut governor) = (conductor(), governor());
        let mut pipe = Pipe { room: Bytes::kb(64), unsent: Bytes::ZERO, in_flight: Bytes::kb(4) };
        let feeder = Feeder::lean(Bytes::kb(1));
        let mut run = |conductor: &mut Conductor<Fixed<4>>, pipe: &mut Pipe| {
            feeder.run_once_within(NOW, conductor, pipe, &mut governor)
        };
        assert_eq!(run(&mut conductor, &mut pipe), Run::Held);
        assert_eq!(conductor.queued().bytes, Bytes::kb(100));
        conductor.offer(NOW, Message::new(Bytes::kb(1), Priority::P0)).unwrap();
        let Run::Fed(fed) = run(&mut conductor, &mut pipe) else {
            panic!("urgent data may be two packets more")
        };
        assert_eq!(fed.priority, Priority::P0);
        // The end of it waits in the engine, so background data counts that too.
        assert_eq!(run(&mut conductor, &mut pipe), Run::Full);
        (pipe.unsent, pipe.in_flight) = (Bytes::new(500), Bytes::new(2600));
        assert_eq!(run(&mut conductor, &mut pipe), Run::Held);
        pipe.in_flight = Bytes::new(2500);
        assert!(matches!(run(&mut conductor, &mut pipe), Run::Fed(_)));
    }

    #[test]
    fn a_feeder_within_a_cap_stops_where_the_cap_does() {
        let feeder = Feeder::lean(Bytes::kb(1));
        let fed = |in_flight| {
            let (mut conductor, mut governor) = (conductor(), governor());
            let mut pipe = Pipe { room: Bytes::kb(64), unsent: Bytes::ZERO, in_flight };
            feeder.run_within(NOW, &mut conductor, &mut pipe, &mut governor)
        };
        assert_eq!((fed(Bytes::new(3000)), fed(Bytes::new(3001))), (Bytes::kb(1), Bytes::ZERO));
    }

    #[test]
    fn a_chunk_beyond_the_cap_leaves_if_nothing_is_outstanding() {
        let (mut conductor, mut governor) = (conductor(), governor());
        let mut pipe = Pipe::new(Bytes::kb(64), Bytes::ZERO);
        let feeder = Feeder::lean(Bytes::kb(6));
        let run = feeder.run_once_within(NOW, &mut conductor, &mut pipe, &mut governor);
        assert!(matches!(run, Run::Fed(grant) if grant.len == Bytes::kb(6)), "{run:?}");
    }
}
