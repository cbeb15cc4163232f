//! Late stylesheets: the time that one takes that is asked for while less urgent files are being sent.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use marcato_lab::Lab;
use marcato_net::Trust;
use marcato_report::{Row, Unit};

use super::client::{Loaded, Signalled, load, site};
use super::link::Link;
use super::server::{Kind, Plan, identity, start};
use super::{median, ms};
use crate::answer::{Answer, TOO_SHORT};
use crate::error::SimulationError;
use crate::lab::{failed, joined, on_host};
use crate::{Progress, RunOptions, prose};

/// Congestion controls of the kernel.
const CONGESTION: [&str; 2] = ["bbr", "cubic"];
/// Times between the first requests and that of the stylesheet, in ms.
pub(super) const DELAYS: [u64; 2] = [100, 500];
pub(super) const PORT: u16 = 443;
/// Link from the server, and packets that a queue may drop.
pub(super) const DOWN: (usize, bool) = (0, false);
/// Time for all loads of a case.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Loads of each case for each seed.
pub(super) const fn loads(quick: bool) -> usize {
    if quick { 1 } else { 5 }
}

/// Measurements of a case.
pub(super) struct Case {
    pub(super) loads: Vec<Loaded>,
    dropped: u64,
}

/// Measures late stylesheets on every link, with every server that is installed.
pub(super) fn late(options: &RunOptions, progress: &mut dyn Progress) -> Result<Answer, SimulationError> {
    let links = if options.quick { &Link::ALL[..1] } else { &Link::ALL[..] };
    let (installed, missing) = Kind::installed(&Kind::ALL);
    let cases = links.len() * CONGESTION.len() * DELAYS.len() * installed.len() * options.seeds().len();
    progress.begin("web, cases in the lab", Some(cases as u64));
    let mut rows = Vec::new();
    for link in links {
        for congestion in CONGESTION {
            for delay in DELAYS {
                let mut plain = None;
                // The others come before Marcato, whose time for everything is compared with hyper's.
                for &kind in installed.iter().rev() {
                    let mut measured = Vec::new();
                    for &seed in options.seeds() {
                        let loads = [Signalled::Both].repeat(loads(options.quick));
                        measured.push(measure(kind, link, congestion, delay, &loads, seed)?);
                        progress.advance(1);
                    }
                    let everything = everything(&measured);
                    if kind == Kind::Hyper {
                        plain = Some(everything);
                    }
                    let claims = !options.quick;
                    rows.extend(rows_of(kind, link, congestion, delay, &measured, plain, claims));
                }
            }
        }
    }
    let text = prose::text(include_str!("late.md")) + &missing;
    Ok(Answer::new("Late stylesheets", text, rows))
}

