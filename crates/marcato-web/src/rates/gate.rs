//! Gate through which clients come, if their rates are limited.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ipnet::IpNet;
use marcato_units::{Duration, Time};
use tokio::time::Instant;

use super::notice::Notices;
use super::{Account, AddressLimits, Rates, Refusal};
use crate::config::{Config, Limits};

/// Gate of a server whose rates are limited.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: AddressLimits,
    trusted: Vec<IpNet>,
    epoch: Instant,
    rates: Mutex<Rates>,
    notices: Notices,
}

impl Gate {
    /// Creates the gate of a configuration; `None` if it limits no rate.
    pub(crate) fn new(config: &Config) -> Option<Arc<Self>> {
        let Limits { addresses, connections, .. } = config.limits;
        let limits = limits(config);
        if limits.is_none() {
            return None;
        }
        // With as many addresses as connections there is always one to forget.
        let rates = Mutex::new(Rates::new(limits, addresses.max(connections)));
        Some(Arc::new(Self {
            limits,
            trusted: config.trusted.clone(),
            epoch: Instant::now(),
            rates,
            notices: Notices::default(),
        }))
    }

    /// True if this is the gate of a configuration.
    pub(crate) fn is_of(&self, config: &Config) -> bool {
        self.limits == limits(config) && self.trusted == config.trusted
    }

    /// Lets a connection in, or tells why not. Connections of trusted addresses are not counted.
    pub(crate) fn enter(self: &Arc<Self>, address: IpAddr) -> Result<Option<Guest>, Refusal> {
        let address = address.to_canonical();
        if self.trusted.iter().any(|network| network.contains(&address)) {
            return Ok(None);
        }
        let now = self.now();
        let opened = self.rates().open(now, address);
        let account = opened.inspect_err(|refusal| {
            let key = match refusal {
                Refusal::Rate => "connections",
                Refusal::Open => "open",
                Refusal::Full => "addresses",
            };
            self.notices.refused(now, address, "connection", key);
        })?;
        Ok(Some(Guest { gate: Arc::clone(self), address, account }))
    }

    /// Number of addresses in the table, and of those that were forgotten before they were full again.
    pub(crate) fn addresses(&self) -> (usize, u64) {
        let rates = self.rates();
        (rates.len(), rates.forgotten())
    }

    fn now(&self) -> Time {
        Time::ZERO + self.epoch.elapsed()
    }

    fn rates(&self) -> MutexGuard<'_, Rates> {
        self.rates.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the limits of an address.
const fn limits(config: &Config) -> AddressLimits {
    let Limits { request_rate, connection_rate, open_per_address, .. } = config.limits;
    AddressLimits { requests: request_rate, connections: connection_rate, open: open_per_address }
}

/// Connection of an address whose rates are limited. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Guest {
    gate: Arc<Gate>,
    address: IpAddr,
    account: Arc<Account>,
}

impl Guest {
    /// Takes a request.
    ///
    /// # Errors
    /// The time to wait, if the address makes requests too fast.
    pub(crate) fn request(&self) -> Result<(), Duration> {
        let now = self.gate.now();
        let taken = self.account.request(now, &self.gate.limits);
        taken.inspect_err(|_| self.gate.notices.refused(now, self.address, "request", "requests"))
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.gate.rates().close(self.address);
    }
}
