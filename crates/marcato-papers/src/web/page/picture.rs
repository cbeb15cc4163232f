//! Pictures that no server makes smaller: bitmaps.

/// Bytes before the pixels: the file's header and that of the bitmap.
const FILE: u32 = 14;
const INFO: u32 = 40;

/// Bitmap of 24 bits per pixel, with rows from the top: a gradient whose colour depends on a number. A row
/// must have a multiple of four bytes.
pub(super) fn bitmap((width, height): (u16, u16), number: u32) -> Vec<u8> {
    let length = 3 * u32::from(width) * u32::from(height);
    let mut bytes = Vec::new();
    bytes.extend(b"BM");
    bytes.extend((FILE + INFO + length).to_le_bytes());
    bytes.extend([0; 4]);
    bytes.extend((FILE + INFO).to_le_bytes());
    bytes.extend(INFO.to_le_bytes());
    bytes.extend(i32::from(width).to_le_bytes());
    // A negative height stands for rows from the top.
    bytes.extend((-i32::from(height)).to_le_bytes());
    bytes.extend(1_u16.to_le_bytes());
    bytes.extend(24_u16.to_le_bytes());
    bytes.extend([0; 24]);
    let share = |at: u16, of: u16, most: u32| u32::from(at) * most / u32::from(of.max(1));
    for y in 0..height {
        for x in 0..width {
            let (across, down) = (share(x, width, 120), share(y, height, 120));
            let pixel = [60 + down, 90 + across, 60 + (number * 67) % 120];
            bytes.extend(pixel.map(|part| u8::try_from(part).unwrap_or(u8::MAX)));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_tells_length_and_place_of_the_pixels() {
        let bytes = bitmap((60, 45), 3);
        let at = |place: usize| u32::from_le_bytes(bytes[place..place + 4].try_into().unwrap());
        assert_eq!((at(2), bytes.len()), (8_154, 8_154));
        assert_eq!((at(10), at(18), at(22).cast_signed()), (54, 60, -45));
    }
}
