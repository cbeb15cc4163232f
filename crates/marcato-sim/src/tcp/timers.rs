//! Timers of a sender.

use marcato_units::Time;

use super::Tcp;
use super::rto::RtoEstimator;
use super::tlp::Tlp;

/// Timer of probes of a closed window. RFC 9293 §3.8.6.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Persist {
    #[default]
    Off,
    At(Time),
    /// It has expired, and a probe is to be sent.
    Due,
}

/// Timers of a sender, and the timeout by which they run.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    pub(crate) rto: RtoEstimator,
    /// Expiry of the retransmission timer.
    pub(crate) rto_at: Option<Time>,
    persist: Persist,
    /// Next check for losses by RACK. RFC 8985 §6.3.
    pub(crate) rack_at: Option<Time>,
    pub(crate) tlp: Tlp,
}

/// Stops a timer that has expired. Returns true if it had.
fn expired(timer: &mut Option<Time>, now: Time) -> bool {
    timer.take_if(|at| *at <= now).is_some()
}

impl Timers {
    pub(crate) fn new(config: &Tcp) -> Self {
        let rto = RtoEstimator::new(config.initial_rto, config.min_rto, config.max_rto)
            .with_margin(config.rto_margin);
        Self { rto, rto_at: None, persist: Persist::Off, rack_at: None, tlp: Tlp::default() }
    }

    /// Returns the earliest expiry.
    pub(crate) fn earliest(&self) -> Option<Time> {
        let persist_at = if let Persist::At(at) = self.persist { Some(at) } else { None };
        [self.rto_at, persist_at, self.rack_at, self.tlp.pto_at].into_iter().flatten().min()
    }

    /// Starts the retransmission timer anew.
    pub(crate) fn restart(&mut self, now: Time) {
        self.rto_at = Some(now + self.rto.rto());
    }

    /// Starts the timer of tail loss probes; `single` means that one segment is in flight.
    pub(crate) fn arm_probe(&mut self, now: Time, single: bool) {
        self.tlp.arm(now, self.rto.srtt(), single, self.rto_at);
    }

    /// Starts the timer that probes a closed window, unless it runs.
    pub(crate) fn await_window(&mut self, now: Time) {
        if self.persist == Persist::Off {
            self.persist = Persist::At(now + self.rto.rto());
        }
    }

    /// Stops that timer, as the window is open.
    pub(crate) fn on_open_window(&mut self) {
        if matches!(self.persist, Persist::At(_)) {
            self.persist = Persist::Off;
            // The intervals of probes tell nothing about the path.
            self.rto.end_back_off();
        }
    }

    /// Returns true if a closed window is to be probed now.
    pub(crate) fn take_window_probe(&mut self) -> bool {
        let due = self.persist == Persist::Due;
        if due {
            self.persist = Persist::Off;
        }
        due
    }

    /// Handles the expiry of the timer that probes a closed window.
    pub(crate) fn on_persist_timer(&mut self, now: Time) {
        if matches!(self.persist, Persist::At(at) if at <= now) {
            // RFC 9293 §3.8.6.1: probe a closed window, at growing intervals.
            self.persist = Persist::Due;
            self.rto.back_off();
        }
    }

    /// Returns true if losses are to be looked for now.
    pub(crate) fn rack_expired(&mut self, now: Time) -> bool {
        expired(&mut self.rack_at, now)
    }

    /// Handles the expiry of the timer of tail loss probes.
    pub(crate) fn on_tail_timer(&mut self, now: Time) {
        if expired(&mut self.tlp.pto_at, now) {
            // RFC 8985 §7.3: the retransmission timer restarts with the probe.
            self.tlp.due = true;
            self.restart(now);
        }
    }

    /// Returns true if the retransmission timer has expired.
    pub(crate) fn rto_expired(&mut self, now: Time) -> bool {
        expired(&mut self.rto_at, now)
    }

    /// Handles a timeout, after which everything is repaired.
    pub(crate) fn on_timeout(&mut self, now: Time) {
        self.rack_at = None;
        self.tlp.cancel();
        // RFC 6298 §5.5 and §5.6: back off and restart the timer.
        self.rto.back_off();
        self.restart(now);
    }
}
