//! A font whose letters are blocks, as a TrueType file (ISO/IEC 14496-22).

/// Units of an em, and the box of a letter.
const EM: u16 = 1000;
const ADVANCE: u16 = 560;
const DESCENT: i16 = -200;
const ASCENT: i16 = 800;
/// First and last character with a block: the visible ones of ASCII.
const FIRST: u16 = 0x21;
const LAST: u16 = 0x7e;
/// Glyphs: the one for unknown characters, the space, and a block for each character.
const GLYPHS: u16 = 2 + LAST - FIRST + 1;
/// Value that makes the sum of the file's words a constant of the format.
const MAGIC: u32 = 0xb1b0_afba;
/// Place of that value in the table `head`.
const ADJUSTMENT: usize = 8;

/// Big-endian fields of a table.
#[derive(Default)]
struct Table(Vec<u8>);

impl Table {
    fn u16s(mut self, values: &[u16]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
        self
    }

    fn i16s(mut self, values: &[i16]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
        self
    }

    fn u32s(mut self, values: &[u32]) -> Self {
        self.0.extend(values.iter().flat_map(|value| value.to_be_bytes()));
        self
    }

    fn bytes(mut self, values: &[u8]) -> Self {
        self.0.extend(values);
        self
    }
}

/// Outline of a block of this height, padded to 36 bytes.
fn block(height: i16) -> Vec<u8> {
    let (left, right) = (40, ADVANCE.cast_signed() - 40);
    let outline = Table::default()
        .i16s(&[1, left, 0, right, height])
        // One contour of four points, no instructions, all points on the curve.
        .u16s(&[3, 0])
        .bytes(&[1; 4])
        .i16s(&[left, 0, right - left, 0])
        .i16s(&[0, height, 0, -height]);
    let mut bytes = outline.0;
    bytes.resize(36, 0);
    bytes
}

/// Font of about this many bytes: tables that a browser checks, and one of zeros that it skips.
pub(super) fn blocks(length: usize) -> Vec<u8> {
    let heights = (0..GLYPHS).map(|glyph| 460 + 20 * (glyph % 13).cast_signed());
    let outlines: Vec<Vec<u8>> =
        heights.enumerate().map(|(glyph, height)| if glyph == 1 { vec![] } else { block(height) }).collect();
    let mut at = 0_u16;
    let mut places = vec![0];
    for outline in &outlines {
        at += u16::try_from(outline.len() / 2).unwrap_or(0);
        places.push(at);
    }
    let mut tables: Vec<([u8; 4], Vec<u8>)> = vec![
        (*b"OS/2", os2()),
        (*b"cmap", cmap()),
        (*b"glyf", outlines.concat()),
        (*b"head", head()),
        (*b"hhea", hhea()),
        (*b"hmtx", (0..GLYPHS).fold(Table::default(), |table, _| table.u16s(&[ADVANCE, 40])).0),
        (*b"loca", Table::default().u16s(&places).0),
        (
            *b"maxp",
            Table::default().u32s(&[0x1_0000]).u16s(&[GLYPHS, 4, 1, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0]).0,
        ),
        (*b"name", name()),
        (*b"post", Table::default().u32s(&[0x3_0000, 0, 0, 0, 0, 0, 0, 0]).0),
    ];
    let used: usize = tables.iter().map(|(_, table)| table.len() + 16).sum();
    // Tables are in the order of their names, and this one comes last.
    tables.push((*b"zero", vec![0; length.saturating_sub(used + 28)]));
    file(&tables)
}

