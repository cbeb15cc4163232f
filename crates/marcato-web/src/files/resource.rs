//! Resource: a file and its precompressed variants.

use std::fs::Metadata;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http::HeaderValue;

use super::cache::OVERHEAD;
use super::etag::EntityTag;
use super::read::{Now, read_now, read_waiting};
use super::representation::{Properties, Representation};
use super::root::{Access, OpenError, Opened};
use crate::encoding::{Accepted, Coding};

/// Largest file that is read into memory on a thread that runs other tasks. Copying it takes tens of
/// microseconds.
const INLINE: u64 = 256 << 10;

/// Age below which a file may change again without a new modification time.
const UNSETTLED: i128 = 1_000_000_000;

/// Resource, as the file system had it at some time.
#[derive(Debug)]
pub(super) struct Resource {
    variants: Vec<Variant>,
    /// Time of the last check, in nanoseconds since the start of the service.
    checked: AtomicU64,
}

/// File of a resource, in one coding.
#[derive(Clone, Debug)]
pub(super) struct Variant {
    pub(super) coding: Coding,
    pub(super) stamp: Stamp,
    pub(super) representation: Representation,
    /// Content, if it is small and some client wanted it.
    pub(super) content: Option<Bytes>,
}

impl Resource {
    /// Creates a resource. Its variants begin with identity.
    pub(super) fn new(variants: Vec<Variant>, checked: Duration) -> Self {
        Self { variants, checked: AtomicU64::new(nanoseconds(checked)) }
    }

    /// Returns the variant for a client.
    pub(super) fn choose(&self, accepted: &Accepted) -> Option<&Variant> {
        let coding = match self.variants.len() {
            1 => Coding::Identity,
            _ => accepted.choose(|coding| self.variant(coding).is_some()),
        };
        self.variant(coding)
    }

    /// Returns the variant of a coding.
    pub(super) fn variant(&self, coding: Coding) -> Option<&Variant> {
        self.variants.iter().find(|variant| variant.coding == coding)
    }

    /// Returns true if the last check is older than `revalidate`. The caller must then check the
    /// resource. Other callers use the content in memory meanwhile.
    pub(super) fn claim(&self, now: Duration, revalidate: Duration) -> bool {
        let now = nanoseconds(now);
        let checked = self.checked.load(Ordering::Relaxed);
        let is_due = now.saturating_sub(checked) >= nanoseconds(revalidate);
        let claim = || self.checked.compare_exchange(checked, now, Ordering::Relaxed, Ordering::Relaxed);
        is_due && (revalidate.is_zero() || claim().is_ok())
    }

    /// Notes that the resource was checked.
    pub(super) fn confirm(&self, now: Duration) {
        self.checked.store(nanoseconds(now), Ordering::Relaxed);
    }

    /// Returns true if the files are those of this resource, unchanged.
    pub(super) fn is_unchanged(&self, files: &[(Coding, Stamp)]) -> bool {
        let is_equal = |(variant, (coding, stamp)): (&Variant, &(Coding, Stamp))| {
            variant.coding == *coding && variant.is_unchanged(stamp)
        };
        self.variants.len() == files.len() && self.variants.iter().zip(files).all(is_equal)
    }

    /// Memory of the resource under a path; `None` if it holds no content.
    pub(super) fn cost(&self, path: &str) -> Option<marcato_units::Bytes> {
        let contents = self.variants.iter().filter_map(|variant| variant.content.as_ref());
        let mut bytes = 0;
        let mut is_empty = true;
        for content in contents {
            bytes += content.len();
            is_empty = false;
        }
        let overheads = OVERHEAD * u64::try_from(self.variants.len()).unwrap_or(u64::MAX);
        let bytes = u64::try_from(bytes + path.len()).unwrap_or(u64::MAX);
        (!is_empty).then(|| overheads + marcato_units::Bytes::new(bytes))
    }
}

impl Variant {
    /// Returns true if the file is that of this variant, and its content cannot differ.
    ///
    /// A file that had been modified within the last second may have changed without a trace.
    pub(super) fn is_unchanged(&self, stamp: &Stamp) -> bool {
        self.stamp == *stamp && !self.representation.tag().is_weak()
    }
}

