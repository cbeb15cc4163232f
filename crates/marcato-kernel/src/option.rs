//! TCP option with the priority of each segment, on the sockets of a control group.
//!
//! The option is of kind 254 with an ExID and one byte (RFC 6994, CATS §II-D2), as [`marcato_wire::TcpOption::Cats`] reads it.
//! A program of eBPF at the group offers it in each SYN, and writes it on connections whose other end has answered it. Peers
//! that do not answer, and paths that seem to drop segments with it, are [remembered](PriorityOption::refusing) for days.
//!
//! The value of a segment follows from the offsets of its bytes in the stream. An application
//! [publishes](PriorityOption::publish) [`Boundaries`]; other bytes have the level of the group. So a retransmission has the
//! level of its bytes, and a segment on a boundary has the more urgent one. The kernel asks the program once for a packet
//! that a device splits, so that all segments of that packet have one value.

use std::collections::VecDeque;
use std::fs::File;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::Duration;

use aya::Ebpf;
use aya::maps::sk_storage::SkStorage;
use aya::maps::{Array, HashMap, Map, MapData, MapError, PerCpuArray};
use aya::programs::{CgroupAttachMode, SockOps};
use marcato_units::{Bytes, Priority};
use rustix::time::{ClockId, clock_gettime};

use crate::error::{LoadError, MarkError};
use crate::marks::attached;
use crate::{MARKS_OBJECT, maps};

const CONFIGURATION: &str = "option_config";
const COUNTERS: &str = "option_counters";
const PEERS: &str = "option_peers";
const OUT: &str = "option_out";
const IN: &str = "option_in";

/// Bytes of `struct option_config`.
const CONFIGURATION_LEN: usize = 16;
/// Bytes of `struct option_boundary`.
const BOUNDARY_LEN: usize = 16;
/// Bytes of `struct option_published`.
const PUBLISHED_LEN: usize = 8 + Boundaries::MOST * BOUNDARY_LEN;
/// Bytes of `struct option_run`.
const RUN_LEN: usize = 24;
/// Bytes of `struct option_heard`.
const HEARD_LEN: usize = 16 + Heard::MOST * RUN_LEN;

/// Boundaries between levels in the stream that a socket sends.
///
/// ```
/// use marcato_kernel::Boundaries;
/// use marcato_units::{Bytes, Priority};
///
/// let mut boundaries = Boundaries::default();
/// boundaries.push(Bytes::ZERO, Priority::P3);
/// boundaries.push(Bytes::new(70_000), Priority::P0);
/// // The first byte of P0 has been acknowledged, so nothing before it is sent again.
/// boundaries.acknowledged(Bytes::new(70_001));
/// assert_eq!(boundaries.len(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Boundaries {
    list: VecDeque<(Bytes, Priority)>,
    merged: u64,
}

impl Boundaries {
    /// Most boundaries: `MAX_BOUNDARIES` of `bpf/limits.h`.
    pub const MOST: usize = 64;

    /// Sets the level of the bytes from this offset on, which is not before that of the last boundary. Offsets count from the
    /// first byte of the connection.
    ///
    /// Without room for one more, the two oldest become one: their bytes have the more urgent level.
    pub fn push(&mut self, offset: Bytes, priority: Priority) {
        let offset = self.list.back().map_or(offset, |(last, _)| offset.max(*last));
        if self.list.back().is_some_and(|(last, _)| *last == offset) {
            self.list.pop_back();
        }
        if self.list.back().is_some_and(|(_, last)| *last == priority) {
            return;
        }
        if self.list.len() >= Self::MOST
            && let (Some((first, older)), Some((_, newer))) = (self.list.pop_front(), self.list.front_mut())
        {
            if older.is_more_urgent_than(*newer) {
                *newer = older;
            }
            if let Some(front) = self.list.front_mut() {
                front.0 = first;
            }
            self.merged += 1;
        }
        self.list.push_back((offset, priority));
    }

    /// Forgets boundaries of which nothing is sent again, because the peer has acknowledged all bytes before this offset.
    pub fn acknowledged(&mut self, offset: Bytes) {
        while self.list.get(1).is_some_and(|(next, _)| *next <= offset) {
            self.list.pop_front();
        }
    }

