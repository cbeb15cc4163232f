//! What comes in: datagrams, timeouts, and what the engine makes of them.

use super::*;

/// The error code of a path that is given up because nothing comes back on it (draft-ietf-quic-multipath).
const PATH_UNSTABLE_OR_POOR: u32 = 0x3e76;
/// Addresses of which nothing is known yet that are remembered.
const MAX_ARRIVALS: usize = 16;
/// How long after an address has changed the engine may go back to the old one (three PTOs at most, generously).
const MOVE: Duration = Duration::from_secs(10);

impl Session {
    /// The engine has a datagram for this session; it came in on `socket` from `remote`.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        socket: SocketId,
        remote: SocketAddr,
        event: noq_proto::ConnectionEvent,
    ) {
        if self.lanes.to(remote).is_none_or(|lane| lane.socket != socket) {
            self.arrived_from(now, socket, remote);
        }
        self.conn.handle_event(event);
        self.after_engine(now);
    }

    /// A session that a peer has begun: what its first datagram has led to.
    pub(crate) fn begun(&mut self, now: Time, socket: SocketId, remote: SocketAddr) {
        self.arrived_from(now, socket, remote);
        self.after_engine(now);
    }

    /// The endpoint has something for the engine that is no datagram.
    pub(crate) fn handle_internal(&mut self, now: Time, event: noq_proto::ConnectionEvent) {
        self.conn.handle_event(event);
        self.after_engine(now);
    }

    pub(crate) fn poll_endpoint_event(&mut self) -> Option<noq_proto::EndpointEvent> {
        self.conn.poll_endpoint_events()
    }

    /// What was waited for may have come.
    pub(crate) fn handle_timeout(&mut self, now: Time) {
        let instant = self.clock.instant(now);
        if self.conn.poll_timeout().is_some_and(|at| at <= instant) {
            self.conn.handle_timeout(instant);
            self.after_engine(now);
        }
        self.look_for_stalls(now);
        self.wake = self.wake.filter(|&at| at > now);
    }

    /// When to call [`handle_timeout`](Self::handle_timeout), if nothing else comes first.
    pub(crate) fn next_timeout(&self) -> Option<Time> {
        let engine = self.conn.poll_timeout().map(|at| self.clock.time(at));
        let stalls = self.lanes.iter().filter_map(|lane| lane.stalls_at(self.config.stall)).min();
        let silent = self.lanes.iter().filter_map(Lane::silent_since).min();
        let given_up = silent.zip(self.config.lane_idle_timeout).map(|(since, span)| since + span);
        let lanes = [stalls, given_up].into_iter().flatten().min();
        [engine, lanes.filter(|_| !self.closed), self.wake].into_iter().flatten().min()
    }

    fn arrived_from(&mut self, now: Time, socket: SocketId, remote: SocketAddr) {
        self.arrivals.retain(|(known, _)| *known != remote);
        if self.arrivals.len() == MAX_ARRIVALS {
            self.arrivals.pop_front();
        }
        self.arrivals.push_back((remote, socket));
        self.moving_until = now + MOVE;
    }

    /// The socket by which packets to this address leave: that of its lane, or where packets from it came in.
    pub(super) fn socket_to(&self, remote: SocketAddr) -> Option<SocketId> {
        let lane = self.lanes.to(remote).map(|lane| lane.socket);
        lane.or_else(|| self.arrivals.iter().rev().find(|(known, _)| *known == remote).map(|known| known.1))
    }

    /// Whatever was done to the engine: reads off what has come of it.
    pub(super) fn after_engine(&mut self, now: Time) {
        self.flush = true;
        for lane in self.lanes.iter_mut() {
            lane.paused = false;
        }
        self.drain(now, None, Load::Other);
        while let Some(event) = self.conn.poll() {
            self.engine_event(now, event);
        }
        if now < self.moving_until {
            self.follow_moves();
        }
        if self.confirmed {
            self.open_lanes(now);
        }
        self.act(now);
        self.write_notes();
        if self.config.pacing != Pacing::Off {
            for lane in self.lanes.iter_mut() {
                lane.pace(now);
            }
        }
    }

    /// Reads the gates' logs. Packets that left on `on` carried `load`; on other lanes, nothing of ours.
    pub(super) fn drain(&mut self, now: Time, on: Option<LaneId>, load: Load) -> usize {
        let mut happenings = std::mem::take(&mut self.happenings);
        let mut sent = 0;
        for id in (0..).map_while(LaneId::new) {
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            lane.gate.drain(&mut happenings);
            let mut heard = false;
            for happening in happenings.drain(..) {
                match happening {
                    Happening::Sent { pn, bytes } => {
                        let meant = on == Some(id);
                        sent += usize::from(meant);
                        let load = if meant { load } else { Load::Other };
                        lane.sent(now, pn, bytes, load);
                        lane.pacer.sent(now, Bytes::from(u32::from(bytes)));
                    }
                    Happening::Acked { pn, bytes } => {
                        lane.heard(now);
                        lane.settle(pn, bytes);
                        heard = true;
                        lane.stats.acked += Bytes::new(bytes);
                        self.scheduler.acked(now, id, Bytes::new(bytes));
                        if lane.state == LaneState::Stalled {
                            lane.state = LaneState::Up;
                            self.events.push_back(Event::LaneRecovered(id));
                        }
                    }
                    Happening::Lost { pn, bytes } => {
                        lane.stats.lost += 1;
                        self.scheduler.lost(now, id);
                        match lane.settle(pn, u64::from(bytes)) {
                            Some(Load::Run { key, priority, pinned, .. }) => {
                                if self.outbox.get(key).is_some() {
                                    lane.owed.push_back(Owed { priority, pinned });
                                }
                            }
                            Some(Load::Repair { priority, pinned }) => {
                                lane.owed.push_back(Owed { priority, pinned });
                            }
                            Some(Load::Other) | None => {}
                        }
                    }
                    Happening::Window { at, change, window } => {
                        lane.stats.reductions += u64::from(change == crate::event::WindowChange::Reduced);
                        if self.config.trace_windows {
                            let (at, window) = (self.clock.time(at), Bytes::new(window));
                            self.events.push_back(Event::Window { lane: id, at, change, window });
                        }
                    }
                }
            }
            if heard && let Some(srtt) = self.conn.rtt(lane.path) {
                lane.srtt = srtt;
            }
        }
        self.happenings = happenings;
        sent
    }

    fn engine_event(&mut self, now: Time, event: EngineEvent) {
        match event {
            EngineEvent::Connected => {
                self.established = true;
                self.events.push_back(Event::Connected);
            }
            EngineEvent::HandshakeConfirmed => self.confirmed = true,
            EngineEvent::ConnectionLost { reason } => {
                self.closed = true;
                self.events.push_back(Event::Closed { reason: reason.to_string() });
            }
            EngineEvent::Stream(event) => self.stream_event(now, event),
            EngineEvent::Path(event) => self.path_event(now, event),
            EngineEvent::HandshakeDataReady
            | EngineEvent::DatagramReceived
            | EngineEvent::DatagramsUnblocked
            | EngineEvent::NatTraversal(_) => {}
        }
    }

    fn stream_event(&mut self, now: Time, event: StreamEvent) {
        match event {
            StreamEvent::Opened { dir } => {
                while let Some(stream) = self.conn.streams().accept(dir) {
                    self.read_stream(now, stream);
                }
            }
            StreamEvent::Readable { id } => self.read_stream(now, id),
            StreamEvent::Writable { .. } | StreamEvent::Available { .. } => {
                self.blocked = PrioritySet::EMPTY;
            }
            StreamEvent::Finished { id } => self.acknowledged(now, id),
            StreamEvent::Stopped { id, error_code } => {
                let Some(key) = self.outbox.carried_by(id) else { return };
                self.settled(now, key, error_code.into_inner() == ErrorCode::Settled.get());
            }
        }
    }

    /// A stream and its end have been acknowledged.
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

    /// The receiver wants no more of the message on this stream, which may carry another from now on.
    fn acknowledged_by_done(&mut self, now: Time, stream: StreamId) {
        if let Some(key) = self.outbox.carried_by(stream) {
            self.settled(now, key, true);
        }
        self.outbox.done(stream);
        self.blocked = PrioritySet::EMPTY;
    }

    /// The receiver has all of a message, or wants no more of it.
    pub(super) fn settled(&mut self, now: Time, key: Key, complete: bool) {
        let Some(message) = self.outbox.remove(key) else { return };
        for carrier in message.carriers {
            // A stream that may be used again is not reset if all of its message has been written to it.
            let whole = carrier.role != Role::Repair && carrier.written == carrier.run.end;
            if self.config.streams == StreamUse::Reuse && complete && whole {
                self.outbox.await_done(carrier.stream);
            } else {
                self.reset(carrier.stream, ErrorCode::Settled);
            }
        }
        if !message.fed {
            // The rest need not be sent. That it is gone is no news to the scheduler alone.
            let _ = self.conductor.cancel(message.id);
            self.conductor.observer_mut().0.clear();
            self.scheduler.message_complete(now, message.id.get());
        }
        let event = if complete { Event::Delivered(message.id) } else { Event::Declined(message.id) };
        self.events.push_back(event);
    }

    pub(super) fn read_stream(&mut self, now: Time, stream: StreamId) {
        if !self.inbox.wants_data() {
            if !self.unread.contains(&stream) {
                self.unread.push_back(stream);
            }
            return;
        }
        let number = u64::from(stream);
        let mut result = Ok(());
        {
            let mut source = self.conn.recv_stream(stream);
            // Read out of order, each byte is read once: at its end, what was read is how long it is.
            let Ok(mut read) = source.bytes_read() else { return };
            // Out of order: what waits for a gap would count as one more of the gaps that the engine allows.
            let Ok(mut chunks) = source.read(false) else { return };
            while result.is_ok() {
                match chunks.next(usize::MAX) {
                    Ok(Some(chunk)) => {
                        read += chunk.bytes.len() as u64;
                        result = self.inbox.stream_data(number, chunk.offset, chunk.bytes);
                    }
                    Ok(None) => {
                        result = self.inbox.stream_finished(number, read);
                        break;
                    }
                    Err(ReadError::Blocked) => break,
                    Err(ReadError::Reset(_)) => {
                        result = self.inbox.stream_reset(number);
                        break;
                    }
                }
            }
            let _ = chunks.finalize();
        }
        self.flush = true;
        if let Err(error) = result {
            let code = error.code();
            let reason = error.to_string();
            self.conn.close(
                self.clock.instant(now),
                VarInt::from_u64(code.get()).unwrap_or_default(),
                Payload::copy_from_slice(reason.as_bytes()),
            );
            self.closed = true;
            self.events.push_back(Event::Closed { reason });
            return;
        }
        if self.inbox.load().unread_pieces > 0 && self.events.back() != Some(&Event::Readable) {
            self.events.push_back(Event::Readable);
        }
    }

    /// Does what the inbox asks for.
    pub(super) fn act(&mut self, now: Time) {
        while let Some(action) = self.inbox.poll() {
            match action {
                Action::Stop { stream } => {
                    let settled = VarInt::from_u64(ErrorCode::Settled.get()).unwrap_or_default();
                    if let Some(stream) = engine_stream(stream) {
                        let _ = self.conn.recv_stream(stream).stop(settled);
                        self.unread.retain(|waiting| *waiting != stream);
                    }
                    self.flush = true;
                }
                Action::Done { stream, message } => {
                    let frame = Frame::Done { id: message };
                    match engine_stream(stream).filter(|stream| stream.dir() == Dir::Bi) {
                        Some(stream) => self.note(stream, frame),
                        None => self.tell(frame),
                    }
                }
                Action::Acknowledged { stream, .. } => {
                    if let Some(stream) = engine_stream(stream) {
                        self.acknowledged_by_done(now, stream);
                    }
                }
                Action::Reset { message, code } => {
                    self.events.push_back(Event::GivenUp { message, code });
                }
            }
        }
    }
}

