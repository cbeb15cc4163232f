//! Media over QUIC over Marcato and over quinn: one publisher, one subscriber, the same `moq-net`, and the times of each track.
//!
//! `moq-example publish --at 0.0.0.0:4443 --certificate FILE` and, on another host, `moq-example subscribe
//! --to HOST:4443 --certificate FILE`. Both hosts share a clock, as the hosts of a lab do. The subscriber prints a
//! JSON line for each track.
//!
//! The publisher has four tracks. `catalog` has a document of 2 kB each second. `audio` has a frame of 160 bytes each 20 ms, as
//! Opus at 64 kbit/s (RFC 7587 §3.1). `low` and `high` are video at 30 frames a second, with a key frame each two seconds of
//! five times the size of the others.

mod stack;
mod tracks;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, Subcommand, ValueEnum};

/// Media over QUIC in the order of the application.
#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    role: Role,
    /// QUIC of both ends
    #[arg(long, value_enum, default_value = "marcato", global = true)]
    stack: Stack,
    /// File of the server's certificate, which the publisher writes
    #[arg(long, global = true, default_value = "moq-certificate.der")]
    certificate: PathBuf,
}

#[derive(Subcommand)]
enum Role {
    /// Serves the tracks
    Publish {
        /// Address to listen at
        #[arg(long, default_value = "0.0.0.0:4443")]
        at: std::net::SocketAddr,
        /// Rate of the better video in Mbit/s; the other has an eighth of it
        #[arg(long, default_value_t = 8.0)]
        mbps: f64,
    },
    /// Reads the tracks, and prints how late their frames are
    Subscribe {
        /// Address of the publisher
        #[arg(long)]
        to: String,
        /// Seconds to read
        #[arg(long, default_value_t = 30)]
        seconds: u64,
        /// Reads `low` twice, by two tracks of equal priority, instead of `low` and `high`
        #[arg(long)]
        equal: bool,
    },
}

/// QUIC of an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Stack {
    Marcato,
    /// Marcato without coupled mode
    MarcatoPlain,
    QuinnCubic,
    QuinnBbr,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let Arguments { role, stack, certificate } = Arguments::parse();
    match role {
        Role::Publish { at, mbps } => {
            let publisher = tracks::publish(mbps)?;
            stack::serve(stack, at, &certificate, publisher).await
        }
        Role::Subscribe { to, seconds, equal } => {
            let to = tokio::net::lookup_host(&to).await?.next().context("the name has no address")?;
            let (subscriber, driver) =
                moq_net::origin::Producer::new(moq_net::origin::Config::new(moq_net::Hop::random()));
            tokio::spawn(moq_net::time::run(driver));
            let consumer = subscriber.consume();
            let certificate =
                tokio::fs::read(&certificate).await.context("the publisher writes its certificate")?;
            let connection = stack::connect(stack, to, certificate, subscriber).await?;
            let read = tracks::read(&consumer, Duration::from_secs(seconds), equal).await;
            drop(connection);
            for track in read? {
                println!("{}", track.json(stack));
            }
            Ok(())
        }
    }
}
