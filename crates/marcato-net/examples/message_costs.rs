//! Processor time of messages and of requests over the loopback interface, as
//! `python/bench/transport.py` measures it from Python.
//!
//!     cargo run --release -p marcato-net --example message_costs -- quic 200000

use std::error::Error;
use std::time::{Duration, Instant};

use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Remote, ServerSecurity, Trust,
};
use rustix::time::{ClockId, clock_gettime};

type Failure = Box<dyn Error + Send + Sync>;

/// Bytes of a message.
const SIZE: usize = 100;

/// Processor time of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn print(what: &str, count: u32, since: Duration, began: Instant) {
    let micros = |span: Duration| span.as_secs_f64() * 1e6 / f64::from(count);
    let (wall, process) = (micros(began.elapsed()), micros(used().saturating_sub(since)));
    println!("{what:<28} {wall:7.2} µs elapsed, {process:7.2} µs of all threads");
}

async fn send(connection: Connection, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        connection.send(Message::new(vec![0; SIZE])).await?;
    }
    Ok(())
}

async fn receive(connection: Connection, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        connection.recv().await?;
    }
    Ok(())
}

async fn answer(connection: Connection, count: u32) -> Result<(), Failure> {
    for _ in 0..count {
        let request = connection.accept_request().await?;
        let reply = Message::new(request.message().bytes.to_vec());
        request.reply(reply).await?;
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let engine = match arguments.next().as_deref() {
        Some("tcp") => Engine::Tcp,
        Some("quic") | None => Engine::Quic,
        Some(other) => return Err(format!("{other:?} is no engine: say tcp or quic").into()),
    };
    let count: u32 = arguments.next().map_or(Ok(200_000), |count| count.parse())?;
    let config = Config::new(engine);
    let identity = Identity::self_signed("localhost")?;
    let trust = Trust::Certificate(identity.certificate().ok_or("it has a certificate")?.clone());
    let any: std::net::SocketAddr = ([127, 0, 0, 1], 0).into();
    let endpoint = Endpoint::listen(&config, &[any.into()], &ServerSecurity::Tls(identity)).await?;
    let remote = Remote::new(endpoint.local_addrs()[0], ClientSecurity::trusting("localhost", trust));
    let (client, server) = tokio::join!(Endpoint::connect(&config, &remote), endpoint.accept());
    let (client, server) = (client?, server?);

    tokio::try_join!(send(client.clone(), 1000), receive(server.clone(), 1000))?;
    let (since, began) = (used(), Instant::now());
    tokio::try_join!(send(client.clone(), count), receive(server.clone(), count))?;
    print("message, sent and received", count, since, began);

    let requests = count / 10;
    let (since, began) = (used(), Instant::now());
    // The last handle of a connection ends it when dropped, also before the last reply has left.
    let answering = tokio::spawn(answer(server.clone(), requests));
    for _ in 0..requests {
        client.request(Message::new(vec![0; SIZE])).await?;
    }
    answering.await??;
    print("request and reply, in turn", requests, since, began);
    client.close().await?;
    server.closed().await;
    Ok(())
}
