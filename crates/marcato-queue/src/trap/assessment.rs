//! From signals and windows to a verdict. CRQ §III-A1 and §III-B3.

use super::{
    Booking, Counting, Evidence, Floor, Response, Scores, Signal, Stamp, TrapConfig, Verdict, Votes, Window,
    WindowUnit,
};

/// How many windows are kept: a power of two.
const KEPT: usize = 8;
/// For how many cycles signals are kept, the current one included.
const SLOTS: u8 = 4;
/// What every vote for a flow is worth, and no vote against it is.
const ONE: u16 = 1 << 12;
/// An aged share must be so large for a flow to be called responsive.
const RISE: u16 = 5 * (ONE >> 3);
/// And no larger than this to be called unresponsive.
const FALL: u16 = 3 * (ONE >> 3);
/// With fewer votes than this, there is no verdict.
const LEAST_VOTES: u8 = 3;
/// A vote's say is at least 1/2^3.
const AGE_SHIFT: u32 = 3;
/// A control is a stretch of cycles without signals in this and the last 6: no response reaches into it.
const QUIET: u8 = 0x7f;
/// With losses in so many of the last 8 cycles, or marks, whatever the flow does follows one, and a fall must last for two
/// cycles. DCTCP in balance at a queue that marks early is marked in four or five.
const STEADY_LOSS: u32 = 3;
const STEADY_MARKS: u32 = 6;
/// The first bends are those of slow start and its end.
const SETTLED: u8 = 16;
/// A sample of noise counts for an eighth, once there are as many.
const NOISE_SHIFT: u32 = 3;
/// How large a fall must be for a response, in sixteenths of the mean bend: after a loss, after marks, after marks so few
/// that a response may be too small to see, of a flow whose rate is even or not, and where losses or marks come all the time.
///
/// The rate of a Poisson flow bends by 1.95 standard deviations in the mean, and its fall from a window to another has 1.41
/// of them: the largest of three falls exceeds the mean bend in a quarter of all cases, 1 1/4 of it in a seventh, 1 1/2
/// in one of 12, 1 3/4 in one of 22, twice in one of 50 and 2 1/2 in one of 200. Two cycles in a row are both lower by the
/// mean bend in one of 26, and by 2 1/2 of it in one of 43 000.
const AFTER_LOSS: u32 = 20;
const AFTER_MARKS: u32 = 16;
const AFTER_FEW_MARKS: u32 = 24;
const AFTER_FEW_MARKS_UNEVENLY: u32 = 28;
const UNDER_STEADY_LOSS: u32 = 16;
const UNDER_STEADY_MARKS: u32 = 40;
/// Marks are few if there is less than one in so many packets of [`FULL`] bytes.
const FEW: u32 = 32;
const FULL: u32 = 1500;
/// A rate is even if it bends by less than this in the mean: 1.1 %.
const EVEN: u16 = 4 << 4;
/// A window's ends may fall anywhere between two packets, so that a packet less is nothing.
const VISIBLE: u32 = 2 * FULL;

/// The votes on one kind of signal.
#[derive(Clone, Copy, Debug)]
struct Track {
    /// How many signals in the last cycles, 8 bits each: the lowest are the current one's.
    slots: u32,
    responsive: u32,
    unresponsive: u32,
    share: Share,
}

/// A share that forgets.
#[derive(Clone, Copy, Debug)]
struct Share {
    /// Of [`ONE`].
    part: u16,
    /// How many votes made it, up to 2^3.
    votes: u8,
}

impl Share {
    const fn new() -> Self {
        Self { part: 0, votes: 0 }
    }

    /// Takes a vote into account: by all of it, a half, another half, four quarters, and eighths from then on.
    fn vote(&mut self, hit: bool) {
        self.votes = (self.votes + 1).min(1 << AGE_SHIFT);
        let shift = self.votes.ilog2();
        let target = if hit { ONE } else { 0 };
        self.part = self.part - (self.part >> shift) + (target >> shift);
    }
}

