//! Changes of the system: printed, or carried out in order.
//!
//! `attach`, `set` and `detach` each make one list. `--dry-run` prints the list that is otherwise run.

use std::fmt;
use std::path::{Path, PathBuf};

use marcato_kernel::{
    Attachment, ClassId, Configuration, Device, Pinned, Prefix, Queue, Seat, Shaper, Subscriber, TcCommand,
    Tree, Whereabouts,
};
use marcato_units::Duration;

use super::enrolled::{self, Enrolled};
use super::note::Note;
use super::settings::Settings;
use super::{CrqError, remains};

/// Change of the system.
pub(super) enum Step {
    /// Command about the device's queues.
    Tc(TcCommand),
    /// Programs on the device.
    Attach { configuration: Box<Configuration>, settings: Settings, seats: Vec<Seat> },
    /// Other rules for the programs that are there.
    Configure { configuration: Box<Configuration>, settings: Settings, seats: Vec<Seat> },
    /// Many commands about queues, in one process.
    Batch(Vec<TcCommand>),
    /// Many commands about queues, each of which may fail.
    Restore(Vec<TcCommand>),
    /// Programs on a device with subscribers, whose classes are there.
    AttachSubscribers { configuration: Box<Configuration>, settings: Settings, enrolled: Enrolled },
    /// Subscribers that came, or have other rates.
    Put(Vec<Subscriber>),
    /// Addresses of all subscribers.
    Prefixes(Vec<(Prefix, u16)>),
    /// Subscribers that have no class any more.
    Forget(Vec<u16>),
    /// Switch to the new addresses. Steps after it are not undone.
    Commit,
    /// Programs away from the device.
    Detach,
    /// Programs of a device that is gone.
    Remove(Pinned),
}

/// Changes of one device, in their order.
pub(super) struct Plan {
    device: Device,
    pins: PathBuf,
    steps: Vec<Step>,
    /// Changes that restore what was before, if a step fails.
    undo: Vec<Step>,
    /// Facts that the operator should know.
    pub(super) notes: Vec<String>,
    /// Summary of the changes of subscribers.
    pub(super) changes: String,
}

impl Plan {
    fn new(device: &Device, pins: &Path) -> Self {
        Self {
            device: device.clone(),
            pins: pins.to_owned(),
            steps: Vec::new(),
            undo: Vec::new(),
            notes: Vec::new(),
            changes: String::new(),
        }
    }

    /// Changes that put CRQ on a device: with queues if the settings have a rate, and else to watch.
    pub(super) fn attach(
        device: &Device,
        pins: &Path,
        settings: &Settings,
        replace: bool,
    ) -> Result<Self, CrqError> {
        let mut plan = Self::new(device, pins);
        let reverse = reverse_of(device, settings)?;
        let settings = Settings { reverse: reverse.as_ref().map(|it| it.name.clone()), ..settings.clone() };
        let known = plan.take_over()?;
        let mut seats = Vec::new();
        if !settings.parent.is_empty() {
            seats = plan.below(&settings, &known, replace)?;
        } else if let Some(shaper) = settings.shaper() {
            let root = Queue::all(&device.name)?.into_iter().next();
            match root.filter(|queue| !queue.is_default()) {
                // HTB has no change: a new one needs the place of the old one.
                Some(queue) if is_own(&queue) => plan.steps.push(Step::Tc(Shaper::undo(&device.name))),
                Some(Queue { kind, handle, .. }) if !replace => {
                    return Err(CrqError::OtherQueue { device: device.name.clone(), kind, handle });
                }
                _ => {}
            }
            plan.undo.push(Step::Tc(Shaper::undo(&device.name)));
            plan.notes.extend(notes(device, &shaper, speed(&device.name)));
            if let Some(path) = &settings.subscribers {
                let enrolled = Enrolled::read(path, &settings, shaper.rate, &[])?;
                plan.notes.extend(enrolled.notes.iter().cloned());
                let mut commands = shaper.commands_shared(device);
                for subscriber in &enrolled.subscribers {
                    commands.extend(settings.shaper_of(subscriber.max).commands_of(device, subscriber));
                }
                plan.steps.push(Step::Batch(commands));
                plan.steps.push(Step::AttachSubscribers {
                    configuration: Box::new(settings.configuration(device, reverse.as_ref())),
                    settings,
                    enrolled,
                });
                return Ok(plan);
            }
            plan.steps.extend(shaper.commands(device).into_iter().map(Step::Tc));
        }
        plan.steps.push(Step::Attach {
            configuration: Box::new(settings.configuration(device, reverse.as_ref())),
            settings,
            seats,
        });
        Ok(plan)
    }

