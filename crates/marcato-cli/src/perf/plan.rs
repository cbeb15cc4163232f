//! Plan of a client's run.

use std::net::{IpAddr, Ipv6Addr, SocketAddrV4};
use std::str::FromStr;
use std::time::Duration;

use clap::ValueEnum;
use marcato_net::{CodePoints, Config, Coupling, Limits};
use marcato_quic::{PathScheduler, SessionConfig};
use marcato_sched::Debt;
use marcato_sched::conductor;
use marcato_sched::schedule::CwrConfig;
use marcato_units::{Bytes, Rate, words};

use super::SILENCE;
use super::direction::Mode;
use super::load::{BulkLoad, BulkSpec, Load, MIN_MESSAGE, SourceSpec};
use super::protocol::MAX_SOURCES;
use super::scheduler::{PathName, StreamName};

/// Default port.
pub(crate) const PORT: u16 = 4433;
/// Most bytes of each level that wait before a connection, unless an option says otherwise.
pub(crate) const BACKLOG: Bytes = Bytes::new(1_000_000);

words! {
    /// Transport.
    #[derive(ValueEnum)]
    pub(crate) enum EngineName {
        /// The kernel's TCP with TLS 1.3
        Tcp = "tcp",
        /// Multipath QUIC
        Quic = "quic",
    }
}

impl From<EngineName> for marcato_net::Engine {
    fn from(name: EngineName) -> Self {
        match name {
            EngineName::Tcp => Self::Tcp,
            EngineName::Quic => Self::Quic,
        }
    }
}

/// Help for a use of coupled mode.
pub(crate) const fn coupling_help(coupling: Coupling) -> &'static str {
    match coupling {
        Coupling::Auto => "On once a connection has had both urgent and background messages",
        Coupling::On => "On from the beginning",
        Coupling::Off => "Off",
    }
}

impl From<PathName> for PathScheduler {
    fn from(name: PathName) -> Self {
        match name {
            PathName::Lowrtt => Self::LowRtt,
            PathName::Rr => Self::RoundRobin,
            PathName::Cwr => Self::Cwr(CwrConfig::marcato()),
            PathName::CwrRed => Self::CwrRed(CwrConfig::marcato()),
        }
    }
}

/// Refuses a name that is not ASCII: names are not translated here.
pub(crate) fn ascii_name(text: &str) -> Result<String, String> {
    if text.is_ascii() {
        return Ok(text.to_owned());
    }
    Err(format!(
        "`{text}` is not ASCII, and is not translated: write the name as DNS has it, which begins with xn--"
    ))
}

/// Returns whether a text is an IP address, with or without a zone: `fe80::1%eth0` (RFC 4007 §11).
pub(crate) fn is_address(host: &str) -> bool {
    match host.split_once('%') {
        Some((address, zone)) => !zone.is_empty() && address.parse::<Ipv6Addr>().is_ok(),
        None => host.parse::<IpAddr>().is_ok(),
    }
}

/// Path to the server, as written on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LaneSpec {
    /// Host name or address, with an optional port.
    pub(crate) remote: String,
    /// Local address to send from; `None` lets the system choose.
    pub(crate) local: Option<IpAddr>,
}

impl FromStr for LaneSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (remote, local) = match text.split_once('@') {
            None => (text, None),
            Some((remote, local)) => {
                let address = local.parse();
                let wrong = |_| format!("`{local}` is no IP address of this host: write it after the @");
                (remote, Some(address.map_err(wrong)?))
            }
        };
        let lane = Self { remote: remote.to_owned(), local };
        lane.host_port(PORT)?;
        Ok(lane)
    }
}

