//! No bytes within TLS make the reader of a TCP connection panic, or keep more than its limits
//! allow.
#![no_main]

use marcato_sched::conductor;
use marcato_stream::{
    Inbound, Limits, LongMessages, LongNext, Message, NotDelivered, Pool, Reader, Sender, Ticket,
};
use marcato_units::{Bytes, Duration, Priority, Time};

libfuzzer_sys::fuzz_target!(|script: &[u8]| tcp_frames(script));

/// Owner that does not ask for outcomes.
struct Ignore;

impl Ticket for Ignore {
    fn settle(self, _: Result<(), NotDelivered>) {}
}

/// Feeds the bytes of a peer after the handshake. The first ones determine their split, the data
/// being sent, and the handling of long messages. No input may make the reader panic, or hold more
/// than its limits allow.
fn tcp_frames(script: &[u8]) {
    let Some((&[cut, sending, reading], mut bytes)) = script.split_first_chunk() else { return };
    let mut limits = Limits::default();
    limits.max_message = Bytes::new(400);
    limits.open = Bytes::new(1000);
    limits.open_messages = 4;
    limits.unread = Bytes::new(2000);
    limits.surplus = Bytes::new(1500);
    limits.missed = 3;
    limits.requests = 2;
    limits.long_messages = if reading & 1 == 0 { LongMessages::Refuse } else { LongMessages::Stream };
    let Ok(mut sender) = Sender::new(conductor::Config::default(), limits) else { return };
    for number in 0..sending & 7 {
        let level = Priority::ALL[usize::from(number) % Priority::COUNT];
        let message =
            Message::new(vec![number; 30]).with_priority(level).with_lifetime(Duration::from_secs(1));
        let _ = sender.offer(Time::ZERO, &message, Ignore);
    }
    let mut out = Vec::new();
    // The bytes written here may be acknowledged.
    sender.fill(Time::ZERO, usize::from(sending >> 3) * 8, &mut out);
    let (mut reader, mut inbound) = (Reader::new(), Inbound::new(limits, Pool::default()));
    // Two requests, whose replies the bytes may contain.
    while inbound.begin_request().is_some() {}
    let mut long = None;
    while !bytes.is_empty() && !inbound.is_full() {
        let (now, rest) = bytes.split_at((usize::from(cut) + 1).min(bytes.len()));
        bytes = rest;
        let fed = reader.feed(now, &mut inbound, &mut sender);
        let (counters, limits) = (*inbound.counters(), &limits);
        let most = now.len() as u64;
        assert!(counters.open_peak.get() <= limits.open.get() + most);
        // The message with which a level reaches its limit, and what one call completes, exceed it.
        let held = Priority::COUNT as u64 * (limits.unread.get() + limits.max_message.get());
        assert!(counters.unread_peak.get() <= held + limits.surplus.get() + limits.open.get() + most);
        assert!(inbound.open_messages() <= limits.open_messages);
        while let Some(answer) = inbound.take_answer() {
            sender.answer(answer);
        }
        assert!(sender.receipts() <= script.len());
        if fed.is_err() {
            return;
        }
        if reading & 2 != 0 {
            while inbound.take().is_some() {}
            while inbound.take_missed().is_some() {}
            while let Some((exchange, _)) = inbound.take_request() {
                inbound.close_request(exchange, exchange % 2 == 0);
            }
            for exchange in 0..2 {
                let _ = inbound.take_reply(exchange);
            }
            long = inbound.take_long().map(|(number, ..)| number).or(long);
        }
        if let Some(number) = long.filter(|_| reading & 4 != 0) {
            while let LongNext::Piece(_) = inbound.next_of(number) {}
        }
        if reading & 8 != 0
            && let Some(number) = long.take()
        {
            inbound.forget_long(number);
        }
        sender.fill(Time::ZERO, 200, &mut out);
        out.clear();
    }
}
