//! Origins that requests are passed to.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use marcato_document::form::{Count, Flag, Small, SomeText, SpanWithin, Words};
use marcato_document::{Faults, Item, Keyed as _, Keys, Place, Value, keyed};
use marcato_web::ProxyVersion;
use marcato_web::proxy::{
    Balance, HealthConfig, PassiveConfig, ProxyConfig, ProxyError, TrustedForwarders, Upstream,
};

use super::form::{By, PATH, Placed, Serve, each, section};
use super::limits::size;
use super::located::Located;

/// Longest duration that a proxy accepts, less a day.
const YEAR: Duration = Duration::from_secs(365 * 86_400);

/// Origin: one or several upstreams that have the same content. Origins are equal if their settings are.
#[derive(Clone, Debug, PartialEq)]
pub struct OriginConfig {
    /// Name by which sites refer to it; the URL itself for an origin without one.
    pub name: String,
    /// Upstreams, timeouts and health checks. The roots follow from `ca` when the origin is opened.
    pub proxy: ProxyConfig,
    /// Authority (PEM) of the certificates of `https` upstreams; the system's if absent.
    pub ca: Option<Located<PathBuf>>,
    /// Place of the upstreams.
    pub(crate) at: Located<()>,
}

keyed! {
    OriginConfig, "an origin", |of: Serve|, onto Self::new(String::new(), ProxyConfig::default()), check in_whole;
    /// name by which sites refer to it
    "name" => name: By(name), need("sites refer to it");
    /// upstreams that have the same content: a URL, a table with `url` and `weight`, or a list of them
    "to" => proxy.upstreams: By(upstreams), need("give the URL of an upstream, as \"http://127.0.0.1:3000\"");
    /// time to resolve a name, to connect and to shake hands
    "connect-timeout" => proxy.connect_timeout: TIME, own();
    /// time from the last progress of a request to the head of its response
    "response-timeout" => proxy.response_timeout: TIME, own();
    /// time without a frame of either body, while a body is awaited
    "body-idle-timeout" => proxy.body_idle_timeout: TIME, own();
    /// time without a byte in either direction of an upgraded connection
    "tunnel-idle-timeout" => proxy.tunnel_idle_timeout: TIME, own();
    /// choice of the upstream: `"least"` requests in flight by weight, `"turns"`, or the one that belongs to the client's `"address"`, to the `"path"` with its query, or to a `"cookie"`
    "balance" => proxy.balance: Words(BALANCE), own();
    /// name of the cookie of `balance = "cookie"`
    "cookie" => proxy.cookie: SomeText, own();
    /// header of the PROXY protocol that tells upstreams of the client of each connection, `"v1"` or `"v2"`; connections then serve one request
    "proxy-protocol" => proxy.proxy_protocol: By(proxy_protocol), optional("none");
    /// attempts after the first
    "retries" => proxy.retries: Small(0..=ProxyConfig::MAX_RETRIES), own();
    /// [checks](#keys-of-a-health-check) of the upstreams
    "health" => proxy.health: section::<HealthConfig>(), optional("none");
    /// [rule](#keys-of-passive) that rests an upstream after failed requests
    "passive" => proxy.passive: section::<PassiveConfig>(), own("the defaults");
    /// requests and tunnels in flight to each upstream
    "max-in-flight" => proxy.max_in_flight: Small(1..=1_000_000), own();
    /// idle connections of HTTP/1.1 kept to each upstream
    "max-idle" => proxy.max_idle: Count(0..=1_000_000), own();
    /// time for which an idle connection of HTTP/1.1 is reused
    "idle-timeout" => proxy.idle_timeout: TIME, own();
    /// passes on the host that the client asked for; false asks for the upstream's
    "preserve-host" => proxy.preserve_host: Flag, own();
    /// addresses whose `Forwarded` and `X-Forwarded-*` fields are kept, or `"all"`
    "trusted-forwarders" => proxy.trusted_forwarders: By(forwarders), own("none");
    /// name in `Via`
    "via" => proxy.via: SomeText, own();
    /// adds `Via` to requests as well as to responses
    "via-to-origins" => proxy.via_to_origins: Flag, own();
    /// bytes of the head of a response
    "response-head" => proxy.response_head: size(*HEAD.start(), *HEAD.end()), own();
    /// fields of a response, and of its trailers
    "response-fields" => proxy.response_fields: Small(1..=ProxyConfig::MAX_RESPONSE_FIELDS), own();
    /// bytes of a request's body that are kept, so that it can be sent again
    "kept-body" => proxy.kept_body: size(0, ProxyConfig::MAX_KEPT_BODY), own();
    /// authority (PEM) of the certificates of `https` upstreams
    "ca" => ca: PATH, optional("those of the system");
}

/// Words of `balance`.
const BALANCE: &[(&str, Balance)] = &[
    ("least", Balance::Least),
    ("turns", Balance::Turns),
    ("address", Balance::Address),
    ("path", Balance::Path),
    ("cookie", Balance::Cookie),
];

fn proxy_protocol(keys: &Keys<'_>, key: &'static str) -> Option<ProxyVersion> {
    keys.word(key, &[("v1", ProxyVersion::V1), ("v2", ProxyVersion::V2)])
}

/// Returns whether a text is the URL of an upstream, and no name.
pub(super) fn is_url(text: &str) -> bool {
    text.contains("://") || text.starts_with("unix:")
}

/// Sizes of the head of a response, in bytes.
const HEAD: RangeInclusive<u64> = ProxyConfig::RESPONSE_HEAD;

