//! Programs on a device, which stay there when the process that attached them ends.

use std::fs;
use std::path::{Path, PathBuf};

use aya::programs::links::FdLink;
use aya::programs::{BtfTracePoint, TcAttachType};
use aya::{Btf, Ebpf};

use crate::codel::codel_text;
use crate::counters::{Counter, Tally};
use crate::device::{self, Device};
use crate::error::{AttachError, LoadError};
use crate::hook::{self, Hook};
use crate::layout::{Configuration, FlowId, Reverse};
use crate::maps::Maps;
use crate::pinned::{self, Pinned};
use crate::programs;
use crate::shaper::Shaper;
use crate::state::FlowState;
use crate::subscribers::{Prefix, Subscriber};
use crate::tree::Seat;

/// Default directory for the pins of attachments: a file system of type bpf.
pub const PIN_DIRECTORY: &str = "/sys/fs/bpf/marcato";

/// Programs of the device, with their direction.
pub(crate) const CLASSIFIERS: [(&str, TcAttachType); 2] =
    [("crq_egress", TcAttachType::Egress), ("crq_ingress", TcAttachType::Ingress)];
/// Program of the packets of one class, in place of the first: a filter of CRQ's queue below the class.
pub(crate) const CLASS: &str = "crq_class";
/// Program that finds the class of a subscriber: a filter of the root queue.
const SUBSCRIBER: &str = "crq_subscriber";
/// Programs of the kernel's tracepoints.
pub(crate) const TRACEPOINTS: [(&str, &str); 2] =
    [("crq_dropped", "kfree_skb"), ("crq_dequeued", "qdisc_dequeue")];

/// Programs on a device.
///
/// They are pinned in the kernel, and go on when this value is dropped or its process killed; those of
/// [`hold`](Self::hold) are not, and leave with it.
#[expect(missing_debug_implementations, reason = "maps of the loader have none")]
pub struct Attachment {
    maps: Maps,
    #[expect(dead_code, reason = "its drop matters")]
    held: Held,
}

/// Packets that an attachment classifies.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// All of the device.
    Device,
    /// Those of some classes of a tree.
    Classes(&'a [Seat]),
    /// All of the device, by the subscribers that these prefixes name.
    Subscribers(&'a [Subscriber], &'a [(Prefix, u16)]),
}

/// Links that are not pinned.
#[derive(Default)]
struct Held {
    links: Vec<FdLink>,
    hooks: Vec<Hook>,
}

impl Attachment {
    /// Directory in `pins` of a device's attachment.
    fn directory(pins: &Path, device: &Device) -> PathBuf {
        pins.join(pinned::name(device.netns, device.ifindex))
    }

    /// Attaches the programs to a device, with room for so many flows.
    ///
    /// Make the queues first: where the kernel does not name CoDel's drops, the programs know them by
    /// its code, which has to be loaded.
    ///
    /// # Errors
    /// [`AttachError`] if they are attached already, or the kernel refuses one of them. Nothing is
    /// then left behind.
    pub fn attach(
        pins: &Path,
        device: &Device,
        configuration: &Configuration,
        flows: u32,
    ) -> Result<Self, AttachError> {
        Self::attach_pinned(pins, device, Place::Device, configuration, flows)
    }

    /// Attaches the programs to the packets of some classes of a device, with room for so many flows of all of them.
    ///
    /// The queues below the classes have to be there. The programs' filters leave with these.
    ///
    /// # Errors
    /// [`AttachError`] as [`attach`](Self::attach).
    pub fn attach_below(
        pins: &Path,
        device: &Device,
        seats: &[Seat],
        configuration: &Configuration,
        flows: u32,
    ) -> Result<Self, AttachError> {
        Self::attach_pinned(pins, device, Place::Classes(seats), configuration, flows)
    }

    /// Attaches the programs to a device with subscribers, whose classes have to be there.
    ///
    /// # Errors
    /// [`AttachError`] as [`attach`](Self::attach).
    pub fn attach_subscribers(
        pins: &Path,
        device: &Device,
        subscribers: &[Subscriber],
        prefixes: &[(Prefix, u16)],
        configuration: &Configuration,
        flows: u32,
    ) -> Result<Self, AttachError> {
        Self::attach_pinned(pins, device, Place::Subscribers(subscribers, prefixes), configuration, flows)
    }

    fn attach_pinned(
        pins: &Path,
        device: &Device,
        place: Place<'_>,
        configuration: &Configuration,
        flows: u32,
    ) -> Result<Self, AttachError> {
        let directory = Self::directory(pins, device);
        if directory.exists() {
            return Err(AttachError::Attached { device: device.name.clone() });
        }
        fs::create_dir_all(&directory)
            .map_err(|source| AttachError::Directory { path: directory.clone(), source })?;
        let attached = Self::attach_in(Some(&directory), device, place, configuration, flows);
        if attached.is_err() {
            // The first error is the one to tell.
            let _ = Self::detach(pins, device);
        }
        attached
    }

