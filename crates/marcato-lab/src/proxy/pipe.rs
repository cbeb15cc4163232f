//! Pipe: one direction of a connection through a proxy.
//!
//! It has no socket and no clock. Each piece of data has the time at which it is due, computed when it enters: a late
//! timer delays data by its lateness, and makes no rate lower. What enters is bounded by [`Pipe::room`], so that a
//! sender which is faster than the toxics, or than the receiver, is stopped by TCP.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use marcato_link::Transmitter;
use marcato_units::{Bytes, Duration, Rate, Stream, Time};

use super::line::{Line, transmit};
use super::toxic::{NamedToxic, Side, Toxic};

/// Most bytes that wait in a pipe, or are in flight.
pub const MAX_HELD: usize = 4 << 20;
/// Largest piece of data.
pub const MAX_PIECE: usize = 64 << 10;
/// Smallest piece that is taken for a rate, unless less is there.
const LEAST_PIECE: usize = 1448;
/// Slices of one piece: with smaller ones, its last slice is larger.
const MAX_SLICES: usize = 1024;
/// Time for which data wait before a transmitter. It exceeds the lateness of timers, so that rates hold.
const AHEAD: Duration = Duration::from_millis(20);

/// Output of a pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Data for the receiver.
    Data(Vec<u8>),
    /// End of the stream, as the sender has ended it. The other direction stays open.
    End,
    /// Close of the whole connection.
    Close,
    /// Reset of the whole connection.
    Reset,
}

/// Toxic as it acts on this connection.
#[derive(Debug)]
struct Stage {
    of: NamedToxic,
    /// Drawn once for each connection.
    acts: bool,
    since: Time,
    transmitter: Option<Transmitter>,
    /// Bytes that have passed a limit, and the time at which the last of them was due.
    passed: u64,
    reached: Option<Time>,
}

/// One direction of a connection.
#[derive(Debug)]
pub struct Pipe {
    side: Side,
    stages: Vec<Stage>,
    line: Option<Arc<Mutex<Line>>>,
    stream: Stream,
    queue: VecDeque<(Time, Vec<u8>)>,
    held: usize,
    /// Arrival of the end of the stream.
    ended: Option<Time>,
    is_over: bool,
    last: Time,
    /// Time at which the data that wait for a transmitter have left it.
    waits_until: Time,
    discarded: u64,
}

impl Pipe {
    /// Creates an empty pipe, perhaps through a shared line. Random numbers come from `stream`.
    pub fn new(side: Side, line: Option<Arc<Mutex<Line>>>, stream: Stream) -> Self {
        Self {
            side,
            stages: Vec::new(),
            line,
            stream,
            queue: VecDeque::new(),
            held: 0,
            ended: None,
            is_over: false,
            last: Time::ZERO,
            waits_until: Time::ZERO,
            discarded: 0,
        }
    }

    /// Sets the toxics of the proxy. Those that it had keep their state, also if their values change.
    pub fn set_toxics(&mut self, now: Time, toxics: &[NamedToxic]) {
        let mut old = std::mem::take(&mut self.stages);
        for of in toxics.iter().filter(|of| of.side == self.side && of.toxic.is_for_tcp()) {
            let known = old.iter().position(|stage| stage.of.name == of.name).map(|at| old.swap_remove(at));
            let same = known
                .filter(|stage| std::mem::discriminant(&stage.of.toxic) == std::mem::discriminant(&of.toxic));
            let mut stage = match same {
                Some(stage) if stage.of.toxicity == of.toxicity => Stage { of: of.clone(), ..stage },
                other => Stage {
                    of: of.clone(),
                    acts: self.stream.chance(of.toxicity),
                    since: other.as_ref().map_or(now, |stage| stage.since),
                    transmitter: None,
                    passed: other.map_or(0, |stage| stage.passed),
                    reached: None,
                },
            };
            match (&of.toxic, &mut stage.transmitter) {
                (Toxic::Bandwidth { rate }, Some(transmitter)) if transmitter.rate() != Some(*rate) => {
                    transmitter.set_rate(now, *rate);
                }
                (Toxic::Bandwidth { rate }, place @ None) => {
                    *place = Some(Transmitter::new(Some(*rate), None));
                }
                _ => {}
            }
            if let Toxic::LimitData { bytes } = of.toxic {
                stage.reached = (stage.passed >= bytes.get()).then(|| stage.reached.unwrap_or(now));
            }
            self.stages.push(stage);
        }
        // What waited for a lower rate need not any more.
        self.waits_until = self.waits_until.min(now + AHEAD);
    }

