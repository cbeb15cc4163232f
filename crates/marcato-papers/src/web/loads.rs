//! Page loads of a browser, from every server.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use marcato_lab::Lab;
use marcato_report::chart::FilmStrip;
use marcato_report::{Figure, Row, Unit};

use super::browser::{Browser, Loaded};
use super::link::Link;
use super::page::page;
use super::server::{Kind, Plan, identity, start};
use super::{median, ms};
use crate::answer::{Answer, TOO_SHORT};
use crate::error::SimulationError;
use crate::lab::failed;
use crate::{Progress, RunOptions, prose};

const KINDS: [Kind; 5] = [Kind::Marcato, Kind::Hyper, Kind::Nginx, Kind::H2o, Kind::Caddy];
const CONGESTION: &str = "cubic";
/// Port of the first server. The others follow.
const PORT: u16 = 4430;
/// Time for which servers run at most.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Time between the columns of a film strip, in seconds, and their number.
const STEP: f64 = 0.25;
const COLUMNS: u16 = 10;
/// How much later than h2o a page may be, as a factor.
const BEHIND: f64 = 1.02;
/// Quantities: their part of the row's id, words, and value.
type Quantity = (&'static str, &'static str, fn(&Loaded) -> Duration);
const QUANTITIES: [Quantity; 3] = [
    ("fcp", "first contentful paint", |loaded| loaded.first),
    ("lcp", "largest contentful paint", |loaded| loaded.largest),
    ("load", "end of the load", |loaded| loaded.load),
];

/// Loads of each server for each seed.
const fn loads(quick: bool) -> usize {
    if quick { 1 } else { 11 }
}

/// Loads of a server.
struct Measured {
    kind: Kind,
    loads: Vec<Loaded>,
    /// Further load with images, which take time of their own.
    film: Option<Loaded>,
}

/// Loads the page in a browser, from the servers in turns. There are no rows without a browser.
pub(super) fn loads_of_browser(
    options: &RunOptions,
    progress: &mut dyn Progress,
) -> Result<Answer, SimulationError> {
    const TITLE: &str = "Page loads in Chromium";
    if Browser::program().is_none() {
        return Ok(Answer::new(TITLE, "Chromium is not installed, so there are no page loads here.", vec![]));
    }
    let (installed, missing) = Kind::installed(&KINDS);
    let turns = loads(options.quick);
    let cases = installed.len() * (turns * options.seeds().len() + 1);
    progress.begin("web, page loads of a browser", Some(cases as u64));
    let mut measured: Vec<Measured> =
        installed.into_iter().map(|kind| Measured { kind, loads: vec![], film: None }).collect();
    for (number, &seed) in options.seeds().iter().enumerate() {
        measure(&mut measured, turns, number == 0, seed, progress)?;
    }
    let rows = rows(&measured, !options.quick);
    let text = prose::text(include_str!("loads.md")) + &missing;
    let mut answer = Answer::new(TITLE, text, rows);
    answer.section = answer.section.figure(film(&measured));
    Ok(answer)
}

/// Runs all servers in one lab, and loads the page from each in turns.
fn measure(
    measured: &mut [Measured],
    turns: usize,
    film: bool,
    seed: u64,
    progress: &mut dyn Progress,
) -> Result<(), SimulationError> {
    let experiment = crate::lab::experiment(&Link::ALL[0].scenario(seed))?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    let (address, _) = lab.addresses("server").ok_or(SimulationError::Missing("server"))?;
    let (identity, site) = (identity()?, page());
    let mut running = Vec::new();
    for (port, Measured { kind, .. }) in (PORT..).zip(&*measured) {
        let plan = Plan {
            kind: *kind,
            site: &site,
            identity: &identity,
            port,
            congestion: CONGESTION,
            http3: false,
            patience: PATIENCE,
        };
        running.push(start(&lab, &plan)?);
    }
    let server = SocketAddr::new(IpAddr::V4(address), PORT);
    for port in (PORT..).take(measured.len()) {
        lab.run("client", move || super::client::listens(SocketAddr::new(IpAddr::V4(address), port)))
            .map_err(failed)??;
    }
    let mut browser = Browser::start(server, |command| lab.spawn("client", command).map_err(failed))?;
    // The first page takes longer: the browser loads parts of its own.
    browser.load(PORT, false)?;
    for _ in 0..turns {
        for (port, measured) in (PORT..).zip(&mut *measured) {
            measured.loads.push(browser.load(port, false)?);
            progress.advance(1);
        }
    }
    if film {
        for (port, measured) in (PORT..).zip(&mut *measured) {
            measured.film = Some(browser.load(port, true)?);
            progress.advance(1);
        }
    }
    drop(browser);
    drop(running);
    Ok(())
}

