//! Tables I and II, Figs. 2 and 3 on any path. In virtual time they are files of `experiments/cats`; the lab, whose
//! TCP is the kernel's, has them from here.

use marcato_report::chart::{Axis, BarChart, Bars, LineChart, Series};
use marcato_report::{Figure, Row, Unit};
use marcato_sched::Debt;
use marcato_units::Priority;

use super::load::{Load, physical_limit};
use super::page;
use super::path::{Feeding, Path, Scheme};
use super::published::{FIRST_BYTE, PAGE_LOAD, TABLE1_CATS, TABLE1_FIFO, TABLE2};
use crate::answer::Answer;
use crate::error::SimulationError;

/// Table I and its figures.
#[cfg(target_os = "linux")]
pub(super) fn table1_on(path: &Path, seed: u64) -> Result<Answer, SimulationError> {
    let fifo = Load::run(path, Scheme::Fifo, seed)?;
    let strict = Load::run(path, Scheme::strict(), seed)?;
    let cats = Load::run(path, Scheme::cats(), seed)?;

    let mut rows = Vec::new();
    for (name, load, published) in
        [("fifo", &fifo, Some(TABLE1_FIFO)), ("strict", &strict, None), ("cats", &cats, Some(TABLE1_CATS))]
    {
        for priority in Priority::ALL {
            let group = priority.index();
            let what = format!("{} complete, {name}", page::NAMES[group]);
            let row =
                Row::new(format!("cats.table1.{name}.p{group}"), what, Unit::Ms).measured(load.done[group]);
            rows.push(match published {
                Some(published) => row.paper(published[group]),
                None => row,
            });
        }
    }
    for (name, load) in [("fifo", &fifo), ("cats", &cats)] {
        rows.push(
            Row::new(format!("cats.pageload.{name}"), format!("whole page, {name}"), Unit::Ms)
                .paper(PAGE_LOAD)
                .measured(load.page_load()),
        );
    }
    rows.push(
        Row::new("cats.firstbyte", "connect to first data byte (by running the authors' program)", Unit::Ms)
            .paper(FIRST_BYTE)
            .measured(cats.first_byte),
    );
    for (name, load, published) in [("fifo", &fifo, TABLE1_FIFO), ("cats", &cats, TABLE1_CATS)] {
        for priority in Priority::ALL {
            let group = priority.index();
            // The paper draws Fig. 3 without printing numbers; they follow from those of Table I.
            let paper = rate(priority, published[group]);
            let what = format!("{} effective throughput, {name}", page::NAMES[group]);
            rows.push(
                Row::new(format!("cats.fig3.{name}.p{group}"), what, Unit::MbitPerS)
                    .paper(paper)
                    .measured(load.effective_throughput(priority)),
            );
        }
    }

    let mut answer = Answer::new(
        "Table I, Fig. 2, Fig. 3: completion and effective throughput of each priority group",
        "",
        rows,
    );
    type Printed<'a> = &'a dyn Fn(Priority, [f64; Priority::COUNT]) -> f64;
    let bars = |title: &str,
                unit: &str,
                label: &str,
                value: &dyn Fn(&Load, Priority) -> f64,
                printed: Printed<'_>| {
        let series = |name: &str, load: &Load, published: [f64; Priority::COUNT]| {
            let published = Priority::ALL.map(|p| printed(p, published));
            Bars::new(name, Priority::ALL.map(|p| value(load, p))).paper(published)
        };
        BarChart::new(title, Axis::new(label, unit))
            .groups(page::NAMES)
            .bars(series("FIFO", &fifo, TABLE1_FIFO))
            .bars(series("CATS", &cats, TABLE1_CATS))
    };
    answer.section = answer
        .section
        .figure(Figure::new(
            "completion",
            bars(
                "Completion of each priority group",
                "ms",
                "completion",
                &|l, p| l.done[p.index()],
                &|p, table| table[p.index()],
            ),
            "As Fig. 2. CATS inverts the order of the baseline; the page as a whole takes as long.",
        ))
        .figure(Figure::new(
            "throughput",
            bars(
                "Effective throughput",
                "Mbit/s",
                "bytes over completion",
                &Load::effective_throughput,
                &|p, table| rate(p, table[p.index()]),
            ),
            "Fig. 3: bytes of each group over the time until it was complete.",
        ))
        .figure(arrivals_of(&cats));
    Ok(answer)
}

/// Effective throughput, in Mbit/s, of a group that was complete after `ms`.
fn rate(priority: Priority, ms: f64) -> f64 {
    page::GROUPS[priority.index()].get() as f64 * 8.0 / ms / 1e3
}

/// Arrivals of the groups under CATS, which no scenario records.
pub(super) fn arrivals(path: &Path, seed: u64) -> Result<Figure, SimulationError> {
    Ok(arrivals_of(&Load::run(path, Scheme::cats(), seed)?))
}

fn arrivals_of(load: &Load) -> Figure {
    Figure::new(
        "arrivals",
        arrived(load),
        "Bytes of each group at the receiver under CATS, over time. The two pauses are BBR's first two round \
         trips; they are the same without CATS.",
    )
}

