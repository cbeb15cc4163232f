//! The page over the kernel's TCP, across the same link in a lab.

use marcato_lab::{LabOptions, Traces};
use marcato_papers::Progress as _;
use marcato_papers::cats_page::{GROUPS, NAMES, ORDER};
use marcato_report::{Row, Unit};
use marcato_scenario::Scenario;
use marcato_units::{Priority, Time};

use super::{DELAY, Part, RATE, Scheme, queue};
use crate::arguments::Demo;
use crate::progress::Bar;

/// Most loads with each scheme. Each takes the time of its scenario.
const MOST_LOADS: u64 = 2;

/// Loads the page over the kernel's CUBIC, first come first served and by a Conductor. Where there can
/// be no lab, the part says why it has no rows.
pub(super) fn part(asked: &Demo) -> Part {
    const TITLE: &str = "The same page over the kernel's TCP";
    let (rows, text) = match loads(asked) {
        Ok(loads) => {
            let text = "CUBIC of this kernel, between two network namespaces, and no other traffic. Times run \
                        from the hand-over, so they include the handshake.";
            (rows(&loads), text.to_owned())
        }
        Err(problem) => (Vec::new(), format!("Kernel TCP was left out: {problem}")),
    };
    Part { title: TITLE, text, rows, figures: vec![] }
}

/// Completion of each group in ms, for each load of each scheme.
type Loads = [Vec<[f64; Priority::COUNT]>; 2];

fn loads(asked: &Demo) -> Result<Loads, String> {
    let count = u64::from(asked.loads).min(MOST_LOADS);
    let mut progress = Bar::new();
    progress.begin("loading the page over the kernel's TCP", Some(count * 2));
    let mut loads = [Vec::new(), Vec::new()];
    for number in 0..count {
        for (scheme, loads) in Scheme::BOTH.into_iter().zip(&mut loads) {
            loads.push(load(asked, scheme, asked.seed.wrapping_add(number))?);
            progress.advance(1);
        }
    }
    Ok(loads)
}

fn load(asked: &Demo, scheme: Scheme, seed: u64) -> Result<[f64; Priority::COUNT], String> {
    let scenario =
        Scenario::parse("demo.toml", &scenario(asked, scheme)).map_err(|error| error.to_string())?;
    let mut experiment = scenario.run(0).ok_or("the scenario has no run")?.experiment;
    experiment.seed = marcato_units::Seed::new(seed);
    let world = marcato_trial::open(&experiment, &Traces::new(), LabOptions::default());
    let outcome = world.map_err(|error| error.to_string())?.run(&mut |_: Time| ());
    let outcome = outcome.map_err(|error| error.to_string())?;
    let mut done = [f64::NAN; Priority::COUNT];
    for times in outcome.flows.iter().flat_map(|flow| &flow.times) {
        let group = (0..Priority::COUNT).find(|group| times.name == format!("p{group}"));
        if let (Some(group), Some(took)) = (group, times.done.first()) {
            done[group] = *took;
        }
    }
    Ok(done)
}

/// The page as a scenario: its groups as messages, the least urgent first.
fn scenario(asked: &Demo, scheme: Scheme) -> String {
    let feeder = match scheme {
        Scheme::Fifo => "feeder = \"fifo\"",
        Scheme::Marcato => "feeder = \"conductor\"\npreset = \"marcato\"",
    };
    let queue = queue(asked);
    let messages = ORDER.map(|priority| {
        let (group, size) = (priority.index(), GROUPS[priority.index()].get());
        format!("{{ name = \"p{group}\", size = \"{size} B\", priority = \"p{group}\" }}")
    });
    let (rate, delay, messages) = (RATE.as_bps(), DELAY.as_millis(), messages.join(", "));
    let loss = match asked.loss {
        0.0 => String::new(),
        loss => format!("loss = {{ kind = \"random\", probability = {loss} }}"),
    };
    format!(
        r#"
        name = "demo"
        duration = "3 s"
        nodes = ["server", "client"]
        [[link]]
        between = ["server", "client"]
        rate = "{rate} bit/s"
        delay = "{delay} ms"
        queue = {queue}
        {loss}
        [[flow]]
        name = "page"
        kind = "messages"
        from = "server"
        to = "client"
        congestion = "cubic"
        {feeder}
        messages = [{messages}]
        "#
    )
}

fn rows(loads: &Loads) -> Vec<Row> {
    let mut rows = Vec::new();
    for (scheme, loads) in Scheme::BOTH.into_iter().zip(loads) {
        for priority in Priority::ALL {
            let group = priority.index();
            let what = format!("{} complete, kernel TCP, {}", NAMES[group], scheme.name());
            let samples: Vec<f64> = loads.iter().map(|done| done[group]).collect();
            let row = Row::new(format!("demo.tcp.{}.p{group}", scheme.id()), what, Unit::Ms);
            rows.push(row.samples(&samples));
        }
    }
    let fcp = |done: &[f64; Priority::COUNT]| done[0].max(done[1]);
    let ratios: Vec<f64> = loads[0].iter().zip(&loads[1]).map(|(fifo, ours)| fcp(ours) / fcp(fifo)).collect();
    let what = "first contentful paint (P0, P1), kernel TCP, Marcato over FIFO";
    rows.push(Row::new("demo.tcp.fcp.ratio", what, Unit::Ratio).samples(&ratios).at_most(1.0));
    rows
}

#[cfg(test)]
mod tests {
    use marcato_scenario::flow::{Feeder, FlowKind};
    use marcato_scenario::link::Loss;
    use marcato_scenario::queue::Queue;

    use super::*;
    use crate::arguments::QueueName;

    #[test]
    fn the_scenario_is_the_page_with_each_queue_and_scheme() {
        for queue in [QueueName::Droptail, QueueName::Codel] {
            for (scheme, loss) in Scheme::BOTH.into_iter().flat_map(|scheme| [(scheme, 0.0), (scheme, 0.01)])
            {
                let asked = Demo {
                    open: false,
                    loads: 1,
                    queue,
                    loss,
                    seed: 1,
                    out: None,
                    format: crate::arguments::Format::Text,
                };
                let read = Scenario::parse("demo.toml", &scenario(&asked, scheme)).unwrap();
                let experiment = read.run(0).unwrap().experiment;
                let there = &experiment.links[0].there;
                let (codel, lossy) = (queue == QueueName::Codel, loss > 0.0);
                assert_eq!(matches!(there.queue, Queue::Codel(_)), codel, "{there:?}");
                assert_eq!(there.loss != Loss::default(), lossy, "{there:?}");
                assert_eq!(there.delay, DELAY);
                let FlowKind::Messages(flow) = &experiment.flows[0].kind else { panic!("{experiment:?}") };
                let feeder = if scheme == Scheme::Fifo { Feeder::Fifo } else { Feeder::Conductor };
                assert_eq!(flow.feeder, feeder);
                let sent: Vec<_> =
                    flow.messaging.messages.iter().map(|message| (message.priority, message.size)).collect();
                assert_eq!(sent, ORDER.map(|priority| (priority, GROUPS[priority.index()])));
            }
        }
    }

    #[test]
    fn a_faster_first_paint_holds_and_a_slower_one_does_not() {
        let fifo = vec![[1300.0, 1250.0, 1100.0, 900.0, 700.0]];
        let held = |ours: f64| {
            let rows = rows(&[fifo.clone(), vec![[ours, 290.0, 500.0, 800.0, 1330.0]]]);
            rows.last().and_then(Row::ok)
        };
        assert_eq!((held(180.0), held(1400.0)), (Some(true), Some(false)));
    }
}
