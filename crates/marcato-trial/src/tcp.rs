//! TCP flow: two ends on sockets of the kernel, each with an application of the simulator.

use std::io;

use marcato_link::{DelaySummary, Histogram};
use marcato_sim::{App, ByteStream as _, FlowStreams, FlowSummary, Ledger, Reception, Side, Socket};
use marcato_units::{Bytes, Seed, Time};

use crate::kernel_tcp::{KernelTcp, is_reset};

/// Reads of one end before others have their turn.
const READS: usize = 16;

/// One end.
pub(crate) struct End {
    pub(crate) tcp: KernelTcp,
    pub(crate) app: Box<dyn App>,
    /// Labels of the data that this end wrote.
    ledger: Ledger,
    /// Timers that the application has asked for since they were last taken.
    pub(crate) timers: Vec<(Time, u32)>,
    pub(crate) reception: Reception,
    wants_to_write: bool,
    /// Smoothed round-trip times, sampled while the flow is watched.
    rtts: Histogram,
    /// Events that its socket waits for; `None` before it has one.
    pub(crate) interest: Option<rustix::event::epoll::EventFlags>,
}

impl End {
    fn new(app: Box<dyn App>, lowat: Option<Bytes>) -> Self {
        Self {
            tcp: KernelTcp::new(lowat),
            app,
            ledger: Ledger::default(),
            timers: Vec::new(),
            reception: Reception::default(),
            wants_to_write: true,
            rtts: Histogram::default(),
            interest: None,
        }
    }

    fn call(&mut self, now: Time, call: impl FnOnce(&mut dyn App, &mut Socket<'_>)) {
        self.wants_to_write = true;
        let mut socket = Socket::new(now, &mut self.tcp, &mut self.ledger, &mut self.timers);
        call(&mut *self.app, &mut socket);
    }

    /// Lets the application write as long as it does.
    fn pump(&mut self, now: Time) -> io::Result<()> {
        if !self.wants_to_write {
            return self.tcp.flush();
        }
        self.tcp.departed();
        self.tcp.flush()?;
        let mut is_last = false;
        loop {
            while self.wants_to_write && self.tcp.is_writable() {
                let before = self.tcp.write_offset();
                self.call(now, |app, socket| app.writable(socket));
                self.wants_to_write = self.tcp.write_offset() != before;
            }
            if self.wants_to_write || self.tcp.await_departure() || is_last {
                break;
            }
            // Unsent data for which the application held back may have left meanwhile. If it holds back
            // once more, it has nothing to send.
            (self.wants_to_write, is_last) = (true, true);
        }
        self.tcp.set_blocked(self.wants_to_write);
        Ok(())
    }
}

/// Flow of a process that begins and ends during a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spawned {
    pub(crate) process: usize,
    pub(crate) number: u32,
    pub(crate) size: Bytes,
}

/// TCP connection.
pub(crate) struct TcpPair {
    pub(crate) ends: [End; 2],
    pub(crate) start: Time,
    pub(crate) spawned: Option<Spawned>,
    watched: bool,
}

impl TcpPair {
    /// Creates the ends of the flow `name`. Each is writable while less than its `lowat` is unsent.
    pub(crate) fn new(
        apps: [Box<dyn App>; 2],
        lowats: [Option<Bytes>; 2],
        (name, seed): (&str, Seed),
        start: Time,
        spawned: Option<Spawned>,
    ) -> Self {
        let [client, server] = apps;
        let mut ends = [End::new(client, lowats[0]), End::new(server, lowats[1])];
        for (end, side) in ends.iter_mut().zip([Side::Client, Side::Server]) {
            end.app.named(&FlowStreams::new(seed, name, side));
        }
        Self { ends, start, spawned, watched: false }
    }

    /// Begins the flow at both applications.
    pub(crate) fn begin(&mut self, now: Time) {
        self.ends.iter_mut().for_each(|end| end.call(now, |app, socket| app.start(socket)));
    }

    /// Handles the establishment of an end's connection.
    pub(crate) fn connected(&mut self, now: Time, side: usize) {
        let end = &mut self.ends[side];
        end.tcp.connected();
        end.reception.connected_at = Some(now);
        end.call(now, |app, socket| app.connected(socket));
        self.work(now, side);
    }

