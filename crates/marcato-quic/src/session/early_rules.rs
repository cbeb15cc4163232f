//! Rules of early data, between two ends in virtual time.

use std::sync::Arc;

use marcato_identity::{Identity, Trust};
use marcato_sched::conductor::MessageId;
use marcato_units::{Bytes, Duration, Priority, Time};
use marcato_wire::{ErrorCode, Exchange};
use rustls::{ClientConfig, ServerConfig};

use super::pair::{Pair, Who, body, message};
use super::{Message, SendError};
use crate::config::{SessionConfig, StreamUse};
use crate::crypto;
use crate::event::Event;

use Who::{Client, Server};

const RTT: Duration = Duration::from_millis(40);

/// Client and server of which the client has tickets for early data.
struct Again {
    pair: Pair,
    identity: Identity,
    tls: Arc<ClientConfig>,
    config: SessionConfig,
}

impl Again {
    fn new(config: SessionConfig) -> Self {
        let identity = Identity::self_signed("server").unwrap();
        let trust = Trust::Certificate(identity.certificate().unwrap().clone());
        let mut tls =
            ClientConfig::clone(&crypto::client(&trust, vec![marcato_wire::ALPN.to_vec()]).unwrap());
        tls.enable_early_data = true;
        let pair = Pair::begin(&[40], &config, &config, None);
        let mut again = Self { pair, identity, tls: Arc::new(tls), config };
        again.listen();
        again.connect();
        let first = again.pair.session(Client);
        // Nothing is early without a ticket.
        assert!(!first.is_early());
        again.connected();
        again.pass();
        again
    }

    /// Lets the server accept early data, of which it knows nothing from before.
    fn listen(&mut self) {
        let mut tls =
            ServerConfig::clone(&crypto::server(&self.identity, vec![marcato_wire::ALPN.to_vec()]).unwrap());
        tls.max_early_data_size = u32::MAX;
        let config = self.config.clone();
        self.pair.endpoint(Server).listen_with(Arc::new(tls), config).unwrap();
    }

    /// Begins to connect again, and returns the time.
    fn connect(&mut self) -> Time {
        let now = self.pair.now;
        self.pair.session(Client).close(now, ErrorCode::NoError, "done");
        self.pass();
        self.pair.connect_again(&self.tls, &self.config);
        self.pair.now
    }

    fn connected(&mut self) {
        self.pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::Connected));
    }

    fn pass(&mut self) {
        self.pair.pass(Duration::from_secs(20));
    }

    fn offer(&mut self, message: Message) -> Result<MessageId, SendError> {
        let now = self.pair.now;
        self.pair.session(Client).send(now, message)
    }

    /// Sends a message that may be early.
    fn send(&mut self, priority: Priority, len: usize) -> MessageId {
        self.offer(message(priority, len).idempotent()).unwrap()
    }

    /// Returns the lengths of the messages that the server has, and whether each was early.
    fn received(&self) -> Vec<(usize, bool)> {
        let all = self.pair.received(Server).iter();
        all.map(|message| {
            assert_eq!(message.body, body(message.body.len()));
            (message.body.len(), message.early)
        })
        .collect()
    }

    /// Returns the client's counts of early messages: all, accepted and rejected.
    fn counts(&mut self) -> [u64; 3] {
        let stats = self.pair.stats(Client);
        [stats.early, stats.early_accepted, stats.early_rejected]
    }

    fn delivered(&mut self, message: MessageId) {
        self.pair.run_until(|pair| pair.delivered(Client, message).is_some());
    }
}

fn all_streams() -> [SessionConfig; 2] {
    [StreamUse::PerMessage, StreamUse::Reuse]
        .map(|streams| SessionConfig { streams, ..SessionConfig::default() })
}

#[test]
fn an_early_message_takes_half_a_round_trip() {
    for config in all_streams() {
        let mut again = Again::new(config);
        for _ in 0..3 {
            let begun = again.connect();
            assert!(again.pair.session(Client).is_early());
            let all = [(Priority::P0, 100), (Priority::P3, 3000), (Priority::P2, 0)];
            let all = all.map(|(priority, len)| again.send(priority, len));
            again.pair.run_until(|pair| pair.received(Server).len() == 3);
            assert_eq!(again.pair.now, begun + RTT / 2);
            assert_eq!(again.received(), [(100, true), (0, true), (3000, true)]);
            all.into_iter().for_each(|id| again.delivered(id));
            assert_eq!(again.counts(), [3, 3, 0]);
            again.pass();
            assert_eq!((again.received().len(), again.pair.session(Client).unfinished()), (3, 0));
            assert!(again.pair.session(Client).resumed());
            // Later messages are not early, and take their numbers from there.
            let later = again.send(Priority::P2, 50_000);
            again.delivered(later);
            assert_eq!(again.received().last(), Some(&(50_000, false)));
        }
    }
}

