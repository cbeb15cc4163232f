//! Marks of the sockets of a control group.
//!
//! Programs of the group set DSCP and `SO_PRIORITY` when a socket is bound or connected, when a connection is accepted,
//! and when a datagram is sent without a connection. Packets of a connection pass no program: its mark costs nothing
//! per packet. The programs leave the kernel with [`Marking`], also if its process is killed.
//!
//! A socket that is created cannot be marked at once: before Linux 6.19, no program of that hook may set options. So a
//! kernel that reads the code point before it asks the program (6.18 does) sends the first datagram of a socket that
//! was neither bound nor connected without a mark.

use std::fs::File;
use std::ops::RangeInclusive;
use std::path::Path;

use aya::Ebpf;
use aya::maps::{Array, PerCpuArray};
use aya::programs::{CgroupAttachMode, CgroupSockAddr, CgroupSockopt, ProgramError, SockOps};
use marcato_units::Priority;
use marcato_wire::{CodePoints, Dscp, queue_priority};

use crate::error::{LoadError, MarkError};
use crate::programs::verified;
use crate::subscribers::Prefix;
use crate::{MARKS_OBJECT, maps};

/// Programs for addresses of sockets.
const ADDRESSES: [&str; 6] =
    ["marks_bind4", "marks_bind6", "marks_connect4", "marks_connect6", "marks_sendmsg4", "marks_sendmsg6"];
const CONFIGURATION: &str = "marks_config";
const COUNTERS: &str = "marks_counters";

/// Mark of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Code point of its packets.
    pub dscp: Dscp,
    /// Priority of its packets in queues of this host (`SO_PRIORITY`), 0 to 6.
    pub priority: u8,
}

impl Mark {
    /// Bytes of `struct marks_mark`.
    const LEN: usize = 4;
    /// Both parts are set: `MARK_DSCP` and `MARK_PRIORITY`.
    const BOTH: u8 = 3;

    /// Mark of a level.
    pub const fn of(priority: Priority, points: &CodePoints) -> Self {
        Self { dscp: points.of(priority), priority: queue_priority(priority) }
    }

    /// Mark with a code point, and the priority that fits it.
    pub const fn of_dscp(dscp: Dscp) -> Self {
        Self { dscp, priority: dscp.queue_priority() }
    }

    /// `struct marks_mark` of `bpf/marks.h`; zero for none.
    const fn bytes(mark: Option<Self>) -> [u8; Self::LEN] {
        match mark {
            Some(Self { dscp, priority }) => [Self::BOTH, dscp.get(), priority, 0],
            None => [0; Self::LEN],
        }
    }
}

/// Transport of a socket, as a condition of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP, with QUIC.
    Udp,
}

/// Conditions for a mark. All that are given have to fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkRule {
    /// Transport of the socket.
    pub protocol: Option<Protocol>,
    /// Addresses of the other end.
    pub to: Option<Prefix>,
    /// Ports of the service: the destination's, or a connection's own if the program accepts it.
    pub ports: RangeInclusive<u16>,
    /// `SO_MARK` of the socket.
    pub fwmark: Option<u32>,
    /// Mark of sockets that fit.
    pub mark: Mark,
}

impl MarkRule {
    /// Bytes of `struct marks_rule`.
    const LEN: usize = 28 + Mark::LEN;
    /// `RULE_FWMARK` of `bpf/marks.h`.
    const HAS_FWMARK: u8 = 1;

    fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0] = match self.protocol {
            None => 0,
            Some(Protocol::Tcp) => 6,
            Some(Protocol::Udp) => 17,
        };
        if let Some(prefix) = &self.to {
            let (address, bits) = prefix.bits();
            bytes[1] = u8::try_from(bits).unwrap_or(u8::MAX);
            bytes[12..28].copy_from_slice(&address);
        }
        if let Some(fwmark) = self.fwmark {
            bytes[2] = Self::HAS_FWMARK;
            bytes[8..12].copy_from_slice(&fwmark.to_ne_bytes());
        }
        bytes[4..6].copy_from_slice(&self.ports.start().to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.ports.end().to_ne_bytes());
        bytes[28..].copy_from_slice(&Mark::bytes(Some(self.mark)));
        bytes
    }
}

/// Marks of all sockets of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Rules, of which the first that fits counts.
    pub rules: Vec<MarkRule>,
    /// Mark of sockets that no rule names.
    pub standard: Option<Mark>,
}

impl Marks {
    /// Most rules: `MAX_MARK_RULES` of `bpf/limits.h`.
    pub const MOST_RULES: usize = 64;
    /// Bytes of `struct marks_config`.
    const LEN: usize = 4 + Mark::LEN + Self::MOST_RULES * MarkRule::LEN;

