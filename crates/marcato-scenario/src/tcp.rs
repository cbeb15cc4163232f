//! Configuration of one end of a TCP connection.
//!
//! To add a congestion control, add its row to [`Congestion`], and its name to the meaning of the
//! key `congestion`. The simulator then does not compile until it builds it:
//! `marcato-sim/src/tcp/congestion/mod.rs`.

use marcato_document::form::{
    Class, Flag, Number, Or, Single, Small, SomeSize, SomeSpan, Span, Urgency, one_of, one_of_or, table_of,
};
use marcato_document::quantity::size;
use marcato_document::schema::Schema;
use marcato_document::{Keyed, Keys, Pairs, WriteKeyed as _, keyed, quote};
use marcato_units::{Bytes, Duration, Layer, Priority, words};

use crate::chosen::{Kind, tagged_of};
use crate::kinded::{defaults, kind_of, kinds};
use crate::plugin::Plugin;

/// Length of IPv4 and TCP headers without options.
const HEADERS: u64 = 40;

/// Configuration of one end of a TCP connection, in a file and in the simulator.
///
/// The defaults that affect measurements are those of a current Linux host, with a payload of 1448
/// bytes (Ethernet, timestamps on).
#[derive(Clone, Debug, PartialEq)]
pub struct Tcp {
    /// Congestion control.
    pub congestion: Congestion,
    /// Largest payload of a segment, in bytes.
    pub mss: u32,
    /// Initial window, in segments. RFC 6928: 10.
    pub initial_window: u32,
    /// Initial slow start threshold, in segments; `None` is unbounded (RFC 5681 §3.1). BBR ignores
    /// it.
    pub initial_ssthresh: Option<u32>,
    /// Growth rule of the window under Reno, CUBIC and DCTCP.
    pub growth: Growth,
    /// Capacity for bytes that the application has written and that are not yet acknowledged.
    pub send_buffer: Bytes,
    /// Capacity for bytes that the application has not read; bounds the offered window.
    pub receive_buffer: Bytes,
    /// Initial size of the receive buffer, which then grows with the sender's window up to
    /// `receive_buffer`. This is dynamic right-sizing as in Linux, which begins with 128 KiB, half
    /// of which is window. `None` starts with the full buffer.
    pub receive_buffer_from: Option<Bytes>,
    /// Bound on unsent bytes below which the endpoint is writable, like the socket option
    /// `TCP_NOTSENT_LOWAT`. `None`: it is writable while the send buffer has room.
    pub notsent_lowat: Option<Bytes>,
    /// Rule for delayed acknowledgements.
    pub delayed_ack: DelayedAck,
    /// Smallest retransmission timeout. RFC 6298 §2.4 asks for one second; Linux uses 200 ms. Linux
    /// bounds only the variance's share, so its timeout is never below SRTT + 200 ms; here, as in
    /// the RFC, the bound applies to the sum.
    pub min_rto: Duration,
    /// Minimum of the timeout beyond the smoothed round trip. RFC 6298 has none; Linux adds 200 ms at
    /// least.
    pub rto_margin: Duration,
    /// Largest retransmission timeout. RFC 6298 §2.5: at least 60 s.
    pub max_rto: Duration,
    /// Retransmission timeout of the SYN, and of data until a round trip has been measured; for
    /// data within `min_rto` and `max_rto`. RFC 6298 §2.1: one second.
    pub initial_rto: Duration,
    /// Timestamps option. RFC 7323.
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018), if both ends enable them. Without SACK, one loss is
    /// repaired per round trip (RFC 6582), and [`LossDetection::DupThresh`] is required.
    pub sack: bool,
    /// Explicit congestion notification. RFC 3168.
    pub ecn: bool,
    /// Form of the option that carries the priority in data segments; `None` sends no option. CATS
    /// §II-D2.
    pub priority_option: Option<PriorityOption>,
    /// Loss detection algorithm.
    pub loss_detection: LossDetection,
    /// Undoes reductions of the window that prove spurious, as Linux does: by echoed timestamps
    /// (Eifel, RFC 3522 and 4015), by duplicates that the other end reports for all retransmissions
    /// (RFC 2883), and after a timeout by F-RTO (RFC 5682, with SACK).
    /// [`LossDetection::DupThresh`] then adapts its threshold to reordering.
    pub undo: bool,
    /// Rule by which small segments wait.
    pub nagle: Nagle,
    /// Slow start of Reno, CUBIC and DCTCP.
    pub slow_start: SlowStart,
    /// Paces segments at a rate derived from the window, where the congestion control has no rate.
    pub pacing: bool,
    /// Number of first segments of a connection that are not paced, 10 in Linux.
    pub unpaced_segments: u32,
    /// Largest burst of new data, as with segmentation by the network card (TSO, 64 kB in Linux).
    /// `None`: each segment leaves as soon as it may.
    ///
    /// A burst is what the pacing rate sends in a millisecond: at least two segments, and at most a
    /// third of the window. New data waits until a whole burst may leave, but not longer than half
    /// a round trip, and not while losses are being repaired.
    pub segmentation_offload: Option<Bytes>,
    /// Returns to the initial window after an idle time of one retransmission timeout. RFC 5681
    /// §4.1.
    pub slow_start_after_idle: bool,
    /// Instead of returning to it, halves the window for each timeout of idle time, as Linux does.
    /// RFC 2861 §3.
    pub idle_decay: bool,
    /// Reduces the window by its own size at a loss, as Linux does. Otherwise by what is in flight, if
    /// that is less. RFC 5681 eq. 4; RFC 9438 §4.6.
    pub reduce_window: bool,
    /// Lets the window of a recovery grow only by acknowledgements that move SND.UNA and show no
    /// further loss, as Linux does. Otherwise by all.
    pub safe_ack: bool,
    /// Counts what was in flight at its most in a round trip as the used part of the window, as
    /// Linux does. Otherwise what is in flight at each acknowledgement counts.
    pub usage_by_round: bool,
    /// Second layer, which the network serves after the first (PLT); `None` for one layer. Both
    /// ends need it.
    pub low_layer: Option<LowLayer>,
}

