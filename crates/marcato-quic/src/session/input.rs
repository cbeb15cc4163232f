//! Input of a session: datagrams, timeouts, and the resulting events of the engine.

use std::net::SocketAddr;

use bytes::Bytes as Payload;
use marcato_sched::lane::LaneId;
use marcato_sched::schedule::LaneScheduler as _;
use marcato_stream::{Cause, CloseReason, Closed};
use marcato_units::{Bytes, Duration, Time};
use marcato_wire::{ErrorCode, Frame, UNRELIABLE_HEADER, Unreliable};
use noq_proto::{ConnectionError, Dir, Event as EngineEvent, ReadError, StreamEvent, StreamId, VarInt};

use super::phase::Phase;
use super::send_state::Owed;
use super::{Datagram, Session};
use crate::config::{Pacing, StreamUse};
use crate::crypto;
use crate::endpoint::SocketId;
use crate::event::Event;
use crate::gate::GateEvent;
use crate::inbox::Action;
use crate::lane::Load;
use crate::layer_test::LayerTest;
use crate::outbox::{Key, Role};

impl Session {
    /// Passes the engine a datagram for this session that arrived on `socket` from `remote`. The
    /// caller then runs [`after_engine`](Self::after_engine), perhaps once for several datagrams.
    pub(crate) fn take_in(
        &mut self,
        now: Time,
        socket: SocketId,
        remote: SocketAddr,
        len: usize,
        event: noq_proto::ConnectionEvent,
    ) {
        self.ack_debt.arrived(len);
        match self.lanes.to_mut(remote) {
            Some(lane) if lane.route.socket == socket => lane.health.heard_at = now,
            _ => self.arrivals.arrived(now, remote, socket),
        }
        self.conn.handle_event(event);
    }

    /// Starts a session that a peer has begun with its first datagram.
    pub(crate) fn begun(&mut self, now: Time, socket: SocketId, remote: SocketAddr) {
        self.arrivals.arrived(now, remote, socket);
        self.after_engine(now);
    }

    /// Passes the engine an event of the endpoint that is no datagram.
    pub(crate) fn handle_internal(&mut self, now: Time, event: noq_proto::ConnectionEvent) {
        self.conn.handle_event(event);
        self.after_engine(now);
    }

    pub(crate) fn poll_endpoint_event(&mut self) -> Option<noq_proto::EndpointEvent> {
        self.conn.poll_endpoint_events()
    }

