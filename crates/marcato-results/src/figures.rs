//! Figures of a scenario's claims.

use marcato_report::Figure;
use marcato_report::chart::{Axis, BarChart, Bars, Drawing, LineChart, Series};
use marcato_scenario::Scenario;
use marcato_scenario::figure::Along;

use crate::Judged;

/// Returns the figures of a scenario, with the values of its claims and the published ones.
pub fn of(scenario: &Scenario, judged: &[Judged]) -> Vec<Figure> {
    let figures = scenario.figures().iter();
    figures.map(|figure| Figure::new(&figure.id, drawing(figure, judged), &figure.caption)).collect()
}

fn drawing(figure: &marcato_scenario::figure::Figure, judged: &[Judged]) -> Drawing {
    let row = |claim: &usize| judged.get(*claim).map(|judged| &judged.row);
    let measured = |claim: &usize| row(claim).and_then(|row| row.measured_value()).unwrap_or(f64::NAN);
    let paper = |claim: &usize| row(claim).and_then(|row| row.paper_value()).unwrap_or(f64::NAN);
    let first = figure.series.iter().flat_map(|(_, claims)| claims).find_map(row);
    let axis = Axis::new(&figure.label, first.map_or("", |row| row.unit().symbol()));
    match &figure.along {
        Along::Groups(names) => {
            let chart = BarChart::new(&figure.title, axis).groups(names);
            let bars = figure.series.iter().map(|(name, claims)| {
                Bars::new(name, claims.iter().map(measured)).paper(claims.iter().map(paper))
            });
            bars.fold(chart, BarChart::bars).into()
        }
        Along::Values { label, unit, values, log } => {
            let x = Axis::new(label, unit);
            let chart = LineChart::new(&figure.title, if *log { x.log() } else { x }, axis);
            let lines = figure.series.iter().map(|(name, claims)| {
                let points = |value: &dyn Fn(&usize) -> f64| {
                    let points = values.iter().copied().zip(claims.iter().map(value));
                    points.filter(|(_, value)| value.is_finite()).collect::<Vec<_>>()
                };
                Series::line(name, points(&measured)).marks().paper(points(&paper))
            });
            lines.fold(chart, LineChart::series).into()
        }
    }
}