    fn bytes(&self) -> Result<[u8; Self::LEN], MarkError> {
        let (given, most) = (self.rules.len(), Self::MOST_RULES);
        let rules = u32::try_from(given).ok().filter(|_| given <= most);
        let rules = rules.ok_or(MarkError::Rules { given, most })?;
        let mut bytes = [0; Self::LEN];
        bytes[..4].copy_from_slice(&rules.to_ne_bytes());
        bytes[4..8].copy_from_slice(&Mark::bytes(self.standard));
        for (place, rule) in bytes[8..].chunks_exact_mut(MarkRule::LEN).zip(&self.rules) {
            place.copy_from_slice(&rule.bytes());
        }
        Ok(bytes)
    }
}

/// Counter of the programs: `enum marks_counter` of `bpf/marks.h`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarkCounter {
    /// Times that a socket got a mark, or another one.
    Set,
    /// Options of the program that gave way to a mark.
    Replaced,
    /// Options that the kernel refused.
    Failed,
    /// Sockets of IPv6 that speak IPv4, whose code point the kernel lets no program of eBPF set.
    Mapped,
}

/// Programs that mark the sockets of a control group, until this value is dropped.
#[expect(missing_debug_implementations, reason = "maps of the loader have none")]
pub struct Marking {
    ebpf: Ebpf,
}

/// Loads a program of the object, and attaches it.
pub(crate) fn attached<'a, P>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
    load: impl Fn(&mut P) -> Result<(), ProgramError>,
    attach: impl FnOnce(&mut P) -> Result<(), ProgramError>,
) -> Result<(), LoadError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
    P: 'a,
{
    let failed = |source| LoadError::Program { name, source };
    let program = ebpf.program_mut(name).ok_or(LoadError::Missing(name))?;
    let program: &mut P = program.try_into().map_err(failed)?;
    verified(|| load(program)).map_err(failed)?;
    attach(program).map_err(failed)
}

impl Marking {
    /// Marks the sockets that processes of a control group open from now on.
    ///
    /// # Errors
    /// [`MarkError`] if there are too many rules, or the kernel refuses the programs.
    pub fn attach(group: &Path, marks: &Marks) -> Result<Self, MarkError> {
        if MARKS_OBJECT.is_empty() {
            return Err(LoadError::NotBuilt.into());
        }
        let configuration = marks.bytes()?;
        let failed = |source| MarkError::Open { path: group.to_owned(), source };
        let directory = File::open(group).map_err(failed)?;
        let mut ebpf = Ebpf::load(MARKS_OBJECT).map_err(LoadError::Object)?;
        let map = ebpf.map_mut(CONFIGURATION).ok_or(LoadError::Missing(CONFIGURATION))?;
        let mut map = Array::<_, [u8; Marks::LEN]>::try_from(map).map_err(maps::failed(CONFIGURATION))?;
        map.set(0, configuration, 0).map_err(maps::failed(CONFIGURATION))?;
        // Links always allow others beside them, and take no flag for it.
        let mode = CgroupAttachMode::Single;
        for name in ADDRESSES {
            attached(&mut ebpf, name, CgroupSockAddr::load, |it| it.attach(&directory, mode).map(drop))?;
        }
        attached(&mut ebpf, "marks_setsockopt", CgroupSockopt::load, |it| {
            it.attach(&directory, mode).map(drop)
        })?;
        attached(&mut ebpf, "marks_established", SockOps::load, |it| it.attach(&directory, mode).map(drop))?;
        Ok(Self { ebpf })
    }

    /// Sum of a counter over all CPUs.
    ///
    /// # Errors
    /// [`LoadError`] if the map cannot be read.
    pub fn counter(&self, counter: MarkCounter) -> Result<u64, LoadError> {
        let map = self.ebpf.map(COUNTERS).ok_or(LoadError::Missing(COUNTERS))?;
        let map = PerCpuArray::<_, u64>::try_from(map).map_err(maps::failed(COUNTERS))?;
        let values = map.get(&(counter as u32), 0).map_err(maps::failed(COUNTERS))?;
        Ok(values.iter().sum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_has_the_bytes_of_its_structure() {
        let mark = Mark::of(Priority::P0, &CodePoints::default());
        let rule = MarkRule {
            protocol: Some(Protocol::Udp),
            to: Some("192.0.2.0/24".parse().unwrap()),
            ports: 53..=54,
            fwmark: Some(7),
            mark,
        };
        let bytes = rule.bytes();
        assert_eq!(bytes[..4], [17, 120, 1, 0]);
        assert_eq!(bytes[4..8], [53_u16.to_ne_bytes(), 54_u16.to_ne_bytes()].concat());
        assert_eq!(bytes[8..12], 7_u32.to_ne_bytes());
        assert_eq!(bytes[22..28], [0xff, 0xff, 192, 0, 2, 0]);
        assert_eq!(bytes[28..], [3, 34, 6, 0]);
        let marks = Marks { rules: vec![rule.clone(); Marks::MOST_RULES], standard: None };
        assert_eq!(marks.bytes().unwrap()[8 + MarkRule::LEN..][..MarkRule::LEN], bytes);
        let many = Marks { rules: vec![rule; Marks::MOST_RULES + 1], standard: None };
        assert!(matches!(many.bytes(), Err(MarkError::Rules { given: 65, most: 64 })));
    }
}