    /// Handles every timer that has expired.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let instant = self.clock.instant(now);
        if self.conn.poll_timeout().is_some_and(|at| at <= instant) {
            self.conn.handle_timeout(instant);
            self.ack_debt.timer_expired();
            self.after_engine(now);
        }
        self.look_for_stalls(now);
        self.heed_backups(now);
        self.give_up_silent(now);
        self.replace_stuck(now);
        self.reopen_lanes(now);
        self.manage_low_lanes(now);
        // While the network takes nothing, messages expire all the same.
        if self.conductor.expire(now).messages > 0 {
            self.sweep(now);
        }
        self.expire_datagrams(now);
        self.look_for_late(now);
        if self.alarms.expire(now) {
            self.send.request_look();
            self.lanes.iter_mut().for_each(|lane| lane.health.paused = false);
        }
    }

    /// Returns the time to call [`handle_timeout`](Self::handle_timeout), if nothing else comes
    /// first.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let engine = self.conn.poll_timeout().map(|at| self.clock.time(at));
        if self.phase.is_closed() {
            return engine;
        }
        let stalls = self.lanes.iter().filter_map(|lane| lane.stalls_at(self.config.stall)).min();
        let recoveries = self.lanes.iter().filter_map(|lane| lane.health.recovers_at()).min();
        let heeds = self.lanes.iter().filter_map(|lane| lane.backup.heeds_at()).min();
        let given_up = self.given_up_at().map(|(at, _)| at).min();
        let stuck = self.stuck_at().map(|(_, at, _)| at).min();
        let tested = self.layer_test.as_ref().and_then(LayerTest::next_timeout);
        let datagrams = self.streams.as_ref().and_then(|streams| streams.next_expiry());
        let others = [tested, self.keeper.next(), self.conductor.next_expiry(), datagrams];
        let all = [engine, stalls, recoveries, heeds, given_up, stuck, self.alarms.next()];
        all.into_iter().chain(others).flatten().min()
    }

    /// Returns the socket for packets to this address: that of its lane, or the one on which
    /// packets from it last arrived.
    pub(super) fn socket_to(&self, remote: SocketAddr) -> Option<SocketId> {
        let lane = self.lanes.to(remote).map(|lane| lane.route.socket);
        lane.or_else(|| self.arrivals.socket_to(remote))
    }

    /// Collects the results of any change to the engine: logs, events, actions of the inbox.
    pub(crate) fn after_engine(&mut self, now: Time) {
        self.send.request_look();
        for lane in self.lanes.iter_mut() {
            lane.health.paused = false;
        }
        self.drain(now, None, Load::Other);
        while let Some(event) = self.conn.poll() {
            self.engine_event(now, event);
        }
        if self.phase.is_closed() {
            return;
        }
        if self.arrivals.may_move(now) {
            self.follow_moves(now);
        }
        if self.phase.is_confirmed() {
            self.open_lanes(now);
        }
        self.reopen_lanes(now);
        self.manage_low_lanes(now);
        self.size_window(now);
        if self.streams.is_none() {
            self.act(now);
            self.exchange_clocks(now);
            self.write_notes();
        }
        if self.notes.is_over_limit() {
            self.fail(
                now,
                ErrorCode::LimitExceeded,
                "the peer grants too little flow-control credit: too many control frames are queued"
                    .to_owned(),
            );
        }
        if self.config.pacing != Pacing::Off {
            for lane in self.lanes.iter_mut() {
                lane.pace(now);
            }
        }
    }

    /// Raises the receive window if the peer sends as much as it allows.
    fn size_window(&mut self, now: Time) {
        let Some(sizing) = &mut self.sizing else { return };
        sizing.lanes(self.lanes.iter().filter_map(|lane| lane.rtt.least));
        if let Some(window) = sizing.grow(now) {
            self.conn.set_receive_window(VarInt::from_u64(window.get()).unwrap_or(VarInt::MAX));
        }
    }

    /// Reads the gates' logs. Packets sent carried `load`, which was meant to leave on `on`; a
    /// probe on another lane may have carried it instead. Returns the number of packets that left
    /// on `on`, and on other lanes.
    pub(super) fn drain(&mut self, now: Time, on: Option<LaneId>, load: Load) -> (usize, usize) {
        let mut gate_events = std::mem::take(&mut self.gate_events);
        let mut streams = self.streams.take();
        let mut sent = (0, 0);
        let mut recovered = false;
        let slowest = if self.layer_test.is_some() { self.slowest_high() } else { Duration::ZERO };
        let urgent = !self.urgent_waiting().is_empty();
        let couples = self.config.coupled.acts(self.levels, self.config.urgent);
        for lane in self.lanes.iter_mut() {
            let id = lane.id;
            lane.gate.take(&mut gate_events);
            let mut acknowledged = false;
            let mut left = Bytes::ZERO;
            for event in gate_events.drain(..) {
                match event {
                    GateEvent::Sent { pn, bytes } => {
                        let count = if on == Some(id) { &mut sent.0 } else { &mut sent.1 };
                        *count += 1;
                        let bytes_sent = Bytes::from(u32::from(bytes));
                        let of_handshake =
                            self.long_packets.iter().position(|&len| len == usize::from(bytes));
                        if let Some(at) = of_handshake {
                            self.long_packets.swap_remove(at);
                        }
                        // Packets longer than the path's known MTU are probes of the MTU.
                        let other = of_handshake.is_some() || bytes_sent > lane.gate.mtu();
                        let load = match &mut streams {
                            _ if other => Load::Other,
                            Some(streams) => streams.load_of(load),
                            None => load,
                        };
                        lane.sent(now, pn, bytes, load);
                        left += bytes_sent;
                    }
                    GateEvent::Acked { pn, bytes, micros } => {
                        acknowledged = true;
                        if let Some(test) = &mut self.layer_test {
                            let (took, bytes) = (Duration::from_micros(micros.into()), Bytes::new(bytes));
                            match lane.is_managed() {
                                true => test.low_acked(now, bytes, slowest),
                                false => test.acked(now, id, took, bytes),
                            }
                        }
                        lane.on_ack(now);
                        let load = lane.flight.settle(pn, bytes);
                        if let Some((streams, load)) = streams.as_mut().zip(load) {
                            streams.acked(load, &mut self.events);
                        }
                        if let Some(governor) = &mut lane.governor {
                            let data = load.is_some_and(Load::is_data);
                            governor.acked(Duration::from_micros(micros.into()), Bytes::new(bytes), data);
                        }
                        lane.stats.acked += Bytes::new(bytes);
                        self.scheduler.acked(now, id, Bytes::new(bytes));
                        recovered |= lane.health.is_in_doubt() || lane.health.is_silent();
                    }
                    GateEvent::Lost { pn, bytes } => {
                        lane.stats.lost += 1;
                        if let Some(test) = self.layer_test.as_mut().filter(|_| !lane.is_managed()) {
                            test.lost(now, id);
                        }
                        self.scheduler.lost(now, id);
                        if let Some(governor) = &mut lane.governor {
                            governor.lost();
                        }
                        let owed = match lane.flight.settle(pn, u64::from(bytes)) {
                            Some(Load::Run { key, run, priority, pinned, .. }) => {
                                let Some(message) = self.outbox.get_mut(key) else { continue };
                                message.lose(run);
                                Some((priority, pinned))
                            }
                            Some(Load::Repair { priority, pinned }) => Some((priority, pinned)),
                            Some(load @ (Load::Stream { .. } | Load::Resent { .. })) => streams
                                .as_mut()
                                .and_then(|streams| streams.lost(load))
                                .map(|level| (level, false)),
                            Some(Load::Control | Load::Other) | None => None,
                        };
                        if let Some((priority, pinned)) = owed {
                            self.send.owe(priority, Owed { pinned, lost_on: id });
                        }
                    }
                    GateEvent::Window { at, change, window } => {
                        lane.stats.reductions += u64::from(change == crate::event::WindowChange::Reduced);
                        if self.config.trace_windows {
                            let (at, window) = (self.clock.time(at), Bytes::new(window));
                            self.events.push_back(Event::Window { lane: id, at, change, window });
                        }
                    }
                }
            }
            let bytes = (lane.stats.acked, &*lane.gate);
            let governor = lane.governor.as_mut();
            if let Some(transition) =
                governor.and_then(|it| it.sample(now, bytes, self.clocks.peer(), urgent, couples))
            {
                self.events.push_back(Event::Coupled { lane: id, transition });
            }
            if !left.is_zero() {
                lane.pacer.sent(now, left);
            }
            if acknowledged && let Some(srtt) = self.conn.rtt(lane.path) {
                lane.rtt.update(srtt);
            }
        }
        self.gate_events = gate_events;
        self.streams = streams;
        if recovered {
            self.look_for_recoveries(now);
        }
        sent
    }

    fn engine_event(&mut self, now: Time, event: EngineEvent) {
        if self.phase.is_closed() {
            return;
        }
        match event {
            EngineEvent::Connected => {
                self.end_early();
                self.phase.advance(Phase::Established);
                self.events.push_back(Event::Connected);
            }
            EngineEvent::HandshakeConfirmed => {
                self.end_early();
                self.phase.advance(Phase::Confirmed);
            }
            EngineEvent::ConnectionLost { reason } => {
                let code = match &reason {
                    ConnectionError::ApplicationClosed(close) => Some(close.error_code.into_inner()),
                    _ => None,
                };
                self.alert = crypto::alert(&reason);
                self.streams_over((&reason).into());
                let cause = crypto::cause(&reason);
                let reason = crypto::end(&reason);
                let closed = closed_by(cause, &reason, code);
                self.over(reason, code, closed);
            }
            EngineEvent::Stream(event) => self.stream_event(now, event),
            EngineEvent::Path(event) => self.path_event(now, event),
            EngineEvent::DatagramReceived => self.take_datagrams(now),
            EngineEvent::HandshakeDataReady
            | EngineEvent::DatagramsUnblocked
            | EngineEvent::NatTraversal(_) => {}
        }
    }

    /// Reads unreliable messages from the engine at once, because it would drop some silently.
    fn take_datagrams(&mut self, now: Time) {
        if self.streams.is_some() {
            return self.take_stream_datagrams();
        }
        while let Some(payload) = self.conn.datagrams().recv() {
            let priority = match Unreliable::decode(&payload) {
                Ok(unreliable) => unreliable.priority,
                Err(error) => return self.fail(now, ErrorCode::ProtocolViolation, error.to_string()),
            };
            // A part of the received packet would keep all memory alive that was read with it.
            let body = Payload::copy_from_slice(payload.get(UNRELIABLE_HEADER..).unwrap_or_default());
            self.datagrams.push(Datagram { priority, body });
        }
        if !self.datagrams.is_empty() && self.events.back() != Some(&Event::Datagram) {
            self.events.push_back(Event::Datagram);
        }
    }

    fn stream_event(&mut self, now: Time, event: StreamEvent) {
        if self.streams.is_some() {
            return self.plain_stream_event(event);
        }
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(stream) = self.conn.streams().accept(dir) {
                    self.read_stream(now, stream);
                }
            }
            StreamEvent::Readable { id } => self.read_stream(now, id),
            StreamEvent::Writable { id } => {
                self.notes.wake(id);
                self.credit.resume();
            }
            StreamEvent::Available { .. } => self.credit.resume_streams(),
            StreamEvent::Finished { id } => {
                self.end_control(id);
                self.acknowledged(now, id);
            }
            StreamEvent::Stopped { id, error_code } => {
                self.notes.wake(id);
                self.end_control(id);
                let Some(key) = self.outbox.carried_by(id) else { return };
                self.settled(now, key, error_code.into_inner() == ErrorCode::Settled.get());
            }
        }
    }

    /// Handles the acknowledgement of a stream and its end.
    fn acknowledged(&mut self, now: Time, stream: StreamId) {
        let Some(key) = self.outbox.carried_by(stream) else { return };
        let (losers, complete) = self.outbox.acknowledge(key, stream);
        for loser in losers {
            self.reset(loser, ErrorCode::Abandoned);
        }
        if complete {
            self.settled(now, key, true);
        }
    }

    /// Handles a DONE frame: the receiver needs no more of the message on this stream, which may
    /// carry another from now on.
    fn acknowledged_by_done(&mut self, now: Time, stream: StreamId) {
        if let Some(key) = self.outbox.carried_by(stream) {
            self.settled(now, key, true);
        }
        self.outbox.done(stream);
        self.credit.resume_streams();
    }

    /// Finishes a message that the receiver has in full, or does not want. `complete` distinguishes
    /// the two.
    pub(super) fn settled(&mut self, now: Time, key: Key, complete: bool) {
        let Some(message) = self.outbox.remove(key) else { return };
        if !complete {
            self.forget_report(message.number, &message);
        }
        for carrier in message.carriers {
            if carrier.acknowledged {
                continue;
            }
            // A reusable stream is not reset if all of its message has been written to it.
            let whole = carrier.role != Role::Repair && carrier.written == carrier.run.end;
            if self.config.streams == StreamUse::Reuse && complete && whole && message.part.is_none() {
                self.outbox.await_done(carrier.stream);
            } else {
                self.reset(carrier.stream, ErrorCode::Settled);
            }
        }
        if !message.fed {
            // The rest need not be sent. The message has left the outbox, so the sweep ignores it.
            let _ = self.conductor.cancel(message.id);
            self.scheduler.message_complete(now, message.id.get());
        }
        let event = if complete { Event::Delivered(message.id) } else { Event::Declined(message.id) };
        self.events.push_back(event);
        self.finish_if_empty();
    }

    pub(super) fn read_stream(&mut self, now: Time, stream: StreamId) {
        if !self.phase.is_open() {
            self.receive_early();
        }
        if !self.inbox.wants_data() {
            if !self.unread.contains(&stream) {
                self.unread.push_back(stream);
            }
            return;
        }
        let number = u64::from(stream);
        let mut result = Ok(());
        let mut over = false;
        {
            let mut source = self.conn.recv_stream(stream);
            // Out of order, each byte is read once, so at the stream's end the sum is its length.
            let Ok(mut read) = source.bytes_read() else { return };
            // Unordered, because data that waits for a gap would count towards the engine's limit
            // of gaps.
            let Ok(mut chunks) = source.read(false) else { return };
            let before = read;
            while result.is_ok() {
                if !self.inbox.wants_data() {
                    self.unread.push_back(stream);
                    break;
                }
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        read += chunk.bytes.len() as u64;
                        result = self.inbox.stream_data(number, chunk.offset, chunk.bytes);
                    }
                    Ok(None) => {
                        result = self.inbox.stream_finished(number, read);
                        over = true;
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(_)) => {
                        result = self.inbox.stream_reset(number);
                        over = true;
                        break;
                    }
                }
            }
            let _ = chunks.finalize();
            if let Some(sizing) = &mut self.sizing {
                sizing.read(Bytes::new(read - before));
            }
            if read > before {
                self.clocks.data_arrived();
            }
        }
        self.send.request_look();
        if let Err(error) = result {
            return self.fail(now, error.code(), error.to_string());
        }
        if over && stream.dir() == Dir::Bi {
            self.act(now);
            self.end_stream(stream);
        }
        if self.inbox.is_readable() && self.events.back() != Some(&Event::Readable) {
            self.events.push_back(Event::Readable);
        }
    }

    /// Performs the actions that the inbox requests.
    pub(super) fn act(&mut self, now: Time) {
        while let Some(action) = self.inbox.poll() {
            match action {
                Action::Stop { stream } => {
                    let settled = VarInt::from_u64(ErrorCode::Settled.get()).unwrap_or_default();
                    if let Some(stream) = engine_stream(stream) {
                        let _ = self.conn.recv_stream(stream).stop(settled);
                        self.unread.retain(|waiting| *waiting != stream);
                    }
                    self.send.request_look();
                }
                Action::Done { stream, message } => {
                    let frame = Frame::Done { id: message };
                    match engine_stream(stream).filter(|stream| stream.dir() == Dir::Bi) {
                        Some(stream) => self.note(Some(stream), frame),
                        None => self.write_control(frame),
                    }
                }
                Action::Acknowledged { stream, .. } => {
                    if let Some(stream) = engine_stream(stream) {
                        self.acknowledged_by_done(now, stream);
                    }
                }
                Action::Reported { message, fate } => {
                    let message = self.reports.take(message);
                    self.events.push_back(Event::Reported { message, fate });
                }
                Action::Ended { exchange, reason } => {
                    self.events.push_back(Event::ExchangeEnded { exchange, reason });
                }
                Action::Finished => self.events.push_back(Event::Finished),
                Action::Held { priority, held } => {
                    self.credit.hold(priority, held);
                    self.send.request_look();
                }
                Action::Watched { interval } => self.clocks.watch(interval),
                Action::Clock { time } => self.clocks.heard(now, time),
                Action::Reset { message, code } => {
                    self.events.push_back(Event::GivenUp { message, code });
                }
            }
        }
    }
}

/// Returns the end of a session that the peer's code or the engine's reason explains.
fn closed_by(cause: Cause, reason: &str, code: Option<u64>) -> Closed {
    match code {
        Some(code) if code == ErrorCode::NoError.get() => Closed::ByPeer(CloseReason::default()),
        code => match code.and_then(ErrorCode::application) {
            Some((manner, code)) => CloseReason::received(code, reason.as_bytes()).of_peer(manner),
            None => Closed::lost(cause, reason),
        },
    }
}

/// Converts a stream number to the engine's identifier.
fn engine_stream(number: u64) -> Option<StreamId> {
    VarInt::from_u64(number).ok().map(StreamId::from)
}