/// The engine's name of a stream.
fn engine_stream(number: u64) -> Option<StreamId> {
    VarInt::from_u64(number).ok().map(StreamId::from)
}

/// Lanes come and go.
impl Session {
    /// Makes a lane of a path of the engine.
    pub(super) fn adopt(
        &mut self,
        now: Time,
        path: noq_proto::PathId,
        number: u32,
        request: LaneRequest,
        state: LaneState,
    ) -> Option<LaneId> {
        let gate = self.conn.congestion_state(path).and_then(Gated::gate_of)?;
        let id = self.lanes.vacant()?;
        if let Some(congestion) = request.congestion {
            gate.replace(self.clock.instant(now), congestion, self.config.initial_window);
        }
        let mut lane = Lane::new(id, path, number, gate, request, state, now);
        lane.srtt = self.conn.rtt(path).unwrap_or(self.config.initial_rtt);
        lane.pace(now);
        self.lanes.insert(lane);
        Some(id)
    }

    /// Opens the lanes that were asked for, as far as the peer has given us the means.
    pub(super) fn open_lanes(&mut self, now: Time) {
        if !self.confirmed || self.closed {
            return;
        }
        while let Some(request) = self.requests.pop_front() {
            let tuple = FourTuple::new(request.remote, self.sockets.ip(request.socket));
            let status = if request.backup { PathStatus::Backup } else { PathStatus::Available };
            match self.conn.open_path(tuple, status, self.clock.instant(now)) {
                Ok(path) => {
                    let number = self.number_of(path);
                    self.adopt(now, path, number, request, LaneState::Opening);
                    self.flush = true;
                }
                // The peer has yet to tell us connection IDs, or will allow more paths when one is closed.
                Err(PathError::RemoteCidsExhausted | PathError::MaxPathIdReached) => {
                    self.requests.push_front(request);
                    return;
                }
                Err(error) => {
                    let reason = LaneLoss::Refused(error.to_string());
                    self.events.push_back(Event::LaneDown { lane: None, reason });
                }
            }
        }
    }

