//! Header of the PROXY protocol, which a balancer writes before the bytes of a connection.
//!
//! Versions 1 and 2 as HAProxy specifies them (<https://www.haproxy.org/download/3.0/doc/proxy-protocol.txt>).

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// First bytes of version 2.
const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Bytes of version 2 before its addresses.
const FIXED: usize = 16;
/// Most bytes of a line of version 1, with its end (§2.1).
const LONGEST_LINE: usize = 107;
/// Most bytes of the addresses and extensions of version 2. Those of HAProxy take a few hundred.
const LONGEST: usize = 4096;
/// Least bytes of a header: `PROXY UNKNOWN` and its end.
const SHORTEST: usize = 15;

/// Client of a connection, as the header of a balancer tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// Address of the client.
    Client(SocketAddr),
    /// The balancer itself has connected, or it does not know the client.
    Own,
}

/// Version of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyVersion {
    /// Text.
    V1,
    /// Binary.
    V2,
}

/// Error returned for bytes that are no header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum ProxyHeaderError {
    /// The bytes begin otherwise.
    #[error("no header of the PROXY protocol: have the balancer send one, or remove it from the networks")]
    Absent,
    /// The header is damaged, or longer than it may be.
    #[error("damaged header of the PROXY protocol: check the version that the balancer sends")]
    Malformed,
}

impl ProxyHeader {
    /// Reads a header at the beginning of some bytes, and returns its length; `None` if more bytes are needed.
    ///
    /// ```
    /// use marcato_web::ProxyHeader;
    ///
    /// let bytes = b"PROXY TCP4 192.0.2.1 198.51.100.1 50000 443\r\nGET / HTTP/1.1";
    /// let (header, len) = ProxyHeader::parse(bytes)?.expect("it is whole");
    /// assert_eq!((header, len), (ProxyHeader::Client("192.0.2.1:50000".parse().unwrap()), 45));
    /// assert_eq!(ProxyHeader::parse(&bytes[..20])?, None);
    /// # Ok::<(), marcato_web::ProxyHeaderError>(())
    /// ```
    ///
    /// # Errors
    /// If the bytes are no header.
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProxyHeaderError> {
        let begins = |with: &[u8]| {
            let len = bytes.len().min(with.len());
            bytes.get(..len) == with.get(..len)
        };
        if begins(SIGNATURE) {
            return Self::parse_binary(bytes);
        }
        if !begins(b"PROXY ") {
            return Err(ProxyHeaderError::Absent);
        }
        let within = bytes.get(..LONGEST_LINE).unwrap_or(bytes);
        match within.windows(2).position(|pair| pair == b"\r\n") {
            Some(end) => {
                let line = bytes.get(..end).and_then(|line| std::str::from_utf8(line).ok());
                let header = line.and_then(Self::of_line).ok_or(ProxyHeaderError::Malformed)?;
                Ok(Some((header, end + 2)))
            }
            None if bytes.len() >= LONGEST_LINE => Err(ProxyHeaderError::Malformed),
            None => Ok(None),
        }
    }

