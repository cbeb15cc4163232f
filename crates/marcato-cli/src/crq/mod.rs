//! `marcato crq`: congestion-responsive queuing in the kernel of this host.

mod enrolled;
mod error;
mod exporter;
mod list;
mod metrics;
mod note;
mod plan;
mod remains;
mod settings;
mod snapshot;
mod trial;
mod turn;
mod view;

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use marcato_kernel::{Attachment, Device, DeviceError, Missing, Pinned};
use marcato_report::AtomicFile;

pub(crate) use self::error::CrqError;
use self::note::Note;
use self::plan::Plan;
pub(crate) use self::settings::{LEAST_FLOWS, MOST_FLOWS, PresetName, Settings};
pub(crate) use self::snapshot::Selection;
use self::snapshot::Snapshot;
use self::trial::Trial;
use self::turn::Turn;
use self::view::View;
use crate::Status;
use crate::arguments::{
    CrqAction, CrqAttach, CrqChange, CrqClean, CrqDetach, CrqMetrics, CrqMonitor, CrqPins, CrqReload, CrqSet,
    CrqShow, CrqStatus, OutputFormat,
};
use crate::interrupt::Interrupt;
use crate::output;

/// Interval at which an interrupt is looked for.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(action: &CrqAction, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    match action {
        CrqAction::Monitor(asked) => monitor(asked, stdout),
        CrqAction::Attach(asked) => attach(asked, stdout),
        CrqAction::Status(asked) => status(asked, stdout),
        CrqAction::Set(asked) => set(asked, stdout),
        CrqAction::Detach(asked) => detach(asked, stdout),
        CrqAction::Clean(asked) => clean(asked, stdout),
        CrqAction::Reload(asked) => reload(asked, stdout),
        CrqAction::Metrics(CrqMetrics { listen, subscribers, pins: CrqPins { pins } }) => {
            exporter::run(*listen, pins.clone(), *subscribers, |at| {
                print(stdout, &format!("metrics at http://{at}/metrics\n"))
            })?;
            Ok(Status::Ok)
        }
    }
}

fn print(stdout: &mut dyn Write, text: &str) -> Result<(), CrqError> {
    output::print(stdout, text).map_err(CrqError::Print)
}

/// Fails if this system or process lacks something that the programs need.
fn required(pins: &Path) -> Result<(), CrqError> {
    let missing = Missing::all(pins);
    if missing.is_empty() { Ok(()) } else { Err(CrqError::Missing(missing)) }
}

/// Takes the turn of a command that changes the programs that are there. Fails if this process may not see or change
/// them.
fn permitted(pins: &Path, dry: bool) -> Result<Turn, CrqError> {
    Pinned::permitted(pins)?;
    let missing = if dry { Vec::new() } else { Missing::privileges() };
    if missing.is_empty() { Ok(Turn::take(pins, dry)) } else { Err(CrqError::Missing(missing)) }
}

/// Prints a plan, or carries it out and prints what an operator should know.
fn carry_out(plan: Plan, dry: bool, stdout: &mut dyn Write) -> Result<(), CrqError> {
    for note in &plan.notes {
        eprintln!("note: {note}");
    }
    if dry { print(stdout, &plan.to_string()) } else { plan.run() }
}

fn attach(asked: &CrqAttach, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqAttach { change, config, settings, replace } = asked;
    let CrqChange { device, dry_run, pins: CrqPins { pins } } = change;
    let file = match config {
        None => Settings::default(),
        Some(path) => {
            let text = std::fs::read_to_string(path)
                .map_err(|source| CrqError::File { path: path.clone(), source })?;
            Settings::from_toml(&text, &path.display().to_string())?
        }
    };
    let mut settings = settings.clone().over(file);
    if let Some(path) = &mut settings.subscribers {
        if settings.rate.is_none() {
            return Err(CrqError::SharedRate);
        }
        if !settings.parent.is_empty() {
            return Err(CrqError::Both);
        }
        // `reload` may be called from elsewhere.
        *path = std::path::absolute(&*path)
            .map_err(|source| CrqError::Subscribers { path: path.clone(), source })?;
    }
    if !settings.shapes() {
        return Err(CrqError::NoRate);
    }
    if *dry_run {
        // The plan is worth reading without what carries it out.
        for need in Missing::all(pins) {
            eprintln!("note: without --dry-run, this is missing: {need}");
        }
    } else {
        required(pins)?;
    }
    let _turn = Turn::take(pins, *dry_run);
    let device = Device::find(device)?;
    carry_out(Plan::attach(&device, pins, &settings, *replace)?, *dry_run, stdout)?;
    if !dry_run {
        print(stdout, &format!("CRQ is on {}: {}\n", device.name, settings.shown()))?;
    }
    Ok(Status::Ok)
}

