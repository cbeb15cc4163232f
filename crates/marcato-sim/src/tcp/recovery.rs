//! Loss recovery: detection, phases, and reductions that prove spurious.

use marcato_units::Time;

use super::congestion::{LossState, Signal};
use super::prr::Prr;
use super::rack::{Rack, RackState};
use super::scoreboard::{DUP_THRESH, Scoreboard};
use super::sender::AckInfo;
use super::tlp::Tlp;
use super::undo::{Reordering, Undo};
use super::{LossDetection, Tcp};

/// Phase of recovery; it ends when SND.UNA reaches `point`.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    Open,
    /// Fast recovery (RFC 6675 §5), or a reduction for ECN.
    Fast {
        point: u64,
        /// True if ECN was the reason and nothing has been lost.
        echo: bool,
        prr: Prr,
        /// Window that proportional rate reduction allows.
        window: u64,
        /// True until the first retransmission, which ignores the window. RFC 6675 §5 step 4.3.
        first: bool,
    },
    /// Recovery after a timeout.
    Timeout {
        point: u64,
        /// True until the first retransmission, which ignores what is in flight. RFC 6298 §5.4.
        first: bool,
        /// True while F-RTO may still find that nothing was lost. RFC 5682 §3.1.
        frto: bool,
        /// True from an acknowledgement to the next if new data leaves before retransmissions.
        /// RFC 5682 §3.1 step 2b.
        new_first: bool,
    },
}

/// State of loss recovery.
///
/// Arguments `una` and `nxt` are SND.UNA and SND.NXT.
#[derive(Clone, Debug)]
pub(crate) struct Recovery {
    pub(crate) phase: Phase,
    /// RACK state, if it detects losses.
    pub(crate) rack: Option<Rack>,
    /// True if reductions that prove spurious are undone; `undo` is the latest that still may.
    undoes: bool,
    undo: Option<Undo>,
    /// Degree of reordering, if the threshold of duplicate acknowledgements adapts to it.
    pub(crate) reordering: Option<Reordering>,
    /// Window growth by safe acknowledgements alone. Linux, `tcp_cwnd_reduction`.
    safe_ack: bool,
    /// Sets CWR on the next new segment. RFC 3168 §6.1.2.
    pub(crate) announce_cwr: bool,
    /// Echoes of ECN up to this number refer to a window already reduced.
    ecn_point: u64,
}

impl Recovery {
    pub(crate) fn new(config: &Tcp) -> Self {
        Self {
            phase: Phase::Open,
            rack: (config.loss_detection == LossDetection::Rack).then(Rack::default),
            undoes: config.undo,
            undo: None,
            reordering: (config.undo && config.loss_detection == LossDetection::DupThresh)
                .then_some(Reordering::new(DUP_THRESH)),
            safe_ack: config.safe_ack,
            announce_cwr: false,
            ecn_point: 0,
        }
    }

