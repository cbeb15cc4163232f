//! Order of the authors' page on the wire: their 283 segments of 1000 bytes, to the segment.

use marcato_sched::conductor::{Conductor, Config, Debt, Grant, Message};
use marcato_sched::feeder::{Engine, Feeder, Run};
use marcato_units::{Bytes, Priority, Time};

const NOW: Time = Time::ZERO;
const SEGMENT: Bytes = Bytes::new(1000);

/// Send buffer that takes a chunk whole or not at all.
struct Buffer {
    room: Bytes,
    wire: Vec<Priority>,
}

impl Engine for Buffer {
    fn room(&self) -> Bytes {
        self.room
    }

    fn unsent(&self) -> Bytes {
        Bytes::ZERO
    }

    fn in_flight(&self) -> Bytes {
        Bytes::ZERO
    }

    fn feed(&mut self, grant: &Grant) -> Bytes {
        assert!(grant.len <= self.room, "the feeder looks at the room first");
        self.room -= grant.len;
        self.wire.push(grant.priority);
        grant.len
    }
}

/// Returns runs of (priority, segments), as the authors' program puts them on the wire.
fn published() -> Vec<(usize, usize)> {
    let mut runs =
        vec![(4, 1), (3, 1), (2, 1), (1, 1), (0, 8), (1, 24), (2, 14), (3, 5), (4, 1), (2, 10), (4, 1)];
    runs.extend([(3, 4), (4, 1), (2, 10), (4, 1), (3, 4), (4, 1), (2, 5), (4, 1), (3, 4), (4, 2)]);
    for _ in 0..10 {
        runs.extend([(3, 4), (4, 2)]);
    }
    runs.extend([(3, 2), (4, 121)]);
    runs
}

fn run_lengths(wire: &[Priority]) -> Vec<(usize, usize)> {
    wire.chunk_by(|a, b| a == b).map(|run| (run[0].index(), run.len())).collect()
}

#[test]
fn the_authors_page_leaves_in_the_published_order() {
    let mut conductor = Conductor::new(Config::with_debt(Debt::authors())).unwrap();
    let mut buffer = Buffer { room: Bytes::new(131_072), wire: Vec::new() };
    let feeder = Feeder::greedy(SEGMENT);
    // Written P4 first; each write runs the Conductor once, at once.
    for (kilobytes, priority) in [150, 60, 40, 25, 8].into_iter().zip(Priority::ALL.into_iter().rev()) {
        conductor.offer(NOW, Message::new(Bytes::kb(kilobytes), priority)).unwrap();
        assert!(matches!(feeder.run_once(NOW, &mut conductor, &mut buffer), Run::Fed(_)));
    }
    feeder.run(NOW, &mut conductor, &mut buffer);
    assert_eq!(buffer.wire.len(), 131, "ordered before the connection exists");
    let at_once = Priority::ALL.map(|level| buffer.wire.iter().filter(|&&p| p == level).count());
    assert_eq!(at_once, [8, 25, 40, 39, 19]);

    while !conductor.is_empty() {
        let before = buffer.wire.len();
        buffer.room += SEGMENT;
        feeder.run(NOW, &mut conductor, &mut buffer);
        assert_eq!(buffer.wire.len(), before + 1, "one segment per segment acknowledged");
    }
    assert_eq!(buffer.wire.len(), 283);
    assert_eq!(run_lengths(&buffer.wire), published());
    assert_eq!(conductor.counters().redistributions, 0);
    let last = Priority::ALL.map(|level| buffer.wire.iter().rposition(|&p| p == level).unwrap() + 1);
    assert_eq!(last, [12, 36, 93, 162, 283]);
}

#[test]
fn the_next_message_waits_until_its_whole_chunk_has_room() {
    let mut conductor = Conductor::new(Config::with_debt(Debt::authors())).unwrap();
    let mut buffer = Buffer { room: Bytes::new(999), wire: Vec::new() };
    let feeder = Feeder::greedy(SEGMENT);
    conductor.offer(NOW, Message::new(SEGMENT, Priority::P0)).unwrap();
    assert_eq!(feeder.run_once(NOW, &mut conductor, &mut buffer), Run::Full);
    assert_eq!(conductor.queued().bytes, SEGMENT);
    buffer.room = SEGMENT;
    assert!(matches!(feeder.run_once(NOW, &mut conductor, &mut buffer), Run::Fed(_)));
    assert_eq!(feeder.run_once(NOW, &mut conductor, &mut buffer), Run::Empty);
}
