//! The page through the whole of `marcato-net`, with TLS, over the kernel's TCP.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use marcato_lab::{IpDatagram, Lab, PacketEvent, Watcher};
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Message, Remote, ServerSecurity,
    TcpCongestion, Trust,
};
use marcato_report::{Row, Unit};
use marcato_sched::conductor::Config as ConductorConfig;
use marcato_sim::Congestion;
use marcato_units::{Bytes, Priority, Time};

use super::load::Load;
use super::page;
use super::path::{Path, Scheme};
use super::published::{TABLE1_CATS, TABLE1_FIFO};
use crate::answer::Answer;
use crate::error::SimulationError;
use crate::lab::{failed, joined, on_host};

const TEXT: &str = "Table I once more, by `marcato-net` from end to end: its feeder over a kernel's socket, its \
    framing, TLS 1.3. FIFO is the same connection with all groups at one level. Segments have 1448 bytes, records \
    and frames are on top of the page. Beside each value is that of the simulator's application, as in Table I.";

/// Name in the server's certificate.
const NAME: &str = "page.marcato";
const PORT: u16 = 443;
/// Timeout of a load.
const PATIENCE: Duration = Duration::from_secs(30);
/// Interval at which the sender's backlog is looked at.
const LOOK: Duration = Duration::from_millis(2);
/// Last link of the path, to the receiver.
const DOWN: usize = 2;
/// Least length of a packet that is full of data.
const FULL: usize = 1000;

/// Table I by `marcato-net` in a lab, and by the simulator's application in virtual time.
pub(super) fn table1_on(path: &Path, seed: u64) -> Result<Answer, SimulationError> {
    let mut rows = Vec::new();
    for (id, scheme, published) in [
        ("fifo", Scheme::Fifo, Some(TABLE1_FIFO)),
        ("strict", Scheme::strict(), None),
        ("cats", Scheme::cats(), Some(TABLE1_CATS)),
    ] {
        let done = match path.is_in_lab() {
            true => {
                let Loaded { done, unsent } = load(path, scheme, seed)?;
                let what = format!("largest unsent backlog of the kernel, {id}, by marcato-net");
                let row = Row::new(format!("cats.net.{id}.unsent"), what, Unit::Kilobytes);
                rows.push(row.measured(unsent.get() as f64 / 1e3));
                done
            }
            false => Load::run(path, scheme, seed)?.done,
        };
        rows.extend(Priority::ALL.map(|priority| {
            let group = priority.index();
            let what = format!("{} complete, {id}, by marcato-net", page::NAMES[group]);
            let row = Row::new(format!("cats.net.{id}.p{group}"), what, Unit::Ms).measured(done[group]);
            published.into_iter().fold(row, |row, published| row.paper(published[group]))
        }));
    }
    Ok(Answer::new("Table I by marcato-net", TEXT, rows))
}

/// Load of the page by `marcato-net`.
struct Loaded {
    /// Completion of each group in ms since the first full packet arrived.
    done: [f64; Priority::COUNT],
    /// Most bytes that the sender's kernel held and had not sent.
    unsent: Bytes,
}

fn load(path: &Path, scheme: Scheme, seed: u64) -> Result<Loaded, SimulationError> {
    let experiment = crate::lab::experiment(&path.scenario(seed)?)?;
    let lab = Lab::open(&experiment, &Default::default(), Default::default()).map_err(failed)?;
    let (full, arrivals) = sync_channel(1024);
    lab.watch(DOWN, false, Box::new(FullPackets(full)));
    let config = config(path, scheme)?;
    let identity = Identity::self_signed(NAME).map_err(failed)?;
    let trust = identity.certificate().cloned().ok_or(SimulationError::Missing("certificate"))?;
    let (address, _) = lab.addresses("sender").ok_or(SimulationError::Missing("sender"))?;

    let (ready, listens) = sync_channel(1);
    let settings = config.clone();
    let server = on_host(&lab, "sender", PATIENCE, move || async move {
        let at = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
        let endpoint = Endpoint::listen(&settings, &[at.into()], &ServerSecurity::Tls(identity)).await;
        let endpoint = endpoint.map_err(failed)?;
        let _ = ready.send(());
        let connection = endpoint.accept().await.map_err(failed)?;
        let began = Instant::now();
        send(&connection, scheme).await?;
        let mut unsent = Bytes::ZERO;
        let mut looks = tokio::time::interval(LOOK);
        loop {
            tokio::select! {
                _ = looks.tick() => {
                    let backlogs = connection.stats().lanes.into_iter().map(|lane| lane.backlog);
                    unsent = backlogs.fold(unsent, Bytes::max);
                }
                // The receiver ends the connection when it has everything.
                received = connection.recv() => if received.is_err() {
                    return Ok((began, unsent));
                },
            }
        }
    })?;
    // If the server cannot listen, its thread says why.
    let _ = listens.recv();
    let client = on_host(&lab, "receiver", PATIENCE, move || async move {
        let security = ClientSecurity::trusting(NAME, Trust::Certificate(trust));
        let remote = Remote::new(SocketAddr::new(IpAddr::V4(address), PORT), security);
        let connection = Endpoint::connect(&config, remote).await.map_err(failed)?;
        let done = receive(&connection).await?;
        connection.close().await.map_err(failed)?;
        Ok(done)
    })?;
    let done = joined(client)?;
    let (began, unsent) = joined(server)?;
    let (now, same) = (lab.now(), Instant::now());
    let at = |instant: Instant| now - (same - instant);
    let first = first_after(&arrivals, at(began)).ok_or(SimulationError::Missing("full packet"))?;
    let done = done.map(|instant| at(instant).since(first).as_secs_f64() * 1e3);
    Ok(Loaded { done, unsent })
}

