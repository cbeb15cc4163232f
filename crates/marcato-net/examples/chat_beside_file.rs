//! Chat and file transfer on one connection: the lines overtake the file.
//!
//!     cargo run --release -p marcato-net --example chat_beside_file -- tcp
//!     cargo run --release -p marcato-net --example chat_beside_file -- quic

use std::error::Error;
use std::time::{Duration, Instant};

use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Priority, Remote,
    ServerSecurity, Trust,
};

/// Length of the file, in messages of a megabyte.
const MEGABYTES: usize = 500;
/// Interval between lines.
const PERIOD: Duration = Duration::from_millis(5);

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let engine = match std::env::args().nth(1).as_deref() {
        Some("tcp") => Engine::Tcp,
        Some("quic") | None => Engine::Quic,
        Some(other) => return Err(format!("{other:?} is no engine: say tcp or quic").into()),
    };
    let config = Config::new(engine);

    let identity = Identity::self_signed("chat.example")?;
    let trust = Trust::Certificate(identity.certificate().ok_or("it has a certificate")?.clone());
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    let endpoint = Endpoint::listen(&config, &[any.into()], &ServerSecurity::Tls(identity)).await?;
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("chat.example", trust));

    let server = tokio::spawn(async move {
        let connection = endpoint.accept().await?;
        let (mut lines, mut file) = (0, 0);
        while let Ok(message) = connection.recv().await {
            match message.priority {
                Priority::P0 => lines += 1,
                _ => file += message.bytes.len(),
            }
        }
        Ok::<_, marcato_net::AcceptError>((lines, file))
    });

    let connection = Endpoint::connect(&config, &remote).await?;
    let began = Instant::now();
    let transfer = tokio::spawn(send_file(connection.clone()));
    let mut latencies = Vec::new();
    let mut ticks = tokio::time::interval(PERIOD);
    while !transfer.is_finished() {
        ticks.tick().await;
        let sent = Instant::now();
        let mut line = connection.send(Message::new("are you there?").with_priority(Priority::P0)).await?;
        // The server confirms each line before the next is sent.
        line.acknowledged().await?;
        latencies.push(sent.elapsed());
    }
    transfer.await??;
    let took = began.elapsed();
    connection.close().await?;

    let (lines, bytes) = server.await??;
    latencies.sort();
    let at = |part: usize| {
        latencies.get(latencies.len().saturating_sub(1) * part / 100).copied().unwrap_or_default()
    };
    println!("{engine:?}: {bytes} bytes in {took:.2?}, {:.0} MB/s", bytes as f64 / took.as_secs_f64() / 1e6);
    println!("{lines} lines, each there and acknowledged in {:.2?} (median), {:.2?} (p99)", at(50), at(99));
    Ok(())
}

async fn send_file(connection: Connection) -> Result<(), Box<dyn Error + Send + Sync>> {
    let megabyte = bytes::Bytes::from(vec![7; 1_000_000]);
    let mut last = None;
    for _ in 0..MEGABYTES {
        let message = Message::new(megabyte.clone()).with_priority(Priority::P4);
        // Waits while the P4 queue is full.
        last = Some(connection.send(message).await?);
    }
    if let Some(last) = &mut last {
        last.acknowledged().await?;
    }
    Ok(())
}
