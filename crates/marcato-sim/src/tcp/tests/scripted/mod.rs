//! Tests from scripts in the style of packetdrill: segments that arrive, and all segments that must
//! leave, with their times.
//!
//! A line is `TIME WHAT`, in milliseconds; `#` begins a comment. WHAT is one of:
//!
//! - `<` a segment arrives, in the words of [`Host::get`];
//! - `>` segments leave, in the words of [`Host::sent`], separated by commas; `1+1000*3` is three
//!   in a row;
//! - `!` the application acts: `write N`, `close`, `pause`, `read`, `abort`, `connect`;
//! - `?` values hold, separated by commas: `cwnd 5`, with windows and `flight` in segments, `rto`
//!   in milliseconds.
//!
//! Lines before the first time are settings, `set NAME VALUE`. Unless `open` is set to 0, the
//! script begins with a client whose handshake took the first 100 ms.

use std::collections::VecDeque;

use super::*;

/// State of a script.
struct Script {
    host: Host,
    sent: VecDeque<(u64, String)>,
}

impl Script {
    fn until(&mut self, at: u64) {
        let now = self.host.now.as_nanos() / 1_000_000;
        self.host.wait(at.checked_sub(now).expect("times go forward"));
        self.collect();
    }

    fn collect(&mut self) {
        self.sent.extend(self.host.sent_when());
    }

    fn expect(&mut self, at: u64, text: &str) {
        let next = self.sent.pop_front();
        assert_eq!(next, Some((at, text.to_owned())), "and then {:?}", self.sent);
    }

    fn expect_all(&mut self, at: u64, texts: &str) {
        for text in texts.split(',').map(str::trim) {
            let Some((first, times)) = text.split_once('*') else {
                self.expect(at, text);
                continue;
            };
            let (seq, len) = first.split_once('+').expect("SEQ+LEN*TIMES");
            let [seq, len, times] = [seq, len, times].map(|n| n.parse::<u64>().expect("a number"));
            for i in 0..times {
                self.expect(at, &format!("{}+{len}", seq + i * len));
            }
        }
    }

    fn act(&mut self, action: &str) {
        match action.split_once(' ').unwrap_or((action, "")) {
            ("write", len) => self.host.write(len.parse().expect("a number")),
            ("close", _) => self.host.close(),
            ("abort", _) => self.host.abort(),
            ("connect", _) => {
                self.host.tcp.connect();
                self.host.poll();
            }
            ("pause", _) => self.host.tcp.set_reading(false),
            ("read", _) => {
                self.host.tcp.set_reading(true);
                self.host.tcp.read();
                self.host.poll();
            }
            (other, _) => panic!("what is to {other}?"),
        }
    }

    fn check(&self, figures: &str) {
        let stats = self.host.tcp.stats();
        for figure in figures.split(',').map(str::trim) {
            let (name, value) = figure.split_once(' ').expect("NAME VALUE");
            let value: f64 = value.parse().expect("a number");
            let seen = match name {
                "cwnd" => self.host.cwnd(),
                "ssthresh" => self.host.ssthresh(),
                "flight" => stats.in_flight.get() as f64 / 1000.0,
                "rto" => stats.rto.as_secs_f64() * 1000.0,
                "retransmissions" => stats.retransmissions as f64,
                "timeouts" => stats.timeouts as f64,
                "reductions" => stats.reductions as f64,
                "probes" => stats.tail_probes as f64,
                "delivered" => stats.delivered.get() as f64,
                "established" => f64::from(u8::from(self.host.tcp.is_established())),
                "all_acked" => f64::from(u8::from(self.host.tcp.all_acked())),
                other => panic!("what is {other}?"),
            };
            assert!((seen - value).abs() < 1e-6, "{name} is {seen}, not {value}");
        }
    }

    /// Executes a line that begins with its time.
    fn step(&mut self, line: &str) {
        let mut words = line.splitn(3, char::is_whitespace);
        let at: u64 = words.next().and_then(|at| at.parse().ok()).expect("a time in milliseconds");
        let (kind, rest) = (words.next().expect("a kind"), words.next().unwrap_or("").trim());
        self.until(at);
        if kind == ">" {
            self.expect_all(at, rest);
            return;
        }
        assert_eq!(self.sent, [], "nobody expected this");
        match kind {
            "<" => {
                self.host.get(rest);
            }
            "!" => self.act(rest),
            "?" => self.check(rest),
            other => panic!("what is {other}?"),
        }
        self.collect();
    }
}