    /// Attaches the programs to a device for as long as the value lives, without pins: for tests and
    /// experiments.
    ///
    /// # Errors
    /// [`AttachError`] if the kernel refuses one of the programs.
    pub fn hold(device: &Device, configuration: &Configuration, flows: u32) -> Result<Self, AttachError> {
        Self::attach_in(None, device, Place::Device, configuration, flows)
    }

    fn attach_in(
        directory: Option<&Path>,
        device: &Device,
        place: Place<'_>,
        configuration: &Configuration,
        flows: u32,
    ) -> Result<Self, AttachError> {
        let mut ebpf = programs::load(
            flows,
            if matches!(place, Place::Subscribers(..)) { Subscriber::ROOM } else { 1 },
        )?;
        for name in Maps::NAMES {
            let map = ebpf.map(name).ok_or(LoadError::Missing(name))?;
            directory.map_or(Ok(()), |directory| kept(name, map.pin(directory.join(name))))?;
        }
        // The configuration comes first, so that no packet sees programs without one.
        let mut maps = Maps::take(&mut ebpf)?;
        maps.configure(configuration, codel_text())?;
        if let Place::Subscribers(subscribers, prefixes) = place {
            maps.put_subscribers(subscribers)?;
            maps.set_prefixes(prefixes)?;
            hook::filter(&mut ebpf, SUBSCRIBER, &device.name, &[Shaper::MAJOR])?;
        }
        let mut held = Held::default();
        // Signals before packets: a packet that is tagged is then also followed.
        let btf = Btf::from_sys_fs().map_err(|source| LoadError::Btf { source })?;
        for (name, tracepoint) in TRACEPOINTS {
            let link = trace(&mut ebpf, name, tracepoint, &btf)?;
            match directory {
                Some(directory) => drop(kept(name, link.pin(directory.join(name)))?),
                None => held.links.push(link),
            }
        }
        let reverse = match configuration.reverse {
            None => None,
            Some(Reverse { ifindex, .. }) => {
                Some(device::name_of(ifindex).ok_or(AttachError::Reverse { ifindex })?)
            }
        };
        let places = places(device, reverse);
        if let Place::Classes(seats) = place {
            let handles: Vec<u16> = seats.iter().map(|seat| seat.handle).collect();
            hook::filter(&mut ebpf, CLASS, &device.name, &handles)?;
            // The pin tells that the programs are those of classes.
            let program = ebpf.program_mut(CLASS).ok_or(LoadError::Missing(CLASS))?;
            directory.map_or(Ok(()), |directory| kept(CLASS, program.pin(directory.join(CLASS))))?;
        }
        let is_below = matches!(place, Place::Classes(_));
        for (name, place) in places {
            if is_below && name == CLASSIFIERS[0].0 {
                continue;
            }
            let hook = hook::attach(&mut ebpf, name, &place)?;
            match directory {
                Some(directory) => hook.keep(name, &directory.join(name))?,
                None => held.hooks.push(hook),
            }
        }
        Ok(Self { maps, held })
    }

    /// Returns a line for each program and the place where it would be attached. `reverse` is the name of the
    /// device by which the other direction leaves, if that does not enter by the device itself.
    /// `seats` are the classes whose packets alone are classified, if there are any.
    pub fn programs(device: &str, reverse: Option<&str>, seats: &[Seat]) -> Vec<String> {
        let traced =
            TRACEPOINTS.iter().map(|(name, point)| format!("attach {name} to the tracepoint {point}"));
        let mut lines: Vec<String> = traced.collect();
        lines.extend(seats.iter().map(|Seat { class, handle, .. }| {
            format!("attach {CLASS} to packets of the class {class} of {device}, as a filter of {handle:x}:")
        }));
        lines.extend(CLASSIFIERS.iter().filter_map(|(name, direction)| match (direction, reverse) {
            (TcAttachType::Egress, _) if !seats.is_empty() => None,
            (TcAttachType::Egress, _) => Some(format!("attach {name} to packets that leave {device}")),
            (_, None) => Some(format!("attach {name} to packets that enter {device}")),
            (_, Some(reverse)) => Some(format!("attach {name} to packets that leave {reverse}")),
        }));
        lines
    }

    /// Returns whether a device has an attachment.
    pub fn exists(pins: &Path, device: &Device) -> bool {
        Self::directory(pins, device).exists()
    }

    /// Opens the attachment of a device.
    ///
    /// # Errors
    /// [`AttachError`] if there is none, or it cannot be read.
    pub fn open(pins: &Path, device: &Device) -> Result<Self, AttachError> {
        let directory = Self::directory(pins, device);
        if !directory.exists() {
            return Err(AttachError::Detached { device: device.name.clone() });
        }
        Ok(Self { maps: Maps::open(&directory)?, held: Held::default() })
    }