    /// The number of a path. The engine keeps it to itself, but makes names from numbers, and they count up.
    fn number_of(&self, path: noq_proto::PathId) -> u32 {
        let from = self.lanes.iter().map(|lane| lane.number).max().unwrap_or(0);
        (from..from.saturating_add(256))
            .find(|number| noq_proto::PathId::from(*number) == path)
            .unwrap_or(from)
    }

    fn path_event(&mut self, now: Time, event: PathEvent) {
        match event {
            PathEvent::Established { id, .. } => {
                let known = self.lanes.of_path(id).or_else(|| self.adopt_peers(now, id));
                if let Some(lane) = known.and_then(|lane| self.lanes.get_mut(lane)) {
                    lane.state = LaneState::Up;
                    self.events.push_back(Event::LaneUp(lane.id));
                }
            }
            PathEvent::Abandoned { id, reason, .. } => {
                let reason = match reason {
                    PathAbandonReason::ApplicationClosed { .. } => LaneLoss::Closed,
                    PathAbandonReason::RemoteAbandoned { .. } => LaneLoss::ClosedByPeer,
                    _ => LaneLoss::Silent,
                };
                let lane = self.lanes.of_path(id);
                if let Some(lane) = lane {
                    // The engine will send again what was under way, but only after three PTOs.
                    self.give_up_on(lane, LaneState::Closing);
                }
                self.events.push_back(Event::LaneDown { lane, reason });
            }
            PathEvent::Discarded { id, .. } => {
                if let Some(lane) = self.lanes.of_path(id) {
                    self.lanes.remove(lane);
                }
            }
            PathEvent::RemoteStatus { id, status, .. } => {
                if let Some(lane) = self.lanes.of_path(id) {
                    let backup = status == PathStatus::Backup;
                    self.events.push_back(Event::LaneBackup { lane, backup });
                }
            }
            _ => {}
        }
    }

