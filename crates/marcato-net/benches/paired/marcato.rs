//! `marcato-net`, over either engine.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Message, Remote, ServerSecurity, TcpCongestion,
};
use marcato_quic::{Batch, Identity, Trust};
use marcato_units::{Bytes, Priority};
use rustls::pki_types::CertificateDer;

use crate::body::Tally;
use crate::stack::Stack;
use crate::tcp;
use crate::worker::{Ahead, Failure, Flow, NAME, Purpose, Work};

fn config(stack: Stack, mtu: u16) -> Config {
    let engine = match stack {
        Stack::MarcatoQuic | Stack::MarcatoQuicOne => Engine::Quic,
        _ => Engine::Tcp,
    };
    let mut config = Config::new(engine);
    let bbr = stack == Stack::MarcatoTcpTlsBbr;
    config.tcp.congestion =
        if bbr { Some(TcpCongestion::Bbr) } else { tcp::allows("cubic").then_some(TcpCongestion::Cubic) };
    config.quic.session.loopback_mtu = mtu;
    config.quic.session.stream_window = Bytes::new(crate::quic::STREAM_WINDOW);
    if stack == Stack::MarcatoQuicOne {
        config.quic.session.batch = Batch::ONE;
    }
    config
}

pub(crate) async fn receive(
    stack: Stack,
    at: IpAddr,
    purpose: Purpose,
    identity: &Identity,
    tally: Arc<Tally>,
    mtu: u16,
) -> Result<SocketAddr, Failure> {
    let security =
        if stack.is_tls() { ServerSecurity::Tls(identity.clone()) } else { ServerSecurity::Plaintext };
    let mut config = config(stack, mtu);
    if purpose == Purpose::Bulk {
        // The limit of bytes in flight is that of the other engines' single stream. Otherwise ours
        // would lose data in slow start that they never send.
        config.quic.session.receive_window = Bytes::new(crate::quic::STREAM_WINDOW);
    }
    let endpoint = Endpoint::listen(&config, &[SocketAddr::new(at, 0).into()], &security).await?;
    let addr = endpoint.local_addrs()[0];
    tokio::spawn(async move {
        let Ok(connection) = endpoint.accept().await else { return };
        tally.watch(connection.clone());
        while let Ok(received) = connection.recv().await {
            if received.priority == Priority::P0 {
                tally.urgent(&received.bytes);
            } else {
                tally.bulk(&received.bytes);
            }
        }
    });
    Ok(addr)
}

pub(crate) async fn connect(
    stack: Stack,
    to: SocketAddr,
    certificate: CertificateDer<'static>,
    mtu: u16,
) -> Result<Arc<dyn Flow>, Failure> {
    let security = if stack.is_tls() {
        ClientSecurity::trusting(NAME, Trust::Certificate(certificate))
    } else {
        ClientSecurity::Plaintext
    };
    Ok(Arc::new(Marcato(Endpoint::connect(&config(stack, mtu), &Remote::new(to, security)).await?)))
}

struct Marcato(Connection);

impl Marcato {
    fn send(&self, body: Payload, priority: Priority) -> Work<'_> {
        Box::pin(async move {
            self.0.send(Message::new(body).with_priority(priority)).await?;
            Ok(())
        })
    }
}

impl Flow for Marcato {
    fn bulk(&self, body: Payload) -> Work<'_> {
        self.send(body, Priority::P4)
    }

    fn urgent(&self, body: Payload) -> Work<'_> {
        self.send(body, Priority::P0)
    }

    fn ahead(&self) -> Ahead {
        let Some(lane) = self.0.stats().lanes.first().copied() else { return Ahead::default() };
        Ahead { in_flight: lane.in_flight.get(), unsent: lane.backlog.get(), lost: lane.lost }
    }
}