/// Joins tables to a file.
fn file(tables: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    let count = u16::try_from(tables.len()).unwrap_or(0);
    let power = count.checked_ilog2().unwrap_or(0);
    let range = 16 << power;
    let power = u16::try_from(power).unwrap_or(0);
    let mut header = Table::default().u32s(&[0x1_0000]).u16s(&[count, range, power, 16 * count - range]);
    let (mut content, mut head) = (Vec::new(), 0);
    let start = 12 + 16 * tables.len();
    for (name, table) in tables {
        let place = start + content.len();
        if name == b"head" {
            head = place;
        }
        let [place, length] = [place, table.len()].map(|number| u32::try_from(number).unwrap_or(0));
        header = header.bytes(name).u32s(&[sum(table), place, length]);
        content.extend(table);
        content.resize(content.len().next_multiple_of(4), 0);
    }
    let mut bytes = header.0;
    bytes.extend(content);
    let adjustment = MAGIC.wrapping_sub(sum(&bytes));
    bytes[head + ADJUSTMENT..][..4].copy_from_slice(&adjustment.to_be_bytes());
    bytes
}

/// Sum of the words of a table.
fn sum(bytes: &[u8]) -> u32 {
    let word = |chunk: &[u8]| {
        let mut word = [0; 4];
        word[..chunk.len()].copy_from_slice(chunk);
        u32::from_be_bytes(word)
    };
    bytes.chunks(4).map(word).fold(0, u32::wrapping_add)
}

fn head() -> Vec<u8> {
    Table::default()
        .u32s(&[0x1_0000, 0x1_0000, 0, 0x5f0f_3cf5])
        .u16s(&[0b1011, EM])
        .u32s(&[0; 4])
        .i16s(&[0, DESCENT, ADVANCE.cast_signed(), ASCENT])
        .u16s(&[0, 8])
        .i16s(&[2, 0, 0])
        .0
}

fn hhea() -> Vec<u8> {
    Table::default()
        .u32s(&[0x1_0000])
        .i16s(&[ASCENT, DESCENT, 0])
        .u16s(&[ADVANCE, 40, 40, ADVANCE - 40, 1, 0, 0, 0, 0, 0, 0, 0, GLYPHS])
        .0
}

/// Characters of Windows' table for the basic plane, in format 4: the space, the blocks, and the end.
fn cmap() -> Vec<u8> {
    let segments = Table::default()
        .u16s(&[0x20, LAST, 0xffff, 0, 0x20, FIRST, 0xffff])
        // The glyph is the character plus this, modulo 65 536.
        .u16s(&[1_u16.wrapping_sub(0x20), 2_u16.wrapping_sub(FIRST), 1, 0, 0, 0]);
    let length = u16::try_from(14 + segments.0.len()).unwrap_or(0);
    Table::default().u16s(&[0, 1, 3, 1]).u32s(&[12]).u16s(&[4, length, 0, 6, 4, 1, 2]).bytes(&segments.0).0
}

fn os2() -> Vec<u8> {
    Table::default()
        .u16s(&[4, ADVANCE, 400, 5, 0])
        .i16s(&[650, 600, 0, 75, 650, 600, 0, 350, 50, 250, 0])
        .bytes(&[0; 10])
        .u32s(&[1, 0, 0, 0])
        .bytes(b"MARC")
        .u16s(&[0x40, 0x20, LAST])
        .i16s(&[ASCENT, DESCENT, 0, ASCENT, -DESCENT])
        .u32s(&[1, 0])
        .i16s(&[500, 700])
        .u16s(&[0, 0x20, 1])
        .0
}

/// Names of the font in Windows' encoding: family, style, and the names that are made of them.
fn name() -> Vec<u8> {
    let words: Vec<u8> = "Blocks".encode_utf16().flat_map(u16::to_be_bytes).collect();
    let length = u16::try_from(words.len()).unwrap_or(0);
    let names = [1, 2, 4, 6];
    let start = Table::default().u16s(&[0, 4, 6 + 12 * 4]);
    let records = names.into_iter().fold(start, |table, id| table.u16s(&[3, 1, 0x409, id, length, 0]));
    records.bytes(&words).0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_font_has_the_checksum_and_length_of_its_format() {
        let bytes = blocks(20_000);
        assert_eq!(sum(&bytes), MAGIC);
        assert!(bytes.len().abs_diff(20_000) < 50, "{}", bytes.len());
    }

    #[test]
    fn tables_have_the_lengths_of_the_format() {
        let lengths = [head(), hhea(), os2()].map(|table| table.len());
        assert_eq!(lengths, [54, 36, 96]);
    }
}
