//! Observer of the packets of a link: those that each flow lost, and captures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_lab::{IpDatagram, PacketEvent, Watcher};
use marcato_link::pcapng::{PcapNg, fill};
use marcato_sim::Tap;
use marcato_units::Time;
use marcato_wire::FlowTuple;

/// Most flows whose losses are counted. Only ports that nobody answers could make more.
const MAX_FLOWS: usize = 1 << 16;

/// Records of all links, which the trial and the thread that moves packets share.
#[derive(Default)]
pub(crate) struct Records {
    dropped: HashMap<FlowTuple, u64>,
    taps: HashMap<usize, Tapped>,
    /// Common file of the taps that share one.
    common: PcapNg,
}

/// Tap of a direction of a link.
struct Tapped {
    tap: Tap,
    /// Part of its own file that waits to be taken; `None` if it writes into the common one.
    file: Option<Vec<u8>>,
    interface: u32,
    missed: u64,
}

/// Shared [`Records`].
#[derive(Clone, Default)]
pub(crate) struct SharedRecords(Arc<Mutex<Records>>);

impl SharedRecords {
    pub(crate) fn lock(&self) -> MutexGuard<'_, Records> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates the observer of the direction with this number.
    pub(crate) fn watcher(&self, direction: usize) -> Box<dyn Watcher<IpDatagram>> {
        Box::new(Observer { records: self.clone(), direction })
    }
}

impl Records {
    /// Packets of a flow that a queue dropped, a wire lost or a link found too big.
    pub(crate) fn dropped(&self, flow: &FlowTuple) -> u64 {
        self.dropped.get(flow).copied().unwrap_or(0)
    }

    /// Taps a direction of a link into a file of its own.
    pub(crate) fn tap(&mut self, direction: usize, tap: Tap) {
        let file = Some(marcato_link::pcapng::pcap_header(tap.snaplen));
        self.taps.insert(direction, Tapped { tap, file, interface: 0, missed: 0 });
    }

    /// Taps a direction of a link into the common file.
    pub(crate) fn tap_together(&mut self, direction: usize, name: &str, tap: Tap) {
        let interface = self.common.interface(name, tap.snaplen);
        self.taps.insert(direction, Tapped { tap, file: None, interface, missed: 0 });
    }

    /// Takes the waiting part of the common file, after these secrets.
    pub(crate) fn take_common(&mut self, secrets: &str) -> Vec<u8> {
        self.common.take(secrets)
    }

    /// Takes the waiting part of the file of one tap.
    pub(crate) fn take(&mut self, direction: usize) -> Vec<u8> {
        let file = self.taps.get_mut(&direction).and_then(|tapped| tapped.file.as_mut());
        file.map(std::mem::take).unwrap_or_default()
    }

    fn capture(&mut self, at: Time, direction: usize, packet: &[u8]) {
        let Self { taps, common, .. } = self;
        let Some(tapped) = taps.get_mut(&direction) else { return };
        let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
        let kept = len.min(tapped.tap.snaplen);
        let waiting = tapped.file.as_ref().map_or(common.waiting(), Vec::len);
        if waiting as u64 + u64::from(16 + kept) > tapped.tap.most_waiting.get() {
            tapped.missed += 1;
            return;
        }
        let Some(file) = &mut tapped.file else {
            common.packet(tapped.interface, at, len, kept, [packet, &[]]);
            return;
        };
        marcato_link::pcapng::pcap_record(file, at, len, kept);
        fill(file, kept as usize, [packet, &[]]);
    }
}

struct Observer {
    records: SharedRecords,
    direction: usize,
}

impl Watcher<IpDatagram> for Observer {
    fn note(&mut self, at: Time, event: PacketEvent, packet: &IpDatagram) {
        match event {
            PacketEvent::Offered | PacketEvent::Left => {}
            PacketEvent::Arrived => self.records.lock().capture(at, self.direction, packet.bytes()),
            PacketEvent::TooBig | PacketEvent::Dropped | PacketEvent::Lost => {
                let mut records = self.records.lock();
                let known = records.dropped.len();
                match records.dropped.get_mut(&packet.headers().flow) {
                    Some(count) => *count += 1,
                    None if known < MAX_FLOWS => {
                        records.dropped.insert(packet.headers().flow, 1);
                    }
                    None => {}
                }
            }
        }
    }
}