    /// Returns the stages that act on this connection.
    fn acting(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().filter(|stage| stage.acts)
    }

    /// Returns whether data are discarded.
    fn discards(&self) -> bool {
        self.acting().any(|stage| {
            matches!(stage.of.toxic, Toxic::Timeout { .. } | Toxic::ResetPeer { .. })
                || stage.reached.is_some()
        })
    }

    /// Returns the lowest rate, and whether it is zero.
    fn rate(&self) -> Option<Rate> {
        let line =
            self.line.as_ref().and_then(|line| line.lock().unwrap_or_else(PoisonError::into_inner).rate());
        let own = self.acting().filter_map(|stage| match stage.of.toxic {
            Toxic::Bandwidth { rate } => Some(rate),
            _ => None,
        });
        own.chain(line).min()
    }

    /// Returns the number of bytes that may enter now; 0 if the sender has to wait.
    pub fn room(&self, now: Time) -> usize {
        if self.ended.is_some() || self.is_over {
            return 0;
        }
        if self.discards() {
            return MAX_PIECE;
        }
        let rate = self.rate();
        if self.waits_until > now + AHEAD || rate == Some(Rate::ZERO) {
            return 0;
        }
        let piece = rate.map_or(MAX_PIECE, |rate| {
            let bytes = u128::from(rate.as_bps()) * AHEAD.as_nanos() / 8_000_000_000;
            usize::try_from(bytes).unwrap_or(MAX_PIECE).clamp(LEAST_PIECE, MAX_PIECE)
        });
        piece.min(MAX_HELD.saturating_sub(self.held))
    }

    /// Takes data from the sender. They should not be more than there is [room](Self::room) for.
    pub fn push(&mut self, now: Time, mut data: Vec<u8>) {
        if self.discards() {
            self.discarded += data.len() as u64;
            return;
        }
        // A limit decides first: what it cuts off takes no time of a transmitter.
        let mut limited = None;
        for (number, stage) in self.stages.iter_mut().enumerate().filter(|(_, stage)| stage.acts) {
            if let Toxic::LimitData { bytes } = stage.of.toxic {
                let left = usize::try_from(bytes.get().saturating_sub(stage.passed)).unwrap_or(usize::MAX);
                self.discarded += data.len().saturating_sub(left) as u64;
                data.truncate(left);
                stage.passed += data.len() as u64;
                if stage.passed >= bytes.get() {
                    limited = Some(number);
                }
            }
        }
        let mut waited = Duration::ZERO;
        let mut at = now;
        let length = Bytes::new(data.len() as u64);
        if let Some(line) = &self.line {
            let (left, arrived) = line.lock().unwrap_or_else(PoisonError::into_inner).send(now, length);
            waited = waited.max(left.since(now));
            at = arrived;
        }
        let mut slices: Option<(Bytes, Bytes, Duration)> = None;
        for stage in self.stages.iter_mut().filter(|stage| stage.acts) {
            match &stage.of.toxic {
                Toxic::Latency { latency, jitter } => {
                    let least = latency.saturating_sub(*jitter);
                    let most = latency.saturating_add(*jitter);
                    at = at + least + (most - least).mul_f64(self.stream.unit());
                }
                Toxic::Bandwidth { .. } => {
                    if let Some(transmitter) = &mut stage.transmitter {
                        let left = transmit(transmitter, at, length);
                        waited = waited.max(left.since(at));
                        at = left;
                    }
                }
                Toxic::Slicer { average, variation, delay } => slices = Some((*average, *variation, *delay)),
                _ => {}
            }
        }
        at = at.max(self.last);
        let begun = at;
        match slices {
            None => self.enter(at, data),
            Some((average, variation, delay)) => {
                for number in 0.. {
                    let spread = variation.get().min(average.get());
                    let size = average.get() - spread + self.stream.below(2 * spread + 1);
                    let size = usize::try_from(size.max(1)).unwrap_or(usize::MAX);
                    if number > 0 {
                        at += delay;
                    }
                    if data.len() <= size || number + 1 >= MAX_SLICES {
                        self.enter(at, std::mem::take(&mut data));
                        break;
                    }
                    let rest = data.split_off(size);
                    self.enter(at, std::mem::replace(&mut data, rest));
                }
            }
        }
        self.waits_until = now + waited + at.since(begun);
        if let Some(stage) = limited.and_then(|number| self.stages.get_mut(number)) {
            stage.reached = Some(self.last);
        }
    }

