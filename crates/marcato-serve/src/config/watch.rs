//! Page of the last connections.

use ipnet::IpNet;
use marcato_document::form::Count;
use marcato_document::keyed;
use marcato_web::Traces;

use super::form::{By, FlagOr, Serve};
use super::rates::networks;

/// Settings of the page `/.marcato/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Watch {
    /// Connections that are kept.
    pub connections: usize,
    /// Networks whose clients see the page, besides this machine.
    pub allow: Vec<IpNet>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { connections: Traces::CONNECTIONS, allow: Vec::new() }
    }
}

/// Form of `watch`.
pub(super) const FORM: FlagOr<Watch, Option<Watch>> =
    FlagOr { flag: |is_on| is_on.then(Watch::default), table: Some };

keyed! {
    Watch, "[watch]", |of: Serve|, onto Self::default();
    /// connections that are kept
    "connections" => connections: Count(1..=1000), own();
    /// networks whose clients see the page
    "allow" => allow: By(networks), own("this machine alone");
}
