//! The authors' testbed, where it differs from the paper's text.
//!
//! These differences follow from the authors' program and the paper's own numbers. None of them
//! concerns the response to congestion, but together they decide the sign of half of Fig. 5:
//!
//! - Frames take 24 bytes more on Gigabit Ethernet than the shaper counts. So a shaper of 1000
//!   Mbit/s is no bottleneck there, and the baseline's queue hardly ever has a packet to signal to.
//! - The box has one port to both servers, so a switch stands before it. Traffic of together more
//!   than a gigabit per second meets there.
//! - iperf3 sends its UDP by a clock of 1 ms: 62 kB at once, at line rate. TCP sends in bursts as
//!   well, since segmentation offload is never switched off.
//! - TCP has Linux's buffers, since no setting of a host is changed: a window of 3 MiB, which over
//!   100 ms is 251 Mbit/s. The paper's scores give its completion times at 100 ms up to one factor,
//!   and they are nearly all equal.

use marcato_units::{Bytes, Duration, Rate};

use super::published::LINK;

/// Bytes that Ethernet adds to an IP packet on the wire. The header has 14, the check sequence 4,
/// the preamble 8 and the gap 12.
pub(super) const WIRE: Bytes = Bytes::new(38);
/// Default clock by which iperf3 sends: <https://github.com/esnet/iperf/issues/565>.
pub(super) const IPERF3_TICK: Duration = Duration::from_millis(1);
/// Largest delay by default with which Linux wakes a process: `prctl(2)`, PR_SET_TIMERSLACK.
pub(super) const TIMER_SLACK: Duration = Duration::from_micros(50);

/// The machines and the switch between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Testbed {
    /// Rate of each port.
    pub(super) wire: Rate,
    /// Buffer of the switch for the port to the box.
    pub(super) port_buffer: Bytes,
    /// Longest burst of TCP.
    pub(super) offload: Bytes,
    /// Send buffer of TCP.
    pub(super) send_buffer: Bytes,
    /// Largest receive window that TCP advertises.
    pub(super) receive_window: Bytes,
    /// Largest amount of QUIC data in flight. Picoquic's limit is unknown. Without one, slow start
    /// would fill the sender's own queue, which does not block the sender here as Linux blocks a
    /// socket.
    pub(super) quic_window: Bytes,
}

impl Testbed {
    /// Testbed of Fig. 5.
    ///
    /// The switch is unknown. Its buffer was chosen once, from the time that CUBIC takes with UDP
    /// in the CoDel baseline at 5 ms. The scores of its row imply about 29.5 s: a transfer at 480
    /// Mbit/s or less under CRQ has a score of 0.43. Of 192, 96, 80, 64 and 48 kB, 48 came nearest,
    /// with 32 s. Eight-port switches divide 128 to 512 kB. The report has rows for other buffers.
    pub(super) const AUTHORS: Self = Self {
        wire: LINK,
        port_buffer: Bytes::kb(48),
        // Linux: the largest packet length of IP.
        offload: Bytes::new(65_536),
        // Linux: tcp_wmem, and tcp_rmem of which half is window.
        send_buffer: Bytes::new(4 << 20),
        receive_window: Bytes::new(3 << 20),
        quic_window: Bytes::new(3 << 20),
    };
}