    fn enter(&mut self, at: Time, data: Vec<u8>) {
        self.last = self.last.max(at);
        if !data.is_empty() {
            self.held += data.len();
            self.queue.push_back((at, data));
        }
    }

    /// Notes that the sender has ended its stream.
    pub fn end(&mut self, now: Time) {
        let mut at = match &self.line {
            Some(line) => line.lock().unwrap_or_else(PoisonError::into_inner).end(now),
            None => now,
        };
        for stage in self.stages.iter().filter(|stage| stage.acts) {
            match stage.of.toxic {
                Toxic::Latency { latency, .. } => at += latency,
                Toxic::SlowClose { delay } => at += delay,
                _ => {}
            }
        }
        // It does not overtake data; a slow close counts from the last of them.
        let slow: Duration = self
            .acting()
            .filter_map(|stage| match stage.of.toxic {
                Toxic::SlowClose { delay } => Some(delay),
                _ => None,
            })
            .sum();
        self.ended = Some(at.max(self.last + slow));
    }

    /// Returns the time and kind of the end that toxics give the connection.
    fn verdict(&self) -> Option<(Time, Output)> {
        let of = |stage: &Stage| match stage.of.toxic {
            Toxic::Timeout { timeout } if !timeout.is_zero() => Some((stage.since + timeout, Output::Close)),
            Toxic::ResetPeer { timeout } => Some((stage.since + timeout, Output::Reset)),
            Toxic::LimitData { .. } => stage.reached.map(|at| (at, Output::Close)),
            _ => None,
        };
        self.acting().filter_map(of).min_by_key(|(at, _)| *at)
    }

    /// Returns what comes out by `now`, one at a time.
    pub fn poll(&mut self, now: Time) -> Option<Output> {
        if self.is_over {
            return None;
        }
        let verdict = self.verdict().filter(|(at, _)| *at <= now);
        let due = self.queue.front().map(|(at, _)| *at).filter(|at| *at <= now);
        match (due, verdict) {
            // A limit lets the data pass that are due at the same time.
            (Some(at), verdict) if verdict.as_ref().is_none_or(|(end, _)| at <= *end) => {
                let (_, data) = self.queue.pop_front()?;
                self.held -= data.len();
                Some(Output::Data(data))
            }
            (_, Some((_, output))) => {
                self.is_over = true;
                self.discarded += self.held as u64;
                self.queue.clear();
                self.held = 0;
                Some(output)
            }
            _ if self.queue.is_empty() && self.ended.is_some_and(|at| at <= now) => {
                self.is_over = true;
                Some(Output::End)
            }
            _ => None,
        }
    }

