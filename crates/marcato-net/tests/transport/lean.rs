//! Data handed to the kernel ahead of what it can send, and the wait of an urgent message while the
//! peer's window is closed.
#![cfg(target_os = "linux")]

use crate::common::{with_a_bare_peer, within};
use marcato_net::{Config, Engine, Message};
use marcato_units::{Bytes, Duration, Priority};
use marcato_wire::{Decoded, Frame};
use tokio::io::AsyncReadExt as _;

/// Largest chunk while urgent messages come.
const CHUNK: Bytes = Bytes::new(64 << 10);
/// Largest chunk while none comes.
const QUIET: Bytes = Bytes::new(256 << 10);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_urgent_message_waits_only_for_what_has_left_and_one_chunk() {
    let mut config = Config::new(Engine::Tcp);
    // However long the test takes, the first urgent message is recent.
    config.tcp.chunk.quiet_after = Duration::from_secs(3600);
    waits_for_one_chunk(&config, CHUNK, true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_urgent_message_waits_for_one_larger_chunk() {
    waits_for_one_chunk(&Config::new(Engine::Tcp), QUIET, false).await;
}

/// Checks the data that the kernel holds, and the data ahead of an urgent message, in chunks of
/// this length. `again` means that an urgent message came before.
async fn waits_for_one_chunk(config: &Config, chunk: Bytes, again: bool) {
    let (client, mut peer) = with_a_bare_peer(config).await;
    let mut bytes = Vec::new();
    if again {
        client.send(Message::new(vec![1; 100]).with_priority(Priority::P0)).await.unwrap();
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
    assert!(unsent <= chunk * 2, "the kernel holds {unsent} that it has not sent");
    let granted = stats.conducted.total().granted.bytes;
    assert!(granted < Bytes::new(40 << 20), "{granted} went into buffers");

    client.send(Message::new(vec![0; 100]).with_priority(Priority::P0)).await.unwrap();
    let before = stats.conducted.total().granted.bytes;

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
