//! Observer of the packets of a link: those that each flow lost, and captures.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use marcato_lab::{IpDatagram, PacketEvent, Watcher};
use marcato_link::Capture;
use marcato_link::pcapng::PcapNg;
use marcato_sim::Tap;
use marcato_units::Time;
use marcato_wire::FlowTuple;

/// Most flows whose losses are counted. Only ports that nobody answers could make more.
const MAX_FLOWS: usize = 1 << 16;

/// Records of all links, which the trial and the thread that moves packets share.
#[derive(Default)]
pub(crate) struct Records {
    dropped: HashMap<FlowTuple, u64>,
    /// Lost packets of flows beyond [`MAX_FLOWS`].
    uncounted: u64,
    taps: HashMap<usize, Capture>,
    /// Common file of the taps that share one.
    common: PcapNg,
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
        self.taps.insert(direction, Capture::alone(tap.snaplen, tap.most_waiting));
    }

    /// Taps a direction of a link into the common file.
    pub(crate) fn tap_together(&mut self, direction: usize, name: &str, tap: Tap) {
        let capture = Capture::in_common(&mut self.common, name, tap.snaplen, tap.most_waiting);
        self.taps.insert(direction, capture);
    }

    /// Takes the waiting part of the common file, after these secrets.
    pub(crate) fn take_common(&mut self, secrets: &str) -> Vec<u8> {
        self.common.take(secrets)
    }

    /// Takes the waiting part of the file of one tap.
    pub(crate) fn take(&mut self, direction: usize) -> Vec<u8> {
        let file = self.taps.get_mut(&direction).and_then(Capture::file);
        file.map(std::mem::take).unwrap_or_default()
    }

    /// Returns warnings of what was not recorded.
    pub(crate) fn warnings(&self) -> Vec<String> {
        let missed: u64 = self.taps.values().map(Capture::missed).sum();
        let missed = (missed > 0)
            .then(|| format!("captures miss {missed} packets, which came too fast: capture fewer links"));
        let uncounted = (self.uncounted > 0).then(|| {
            let count = self.uncounted;
            format!("{count} lost packets belong to more flows than are counted: they are missing in `lost`")
        });
        missed.into_iter().chain(uncounted).collect()
    }

    fn capture(&mut self, at: Time, direction: usize, packet: &[u8]) {
        let Self { taps, common, .. } = self;
        if let Some(capture) = taps.get_mut(&direction) {
            let len = u32::try_from(packet.len()).unwrap_or(u32::MAX);
            capture.packet(common, at, len, [packet, &[]]);
        }
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
                    None => records.uncounted += 1,
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// UDP datagram from this port.
    fn datagram(port: u16) -> IpDatagram {
        let mut frame = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        frame.extend(port.to_be_bytes());
        frame.extend([0, 9, 0, 8, 0, 0]);
        IpDatagram::read(frame, false, 1).unwrap()
    }

    #[test]
    fn losses_belong_to_their_flow() {
        let records = SharedRecords::default();
        let mut watcher = records.watcher(0);
        let (first, second) = (datagram(1), datagram(2));
        for event in [PacketEvent::Offered, PacketEvent::Dropped, PacketEvent::Lost, PacketEvent::TooBig] {
            watcher.note(Time::ZERO, event, &first);
        }
        watcher.note(Time::ZERO, PacketEvent::Arrived, &second);
        let dropped = |packet: &IpDatagram| records.lock().dropped(&packet.headers().flow);
        assert_eq!((dropped(&first), dropped(&second)), (3, 0));
    }

    #[test]
    fn a_full_capture_misses_packets_and_says_so() {
        let records = SharedRecords::default();
        records.lock().tap(3, Tap { most_waiting: marcato_units::Bytes::new(100), ..Tap::default() });
        let mut watcher = records.watcher(3);
        for _ in 0..3 {
            watcher.note(Time::ZERO, PacketEvent::Arrived, &datagram(1));
        }
        // The header of the file and one packet fit.
        assert_eq!(records.lock().take(3).len(), 24 + 16 + 28);
        assert_eq!(
            records.lock().warnings(),
            ["captures miss 2 packets, which came too fast: capture fewer links"]
        );
        assert!(records.lock().take(4).is_empty(), "no tap");
    }
}