#[test]
fn rejected_early_data_arrives_once_afterwards() {
    for config in all_streams() {
        let mut again = Again::new(config);
        // It has forgotten its tickets.
        again.listen();
        let begun = again.connect();
        assert!(again.pair.session(Client).is_early());
        // The last one exceeds the initial window.
        let all = [(Priority::P1, 100), (Priority::P3, 0), (Priority::P4, 100_000)];
        let all = all.map(|(priority, len)| again.send(priority, len));
        again.pair.run_until(|pair| !pair.received(Server).is_empty());
        assert_eq!(again.pair.now, begun + RTT + RTT / 2);
        all.into_iter().for_each(|id| again.delivered(id));
        assert_eq!(again.counts(), [3, 0, 3]);
        let later = again.send(Priority::P2, 50_000);
        again.delivered(later);
        again.pass();
        assert_eq!(again.received(), [(100, false), (0, false), (100_000, false), (50_000, false)]);
        assert!(!again.pair.session(Client).resumed());
        assert!(again.pair.events(Server).all(|event| *event != Event::Early));
        let load = again.pair.session(Client).load();
        assert_eq!((load.in_flight, load.repairs, load.unfinished), (0, 0, 0));
    }
}

#[test]
fn messages_that_are_not_idempotent_wait_for_the_handshake() {
    let mut again = Again::new(SessionConfig::default());
    let begun = again.connect();
    for refused in [message(Priority::P0, 10), message(Priority::P0, 10).idempotent().unreliable()] {
        assert_eq!(again.offer(refused), Err(SendError::Busy { priority: Priority::P0 }));
    }
    let (now, session) = (again.pair.now, again.pair.session(Client));
    let long = session.begin_long();
    let part = message(Priority::P0, 10).idempotent();
    assert_eq!(session.send_part(now, long, part, true), Err(SendError::Busy { priority: Priority::P0 }));
    // The handshake needs no message.
    again.pair.run_until(|pair| !pair.session(Client).is_early());
    assert_eq!(again.pair.now, begun + RTT);
    let id = again.offer(message(Priority::P0, 10)).unwrap();
    again.delivered(id);
    assert_eq!((again.received(), again.counts()), (vec![(10, false)], [0; 3]));
}

/// The server answers before the client's handshake reaches it.
#[test]
fn an_early_request_is_answered_in_one_round_trip() {
    let mut again = Again::new(SessionConfig::default());
    let begun = again.connect();
    let request = Message { exchange: Exchange::Request(0), ..message(Priority::P1, 200) };
    again.offer(request.idempotent().with_receipt()).unwrap();
    again.pair.run_until(|pair| pair.events(Server).any(|event| *event == Event::Early));
    assert!(again.pair.session(Server).is_early());
    let reply = Message { exchange: Exchange::Reply(0), ..message(Priority::P1, 2000) };
    let reply = again.pair.send(Server, reply);
    again.pair.run_until(|pair| !pair.received(Client).is_empty());
    assert_eq!(again.pair.now, begun + RTT);
    assert!(!again.pair.received(Client)[0].early);
    again.pair.run_until(|pair| pair.delivered(Server, reply).is_some());
    let order: Vec<_> = again.pair.events(Server).collect();
    let place = |event| order.iter().position(|other| **other == event);
    assert!(place(Event::Early) < place(Event::Connected) && place(Event::Connected).is_some());
}

#[test]
fn a_lost_first_flight_is_sent_again() {
    for lost in 1..=4 {
        let mut again = Again::new(SessionConfig::default());
        again.connect();
        let all = [100, 2500].map(|len| again.send(Priority::P2, len));
        again.pair.line(0, Client).loss = 1.0;
        again
            .pair
            .run_until(|pair| pair.passed.iter().filter(|passed| passed.from == Client).count() >= lost);
        again.pair.line(0, Client).loss = 0.0;
        all.into_iter().for_each(|id| again.delivered(id));
        again.pass();
        assert_eq!(again.received().iter().map(|(len, _)| *len).collect::<Vec<_>>(), [100, 2500]);
        assert_eq!(again.counts(), [2, 2, 0]);
    }
}

/// The first packets of a message are lost, and its header with them.
#[test]
fn a_message_whose_header_comes_late_is_early_all_the_same() {
    for config in all_streams() {
        let mut again = Again::new(config);
        for lost in 1..=3 {
            for first in [100, 400, 700] {
                again.connect();
                let all = [first, 8000].map(|len| again.send(Priority::P2, len));
                // One datagram arrives, some are lost, and the others arrive.
                for (loss, datagrams) in [(0.0, 1), (1.0, lost), (0.0, 10_000)] {
                    again.pair.line(0, Client).loss = loss;
                    again.pair.set_room(0, datagrams);
                    again.pair.pass(Duration::ZERO);
                }
                all.into_iter().for_each(|id| again.delivered(id));
                assert!(again.received().contains(&(8000, true)), "{lost} lost, after {first} bytes");
            }
        }
    }
}

