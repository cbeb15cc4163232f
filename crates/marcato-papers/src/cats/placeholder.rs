//! A small placeholder image at high priority, as the paper advises. CATS §III-C.

use marcato_report::chart::{Axis, BarChart, Bars};
use marcato_report::{Figure, Row, Unit};
use marcato_sim::Planned;
use marcato_units::{Bytes, Priority, Time};

use super::page;
use super::path::{Path, Scheme};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

const PLACEHOLDER: Bytes = Bytes::kb(2);
/// Length of a frame at 60 Hz, in ms. A browser shows everything that arrives within a frame at
/// once.
const FRAME_MS: f64 = 1000.0 / 60.0;

/// Completion times of the page in ms since the first byte, by group, and that of the placeholder,
/// if there is one.
struct Painted {
    done: [f64; Priority::COUNT],
    placeholder: Option<f64>,
}

impl Painted {
    fn run(scheme: Scheme, with_placeholder: bool, seed: u64) -> Result<Self, SimulationError> {
        let mut plan = page::plan();
        let after_css = 1 + page::ORDER.iter().position(|&p| p == Priority::P1).unwrap_or(0);
        if with_placeholder {
            plan.insert(after_css, Planned::now(PLACEHOLDER, Priority::P1));
        }
        let transfer = Path::authors().send(scheme, &plan, Time::from_secs(30), seed)?;
        let first_byte = transfer.first_byte()?;
        let (mut done, mut placeholder) = ([0.0; Priority::COUNT], None);
        for (place, planned) in plan.iter().enumerate() {
            let at = transfer.complete(place)? - first_byte;
            if with_placeholder && place == after_css {
                placeholder = Some(at);
            } else {
                done[planned.message.priority.index()] = at;
            }
        }
        Ok(Self { done, placeholder })
    }

    fn fcp(&self) -> f64 {
        self.done[0].max(self.done[1])
    }

    fn page_load(&self) -> f64 {
        self.done.into_iter().chain(self.placeholder).fold(0.0, f64::max)
    }

    /// Time from layout (P1) to the first image that fills its place.
    fn shift(&self) -> f64 {
        self.placeholder.unwrap_or(self.done[3]) - self.done[1]
    }
}

/// Estimated layout shift with and without a placeholder, and the placeholder's cost.
pub(super) fn placeholder(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    let mut rows = Vec::new();
    let mut chart = BarChart::new("From layout to image", Axis::new("P1 complete to image", "ms"))
        .groups(["without placeholder", "with placeholder"]);
    for (id, name, scheme) in [("fifo", "FIFO", Scheme::Fifo), ("cats", "CATS", Scheme::cats())] {
        let (without, with) = (Painted::run(scheme, false, seed)?, Painted::run(scheme, true, seed)?);
        for (metric, what, value) in [
            ("shift.without", "layout (P1) to image (P3)", without.shift()),
            ("shift.with", "layout (P1) to placeholder", with.shift()),
            ("fcp.cost", "first contentful paint, later by", with.fcp() - without.fcp()),
            ("lcp.cost", "largest contentful paint, later by", with.done[3] - without.done[3]),
            ("plt.cost", "whole page, later by", with.page_load() - without.page_load()),
        ] {
            rows.push(
                Row::new(format!("cats.placeholder.{id}.{metric}"), format!("{what}, {name}"), Unit::Ms)
                    .measured(value),
            );
        }
        if id == "cats" {
            rows.push(Row::verdict(
                "cats.placeholder.repairs",
                "the placeholder follows the layout within one frame (1/60 s), CATS",
                with.shift() <= FRAME_MS,
            ));
        }
        chart = chart.bars(Bars::new(name, [without.shift(), with.shift()]));
    }
    let mut answer =
        Answer::new("A placeholder against layout shift", prose::text(include_str!("placeholder.md")), rows);
    answer.section = answer.section.figure(Figure::new(
        "placeholder",
        chart,
        "Negative where the first image came before its place.",
    ));
    Ok(answer)
}
