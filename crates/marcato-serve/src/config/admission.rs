//! Rule of who is served.

use std::str::FromStr as _;

use bcrypt::HashParts;
use ipnet::IpNet;
use marcato_document::form::{Flag, SomeText};
use marcato_document::{Keys, Value, keyed};

use super::form::{By, Placed, Serve};
use super::located::Located;
use super::rates::networks;

/// Most users of a rule.
const MAX_USERS: usize = 1000;
/// Highest cost of a hash: a check of it takes about a second.
const MAX_COST: u32 = 14;

/// Rule of who is served: clients of networks, with certificates, and users with passwords. All must agree.
#[derive(Clone, Debug, PartialEq)]
pub struct Admission {
    /// Networks whose clients are served; none for all.
    pub allow: Vec<IpNet>,
    /// Networks whose clients are refused, also if `allow` has them.
    pub deny: Vec<IpNet>,
    /// Users, of whom a request has to be one; none for requests of anyone.
    pub users: Vec<User>,
    /// Name of the protected part, which browsers show.
    pub realm: String,
    /// True to ask for a certificate of the client, by the authority of [`client_ca`](super::Config::client_ca).
    pub client_certificate: Located<bool>,
}

/// User with the hash of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Name, without a colon.
    pub name: String,
    /// Hash by bcrypt.
    pub hash: String,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            allow: Vec::new(),
            deny: Vec::new(),
            users: Vec::new(),
            realm: "restricted".to_owned(),
            client_certificate: false.into(),
        }
    }
}

keyed! {
    Admission, "`access`", |of: Serve|, onto Self::default(), check is_complete;
    /// networks whose clients are served, as `"192.0.2.0/24"`; others get 403
    "allow" => allow: By(networks), own("all");
    /// networks whose clients get 403, also if `allow` has them
    "deny" => deny: By(networks), own("none");
    /// names with hashes by bcrypt, as `htpasswd -nB` and `caddy hash-password` print them; requests without a right password get 401
    "users" => users: By(users), own("none: no password is asked for");
    /// name of the protected part, which browsers show
    "realm" => realm: SomeText, own();
    /// asks for a certificate of the client, by the authority of `client-ca`; requests without one get 403
    "client-certificate" => client_certificate: Placed(Flag), own("`false`");
}

fn is_complete(admission: &mut Admission, keys: &Keys<'_>) {
    let is_quotable = |c: char| matches!(c, ' '..='~') && !matches!(c, '"' | '\\');
    if !admission.realm.chars().all(is_quotable) {
        let remedy = "use printable ASCII without quotes and backslashes";
        keys.fault("realm", format!("{:?} is no realm: {remedy}", admission.realm));
    }
    let is_empty = |key: &str| match keys.item(key).map(|item| &item.value) {
        Some(Value::Array(items)) => items.is_empty(),
        Some(Value::Table(table)) => table.entries.is_empty(),
        _ => false,
    };
    if is_empty("allow") {
        keys.fault("allow", "`allow` has no network, so nobody is served: give one, or remove the key");
    }
    if is_empty("users") {
        keys.fault("users", "`users` has no user, so nobody is served: give one, or remove the key");
    }
}

fn users(keys: &Keys<'_>, key: &'static str) -> Option<Vec<User>> {
    let table = keys.table(key)?;
    if table.entries.len() > MAX_USERS {
        keys.fault(key, format!("`{key}` has {} users: give at most {MAX_USERS}", table.entries.len()));
    }
    let mut users = Vec::new();
    for (name, item) in table.entries.iter().take(MAX_USERS) {
        // RFC 7617 §2: a user's name has no colon, and neither part has control characters.
        if name.name.is_empty() || name.name.contains(|c: char| c == ':' || c.is_control()) {
            let problem = format!("{:?} is no name of a user: write one without colons", name.name);
            keys.faults.add(name.place, problem);
        }
        let hash = item.as_str().unwrap_or_default();
        match HashParts::from_str(hash) {
            Ok(parts) if (4..=MAX_COST).contains(&parts.get_cost()) => {}
            Ok(parts) => {
                let cost = parts.get_cost();
                let problem = format!("the hash of `{}` has the cost {cost}: use 4 to {MAX_COST}", name.name);
                keys.faults.add(item.place, problem);
            }
            Err(_) => {
                let remedy = "write one as \"$2y$10$…\", which `htpasswd -nB NAME` prints";
                let problem = format!("the password of `{}` is no hash by bcrypt: {remedy}", name.name);
                keys.faults.add(item.place, problem);
            }
        }
        users.push(User { name: name.name.clone(), hash: hash.to_owned() });
    }
    Some(users)
}