impl Default for Tcp {
    /// Returns the defaults of all keys.
    fn default() -> Self {
        defaults().expect("each key of a tcp has a default")
    }
}

keyed! {
    Tcp, "tcp's options", |_of: ()|, check tcp_can_work;
    /// `"reno"`, `"cubic"`, `"dctcp"` and `"prague"` (need `ecn`), `"bbr"` (version 1), `"fast"`, `"copa"`, `"ledbat++"` (for background data)
    "congestion" => congestion: kind_of::<Congestion>(), or(Congestion::CUBIC; "`\"cubic\"`");
    /// maximum payload of a segment; with its headers it must fit every `mtu` of the path
    "mss" => mss: Mss, or(1448);
    /// initial window in segments
    "initial-window" => initial_window: Small(1..=100_000), or(10);
    /// initial slow start threshold in segments, not of bbr; or `"none"`
    "initial-ssthresh" => initial_ssthresh: Or("none", Small(1..=1_000_000)), or(None);
    /// window growth by acknowledgements, not of bbr: `"bytes"` (RFC 3465), `"acks"` (RFC 5681:
    /// each counts for one segment)
    "growth" => growth: GrowthKind, or(Growth::default(); "`\"bytes\"`");
    /// bytes held for the application until they are acknowledged
    "send-buffer" => send_buffer: SomeSize, or(Bytes::new(4 << 20));
    /// bytes held for the application at the receiver; at most 1 GiB
    "receive-buffer" => receive_buffer: SomeSize, or(Bytes::new(6 << 20));
    /// initial receive buffer, which then grows as in Linux; or `"none"`
    "receive-buffer-from" => receive_buffer_from: Or("none", SomeSize), or(None);
    /// writable while less than this is unsent; or `"none"`; the feeder `"conductor"` without one uses its chunk, and above BBR two segments more
    "notsent-lowat" => notsent_lowat: Or("none", SomeSize), or(None);
    /// delayed acknowledgements: a table
    "delayed-ack" => delayed_ack: table_of::<DelayedAck>(), or(DelayedAck::default(); "the defaults");
    /// minimum retransmission timeout
    "min-rto" => min_rto: SomeSpan, or(Duration::from_millis(200));
    /// minimum of the timeout beyond the smoothed round trip: 200 ms in Linux
    "rto-margin" => rto_margin: Span, or(Duration::ZERO);
    /// maximum
    "max-rto" => max_rto: SomeSpan, or(Duration::from_secs(60));
    /// timeout of the SYN, and of data until a round trip has been measured
    "initial-rto" => initial_rto: SomeSpan, or(Duration::from_secs(1));
    /// timestamps option (RFC 7323)
    "timestamps" => timestamps: Flag, or(true);
    /// selective acknowledgements (RFC 2018), if both ends have them. Without, one loss is repaired
    /// per round trip (RFC 6582), and `loss-detection` must be `"dup-thresh"`
    "sack" => sack: Flag, or(true);
    /// explicit congestion notification (RFC 3168)
    "ecn" => ecn: Flag, or(false);
    /// encoding of a segment's priority: `"none"`, `"rfc6994"`, `"short"`, `"authors"`
    "priority-option" => priority_option: one_of_or::<PriorityOption>("none"), or(None);
    /// `"rack"` (RFC 8985), `"dup-thresh"` (RFC 6675)
    "loss-detection" => loss_detection: one_of::<LossDetection>(), or(LossDetection::Rack);
    /// undo reductions of the window that prove spurious, as Linux does: by timestamps (Eifel, RFC 3522
    /// and 4015), by reported duplicates (RFC 2883), and by F-RTO (RFC 5682); `"dup-thresh"` then
    /// adapts to reordering. `false` for ns-2, and for formulas
    "undo" => undo: Flag, or(true);
    /// segments below `mss` wait for acknowledgements: `"off"`: none; `"standard"`: while anything is
    /// in flight (RFC 9293 §3.7.4); `"minshall"`: while another of them is in flight, as in Linux
    "nagle" => nagle: one_of::<Nagle>(), or(Nagle::Off);
    /// `"standard"` (RFC 5681; of cubic with its `hystart`), `"hystart++"` (RFC 9406), which also
    /// replaces cubic's `hystart`. Not of bbr, fast, copa and ledbat++
    "slow-start" => slow_start: one_of::<SlowStart>(), or(SlowStart::Standard);
    /// space segments if the congestion control has no rate of its own
    "pacing" => pacing: Flag, or(false);
    /// number of first segments of a connection that are not paced: 10 in Linux
    "unpaced-segments" => unpaced_segments: Small(0..=1000), or(0);
    /// send bursts of up to this size, as network cards with segmentation offload do (`"64 KiB"` in
    /// Linux); a writer whose send buffer was full is then woken once a third of it is free; or `"none"`
    "segmentation-offload" => segmentation_offload: Or("none", SomeSize), or(None);
    /// return to the initial window after an idle timeout
    "slow-start-after-idle" => slow_start_after_idle: Flag, or(true);
    /// instead of returning to it, halve the window for each idle timeout, as Linux does (RFC 2861)
    "idle-decay" => idle_decay: Flag, or(false);
    /// reduce a window by its own size at a loss, as Linux does; otherwise by what is in flight, if that
    /// is less (RFC 5681 eq. 4). Not of bbr
    "reduce-window" => reduce_window: Flag, or(false);
    /// let the window of a recovery grow only by acknowledgements that show progress and no further loss,
    /// as Linux does (`tcp_cwnd_reduction`); otherwise by all (RFC 6937, PRR-SSRB)
    "safe-ack" => safe_ack: Flag, or(false);
    /// let the window grow while half of it (all of it, beyond slow start) was in flight in this round
    /// trip, as Linux does; otherwise, while it is in flight
    "usage-by-round" => usage_by_round: Flag, or(false);
    /// a second layer at low priority (PLT): a kind or [a table](#tcp)
    "low-layer" => low_layer: LowLayerKind, or(None);
}

