//! Checks of passwords, away from the threads of connections.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ring::hmac;
use ring::rand::SystemRandom;
use tokio::sync::Semaphore;

use crate::config::User;

/// Most checks that run or wait.
const MOST: usize = 64;
/// Most of them for one address.
const MOST_OF_ADDRESS: u32 = 4;
/// Most passwords that are known to be right.
const MOST_KNOWN: usize = 4096;
/// Time for which one is known.
const KNOWN_FOR: Duration = Duration::from_secs(600);
/// Longest password: bcrypt takes no more bytes into account.
const LONGEST: usize = 72;

/// Name and password of a request (RFC 7617).
pub(crate) struct Credentials {
    pub(crate) name: String,
    pub(crate) password: Vec<u8>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    Wrong,
    /// Too many checks run and wait.
    Busy,
}

/// Checks of passwords. All sites share their bounds.
///
/// A hash by bcrypt takes tens of milliseconds, which anyone can ask for. Half of the cores do such work at most,
/// and what waits for them is bounded, all together and for each address. A right password is known for a while by
/// its digest under a random key, so that the requests of a page cost one check.
#[derive(Debug)]
pub(crate) struct Passwords {
    threads: Arc<Semaphore>,
    waiting: Mutex<Waiting>,
    known: Mutex<HashMap<[u8; 32], Instant>>,
    key: hmac::Key,
    counts: Counts,
}

/// Numbers of checks since the start.
#[derive(Debug, Default)]
struct Counts {
    right: AtomicU64,
    wrong: AtomicU64,
    busy: AtomicU64,
}

/// Numbers of checks that run or wait.
#[derive(Debug, Default)]
struct Waiting {
    all: usize,
    by_address: HashMap<IpAddr, u32>,
}

/// Place among the checks, until it is dropped.
struct Place {
    passwords: Arc<Passwords>,
    address: IpAddr,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = locked(&self.passwords.waiting);
        waiting.all -= 1;
        if let Some(count) = waiting.by_address.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                waiting.by_address.remove(&self.address);
            }
        }
    }
}

impl Default for Passwords {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self::with_threads((cores / 2).max(1))
    }
}

