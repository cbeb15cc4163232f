//! Captures: of several taps in one file in the pcapng format (draft-ietf-opsawg-pcapng), and of one
//! in the pcap format.
//!
//! Only four kinds of blocks are written. The crate `pcap-file` also writes pcapng, but not the
//! block with secrets, and it needs each packet as a separate value.

use marcato_units::Time;

/// LINKTYPE_RAW: link type of IP packets without a link header.
const RAW: u16 = 101;
/// Type of the secrets of an SSLKEYLOGFILE.
const TLS_KEY_LOG: u32 = 0x544c_534b;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const DECRYPTION_SECRETS: u32 = 10;

/// Writer of a pcapng file, in little-endian order. Its clock counts nanoseconds of the time
/// that packets are given.
pub struct PcapNg {
    /// Section header and interface descriptions, which precede the packets that wait.
    head: Vec<u8>,
    packets: Vec<u8>,
    interfaces: u32,
}

/// Appends a block with this body.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let begin = out.len();
    out.extend(kind.to_le_bytes());
    out.extend([0; 4]);
    body(out);
    out.resize(out.len().next_multiple_of(4), 0);
    // Packets have at most 64 KiB, and secrets at most a megabyte, so the length fits.
    let len = u32::try_from(out.len() + 4 - begin).unwrap_or(u32::MAX).to_le_bytes();
    out[begin + 4..begin + 8].copy_from_slice(&len);
    out.extend(len);
}

/// Appends an option of a block.
fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

impl Default for PcapNg {
    /// File without interfaces.
    fn default() -> Self {
        let mut head = Vec::new();
        block(&mut head, SECTION_HEADER, |out| {
            out.extend(0x1a2b_3c4d_u32.to_le_bytes());
            out.extend(1u16.to_le_bytes());
            out.extend(0u16.to_le_bytes());
            // All ones: the length of the section is not specified.
            out.extend(u64::MAX.to_le_bytes());
        });
        Self { head, packets: Vec::new(), interfaces: 0 }
    }
}

impl PcapNg {
    /// Adds an interface of this name; returns its number.
    pub fn interface(&mut self, name: &str, snaplen: u32) -> u32 {
        block(&mut self.head, INTERFACE_DESCRIPTION, |out| {
            out.extend(RAW.to_le_bytes());
            out.extend([0; 2]);
            out.extend(snaplen.to_le_bytes());
            // Options if_name and if_tsresol, 10^-9 s.
            option(out, 2, name.as_bytes());
            option(out, 9, &[9]);
            option(out, 0, &[]);
        });
        self.interfaces += 1;
        self.interfaces - 1
    }

    /// Adds a packet of length `len` with `kept` captured bytes: those of `parts`, followed by
    /// zeros.
    pub fn packet(&mut self, interface: u32, at: Time, len: u32, kept: u32, parts: [&[u8]; 2]) {
        block(&mut self.packets, ENHANCED_PACKET, |out| {
            let nanos = at.as_nanos();
            out.extend(interface.to_le_bytes());
            let [high, low] = [nanos >> 32, nanos & 0xffff_ffff].map(|half| u32::try_from(half).unwrap_or(0));
            for field in [high, low, kept, len] {
                out.extend(field.to_le_bytes());
            }
            fill(out, kept as usize, parts);
        });
    }

    /// Returns the bytes of packets that wait to be taken.
    pub fn waiting(&self) -> usize {
        self.packets.len()
    }

    /// Takes what was written since the last call. `secrets`, lines of an SSLKEYLOGFILE, precede
    /// the packets.
    pub fn take(&mut self, secrets: &str) -> Vec<u8> {
        let mut part = std::mem::take(&mut self.head);
        if !secrets.is_empty() {
            block(&mut part, DECRYPTION_SECRETS, |out| {
                out.extend(TLS_KEY_LOG.to_le_bytes());
                out.extend(u32::try_from(secrets.len()).unwrap_or(u32::MAX).to_le_bytes());
                out.extend(secrets.as_bytes());
            });
        }
        part.append(&mut self.packets);
        part
    }
}

/// Appends `kept` bytes: those of `parts`, followed by zeros.
pub(crate) fn fill(out: &mut Vec<u8>, kept: usize, parts: [&[u8]; 2]) {
    let end = out.len() + kept;
    for part in parts {
        let room = end - out.len();
        out.extend_from_slice(&part[..part.len().min(room)]);
    }
    out.resize(end, 0);
}

/// Returns the header of a pcap file: nanoseconds, version 2.4, no time zone, LINKTYPE_RAW.
pub(crate) fn pcap_header(snaplen: u32) -> Vec<u8> {
    let mut header = Vec::with_capacity(24);
    header.extend(0xa1b2_3c4d_u32.to_le_bytes());
    header.extend(2u16.to_le_bytes());
    header.extend(4u16.to_le_bytes());
    header.extend([0; 8]);
    header.extend(snaplen.to_le_bytes());
    header.extend(u32::from(RAW).to_le_bytes());
    header
}

/// Appends the header of a packet of length `len` to a pcap file. Its `kept` captured bytes follow.
pub(crate) fn pcap_record(out: &mut Vec<u8>, at: Time, len: u32, kept: u32) {
    // The format has 32 bits for seconds: 136 years.
    let seconds = u32::try_from(at.as_nanos() / 1_000_000_000).unwrap_or(u32::MAX);
    let nanos = u32::try_from(at.as_nanos() % 1_000_000_000).unwrap_or(0);
    for field in [seconds, nanos, kept, len] {
        out.extend(field.to_le_bytes());
    }
}
