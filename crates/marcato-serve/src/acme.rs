//! Certificates from an authority, by ACME (RFC 8555) with TLS-ALPN-01 (RFC 8737), or with DNS-01 through a program.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, ChallengeType, Identifier, NewAccount, NewOrder,
    OrderStatus, RetryPolicy,
};
use marcato_web::Identity;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use tokio::sync::mpsc;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::certificates::{Certificates, Presentable, signed};
use crate::dns_hook::Records;

/// Longest time without a look at the certificates.
const LOOK: Duration = Duration::from_secs(12 * 3600);
/// Waits after failures. Authorities limit how often they may be asked.
const WAITS: [Duration; 4] = [
    Duration::from_secs(60),
    Duration::from_secs(600),
    Duration::from_secs(3600),
    Duration::from_secs(6 * 3600),
];
/// Longest time for an authority to check names, or to issue.
const PATIENCE: Duration = Duration::from_secs(120);

/// Error returned when no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AcmeError {
    /// The authority refuses, or cannot be reached.
    #[error("{0}")]
    Authority(#[from] instant_acme::Error),
    /// The authority does not check names in this way.
    #[error("the authority does not offer {0} for {1}")]
    NoChallenge(&'static str, String),
    /// The program for records of DNS failed.
    #[error("{0}")]
    Hook(String),
    /// The authority could not check the names.
    #[error("the authority could not check the names: {0}")]
    Unchecked(String),
    /// A key or a request cannot be made.
    #[error("no request could be made: {0}")]
    Request(#[from] rcgen::Error),
    /// What was issued cannot be used.
    #[error("what was issued cannot be used: {0}")]
    Issued(String),
    /// The state cannot be written.
    #[error("{} cannot be written: {error}", path.display())]
    State {
        /// File or directory.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The account cannot be read.
    #[error("the account in {} cannot be read ({reason}): remove the file to create another", path.display())]
    Account {
        /// File of the account.
        path: PathBuf,
        /// Reason, as text.
        reason: String,
    },
}

/// Settings of the account, with paths as they are opened.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) state: PathBuf,
    pub(crate) directory: String,
    pub(crate) contacts: Vec<String>,
    pub(crate) ca: Option<PathBuf>,
    pub(crate) renew_before: Duration,
    /// Program and arguments for DNS-01; TLS-ALPN-01 if empty.
    pub(crate) dns_hook: Vec<String>,
    /// Names of each site.
    pub(crate) sites: Vec<Vec<String>>,
}

/// Result of an attempt, for the log.
#[derive(Debug)]
pub(crate) enum Event {
    /// A certificate was issued, and stands in the state directory.
    Issued(String),
    /// No certificate was issued.
    Failed(String),
}

/// Returns the stored certificate for these hosts; `None` if it is absent, damaged or for other hosts.
pub(crate) fn stored(state: &Path, hosts: &[&str]) -> Option<Identity> {
    let file = file(state, hosts.first()?);
    let identity = Identity::from_pem_files(&file, &file).ok()?;
    let presentable = Presentable::new(identity).ok()?;
    hosts.iter().all(|host| presentable.covers(host)).then_some(presentable.identity)
}

/// File of the certificate and its key, by the first name.
fn file(state: &Path, host: &str) -> PathBuf {
    // An asterisk means much in a shell.
    state.join(format!("{}.pem", host.replace('*', "_")))
}

/// Returns the time at which a certificate is to be renewed; `None` if it cannot be read.
fn renewal(identity: &Identity, renew_before: Duration) -> Option<SystemTime> {
    let (_, certificate) = X509Certificate::from_der(identity.certificate()?).ok()?;
    let seconds = |timestamp: i64| u64::try_from(timestamp).ok().map(Duration::from_secs);
    let validity = certificate.validity();
    let (begin, end) = (seconds(validity.not_before.timestamp())?, seconds(validity.not_after.timestamp())?);
    // A third of the lifetime is left for renewals of short-lived ones.
    let margin = renew_before.min(end.saturating_sub(begin) / 3);
    Some(SystemTime::UNIX_EPOCH + end.saturating_sub(margin))
}

/// Keeper of the certificates of all sites: it asks for those that are missing or about to end.
pub(crate) struct Keeper {
    pub(crate) settings: Settings,
    pub(crate) certificates: Arc<Certificates>,
    pub(crate) events: mpsc::Sender<Event>,
}

impl Keeper {
    /// Works until the future is dropped.
    pub(crate) async fn run(self) {
        let mut failures = vec![0_usize; self.settings.sites.len()];
        let mut not_before = vec![SystemTime::UNIX_EPOCH; self.settings.sites.len()];
        loop {
            let now = SystemTime::now();
            let mut next = now + LOOK;
            for (site, hosts) in self.settings.sites.iter().enumerate() {
                let names: Vec<&str> = hosts.iter().map(String::as_str).collect();
                let due = stored(&self.settings.state, &names)
                    .and_then(|identity| renewal(&identity, self.settings.renew_before))
                    .unwrap_or(now)
                    .max(not_before[site]);
                if due > now {
                    next = next.min(due);
                    continue;
                }
                let shown = hosts.join(", ");
                let event = match self.obtain(hosts).await {
                    Ok(()) => {
                        failures[site] = 0;
                        // An authority whose certificates end at once is not asked in a loop.
                        not_before[site] = SystemTime::now() + WAITS[0];
                        Event::Issued(format!("certificate for {shown} issued"))
                    }
                    Err(error) => {
                        let wait = WAITS[failures[site].min(WAITS.len() - 1)];
                        failures[site] += 1;
                        not_before[site] = SystemTime::now() + wait;
                        next = next.min(not_before[site]);
                        let wait = wait.as_secs() / 60;
                        Event::Failed(format!(
                            "certificate for {shown} not issued: {error}; the next try is in {wait} min"
                        ))
                    }
                };
                if self.events.send(event).await.is_err() {
                    return;
                }
            }
            let wait = next.duration_since(SystemTime::now()).unwrap_or_default();
            tokio::time::sleep(wait.max(Duration::from_secs(1))).await;
        }
    }

    async fn account(&self) -> Result<Account, AcmeError> {
        let Settings { state, directory, contacts, ca, .. } = &self.settings;
        let builder = match ca {
            Some(ca) => Account::builder_with_root(ca)?,
            None => Account::builder()?,
        };
        // An account belongs to one authority.
        let safe = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
        let path = state.join(format!("account-{}.json", directory.chars().map(safe).collect::<String>()));
        match fs::read(&path) {
            Ok(bytes) => {
                let credentials: AccountCredentials = serde_json::from_slice(&bytes)
                    .map_err(|error| AcmeError::Account { path, reason: error.to_string() })?;
                Ok(builder.from_credentials(credentials).await?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let contact: Vec<&str> = contacts.iter().map(String::as_str).collect();
                let new = NewAccount {
                    contact: &contact,
                    terms_of_service_agreed: true,
                    only_return_existing: false,
                };
                let (account, credentials) = builder.create(&new, directory.clone(), None).await?;
                let text = serde_json::to_vec(&credentials)
                    .map_err(|error| AcmeError::Account { path: path.clone(), reason: error.to_string() })?;
                write(&path, &text)?;
                Ok(account)
            }
            Err(error) => Err(AcmeError::Account { path, reason: error.to_string() }),
        }
    }

    async fn obtain(&self, hosts: &[String]) -> Result<(), AcmeError> {
        let state = &self.settings.state;
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(state)
            .map_err(|error| AcmeError::State { path: state.clone(), error })?;
        let account = self.account().await?;
        let identifiers: Vec<Identifier> = hosts.iter().cloned().map(Identifier::Dns).collect();
        let mut order = account.new_order(&NewOrder::new(&identifiers)).await?;
        let mut records = Records::new(&self.settings.dns_hook);
        let checked = self.check(&mut order, &mut records).await;
        for failure in records.remove().await {
            tracing::warn!(failure, "a record of a name that was checked stays: remove it");
        }
        checked?;
        let patience = RetryPolicy::default().timeout(PATIENCE);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(hosts)?;
        params.distinguished_name = DistinguishedName::new();
        order.finalize_csr(params.serialize_request(&key)?.der()).await?;
        let chain = order.poll_certificate(&patience).await?;
        let both = format!("{chain}\n{}", key.serialize_pem());
        Identity::from_pem(both.as_bytes(), both.as_bytes())
            .map_err(|error| AcmeError::Issued(error.to_string()))?;
        let first = hosts.first().map(String::as_str).unwrap_or_default();
        write(&file(state, first), both.as_bytes())
    }
}

impl Keeper {
    /// Has the authority check the names of an order.
    async fn check(
        &self,
        order: &mut instant_acme::Order,
        records: &mut Records<'_>,
    ) -> Result<(), AcmeError> {
        let by_dns = !self.settings.dns_hook.is_empty();
        let mut checks = Checks { certificates: &self.certificates, names: Vec::new() };
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization?;
            if authorization.status == AuthorizationStatus::Valid {
                continue;
            }
            let name = authorization.identifier().to_string();
            let (kind, shown) = match by_dns {
                true => (ChallengeType::Dns01, "DNS-01"),
                false => (ChallengeType::TlsAlpn01, "TLS-ALPN-01"),
            };
            let Some(mut challenge) = authorization.challenge(kind) else {
                return Err(AcmeError::NoChallenge(shown, name));
            };
            let key = challenge.key_authorization();
            if by_dns {
                records.set(&name, key.dns_value()).await.map_err(AcmeError::Hook)?;
            } else {
                checks.begin(name, key.digest().as_ref())?;
            }
            challenge.set_ready().await?;
        }
        let patience = RetryPolicy::default().timeout(PATIENCE);
        if order.poll_ready(&patience).await? != OrderStatus::Ready {
            return Err(AcmeError::Unchecked(reasons(order).await));
        }
        Ok(())
    }
}

/// Returns what an authority says about names that it could not check.
async fn reasons(order: &mut instant_acme::Order) -> String {
    let mut said = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(Ok(authorization)) = authorizations.next().await {
        let name = authorization.identifier().to_string();
        let problems = authorization.challenges.iter().filter_map(|challenge| challenge.error.as_ref());
        said.extend(problems.map(|problem| format!("{name}: {problem}")));
    }
    if said.is_empty() { "it does not say why".to_owned() } else { said.join("; ") }
}

/// Names that are being checked, until it is dropped.
struct Checks<'c> {
    certificates: &'c Certificates,
    names: Vec<String>,
}

impl Checks<'_> {
    /// Presents the certificate by which the authority knows the account (RFC 8737 §3).
    fn begin(&mut self, name: String, digest: &[u8]) -> Result<(), AcmeError> {
        let mut params = CertificateParams::new([name.clone()])?;
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let presentable = Presentable::for_authority(signed(params)?)
            .map_err(|error| AcmeError::Issued(error.to_string()))?;
        self.certificates.challenge(&name, &presentable);
        self.names.push(name);
        Ok(())
    }
}

