//! Kernel's TCP as a byte stream of the simulator's applications.
//!
//! It sends zeros: applications count bytes, and labels of messages travel in the process, which has both
//! ends. In the simulator an application that has left room is asked again after each acknowledgement. The
//! kernel reports only that a watermark is passed, so the watermark follows the unsent bytes down.

use std::io::{self, ErrorKind};
use std::net::Shutdown;

use marcato_net::TcpInfo;
use marcato_sim::tcp::congestion::LossState;
use marcato_sim::{ByteStream, TcpStats};
use marcato_units::{Bytes, Priority};
use rustix::event::epoll::EventFlags;
use socket2::Socket;

/// Content of all data. Applications of the simulator count bytes, and do not look at them.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
/// Bytes that the stream takes beyond those that the kernel has room for.
const ROOM: u64 = 256 << 10;

/// One end of a connection of the kernel.
pub(crate) struct KernelTcp {
    socket: Option<Socket>,
    connected: bool,
    /// Stream offset one beyond the last byte written.
    written: u64,
    /// Bytes written that the kernel has not taken yet.
    pending: u64,
    /// Unsent bytes below which the stream is writable.
    lowat: Option<Bytes>,
    /// Set while the socket reports room as soon as any of its unsent bytes have left.
    awaits_departure: bool,
    /// Set while the application would write more than the stream takes.
    is_blocked: bool,
    closing: bool,
    /// Set once the kernel knows that no more data comes.
    shut: bool,
    reading: bool,
    /// Most that one read takes.
    most_read: usize,
    /// Set once the other end's stream has ended, or the connection was reset.
    ended: bool,
    /// Measurements when the socket was last looked at.
    last: TcpStats,
    segments_out: u64,
}

impl KernelTcp {
    /// Creates an end that has no socket yet.
    pub(crate) fn new(lowat: Option<Bytes>) -> Self {
        Self {
            socket: None,
            connected: false,
            written: 0,
            pending: 0,
            lowat,
            awaits_departure: false,
            is_blocked: false,
            closing: false,
            shut: false,
            reading: true,
            most_read: usize::MAX,
            ended: false,
            last: TcpStats::default(),
            segments_out: 0,
        }
    }

    /// Gives the end its socket.
    pub(crate) fn attach(&mut self, socket: Socket) {
        self.socket = Some(socket);
    }

    pub(crate) const fn socket(&self) -> Option<&Socket> {
        self.socket.as_ref()
    }

    /// Drops the socket after a last look at its measurements.
    pub(crate) fn release(&mut self) {
        self.look();
        self.socket = None;
    }

    pub(crate) const fn is_connected(&self) -> bool {
        self.connected
    }

    /// Records that the handshake is complete.
    pub(crate) const fn connected(&mut self) {
        self.connected = true;
    }

    /// Records that the other end's stream has ended.
    pub(crate) const fn end(&mut self) {
        self.ended = true;
    }

    /// Returns true once both directions have ended.
    pub(crate) const fn is_over(&self) -> bool {
        self.ended && self.shut
    }

    /// Events that the end waits for.
    pub(crate) fn interest(&self) -> EventFlags {
        let mut interest = EventFlags::empty();
        if self.connected && !self.ended && self.reading {
            interest |= EventFlags::IN;
        }
        // Data may have left since the application was asked last, so the watermark decides nothing here.
        let waits = self.pending > 0 || self.awaits_departure || self.is_blocked;
        if !self.connected || !self.shut && waits {
            interest |= EventFlags::OUT;
        }
        interest
    }