    /// Queues below the classes that the settings name. `known` are those of an earlier attachment.
    fn below(&mut self, settings: &Settings, known: &[Seat], replace: bool) -> Result<Vec<Seat>, CrqError> {
        let device = self.device.clone();
        let tree = Tree::read(&device.name)?;
        let seats = tree.seats(&settings.parent, known, replace).map_err(CrqError::Parent)?;
        let mut slowest: Option<Shaper> = None;
        for seat in &seats {
            let shaper = shaper_below(&device, &tree, settings, seat.class)?;
            // Left by a crash, or by an attachment that has lost another class.
            self.steps.extend(tree.has(seat).then(|| Step::Tc(seat.undo(&device.name))));
            let commands = shaper.commands_below(&device, seat, settings.rate.is_some());
            self.steps.extend(commands.into_iter().map(Step::Tc));
            self.undo.push(Step::Tc(seat.undo(&device.name)));
            slowest = slowest.filter(|it| it.rate <= shaper.rate).or(Some(shaper));
        }
        // Nothing takes the place of the device's own queues here.
        let alone = Device { queues: 1, ..device.clone() };
        self.notes.extend(slowest.iter().flat_map(|shaper| notes(&alone, shaper, None)));
        // Classes that had CRQ, and are named no more.
        let dropped =
            known.iter().filter(|old| tree.has(old) && seats.iter().all(|seat| seat.class != old.class));
        self.steps.extend(dropped.map(|seat| Step::Tc(seat.undo(&device.name))));
        Ok(seats)
    }

    /// Removes first what crashes have left on this device, and what is left of devices that are gone. Returns the
    /// classes that had CRQ.
    fn take_over(&mut self) -> Result<Vec<Seat>, CrqError> {
        let own = Pinned::of(&self.pins, &self.device);
        let note = own.as_ref().and_then(Note::of_pinned);
        match own.as_ref().map(Pinned::whereabouts) {
            None => {}
            Some(Whereabouts::Attached | Whereabouts::Elsewhere)
                if note.as_ref().map_or(Ok(None), Note::lost)?.is_none() =>
            {
                let device = self.device.name.clone();
                return Err(marcato_kernel::AttachError::Attached { device }.into());
            }
            Some(_) => self.steps.push(Step::Detach),
        }
        let others = remains::gone(&self.pins)?.into_iter().filter(|pinned| own.as_ref() != Some(pinned));
        self.steps.extend(others.map(Step::Remove));
        Ok(note.map_or(Vec::new(), |note| note.seats))
    }

    /// Changes from the settings `before` to others, which keep what is known of flows.
    pub(super) fn set(
        device: &Device,
        pins: &Path,
        before: &Note,
        settings: &Settings,
    ) -> Result<Self, CrqError> {
        if let (Some(lost), true) = (before.lost()?, before.seats.is_empty()) {
            return Err(CrqError::Lost { device: device.name.clone(), lost });
        }
        let Note { settings: before, seats, .. } = before;
        if settings.parent != before.parent {
            return Err(CrqError::Parents);
        }
        if settings.subscribers.is_some() {
            return Err(CrqError::Direction);
        }
        if settings.flows() != before.flows() {
            return Err(CrqError::Flows);
        }
        if settings.reverse != before.reverse {
            return Err(CrqError::Reverse);
        }
        let reverse = settings.reverse.as_deref().map(Device::find).transpose()?;
        let mut plan = Self::new(device, pins);
        if !seats.is_empty() {
            plan.set_below(before, settings, seats)?;
        }
        match (before.shaper(), settings.shaper()) {
            _ if !seats.is_empty() => {}
            (Some(before), Some(after)) if before != after => {
                plan.steps.extend(after.changes(device).into_iter().map(Step::Tc));
                plan.undo.extend(before.changes(device).into_iter().map(Step::Tc));
                plan.notes.extend(notes(device, &after, speed(&device.name)));
            }
            (None, Some(_)) => return Err(CrqError::Watched { device: device.name.clone() }),
            _ => {}
        }
        let configure = |settings: &Settings| Step::Configure {
            configuration: Box::new(settings.configuration(device, reverse.as_ref())),
            settings: settings.clone(),
            seats: seats.clone(),
        };
        plan.steps.push(configure(settings));
        plan.undo.push(configure(before));
        if !seats.is_empty() {
            plan.remove_below(before, settings, seats)?;
        } else if let (Some(before), Some(after)) = (before.shaper(), settings.shaper()) {
            plan.steps.extend(after.removals(device, &before).into_iter().map(Step::Tc));
            plan.undo.extend(before.removals(device, &after).into_iter().map(Step::Tc));
        }
        Ok(plan)
    }

