//! Data handed to the kernel ahead of what it can send, and the wait of an urgent message while the
//! peer's window is closed.
#![cfg(target_os = "linux")]

use crate::common::{localhost, with_a_bare_peer, within};
use bytes::{Buf as _, BytesMut};
use marcato_net::{ChunkRule, Config, Coupling, Engine, LeanSocket, Message, Probe, Supply, TcpCongestion};
use marcato_units::{Bytes, Duration, Priority, PrioritySet, Time};
use marcato_wire::{Decoded, Frame};
use socket2::SockRef;
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpListener, TcpStream};

/// Largest chunk while urgent messages come.
const CHUNK: Bytes = Bytes::new(64 << 10);
/// Largest chunk while none comes.
const QUIET: Bytes = Bytes::new(256 << 10);
/// Most bytes that the kernel sends at once.
const BURST: Bytes = Bytes::new(64 << 10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_message_waits_only_for_what_has_left_and_one_chunk() {
    let mut config = Config::new(Engine::Tcp);
    // However long the test takes, the first urgent message is recent.
    config.tcp.chunk.quiet_after = Duration::from_secs(3600);
    // However slow the machine is, only the upper bound limits a chunk.
    config.tcp.chunk.span = Duration::from_secs(1);
    config.tcp.congestion = Some(TcpCongestion::Cubic);
    for urgent in [Priority::P0, Priority::P1] {
        waits_for_one_chunk(&config, (CHUNK, Bytes::ZERO), Some(urgent)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn below_bbr_it_also_waits_for_what_leaves_at_once() {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.chunk.quiet_after = Duration::from_secs(3600);
    config.tcp.chunk.span = Duration::from_secs(1);
    config.tcp.congestion = Some(TcpCongestion::Bbr);
    waits_for_one_chunk(&config, (CHUNK, BURST), Some(Priority::P0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_urgent_message_waits_for_one_larger_chunk() {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.congestion = Some(TcpCongestion::Cubic);
    waits_for_one_chunk(&config, (QUIET, Bytes::ZERO), None).await;
}

/// Checks the data that the kernel holds, and the data ahead of an urgent message, in chunks of
/// this length, of which so many bytes more are always left to the kernel. A message of the level `before` came
/// earlier, if there is one.
async fn waits_for_one_chunk(config: &Config, (chunk, burst): (Bytes, Bytes), before: Option<Priority>) {
    let (client, mut peer) = with_a_bare_peer(config).await;
    let mut bytes = Vec::new();
    if let Some(before) = before {
        client.send(Message::new(vec![1; 100]).with_priority(before)).await.unwrap();
        let (header, body) = within(async {
            loop {
                if let Decoded::Frame { frame: Frame::Message(message), len } = Frame::decode(&bytes).unwrap()
                {
                    break (len, usize::try_from(message.len.get()).unwrap());
                }
                peer.read_buf(&mut bytes).await.unwrap();
            }
        })
        .await;
        within(async {
            while bytes.len() < header + body {
                peer.read_buf(&mut bytes).await.unwrap();
            }
        })
        .await;
        bytes.drain(..header + body);
    }

    // The peer reads nothing, so its window closes.
    for _ in 0..60 {
        client.send(Message::new(vec![4; 1 << 20]).with_priority(Priority::P4)).await.unwrap();
    }
    let shut = || {
        let stats = client.stats();
        let lane = stats.lanes[0];
        (lane.in_flight.is_zero() && lane.backlog > Bytes::ZERO).then_some((lane.backlog, stats))
    };
    let (unsent, stats) = within(async {
        loop {
            if let Some(shut) = shut() {
                return shut;
            }
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The kernel may accept one more chunk before it reports that it is full.
    assert!(unsent <= chunk * 2 + burst, "the kernel holds {unsent} that it has not sent");
    let granted = stats.conducted.total().granted.bytes;
    assert!(granted < Bytes::new(40 << 20), "{granted} went into buffers");

    client.send(Message::new(vec![0; 100]).with_priority(Priority::P0)).await.unwrap();
    // If the window was not closed for good, more has been granted meanwhile.
    let before = client.stats().conducted.total().granted.bytes;

    // Now it reads, as a peer would, up to the urgent message.
    let mut ahead = Bytes::ZERO;
    let urgent = within(async {
        loop {
            match Frame::decode(&bytes).unwrap() {
                Decoded::Frame { frame: Frame::Message(message), len } => {
                    let payload = usize::try_from(message.len.get()).unwrap();
                    while bytes.len() < len + payload {
                        peer.read_buf(&mut bytes).await.unwrap();
                    }
                    bytes.drain(..len + payload);
                    if message.priority == Priority::P0 {
                        return message;
                    }
                    ahead += message.len;
                }
                // Coupled mode asks for the clock.
                Decoded::Frame { frame: Frame::Watch { .. }, len } => drop(bytes.drain(..len)),
                Decoded::Frame { frame, .. } => panic!("{frame:?} was not to be expected"),
                Decoded::Incomplete { .. } => {
                    peer.read_buf(&mut bytes).await.unwrap();
                }
            }
        }
    })
    .await;
    assert!(urgent.last && urgent.len == Bytes::new(100));
    // Data granted before the urgent message came, and at most one chunk granted at that moment.
    assert!(ahead <= before + chunk, "{ahead} left before it, of which {before} had been granted");
}

#[tokio::test]
async fn urgent_data_makes_the_next_chunk_small_at_once() {
    let listener = TcpListener::bind(localhost()).await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    // Only the upper bounds limit a chunk.
    let rule = ChunkRule { min_segments: u32::MAX, ..ChunkRule::default() };
    let mut socket = LeanSocket::plain(stream, rule, Coupling::Off);
    let mut now = Time::ZERO;
    for _ in 0..3 {
        for (quiet, most) in [(true, QUIET), (false, CHUNK)] {
            let levels = PrioritySet::one(Priority::P2);
            let supply = Supply { used: levels, waiting: levels, quiet, probe: Probe::Always };
            assert!(socket.turn(now, supply).unwrap().is_ok());
            let size = socket.chunk().wire;
            assert!(size <= most && size > most - CHUNK, "{size} of {most}");
        }
        now += Duration::from_micros(1);
    }
}

/// A controller that measures rates takes a write that finds nothing unsent for a pause, and never leaves its startup.
#[tokio::test]
async fn bbr_always_has_two_segments_to_send_and_others_none() {
    let listener = TcpListener::bind(localhost()).await.unwrap();
    // One segment a millisecond is what slow connections carry.
    let rule = ChunkRule { span: Duration::ZERO, ..ChunkRule::default() };
    for (name, segments) in [("bbr", 2), ("cubic", 0), ("reno", 0)] {
        let stream = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let socket = SockRef::from(&stream);
        if socket.set_tcp_congestion(name.as_bytes()).is_err() {
            marcato_testing::skip(env!("CARGO_PKG_NAME"), &format!("needs the congestion control `{name}`"));
            continue;
        }
        let mss = socket.tcp_mss().unwrap();
        let mut lean = LeanSocket::plain(stream, rule, Coupling::Off);
        let levels = PrioritySet::one(Priority::P2);
        let supply = Supply { used: levels, waiting: levels, quiet: false, probe: Probe::Always };
        assert!(lean.turn(Time::ZERO, supply).unwrap().is_ok());
        // Writable while twice the unsent bytes are fewer.
        let mark = SockRef::from(&**lean.stream()).tcp_notsent_lowat().unwrap();
        assert_eq!(mark, 2 * segments * mss + 1, "{name}, segments of {mss}");
    }
}

/// Least part of a message, in bytes, with which it begins if not all of it fits a chunk.
const LEAST: Bytes = Bytes::new(32);

/// A few bytes at the end of a chunk would cost a frame of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_chunk_ends_with_a_few_bytes_of_another_message() {
    const COUNT: usize = 13_000;
    const LEN: usize = 203;
    let (client, mut peer) = with_a_bare_peer(&Config::new(Engine::Tcp)).await;
    // More than all buffers hold, so that the short messages wait behind it, and fill chunk after chunk.
    for _ in 0..3 {
        client.send(Message::new(vec![1; 16 << 20]).with_priority(Priority::P1)).await.unwrap();
    }
    for _ in 0..COUNT {
        client.send(Message::new(vec![2; LEN])).await.unwrap();
    }
    let mut bytes = BytesMut::new();
    let (mut whole, mut begun) = (0, 0);
    within(async {
        while whole < COUNT {
            let (message, len) = match Frame::decode(&bytes).unwrap() {
                Decoded::Frame { frame: Frame::Message(message), len } => (message, len),
                // Coupled mode asks for the clock.
                Decoded::Frame { len, .. } => {
                    bytes.advance(len);
                    continue;
                }
                Decoded::Incomplete { .. } => {
                    peer.read_buf(&mut bytes).await.unwrap();
                    continue;
                }
            };
            let payload = usize::try_from(message.len.get()).unwrap();
            while bytes.len() < len + payload {
                peer.read_buf(&mut bytes).await.unwrap();
            }
            bytes.advance(len + payload);
            if message.offset.is_zero() && !message.last {
                begun += 1;
                assert!(message.len >= LEAST, "a message begins with {}", message.len);
            }
            whole += usize::from(message.last && message.priority == Priority::P2);
        }
    })
    .await;
    assert!(begun > 0, "no chunk ended within a message");
}
