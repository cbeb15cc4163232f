//! Recorded results of traps for given packets and signals, cycle by cycle.
//!
//! Another implementation, such as one in BPF, can be compared with this one bit by bit. The head
//! of the file explains its lines.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use marcato_queue::trap::{CycleId, Signal, Trap, TrapConfig, TrapKind, Verdict, Window};
use marcato_units::{Duration, Seed, Stream, Time};
use marcato_wire::{QuicHeader, TcpFlags, TcpSegment, TcpTimestamps, Transport};

const HEAD: &str = "\
# What traps make of given packets and signals. One line is one call:
#
# flow KIND NAME             a new trap for each preset; KIND is tcp or spin; time begins at 0
# f WAIT SEQ ACK FLAGS PAYLOAD [VALUE ECHO]
#                            a TCP segment of the flow, WAIT microseconds after the line before, with its timestamps
# b WAIT ...                 the same the other way
# u WAIT PAYLOAD SPIN        a QUIC packet of the flow with a short header
# s SIGNAL BACK              the queue gave loss or ecn by the packet that came BACK packets of the flow before the last
# q                          the flow goes through another queue from now on
# = PRESET BYTES TICKS LOOP LOSS ECN FOR AGAINST FOR AGAINST
#                            the packet above ended a cycle by the rules of PRESET, p(aper), a(uthors) or m(arcato): the window's bytes and length, the length
#                            of the loop, all in ticks of 1024 ns; the verdicts: -, R or U; and the votes on loss and on ecn
# . PRESET CYCLES FOR AGAINST FOR AGAINST
#                            at the flow's end: all cycles, and those that were responsive and unresponsive by loss, by ecn
";

const PRESETS: [(&str, TrapConfig); 3] =
    [("p", TrapConfig::paper()), ("a", TrapConfig::authors()), ("m", TrapConfig::marcato())];

fn file() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/trap.txt")
}

fn is_result(line: &str) -> bool {
    line.starts_with('=') || line.starts_with('.')
}

/// Replay of recorded lines, which writes them again with their results.
struct Replay {
    out: String,
    traps: [Trap; 3],
    stamps: [Vec<CycleId>; 3],
    now: Time,
}

impl Replay {
    fn run<'a>(lines: impl IntoIterator<Item = &'a str>) -> String {
        let mut replay = Self {
            out: HEAD.to_owned(),
            traps: [const { Trap::new(TrapKind::Tcp) }; 3],
            stamps: Default::default(),
            now: Time::ZERO,
        };
        for line in lines.into_iter().filter(|line| !line.starts_with('#') && !is_result(line)) {
            if line.starts_with("flow") {
                replay.end();
            }
            writeln!(replay.out, "{line}").unwrap();
            replay.step(&line.split(' ').collect::<Vec<_>>());
        }
        replay.end();
        replay.out
    }

    fn step(&mut self, words: &[&str]) {
        match *words {
            ["flow", kind, _] => {
                let kind = if kind == "tcp" { TrapKind::Tcp } else { TrapKind::Spin };
                self.traps = [const { Trap::new(TrapKind::Tcp) }; 3].map(|_| Trap::new(kind));
                (self.stamps, self.now) = (Default::default(), Time::ZERO);
            }
            ["f" | "b", wait, ref numbers @ ..] => {
                self.wait(wait);
                let numbers: Vec<u32> = numbers.iter().map(|number| number.parse().unwrap()).collect();
                let [seq, ack, flags, payload, ref timestamps @ ..] = numbers[..] else {
                    panic!("{words:?}")
                };
                let timestamps = match *timestamps {
                    [value, echo] => Some(TcpTimestamps { value, echo }),
                    _ => None,
                };
                let flags = TcpFlags::from_bits(u8::try_from(flags).unwrap());
                let packet = Transport::Tcp(TcpSegment { seq, ack, flags, payload, timestamps });
                if words[0] == "f" {
                    self.forward(&packet);
                } else {
                    for ((_, config), trap) in PRESETS.iter().zip(&mut self.traps) {
                        trap.backward(config, self.now, &packet);
                    }
                }
            }
            ["u", wait, payload, spin] => {
                self.wait(wait);
                let quic = Some(QuicHeader::Short { fixed: true, spin: spin == "1" });
                self.forward(&Transport::Udp { payload: payload.parse().unwrap(), quic });
            }
            ["s", signal, back] => {
                let signal = if signal == "loss" { Signal::Loss } else { Signal::Ecn };
                let back: usize = back.parse().unwrap();
                for (((_, config), trap), stamps) in PRESETS.iter().zip(&mut self.traps).zip(&self.stamps) {
                    trap.signal(config, signal, stamps[stamps.len() - 1 - back]);
                }
            }
            ["q"] => {
                for ((_, config), trap) in PRESETS.iter().zip(&mut self.traps) {
                    trap.changed_queue(config);
                }
            }
            _ => panic!("no such line: {words:?}"),
        }
    }

    fn wait(&mut self, micros: &str) {
        self.now += Duration::from_micros(micros.parse().unwrap());
    }

    fn forward(&mut self, packet: &Transport) {
        for (((name, config), trap), stamps) in PRESETS.iter().zip(&mut self.traps).zip(&mut self.stamps) {
            let ended = trap.forward(config, self.now, packet);
            stamps.push(trap.cycle_id());
            if let Some(window) = ended {
                let [loss, ecn] = Signal::ALL.map(|signal| ["-", "R", "U"][trap.verdict(signal) as usize]);
                let [(a, b), (c, d)] = Signal::ALL.map(|signal| trap.votes(signal));
                let [bytes, ticks, length] =
                    [window.bytes().get(), ticks(Window::duration(window)), ticks(trap.round_trip())];
                writeln!(self.out, "= {name} {bytes} {ticks} {length} {loss} {ecn} {a} {b} {c} {d}").unwrap();
            }
        }
    }

    fn end(&mut self) {
        if self.stamps[0].is_empty() {
            return;
        }
        for ((name, _), trap) in PRESETS.iter().zip(&self.traps) {
            let scores = trap.scores();
            let [[a, c], [b, d]] = [scores.responsive, scores.unresponsive];
            writeln!(self.out, ". {name} {} {a} {b} {c} {d}", scores.cycles).unwrap();
        }
    }
}

