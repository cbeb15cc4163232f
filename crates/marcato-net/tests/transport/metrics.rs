//! Metrics of connections and endpoints for a monitoring system.

use crate::common::{body, close, for_both_engines, pair, within};
use marcato_net::{Config, Endpoint, Engine, Message, Metrics};
use marcato_units::Priority;

/// Returns the value of a series.
fn value(text: &str, series: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in\n{text}")).parse().unwrap()
}

async fn a_registry_sums_open_and_closed_connections_of_one_name(engine: Engine) {
    let config = Config::new(engine);
    let metrics = Metrics::new();
    let (first, server, listener) = pair(&config).await;
    metrics.watch_endpoint("door", &listener.endpoint);
    let remote = listener.remote();
    let (second, accepted) =
        within(async { tokio::join!(Endpoint::connect(&config, &remote), listener.endpoint.accept()) }).await;
    let (second, accepted) = (second.unwrap(), accepted.unwrap());
    for (client, server) in [(&first, &server), (&second, &accepted)] {
        metrics.watch("clients", client);
        metrics.watch("servers", server);
        let message = Message::new(body(1, 5000)).with_priority(Priority::P1);
        within(client.send(message).await.unwrap().acknowledged()).await.unwrap();
        within(server.recv()).await.unwrap();
    }
    let sent = r#"marcato_sent_bytes_total{connection="clients",priority="P1"}"#;
    let received = r#"marcato_received_messages_total{connection="servers",priority="P1"}"#;
    let text = metrics.encode();
    assert_eq!((value(&text, sent), value(&text, received)), (10_000.0, 2.0));
    assert_eq!(value(&text, r#"marcato_connections{connection="clients"}"#), 2.0);
    assert_eq!(value(&text, r#"marcato_lanes{connection="clients"}"#), 2.0);
    assert!(value(&text, r#"marcato_lane_srtt_seconds{connection="clients"}"#) > 0.0);
    assert_eq!(value(&text, r#"marcato_endpoint_accepted_total{endpoint="door"}"#), 2.0);
    assert!(text.ends_with("# EOF\n"), "{text}");

    close(second, accepted).await;
    let text = metrics.encode();
    assert_eq!((value(&text, sent), value(&text, received)), (10_000.0, 2.0));
    assert_eq!(value(&text, r#"marcato_connections{connection="clients"}"#), 1.0);
    close(first, server).await;
    assert_eq!(value(&metrics.encode(), sent), 10_000.0);
}

for_both_engines! {
    a_registry_sums_open_and_closed_connections_of_one_name
}
