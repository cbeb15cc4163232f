//! Signals, windows and verdicts of one flow. CRQ §III-A1 and §III-B3.
//!
//! An [`Assessment`] counts the signals of the last cycles and keeps their windows. When a cycle
//! ends, the judge that [`TrapConfig::judge`] names rules on the cycle in which a response has
//! become due: [`Majority`] or [`Marcato`].

use super::majority::Majority;
use super::marcato::Marcato;
use super::{
    Booking, Counting, CycleId, Evidence, Floor, Judge, Scores, Signal, TrapConfig, Verdict, Window,
};

/// Number of windows that are kept: a power of two.
pub(super) const KEPT: usize = 8;
/// Number of cycles whose signals are counted, the current one included: four slots of 8 bits fill
/// a `u32`.
const SLOTS: u8 = 4;

/// Last cycles of a flow, as its judge sees them.
#[derive(Clone, Copy)]
pub(super) struct History<'a> {
    /// Last windows, latest first.
    pub(super) windows: &'a [Window; KEPT],
    /// Cycles with a signal of any kind, one bit each: the lowest is the current one's.
    pub(super) signalled: u8,
}

impl History<'_> {
    /// Returns whether the window is large enough to judge the flow: after a backoff it is not. CRQ
    /// §III-A1.
    pub(super) fn is_large_enough(self, config: &TrapConfig) -> bool {
        match config.floor {
            Floor::AtSignal(floor) => self.windows[usize::from(config.response.last)].bytes() > floor,
            Floor::AtResponse(floor) => self.windows[0].bytes() >= floor,
        }
    }

    /// Returns whether the window `after` cycles ago is [reduced](Window::is_reduced_to) from the
    /// one `before` cycles ago.
    pub(super) fn is_reduced(self, config: &TrapConfig, before: u8, after: u8, reduction: u32) -> bool {
        let [before, after] = [before, after].map(|age| self.windows[usize::from(age)]);
        before.is_reduced_to(after, config, reduction)
    }
}

/// Ruling of a judge on a signalled cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ruling {
    /// The flow answered, so many cycles after the signal.
    Answered(u8),
    /// The flow did not answer.
    Refused,
    /// The cycle says nothing about the flow.
    Withheld,
}

/// Signals of one kind, and the votes on them.
#[derive(Clone, Copy, Debug)]
struct SignalWindow {
    /// Numbers of signals in the last cycles, 8 bits each: the lowest are the current one's.
    slots: u32,
    votes: Majority,
}

impl SignalWindow {
    const fn new() -> Self {
        Self { slots: 0, votes: Majority::new() }
    }
}

/// Assessment of one flow.
///
/// The fields stand in the order of how often each is needed: with every packet, with every signal,
/// with every cycle.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Assessment {
    /// By kind of signal.
    verdicts: [Verdict; 2],
    /// Cycles with a signal of any kind, one bit each: the lowest is the current one's.
    signalled: u8,
    /// Cycles to end before signals count again. CRQ §III-B3.
    hold: u8,
    pub(super) scores: Scores,
    /// Age from which on the signals of a cycle are answered or given up, by kind.
    /// [`Judge::Majority`] settles nothing.
    settled: [u8; 2],
    signal_windows: [SignalWindow; 2],
    marcato: Marcato,
    /// Last windows, latest first.
    windows: [Window; KEPT],
}

impl Assessment {
    pub(super) const fn new() -> Self {
        Self {
            verdicts: [Verdict::Unclassified; 2],
            signalled: u8::MAX,
            hold: 0,
            scores: Scores { cycles: 0, responsive: [0; 2], unresponsive: [0; 2] },
            settled: [u8::MAX; 2],
            signal_windows: [SignalWindow::new(); 2],
            marcato: Marcato::new(),
            windows: [Window { bytes: 0, ticks: 0 }; KEPT],
        }
    }

