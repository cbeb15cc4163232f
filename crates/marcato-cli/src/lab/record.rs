//! Files with the packets of a lab.

use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

use marcato_lab::{Lab, PACKET_COLUMNS, PacketLog};
use marcato_units::Bytes;

/// Most data of each kind that waits between two looks.
const MAX_WAITING: Bytes = Bytes::kb(256_000);

/// Capture and table of all packets.
pub(super) struct Record {
    log: PacketLog,
    capture: Option<BufWriter<File>>,
    table: Option<BufWriter<File>>,
}

impl Record {
    /// Begins to record the packets of all links into these files. `links` are their names, in order.
    pub(super) fn create<'a>(
        capture: Option<&Path>,
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
            for back in [false, true] {
                lab.watch(number, back, log.watcher(link, back));
            }
        }
        Ok(Some(Self { log, capture, table }))
    }

    /// Writes what has come since the last look.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let (captured, rows) = (self.log.take_captured(), self.log.take_rows());
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