fn set(asked: &CrqSet, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqSet { change: CrqChange { device, dry_run, pins: CrqPins { pins } }, settings } = asked;
    if *settings == Settings::default() {
        return Err(CrqError::NoChange);
    }
    let _turn = permitted(pins, *dry_run)?;
    let device = Device::find(device)?;
    let attachment = Attachment::open(pins, &device)?;
    let before = Note::of(&attachment, &device)?;
    let mut settings = settings.clone().over(before.settings.clone());
    if let Some(path) = &mut settings.subscribers {
        *path = std::path::absolute(&*path)
            .map_err(|source| CrqError::Subscribers { path: path.clone(), source })?;
    }
    let plan = match before.settings.subscribers {
        None => Plan::set(&device, pins, &before, &settings)?,
        Some(_) => Plan::renew(&device, pins, &attachment, &before, &settings)?,
    };
    carry_out(plan, *dry_run, stdout)?;
    if !dry_run {
        print(stdout, &format!("CRQ is on {}: {}\n", device.name, settings.shown()))?;
    }
    Ok(Status::Ok)
}

fn detach(asked: &CrqDetach, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqDetach { change: CrqChange { device, dry_run, pins: CrqPins { pins } } } = asked;
    let _turn = permitted(pins, *dry_run)?;
    let device = match Device::find(device) {
        Err(error @ DeviceError::Unknown { .. }) => {
            let gone = remains::gone_of(device, pins)?;
            if gone.is_empty() {
                return Err(error.into());
            }
            remains::remove(&gone, *dry_run, stdout)?;
            return Ok(Status::Ok);
        }
        found => found?,
    };
    carry_out(Plan::detach(&device, pins)?, *dry_run, stdout)?;
    if !dry_run {
        print(stdout, &format!("CRQ is off {}\n", device.name))?;
    }
    Ok(Status::Ok)
}

/// Reads the file of a device's subscribers again.
fn reload(asked: &CrqReload, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqReload { change: CrqChange { device, dry_run, pins: CrqPins { pins } } } = asked;
    let _turn = permitted(pins, *dry_run)?;
    let device = Device::find(device)?;
    let attachment = Attachment::open(pins, &device)?;
    let before = Note::of(&attachment, &device)?;
    if before.settings.subscribers.is_none() {
        return Err(CrqError::NoSubscribers { device: device.name });
    }
    let plan = Plan::renew(&device, pins, &attachment, &before, &before.settings)?;
    let changes = plan.changes.clone();
    carry_out(plan, *dry_run, stdout)?;
    if !dry_run {
        print(stdout, &format!("{}: {changes}\n", device.name))?;
    }
    Ok(Status::Ok)
}

/// Removes the programs of devices that are gone.
fn clean(asked: &CrqClean, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqClean { dry_run, pins: CrqPins { pins } } = asked;
    let _turn = permitted(pins, *dry_run)?;
    let gone = remains::gone(pins)?;
    if gone.is_empty() {
        print(stdout, "every attachment has its device: nothing to remove\n")?;
    }
    remains::remove(&gone, *dry_run, stdout)?;
    Ok(Status::Ok)
}

/// Puts programs on a device that change nothing, shows what they see, and takes them off.
fn monitor(asked: &CrqMonitor, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqMonitor { change, preset, flows, reverse, duration, report, show } = asked;
    let CrqChange { device, dry_run, pins: CrqPins { pins } } = change;
    let settings =
        Settings { preset: *preset, flows: *flows, reverse: reverse.clone(), ..Settings::default() };
    if !dry_run {
        required(pins)?;
    }
    let device = Device::find(device)?;
    let plan = Plan::attach(&device, pins, &settings, false)?;
    if *dry_run {
        carry_out(plan, true, stdout)?;
        return Ok(Status::Ok);
    }
    // A page that cannot be written is told before the trial, and not after it.
    let failed = |path: &Path, source| CrqError::Report { path: path.to_owned(), source };
    let page = report.as_deref().map(|path| AtomicFile::create(path).map_err(|error| failed(path, error)));
    let page = page.transpose()?;
    let mut trial = page.is_some().then(Trial::default);
    // From here on an interrupt ends the view, and not the process.
    let interrupt = Interrupt::listen_for_any_end().map_err(CrqError::Interrupt)?;
    plan.run()?;
    let watched = watch(&device, pins, show, *duration, &interrupt, trial.as_mut(), stdout);
    // Taken off in any case: the first error is the one to tell.
    let detached = Plan::detach(&device, pins).and_then(Plan::run);
    // What was seen before a failure is worth a page too.
    if let (Some(mut file), Some(page), Some(path)) = (page, trial.and_then(|trial| trial.page()), report) {
        let written = file.write_all(page.to_html().as_bytes()).and_then(|()| file.commit());
        written.map_err(|error| failed(path, error))?;
    }
    let last = watched?;
    detached?;
    if show.format == OutputFormat::Text {
        print(stdout, &View { now: &last, before: None }.to_string())?;
    }
    Ok(Status::Ok)
}