/// Properties of a file that change when its content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    len: u64,
    /// Time of the last modification, in nanoseconds of Unix.
    modified: i128,
    /// Time of the last change of the inode, in nanoseconds of Unix. Tools that set the modification time
    /// back cannot set this one.
    changed: i128,
}

impl Stamp {
    /// Returns the stamp of a file.
    pub(super) fn of(metadata: &Metadata) -> Self {
        let time =
            |seconds: i64, nanoseconds: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            len: metadata.len(),
            modified: time(metadata.mtime(), metadata.mtime_nsec()),
            changed: time(metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// Length of the file.
    pub(super) const fn len(&self) -> u64 {
        self.len
    }

    /// Returns true if the file was modified before another one.
    ///
    /// A tool that copies the time of the original may copy it in seconds, milliseconds or microseconds only. A time
    /// without a finer part is therefore compared with that of the original without it.
    pub(super) fn is_older_than(&self, original: &Self) -> bool {
        let unit =
            [1_000_000_000, 1_000_000, 1_000].into_iter().find(|unit| self.modified % unit == 0).unwrap_or(1);
        self.modified.div_euclid(unit) < original.modified.div_euclid(unit)
    }

    /// Returns the entity tag: of length, modification time and inode.
    ///
    /// RFC 9110 §8.8.1: a validator is weak if it may stay the same when the content changes. That holds
    /// for a modification time within the last second, or in the future.
    pub(super) fn tag(&self, now: SystemTime) -> EntityTag {
        // The hash keeps the number of the inode from clients.
        let mut hasher = DefaultHasher::new();
        (self.inode, self.modified).hash(&mut hasher);
        EntityTag::new(self.len, hasher.finish(), unix(now) - self.modified < UNSETTLED)
    }

    /// Returns the value of `Last-Modified` in seconds of Unix. RFC 9110 §8.8.2.1: it MUST NOT be later
    /// than the response.
    pub(super) fn last_modified(&self, now: SystemTime) -> u64 {
        u64::try_from(self.modified.min(unix(now)) / 1_000_000_000).unwrap_or(0)
    }
}

/// Creates the variant of an open file. Its content stays where it is.
pub(super) fn variant(
    coding: Coding,
    stamp: Stamp,
    now: SystemTime,
    (content_type, varies, cache_control): (HeaderValue, bool, Option<&HeaderValue>),
) -> Variant {
    let representation = Representation::new(Properties {
        len: stamp.len(),
        tag: stamp.tag(now),
        modified: stamp.last_modified(now),
        content_type,
        coding,
        varies,
        cache_control,
    });
    Variant { coding, stamp, representation, content: None }
}

/// Reads a file into memory. Returns `None` if it changes meanwhile.
///
/// # Errors
/// [`OpenError`] if it cannot be read, or not without waiting.
pub(super) fn read(opened: &Opened, access: Access) -> Result<Option<Bytes>, OpenError> {
    let stamp = Stamp::of(&opened.metadata);
    if access == Access::Cached && stamp.len > INLINE {
        return Err(OpenError::WouldBlock);
    }
    let Ok(size) = usize::try_from(stamp.len) else { return Ok(None) };
    let mut buffer = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match step(opened, u64::try_from(filled).unwrap_or(u64::MAX), &mut buffer[filled..], access)? {
            0 => return Ok(None),
            read => filled += read,
        }
    }
    let is_unchanged = Stamp::of(&opened.file.metadata()?) == stamp;
    Ok(is_unchanged.then(|| buffer.into()))
}

/// Reads some bytes of a file; none at its end.
fn step(opened: &Opened, offset: u64, buffer: &mut [u8], access: Access) -> Result<usize, OpenError> {
    let read = |result: io::Result<usize>| result.map_err(OpenError::from);
    match access {
        Access::Blocking => read(read_waiting(&opened.file, offset, buffer)),
        Access::Cached => match read_now(&opened.file, offset, buffer)? {
            Now::Read(read) => Ok(read),
            Now::WouldBlock | Now::Unsupported => Err(OpenError::WouldBlock),
        },
    }
}

/// Nanoseconds as an integer. 64 bits suffice for 584 years.
fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Nanoseconds of Unix. Clocks before 1970 count as 1970.
fn unix(now: SystemTime) -> i128 {
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i128::try_from(since.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stamp(modified: i128) -> Stamp {
        Stamp { device: 1, inode: 2, len: 3, modified, changed: 0 }
    }

    fn resource() -> Resource {
        let now = UNIX_EPOCH + 100 * SECOND;
        let content_type = HeaderValue::from_static("text/plain");
        let variant = variant(Coding::Identity, stamp(0), now, (content_type, false, None));
        Resource::new(vec![variant], SECOND)
    }

    #[test]
    fn recent_modifications_have_weak_tags() {
        let now = UNIX_EPOCH + 100 * SECOND;
        for (modified, is_weak) in [
            (0, false),
            (-5, false),
            (99_000_000_000, false),
            (99_000_000_001, true),
            (100_000_000_000, true),
            (200_000_000_000, true),
        ] {
            assert_eq!(stamp(modified).tag(now).is_weak(), is_weak, "{modified}");
        }
    }

    #[test]
    fn last_modified_is_never_in_the_future() {
        let now = UNIX_EPOCH + 100 * SECOND;
        for (modified, seconds) in [(-1, 0), (1_999_999_999, 1), (i128::from(i64::MAX), 100)] {
            assert_eq!(stamp(modified).last_modified(now), seconds);
        }
    }

    #[test]
    fn times_are_compared_as_finely_as_they_were_copied() {
        let original = stamp(100_123_456_789);
        for (copied, is_older) in [
            (100_123_456_789, false),
            (100_123_456_790, false),
            (100_123_456_788, true),
            (100_123_456_000, false),
            (100_123_455_000, true),
            (100_123_000_000, false),
            (100_122_000_000, true),
            (100_000_000_000, false),
            (99_000_000_000, true),
            (101_000_000_000, false),
            (0, true),
            (-1, true),
        ] {
            assert_eq!(stamp(copied).is_older_than(&original), is_older, "{copied}");
        }
    }

    #[test]
    fn one_caller_claims_each_check() {
        let resource = resource();
        assert!(!resource.claim(SECOND, SECOND));
        assert!(resource.claim(2 * SECOND, SECOND));
        assert!(!resource.claim(2 * SECOND, SECOND));
        assert!(!resource.claim(SECOND, SECOND));
        resource.confirm(3 * SECOND);
        assert!(!resource.claim(3 * SECOND, SECOND));
        assert!(resource.claim(3 * SECOND, Duration::ZERO) && resource.claim(3 * SECOND, Duration::ZERO));
    }

    #[test]
    fn each_property_of_a_file_tells_of_a_change() {
        let resource = resource();
        assert!(resource.is_unchanged(&[(Coding::Identity, stamp(0))]));
        for other in [
            Stamp { device: 0, ..stamp(0) },
            Stamp { inode: 0, ..stamp(0) },
            Stamp { len: 0, ..stamp(0) },
            Stamp { changed: 1, ..stamp(0) },
            stamp(1),
        ] {
            assert!(!resource.is_unchanged(&[(Coding::Identity, other)]), "{other:?}");
        }
        assert!(!resource.is_unchanged(&[(Coding::Identity, stamp(0)), (Coding::Gzip, stamp(0))]));
    }

    #[test]
    fn stamps_have_both_times_of_a_file() {
        let file = tempfile::tempfile().unwrap();
        let modified = UNIX_EPOCH + Duration::new(100, 7);
        file.set_times(std::fs::FileTimes::new().set_modified(modified)).unwrap();
        let stamp = Stamp::of(&file.metadata().unwrap());
        assert_eq!(stamp.modified, 100_000_000_007);
        assert!(stamp.changed > stamp.modified);
    }

    #[test]
    fn resources_without_content_are_not_kept() {
        let mut resource = resource();
        assert_eq!(resource.cost("a.txt"), None);
        resource.variants[0].content = Some(Bytes::from_static(b"xyz"));
        assert_eq!(resource.cost("a.txt"), Some(OVERHEAD + marcato_units::Bytes::new(8)));
    }
}