    /// Changes to other settings, or another file, of a device with subscribers. Those who stay keep packets and verdicts.
    pub(super) fn renew(
        device: &Device,
        pins: &Path,
        attachment: &Attachment,
        before: &Note,
        settings: &Settings,
    ) -> Result<Self, CrqError> {
        if let Some(lost) = before.lost()? {
            return Err(CrqError::Lost { device: device.name.clone(), lost });
        }
        let Note { settings: before, .. } = before;
        if settings.flows() != before.flows() {
            return Err(CrqError::Flows);
        }
        if settings.reverse != before.reverse {
            return Err(CrqError::Reverse);
        }
        if settings.direction() != before.direction() || !settings.parent.is_empty() {
            return Err(CrqError::Direction);
        }
        let (Some(path), Some(old), Some(new)) = (&settings.subscribers, before.shaper(), settings.shaper())
        else {
            return Err(CrqError::Direction);
        };
        let reverse = settings.reverse.as_deref().map(Device::find).transpose()?;
        // A process that was killed may have left classes that nobody knows, or somebody have removed one.
        let there = Tree::read(&device.name)?.subscribers();
        let mut known = attachment.subscribers()?;
        known.retain(|it| there.contains(&it.handle));
        let is_known = |handle: &u16| known.iter().any(|it| it.handle == *handle);
        let strays = there.iter().filter(|handle| !is_known(handle));
        let strays: Vec<TcCommand> = strays.map(|handle| Shaper::removal_of(device, *handle)).collect();
        let enrolled = Enrolled::read(path, settings, new.rate, &known)?;
        let mut plan = Self::new(device, pins);
        plan.notes.extend(enrolled.notes.iter().cloned());
        let find = |all: &[Subscriber], handle: u16| all.iter().find(|it| it.handle == handle).cloned();
        let is_other = old != new;
        let (mut commands, mut undo, mut put, mut restored) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        if is_other {
            commands.extend(new.changes_shared(device));
            undo.extend(old.changes_shared(device));
        }
        let (mut added, mut changed) = (Vec::new(), 0);
        for subscriber in &enrolled.subscribers {
            let shaper = settings.shaper_of(subscriber.max);
            match find(&known, subscriber.handle) {
                None => {
                    commands.extend(shaper.commands_of(device, subscriber));
                    undo.push(Shaper::removal_of(device, subscriber.handle));
                    added.push(subscriber.handle);
                    put.push(subscriber.clone());
                }
                Some(last) if is_other || last != *subscriber => {
                    commands.extend(shaper.changes_of(device, subscriber));
                    undo.extend(before.shaper_of(last.max).changes_of(device, &last));
                    changed += usize::from(last != *subscriber);
                    put.push(subscriber.clone());
                    restored.push(last);
                }
                Some(_) => {}
            }
        }
        let gone: Vec<u16> = known
            .iter()
            .map(|it| it.handle)
            .filter(|handle| find(&enrolled.subscribers, *handle).is_none())
            .collect();
        plan.changes = format!(
            "{} subscribers: {} came, {changed} have other rates, {} left",
            enrolled.subscribers.len(),
            added.len(),
            gone.len()
        );
        let configure = |settings: &Settings| Step::Configure {
            configuration: Box::new(settings.configuration(device, reverse.as_ref())),
            settings: settings.clone(),
            seats: Vec::new(),
        };
        plan.steps.extend([Step::Batch(strays), Step::Batch(commands), Step::Put(put), configure(settings)]);
        plan.steps.extend([Step::Prefixes(enrolled.prefixes), Step::Commit]);
        plan.undo.extend([configure(before), Step::Put(restored), Step::Forget(added)]);
        plan.undo.push(Step::Restore(undo));
        // The place of young flows goes when no packet names it any more.
        let stay = enrolled.subscribers.iter().filter(|it| find(&known, it.handle).is_some());
        let mut removals: Vec<TcCommand> = new
            .removals_shared(device, &old)
            .into_iter()
            .chain(stay.flat_map(|it| new.removals_below(device, &it.seat(), &old)))
            .collect();
        removals.extend(gone.iter().map(|handle| Shaper::removal_of(device, *handle)));
        plan.steps.extend([Step::Batch(removals), Step::Forget(gone)]);
        Ok(plan)
    }

