//! Keys of each table. Both the readers and the reference documentation use these lists.

/// Keys of a table.
#[derive(Clone, Copy, Debug)]
pub struct Schema {
    /// Name of the table with its article, for error messages.
    pub what: &'static str,
    /// Keys, in groups.
    pub keys: &'static [&'static [&'static str]],
}

impl Schema {
    /// Returns all keys.
    pub fn all(&self) -> impl Iterator<Item = &'static str> + Clone + use<> {
        self.keys.iter().flat_map(|group| group.iter().copied())
    }

    /// Returns whether the table has this key.
    pub fn has(&self, key: &str) -> bool {
        self.all().any(|one| one == key)
    }
}

macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident = $what:literal: $($group:expr),+;)+) => {
        $($(#[$doc])* pub(crate) const $name: Schema = Schema { what: $what, keys: &[$($group),+] };)+

        /// All tables of the format.
        pub const TABLES: &[Schema] = &[$($name),+];
    };
}

const FLOW_COMMON: &[&str] =
    &["name", "kind", "from", "to", "count", "stagger", "start", "start-jitter", "stop", "layer"];
const FLOW_TCP: &[&str] = &["congestion", "tcp", "tcp-to"];
const DIRECTION: &[&str] =
    &["rate", "trace", "delay", "framing", "queue", "loss", "jitter", "duplication", "bleach-ecn"];
/// Keys of a link, excluding its name and ends. A topology passes them on to its own links.
pub(crate) const WIRE: &[&str] = &[
    "rate",
    "trace",
    "delay",
    "framing",
    "mtu",
    "queue",
    "loss",
    "jitter",
    "duplication",
    "bleach-ecn",
    "back",
    "changes",
];
const MESSAGING: &[&str] = &["preset", "chunk", "messages", "sources", "bulk"];

schemas! {
    ROOT = "a scenario": &["name", "about", "duration", "warm-up", "seed", "nodes", "topology", "link", "flow", "record", "grid"];
    DUMBBELL = "a dumbbell": &["kind", "pairs", "access-rate", "access-delay"], WIRE;
    PARKING_LOT = "a parking lot": &["kind", "hops", "access-rate", "access-delay"], WIRE;
    MULTIPATH = "a multipath topology": &["kind", "paths"], WIRE;
    MULTIPATH_PATH = "a path of a topology": WIRE;
    ASYMMETRIC = "an asymmetric topology": &["kind", "up-rate", "up-queue", "core-delay"], &["rate", "delay", "framing", "mtu", "queue", "loss", "jitter", "duplication", "bleach-ecn", "changes"];
    LINK = "a link": &["name", "between"], WIRE;
    BACK = "the way back of a link": DIRECTION;
    CHANGE = "a change of a link": &["at", "way", "rate", "up", "delay", "reorder", "loss", "queue"];
    DROPTAIL = "a droptail queue": &["kind", "limit"];
    CODEL = "a codel queue": &["kind", "target", "interval", "limit", "maxpacket", "ecn"];
    FQ_CODEL = "an fq-codel queue": &["kind", "target", "interval", "limit", "maxpacket", "ecn", "flows", "quantum"];
    CRQ = "a crq queue": &["kind", "preset", "standard", "sharing", "standard-least", "target", "interval", "limit", "maxpacket", "ecn", "flows"];
    STEP_MARK = "a step-mark queue": &["kind", "limit", "threshold"];
    RED = "a red queue": &["kind", "limit", "min-threshold", "max-threshold", "max-probability", "weight", "idle", "gentle", "ecn"];
    PIE = "a pie queue": &["kind", "limit", "target", "update", "burst", "alpha", "beta", "ecn"];
    STRICT = "a strict queue": &["kind", "high", "low", "preempt"];
    PUSH_OUT = "a push-out queue": &["kind", "limit"];
    LOSS_NONE = "no loss": &["kind"];
    LOSS_RANDOM = "random loss": &["kind", "probability"];
    LOSS_EVERY = "periodic loss": &["kind", "packets"];
    LOSS_SCRIPT = "scripted loss": &["kind", "packets"];
    GILBERT_ELLIOTT = "gilbert-elliott loss": &["kind", "p", "r", "loss-good", "loss-bad", "mean", "burst"];
    JITTER_NONE = "no jitter": &["kind"];
    JITTER_UNIFORM = "uniform jitter": &["kind", "least", "most", "reorder"];
    JITTER_NORMAL = "normal jitter": &["kind", "mean", "deviation", "reorder"];
    JITTER_EXPONENTIAL = "exponential jitter": &["kind", "mean", "reorder"];
    TCP_FLOW = "a tcp flow": FLOW_COMMON, FLOW_TCP, &["size", "priority", "on", "off"];
    UDP_FLOW = "a udp flow": FLOW_COMMON, &["rate", "payload", "most-payload", "arrivals", "tick", "on", "off"];
    TCP_PROCESS = "a tcp-process": FLOW_COMMON, FLOW_TCP, &["size", "arrivals", "load", "most-open"];
    REQUEST_RESPONSE = "a request-response flow": FLOW_COMMON, FLOW_TCP, &["request", "response", "think", "requests"];
    MESSAGES = "a messages flow": FLOW_COMMON, FLOW_TCP, MESSAGING, &["feeder"];
    QUIC = "a quic flow": FLOW_COMMON, MESSAGING, &[
        "paths", "scheduler", "layered", "controller", "initial-window", "pacing", "growth", "streams", "batch", "initial-mtu",
        "mtu-discovery", "packet-threshold", "time-threshold", "initial-rtt",
    ];
    TCP = "tcp's options": &[
        "congestion", "mss", "initial-window", "initial-ssthresh", "growth", "send-buffer", "receive-buffer", "receive-buffer-from", "notsent-lowat",
        "delayed-ack", "min-rto", "max-rto", "initial-rto", "timestamps", "sack", "ecn", "priority-option", "loss-detection", "pacing",
        "segmentation-offload", "slow-start-after-idle", "low-layer",
    ];
    GROWTH_BYTES = "growth by bytes": &["kind", "limit"];
    GROWTH_ACKS = "growth by acknowledgements": &["kind"];
    LOW_LAYER_NONE = "no low layer": &["kind"];
    LOW_LAYER = "a low layer": &[
        "kind", "target", "epoch", "initial-window", "most-window", "min-rto", "first-rto", "retransmissions", "ack-layer", "ack-every",
        "high-for",
    ];
    CONGESTION_PLAIN = "a congestion control": &["kind"];
    CUBIC = "cubic": &["kind", "hystart", "fast-convergence"];
    DELAYED_ACK = "delayed acknowledgements": &["every", "timeout", "first-at-once", "urgent-at-once"];
    SIZE_CONSTANT = "a constant size": &["kind", "size"];
    SIZE_EXPONENTIAL = "an exponential size": &["kind", "mean"];
    SIZE_PARETO = "a pareto size": &["kind", "shape", "mean", "most"];
    SIZE_LOG_NORMAL = "a log-normal size": &["kind", "mean", "sigma"];
    SIZES_LISTED = "sizes from a file": &["kind", "file", "order"];
    PAUSE_CONSTANT = "a constant pause": &["kind", "span"];
    PAUSE_EXPONENTIAL = "an exponential pause": &["kind", "mean"];
    MESSAGE = "a message": &["name", "after", "size", "priority", "lifetime"];
    SOURCE = "a source": &[
        "period", "size", "priority", "first", "release", "jitter", "redundancy", "lifetime", "declared", "named",
    ];
    BULK = "bulk data": &["priority", "size"];
    PATH = "a path": &["from", "to", "layer"];
    SCHEDULER_PLAIN = "a lane scheduler": &["kind"];
    CWR = "cwr": &["kind", "preset", "threshold", "background-share", "learn", "budget"];
    CWR_RED = "cwr-red": &["kind", "preset", "threshold", "background-share", "learn", "budget"];
    SELECTIVE = "the selective scheduler": &["kind", "threshold"];
    BUDGET = "a budget": &["allowance", "share"];
    NEW_RENO = "new-reno": &["kind", "loss-reduction"];
    CONTROLLER_PLAIN = "a controller": &["kind"];
    RECORD = "a record": &["every", "series", "pcap", "pcap-format", "snaplen"];
    GRID = "a grid": &["seeds", "vary"];
}