#[test]
fn early_data_is_sent_again_after_a_retry() {
    let mut again = Again::new(SessionConfig::default());
    // From half of the limit on, clients have to prove their address first.
    let _held = again.pair.take_pending().unwrap();
    again.pair.endpoint(Server).set_room(2);
    let begun = again.connect();
    let all = [100, 3000].map(|len| again.send(Priority::P2, len));
    again.pair.run_until(|pair| pair.received(Server).len() == 2);
    assert_eq!(again.pair.endpoint(Server).stats().retried, 1);
    assert_eq!(again.pair.now, begun + RTT + RTT / 2);
    all.into_iter().for_each(|id| again.delivered(id));
    again.pass();
    assert_eq!((again.received(), again.counts()), (vec![(100, true), (3000, true)], [2, 2, 0]));
    let load = again.pair.session(Client).load();
    assert_eq!((load.in_flight, load.unfinished), (0, 0));
}

/// Of several lost first flights, some lose the handshake and some the message.
#[test]
fn early_messages_survive_loss_in_both_directions() {
    for reject in [false, true] {
        let mut again = Again::new(SessionConfig::default());
        for round in 0..40 {
            if reject {
                again.listen();
            }
            again.connect();
            for who in [Client, Server] {
                again.pair.line(0, who).loss = 0.3;
            }
            let all = [100, 0, 2500, 8000].map(|len| again.send(Priority::P2, len));
            all.into_iter().for_each(|id| again.delivered(id));
            again.connected();
            let id = again.offer(message(Priority::P2, 20_000)).unwrap();
            again.delivered(id);
            again.pair.revive(0);
            again.pass();
            let mut lens: Vec<_> = again.received().iter().map(|(len, _)| *len).collect();
            lens.sort_unstable();
            assert_eq!(lens, [0, 100, 2500, 8000, 20_000], "round {round}");
            let load = again.pair.session(Client).load();
            assert_eq!((load.repairs, load.unfinished, load.events), (0, 0, 0));
        }
    }
}

#[test]
fn a_cancelled_early_message_is_given_up_once() {
    for reject in [false, true] {
        let mut again = Again::new(SessionConfig::default());
        if reject {
            again.listen();
        }
        again.connect();
        let id = again.send(Priority::P2, 200_000);
        again.pair.pass(RTT / 4);
        let now = again.pair.now;
        again.pair.session(Client).cancel(now, id).unwrap();
        let next = again.send(Priority::P2, 100);
        again.delivered(next);
        again.pass();
        let given_up = |event: &&Event| matches!(event, Event::GivenUp { .. });
        assert_eq!(again.pair.events(Server).filter(given_up).count(), 1);
        assert_eq!(again.received().len(), 1);
    }
}

/// Bytes that the server has rejected no longer count against the window.
#[test]
fn early_data_keeps_to_the_initial_window() {
    let config = SessionConfig { initial_window: Some(Bytes::new(12_000)), ..SessionConfig::default() };
    let mut again = Again::new(config);
    for reject in [false, true] {
        if reject {
            again.listen();
        }
        let begun = again.connect();
        again.send(Priority::P2, 1_000_000);
        let sent = |again: &Again, since| {
            let ours = again.pair.passed.iter().filter(|sent| sent.from == Client && sent.left >= since);
            ours.map(|sent| sent.len).sum::<usize>()
        };
        again.pair.pass(RTT - Duration::from_millis(1));
        let early = sent(&again, begun);
        assert!((8_000..=12_000).contains(&early), "{early}");
        again.pair.pass(RTT);
        let after = sent(&again, begun + RTT);
        assert!(!reject || after >= 8_000, "{after}");
    }
}

#[test]
fn early_data_keeps_to_the_known_number_of_streams() {
    for config in all_streams() {
        let mut again = Again::new(SessionConfig { max_streams: 3, ..config });
        for reject in [false, true] {
            if reject {
                again.listen();
            }
            again.connect();
            let all: Vec<_> = (1..=10).map(|len| again.send(Priority::P2, len)).collect();
            again.pair.pass(RTT / 4);
            assert_eq!(again.counts()[0], 3);
            all.into_iter().for_each(|id| again.delivered(id));
            assert_eq!(again.received().iter().map(|(len, _)| *len).sum::<usize>(), 55);
            assert_eq!(again.counts()[1..], if reject { [0, 3] } else { [3, 0] });
            again.pass();
        }
    }
}