/// Verdict of `TrapConfig::marcato` on the losses of a recorded flow, and the votes.
pub(crate) fn verdict(flow: &str) -> (Verdict, (u32, u32)) {
    let mut lines = flow.lines();
    let head = format!("flow {}", lines.next().unwrap());
    let mut replay = Replay {
        out: String::new(),
        traps: [const { Trap::new(TrapKind::Tcp) }; 3],
        stamps: Default::default(),
        now: Time::ZERO,
    };
    for line in [head.as_str()].into_iter().chain(lines) {
        replay.step(&line.split(' ').collect::<Vec<_>>());
    }
    (replay.traps[2].verdict(Signal::Loss), replay.traps[2].votes(Signal::Loss))
}

fn ticks(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap() >> 10
}

#[test]
fn traps_give_the_recorded_results() {
    let recorded = fs::read_to_string(file()).unwrap();
    assert!(recorded.len() < 100_000, "{} bytes", recorded.len());
    let replayed = Replay::run(recorded.lines());
    for (number, (recorded, replayed)) in (1..).zip(recorded.lines().zip(replayed.lines())) {
        assert_eq!(recorded, replayed, "line {number}");
    }
    assert_eq!(recorded.lines().count(), replayed.lines().count());
    for verdict in [" R - ", " U - ", " - R ", " - U "] {
        assert!(recorded.lines().any(|line| line.starts_with("= m") && line.contains(verdict)));
    }
}

/// One cycle of a flow.
#[derive(Clone, Copy, Default)]
struct Cycle {
    /// Bytes of each of its [`PACKETS`] packets.
    payload: u32,
    losses: u32,
    marks: u32,
    /// Pause after it, in cycles.
    pause: u64,
    changes_queue: bool,
}

const PACKETS: u64 = 4;
/// Round trip in microseconds.
const ROUND_TRIP: u64 = 20_000;

/// Flow that answers the signal of every `every`-th cycle by `thousandths` of its window, and grows
/// again.
fn answers(cycles: usize, every: usize, full: u32, thousandths: u32, of: impl Fn(&mut Cycle)) -> Vec<Cycle> {
    let mut payload = full;
    (0..cycles)
        .map(|cycle| {
            let mut this = Cycle { payload, ..Cycle::default() };
            payload = (payload + full / 200).min(full);
            if cycle >= 20 && cycle % every == 0 {
                of(&mut this);
                payload -= payload / 1000 * thousandths;
            }
            this
        })
        .collect()
}

/// Flood of packets of random sizes, with a signal in every cycle.
fn random(cycles: usize, random: &mut Stream, of: impl Fn(&mut Cycle)) -> Vec<Cycle> {
    (0..cycles)
        .map(|_| {
            let mut this =
                Cycle { payload: 4000 + u32::try_from(random.below(6000)).unwrap(), ..Cycle::default() };
            of(&mut this);
            this
        })
        .collect()
}

