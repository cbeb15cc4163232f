//! Requests and their replies, many at once on one connection: what the user waits for is
//! answered first.
//!
//!     cargo run --release -p marcato-net --example request_response -- tcp
//!     cargo run --release -p marcato-net --example request_response -- quic

use std::error::Error;
use std::time::Instant;

use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Priority, Remote, RequestError,
    ServerSecurity, Trust,
};

type Failure = Box<dyn Error + Send + Sync>;

/// Requests this many bytes at this priority, and returns the number received.
async fn ask(connection: &Connection, priority: Priority, len: u32) -> Result<usize, RequestError> {
    let request = Message::new(len.to_be_bytes().to_vec()).with_priority(priority);
    Ok(connection.request(request).await?.bytes.len())
}

/// Answers each request at its own priority, with the number of bytes that it asks for.
async fn serve(connection: Connection) {
    while let Ok(request) = connection.accept_request().await {
        // Each reply has a separate task: one that waits for room at its level delays none at
        // another.
        tokio::spawn(async move {
            // A request that is dropped fails at the client.
            let Ok(len) = request.message().bytes[..].try_into().map(u32::from_be_bytes) else { return };
            let body = vec![0; usize::try_from(len).unwrap_or(0)];
            let priority = request.message().priority;
            let _ = request.reply(Message::new(body).with_priority(priority)).await;
        });
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let engine = match std::env::args().nth(1).as_deref() {
        Some("tcp") => Engine::Tcp,
        Some("quic") | None => Engine::Quic,
        Some(other) => return Err(format!("{other:?} is no engine: say tcp or quic").into()),
    };
    let config = Config::new(engine);
    let identity = Identity::self_signed("files.example")?;
    let trust = Trust::Certificate(identity.certificate().ok_or("it has a certificate")?.clone());
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    let endpoint = Endpoint::listen(&config, &[any.into()], &ServerSecurity::Tls(identity)).await?;
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("files.example", trust));
    tokio::spawn(async move {
        while let Ok(connection) = endpoint.accept().await {
            tokio::spawn(serve(connection));
        }
    });

    let client = Endpoint::connect(&config, &remote).await?;
    // Forty backups of 5 MB each, and then a page of 20 kB.
    let backups: Vec<_> = (0..40)
        .map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let began = Instant::now();
                ask(&client, Priority::P4, 5_000_000).await.map(|_| began.elapsed())
            })
        })
        .collect();
    // Waits until they are in flight.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let began = Instant::now();
    let page = ask(&client, Priority::P0, 20_000).await?;
    println!("{engine:?}: the page of {page} bytes came in {:.2?}", began.elapsed());
    let mut slowest = std::time::Duration::ZERO;
    for backup in backups {
        slowest = slowest.max(backup.await??);
    }
    println!("40 backups of 5 MB came in {slowest:.2?}");
    Ok(())
}
