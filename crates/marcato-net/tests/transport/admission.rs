//! Admission of messages: both engines refuse the same ones, for the same reason.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};

use crate::common::{body, number_of, pair, within};
use marcato_net::{
    Bytes, Closed, Config, Connection, ConnectionEvent, Engine, Message, MessageHandle, Priority, SendError,
};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Bytes that a long message hands over at once.
const PART: usize = 128 << 10;

/// Offers messages one after the other while the tasks of the connection do not run: nothing is
/// delivered in between.
fn refusals(client: &Connection) -> Vec<(&'static str, SendError)> {
    let mut refused = Vec::new();
    let mut offer = |name, message: Message| {
        refused.extend(client.try_send(&message).err().map(|error| (name, error)));
    };
    let at = |level, len| Message::new(vec![0; len]).with_priority(level);
    offer("longer than a queue", at(Priority::P2, 500_001));
    offer("unreliable with a receipt", at(Priority::P2, 1).with_receipt().unreliable());
    for name in ["first of P4", "second of P4", "third of P4", "fourth of P4"] {
        offer(name, at(Priority::P4, 10));
    }
    offer("first half of P0", at(Priority::P0, 300_000));
    offer("second half of P0", at(Priority::P0, 300_000));
    offer("rest of P0", at(Priority::P0, 200_000));
    for name in ["first receipt", "second receipt", "third receipt"] {
        offer(name, at(Priority::P1, 1).with_receipt());
    }
    offer("receipt at another level", at(Priority::P2, 1).with_receipt());
    offer("the same without a receipt", at(Priority::P2, 1));
    client.discard_less_urgent_than(Priority::P2);
    offer("discarded level", at(Priority::P3, 1));
    client.discard_less_urgent_than(Priority::P4);
    let mut context = Context::from_waker(Waker::noop());
    let mut long = client.send_long(Priority::P3).unwrap();
    for name in ["first piece", "second piece", "third piece"] {
        let written = pin!(long.write(vec![0; PART + 1])).poll(&mut context);
        if written.is_pending() {
            refused.push((name, SendError::Busy { priority: Priority::P3 }));
        }
    }
    assert!(pin!(client.finish()).poll(&mut context).is_pending());
    let full = at(Priority::P4, 500_001);
    refused.extend(client.try_send(&full).err().map(|error| ("too long, after the end", error)));
    let closing = pin!(client.close()).poll(&mut context);
    assert_eq!(closing, Poll::Pending);
    refused.extend(client.try_send(&full).err().map(|error| ("too long, while closing", error)));
    refused
}

#[tokio::test]
async fn both_engines_refuse_the_same_messages() {
    let busy = |priority| SendError::Busy { priority };
    let expected = [
        ("longer than a queue", SendError::TooLong { limit: Bytes::new(500_000) }),
        ("unreliable with a receipt", SendError::NeedsReliable),
        ("fourth of P4", busy(Priority::P4)),
        ("second half of P0", busy(Priority::P0)),
        ("third receipt", busy(Priority::P1)),
        ("receipt at another level", busy(Priority::P2)),
        ("discarded level", SendError::Discarding { threshold: Priority::P2 }),
        ("third piece", busy(Priority::P3)),
        ("too long, after the end", SendError::Finished),
        ("too long, while closing", SendError::Closed(Closed::Local)),
    ];
    for engine in [Engine::Tcp, Engine::Quic] {
        let mut config = Config::new(engine);
        config.limits.queued = Bytes::new(500_000);
        config.limits.unfinished = 3;
        config.limits.receipts = 2;
        config.limits.streamed = Bytes::new(1);
        let (client, _accepted, _server) = within(pair(&config)).await;
        assert_eq!(refusals(&client), expected, "{engine}");
    }
}

/// Room that the application makes itself is as good as that of a message that has left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_goes_on_when_a_queued_message_is_given_up() {
    type Act = fn(&Connection, &MessageHandle);
    let acts: [(&str, Act); 2] = [
        ("cancelled", |_, queued| queued.cancel().unwrap()),
        ("discarded", |client, _| client.discard_less_urgent_than(Priority::P2)),
    ];
    for engine in [Engine::Tcp, Engine::Quic] {
        for (what, act) in acts {
            let mut config = Config::new(engine);
            config.limits.unfinished = 1;
            config.limits.queued = Bytes::new(64 << 20);
            config.limits.max_message = Bytes::new(64 << 20);
            config.limits.unread = Bytes::kb(64);
            config.limits.surplus = Bytes::kb(64);
            // Nobody takes it at the other end, so that it never leaves whole.
            let (client, _accepted, _server) = within(pair(&config)).await;
            let much = Message::new(vec![7; 32 << 20]).with_priority(Priority::P3);
            let queued = client.try_send(&much).unwrap();
            let small = || Message::new("x").with_priority(Priority::P2);
            // One that has its turn and neither polls nor goes would leave the place unused.
            {
                let mut first = pin!(client.send(small().with_priority(Priority::P3)));
                assert!(
                    first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending(),
                    "{engine}"
                );
            }
            let waiting = tokio::spawn({
                let client = client.clone();
                async move { client.send(small().with_priority(Priority::P3)).await.map(drop) }
            });
            act(&client, &queued);
            let sent = within(waiting).await.unwrap();
            let refused = matches!(sent, Err(SendError::Discarding { .. }));
            assert!(if what == "discarded" { refused } else { sent.is_ok() }, "{engine}, {what}: {sent:?}");
        }
    }
}