/// How far the logarithm of the rate bends from cycle to cycle.
#[derive(Clone, Copy, Debug)]
struct Noise {
    /// In 2^-12 of an octave.
    mean: u16,
    /// How many samples made it, up to 255.
    samples: u8,
}

impl Noise {
    const fn new() -> Self {
        Self { mean: 0, samples: 0 }
    }

    /// Takes a bend of so many 2^-8 of an octave into account: by all of it, a half, another half, four quarters, and eighths
    /// from then on, so that the mean is as right after two samples as after many. It counts as twice the mean at most, or else
    /// a sender's own responses, of which each bends the rate two or three times, would count as its noise.
    fn take(&mut self, bend: u16) {
        let bend = if self.samples < 4 { bend } else { bend.min((self.mean >> 3) + 1) };
        self.samples = self.samples.saturating_add(1);
        let shift = self.samples.ilog2().min(NOISE_SHIFT);
        self.mean = self.mean - (self.mean >> shift) + ((bend << 4) >> shift);
    }

    /// Whether `fall`, in 2^-8 of an octave, is so many sixteenths of it.
    fn is_exceeded(self, fall: u32, sixteenths: u32) -> bool {
        fall << 8 >= u32::from(self.mean) * sixteenths
    }
}

/// The signals of a cycle that was signalled to.
#[derive(Clone, Copy, Debug)]
struct Asked {
    /// How many were marks.
    marks: u32,
    /// Whether an answer to so few marks might be too small to see.
    few: bool,
    /// Whether not to have answered is then no refusal.
    excused: bool,
}

impl Track {
    const fn new() -> Self {
        Self { slots: 0, responsive: 0, unresponsive: 0, share: Share::new() }
    }
}