    /// Returns the time of the next call of [`poll`](Self::poll) or [`room`](Self::room) that may answer differently,
    /// unless something enters or the toxics change.
    pub fn next_event(&self, now: Time) -> Option<Time> {
        if self.is_over {
            return None;
        }
        let data = self.queue.front().map(|(at, _)| *at);
        let end = self.ended.filter(|_| self.queue.is_empty());
        let room = (self.ended.is_none() && self.waits_until > now + AHEAD)
            .then(|| Time::ZERO + self.waits_until.since(Time::ZERO).saturating_sub(AHEAD));
        let verdict = self.verdict().map(|(at, _)| at);
        data.into_iter().chain(end).chain(room).chain(verdict).min()
    }

    /// Returns the bytes inside.
    pub const fn held(&self) -> usize {
        self.held
    }

    /// Returns the bytes that toxics have discarded.
    pub const fn discarded(&self) -> u64 {
        self.discarded
    }
}

#[cfg(test)]
mod tests {
    use marcato_scenario::brief::{Brief, Ways};
    use marcato_units::Seed;
    use proptest::prelude::*;

    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn at(ms: u64) -> Time {
        Time::from_millis(ms)
    }

    fn named(name: &str, toxic: Toxic) -> NamedToxic {
        NamedToxic { name: name.to_owned(), side: Side::Downstream, toxicity: 1.0, toxic }
    }

    fn pipe(toxics: impl IntoIterator<Item = Toxic>) -> Pipe {
        let mut pipe = Pipe::new(Side::Downstream, None, Seed::new(1).stream("test"));
        let toxics = toxics.into_iter().enumerate();
        let toxics: Vec<NamedToxic> =
            toxics.map(|(number, toxic)| named(&number.to_string(), toxic)).collect();
        pipe.set_toxics(Time::ZERO, &toxics);
        pipe
    }

    /// Line of a link in one line, down.
    fn line(text: &str) -> Option<Arc<Mutex<Line>>> {
        let mut brief = Brief::default();
        brief.add("--link", Ways::Both, text).unwrap();
        let link = brief.link().unwrap().link;
        let line = Line::new(&link.back, link.changes_of(true).cloned(), None, Seed::new(1).stream("line"));
        Some(Arc::new(Mutex::new(line)))
    }

    /// Sends data as fast as a pipe takes them, and ends the stream. Returns everything that comes out, with its time.
    fn passed(pipe: &mut Pipe, mut data: &[u8], most: usize) -> Vec<(Time, Output)> {
        let (mut now, mut came, mut ended) = (Time::ZERO, Vec::new(), false);
        for _ in 0..1_000_000 {
            while let Some(output) = pipe.poll(now) {
                came.push((now, output));
            }
            let room = pipe.room(now).min(data.len()).min(most);
            if room > 0 {
                let (first, rest) = data.split_at(room);
                pipe.push(now, first.to_vec());
                data = rest;
                assert!(pipe.held() <= MAX_HELD);
                continue;
            }
            if data.is_empty() && !ended {
                ended = true;
                pipe.end(now);
                continue;
            }
            match pipe.next_event(now) {
                Some(next) => {
                    assert!(next > now, "{next:?} is no later than {now:?}");
                    now = next;
                }
                None => return came,
            }
        }
        panic!("it does not end: {:?}", came.last());
    }

    /// Returns the bytes and the time of the last of them.
    fn bytes(came: &[(Time, Output)]) -> (Vec<u8>, Time) {
        let mut all = Vec::new();
        let mut last = Time::ZERO;
        for (at, output) in came {
            if let Output::Data(data) = output {
                all.extend(data);
                last = *at;
            }
        }
        (all, last)
    }

    #[test]
    fn data_come_out_unchanged_and_at_once_without_toxics() {
        let mut pipe = pipe([]);
        pipe.push(at(5), b"hello".to_vec());
        assert_eq!(pipe.poll(at(5)), Some(Output::Data(b"hello".to_vec())));
        pipe.end(at(6));
        assert_eq!((pipe.poll(at(6)), pipe.poll(at(7))), (Some(Output::End), None));
        assert_eq!((pipe.room(at(7)), pipe.next_event(at(7))), (0, None));
    }

