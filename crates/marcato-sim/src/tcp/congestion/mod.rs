//! Congestion control. To add one: implement [`CongestionControl`] in a file beside [`reno`](self), give it a
//! variant in [`Congestion`], and construct it in `build`.

mod bbr;
mod cubic;
mod dctcp;
mod hystart;
mod max_filter;
mod reno;

use std::fmt::Debug;

use marcato_units::{Duration, Rate, Stream, Time};

use self::hystart::Spreading;
use super::config::{Congestion, Growth, TcpConfig};
use super::rate::RateSample;

/// What the sender is doing about losses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossState {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// Nothing is known to be lost, but ECN has asked for a smaller window, and the sender is getting there.
    Reduction,
    /// Fast recovery.
    Recovery,
    /// The retransmission timer expired.
    Loss,
}

/// Why a window has to shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Something was lost.
    Loss,
    /// ECN was echoed.
    Ecn,
}

/// Everything that an acknowledgement tells a congestion control. Counts are in bytes.
#[derive(Clone, Copy, Debug)]
pub struct AckEvent {
    /// When it arrived.
    pub now: Time,
    /// The first byte that is not acknowledged, after this acknowledgement; counted from the SYN, which is 0.
    pub una: u64,
    /// The next byte that was never sent.
    pub nxt: u64,
    /// Cumulatively acknowledged for the first time.
    pub newly_acked: u64,
    /// Cumulatively or selectively acknowledged for the first time.
    pub delivered: u64,
    /// Newly taken for lost.
    pub newly_lost: u64,
    /// In flight before this acknowledgement.
    pub prior_in_flight: u64,
    /// In flight now.
    pub in_flight: u64,
    /// Round trip of the segment that was sent last among those acknowledged, if it is unambiguous.
    pub rtt: Option<Duration>,
    /// Smoothed round trip.
    pub srtt: Option<Duration>,
    /// The delivery rate.
    pub rate: RateSample,
    /// Delivered in total.
    pub total_delivered: u64,
    /// Lost in total.
    pub total_lost: u64,
    /// What the sender is doing about losses, after this acknowledgement.
    pub state: LossState,
    /// When pacing lets the next segment go.
    pub next_send: Time,
    /// The rate by which bursts are cut, where segments leave in bursts and the congestion control has no rate.
    pub burst_rate: Option<Rate>,
}

/// How much may be in flight, and how fast it may leave.
pub trait CongestionControl: Debug {
    /// An acknowledgement of `newly_acked` bytes has moved SND.UNA to `una`, with or without an echo of marks; SND.NXT
    /// is `nxt`. Called before everything else that it brings.
    fn on_echo(&mut self, _newly_acked: u64, _una: u64, _nxt: u64, _ece: bool) {}
    /// An acknowledgement arrived.
    fn on_ack(&mut self, ack: &AckEvent);
    /// Loss was detected, or ECN echoed, for the first time in a window. `in_flight` is what is outstanding. Called
    /// before [`on_ack`](Self::on_ack) of the same acknowledgement.
    fn on_congestion(&mut self, now: Time, in_flight: u64, signal: Signal);
    /// Recovery or reduction has ended; not called after a timeout.
    fn on_recovered(&mut self, now: Time);
    /// The retransmission timer expired with `in_flight` bytes outstanding; `first` says that it is not a repeated
    /// expiry for the same data.
    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool);
    /// Sending resumes after an idle time; `expired` says that it lasted longer than the retransmission timeout.
    fn on_idle_restart(&mut self, now: Time, app_limited: bool, expired: bool);
    /// The connection is established; `rtt` is the handshake's round trip, if its segments were sent once.
    fn on_established(&mut self, now: Time, rtt: Option<Duration>);
    /// The congestion window in bytes.
    fn cwnd(&self) -> u64;
    /// The slow start threshold in bytes.
    fn ssthresh(&self) -> u64;
    /// The rate at which segments may leave, if it has an opinion.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// Whether the sender reduces the window by proportional rate reduction (RFC 6937) in recovery; otherwise
    /// [`cwnd`](Self::cwnd) counts in recovery too.
    fn uses_prr(&self) -> bool {
        true
    }
    /// Whether samples must be taken as application-limited because the control itself holds the rate down.
    fn limits_itself(&self) -> bool {
        false
    }
}

/// How a window begins and grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) smss: u64,
    /// In bytes.
    pub(crate) window: u64,
    /// In bytes; [`u64::MAX`] is none.
    pub(crate) ssthresh: u64,
    pub(crate) growth: Growth,
}

impl Start {
    /// With segments of `smss` bytes, a window of so many bytes, and all else as it is by default.
    #[cfg(test)]
    pub(crate) fn plain(smss: u64, window: u64) -> Self {
        Self { smss, window, ssthresh: u64::MAX, growth: Growth::default() }
    }
}

/// The congestion control that `config` asks for.
pub(crate) fn build(config: &TcpConfig, stream: Stream) -> Box<dyn CongestionControl> {
    let mss = u64::from(config.mss);
    let initial_window = mss * u64::from(config.initial_window);
    let ssthresh = config.initial_ssthresh.map_or(u64::MAX, |segments| mss * u64::from(segments));
    let start = Start { smss: mss, window: initial_window, ssthresh, growth: config.growth };
    match config.congestion {
        Congestion::Cubic(cubic) => {
            let spreading = Spreading { paced: config.pacing, burst: config.segmentation_offload };
            Box::new(cubic::Cubic::new(start, cubic, spreading))
        }
        Congestion::Dctcp => Box::new(dctcp::Dctcp::new(start)),
        Congestion::Reno => Box::new(reno::Reno::new(start)),
        Congestion::Bbr => Box::new(bbr::Bbr::new(mss, initial_window, stream)),
    }
}
