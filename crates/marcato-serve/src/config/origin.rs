//! Origins that requests are passed to.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use marcato_document::{Item, Place, Table, Value};
use marcato_web::proxy::{
    HealthConfig, PassiveConfig, ProxyConfig, ProxyError, Roots, TrustedForwarders, Upstream,
};

use super::error::Faults;
use super::keys::Keys;
use super::limits::set;
use super::located::Located;

/// Longest duration that a proxy accepts, less a day.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Origin: one or several upstreams that have the same content.
#[derive(Clone, Debug)]
pub struct OriginConfig {
    /// Name by which sites refer to it; the URL itself for an origin without one.
    pub name: String,
    /// Upstreams, timeouts and health checks.
    pub proxy: ProxyConfig,
    /// Authority (PEM) of the certificates of `https` upstreams; the system's if absent.
    pub ca: Option<Located<PathBuf>>,
    pub(crate) place: Place,
}

/// Origins are equal if their settings are.
impl PartialEq for OriginConfig {
    fn eq(&self, other: &Self) -> bool {
        // The roots follow from `ca` when the origin is opened.
        let ProxyConfig {
            upstreams,
            connect_timeout,
            response_timeout,
            body_idle_timeout,
            tunnel_idle_timeout,
            retries,
            health,
            passive,
            max_in_flight,
            max_idle,
            idle_timeout,
            preserve_host,
            trusted_forwarders,
            via,
            via_to_origins,
            response_head,
            response_fields,
            kept_body,
            roots: _,
        } = &self.proxy;
        let of = &other.proxy;
        self.ca == other.ca
            && *upstreams == of.upstreams
            && *connect_timeout == of.connect_timeout
            && *response_timeout == of.response_timeout
            && *body_idle_timeout == of.body_idle_timeout
            && *tunnel_idle_timeout == of.tunnel_idle_timeout
            && *retries == of.retries
            && *health == of.health
            && *passive == of.passive
            && *max_in_flight == of.max_in_flight
            && *max_idle == of.max_idle
            && *idle_timeout == of.idle_timeout
            && *preserve_host == of.preserve_host
            && *trusted_forwarders == of.trusted_forwarders
            && *via == of.via
            && *via_to_origins == of.via_to_origins
            && *response_head == of.response_head
            && *response_fields == of.response_fields
            && *kept_body == of.kept_body
    }
}

impl OriginConfig {
    const KEYS: [&'static str; 20] = [
        "name",
        "to",
        "connect-timeout",
        "response-timeout",
        "body-idle-timeout",
        "tunnel-idle-timeout",
        "retries",
        "health",
        "passive",
        "max-in-flight",
        "max-idle",
        "idle-timeout",
        "preserve-host",
        "trusted-forwarders",
        "via",
        "via-to-origins",
        "response-head",
        "response-fields",
        "kept-body",
        "ca",
    ];

    /// Creates an origin of one upstream with the defaults.
    pub(crate) fn to(uri: &str, place: Place, faults: &Faults) -> Option<Self> {
        let proxy = ProxyConfig::to(uri);
        match proxy.validate() {
            Ok(()) => Some(Self { name: uri.to_owned(), proxy, ca: None, place }),
            Err(error) => {
                faults.add(place, error.to_string());
                None
            }
        }
    }

