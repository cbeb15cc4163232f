//! A congestion control of one's own, named by a scenario file: a gentler AIMD than Reno's.
//!
//! `cargo run --release -p marcato-sim --example own_congestion_control` compares the two.
#![expect(clippy::cast_possible_truncation, reason = "windows are far below 2^53 bytes")]

use std::error::Error;
use std::path::Path;

use marcato_scenario::{Reader, Scenario};
use marcato_sim::CongestionFactory;
use marcato_sim::scenario::{FlowOutcome, Plugins, Traces, build_with};
use marcato_sim::tcp::congestion::{AckEvent, CongestionControl, LossState, Signal};
use marcato_units::{Duration, Time};

/// Additive increase by a segment per round trip, multiplicative decrease. Windows are in bytes.
#[derive(Debug)]
struct Aimd {
    mss: u64,
    cwnd: u64,
    ssthresh: u64,
    /// Bytes acknowledged since the window last grew.
    acked: u64,
    /// Part of the window that a loss leaves.
    decrease: f64,
}

impl CongestionControl for Aimd {
    fn on_ack(&mut self, ack: &AckEvent) {
        // The sender repairs losses by itself, and an unused window gives no information.
        let repairs = matches!(ack.state, LossState::Recovery | LossState::Reduction);
        if repairs || ack.used + self.mss < self.cwnd {
            return;
        }
        if self.cwnd < self.ssthresh {
            self.cwnd += ack.newly_acked.min(2 * self.mss);
            return;
        }
        self.acked += ack.newly_acked;
        if self.acked >= self.cwnd {
            self.acked -= self.cwnd;
            self.cwnd += self.mss;
        }
    }

    fn on_congestion(&mut self, _now: Time, in_flight: u64, _signal: Signal) {
        let left = (in_flight.min(self.cwnd) as f64 * self.decrease) as u64;
        self.ssthresh = left.max(2 * self.mss);
        (self.cwnd, self.acked) = (self.ssthresh, 0);
    }

    fn on_recovered(&mut self, _now: Time) {
        self.cwnd = self.ssthresh;
    }

    fn on_rto(&mut self, now: Time, in_flight: u64, first: bool) {
        if first {
            self.on_congestion(now, in_flight, Signal::Loss);
        }
        self.cwnd = self.mss;
    }

    fn on_idle_restart(&mut self, _now: Time, _app_limited: bool, _expired: bool) {}
    fn on_established(&mut self, _now: Time, _rtt: Option<Duration>) {}

    fn cwnd(&self) -> u64 {
        self.cwnd
    }

    fn ssthresh(&self) -> u64 {
        self.ssthresh
    }
}

/// Returns the registry with the congestion control.
pub(crate) fn plugins() -> Result<Plugins, Box<dyn Error>> {
    let plugins = Plugins::new().congestion("aimd", &["decrease"], |parameters| {
        let decrease = parameters.number("decrease", 0.1..=0.99)?.unwrap_or(0.5);
        Ok(CongestionFactory::new("aimd", move |config, _stream| {
            let (mss, cwnd, ssthresh) =
                (u64::from(config.mss), config.initial_cwnd(), config.initial_threshold());
            Box::new(Aimd { mss, cwnd, ssthresh, acked: 0, decrease })
        }))
    })?;
    Ok(plugins)
}

/// Reads the scenario, which names the plug-in.
pub(crate) fn scenario() -> Result<Scenario, Box<dyn Error>> {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../marcato-sim/examples/own_congestion_control.toml");
    Ok(Reader::new().plugins(plugins()?.names()).load(&file)?)
}

/// Runs the scenario, and returns the name and the results of each run.
pub(crate) fn compare() -> Result<Vec<(String, FlowOutcome)>, Box<dyn Error>> {
    let (plugins, scenario) = (plugins()?, scenario()?);
    let run = |run: marcato_scenario::Run| {
        let outcome = build_with(&run.experiment, &Traces::new(), &plugins)?.run(&mut |_: Time| ())?;
        Ok((run.id, outcome.flows[0].clone()))
    };
    scenario.runs().map(run).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (run, flow) in compare()? {
        let rtt = flow.rtt.unwrap_or_default();
        println!("{run:<55} {:.2} Mbit/s, round trip {rtt:.1} ms, {} losses", flow.goodput, flow.losses);
    }
    Ok(())
}