fn set(config: &mut Tcp, name: &str, value: &str) {
    let number = || value.parse::<u32>().expect("a number");
    match name {
        "timestamps" => config.timestamps = number() == 1,
        "ecn" => config.ecn = number() == 1,
        "receive_buffer" => config.receive_buffer = Bytes::from(number()),
        "ack_every" => config.delayed_ack.every = number(),
        "detection" => {
            config.loss_detection = match value {
                "rack" => LossDetection::Rack,
                "dupthresh" => LossDetection::DupThresh,
                other => panic!("what is {other}?"),
            }
        }
        "congestion" => {
            config.congestion = match value {
                "reno" => Congestion::Reno,
                "cubic" => Congestion::CUBIC,
                "dctcp" => Congestion::Dctcp,
                other => panic!("what is {other}?"),
            }
        }
        other => panic!("what is {other}?"),
    }
}

fn run(name: &str, script: &str) {
    let mut config = Tcp { loss_detection: LossDetection::Rack, ..config() };
    let (mut open, mut isn) = (true, 70_000);
    let mut current: Option<Script> = None;
    for (number, line) in (1..).zip(script.lines()) {
        let line = line.split('#').next().unwrap_or("").trim();
        if line.is_empty() {
            continue;
        }
        if let Some(setting) = line.strip_prefix("set ") {
            assert!(current.is_none(), "{name}:{number}: settings come first");
            match setting.split_once(' ').expect("NAME VALUE") {
                ("open", value) => open = value == "1",
                ("isn", value) => isn = value.parse().expect("a number"),
                (setting, value) => set(&mut config, setting, value),
            }
            continue;
        }
        let script = current.get_or_insert_with(|| {
            let host = Host::numbered(isn, config.clone());
            let host = if open { host.connect() } else { host };
            Script { host, sent: VecDeque::new() }
        });
        let step = std::panic::AssertUnwindSafe(|| script.step(line));
        if let Err(panic) = std::panic::catch_unwind(step) {
            eprintln!("at {name}:{number}: {line}");
            std::panic::resume_unwind(panic);
        }
    }
    let script = current.expect("a script does something");
    assert_eq!(script.sent, [], "{name}: nobody expected this at the end");
}

macro_rules! scripts {
    ($($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            run(stringify!($name), include_str!(concat!(stringify!($name), ".tcp")));
        })*
    };
}

scripts!(
    dctcp_echoes_each_mark,
    dctcp_shrinks_by_alpha,
    dsack_is_sent,
    fin,
    fin_is_lost,
    prr,
    rst_aborts,
    rst_ends,
    rst_is_challenged,
    rst_refuses_a_client,
    rst_refuses_a_server,
    rack_bounds_its_window,
    rack_lost_retransmission,
    rack_reordering,
    rack_sees_reordering,
    rack_widens_by_dsack,
    rto_backs_off,
    rto_spares_what_is_young,
    sack_fills_holes,
    sack_wraps,
    tlp_finds_a_lost_tail,
    tlp_repairs_the_last,
    tlp_sends_new_data,
    tlp_was_needless,
    zero_window,
);

/// The runner detects segments that are missing, late or unexpected: a script that cannot fail
/// checks nothing.
#[test]
fn a_wrong_script_fails() {
    let fails = |script: &'static str| std::panic::catch_unwind(|| run("wrong", script)).is_err();
    assert!(!fails("100 ! write 1000\n100 > 1+1000\n"));
    assert!(fails("100 ! write 1000\n"));
    assert!(fails("100 ! write 1000\n101 > 1+1000\n"));
    assert!(fails("100 ! write 1000\n100 > 1+999\n"));
    assert!(fails("100 ! write 1000\n100 > 1+1000*2\n"));
    assert!(fails("100 ! write 1000\n100 > 1+1000\n600 ? timeouts 0\n"));
    assert!(fails("100 ? cwnd 9\n"));
}
