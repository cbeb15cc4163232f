//! Requests and their responses, many at once on one connection: what the user waits for is
//! answered first.
//!
//!     cargo run --release -p marcato-net --example request_response -- tcp
//!     cargo run --release -p marcato-net --example request_response -- quic

use std::collections::HashMap;
use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Priority, Remote,
    ServerSecurity, Trust,
};
use tokio::sync::oneshot;

type Failure = Box<dyn Error + Send + Sync>;

/// Client that sends requests and matches responses to them. Marcato does not pair messages, so a
/// number before each identifies the pair.
struct Client {
    connection: Connection,
    waiting: Arc<Mutex<Waiting>>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    responses: HashMap<u64, oneshot::Sender<Bytes>>,
}

impl Client {
    fn new(connection: Connection) -> Self {
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (reading, answered) = (connection.clone(), Arc::clone(&waiting));
        tokio::spawn(async move {
            while let Ok(mut message) = reading.recv().await {
                let Ok(number) = message.bytes.try_get_u64() else { continue };
                let response =
                    answered.lock().unwrap_or_else(PoisonError::into_inner).responses.remove(&number);
                if let Some(response) = response {
                    let _ = response.send(message.bytes);
                }
            }
            // No response will arrive any more, so all waiting requests fail.
            answered.lock().unwrap_or_else(PoisonError::into_inner).responses.clear();
        });
        Self { connection, waiting }
    }

    /// Sends a request of this priority, and returns the response.
    async fn ask(&self, priority: Priority, request: &[u8]) -> Result<Bytes, Failure> {
        let (sender, response) = oneshot::channel();
        let number = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.next += 1;
            let number = waiting.next;
            waiting.responses.insert(number, sender);
            number
        };
        self.connection.send(Message::new(numbered(number, request)).with_priority(priority)).await?;
        Ok(response.await?)
    }
}

fn numbered(number: u64, body: &[u8]) -> Bytes {
    let mut message = BytesMut::with_capacity(8 + body.len());
    message.put_u64(number);
    message.put_slice(body);
    message.freeze()
}

/// Answers each request at its own priority, with the number of bytes that it asks for.
async fn serve(connection: Connection) {
    while let Ok(mut request) = connection.recv().await {
        let (Ok(number), Ok(len)) = (request.bytes.try_get_u64(), request.bytes.try_get_u32()) else {
            continue;
        };
        let connection = connection.clone();
        // Each response has a separate task: one that waits for room at its level delays none at
        // another.
        tokio::spawn(async move {
            let body = vec![0; usize::try_from(len).unwrap_or(0)];
            let response = Message::new(numbered(number, &body)).with_priority(request.priority);
            connection.send(response).await
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

    let client = Arc::new(Client::new(Endpoint::connect(&config, &remote).await?));
    // Forty backups of 5 MB each, and then a page of 20 kB.
    let backups: Vec<_> = (0..40)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move {
                let began = Instant::now();
                client.ask(Priority::P4, &5_000_000u32.to_be_bytes()).await.map(|_| began.elapsed())
            })
        })
        .collect();
    // Waits until they are in flight.
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    let began = Instant::now();
    let page = client.ask(Priority::P0, &20_000u32.to_be_bytes()).await?;
    println!("{engine:?}: the page of {} bytes came in {:.2?}", page.len(), began.elapsed());
    let mut slowest = std::time::Duration::ZERO;
    for backup in backups {
        slowest = slowest.max(backup.await??);
    }
    println!("40 backups of 5 MB came in {slowest:.2?}");
    Ok(())
}