fn signals(out: &mut String, cycle: Cycle) {
    for _ in 0..cycle.losses {
        writeln!(out, "s loss 1").unwrap();
    }
    for _ in 0..cycle.marks {
        writeln!(out, "s ecn 0").unwrap();
    }
    if cycle.changes_queue {
        writeln!(out, "q").unwrap();
    }
}

fn spin(out: &mut String, name: &str, cycles: &[Cycle]) {
    writeln!(out, "flow spin {name}").unwrap();
    let (mut wait, mut bit) = (0, false);
    for cycle in cycles {
        for packet in 0..PACKETS {
            writeln!(out, "u {wait} {} {}", cycle.payload, u8::from(bit)).unwrap();
            wait = ROUND_TRIP / PACKETS;
            if packet == 2 {
                signals(out, *cycle);
            }
        }
        bit = !bit;
        wait += cycle.pause * ROUND_TRIP;
    }
}

/// TCP flow whose packets are acknowledged half a round trip later; the sender's side takes the
/// other half.
///
/// Sequence numbers and clocks wrap around.
fn tcp(out: &mut String, name: &str, timestamps: bool, mirrored: u32, cycles: &[Cycle]) {
    writeln!(out, "flow tcp {name}").unwrap();
    let stamps = |value: u64, echo: u64| {
        let [value, echo] = [value, echo].map(|at| (u32::MAX - 300).wrapping_add((at / 1000) as u32));
        if timestamps { format!(" {value} {echo}") } else { String::new() }
    };
    let (mut last, mut at) = (0, 0);
    let mut answers: Vec<(u64, u64, u32)> = Vec::new();
    let (mut seq, mut back, mut heard) = (u32::MAX - 100_000, 7u32, 7u32);
    for cycle in cycles {
        for packet in 0..PACKETS {
            while let Some(&(then, sent, ack)) = answers.first()
                && then <= at
            {
                answers.remove(0);
                let stamps = stamps(then, sent);
                writeln!(out, "b {} {back} {ack} 16 {mirrored}{stamps}", then - last).unwrap();
                back = back.wrapping_add(mirrored);
                last = then;
            }
            // Data that the other host sent half a round trip ago.
            heard = if at >= ROUND_TRIP { back.wrapping_sub(2 * mirrored).max(heard) } else { heard };
            let stamps = stamps(at, at.saturating_sub(ROUND_TRIP / 2));
            writeln!(out, "f {} {seq} {heard} 16 {}{stamps}", at - last, cycle.payload).unwrap();
            last = at;
            seq = seq.wrapping_add(cycle.payload);
            if packet % 2 == 1 {
                answers.push((at + ROUND_TRIP / 2, at, seq));
            }
            at += ROUND_TRIP / PACKETS;
            if packet == 2 {
                signals(out, *cycle);
            }
        }
        at += cycle.pause * ROUND_TRIP;
    }
}

/// The inputs of the file follow from its seed. With `MARCATO_RECORD=1` this writes the file: do that when a rule
/// changes, and review the difference.
#[test]
fn the_recorded_inputs_and_results_are_those_of_the_seed() {
    let mut out = String::new();
    let mut dice = Seed::new(1).stream("vectors");
    let loss = |cycle: &mut Cycle| cycle.losses = 1;
    tcp(&mut out, "halves-its-window-after-losses", true, 0, &answers(56, 8, 12_000, 500, loss));
    tcp(&mut out, "answers-nothing-at-random", true, 0, &random(44, &mut dice, loss));
    tcp(&mut out, "goes-both-ways-without-timestamps", false, 700, &answers(48, 6, 12_000, 300, loss));
    let marks = |cycle: &mut Cycle| cycle.marks = 3;
    spin(&mut out, "gives-way-by-an-eighth-after-marks", &answers(64, 6, 6000, 125, marks));
    spin(&mut out, "answers-marks-at-random", &random(64, &mut dice, marks));
    let few = |cycle: &mut Cycle| cycle.marks = 1;
    spin(&mut out, "gives-way-by-a-fiftieth-after-few-marks", &answers(64, 8, 90_000, 20, few));
    // It answers, changes its queue, pauses, and answers no more.
    let mut turns = answers(60, 6, 6000, 400, loss);
    turns[45].changes_queue = true;
    turns[52].pause = 9;
    turns.extend([Cycle { payload: 6000, losses: 2, ..Cycle::default() }; 50]);
    spin(&mut out, "answers-and-then-no-more", &turns);
    let made = Replay::run(out.lines());
    if std::env::var_os("MARCATO_RECORD").is_some() {
        fs::write(file(), &made).unwrap();
    }
    assert!(fs::read_to_string(file()).unwrap() == made, "review the difference after MARCATO_RECORD=1");
}
