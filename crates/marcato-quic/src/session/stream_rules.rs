//! Rules of plain streams, between two sessions in virtual time.

use std::collections::BTreeMap;

use bytes::Bytes as Payload;
use marcato_sched::coupled::Coupling;
use marcato_sched::exchange::{GroupId, Parameters, Urgency, Weight};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use noq_proto::StreamId;

use super::pair::{Pair, Who, body};
use crate::config::SessionConfig;
use crate::event::Event;
use crate::streams::{
    DatagramError, Direction, End, Protocol, ReadError, StreamEvent, StreamsConfig, WriteError,
};

use Who::{Client, Server};

fn config() -> SessionConfig {
    SessionConfig {
        protocol: Protocol::Streams(Box::new(StreamsConfig::new("test"))),
        datagrams: Some(Bytes::kb(100)),
        ..SessionConfig::default()
    }
}

fn with(change: impl FnOnce(&mut StreamsConfig)) -> SessionConfig {
    let mut streams = StreamsConfig::new("test");
    change(&mut streams);
    SessionConfig { protocol: Protocol::Streams(Box::new(streams)), ..config() }
}

/// Two ends at a distance of 20 ms, with one lane.
fn pair(config: &SessionConfig) -> Pair {
    Pair::new(&[20], config, config)
}

fn urgency(number: u8) -> Parameters {
    Parameters::sequential(Urgency::new(number).unwrap())
}

fn events(pair: &Pair, who: Who) -> Vec<StreamEvent> {
    let stream = |event: &Event| if let Event::Stream(event) = event { Some(*event) } else { None };
    pair.events(who).filter_map(stream).collect()
}

/// Opens a stream of the client and writes to it.
fn send(pair: &mut Pair, direction: Direction, parameters: Parameters, data: Payload) -> StreamId {
    let stream = pair.session(Client).open_stream(direction, parameters).unwrap();
    assert_eq!(pair.session(Client).write_stream(stream, data.clone()), Ok(data.len()));
    stream
}

/// Everything that one end has read of the other's streams.
#[derive(Default)]
struct Reader {
    read: BTreeMap<StreamId, Vec<u8>>,
    /// Time of each stream's end.
    ended: BTreeMap<StreamId, Time>,
    reset: BTreeMap<StreamId, u64>,
}

impl Reader {
    /// Reads what has arrived at one end.
    fn look(&mut self, pair: &mut Pair, who: Who) {
        let session = pair.session(who);
        for direction in [Direction::Both, Direction::One] {
            while let Some(stream) = session.accept_stream(direction) {
                self.read.entry(stream).or_default();
            }
        }
        for stream in self.read.keys().copied().collect::<Vec<_>>() {
            self.look_at(pair, who, stream);
        }
    }

    /// Reads what has arrived of one stream.
    fn look_at(&mut self, pair: &mut Pair, who: Who, stream: StreamId) {
        let now = pair.now;
        let read = self.read.entry(stream).or_default();
        loop {
            match pair.session(who).read_stream_data(stream, 1000) {
                Ok(Some(data)) => read.extend_from_slice(&data),
                Ok(None) => {
                    self.ended.insert(stream, now);
                    return;
                }
                Err(ReadError::Reset(code)) => {
                    self.reset.insert(stream, code);
                    return;
                }
                Err(ReadError::Blocked | ReadError::Closed) => return,
            }
        }
    }

    /// Reads until all these streams have ended.
    fn until_ended(&mut self, pair: &mut Pair, who: Who, streams: &[StreamId]) {
        pair.run_until(|pair| {
            self.look(pair, who);
            streams.iter().all(|stream| self.ended.contains_key(stream))
        });
    }
}