    /// Handles a handshake that has failed.
    pub(crate) fn failed(&mut self, now: Time, error: &io::Error) {
        let end = &mut self.ends[0];
        end.tcp.abort();
        if is_reset(error) {
            end.reception.reset_at = Some(now);
            end.call(now, |app, socket| app.reset(socket));
        } else {
            end.reception.failed_at = Some(now);
            end.call(now, |app, socket| app.failed(socket));
        }
    }

    /// Handles a timer of an application.
    pub(crate) fn timer(&mut self, now: Time, side: usize, token: u32) {
        self.ends[side].call(now, |app, socket| app.timer(token, socket));
        self.work(now, side);
    }

    /// Reads what has arrived at an end.
    pub(crate) fn readable(&mut self, now: Time, side: usize, buffer: &mut [u8]) {
        for _ in 0..READS {
            match self.ends[side].tcp.read(buffer) {
                Ok(Some(0)) => {
                    let end = &mut self.ends[side];
                    end.tcp.end();
                    end.reception.finished_at = Some(now);
                    end.call(now, |app, socket| app.finished(socket));
                    break;
                }
                Ok(Some(len)) => self.received(now, side, len),
                Ok(None) => break,
                Err(_) => {
                    self.broken(now, side);
                    break;
                }
            }
        }
        self.work(now, side);
    }

    /// Hands `bytes` to the application, split by the labels under which they were written.
    fn received(&mut self, now: Time, side: usize, bytes: u64) {
        let [client, server] = &mut self.ends;
        let (end, peer) = if side == 0 { (client, server) } else { (server, client) };
        end.reception.first_at.get_or_insert(now);
        end.reception.last_at = Some(now);
        let mut at = end.reception.bytes.get();
        let upto = at + bytes;
        end.reception.bytes = Bytes::new(upto);
        while at < upto {
            let Some((tag, piece)) = peer.ledger.take(at, upto) else { break };
            at += piece.get();
            end.call(now, |app, socket| app.received(tag, piece, socket));
        }
    }

    fn broken(&mut self, now: Time, side: usize) {
        let end = &mut self.ends[side];
        end.tcp.look();
        end.tcp.abort();
        end.reception.reset_at = Some(now);
        end.call(now, |app, socket| app.reset(socket));
    }

    /// Lets an end write all that it may.
    pub(crate) fn work(&mut self, now: Time, side: usize) {
        if self.ends[side].pump(now).is_err() {
            self.broken(now, side);
        }
    }

    /// Lets an end write after its socket has got room.
    pub(crate) fn writable(&mut self, now: Time, side: usize) {
        self.ends[side].wants_to_write = true;
        self.work(now, side);
    }

    /// Samples the measurements of the kernel.
    pub(crate) fn look(&mut self) {
        for end in &mut self.ends {
            end.tcp.look();
            if self.watched
                && end.tcp.is_connected()
                && let Some(srtt) = end.tcp.last().srtt
            {
                end.rtts.record(srtt);
            }
        }
    }

    /// Begins to record round-trip times.
    pub(crate) fn watch(&mut self) {
        self.watched = true;
    }

    /// Returns true once both directions of both ends have ended.
    pub(crate) fn is_over(&self) -> bool {
        self.ends.iter().all(|end| end.tcp.is_over())
    }

    /// Returns true if the kernel has reset or given up the connection.
    pub(crate) fn is_broken(&self) -> bool {
        let is = |end: &End| end.reception.reset_at.is_some() || end.reception.failed_at.is_some();
        self.ends.iter().any(is)
    }

    pub(crate) fn summary(&self, from: Side) -> FlowSummary {
        let (end, peer) = (&self.ends[from as usize], &self.ends[from.peer() as usize]);
        let stats = end.tcp.last();
        FlowSummary {
            start: self.start,
            bytes: peer.reception.bytes,
            first_at: peer.reception.first_at,
            last_at: peer.reception.last_at,
            completion: peer.reception.finished_at.and(peer.reception.last_at).map(|last| last - self.start),
            segments: stats.segments_sent,
            retransmissions: stats.retransmissions,
            timeouts: stats.timeouts,
            rtt: DelaySummary::of(&end.rtts),
            ..FlowSummary::default()
        }
    }
}
