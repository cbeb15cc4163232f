//! Requests and responses over one connection.

use marcato_units::{Bytes, Duration, Priority, Stream, Time};

use super::{App, FlowStreams, Socket, Tag};
use crate::distribution::Distribution;

/// Configuration of requests and responses over one connection. A [`Requester`] at one end sends a
/// request, and a [`Responder`] at the other sends a response. The next request follows after a
/// think time.
///
/// Both ends draw the sizes from the same streams, named after the flow, so that the response size
/// need not be transferred. A size of 0 counts as 1, since an empty request could not be detected.
///
/// ```
/// use marcato_sim::{Congestion, Distribution, LinkConfig, Network, RequestResponse, Requester, Side, Tcp, TcpFlow};
/// use marcato_units::{Bytes, Duration, Rate, Seed, Time};
///
/// let mut net = Network::new(Seed::new(1));
/// let (client, server) = (net.node("client"), net.node("server"));
/// let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
/// net.link(client, server, link(), link());
/// let pages = RequestResponse::new(
///     Distribution::constant(Bytes::new(300)),
///     Distribution::exponential(Bytes::kb(20))?,
///     Distribution::constant(Duration::from_millis(500)),
/// )
/// .exchanges(10);
/// let ends = TcpFlow::new(client, server, Tcp::default(), pages.client()).server_app(pages.server());
/// let flow = net.tcp(ends)?;
/// net.run_until(Time::from_secs(20));
/// let asked = net.app::<Requester>(flow, Side::Client).map_or(&[][..], |client| client.exchanges());
/// assert_eq!(asked.len(), 10);
/// // A round trip at least.
/// assert!(asked.iter().all(|exchange| exchange.completion() > Duration::from_millis(40)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestResponse {
    /// Sizes of the requests.
    pub request: Distribution<Bytes>,
    /// Sizes of the responses.
    pub response: Distribution<Bytes>,
    /// Time from the end of a response to the next request.
    pub think: Distribution<Duration>,
    /// Number of requests, after which the connection is closed.
    pub exchanges: u64,
    /// Number of exchanges that the [`Requester`] records; later ones are only counted.
    pub most_records: usize,
    /// Priority of requests and responses.
    pub priority: Priority,
}

impl RequestResponse {
    /// Requests without end, with a record of the first million.
    pub fn new(
        request: Distribution<Bytes>,
        response: Distribution<Bytes>,
        think: Distribution<Duration>,
    ) -> Self {
        Self {
            request,
            response,
            think,
            exchanges: u64::MAX,
            most_records: 1_000_000,
            priority: Priority::default(),
        }
    }

    /// Sets the number of requests.
    #[must_use]
    pub fn exchanges(self, exchanges: u64) -> Self {
        Self { exchanges, ..self }
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Returns the requesting application. It may be at either end of the flow, if the other end
    /// has the [`server`](Self::server).
    pub fn client(&self) -> Requester {
        Requester {
            config: *self,
            draws: None,
            think: None,
            asked: 0,
            current: None,
            left_to_write: Bytes::ZERO,
            left_to_read: Bytes::ZERO,
            records: Vec::new(),
            unrecorded: 0,
        }
    }

    /// Returns the responding application.
    pub fn server(&self) -> Responder {
        Responder {
            config: *self,
            draws: None,
            begun: 0,
            left_to_read: Bytes::ZERO,
            answer: Bytes::ZERO,
            left_to_write: Bytes::ZERO,
        }
    }
}

/// Sizes of a flow's requests and responses, pair by pair.
#[derive(Clone, Debug)]
struct Draws {
    request: Stream,
    response: Stream,
}

impl Draws {
    fn new(streams: &FlowStreams<'_>) -> Self {
        Self { request: streams.shared("requests"), response: streams.shared("responses") }
    }

    fn next(&mut self, config: &RequestResponse) -> (Bytes, Bytes) {
        let one = Bytes::new(1);
        (config.request.draw(&mut self.request).max(one), config.response.draw(&mut self.response).max(one))
    }
}

/// Request and its response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// Time at which the request was written.
    pub asked_at: Time,
    /// Arrival time of the response's last byte.
    pub answered_at: Time,
    /// Size of the request.
    pub request: Bytes,
    /// Size of the response.
    pub response: Bytes,
}

impl Exchange {
    /// Returns the time from the request to the end of its response.
    pub fn completion(&self) -> Duration {
        self.answered_at - self.asked_at
    }
}

/// Application that sends requests, from the establishment of the connection on; see
/// [`RequestResponse`].
#[derive(Clone, Debug)]
pub struct Requester {
    config: RequestResponse,
    draws: Option<Draws>,
    think: Option<Stream>,
    asked: u64,
    current: Option<Exchange>,
    left_to_write: Bytes,
    left_to_read: Bytes,
    records: Vec<Exchange>,
    unrecorded: u64,
}

