//! Values that the PLT paper prints, and the setting of its measurements.

use marcato_units::{Duration, Rate};

/// Rate of each bottleneck (§4.1).
pub(super) const RATE: Rate = Rate::from_mbps(250);
/// Round trip over one bottleneck (§4.1).
pub(super) const RTT: Duration = Duration::from_millis(80);
/// Bytes of a packet. The paper does not give them. With 1000 bytes, its "bandwidth delay product ≈
/// 2500" is a number of packets.
pub(super) const PACKET: u32 = 1000;
/// The large buffer, in packets (§4.1).
pub(super) const LARGE_BUFFER: u64 = 2500;
/// The small buffer, in packets: a tenth of the large one (§4.1).
pub(super) const SMALL_BUFFER: u64 = 250;
/// The receiver window, in packets: 3·BW·RTT (§4.1).
pub(super) const WINDOW: u64 = 7500;
/// Random losses of Figs. 3 and 6, with their names in row ids. The paper's figures do not list
/// theirs.
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
/// Loss up to which PLT's goodput is "near-perfect" (§4.2), read as at least [`NEAR_PERFECT`].
pub(super) const NEAR_PERFECT_UP_TO: f64 = 1e-3;
/// Least share of the link that counts as near-perfect.
pub(super) const NEAR_PERFECT: f64 = 0.95;
/// Loss at which TCP "fares very poorly" (§4.2), read as at most [`VERY_POOR`].
pub(super) const VERY_POOR_AT: f64 = 1e-4;
/// Largest share of the link that counts as very poor: a tenth.
pub(super) const VERY_POOR: f64 = 0.1;
/// Least share of the link that PLT carries without loss and with the small buffer.
pub(super) const SMALL_BUFFER_PLT: f64 = 0.97;
/// Bounds of the share of the link that Reno carries there. The model of a sawtooth over a buffer
/// of a tenth gives 81.8 %.
pub(super) const SMALL_BUFFER_RENO: [f64; 2] = [0.75, 0.84];
/// Flows per second that saturate the link (§4.3.1).
pub(super) const FLOWS_PER_SECOND: f64 = 1250.0;
/// Mean size of these flows in packets (§4.3.1).
pub(super) const FLOW_PACKETS: u64 = 25;
/// Lower bound of the share of PLT flows that take a single round trip (§4.3.1).
pub(super) const ONE_RTT_SHARE: f64 = 0.9;
/// Flows in the network of two bottlenecks (§4.1).
pub(super) const BOTTLENECK_FLOWS: usize = 9;
/// Time between the starts of two such flows, which the paper does not give.
pub(super) const APART: Duration = Duration::from_secs(60);
/// Rates of UDP on the second bottleneck, in Mbit/s. The paper's text names 50.
pub(super) const UDP_RATES: [u64; 6] = [0, 10, 25, 50, 75, 100];
/// Share of both bottlenecks that PLT uses (§4.3.2).
pub(super) const UTILISATION: f64 = 0.9;
/// Rate of UDP, in Mbit/s, at which the paper compares PLT with TCP (§4.3.2).
pub(super) const GAIN_AT: u64 = 50;
/// Difference of the utilisation between PLT and TCP at that rate, in % of the bottleneck (§4.3.2).
pub(super) const GAIN: f64 = 20.0;
/// Upper bound of the HCM's repairs for the LCM, as a share of the bottleneck (§4.3.2).
pub(super) const REPAIRS: f64 = 0.01;
