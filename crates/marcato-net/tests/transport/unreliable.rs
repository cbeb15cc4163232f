//! Messages that need not arrive: DATAGRAM frames over QUIC, ordinary messages over TCP.

use std::collections::BTreeSet;

use crate::common::{body, close, for_both_engines, number_of, pair, within};
use marcato_net::{Config, Engine, Message, NotDelivered, SendError};
use marcato_units::{Bytes, Duration, Priority};

async fn unreliable_messages_come_unchanged_and_at_most_once(engine: Engine) {
    const COUNT: u64 = 2000;
    let (client, server, _listener) = pair(&Config::new(engine)).await;
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        let mut handles = Vec::new();
        for number in 0..COUNT {
            let priority = Priority::ALL[usize::try_from(number % 5).unwrap()];
            let message = Message::new(body(number, 500)).with_priority(priority).unreliable();
            handles.push(sending.send(message).await.unwrap());
        }
        // They have left, or have arrived.
        for handle in &mut handles {
            handle.acknowledged().await.unwrap();
        }
        // The end marker follows all of them.
        let end = Message::new(body(COUNT, 500)).with_priority(Priority::P4);
        sending.send(end).await.unwrap().acknowledged().await.unwrap();
    });
    let mut seen = BTreeSet::new();
    loop {
        let received = within(server.recv()).await.unwrap();
        let number = number_of(&received.bytes);
        assert_eq!(received.bytes, body(number, 500));
        assert_eq!(received.number.is_none(), engine == Engine::Quic && number < COUNT);
        assert!(seen.insert(number), "{number} came twice");
        if number == COUNT {
            break;
        }
        assert_eq!(received.priority, Priority::ALL[usize::try_from(number % 5).unwrap()]);
    }
    within(sender).await.unwrap();
    if engine == Engine::Tcp {
        assert_eq!(seen.len() as u64, COUNT + 1);
    } else {
        // Lower bound of the messages that the receiver's limit let through: it always held some.
        assert!(seen.len() > 100, "{}", seen.len());
        assert_eq!(client.stats().conducted.total().granted.messages, COUNT + 1);
    }
    close(client, server).await;
}

async fn unread_unreliable_messages_are_dropped_and_counted(engine: Engine) {
    const COUNT: u64 = 1000;
    let mut config = Config::new(engine);
    config.limits.unreliable = Bytes::kb(20);
    let (client, server, _listener) = pair(&config).await;
    for number in 0..COUNT {
        let message = Message::new(body(number, 800)).with_priority(Priority::P1).unreliable();
        client.send(message).await.unwrap();
    }
    // Of the same level, so that it is the last.
    let mut end = client.send(Message::new(body(COUNT, 800)).with_priority(Priority::P1)).await.unwrap();
    within(end.acknowledged()).await.unwrap();
    let received = server.stats().received;
    let mut taken = 0;
    while number_of(&within(server.recv()).await.unwrap().bytes) != COUNT {
        taken += 1;
    }
    if engine == Engine::Tcp {
        assert_eq!((taken, received.unreliable), (COUNT, 0));
    } else {
        // Messages of 864 bytes fill the limit of 20 kB. The engine may send the end before the
        // last datagrams; those that arrived while room was being made are acceptable.
        let later = server.stats().received.unreliable - received.unreliable;
        assert!(taken <= 23 + later, "{taken}, of which {later} came later at most");
        assert!(received.unreliable <= COUNT && received.unreliable_dropped >= received.unreliable - 23);
    }
    close(client, server).await;
}

async fn an_unreliable_message_expires_like_any_other(engine: Engine) {
    let (client, server, _listener) = pair(&Config::new(engine)).await;
    // The other end reads nothing, so the queue stays full.
    for number in 0..40 {
        client.send(Message::new(body(number, 1 << 20)).with_priority(Priority::P1)).await.unwrap();
    }
    let stale = Message::new("17.5").with_priority(Priority::P4).with_lifetime(Duration::ZERO).unreliable();
    let mut stale = client.send(stale).await.unwrap();
    for _ in 0..40 {
        within(server.recv()).await.unwrap();
    }
    assert_eq!(within(stale.acknowledged()).await, Err(NotDelivered::Expired));
    close(client, server).await;
}

for_both_engines! {
    unreliable_messages_come_unchanged_and_at_most_once
    unread_unreliable_messages_are_dropped_and_counted
    an_unreliable_message_expires_like_any_other
}

#[tokio::test]
async fn unreliable_messages_too_long_or_unwanted_are_refused() {
    let config = Config::new(Engine::Quic);
    let (client, server, _listener) = pair(&config).await;
    let most = client.max_unreliable().unwrap();
    assert!(most >= Bytes::new(1000) && most < Bytes::new(65_536), "{most}");
    let long = Message::new(vec![0; 65_536]).unreliable();
    assert!(matches!(client.try_send(&long), Err(SendError::TooLongForDatagram { .. })));
    close(client, server).await;

    let mut none = config;
    none.limits.unreliable = Bytes::ZERO;
    let (client, server, _listener) = pair(&none).await;
    assert_eq!(client.max_unreliable(), None);
    let error = client.try_send(&Message::new("17.5").unreliable()).unwrap_err();
    assert_eq!(error, SendError::NoDatagrams);
    close(client, server).await;
}
