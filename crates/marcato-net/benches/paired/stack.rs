//! Stacks that are measured and compared.
//!
//! Each has a file beside this one, which implements `Flow` for the sending end and fills a `Tally` at the
//! receiving end. Each end is a process, which ends when its standard input does.

/// Stack that carries bulk data and urgent messages from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// `marcato-net` over QUIC with its defaults: batches of up to ten packets.
    MarcatoQuic,
    /// `marcato-net` over QUIC, one packet at a time.
    MarcatoQuicOne,
    /// Plain streams of `marcato-net`, with batches of up to ten packets.
    MarcatoStreams,
    /// The engine with its own sockets and tasks, up to ten datagrams per poll.
    Noq,
    /// The engine with its own sockets and tasks, one datagram per poll.
    NoqOne,
    /// Quinn, the usual alternative.
    Quinn,
    /// `marcato-net` over TCP, without TLS.
    MarcatoTcp,
    /// `marcato-net` over TCP, with TLS.
    MarcatoTcpTls,
    /// `marcato-net` over TCP, with TLS and BBR instead of CUBIC.
    MarcatoTcpTlsBbr,
    /// Plain writes.
    Tcp,
    /// Plain writes to TLS.
    TcpTls,
    /// Plain writes to TLS, with a second connection for urgent messages.
    TcpTlsTwo,
}

impl Stack {
    pub(crate) const ALL: [Self; 12] = [
        Self::MarcatoQuic,
        Self::MarcatoQuicOne,
        Self::MarcatoStreams,
        Self::Noq,
        Self::NoqOne,
        Self::Quinn,
        Self::MarcatoTcp,
        Self::MarcatoTcpTls,
        Self::MarcatoTcpTlsBbr,
        Self::Tcp,
        Self::TcpTls,
        Self::TcpTlsTwo,
    ];

    /// Returns the name used in rows and between processes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MarcatoQuic => "marcato-quic",
            Self::MarcatoQuicOne => "marcato-quic-one",
            Self::MarcatoStreams => "marcato-streams",
            Self::Noq => "noq",
            Self::NoqOne => "noq-one",
            Self::Quinn => "quinn",
            Self::MarcatoTcp => "marcato-tcp",
            Self::MarcatoTcpTls => "marcato-tcp-tls",
            Self::MarcatoTcpTlsBbr => "marcato-tcp-tls-bbr",
            Self::Tcp => "tcp",
            Self::TcpTls => "tcp-tls",
            Self::TcpTlsTwo => "tcp-tls-two",
        }
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stack| stack.name() == name)
    }

    /// Returns a description for readers.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::MarcatoQuic => "Marcato QUIC, batches",
            Self::MarcatoQuicOne => "Marcato QUIC, one by one",
            Self::MarcatoStreams => "Marcato streams",
            Self::Noq => "noq, 10 a poll",
            Self::NoqOne => "noq, 1 a poll",
            Self::Quinn => "quinn",
            Self::MarcatoTcp => "Marcato TCP, no TLS",
            Self::MarcatoTcpTls => "Marcato TCP",
            Self::MarcatoTcpTlsBbr => "Marcato TCP, BBR",
            Self::Tcp => "plain TCP, no TLS",
            Self::TcpTls => "plain TCP",
            Self::TcpTlsTwo => "plain TCP, 2 connections",
        }
    }

    pub(crate) const fn is_tls(self) -> bool {
        !matches!(self, Self::MarcatoTcp | Self::Tcp)
    }

    /// Returns whether it is Marcato, which reports the bytes in flight.
    pub(crate) const fn is_marcato(self) -> bool {
        matches!(
            self,
            Self::MarcatoQuic
                | Self::MarcatoQuicOne
                | Self::MarcatoTcp
                | Self::MarcatoTcpTls
                | Self::MarcatoTcpTlsBbr
        )
    }
}