#[test]
fn bytes_of_both_directions_arrive_in_order() {
    let mut pair = pair(&config());
    let data = body(300_000);
    let stream = pair.session(Client).open_stream(Direction::Both, Parameters::default()).unwrap();
    let (mut there, mut back) = (Reader::default(), Reader::default());
    let mut sent = 0;
    back.read.insert(stream, Vec::new());
    pair.run_until(|pair| {
        there.look(pair, Server);
        match pair.session(Client).write_stream(stream, data.slice(sent..)) {
            Ok(taken) => sent += taken,
            Err(WriteError::Blocked) => {}
            Err(error) => panic!("{error}"),
        }
        sent == data.len()
    });
    pair.session(Client).finish_stream(stream).unwrap();
    there.until_ended(&mut pair, Server, &[stream]);
    assert_eq!(there.read[&stream], data);
    assert_eq!(pair.session(Server).write_stream(stream, data.slice(..5000)), Ok(5000));
    pair.session(Server).finish_stream(stream).unwrap();
    back.until_ended(&mut pair, Client, &[stream]);
    assert_eq!(back.read[&stream], data[..5000]);
    pair.pass(Duration::from_secs(1));
    assert!(events(&pair, Client).contains(&StreamEvent::Finished(stream)));
    assert!(events(&pair, Server).contains(&StreamEvent::Finished(stream)));
    // Both ends have forgotten it.
    for who in [Client, Server] {
        assert_eq!(pair.session(who).write_stream(stream, data.clone()), Err(WriteError::Closed));
        assert_eq!(pair.session(who).read_stream_data(stream, 1), Err(ReadError::Closed));
        assert_eq!(pair.session(who).acknowledged_of(stream), None);
    }
}

#[test]
fn an_urgent_stream_overtakes_all_that_has_not_left() {
    let config = SessionConfig { initial_window: Some(Bytes::kb(12)), ..config() };
    let mut pair = pair(&config);
    let bulk = send(&mut pair, Direction::One, urgency(7), body(200_000));
    pair.session(Client).finish_stream(bulk).unwrap();
    pair.pass(Duration::from_millis(15));
    let urgent = send(&mut pair, Direction::One, urgency(0), body(5000));
    pair.session(Client).finish_stream(urgent).unwrap();
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &[urgent]);
    let before = reader.read[&bulk].len();
    // What was in flight comes before it: little more than the window.
    assert!(before < 30_000, "{before} bytes of bulk came first");
    reader.until_ended(&mut pair, Server, &[bulk]);
    assert_eq!(reader.read[&bulk], body(200_000));
    assert!(reader.ended[&urgent] < reader.ended[&bulk]);
}

#[test]
fn a_changed_order_acts_on_the_bytes_that_wait() {
    let config = SessionConfig { initial_window: Some(Bytes::kb(12)), ..config() };
    let mut pair = pair(&config);
    let streams = [0, 1].map(|_| {
        let stream = send(&mut pair, Direction::One, urgency(4), body(100_000));
        pair.session(Client).finish_stream(stream).unwrap();
        stream
    });
    pair.session(Client).order_stream(streams[1], urgency(1));
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &streams);
    assert!(reader.ended[&streams[1]] < reader.ended[&streams[0]]);
}

#[test]
fn codes_of_resets_and_stops_arrive_unchanged() {
    let mut pair = pair(&config());
    let code = (1 << 62) - 1;
    let reset = send(&mut pair, Direction::One, urgency(3), body(1000));
    let stopped = send(&mut pair, Direction::One, urgency(3), body(1000));
    let mut reader = Reader::default();
    pair.pass(Duration::from_millis(50));
    reader.look(&mut pair, Server);
    pair.session(Client).reset_stream(reset, code).unwrap();
    pair.session(Server).stop_stream(stopped, 7).unwrap();
    pair.run_until(|pair| {
        reader.look(pair, Server);
        reader.reset.contains_key(&reset)
    });
    assert_eq!(reader.reset[&reset], code);
    pair.pass(Duration::from_millis(100));
    assert!(events(&pair, Client).contains(&StreamEvent::Stopped { stream: stopped, code: 7 }));
    assert!(pair.session(Client).write_stream(stopped, body(1)).is_err());
    assert!(pair.session(Client).write_stream(reset, body(1)).is_err());
    assert!(pair.session(Server).stop_stream(stopped, 7).is_err());
}