fn rows(measured: &[Measured], claimed: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    for (id, what, value) in QUANTITIES {
        let of = |measured: &Measured| median(measured.loads.iter().map(|loaded| ms(value(loaded))));
        let bound = measured.iter().find(|measured| measured.kind == Kind::H2o).map(|h2o| BEHIND * of(h2o));
        for measured in measured {
            let row = Row::new(
                format!("web.{id}.{}", measured.kind.name()),
                format!("{what}: {}", measured.kind.title()),
                Unit::Ms,
            );
            let row = row.measured(of(measured));
            rows.push(match (measured.kind, bound) {
                (Kind::Marcato, Some(bound)) if claimed => row.at_most(bound),
                (Kind::Marcato, Some(_)) => row.unclaimed_because(TOO_SHORT),
                (Kind::Marcato, None) => row.unclaimed_because("h2o, its bound, is not installed"),
                _ => row,
            });
        }
    }
    rows
}

fn film(measured: &[Measured]) -> Figure {
    let strip = FilmStrip::new("The page as it is painted, since its navigation began", STEP, COLUMNS);
    let strip = measured.iter().fold(strip, |strip, Measured { kind, film, .. }| {
        let images = film.iter().flat_map(|film| &film.film);
        strip.row(kind.title(), images.map(|(at, image)| (at.as_secs_f64(), image.clone())))
    });
    let caption = "One load from each server, as the browser painted it. Letters are blocks.";
    Figure::new("film", strip.to_svg(), caption)
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent, skip};

    use super::*;

    fn measured(kind: Kind, first: u64) -> Measured {
        let ms = Duration::from_millis;
        let loaded = Loaded { first: ms(first), largest: ms(800), load: ms(1700), film: vec![] };
        Measured { kind, loads: vec![loaded], film: None }
    }

    #[test]
    fn marcato_may_be_two_percent_behind_h2o_and_no_more() {
        for (first, held) in [(612, true), (613, false)] {
            let rows = rows(&[measured(Kind::Marcato, first), measured(Kind::H2o, 600)], true);
            let row = rows.iter().find(|row| row.id() == "web.fcp.marcato").unwrap();
            assert_eq!(row.ok(), Some(held), "{first}");
        }
    }

    #[test]
    fn nothing_is_claimed_without_h2o() {
        let rows = rows(&[measured(Kind::Marcato, 600), measured(Kind::Nginx, 900)], true);
        assert!(rows.iter().all(|row| row.ok().is_none()));
    }

    #[test]
    fn a_browser_loads_the_page_no_faster_than_the_link() {
        if absent!(Need::Lab) {
            return;
        }
        if Browser::program().is_none() {
            return skip(env!("CARGO_PKG_NAME"), "needs a browser: install Chromium");
        }
        let mut all = [Measured { kind: Kind::Marcato, loads: vec![], film: None }];
        measure(&mut all, 1, true, 1, &mut crate::Silent).unwrap();
        let bytes: usize = page().files().iter().map(|file| file.content.len()).sum();
        // Three round trips until the first byte of the page, and 4 µs for each byte.
        let limit = Duration::from_millis(300) + Duration::from_micros(4) * u32::try_from(bytes).unwrap();
        let [Measured { loads, film, .. }] = &all;
        assert!(loads[0].load >= limit && loads[0].first < loads[0].load, "{loads:?} below {limit:?}");
        assert!(film.as_ref().is_some_and(|film| !film.film.is_empty()));
    }
}
