//! Congestion control.
//!
//! To add one here:
//!
//! 1. Implement [`CongestionControl`] in a file of this directory, and add its `mod`.
//! 2. Add its row to [`Congestion`], in
//!    `marcato-scenario/src/tcp.rs`: documentation, name in scenarios, variant, and whether it draws
//!    random numbers.
//! 3. Add its constructor to `build`, which does not compile without it.
//!
//! To add one in another crate, wrap it in a [`CongestionFactory`].

mod bbr;
mod copa;
mod cubic;
mod dctcp;
mod factory;
mod fast;
mod hystart;
mod hystart_plus_plus;
mod ledbat;
mod max_filter;
mod prague;
mod reno;
#[cfg(test)]
mod tests;

use std::fmt::Debug;

use marcato_scenario::tcp::{Congestion, Growth, SlowStart};
use marcato_units::{Duration, Rate, Stream, Time};

pub use self::factory::CongestionFactory;
use self::hystart::Spreading;
use self::hystart_plus_plus::HyStartPlusPlus;
use super::config::{TcpConfigError, TcpEnd};
use super::rate::RateSample;

/// State of a sender's loss recovery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LossState {
    /// No known loss.
    #[default]
    Open,
    /// Reduction for ECN in progress, without known loss.
    Reduction,
    /// Fast recovery.
    Recovery,
    /// Recovery after an expiry of the retransmission timer.
    Loss,
}

/// Signal that asks for a smaller window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Loss of a segment.
    Loss,
    /// Echo of an ECN mark.
    Ecn,
}

/// Effects of an acknowledgement, for a congestion control. Counts are in bytes. If the control
/// [counts segments](CongestionControl::counts_segments), each segment delivered, lost or in flight
/// counts as a full one.
#[derive(Clone, Copy, Debug)]
pub struct AckEvent {
    /// Arrival time.
    pub now: Time,
    /// SND.UNA after this acknowledgement, counted from the SYN, which is 0.
    pub una: u64,
    /// SND.NXT: next byte that was never sent.
    pub nxt: u64,
    /// Bytes cumulatively acknowledged for the first time.
    pub newly_acked: u64,
    /// Bytes cumulatively or selectively acknowledged for the first time.
    pub delivered: u64,
    /// Bytes newly marked lost.
    pub newly_lost: u64,
    /// Bytes in flight before this acknowledgement.
    pub prior_in_flight: u64,
    /// Bytes of the window that count as used. A window grows only if it is used.
    pub used: u64,
    /// Bytes in flight now.
    pub in_flight: u64,
    /// Round trip of the segment that was sent last among those acknowledged, if unambiguous.
    pub rtt: Option<Duration>,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    /// Delivery rate sample.
    pub rate: RateSample,
    /// Bytes delivered in total.
    pub total_delivered: u64,
    /// Bytes marked lost in total.
    pub total_lost: u64,
    /// State of loss recovery after this acknowledgement.
    pub state: LossState,
    /// Time at which pacing releases the next segment.
    pub next_send: Time,
    /// Rate by which bursts are cut, if segments leave in bursts.
    pub burst_rate: Option<Rate>,
}

#[cfg(test)]
impl AckEvent {
    /// Acknowledgement of so many bytes at time 0, without a round trip, of so many in flight.
    fn of(newly_acked: u64, prior_in_flight: u64, state: LossState) -> Self {
        Self {
            now: Time::ZERO,
            una: 0,
            nxt: 0,
            newly_acked,
            delivered: newly_acked,
            newly_lost: 0,
            prior_in_flight,
            used: prior_in_flight,
            in_flight: prior_in_flight.saturating_sub(newly_acked),
            rtt: None,
            srtt: None,
            rate: RateSample::default(),
            total_delivered: 0,
            total_lost: 0,
            state,
            next_send: Time::ZERO,
            burst_rate: None,
        }
    }
}