#[test]
fn a_stream_stopped_before_its_acceptance_is_reset_after_it() {
    let mut pair = pair(&config());
    let stopped = send(&mut pair, Direction::Both, urgency(3), body(1000));
    pair.session(Client).stop_stream(stopped, 7).unwrap();
    pair.pass(Duration::from_millis(500));
    let told = events(&pair, Server);
    assert!(told.contains(&StreamEvent::Stopped { stream: stopped, code: 7 }), "{told:?}");
    assert_eq!(pair.session(Server).accept_stream(Direction::Both), Some(stopped));
    assert!(pair.session(Server).write_stream(stopped, body(1)).is_err());
    // The server goes on, and opens and ends other streams.
    pair.pass(Duration::from_millis(500));
    let next = send(&mut pair, Direction::Both, urgency(3), body(1000));
    pair.pass(Duration::from_millis(500));
    assert_eq!(pair.session(Server).accept_stream(Direction::Both), Some(next));
    assert_eq!(pair.session(Server).write_stream(next, body(10)), Ok(10));
}

#[test]
fn a_stream_without_credit_holds_only_itself() {
    let config = SessionConfig { stream_window: Bytes::kb(20), ..config() };
    let mut pair = pair(&config);
    let unread = send(&mut pair, Direction::One, urgency(3), body(100_000));
    let other = send(&mut pair, Direction::One, urgency(3), body(15_000));
    pair.session(Client).finish_stream(other).unwrap();
    let less = send(&mut pair, Direction::One, urgency(6), body(15_000));
    pair.session(Client).finish_stream(less).unwrap();
    // The server reads only the others.
    let mut reader = Reader::default();
    pair.pass(Duration::from_secs(1));
    let accepted: Vec<_> =
        std::iter::from_fn(|| pair.session(Server).accept_stream(Direction::One)).collect();
    assert_eq!(accepted, [unread, other, less]);
    reader.read.extend([(other, Vec::new()), (less, Vec::new())]);
    reader.look(&mut pair, Server);
    assert!(reader.ended.contains_key(&other) && reader.ended.contains_key(&less));
    // Once it is read, it goes on.
    pair.session(Client).finish_stream(unread).unwrap();
    reader.read.insert(unread, Vec::new());
    reader.until_ended(&mut pair, Server, &[unread]);
    assert_eq!(reader.read[&unread], body(100_000));
}

#[test]
fn streams_wait_for_credit_of_the_connection() {
    let config = SessionConfig { receive_window: Bytes::kb(20), ..config() };
    let mut pair = pair(&config);
    let streams = [0, 0, 3, 5].map(|level| {
        let stream = send(&mut pair, Direction::One, urgency(level), body(40_000));
        pair.session(Client).finish_stream(stream).unwrap();
        stream
    });
    pair.pass(Duration::from_secs(1));
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &streams);
    assert!(streams.iter().all(|stream| reader.read[stream] == body(40_000)));
}