/// Largest window that window scaling can offer. RFC 7323 §2.3.
const MOST_RECEIVE_BUFFER: Bytes = Bytes::new(1 << 30);

/// Reports what cannot work, and settings without effect, at their keys.
fn tcp_can_work(tcp: &Tcp, keys: &Keys<'_>, _: &()) {
    for error in tcp.errors() {
        keys.fault(error.key(), error.to_string());
    }
    if tcp.initial_ssthresh.is_some()
        && matches!(tcp.congestion, Congestion::Bbr | Congestion::Fast(_) | Congestion::Copa)
    {
        let name = tcp.congestion.name();
        keys.fault("initial-ssthresh", format!("{name} has no slow start threshold: leave it out"));
    }
    if tcp.slow_start != SlowStart::Standard
        && matches!(
            tcp.congestion,
            Congestion::Bbr
                | Congestion::Fast(_)
                | Congestion::Copa
                | Congestion::LedbatPlusPlus
                | Congestion::Plugin(_)
        )
    {
        keys.fault(
            "slow-start",
            format!("`{}` has a slow start of its own: leave it out", tcp.congestion.name()),
        );
    }
}

/// Largest payload of a segment: a size that fits 16 bits.
struct Mss;

impl Single<()> for Mss {
    type Value = u32;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<u32> {
        let mss = keys.size(key)?;
        let fitting = u32::try_from(mss.get()).ok().filter(|mss| (1..=65_535).contains(mss));
        if fitting.is_none() {
            keys.fault(key, format!("`{key}` is 1 B to 65535 B, not {}", size(mss)));
        }
        fitting
    }

