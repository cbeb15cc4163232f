//! Bounds of the load that clients may ask a server to send.

use std::time::Duration;

use marcato_sched::reserve;
use marcato_units::{Bytes, Rate};

use super::load::Load;
use super::protocol::{Hello, Refusal};
use super::scheduler::{PathName, StreamName};

/// Bounds of the load that clients may ask a server to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Longest duration.
    pub(crate) duration: Duration,
    /// Highest sum of the rates of a connection's sources; `None` for no bound.
    pub(crate) bitrate: Option<Rate>,
    /// Most bytes of each level that wait before a connection, and so the longest message.
    pub(crate) backlog: Bytes,
    /// Largest number of connections of one run.
    pub(crate) connections: usize,
    /// Lane scheduler; `None` over TCP.
    pub(crate) path: Option<PathName>,
}

impl Bounds {
    /// Checks a client's first message.
    pub(crate) fn check(&self, hello: &Hello) -> Result<(), Refusal> {
        if usize::from(hello.connections) > self.connections {
            let most = u64::try_from(self.connections).unwrap_or(u64::MAX);
            return Err(Refusal::Connections { most });
        }
        hello.load.as_ref().map_or(Ok(()), |load| self.check_load(load))
    }

    fn check_load(&self, load: &Load) -> Result<(), Refusal> {
        if load.duration > self.duration {
            return Err(Refusal::Duration {
                most: u64::try_from(self.duration.as_nanos()).unwrap_or(u64::MAX),
            });
        }
        if load.longest() > self.backlog {
            return Err(Refusal::Size { most: self.backlog.get() });
        }
        if let Some(most) = self.bitrate
            && load.rate().is_none_or(|rate| rate > most.as_bps().into())
        {
            return Err(Refusal::Rate { most: most.as_bps() });
        }
        let reserves = self.path.is_some_and(PathName::reserves) && load.stream != StreamName::Rr;
        if reserves && load.sources.len() > reserve::MAX_SOURCES {
            return Err(Refusal::Sources { most: reserve::MAX_SOURCES as u64 });
        }
        // A client checks the rest itself, so only one that is not of this program gets here.
        let wrong = load.bulk.is_some_and(|bulk| {
            (bulk.unreliable && (self.path.is_none() || bulk.bytes.is_some()))
                || (load.stream == StreamName::Rr
                    && (bulk.unreliable || bulk.bytes.is_some() || bulk.bitrate.is_some()))
        });
        // The debts of the levels belong to the server's endpoint, which is not strict.
        if wrong || load.len() == 0 || load.endless().is_some() || load.stream == StreamName::Pfifo {
            return Err(Refusal::Protocol);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::BulkLoad;
    use super::*;

    fn bounds() -> Bounds {
        Bounds {
            duration: Duration::from_secs(60),
            bitrate: Some(Rate::from_mbps(10)),
            backlog: Bytes::kb(1000),
            connections: 4,
            path: Some(PathName::Cwr),
        }
    }

    fn bulk() -> BulkLoad {
        let spec = "p4".parse().unwrap();
        BulkLoad { spec, bitrate: Some(Rate::from_mbps(9)), bytes: None, unreliable: false }
    }

    fn load() -> Load {
        let sources = vec!["100ms:10kB".parse().unwrap()];
        let duration = Duration::from_secs(60);
        Load { stream: StreamName::Cats, duration, seed: 1, sources, bulk: Some(bulk()) }
    }

    fn hello(connections: u8, load: Load) -> Hello {
        let nothing = [0; 16];
        Hello { nonce: nothing, host: nothing, number: 0, connections, sources: vec![], load: Some(load) }
    }

    #[test]
    fn loads_within_all_bounds_are_accepted() {
        assert_eq!(bounds().check(&hello(4, load())), Ok(()));
        let forward = Hello { load: None, ..hello(1, load()) };
        assert_eq!(bounds().check(&forward), Ok(()));
    }

    #[test]
    fn each_bound_refuses_what_exceeds_it() {
        let check = |load| bounds().check(&hello(1, load));
        assert_eq!(bounds().check(&hello(5, load())), Err(Refusal::Connections { most: 4 }));
        let long = Load { duration: Duration::from_millis(60_001), ..load() };
        assert_eq!(check(long), Err(Refusal::Duration { most: 60_000_000_000 }));
        let large = Load { sources: vec!["10s:1.1MB".parse().unwrap()], ..load() };
        assert_eq!(check(large), Err(Refusal::Size { most: 1_000_000 }));
        let fast = Load { sources: vec!["100ms:13kB".parse().unwrap()], ..load() };
        assert_eq!(check(fast), Err(Refusal::Rate { most: 10_000_000 }));
        let unpaced = Load { bulk: Some(BulkLoad { bitrate: None, ..bulk() }), ..load() };
        assert_eq!(check(unpaced), Err(Refusal::Rate { most: 10_000_000 }));
        let many = Load { sources: vec!["1s:1kB".parse().unwrap(); 17], ..load() };
        assert_eq!(check(many.clone()), Err(Refusal::Sources { most: 16 }));
        let free = Bounds { path: Some(PathName::Lowrtt), ..bounds() };
        assert_eq!(free.check(&hello(1, many)), Ok(()));
    }

    #[test]
    fn loads_that_cannot_be_sent_are_refused() {
        let tcp = Bounds { path: None, ..bounds() };
        let unreliable = Load { bulk: Some(BulkLoad { unreliable: true, ..bulk() }), ..load() };
        assert_eq!(bounds().check(&hello(1, unreliable.clone())), Ok(()));
        assert_eq!(tcp.check(&hello(1, unreliable)), Err(Refusal::Protocol));
        let limited = BulkLoad { unreliable: true, bytes: Some(Bytes::kb(1)), ..bulk() };
        for wrong in [
            Load { bulk: Some(limited), ..load() },
            Load { stream: StreamName::Rr, ..load() },
            Load { stream: StreamName::Pfifo, ..load() },
            Load { sources: vec![], bulk: None, ..load() },
        ] {
            assert_eq!(bounds().check(&hello(1, wrong.clone())), Err(Refusal::Protocol), "{wrong:?}");
        }
    }
}
