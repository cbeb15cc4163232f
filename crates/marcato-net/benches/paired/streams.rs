//! Plain streams of `marcato-net`: bulk data on one stream, each urgent message on a separate one of greater
//! urgency, as with the other engines.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use bytes::Bytes as Payload;
use marcato_net::streams::{
    Connection, Endpoint, Parameters, RecvStream, SendStream, StreamsConfig, Urgency,
};
use marcato_net::{Bytes, ClientSecurity, Remote, ServerSecurity};
use marcato_quic::{Identity, Trust};
use rustls::pki_types::CertificateDer;
use tokio::sync::Mutex;

use crate::body::{Kind, Tally, Unframer, framed};
use crate::quic::{RECEIVE_WINDOW, SEND_WINDOW, STREAM_WINDOW};
use crate::worker::{Ahead, Failure, Flow, NAME, Work};

fn config(mtu: u16) -> StreamsConfig {
    let mut config = StreamsConfig::new("paired");
    let session = &mut config.transport.quic.session;
    session.loopback_mtu = mtu;
    session.stream_window = Bytes::new(STREAM_WINDOW);
    session.receive_window = Bytes::new(RECEIVE_WINDOW.into());
    session.send_window = Bytes::new(SEND_WINDOW);
    config
}

pub(crate) async fn receive(
    at: IpAddr,
    identity: &Identity,
    tally: Arc<Tally>,
    mtu: u16,
) -> Result<SocketAddr, Failure> {
    let security = ServerSecurity::Tls(identity.clone());
    let endpoint = Endpoint::listen(&config(mtu), &[SocketAddr::new(at, 0).into()], &security).await?;
    let addr = endpoint.local_addrs()[0];
    tokio::spawn(async move {
        let Ok(connection) = endpoint.accept().await else { return };
        while let Ok(stream) = connection.accept_uni().await {
            tokio::spawn(read(stream, Arc::clone(&tally)));
        }
    });
    Ok(addr)
}

async fn read(mut stream: RecvStream, tally: Arc<Tally>) {
    let mut unframer = Unframer::default();
    while let Ok(Some(chunk)) = stream.read_chunk(usize::MAX).await {
        unframer.feed(&chunk, &tally);
    }
}

pub(crate) async fn connect(
    to: SocketAddr,
    certificate: CertificateDer<'static>,
    mtu: u16,
) -> Result<Arc<dyn Flow>, Failure> {
    let security = ClientSecurity::trusting(NAME, Trust::Certificate(certificate));
    let connection = Endpoint::connect(&config(mtu), Remote::new(to, security)).await?;
    let mut bulk = connection.open_uni().await?;
    bulk.set_order(Parameters::sequential(Urgency::LEAST));
    Ok(Arc::new(Streams { connection, bulk: Mutex::new(bulk) }))
}

struct Streams {
    connection: Connection,
    bulk: Mutex<SendStream>,
}

impl Flow for Streams {
    fn bulk(&self, body: Payload) -> Work<'_> {
        Box::pin(async move {
            let mut stream = self.bulk.lock().await;
            let mut head = framed(Kind::Bulk, &[])[..1].to_vec();
            head.extend_from_slice(&u32::try_from(body.len())?.to_be_bytes());
            stream.write_chunk(head.into()).await?;
            stream.write_chunk(body).await?;
            Ok(())
        })
    }

    fn urgent(&self, body: Payload) -> Work<'_> {
        Box::pin(async move {
            let mut stream = self.connection.open_uni().await?;
            stream.set_order(Parameters::sequential(Urgency::MOST));
            stream.write_chunk(framed(Kind::Urgent, &body)).await?;
            stream.finish()?;
            Ok(())
        })
    }

    fn ahead(&self) -> Ahead {
        let Some(lane) = self.connection.stats().lanes.first().copied() else { return Ahead::default() };
        Ahead { in_flight: lane.in_flight.get(), unsent: lane.backlog.get(), lost: lane.lost }
    }
}