/// Counts how often a task is woken, and queues it to be polled.
struct Counting {
    number: usize,
    woken: AtomicUsize,
    ready: UnboundedSender<usize>,
}

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.woken.fetch_add(1, Relaxed);
        let _ = self.ready.send(self.number);
    }
}

/// A place that wakes all who wait would cost 10 000 wake-ups for each message.
#[tokio::test]
async fn ten_thousand_waiting_tasks_are_woken_one_by_one() {
    const TASKS: usize = 10_000;
    for engine in [Engine::Tcp, Engine::Quic] {
        for (unfinished, queued) in [(16, 1_000_000), (100_000, 30_000)] {
            let mut config = Config::new(engine);
            (config.limits.unfinished, config.limits.queued) = (unfinished, Bytes::new(queued));
            let (client, accepted, _server) = within(pair(&config)).await;
            let received = tokio::spawn(async move {
                let mut order = Vec::new();
                while let Ok(message) = accepted.recv().await {
                    order.push(number_of(&message.bytes));
                }
                order
            });
            let (ready, mut woken) = unbounded_channel();
            let mut tasks = Vec::new();
            for number in 0..TASKS {
                let (client, ready) = (client.clone(), ready.clone());
                let message = Message::new(body(number as u64, 2000));
                let task = Box::pin(async move { client.send(message).await.map(drop) });
                tasks.push((task, Arc::new(Counting { number, woken: AtomicUsize::new(0), ready })));
            }
            // Nobody has to wake them for the first time.
            let mut waiting = Vec::new();
            for (number, (task, counting)) in tasks.iter_mut().enumerate() {
                let waker = Waker::from(Arc::clone(counting));
                match task.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(sent) => sent.unwrap(),
                    Poll::Pending => waiting.push(number),
                }
            }
            assert!(waiting.len() > TASKS / 2, "{engine}: {} wait", waiting.len());
            let (mut left, mut turns) = (waiting.len(), Vec::new());
            while left > 0 {
                let number = within(woken.recv()).await.unwrap();
                let (task, counting) = &mut tasks[number];
                let waker = Waker::from(Arc::clone(counting));
                if let Poll::Ready(sent) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                    sent.unwrap();
                    turns.push(number);
                    left -= 1;
                }
            }
            let wakes: usize = tasks.iter().map(|(_, counting)| counting.woken.load(Relaxed)).sum();
            assert!(wakes <= 2 * waiting.len(), "{engine}: {wakes} for {}", waiting.len());
            assert_eq!(turns, waiting, "{engine}");
            client.close().await.unwrap();
            let mut order = within(received).await.unwrap();
            order.sort_unstable();
            assert!(order.iter().copied().eq(0..TASKS as u64), "{engine}");
        }
    }
}

/// A reader that acted on a later event first would take the loss for one of events after it.
#[tokio::test]
async fn events_after_a_lost_one_come_after_its_report() {
    let (client, _accepted, _server) = within(pair(&Config::new(Engine::Tcp))).await;
    let mut events = client.events();
    let fill = |number| (0..number).for_each(|_| client.discard_less_urgent_than(Priority::P4));
    fill(256);
    client.discard_less_urgent_than(Priority::P3);
    let changed = |threshold| Some(ConnectionEvent::ThresholdChanged(threshold));
    assert_eq!(within(events.next()).await, changed(Priority::P4));
    // The reader has room now.
    client.discard_less_urgent_than(Priority::P2);
    for _ in 1..256 {
        assert_eq!(within(events.next()).await, changed(Priority::P4));
    }
    assert_eq!(within(events.next()).await, Some(ConnectionEvent::Missed(2)));
    client.discard_less_urgent_than(Priority::P1);
    assert_eq!(within(events.next()).await, changed(Priority::P1));
}