    /// Number of boundaries.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True without boundaries.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Times that two boundaries became one for lack of room.
    pub const fn merged(&self) -> u64 {
        self.merged
    }

    /// Bytes of `struct option_published` of `bpf/option.h`.
    fn bytes(&self) -> [u8; PUBLISHED_LEN] {
        let mut bytes = [0; PUBLISHED_LEN];
        let count = u32::try_from(self.list.len()).unwrap_or(0);
        bytes[..4].copy_from_slice(&count.to_ne_bytes());
        for (place, (offset, priority)) in bytes[8..].chunks_exact_mut(BOUNDARY_LEN).zip(&self.list) {
            place[..8].copy_from_slice(&offset.get().to_ne_bytes());
            place[8..12].copy_from_slice(&u32::from(*priority as u8).to_ne_bytes());
        }
        bytes
    }
}

/// Bytes that have arrived with one level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Offset of the first byte.
    pub start: Bytes,
    /// Offset after the last byte.
    pub end: Bytes,
    /// Level that their segments had.
    pub priority: Priority,
}

/// Levels of the bytes that a socket has received, as their segments had them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    /// Latest runs, in the order of their arrival; [`MOST`](Self::MOST) at most.
    pub runs: Vec<Run>,
    /// Earlier runs, which have been forgotten.
    pub forgotten: u64,
}

impl Heard {
    /// Most runs that are known: `MAX_RUNS` of `bpf/limits.h`.
    pub const MOST: usize = 64;

    /// Returns the most urgent level with which some of these bytes have arrived; `None` if none is known.
    pub fn priority_of(&self, start: Bytes, len: Bytes) -> Option<Priority> {
        let end = start + len;
        let fits = |run: &&Run| run.start < end && run.end > start;
        self.runs.iter().filter(fits).map(|run| run.priority).min_by_key(|priority| priority.index())
    }

    /// Reads `struct option_heard` of `bpf/option.h`; `None` while it is being changed.
    fn read(bytes: &[u8; HEARD_LEN]) -> Option<Self> {
        let word = |at: usize| {
            bytes.get(at..at + 8).and_then(|word| word.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        if !word(0).is_multiple_of(2) {
            return None;
        }
        let (count, most) = (word(8), Self::MOST as u64);
        let first = count.saturating_sub(most);
        let run = |number: u64| {
            let at = 16 + usize::try_from(number % most).unwrap_or(0) * RUN_LEN;
            let level = bytes.get(at + 16).copied().map_or(usize::MAX, usize::from);
            let (start, end) = (Bytes::new(word(at)), Bytes::new(word(at + 8)));
            Priority::from_index(level).map(|priority| Run { start, end, priority })
        };
        Some(Self { runs: (first..count).filter_map(run).collect(), forgotten: first })
    }
}

/// Counter of the option: `enum option_counter` of `bpf/option.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptionCounter {
    /// SYNs and their answers with the option.
    Offered,
    /// Ends of connections that mark, as both ends have the option.
    Agreed,
    /// Connections whose peer has not answered the option.
    Refused,
    /// Connections without it because their peer is remembered.
    Remembered,
    /// SYNs that were sent without it, after others with it got no answer.
    Withheld,
    /// Connections that went on without it, because nothing that had it was acknowledged.
    BlackHoles,
    /// Packets with it; a device may split one into several segments.
    Marked,
    /// Packets without room for it. Where timestamps and three SACK blocks fill the header, the kernel does not ask.
    NoRoom,
    /// Calls that the kernel refused.
    Failed,
    /// Packets with data that have arrived with it.
    Heard,
    /// Options whose value is no level.
    Malformed,
}

/// Program that writes and reads the option on the connections of a control group, until this value is dropped.
#[expect(missing_debug_implementations, reason = "maps of the loader have none")]
pub struct PriorityOption {
    _ebpf: Ebpf,
    counters: PerCpuArray<MapData, u64>,
    peers: HashMap<MapData, [u8; 16], u64>,
    published: SkStorage<MapData, [u8; PUBLISHED_LEN]>,
    heard: SkStorage<MapData, [u8; HEARD_LEN]>,
}

impl PriorityOption {
    /// Time for which a peer that refuses the option is remembered.
    pub const REMEMBERED: Duration = Duration::from_secs(3 * 24 * 3600);
    /// Most peers that are remembered: `MAX_REFUSING_PEERS` of `bpf/limits.h`.
    pub const MOST_PEERS: usize = 4096;