#[test]
fn waiting_bytes_are_bounded_by_stream_and_in_all() {
    let config = with(|streams| {
        (streams.stream_buffer, streams.buffer) = (Bytes::kb(30), Bytes::kb(50));
        streams.max_sending = 3;
    });
    let mut pair = pair(&config);
    let open = |pair: &mut Pair| pair.session(Client).open_stream(Direction::One, urgency(3)).unwrap();
    let streams = [0; 4].map(|_| open(&mut pair));
    let mut write = |stream| pair.session(Client).write_stream(stream, body(40_000));
    assert_eq!(write(streams[0]), Ok(30_000));
    assert_eq!(write(streams[0]), Err(WriteError::Blocked));
    assert_eq!(write(streams[1]), Ok(20_000));
    assert_eq!(write(streams[2]), Ok(4096));
    assert_eq!(write(streams[2]), Err(WriteError::Blocked));
    assert_eq!(write(streams[3]), Err(WriteError::Blocked));
    let mut reader = Reader::default();
    let told = |pair: &Pair, stream| events(pair, Client).contains(&StreamEvent::Writable(stream));
    pair.run_until(|pair| {
        reader.look(pair, Server);
        told(pair, streams[0]) && told(pair, streams[2])
    });
    assert!(!told(&pair, streams[1]));
    // The place of a stream is free once it is over.
    for stream in &streams[..3] {
        pair.session(Client).finish_stream(*stream).unwrap();
    }
    reader.until_ended(&mut pair, Server, &streams[..3]);
    pair.run_until(|pair| told(pair, streams[3]));
    assert_eq!(pair.session(Client).write_stream(streams[3], body(10)), Ok(10));
}

#[test]
fn streams_beyond_the_peer_s_limit_open_later() {
    let config = with(|streams| (streams.max_bidirectional, streams.max_unidirectional) = (1, 2));
    let mut pair = pair(&config);
    let mut open = |direction| pair.session(Client).open_stream(direction, urgency(3));
    let one = open(Direction::One).unwrap();
    assert!(open(Direction::One).is_some() && open(Direction::One).is_none());
    assert!(open(Direction::Both).is_some() && open(Direction::Both).is_none());
    pair.session(Client).finish_stream(one).unwrap();
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &[one]);
    let available = StreamEvent::Available(Direction::One);
    pair.run_until(|pair| events(pair, Client).contains(&available));
    assert!(pair.session(Client).open_stream(Direction::One, urgency(3)).is_some());
}

#[test]
fn acknowledgements_grow_to_the_end_under_loss() {
    let mut pair = pair(&config());
    pair.line(0, Client).loss = 0.05;
    pair.line(0, Server).loss = 0.05;
    let stream = send(&mut pair, Direction::One, urgency(3), body(250_000));
    pair.session(Client).watch_stream(stream);
    let (mut reader, mut last) = (Reader::default(), Bytes::ZERO);
    pair.run_until(|pair| {
        reader.look(pair, Server);
        let arrived = reader.read.get(&stream).map_or(0, Vec::len) as u64;
        let acknowledged = pair.session(Client).acknowledged_of(stream).unwrap();
        assert!(last <= acknowledged, "{acknowledged} after {last}");
        // The server reads at once, so all that is acknowledged was read, but for this moment's packets.
        assert!(acknowledged.get() <= arrived + 1500, "{acknowledged} of {arrived}");
        last = acknowledged;
        acknowledged == Bytes::new(250_000)
    });
    assert!(events(&pair, Client).contains(&StreamEvent::Acknowledged(stream)));
    pair.session(Client).finish_stream(stream).unwrap();
    reader.until_ended(&mut pair, Server, &[stream]);
    assert_eq!(reader.read[&stream], body(250_000));
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.session(Client).acknowledged_of(stream), None);
}

#[test]
fn the_code_and_reason_of_the_end_arrive() {
    let mut pair = pair(&config());
    let now = pair.now;
    pair.session(Client).close_streams(now, 0x1234_5678_9abc, b"\xffdone");
    pair.run_until(|pair| pair.session(Server).end().is_some());
    let end = End::Application { code: 0x1234_5678_9abc, reason: Payload::from_static(b"\xffdone") };
    assert_eq!(pair.session(Server).end(), Some(&end));
    assert_eq!(pair.session(Client).end(), Some(&End::Local));
    assert_eq!(pair.session(Client).open_stream(Direction::One, urgency(3)), None);
}

