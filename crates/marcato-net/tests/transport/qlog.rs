//! Logs of a QUIC connection, if requested.
#![cfg(feature = "qlog")]

use crate::common::{body, close, pair, within};
use marcato_net::{Config, Engine, Message};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_ends_write_their_events_to_files_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    let mut config = Config::new(Engine::Quic);
    config.quic.session.qlog = Some(dir.path().to_owned());
    let (client, server, listener) = pair(&config).await;
    client.send(Message::new(body(1, 50_000))).await.unwrap();
    within(server.recv()).await.unwrap();
    close(client, server).await;
    drop(listener);
    let mut sides = Vec::new();
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let path = entry.unwrap().path();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("packet_sent") && text.contains("packet_received"), "{}", path.display());
        // JSON text sequences (RFC 7464): each record begins with RS, and is an object.
        assert!(text.split('\u{1e}').skip(1).all(|record| record.trim_start().starts_with('{')));
        sides.push(path.file_name().unwrap().to_string_lossy().into_owned());
    }
    assert_eq!(sides.len(), 2, "{sides:?}");
}