    /// A path that the peer has opened becomes a lane, of the layer that its socket has.
    fn adopt_peers(&mut self, now: Time, path: noq_proto::PathId) -> Option<LaneId> {
        let remote = self.remote_of(path)?;
        let socket = self.socket_to(remote)?;
        let request = self.sockets.request(socket, remote);
        let number = self.number_of(path);
        self.adopt(now, path, number, request, LaneState::Up)
    }

    fn remote_of(&self, path: noq_proto::PathId) -> Option<SocketAddr> {
        self.conn.network_path(path).ok().map(|tuple| tuple.remote())
    }

    /// Looks whether paths have other addresses, and so perhaps other controllers, than they had.
    fn follow_moves(&mut self) {
        for id in (0..).map_while(LaneId::new) {
            let Some(path) = self.lanes.get(id).map(|lane| lane.path) else { continue };
            let Some(remote) = self.remote_of(path) else { continue };
            let socket = self.socket_to(remote);
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            lane.socket = socket.unwrap_or(lane.socket);
            if lane.remote == remote {
                continue;
            }
            if let Some(gate) = self.conn.congestion_state(path).and_then(Gated::gate_of) {
                lane.gate = gate;
            }
            // What was sent before will be acknowledged, but the controller is not told.
            lane.forget_sent();
            lane.remote = remote;
            self.events.push_back(Event::LaneMoved(id));
        }
    }

