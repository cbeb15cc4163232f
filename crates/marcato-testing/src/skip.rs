use std::fs::OpenOptions;
use std::io::Write as _;
use std::panic::Location;

/// Counts the test that runs in this thread as skipped, and says why.
///
/// [`absent!`](crate::absent) calls it. A test calls it by itself only for what it cannot know before it tries, such as a
/// queue discipline that the kernel refuses by name.
///
/// # Panics
///
/// If the file that `MARCATO_SKIPS` names cannot be written: a skip that is not counted would look like a success.
#[track_caller]
pub fn skip(package: &str, why: &str) {
    // The harness names the thread of a test after it; with one thread for all tests, the place has to do.
    let place = Location::caller();
    let thread = std::thread::current();
    let test = match thread.name() {
        Some("main") | None => format!("{}:{}", place.file(), place.line()),
        Some(name) => name.to_owned(),
    };
    let line = format!("{package}: {test}: {}\n", why.trim().replace('\n', " "));
    // Not by a macro, whose output the harness keeps for itself if a test passes. Nobody may be reading.
    _ = std::io::stderr().write_all(format!("SKIPPED {line}").as_bytes());
    let Some(path) = std::env::var_os("MARCATO_SKIPS") else { return };
    // One write at the end of the file: test programs run beside each other.
    let written = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(error) = written {
        panic!("cannot count a skipped test in {}: {error}", path.display());
    }
}