fn status(asked: &CrqStatus, stdout: &mut dyn Write) -> Result<Status, CrqError> {
    let CrqStatus { device, live, all, subscriber, show, pins: CrqPins { pins } } = asked;
    let selection = show.selection();
    permitted(pins, !*all)?;
    if *all {
        remains::show(pins, show.format, stdout)?;
        return Ok(Status::Ok);
    }
    let Some(device) = device else {
        let all = exporter::snapshots(pins, selection)?;
        if all.is_empty() {
            return Err(CrqError::NoDevice);
        }
        for snapshot in &all {
            print_one(snapshot, show, stdout)?;
        }
        return Ok(Status::Ok);
    };
    let device = Device::find(device)?;
    if *live {
        let interrupt = Interrupt::listen().map_err(CrqError::Interrupt)?;
        watch(&device, pins, show, None, &interrupt, None, stdout)?;
    } else {
        let selection = Selection {
            subscribers: if subscriber.is_some() { usize::MAX } else { selection.subscribers },
            ..selection
        };
        let mut snapshot = Snapshot::take(&device, pins, selection)?;
        if let Some(name) = subscriber
            && !snapshot.only(name)
        {
            return Err(CrqError::NoSubscriber { device: device.name, name: name.clone() });
        }
        print_one(&snapshot, show, stdout)?;
    }
    Ok(Status::Ok)
}

fn print_one(snapshot: &Snapshot, show: &CrqShow, stdout: &mut dyn Write) -> Result<(), CrqError> {
    match show.format {
        OutputFormat::Text => print(stdout, &View { now: snapshot, before: None }.to_string()),
        OutputFormat::Json => {
            let line = serde_json::to_string(snapshot).map_err(|error| CrqError::Print(error.into()))?;
            print(stdout, &format!("{line}\n"))
        }
    }
}

/// Shows a device at each interval until an interrupt, or for so long. Returns the last snapshot.
///
/// A trial takes note of every snapshot. Text is drawn on standard error if that is a terminal. JSON is a line for each interval.
fn watch(
    device: &Device,
    pins: &Path,
    show: &CrqShow,
    duration: Option<Duration>,
    interrupt: &Interrupt,
    mut trial: Option<&mut Trial>,
    stdout: &mut dyn Write,
) -> Result<Snapshot, CrqError> {
    let begun = Instant::now();
    let mut take = || {
        let Some(trial) = trial.as_deref_mut() else { return Snapshot::take(device, pins, show.selection()) };
        let mut snapshot = Snapshot::take(device, pins, Selection { top: 0, ..show.selection() })?;
        trial.note(&snapshot);
        snapshot.show(show.selection());
        Ok(snapshot)
    };
    let style = ProgressStyle::with_template("{msg}").unwrap_or_else(|_| ProgressStyle::default_spinner());
    let bar = ProgressBar::new_spinner().with_style(style);
    let mut before = take()?;
    let ended =
        |now: Instant| interrupt.came() || duration.is_some_and(|span| now.duration_since(begun) >= span);
    let mut next = begun + show.every;
    loop {
        let end = loop {
            let now = Instant::now();
            if ended(now) {
                break true;
            }
            if now >= next {
                break false;
            }
            std::thread::sleep(LOOK.min(next - now));
        };
        let now = take()?;
        if show.format == OutputFormat::Json {
            print_one(&now, show, stdout)?;
        } else {
            bar.set_message(View { now: &now, before: Some(&before) }.to_string());
        }
        if end {
            bar.finish_and_clear();
            return Ok(now);
        }
        before = now;
        next += show.every;
        next = next.max(Instant::now());
    }
}