/// In the order of how often each field is needed: with every packet, with every signal, with every cycle.
#[derive(Clone, Debug)]
#[repr(C)]
pub(super) struct Assessment {
    /// By signal.
    verdicts: [Verdict; 2],
    /// Whether there was any signal, one bit per cycle: the lowest is the current one's.
    signalled: u8,
    /// For so many cycles signals are not looked at.
    hold: u8,
    pub(super) scores: Scores,
    /// Signals of cycles so long ago, or longer, are answered or given up on. [`Votes::Aged`].
    settled: [u8; 2],
    /// So many cycles must end before the next control.
    control_in: u8,
    /// How many rates there are, up to 3.
    known: u8,
    tracks: [Track; 2],
    /// How often a dip came without a signal.
    control: Share,
    noise: Noise,
    /// The logarithms of the last rates, in 2^-8 of an octave, the latest first.
    rates: [i16; KEPT],
    /// The last windows, the latest first.
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
            control_in: 0,
            known: 0,
            tracks: [Track::new(); 2],
            control: Share::new(),
            noise: Noise::new(),
            rates: [0; KEPT],
            windows: [Window { bytes: 0, ticks: 0 }; KEPT],
        }
    }

    /// How many of the first bytes every packet needs.
    #[cfg(test)]
    pub(super) const HOT: usize = core::mem::offset_of!(Self, scores) + size_of::<Scores>();

    pub(super) const fn verdict(&self, signal: Signal) -> Verdict {
        self.verdicts[signal as usize]
    }

    pub(super) const fn votes(&self, signal: Signal) -> (u32, u32) {
        let track = &self.tracks[signal as usize];
        (track.responsive, track.unresponsive)
    }

    #[allow(clippy::cast_possible_truncation, reason = "modulo 256")]
    pub(super) const fn stamp(&self) -> Stamp {
        Stamp(self.scores.cycles as u8)
    }

    pub(super) fn signal(&mut self, config: &TrapConfig, signal: Signal, came: Stamp) {
        let age = match config.booking {
            Booking::Given => 0,
            Booking::Arrival => self.stamp().0.wrapping_sub(came.0),
        };
        if age >= SLOTS {
            return;
        }
        self.signalled |= 1 << age;
        if self.hold > 0 {
            return;
        }
        for kind in Signal::ALL {
            let counts = kind == signal || config.evidence == Evidence::Combined;
            if counts && age < self.settled[kind as usize] {
                let slots = &mut self.tracks[kind as usize].slots;
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
        self.tracks.iter_mut().for_each(|track| track.slots = 0);
        if config.votes == Votes::Aged {
            // What the other queue may still do to packets in it is no signal of this one.
            self.settled = [0; 2];
        }
        self.hold = config.reassess;
    }

    /// There was no cycle that could be compared with the last: forget what was waited for.
    pub(super) fn forget(&mut self) {
        self.windows = [Window::default(); KEPT];
        self.tracks.iter_mut().for_each(|track| track.slots = 0);
        self.signalled = u8::MAX;
        self.known = 0;
    }

    /// A cycle ends, in which `window` was sent.
    pub(super) fn close(&mut self, config: &TrapConfig, window: Window) {
        self.windows.rotate_right(1);
        self.windows[0] = window;
        if config.beyond_noise {
            self.measure_noise(window);
        }
        for signal in Signal::ALL {
            self.judge(config, signal);
        }
        if config.controls {
            self.look_without_signal(config);
        }
        self.scores.cycles = self.scores.cycles.wrapping_add(1);
        for (kind, track) in self.tracks.iter_mut().enumerate() {
            let verdict = &mut self.verdicts[kind];
            if config.controls {
                *verdict = track.decide(config, self.control, *verdict);
            }
            match verdict {
                Verdict::Unclassified => {}
                Verdict::Responsive => self.scores.responsive[kind] += 1,
                Verdict::Unresponsive => self.scores.unresponsive[kind] += 1,
            }
            track.slots <<= 8;
            self.settled[kind] = self.settled[kind].saturating_add(1);
        }
        self.signalled <<= 1;
        self.hold = self.hold.saturating_sub(1);
    }

    /// Whether the cycle so many cycles ago was signalled to, and if so, whether an answer came.
    fn judge(&mut self, config: &TrapConfig, signal: Signal) {
        let kind = signal as usize;
        let last = config.response.last;
        if (self.tracks[kind].slots >> (8 * u32::from(last))) & 0xff == 0 || !self.large_enough(config) {
            return;
        }
        let marks =
            if signal == Signal::Ecn { (self.tracks[kind].slots >> (8 * u32::from(last))) & 0xff } else { 0 };
        let asked = self.asked(config, marks);
        let mut answer = self.dip(config, asked);
        let mut has_say = true;
        if answer.is_none() {
            if config.votes == Votes::Aged && self.is_answer(config, last + 1, last, asked) {
                // The flow was answering earlier signals when these came, and has not grown since.
                return;
            }
            if asked.excused {
                return;
            }
            // What slow start may hide is counted, but decides nothing.
            answer = self.dip_in_slow_start(config, asked);
            has_say = answer.is_none();
        }
        let track = &mut self.tracks[kind];
        if answer.is_some() {
            track.responsive = track.responsive.saturating_add(1);
        } else {
            track.unresponsive = track.unresponsive.saturating_add(1);
        }
        if config.votes == Votes::Aged {
            if has_say {
                track.share.vote(answer.is_some());
            }
            // RFC 3168 §6.1.2: one reaction per window. Whatever was signalled up to the answer is answered; and what came
            // while none did is of the same refusal.
            let pending = answer.map_or(0, |answer| u32::from(last - answer));
            track.slots &= (1 << (8 * pending)) - 1;
            self.settled[kind] = last - answer.unwrap_or(last);
        }
        let control = if config.controls { self.control } else { Share::new() };
        self.verdicts[kind] = track.decide(config, control, self.verdicts[kind]);
    }

    /// A stretch in which there was no signal: does the flow dip all the same?
    fn look_without_signal(&mut self, config: &TrapConfig) {
        if self.control_in > 0 {
            self.control_in -= 1;
            return;
        }
        if self.signalled & QUIET == 0 && self.large_enough(config) {
            let asked = self.asked(config, 0);
            self.control.vote(self.dip(config, asked).is_some());
            self.control_in = config.response.last;
        }
    }

    fn large_enough(&self, config: &TrapConfig) -> bool {
        match config.floor {
            Floor::AtSignal(floor) => self.windows[usize::from(config.response.last)].bytes() > floor,
            Floor::AtResponse(floor) => self.windows[0].bytes() >= floor,
        }
    }

    /// What `marks` in the cycle at the signal ask for. If they are so few that who answers each by half a segment, as DCTCP
    /// in balance does, may not be seen to, it is not called unresponsive; but every fall that is taken for an answer must
    /// stand out. A flow whose rate is uneven has no such excuse: its falls come by chance, and if those that do not come were
    /// not counted, chance would be on its side.
    fn asked(&self, config: &TrapConfig, marks: u32) -> Asked {
        let before = self.windows[usize::from(config.response.last)].bytes;
        let few = config.beyond_noise && config.per_mark > 0 && marks > 0 && marks * (FEW * FULL) < before;
        Asked { marks, few, excused: few && self.noise.mean < EVEN }
    }

    /// As [`dip`](Self::dip), whatever the noise, while that is slow start's.
    fn dip_in_slow_start(&self, config: &TrapConfig, asked: Asked) -> Option<u8> {
        if !config.beyond_noise || self.noise.samples > SETTLED {
            return None;
        }
        let Response { first, last } = config.response;
        (first..=last).find(|after| {
            let [before, after] = [last, last - after].map(usize::from);
            self.fall(before, after) > 0
                && is_reduced(config, self.windows[before], self.windows[after], asked)
        })
    }

    /// In which cycle after the one at the signal the window was smaller, if in any.
    fn dip(&self, config: &TrapConfig, asked: Asked) -> Option<u8> {
        let last = config.response.last;
        (config.response.first..=last).find(|&after| self.is_answer(config, last, last - after, asked))
    }

    /// Whether the window so many cycles ago as `after` says is an answer to what was signalled in that of `before`. Where
    /// signals come all the time, the one after it must be so, too: a dip by chance, or a pulse's end, is over by then.
    fn is_answer(&self, config: &TrapConfig, before: u8, after: u8, asked: Asked) -> bool {
        self.is_low(config, before, after, asked)
            && (!config.beyond_noise
                || !self.is_steady(asked)
                || after > 0 && self.is_low(config, before, after - 1, asked))
    }

    /// Whether so many of the last cycles were signalled to that whatever the flow does follows a signal.
    const fn is_steady(&self, asked: Asked) -> bool {
        self.signalled.count_ones() >= if asked.marks == 0 { STEADY_LOSS } else { STEADY_MARKS }
    }

    /// Whether the window so many cycles ago as `after` says is as much lower than that of `before` as an answer is.
    fn is_low(&self, config: &TrapConfig, before: u8, after: u8, asked: Asked) -> bool {
        let [before, after] = [before, after].map(usize::from);
        is_reduced(config, self.windows[before], self.windows[after], asked)
            && (!config.beyond_noise || self.is_beyond_noise(before, after, asked))
    }

    /// Takes note of how far the rate leaves the line through the two before: it neither counts steady growth, such as
    /// slow start's, nor the flat parts of a sawtooth, but all of what comes at random.
    fn measure_noise(&mut self, window: Window) {
        let rate = logarithm(window.bytes) - logarithm(window.ticks);
        self.rates.rotate_right(1);
        self.rates[0] = rate;
        self.known = (self.known + 1).min(3);
        if self.known == 3 {
            let [now, before, earlier, ..] = self.rates.map(i32::from);
            #[allow(clippy::cast_possible_truncation, reason = "at most 2^8")]
            let bend = (now - 2 * before + earlier).unsigned_abs().min(1 << 8) as u16;
            self.noise.take(bend);
        }
    }

    /// How far the logarithm of the rate fell from one of the last cycles, given by age, to another.
    fn fall(&self, before: usize, after: usize) -> u32 {
        let fall = i32::from(self.rates[before]) - i32::from(self.rates[after]);
        fall.max(0).unsigned_abs()
    }

    /// Whether the rate fell by more than chance makes it fall: a sender that answers every mark a little bends all the time,
    /// so that less is asked of it, unless marks come all the time: a sender that answers does not stay there.
    fn is_beyond_noise(&self, before: usize, after: usize, asked: Asked) -> bool {
        let steady = self.is_steady(asked);
        let factor = match asked {
            Asked { marks: 0, .. } if steady => UNDER_STEADY_LOSS,
            Asked { marks: 0, .. } => AFTER_LOSS,
            Asked { .. } if steady => UNDER_STEADY_MARKS,
            Asked { excused: true, .. } => AFTER_FEW_MARKS,
            Asked { few: true, .. } => AFTER_FEW_MARKS_UNEVENLY,
            Asked { .. } => AFTER_MARKS,
        };
        let fall = self.fall(before, after);
        fall > 0 && self.noise.is_exceeded(fall, factor)
    }
}

impl Track {
    /// The verdict that follows `before`.
    const fn decide(&self, config: &TrapConfig, control: Share, before: Verdict) -> Verdict {
        match config.votes {
            Votes::Lifetime if self.responsive == 0 && self.unresponsive == 0 => Verdict::Unclassified,
            Votes::Lifetime if self.responsive >= self.unresponsive => Verdict::Responsive,
            Votes::Lifetime => Verdict::Unresponsive,
            Votes::Aged => {
                let share = self.share.part.saturating_sub(control.part);
                if self.share.votes < LEAST_VOTES {
                    Verdict::Unclassified
                } else if share >= RISE {
                    Verdict::Responsive
                } else if share <= FALL {
                    Verdict::Unresponsive
                } else {
                    before
                }
            }
        }
    }
}

/// The logarithm to base 2 of `number`, or of 1 if it is 0, in 2^-8, rounded down: 8 squarings give 8 binary places.
fn logarithm(number: u32) -> i16 {
    let number = number.max(1);
    let whole = number.ilog2();
    // Between 1 and 2, with 31 binary places.
    let mut mantissa = u64::from(number) << (31 - whole);
    #[allow(clippy::cast_possible_truncation, reason = "at most 31")]
    let mut logarithm = whole as i16;
    for _ in 0..8 {
        mantissa = (mantissa * mantissa) >> 31;
        let carry = mantissa >> 32 != 0;
        mantissa >>= u32::from(carry);
        logarithm = logarithm << 1 | i16::from(carry);
    }
    logarithm
}

/// Whether `after` is the threshold's part of `before` or less, or less by what is asked for.
fn is_reduced(config: &TrapConfig, before: Window, after: Window, asked: Asked) -> bool {
    // A cycle's length is below 2^25 ticks (four loops), its bytes are kept below 2^31: no product reaches 2^63.
    let (before_ticks, after_ticks) = match config.window {
        WindowUnit::Bytes => (1, 1),
        WindowUnit::Rate => (before.ticks.min(1 << 25), after.ticks.min(1 << 25)),
    };
    let bytes = |window: Window| u64::from(window.bytes.min(1 << 31));
    // After it, were the cycles equally long; and before it.
    let sent = bytes(after) * u64::from(before_ticks);
    let was = |bytes: u64| bytes * u64::from(after_ticks);
    let asked_for = u64::from(config.per_mark) * u64::from(asked.marks);
    let asked_for = if asked.few { asked_for.max(u64::from(VISIBLE)) } else { asked_for };
    100 * sent <= u64::from(config.threshold) * was(bytes(before))
        || asked_for > 0 && sent <= was(bytes(before).saturating_sub(asked_for))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(bytes: u32) -> Window {
        Window { bytes, ticks: 1000 }
    }

    /// Ends cycles of `windows` kB, with so many losses in each.
    fn run(config: &TrapConfig, cycles: &[(u32, u32)]) -> Assessment {
        let mut assessment = Assessment::new();
        for &(kilobytes, losses) in cycles {
            for _ in 0..losses {
                assessment.signal(config, Signal::Loss, assessment.stamp());
            }
            assessment.close(config, window(kilobytes * 1000));
        }
        assessment
    }

    fn votes(config: &TrapConfig, cycles: &[(u32, u32)]) -> (u32, u32) {
        run(config, cycles).votes(Signal::Loss)
    }

    #[test]
    fn ninety_percent_two_cycles_later_is_a_response_and_a_byte_more_is_not() {
        for (later, expected) in [(90_000, (1, 0)), (90_001, (0, 1))] {
            let config = TrapConfig::paper();
            let mut assessment = Assessment::new();
            assessment.signal(&config, Signal::Loss, assessment.stamp());
            for bytes in [100_000, 100_000, later] {
                assert_eq!(assessment.votes(Signal::Loss), (0, 0));
                assessment.close(&config, window(bytes));
            }
            assert_eq!(assessment.votes(Signal::Loss), expected);
        }
    }

    #[test]
    fn a_response_is_looked_for_in_the_configured_cycles_only() {
        use super::super::Response;
        let dip_at = |at: usize| {
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
                assert_eq!(votes(&config, &dip_at(at)), expected, "dip at {at}, {first} to {last}");
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
    fn the_paper_looks_at_the_window_at_the_signal_and_the_authors_at_the_later_one() {
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
        // Of the 256 nothing is left in their own cycle; the one in the cycle before is judged too early.
        assert_eq!(votes(&TrapConfig::authors(), &cycles(256)), (0, 1));
        assert_eq!(votes(&TrapConfig::authors(), &cycles(257)), (1, 1));
    }

    /// Defect 6: a signal was booked in the cycle in which it was given, its window in the cycle of arrival.
    #[test]
    fn a_signal_belongs_to_the_cycle_in_which_its_packet_came() {
        let config = TrapConfig { reassess: 0, ..TrapConfig::marcato() };
        for (config, expected) in [(config, (1, 0)), (TrapConfig::paper(), (0, 1))] {
            let mut assessment = Assessment::new();
            assessment.close(&config, window(100_000));
            let came = assessment.stamp();
            assessment.close(&config, window(100_000));
            assessment.close(&config, window(50_000));
            // The packet waited for more than a cycle before it was dropped; the sender had backed off by then for
            // another reason, or for the same, and goes on as it is.
            assessment.signal(&config, Signal::Loss, came);
            for _ in 0..4 {
                assessment.close(&config, window(50_000));
            }
            assert_eq!(assessment.votes(Signal::Loss), expected);
        }
    }

    /// Defect 8: votes never aged.
    #[test]
    fn ten_thousand_good_votes_protect_a_flow_for_a_few_more_only() {
        let good = |config: &TrapConfig| {
            let mut assessment = Assessment::new();
            for _ in 0..10_000 {
                assessment.signal(config, Signal::Loss, assessment.stamp());
                for bytes in [100_000, 100_000, 50_000, 100_000] {
                    assessment.close(config, window(bytes));
                }
            }
            assert_eq!(assessment.verdict(Signal::Loss), Verdict::Responsive);
            assessment
        };
        let cycles_until_unmasked = |config: &TrapConfig| {
            let mut assessment = good(config);
            (0..20_000).find(|_| {
                assessment.signal(config, Signal::Loss, assessment.stamp());
                assessment.close(config, window(100_000));
                assessment.verdict(Signal::Loss) == Verdict::Unresponsive
            })
        };
        assert!(cycles_until_unmasked(&TrapConfig::paper()).unwrap() > 9_000);
        // 3/8 are left after eight votes of an eighth each; each takes four cycles, the first one more.
        let cycles = cycles_until_unmasked(&TrapConfig::marcato()).unwrap();
        assert!((28..=36).contains(&cycles), "{cycles} cycles");
    }

    #[test]
    fn a_flow_that_mends_its_ways_is_forgiven_as_soon() {
        let config = TrapConfig::marcato();
        let mut assessment = run(&config, &[(100, 1); 400]);
        assert_eq!(assessment.verdict(Signal::Loss), Verdict::Unresponsive);
        let cycle = (0..100u32).find(|cycle| {
            if cycle % 4 == 0 {
                assessment.signal(&config, Signal::Loss, assessment.stamp());
            }
            assessment.close(&config, window(if cycle % 4 == 1 { 50_000 } else { 100_000 }));
            assessment.verdict(Signal::Loss) == Verdict::Responsive
        });
        assert!((28..=36).contains(&cycle.unwrap()), "{cycle:?}");
    }

    #[test]
    fn the_verdict_has_hysteresis() {
        let config = TrapConfig::marcato();
        let episode = |assessment: &mut Assessment, answers: bool| {
            assessment.signal(&config, Signal::Loss, assessment.stamp());
            for bytes in [100_000, if answers { 50_000 } else { 100_000 }, 100_000, 100_000] {
                assessment.close(&config, window(bytes));
            }
            assessment.verdict(Signal::Loss)
        };
        // Every second signal is answered: whatever the verdict was, it stays.
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

    /// Defect 9: a reduction by any cause was a response.
    #[test]
    fn dips_that_come_without_a_signal_as_often_earn_nothing() {
        // It dips every fourth cycle; every so often there is a loss before a dip.
        let dipping = |config: &TrapConfig| {
            let mut assessment = Assessment::new();
            for cycle in 0..4000u32 {
                if cycle % 40 == 2 {
                    assessment.signal(config, Signal::Loss, assessment.stamp());
                }
                assessment.close(config, window(if cycle % 4 == 0 { 50_000 } else { 100_000 }));
            }
            assessment
        };
        let paper = dipping(&TrapConfig::paper());
        assert_eq!(paper.verdict(Signal::Loss), Verdict::Responsive);
        let marcato = dipping(&TrapConfig::marcato());
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
                assessment.signal(&config, Signal::Loss, assessment.stamp());
                assessment.changed_queue(&config);
                let mut cycles = 0;
                while assessment.votes(Signal::Loss) == (2, 0) {
                    assessment.close(&config, window(50_000));
                    cycles += 1;
                    assert!(cycles < 20);
                    assessment.signal(&config, Signal::Loss, assessment.stamp());
                }
                let least = config.reassess + config.response.last;
                assert!(cycles >= u32::from(least) && cycles <= u32::from(least) + 2, "{cycles}, {config:?}");
            }
        }
    }

    #[test]
    fn loss_and_marks_are_judged_apart_unless_they_are_combined() {
        for (evidence, loss) in
            [(Evidence::Separate, Verdict::Unclassified), (Evidence::Combined, Verdict::Responsive)]
        {
            let config = TrapConfig { evidence, ..TrapConfig::paper() };
            let mut assessment = Assessment::new();
            assessment.signal(&config, Signal::Ecn, assessment.stamp());
            for bytes in [100_000, 100_000, 50_000] {
                assessment.close(&config, window(bytes));
            }
            assert_eq!(assessment.verdict(Signal::Ecn), Verdict::Responsive);
            assert_eq!(assessment.verdict(Signal::Loss), loss);
        }
    }

    #[test]
    fn the_logarithm_is_exact_to_a_256th_of_an_octave() {
        for exponent in 0..32 {
            assert_eq!(i32::from(logarithm(1 << exponent)), exponent << 8);
        }
        for number in [3, 1000, 1448, 65_535, 1_000_003, u32::MAX] {
            let exact = f64::from(number).log2() * 256.0;
            let error = exact - f64::from(logarithm(number));
            assert!((-0.001..1.001).contains(&error), "{number}: {error}");
        }
        assert_eq!(logarithm(0), 0);
    }

    #[test]
    fn no_window_is_too_large_to_compare() {
        let config = TrapConfig::marcato();
        let huge = Window { bytes: u32::MAX, ticks: u32::MAX };
        let asked = Asked { marks: 0, few: false, excused: false };
        assert!(!is_reduced(&config, huge, huge, asked));
        assert!(is_reduced(&config, huge, Window { bytes: 1, ticks: u32::MAX }, asked));
        assert!(!is_reduced(&config, Window { bytes: 1, ticks: u32::MAX }, huge, asked));
    }
}
