//! Critical telemetry over two interfaces, with a background upload on the same connection. Room
//! for each reading is kept in the congestion window, so that it leaves at once when it is due.
//!
//!     cargo run --release -p marcato-net --example telemetry
//!
//! Here both lanes are on loopback. On a machine with two interfaces, give each lane the address of
//! one (`LaneConfig::from`), for example of the mobile network and of the wireless one.

use std::error::Error;
use std::net::SocketAddr;

use marcato_net::{
    AcceptError, Bytes, ClientSecurity, Config, Connection, Duration, Endpoint, Identity, LaneConfig,
    LongMessages, Message, Priority, Remote, ServerSecurity, Source, SourceKey, Trust,
};

/// Period of a reading of 3 kB, as in CWR's example.
const PERIOD: Duration = Duration::from_millis(100);
const READING: usize = 3000;
const READINGS: usize = 50;
/// Identifier of the source on this connection.
const SENSOR: SourceKey = SourceKey(1);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let config = Config::default();
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();

    // The server has two addresses, because each lane needs its own.
    let identity = Identity::self_signed("plant.example")?;
    let trust = Trust::Certificate(identity.certificate().ok_or("it has a certificate")?.clone());
    let at = [any.into(), any.into()];
    let mut receiving = config.clone();
    // The upload is received piece by piece, too.
    receiving.limits.long_messages = LongMessages::Stream;
    let endpoint = Endpoint::listen(&receiving, &at, &ServerSecurity::Tls(identity)).await?;
    let addrs = endpoint.local_addrs().to_vec();
    let server = tokio::spawn(async move {
        let connection = endpoint.accept().await?;
        tokio::spawn(keep(connection.clone()));
        let mut readings = 0;
        while let Ok(message) = connection.recv().await {
            readings += usize::from(message.priority == Priority::P0);
        }
        Ok::<_, AcceptError>(readings)
    });

    // The client leaves by both of its interfaces.
    let remote = Remote::new(addrs[0], ClientSecurity::trusting("plant.example", trust))
        .and_lane(LaneConfig::new(addrs[1]).from(any));
    let connection = Endpoint::connect(&config, &remote).await?;
    let upload = tokio::spawn(upload(connection.clone()));

    // The first reading is due in one period, and each is announced by the one before.
    let source = Source::new(PERIOD, Bytes::new(READING as u64), connection.now() + PERIOD);
    connection.reserve(SENSOR, source)?;
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + PERIOD, PERIOD);
    let mut delays = Vec::new();
    let mut late = 0;
    for _ in 0..READINGS {
        let due = ticks.tick().await;
        let reading = Message::new(vec![0; READING])
            .with_priority(Priority::P0)
            .with_lifetime(PERIOD)
            .from_source(SENSOR);
        let mut reading = connection.send(reading).await?;
        match reading.acknowledged().await {
            Ok(()) => delays.push(due.elapsed()),
            // The next reading is due, so this one is obsolete.
            Err(_) => late += 1,
        }
    }
    connection.release(SENSOR);
    upload.abort();
    delays.sort();
    for lane in connection.stats().lanes {
        println!(
            "lane {:?}: {} packets, {:.2} % lost, srtt {:.2?}, window {}",
            lane.local,
            lane.sent,
            lane.loss() * 100.0,
            lane.srtt,
            lane.cwnd
        );
    }
    // The rest of the upload is discarded.
    connection.abort();
    let arrived = server.await??;
    let at =
        |part: usize| delays.get(delays.len().saturating_sub(1) * part / 100).copied().unwrap_or_default();
    println!(
        "{arrived} readings arrived, {late} too late; there and acknowledged in {:.2?} (median), {:.2?} (worst)",
        at(50),
        at(100)
    );
    Ok(())
}

/// Receives uploads.
async fn keep(connection: Connection) {
    while let Ok(mut file) = connection.accept_long().await {
        while let Ok(Some(_piece)) = file.next().await {}
    }
}

/// Uploads background data without end.
async fn upload(connection: Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
    let mut file = connection.send_long(Priority::P4)?;
    let piece = bytes::Bytes::from(vec![7; 1 << 20]);
    loop {
        // Waits while a megabyte of it is queued.
        file.write(piece.clone()).await?;
    }
}
