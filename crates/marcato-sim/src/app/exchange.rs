//! Questions and answers over one connection.

use marcato_units::{Bytes, Duration, Priority, Stream, Time};

use super::{App, FlowStreams, Socket, Tag};
use crate::distribution::Distribution;

/// Questions and answers over one connection, as they shall be: a [`Requester`] at one end asks with so many bytes, a
/// [`Responder`] at the other answers with so many, and after a time to think the next question follows.
///
/// Both ends draw the sizes from the same streams, named after the flow, so that the answer's need not travel. A size of
/// 0 counts as 1: who says nothing cannot be heard.
///
/// ```
/// use marcato_sim::{Distribution, LinkConfig, Network, RequestResponse, Requester, Side, TcpConfig, TcpFlow};
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
/// let ends = TcpFlow::new(client, server, TcpConfig::default(), pages.client()).server_app(pages.server());
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
    /// Sizes of the questions.
    pub request: Distribution<Bytes>,
    /// Sizes of the answers.
    pub response: Distribution<Bytes>,
    /// From the end of an answer to the next question.
    pub think: Distribution<Duration>,
    /// How many questions there are; then the connection is closed.
    pub exchanges: u64,
    /// How many exchanges the [`Requester`] keeps; of those after, it only counts how many there were.
    pub most_records: usize,
    /// The priority of questions and answers.
    pub priority: Priority,
}

impl RequestResponse {
    /// Questions without end. Of a million of them, the times are kept.
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

    /// With so many questions.
    #[must_use]
    pub fn exchanges(self, exchanges: u64) -> Self {
        Self { exchanges, ..self }
    }

    /// With this priority.
    #[must_use]
    pub fn priority(self, priority: Priority) -> Self {
        Self { priority, ..self }
    }

    /// Who asks. It may be either end of the flow, if the other has the [`server`](Self::server).
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

    /// Who answers.
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

/// The sizes of a flow's questions and answers, one pair after the other.
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

/// A question and its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// When the question was written.
    pub asked_at: Time,
    /// When the last byte of the answer had arrived.
    pub answered_at: Time,
    /// Bytes of the question.
    pub request: Bytes,
    /// Bytes of the answer.
    pub response: Bytes,
}

impl Exchange {
    /// How long it took.
    pub fn completion(&self) -> Duration {
        self.answered_at - self.asked_at
    }
}

/// Asks; see [`RequestResponse`]. It begins when the connection is established.
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
    /// What has been answered in full, in order, as far as it is kept.
    pub fn exchanges(&self) -> &[Exchange] {
        &self.records
    }

    /// Exchanges that were completed and not kept, because `most_records` were already.
    pub fn unrecorded(&self) -> u64 {
        self.unrecorded
    }

    /// The question that waits for its answer: its `answered_at` is as yet the time at which it was asked.
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

/// Answers; see [`RequestResponse`]. It answers a question when it has all of it.
#[derive(Clone, Debug)]
pub struct Responder {
    config: RequestResponse,
    draws: Option<Draws>,
    /// Questions of which something has been read.
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
    use crate::{LinkConfig, Loss, Network, Side, TcpConfig, TcpFlow};
    use marcato_units::{Rate, Seed};

    fn run(loss: Loss, seed: u64) -> Vec<Exchange> {
        let mut net = Network::new(Seed::new(seed));
        let (client, server) = (net.node("client"), net.node("server"));
        let link = || LinkConfig::new(Rate::from_mbps(10), Duration::from_millis(20));
        net.link(client, server, link(), link().loss(loss));
        let config = TcpConfig { send_buffer: Bytes::kb(20), ..TcpConfig::default() };
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
    fn every_question_is_answered_in_full_though_both_are_longer_than_the_send_buffer() {
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