impl Drop for Checks<'_> {
    fn drop(&mut self) {
        for name in &self.names {
            self.certificates.end_challenge(name);
        }
    }
}

/// Writes a file that only the owner may read, as a whole or not at all.
fn write(path: &Path, content: &[u8]) -> Result<(), AcmeError> {
    let failed = |error| AcmeError::State { path: path.to_owned(), error };
    let beside = path.with_extension("new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&beside)
        .map_err(failed)?;
    file.write_all(content).and_then(|()| file.sync_all()).map_err(failed)?;
    fs::rename(&beside, path).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored_for(names: &[&str], days: (i32, i32)) -> Identity {
        let mut params =
            CertificateParams::new(names.iter().map(ToString::to_string).collect::<Vec<_>>()).unwrap();
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(days.0, 1, 1), rcgen::date_time_ymd(days.1, 1, 1));
        signed(params).unwrap()
    }

    #[test]
    fn a_stored_certificate_serves_only_hosts_that_it_covers() {
        let dir = tempfile::tempdir().unwrap();
        let made = stored_for(&["a.test", "b.test"], (2026, 2027));
        assert!(stored(dir.path(), &["a.test"]).is_none());
        let both = made.chain_pem() + &made.key_pem();
        write(&file(dir.path(), "a.test"), both.as_bytes()).unwrap();
        assert!(stored(dir.path(), &["a.test", "b.test"]).is_some());
        assert!(stored(dir.path(), &["a.test", "c.test"]).is_none());
        let mode = std::os::unix::fs::MetadataExt::mode(&fs::metadata(file(dir.path(), "a.test")).unwrap());
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn challenges_are_presented_while_a_name_is_checked() {
        let certificates = Certificates::new();
        let mut checks = Checks { certificates: &certificates, names: Vec::new() };
        checks.begin("a.test".to_owned(), &[7; 32]).unwrap();
        assert!(certificates.is_challenged("a.test") && !certificates.is_challenged("b.test"));
        drop(checks);
        assert!(!certificates.is_challenged("a.test"));
    }

    #[test]
    fn renewal_comes_before_the_end_and_within_the_last_third() {
        let made = stored_for(&["a.test"], (2030, 2031));
        let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_924_992_000);
        let day = Duration::from_secs(86_400);
        assert_eq!(renewal(&made, day * 30), Some(end - day * 30));
        assert_eq!(renewal(&made, day * 300), Some(end - day * 365 / 3));
    }
}
