//! Shared parts of the questions beyond the paper.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Samples, Unit};
use marcato_units::{Bytes, Duration};

use super::mct;
use super::published::{Periodic, SAME_RTT, Scheduler};
use super::scale::{Plan, Ticket};
use super::setup::{Outcome, Setup, Span};
use crate::plan::Runs;

/// Largest number of seeds of a run: these questions only show tendencies.
const SEEDS: usize = 2;

/// Source with this period in ms and size in kB.
pub(super) const fn every(millis: u64, kilobytes: u64) -> Periodic {
    Periodic { period: Duration::from_millis(millis), size: Bytes::kb(kilobytes) }
}

/// Span of `length`, or the short one in a quick run.
pub(super) fn span(plan: &Plan, length: Duration) -> Span {
    if plan.scale.claims { Span { length, ..plan.scale.short } } else { plan.scale.short }
}

/// The paper's setup with one source, for 100 s.
pub(super) fn setup(plan: &Plan, scheduler: Scheduler, source: Periodic) -> Setup {
    let span = span(plan, Duration::from_secs(100));
    Setup { seeds: SEEDS, ..Setup::paper(scheduler, SAME_RTT, &[source], span) }
}

/// A value of a run: its name in row ids, its description, its unit.
pub(super) type Metric = (&'static str, &'static str, Unit, fn(&Outcome) -> f64);

/// Percentile of the first source's completion times, in ms.
pub(super) fn percentile(outcome: &Outcome, percentile: Percentile) -> f64 {
    outcome.mcts(0).collect::<Samples>().percentile(percentile).unwrap_or(f64::NAN)
}

/// Mean over the lanes.
pub(super) fn lanes(outcome: &Outcome, value: impl Fn(&super::setup::LaneOutcome) -> f64) -> f64 {
    outcome.lanes.iter().map(value).sum::<f64>() / outcome.lanes.len() as f64
}

/// Quotient of two numbers of bytes.
pub(super) fn ratio(part: Bytes, whole: Bytes) -> f64 {
    part.get() as f64 / whole.get() as f64
}

/// Message bytes that the receiver read.
pub(super) fn read(outcome: &Outcome) -> Bytes {
    outcome.bytes.into_iter().sum()
}

pub(super) const P50: Metric =
    ("p50", "completion of messages, median", Unit::Ms, |outcome| percentile(outcome, Percentile::P50));
pub(super) const P99: Metric =
    ("p99", "completion of messages, 99 %", Unit::Ms, |outcome| percentile(outcome, Percentile::P99));
pub(super) const P999: Metric =
    ("p999", "completion of messages, 99.9 %", Unit::Ms, |outcome| percentile(outcome, Percentile::P99_9));
pub(super) const GOODPUT: Metric =
    ("goodput", "goodput of all messages", Unit::MbitPerS, |outcome| outcome.goodput());
pub(super) const BACKGROUND: Metric =
    ("background", "goodput of the background", Unit::MbitPerS, |outcome| outcome.rate(outcome.bytes[4]));
pub(super) const GROWTH: Metric =
    ("growth", "window growth, mean of both paths", Unit::BytesPerRtt, |outcome| {
        lanes(outcome, |lane| lane.windows.per_rtt())
    });
pub(super) const LOST: Metric = ("lost", "packets lost of those sent", Unit::Percent, |outcome| {
    let sum = |value: fn(&super::setup::LaneOutcome) -> u64| outcome.lanes.iter().map(value).sum::<u64>();
    100.0 * sum(|lane| lane.stats.lost) as f64 / sum(|lane| lane.stats.packets) as f64
});
pub(super) const OVERHEAD: Metric =
    ("overhead", "IP bytes on the wire over message bytes read", Unit::Ratio, |outcome| {
        ratio(outcome.lanes.iter().map(|lane| lane.wire).sum(), read(outcome))
    });

/// Rows with these values of one setup. Their ids begin with `at`, and `of` describes the setup.
pub(super) fn rows(runs: &Runs, ticket: Ticket, at: &str, of: &str, metrics: &[Metric]) -> Vec<Row> {
    let row = |&(name, what, unit, value): &Metric| {
        Row::new(format!("{at}.{name}"), format!("{what}, {of}"), unit).samples(&runs.each(ticket, value))
    };
    metrics.iter().map(row).collect()
}

/// CCDF of the completion times of the first source's messages of all seeds, for several setups.
pub(super) fn ccdf<'a>(
    runs: &Runs,
    id: &str,
    title: &str,
    axis: Axis,
    series: impl IntoIterator<Item = (&'a str, Ticket)>,
) -> Figure {
    let chart = LineChart::ccdf(title, axis, true).down_to(1e-3);
    let chart = series.into_iter().fold(chart, |chart, (name, ticket)| {
        chart.series(Series::ccdf(name, mct::samples(runs, ticket, 0).sorted().iter().copied()))
    });
    Figure::new(id, chart, "CCDF of completion times; all seeds.")
}

#[cfg(test)]
mod tests {
    use marcato_quic::{Congestion, Pacing, StreamUse};
    use marcato_sim::quic::Release;
    use marcato_units::Time;

    use super::super::setup::run;
    use super::*;

    fn short(scheduler: Scheduler) -> Setup {
        let span = Span { warm_up: Duration::from_secs(1), length: Duration::from_secs(1) };
        Setup::paper(scheduler, SAME_RTT, &[every(100, 10)], span)
    }

    #[test]
    fn runs_beyond_the_paper_repeat_with_their_seed() {
        let mut reopened =
            Setup { reopen: true, watch: Some(marcato_units::Priority::P4), ..short(Scheduler::Cwr) };
        reopened.paths[0].outage = Some((Time::from_millis(1100), Time::from_millis(1700)));
        let reopened =
            reopened.with_session(|session| session.lane_idle_timeout = Some(Duration::from_millis(300)));
        let poisson = short(Scheduler::CwrRed).with_sources(|source| source.release = Release::Poisson);
        let paced = short(Scheduler::Cwr).with_session(|session| {
            (session.congestion, session.pacing) = (Congestion::Cubic, Pacing::Session);
            session.streams = StreamUse::Reuse;
        });
        for setup in [reopened, poisson, paced] {
            // Some values are not a number, and so not equal to themselves; texts are.
            let [once, again, other] = [3, 3, 4].map(|seed| format!("{:?}", run(&setup, seed).unwrap()));
            assert_eq!(once, again);
            assert_ne!(once, other);
        }
    }

    #[test]
    fn a_lane_that_was_given_up_is_opened_again() {
        let mut setup = Setup { reopen: true, ..short(Scheduler::Cwr) };
        setup.span.length = Duration::from_secs(5);
        setup.paths[1].outage = Some((Time::from_millis(2500), Time::from_millis(3500)));
        let setup =
            setup.with_session(|session| session.lane_idle_timeout = Some(Duration::from_millis(300)));
        let outcome = run(&setup, 1).unwrap();
        assert!(
            outcome.lanes_down >= 1 && outcome.lanes_up >= 2,
            "{} {}",
            outcome.lanes_down,
            outcome.lanes_up
        );
        assert!(outcome.mcts(0).all(f64::is_finite));
        assert_eq!(outcome.again, 0);
    }
}
