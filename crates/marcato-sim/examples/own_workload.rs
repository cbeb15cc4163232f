//! A workload of one's own: page loads, each an urgent document and images in the background.
//!
//! `cargo run --release -p marcato-sim --example own_workload` compares a Conductor with a queue for
//! it.

use std::error::Error;

use marcato_scenario::{Reader, Scenario};
use marcato_sim::scenario::{FlowOutcome, Plugins, Release, Traces, Workload, build_with};
use marcato_units::{Bytes, Duration, Priority, Stream, Time};

/// Page loads, which begin as a Poisson process.
#[derive(Debug)]
struct Pages {
    /// Images of each page.
    images: u64,
    /// Mean time between the beginnings of two pages.
    pause: Duration,
    /// Images of this page that are yet to be released.
    left: u64,
}

impl Workload for Pages {
    fn next(&mut self, _now: Time, random: &mut Stream) -> Option<Release> {
        if self.left > 0 {
            self.left -= 1;
            let size = Bytes::new(20_000 + random.below(180_001));
            return Some(Release::new(Duration::from_millis(5), size, Priority::P3));
        }
        self.left = self.images;
        let document = Release::new(random.exponential(self.pause), Bytes::kb(30), Priority::P0);
        // Nobody waits for a page for longer.
        Some(Release { lifetime: Some(Duration::from_secs(8)), ..document })
    }
}

/// A server that sends pages over a link which they load to two thirds.
const SCENARIO: &str = r#"
    name = "own-workload"
    duration = "60 s"
    nodes = ["server", "browser"]

    [[link]]
    between = ["server", "browser"]
    rate = "10 Mbit/s"
    delay = "20 ms"
    queue = "codel"

    [[flow]]
    name = "web"
    kind = "messages"
    from = "server"
    to = "browser"
    workload = { kind = "pages", images = 6, pause = "800 ms" }

    [grid]
    vary = { "flow.web.feeder" = ["fifo", "conductor"] }
"#;

/// Returns the registry with the workload.
pub(crate) fn plugins() -> Result<Plugins, Box<dyn Error>> {
    let plugins = Plugins::new().workload("pages", &["images", "pause"], |parameters| {
        let images = parameters.number("images", 0.0..=1000.0)?.unwrap_or(4.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is 0 to 1000")]
        let images = images as u64;
        let pause = parameters.span("pause")?.unwrap_or(Duration::from_secs(1));
        Ok(Box::new(Pages { images, pause, left: 0 }))
    })?;
    Ok(plugins)
}

/// Reads the scenario, which names the plug-in.
pub(crate) fn scenario() -> Result<Scenario, Box<dyn Error>> {
    Ok(Reader::new().plugins(plugins()?.names()).parse("own_workload", SCENARIO)?)
}

/// Runs the scenario with each feeder, and returns its name and the results.
pub(crate) fn compare() -> Result<Vec<(String, FlowOutcome)>, Box<dyn Error>> {
    let (plugins, scenario) = (plugins()?, scenario()?);
    let run = |run: marcato_scenario::Run| {
        let outcome = build_with(&run.experiment, &Traces::new(), &plugins)?.run(&mut |_: Time| ())?;
        Ok((run.settings[0].value.clone(), outcome.flows[0].clone()))
    };
    scenario.runs().map(run).collect()
}

fn main() -> Result<(), Box<dyn Error>> {
    for (feeder, flow) in compare()? {
        for times in flow.times {
            let mean = times.done.iter().sum::<f64>() / times.done.len().max(1) as f64;
            println!("{feeder:<10} {:<12} {:>4} messages, mean {mean:>7.1} ms", times.name, times.done.len());
        }
    }
    Ok(())
}