    /// Changes the configuration. States of flows stay as they are.
    ///
    /// # Errors
    /// [`AttachError`] if the kernel refuses it.
    pub fn configure(&mut self, configuration: &Configuration) -> Result<(), AttachError> {
        Ok(self.maps.configure(configuration, codel_text())?)
    }

    /// Subscribers of the device, by handle.
    ///
    /// # Errors
    /// [`AttachError`] if the map cannot be read.
    pub fn subscribers(&self) -> Result<Vec<Subscriber>, AttachError> {
        Ok(self.maps.subscribers()?)
    }

    /// Takes note of subscribers that came, or have other rates.
    ///
    /// # Errors
    /// [`AttachError`] if the kernel refuses it.
    pub fn put_subscribers(&mut self, subscribers: &[Subscriber]) -> Result<(), AttachError> {
        Ok(self.maps.put_subscribers(subscribers)?)
    }

    /// Forgets the subscribers with these handles.
    ///
    /// # Errors
    /// [`AttachError`] if the kernel refuses it.
    pub fn remove_subscribers(&mut self, handles: &[u16]) -> Result<(), AttachError> {
        Ok(self.maps.remove_subscribers(handles)?)
    }

    /// Lets other prefixes name the subscribers, all at once. After an error, those before do.
    ///
    /// # Errors
    /// [`AttachError`] if the kernel refuses it.
    pub fn set_prefixes(&mut self, prefixes: &[(Prefix, u16)]) -> Result<(), AttachError> {
        Ok(self.maps.set_prefixes(prefixes)?)
    }

    /// Keeps a text with the attachment. The programs do not read it.
    ///
    /// # Errors
    /// [`AttachError`] if the text is too long, or the kernel refuses it.
    pub fn set_note(&mut self, text: &str) -> Result<(), AttachError> {
        Ok(self.maps.set_note(text)?)
    }

    /// Text that was kept with the attachment; empty if there was none.
    ///
    /// # Errors
    /// [`AttachError`] if the map cannot be read.
    pub fn note(&self) -> Result<String, AttachError> {
        Ok(self.maps.note()?)
    }

    /// Sum of a counter over all CPUs.
    ///
    /// # Errors
    /// [`AttachError`] if the map cannot be read.
    pub fn counter(&self, counter: Counter) -> Result<Tally, AttachError> {
        Ok(self.maps.counter(counter)?)
    }

    /// All flows with a state, in no order. A flow may be missing or come twice if others come and go
    /// meanwhile.
    pub fn flows(&self) -> impl Iterator<Item = (FlowId, FlowState)> {
        self.maps.flows()
    }

    /// Takes the programs off a device, or what is left of them if a process was killed while it attached
    /// or detached them.
    ///
    /// # Errors
    /// [`AttachError`] if there are none, or a pin cannot be removed.
    pub fn detach(pins: &Path, device: &Device) -> Result<(), AttachError> {
        let directory = Self::directory(pins, device);
        if !directory.exists() {
            return Err(AttachError::Detached { device: device.name.clone() });
        }
        let reverse = Maps::open(&directory).ok().and_then(|maps| maps.reverse());
        // The filter of a reverse device that is gone went with it.
        let reverse = reverse.map(|ifindex| device::name_of(ifindex).unwrap_or_default());
        for (name, place) in places(device, reverse) {
            hook::remove(name, &directory.join(name), &place)?;
        }
        Pinned::of(pins, device).map_or(Ok(()), |pinned| pinned.remove())
    }
}

/// Programs with their places: the device, and for the other direction perhaps another one.
fn places(device: &Device, reverse: Option<String>) -> [(&'static str, hook::Place); 2] {
    let own = |direction| hook::Place { device: device.name.clone(), direction, of: None };
    CLASSIFIERS.map(|(name, direction)| match &reverse {
        Some(reverse) if direction == TcAttachType::Ingress => {
            let direction = TcAttachType::Egress;
            (name, hook::Place { device: reverse.clone(), direction, of: Some(device.ifindex) })
        }
        _ => (name, own(direction)),
    })
}

fn kept<T>(name: &'static str, done: Result<T, aya::pin::PinError>) -> Result<T, AttachError> {
    done.map_err(|source| AttachError::Pin { name, source })
}

fn trace(ebpf: &mut Ebpf, name: &'static str, tracepoint: &str, btf: &Btf) -> Result<FdLink, AttachError> {
    let failed = |source| LoadError::Program { name, source };
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    let program: &mut BtfTracePoint = program.try_into().map_err(failed)?;
    programs::verified(|| program.load(tracepoint, btf)).map_err(failed)?;
    let id = program.attach().map_err(failed)?;
    Ok(program.take_link(id).map_err(failed)?.into())
}
