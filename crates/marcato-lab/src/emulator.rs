//! Emulator: the thread that moves packets between devices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use marcato_units::{Bytes, Duration, Time};
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use crate::clock::LabClock;
use crate::ip_datagram::IpDatagram;
use crate::link::{Link, LinkCounters};
use crate::prompt::Prompt;
use crate::tun::Tun;

/// Frames read from one device before the others have their turn.
const READS: usize = 32;
/// Empty frames that are kept.
const SPARE: usize = 4096;
/// Number of the descriptor that ends the emulator, among those of devices.
const WAKE: u64 = u64::MAX;
/// Longest sleep. Clocks may be adjusted, and a missed wake-up must not last.
const LONGEST_SLEEP: Duration = Duration::from_millis(100);

/// Timeout that returns what is ready.
const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// One direction of a link, between two devices.
pub(crate) struct Direction {
    pub(crate) link: Link<IpDatagram>,
    /// Clears the ECN field of each packet that arrives.
    pub(crate) bleaches: bool,
}

/// Devices at both ends of a link, and its directions: the first leads from the first device to the
/// second.
pub(crate) struct Wire {
    pub(crate) ends: [Tun; 2],
    pub(crate) directions: [Direction; 2],
}

/// Statistics of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectionStats {
    /// Counters of the link.
    pub link: LinkCounters,
    /// Bytes in the queue.
    pub queued: Bytes,
    /// Frames that were no IP packets, or multicast, which links do not carry.
    pub foreign: u64,
    /// Packets that the kernel refused at the far end.
    pub refused: u64,
}

/// Links, which the emulator and its owner share.
struct Shared {
    wires: Vec<Wire>,
    /// Numbers of foreign and refused frames of each direction.
    others: Vec<[(u64, u64); 2]>,
    /// Time up to which all links have done their work.
    settled: Time,
}

/// Thread that moves packets from device to device, through the links between them.
pub(crate) struct Emulator {
    shared: Arc<Mutex<Shared>>,
    over: Arc<AtomicBool>,
    wake: OwnedFd,
    thread: Option<JoinHandle<io::Result<()>>>,
    clock: LabClock,
}

impl Emulator {
    /// Starts the emulator. Flows are named under `secret`.
    pub(crate) fn start(wires: Vec<Wire>, secret: u64) -> io::Result<Self> {
        let (others, entered) = (vec![[(0, 0); 2]; wires.len()], vec![[None; 2]; wires.len()]);
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (place, wire) in wires.iter().enumerate() {
            for (end, tun) in wire.ends.iter().enumerate() {
                let data = EventData::new_u64((2 * place + end) as u64);
                epoll::add(&epoll, tun, data, EventFlags::IN)?;
            }
        }
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
        let shared = Arc::new(Mutex::new(Shared { wires, others, settled: Time::ZERO }));
        let over = Arc::new(AtomicBool::new(false));
        let clock = LabClock::start();
        let mover = Mover {
            shared: Arc::clone(&shared),
            epoll,
            clock,
            secret,
            spare: Vec::new(),
            agenda: BinaryHeap::new(),
            entered,
        };
        let stop = Arc::clone(&over);
        let run = move || mover.run(&stop);
        let thread = std::thread::Builder::new().name("lab emulator".to_owned()).spawn(run)?;
        Ok(Self { shared, over, wake, thread: Some(thread), clock })
    }

    /// Clock that started with the links.
    pub(crate) const fn clock(&self) -> LabClock {
        self.clock
    }

    /// Time up to which all links have done their work: what they do from now on is later.
    pub(crate) fn settled(&self) -> Time {
        lock(&self.shared).settled
    }

    /// Calls a function with one direction of a link; `None` if there is no such link.
    pub(crate) fn link<T>(
        &self,
        place: usize,
        way: usize,
        call: impl FnOnce(&mut Link<IpDatagram>, Time) -> T,
    ) -> Option<T> {
        let mut shared = lock(&self.shared);
        // Read under the lock, so that time never runs backwards from one call to the next.
        let now = self.clock.now();
        Some(call(&mut shared.wires.get_mut(place)?.directions[way].link, now))
    }

