//! The page over HTTP/2: in Chromium where it is installed, and by a client that is built in where not.

use marcato_papers::{Emulation, PageLoad, WebDemo, WebLoads};
use marcato_report::chart::FilmStrip;
use marcato_report::{Figure, Row, Unit};
use marcato_units::Duration;

use super::{BUFFER, DELAY, Part, RATE, Scheme, queue};
use crate::arguments::Demo;
use crate::progress::Bar;

const TITLE: &str = "A page over HTTP/2";
/// Most loads with each scheme. Each takes about two seconds.
const MOST_LOADS: u32 = 3;
/// Time between the columns of the film strip, in seconds, and their number.
const STEP: f64 = 0.25;
const COLUMNS: u16 = 11;

/// Loads a page first come first served and by the web plane. Where that fails, the part says why it has
/// no rows.
pub(super) fn part(asked: &Demo) -> Part {
    let demo = WebDemo {
        rate: RATE,
        delay: DELAY,
        queue: queue(asked),
        buffer: BUFFER,
        loss: asked.loss,
        seed: asked.seed,
        loads: asked.loads.min(MOST_LOADS),
    };
    match demo.run(&mut Bar::new()) {
        Ok((emulation, loads)) => Part {
            title: TITLE,
            text: text(emulation, &loads),
            rows: rows(&loads),
            figures: film(&loads).into_iter().collect(),
        },
        Err(problem) => {
            let text = format!("HTTP/2 was left out: {problem}");
            Part { title: TITLE, text, rows: vec![], figures: vec![] }
        }
    }
}

fn text(emulation: Emulation, loads: &WebLoads) -> String {
    let client = match loads {
        WebLoads::Browser { .. } => {
            "Chromium loads a generated page of 330 kB, whose stylesheet imports another. Times run from the \
             navigation."
                .to_owned()
        }
        WebLoads::BuiltIn { why, .. } => format!(
            "{why} A client that is built in asks for 210 kB, and 100 ms later for a stylesheet of 25 kB. Its time \
             runs from that request."
        ),
    };
    let link = match emulation {
        Emulation::Lab => "The kernel's CUBIC sends across the same link, between two network namespaces.",
        Emulation::Relay => {
            "There can be no network namespaces here, so a relay of bytes on the loopback interface stands for the \
             link: it has no losses, and congestion control does not see it."
        }
    };
    format!("{client} First come, first served is the same server with all responses of one urgency. {link}")
}

/// Rows of both schemes, and their ratio.
fn compared(id: &str, name: &str, times: [Vec<f64>; 2], claimed: bool) -> Vec<Row> {
    let mut rows: Vec<Row> = Scheme::BOTH
        .into_iter()
        .zip(&times)
        .map(|(scheme, times)| {
            let what = format!("{name}, {}", scheme.name());
            Row::new(format!("demo.web.{id}.{}", scheme.id()), what, Unit::Ms).samples(times)
        })
        .collect();
    let [fifo, marcato] = &times;
    let ratios: Vec<f64> = fifo.iter().zip(marcato).map(|(fifo, marcato)| marcato / fifo).collect();
    let what = format!("{name}, Marcato over FIFO");
    let row = Row::new(format!("demo.web.{id}.ratio"), what, Unit::Ratio).samples(&ratios);
    rows.push(if claimed { row.at_most(1.0) } else { row });
    rows
}

fn rows(loads: &WebLoads) -> Vec<Row> {
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    match loads {
        WebLoads::Browser { loads, .. } => {
            let times = |value: fn(&PageLoad) -> Duration| {
                loads.each_ref().map(|loads| loads.iter().map(|load| ms(value(load))).collect())
            };
            [
                compared("fcp", "first contentful paint", times(|load| load.first), true),
                compared("lcp", "largest contentful paint", times(|load| load.largest), false),
                compared("load", "end of the load", times(|load| load.load), false),
            ]
            .concat()
        }
        WebLoads::BuiltIn { late, .. } => {
            let times = late.each_ref().map(|late| late.iter().copied().map(ms).collect());
            compared("late", "late stylesheet", times, true)
        }
    }
}

fn film(loads: &WebLoads) -> Option<Figure> {
    let WebLoads::Browser { films, .. } = loads else { return None };
    let strip = FilmStrip::new("The page over HTTP/2 as Chromium paints it", STEP, COLUMNS);
    let strip = Scheme::BOTH
        .into_iter()
        .zip(films)
        .fold(strip, |strip, (scheme, film)| strip.row(scheme.name(), film.iter().cloned()));
    let caption = "The last load with each scheme, since the navigation. Letters are blocks.";
    Some(Figure::new("film", strip.to_svg(), caption))
}

#[cfg(test)]
mod tests {
    use marcato_report::chart::Jpeg;

    use super::*;

    fn page(first: u64) -> Vec<PageLoad> {
        let ms = Duration::from_millis;
        vec![PageLoad { first: ms(first), largest: ms(900), load: ms(1800) }]
    }

    #[test]
    fn an_earlier_first_paint_holds_and_a_later_one_does_not() {
        let held = |ours: u64| {
            let image = Jpeg::from_base64("/9j/").unwrap();
            let films = [vec![], vec![(0.5, image)]];
            let loads = WebLoads::Browser { loads: [page(1700), page(ours)], films };
            assert!(film(&loads).unwrap().svg().contains("base64"));
            let rows = rows(&loads);
            rows.iter().find(|row| row.id() == "demo.web.fcp.ratio").and_then(Row::ok)
        };
        assert_eq!((held(800), held(1800)), (Some(true), Some(false)));
    }

    #[test]
    fn without_a_browser_the_late_stylesheet_counts() {
        let late = [1100, 220].map(|ms| vec![Duration::from_millis(ms)]);
        let loads = WebLoads::BuiltIn { late, why: "Chromium is not installed.".to_owned() };
        let rows = rows(&loads);
        let ids: Vec<&str> = rows.iter().map(Row::id).collect();
        assert_eq!(ids, ["demo.web.late.fifo", "demo.web.late.marcato", "demo.web.late.ratio"]);
        assert_eq!(rows[2].ok(), Some(true));
        assert!(film(&loads).is_none() && text(Emulation::Relay, &loads).contains("not installed"));
    }
}
