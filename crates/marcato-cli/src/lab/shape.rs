//! Network of a lab: a scenario, or links in one line.

use marcato_scenario::brief::{self, Brief, Disorder, Ways};
use marcato_scenario::{Overrides, Reader, Scenario};

use super::LabError;
use crate::arguments::{LabNetwork, LabShape};

/// Returns the network that the arguments describe, with the disorder of both directions of each link.
pub(super) fn load(
    network: &LabNetwork,
    overrides: Overrides,
) -> Result<(Scenario, Vec<[Disorder; 2]>), LabError> {
    let reader = Reader::new().without_flows().overrides(&overrides);
    if let Some(file) = &network.file {
        let scenario = match file.as_os_str() == "-" {
            true => reader.load_from(std::io::stdin().lock())?,
            false => reader.load(file)?,
        };
        return Ok((scenario, Vec::new()));
    }
    let links = links(&network.shape)?;
    let text = brief::scenario(&links, network.seed)?;
    let disorder: Result<Vec<_>, _> = links.iter().map(Brief::disorder).collect();
    // The text is none of the user's: a place in it would say nothing.
    let scenario = reader.read("--link", &text).map_err(|error| {
        let problems = error.faults().iter().map(|fault| fault.problem.as_str());
        let mut problems: Vec<&str> = problems.collect();
        problems.dedup();
        LabError::Links(problems.join("; "))
    })?;
    Ok((scenario, disorder?))
}

/// Returns the only link that the options describe; `None` if they describe none.
pub(super) fn only(shape: &LabShape) -> Result<Option<Brief>, LabError> {
    match links(shape) {
        Err(LabError::NoNetwork) => Ok(None),
        Err(error) => Err(error),
        Ok(links) if links.len() > 1 => Err(LabError::OneLink),
        Ok(links) => Ok(links.into_iter().next()),
    }
}

/// Returns the links that the options describe.
fn links(shape: &LabShape) -> Result<Vec<Brief>, LabError> {
    let LabShape { link, up, down, loss, jitter, reorder, duplicate, corrupt, trace } = shape;
    let mut links = Vec::new();
    for text in link {
        let mut brief = Brief::default();
        brief.add("--link", Ways::Both, text)?;
        links.push(brief);
    }
    if links.is_empty() {
        links.push(Brief::default());
    }
    let mut is_described = !link.is_empty();
    let pieces = [
        ("up", Ways::Up, up, false),
        ("down", Ways::Down, down, false),
        ("loss", Ways::Both, loss, true),
        ("jitter", Ways::Both, jitter, true),
        ("reorder", Ways::Both, reorder, true),
        ("duplicate", Ways::Both, duplicate, true),
        ("corrupt", Ways::Both, corrupt, true),
        ("trace", Ways::Both, trace, true),
    ];
    for (word, ways, value, is_word) in pieces {
        let Some(value) = value else { continue };
        is_described = true;
        let [brief] = &mut links[..] else { return Err(LabError::SeveralLinks { option: word }) };
        let text = if is_word { format!("{word} {value}") } else { value.clone() };
        brief.add(&format!("--{word}"), ways, &text)?;
    }
    if is_described { Ok(links) } else { Err(LabError::NoNetwork) }
}
