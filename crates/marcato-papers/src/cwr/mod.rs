//! CWR: "Performance Evaluation of a New Scheduling Model Using Congestion Window Reservation"
//! (Noroozi, Gallistl and Noroozi).
//!
//! Holds the values that the paper prints, a simple model of its Table I made before any run, and
//! the experiments. They run two lanes of a QUIC session in virtual time, with periodic urgent
//! messages and background data. Each file holds one question; `CWR` runs them all.

mod aperiodic;
mod beyond;
mod budget;
mod controllers;
mod credit;
mod declared;
mod growth;
#[cfg(target_os = "linux")]
mod lab;
mod latency;
mod losses;
mod mct;
mod multiple;
mod outage;
pub mod predict;
pub mod published;
mod recovery;
mod reuse;
mod scale;
mod setup;
mod starvation;
mod table;
mod throughput;
mod watch;

use marcato_report::Config;

use self::published::{Periodic, Scheduler};
use self::scale::Scale;
use crate::paper::Paper;

/// Experiments of the CWR paper.
pub(crate) const CWR: Paper<Scale> = Paper {
    name: "cwr",
    about: "CWR: room in the congestion windows of multipath QUIC for periodic urgent messages",
    unit: "CWR, simulated seconds",
    questions: &[
        declared::declared,
        table::table_1,
        latency::latency,
        throughput::throughput,
        recovery::recovery,
        losses::losses,
        multiple::multiple,
        multiple::srtt,
        credit::credit,
        aperiodic::aperiodic,
        budget::budget,
        outage::outage,
        starvation::starvation,
        reuse::reuse,
        controllers::controllers,
    ],
    scale: Scale::of,
    config,
    #[cfg(target_os = "linux")]
    lab: lab::report,
};

/// Name of a scheduler in row ids.
const fn id(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::LowRtt => "lowrtt",
        Scheduler::Cwr => "cwr",
        Scheduler::CwrRed => "cwr-red",
    }
}

/// Name of a source in row ids: its period in ms and its size in kB.
fn source_id(source: Periodic) -> String {
    format!("{}.{}", source.period.as_millis(), source.size.get() / 1000)
}

/// Name of a source in words.
fn source_name(source: Periodic) -> String {
    format!("{} kB every {} ms", source.size.get() / 1000, source.period.as_millis())
}

/// Short name of a source in words.
fn short_name(source: Periodic) -> String {
    format!("{} kB, {} ms", source.size.get() / 1000, source.period.as_millis())
}

/// Configuration, for the record.
fn config(scale: Scale) -> Config {
    let [rtt, _] = published::SAME_RTT;
    Config::new()
        .set("rate_mbps", published::RATE.as_mbps_f64())
        .set("rtt_ms", rtt.as_secs_f64() * 1e3)
        .set("data_loss_percent", published::LOSS * 100.0)
        .set("ack_loss_percent", 0.0)
        .set("queue_packets", setup::Path::paper(rtt).queue)
        .set("datagram_bytes", published::PACKET.get())
        .set("congestion", "newreno")
        .set("reduction_factor", predict::CHECKED_ON.factor())
        .set("pacing", "off")
        .set("debt", "strict")
        .set("warm_up_s", scale.long.warm_up.as_secs_f64())
        .set("length_s", scale.long.length.as_secs_f64())
        .set("short_length_s", scale.short.length.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_documented() {
        crate::validate::documented::check(&CWR.without_outcomes(Scale::QUICK));
    }

    #[test]
    fn a_report_names_the_times_of_its_own_runs() {
        let [full, quick] = [Scale::FULL, Scale::QUICK].map(|scale| CWR.without_outcomes(scale).to_html());
        assert!(full.contains("For 5 s a path carries nothing") && full.contains("keep-alives every 0.5 s"));
        assert!(
            quick.contains("For 1 s a path carries nothing") && quick.contains("keep-alives every 0.125 s")
        );
    }
}