    /// Changes of the queues below classes. Those of a class that is gone went with it.
    fn set_below(&mut self, before: &Settings, settings: &Settings, seats: &[Seat]) -> Result<(), CrqError> {
        let device = self.device.clone();
        let tree = Tree::read(&device.name)?;
        if !seats.iter().any(|seat| tree.has(seat)) {
            return Err(CrqError::Lost { device: device.name, lost: "queues gone".to_owned() });
        }
        for seat in seats {
            if !tree.has(seat) {
                self.notes.push(format!(
                    "the class {} of {} has CRQ no more, since the tree has changed: `marcato crq attach` takes over",
                    seat.class, device.name
                ));
                continue;
            }
            let shaper = |settings: &Settings| shaper_below(&device, &tree, settings, seat.class);
            let commands = |settings: &Settings| -> Result<Vec<TcCommand>, CrqError> {
                Ok(shaper(settings)?.changes_below(&device, seat, settings.rate.is_some()))
            };
            self.steps.extend(commands(settings)?.into_iter().map(Step::Tc));
            self.undo.extend(commands(before)?.into_iter().map(Step::Tc));
        }
        Ok(())
    }

    /// Removes what earlier settings have below classes and these have not.
    fn remove_below(
        &mut self,
        before: &Settings,
        settings: &Settings,
        seats: &[Seat],
    ) -> Result<(), CrqError> {
        let device = self.device.clone();
        let tree = Tree::read(&device.name)?;
        for seat in seats.iter().filter(|seat| tree.has(seat)) {
            let shaper = |settings: &Settings| shaper_below(&device, &tree, settings, seat.class);
            let (before, after) = (shaper(before)?, shaper(settings)?);
            self.steps.extend(after.removals_below(&device, seat, &before).into_iter().map(Step::Tc));
            self.undo.extend(before.removals_below(&device, seat, &after).into_iter().map(Step::Tc));
        }
        Ok(())
    }

    /// Changes that take CRQ off a device, or what a failure has left of it and of earlier devices of that name.
    pub(super) fn detach(device: &Device, pins: &Path) -> Result<Self, CrqError> {
        let mut plan = Self::new(device, pins);
        let own = Pinned::of(pins, device);
        // The queues go with their device, which may have gone while it was watched.
        let is_there = Device::find(&device.name).is_ok_and(|now| now.ifindex == device.ifindex);
        if is_there {
            // Filters of classes go with CRQ's queues there, so these are first. A crash may have left some that no note
            // names.
            let tree = Tree::read(&device.name)?;
            let known = own.as_ref().and_then(Note::of_pinned).map_or(Vec::new(), |note| note.seats);
            let left =
                tree.left().into_iter().filter(|left| known.iter().all(|seat| seat.class != left.class));
            let seats: Vec<Seat> = known.iter().filter(|seat| tree.has(seat)).cloned().chain(left).collect();
            plan.steps.extend(seats.iter().map(|seat| Step::Tc(tree.undo(seat))));
        }
        if own.is_some() {
            // Programs first: then all packets go to the standard queue, and no packet names a class that is not there.
            plan.steps.push(Step::Detach);
        }
        let earlier = remains::gone_of(&device.name, pins)?.into_iter();
        plan.steps.extend(earlier.filter(|pinned| own.as_ref() != Some(pinned)).map(Step::Remove));
        if is_there && Queue::all(&device.name)?.iter().any(is_own) {
            plan.steps.push(Step::Tc(Shaper::undo(&device.name)));
        }
        if plan.steps.is_empty() {
            return Err(CrqError::Nothing { device: device.name.clone() });
        }
        Ok(plan)
    }

    /// Carries the changes out. After a failure, queues and programs are as before; a queue that `--replace` has
    /// removed is not there again.
    pub(super) fn run(self) -> Result<(), CrqError> {
        let mut is_final = false;
        let done = self.steps.iter().try_for_each(|step| {
            is_final |= matches!(step, Step::Commit);
            self.step(step)
        });
        if done.is_err() && !is_final {
            for step in &self.undo {
                // The first error is the one to tell. There may be nothing to undo.
                let _ = self.step(step);
            }
        }
        done
    }

