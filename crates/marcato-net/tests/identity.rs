//! Identities of both ends, over both engines.
#![expect(clippy::unwrap_used, reason = "tests")]

mod common;

use common::{NAME, for_both_engines, localhost, within};
use marcato_net::{
    ClientSecurity, Config, Connection, Endpoint, Engine, Identity, Remote, ServerSecurity, Trust,
};

async fn listen(config: &Config, security: ServerSecurity) -> Endpoint {
    Endpoint::listen(config, &[localhost().into()], &security).await.unwrap()
}

/// Returns both ends of a connection.
async fn join(config: &Config, server: &Endpoint, security: ClientSecurity) -> (Connection, Connection) {
    let remote = Remote::new(server.local_addrs()[0], security);
    let ends = async { tokio::join!(Endpoint::connect(config, &remote), server.accept()) };
    let (client, accepted) = within(ends).await;
    (client.unwrap(), accepted.unwrap())
}

async fn an_identity_and_its_trust_are_read_from_pem_files(engine: Engine) {
    let dir = tempfile::tempdir().unwrap();
    let [chain, key] = ["chain.pem", "key.pem"].map(|name| dir.path().join(name));
    let created = Identity::self_signed(NAME).unwrap();
    std::fs::write(&chain, created.chain_pem()).unwrap();
    std::fs::write(&key, created.key_pem()).unwrap();
    let config = Config::new(engine);
    let identity = Identity::from_pem_files(&chain, &key).unwrap();
    let server = listen(&config, ServerSecurity::Tls(identity)).await;
    let trust = Trust::from_pem_file(&chain).unwrap();
    join(&config, &server, ClientSecurity::trusting(NAME, trust)).await;
}

for_both_engines! {
    an_identity_and_its_trust_are_read_from_pem_files
}