/// Congestion control: window and pacing rate.
pub trait CongestionControl: Debug {
    /// Handles SND.UNA's progress by `newly_acked` bytes to `una`, with or without an ECN echo;
    /// SND.NXT is `nxt`. Called before all other handlers of the acknowledgement.
    fn on_echo(&mut self, _newly_acked: u64, _una: u64, _nxt: u64, _ece: bool) {}
    /// Handles an acknowledgement.
    fn on_ack(&mut self, ack: &AckEvent);
    /// Handles the first loss or ECN echo in a window, with `in_flight` bytes outstanding. Called
    /// before [`on_ack`](Self::on_ack) of the same acknowledgement.
    fn on_congestion(&mut self, now: Time, in_flight: u64, signal: Signal);
    /// Handles the end of recovery or reduction; not called after a timeout.
    fn on_recovered(&mut self, now: Time);
    /// Handles an expiry of the retransmission timer with `in_flight` bytes outstanding. `first` is
    /// false for a repeated expiry for the same data.
    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool);
    /// Handles the resumption of sending after an idle time; `expired` means that it exceeded the
    /// retransmission timeout.
    fn on_idle_restart(&mut self, now: Time, app_limited: bool, expired: bool);
    /// Handles an idle time of more than `timeouts` retransmission timeouts, after
    /// [`on_idle_restart`](Self::on_idle_restart) with `expired` false. Called with
    /// [`Tcp::idle_decay`](crate::Tcp::idle_decay) only. A control with a window halves it so many times,
    /// not below the initial one, and keeps three quarters of it as the slow start threshold. RFC 2861
    /// §3; Linux, `tcp_cwnd_restart`.
    fn on_idle_decay(&mut self, _timeouts: u32) {}
    /// Handles the proof that the latest reduction, for a loss or a timeout, was spurious: nothing was
    /// lost. Called in place of [`on_recovered`](Self::on_recovered), or later. A control with a
    /// window restores it. RFC 4015; RFC 9438 §4.9.
    fn on_spurious(&mut self, now: Time) {
        self.on_recovered(now);
    }
    /// Handles a handshake whose SYN or SYN-ACK was sent more than twice: the initial window is one
    /// segment. Called before [`on_established`](Self::on_established). RFC 5681 §3.1.
    fn on_lost_handshake(&mut self) {}
    /// Handles the end of the handshake; `rtt` is its round trip, if its segments were sent once.
    fn on_established(&mut self, now: Time, rtt: Option<Duration>);
    /// Returns the congestion window in bytes.
    fn cwnd(&self) -> u64;
    /// Returns the slow start threshold in bytes.
    fn ssthresh(&self) -> u64;
    /// Returns the pacing rate, if the control has one.
    fn pacing_rate(&self) -> Option<Rate> {
        None
    }
    /// Returns true if recovery uses proportional rate reduction (RFC 6937); otherwise
    /// [`cwnd`](Self::cwnd) applies in recovery too.
    fn uses_prr(&self) -> bool {
        true
    }
    /// Returns true if the control counts segments, so that a short one takes as much of the window as a
    /// full one.
    fn counts_segments(&self) -> bool {
        false
    }
    /// Returns true if the control itself holds the rate down, so that samples count as
    /// application-limited.
    fn limits_itself(&self) -> bool {
        false
    }
}

/// Initial window and growth rule.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) smss: u64,
    /// Initial window in bytes.
    pub(crate) window: u64,
    /// Initial threshold in bytes; [`u64::MAX`] is none.
    pub(crate) ssthresh: u64,
    pub(crate) growth: Growth,
    /// See [`Tcp::reduce_window`](crate::Tcp::reduce_window).
    pub(crate) reduce_window: bool,
    pub(crate) slow_start: SlowStart,
    /// True if segments are paced.
    pub(crate) paced: bool,
}

impl Start {
    /// Returns HyStart++ if it is chosen.
    fn hystart_plus_plus(&self) -> Option<Box<HyStartPlusPlus>> {
        let chosen = self.slow_start == SlowStart::HyStartPlusPlus;
        chosen.then(|| Box::new(HyStartPlusPlus::new(self.smss, self.paced, self.ssthresh)))
    }

    /// Start with segments of `smss` bytes, a window of `window` bytes, and defaults otherwise.
    #[cfg(test)]
    pub(crate) fn plain(smss: u64, window: u64) -> Self {
        Self {
            smss,
            window,
            ssthresh: u64::MAX,
            growth: Growth::default(),
            reduce_window: false,
            slow_start: SlowStart::Standard,
            paced: false,
        }
    }
}

/// Window in segments after an idle time, in which the retransmission timer may have expired.
fn restarted(cwnd: f64, initial_window: f64, expired: bool) -> f64 {
    // RFC 5681 §4.1: restart from at most the initial window after an idle retransmission timeout.
    if expired { cwnd.min(initial_window) } else { cwnd }
}

/// Window in segments after so many idle retransmission timeouts: halved for each, down to the initial one.
fn decayed(cwnd: f64, initial_window: f64, timeouts: u32) -> f64 {
    // More halvings than this reach any initial window.
    let halvings = i32::try_from(timeouts.min(64)).unwrap_or(64);
    (cwnd * 0.5_f64.powi(halvings)).max(initial_window.min(cwnd))
}

/// Builds the congestion control of `end`, for a sender with a random stream of its own.
pub(crate) fn build(end: &TcpEnd, stream: Stream) -> Result<Box<dyn CongestionControl>, TcpConfigError> {
    let config = &end.tcp;
    if let Some(own) = &end.own_congestion {
        return Ok(own.build(config, stream));
    }
    let start = Start {
        smss: u64::from(config.mss),
        window: config.initial_cwnd(),
        ssthresh: config.initial_threshold(),
        growth: config.growth,
        reduce_window: config.reduce_window,
        slow_start: config.slow_start,
        paced: config.pacing,
    };
    Ok(match config.congestion {
        Congestion::Plugin(_) => return Err(TcpConfigError::NoFactory),
        Congestion::Reno => Box::new(reno::Reno::new(start)),
        Congestion::Cubic(options) => {
            let spreading = Spreading { paced: config.pacing, burst: config.segmentation_offload };
            Box::new(cubic::Cubic::new(start, options, spreading))
        }
        Congestion::Dctcp => Box::new(dctcp::Dctcp::new(start)),
        Congestion::Prague => Box::new(prague::Prague::new(start)),
        Congestion::Bbr => Box::new(bbr::Bbr::new(start.smss, start.window, stream)),
        Congestion::Fast(options) => Box::new(fast::Fast::new(start, options.alpha)),
        Congestion::Copa => Box::new(copa::Copa::new(start)),
        Congestion::LedbatPlusPlus => Box::new(ledbat::LedbatPlusPlus::new(start)),
    })
}
