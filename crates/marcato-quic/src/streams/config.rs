//! Protocol of a session, and its configuration for plain streams.

use marcato_sched::exchange;
use marcato_units::Bytes;

/// Protocol that a session speaks above QUIC.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// Messages of Marcato (docs/wire.md).
    #[default]
    Messages,
    /// Plain streams and datagrams of another application protocol.
    Streams(Box<StreamsConfig>),
}

impl Protocol {
    /// Returns the configuration of plain streams, if that is the protocol.
    pub(crate) const fn streams(&self) -> Option<&StreamsConfig> {
        match self {
            Self::Messages => None,
            Self::Streams(config) => Some(config),
        }
    }

    /// Names of the application protocol for TLS (RFC 7301).
    pub(crate) fn alpn(&self) -> Vec<Vec<u8>> {
        match self {
            Self::Messages => vec![marcato_wire::ALPN.to_vec()],
            Self::Streams(config) => config.alpn.clone(),
        }
    }
}

/// Configuration of plain streams.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamsConfig {
    /// Names of the application protocol, the preferred one first (RFC 7301).
    pub alpn: Vec<Vec<u8>>,
    /// Bidirectional streams that the peer may have open.
    pub max_bidirectional: u32,
    /// Unidirectional streams that the peer may have open.
    pub max_unidirectional: u32,
    /// Negotiates several paths (draft-ietf-quic-multipath), for lanes beyond the first.
    pub multipath: bool,
    /// Order of the streams. Its limits of responses and staged bytes are replaced by those of
    /// this configuration.
    pub order: exchange::Config,
    /// Most streams of this end that have unsent data or are not wholly acknowledged.
    pub max_sending: usize,
    /// Most bytes of one stream that wait to be handed to the engine.
    pub stream_buffer: Bytes,
    /// Most bytes of all streams and datagrams that wait to be handed to the engine. Each stream may exceed it by 4 KiB, so
    /// that background without credit does not exclude urgent streams.
    pub buffer: Bytes,
    /// Most datagrams that wait to be sent.
    pub max_datagrams: usize,
}

impl StreamsConfig {
    /// Creates the configuration of an application protocol of this name: 100 streams of either kind from the
    /// peer, one path, 256 KiB waiting for each stream and 8 MiB for all, 4096 streams that send, 256 datagrams.
    pub fn new(alpn: impl Into<Vec<u8>>) -> Self {
        Self {
            alpn: vec![alpn.into()],
            max_bidirectional: 100,
            max_unidirectional: 100,
            multipath: false,
            order: exchange::Config::default(),
            max_sending: 4096,
            stream_buffer: Bytes::new(256 << 10),
            buffer: Bytes::new(8 << 20),
            max_datagrams: 256,
        }
    }

    /// Returns the configuration of the order, with this one's limits.
    pub(crate) fn exchange(&self) -> exchange::Config {
        exchange::Config {
            max_responses: self.max_sending.saturating_add(self.max_datagrams),
            max_staged: self.stream_buffer,
            ..self.order
        }
    }

    pub(crate) fn validate(&self) -> Result<(), StreamsConfigError> {
        if self.alpn.is_empty() || self.alpn.iter().any(|name| name.is_empty() || name.len() > 255) {
            return Err(StreamsConfigError::Alpn);
        }
        for (what, zero) in [
            ("max_sending", self.max_sending == 0),
            ("stream_buffer", self.stream_buffer.is_zero()),
            ("buffer", self.buffer.is_zero()),
        ] {
            if zero {
                return Err(StreamsConfigError::Zero { what });
            }
        }
        exchange::Exchange::new(self.exchange())?;
        Ok(())
    }
}

/// Error returned for an invalid configuration of plain streams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StreamsConfigError {
    /// There is no name of the application protocol, or one has a length that TLS does not allow.
    #[error("QUIC needs the name of an application protocol: set `alpn` to names of 1 to 255 bytes")]
    Alpn,
    /// A limit is zero.
    #[error("`{what}` is zero, so nothing could be sent: set at least 1")]
    Zero {
        /// Name of the limit.
        what: &'static str,
    },
    /// The rules of the order are invalid.
    #[error("invalid order of streams: {0}")]
    Order(#[from] exchange::ConfigError),
}