impl LaneSpec {
    /// Returns the host and the port, which is `usual` if none is given.
    pub(crate) fn host_port(&self, usual: u16) -> Result<(String, u16), String> {
        let remote = self.remote.as_str();
        if remote.is_empty() {
            return Err("write HOST, HOST:PORT or HOST:PORT@LOCAL".into());
        }
        if let Some((scheme, rest)) = remote.split_once("://") {
            let host = rest.split('/').next().filter(|host| !host.is_empty()).unwrap_or("HOST");
            return Err(format!("leave out `{scheme}://`: write {host}, or HOST:PORT"));
        }
        if remote.contains('/') {
            return Err(format!("`{remote}` is no host: write HOST or HOST:PORT, without a path"));
        }
        // The resolver would read a bare number as an IPv4 address.
        let bare = remote.strip_prefix(':').unwrap_or(remote);
        if bare.bytes().all(|byte| byte.is_ascii_digit()) {
            let port = if bare.is_empty() { "4433" } else { bare };
            return Err(format!(
                "`{remote}` is a port without a host: write HOST:{port}; for all addresses of a server, 0.0.0.0:{port} or \
                 [::]:{port}"
            ));
        }
        if let Ok(addr) = self.remote.parse::<SocketAddrV4>() {
            return Ok((addr.ip().to_string(), addr.port()));
        }
        let port_of = |port: &str| port.parse().map_err(|_| format!("`{port}` is no port: give 1 to 65535"));
        if let Some((address, port)) = remote.strip_prefix('[').and_then(|rest| rest.rsplit_once(']'))
            && is_address(address)
        {
            return match port.strip_prefix(':') {
                Some(port) => Ok((address.to_owned(), port_of(port)?)),
                None if port.is_empty() => Ok((address.to_owned(), usual)),
                None => Err(format!("`{remote}` has `{port}` after the address: write [{address}]:PORT")),
            };
        }
        // A bare IPv6 address has colons itself, so it is tried before HOST:PORT.
        if is_address(remote) {
            return Ok((remote.to_owned(), usual));
        }
        ascii_name(remote)?;
        match self.remote.split_once(':') {
            None => Ok((self.remote.clone(), usual)),
            Some((host, port)) => Ok((host.to_owned(), port_of(port)?)),
        }
    }
}

/// Load to send, with its settings.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) engine: EngineName,
    pub(crate) mode: Mode,
    /// Number of connections. Each has all sources, and its part of a limited amount.
    pub(crate) connections: u8,
    pub(crate) sources: Vec<SourceSpec>,
    pub(crate) bulk: Option<BulkSpec>,
    /// Rate of the bulk data; `None` for as much as fits.
    pub(crate) bitrate: Option<Rate>,
    /// Amount of bulk data in each direction after whose delivery the run ends.
    pub(crate) bytes: Option<Bytes>,
    /// Set if bulk data is sent in unreliable messages.
    pub(crate) unreliable: bool,
    pub(crate) path: PathName,
    pub(crate) layered: bool,
    pub(crate) coupled: Coupling,
    /// Set if packets are marked with the DSCP of their level.
    pub(crate) marks: bool,
    pub(crate) stream: StreamName,
    pub(crate) duration: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) backlog: Bytes,
    pub(crate) seed: u64,
    /// Set if the result has the completion time of each message.
    pub(crate) raw: bool,
}

/// Reason why a plan cannot be carried out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PlanError {
    #[error("{given} sources are too many: give at most {MAX_SOURCES}, bulk included")]
    TooManySources { given: usize },
    #[error("a run of {duration:?} leaves nothing after a warm-up of {warm_up:?}: make it longer")]
    NothingLeft { duration: Duration, warm_up: Duration },
    #[error("{source_} would send more than 10 million messages: shorten the run or lengthen the period")]
    TooManyMessages { source_: SourceSpec },
    #[error(
        "over kernel TCP there is one lane, so no --path-scheduler chooses among them: leave it out, or use --engine quic"
    )]
    PathOverTcp,
    #[error("kernel TCP has one lane, and so no layers: leave --layered out, or use --engine quic")]
    LayeredOverTcp,
    #[error("kernel TCP has one lane: leave --lane out, or use --engine quic")]
    LanesOverTcp,
    #[error("{option} is about bulk data: give --bulk too")]
    NoBulk { option: &'static str },
    #[error("kernel TCP delivers everything: leave --unreliable out, or use --engine quic")]
    UnreliableOverTcp,
    #[error(
        "--stream-scheduler rr sends bulk data without {option}: leave {option} out, or use another stream scheduler"
    )]
    BulkInPieces { option: &'static str },
    #[error(
        "unreliable bulk data may be lost, so its delivery ends no run: leave --bytes or --unreliable out"
    )]
    UnreliableBytes,
    #[error(
        "{option} is of the end that sends: leave it out with --reverse, and give it to `marcato perf server`"
    )]
    ServerSends { option: &'static str },
    #[error(
        "a server has no strict priorities to send with: use --stream-scheduler cats, fifo or rr with --reverse and --bidir"
    )]
    StrictServer,
    #[error("{bytes} bytes are too few for {connections} connections: give at least {MIN_MESSAGE} for each")]
    TooFewBytes { bytes: u64, connections: u8 },
    #[error("--listen takes no @{local}: give the address to listen at alone")]
    LocalListen { local: IpAddr },
    #[error(
        "--stream-scheduler rr cuts messages into packets, for which no room can be reserved: use it with \
         --path-scheduler lowrtt or rr"
    )]
    PiecesReserved,
}

