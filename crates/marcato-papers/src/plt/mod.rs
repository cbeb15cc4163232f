//! PLT: "A Priority-Layered Approach to Transport for High Bandwidth-Delay Product Networks"
//! (Venkataraman, Francis, Kodialam and Lakshman).
//!
//! Reproduces the paper's figures, with its statements as bands. Further questions vary what the
//! paper leaves open, and answer those that it asks itself. Each file holds one question; `PLT`
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

use marcato_report::Config;

use self::scale::Scale;
use crate::paper::Paper;

/// Experiments of the PLT paper.
pub(crate) const PLT: Paper<Scale> = Paper {
    name: "plt",
    about: "PLT: two strictly prioritised layers under one TCP stream",
    unit: "PLT, simulated seconds",
    questions: &[
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
    ],
    scale: Scale::of,
    config,
    #[cfg(target_os = "linux")]
    lab: lab::report,
};

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
            let page = PLT.without_outcomes(scale).to_html();
            let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for (own, other) in said(scale).iter().zip(said(other)) {
                assert!(plain.contains(own), "`{own}` is missing");
                assert!(!plain.contains(&other), "`{other}` is of other runs");
            }
        }
    }
}
