//! CRQ: "Congestion-Responsive Queuing for Internet Flows" (Kunze, Sander, Kosek, Tissen,
//! Pennekamp, Wehrle).
//!
//! Holds the values that the paper prints, and the experiments in virtual time: TCP and QUIC flows
//! that compete with unresponsive traffic at a bottleneck, with and without CRQ. Each file holds
//! one question; `CRQ` runs them all.
//!
//! | files | contents |
//! |---|---|
//! | `figure4`, `figure5` | the paper's figures |
//! | `abuse`, `flood`, `call`, `guest`, `turncoat`, `sweep`, `place`, `layers`, `short`, `evasion` | questions beyond the paper |
//! | `lab`, `kernel`, `matrix` | the questions in a lab, and by the kernel's programs |
//! | `setup`, `scene` | one run, and the settings that questions share |
//! | `watched` | a queue that classifies and changes nothing: all three sets of rules over the same packets |
//! | `testbed` | the model of the authors' testbed |

mod abuse;
mod call;
mod evasion;
mod figure4;
mod figure5;
mod flood;
mod guest;
#[cfg(target_os = "linux")]
mod kernel;
#[cfg(target_os = "linux")]
mod lab;
mod layers;
#[cfg(all(test, target_os = "linux"))]
mod matrix;
mod place;
pub mod published;
mod quic;
mod scale;
mod scene;
mod setup;
mod short;
mod sweep;
mod testbed;
mod turncoat;
mod watched;

use marcato_report::Config;

use self::scale::Scale;
use crate::paper::Paper;

/// Experiments of the CRQ paper.
pub(crate) const CRQ: Paper<Scale> = Paper {
    name: "crq",
    about: "CRQ: queues that separate responsive from unresponsive flows",
    unit: "CRQ, megabytes",
    questions: &[
        figure4::figure_4,
        figure5::figure_5,
        figure5::presets,
        figure5::shaper,
        figure5::switch,
        figure4::senders,
        abuse::abuse,
        call::call,
        turncoat::turncoat,
        sweep::sweep,
        place::place,
        place::bleach,
        place::flows,
        layers::layers,
        short::short,
        evasion::evasion,
    ],
    scale: Scale::of,
    config,
    #[cfg(target_os = "linux")]
    lab: lab::report,
};

/// Configuration, for the record.
fn config(scale: Scale) -> Config {
    Config::new()
        .set("fig4_rate_mbps", published::ASSESSED_AT.as_mbps_f64())
        .set("fig4_bytes", scale.bytes(published::ASSESSED).get())
        .set("fig4_codel_target_ms", 0.1)
        .set("fig4_codel_interval_ms", 0.01)
        .set("fig5_rate_mbps", published::LINK.as_mbps_f64())
        .set("fig5_bytes", scale.bytes(published::SINGLE).get())
        .set("fig5_codel_target_ms", 0.5)
        .set("fig5_codel_interval_ms", 20.0)
        .set("fig5_rules", scene::RULES.id())
        .set("fig5_checked_on", scene::Column::Artefacts.id())
        .set("baseline_carries_mbps", scene::BASELINE_CARRIES)
        .set(
            "baseline_wakes_late_us",
            scene::lateness(scene::BASELINE_CARRIES, testbed::WIRE).as_secs_f64() * 1e6,
        )
        .set("testbed_port_buffer_bytes", testbed::Testbed::AUTHORS.port_buffer.get())
        .set("testbed_offload_bytes", testbed::Testbed::AUTHORS.offload.get())
        .set("testbed_receive_window_bytes", testbed::Testbed::AUTHORS.receive_window.get())
        .set("testbed_quic_window_bytes", testbed::Testbed::AUTHORS.quic_window.get())
        .set("testbed_send_buffer_bytes", testbed::Testbed::AUTHORS.send_buffer.get())
        .set("clean_tcp_buffers_bytes", 64 << 20)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RunOptions, Silent};

    #[test]
    fn a_report_names_the_sizes_and_times_of_its_own_runs() {
        let full = [
            "One flow of 200 MB at",
            "A flow of 1 GB competes",
            "from 1 s on. In a mix that the seed draws, 20 flows of 100 MB",
            "In less time than 1 GB takes",
            ">100 MB by TCP CUBIC",
            "and 20 ms for 20 s",
            "for 60 s by halving its window, ignores them for 60 s",
            "and 80 ms for 60 s",
            "transfers 250 MB and uses one seed",
        ];
        let quick = [
            "One flow of 10 MB at",
            "A flow of 50 MB competes",
            "from 0.05 or 0.5 s on. In a mix that the seed draws, 20 flows of 5 MB",
            "In less time than 50 MB takes",
            ">5 MB by TCP CUBIC",
            "and 20 ms for 2 s",
            "for 6 s by halving its window, ignores them for 6 s",
            "and 80 ms for 6 s",
            "transfers 12.5 MB and uses one seed",
        ];
        for (scale, own, others) in [(Scale::FULL, full, quick), (Scale::QUICK, quick, full)] {
            let page = CRQ.without_outcomes(scale).to_html();
            let plain = page.split_whitespace().collect::<Vec<_>>().join(" ");
            for (own, other) in own.iter().zip(others) {
                assert!(plain.contains(own), "`{own}` is missing");
                assert!(!plain.contains(other), "`{other}` is of other runs");
            }
        }
    }

    #[test]
    fn a_tiny_run_answers_every_question_and_documents_every_row() {
        let report = CRQ.report(Scale::TINY, &RunOptions::default(), &mut Silent).unwrap();
        crate::validate::documented::check(&report);
        let names: Vec<&str> = report.figures().map(marcato_report::Figure::id).collect();
        assert!(names.contains(&"fig5-artefacts") && names.contains(&"fig4-marcato"), "{names:?}");
        // So little is transferred here that nothing is claimed.
        assert_eq!(report.document().count().ok + report.document().count().outside, 0);
        let value = |id: &str| {
            let row = report.document().rows().iter().find(|row| row.id() == id);
            row.and_then(marcato_report::Row::measured_value).unwrap_or(f64::NAN)
        };
        // No transfer was given up, and UDP has no cycles.
        assert_eq!(value("crq.fig5.given-up"), 0.0);
        assert_eq!(value("crq.abuse.udp.dt.authors"), 0.0);
    }
}
