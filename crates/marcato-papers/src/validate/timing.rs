//! Times that are exact to the nanosecond: handshakes, slow start, delayed acknowledgements,
//! back-off.

use marcato_report::{Row, Unit};
use marcato_sim::{
    App, Bulk, DelayedAck, FlowId, LinkConfig, Loss, Network, Side, Socket, Tag, Tcp, TcpFlow,
};
use marcato_units::{Bytes, Duration, Priority, Rate, Seed, Time};

use super::path::{MSS, ONE_WAY, OneFlow, fifo, plain, textbook};
use super::plan::{Plan, Values};
use super::watch::watched;
use super::{Answer, Ask};
use crate::error::SimulationError;
use crate::prose;

const RATE: Rate = Rate::from_mbps(100);
/// Bytes of a segment's packet, of a bare acknowledgement, and of a SYN with three options: MSS,
/// window scale, SACK permitted.
const DATA: u64 = 1000;
const ACK: u64 = 40;
const SYN: u64 = 52;

/// Transmission time.
fn tx(bytes: u64) -> Duration {
    RATE.transmission_time(Bytes::new(bytes))
}

/// Departure of the first segment: after a SYN in either direction and an acknowledgement.
fn begins() -> Duration {
    (tx(SYN) + ONE_WAY) * 2 + tx(ACK)
}

/// Arrival of the last of `n` segments, with a window of ten that doubles each round trip. A round
/// begins with the acknowledgement of the first segment of the one before. The segments that it
/// releases leave back to back.
fn slow_start(n: u32) -> Duration {
    let (mut start, mut left, mut window) = (begins(), n, 10);
    while left > window {
        start += tx(DATA) + ONE_WAY + tx(ACK) + ONE_WAY;
        left -= window;
        window *= 2;
    }
    start + tx(DATA) * left + ONE_WAY
}

fn transfer(client: impl App, config: Tcp) -> Result<(Network, FlowId), SimulationError> {
    let mut net = Network::new(Seed::new(1));
    let (from, to) = (net.node("client"), net.node("server"));
    let link = || Ok::<_, SimulationError>(LinkConfig::new(RATE, ONE_WAY).queue(fifo(100_000)?));
    net.link(from, to, link()?, link()?);
    let flow = net.tcp(TcpFlow::new(from, to, config, client))?;
    net.run_until(Time::from_secs(10));
    Ok((net, flow))
}

fn last_arrival(segments: u32) -> Result<Values, SimulationError> {
    let app = Bulk::new(Bytes::from(segments * MSS));
    let (net, flow) = transfer(app, plain())?;
    let last = net.reception(flow, Side::Server).last_at.ok_or(SimulationError::Missing("segment"))?;
    Ok(vec![last.as_millis_f64()])
}

/// Writes its bytes, does not close, and records when all are acknowledged.
struct Noting {
    left: Bytes,
    total: Bytes,
    acked_at: Option<Time>,
}

impl App for Noting {
    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.left -= socket.write(self.left, Priority::default(), Tag::default());
        if self.acked_at.is_none() && socket.stats().delivered >= self.total {
            self.acked_at = Some(socket.now());
        }
    }
}

fn acknowledged(segments: u32) -> Result<Values, SimulationError> {
    let total = Bytes::from(segments * MSS);
    let app = Noting { left: total, total, acked_at: None };
    let (net, flow) = transfer(app, Tcp { delayed_ack: DelayedAck::default(), ..plain() })?;
    let app = net.app::<Noting>(flow, Side::Client).ok_or(SimulationError::Missing("application"))?;
    Ok(vec![app.acked_at.ok_or(SimulationError::Missing("acknowledgement"))?.as_millis_f64()])
}

