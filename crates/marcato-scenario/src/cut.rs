//! Shortened runs: events after the end of the run are left out.
//!
//! An event after the end is a fault if the file itself sets the duration. If `--set` or a grid
//! sets it, the file was written for another duration, so such events are removed and reported as
//! notes.

use marcato_document::quantity::span;
use marcato_document::{Faults, Table};
use marcato_units::{Duration, Time};

use crate::experiment::Experiment;
use crate::flow::{Flow, FlowKind};
use crate::record::Series;

/// Removes from `experiment` the events at or after its end, and returns a note for each kind
/// removed. `root` locates each part in the file.
pub(crate) fn cut(experiment: &mut Experiment, root: &Table, faults: &Faults) -> Vec<String> {
    let end = Time::ZERO + experiment.duration;
    let mut notes = Vec::new();
    for link in &mut experiment.links {
        let before = link.changes.len();
        link.changes.retain(|change| change.at < end);
        if let many @ 1.. = before - link.changes.len() {
            notes.push(format!("{many} of {before} changes of link `{}`", link.name));
        }
    }
    let tables: Vec<&Table> = root.tables("flow").collect();
    let mut place = 0;
    let mut renamed: Vec<(String, Option<String>)> = Vec::new();
    experiment.flows.retain_mut(|flow| {
        let table = tables.get(place).copied();
        place += 1;
        if !starts(flow, 0, end) {
            let start = span(flow.start - Time::ZERO);
            notes.push(format!("the flow `{}`, which would start at {start}", flow.name));
            renamed.push((flow.name.clone(), None));
            return false;
        }
        if let Some(name) = fewer(flow, end, &mut notes) {
            renamed.push((name, Some(flow.name.clone())));
        }
        // Time left after the latest start. An event is kept only if it happens for every draw of
        // the jitter.
        let left = end.since(flow.start + flow.start_jitter);
        if let Err(problem) = shorten(flow, left, &mut notes)
            && let Some(table) = table
        {
            faults.add(table.place_of("sources"), problem);
        }
        true
    });
    if experiment.flows.is_empty() && !tables.is_empty() {
        let duration = span(experiment.duration);
        faults.add(
            root.place_of("duration"),
            format!("the run ends at {duration}, before any flow starts: let it run longer"),
        );
    }
    for (name, now) in renamed {
        experiment.record.series.retain_mut(|series| match (series, &now) {
            (Series::Flow { flow, .. }, None) => *flow != name,
            (Series::Flow { flow, .. }, Some(now)) => {
                if *flow == name {
                    flow.clone_from(now);
                }
                true
            }
            (Series::Link { .. }, _) => true,
        });
    }
    notes
}

/// Returns whether an instance, counted from 0, starts before the end even with its largest start
/// jitter.
fn starts(flow: &Flow, number: u32, end: Time) -> bool {
    let start = flow.start_of(number);
    start < end && start + flow.start_jitter <= end
}

/// Removes instances that would start after the end, and returns the flow's former name if it was
/// renamed.
///
/// A single remaining instance keeps its numbered name, so that results match those of longer runs.
fn fewer(flow: &mut Flow, end: Time, notes: &mut Vec<String>) -> Option<String> {
    let count = (0..flow.count).take_while(|&number| starts(flow, number, end)).count();
    let count = u32::try_from(count).unwrap_or(flow.count);
    if count == flow.count {
        return None;
    }
    notes.push(format!("{} of {} flows `{}`", flow.count - count, flow.count, flow.name));
    let first = (count == 1).then(|| flow.instances().swap_remove(0));
    flow.count = count;
    // Instances use the pairs in turn, so the later pairs have lost theirs.
    flow.also.truncate(count.saturating_sub(1) as usize);
    first.map(|first| std::mem::replace(&mut flow.name, first))
}

/// Removes messages and sources that would start once the flow's age reaches `left`.
///
/// Sources are identified by their position in the file, so only trailing ones can be removed. An
/// error reports a late source that stands before an earlier one.
fn shorten(flow: &mut Flow, left: Duration, notes: &mut Vec<String>) -> Result<(), String> {
    let (messages, sources) = match &mut flow.kind {
        FlowKind::Messages(kind) => (&mut kind.messaging.messages, &mut kind.messaging.sources),
        FlowKind::Quic(kind) => (&mut kind.messaging.messages, &mut kind.messaging.sources),
        _ => return Ok(()),
    };
    let before = (messages.len(), sources.len());
    messages.retain(|message| message.after < left);
    let stay = sources.iter().rposition(|source| source.first < left).map_or(0, |last| last + 1);
    sources.truncate(stay);
    for (what, many, of) in
        [("messages", before.0 - messages.len(), before.0), ("sources", before.1 - stay, before.1)]
    {
        if many > 0 {
            notes.push(format!("{many} of {of} {what} of flow `{}`", flow.name));
        }
    }
    if sources.iter().any(|source| source.first >= left) {
        let left = span(left);
        return Err(format!(
            "a source begins only {left} after the flow, when the run is over, and another stands behind it: put it last"
        ));
    }
    Ok(())
}