    fn step(&self, step: &Step) -> Result<(), CrqError> {
        let Self { device, pins, .. } = self;
        match step {
            Step::Tc(command) => drop(command.run()?),
            Step::Attach { configuration, settings, seats } => {
                let note = Note::new(device, settings, seats).to_toml()?;
                let flows = settings.flows();
                let mut attachment = match seats.as_slice() {
                    [] => Attachment::attach(pins, device, configuration, flows)?,
                    seats => Attachment::attach_below(pins, device, seats, configuration, flows)?,
                };
                if let Err(error) = attachment.set_note(&note) {
                    // Without a note nobody could read its settings.
                    let _ = Attachment::detach(pins, device);
                    return Err(error.into());
                }
            }
            Step::Configure { configuration, settings, seats } => {
                let mut attachment = Attachment::open(pins, device)?;
                attachment.configure(configuration)?;
                attachment.set_note(&Note::new(device, settings, seats).to_toml()?)?;
            }
            Step::Batch(commands) => TcCommand::run_all(commands)?,
            Step::Restore(commands) => TcCommand::run_each(commands)?,
            Step::AttachSubscribers { configuration, settings, enrolled } => {
                let note = Note::new(device, settings, &[]).to_toml()?;
                let Enrolled { subscribers, prefixes, .. } = enrolled;
                let attached = Attachment::attach_subscribers(
                    pins,
                    device,
                    subscribers,
                    prefixes,
                    configuration,
                    settings.flows(),
                );
                let mut attachment = attached?;
                if let Err(error) = attachment.set_note(&note) {
                    let _ = Attachment::detach(pins, device);
                    return Err(error.into());
                }
            }
            Step::Put(subscribers) => Attachment::open(pins, device)?.put_subscribers(subscribers)?,
            Step::Prefixes(prefixes) => Attachment::open(pins, device)?.set_prefixes(prefixes)?,
            Step::Forget(handles) => Attachment::open(pins, device)?.remove_subscribers(handles)?,
            Step::Commit => {}
            Step::Detach => Attachment::detach(pins, device)?,
            Step::Remove(pinned) => pinned.remove()?,
        }
        Ok(())
    }

    fn loading(&self, settings: &Settings) -> Vec<String> {
        let (flows, pins) = (settings.flows(), self.pins.display());
        vec![format!("load the programs with room for {flows} flows, and pin them below {pins}")]
    }