impl Plan {
    /// Returns the client's lane scheduler; `None` over TCP.
    pub(crate) fn own_path(&self) -> Option<PathName> {
        (self.engine == EngineName::Quic).then_some(self.path)
    }

    /// Returns the load of a connection, counted from 0, in each direction.
    pub(crate) fn load(&self, number: u8) -> Load {
        // The first connections have the rest of an amount that cannot be divided.
        let part = |bytes: Bytes| {
            let (all, of) = (bytes.get(), u64::from(self.connections.max(1)));
            Bytes::new(all / of + u64::from(u64::from(number) < all % of))
        };
        let bulk = self.bulk.map(|spec| BulkLoad {
            spec,
            bitrate: self.bitrate,
            bytes: self.bytes.map(part),
            unreliable: self.unreliable,
        });
        let (stream, duration, seed) = (self.stream, self.duration, self.seed);
        Load { stream, duration, seed, sources: self.sources.clone(), bulk }
    }

    pub(crate) fn check(&self, lanes: usize) -> Result<(), PlanError> {
        let given = self.sources.len() + usize::from(self.bulk.is_some());
        if given > MAX_SOURCES {
            return Err(PlanError::TooManySources { given });
        }
        let (duration, warm_up) = (self.duration, self.warm_up);
        if duration <= warm_up {
            return Err(PlanError::NothingLeft { duration, warm_up });
        }
        if let Some(source_) = self.load(0).endless() {
            return Err(PlanError::TooManyMessages { source_ });
        }
        if self.engine == EngineName::Tcp && self.layered {
            return Err(PlanError::LayeredOverTcp);
        }
        if self.engine == EngineName::Tcp && lanes > 1 {
            return Err(PlanError::LanesOverTcp);
        }
        let options = [
            ("--bitrate", self.bitrate.is_some()),
            ("--bytes", self.bytes.is_some()),
            ("--unreliable", self.unreliable),
        ];
        if let Some((option, _)) = options.into_iter().find(|(_, given)| *given) {
            if self.bulk.is_none() {
                return Err(PlanError::NoBulk { option });
            }
            if self.stream == StreamName::Rr {
                return Err(PlanError::BulkInPieces { option });
            }
        }
        if self.unreliable && self.engine == EngineName::Tcp {
            return Err(PlanError::UnreliableOverTcp);
        }
        if self.unreliable && self.bytes.is_some() {
            return Err(PlanError::UnreliableBytes);
        }
        if let Some(bytes) = self.bytes.map(Bytes::get)
            && bytes < MIN_MESSAGE.get() * u64::from(self.connections)
        {
            return Err(PlanError::TooFewBytes { bytes, connections: self.connections });
        }
        if self.mode.is_reverse() && self.stream == StreamName::Pfifo {
            return Err(PlanError::StrictServer);
        }
        let reserves = self.mode.is_forward() && self.own_path().is_some_and(PathName::reserves);
        if self.stream == StreamName::Rr && reserves {
            return Err(PlanError::PiecesReserved);
        }
        Ok(())
    }