    fn toml(&self, mss: &u32) -> String {
        quote(&format!("{mss} B"))
    }
}

/// Error of a [`Tcp`] that cannot work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TcpError {
    /// A number that must be above 0 is not.
    #[error("`{key}` is 0: set it to at least 1")]
    Zero {
        /// Its key.
        key: &'static str,
    },
    /// A buffer is smaller than a segment.
    #[error("`{key}` is smaller than a segment of {}: raise it", size(*mss))]
    BufferBelowSegment {
        /// Key of the buffer.
        key: &'static str,
        /// Payload of a segment.
        mss: Bytes,
    },
    /// `receive_buffer` exceeds the largest window that RFC 7323 can express.
    #[error("`receive-buffer` is at most 1 GiB, all that window scaling can offer")]
    ReceiveBufferBeyondScale,
    /// `receive_buffer_from` is smaller than a segment or above `receive_buffer`.
    #[error("`receive-buffer-from` is at least `mss` and at most `receive-buffer`")]
    ReceiveBufferFrom,
    /// `min_rto` is above `max_rto`.
    #[error("`min-rto` is above `max-rto`: lower it")]
    RtoBounds,
    /// RACK requires SACK. RFC 8985 §4.
    #[error(
        "rack requires selective acknowledgements: set loss-detection = \"dup-thresh\" as well as sack = false"
    )]
    RackWithoutSack,
    /// DCTCP and Prague require ECN, as they respond to marks.
    #[error(
        "{name} requires marks: set ecn = true in the flow's `tcp`, or choose another congestion control"
    )]
    WithoutEcn {
        /// Congestion control.
        name: &'static str,
    },
}

impl TcpError {
    /// Returns the key at fault.
    pub const fn key(&self) -> &'static str {
        match self {
            Self::Zero { key } | Self::BufferBelowSegment { key, .. } => key,
            Self::ReceiveBufferBeyondScale => "receive-buffer",
            Self::ReceiveBufferFrom => "receive-buffer-from",
            Self::RtoBounds => "min-rto",
            Self::RackWithoutSack => "sack",
            Self::WithoutEcn { .. } => "congestion",
        }
    }
}

impl Tcp {
    /// Creates a configuration with this congestion control, and defaults otherwise.
    pub fn with(congestion: Congestion) -> Self {
        Self { congestion, ..Self::default() }
    }

    /// Returns each error of this configuration.
    pub fn errors(&self) -> impl Iterator<Item = TcpError> {
        let mss = Bytes::from(self.mss);
        let zeros = [
            ("mss", self.mss == 0),
            ("initial-window", self.initial_window == 0),
            ("min-rto", self.min_rto.is_zero()),
            ("initial-rto", self.initial_rto.is_zero()),
            ("initial-ssthresh", self.initial_ssthresh == Some(0)),
            ("growth", self.growth == (Growth::Bytes { limit: 0 })),
            ("delayed-ack", self.delayed_ack.every == 0),
        ];
        let zeros = zeros.into_iter().filter(|(_, zero)| *zero).map(|(key, _)| TcpError::Zero { key });
        let buffers = [("send-buffer", self.send_buffer), ("receive-buffer", self.receive_buffer)];
        let small = buffers.into_iter().filter(move |(_, buffer)| *buffer < mss);
        let from = self.receive_buffer_from;
        let rest = [
            (self.receive_buffer > MOST_RECEIVE_BUFFER, TcpError::ReceiveBufferBeyondScale),
            (from.is_some_and(|from| from < mss || from > self.receive_buffer), TcpError::ReceiveBufferFrom),
            (self.min_rto > self.max_rto, TcpError::RtoBounds),
            (!self.sack && self.loss_detection == LossDetection::Rack, TcpError::RackWithoutSack),
            (self.congestion == Congestion::Dctcp && !self.ecn, TcpError::WithoutEcn { name: "dctcp" }),
            (self.congestion == Congestion::Prague && !self.ecn, TcpError::WithoutEcn { name: "prague" }),
        ];
        zeros
            .chain(small.map(move |(key, _)| TcpError::BufferBelowSegment { key, mss }))
            .chain(rest.into_iter().filter_map(|(wrong, error)| wrong.then_some(error)))
    }