#[test]
fn datagrams_keep_their_order_and_expire() {
    let config = SessionConfig { initial_window: Some(Bytes::new(2400)), ..config() };
    let mut pair = pair(&config);
    let (now, lifetime) = (pair.now, Duration::from_millis(5));
    let mut datagram =
        |len, level, lifetime| pair.session(Client).send_datagram(now, body(len), urgency(level), lifetime);
    assert!(matches!(datagram(5000, 0, None), Err(DatagramError::TooLong { .. })));
    // The window takes two of these at once.
    for (len, level, lifetime) in
        [(1001, 6, None), (1002, 6, Some(lifetime)), (1003, 3, None), (1004, 0, None)]
    {
        datagram(len, level, lifetime).unwrap();
    }
    pair.pass(Duration::from_secs(1));
    let read = std::iter::from_fn(|| pair.session(Server).read_datagram());
    let lengths: Vec<_> = read.map(|datagram| datagram.body.len()).collect();
    assert_eq!(lengths, [1004, 1003, 1001]);
    assert!(events(&pair, Client).contains(&StreamEvent::DatagramDropped));
    let none = SessionConfig { datagrams: None, ..config };
    let mut pair = self::pair(&none);
    let now = pair.now;
    let refused = pair.session(Client).send_datagram(now, body(1), urgency(0), None);
    assert_eq!(refused, Err(DatagramError::Disabled));
}

#[test]
fn coupled_mode_keeps_the_queue_short_for_the_levels_named() {
    let urgent = PrioritySet::one(Priority::P0);
    let config = SessionConfig { coupled: Coupling::Auto, urgent, ..config() };
    let mut pair = pair(&config);
    let acts = |pair: &mut Pair| pair.session(Client).coupling().any(|(_, state)| state.acts);
    let mut reader = Reader::default();
    // P1 is background here.
    for (level, expected) in [(7, false), (1, false), (0, true)] {
        let stream = send(&mut pair, Direction::One, urgency(level), body(50_000));
        pair.session(Client).finish_stream(stream).unwrap();
        reader.until_ended(&mut pair, Server, &[stream]);
        pair.pass(Duration::from_millis(100));
        assert_eq!(acts(&mut pair), expected, "urgency {level}");
    }
}

#[test]
fn coupled_mode_acts_once_streams_of_both_kinds_send() {
    let config = SessionConfig { coupled: Coupling::Auto, ..config() };
    let mut pair = pair(&config);
    let acts = |pair: &mut Pair| pair.session(Client).coupling().any(|(_, state)| state.acts);
    let mut reader = Reader::default();
    for (level, expected) in [(7, false), (6, false), (0, true)] {
        let stream = send(&mut pair, Direction::One, urgency(level), body(50_000));
        pair.session(Client).finish_stream(stream).unwrap();
        reader.until_ended(&mut pair, Server, &[stream]);
        pair.pass(Duration::from_millis(100));
        assert_eq!(acts(&mut pair), expected, "urgency {level}");
    }
    // So do urgent streams that are expected.
    let mut pair = self::pair(&config);
    pair.session(Client).expect_streams(urgency(0));
    let stream = send(&mut pair, Direction::One, urgency(7), body(50_000));
    pair.session(Client).finish_stream(stream).unwrap();
    reader = Reader::default();
    reader.until_ended(&mut pair, Server, &[stream]);
    pair.pass(Duration::from_millis(100));
    assert!(acts(&mut pair));
    // A stream whose order becomes urgent counts as well.
    let mut pair = self::pair(&config);
    let stream = send(&mut pair, Direction::One, urgency(7), body(50_000));
    pair.session(Client).order_stream(stream, urgency(0));
    pair.session(Client).finish_stream(stream).unwrap();
    reader = Reader::default();
    reader.until_ended(&mut pair, Server, &[stream]);
    pair.pass(Duration::from_millis(100));
    assert!(acts(&mut pair));
}