    pub(crate) fn loss_state(&self) -> LossState {
        match self.phase {
            Phase::Open => LossState::Open,
            Phase::Fast { echo: true, .. } => LossState::Reduction,
            Phase::Fast { .. } => LossState::Recovery,
            Phase::Timeout { .. } => LossState::Loss,
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    /// Returns true while losses are repaired.
    pub(crate) fn repairs(&self) -> bool {
        matches!(self.phase, Phase::Fast { echo: false, .. } | Phase::Timeout { .. })
    }

    /// Returns true if the next retransmission ignores the window.
    pub(crate) fn is_urged(&self) -> bool {
        matches!(self.phase, Phase::Fast { first: true, .. } | Phase::Timeout { first: true, .. })
    }

    /// Returns the point of F-RTO: an original before it shows that the timeout was spurious.
    pub(crate) fn frto_point(&self) -> Option<u64> {
        if let Phase::Timeout { point, frto: true, .. } = self.phase { Some(point) } else { None }
    }

    /// Returns true if the tail may be probed. RFC 8985 §7.2.
    pub(crate) fn may_probe(&self, board: &Scoreboard) -> bool {
        self.rack.is_some() && !board.is_empty() && board.segs_sacked() == 0 && !self.repairs()
    }

    /// Detects losses by RACK or DupThresh. Returns the bytes newly marked, and the time of RACK's next
    /// check.
    pub(crate) fn detect_losses(
        &mut self,
        now: Time,
        board: &mut Scoreboard,
        mss: u64,
        state: RackState,
    ) -> (u64, Option<Time>) {
        let Some(rack) = &mut self.rack else {
            let dup_thresh = self.reordering.map_or(DUP_THRESH, |reordering| reordering.degree);
            return (board.detect_losses(mss, dup_thresh), None);
        };
        rack.update_reo_wnd(state);
        board.detect_losses_by_time(now, rack)
    }

    /// Handles progress without SACK. In recovery, a partial acknowledgement shows that the next
    /// segment is lost (RFC 6582 §3.2 step 3); otherwise all assumptions about segments in flight
    /// are void.
    #[cold]
    pub(crate) fn on_progress_without_sack(&self, una: u64, board: &mut Scoreboard) {
        match self.phase {
            Phase::Fast { point, echo: false, .. } if una < point => board.lose_first(),
            Phase::Timeout { .. } => {}
            _ => board.forget_sacked(),
        }
    }

    /// Ends the latest reduction if this acknowledgement shows that it was spurious. `original` is
    /// F-RTO's sign, and `una` was `prior_una` before. Returns true if it was.
    pub(crate) fn end_spurious(
        &mut self,
        now: Time,
        info: &AckInfo<'_>,
        [prior_una, una]: [u64; 2],
        original: bool,
        board: &mut Scoreboard,
        mss: u64,
    ) -> bool {
        let Some(undo) = &mut self.undo else { return false };
        if info.ece {
            // RFC 4015 §3.2: a mark asks for the reduction in any case.
            self.undo = None;
            return false;
        }
        let dsack = info.dsack.filter(|&(start, end)| end <= prior_una || board.was_resent(start));
        if let Some((start, end)) = dsack {
            undo.on_duplicate(end, (end - start).div_ceil(mss));
        }
        let (reported, progress) = (undo.is_reported(), una > prior_una);
        let late = progress && undo.is_late(now, info.timestamp_rtt);
        let (spurious, unmark) = match self.phase {
            // Duplicates may be reported after the recovery.
            Phase::Open => (reported, false),
            Phase::Fast { echo: true, .. } => (false, false),
            Phase::Fast { point, .. } if una >= point => (reported || late, false),
            // As in Linux, the fate of outstanding retransmissions is awaited.
            Phase::Fast { .. } if reported => (true, false),
            Phase::Fast { .. } => (late && board.resent_out() == 0, true),
            Phase::Timeout { .. } => (original || progress && (reported || late), true),
        };
        if late && !self.is_open() {
            if let Some(reordering) = &mut self.reordering {
                reordering.on_overtaken(prior_una, reordering.fack(), mss);
            }
            if let Some(rack) = &mut self.rack {
                rack.see_reordering();
            }
        }
        if spurious {
            if unmark {
                board.unmark_losses();
            }
            if reported && let Some(rack) = &mut self.rack {
                rack.keep_window();
            }
            self.undo = None;
            self.phase = Phase::Open;
            // Linux, `tcp_ecn_withdraw_cwr`.
            self.announce_cwr = false;
        }
        spurious
    }

    /// Takes F-RTO's step after an acknowledgement that did not show an original. `has_new` means that
    /// new data could leave. RFC 5682 §3.1.
    pub(crate) fn advance_frto(&mut self, nxt: u64, progress: bool, delivered: bool, has_new: bool) {
        let Phase::Timeout { point, frto, new_first, .. } = &mut self.phase else { return };
        *new_first = false;
        if !*frto {
            return;
        }
        if nxt > *point {
            // Step 3a: an acknowledgement of what was sent since then alone shows a real loss.
            *frto = progress || !delivered;
        } else if progress {
            // Step 2b: new data leaves first. Without any, retransmissions go on.
            *new_first = has_new;
            *frto = has_new;
        }
    }

    /// Returns true if new data is to leave before retransmissions.
    pub(crate) fn is_new_first(&self) -> bool {
        matches!(self.phase, Phase::Timeout { new_first: true, .. })
    }

    /// Lets retransmissions leave if nothing else can. Returns true if it does.
    pub(crate) fn gives_up_frto(&mut self, nxt: u64) -> bool {
        let Phase::Timeout { point, frto, new_first, .. } = &mut self.phase else { return false };
        if nxt > *point {
            return false;
        }
        // RFC 5682 §3.1 step 2b: no new data can leave, so the losses are repaired.
        (*frto, *new_first) = (false, false);
        true
    }

    /// Leaves recovery if `una` completes it. Returns how it ended.
    pub(crate) fn leave(&mut self, una: u64) -> Left {
        let left = match self.phase {
            Phase::Fast { point, .. } if una >= point => Left::Reduction,
            Phase::Timeout { point, .. } if una >= point => Left::Timeout,
            _ => return Left::No,
        };
        self.phase = Phase::Open;
        left
    }

    /// Begins a recovery for losses or an ECN echo. `in_flight` is what was outstanding before this
    /// acknowledgement, which counts as delivered during recovery. Returns the reason if the window is
    /// to be reduced.
    pub(crate) fn enter(
        &mut self,
        [una, nxt]: [u64; 2],
        in_flight: u64,
        ece: bool,
        board: &mut Scoreboard,
        tlp: &mut Tlp,
    ) -> Option<Signal> {
        let echoed = ece && una > self.ecn_point;
        // Data sent after the last reduction and lost requires another one, even if the recovery
        // that has just ended has already retransmitted it.
        let lost = board.has_losses();
        match &mut self.phase {
            Phase::Open if lost || echoed => {
                self.undo = (lost && !ece && self.undoes).then(|| Undo::new(una, board.resent_out()));
                self.phase = Phase::Fast {
                    point: nxt,
                    echo: !lost,
                    prr: Prr::new(in_flight),
                    window: board.pipe(),
                    first: board.has_lost(),
                };
                self.ecn_point = nxt;
                // RFC 3168 §6.1.2: CWR reports every reduction, whatever its reason.
                self.announce_cwr = true;
                if lost {
                    tlp.cancel();
                }
                Some(if lost { Signal::Loss } else { Signal::Ecn })
            }
            // RFC 3168 §6.1.2: at most one reduction per window. The loss is repaired without
            // another.
            Phase::Fast { point, echo: echo @ true, first, .. } if lost => {
                *echo = false;
                tlp.cancel();
                *point = nxt;
                *first = board.has_lost();
                None
            }
            _ => None,
        }
    }

    /// Handles a reduction whose loss a tail loss probe has repaired. RFC 8985 §7.4.
    pub(crate) fn on_repaired_by_probe(&mut self) {
        self.announce_cwr = true;
        self.undo = None;
    }

    /// Begins a recovery after a timeout, and marks what is lost. Returns false for a repeated timeout.
    pub(crate) fn on_timeout(
        &mut self,
        now: Time,
        [una, nxt]: [u64; 2],
        sack: bool,
        board: &mut Scoreboard,
    ) -> bool {
        let first = !matches!(self.phase, Phase::Timeout { .. });
        // A timeout in a recovery is judged with that, and what is still in flight shows nothing.
        // Linux, `tcp_enter_loss`.
        let repairs = matches!(self.phase, Phase::Fast { echo: false, .. });
        if first && !repairs {
            self.undo = self.undoes.then(|| Undo::new(una, board.resent_out()));
        }
        if !sack {
            // Without SACK, segments marked as delivered were assumptions.
            board.forget_sacked();
        }
        // RFC 8985 §6.3: segments sent too recently to be acknowledged are not lost.
        let rack = self.rack.as_ref();
        board.mark_lost_on_timeout(|sent| rack.is_some_and(|rack| rack.lost_at(sent.sent_at) > now));
        let frto = sack && self.undo.is_some() && !repairs;
        self.phase = Phase::Timeout { point: nxt, first: true, frto, new_first: false };
        self.ecn_point = nxt;
        self.announce_cwr = true;
        first
    }

    /// Handles a retransmission of the segment at `seq`. Returns true if it is the first hole of a fast
    /// recovery.
    pub(crate) fn on_resent(&mut self, now: Time, seq: u64, una: u64) -> bool {
        if let Some(undo) = &mut self.undo {
            undo.on_resent(now);
        }
        match &mut self.phase {
            Phase::Open => false,
            Phase::Timeout { first, .. } => {
                *first = false;
                false
            }
            Phase::Fast { first, .. } => {
                *first = false;
                seq <= una
            }
        }
    }

    /// Handles a segment with a payload of `bytes` that has left.
    pub(crate) fn on_sent(&mut self, bytes: u64) {
        if let Phase::Fast { prr, .. } = &mut self.phase {
            prr.on_sent(bytes);
        }
    }

    /// Sets the window of proportional rate reduction after an acknowledgement that delivered something.
    /// RFC 6937.
    pub(crate) fn reduce(&mut self, delivered: u64, ssthresh: u64, mss: u64, pipe: u64, is_safe: bool) {
        if let Phase::Fast { prr, window, .. } = &mut self.phase {
            let grows = !self.safe_ack || is_safe;
            *window = pipe + prr.on_ack(delivered, pipe, ssthresh, mss, grows);
        }
    }

    /// Returns the window of proportional rate reduction, while it holds.
    pub(crate) fn window(&self) -> Option<u64> {
        if let Phase::Fast { window, .. } = self.phase { Some(window) } else { None }
    }
}

/// End of a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// None ended.
    No,
    /// The recovery that follows a reduction ended.
    Reduction,
    /// The recovery after a timeout ended. The window has grown from one segment, and stays as it is.
    Timeout,
}