    /// Returns the initial window in bytes, for a congestion control.
    pub fn initial_cwnd(&self) -> u64 {
        u64::from(self.mss) * u64::from(self.initial_window)
    }

    /// Returns the initial slow start threshold in bytes, for a congestion control; [`u64::MAX`] is
    /// none.
    pub fn initial_threshold(&self) -> u64 {
        self.initial_ssthresh.map_or(u64::MAX, |segments| u64::from(self.mss) * u64::from(segments))
    }

    /// Returns the length of a full segment's IPv4 packet.
    ///
    /// Its headers have 20 B (RFC 791), 20 B (RFC 9293), and the padded options of a data segment.
    pub fn packet(&self) -> Bytes {
        let options =
            self.timestamp_option() + u64::from(self.priority_option.map_or(0, PriorityOption::bytes));
        Bytes::new(HEADERS + options.next_multiple_of(4) + u64::from(self.mss))
    }

    /// Returns the length of the longest IPv4 packet without payload.
    ///
    /// This is an acknowledgement with three SACK blocks (RFC 2018 §3), or with four ranges of low
    /// packets if there is a low layer. Without SACK and low layer it is a SYN, which has 20 bytes
    /// of options.
    pub fn acknowledgement(&self) -> Bytes {
        let ranges = match (self.low_layer, self.sack) {
            (Some(_), _) => 4,
            (None, true) => 3,
            (None, false) => return Bytes::new(HEADERS + 20),
        };
        Bytes::new(HEADERS + self.timestamp_option() + 4 + 8 * ranges)
    }

    /// Returns the length of the timestamps option after two no-operations. RFC 7323 appendix A.
    const fn timestamp_option(&self) -> u64 {
        if self.timestamps { 12 } else { 0 }
    }
}

/// Growth of a window per acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// Growth by acknowledged bytes. In slow start, one acknowledgement counts for at most `limit`
    /// segments (RFC 3465).
    Bytes {
        /// Limit L of RFC 3465, in segments.
        limit: u32,
    },
    /// Growth by the number of acknowledgements (RFC 5681).
    Acknowledgements,
}

impl Default for Growth {
    /// Returns growth by bytes, with at most two segments per acknowledgement.
    fn default() -> Self {
        Self::Bytes { limit: 2 }
    }
}

/// Keys of growth by bytes.
pub(crate) struct GrowthByBytes {
    limit: u32,
}

keyed! {
    GrowthByBytes, "growth by bytes" kinded, |_of: ()|;
    /// maximum of segments that one acknowledgement counts for in slow start (RFC 3465's L); after a
    /// timeout it counts for one
    "limit" => limit: Small(1..=1_000_000), or(2);
}

/// Growth, as a kind.
struct GrowthKind;

/// Keys of growth by acknowledgements.
pub(crate) const GROWTH_BY_ACKS: Schema = Schema::plain("growth by acknowledgements");
const GROWTHS: &[Kind<bool>] = &[("bytes", true, &GrowthByBytes::SCHEMA), ("acks", false, &GROWTH_BY_ACKS)];

impl Single<()> for GrowthKind {
    type Value = Growth;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, of: &()) -> Option<Growth> {
        let (by_bytes, tagged) = tagged_of(key, keys.item(key)?, GROWTHS, keys.faults)?;
        if !by_bytes {
            return Some(Growth::Acknowledgements);
        }
        GrowthByBytes::read(&tagged.keys(), of).map(|GrowthByBytes { limit }| Growth::Bytes { limit })
    }

    fn toml(&self, growth: &Growth) -> String {
        match *growth {
            Growth::Acknowledgements => quote("acks"),
            Growth::Bytes { limit } => {
                let mut pairs = Pairs::new();
                pairs.text("kind", "bytes");
                GrowthByBytes { limit }.write(&mut pairs);
                pairs.inline()
            }
        }
    }
}