    pub(super) fn inspect(&self, put: &mut dyn FnMut(&'static str, u32)) {
        put("signalled", self.signalled.into());
        put("hold", self.hold.into());
        put("cycles", self.scores.cycles);
        for signal in Signal::ALL {
            let kind = signal as usize;
            put("verdict", self.verdicts[kind] as u32);
            put("settled", self.settled[kind].into());
            put("responsive cycles", self.scores.responsive[kind]);
            put("unresponsive cycles", self.scores.unresponsive[kind]);
            put("slots", self.signal_windows[kind].slots);
            put("votes for", self.signal_windows[kind].votes.responsive);
            put("votes against", self.signal_windows[kind].votes.unresponsive);
        }
        for window in &self.windows {
            put("window bytes", window.bytes);
            put("window ticks", window.ticks);
        }
        self.marcato.inspect(put);
    }

    /// Number of the first bytes that every packet needs.
    #[cfg(test)]
    pub(super) const HOT: usize = core::mem::offset_of!(Self, scores) + size_of::<Scores>();

    pub(super) const fn verdict(&self, signal: Signal) -> Verdict {
        self.verdicts[signal as usize]
    }

    pub(super) const fn votes(&self, signal: Signal) -> (u32, u32) {
        let votes = &self.signal_windows[signal as usize].votes;
        (votes.responsive, votes.unresponsive)
    }

    #[allow(clippy::cast_possible_truncation, reason = "modulo 256")]
    pub(super) const fn cycle_id(&self) -> CycleId {
        CycleId(self.scores.cycles as u8)
    }

    pub(super) fn signal(&mut self, config: &TrapConfig, signal: Signal, came: CycleId) {
        let age = match config.booking {
            Booking::Given => 0,
            Booking::Arrival => self.cycle_id().0.wrapping_sub(came.0),
        };
        if age >= SLOTS {
            return;
        }
        self.signalled |= 1 << age;
        // CRQ §III-B3: no reassessment right after a change of queue.
        if self.hold > 0 {
            return;
        }
        for kind in Signal::ALL {
            let counts = kind == signal || config.evidence == Evidence::Combined;
            if counts && age < self.settled[kind as usize] {
                let slots = &mut self.signal_windows[kind as usize].slots;
                let shift = 8 * u32::from(age);
                // The authors' losses run over into the slot above, their marks do not.
                let runs_over = config.counting == Counting::Authors && signal == Signal::Loss;
                if runs_over || (*slots >> shift) & 0xff < 0xff {
                    *slots = slots.wrapping_add(1 << shift);
                }
            }
        }
    }

    pub(super) fn changed_queue(&mut self, config: &TrapConfig) {
        // CRQ §III-B3: the observed signals are reset.
        self.signal_windows.iter_mut().for_each(|signal_window| signal_window.slots = 0);
        if config.judge == Judge::Marcato {
            // What the other queue may still do to packets in it is no signal of this one.
            self.settled = [0; 2];
            self.marcato.changed_queue();
        }
        self.hold = config.reassess;
    }

    /// Forgets all pending signals, as no cycle follows that could be compared with the last.
    pub(super) fn forget(&mut self) {
        self.windows = [Window::default(); KEPT];
        self.signal_windows.iter_mut().for_each(|signal_window| signal_window.slots = 0);
        self.signalled = u8::MAX;
        self.marcato.forget();
    }

    /// Ends a cycle, in which `window` was sent and at most `flight` bytes were in flight.
    pub(super) fn close(&mut self, config: &TrapConfig, window: Window, flight: u32) {
        self.windows.rotate_right(1);
        self.windows[0] = window;
        let marcato = config.judge == Judge::Marcato;
        if marcato {
            self.marcato.record(window, flight);
            self.marcato.confirm();
        }
        for signal in Signal::ALL {
            self.judge(config, signal);
        }
        if marcato {
            let history = History { windows: &self.windows, signalled: self.signalled };
            self.marcato.control(config, history);
        }
        self.scores.cycles = self.scores.cycles.wrapping_add(1);
        for signal in Signal::ALL {
            let kind = signal as usize;
            if marcato {
                // A control may have changed the share that is subtracted.
                self.verdicts[kind] = self.marcato.verdict(signal, self.verdicts[kind]);
            }
            match self.verdicts[kind] {
                Verdict::Unclassified => {}
                Verdict::Responsive => self.scores.responsive[kind] += 1,
                Verdict::Unresponsive => self.scores.unresponsive[kind] += 1,
            }
            self.signal_windows[kind].slots <<= 8;
            self.settled[kind] = self.settled[kind].saturating_add(1);
        }
        self.signalled <<= 1;
        self.hold = self.hold.saturating_sub(1);
    }

    /// Judges the cycle in which a response is due by now, if there was a signal in it.
    fn judge(&mut self, config: &TrapConfig, signal: Signal) {
        let kind = signal as usize;
        let last = config.response.last;
        let count = (self.signal_windows[kind].slots >> (8 * u32::from(last))) & 0xff;
        let history = History { windows: &self.windows, signalled: self.signalled };
        if count == 0 || !history.is_large_enough(config) {
            return;
        }
        let ruling = match config.judge {
            Judge::Majority => Majority::rule(config, history),
            Judge::Marcato => self.marcato.rule(config, history, signal, count),
        };
        // Signals of so many cycles, the current one included, are still open.
        let (answered, open) = match ruling {
            Ruling::Answered(after) => (true, last - after),
            Ruling::Refused => (false, 0),
            Ruling::Withheld => return,
        };
        let signal_window = &mut self.signal_windows[kind];
        signal_window.votes.vote(answered);
        self.verdicts[kind] = match config.judge {
            Judge::Majority => signal_window.votes.verdict(),
            Judge::Marcato => {
                // RFC 3168 §6.1.2: one reaction per window. All that was signalled up to the answer
                // is answered, and all that was signalled while none came belongs to the same
                // refusal.
                signal_window.slots &= (1 << (8 * u32::from(open))) - 1;
                self.settled[kind] = open;
                self.marcato.verdict(signal, self.verdicts[kind])
            }
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(bytes: u32) -> Window {
        Window { bytes, ticks: 1000 }
    }

    /// Assessment after cycles of so many kB, with so many losses in each.
    fn run(config: &TrapConfig, cycles: &[(u32, u32)]) -> Assessment {
        let mut assessment = Assessment::new();
        for &(kilobytes, losses) in cycles {
            for _ in 0..losses {
                assessment.signal(config, Signal::Loss, assessment.cycle_id());
            }
            assessment.close(config, window(kilobytes * 1000), 0);
        }
        assessment
    }

    fn votes(config: &TrapConfig, cycles: &[(u32, u32)]) -> (u32, u32) {
        run(config, cycles).votes(Signal::Loss)
    }

    #[test]
    fn signals_count_in_the_cycle_of_arrival_until_it_is_settled() {
        let config = TrapConfig { reassess: 0, ..TrapConfig::marcato() };
        let mut assessment = Assessment::new();
        for _ in 0..8 {
            assessment.close(&config, window(100_000), 0);
        }
        let came = |age: u8| CycleId(assessment.cycle_id().0.wrapping_sub(age));
        let [two, one, four] = [2, 1, 4].map(came);
        // More than a slot holds: the rest is not counted in the slot above.
        for _ in 0..300 {
            assessment.signal(&config, Signal::Loss, one);
        }
        assert_eq!((assessment.signal_windows[0].slots, assessment.signalled), (0xff00, 0b10));
        assessment.signal(&config, Signal::Loss, four);
        assert_eq!((assessment.signal_windows[0].slots, assessment.signalled), (0xff00, 0b10), "too old");
        assessment.settled[0] = 2;
        assessment.signal(&config, Signal::Loss, two);
        assert_eq!((assessment.signal_windows[0].slots, assessment.signalled), (0xff00, 0b110), "settled");
        assessment.settled[0] = 3;
        assessment.signal(&config, Signal::Loss, two);
        assert_eq!(assessment.signal_windows[0].slots, 0x01_ff00);
    }

    #[test]
    fn a_sender_that_answers_three_overflows_is_responsive() {
        // A queue that never empties carries the rate of the link again a round trip after the
        // response, so the rate is low for one cycle.
        let overflow = [(100, 1), (100, 3), (70, 2), (96, 0)];
        let quiet = [(100, 0); 8];
        let cycles = |overflows: usize| {
            [quiet.as_slice(), &[quiet.as_slice(), &overflow].concat().repeat(overflows)].concat()
        };
        let verdict = |overflows, config: &TrapConfig| run(config, &cycles(overflows)).verdict(Signal::Loss);
        assert_eq!(verdict(2, &TrapConfig::marcato()), Verdict::Unclassified);
        assert_eq!(verdict(3, &TrapConfig::marcato()), Verdict::Responsive);
    }

    #[test]
    fn a_response_is_90_percent_two_cycles_later_and_no_byte_more() {
        for (later, expected) in [(90_000, (1, 0)), (90_001, (0, 1))] {
            let config = TrapConfig::paper();
            let mut assessment = Assessment::new();
            assessment.signal(&config, Signal::Loss, assessment.cycle_id());
            for bytes in [100_000, 100_000, later] {
                assert_eq!(assessment.votes(Signal::Loss), (0, 0));
                assessment.close(&config, window(bytes), 0);
            }
            assert_eq!(assessment.votes(Signal::Loss), expected);
        }
    }

    #[test]
    fn a_response_is_looked_for_in_the_configured_cycles_only() {
        use super::super::Response;
        let fall_at = |at: usize| {
            let mut cycles = [(100, 0); 4];
            cycles[0].1 = 1;
            cycles[at].0 = 50;
            cycles
        };
        for (first, last) in [(1, 1), (1, 2), (1, 3), (2, 2), (2, 3), (3, 3)] {
            let config = TrapConfig { response: Response { first, last }, ..TrapConfig::paper() };
            for at in 1..=3 {
                let expected = (usize::from(first)..=usize::from(last)).contains(&at);
                let expected = if expected { (1, 0) } else { (0, 1) };
                assert_eq!(votes(&config, &fall_at(at)), expected, "fall at {at}, {first} to {last}");
            }
        }
    }

    #[test]
    fn each_threshold_is_exact() {
        for threshold in [80, 90, 95] {
            let config = TrapConfig { threshold, ..TrapConfig::paper() };
            let percent = u32::from(threshold);
            assert_eq!(votes(&config, &[(100, 1), (100, 0), (percent, 0)]), (1, 0));
            assert_eq!(votes(&config, &[(100, 1), (100, 0), (percent + 1, 0)]), (0, 1));
        }
    }

    #[test]
    fn the_paper_checks_the_window_at_the_signal_the_authors_later() {
        let halved_to_small = [(8, 1), (8, 0), (4, 0)];
        let small_to_large = [(4, 1), (8, 0), (8, 0)];
        assert_eq!(votes(&TrapConfig::paper(), &halved_to_small), (1, 0));
        assert_eq!(votes(&TrapConfig::authors(), &halved_to_small), (0, 0));
        assert_eq!(votes(&TrapConfig::paper(), &small_to_large), (0, 0));
        assert_eq!(votes(&TrapConfig::authors(), &small_to_large), (0, 1));
        // "Larger than" four segments, and "at least".
        assert_eq!(votes(&TrapConfig::paper(), &[(6, 1), (6, 0), (5, 0)]), (0, 0));
        assert_eq!(votes(&TrapConfig::authors(), &[(7, 1), (7, 0), (6, 0)]), (1, 0));
    }

    /// Defect 5 of the prototype: 256 losses in a cycle ran over into the slot of the cycle before.
    #[test]
    fn any_number_of_losses_stays_in_its_cycle() {
        // The response comes in time for the cycle of the losses, but not for the one before it.
        let cycles = |losses| [(100, 0), (100, losses), (100, 0), (50, 0)];
        for losses in [1, 255, 256, 257, 1000] {
            assert_eq!(votes(&TrapConfig::paper(), &cycles(losses)), (1, 0), "{losses} losses");
        }
        assert_eq!(votes(&TrapConfig::authors(), &cycles(255)), (1, 0));
        // Of the 256, none is left in their own cycle; the one in the cycle before is judged too
        // early.
        assert_eq!(votes(&TrapConfig::authors(), &cycles(256)), (0, 1));
        assert_eq!(votes(&TrapConfig::authors(), &cycles(257)), (1, 1));
    }

    /// Defect 6: a signal was booked in the cycle in which it was given, its window in the cycle of
    /// arrival.
    #[test]
    fn a_signal_belongs_to_the_cycle_in_which_its_packet_came() {
        let config = TrapConfig { reassess: 0, ..TrapConfig::marcato() };
        for (config, expected) in [(config, (1, 0)), (TrapConfig::paper(), (0, 1))] {
            let mut assessment = Assessment::new();
            assessment.close(&config, window(100_000), 0);
            let came = assessment.cycle_id();
            assessment.close(&config, window(100_000), 0);
            assessment.close(&config, window(50_000), 0);
            // The packet waited for more than a cycle before it was dropped. The sender had backed
            // off by then, and keeps its window.
            assessment.signal(&config, Signal::Loss, came);
            for _ in 0..4 {
                assessment.close(&config, window(50_000), 0);
            }
            assert_eq!(assessment.votes(Signal::Loss), expected);
        }
    }

    /// Defect 8: votes never aged.
    #[test]
    fn ten_thousand_votes_protect_a_flow_for_a_few_more_only() {
        let good = |config: &TrapConfig| {
            let mut assessment = Assessment::new();
            for _ in 0..10_000 {
                assessment.signal(config, Signal::Loss, assessment.cycle_id());
                for bytes in [100_000, 100_000, 50_000, 100_000] {
                    assessment.close(config, window(bytes), 0);
                }
            }
            assert_eq!(assessment.verdict(Signal::Loss), Verdict::Responsive);
            assessment
        };
        let cycles_until_unmasked = |config: &TrapConfig| {
            let mut assessment = good(config);
            (0..20_000).find(|_| {
                assessment.signal(config, Signal::Loss, assessment.cycle_id());
                assessment.close(config, window(100_000), 0);
                assessment.verdict(Signal::Loss) == Verdict::Unresponsive
            })
        };
        assert!(cycles_until_unmasked(&TrapConfig::paper()).unwrap() > 9_000);
        // 3/8 are left after eight votes of an eighth each; each takes four cycles, the first one
        // more.
        let cycles = cycles_until_unmasked(&TrapConfig::marcato()).unwrap();
        assert!((28..=36).contains(&cycles), "{cycles} cycles");
    }

    #[test]
    fn a_flow_that_becomes_responsive_is_accepted_as_soon() {
        let config = TrapConfig::marcato();
        let mut assessment = run(&config, &[(100, 1); 400]);
        assert_eq!(assessment.verdict(Signal::Loss), Verdict::Unresponsive);
        let cycle = (0..100u32).find(|cycle| {
            if cycle % 4 == 0 {
                assessment.signal(&config, Signal::Loss, assessment.cycle_id());
            }
            assessment.close(&config, window(if cycle % 4 == 1 { 50_000 } else { 100_000 }), 0);
            assessment.verdict(Signal::Loss) == Verdict::Responsive
        });
        assert!((28..=36).contains(&cycle.unwrap()), "{cycle:?}");
    }

    #[test]
    fn the_verdict_has_hysteresis() {
        let config = TrapConfig::marcato();
        let episode = |assessment: &mut Assessment, answers: bool| {
            assessment.signal(&config, Signal::Loss, assessment.cycle_id());
            for bytes in [100_000, if answers { 50_000 } else { 100_000 }, 100_000, 100_000] {
                assessment.close(&config, window(bytes), 0);
            }
            assessment.verdict(Signal::Loss)
        };
        // Every second signal is answered: any verdict stays.
        for (start, verdict) in [(true, Verdict::Responsive), (false, Verdict::Unresponsive)] {
            let mut assessment = Assessment::new();
            for _ in 0..8 {
                episode(&mut assessment, start);
            }
            for turn in 0..100 {
                assert_eq!(episode(&mut assessment, turn % 2 == 0), verdict, "turn {turn}");
            }
        }
    }

    /// Defect 9: a reduction by any cause counted as a response.
    #[test]
    fn falls_that_come_without_a_signal_as_often_earn_nothing() {
        // It falls every fourth cycle; now and then there is a loss before a fall.
        let falling = |config: &TrapConfig| {
            let mut assessment = Assessment::new();
            for cycle in 0..4000u32 {
                if cycle % 40 == 2 {
                    assessment.signal(config, Signal::Loss, assessment.cycle_id());
                }
                assessment.close(config, window(if cycle % 4 == 0 { 50_000 } else { 100_000 }), 0);
            }
            assessment
        };
        let paper = falling(&TrapConfig::paper());
        assert_eq!(paper.verdict(Signal::Loss), Verdict::Responsive);
        let marcato = falling(&TrapConfig::marcato());
        assert!(marcato.votes(Signal::Loss).0 > 90, "{:?}", marcato.votes(Signal::Loss));
        assert_eq!(marcato.verdict(Signal::Loss), Verdict::Unresponsive);
        let cycles = marcato.scores.cycles;
        assert!(marcato.scores.responsive[0] * 20 <= cycles, "{:?}", marcato.scores);
    }

    #[test]
    fn a_change_of_queue_forgets_signals_but_not_votes() {
        for preset in [TrapConfig::paper(), TrapConfig::authors(), TrapConfig::marcato()] {
            for reassess in [0, 1, 8] {
                let config = TrapConfig { reassess, ..preset };
                let mut assessment = run(
                    &config,
                    &[(100, 1), (50, 0), (50, 0), (100, 0), (100, 1), (50, 0), (50, 0), (50, 0)],
                );
                assert_eq!(assessment.votes(Signal::Loss), (2, 0));
                assessment.signal(&config, Signal::Loss, assessment.cycle_id());
                assessment.changed_queue(&config);
                let mut cycles = 0;
                while assessment.votes(Signal::Loss) == (2, 0) {
                    assessment.close(&config, window(50_000), 0);
                    cycles += 1;
                    assert!(cycles < 20);
                    assessment.signal(&config, Signal::Loss, assessment.cycle_id());
                }
                let least = config.reassess + config.response.last;
                assert!(cycles >= u32::from(least) && cycles <= u32::from(least) + 2, "{cycles}, {config:?}");
            }
        }
    }

    #[test]
    fn signals_of_the_old_queue_are_not_held_against_a_moved_flow() {
        let config = TrapConfig { reassess: 0, ..TrapConfig::marcato() };
        let mut assessment = run(&config, &[(100, 0); 8]);
        assessment.changed_queue(&config);
        // Packets of the last cycles still wait in the old queue, and are dropped there.
        for age in 0..SLOTS {
            let came = CycleId(assessment.cycle_id().0.wrapping_sub(age));
            assessment.signal(&config, Signal::Loss, came);
        }
        for _ in 0..8 {
            assessment.close(&config, window(100_000), 0);
        }
        assert_eq!(assessment.votes(Signal::Loss), (0, 0));
        // A loss of a packet that came into the new queue counts.
        assessment.signal(&config, Signal::Loss, assessment.cycle_id());
        for _ in 0..8 {
            assessment.close(&config, window(100_000), 0);
        }
        assert_eq!(assessment.votes(Signal::Loss), (0, 1));
    }

    #[test]
    fn a_pause_resets_signals_and_windows_but_no_vote() {
        let config = TrapConfig { reassess: 0, ..TrapConfig::marcato() };
        let answered = [(100, 0), (100, 0), (100, 0), (100, 1), (50, 0), (50, 0), (50, 0)];
        let mut assessment = run(&config, &answered);
        assert_eq!(assessment.votes(Signal::Loss), (1, 0));
        // A loss whose answer would be judged after the pause, against windows from before it.
        assessment.signal(&config, Signal::Loss, assessment.cycle_id());
        assessment.close(&config, window(50_000), 0);
        assessment.forget();
        assert!(assessment.windows.iter().all(|window| window.bytes == 0));
        // The cycles before the pause are not taken for quiet ones.
        assert_eq!(assessment.signalled, u8::MAX);
        for _ in 0..8 {
            assessment.close(&config, window(50_000), 0);
        }
        assert_eq!(assessment.votes(Signal::Loss), (1, 0));
    }

    #[test]
    fn loss_and_marks_are_judged_apart_unless_they_are_combined() {
        for (evidence, loss) in
            [(Evidence::Separate, Verdict::Unclassified), (Evidence::Combined, Verdict::Responsive)]
        {
            let config = TrapConfig { evidence, ..TrapConfig::paper() };
            let mut assessment = Assessment::new();
            assessment.signal(&config, Signal::Ecn, assessment.cycle_id());
            for bytes in [100_000, 100_000, 50_000] {
                assessment.close(&config, window(bytes), 0);
            }
            assert_eq!(assessment.verdict(Signal::Ecn), Verdict::Responsive);
            assert_eq!(assessment.verdict(Signal::Loss), loss);
        }
    }
}
