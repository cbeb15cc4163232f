//! File of the peers that refuse the TCP option: an address and a time of the clock in each line.

use std::fmt::Write as _;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use marcato_kernel::PriorityOption;

use super::RunError;

/// Peers, each with the time for which it is remembered.
type Peers = Vec<(IpAddr, Duration)>;

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Reads the file; without it there are none.
pub(super) fn read(path: &Path) -> Result<Peers, RunError> {
    match std::fs::read_to_string(path) {
        Ok(text) => parse(&text, now()).map_err(|line| RunError::Peer { path: path.to_owned(), line }),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(source) => Err(RunError::Peers { path: path.to_owned(), source }),
    }
}

/// Writes the file anew. A reader sees the one before or this one.
pub(super) fn write(path: &Path, peers: &[(IpAddr, Duration)]) -> Result<(), RunError> {
    let failed = |source| RunError::Peers { path: path.to_owned(), source };
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    std::fs::write(&beside, text(peers, now())).map_err(failed)?;
    std::fs::rename(&beside, path).map_err(failed)
}

fn text(peers: &[(IpAddr, Duration)], now: Duration) -> String {
    let mut text = String::new();
    for (peer, lasts) in peers {
        let _ = writeln!(text, "{peer} {}", (now + *lasts).as_secs());
    }
    text
}

/// Parses the file, as far as the map has room. Returns the number of the first line that is none of it.
fn parse(text: &str, now: Duration) -> Result<Peers, usize> {
    let mut peers = Vec::new();
    for (number, line) in (1_usize..).zip(text.lines()).filter(|(_, line)| !line.is_empty()) {
        let (peer, until) = line.split_once(' ').ok_or(number)?;
        let peer = peer.parse().map_err(|_| number)?;
        let until = Duration::from_secs(until.parse().map_err(|_| number)?);
        // A clock that was set back does not make it longer.
        let lasts = until.saturating_sub(now).min(PriorityOption::REMEMBERED);
        if !lasts.is_zero() && peers.len() < PriorityOption::MOST_PEERS {
            peers.push((peer, lasts));
        }
    }
    Ok(peers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_kept_until_their_time_is_over() {
        let hour = Duration::from_secs(3600);
        let peers: Peers =
            vec![("192.0.2.1".parse().unwrap(), hour), ("2001:db8::1".parse().unwrap(), 3 * hour)];
        let text = text(&peers, 100 * hour);
        assert_eq!(text, "192.0.2.1 363600\n2001:db8::1 370800\n");
        assert_eq!(parse(&text, 100 * hour), Ok(peers.clone()));
        assert_eq!(parse(&text, 102 * hour), Ok(vec![(peers[1].0, hour)]));
        assert_eq!(parse(&text, 103 * hour), Ok(Vec::new()));
        assert_eq!(parse(&text, Duration::ZERO).unwrap()[0].1, PriorityOption::REMEMBERED);
        for wrong in ["x 1\n", "\n192.0.2.1\n", "192.0.2.1 soon\n"] {
            assert_eq!(parse(wrong, hour), Err(1 + usize::from(wrong.starts_with('\n'))), "{wrong}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_has_no_peers() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("peers");
        assert!(read(&path).unwrap().is_empty());
        let peers: Peers = vec![("192.0.2.1".parse().unwrap(), Duration::from_secs(1000))];
        write(&path, &peers).unwrap();
        assert_eq!(read(&path).unwrap().len(), 1);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        std::fs::write(&path, "nobody\n").unwrap();
        assert!(matches!(read(&path), Err(RunError::Peer { line: 1, .. })));
    }
}