kinds! {
    /// Congestion control of a sender.
    #[derive(Clone, Debug, PartialEq)]
    pub enum Congestion, (), fn name, plain "a congestion control", plugins Congestion(Plugin),
    states is_random:
    /// Reno (RFC 5681) with byte counting (RFC 3465).
    "reno" => Reno: not random,
    /// CUBIC (RFC 9438).
    "cubic" => Cubic(Cubic): not random,
    /// DCTCP (RFC 8257). It needs ECN. A DCTCP receiver echoes each mark once, instead of until the
    /// sender reports a reduction: configure both ends alike.
    "dctcp" => Dctcp: not random,
    /// Prague, for queues of L4S (RFC 9331): DCTCP with ECT(1), whose growth does not depend on the round trip below 25 ms.
    /// It needs ECN at both ends, and both configured alike. The kernel does not have it.
    "prague" => Prague: not random,
    /// BBR version 1, as in Linux. It draws the gain phase in which it starts to probe for
    /// bandwidth.
    "bbr" => Bbr: random,
    /// FAST (INFOCOM 2004), which keeps a number of its own packets in the queue. The kernel does not have it.
    "fast" => Fast(Fast): not random,
    /// Copa (NSDI 2018), which keeps a few packets in the queue, and competes beside flows that fill it. The kernel does not
    /// have it.
    "copa" => Copa: not random,
    /// LEDBAT++ (draft-irtf-iccrg-ledbat-plus-plus), which yields to others. The kernel does not have it.
    "ledbat++" => LedbatPlusPlus: not random,
}

impl Congestion {
    /// CUBIC with the options that Linux enables.
    pub const CUBIC: Self = Self::Cubic(Cubic::LINUX);
}

/// Optional parts of CUBIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cubic {
    /// Leaves slow start when a queue begins to grow (HyStart), as Linux does.
    pub hystart: bool,
    /// Releases bandwidth to new flows: lowers W_max below the window reached if that was below the
    /// previous W_max (fast convergence, RFC 9438 §4.7).
    pub fast_convergence: bool,
    /// Grows by at least 5 % per round trip while no loss has shown the bandwidth, as Linux does:
    /// after a slow start that ended without loss, and after a timeout. RFC 9438 has no such rule.
    pub early_growth: bool,
}

impl Cubic {
    /// Parts that Linux has: all.
    pub const LINUX: Self = Self { hystart: true, fast_convergence: true, early_growth: true };
}

impl Default for Cubic {
    fn default() -> Self {
        Self::LINUX
    }
}

keyed! {
    Cubic, "cubic" kinded, |_of: ()|;
    /// leave slow start when a queue begins to grow
    "hystart" => hystart: Flag, or(true);
    /// release bandwidth to new flows (RFC 9438 §4.7)
    "fast-convergence" => fast_convergence: Flag, or(true);
    /// grow by at least 5 % per round trip until a loss shows the bandwidth, as Linux does
    "early-growth" => early_growth: Flag, or(true);
}

/// Parameter of FAST.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fast {
    /// Packets that a flow keeps in the bottleneck's queue. The article has 200 for 1 Gbit/s; less delay needs fewer.
    pub alpha: u32,
}

impl Default for Fast {
    fn default() -> Self {
        Self { alpha: 20 }
    }
}

keyed! {
    Fast, "fast congestion" kinded, |_of: ()|;
    /// packets that a flow keeps in the bottleneck's queue
    "alpha" => alpha: Small(1..=100_000), or(20);
}

/// Timing of a receiver's acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAck {
    /// Number of data segments after which an acknowledgement is due; 1 acknowledges every segment.
    pub every: u32,
    /// Time after which an acknowledgement is due.
    pub timeout: Duration,
    /// Acknowledges the first data segment of the connection at once.
    pub first_at_once: bool,
    /// Acknowledges P0 and P1 segments at once (CATS §II-D2).
    pub urgent_at_once: bool,
    /// Number of segments at the beginning, and after a pause of a retransmission timeout, of which
    /// each is acknowledged at once. Linux acknowledges 16 so.
    pub quick: u32,
}

