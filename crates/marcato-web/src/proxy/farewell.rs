//! Close frames of WebSockets: what a server that ends says to both sides of a tunnel (RFC 6455 §5.5.1).

use std::future::Future;
use std::io;

use marcato_units::Duration;
use ring::rand::{SecureRandom, SystemRandom};
use tokio::io::{AsyncWrite, AsyncWriteExt};

use crate::ending::Ending;

/// Time for both sides to answer a close frame.
pub(super) const ANSWER: Duration = Duration::from_secs(5);
/// Status of a server that ends: 1001, going away (RFC 6455 §7.4.1).
const GOING_AWAY: [u8; 2] = 1001_u16.to_be_bytes();
/// First byte of a close frame that is whole (RFC 6455 §5.2).
const CLOSE: u8 = 0x88;
/// Longest header: two bytes, eight of length, four of the mask (RFC 6455 §5.2).
const MAX_HEADER: usize = 14;

/// Follower of the frames of one direction. It keeps no payload.
#[derive(Debug, Default)]
struct Frames {
    header: [u8; MAX_HEADER],
    /// Bytes of the header that have come.
    have: usize,
    /// Bytes of the payload that have not come.
    left: u64,
    /// True once a close frame has ended.
    is_closed: bool,
}

impl Frames {
    /// True if no frame has begun that has not ended.
    const fn is_between(&self) -> bool {
        self.have == 0
    }

    /// Follows bytes to the end of a frame. Returns how many they are.
    fn follow(&mut self, bytes: &[u8]) -> usize {
        let mut at = 0;
        while self.have < 2 || self.have < self.header_len() {
            let Some(byte) = bytes.get(at) else { return at };
            self.header[self.have] = *byte;
            self.have += 1;
            at += 1;
            if self.have >= 2 && self.have == self.header_len() {
                self.left = self.payload_len();
            }
        }
        let rest = bytes.len() - at;
        let taken = usize::try_from(self.left).map_or(rest, |left| left.min(rest));
        self.left -= taken as u64;
        if self.left == 0 {
            self.is_closed |= self.header[0] & 0x0f == CLOSE & 0x0f;
            self.have = 0;
        }
        at + taken
    }

    /// Length of the header, whose first two bytes have come.
    const fn header_len(&self) -> usize {
        let mask = if self.header[1] & 0x80 == 0 { 0 } else { 4 };
        let length = match self.header[1] & 0x7f {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        2 + length + mask
    }

    /// Length of the payload, from a whole header.
    fn payload_len(&self) -> u64 {
        let bytes = match self.header[1] & 0x7f {
            126 => &self.header[2..4],
            127 => &self.header[2..10],
            short => return short.into(),
        };
        bytes.iter().fold(0, |length, byte| length << 8 | u64::from(*byte))
    }
}

/// Side that a direction of a tunnel leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Origin,
}

/// Farewell of one direction of a WebSocket.
#[derive(Debug)]
pub(super) struct Farewell {
    pub(super) ending: Ending,
    to: Side,
    frames: Frames,
    /// True once nothing of the other side goes on.
    is_cut: bool,
    is_said: bool,
}

impl Farewell {
    pub(super) fn new(ending: Ending, to: Side) -> Self {
        Self { ending, to, frames: Frames::default(), is_cut: false, is_said: false }
    }

    /// Waits for what comes next of a direction. If the server ends while a close frame can be sent, it sends that
    /// and returns `None`.
    pub(super) async fn or_next<T>(
        farewell: &mut Option<Self>,
        to: &mut (impl AsyncWrite + Unpin),
        next: impl Future<Output = T>,
    ) -> io::Result<Option<T>> {
        let Some(farewell) = farewell.as_mut().filter(|farewell| farewell.is_due()) else {
            return Ok(Some(next.await));
        };
        tokio::select! {
            biased;
            () = farewell.ending.begun() => {
                to.write_all(&farewell.say()).await?;
                to.flush().await?;
                Ok(None)
            }
            next = next => Ok(Some(next)),
        }
    }

    /// True if a close frame can be sent now, once the server ends.
    pub(super) const fn is_due(&self) -> bool {
        !self.is_said && (self.is_cut || self.is_between())
    }

    const fn is_between(&self) -> bool {
        self.frames.is_between() && !self.frames.is_closed
    }