    /// Offers the option on connections that processes of a control group open or accept from now on. Bytes without a
    /// [boundary](Self::publish) have the level `standard`.
    ///
    /// # Errors
    /// [`MarkError`] if the kernel refuses the program.
    pub fn attach(group: &Path, standard: Priority) -> Result<Self, MarkError> {
        if MARKS_OBJECT.is_empty() {
            return Err(LoadError::NotBuilt.into());
        }
        let failed = |source| MarkError::Open { path: group.to_owned(), source };
        let directory = File::open(group).map_err(failed)?;
        let mut ebpf = Ebpf::load(MARKS_OBJECT).map_err(LoadError::Object)?;
        let map = ebpf.map_mut(CONFIGURATION).ok_or(LoadError::Missing(CONFIGURATION))?;
        let mut map =
            Array::<_, [u8; CONFIGURATION_LEN]>::try_from(map).map_err(maps::failed(CONFIGURATION))?;
        let mut configuration = [0; CONFIGURATION_LEN];
        configuration[..4].copy_from_slice(&u32::from(standard as u8).to_ne_bytes());
        configuration[8..].copy_from_slice(&nanos(Self::REMEMBERED).to_ne_bytes());
        map.set(0, configuration, 0).map_err(maps::failed(CONFIGURATION))?;
        attached(&mut ebpf, "option_segments", SockOps::load, |it| {
            it.attach(&directory, CgroupAttachMode::Single).map(drop)
        })?;
        let mut take = |name: &'static str| -> Result<Map, LoadError> {
            ebpf.take_map(name).ok_or(LoadError::Missing(name))
        };
        let counters = take(COUNTERS)?.try_into().map_err(maps::failed(COUNTERS))?;
        let peers = take(PEERS)?.try_into().map_err(maps::failed(PEERS))?;
        let published = take(OUT)?.try_into().map_err(maps::failed(OUT))?;
        let heard = take(IN)?.try_into().map_err(maps::failed(IN))?;
        Ok(Self { _ebpf: ebpf, counters, peers, published, heard })
    }

    /// Publishes the boundaries of a socket, in the place of those before. Packets that leave from now on follow them. They end
    /// with the socket.
    ///
    /// # Errors
    /// [`LoadError`] if it is no socket, or the kernel has no memory for them.
    pub fn publish(&mut self, socket: &impl AsRawFd, boundaries: &Boundaries) -> Result<(), LoadError> {
        self.published.insert(socket, boundaries.bytes(), 0).map_err(maps::failed(OUT))
    }

    /// Returns the levels of the bytes that a socket has received; `None` while its ends have not agreed on the option.
    ///
    /// # Errors
    /// [`LoadError`] if it is no socket.
    pub fn heard(&self, socket: &impl AsRawFd) -> Result<Option<Heard>, LoadError> {
        loop {
            match self.heard.get(socket, 0) {
                Ok(bytes) => {
                    // Between two reads the program had to be in the midst of a change, which takes nanoseconds.
                    if let Some(heard) = Heard::read(&bytes) {
                        return Ok(Some(heard));
                    }
                }
                Err(MapError::KeyNotFound) => return Ok(None),
                Err(error) => return Err(maps::failed(IN)(error)),
            }
        }
    }

    /// Returns the peers that are remembered because they refuse the option, each with the time for which it still is. A
    /// process that keeps them hands them to its next one by [`remember`](Self::remember).
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn refusing(&self) -> Result<Vec<(IpAddr, Duration)>, LoadError> {
        let now = since_boot();
        let mut peers = Vec::new();
        for entry in self.peers.iter().take(Self::MOST_PEERS) {
            let (address, until) = entry.map_err(maps::failed(PEERS))?;
            if until > now {
                peers.push((Ipv6Addr::from(address).to_canonical(), Duration::from_nanos(until - now)));
            }
        }
        Ok(peers)
    }

