//! State of a flow in the kernel's map: `struct flow` of `bpf/flow.h`.

use marcato_queue::Class;
use marcato_queue::trap::{TrapKind, Verdict};
use marcato_units::{Duration, Time};

/// State of a flow, as the kernel keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlowState {
    /// Kind that the flow is assessed as; `None` while no packet has decided that.
    pub kind: Option<TrapKind>,
    /// Queue that the last packet was sent to; `None` before the first.
    pub queue: Option<Class>,
    /// Verdicts on loss and marks.
    pub verdicts: [Verdict; 2],
    /// Round trip of the path; `None` while it is not measured.
    pub rtt: Option<Duration>,
    /// Number of cycles that have ended.
    pub cycles: u32,
    /// Number of those in which the flow was called responsive to loss, and to marks.
    pub responsive_cycles: [u32; 2],
    /// Time of the last packet, by the kernel's monotonic clock.
    pub seen: Time,
    /// Packets that left.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Drops and marks.
    pub signals: [u32; 2],
    /// Changes of queue.
    pub changes: u32,
    /// Numbers of the trap's state, as [`Trap::inspect`](marcato_queue::trap::Trap::inspect) shows
    /// them.
    pub trap: Vec<(&'static str, u32)>,
}

/// Number of bytes in the kernel's map.
pub(crate) const LEN: usize = 360;

/// Reader of consecutive fields, which the compiler of C aligns.
struct Reader<'a> {
    bytes: &'a [u8; LEN],
    at: usize,
}

impl Reader<'_> {
    fn field<const N: usize>(&mut self) -> [u8; N] {
        let mut field = [0; N];
        field.copy_from_slice(&self.bytes[self.at..self.at + N]);
        self.at += N;
        field
    }

    fn u8(&mut self) -> u32 {
        self.field::<1>()[0].into()
    }

    fn u16(&mut self) -> u32 {
        u16::from_ne_bytes(self.field()).into()
    }

    fn i16(&mut self) -> u32 {
        i32::from(i16::from_ne_bytes(self.field())).cast_unsigned()
    }

    fn u32(&mut self) -> u32 {
        u32::from_ne_bytes(self.field())
    }

    fn u64(&mut self) -> u64 {
        u64::from_ne_bytes(self.field())
    }

    fn skip(&mut self, bytes: usize) {
        self.at += bytes;
    }
}

impl FlowState {
    pub(crate) fn from_bytes(bytes: &[u8; LEN]) -> Self {
        let mut from = Reader { bytes, at: 0 };
        // `entered` and the pending signals, of which the next packet makes something.
        from.skip(4 + 2 * 4 * 4);
        let signals = [from.u32(), from.u32()];
        let changes = from.u32();
        let (packets, bytes, seen) = (from.u64(), from.u64(), Time::from_nanos(from.u64()));
        let queue = match from.u8() {
            0 => Some(Class::Standard),
            1 => Some(Class::Responsive),
            2 => Some(Class::Young),
            _ => None,
        };
        // Whether the flow is known, and padding.
        from.skip(3);
        let mut trap = vec![("since", from.u32()), ("bytes", from.u32()), ("flight", from.u32())];
        trap.push(("packets", from.u8()));
        let kind = match from.u8() {
            1 => Some(TrapKind::Spin),
            2 => Some(TrapKind::Tcp),
            _ => None,
        };
        from.skip(2);
        let union = from.at;
        match kind {
            Some(TrapKind::Spin) => spin(&mut from, &mut trap),
            Some(TrapKind::Tcp) => tcp(&mut from, &mut trap),
            None => {}
        }
        from.at = union + TCP_LEN;
        assessment(&mut from, &mut trap);
        let value = |name: &str| trap.iter().find(|(of, _)| *of == name).map_or(0, |(_, value)| *value);
        let rtt = value(if kind == Some(TrapKind::Spin) { "spin rtt" } else { "tcp rtt" });
        let both = |name: &str| {
            let mut values = trap.iter().filter(|(of, _)| *of == name).map(|(_, value)| *value);
            [(); 2].map(|()| values.next().unwrap_or(0))
        };
        let (verdicts, responsive_cycles) = (both("verdict").map(verdict), both("responsive cycles"));
        Self {
            kind,
            queue: queue.filter(|_| packets > 0),
            verdicts,
            rtt: (rtt > 0).then(|| Duration::from_nanos(u64::from(rtt) * TICK_NANOS)),
            cycles: value("cycles"),
            responsive_cycles,
            seen,
            packets,
            bytes,
            signals,
            changes,
            trap,
        }
    }
}

/// Tick of the traps, in nanoseconds.
const TICK_NANOS: u64 = 1024;

const fn verdict(code: u32) -> Verdict {
    match code {
        1 => Verdict::Responsive,
        2 => Verdict::Unresponsive,
        _ => Verdict::Unclassified,
    }
}

