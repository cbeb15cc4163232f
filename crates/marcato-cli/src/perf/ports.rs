//! Ports that the engines of a server share.

use std::io::ErrorKind;
use std::net::SocketAddr;

use marcato_net::{ListenError, LocalAddress};

use super::plan::EngineName;

/// Number of times that the system chooses ports before the server gives up.
const ATTEMPTS: u32 = 16;

/// Endpoints that listen at the same addresses, one for each engine.
#[derive(Debug)]
pub(super) struct Shared<E> {
    pub(super) endpoints: Vec<(EngineName, E)>,
    /// Addresses of all endpoints.
    pub(super) at: Vec<SocketAddr>,
    /// Addresses of the low lanes of the last endpoint.
    pub(super) low_at: Vec<SocketAddr>,
}

/// Listens with each engine at the same ports. Those asked as 0 are chosen by the system for the
/// first engine, and chosen again if another program uses them for the next.
pub(super) async fn shared_ports<E>(
    engines: &[EngineName],
    at: Vec<LocalAddress>,
    listen: impl AsyncFn(EngineName, Vec<LocalAddress>) -> Result<(E, Vec<SocketAddr>), ListenError>,
) -> Result<Shared<E>, ListenError> {
    let mut attempt = 1;
    loop {
        let error = match share(engines, at.clone(), &listen).await {
            Ok(shared) => return Ok(shared),
            Err(error) => error,
        };
        if attempt == ATTEMPTS || !was_chosen(&error, &at) {
            return Err(error);
        }
        attempt += 1;
    }
}

async fn share<E>(
    engines: &[EngineName],
    mut at: Vec<LocalAddress>,
    listen: &impl AsyncFn(EngineName, Vec<LocalAddress>) -> Result<(E, Vec<SocketAddr>), ListenError>,
) -> Result<Shared<E>, ListenError> {
    let mut low_at = Vec::new();
    let mut endpoints = Vec::with_capacity(engines.len());
    for &engine in engines {
        let (endpoint, addrs) = listen(engine, at.clone()).await?;
        // The addresses of low lanes follow.
        let (own, low) = addrs.split_at(at.len());
        low_at = low.to_vec();
        at = own.iter().copied().map(LocalAddress::from).collect();
        endpoints.push((engine, endpoint));
    }
    Ok(Shared { endpoints, at: at.iter().map(|at| at.addr).collect(), low_at })
}

/// Returns whether an endpoint could not listen because a port that the system has chosen is in use.
fn was_chosen(error: &ListenError, asked: &[LocalAddress]) -> bool {
    let ListenError::Bind { addr, source } = error else {
        return false;
    };
    source.kind() == ErrorKind::AddrInUse && asked.iter().all(|asked| asked.addr != *addr)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::io;

    use super::*;

    const BOTH: [EngineName; 2] = [EngineName::Tcp, EngineName::Quic];

    /// System whose TCP ports are chosen from 4000 on, and whose UDP ports below `free` are in use.
    async fn listen_where_udp_is_free_from(
        free: u16,
        asked: &str,
    ) -> (Result<Shared<u16>, ListenError>, u16) {
        let next = Cell::new(4000);
        let listen = async |engine: EngineName, at: Vec<LocalAddress>| {
            let mut addr = at[0].addr;
            if addr.port() == 0 {
                addr.set_port(next.replace(next.get() + 1));
            }
            if engine == EngineName::Quic && addr.port() < free {
                return Err(ListenError::Bind { addr, source: io::Error::from(ErrorKind::AddrInUse) });
            }
            Ok((addr.port(), vec![addr]))
        };
        let addr: SocketAddr = asked.parse().unwrap();
        let shared = shared_ports(&BOTH, vec![addr.into()], listen).await;
        (shared, next.get() - 4000)
    }

    #[tokio::test]
    async fn a_port_in_use_by_the_second_engine_is_chosen_again() {
        let (shared, choices) = listen_where_udp_is_free_from(4003, "127.0.0.1:0").await;
        let shared = shared.unwrap();
        assert_eq!(shared.endpoints, [(EngineName::Tcp, 4003), (EngineName::Quic, 4003)]);
        assert_eq!(shared.at, ["127.0.0.1:4003".parse().unwrap()]);
        assert_eq!(choices, 4);
    }

    #[tokio::test]
    async fn a_port_in_use_that_was_asked_for_is_an_error() {
        let (shared, choices) = listen_where_udp_is_free_from(5000, "127.0.0.1:4900").await;
        assert_eq!(shared.unwrap_err().to_string(), "cannot listen at 127.0.0.1:4900: address in use");
        assert_eq!(choices, 0);
    }

    #[tokio::test]
    async fn choices_end() {
        let (shared, choices) = listen_where_udp_is_free_from(5000, "127.0.0.1:0").await;
        assert_eq!(shared.unwrap_err().to_string(), "cannot listen at 127.0.0.1:4015: address in use");
        assert_eq!(u32::from(choices), ATTEMPTS);
    }
}