    #[test]
    fn latency_delays_data_and_the_end_in_order() {
        let mut pipe = pipe([Toxic::Latency { latency: ms(100), jitter: ms(0) }]);
        pipe.push(at(0), vec![1]);
        pipe.push(at(30), vec![2]);
        pipe.end(at(31));
        assert_eq!((pipe.next_event(at(31)), pipe.poll(at(99))), (Some(at(100)), None));
        assert_eq!(pipe.poll(at(100)), Some(Output::Data(vec![1])));
        assert_eq!(pipe.poll(at(130)), Some(Output::Data(vec![2])));
        assert_eq!((pipe.poll(at(130)), pipe.poll(at(131))), (None, Some(Output::End)));
    }

    #[test]
    fn jitter_stays_within_its_bounds_and_keeps_the_order() {
        let mut pipe = pipe([Toxic::Latency { latency: ms(100), jitter: ms(40) }]);
        let mut delays = Vec::new();
        for number in 0..200_u8 {
            let sent = at(u64::from(number) * 200);
            pipe.push(sent, vec![number]);
            let due = pipe.next_event(sent).unwrap();
            assert_eq!(pipe.poll(due), Some(Output::Data(vec![number])));
            delays.push(due.since(sent));
        }
        let (least, most) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
        assert!(
            *least >= ms(60) && *least < ms(65) && *most <= ms(140) && *most > ms(135),
            "{least:?} {most:?}"
        );
    }

    #[test]
    fn a_bandwidth_is_kept_and_bounds_what_waits() {
        // 125 kB in a second are 1 Mbit/s.
        let mut pipe = pipe([Toxic::Bandwidth { rate: Rate::from_mbps(1) }]);
        let data: Vec<u8> = (0..250_000_u32).map(|number| number.to_le_bytes()[0]).collect();
        let (mut came, mut most) = (Vec::new(), 0);
        let mut now = Time::ZERO;
        let mut rest = &data[..];
        while came.len() < data.len() {
            while let Some(Output::Data(data)) = pipe.poll(now) {
                came.extend(data);
            }
            let room = pipe.room(now).min(rest.len());
            if room > 0 {
                pipe.push(now, rest[..room].to_vec());
                rest = &rest[room..];
                most = most.max(pipe.held());
            } else {
                now = pipe.next_event(now).unwrap_or(now);
            }
        }
        assert!(came == data);
        assert_eq!(now, at(2000));
        // What waits is 20 ms and a piece.
        assert!(most <= 3 * 2500, "{most}");
    }

    #[test]
    fn a_rate_of_zero_stops_data_until_it_is_raised() {
        let mut pipe = pipe([Toxic::Bandwidth { rate: Rate::ZERO }]);
        assert_eq!((pipe.room(at(0)), pipe.next_event(at(0))), (0, None));
        pipe.set_toxics(at(50), &[named("0", Toxic::Bandwidth { rate: Rate::from_mbps(8) })]);
        assert!(pipe.room(at(50)) > 0);
        pipe.push(at(50), vec![0; 1000]);
        assert_eq!(pipe.next_event(at(50)), Some(at(51)));
    }

    #[test]
    fn a_slicer_makes_slices_with_pauses() {
        let slicer = Toxic::Slicer { average: Bytes::new(100), variation: Bytes::new(20), delay: ms(3) };
        let mut pipe = pipe([slicer]);
        let data: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(4);
        let came = passed(&mut pipe, &data, data.len());
        assert_eq!(bytes(&came).0, data);
        let slices: Vec<(Time, usize)> = came
            .iter()
            .filter_map(|(at, output)| match output {
                Output::Data(data) => Some((*at, data.len())),
                _ => None,
            })
            .collect();
        let (_, whole) = slices.split_last().unwrap();
        assert!(whole.len() >= 8 && whole.iter().all(|(_, size)| (80..=120).contains(size)), "{slices:?}");
        assert!(slices.windows(2).all(|pair| pair[1].0.since(pair[0].0) == ms(3)), "{slices:?}");
        // However small they are, there are not many.
        let tiny = Toxic::Slicer { average: Bytes::new(1), variation: Bytes::ZERO, delay: ms(0) };
        let mut pipe = self::pipe([tiny]);
        pipe.push(Time::ZERO, vec![7; MAX_PIECE]);
        assert_eq!(pipe.queue.len(), MAX_SLICES);
        assert_eq!(pipe.held(), MAX_PIECE);
    }