    /// Returns every change as a line.
    pub(super) fn lines(&self) -> Vec<String> {
        let name = &self.device.name;
        let lines = self.steps.iter().flat_map(|step| match step {
            Step::Tc(command) => vec![command.to_string()],
            Step::Attach { settings, seats, .. } => {
                let mut lines = self.loading(settings);
                lines.extend(Attachment::programs(name, settings.reverse.as_deref(), seats));
                lines.push(format!("configure them: {}", settings.shown()));
                lines
            }
            Step::Batch(commands) | Step::Restore(commands) => {
                commands.iter().map(ToString::to_string).collect()
            }
            Step::AttachSubscribers { settings, enrolled, .. } => {
                let mut lines = self.loading(settings);
                lines.extend(Attachment::programs(name, settings.reverse.as_deref(), &[]));
                lines.push(
                    "attach crq_subscriber to packets of the root queue, as a filter of c4:".to_owned(),
                );
                lines.extend(enrolled.lines());
                lines.push(format!("configure them: {}", settings.shown()));
                lines
            }
            Step::Put(subscribers) => subscribers.iter().map(enrolled::line).collect(),
            Step::Prefixes(prefixes) => {
                vec![format!("let {} prefixes name them, all at once", prefixes.len())]
            }
            Step::Forget(handles) => {
                handles.iter().map(|it| format!("forget the subscriber of the class c4:{it:x}")).collect()
            }
            Step::Commit => Vec::new(),
            Step::Configure { settings, .. } => vec![format!("configure the programs: {}", settings.shown())],
            Step::Detach => vec![format!("take the programs off {name}, and remove their pins")],
            Step::Remove(pinned) => vec![remains::line(pinned)],
        });
        lines.collect()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines().iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

/// Returns the device by which the other direction of a device's flows leaves, if it does not enter by the device.
fn reverse_of(device: &Device, settings: &Settings) -> Result<Option<Device>, CrqError> {
    let refused = |found: Vec<Device>| CrqError::OneDirection {
        device: device.name.clone(),
        found: found.into_iter().map(|device| device.name).collect(),
    };
    match &settings.reverse {
        Some(name) if *name == device.name => Err(refused(Vec::new())),
        Some(name) => Ok(Some(Device::find(name)?)),
        None if !device.ifb => Ok(None),
        None => {
            let mut from = Device::redirected_to(&device.name)?;
            match (from.pop(), from.is_empty()) {
                (Some(only), true) => Ok(Some(only)),
                (last, _) => Err(refused(from.into_iter().chain(last).collect())),
            }
        }
    }
}

/// Returns the queues below a class: of its own rate, unless the settings have one.
fn shaper_below(
    device: &Device,
    tree: &Tree,
    settings: &Settings,
    class: ClassId,
) -> Result<Shaper, CrqError> {
    let rate = settings.rate.or_else(|| tree.rate(class));
    let rate = rate.ok_or_else(|| CrqError::ClassRate { device: device.name.clone(), class })?;
    Ok(settings.shaper_of(rate))
}

/// Returns whether a queue is the root of CRQ's queues.
pub(super) fn is_own(queue: &Queue) -> bool {
    Shaper::is_root(&queue.handle) && queue.parent.is_none()
}

/// Delay that CoDel aims at: a packet that takes longer makes others miss it. RFC 8289 section 4.3.
const CODEL_TARGET: Duration = Duration::from_millis(5);

/// Speed of a device in Mbit/s, if its driver knows it.
fn speed(device: &str) -> Option<u64> {
    let speed = std::fs::read_to_string(format!("/sys/class/net/{device}/speed")).ok()?;
    // Drivers that do not know it say -1.
    speed.trim().parse().ok()
}

/// Returns what an operator should know before queues of this kind are set up.
fn notes(device: &Device, shaper: &Shaper, speed: Option<u64>) -> Vec<String> {
    let mut notes = Vec::new();
    let name = &device.name;
    if device.queues > 1 {
        notes.push(format!(
            "{name} has {} transmit queues: HTB takes the place of the queue of each, and all packets pass one lock",
            device.queues
        ));
    }
    if let Some(takes) = shaper.largest_takes(device).filter(|takes| *takes > CODEL_TARGET) {
        notes.push(format!(
            "offloads join packets of {name} to up to {} bytes (gso_max_size), which take {} ms of the link, and other flows wait for them. \
             CRQ counts their segments, and limits queues in bytes. For less delay, also use `ip link set dev {name} gso_max_size {}` for what this \
             host sends, and `ethtool -K DEVICE gro off` on each device that the other packets enter by",
            device.largest.get(),
            takes.as_millis(),
            // As much as passes within the target, in whole kB and no less than a packet.
            (shaper.rate.bytes_in(CODEL_TARGET).get() / 1000 * 1000).max(device.mtu.get()),
        ));
    }
    if let Some(speed) = speed.filter(|speed| shaper.rate.as_bps() / 1_000_000 >= *speed) {
        notes.push(format!(
            "{name} carries {speed} Mbit/s at most: at this rate the queue builds up in the device, where CRQ does not see it"
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    use marcato_kernel::QueueKind;
    use marcato_units::{Bytes, Rate};

    use super::*;

    #[test]
    fn queues_of_the_device_and_too_high_a_rate_give_a_warning() {
        let device = |queues, largest| {
            let (mtu, largest) = (Bytes::new(1500), Bytes::new(largest));
            Device {
                name: "wan".to_owned(),
                ifindex: 3,
                netns: 4,
                ethernet: true,
                queues,
                mtu,
                largest,
                ifb: false,
            }
        };
        let shaper = |mbps| Shaper {
            rate: Rate::from_mbps(mbps),
            share: 50,
            standard: QueueKind::Codel,
            responsive: QueueKind::Codel,
            round_trip: Duration::from_millis(100),
            young: None,
        };
        assert_eq!(notes(&device(1, 65_536), &shaper(950), Some(1000)), Vec::<String>::new());
        assert_eq!(notes(&device(1, 65_536), &shaper(1000), None), Vec::<String>::new());
        assert!(notes(&device(8, 1500), &shaper(950), None)[0].contains("8 transmit queues"));
        assert!(notes(&device(1, 1500), &shaper(1000), Some(1000))[0].contains("builds up in the device"));
        // 64 kB take 26 ms of 20 Mbit/s.
        let joined = notes(&device(1, 65_536), &shaper(20), None);
        assert!(joined[0].contains("65536 bytes (gso_max_size), which take 26 ms of the link"), "{joined:?}");
        assert_eq!(notes(&device(1, 1500), &shaper(20), None), Vec::<String>::new());
    }
}