    /// Hands what waits to the kernel, as far as it takes it.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(socket) = self.socket.as_ref().filter(|_| self.connected && !self.shut) else {
            return Ok(());
        };
        while self.pending > 0 {
            let len = usize::try_from(self.pending).unwrap_or(usize::MAX).min(ZEROS.len());
            match rustix::net::send(socket, &ZEROS[..len], rustix::net::SendFlags::NOSIGNAL) {
                Ok(taken) => self.pending -= taken as u64,
                Err(rustix::io::Errno::AGAIN) => return Ok(()),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if self.closing {
            self.shut = true;
            // The peer may have reset the connection in the meantime, which reading reports.
            let _ = socket.shutdown(Shutdown::Write);
        }
        Ok(())
    }

    /// Has the socket report room once any of its unsent bytes have left, if there are some. In the
    /// simulator, an application that has left room is asked again after each acknowledgement; the
    /// kernel reports only that a watermark is passed. Returns whether it will report.
    pub(crate) fn await_departure(&mut self) -> bool {
        let unsent = self.unsent();
        let Some(socket) = self.socket.as_ref().filter(|_| self.connected && !unsent.is_zero()) else {
            return false;
        };
        let below = u32::try_from(unsent.get()).unwrap_or(u32::MAX);
        self.awaits_departure = socket.set_tcp_notsent_lowat(below).is_ok();
        self.awaits_departure
    }

    /// Records whether the application would write more than the stream takes.
    pub(crate) const fn set_blocked(&mut self, is_blocked: bool) {
        self.is_blocked = is_blocked;
    }

    /// Restores the watermark of the stream.
    pub(crate) fn departed(&mut self) {
        if let Some(socket) = self.socket.as_ref().filter(|_| self.awaits_departure) {
            let lowat = self.lowat.and_then(|lowat| u32::try_from(lowat.get()).ok());
            let _ = socket.set_tcp_notsent_lowat(lowat.unwrap_or(u32::MAX));
        }
        self.awaits_departure = false;
    }

    /// Reads what has arrived into `buffer`, which nobody looks at. Returns the bytes; `None` if nothing has
    /// arrived. 0 is the end of the stream.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<u64>> {
        let Some(socket) = self.socket.as_ref().filter(|_| self.reading && !self.ended) else {
            return Ok(None);
        };
        let most = self.most_read.min(buffer.len());
        match rustix::io::read(socket, &mut buffer[..most]) {
            Ok(len) => Ok(Some(len as u64)),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Takes the measurements of the kernel.
    pub(crate) fn look(&mut self) {
        let Some(info) = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok()) else { return };
        let segments = |count: u32| info.mss * u64::from(count);
        self.segments_out = info.segments_out.into();
        self.last = TcpStats {
            segments_sent: info.data_segments_out.into(),
            retransmissions: info.retransmitted_segments.into(),
            tail_probes: 0,
            timeouts: info.timeouts.into(),
            reductions: 0,
            undone: 0,
            delivered: info.acked,
            cwnd: segments(info.cwnd_segments),
            // The kernel's infinity is 2^31 - 1 segments.
            ssthresh: match info.ssthresh_segments {
                0x7fff_ffff.. => Bytes::MAX,
                count => segments(count),
            },
            in_flight: segments(
                (info.in_flight_segments + info.resent_segments)
                    .saturating_sub(info.sacked_segments + info.lost_segments),
            ),
            unsent: info.unsent + Bytes::new(self.pending),
            lost: segments(info.retransmitted_segments),
            rtt: Some(info.srtt).filter(|srtt| !srtt.is_zero()),
            srtt: Some(info.srtt).filter(|srtt| !srtt.is_zero()),
            // Before the first measurement, the kernel has 2^32 - 1 us.
            min_rtt: Some(info.min_rtt).filter(|least| least.as_micros() < u128::from(u32::MAX)),
            // The kernel tells none.
            peer_stamp: None,
            rto: info.rto,
            pacing_rate: info.pacing_rate,
            state: LossState::Open,
        };
    }

    /// Packets that this end has sent, when it was last looked at.
    pub(crate) const fn segments_out(&self) -> u64 {
        self.segments_out
    }

    /// Measurements when the end was last looked at.
    pub(crate) const fn last(&self) -> TcpStats {
        self.last
    }

    /// Returns the error of a failed handshake, once.
    pub(crate) fn failure(&self) -> Option<io::Error> {
        self.socket.as_ref()?.take_error().ok().flatten()
    }
}

impl ByteStream for KernelTcp {
    fn write(&mut self, len: Bytes, _priority: Priority) -> Bytes {
        let taken = len.min(self.room());
        self.pending += taken.get();
        self.written += taken.get();
        // An error is that of the connection, and the next read reports it.
        let _ = self.flush();
        taken
    }

    fn write_offset(&self) -> u64 {
        self.written
    }

    fn room(&self) -> Bytes {
        let full = self.closing || self.ended && self.shut;
        Bytes::new(if full { 0 } else { ROOM.saturating_sub(self.pending) })
    }

    fn unsent(&self) -> Bytes {
        let kernel = self.socket.as_ref().and_then(|socket| TcpInfo::of(socket).ok());
        Bytes::new(self.pending) + kernel.map_or(Bytes::ZERO, |info| info.unsent)
    }

    fn is_writable(&self) -> bool {
        self.pending == 0 && self.lowat.is_none_or(|lowat| self.unsent() < lowat)
    }

    fn is_established(&self) -> bool {
        self.connected
    }

    fn close(&mut self) {
        self.closing = true;
        let _ = self.flush();
    }

    fn abort(&mut self) {
        // Without lingering, closing the socket resets the connection.
        if let Some(socket) = self.socket.take() {
            let _ = socket.set_linger(Some(std::time::Duration::ZERO));
        }
        (self.closing, self.shut, self.ended, self.pending) = (true, true, true, 0);
    }

    fn set_reading(&mut self, reading: bool) {
        self.reading = reading;
    }

    fn bound_reads(&mut self, most: Bytes) {
        self.most_read = usize::try_from(most.get()).unwrap_or(usize::MAX).max(1);
    }

    fn stats(&self) -> TcpStats {
        self.last
    }
}

/// Returns whether an error ends the connection: the peer has reset or refused it.
pub(crate) fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::BrokenPipe
            | ErrorKind::ConnectionAborted
    )
}
