//! Access of the fuzz targets in `fuzz/` to private code. Only built with the feature `fuzzing`.

use std::sync::{Arc, OnceLock};

use marcato_identity::{Identity, Trust};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, ServerConfig, ServerConnection};

use crate::tcp::fuzzing::Pipe;

struct Tls {
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

/// Returns one configuration for all inputs: creating one takes far longer than a run.
fn tls() -> &'static Tls {
    static TLS: OnceLock<Tls> = OnceLock::new();
    TLS.get_or_init(|| {
        let identity = Identity::self_signed("server").expect("a name");
        let trust = Trust::Certificate(identity.certificate().expect("one").clone());
        Tls {
            server: Arc::new(identity.server_tls(None).expect("an identity")),
            client: Arc::new(trust.client_tls().expect("a trust")),
        }
    })
}

/// Feeds arbitrary input to a server that expects TLS, or as a server's answer to a client. It is a
/// handshake that the script modifies, followed by the script's own bytes. The result has to be an
/// error or a wait for more, and no plaintext.
pub fn tcp_handshake(script: &[u8]) {
    let Some((&[side, changes], mut script)) = script.split_first_chunk() else { return };
    let name = ServerName::try_from("server").expect("a name");
    let Ok(mut client) = ClientConnection::new(Arc::clone(&tls().client), name) else { return };
    let Ok(mut server) = ServerConnection::new(Arc::clone(&tls().server)) else { return };
    let mut wire = Vec::new();
    let _ = client.write_tls(&mut wire);
    if side & 1 == 1 {
        // The client is the one attacked.
        let _ = server.read_tls(&mut &wire[..]);
        let _ = server.process_new_packets();
        wire.clear();
        let _ = server.write_tls(&mut wire);
    }
    for _ in 0..changes & 15 {
        let Some((&[at, more, with], rest)) = script.split_first_chunk() else { break };
        script = rest;
        if let Some(byte) = wire.get_mut(usize::from(at) + usize::from(more & 3) * 256) {
            *byte ^= with;
        }
    }
    if changes & 16 != 0 {
        wire.truncate(usize::from(changes) * 2);
    }
    if changes & 32 != 0 {
        wire.clear();
    }
    wire.extend_from_slice(script);
    let mut pipe = Pipe::tls(if side & 1 == 1 { client.into() } else { server.into() });
    let mut scratch = vec![0; 16 << 10];
    let mut ours = 0;
    for part in wire.chunks(usize::from(side >> 1) * 16 + 1) {
        let taken = pipe.receive::<TlsOrIo>(part, &mut scratch, |bytes| {
            ours += bytes.len();
            Ok(())
        });
        if !matches!(taken, Ok(false)) {
            break;
        }
    }
    assert_eq!(ours, 0, "bytes without a handshake");
}

/// Error that ends the reading of TLS.
struct TlsOrIo;

impl From<std::io::Error> for TlsOrIo {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

impl From<rustls::Error> for TlsOrIo {
    fn from(_: rustls::Error) -> Self {
        Self
    }
}