    /// Reads `[[origin]]`. One that has faults is `None` if its name is unknown too.
    pub(crate) fn read(table: &Table, faults: &Faults) -> Option<Self> {
        let keys = Keys::open(table, "an origin", &Self::KEYS, faults);
        keys.need("name", "sites refer to it");
        keys.need("to", "give the URL of an upstream, as \"http://127.0.0.1:3000\"");
        let name = keys.string("name");
        if let Some(name) = name.filter(|name| name.contains("://")) {
            keys.fault("name", format!("{name:?} is a URL: give a name, and the URL in `to`"));
        }
        let mut proxy = ProxyConfig::default();
        for item in keys.items("to", ProxyConfig::MAX_UPSTREAMS) {
            proxy.upstreams.extend(upstream(item, faults));
        }
        if matches!(keys.item("to").map(|item| &item.value), Some(Value::Array(items)) if items.is_empty()) {
            keys.fault("to", "`to` is empty: give at least one upstream");
        }
        let span = |key: &str| keys.span(key, Duration::from_millis(1)..=YEAR);
        set(&mut proxy.connect_timeout, span("connect-timeout"));
        set(&mut proxy.response_timeout, span("response-timeout"));
        set(&mut proxy.body_idle_timeout, span("body-idle-timeout"));
        set(&mut proxy.tunnel_idle_timeout, span("tunnel-idle-timeout"));
        set(&mut proxy.idle_timeout, span("idle-timeout"));
        set(&mut proxy.retries, keys.whole("retries", 0..=ProxyConfig::MAX_RETRIES));
        set(&mut proxy.max_in_flight, keys.whole("max-in-flight", 1..=1_000_000));
        set(&mut proxy.max_idle, keys.whole("max-idle", 0..=1_000_000).map(|most| most as usize));
        set(&mut proxy.preserve_host, keys.boolean("preserve-host"));
        set(&mut proxy.via, keys.string("via").map(str::to_owned));
        set(&mut proxy.via_to_origins, keys.boolean("via-to-origins"));
        set(&mut proxy.response_head, keys.size("response-head", ProxyConfig::RESPONSE_HEAD));
        let fields = 1..=ProxyConfig::MAX_RESPONSE_FIELDS;
        set(&mut proxy.response_fields, keys.whole("response-fields", fields));
        set(&mut proxy.kept_body, keys.size("kept-body", 0..=ProxyConfig::MAX_KEPT_BODY));
        set(&mut proxy.trusted_forwarders, forwarders(&keys));
        proxy.health = keys.table("health").map(|table| health(table, faults));
        set(&mut proxy.passive, keys.table("passive").map(|table| passive(table, faults)));
        let ca = keys.string("ca").map(|text| Located::at(keys.place("ca"), PathBuf::from(text)));
        proxy.roots = Roots::Native;
        // All but the name in `Via` was checked with its place.
        if let Err(error @ ProxyError::Via { .. }) = proxy.validate() {
            keys.fault("via", error.to_string());
        }
        Some(Self { name: name?.to_owned(), proxy, ca, place: keys.place("to") })
    }
}

fn upstream(item: &Item, faults: &Faults) -> Option<Upstream> {
    let (url, place, weight) = match &item.value {
        Value::String(url) => (Some(&**url), item.place, None),
        Value::Table(table) => {
            let keys = Keys::open(table, "an upstream", &["url", "weight"], faults);
            keys.need("url", "as \"http://127.0.0.1:3000\"");
            (keys.string("url"), keys.place("url"), keys.whole("weight", 1..=Upstream::MAX_WEIGHT))
        }
        other => {
            let problem = format!("`to` is a URL or a table with `url` and `weight`, not {}", other.what());
            faults.add(item.place, problem);
            return None;
        }
    };
    let upstream = Upstream::new(url?).with_weight(weight.unwrap_or(1));
    let alone = ProxyConfig { upstreams: vec![upstream.clone()], ..ProxyConfig::default() };
    match alone.validate() {
        Ok(()) => Some(upstream),
        Err(error) => {
            faults.add(place, error.to_string());
            None
        }
    }
}

fn forwarders(keys: &Keys<'_>) -> Option<TrustedForwarders> {
    keys.item("trusted-forwarders")?;
    let mut addresses = Vec::new();
    for (text, place) in keys.strings("trusted-forwarders", 1000) {
        match text.parse::<IpAddr>() {
            Ok(address) => addresses.push(address),
            Err(_) if text == "all" => return Some(TrustedForwarders::All),
            Err(_) => keys.faults.add(place, format!("{text:?} is no address: give addresses, or \"all\"")),
        }
    }
    Some(TrustedForwarders::Addresses(addresses))
}

fn health(table: &Table, faults: &Faults) -> HealthConfig {
    let known = ["path", "interval", "timeout", "healthy-after", "unhealthy-after"];
    let keys = Keys::open(table, "a health check", &known, faults);
    let mut health = HealthConfig::default();
    if let Some(path) = keys.string("path") {
        health.path = path.to_owned();
        let alone = ProxyConfig { health: Some(health.clone()), ..ProxyConfig::to("http://localhost") };
        if let Err(error) = alone.validate() {
            keys.fault("path", error.to_string());
        }
    }
    let span = |key: &str| keys.span(key, Duration::from_millis(1)..=YEAR);
    set(&mut health.interval, span("interval"));
    set(&mut health.timeout, span("timeout"));
    set(&mut health.healthy_after, keys.whole("healthy-after", 1..=1000));
    set(&mut health.unhealthy_after, keys.whole("unhealthy-after", 1..=1000));
    health
}

fn passive(table: &Table, faults: &Faults) -> PassiveConfig {
    let keys = Keys::open(table, "`passive`", &["failures", "rest"], faults);
    let mut passive = PassiveConfig::default();
    set(&mut passive.failures, keys.whole("failures", 1..=1_000_000));
    set(&mut passive.rest, keys.span("rest", Duration::from_millis(1)..=YEAR));
    passive
}
