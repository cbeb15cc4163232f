//! Files with the packets of a lab.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::net::IpAddr;
use std::path::Path;

use marcato_lab::{Lab, PACKET_COLUMNS, PacketLog};
use marcato_units::{Bytes, Time};

/// Most data of each kind that waits between two looks.
const MAX_WAITING: Bytes = Bytes::kb(256_000);

/// Capture and table of all packets.
pub(super) struct Record {
    log: PacketLog,
    capture: Option<BufWriter<File>>,
    table: Option<BufWriter<File>>,
}

impl Record {
    /// Begins to record the packets of all links into these files. `links` are their names, in order. The capture has
    /// each packet once, where it reaches its host; or what comes out of the links `captured`, if there are any.
    pub(super) fn create<'a>(
        capture: Option<&Path>,
        captured: &[String],
        table: Option<&Path>,
        lab: &Lab,
        links: impl Iterator<Item = &'a str>,
    ) -> io::Result<Option<Self>> {
        if capture.is_none() && table.is_none() {
            return Ok(None);
        }
        let open = |path: &Path| Ok::<_, io::Error>(BufWriter::new(File::create(path)?));
        let (capture, mut table) = (capture.map(open).transpose()?, table.map(open).transpose()?);
        if let Some(table) = &mut table {
            table.write_all(PACKET_COLUMNS.as_bytes())?;
        }
        let log = PacketLog::new(MAX_WAITING);
        for (number, link) in links.enumerate() {
            let is_named = captured.iter().any(|name| name == link);
            for back in [false, true] {
                let hosts = lab.arrivals(number, back);
                let all = !captured.is_empty();
                let is_captured = move |to: IpAddr| if all { is_named } else { hosts.contains(&to) };
                lab.watch(number, back, log.watcher(link, back, is_captured));
            }
        }
        Ok(Some(Self { log, capture, table }))
    }

    /// Writes what has come up to this time since the last look.
    pub(super) fn look(&mut self, until: Time) -> io::Result<()> {
        let (captured, rows) = (self.log.take_captured(until), self.log.take_rows(until));
        if let Some(file) = &mut self.capture {
            file.write_all(&captured)?;
            file.flush()?;
        }
        if let Some(file) = &mut self.table {
            file.write_all(rows.as_bytes())?;
            file.flush()?;
        }
        Ok(())
    }

    /// Packets that came too fast to be written.
    pub(super) fn missed(&self) -> u64 {
        self.log.missed()
    }
}