    /// Remembers that a peer refuses the option.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be changed.
    pub fn remember(&mut self, peer: IpAddr, lasts: Duration) -> Result<(), LoadError> {
        let address = match peer {
            IpAddr::V4(address) => address.to_ipv6_mapped(),
            IpAddr::V6(address) => address,
        };
        let until = since_boot().saturating_add(nanos(lasts));
        self.peers.insert(address.octets(), until, 0).map_err(maps::failed(PEERS))
    }

    /// Sum of a counter over all CPUs.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn counter(&self, counter: OptionCounter) -> Result<u64, LoadError> {
        let values = self.counters.get(&(counter as u32), 0).map_err(maps::failed(COUNTERS))?;
        Ok(values.iter().sum())
    }
}

fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// Time since the system began, as the program reads it, in nanoseconds.
fn since_boot() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    let [seconds, rest] = [now.tv_sec, now.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn boundaries(list: &[(u64, Priority)]) -> Boundaries {
        let mut boundaries = Boundaries::default();
        list.iter().for_each(|(offset, level)| boundaries.push(Bytes::new(*offset), *level));
        boundaries
    }

    #[test]
    fn boundaries_have_the_bytes_of_their_structure() {
        let bytes = boundaries(&[(0, Priority::P3), (70_000, Priority::P0)]).bytes();
        assert_eq!(bytes[..8], [2_u32.to_ne_bytes(), [0; 4]].concat());
        assert_eq!(bytes[8..24], [0_u64.to_ne_bytes(), u64::from(3_u32.to_le()).to_ne_bytes()].concat());
        assert_eq!(bytes[24..32], 70_000_u64.to_ne_bytes());
        assert!(bytes[32..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn equal_levels_and_empty_runs_are_no_boundaries() {
        use Priority::{P0, P1, P2};
        assert_eq!(boundaries(&[(0, P1), (5, P1), (9, P2)]), boundaries(&[(0, P1), (9, P2)]));
        assert_eq!(boundaries(&[(0, P1), (5, P0), (5, P2)]), boundaries(&[(0, P1), (5, P2)]));
        // Back at the level before, the boundary goes.
        assert_eq!(boundaries(&[(0, P1), (5, P0), (5, P1)]).len(), 1);
    }

    #[test]
    fn full_boundaries_merge_the_oldest_into_the_more_urgent() {
        let level = |at: u64| if at.is_multiple_of(2) { Priority::P4 } else { Priority::P1 };
        let many: Vec<_> = (0..100).map(|at| (at * 10, level(at))).collect();
        let full = boundaries(&many);
        assert_eq!((full.len(), full.merged()), (Boundaries::MOST, 36));
        assert_eq!(full.list[0], (Bytes::ZERO, Priority::P1), "all of the oldest bytes");
        assert_eq!(full.list[63], (Bytes::new(990), Priority::P1));
        let mut rest = full;
        rest.acknowledged(Bytes::new(989));
        assert_eq!(rest.list.front(), Some(&(Bytes::new(980), Priority::P4)));
        rest.acknowledged(Bytes::new(990));
        assert_eq!(rest.len(), 1, "the last one holds for all that follows");
    }

    #[test]
    fn heard_runs_are_read_in_their_order() {
        let mut bytes = [0; HEARD_LEN];
        let mut put = |at: usize, word: u64| bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        put(0, 140);
        put(8, 70);
        for number in 0..70_u64 {
            let at = 16 + usize::try_from(number % 64).unwrap() * RUN_LEN;
            put(at, number * 100);
            put(at + 8, number * 100 + 100);
            put(at + 16, u64::from((u32::try_from(number).unwrap() % 5).to_le()));
        }
        let heard = Heard::read(&bytes).unwrap();
        assert_eq!((heard.runs.len(), heard.forgotten), (64, 6));
        assert_eq!(
            heard.runs[0],
            Run { start: Bytes::new(600), end: Bytes::new(700), priority: Priority::P1 }
        );
        assert_eq!(heard.priority_of(Bytes::new(650), Bytes::new(1)), Some(Priority::P1));
        assert_eq!(heard.priority_of(Bytes::new(950), Bytes::new(100)), Some(Priority::P0));
        assert_eq!(heard.priority_of(Bytes::new(7000), Bytes::new(1)), None);
        bytes[0] += 1;
        assert_eq!(Heard::read(&bytes), None, "in the midst of a change");
    }
}