    /// Returns the endpoint's configuration.
    pub(crate) fn config(&self, connect_timeout: Duration) -> Config {
        let debt = match self.stream {
            StreamName::Pfifo => Debt::strict(),
            _ => Debt::marcato(),
        };
        let mut config = Config::new(self.engine.into()).layered(self.layered);
        config.conductor = conductor::Config::with_debt(debt);
        config.coupled = self.coupled;
        config.marks = self.marks.then(CodePoints::default);
        config.limits = Limits { queued: self.backlog.max(self.load(0).longest() * 2), ..config.limits };
        config.quic.session = SessionConfig { path_scheduler: self.path.into(), ..config.quic.session };
        config.peers.handshake_timeout = connect_timeout;
        config.quic.session.idle_timeout = SILENCE;
        config.tcp.idle_timeout = SILENCE;
        config
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn plan() -> Plan {
        Plan {
            engine: EngineName::Quic,
            mode: Mode::Forward,
            connections: 1,
            sources: vec!["100ms:10kB".parse().unwrap()],
            bulk: Some("p4".parse().unwrap()),
            bitrate: None,
            bytes: None,
            unreliable: false,
            path: PathName::Cwr,
            layered: false,
            coupled: Coupling::Auto,
            marks: false,
            stream: StreamName::Cats,
            duration: Duration::from_secs(10),
            warm_up: Duration::ZERO,
            backlog: Bytes::kb(1000),
            seed: 1,
            raw: false,
        }
    }

    #[test]
    fn marks_are_those_of_the_levels_if_they_are_asked_for() {
        let marks = |marks| Plan { marks, ..plan() }.config(Duration::from_secs(1)).marks;
        assert_eq!([false, true].map(marks), [None, Some(CodePoints::default())]);
    }

    #[test]
    fn a_lane_is_a_host_with_optional_port_and_local_address() {
        let lane = |text: &str| {
            let lane: LaneSpec = text.parse().unwrap();
            (lane.host_port(PORT).unwrap(), lane.local)
        };
        assert_eq!(lane("example.org"), (("example.org".into(), PORT), None));
        assert_eq!(lane("example.org:99"), (("example.org".into(), 99), None));
        assert_eq!(lane("[::1]:99"), (("::1".into(), 99), None));
        assert_eq!(lane("::1"), (("::1".into(), PORT), None));
        let local = "10.0.0.2".parse().ok();
        assert_eq!(lane("192.0.2.1:4434@10.0.0.2"), (("192.0.2.1".into(), 4434), local));
        assert_eq!(lane("[::1]"), (("::1".into(), PORT), None));
        assert_eq!(lane("fe80::1%eth0"), (("fe80::1%eth0".into(), PORT), None));
        let local = "fe80::2".parse().ok();
        assert_eq!(lane("[fe80::1%eth0]:99@fe80::2"), (("fe80::1%eth0".into(), 99), local));
        assert!("192.0.2.1@wifi".parse::<LaneSpec>().is_err() && "".parse::<LaneSpec>().is_err());
        assert!("a:b".parse::<LaneSpec>().is_err());
    }

    #[test]
    fn a_host_that_is_none_is_refused_with_the_remedy() {
        for (text, remedy) in [
            ("4433", "0.0.0.0:4433"),
            (":4478", "[::]:4478"),
            (":", "write HOST:4433"),
            ("http://192.0.2.1:4433/perf", "write 192.0.2.1:4433"),
            ("quic://", "write HOST, or HOST:PORT"),
            ("example.org/perf", "without a path"),
            ("example.org:99999", "give 1 to 65535"),
            ("[::1]:99999", "give 1 to 65535"),
            ("[::1]99", "write [::1]:PORT"),
            ("bücher.example", "begins with xn--"),
        ] {
            let error = text.parse::<LaneSpec>().unwrap_err();
            assert!(error.contains(remedy), "{text}: {error}");
        }
    }

    #[test]
    fn a_plan_that_cannot_be_carried_out_is_refused_with_the_remedy() {
        assert_eq!(plan().check(2), Ok(()));
        let refused = |plan: Plan, lanes| plan.check(lanes).unwrap_err().to_string();
        let tcp = Plan { engine: EngineName::Tcp, path: PathName::Lowrtt, ..plan() };
        assert_eq!(tcp.check(1), Ok(()));
        assert!(refused(tcp.clone(), 2).contains("--engine quic"));
        let layers = Plan { layered: true, ..tcp };
        assert!(refused(layers, 1).contains("leave --layered out"));
        let pieces = Plan { stream: StreamName::Rr, ..plan() };
        assert!(refused(pieces, 1).contains("lowrtt or rr"));
        let short = Plan { warm_up: Duration::from_secs(10), ..plan() };
        assert!(refused(short, 1).contains("longer"));
        let long = Plan { duration: Duration::from_secs(80_000), ..plan() };
        let long = Plan { sources: vec!["1ms:1kB".parse().unwrap()], ..long };
        assert!(refused(long, 1).contains("10 million"));
        let many = Plan { sources: vec![plan().sources[0]; 64], ..plan() };
        assert!(refused(many, 1).contains("at most 64"));
        let strict = Plan { mode: Mode::Both, stream: StreamName::Pfifo, ..plan() };
        assert!(refused(strict, 1).contains("cats, fifo or rr"));
        let few = Plan { bytes: Some(Bytes::new(63)), connections: 2, ..plan() };
        assert!(refused(few, 1).contains("at least 32 B"));
    }

    #[test]
    fn connections_share_an_amount_and_nothing_else() {
        let plan = Plan { bytes: Some(Bytes::new(1000)), connections: 3, ..plan() };
        let parts: Vec<u64> =
            (0..3).filter_map(|number| plan.load(number).bulk?.bytes).map(Bytes::get).collect();
        assert_eq!(parts, [334, 333, 333]);
        assert_eq!(plan.load(2).sources, plan.sources);
        assert_eq!(Plan { bytes: None, ..plan }.load(2).bulk.unwrap().bytes, None);
    }
}
