//! The authors' testbed, where it is not what the paper's text alone says.
//!
//! Their program and the paper's own numbers tell of these; none of them has to do with who answers congestion, and
//! together they decide the sign of half of Fig. 5:
//!
//! - Frames take 24 bytes more on Gigabit Ethernet than the shaper counts, so that a shaper of 1000 Mbit/s is no
//!   bottleneck there, and the baseline's queue hardly ever has a packet to signal to.
//! - The box has one port to both servers, so a switch stands before it, and that is where traffic meets that together is
//!   more than a gigabit per second.
//! - iperf3 sends its UDP by a clock of 1 ms: 62 kB at once, at the speed of the wire. TCP sends in bursts as well, since
//!   segmentation offload is never switched off.
//! - TCP has Linux's buffers, since no setting of a host is changed: a window of 3 MiB, which over 100 ms is 251 Mbit/s. The
//!   paper's completion times at 100 ms can be read off its scores up to one factor, and are nearly all the same.

use marcato_units::{Bytes, Duration, Rate};

use super::published::LINK;

/// What Ethernet adds to an IP packet on the wire: a header of 14 bytes, a check sequence of 4, a preamble of 8 and a gap
/// of 12.
pub(super) const WIRE: Bytes = Bytes::new(38);
/// The clock by which iperf3 sends unless told otherwise: <https://github.com/esnet/iperf/issues/565>.
pub(super) const IPERF3_TICK: Duration = Duration::from_millis(1);
/// How much later than it asked Linux wakes a process, at most and unless told otherwise: `prctl(2)`, PR_SET_TIMERSLACK.
pub(super) const TIMER_SLACK: Duration = Duration::from_micros(50);

/// The machines and what is between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Testbed {
    /// The rate of each port.
    pub(super) wire: Rate,
    /// What the switch holds for the port to the box.
    pub(super) port_buffer: Bytes,
    /// The longest burst of TCP.
    pub(super) offload: Bytes,
    /// TCP's buffers.
    pub(super) send_buffer: Bytes,
    /// As far as it is offered.
    pub(super) receive_window: Bytes,
    /// What QUIC may have under way. Of picoquic's nothing is known; without a bound, slow start would fill the sender's own
    /// queue, which here stops nobody where Linux stops a socket.
    pub(super) quic_window: Bytes,
}

impl Testbed {
    /// That of Fig. 5.
    ///
    /// The switch is unknown. Its buffer was chosen once, so that CUBIC beside UDP in the CoDel baseline at 5 ms takes
    /// about as long as the scores of its row imply (29.5 s: one of 480 Mbit/s at most that is called 0.43): of 192, 96, 80,
    /// 64 and 48 kB, it was 48 that came nearest, with 32 s. Eight-port switches divide 128 to 512 kB. The report has rows
    /// for other buffers.
    pub(super) const AUTHORS: Self = Self {
        wire: LINK,
        port_buffer: Bytes::kb(48),
        // Linux: the largest packet that IP can name.
        offload: Bytes::new(65_536),
        // Linux: tcp_wmem, and tcp_rmem of which half is window.
        send_buffer: Bytes::new(4 << 20),
        receive_window: Bytes::new(3 << 20),
        quic_window: Bytes::new(3 << 20),
    };
}