    #[test]
    fn a_limit_closes_after_its_bytes() {
        let mut pipe = pipe([
            Toxic::LimitData { bytes: Bytes::new(10) },
            Toxic::Latency { latency: ms(5), jitter: ms(0) },
        ]);
        pipe.push(at(0), vec![1; 6]);
        pipe.push(at(1), vec![2; 6]);
        pipe.push(at(2), vec![3; 6]);
        assert_eq!(pipe.discarded(), 8);
        assert_eq!(pipe.poll(at(5)), Some(Output::Data(vec![1; 6])));
        assert_eq!(pipe.poll(at(6)), Some(Output::Data(vec![2; 4])));
        assert_eq!((pipe.poll(at(6)), pipe.poll(at(7))), (Some(Output::Close), None));
    }

    #[test]
    fn a_timeout_discards_and_closes_in_time_or_never() {
        let mut pipe = pipe([Toxic::Timeout { timeout: ms(50) }]);
        pipe.push(at(10), vec![1; 6]);
        assert_eq!((pipe.discarded(), pipe.next_event(at(10))), (6, Some(at(50))));
        assert_eq!((pipe.poll(at(49)), pipe.poll(at(50))), (None, Some(Output::Close)));
        let mut pipe = self::pipe([Toxic::Timeout { timeout: ms(0) }]);
        pipe.push(at(10), vec![1; 6]);
        assert_eq!((pipe.next_event(at(10)), pipe.poll(at(1_000_000))), (None, None));
        // Without the toxic, later data pass again.
        pipe.set_toxics(at(20), &[]);
        pipe.push(at(20), vec![2]);
        assert_eq!(pipe.poll(at(20)), Some(Output::Data(vec![2])));
    }

    #[test]
    fn a_reset_and_a_slow_close_come_in_time() {
        let mut pipe = pipe([Toxic::ResetPeer { timeout: ms(30) }]);
        pipe.push(at(10), vec![1]);
        assert_eq!(
            (pipe.poll(at(29)), pipe.poll(at(30)), pipe.poll(at(31))),
            (None, Some(Output::Reset), None)
        );
        let mut pipe = self::pipe([Toxic::SlowClose { delay: ms(40) }]);
        pipe.push(at(10), vec![1]);
        pipe.end(at(10));
        assert_eq!(pipe.poll(at(10)), Some(Output::Data(vec![1])));
        assert_eq!((pipe.poll(at(49)), pipe.poll(at(50))), (None, Some(Output::End)));
        // It counts from the last data, which take a second here.
        let slow = Toxic::Bandwidth { rate: Rate::from_kbps(8) };
        let mut pipe = self::pipe([slow, Toxic::SlowClose { delay: ms(40) }]);
        pipe.push(at(0), vec![1; 1000]);
        pipe.end(at(1));
        assert_eq!(pipe.poll(at(1000)), Some(Output::Data(vec![1; 1000])));
        assert_eq!((pipe.poll(at(1039)), pipe.poll(at(1040))), (None, Some(Output::End)));
    }

    #[test]
    fn toxics_of_the_other_side_or_of_datagrams_do_nothing() {
        let mut pipe = pipe([Toxic::Loss(1.0)]);
        let mut other = named("slow", Toxic::Latency { latency: ms(100), jitter: ms(0) });
        other.side = Side::Upstream;
        pipe.set_toxics(at(0), &[other]);
        pipe.push(at(0), vec![1]);
        assert_eq!(pipe.poll(at(0)), Some(Output::Data(vec![1])));
    }