/// Form of a time that a proxy waits.
const TIME: SpanWithin = SpanWithin(Duration::from_millis(1)..=YEAR);

/// Checks what does not belong to one key.
fn in_whole(origin: &mut OriginConfig, keys: &Keys<'_>) {
    origin.at = Located::at(keys.place("to"), ());
    // All but these was checked with its place.
    match origin.proxy.validate() {
        Err(error @ ProxyError::Via { .. }) => keys.fault("via", error.to_string()),
        Err(error @ ProxyError::Cookie { .. }) => keys.fault("cookie", error.to_string()),
        Err(error @ ProxyError::SharedConnection { .. }) => keys.fault("proxy-protocol", error.to_string()),
        _ => {}
    }
    if keys.has("cookie") && origin.proxy.balance != Balance::Cookie {
        keys.fault("cookie", "`cookie` needs `balance = \"cookie\"`: add it, or remove `cookie`");
    }
}

impl OriginConfig {
    /// Creates an origin that no file has.
    pub(crate) fn new(name: impl Into<String>, proxy: ProxyConfig) -> Self {
        Self { name: name.into(), proxy, ca: None, at: ().into() }
    }

    /// Creates an origin of one upstream with the defaults.
    pub(crate) fn to(uri: &str, place: Place, faults: &Faults) -> Option<Self> {
        let proxy = ProxyConfig::to(uri);
        match proxy.validate() {
            Ok(()) => Some(Self { at: Located::at(place, ()), ..Self::new(uri, proxy) }),
            Err(error) => {
                faults.add(place, error.to_string());
                None
            }
        }
    }
}

fn name(keys: &Keys<'_>, key: &'static str) -> Option<String> {
    let name = keys.some_string(key)?;
    if is_url(name) {
        keys.fault(key, format!("{name:?} is a URL: give a name, and the URL in `to`"));
    }
    Some(name.to_owned())
}

/// Keys of an upstream.
pub(super) struct UpstreamKeys {
    url: Option<Located<String>>,
    weight: u32,
}

keyed! {
    UpstreamKeys, "an upstream", |of: Serve|, onto Self { url: None, weight: 1 };
    /// URL: `http://`, `https://`, `h2c://`, or `unix:/run/app.sock` for HTTP/1.1 over a Unix socket
    "url" => url: Placed(SomeText), need("as \"http://127.0.0.1:3000\"");
    /// share of requests relative to other upstreams
    "weight" => weight: Small(1..=Upstream::MAX_WEIGHT), own();
}

fn upstreams(keys: &Keys<'_>, key: &'static str) -> Option<Vec<Upstream>> {
    let items = keys.several(key, ProxyConfig::MAX_UPSTREAMS);
    if matches!(keys.item(key).map(|item| &item.value), Some(Value::Array(items)) if items.is_empty()) {
        keys.fault(key, format!("`{key}` is empty: give at least one upstream"));
    }
    Some(items.iter().filter_map(|item| upstream(item, keys.faults)).collect())
}

fn upstream(item: &Item, faults: &Faults) -> Option<Upstream> {
    let UpstreamKeys { url, weight } = match &item.value {
        Value::String(url) => UpstreamKeys { url: Some(Located::at(item.place, url.to_string())), weight: 1 },
        Value::Table(table) => UpstreamKeys::open(table, faults, &Serve)?,
        other => {
            let problem = format!("`to` is a URL or a table with `url` and `weight`, not {}", other.what());
            faults.add(item.place, problem);
            return None;
        }
    };
    let Located { value: url, place } = url?;
    let upstream = Upstream::new(url).with_weight(weight);
    let alone = ProxyConfig { upstreams: vec![upstream.clone()], ..ProxyConfig::default() };
    match alone.validate() {
        Ok(()) => Some(upstream),
        Err(error) => {
            faults.add(place, error.to_string());
            None
        }
    }
}

fn forwarders(keys: &Keys<'_>, key: &'static str) -> Option<TrustedForwarders> {
    let mut all = false;
    let addresses = each(keys, key, 1000, |text, _| match text {
        "all" => {
            all = true;
            Ok(None)
        }
        _ => {
            text.parse().map(Some).map_err(|_| format!("{text:?} is no address: give addresses, or \"all\""))
        }
    });
    match all {
        true => Some(TrustedForwarders::All),
        false => Some(TrustedForwarders::Addresses(addresses.into_iter().flatten().collect())),
    }
}

keyed! {
    HealthConfig, "a health check", |of: Serve|, onto Self::default(), check can_request;
    /// path of the request
    "path" => path: SomeText, own();
    /// time between two checks of an upstream
    "interval" => interval: TIME, own();
    /// time to the head of the response
    "timeout" => timeout: TIME, own();
    /// successive checks that bring an unhealthy upstream back
    "healthy-after" => healthy_after: Small(1..=1000), own();
    /// successive failed checks that make an upstream unhealthy
    "unhealthy-after" => unhealthy_after: Small(1..=1000), own();
}

fn can_request(health: &mut HealthConfig, keys: &Keys<'_>) {
    let path = HealthConfig { path: health.path.clone(), ..HealthConfig::default() };
    let alone = ProxyConfig { health: Some(path), ..ProxyConfig::to("http://localhost") };
    if let Err(error) = alone.validate() {
        keys.fault("path", error.to_string());
    }
}

keyed! {
    PassiveConfig, "`passive`", |of: Serve|, onto Self::default();
    /// successive failed requests after which an upstream rests
    "failures" => failures: Small(1..=1_000_000), own();
    /// time for which it rests
    "rest" => rest: TIME, own();
}
