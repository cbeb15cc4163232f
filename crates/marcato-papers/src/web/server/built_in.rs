//! Servers that are built into this program: the web plane, and hyper.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http::Request;
use hyper_util::rt::{TokioExecutor, TokioIo};
use marcato_lab::{Lab, TcpLink};
use marcato_net::{ChunkRule, Coupling};
use marcato_web::{Config, Server, ServerIdentity};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

use super::super::site::Site;
use super::{Kind, Plan, Running};
use crate::error::SimulationError;
use crate::lab::{failed, on_host};

/// Field `priority` of responses that leave in the order of their requests.
const EQUAL: &str = "u=3, i=?0";

/// Starts a server on a thread of its own.
pub(super) fn start(
    lab: &Lab,
    plan: &Plan<'_>,
    listener: std::net::TcpListener,
) -> Result<Running, SimulationError> {
    let presented = ServerIdentity::new(plan.identity).map_err(failed)?;
    let (kind, site, http3) = (plan.kind, plan.site.clone(), plan.http3);
    let (end, ended) = oneshot::channel();
    let thread = on_host(lab, "server", plan.patience, move || async move {
        serve(kind, listener, &presented, site, (ChunkRule::default(), http3), ended).await
    })?;
    Ok(Running::Thread { end: Some(end), thread: Some(thread) })
}

/// Starts a server on the loopback interface of this host, for a [`TcpLink`]. Its port and congestion
/// control are the system's.
pub(in super::super) fn start_here(plan: &Plan<'_>) -> Result<(Running, SocketAddr), SimulationError> {
    let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(failed)?;
    let addr = listener.local_addr().map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let presented = ServerIdentity::new(plan.identity).map_err(failed)?;
    let (kind, site, http3) = (plan.kind, plan.site.clone(), plan.http3);
    let (end, ended) = oneshot::channel();
    let chunk = ChunkRule { max: TcpLink::SEGMENT, quiet_max: TcpLink::SEGMENT, ..ChunkRule::default() };
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        runtime.block_on(serve(kind, listener, &presented, site, (chunk, http3), ended))
    });
    Ok((Running::Thread { end: Some(end), thread: Some(thread) }, addr))
}

/// Serves a site until the other end of the channel is dropped.
async fn serve(
    kind: Kind,
    listener: std::net::TcpListener,
    presented: &Arc<ServerIdentity>,
    site: Site,
    (chunk, http3): (ChunkRule, bool),
    ended: oneshot::Receiver<()>,
) -> Result<(), SimulationError> {
    let listener = TcpListener::from_std(listener).map_err(failed)?;
    let served = async {
        if kind == Kind::Hyper {
            return hyper(listener, presented, &site).await;
        }
        let mut config = Config::default();
        config.chunk = chunk;
        config.http3 = http3;
        if kind != Kind::Marcato {
            config.coupled = Coupling::Off;
        }
        let site = if kind == Kind::Fifo { site.with_priority(EQUAL) } else { site };
        let server = Server::with_config(config).identity(presented).map_err(failed)?;
        // Signals are the experiment's.
        server.serve_until(listener, site, std::future::pending()).await;
        Ok(())
    };
    tokio::select! {
        served = served => served,
        _ = ended => Ok(()),
    }
}

async fn hyper(
    listener: TcpListener,
    presented: &Arc<ServerIdentity>,
    site: &Site,
) -> Result<(), SimulationError> {
    let mut tls = presented.server_tls(None).map_err(failed)?;
    tls.alpn_protocols = vec![b"h2".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    loop {
        let (stream, _) = listener.accept().await.map_err(failed)?;
        stream.set_nodelay(true).map_err(failed)?;
        let (acceptor, site) = (acceptor.clone(), site.clone());
        tokio::spawn(async move {
            let Ok(stream) = acceptor.accept(stream).await else { return };
            let service = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| {
                let answer = site.answer(request.uri().path());
                async { Ok::<_, Infallible>(answer) }
            });
            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
            // A client that goes away ends its connection.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