/// Runs a case in a lab of its own: a load with each of these signals, one after the other.
pub(super) fn measure(
    kind: Kind,
    link: &Link,
    congestion: &'static str,
    delay: u64,
    signalled: &[Signalled],
    seed: u64,
) -> Result<Case, SimulationError> {
    let experiment = crate::lab::experiment(&link.scenario(seed))?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    let identity = identity()?;
    let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
    let (address, _) = lab.addresses("server").ok_or(SimulationError::Missing("server"))?;
    let site = site();
    let plan = Plan {
        kind,
        site: &site,
        identity: &identity,
        port: PORT,
        congestion,
        http3: false,
        patience: PATIENCE,
    };
    let running = start(&lab, &plan)?;
    let signalled = signalled.to_vec();
    let client = on_host(&lab, "client", PATIENCE, move || async move {
        let mut tls = Trust::Certificate(trust).client_tls().map_err(failed)?;
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let tls = Arc::new(tls);
        let addr = SocketAddr::new(IpAddr::V4(address), PORT);
        let mut loaded = Vec::new();
        for signalled in signalled {
            let delay = Duration::from_millis(delay);
            loaded.push(load(addr, Arc::clone(&tls), delay, signalled).await?);
            // What the server still has in flight for the connection before leaves.
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        Ok(loaded)
    })?;
    let loads = joined(client)?;
    let dropped = lab.counters(DOWN.0, DOWN.1).map_or(0, |counters| counters.dropped);
    drop(running);
    Ok(Case { loads, dropped })
}

/// Median time for everything, in ms.
fn everything(measured: &[Case]) -> f64 {
    median(measured.iter().flat_map(|case| &case.loads).map(|load| ms(load.all)))
}

fn rows_of(
    kind: Kind,
    link: &Link,
    congestion: &str,
    delay: u64,
    measured: &[Case],
    plain: Option<f64>,
    claims: bool,
) -> Vec<Row> {
    let place = format!("{}.{congestion}.{delay}.{}", link.name, kind.name());
    let where_ = format!("{} on {}, {congestion}, +{delay} ms", kind.title(), link.name);
    let limit = link.limit().as_secs_f64() * 1e3;
    let late: Vec<f64> =
        measured.iter().map(|case| median(case.loads.iter().map(|load| ms(load.late))) / limit).collect();
    let bound = match (kind, delay, link.name) {
        (Kind::Marcato, 100, "10m") => Some(1.12),
        (Kind::Marcato, 100, _) => Some(1.08),
        (Kind::Marcato, _, _) => Some(1.15),
        _ => None,
    };
    let bounded = |row: Row, bound: Option<f64>| match bound {
        Some(_) if !claims => row.unclaimed_because(TOO_SHORT),
        Some(most) => row.at_most(most),
        None => row,
    };
    let row =
        Row::new(format!("web.late.{place}"), format!("stylesheet over the limit: {where_}"), Unit::Ratio);
    let mut rows = vec![bounded(row.samples(&late), bound)];
    let row = Row::new(format!("web.all.{place}"), format!("everything: {where_}"), Unit::Ms);
    rows.push(
        row.samples(&measured.iter().map(|case| everything(std::slice::from_ref(case))).collect::<Vec<_>>()),
    );
    if let (Kind::Marcato, Some(plain)) = (kind, plain) {
        let row = Row::new(
            format!("web.cost.{}.{congestion}.{delay}", link.name),
            format!("time for everything beyond hyper's: {where_}"),
            Unit::Percent,
        );
        let bound = (delay == 500).then_some(3.0);
        rows.push(bounded(row.measured(100.0 * (everything(measured) / plain - 1.0)), bound));
    }
    let per_load = |case: &Case| case.dropped as f64 / case.loads.len().max(1) as f64;
    let row =
        Row::new(format!("web.drops.{place}"), format!("packets dropped per load: {where_}"), Unit::Count);
    let bound = (kind == Kind::Marcato && delay == 500).then_some(0.0);
    rows.push(bounded(row.samples(&measured.iter().map(per_load).collect::<Vec<_>>()), bound));
    rows
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent, timely};

    use super::*;

    /// Runs a case of three loads on a link.
    fn case(link: &Link, kind: Kind, delay: u64) -> Case {
        measure(kind, link, "cubic", delay, &[Signalled::Both; 3], 1).unwrap()
    }

    #[test]
    fn every_server_that_is_installed_delivers_the_page() {
        if absent!(Need::Lab) {
            return;
        }
        for kind in Kind::ALL.into_iter().filter(|kind| kind.is_installed()) {
            let case = case(&Link::ALL[0], kind, 100);
            let limit = Link::ALL[0].limit();
            assert!(
                case.loads.iter().all(|load| load.late >= limit),
                "{kind:?}: {:?} below {limit:?}",
                case.loads
            );
        }
    }

    #[test]
    fn late_stylesheets_overtake_in_the_server_and_in_the_queue() {
        if absent!(Need::Lab) {
            return;
        }
        // The bounds are parts of about 100 ms. A server that is woken later than this leaves the queue empty meanwhile.
        let pause = Duration::from_millis(20);
        // Other work of this machine makes loads later: the best of one kind against the worst of the other.
        let times = |case: &Case| case.loads.iter().map(|load| load.late).collect::<Vec<_>>();
        let late_on = |link, kind, delay| {
            let case = timely(env!("CARGO_PKG_NAME"), pause, || case(link, kind, delay))?;
            Some((times(&case), case.dropped))
        };
        let late = |kind, delay| late_on(&Link::ALL[0], kind, delay);
        let is_before = |ours: &[Duration], others: &[Duration], share: f64| {
            ours.iter().min().unwrap().as_secs_f64() < others.iter().max().unwrap().as_secs_f64() * share
        };
        let (Some(plain), Some(ordered)) = (late(Kind::Hyper, 100), late(Kind::Lean, 100)) else { return };
        assert!(is_before(&ordered.0, &plain.0, 0.5), "{ordered:?} against {plain:?}");
        // After slow start, the queue decides.
        let (Some(lean), Some(coupled)) = (late(Kind::Lean, 500), late(Kind::Marcato, 500)) else { return };
        let has_fewer_drops = coupled.1 < lean.1;
        assert!(is_before(&coupled.0, &lean.0, 0.67) && has_fewer_drops, "{coupled:?} against {lean:?}");
        // In slow start, background data leaves no faster than the bottleneck sends it on.
        let fast = |kind| late_on(&Link::ALL[2], kind, 100);
        let (Some(lean), Some(coupled)) = (fast(Kind::Lean), fast(Kind::Marcato)) else { return };
        assert!(is_before(&coupled.0, &lean.0, 0.9), "{coupled:?} against {lean:?}");
    }
}
