//! Attachments of all devices and namespaces, and what is left of those whose device is gone.

use std::io::Write;
use std::path::Path;

use marcato_kernel::{Device, Pinned, Whereabouts};
use serde::Serialize;

use super::note::Note;
use super::settings::Settings;
use super::{CrqError, print};
use crate::arguments::OutputFormat;
use crate::table::Table;

/// Attachment, as `status --all` shows it.
#[derive(Debug, Serialize)]
struct Row {
    device: Option<String>,
    netns: u32,
    ifindex: u32,
    state: String,
    settings: Option<Settings>,
}

impl Row {
    fn new(pinned: &Pinned) -> Self {
        let note = Note::of_pinned(pinned);
        let state = state(pinned, note.as_ref());
        let (device, settings) = note.map(|note| (note.device, note.settings)).unzip();
        Self { device, netns: pinned.netns, ifindex: pinned.ifindex, state, settings }
    }
}

/// Returns the condition of an attachment in words.
pub(super) fn state(pinned: &Pinned, note: Option<&Note>) -> String {
    let whereabouts = pinned.whereabouts();
    let is_here = || Device::find(note.map_or("", |it| &it.device)).is_ok_and(|it| pinned.is_of(&it));
    let note = note.filter(|_| whereabouts == Whereabouts::Attached && is_here());
    if let Some(lost) = note.and_then(|note| note.lost().ok().flatten()) {
        return lost;
    }
    named(whereabouts).to_owned()
}

const fn named(whereabouts: Whereabouts) -> &'static str {
    match whereabouts {
        Whereabouts::Attached => "attached",
        Whereabouts::Gone => "device gone",
        Whereabouts::Incomplete => "incomplete",
        Whereabouts::OneWay => "device of the other direction gone",
        Whereabouts::Elsewhere => "in another namespace",
    }
}

/// Returns the pins of attachments whose device is gone.
pub(super) fn gone(pins: &Path) -> Result<Vec<Pinned>, CrqError> {
    let mut all = Pinned::all(pins)?;
    all.retain(|pinned| pinned.whereabouts() == Whereabouts::Gone);
    Ok(all)
}

/// Returns the pins of attachments whose device had this name and is gone.
pub(super) fn gone_of(name: &str, pins: &Path) -> Result<Vec<Pinned>, CrqError> {
    let mut gone = gone(pins)?;
    gone.retain(|pinned| Note::of_pinned(pinned).is_some_and(|note| note.device == name));
    Ok(gone)
}

/// Returns a line about pins whose device is gone.
pub(super) fn line(pinned: &Pinned) -> String {
    let Pinned { netns, ifindex, .. } = pinned;
    let name = Note::of_pinned(pinned).map_or("a device".to_owned(), |note| note.device);
    format!(
        "remove the programs of {name}, which is gone (device {ifindex} of the network namespace {netns})"
    )
}

/// Removes pins, or says so only.
pub(super) fn remove(gone: &[Pinned], dry: bool, stdout: &mut dyn Write) -> Result<(), CrqError> {
    for pinned in gone {
        print(stdout, &format!("{}\n", line(pinned)))?;
        if !dry {
            pinned.remove()?;
        }
    }
    Ok(())
}

/// Prints all attachments, also those of other network namespaces.
pub(super) fn show(pins: &Path, format: OutputFormat, stdout: &mut dyn Write) -> Result<(), CrqError> {
    let rows: Vec<Row> = Pinned::all(pins)?.iter().map(Row::new).collect();
    if format == OutputFormat::Json {
        return rows.iter().try_for_each(|row| {
            let line = serde_json::to_string(row).map_err(|error| CrqError::Print(error.into()))?;
            print(stdout, &format!("{line}\n"))
        });
    }
    let mut table = Table::new(["device", "state", "settings", "namespace", "number"]).words(3);
    for row in rows {
        table.row([
            row.device.unwrap_or("?".to_owned()),
            row.state,
            row.settings.map_or("?".to_owned(), |settings| settings.shown()),
            row.netns.to_string(),
            row.ifindex.to_string(),
        ]);
    }
    print(stdout, &table.to_string())
}
