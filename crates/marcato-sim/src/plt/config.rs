//! How PLT is configured.

use marcato_sched::lowprio::{Lcm, LcmConfig, LcmConfigError};
use marcato_units::{Bytes, Duration, Layer, Priority};

use super::ack::MOST_RANGES;
use crate::tcp::TcpConfig;

/// What PLT adds to a TCP, at either end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PltConfig {
    /// The low control module's congestion control. Its packets and windows count bytes of IP packets.
    pub lcm: LcmConfig,
    /// How often the LCM sends a lost packet again before it leaves it to the HCM. PLT §3.2.1: 0. After a timeout it leaves
    /// everything to the HCM, so that a starved low layer never keeps the stream waiting.
    pub low_retransmissions: u8,
    /// PLT's second footnote: the LCM sends again what it has lost if the HCM's window is very small against what waits for
    /// it. Very small is: less than the waiting bytes divided by this. `None`: it never does.
    pub relief: Option<u32>,
    /// The layer of the acknowledgements of low packets. PLT §3.2.2: the receiver can choose [`Layer::Low`].
    pub ack_layer: Layer,
    /// Acknowledge every so many low packets at the latest (PLT §3.2.2), 1 to 4; out of order, at once.
    pub ack_every: u32,
    /// Acknowledge a low packet after this long at the latest.
    pub ack_delay: Duration,
    /// A low packet is lost once one has been acknowledged that was sent so many later: 3, as RFC 6675's DupThresh.
    pub reordering: u32,
    /// The LCM's least timeout; the paper gives none. With the 200 ms that TCP stacks take, low packets that only wait for
    /// the high layer are taken for lost, and the HCM sends again what arrives all the same: of short flows that offer
    /// 80 % of a link, that alone adds a sixth of their load. With the second of RFC 6298 §2.4 a long flow with a short
    /// buffer waits so long for what a starved queue has dropped that it loses 7 % of the link. Fig. 6 needs the former.
    pub min_rto: Duration,
    /// The same for as long as no low packet has been acknowledged, if that is more. How long the handshake took says how far
    /// the other end is, not for how long low packets wait behind high ones: a second here spares short flows on a busy link
    /// nearly all that `min_rto` of a second does, and nothing changes for those that last. In `examples/short-flows.toml` the
    /// link carries 82.5 % instead of 86.0, and half of the flows take 126 ms at most instead of 136; the slowest hundredth,
    /// whose packets nobody sends twice, takes 1.7 s instead of 1.3. It costs a second where the low layer is a black hole.
    pub first_rto: Duration,
    /// Whether the LCM's timeout doubles while nothing is heard, as TCP's does. The timeouts shrink the window anyway, and a
    /// layer that has been starved for long would come back late by up to as long.
    pub back_off: bool,
    /// A reassembly buffer of this size at the other end: neither module sends what lies farther beyond what the HCM
    /// knows to have arrived in order. `None`: the paper's 3·BW·RTT bounds what each module has unacknowledged, as ns-2's
    /// `window_` does, and what has arrived waits for what has not without limit.
    pub reassembly: Option<Bytes>,
    /// New data that is less urgent than this goes low only, for as long as the low layer's window holds a packet: under
    /// a Conductor, so that the high layer is left to what is urgent, and does not overtake urgent data that had to go
    /// low with data that is not. Repairs are the HCM's whatever their priority. `None`: the HCM takes all, as in the
    /// paper.
    pub high_for: Option<Priority>,
    /// Keep a report of each epoch of the LCM.
    pub log_epochs: bool,
}

impl PltConfig {
    /// As in the paper: no retransmission at the LCM, every low packet acknowledged by a low packet.
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
            first_rto: Duration::ZERO,
            back_off: false,
            reassembly: None,
            high_for: None,
            log_epochs: false,
        }
    }

    pub(crate) fn check(&self, tcp: &TcpConfig) -> Result<(), PltConfigError> {
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

/// Why a [`PltConfig`] cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PltConfigError {
    /// The LCM cannot be configured so.
    #[error("the low control module cannot be configured so: {0}")]
    Lcm(#[from] LcmConfigError),
    /// An acknowledgement could not tell of all it stands for.
    #[error("low packets cannot be acknowledged every {0}: say 1 to {MOST_RANGES}")]
    AckEvery(u32),
    /// Everything would be lost at once.
    #[error("reordering is 0: a packet needs at least one acknowledged after it to be lost")]
    ZeroReordering,
    /// Everything would be lost at once.
    #[error(
        "min_rto is 0: say for how long nothing must be heard before low packets are given up, such as 1 s"
    )]
    ZeroTimeout,
    /// Nothing can be divided by 0.
    #[error("relief is 0: say how many times the window may wait, or none to leave it off")]
    ZeroRelief,
    /// Nothing would fit.
    #[error("the reassembly buffer is smaller than a segment: raise it to several windows, or leave it out")]
    Reassembly,
}
