//! Log of packets: captures and tables.

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
    /// Packets with their times and interfaces, and rows with their times: each link adds its own in order.
    packets: Vec<(Time, u32, Vec<u8>)>,
    rows: Vec<(Time, String)>,
    /// Bytes of both.
    bytes: [u64; 2],
    missed: u64,
}

/// Takes what is not later than `until`, in the order of time.
fn take_until<T>(waiting: &mut Vec<T>, until: Time, at: impl Fn(&T) -> Time) -> Vec<T> {
    // The sort is stable: of one time, events stay in the order in which they came.
    waiting.sort_by_key(|entry| at(entry));
    let later = waiting.split_off(waiting.partition_point(|entry| at(entry) <= until));
    std::mem::replace(waiting, later)
}

/// Log of the packets of links, in the order of time: those that come out as a pcapng capture, and all their events
/// as the rows of a table. What waits to be taken is bounded; packets beyond that are missed, and counted.
///
/// ```
/// use marcato_lab::{IpDatagram, Link, LinkConfig, PacketLog};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let config = LinkConfig::new(Rate::from_mbps(1), Duration::from_millis(5));
/// let mut link = Link::<IpDatagram>::new("slow", config, Seed::new(1))?;
/// let log = PacketLog::new(Bytes::kb(1_000));
/// link.watch(log.watcher("slow", false, |_| true));
///
/// let header = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
/// link.send(Time::ZERO, IpDatagram::read(header.to_vec(), false, 1).map_err(|(error, _)| error)?);
/// assert!(link.poll(Time::from_secs(1)).is_some());
/// let rows = log.take_rows(Time::MAX);
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
        let captured = PcapNg::default();
        let waiting = Waiting { captured, packets: Vec::new(), rows: Vec::new(), bytes: [0; 2], missed: 0 };
        Self { waiting: Arc::new(Mutex::new(waiting)), most }
    }

    /// Creates the observer of a direction of the link with this name. Each is an interface of the
    /// capture, with those of its packets of which `is_captured` holds by their destination.
    pub fn watcher(
        &self,
        link: &str,
        back: bool,
        is_captured: impl Fn(IpAddr) -> bool + Send + 'static,
    ) -> Box<dyn Watcher<IpDatagram>> {
        let way = if back { "back" } else { "there" };
        let interface = self.lock().captured.interface(&format!("{link} {way}"), 0);
        let place = format!("{link},{way}");
        Box::new(Logger { log: self.clone(), interface, place, is_captured: Box::new(is_captured) })
    }

    /// Takes what was captured up to this time since the last call, as part of a pcapng file.
    pub fn take_captured(&self, until: Time) -> Vec<u8> {
        let mut waiting = self.lock();
        for (at, interface, bytes) in take_until(&mut waiting.packets, until, |packet| packet.0) {
            waiting.bytes[0] -= bytes.len() as u64;
            let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
            waiting.captured.packet(interface, at, len, len, [&bytes, &[]]);
        }
        waiting.captured.take("")
    }

    /// Takes the rows up to this time since the last call, without [their header](PACKET_COLUMNS).
    pub fn take_rows(&self, until: Time) -> String {
        let mut waiting = self.lock();
        let rows = take_until(&mut waiting.rows, until, |row| row.0);
        let rows: String = rows.into_iter().map(|(_, row)| row).collect();
        waiting.bytes[1] -= rows.len() as u64;
        rows
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
    is_captured: Box<dyn Fn(IpAddr) -> bool + Send>,
}

impl Watcher<IpDatagram> for Logger {
    fn note(&mut self, at: Time, event: PacketEvent, packet: &IpDatagram) {
        let mut waiting = self.log.lock();
        if waiting.bytes.into_iter().max().unwrap_or(0) + packet.len().get() > self.log.most.get() {
            waiting.missed += u64::from(event == PacketEvent::Arrived);
            return;
        }
        let headers = packet.headers();
        let FlowTuple { protocol, source, destination, source_port, destination_port } = headers.flow;
        if event == PacketEvent::Arrived && (self.is_captured)(destination) {
            waiting.bytes[0] += packet.bytes().len() as u64;
            waiting.packets.push((at, self.interface, packet.bytes().to_vec()));
        }
        let end = |ip: IpAddr, port: u16| SocketAddr::new(ip, port);
        let sojourn = match event {
            PacketEvent::Left => format!("{:.6}", at.since(packet.entered()).as_secs_f64() * 1e3),
            _ => String::new(),
        };
        let row = format!(
            "{:.9},{},{},{},{protocol},{},{},{},{},{sojourn}\n",
            at.since(Time::ZERO).as_secs_f64(),
            self.place,
            event.name(),
            packet.len().get(),
            end(source, source_port),
            end(destination, destination_port),
            packet.ecn() as u8,
            headers.dscp,
        );
        waiting.bytes[1] += row.len() as u64;
        waiting.rows.push((at, row));
    }
}