    /// Returns the close frame to send. Nothing of the other side goes on after it.
    pub(super) fn say(&mut self) -> Vec<u8> {
        (self.is_cut, self.is_said) = (true, true);
        let [high, low] = GOING_AWAY;
        match self.to {
            Side::Client => vec![CLOSE, 2, high, low],
            // RFC 6455 §5.1: a client masks its frames, by a mask that cannot be foreseen.
            Side::Origin => {
                let mut mask = [0; 4];
                // Without randomness the frame is still well-formed, and its content is no secret.
                let _ = SystemRandom::new().fill(&mut mask);
                let [one, two, three, four] = mask;
                vec![CLOSE, 0x80 | 2, one, two, three, four, high ^ one, low ^ two]
            }
        }
    }

    /// Follows bytes of the other side. Returns how many of them go on.
    pub(super) fn pass(&mut self, bytes: &[u8]) -> usize {
        let mut passed = if self.is_cut { 0 } else { bytes.len() };
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            at += self.frames.follow(rest);
            // The close frame comes at the first end of a frame.
            if !self.is_cut && self.is_between() && self.ending.has_begun() {
                (self.is_cut, passed) = (true, at);
            }
        }
        passed
    }

    /// True if both the close frame was sent, and one has come from the other side.
    pub(super) const fn is_over(&self) -> bool {
        self.is_said && self.frames.is_closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::watch;

    fn farewell(to: Side) -> (watch::Sender<bool>, Farewell) {
        let (end, ended) = watch::channel(false);
        (end, Farewell::new(Ending(ended), to))
    }

    /// Frame with a payload of a length, masked or not.
    fn frame(first: u8, len: usize, masked: bool) -> Vec<u8> {
        let bit = if masked { 0x80 } else { 0 };
        let mut frame = vec![first];
        match len {
            0..=125 => frame.push(bit | u8::try_from(len).unwrap()),
            126..=0xffff => {
                frame.push(bit | 126);
                frame.extend(u16::try_from(len).unwrap().to_be_bytes());
            }
            _ => {
                frame.push(bit | 127);
                frame.extend((len as u64).to_be_bytes());
            }
        }
        frame.resize(frame.len() + if masked { 4 } else { 0 } + len, 0x88);
        frame
    }

    #[test]
    fn a_close_frame_comes_between_two_frames() {
        for len in [0, 1, 125, 126, 127, 0xffff, 0x1_0000] {
            for masked in [false, true] {
                let text = frame(0x81, len, masked);
                let (_end, mut farewell) = farewell(Side::Client);
                assert!(farewell.is_due());
                for byte in &text[..text.len() - 1] {
                    assert_eq!(farewell.pass(&[*byte]), 1);
                    assert!(!farewell.is_due(), "{len}");
                }
                assert_eq!(farewell.pass(&text[text.len() - 1..]), 1);
                assert!(farewell.is_due(), "{len}");
            }
        }
    }

    #[test]
    fn bytes_after_the_close_frame_are_not_passed_on() {
        let (end, mut farewell) = farewell(Side::Client);
        let two = [frame(0x01, 5, false), frame(0x80, 300, false)].concat();
        assert_eq!(farewell.pass(&two[..3]), 3);
        end.send(true).unwrap();
        // The frame ends, and one that does not go on begins.
        assert_eq!(farewell.pass(&two[3..20]), 4);
        assert!(farewell.is_due());
        assert_eq!(farewell.say(), [0x88, 2, 0x03, 0xe9]);
        assert_eq!((farewell.pass(&two[20..]), farewell.is_over()), (0, false));
        assert_eq!((farewell.pass(&frame(0x88, 2, false)), farewell.is_over()), (0, true));
    }

    #[test]
    fn a_frame_to_an_origin_is_masked() {
        let said = farewell(Side::Origin).1.say();
        let [0x88, 0x82, mask @ .., high, low] = &said[..] else { panic!("{said:?}") };
        assert_eq!([high ^ mask[0], low ^ mask[1]], [0x03, 0xe9]);
        assert_ne!(mask, &self::farewell(Side::Origin).1.say()[2..6]);
    }

    #[test]
    fn a_side_that_has_closed_is_told_nothing() {
        let (end, mut farewell) = farewell(Side::Origin);
        assert_eq!(farewell.pass(&frame(0x88, 0, true)), 6);
        end.send(true).unwrap();
        assert!(!farewell.is_due() && !farewell.is_over());
    }
}
