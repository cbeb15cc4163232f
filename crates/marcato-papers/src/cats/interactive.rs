//! Keystrokes together with a file: SSH and SFTP over one connection. CATS §IV names the case.

use marcato_report::chart::{Axis, LineChart, Series};
use marcato_report::{Figure, Percentile, Row, Unit};
use marcato_sched::{Config, Debt};
use marcato_sim::{App, Planned};
use marcato_units::{Bytes, Duration, Priority, Time};

use super::delays::Delays;
use super::path::{Feeding, Path, Scheme, Transfer};
use super::watched::Watched;
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::prose;

const END: Duration = Duration::from_secs(20);
/// End of the warm-up: the handshake and BBR's start-up are over.
const WARM: Duration = Duration::from_secs(2);
/// Offer of the file in the late case. The 300th message, at 5.98 s, has just brought P0 to its
/// high watermark of 60 kB.
const LATE: Duration = Duration::from_millis(5_990);

/// Keystrokes and echoes, and a file that is copied from `begin` on. Returns the plan and the
/// file's place in it.
fn plan(begin: Duration) -> (Vec<Planned>, usize) {
    let keystroke = Planned::now(Bytes::new(200), Priority::P0);
    let mut plan: Vec<Planned> = (0..1000).map(|k| keystroke.after(Duration::from_millis(20) * k)).collect();
    let file = plan.partition_point(|planned| planned.after < begin);
    plan.insert(file, Planned::now(Bytes::kb(5_000), Priority::P4).after(begin));
    (plan, file)
}

/// A sending scheme, with its name in row ids and in words.
type Named = (&'static str, &'static str, Scheme);

const SCHEMES: [Named; 5] = [
    ("fifo", "FIFO", Scheme::Writers([0, 0, 0, 0, 1])),
    ("strict", "strict order, lean", Scheme::Conductor(Debt::strict(), Feeding::Lean)),
    ("cats", "CATS", Scheme::cats()),
    ("cats-lean", "CATS, lean", Scheme::Conductor(Debt::authors(), Feeding::Lean)),
    ("marcato", "Marcato, lean", Scheme::Conductor(Debt::marcato(), Feeding::Lean)),
];

/// Sends the plan and observes the Conductor, if there is one. Also returns the bytes of the file
/// that arrived by [`WARM`] and by the end.
fn run(
    path: &Path,
    scheme: Scheme,
    begin: Duration,
    seed: u64,
) -> Result<(Transfer, [Bytes; 2]), SimulationError> {
    let (plan, file) = plan(begin);
    let app: Box<dyn App> = match scheme {
        Scheme::Conductor(debt, feeding) => {
            let config = Config { chunk: path.chunk(), ..Config::with_debt(debt) };
            Box::new(Watched::new(path.conducted(config, feeding, plan.clone())?))
        }
        Scheme::Fifo | Scheme::Writers(_) => path.app(scheme, plan.clone())?,
    };
    let mut transfer = path.open(scheme.feeding(), app, &plan, seed)?;
    transfer.run_until(Time::ZERO + WARM)?;
    let warm = transfer.arrived(file)?;
    transfer.run_until(Time::ZERO + END)?;
    let end = transfer.arrived(file)?;
    // Lets messages arrive that were offered before the end.
    transfer.run_until(Time::ZERO + END + Duration::from_secs(15))?;
    Ok((transfer, [warm, end]))
}

/// Delay of keystrokes and goodput of the file, for each scheme.
pub(super) fn interactive(seed: u64, _quick: bool) -> Result<Answer, SimulationError> {
    interactive_on(&Path::authors(), seed)
}

/// Delay of keystrokes and goodput of the file on any path.
pub(super) fn interactive_on(path: &Path, seed: u64) -> Result<Answer, SimulationError> {
    let mut rows = Vec::new();
    let mut ccdf = LineChart::ccdf("Delay of keystrokes beside a file", Axis::new("delay", "ms").log(), true);
    let mut debts = LineChart::new(
        "Debt of P0: the file begins after 6 s",
        Axis::new("time", "s").window(4.0, 8.0),
        Axis::new("debt of P0", "kB"),
    );
    for (id, name, scheme) in SCHEMES {
        let (transfer, [warm, end]) = run(path, scheme, Duration::ZERO, seed)?;
        let delays = Delays::of(&transfer, Priority::P0, WARM..END)?;
        for (metric, value) in [
            ("p50", delays.percentile(Percentile::P50)),
            ("p99", delays.percentile(Percentile::P99)),
            ("max", delays.max()),
        ] {
            rows.push(
                Row::new(
                    format!("cats.interactive.{id}.{metric}"),
                    format!("keystroke beside a file, {metric} delay, {name}"),
                    Unit::Ms,
                )
                .measured(value),
            );
        }
        rows.push(
            Row::new(
                format!("cats.interactive.{id}.file"),
                format!("goodput of the file, {name}"),
                Unit::MbitPerS,
            )
            .measured((end - warm).get() as f64 * 8.0 / (END - WARM).as_secs_f64() / 1e6),
        );
        ccdf = ccdf.series(Series::ccdf(name, delays.sorted().iter().copied()));
    }
    for (id, name, scheme) in SCHEMES {
        let (transfer, _) = run(path, scheme, LATE, seed)?;
        let first = transfer.plan().partition_point(|planned| planned.after <= LATE);
        rows.push(
            Row::new(
                format!("cats.interactive.late.{id}.first"),
                format!("first keystroke after the file begins, delay, {name}"),
                Unit::Ms,
            )
            .measured(transfer.delay(first)?),
        );
        if matches!(scheme, Scheme::Conductor(..)) {
            let second = first..first + 50;
            let waits = Watched::waits(&transfer)?;
            let longest =
                waits.into_iter().filter(|(place, _)| second.contains(place)).map(|(_, wait)| wait).max();
            rows.push(
                Row::new(
                    format!("cats.interactive.late.{id}.wait"),
                    format!("keystrokes in the second after the file begins, longest wait in the Conductor, {name}"),
                    Unit::Ms,
                )
                .measured(longest.map_or(f64::NAN, |wait| wait.as_secs_f64() * 1e3)),
            );
        }
        if let Ok(watched) = transfer.sender::<Watched>()
            && matches!(id, "cats-lean" | "marcato")
        {
            let in_debt = watched.states().windows(2).filter(|pair| pair[0].in_debt);
            let span: Duration = in_debt.map(|pair| pair[1].at.since(pair[0].at)).sum();
            rows.push(
                Row::new(
                    format!("cats.interactive.late.{id}.indebt"),
                    format!("time that P0 was in debt, {name}"),
                    Unit::Ms,
                )
                .measured(span.as_secs_f64() * 1e3),
            );
            let points =
                watched.states().iter().map(|state| (state.at.as_secs_f64(), state.debt.get() as f64 / 1e3));
            debts = debts.series(Series::step(name, points));
        }
    }
    let mut answer = Answer::new(
        "Keystrokes beside a file: SSH and SFTP over one connection",
        prose::text(include_str!("interactive.md")),
        rows,
    );
    answer.section = answer
        .section
        .figure(Figure::new(
            "interactive",
            ccdf,
            "Keystrokes of the measured time.",
        ))
        .figure(Figure::new(
            "interactive-debt",
            debts,
            "Debt of P0 around the start of the file, at 5.99 s. Under the authors' rules keystrokes alone run it up.",
        ));
    Ok(answer)
}