    /// Reads the line of version 1, without its end.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix("PROXY ")?.split(' ');
        let family = words.next()?;
        if family == "UNKNOWN" {
            // §2.1: what follows is ignored.
            return Some(Self::Own);
        }
        let mut address = || {
            let text = words.next()?;
            match family {
                "TCP4" => text.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
                "TCP6" => text.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
                _ => None,
            }
        };
        let (source, _) = (address()?, address()?);
        // Without signs and leading zeros, which another reader could take for something else.
        let mut port = || {
            let text = words.next()?;
            let port: u16 = text.parse().ok()?;
            (port.to_string() == text).then_some(port)
        };
        let (source_port, _) = (port()?, port()?);
        words.next().is_none().then_some(Self::Client(SocketAddr::new(source, source_port)))
    }

    fn parse_binary(bytes: &[u8]) -> Result<Option<(Self, usize)>, ProxyHeaderError> {
        let Some((fixed, rest)) = bytes.split_first_chunk::<FIXED>() else { return Ok(None) };
        let len = usize::from(u16::from_be_bytes([fixed[14], fixed[15]]));
        if fixed[12] >> 4 != 2 || len > LONGEST {
            return Err(ProxyHeaderError::Malformed);
        }
        let Some(content) = rest.get(..len) else { return Ok(None) };
        let header = match (fixed[12] & 15, fixed[13]) {
            // LOCAL: the balancer asks for itself, as for its health checks.
            (0, _) => Self::Own,
            (1, 0x11) => {
                let content = content.first_chunk::<12>().ok_or(ProxyHeaderError::Malformed)?;
                let address = Ipv4Addr::new(content[0], content[1], content[2], content[3]);
                Self::Client((address, u16::from_be_bytes([content[8], content[9]])).into())
            }
            (1, 0x21) => {
                let content = content.first_chunk::<36>().ok_or(ProxyHeaderError::Malformed)?;
                let address = content.first_chunk::<16>().ok_or(ProxyHeaderError::Malformed)?;
                Self::Client(
                    (Ipv6Addr::from(*address), u16::from_be_bytes([content[32], content[33]])).into(),
                )
            }
            // §2.2: other families have no address that is known here.
            (1, 0x00 | 0x12 | 0x22 | 0x31 | 0x32) => Self::Own,
            _ => return Err(ProxyHeaderError::Malformed),
        };
        Ok(Some((header, FIXED + len)))
    }

    /// Reads a header from a stream, and not a byte beyond it.
    ///
    /// # Errors
    /// If the stream ends or fails before, or has no header.
    pub async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Self> {
        let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let mut bytes = vec![0; SHORTEST];
        stream.read_exact(&mut bytes).await?;
        loop {
            if let Some((header, _)) = Self::parse(&bytes).map_err(invalid)? {
                return Ok(header);
            }
            // Version 2 tells its length. A line ends where it ends.
            let more = match bytes.get(14..FIXED) {
                Some(len) if bytes.starts_with(SIGNATURE) => {
                    FIXED + usize::from(u16::from_be_bytes([len[0], len[1]])) - bytes.len()
                }
                _ => 1,
            };
            let read = bytes.len();
            bytes.resize(read + more.max(1), 0);
            stream.read_exact(bytes.get_mut(read..).unwrap_or_default()).await?;
        }
    }

    /// Returns the header's bytes. `to` is the address that the client has asked for.
    ///
    /// Addresses of two families are those of IPv6, as a header has one.
    pub fn write(self, version: ProxyVersion, to: SocketAddr) -> Vec<u8> {
        let pair = match self {
            Self::Own => None,
            Self::Client(from) => {
                let (from_ip, to_ip) = (from.ip().to_canonical(), to.ip().to_canonical());
                Some(match (from_ip, to_ip) {
                    (IpAddr::V4(_), IpAddr::V4(_)) | (IpAddr::V6(_), IpAddr::V6(_)) => {
                        (from_ip, to_ip, from.port())
                    }
                    (IpAddr::V4(from_ip), _) => (from_ip.to_ipv6_mapped().into(), to_ip, from.port()),
                    (_, IpAddr::V4(to_ip)) => (from_ip, to_ip.to_ipv6_mapped().into(), from.port()),
                })
            }
        };
        match (version, pair) {
            (ProxyVersion::V1, None) => b"PROXY UNKNOWN\r\n".to_vec(),
            (ProxyVersion::V1, Some((from, target, port))) => {
                let family = if from.is_ipv4() { "TCP4" } else { "TCP6" };
                format!("PROXY {family} {from} {target} {port} {}\r\n", to.port()).into_bytes()
            }
            (ProxyVersion::V2, pair) => {
                let mut content = Vec::new();
                let (command, family) = match pair {
                    None => (0x20, 0x00),
                    Some((from, target, port)) => {
                        for address in [from, target] {
                            match address {
                                IpAddr::V4(address) => content.extend_from_slice(&address.octets()),
                                IpAddr::V6(address) => content.extend_from_slice(&address.octets()),
                            }
                        }
                        content.extend_from_slice(&port.to_be_bytes());
                        content.extend_from_slice(&to.port().to_be_bytes());
                        (0x21, if from.is_ipv4() { 0x11 } else { 0x21 })
                    }
                };
                let mut header = SIGNATURE.to_vec();
                header.extend_from_slice(&[command, family]);
                header.extend_from_slice(&u16::try_from(content.len()).unwrap_or(0).to_be_bytes());
                header.extend_from_slice(&content);
                header
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Option<(ProxyHeader, usize)>, ProxyHeaderError> {
        ProxyHeader::parse(bytes)
    }

    #[test]
    fn lines_are_read_as_they_are_specified() {
        let own = |text: &str| parse(text.as_bytes()) == Ok(Some((ProxyHeader::Own, text.len())));
        assert!(own("PROXY UNKNOWN\r\n") && own("PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n"));
        let long = "PROXY TCP6 ffff:f:f:f:f:f:f:ffff ffff:f:f:f:f:f:f:ffff 65535 65535\r\n";
        let client = "[ffff:f:f:f:f:f:f:ffff]:65535".parse().unwrap();
        assert_eq!(parse(long.as_bytes()), Ok(Some((ProxyHeader::Client(client), long.len()))));
        for wrong in [
            "PROXY TCP4 192.0.2.1 198.51.100.1 1\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 2 3\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 +1 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 01 2\r\n",
            "PROXY TCP4 192.0.2.1 198.51.100.1 1 65536\r\n",
            "PROXY TCP4 ::1 ::2 1 2\r\n",
            "PROXY TCP6 192.0.2.1 198.51.100.1 1 2\r\n",
            "PROXY  TCP4 192.0.2.1 198.51.100.1 1 2\r\n",
            "PROXY UDP4 192.0.2.1 198.51.100.1 1 2\r\n",
            "PROXY \r\n",
        ] {
            assert_eq!(parse(wrong.as_bytes()), Err(ProxyHeaderError::Malformed), "{wrong}");
        }
        assert_eq!(
            parse(format!("PROXY UNKNOWN {}", "x".repeat(93)).as_bytes()),
            Err(ProxyHeaderError::Malformed)
        );
        for other in ["GET / HTTP/1.1\r\n", "\r\n\r\nGET", "\x16\x03\x01", "PROXYTCP4"] {
            assert_eq!(parse(other.as_bytes()), Err(ProxyHeaderError::Absent), "{other:?}");
        }
    }

    #[test]
    fn extensions_are_skipped_and_the_length_is_bounded() {
        let client = "192.0.2.1:5000".parse().unwrap();
        let mut header =
            ProxyHeader::Client(client).write(ProxyVersion::V2, "198.51.100.1:443".parse().unwrap());
        header[15] += 4;
        header.extend_from_slice(&[4, 0, 1, 9]);
        assert_eq!(parse(&header), Ok(Some((ProxyHeader::Client(client), 32))));
        header[14] = 0x11;
        assert_eq!(parse(&header), Err(ProxyHeaderError::Malformed));
        for (at, value) in [(12, 0x11), (12, 0x22), (13, 0x13), (15, 11)] {
            let mut wrong = ProxyHeader::Client(client).write(ProxyVersion::V2, client);
            wrong[at] = value;
            assert_eq!(parse(&wrong), Err(ProxyHeaderError::Malformed), "{at} {value}");
        }
    }

    fn address() -> impl Strategy<Value = SocketAddr> {
        (any::<bool>(), any::<u128>(), any::<u16>()).prop_map(|(is_v4, bits, port)| match is_v4 {
            true => (Ipv4Addr::from_bits(u32::try_from(bits >> 96).unwrap()), port).into(),
            false => (Ipv6Addr::from_bits(bits), port).into(),
        })
    }

    proptest! {
        #[test]
        fn headers_are_read_as_they_were_written(
            from in address(),
            to in address(),
            is_binary in any::<bool>(),
            rest in proptest::collection::vec(any::<u8>(), 0..40),
        ) {
            let version = if is_binary { ProxyVersion::V2 } else { ProxyVersion::V1 };
            for header in [ProxyHeader::Own, ProxyHeader::Client(from)] {
                let written = header.write(version, to);
                for len in 0..written.len() {
                    prop_assert_eq!(parse(&written[..len]), Ok(None));
                }
                let (read, len) = parse(&[&written[..], &rest].concat()).unwrap().unwrap();
                prop_assert_eq!(len, written.len());
                match (read, header) {
                    (ProxyHeader::Client(read), ProxyHeader::Client(from)) => {
                        prop_assert_eq!(read.ip().to_canonical(), from.ip().to_canonical());
                        prop_assert_eq!(read.port(), from.port());
                    }
                    (read, header) => prop_assert_eq!(read, header),
                }
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                let bytes = [&written[..], &rest].concat();
                let mut stream = bytes.as_slice();
                let from_stream = runtime.block_on(ProxyHeader::read(&mut stream)).unwrap();
                prop_assert_eq!((from_stream, stream), (read, &rest[..]));
            }
        }

        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
            let _ = parse(&[SIGNATURE, &bytes[..]].concat());
            let _ = parse(&[b"PROXY ", &bytes[..]].concat());
        }
    }
}
