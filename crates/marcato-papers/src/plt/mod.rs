//! PLT: "A Priority-Layered Approach to Transport for High Bandwidth-Delay Product Networks"
//! (Venkataraman, Francis, Kodialam and Lakshman).
//!
//! Reproduces the paper's figures, with its statements as bands. Further questions vary what the
//! paper leaves open, and answer those that it asks itself. Each file holds one question; [`Plt`]
//! runs them all. The protocol is [`marcato_sim::plt`].

mod bottlenecks;
mod controllers;
mod fairness;
mod harm;
#[cfg(target_os = "linux")]
mod htb;
mod initial;
mod joint;
#[cfg(target_os = "linux")]
mod lab;
mod published;
mod scale;
mod sensitivity;
mod short;
mod single;
mod target;
mod third;
mod world;

use marcato_report::{Config, Report, World};

use self::scale::{Plan, Scale};
use crate::answer::Answer;
use crate::experiment::WITH_LAB;
use crate::plan::Runs;
use crate::{Experiment, Progress, RunError, RunOptions};

/// The experiments of the PLT paper.
#[derive(Clone, Copy, Debug, Default)]
pub struct Plt;

/// Turns the outcomes of a question's planned runs into its answer.
type Ask = Box<dyn FnOnce(&Runs) -> Answer>;

/// Plans the runs that a question needs.
type Question = fn(&mut Plan) -> Ask;

/// Questions, in the order of the report.
const QUESTIONS: &[Question] = &[
    single::large_buffer,
    single::small_buffer,
    short::short_flows,
    bottlenecks::bottlenecks,
    harm::harm,
    sensitivity::sensitivity,
    fairness::fairness,
    target::target,
    initial::initial,
    controllers::controllers,
    joint::joint,
];

impl Experiment for Plt {
    fn name(&self) -> &'static str {
        "plt"
    }

    fn about(&self) -> &'static str {
        "PLT: two strictly prioritised layers under one TCP stream"
    }

    fn worlds(&self) -> &'static [World] {
        WITH_LAB
    }

    fn run(&self, options: &RunOptions, progress: &mut dyn Progress) -> Result<Report, RunError> {
        #[cfg(target_os = "linux")]
        if options.world == World::Lab {
            return lab::report(options, progress);
        }
        let scale = Scale::of(options.quick);
        let mut plan = Plan::new(scale);
        let asked: Vec<Ask> = QUESTIONS.iter().map(|question| question(&mut plan)).collect();
        let runs = plan
            .run("PLT, simulated seconds", options, progress)
            .map_err(|error| RunError::failed("plt", error))?;
        let answers = asked.into_iter().map(|ask| ask(&runs));
        Ok(crate::answer::report(self, config(scale), options, answers))
    }
}

/// Configuration, for the record.
fn config(scale: Scale) -> Config {
    let lcm = marcato_sched::LcmConfig::paper();
    Config::new()
        .set("rate_mbps", published::RATE.as_mbps_f64())
        .set("rtt_ms", published::RTT.as_secs_f64() * 1e3)
        .set("packet_bytes", published::PACKET)
        .set("buffers_packets", vec![published::LARGE_BUFFER, published::SMALL_BUFFER])
        .set("receiver_window_packets", published::WINDOW)
        .set("alpha", lcm.alpha.as_f64())
        .set("beta", lcm.beta.as_f64())
        .set("gamma", lcm.gamma.as_f64())
        .set("mu", 0.005)
        .set("epoch_ms", 100)
        .set("ewma_weight", lcm.weight.as_f64())
        .set("lcm_initial_window_packets", lcm.initial_window.get() / lcm.packet.get())
        .set("lcm_retransmissions", 0)
        .set("hcm", "reno")
        .set("hcm_initial_window_packets", world::INITIAL_WINDOW)
        .set("acknowledgements", "every packet")
        .set("router", "strict priority, drop-tail per class")
        .set("warm_up_s", scale.long.warm_up.as_secs_f64())
        .set("length_s", scale.long.length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report at this scale without outcomes, to inspect rows and texts alone.
    fn told(scale: Scale) -> Report {
        let mut plan = Plan::new(scale);
        let asked: Vec<Ask> = QUESTIONS.iter().map(|question| question(&mut plan)).collect();
        let runs = plan.nothing();
        let answers = asked.into_iter().map(|ask| ask(&runs));
        crate::answer::report(&Plt, config(scale), &RunOptions::default(), answers)
    }

    #[test]
    fn every_value_of_the_paper_has_a_band_or_a_reason_for_none() {
        for scale in [Scale::FULL, Scale::QUICK] {
            crate::answer::assert_reasons(&told(scale));
        }
    }

    #[test]
    fn a_report_names_the_times_of_its_own_runs() {
        let said = |scale: Scale| {
            let apart = published::APART / scale.apart_divisor;
            [
                format!("the last {} of {} s", scale.long.length.as_secs(), scale.long.whole()),
                format!("A single flow, {}", scale.tendency.words()),
                format!("{} are measured", scale.short.words()),
                format!("packets, last {} s", scale.bottlenecks.length.as_secs()),
                format!("begin {} s after one another. The", apart.as_secs_f64()),
                format!("over the last {} of {} s", scale.fairness.length.as_secs(), scale.fairness.whole()),
                format!("compared over {} seeds", scale.harm_seeds),
            ]
        };
        for (scale, other) in [(Scale::FULL, Scale::QUICK), (Scale::QUICK, Scale::FULL)] {
            let page = told(scale).to_html();
            let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for (own, other) in said(scale).iter().zip(said(other)) {
                assert!(plain.contains(own), "`{own}` is missing");
                assert!(!plain.contains(&other), "`{other}` is of other runs");
            }
        }
    }
}