    /// Statistics of both directions of each link.
    pub(crate) fn stats(&self) -> Vec<[DirectionStats; 2]> {
        let shared = lock(&self.shared);
        let of = |(wire, others): (&Wire, &[(u64, u64); 2])| {
            [0, 1].map(|way| DirectionStats {
                link: *wire.directions[way].link.counters(),
                queued: wire.directions[way].link.queued(),
                foreign: others[way].0,
                refused: others[way].1,
            })
        };
        shared.wires.iter().zip(&shared.others).map(of).collect()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Direction of a link: the number of the link, and 0 or 1.
type Way = (usize, usize);

/// State of the thread.
struct Mover {
    shared: Arc<Mutex<Shared>>,
    epoll: OwnedFd,
    clock: LabClock,
    secret: u64,
    /// Empty frames.
    spare: Vec<Vec<u8>>,
    /// Directions by the time of their next event. An entry may be out of date, which costs a look.
    agenda: BinaryHeap<Reverse<(Time, Way)>>,
    /// Earliest entry of each direction.
    entered: Vec<[Option<Time>; 2]>,
}

impl Mover {
    fn run(mut self, over: &AtomicBool) -> io::Result<()> {
        let prompt = Prompt::thread();
        let mut events = Vec::with_capacity(64);
        while !over.load(Ordering::Relaxed) {
            self.deliver();
            let next = self.agenda.peek().map(|Reverse((at, _))| at.since(self.clock.now()));
            prompt.wait(&self.epoll, next.map_or(LONGEST_SLEEP, |sleep| sleep.min(LONGEST_SLEEP)))?;
            events.clear();
            epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&NO_WAIT))?;
            for event in &events {
                let device = event.data.u64();
                if device != WAKE {
                    let device = usize::try_from(device).unwrap_or(usize::MAX);
                    self.read((device / 2, device % 2))?;
                }
            }
        }
        Ok(())
    }

    /// Enters the next event of a direction.
    fn enter(&mut self, (place, way): Way, at: Option<Time>) {
        let Some(at) = at else { return };
        let entered = &mut self.entered[place][way];
        if entered.is_none_or(|earliest| at < earliest) {
            *entered = Some(at);
            self.agenda.push(Reverse((at, (place, way))));
        }
    }

    /// Writes the packets that have come out of links.
    fn deliver(&mut self) {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        let now = self.clock.now();
        while let Some(Reverse((at, (place, way)))) = self.agenda.peek().copied()
            && at <= now
        {
            self.agenda.pop();
            if self.entered[place][way] == Some(at) {
                self.entered[place][way] = None;
            }
            let wire = &mut shared.wires[place];
            let mut refused = 0;
            while let Some(packet) = wire.directions[way].link.poll(now) {
                // The queue of the other direction begins where this packet arrives.
                wire.directions[1 - way].link.observe(now, &packet);
                refused += u64::from(!wire.ends[1 - way].write(packet.frame()));
                self.put_back(packet.into_frame());
            }
            let next = wire.directions[way].link.next_event();
            shared.others[place][way].1 += refused;
            self.enter((place, way), next);
        }
        shared.settled = now;
    }

    /// Reads the frames that wait in a device, and sends them into its link.
    fn read(&mut self, (place, way): Way) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let mut shared = lock(&shared);
        let Shared { wires, others, .. } = &mut *shared;
        let (Some(wire), Some(others)) = (wires.get_mut(place), others.get_mut(place)) else { return Ok(()) };
        for _ in 0..READS {
            let mut frame = self.spare.pop().unwrap_or_default();
            if !wire.ends[way].read(&mut frame)? {
                self.put_back(frame);
                break;
            }
            match IpDatagram::read(frame, wire.ends[way].offload, self.secret) {
                Ok(mut packet) if !packet.is_multicast() => {
                    let direction = &mut wire.directions[way];
                    if direction.bleaches {
                        packet.bleach();
                    }
                    direction.link.send(self.clock.now(), packet);
                }
                Ok(packet) => {
                    others[way].0 += 1;
                    self.put_back(packet.into_frame());
                }
                Err((_, frame)) => {
                    others[way].0 += 1;
                    self.put_back(frame);
                }
            }
        }
        let next = wire.directions[way].link.next_event();
        self.enter((place, way), next);
        Ok(())
    }

    /// Keeps an empty frame for another packet.
    fn put_back(&mut self, frame: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(frame);
        }
    }
}