/// Configuration of both ends.
fn config(path: &Path, scheme: Scheme) -> Result<Config, SimulationError> {
    let mut config = Config::new(Engine::Tcp);
    config.tcp.congestion = Some(match path.tcp.congestion {
        Congestion::Bbr => TcpCongestion::Bbr,
        Congestion::Cubic(_) => TcpCongestion::Cubic,
        Congestion::Reno => TcpCongestion::Reno,
        _ => return Err(SimulationError::Missing("congestion control of the kernel")),
    });
    if let Scheme::Conductor(debt, _) = scheme {
        config.conductor = ConductorConfig::with_debt(debt);
    }
    Ok(config)
}

/// Hands over the page, the least urgent group first. The first byte of each message names its group.
async fn send(connection: &Connection, scheme: Scheme) -> Result<(), SimulationError> {
    for priority in page::ORDER {
        let len = usize::try_from(page::GROUPS[priority.index()].get()).unwrap_or(0);
        let level = if scheme == Scheme::Fifo { Priority::P2 } else { priority };
        let group = u8::try_from(priority.index()).unwrap_or(u8::MAX);
        let message = Message::new(vec![group; len]).with_priority(level);
        connection.send(message).await.map_err(failed)?;
    }
    Ok(())
}

/// Receives the page, and returns when each group was complete.
async fn receive(connection: &Connection) -> Result<[Instant; Priority::COUNT], SimulationError> {
    let mut done = [None; Priority::COUNT];
    loop {
        if let [Some(p0), Some(p1), Some(p2), Some(p3), Some(p4)] = done {
            return Ok([p0, p1, p2, p3, p4]);
        }
        let message = connection.recv().await.map_err(failed)?;
        let group = message.bytes.first().map_or(usize::MAX, |&group| usize::from(group));
        *done.get_mut(group).ok_or(SimulationError::Missing("group"))? = Some(Instant::now());
    }
}

/// Notes when full packets arrive.
struct FullPackets(std::sync::mpsc::SyncSender<Time>);

impl Watcher<IpDatagram> for FullPackets {
    fn note(&mut self, at: Time, event: PacketEvent, packet: &IpDatagram) {
        if event == PacketEvent::Arrived && packet.bytes().len() >= FULL {
            // The first ones are those that count.
            let _ = self.0.try_send(at);
        }
    }
}

fn first_after(arrivals: &Receiver<Time>, began: Time) -> Option<Time> {
    arrivals.try_iter().find(|at| *at >= began)
}

#[cfg(test)]
mod tests {
    use marcato_testing::{Need, absent};

    use super::*;

    /// Loads the page; `None` where there can be no lab.
    fn loaded(scheme: Scheme) -> Option<[f64; Priority::COUNT]> {
        (!absent!(Need::Lab)).then(|| load(&Path::authors().in_lab(), scheme, 1).unwrap().done)
    }

    #[test]
    fn groups_arrive_by_priority_and_with_fifo_by_their_order() {
        // A link of 2 Mbit/s takes 1132 ms for the bytes of the page alone.
        if let Some(done) = loaded(Scheme::cats()) {
            assert!(done.is_sorted() && done[4] > 1132.0, "{done:?}");
        }
        if let Some(mut done) = loaded(Scheme::Fifo) {
            done.reverse();
            assert!(done.is_sorted(), "{done:?}");
        }
    }
}