#[test]
fn a_session_of_streams_takes_no_messages_and_the_reverse() {
    let mut pair = pair(&config());
    let now = pair.now;
    let message = super::pair::message(Priority::P0, 10);
    assert!(pair.session(Client).send(now, message).is_err());
    let plain = SessionConfig::default();
    let mut pair = Pair::new(&[20], &plain, &plain);
    assert!(pair.session(Client).open_stream(Direction::One, urgency(0)).is_none());
}

#[test]
fn streams_leave_a_dead_lane_for_a_live_one() {
    let config = with(|streams| streams.multipath = true);
    let mut pair = Pair::new(&[20, 30], &config, &config);
    let stream = send(&mut pair, Direction::One, urgency(3), body(200_000));
    pair.session(Client).finish_stream(stream).unwrap();
    pair.pass(Duration::from_millis(12));
    pair.kill(0);
    let mut reader = Reader::default();
    let begun = pair.now;
    reader.until_ended(&mut pair, Server, &[stream]);
    assert_eq!(reader.read[&stream], body(200_000));
    let took = pair.now.since(begun);
    assert!(took < Duration::from_secs(2), "{took:?}");
}

/// Ids of three streams of 60 kB in the order in which they end at the server.
fn ends(parameters: [Parameters; 3]) -> Vec<usize> {
    let config = SessionConfig { initial_window: Some(Bytes::kb(12)), ..config() };
    let mut pair = pair(&config);
    let streams = parameters.map(|parameters| {
        let stream = send(&mut pair, Direction::One, parameters, body(60_000));
        pair.session(Client).finish_stream(stream).unwrap();
        stream
    });
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &streams);
    let mut order = vec![0, 1, 2];
    order.sort_by_key(|at| reader.ended[&streams[*at]]);
    order
}

#[test]
fn the_order_in_a_group_is_that_of_the_application() {
    assert_eq!(ends([3, 3, 3].map(urgency)), [0, 1, 2]);
    assert_eq!(ends([1, 3, 2].map(|order| urgency(3).ordered(order))), [1, 2, 0]);
    // The level precedes the urgency, which precedes the order.
    let levels = [Priority::P3, Priority::P2, Priority::P1];
    assert_eq!(ends([0, 1, 2].map(|at| urgency(at).at_level(levels[usize::from(at)]).ordered(9))), [2, 1, 0]);
}

#[test]
fn groups_of_one_urgency_share_by_their_weights() {
    let config = SessionConfig { initial_window: Some(Bytes::kb(12)), ..config() };
    let mut pair = pair(&config);
    let groups = [1, 2].map(GroupId);
    pair.session(Client).set_stream_weight(groups[1], Weight::new(48).unwrap()).unwrap();
    let streams = groups.map(|group| {
        let stream = send(&mut pair, Direction::One, urgency(3).in_group(group), body(250_000));
        pair.session(Client).finish_stream(stream).unwrap();
        stream
    });
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &streams[1..]);
    // A third of the other's, and one turn of 16 kB and what the last packets bring.
    let read = reader.read[&streams[0]].len();
    assert!((65_000..105_000).contains(&read), "{read}");
    reader.until_ended(&mut pair, Server, &streams[..1]);
}

