//! Metrics of a server, its files and its proxy, as a monitoring system reads them.
#![cfg(all(feature = "metrics", feature = "proxy"))]

use std::sync::{Arc, Mutex};

use crate::support::{Running, fetch, get_with, read, run, until};
use marcato_web::files::{Files, FilesConfig};
use marcato_web::proxy::{Proxy, ProxyConfig};
use marcato_web::{Config, Metrics, Server};

/// Server of a directory with one file, its metrics, and the lines of its log.
async fn start(metrics: &Metrics) -> (Running, Arc<Mutex<Vec<String>>>, tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("site.css"), "body{}").unwrap();
    let files = Files::new(FilesConfig::new(directory.path())).unwrap();
    metrics.watch_files("main", &files);
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let kept = Arc::clone(&lines);
    let mut config = Config::default();
    config.log =
        Some(metrics.log(Some(Arc::new(move |record| kept.lock().unwrap().push(record.to_string())))));
    let server = Server::with_config(config);
    metrics.watch(&server);
    (Running::start(server, files).await, lines, directory)
}

fn value<'a>(text: &'a str, series: &str) -> &'a str {
    let line = text.lines().find(|line| line.strip_prefix(series).is_some_and(|rest| rest.starts_with(' ')));
    line.unwrap_or_else(|| panic!("{series} is not in\n{text}")).rsplit(' ').next().unwrap()
}

#[test]
fn requests_are_counted_by_level_source_and_status() {
    run(async {
        let metrics = Metrics::new();
        let (running, lines, _directory) = start(&metrics).await;
        let client = &mut running.client().await;
        for _ in 0..3 {
            read(fetch(client, get_with("/site.css", "u=0")).await).await.unwrap();
        }
        read(fetch(client, get_with("/none", "u=7")).await).await.unwrap();
        assert!(running.http1("/site.css", "").await.ends_with("body{}"));
        until(|| lines.lock().unwrap().len() == 5).await;
        let text = metrics.encode();
        for (series, expected) in [
            (r#"marcato_web_requests_total{level="P0",source="header",status="2xx"}"#, "3"),
            (r#"marcato_web_requests_total{level="none",source="default",status="2xx"}"#, "1"),
            (r#"marcato_web_response_waited_seconds_count{level="P0"}"#, "3"),
            (r#"marcato_web_response_took_seconds_bucket{le="+Inf",level="P0"}"#, "3"),
            ("marcato_web_requests_begun_total", "5"),
            ("marcato_web_open_requests", "0"),
            (r#"marcato_web_connections_total{version="2"}"#, "1"),
            (r#"marcato_web_granted_bytes_total{level="P0"}"#, "18"),
            (r#"marcato_web_files_not_found_total{directory="main"}"#, "1"),
        ] {
            assert_eq!(value(&text, series), expected, "{series}");
        }
        assert!(text.ends_with("# EOF\n"), "{text}");
    });
}

#[test]
fn text_of_clients_makes_no_series() {
    run(async {
        let metrics = Metrics::new();
        let (running, lines, _directory) = start(&metrics).await;
        let client = &mut running.client().await;
        read(fetch(client, get_with("/site.css", "u=1")).await).await.unwrap();
        until(|| lines.lock().unwrap().len() == 1).await;
        let before = metrics.encode().lines().count();
        for number in 0..200 {
            let mut request = get_with(&format!("/site.css?{number}"), &format!("u=1, x{number}=\"y\""));
            request.headers_mut().insert("user-agent", number.into());
            read(fetch(client, request).await).await.unwrap();
        }
        until(|| lines.lock().unwrap().len() == 201).await;
        assert_eq!(metrics.encode().lines().count(), before);
    });
}

#[test]
fn metrics_are_served_at_their_own_address() {
    run(async {
        let metrics = Metrics::new();
        metrics.watch_proxy("shop", &Proxy::new(ProxyConfig::to("http://127.0.0.1:9")).unwrap());
        let running = Running::start(Server::new(), metrics).await;
        let response = running.http1("/metrics", "").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert!(response.contains("content-type: application/openmetrics-text; version=1.0.0"), "{response}");
        let series = r#"marcato_web_upstream_healthy{origin="shop",upstream="http://127.0.0.1:9"}"#;
        assert_eq!(value(&response, series), "1");
        assert!(running.http1("/", "").await.starts_with("HTTP/1.1 404 "));
    });
}
