//! Trust in the certificates of the system.

#[cfg(feature = "native-certs")]
use std::sync::{Arc, OnceLock};

use marcato_identity::Trust;
#[cfg(feature = "native-certs")]
use rustls::RootCertStore;

use crate::error::TrustError;

/// Root certificates of the system, once they have been read.
#[cfg(feature = "native-certs")]
static SYSTEM: OnceLock<Arc<RootCertStore>> = OnceLock::new();

/// Returns the trust in these roots, which `read` returns if none has been read before.
#[cfg(feature = "native-certs")]
fn remembered(
    roots: &OnceLock<Arc<RootCertStore>>,
    read: impl FnOnce() -> Result<RootCertStore, TrustError>,
) -> Result<Trust, TrustError> {
    let roots = match roots.get() {
        Some(roots) => roots,
        None => {
            let read = Arc::new(read()?);
            roots.get_or_init(|| read)
        }
    };
    Ok(Trust::Roots(Arc::clone(roots)))
}

/// Returns the root certificates that the system trusts. The first call that succeeds reads them,
/// which takes milliseconds; a program that runs when they change keeps the previous ones.
///
/// # Errors
///
/// If the system's certificates cannot be read, or there are none.
#[cfg(feature = "native-certs")]
pub fn system_trust() -> Result<Trust, TrustError> {
    remembered(&SYSTEM, || {
        let found = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let (added, _) = roots.add_parsable_certificates(found.certs);
        if added == 0 {
            let reason =
                found.errors.first().map_or_else(|| "none was found".to_owned(), ToString::to_string);
            return Err(TrustError::NoRoots { reason });
        }
        Ok(roots)
    })
}

/// Returns an error: this build trusts no certificates of the system.
///
/// # Errors
///
/// Always, without the feature `native-certs`.
#[cfg(not(feature = "native-certs"))]
pub fn system_trust() -> Result<Trust, TrustError> {
    Err(TrustError::NotBuilt)
}

/// Returns the trust given, or the system's, which is read off the runtime's threads.
pub(crate) async fn trust_or_system(given: Option<&Trust>) -> Result<Trust, TrustError> {
    if let Some(trust) = given {
        return Ok(trust.clone());
    }
    // Without roots in memory, the call reads files.
    #[cfg(feature = "native-certs")]
    if SYSTEM.get().is_none() {
        let read = tokio::task::spawn_blocking(system_trust).await;
        return read.unwrap_or_else(|error| Err(TrustError::NoRoots { reason: error.to_string() }));
    }
    system_trust()
}

#[cfg(all(test, feature = "native-certs"))]
mod tests {
    use super::*;

    #[test]
    fn the_roots_of_the_system_are_read_until_that_succeeds_once() {
        let roots = OnceLock::new();
        let fails = || Err(TrustError::NoRoots { reason: "not yet".to_owned() });
        assert!(remembered(&roots, fails).is_err());
        let Ok(Trust::Roots(first)) = remembered(&roots, || Ok(RootCertStore::empty())) else {
            panic!("it was read")
        };
        let Ok(Trust::Roots(again)) = remembered(&roots, fails) else { panic!("it is known") };
        assert!(Arc::ptr_eq(&first, &again));
    }
}
