//! What is measured, and what against.

/// One way to carry bulk data and urgent messages from one process to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stack {
    /// `marcato-net` over QUIC as it is by default: batches of up to ten packets.
    MarcatoQuic,
    /// The same, one packet at a time.
    MarcatoQuicOne,
    /// The engine with its own sockets and tasks, up to ten datagrams per poll.
    Noq,
    /// The same, one datagram per poll.
    NoqOne,
    /// What most would use instead.
    Quinn,
    /// `marcato-net` over TCP, without TLS.
    MarcatoTcp,
    /// The same, with TLS.
    MarcatoTcpTls,
    /// The same, with BBR instead of CUBIC.
    MarcatoTcpTlsBbr,
    /// Plain writes.
    Tcp,
    /// Plain writes to TLS.
    TcpTls,
    /// Plain writes to TLS, with a connection for what is urgent.
    TcpTlsTwo,
}

impl Stack {
    pub(crate) const ALL: [Self; 11] = [
        Self::MarcatoQuic,
        Self::MarcatoQuicOne,
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

    /// Its name in rows and between processes.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::MarcatoQuic => "marcato-quic",
            Self::MarcatoQuicOne => "marcato-quic-one",
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

    /// What readers are told.
    pub(crate) const fn what(self) -> &'static str {
        match self {
            Self::MarcatoQuic => "Marcato QUIC, batches",
            Self::MarcatoQuicOne => "Marcato QUIC, one by one",
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

    /// Whether it tells what is in flight.
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
