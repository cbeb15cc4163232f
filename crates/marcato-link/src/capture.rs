//! Capture of the packets at one place of a link.

use marcato_units::{Bytes, Time};

use crate::pcapng::{PcapNg, fill, pcap_header, pcap_record};

/// Capture of the packets at one place: a pcap file of its own, or an interface of a pcapng file that
/// several captures share. What waits to be taken is bounded; packets beyond that are missed, and
/// counted.
///
/// ```
/// use marcato_link::Capture;
/// use marcato_link::pcapng::PcapNg;
/// use marcato_units::{Bytes, Time};
///
/// let mut shared = PcapNg::default();
/// let (mut alone, mut common) = (
///     Capture::alone(128, Bytes::new(100)),
///     Capture::in_common(&mut shared, "link", 128, Bytes::kb(1)),
/// );
/// for capture in [&mut alone, &mut common] {
///     for _ in 0..3 {
///         capture.packet(&mut shared, Time::ZERO, 40, [&[0x45], &[]]);
///     }
/// }
/// assert_eq!((alone.captured(), alone.missed()), (1, 2));
/// assert_eq!((common.captured(), common.missed()), (3, 0));
/// ```
pub struct Capture {
    snaplen: u32,
    most_waiting: Bytes,
    destination: Destination,
    captured: u64,
    missed: u64,
}

enum Destination {
    /// Part of its own file that waits to be taken.
    Own(Vec<u8>),
    /// Number of its interface in the common file.
    Interface(u32),
}

impl Capture {
    /// Creates a capture with a file of its own, of at most `snaplen` bytes of each packet.
    pub fn alone(snaplen: u32, most_waiting: Bytes) -> Self {
        Self::new(snaplen, most_waiting, Destination::Own(pcap_header(snaplen)))
    }

    /// Creates a capture that is an interface of this name in a common file.
    pub fn in_common(common: &mut PcapNg, name: &str, snaplen: u32, most_waiting: Bytes) -> Self {
        Self::new(snaplen, most_waiting, Destination::Interface(common.interface(name, snaplen)))
    }

    const fn new(snaplen: u32, most_waiting: Bytes, destination: Destination) -> Self {
        Self { snaplen, most_waiting, destination, captured: 0, missed: 0 }
    }

    /// Captures a packet of length `len`: the bytes of `parts`, followed by zeros. `common` is the file
    /// that captures share.
    pub fn packet(&mut self, common: &mut PcapNg, at: Time, len: u32, parts: [&[u8]; 2]) {
        let kept = len.min(self.snaplen);
        let waiting = match &self.destination {
            Destination::Own(file) => file.len(),
            Destination::Interface(_) => common.waiting(),
        };
        if waiting as u64 + u64::from(16 + kept) > self.most_waiting.get() {
            self.missed += 1;
            return;
        }
        self.captured += 1;
        match &mut self.destination {
            Destination::Own(file) => {
                pcap_record(file, at, len, kept);
                fill(file, kept as usize, parts);
            }
            Destination::Interface(interface) => common.packet(*interface, at, len, kept, parts),
        }
    }

    /// Part of its own file that waits to be taken; `None` if it writes into the common one.
    pub const fn file(&mut self) -> Option<&mut Vec<u8>> {
        match &mut self.destination {
            Destination::Own(file) => Some(file),
            Destination::Interface(_) => None,
        }
    }

    /// Packets captured.
    pub const fn captured(&self) -> u64 {
        self.captured
    }

    /// Packets missed because too much waited to be taken.
    pub const fn missed(&self) -> u64 {
        self.missed
    }
}