impl DelayedAck {
    /// Acknowledges every segment.
    pub const NONE: Self = Self { every: 1, ..Self::USUAL };
    /// The default.
    const USUAL: Self = Self {
        every: 2,
        timeout: Duration::from_millis(40),
        first_at_once: true,
        urgent_at_once: false,
        quick: 0,
    };
}

impl Default for DelayedAck {
    fn default() -> Self {
        Self::USUAL
    }
}

keyed! {
    DelayedAck, "delayed acknowledgements", |_of: ()|;
    /// maximum number of segments per acknowledgement
    "every" => every: Small(1..=1000), or(2);
    /// maximum delay of an acknowledgement
    "timeout" => timeout: SomeSpan, or(Duration::from_millis(40));
    /// acknowledge the connection's first segment at once
    "first-at-once" => first_at_once: Flag, or(true);
    /// acknowledge p0 and p1 at once (CATS §II-D2)
    "urgent-at-once" => urgent_at_once: Flag, or(false);
    /// number of segments at the beginning, and after a pause of a retransmission timeout, that are
    /// acknowledged one by one: 16 in Linux
    "quick" => quick: Small(0..=1000), or(0);
}

words! {
    /// Form of the option that carries a segment's priority.
    pub enum PriorityOption {
        /// Kind 254 with an experiment identifier, 5 bytes: the standard form (RFC 6994).
        Rfc6994 = "rfc6994",
        /// Kind 254, 3 bytes (CATS §II-D2).
        Short = "short",
        /// Kind 253, 4 bytes, as sent by the authors' program.
        Authors = "authors",
    }
}

impl PriorityOption {
    /// Returns the length of the option in bytes, without padding.
    pub const fn bytes(self) -> u32 {
        match self {
            Self::Rfc6994 => 5,
            Self::Short => 3,
            Self::Authors => 4,
        }
    }
}

words! {
    /// Algorithm that detects losses before the retransmission timer expires.
    pub enum LossDetection {
        /// Detection by time, with tail loss probes (RFC 8985), as in Linux.
        Rack = "rack",
        /// Detection by three segments above the gap (RFC 6675), as textbooks and formulas assume.
        DupThresh = "dup-thresh",
    }
}

words! {
    /// Rule by which segments with less than a full payload wait for more data.
    pub enum Nagle {
        /// None waits.
        Off = "off",
        /// Each waits while anything is in flight (RFC 9293 §3.7.4).
        Standard = "standard",
        /// Each waits while another of them is in flight, as in Linux (Minshall's variant).
        Minshall = "minshall",
    }
}

words! {
    /// Slow start of Reno, CUBIC and DCTCP.
    pub enum SlowStart {
        /// Slow start of RFC 5681; under CUBIC with HyStart, if that is on.
        Standard = "standard",
        /// HyStart++ (RFC 9406).
        HyStartPlusPlus = "hystart++",
    }
}

/// Low layer of a connection, which sends at low priority what the high layer cannot send (PLT §3).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LowLayer {
    /// Loss rate below which the window grows; `None` determines it at run time.
    pub target: Option<f64>,
    /// Interval between changes of the window; `None` for a round trip.
    pub epoch: Option<Duration>,
    /// Initial window, in full packets.
    pub initial_window: u32,
    /// Largest window, in full packets.
    pub most_window: u32,
    /// Smallest timeout.
    pub min_rto: Duration,
    /// Smallest timeout until the first low packet has been acknowledged; applies if it exceeds
    /// `min_rto`.
    pub initial_min_rto: Duration,
    /// Number of low retransmissions of a packet before the high layer retransmits it.
    pub retransmissions: u8,
    /// Layer of the acknowledgements of low packets.
    pub ack_layer: Layer,
    /// Number of low packets after which an acknowledgement is due.
    pub ack_every: u32,
    /// Least urgent level of new data that may use the high layer; `None` for all levels.
    pub high_for: Option<Priority>,
}

impl LowLayer {
    /// Parameters of PLT §4.1, whose windows are for 250 Mbit/s and 80 ms in packets of 1000 bytes.
    pub const PAPER: Self = Self {
        target: Some(0.005),
        epoch: Some(Duration::from_millis(100)),
        initial_window: 2500,
        most_window: 7500,
        min_rto: Duration::from_millis(200),
        initial_min_rto: Duration::ZERO,
        retransmissions: 0,
        ack_layer: Layer::Low,
        ack_every: 1,
        high_for: None,
    };