    #[test]
    fn a_toxicity_is_the_share_of_connections() {
        let toxic = NamedToxic { toxicity: 0.25, ..named("half", Toxic::ResetPeer { timeout: ms(0) }) };
        let acts = |number: u64| {
            let mut pipe = Pipe::new(Side::Downstream, None, Seed::new(1).stream(&format!("down/{number}")));
            pipe.set_toxics(at(0), std::slice::from_ref(&toxic));
            // The draw stays.
            pipe.set_toxics(at(1), std::slice::from_ref(&toxic));
            pipe.poll(at(1)) == Some(Output::Reset)
        };
        let acting = (0..1000).filter(|number| acts(*number)).count();
        // The standard deviation is 13.7, the bound five of them.
        assert!((181..=319).contains(&acting), "{acting}");
    }

    #[test]
    fn pipes_share_the_rate_of_their_line_with_its_headers() {
        let line = line("8 Mbit/s, 30 ms");
        let mut pipes =
            [0, 1].map(|_| Pipe::new(Side::Downstream, line.clone(), Seed::new(1).stream("pipe")));
        for _ in 0..50 {
            for pipe in &mut pipes {
                pipe.push(at(0), vec![0; 1448]);
            }
        }
        // 100 segments of 1500 bytes at 1000 bytes in a millisecond.
        assert_eq!(pipes[1].last, at(150 + 30));
        assert_eq!(pipes[1].room(at(100)), 0);
        assert!(pipes[1].room(at(130)) > 0, "20 ms before it is free");
    }

    #[test]
    fn data_wait_for_the_end_of_an_outage() {
        let mut pipe = Pipe::new(Side::Downstream, line("leo"), Seed::new(1).stream("pipe"));
        pipe.push(at(15_010), vec![0; 100]);
        let after = pipe.last.since(at(15_050));
        assert!(after >= ms(20) && after <= ms(31), "{after:?}");
    }

    proptest! {
        #[test]
        fn bytes_come_out_in_order_through_all_delays(
            latency in 0u64..200, jitter in 0u64..200, kbps in prop::option::of(1_000u64..1_000_000),
            slices in prop::option::of((1u64..5000, 0u64..5000, 0u64..5)),
            shared in prop::option::of(1_000u64..1_000_000), length in 0usize..100_000, most in 1usize..70_000,
        ) {
            let latency = Toxic::Latency { latency: ms(latency), jitter: ms(jitter) };
            let bandwidth = kbps.map(|kbps| Toxic::Bandwidth { rate: Rate::from_kbps(kbps) });
            let slicer = slices.map(|(average, variation, delay)| Toxic::Slicer {
                average: Bytes::new(average), variation: Bytes::new(variation), delay: ms(delay),
            });
            let line = shared.and_then(|kbps| self::line(&format!("{kbps} kbit/s, 5 ms, jitter 3 ms")));
            let mut pipe = Pipe::new(Side::Downstream, line, Seed::new(1).stream("pipe"));
            let toxics: Vec<NamedToxic> = [Some(latency), bandwidth, slicer].into_iter().flatten()
                .enumerate().map(|(number, toxic)| named(&number.to_string(), toxic)).collect();
            pipe.set_toxics(Time::ZERO, &toxics);
            let data: Vec<u8> = (0..length).map(|number| number.to_le_bytes()[0] ^ number.to_le_bytes()[1]).collect();
            let came = passed(&mut pipe, &data, most);
            let (all, last) = bytes(&came);
            prop_assert!(all == data, "{} of {} bytes", all.len(), data.len());
            prop_assert_eq!(came.last().map(|(_, output)| output), Some(&Output::End));
            prop_assert_eq!((pipe.held(), pipe.discarded()), (0, 0));
            if let Some(kbps) = kbps {
                let least = Rate::from_kbps(kbps).transmission_time(Bytes::new(length as u64));
                prop_assert!(last.since(Time::ZERO) >= least.saturating_sub(Duration::from_micros(1) * 100));
            }
        }
    }
}