impl Passwords {
    fn with_threads(threads: usize) -> Self {
        let random = SystemRandom::new();
        // Digests never leave this process: a key that can be guessed does no harm.
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &random)
            .unwrap_or_else(|_| hmac::Key::new(hmac::HMAC_SHA256, &[]));
        Self {
            threads: Arc::new(Semaphore::new(threads)),
            waiting: Mutex::default(),
            known: Mutex::default(),
            key,
            counts: Counts::default(),
        }
    }

    /// Returns whether these credentials were found to be right a while ago.
    pub(crate) fn knows(&self, users: &[User], credentials: &Credentials) -> bool {
        let Some(user) = users.iter().find(|user| user.name == credentials.name) else { return false };
        let digest = self.digest(user, credentials);
        locked(&self.known).get(&digest).is_some_and(|until| Instant::now() < *until)
    }

    /// Checks credentials. The future can be dropped; a check that runs then goes on.
    pub(crate) async fn check(
        self: Arc<Self>,
        users: Arc<[User]>,
        address: Option<IpAddr>,
        credentials: Arc<Credentials>,
    ) -> Verdict {
        if self.knows(&users, &credentials) {
            return Verdict::Right;
        }
        if credentials.password.len() > LONGEST {
            self.counts.wrong.fetch_add(1, Relaxed);
            return Verdict::Wrong;
        }
        let Some(place) = self.place(address) else {
            self.counts.busy.fetch_add(1, Relaxed);
            return Verdict::Busy;
        };
        let Ok(thread) = Arc::clone(&self.threads).acquire_owned().await else { return Verdict::Busy };
        let (named, checked) = (Arc::clone(&users), Arc::clone(&credentials));
        let found = tokio::task::spawn_blocking(move || {
            // Both are held until the work is over, also if the client has gone.
            let _held = (place, thread);
            let user = named.iter().find(|user| user.name == checked.name);
            // An unknown name takes as long as a known one.
            let hash = &user.or(named.first())?.hash;
            let is_right = bcrypt::verify(&checked.password, hash).unwrap_or(false);
            user.filter(|_| is_right).cloned()
        });
        match found.await {
            Ok(Some(user)) => {
                self.remember(self.digest(&user, &credentials));
                self.counts.right.fetch_add(1, Relaxed);
                Verdict::Right
            }
            _ => {
                self.counts.wrong.fetch_add(1, Relaxed);
                Verdict::Wrong
            }
        }
    }

    /// Numbers of right and wrong passwords, and of those that were not checked.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let Counts { right, wrong, busy } = &self.counts;
        (right.load(Relaxed), wrong.load(Relaxed), busy.load(Relaxed))
    }

    fn place(self: &Arc<Self>, address: Option<IpAddr>) -> Option<Place> {
        let address = match address.map(|address| address.to_canonical()) {
            // Hosts choose their addresses within a /64 (RFC 4291 §2.5.4).
            Some(IpAddr::V6(address)) => IpAddr::from((address.to_bits() >> 64 << 64).to_be_bytes()),
            Some(address) => address,
            None => IpAddr::from([0, 0, 0, 0]),
        };
        let mut waiting = locked(&self.waiting);
        let of_address = waiting.by_address.get(&address).copied().unwrap_or(0);
        if waiting.all >= MOST || of_address >= MOST_OF_ADDRESS {
            return None;
        }
        waiting.all += 1;
        waiting.by_address.insert(address, of_address + 1);
        Some(Place { passwords: Arc::clone(self), address })
    }

    fn digest(&self, user: &User, credentials: &Credentials) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        // A hash has no zero byte, and the digest of one that was replaced is another.
        context.update(user.hash.as_bytes());
        context.update(&[0]);
        context.update(&credentials.password);
        let mut digest = [0; 32];
        digest.copy_from_slice(context.sign().as_ref());
        digest
    }

    fn remember(&self, digest: [u8; 32]) {
        let mut known = locked(&self.known);
        let now = Instant::now();
        if known.len() >= MOST_KNOWN {
            known.retain(|_, until| now < *until);
        }
        if known.len() >= MOST_KNOWN {
            // They are asked for again.
            known.clear();
        }
        known.insert(digest, now + KNOWN_FOR);
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn credentials(name: &str, password: &str) -> Arc<Credentials> {
        Arc::new(Credentials { name: name.to_owned(), password: password.as_bytes().to_vec() })
    }

    fn users(password: &str) -> Arc<[User]> {
        [User { name: "ann".to_owned(), hash: bcrypt::hash(password, 4).unwrap() }].into()
    }

    #[tokio::test]
    async fn right_passwords_are_known_until_their_hash_changes() {
        let (passwords, ann) = (Arc::new(Passwords::with_threads(1)), users("secret"));
        let check = |users: &Arc<[User]>, name: &str, password: &str| {
            Arc::clone(&passwords).check(Arc::clone(users), None, credentials(name, password))
        };
        assert_eq!(check(&ann, "ann", "wrong").await, Verdict::Wrong);
        assert_eq!(check(&ann, "bob", "secret").await, Verdict::Wrong);
        assert!(!passwords.knows(&ann, &credentials("ann", "secret")));
        assert_eq!(check(&ann, "ann", "secret").await, Verdict::Right);
        assert!(passwords.knows(&ann, &credentials("ann", "secret")));
        assert!(!passwords.knows(&ann, &credentials("bob", "secret")));
        assert!(!passwords.knows(&users("secret"), &credentials("ann", "secret")));
        assert_eq!(check(&users("other"), "ann", "secret").await, Verdict::Wrong);
        assert_eq!(passwords.counts(), (1, 3, 0));
    }

    #[tokio::test]
    async fn longer_passwords_are_wrong_without_a_check() {
        let (passwords, long) = (Arc::new(Passwords::with_threads(0)), "x".repeat(73));
        let verdict = Arc::clone(&passwords).check(users("x"), None, credentials("ann", &long)).await;
        assert_eq!((verdict, passwords.counts()), (Verdict::Wrong, (0, 1, 0)));
    }

    #[tokio::test]
    async fn checks_that_wait_are_bounded_for_each_address_and_for_all() {
        // No thread is free.
        let (passwords, ann) = (Arc::new(Passwords::with_threads(0)), users("secret"));
        let mut waiting = Vec::new();
        let mut asked = |address: [u8; 4]| {
            let check =
                Arc::clone(&passwords).check(Arc::clone(&ann), Some(address.into()), credentials("ann", "x"));
            let mut check = Box::pin(check);
            let polled = futures_poll(&mut check);
            waiting.push(check);
            polled
        };
        for _ in 0..MOST_OF_ADDRESS {
            assert_eq!(asked([192, 0, 2, 1]), None);
        }
        assert_eq!(asked([192, 0, 2, 1]), Some(Verdict::Busy));
        for host in 0..MOST - MOST_OF_ADDRESS as usize {
            assert_eq!(asked([198, 51, 100, u8::try_from(host).unwrap()]), None);
        }
        assert_eq!(asked([203, 0, 113, 1]), Some(Verdict::Busy));
        waiting.clear();
        let left = locked(&passwords.waiting);
        assert_eq!((left.all, left.by_address.len()), (0, 0));
        assert_eq!(passwords.counts(), (0, 0, 2));
    }

    /// Polls a future once.
    fn futures_poll<F: Future + Unpin>(future: &mut F) -> Option<F::Output> {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::Pin::new(future).poll(&mut context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        }
    }
}
