//! Configuration of PLT.

use marcato_sched::lowprio::{Lcm, LcmConfig, LcmConfigError};
use marcato_units::{Bytes, Duration, Layer, Priority};

use super::ack::MOST_RANGES;
use crate::tcp::Tcp;

/// Configuration of the low layer that PLT adds to an end of TCP.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PltConfig {
    /// Congestion control of the low control module. Its packets and windows count bytes of IP
    /// packets.
    pub lcm: LcmConfig,
    /// Number of retransmissions of a lost packet by the LCM before it leaves the packet to the
    /// HCM. PLT §3.2.1: 0. After a timeout the LCM leaves everything to the HCM, so that a starved
    /// low layer never stalls the stream.
    pub low_retransmissions: u8,
    /// Relief of the HCM by PLT's second footnote: the LCM retransmits its own losses if the HCM's
    /// window is very small against the waiting repairs. The threshold is the waiting bytes divided
    /// by this number. `None` disables it.
    pub relief: Option<u32>,
    /// Layer of the acknowledgements of low packets. PLT §3.2.2: the receiver can choose
    /// [`Layer::Low`].
    pub ack_layer: Layer,
    /// Greatest number of low packets per acknowledgement (PLT §3.2.2), 1 to 4; out-of-order
    /// packets are acknowledged at once.
    pub ack_every: u32,
    /// Greatest delay of an acknowledgement of a low packet.
    pub ack_delay: Duration,
    /// Reordering threshold: a low packet is lost once one sent so many packets later has been
    /// acknowledged. The default is 3, as RFC 6675's DupThresh.
    pub reordering: u32,
    /// Least timeout of the LCM; the paper gives none.
    ///
    /// With the 200 ms of TCP stacks, low packets that only wait for the high layer are marked
    /// lost. The HCM then retransmits what arrives all the same. For short flows that offer 80 % of
    /// a link, this alone adds a sixth of their load. With the second of RFC 6298 §2.4, a long flow
    /// with a short buffer loses 7 % of the link, as it waits so long for what a starved queue has
    /// dropped. Fig. 6 needs the former.
    pub min_rto: Duration,
    /// Least timeout until the first low packet has been acknowledged, if above `min_rto`.
    ///
    /// The handshake shows the distance of the other end, not the time for which low packets wait
    /// behind high ones. A second here helps short flows on a busy link nearly as much as a
    /// `min_rto` of a second, and changes nothing for flows that last. In
    /// `examples/short-flows.toml` the link carries 82.5 % instead of 86.0, and half of the flows
    /// take at most 126 ms instead of 136. The slowest hundredth, whose packets are sent only once,
    /// takes 1.7 s instead of 1.3. It costs a second where the low layer is a black hole.
    pub initial_min_rto: Duration,
    /// Doubles the LCM's timeout while nothing is acknowledged, as TCP does. The timeouts shrink
    /// the window in any case, and a layer starved for long would resume late by up to the same
    /// time.
    pub back_off: bool,
    /// Size of the reassembly buffer at the other end: neither module sends data farther beyond
    /// what the HCM knows to have arrived in order. `None`: the paper's 3·BW·RTT bounds each
    /// module's unacknowledged data, as ns-2's `window_` does, and reassembly is unlimited.
    pub reassembly: Option<Bytes>,
    /// Least urgent priority of new data in the high layer. Less urgent data goes low only, as long
    /// as the low layer's window holds a packet.
    ///
    /// Under a Conductor, this leaves the high layer to urgent data. Less urgent data in the high
    /// layer does not overtake urgent data that had to go low. The HCM repairs losses of any
    /// priority. `None`: the HCM takes all data, as in the paper.
    pub high_for: Option<Priority>,
    /// Records a report of each epoch of the LCM.
    pub log_epochs: bool,
}

impl PltConfig {
    /// Configuration of the paper: no retransmission at the LCM, and a low packet acknowledges
    /// every low packet.
    pub const fn new(lcm: LcmConfig) -> Self {
        Self {
            lcm,
            low_retransmissions: 0,
            relief: None,
            ack_layer: Layer::Low,
            ack_every: 1,
            ack_delay: Duration::from_millis(40),
            reordering: 3,
            min_rto: Duration::from_millis(200),
            initial_min_rto: Duration::ZERO,
            back_off: false,
            reassembly: None,
            high_for: None,
            log_epochs: false,
        }
    }

    pub(crate) fn check(&self, tcp: &Tcp) -> Result<(), PltConfigError> {
        Lcm::new(self.lcm)?;
        if !(1..=MOST_RANGES).contains(&self.ack_every) {
            return Err(PltConfigError::AckEvery(self.ack_every));
        }
        if self.reordering == 0 {
            return Err(PltConfigError::ZeroReordering);
        }
        if self.min_rto.is_zero() {
            return Err(PltConfigError::ZeroTimeout);
        }
        if self.relief == Some(0) {
            return Err(PltConfigError::ZeroRelief);
        }
        if self.reassembly.is_some_and(|buffer| buffer < Bytes::from(tcp.mss)) {
            return Err(PltConfigError::Reassembly);
        }
        Ok(())
    }
}

impl Default for PltConfig {
    fn default() -> Self {
        Self::new(LcmConfig::paper())
    }
}

/// Error returned for a [`PltConfig`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PltConfigError {
    /// The configuration of the LCM is invalid.
    #[error("invalid configuration of the low control module: {0}")]
    Lcm(#[from] LcmConfigError),
    /// An acknowledgement cannot cover that many packets.
    #[error("invalid number {0} of low packets per acknowledgement: give 1 to {MOST_RANGES}")]
    AckEvery(u32),
    /// `reordering` is 0, so all packets would be lost at once.
    #[error(
        "reordering is 0: set it to at least 1, the later packets that must be acknowledged before a packet counts as lost"
    )]
    ZeroReordering,
    /// `min_rto` is 0, so all packets would be lost at once.
    #[error(
        "min_rto is 0: set the time after which unacknowledged low packets count as lost, for example 1 s"
    )]
    ZeroTimeout,
    /// `relief` is 0, a division by zero.
    #[error("relief is 0: set the number of windows that may be queued, or none to disable it")]
    ZeroRelief,
    /// The reassembly buffer is smaller than a segment.
    #[error("the reassembly buffer is smaller than a segment: raise it to several windows, or omit it")]
    Reassembly,
}