/// Background that the peer does not read fills all room, and an urgent stream sends all the same.
#[test]
fn background_without_credit_does_not_exclude_urgent_streams() {
    let config = with(|streams| (streams.stream_buffer, streams.buffer) = (Bytes::kb(50), Bytes::kb(50)));
    let config = SessionConfig { stream_window: Bytes::kb(10), ..config };
    let mut pair = pair(&config);
    let bulk = send(&mut pair, Direction::One, urgency(7), body(50_000));
    pair.pass(Duration::from_millis(100));
    while pair.session(Client).write_stream(bulk, body(1000)).is_ok() {}
    let urgent = pair.session(Client).open_stream(Direction::One, urgency(0)).unwrap();
    let data = body(40_000);
    let (mut sent, mut told, mut reader) = (0, 0, Reader::default());
    while sent < data.len() {
        while let Ok(len) = pair.session(Client).write_stream(urgent, data.slice(sent..)) {
            sent += len;
            if sent == data.len() {
                break;
            }
        }
        let writable = |pair: &Pair| {
            events(pair, Client).iter().filter(|event| **event == StreamEvent::Writable(urgent)).count()
        };
        if sent < data.len() {
            // Only the urgent stream is read.
            pair.run_until(|pair| {
                reader.look_at(pair, Server, urgent);
                writable(pair) > told
            });
            told = writable(&pair);
        }
    }
    pair.session(Client).finish_stream(urgent).unwrap();
    pair.run_until(|pair| {
        reader.look_at(pair, Server, urgent);
        reader.ended.contains_key(&urgent)
    });
    assert_eq!(reader.read[&urgent], data);
}

#[test]
fn a_stream_that_is_over_makes_room_for_others() {
    let config = with(|streams| (streams.stream_buffer, streams.buffer) = (Bytes::kb(50), Bytes::kb(50)));
    let config = SessionConfig { stream_window: Bytes::kb(1), ..config };
    for stops in [true, false] {
        let mut pair = pair(&config);
        let first = send(&mut pair, Direction::One, urgency(3), body(50_000));
        let second = pair.session(Client).open_stream(Direction::One, urgency(3)).unwrap();
        // Of the first, a window leaves, and its place is not enough for a further write of the second.
        pair.pass(Duration::from_millis(100));
        while pair.session(Client).write_stream(second, body(50_000)).is_ok() {}
        let told = |pair: &Pair| {
            events(pair, Client).iter().filter(|event| **event == StreamEvent::Writable(second)).count()
        };
        let before = told(&pair);
        if stops {
            pair.session(Server).stop_stream(first, 1).unwrap();
        } else {
            pair.session(Client).reset_stream(first, 1).unwrap();
        }
        pair.run_until(|pair| told(pair) > before);
        assert!(pair.session(Client).write_stream(second, body(100)).is_ok());
    }
}

#[test]
fn a_stream_that_cannot_arrive_in_time_is_told_and_reset() {
    let config = SessionConfig { initial_window: Some(Bytes::kb(12)), ..config() };
    let mut pair = pair(&config);
    let now = pair.now;
    // Of the same level, so the bulk goes first for certain.
    let bulk = send(&mut pair, Direction::One, urgency(4), body(200_000));
    let streams = [(100, Some(9)), (100, None), (60_000, Some(9))].map(|(ms, reset)| {
        let stream = send(&mut pair, Direction::One, urgency(5), body(20_000));
        pair.session(Client).finish_stream(stream).unwrap();
        let at = now + Duration::from_millis(ms);
        pair.session(Client).set_stream_deadline(now, stream, Some(at), reset);
        stream
    });
    pair.session(Client).finish_stream(bulk).unwrap();
    let late = |pair: &Pair| -> Vec<_> {
        let late = |event: &StreamEvent| match event {
            StreamEvent::Late { stream, reset } => Some((*stream, *reset)),
            _ => None,
        };
        events(pair, Client).iter().filter_map(late).collect()
    };
    // 12 kB per 20 ms do not carry 200 kB in 100 ms: that is known at once.
    pair.run_until(|pair| late(pair).len() == 2);
    assert!(pair.now.since(now) <= Duration::from_millis(21), "{:?}", pair.now.since(now));
    assert_eq!(late(&pair), [(streams[0], Some(9)), (streams[1], None)]);
    let mut reader = Reader::default();
    reader.until_ended(&mut pair, Server, &[bulk, streams[1], streams[2]]);
    assert!(!reader.ended.contains_key(&streams[0]));
    assert_eq!(late(&pair).len(), 2);
    assert!(pair.session(Client).write_stream(streams[0], body(1)).is_err());
}