/// Arrival of the groups over time, each as a share of its size.
fn arrived(load: &Load) -> LineChart {
    let chart = LineChart::new(
        "Arrival of each group under CATS",
        Axis::new("time since the first byte", "ms"),
        Axis::new("arrived", "%").range(0.0, 100.0),
    );
    Priority::ALL.into_iter().fold(chart, |chart, priority| {
        let total = page::GROUPS[priority.index()].get() as f64;
        let mut sum = 0.0;
        let points = load.deliveries.iter().filter(|d| d.1 == priority).map(|&(at, _, bytes)| {
            sum += bytes.get() as f64;
            (at, 100.0 * sum / total)
        });
        chart.series(Series::step(page::NAMES[priority.index()], points))
    })
}

/// Table II, and the ratio to the physical limit.
#[cfg(target_os = "linux")]
pub(super) fn table2_on(path: &Path, seed: u64) -> Result<Answer, SimulationError> {
    let fifo = Load::run(path, Scheme::Fifo, seed)?;
    let cats = Load::run(path, Scheme::cats(), seed)?;
    let lean = Load::run(path, Scheme::Conductor(Debt::authors(), Feeding::Lean), seed)?;
    let mut rows = Vec::new();
    let metrics: [fn(&Load) -> f64; 3] = [Load::fcp, Load::tti, Load::lcp];
    for ((metric, paper_fifo, paper_cats, paper_gain), value) in TABLE2.into_iter().zip(metrics) {
        let name = metric.to_uppercase();
        let (before, after) = (value(&fifo), value(&cats));
        for (scheme, paper, measured) in [("fifo", paper_fifo, before), ("cats", paper_cats, after)] {
            rows.push(
                Row::new(format!("cats.table2.{metric}.{scheme}"), format!("{name}, {scheme}"), Unit::Ms)
                    .paper(paper)
                    .measured(measured),
            );
        }
        rows.push(
            Row::new(format!("cats.table2.{metric}.gain"), format!("{name}, improvement"), Unit::Percent)
                .paper(paper_gain)
                .measured(100.0 * (before - after) / before),
        );
    }
    for (scheme, load) in [("fifo", &fifo), ("cats", &cats)] {
        rows.push(
            Row::new(
                format!("cats.cls.{scheme}"),
                format!(
                    "layout (P1) to image (P3), {scheme}: the paper's CLS is good if the image comes first"
                ),
                Unit::Ms,
            )
            .measured(load.cls()),
        );
    }
    for (scheme, load) in [("", &cats), (".lean", &lean)] {
        for (metric, name, upto, reached) in [
            ("fcp", "first contentful paint", Priority::P1, load.fcp()),
            ("plt", "page load", Priority::P4, load.page_load()),
        ] {
            let limit = physical_limit(path, load.first_byte, upto);
            rows.push(
                Row::new(
                    format!("cats.limit.{metric}{scheme}.ratio"),
                    format!("{name} from connect over the physical limit of {limit:.0} ms"),
                    Unit::Ratio,
                )
                .measured((load.first_byte + reached) / limit),
            );
        }
    }
    Ok(Answer::new("Table II: times that a user sees, against the limit of the path", "", rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_measure_the_same_as_the_applications_of_the_lab() {
        let path = Path::authors();
        let questions = [
            (super::super::files::table1(), table1_on(&path, 1)),
            (super::super::files::table2(), table2_on(&path, 1)),
        ];
        for (file, rust) in questions {
            let rows = file.answer(Some(1), false, 1).unwrap().rows;
            let of = |rows: &[Row]| -> Vec<_> {
                let bits = |row: &Row| row.measured_value().map(f64::to_bits);
                rows.iter()
                    .map(|row| (row.id().to_owned(), row.what().to_owned(), bits(row), row.paper_value()))
                    .collect()
            };
            assert_eq!(of(&rows), of(&rust.unwrap().rows));
        }
    }

    /// Place, counted from 1, at which the last segment of each group arrives, measured by running
    /// the authors' program.
    const LAST_SEGMENT: [usize; Priority::COUNT] = [12, 36, 93, 162, 283];

    fn gaps(load: &Load) -> Vec<f64> {
        load.deliveries.windows(2).map(|pair| pair[1].0 - pair[0].0).collect()
    }

    #[test]
    fn the_order_of_segments_is_that_of_the_authors_program() {
        let load = Load::run(&Path::authors(), Scheme::cats(), 1).unwrap();
        assert_eq!(load.deliveries.len(), 283);
        for priority in Priority::ALL {
            let last = load.deliveries.iter().rposition(|d| d.1 == priority).unwrap() + 1;
            assert_eq!(last, LAST_SEGMENT[priority.index()], "{priority}");
        }
    }

    #[test]
    fn segment_gaps_match_the_authors_program_with_and_without_cats() {
        for scheme in [Scheme::Fifo, Scheme::cats()] {
            let gaps = gaps(&Load::run(&Path::authors(), scheme, 1).unwrap());
            for (place, gap) in gaps.iter().enumerate() {
                // Between segments 10 and 11: 88.1 ms; between 28 and 29: 54.3 ms; all others: one
                // transmission time.
                let expected = match place + 1 {
                    10 => 88.1,
                    28 => 54.3,
                    _ => 4.232,
                };
                assert!((gap - expected).abs() < 0.051, "after segment {}: {gap} ms", place + 1);
            }
        }
    }

    #[test]
    fn the_limit_is_what_the_first_byte_and_the_link_allow() {
        let path = Path::authors();
        assert!((physical_limit(&path, 186.617, Priority::P1) - 322.0).abs() < 0.1);
        assert!((physical_limit(&path, 186.617, Priority::P4) - 1380.0).abs() < 0.1);
    }
}
