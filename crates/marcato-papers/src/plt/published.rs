//! What the PLT paper prints, and the setting in which it was measured.

use marcato_units::{Duration, Rate};

/// The rate of each bottleneck (§4.1).
pub(super) const RATE: Rate = Rate::from_mbps(250);
/// The round trip over one bottleneck (§4.1).
pub(super) const RTT: Duration = Duration::from_millis(80);
/// Bytes of a packet. The paper does not say; it is what makes its "bandwidth delay product ≈ 2500" one of packets.
pub(super) const PACKET: u32 = 1000;
/// The large buffer, in packets (§4.1).
pub(super) const LARGE_BUFFER: u64 = 2500;
/// The small one: a tenth of it (§4.1).
pub(super) const SMALL_BUFFER: u64 = 250;
/// The receiver window, in packets: 3·BW·RTT (§4.1).
pub(super) const WINDOW: u64 = 7500;
/// The random losses of Figs. 3 and 6, and how rows call them. The paper's figures do not list theirs.
pub(super) const LOSSES: [(f64, &str); 11] = [
    (0.0, "0"),
    (1e-5, "1e-5"),
    (5e-5, "5e-5"),
    (1e-4, "1e-4"),
    (5e-4, "5e-4"),
    (1e-3, "1e-3"),
    (3e-3, "3e-3"),
    (4e-3, "4e-3"),
    (5e-3, "5e-3"),
    (6e-3, "6e-3"),
    (1e-2, "1e-2"),
];
/// Up to this loss PLT's goodput is "near-perfect" (§4.2): read as the next constant says.
pub(super) const NEAR_PERFECT_UP_TO: f64 = 1e-3;
/// At least this share of the link.
pub(super) const NEAR_PERFECT: f64 = 0.95;
/// At this loss TCP "fares very poorly" (§4.2): read as below a tenth of the link.
pub(super) const VERY_POOR_AT: f64 = 1e-4;
/// See above.
pub(super) const VERY_POOR: f64 = 0.1;
/// Without loss and with the small buffer, PLT carries at least this share of the link ...
pub(super) const SMALL_BUFFER_PLT: f64 = 0.97;
/// ... and Reno one between these: by the model of a sawtooth over a buffer of a tenth, 81.8 %.
pub(super) const SMALL_BUFFER_RENO: [f64; 2] = [0.75, 0.84];
/// Flows per second that saturate the link (§4.3.1).
pub(super) const FLOWS_PER_SECOND: f64 = 1250.0;
/// Their mean size in packets (§4.3.1).
pub(super) const FLOW_PACKETS: u64 = 25;
/// More than this share of the PLT flows takes a single round trip (§4.3.1).
pub(super) const ONE_RTT_SHARE: f64 = 0.9;
/// Flows in the network of two bottlenecks (§4.1), and the time between two of them, which the paper does not say.
pub(super) const BOTTLENECK_FLOWS: usize = 9;
/// See above.
pub(super) const APART: Duration = Duration::from_secs(60);
/// The rates of UDP on the second bottleneck, in Mbit/s. The paper's text names 50.
pub(super) const UDP_RATES: [u64; 6] = [0, 10, 25, 50, 75, 100];
/// PLT uses this share of both bottlenecks (§4.3.2) ...
pub(super) const UTILISATION: f64 = 0.9;
/// ... which at this rate of UDP, in Mbit/s, ...
pub(super) const GAIN_AT: u64 = 50;
/// ... is so much of the bottleneck more than TCP's, in % (§4.3.2).
pub(super) const GAIN: f64 = 20.0;
/// What the HCM repairs for the LCM is less than this share of the bottleneck (§4.3.2).
pub(super) const REPAIRS: f64 = 0.01;
