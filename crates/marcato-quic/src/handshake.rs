//! Handshakes of the engine's TLS, observed for what the engine does not report.
//!
//! The engine's TLS session hides whether it was resumed. The bytes of the handshake tell: a server
//! that resumes a session presents no certificate (RFC 8446 §2.2).

use std::any::Any;

use noq_proto::crypto::rustls::{HandshakeData, QuicClientConfig, QuicServerConfig};
use noq_proto::crypto::{
    ClientConfig, ExportKeyingMaterialError, HeaderKey, KeyPair, Keys, PacketKey, ServerConfig, Session,
    UnsupportedVersion,
};
use noq_proto::transport_parameters::TransportParameters;
use noq_proto::{ConnectError, ConnectionId, Side, TransportError};

/// Results of a handshake.
#[derive(Debug)]
pub(crate) struct Results {
    /// Protocol of the application.
    pub(crate) protocol: Option<Vec<u8>>,
    /// Set if an earlier session was resumed.
    pub(crate) resumed: bool,
    /// Name of the server that a client has asked for, at the server (RFC 6066 §3).
    pub(crate) server_name: Option<String>,
}

/// Configuration of a client whose handshakes are observed.
pub(crate) struct ObservedClient(pub(crate) QuicClientConfig);

/// Configuration of a server whose handshakes are observed.
pub(crate) struct ObservedServer(pub(crate) QuicServerConfig);

impl ClientConfig for ObservedClient {
    fn start_session(
        &self,
        version: u32,
        server_name: &str,
        params: &TransportParameters,
    ) -> Result<Box<dyn Session>, ConnectError> {
        let tls = self.0.start_session(version, server_name, params)?;
        Ok(Box::new(Observed { tls, of_server: Messages::default(), side: Side::Client }))
    }
}

impl ServerConfig for ObservedServer {
    fn initial_keys(&self, version: u32, dst_cid: ConnectionId) -> Result<Keys, UnsupportedVersion> {
        self.0.initial_keys(version, dst_cid)
    }

    fn retry_tag(&self, version: u32, orig_dst_cid: ConnectionId, packet: &[u8]) -> [u8; 16] {
        self.0.retry_tag(version, orig_dst_cid, packet)
    }

    fn start_session(&self, version: u32, params: &TransportParameters) -> Box<dyn Session> {
        let tls = self.0.start_session(version, params);
        Box::new(Observed { tls, of_server: Messages::default(), side: Side::Server })
    }
}

/// Session of the engine's TLS whose handshake is observed.
struct Observed {
    tls: Box<dyn Session>,
    /// Messages of the server.
    of_server: Messages,
    side: Side,
}

impl Session for Observed {
    fn initial_keys(&self, dst_cid: ConnectionId, side: Side) -> Keys {
        self.tls.initial_keys(dst_cid, side)
    }

    fn handshake_data(&self) -> Option<Box<dyn Any>> {
        let data = self.tls.handshake_data()?.downcast::<HandshakeData>().ok()?;
        let resumed = !self.tls.is_handshaking() && !self.of_server.certificate;
        Some(Box::new(Results { protocol: data.protocol, resumed, server_name: data.server_name }))
    }

    fn peer_identity(&self) -> Option<Box<dyn Any>> {
        self.tls.peer_identity()
    }

    fn early_crypto(&self) -> Option<(Box<dyn HeaderKey>, Box<dyn PacketKey>)> {
        self.tls.early_crypto()
    }

    fn early_data_accepted(&self) -> Option<bool> {
        self.tls.early_data_accepted()
    }

    fn is_handshaking(&self) -> bool {
        self.tls.is_handshaking()
    }

    fn read_handshake(&mut self, buf: &[u8]) -> Result<bool, TransportError> {
        if self.side.is_client() {
            self.of_server.feed(buf);
        }
        self.tls.read_handshake(buf)
    }

    fn transport_parameters(&self) -> Result<Option<TransportParameters>, TransportError> {
        self.tls.transport_parameters()
    }

    fn write_handshake(&mut self, buf: &mut Vec<u8>) -> Option<Keys> {
        let before = buf.len();
        let keys = self.tls.write_handshake(buf);
        if self.side.is_server() {
            self.of_server.feed(buf.get(before..).unwrap_or_default());
        }
        keys
    }

    fn next_1rtt_keys(&mut self) -> Option<KeyPair<Box<dyn PacketKey>>> {
        self.tls.next_1rtt_keys()
    }

    fn is_valid_retry(&self, orig_dst_cid: ConnectionId, header: &[u8], payload: &[u8]) -> bool {
        self.tls.is_valid_retry(orig_dst_cid, header, payload)
    }

    fn export_keying_material(
        &self,
        output: &mut [u8],
        label: &[u8],
        context: &[u8],
    ) -> Result<(), ExportKeyingMaterialError> {
        self.tls.export_keying_material(output, label, context)
    }
}

/// Reader of the messages in one direction of a handshake (RFC 8446 §4).
#[derive(Debug, Default)]
struct Messages {
    /// Header of the message that is being read, and the number of its bytes that have come.
    header: [u8; 4],
    read: usize,
    /// Bytes of the message that are still to come.
    rest: usize,
    /// Set once there was a certificate.
    certificate: bool,
}

impl Messages {
    /// Reads further bytes.
    fn feed(&mut self, mut bytes: &[u8]) {
        while let Some((first, after)) = bytes.split_first() {
            if self.rest > 0 {
                let skipped = self.rest.min(bytes.len());
                self.rest -= skipped;
                bytes = &bytes[skipped..];
                continue;
            }
            self.header[self.read] = *first;
            self.read += 1;
            bytes = after;
            if self.read == self.header.len() {
                let [kind, len @ ..] = self.header;
                // RFC 8446 §4.4.2 and RFC 8879 §4.
                self.certificate |= matches!(kind, 11 | 25);
                self.rest = len.iter().fold(0, |len, byte| len << 8 | usize::from(*byte));
                self.read = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_found_in_pieces_of_any_size() {
        // EncryptedExtensions, Certificate, Finished; the first and last with bytes like headers.
        let certificate = [8, 0, 0, 5, 11, 0, 0, 1, 11, 11, 0, 0, 2, 7, 7, 20, 0, 0, 4, 11, 0, 0, 1];
        let resumed = [8, 0, 0, 5, 11, 0, 0, 1, 11, 20, 0, 0, 4, 11, 0, 0, 1];
        let empty = [8, 0, 0, 0, 11, 0, 0, 0];
        for (bytes, expected) in [(&certificate[..], true), (&resumed[..], false), (&empty[..], true)] {
            for size in 1..=bytes.len() {
                let mut messages = Messages::default();
                bytes.chunks(size).for_each(|piece| messages.feed(piece));
                assert_eq!(messages.certificate, expected, "in pieces of {size}");
                assert_eq!((messages.read, messages.rest), (0, 0));
            }
        }
    }
}
