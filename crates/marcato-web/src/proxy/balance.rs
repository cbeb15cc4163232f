//! Tie of each request to an upstream.

use std::net::IpAddr;

use http::HeaderValue;
use http::header::{COOKIE, HeaderMap, SET_COOKIE};

use super::choice::Tie;
use super::config::{Balance, ProxyConfig};
use super::origin::digest;

/// Returns the tie of a request. `seeds` are the digests of the upstreams.
pub(super) fn tie(
    config: &ProxyConfig,
    seeds: impl Iterator<Item = u64>,
    peer: Option<IpAddr>,
    path: &str,
    headers: &HeaderMap,
) -> Tie {
    match config.balance {
        Balance::Least => Tie::Least,
        Balance::Turns => Tie::Turns,
        Balance::Address => match peer {
            Some(IpAddr::V4(address)) => Tie::Digest(digest(&address.octets())),
            Some(IpAddr::V6(address)) => Tie::Digest(digest(&address.octets())),
            None => Tie::Least,
        },
        Balance::Path => Tie::Digest(digest(path.as_bytes())),
        Balance::Cookie => {
            let named = cookie(headers, &config.cookie).and_then(|value| u64::from_str_radix(value, 16).ok());
            Tie::Upstream(named.and_then(|named| {
                let mut seeds = seeds.enumerate();
                seeds.find_map(|(index, seed)| (seed == named).then_some(index))
            }))
        }
    }
}

/// Returns the value of a cookie (RFC 6265 §4.2.1).
fn cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(COOKIE).into_iter().filter_map(|field| field.to_str().ok());
    let mut pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find_map(|(key, value)| (key == name).then_some(value))
}

/// Adds the cookie that ties a client to an upstream, for the time of its session.
pub(super) fn set_cookie(headers: &mut HeaderMap, name: &str, seed: u64, is_secure: bool) {
    let secure = if is_secure { "; Secure" } else { "" };
    let cookie = format!("{name}={seed:016x}; Path=/; HttpOnly; SameSite=Lax{secure}");
    if let Ok(value) = HeaderValue::try_from(cookie) {
        // A full map refuses the field; the client is then tied to nothing.
        let _ = headers.try_append(SET_COOKIE, value);
    }
}