/// Number of bytes of `struct tcp_trap`, the larger member of the union.
const TCP_LEN: usize = 84;

fn spin(from: &mut Reader<'_>, put: &mut Vec<(&'static str, u32)>) {
    put.extend([("spin run_since", from.u32()), ("spin edge", from.u32()), ("spin rtt", from.u32())]);
    for name in [
        "spin bit",
        "spin last",
        "spin seen",
        "spin run",
        "spin edges",
        "spin packets",
        "spin flips",
        "spin probation",
    ] {
        put.push((name, from.u8()));
    }
}

fn tcp(from: &mut Reader<'_>, put: &mut Vec<(&'static str, u32)>) {
    let [sent, received] = [from.u64(), from.u64()];
    let [expected, answer, since, owed_since] = [from.u32(), from.u32(), from.u32(), from.u32()];
    let owed = from.u64();
    let [near, mark, marked] = [from.u32(), from.u32(), from.u32()];
    let [value, reverse] = [from.u64(), from.u64()];
    let [rtt, last] = [from.u32(), from.u32()];
    let recover = from.u32();
    let [stage, echo_stage, answered, recovering] = [from.u8(), from.u8(), from.u8(), from.u8()];
    for (name, number) in [
        ("tcp sent", sent),
        ("tcp received", received),
        ("tcp owed", owed),
        ("tcp value", value),
        ("tcp reverse_value", reverse),
    ] {
        // `struct number`: the number, and whether there is one.
        let [a, b, c, d, e, f, g, h] = number.to_ne_bytes();
        put.push((name, u32::from_ne_bytes([a, b, c, d])));
        put.push((name, u32::from_ne_bytes([e, f, g, h])));
    }
    put.extend([
        ("tcp expected", expected),
        ("tcp answer", answer),
        ("tcp since", since),
        ("tcp owed_since", owed_since),
        ("tcp near", near),
        ("tcp mark", mark),
        ("tcp marked", marked),
        ("tcp rtt", rtt),
        ("tcp last", last),
        ("tcp stage", stage),
        ("tcp echo_stage", echo_stage),
        ("tcp answered", answered),
        ("tcp recovering", recovering),
        ("tcp recover", recover),
    ]);
}

fn assessment(from: &mut Reader<'_>, put: &mut Vec<(&'static str, u32)>) {
    let verdicts = [from.u8(), from.u8()];
    let hold = from.u8();
    from.skip(1);
    let settled = [from.u8(), from.u8()];
    from.skip(2);
    let cycles = from.u32();
    let responsive = [from.u32(), from.u32()];
    let unresponsive = [from.u32(), from.u32()];
    let signal_windows: [[u32; 3]; 2] = std::array::from_fn(|_| [from.u32(), from.u32(), from.u32()]);
    let mut judge = Vec::new();
    for _ in 0..3 {
        judge.extend([("share part", from.u16()), ("share votes", from.u16())]);
    }
    let noise_mean = from.u16();
    let rates: [u32; 8] = std::array::from_fn(|_| from.i16());
    let noise_samples = from.u8();
    judge.extend([("control_in", from.u8()), ("known", from.u8())]);
    from.skip(1);
    let flights: [u32; 8] = std::array::from_fn(|_| from.i16());
    let [wait_flight, wait_rate] = [from.i16(), from.i16()];
    let [wait_cycles, wait_signal, wait_voted, wait_reduced] = [from.u8(), from.u8(), from.u8(), from.u8()];
    from.skip(2);
    // The next field has four bytes, and begins at a multiple of them.
    from.skip(from.at.wrapping_neg() % 4);
    judge.extend([("noise mean", noise_mean), ("noise samples", noise_samples)]);
    judge.extend(rates.map(|rate| ("rate", rate)));
    judge.extend(flights.map(|flight| ("flight log", flight)));
    judge.extend([
        ("wait flight", wait_flight),
        ("wait rate", wait_rate),
        ("wait cycles", wait_cycles),
        ("wait signal", wait_signal),
        ("wait voted", wait_voted),
        ("wait reduced", wait_reduced),
    ]);
    let windows: [[u32; 2]; 8] = std::array::from_fn(|_| [from.u32(), from.u32()]);
    let signalled = from.u8();
    put.extend([("signalled", signalled), ("hold", hold), ("cycles", cycles)]);
    for kind in 0..2 {
        put.extend([
            ("verdict", verdicts[kind]),
            ("settled", settled[kind]),
            ("responsive cycles", responsive[kind]),
            ("unresponsive cycles", unresponsive[kind]),
            ("slots", signal_windows[kind][0]),
            ("votes for", signal_windows[kind][1]),
            ("votes against", signal_windows[kind][2]),
        ]);
    }
    for [bytes, ticks] in windows {
        put.extend([("window bytes", bytes), ("window ticks", ticks)]);
    }
    put.extend(judge);
}