    fn look_for_stalls(&mut self, now: Time) {
        for id in (0..).map_while(LaneId::new) {
            let Some(lane) = self.lanes.get(id) else { continue };
            let silent = lane.silent_since().zip(self.config.lane_idle_timeout);
            if silent.is_some_and(|(since, span)| since + span <= now) {
                // The engine's own timeout would also take a lane that is well but carries data one way only: what
                // acknowledges it comes back on another.
                let path = lane.path;
                let unstable = VarInt::from_u32(PATH_UNSTABLE_OR_POOR);
                if self.conn.close_path(self.clock.instant(now), path, unstable).is_ok() {
                    self.after_engine(now);
                } else if let Some(lane) = self.lanes.get_mut(id) {
                    // It is the last.
                    lane.heard(now);
                }
                continue;
            }
            if lane.stalls_at(self.config.stall).is_none_or(|at| at > now) {
                continue;
            }
            let other = self.lanes.iter().any(|lane| lane.id != id && lane.is_usable());
            let Some(lane) = self.lanes.get_mut(id) else { continue };
            if other {
                lane.stats.stalls += 1;
                self.give_up_on(id, LaneState::Stalled);
                self.events.push_back(Event::LaneStalled(id));
            } else {
                // There is nowhere else to go. The engine's own probes go on.
                lane.heard(now);
            }
        }
    }

    /// Sends elsewhere what is stuck on a lane. The engine itself would leave it there as long as the path exists.
    fn give_up_on(&mut self, id: LaneId, state: LaneState) {
        let Some(lane) = self.lanes.get_mut(id) else { return };
        lane.state = state;
        let mut stuck: Vec<(Key, Run, Priority)> = lane.unheard().collect();
        for (key, run, priority) in stuck.drain(..) {
            if self.outbox.get(key).is_none() {
                continue;
            }
            // Packets of one batch name the same run, and neighbours may go together.
            match self.repairs.back_mut() {
                Some(last) if last.key == key && last.stream.is_none() && run.start <= last.run.end => {
                    last.run.end = last.run.end.max(run.end);
                }
                _ => self.repairs.push_back(Repair { key, run, priority, lost_on: id, stream: None }),
            }
        }
    }
}
