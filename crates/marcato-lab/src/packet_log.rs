//! Log of packets: captures and tables.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_link::pcapng::PcapNg;
use marcato_queue::Packet as _;
use marcato_units::{Bytes, Time};
use marcato_wire::FlowTuple;

use crate::ip_datagram::IpDatagram;
use crate::link::{LinkPacket as _, PacketEvent, Watcher};

/// Header of the table of packets.
pub const PACKET_COLUMNS: &str =
    "time_s,link,direction,event,bytes,protocol,source,destination,ecn,dscp,sojourn_ms\n";

/// Data that wait to be taken.
struct Waiting {
    captured: PcapNg,
    rows: String,
    missed: u64,
}

/// Log of the packets of links: those that come out as a pcapng capture, and all their events as the
/// rows of a table. What waits to be taken is bounded; packets beyond that are missed, and counted.
///
/// ```
/// use marcato_lab::{IpDatagram, Link, LinkConfig, PacketLog};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let config = LinkConfig::new(Rate::from_mbps(1), Duration::from_millis(5));
/// let mut link = Link::<IpDatagram>::new("slow", config, Seed::new(1))?;
/// let log = PacketLog::new(Bytes::kb(1_000));
/// link.watch(log.watcher("slow", false));
///
/// let header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// link.send(Time::ZERO, IpDatagram::read(header.to_vec(), false, 1).map_err(|(error, _)| error)?);
/// assert!(link.poll(Time::from_secs(1)).is_some());
/// let rows = log.take_rows();
/// let events: Vec<&str> = rows.lines().filter_map(|row| row.split(',').nth(3)).collect();
/// assert_eq!(events, ["offered", "left", "arrived"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PacketLog {
    waiting: Arc<Mutex<Waiting>>,
    most: Bytes,
}

impl PacketLog {
    /// Creates a log in which at most this much of each kind waits to be taken.
    pub fn new(most: Bytes) -> Self {
        let waiting = Waiting { captured: PcapNg::default(), rows: String::new(), missed: 0 };
        Self { waiting: Arc::new(Mutex::new(waiting)), most }
    }

    /// Creates the observer of a direction of the link with this name. Each is an interface of the
    /// capture.
    pub fn watcher(&self, link: &str, back: bool) -> Box<dyn Watcher<IpDatagram>> {
        let way = if back { "back" } else { "there" };
        let interface = self.lock().captured.interface(&format!("{link} {way}"), 0);
        Box::new(Logger { log: self.clone(), interface, place: format!("{link},{way}") })
    }

    /// Takes what was captured since the last call, as part of a pcapng file.
    pub fn take_captured(&self) -> Vec<u8> {
        self.lock().captured.take("")
    }

    /// Takes the rows since the last call, without [their header](PACKET_COLUMNS).
    pub fn take_rows(&self) -> String {
        std::mem::take(&mut self.lock().rows)
    }

    /// Packets that were missed because too much waited to be taken.
    pub fn missed(&self) -> u64 {
        self.lock().missed
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Observer of one direction of a link.
struct Logger {
    log: PacketLog,
    interface: u32,
    /// Names of the link and direction, as in a row.
    place: String,
}

impl Watcher<IpDatagram> for Logger {
    fn note(&mut self, at: Time, event: PacketEvent, packet: &IpDatagram) {
        let mut waiting = self.log.lock();
        let waits = waiting.captured.waiting().max(waiting.rows.len());
        if waits as u64 + packet.len().get() > self.log.most.get() {
            waiting.missed += u64::from(event == PacketEvent::Arrived);
            return;
        }
        if event == PacketEvent::Arrived {
            let len = u32::try_from(packet.bytes().len()).unwrap_or(u32::MAX);
            waiting.captured.packet(self.interface, at, len, len, [packet.bytes(), &[]]);
        }
        let headers = packet.headers();
        let FlowTuple { protocol, source, destination, source_port, destination_port } = headers.flow;
        let end = |ip: IpAddr, port: u16| SocketAddr::new(ip, port);
        let sojourn = match event {
            PacketEvent::Left => format!("{:.6}", at.since(packet.entered()).as_secs_f64() * 1e3),
            _ => String::new(),
        };
        // Writing to a string cannot fail.
        let _ = writeln!(
            waiting.rows,
            "{:.9},{},{},{},{protocol},{},{},{},{},{sojourn}",
            at.since(Time::ZERO).as_secs_f64(),
            self.place,
            event.name(),
            packet.len().get(),
            end(source, source_port),
            end(destination, destination_port),
            packet.ecn() as u8,
            headers.dscp,
        );
    }
}
