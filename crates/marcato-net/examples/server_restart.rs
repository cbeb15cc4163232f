//! Readings that reach a server although it restarts: the client connects again, and offers again
//! what the server's application has not taken.
//!
//!     cargo run --release -p marcato-net --example server_restart -- tcp
//!     cargo run --release -p marcato-net --example server_restart -- quic

use std::collections::BTreeSet;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use marcato_net::{
    ClientSecurity, Config, Endpoint, Engine, Identity, Message, Priority, ReconnectConfig, Reconnecting,
    ReconnectingStats, Remote, ServerSecurity, Trust,
};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

type Failure = Box<dyn Error + Send + Sync>;

const NAME: &str = "readings.example";

/// Listens, as soon as the system has released the address.
async fn listen(config: &Config, addr: SocketAddr, identity: &Identity) -> Endpoint {
    loop {
        match Endpoint::listen(config, &[addr.into()], &ServerSecurity::Tls(identity.clone())).await {
            Ok(endpoint) => return endpoint,
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// Passes on the readings of one client after the other, until it has taken `most`. It breaks off its
/// connection then, whatever is on its way.
fn serve(endpoint: Endpoint, most: u32, taken: mpsc::UnboundedSender<u32>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut left = most;
        while let Ok(connection) = endpoint.accept().await {
            while left > 0
                && let Ok(message) = connection.recv().await
            {
                let number = message.bytes[..].try_into().map_or(u32::MAX, u32::from_be_bytes);
                let _ = taken.send(number);
                left -= 1;
            }
            if left == 0 {
                return;
            }
        }
    })
}

/// Sends as many readings, and waits until the server's application has taken each.
async fn send(client: Reconnecting, readings: u32) -> Result<ReconnectingStats, Failure> {
    let mut sent = Vec::new();
    for number in 0..readings {
        let reading = Message::new(number.to_be_bytes().to_vec()).with_priority(Priority::P3);
        // The transport of a server that restarts may have acknowledged what its application never saw.
        sent.push(client.send(reading.with_receipt()).await?);
    }
    for reading in &mut sent {
        reading.received().await?;
    }
    let stats = client.stats();
    client.close().await?;
    Ok(stats)
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Report {
    /// Different readings that the server's application took.
    pub(crate) taken: usize,
    /// Readings that it took more than once: delivery is at least once.
    pub(crate) repeated: usize,
    /// Counters of the client.
    pub(crate) client: ReconnectingStats,
}

/// Sends readings to a server that restarts after it has taken half of them.
///
/// # Errors
///
/// If the client ends before the server has taken all.
pub(crate) async fn run(engine: Engine, readings: u32) -> Result<Report, Failure> {
    let config = Config::new(engine);
    let identity = Identity::self_signed(NAME)?;
    let trust = Trust::Certificate(identity.certificate().ok_or("it has a certificate")?.clone());
    let endpoint = listen(&config, ([127, 0, 0, 1], 0).into(), &identity).await;
    let addr = endpoint.local_addrs()[0];
    let (taken, mut readings_taken) = mpsc::unbounded_channel();
    let server = serve(endpoint, readings / 2, taken.clone());

    let settings = ReconnectConfig { first: Duration::from_millis(10), ..ReconnectConfig::default() };
    let remote = Remote::new(addr, ClientSecurity::trusting(NAME, trust));
    let client = tokio::spawn(send(Reconnecting::new(&config, remote, &settings)?, readings));

    server.await?;
    let server = serve(listen(&config, addr, &identity).await, u32::MAX, taken);

    let client = client.await??;
    server.abort();
    let _ = server.await;
    let mut all = Vec::new();
    while let Some(number) = readings_taken.recv().await {
        all.push(number);
    }
    let different: BTreeSet<u32> = all.iter().copied().collect();
    Ok(Report { taken: different.len(), repeated: all.len() - different.len(), client })
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let engine = match std::env::args().nth(1).as_deref() {
        Some("tcp") => Engine::Tcp,
        Some("quic") | None => Engine::Quic,
        Some(other) => return Err(format!("{other:?} is no engine: say tcp or quic").into()),
    };
    let Report { taken, repeated, client } = run(engine, 10_000).await?;
    println!("{engine}: {taken} of 10000 readings were taken, {repeated} of them again");
    println!("{} connections, {} messages offered again", client.connections, client.offered_again);
    Ok(())
}