impl Requester {
    /// Returns the recorded exchanges that are complete, in order.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.records
    }

    /// Returns the number of completed exchanges beyond `most_records`, which are not recorded.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// Returns the request that still waits for its response; its `answered_at` is so far the time
    /// of the request.
    pub fn unanswered(&self) -> Option<Exchange> {
        self.current
    }

    fn ask(&mut self, socket: &mut Socket<'_>) {
        let Some(draws) = &mut self.draws else { return };
        if self.asked == self.config.exchanges {
            socket.close();
            return;
        }
        self.asked += 1;
        let (request, response) = draws.next(&self.config);
        let now = socket.now();
        self.current = Some(Exchange { asked_at: now, answered_at: now, request, response });
        self.left_to_write = request;
        self.left_to_read = response;
        self.write(socket);
    }

    fn write(&mut self, socket: &mut Socket<'_>) {
        if !self.left_to_write.is_zero() {
            self.left_to_write -= socket.write(self.left_to_write, self.config.priority, Tag(self.asked - 1));
        }
    }
}

impl App for Requester {
    fn named(&mut self, streams: &FlowStreams<'_>) {
        self.draws = Some(Draws::new(streams));
        self.think = Some(streams.stream("think"));
    }

    fn connected(&mut self, socket: &mut Socket<'_>) {
        self.ask(socket);
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn received(&mut self, _tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        self.left_to_read -= bytes;
        if !self.left_to_read.is_zero() {
            return;
        }
        if let Some(exchange) = self.current.take() {
            if self.records.len() < self.config.most_records {
                self.records.push(Exchange { answered_at: socket.now(), ..exchange });
            } else {
                self.unrecorded += 1;
            }
        }
        let Some(stream) = &mut self.think else { return };
        let think = self.config.think.draw(stream);
        if self.asked == self.config.exchanges {
            socket.close();
        } else {
            socket.set_timer(socket.now() + think, 0);
        }
    }

    fn timer(&mut self, _token: u32, socket: &mut Socket<'_>) {
        self.ask(socket);
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}

/// Application that sends a response after each complete request; see [`RequestResponse`].
#[derive(Clone, Debug)]
pub struct Responder {
    config: RequestResponse,
    draws: Option<Draws>,
    /// Number of requests of which at least a byte was read.
    begun: u64,
    left_to_read: Bytes,
    answer: Bytes,
    left_to_write: Bytes,
}

impl Responder {
    fn write(&mut self, socket: &mut Socket<'_>) {
        if !self.left_to_write.is_zero() {
            self.left_to_write -= socket.write(self.left_to_write, self.config.priority, Tag(self.begun - 1));
        }
    }
}

impl App for Responder {
    fn named(&mut self, streams: &FlowStreams<'_>) {
        self.draws = Some(Draws::new(streams));
    }

    fn writable(&mut self, socket: &mut Socket<'_>) {
        self.write(socket);
    }

    fn received(&mut self, tag: Tag, bytes: Bytes, socket: &mut Socket<'_>) {
        let Some(draws) = &mut self.draws else { return };
        if tag.0 == self.begun {
            self.begun += 1;
            (self.left_to_read, self.answer) = draws.next(&self.config);
        }
        self.left_to_read -= bytes;
        if self.left_to_read.is_zero() {
            self.left_to_write += std::mem::replace(&mut self.answer, Bytes::ZERO);
            self.write(socket);
        }
    }

    fn finished(&mut self, socket: &mut Socket<'_>) {
        socket.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Congestion, LinkConfig, Loss, Network, Side, Tcp, TcpFlow};
    use marcato_units::{Rate, Seed};

    fn run(loss: Loss, seed: u64) -> Vec<Exchange> {
        let mut net = Network::new(Seed::new(seed));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
        net.link(client, server, link(), link().loss(loss));
        let config = Tcp { send_buffer: Bytes::kb(20), ..Tcp::with(Congestion::Reno) };
        let pages = RequestResponse::new(
            Distribution::exponential(Bytes::kb(10)).unwrap(),
            Distribution::truncated_pareto(1.2, Bytes::kb(40), Bytes::kb(1_000)).unwrap(),
            Distribution::log_normal(Duration::from_millis(100), 0.5).unwrap(),
        )
        .exchanges(30);
        let flow =
            net.tcp(TcpFlow::new(client, server, config, pages.client()).server_app(pages.server())).unwrap();
        net.run_until(Time::from_secs(100));
        assert!(net.is_finished(flow, Side::Client) && net.is_finished(flow, Side::Server));
        let asked = net.app::<Requester>(flow, Side::Client).unwrap().exchanges().to_vec();
        let bytes = |of: fn(&Exchange) -> Bytes| asked.iter().map(of).sum::<Bytes>();
        assert_eq!(net.reception(flow, Side::Server).bytes, bytes(|e| e.request));
        assert_eq!(net.reception(flow, Side::Client).bytes, bytes(|e| e.response));
        asked
    }

    #[test]
    fn exchanges_larger_than_the_send_buffer_complete_in_turn() {
        let asked = run(Loss::None, 1);
        assert_eq!(asked.len(), 30);
        for pair in asked.windows(2) {
            assert!(pair[1].asked_at > pair[0].answered_at);
        }
        assert!(asked.iter().any(|e| e.response > Bytes::kb(20)));
    }

    #[test]
    fn losses_change_the_times_and_not_the_sizes() {
        let sizes = |asked: &[Exchange]| asked.iter().map(|e| (e.request, e.response)).collect::<Vec<_>>();
        let (clean, lossy) = (run(Loss::None, 1), run(Loss::Every(20), 1));
        assert_eq!(sizes(&clean), sizes(&lossy));
        assert_ne!(clean, lossy);
    }
}