/// Gaps in ms between arrivals at a wire that loses all packets from number `from` on.
fn retries(from: u64, until: u64) -> Result<Values, SimulationError> {
    let (queue, seen) = watched(fifo(10)?, true);
    let delay = Duration::from_millis(50);
    let there = LinkConfig::delay_only(delay).queue(queue).loss(Loss::Script((from..from + 100).collect()));
    let config = Tcp { initial_window: 1, ..textbook() };
    let mut one = OneFlow::new(Seed::new(1), there, LinkConfig::delay_only(delay), config)?;
    one.net.run_until(Time::from_secs(until));
    let seen = seen.borrow();
    let times = seen.came.get(usize::try_from(from).unwrap_or(0)..).unwrap_or(&[]);
    Ok(times.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs_f64() * 1e3).collect())
}

pub(super) fn timing(plan: &mut Plan) -> Ask {
    let sizes = [1u32, 10, 11, 25, 100, 1000];
    let transfers = sizes.map(|segments| (segments, plan.once(1, move || last_arrival(segments))));
    let delayed = [1u32, 2, 3].map(|segments| (segments, plan.once(1, move || acknowledged(segments))));
    let syn = plan.once(1, || retries(0, 70));
    let data = plan.once(1, || retries(2, 400));
    Box::new(move |runs| {
        // Times are whole nanoseconds. In floating-point milliseconds their error is far below half
        // of one.
        let exact = 1e-6 / 2.0;
        let ms = |span: Duration| span.as_secs_f64() * 1e3;
        let mut rows = Vec::new();
        for (segments, ticket) in transfers {
            rows.push(
                Row::new(format!("validate.transfer.{segments}"), format!("{segments} segments from connect to the last one's arrival, initial window 10 (exact)"), Unit::Ms)
                    .paper(ms(slow_start(segments)))
                    .samples(&runs.each(ticket, 0))
                    .within_absolute(exact),
            );
        }
        for (segments, ticket) in delayed {
            // The first segment is acknowledged at once. So is the next pair, but a single second
            // segment waits 40 ms.
            let wait = if segments == 2 { Duration::from_millis(40) } else { Duration::ZERO };
            let theory = begins() + tx(DATA) * segments + ONE_WAY + wait + tx(ACK) + ONE_WAY;
            rows.push(
                Row::new(
                    format!("validate.delack.{segments}"),
                    format!(
                        "{segments} segments until all are acknowledged, acknowledgements delayed (exact)"
                    ),
                    Unit::Ms,
                )
                .paper(ms(theory))
                .samples(&runs.each(ticket, 0))
                .within_absolute(exact),
            );
        }
        let mut expected = 1000.0;
        for k in 1..=6usize {
            rows.push(
                Row::new(
                    format!("validate.backoff.syn.{k}"),
                    "wait before a SYN is retransmitted (exact)",
                    Unit::Ms,
                )
                .paper(expected)
                .samples(&runs.each(syn, k - 1))
                .within_absolute(exact),
            );
            expected *= 2.0;
        }
        // RFC 6298 §2.2 and §2.3: the handshake took R = 100 ms, so SRTT is R, RTTVAR is R/2, and
        // the first timeout is R + 4·R/2.
        let mut expected = 300.0;
        for k in 1..=9usize {
            rows.push(
                Row::new(
                    format!("validate.backoff.data.{k}"),
                    "wait before a segment is retransmitted (exact)",
                    Unit::Ms,
                )
                .paper(f64::min(expected, 60_000.0))
                .samples(&runs.each(data, k - 1))
                .within_absolute(exact),
            );
            expected *= 2.0;
        }
        let text = prose::text(include_str!("timing.md"));
        Answer::new("Times that are exact", text, rows)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_start_takes_as_many_round_trips_as_its_window_demands() {
        let rounds = |n| (slow_start(n).as_secs_f64() / 0.08).round();
        // Adds the handshake and half a round trip: 1.5 becomes 2.
        assert_eq!([1, 10, 11, 25, 30, 31].map(rounds), [2.0, 2.0, 3.0, 3.0, 3.0, 4.0]);
    }
}