    /// Parameters for unknown paths.
    ///
    /// An epoch is a round trip, and the loss target is determined at run time. The first packets
    /// have a long timeout, as they may have to wait.
    pub const MARCATO: Self = Self {
        target: None,
        epoch: None,
        initial_window: 100,
        most_window: 1_000_000,
        initial_min_rto: Duration::from_secs(1),
        ..Self::PAPER
    };
}

keyed! {
    LowLayer, "a low layer" kinded, |preset: LowLayer|, check initial_window_is_possible;
    /// loss rate below which its window grows (the paper's μ); or `"found"` at run time
    "target" => target: Or("found", Number(0.000_001..=0.999)),
        or(preset.target; "paper `0.005`, marcato `\"found\"`");
    /// time after which the window may change; or `"round-trip"`
    "epoch" => epoch: Or("round-trip", SomeSpan),
        or(preset.epoch; "paper `\"100 ms\"`, marcato `\"round-trip\"`");
    /// initial window in full packets; packets for which the path has no room are lost, and wait for
    /// the high layer
    "initial-window" => initial_window: Small(1..=1_000_000),
        or(preset.initial_window; "paper `2500`, marcato `100`");
    /// maximum window in full packets
    "most-window" => most_window: Small(1..=1_000_000),
        or(preset.most_window; "paper `7500`, marcato `1000000`");
    /// its minimum timeout
    "min-rto" => min_rto: SomeSpan, or(preset.min_rto; "`\"200 ms\"`");
    /// the same until the first of its packets is acknowledged, if that is more: on a busy link they
    /// wait
    "initial-min-rto" => initial_min_rto: Span, or(preset.initial_min_rto; "paper `\"0 s\"`, marcato `\"1 s\"`");
    /// number of its own retransmissions of a packet before the high layer repairs it
    "retransmissions" => retransmissions: Tries, or(preset.retransmissions; "`0`");
    /// layer of the acknowledgements of its packets
    "ack-layer" => ack_layer: Class, or(preset.ack_layer; "`\"low\"`");
    /// maximum number of its packets per acknowledgement, 1 to 4
    "ack-every" => ack_every: Small(1..=4), or(preset.ack_every; "`1`");
    /// data less urgent than this goes low only; or `"all"`: the high layer carries everything
    "high-for" => high_for: Or("all", Urgency), or(preset.high_for; "`\"all\"`");
}

fn initial_window_is_possible(low: &LowLayer, keys: &Keys<'_>, _: &LowLayer) {
    if low.initial_window > low.most_window {
        keys.fault("initial-window", "`initial-window` is above `most-window`: lower it");
    }
}

/// Number of retransmissions.
struct Tries;

const TRIES: Small = Small(0..=255);

impl Single<LowLayer> for Tries {
    type Value = u8;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, preset: &LowLayer) -> Option<u8> {
        TRIES.read_one(keys, key, preset).and_then(|often| u8::try_from(often).ok())
    }

    fn toml(&self, often: &u8) -> String {
        often.to_string()
    }
}

/// Low layer, as a preset with changes, or none.
struct LowLayerKind;

/// Keys of a connection without a low layer.
pub(crate) const NO_LOW_LAYER: Schema = Schema::plain("no low layer");
const LOW_LAYERS: &[Kind<Option<LowLayer>>] = &[
    ("none", None, &NO_LOW_LAYER),
    ("paper", Some(LowLayer::PAPER), &<LowLayer as Keyed<LowLayer>>::SCHEMA),
    ("marcato", Some(LowLayer::MARCATO), &<LowLayer as Keyed<LowLayer>>::SCHEMA),
];

impl Single<()> for LowLayerKind {
    type Value = Option<LowLayer>;

    fn read_one(&self, keys: &Keys<'_>, key: &'static str, _: &()) -> Option<Option<LowLayer>> {
        let (preset, tagged) = tagged_of(key, keys.item(key)?, LOW_LAYERS, keys.faults)?;
        Some(preset.and_then(|preset| LowLayer::read(&tagged.keys(), &preset)))
    }

    fn toml(&self, low: &Option<LowLayer>) -> String {
        let Some(low) = low else { return quote("none") };
        let mut pairs = Pairs::new();
        pairs.text("kind", "marcato");
        low.write(&mut pairs);
        pairs.inline()
    }
}
