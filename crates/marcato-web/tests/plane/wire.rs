//! Order of content on the wire, and the bytes ahead of what is urgent.
//!
//! Each test reads the frames of a real connection with a [slow receiver](crate::receiver).
#![cfg(feature = "server")]

use std::convert::Infallible;
use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::Frame;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody, channel::Channel};
use marcato_sched::Debt;
use marcato_sched::exchange::{Exchange, Parameters, Rules, Urgency};
use marcato_sched::order::StreamId;
use marcato_web::files::{Files, FilesConfig};
use marcato_web::{Body, Config, Server, Traces};

use crate::receiver::{PING, Receiver, Terms, chunks_of, pass, rest, run_still, settle};
use crate::support::{PIECE, Pieces, Running, frame, until};

type Content = BoxBody<Bytes, Infallible>;

/// Bytes of a chunk of one segment at most, and of the largest chunk.
const SEGMENT: usize = 1000;
const LARGE: usize = 64 << 10;
/// Values of the `priority` field, for urgencies from 0 on.
const PRIORITIES: [&str; 8] = ["u=0", "u=1", "u=2", "u=3", "u=4", "u=5", "u=6", "u=7"];

/// Service whose paths name a kind of source, a length, and sometimes the priority that the response has.
async fn answer(request: Request<Body>) -> Result<Response<Content>, Infallible> {
    let mut parts = request.uri().path().split('/').skip(1);
    let (kind, length) = (parts.next().unwrap(), parts.next().unwrap().parse().unwrap());
    let mut response = Response::new(match kind {
        // All of it is in memory.
        "whole" => Full::from(vec![b'x'; length]).boxed(),
        "pieces" => StreamBody::new(Pieces::holding(length, ())).boxed(),
        // Another task has one piece at a time, as the connection of an origin.
        "task" => {
            let (mut sender, body) = Channel::new(1);
            tokio::spawn(async move {
                let mut left = length;
                while left > 0 {
                    let len = left.min(PIECE);
                    left -= len;
                    if sender.send_data(vec![b'x'; len].into()).await.is_err() {
                        return;
                    }
                }
            });
            body.boxed()
        }
        kind => unreachable!("{kind}"),
    });
    if let Some(priority) = parts.next() {
        response.headers_mut().insert("priority", priority.parse().unwrap());
    }
    Ok(response)
}

async fn start(config: Config) -> Running {
    Running::start(Server::with_config(config), tower::service_fn(answer)).await
}

/// Configuration with chunks of so many segments, in which no level ever owes anything to another.
fn strict(segments: u32) -> Config {
    let mut config = chunks_of(segments);
    config.exchange.rules = Rules::Fixed(Debt::strict());
    config
}

/// Asks for a path with four urgencies, the least urgent first, and checks that each comes as a whole before the next.
async fn in_exact_order(running: &Running, path: &str, length: usize) {
    let mut client = Receiver::connect(running.addr, Terms::default()).await;
    let streams = client.ask([(path, "u=6"), (path, "u=3"), (path, "u=1"), (path, "u=0")]).await;
    let mut expected = streams;
    expected.reverse();
    for stream in expected {
        client.read_until_end(stream).await;
    }
    let sizes = client.sizes();
    assert_eq!(sizes, expected.map(|stream| (stream, length)), "{path}");
}

#[test]
fn streamed_files_leave_in_exact_order_at_any_size_of_chunks() {
    run_still(async {
        for segments in [1, 4, 60, 1000] {
            let running = start(strict(segments)).await;
            for kind in ["pieces", "task", "whole"] {
                in_exact_order(&running, &format!("/{kind}/200000"), 200_000).await;
            }
        }
    });
}

#[test]
fn files_of_a_directory_leave_in_exact_order() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("large.bin"), vec![b'x'; 300_000]).unwrap();
    run_still(async {
        let mut files = FilesConfig::new(directory.path());
        files.cached_file = marcato_units::Bytes::ZERO;
        let files = Files::new(files).unwrap();
        for segments in [1, 60] {
            let running = Running::start(Server::with_config(strict(segments)), files.clone()).await;
            in_exact_order(&running, "/large.bin", 300_000).await;
        }
    });
}

#[cfg(feature = "proxy")]
#[test]
fn proxied_bodies_leave_in_exact_order() {
    use marcato_web::proxy::{Proxy, ProxyConfig};
    run_still(async {
        let origin = start(strict(60)).await;
        for scheme in ["http", "h2c"] {
            let proxy = Proxy::new(ProxyConfig::to(format!("{scheme}://{}", origin.addr))).unwrap();
            for segments in [1, 60] {
                let running = Running::start(Server::with_config(strict(segments)), proxy.clone()).await;
                in_exact_order(&running, "/pieces/300000", 300_000).await;
            }
        }
    });
}

#[test]
fn equal_sequential_files_leave_one_after_the_other() {
    run_still(async {
        for segments in [1, 60] {
            let running = start(strict(segments)).await;
            for path in ["/pieces/200000", "/task/200000"] {
                let mut client = Receiver::connect(running.addr, Terms::default()).await;
                let streams = client.ask([(path, "u=3"), (path, "u=3"), (path, "u=3")]).await;
                client.read_until_end(streams[2]).await;
                assert_eq!(client.turns(), streams, "{path}");
            }
        }
    });
}

#[test]
fn equal_incremental_files_take_turns() {
    run_still(async {
        let running = start(strict(60)).await;
        let path = "/pieces/200000";
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let streams = client.ask([(path, "u=3, i"), (path, "u=3, i")]).await;
        for stream in streams {
            client.read_until_end(stream).await;
        }
        assert!(client.turns().len() > 20, "{:?}", client.turns());
        let ends = client.ends(&streams);
        assert!(ends.iter().all(|end| *end > 350_000), "{ends:?}");
    });
}

#[test]
fn a_source_that_is_slow_delays_no_less_urgent_response() {
    run_still(async {
        let running = Running::start(
            Server::with_config(strict(60)),
            tower::service_fn(async |request: Request<Body>| {
                if request.uri().path() != "/never" {
                    return answer(request).await;
                }
                // One byte, and nothing more.
                let (mut sender, body) = Channel::new(1);
                sender.try_send(Frame::data(Bytes::from_static(b"x"))).unwrap();
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(sender);
                });
                Ok(Response::new(body.boxed()))
            }),
        )
        .await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [slow, file] = client.ask([("/never", "u=0"), ("/pieces/100000", "u=5")]).await;
        // The other one waits for a moment: a millisecond, and ten now and then.
        settle().await;
        assert!(running.server.counters().granted[3].is_zero());
        // Timers are as fine as a millisecond.
        pass(Duration::from_millis(2)).await;
        pass(Duration::from_millis(11)).await;
        client.read_until_end(file).await;
        assert_eq!((client.turns(), client.bytes()), (vec![slow, file], 100_001));
    });
}

#[test]
fn incremental_responses_wait_for_none_of_their_urgency() {
    run_still(async {
        let (_source, bodies) = sources();
        let running = Running::start(Server::with_config(strict(60)), bodies).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [_, file] = client.ask([("/source", "u=3, i"), ("/pieces/100000", "u=3, i")]).await;
        client.read_until_end(file).await;
    });
}

#[test]
fn a_response_waits_once_for_a_source_that_turns_out_slow() {
    run_still(async {
        let (source, bodies) = sources();
        let running = Running::start(Server::with_config(strict(60)), bodies).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [slow, file] = client.ask([("/source", "u=0"), ("/pieces/3000000", "u=5")]).await;
        settle().await;
        assert!(running.server.counters().granted[3].is_zero(), "the source may be prompt");
        pass(Duration::from_millis(2)).await;
        pass(Duration::from_millis(11)).await;
        client.read_bytes(1000).await;
        assert_eq!(client.turns(), [slow, file]);
        // A piece comes late. Nothing waits for the next one, though no time passes.
        source.send(()).unwrap();
        client.drain().await;
        assert_eq!((client.turns(), client.ended), (vec![slow, file, slow, file], vec![file]));
    });
}

#[test]
fn a_request_after_one_that_began_late_delays_nothing() {
    run_still(async {
        let (begin, begins) = tokio::sync::watch::channel(0);
        let service = tower::service_fn(move |request: Request<Body>| {
            let mut begins = begins.clone();
            async move {
                if let Some(after) = request.uri().path().strip_prefix("/late/") {
                    let after: i32 = after.parse().unwrap();
                    begins.wait_for(|begun| *begun >= after).await.unwrap();
                    return Ok::<_, Infallible>(Response::new(Full::from("late").boxed()));
                }
                answer(request).await
            }
        });
        let running = Running::start(Server::with_config(strict(60)), service).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [late, file] = client.ask([("/late/1", "u=0"), ("/pieces/100000", "u=5")]).await;
        settle().await;
        assert!(running.server.counters().granted[3].is_zero(), "it may begin in a moment");
        pass(Duration::from_millis(2)).await;
        pass(Duration::from_millis(11)).await;
        client.read_until_end(file).await;
        begin.send(1).unwrap();
        client.read_until_end(late).await;
        let [_, file] = client.ask([("/late/2", "u=0"), ("/pieces/100000", "u=5")]).await;
        client.read_until_end(file).await;
    });
}

/// Service whose path `/source` has a byte at once, and one more for each message; others are as [`answer`] has them.
fn sources() -> (tokio::sync::broadcast::Sender<()>, impl marcato_web::WebService) {
    let (source, _) = tokio::sync::broadcast::channel(8);
    let told = source.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let mut told = told.subscribe();
        async move {
            if request.uri().path() != "/source" {
                return answer(request).await;
            }
            let (mut sender, body) = Channel::new(1);
            sender.try_send(Frame::data(Bytes::from_static(b"x"))).unwrap();
            tokio::spawn(async move {
                while told.recv().await.is_ok() {
                    if sender.send_data(Bytes::from_static(b"x")).await.is_err() {
                        return;
                    }
                }
            });
            Ok(Response::new(body.boxed()))
        }
    });
    (source, service)
}

/// Reads content for a while, and returns the most that was ahead of the receiver at any time.
async fn most_ahead(client: &mut Receiver, server: &Server, frames: usize) -> usize {
    let mut most = 0;
    for _ in 0..frames {
        client.content().await;
        settle().await;
        most = most.max(client.unread(server));
    }
    most
}

#[test]
fn little_more_than_a_chunk_is_ahead_of_the_receiver() {
    run_still(async {
        for (segments, chunk) in [(1, SEGMENT), (60, LARGE)] {
            let running = start(strict(segments)).await;
            for (path, count) in [("/whole/3000000", 1), ("/pieces/3000000", 1), ("/whole/3000000", 2)] {
                let mut client = Receiver::connect(running.addr, Terms::default()).await;
                let before = running.server.counters();
                // An urgent response comes first: chunks are then small.
                client.ask([("/whole/1", "u=0"), (path, "u=4")]).await;
                if count == 2 {
                    client.ask([(path, "u=4, i")]).await;
                }
                let granted = |server: &Server| {
                    let of = |counters: marcato_web::ServerCounters| {
                        counters.granted.into_iter().sum::<marcato_units::Bytes>().get()
                    };
                    usize::try_from(of(server.counters()) - of(before)).unwrap()
                };
                let mut most = 0;
                for _ in 0..40 {
                    client.content().await;
                    settle().await;
                    most = most.max(granted(&running.server) - client.bytes());
                }
                // What is in the receive buffer, what the kernel has not sent, what it has not taken, and a chunk.
                let bound = client.buffer() + 4 * chunk;
                assert!(most <= bound, "{most} of {bound} bytes with {count} of {path}, {segments} segments");
            }
        }
    });
}

#[test]
fn a_slow_connection_has_one_chunk_beyond_what_has_arrived() {
    run_still(async {
        let running = start(strict(1)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        client.ask([("/whole/3000000", "u=3")]).await;
        for _ in 0..40 {
            client.content().await;
            settle().await;
            // The kernel has not sent one chunk. The next one is granted when it has.
            let chunk_and_a_half = SEGMENT + SEGMENT / 2;
            until(|| client.unread(&running.server) < client.received() + chunk_and_a_half).await;
        }
    });
}

#[test]
fn chunks_grow_only_when_nothing_urgent_has_come_for_a_while() {
    run_still(async {
        let mut config = strict(1000);
        config.chunk.quiet_max = marcato_units::Bytes::new(1 << 20);
        let running = start(config).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [urgent, _] = client.ask([("/whole/1", "u=0"), ("/whole/9000000", "u=5")]).await;
        client.read_until_end(urgent).await;
        let bound = client.buffer() + 4 * LARGE;
        let most = most_ahead(&mut client, &running.server, 20).await;
        assert!(most <= bound, "{most} of {bound} bytes");
        // Just before the time is over, and then after it.
        pass(Duration::from_millis(900)).await;
        let most = most_ahead(&mut client, &running.server, 20).await;
        assert!(most <= bound, "{most} of {bound} bytes after 0.9 s");
        pass(Duration::from_millis(200)).await;
        let mut most = 0;
        while most <= bound {
            most = most_ahead(&mut client, &running.server, 5).await;
        }
        // Another urgent response makes them small again.
        let [urgent] = client.ask([("/whole/1", "u=1")]).await;
        client.read_until_end(urgent).await;
        client.read_bytes(2 << 20).await;
        let most = most_ahead(&mut client, &running.server, 20).await;
        assert!(most <= bound, "{most} of {bound} bytes after another urgent response");
    });
}

#[test]
fn late_urgent_responses_come_before_all_that_was_not_granted() {
    run_still(async {
        for (segments, chunk) in [(1, SEGMENT), (60, LARGE)] {
            for kind in ["whole", "pieces", "task"] {
                let running = start(strict(segments)).await;
                let mut client = Receiver::connect(running.addr, Terms::default()).await;
                let path = format!("/{kind}/3000000");
                client.ask([(&path, "u=5"), (&path, "u=3, i")]).await;
                client.read_bytes(100_000).await;
                let [late] = client.ask([("/pieces/100000", "u=0")]).await;
                let (ahead, bound) = (client.ahead_of(late).await, client.buffer() + 4 * chunk);
                assert!(ahead <= bound, "{ahead} of {bound} bytes of {path}, {segments} segments");
                let from = client.bytes();
                client.read_until_end(late).await;
                assert!(client.bytes() - from < 100_000, "nothing came in between");
            }
        }
    });
}

#[test]
fn a_changed_priority_reaches_a_response_that_is_running() {
    run_still(async {
        for (segments, chunk) in [(1, SEGMENT), (60, LARGE)] {
            let running = start(strict(segments)).await;
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            let path = "/pieces/3000000";
            let [first, second] = client.ask([(path, "u=3"), (path, "u=5")]).await;
            client.read_bytes(100_000).await;
            assert_eq!(client.turns(), [first]);
            client.update(second, "u=1").await;
            let bound = client.buffer() + 4 * chunk;
            let ahead = client.ahead_of(second).await;
            assert!(ahead <= bound, "{ahead} of {bound} bytes before the one that is urgent now");
            client.read_bytes(300_000).await;
            assert_eq!(client.turns(), [first, second]);
            // And back.
            client.update(second, "u=6").await;
            let ahead = client.ahead_of(first).await;
            assert!(ahead <= bound, "{ahead} of {bound} bytes before the other one");
            // Both are incremental now, and share the connection.
            client.update(first, "u=6, i").await;
            client.update(second, "u=6, i").await;
            client.read_bytes(500_000).await;
            assert!(client.turns().len() > 10, "{:?}", client.turns());
        }
    });
}

#[test]
fn a_response_opens_with_the_priority_that_came_before_its_head() {
    run_still(async {
        let running = start(strict(1)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        // Ahead of the request (RFC 9218 §7).
        client.update(3, "u=0").await;
        let [first, second] = client.ask([("/pieces/50000", "u=3"), ("/pieces/50000", "u=5")]).await;
        client.read_until_end(first).await;
        assert_eq!(client.turns(), [second, first]);
    });
}

#[test]
fn the_priority_of_a_response_overrides_that_of_its_request() {
    run_still(async {
        let running = start(strict(60)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let requests = [("/pieces/50000/u=6", "u=0"), ("/pieces/50000", "u=3"), ("/task/50000/u=0", "u=7")];
        let [less, middle, urgent] = client.ask(requests).await;
        client.read_until_end(less).await;
        assert_eq!(client.turns(), [urgent, middle, less]);
    });
}

#[test]
fn debts_follow_the_size_of_chunks() {
    run_still(async {
        // A chunk of 3 MB, over which an urgent level owes nothing.
        let mut config = chunks_of(3000);
        config.chunk.max = marcato_units::Bytes::new(4 << 20);
        let running = start(config).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [less, urgent] = client.ask([("/pieces/900000", "u=7"), ("/pieces/900000", "u=0")]).await;
        client.read_until_end(less).await;
        assert_eq!(client.turns(), [urgent, less]);
    });
}

#[test]
fn debts_follow_the_rate() {
    run_still(async {
        let running = start(chunks_of(1)).await;
        let mut client = Receiver::connect(running.addr, Terms { buffer: 1 << 20, ..Terms::default() }).await;
        // The kernel measures a rate. At 4 Mbit/s an urgent level owes after a megabyte, without any after 256 kB.
        let [first] = client.ask([("/pieces/300000", "u=0")]).await;
        client.read_until_end(first).await;
        pass(Duration::from_millis(20)).await;
        let [less, urgent] = client.ask([("/pieces/900000", "u=7"), ("/pieces/900000", "u=0")]).await;
        client.read_until_end(less).await;
        assert_eq!(client.turns(), [first, urgent, less]);
    });
}

#[test]
fn an_urgent_response_without_end_leaves_others_their_share() {
    run_still(async {
        let mut config = chunks_of(1);
        config.exchange.rules = Rules::Fixed(Debt::web());
        let running = start(config).await;
        for kind in ["pieces", "task"] {
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            let path = format!("/{kind}/2000000");
            let [less, urgent] = client.ask([("/pieces/100000", "u=7"), (&path, "u=0")]).await;
            client.read_until_end(less).await;
            assert!(!client.ended.contains(&urgent), "{kind}");
        }
    });
}

/// Changes of coupled mode in the trace of the only connection.
fn changes(traces: &Traces) -> usize {
    let ids = traces.ids();
    assert_eq!(ids.len(), 1);
    traces.qlog(ids[0]).unwrap().matches("web:coupled").count()
}

#[test]
fn levels_share_a_connection_as_their_debts_say() {
    run_still(async {
        const LENGTH: usize = 900_000;
        let urgencies = [6, 3, 1, 0];
        let mut config = chunks_of(1);
        config.exchange.rules = Rules::Fixed(Debt::web());
        for kind in ["pieces", "task"] {
            let running = start(config.clone()).await;
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            let path = format!("/{kind}/{LENGTH}");
            let streams =
                client.ask(urgencies.map(|urgency| (path.as_str(), PRIORITIES[urgency as usize]))).await;
            for stream in streams {
                client.read_until_end(stream).await;
            }
            // The same responses in an exchange that has all of them from the beginning, with the same chunks.
            let chunk = client.content.iter().map(|(_, len)| *len).max().unwrap();
            let mut whole = Config::default().exchange;
            (whole.rules, whole.max_staged) = (config.exchange.rules, marcato_units::Bytes::MAX);
            let mut exchange = Exchange::new(whole).unwrap();
            for (stream, urgency) in streams.into_iter().zip(urgencies) {
                let (stream, urgency) = (StreamId(stream.into()), Urgency::new(urgency).unwrap());
                let mut response = exchange.open(stream, Parameters::sequential(urgency)).unwrap();
                response.supply(marcato_units::Bytes::new(LENGTH as u64)).unwrap();
                response.finish();
            }
            let mut sum = 0;
            while let Some(grant) = exchange.grant(marcato_units::Bytes::new(chunk as u64)) {
                sum += usize::try_from(grant.len.get()).unwrap();
                if grant.fin {
                    let [end] = client.ends(&[u32::try_from(grant.stream.0).unwrap()])[..] else {
                        unreachable!()
                    };
                    assert!(end.abs_diff(sum) <= PIECE, "{kind}: {:?} at {end}, not at {sum}", grant.stream);
                }
            }
        }
    });
}

#[test]
fn stages_of_a_connection_grow_by_256_kib_at_most() {
    run_still(async {
        let produced = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&produced);
        let service = tower::service_fn(move |_: Request<Body>| {
            let count = Arc::clone(&count);
            let pieces =
                StreamBody::new(Pieces::holding(9_000_000, ())).map_frame(move |frame: Frame<Bytes>| {
                    count.fetch_add(frame.data_ref().map_or(0, Bytes::len), Relaxed);
                    frame
                });
            async { Ok::<_, Infallible>(Response::new(pieces.boxed())) }
        });
        let running = Running::start(Server::with_config(strict(60)), service).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let streams = client.ask([("/", "u=7"); 8]).await;
        let mut most = 0;
        for _ in 0..2 {
            for stream in streams {
                client.update(stream, "u=0").await;
                for _ in 0..20 {
                    client.content().await;
                    settle().await;
                    let granted: marcato_units::Bytes = running.server.counters().granted.into_iter().sum();
                    most = most.max(produced.load(Relaxed) - usize::try_from(granted.get()).unwrap());
                }
                client.update(stream, "u=7").await;
            }
        }
        // Each has what is staged of it, and a piece more.
        let usual = streams.len() * 2 * PIECE;
        assert!((usual + SEGMENT * 60..=usual + (256 << 10)).contains(&most), "{most} bytes of {usual}");
    });
}

#[test]
fn few_bytes_wait_for_the_next_chunk() {
    run_still(async {
        let running = start(strict(1)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        // The rest of the chunk in which the first response ends takes many lengths.
        for length in (860..=980).step_by(10) {
            let path = format!("/whole/{length}");
            let [_, second] = client.ask([(&path, "u=0"), ("/whole/3000", "u=5")]).await;
            client.read_until_end(second).await;
            let frames: Vec<usize> =
                client.content.iter().filter(|(of, _)| *of == second).map(|(_, len)| *len).collect();
            let (_, before_last) = frames.split_last().unwrap();
            assert!(before_last.iter().all(|len| *len >= 64), "after {length} bytes: {frames:?}");
        }
    });
}

#[test]
fn a_client_that_reads_nothing_is_answered_no_further() {
    run_still(async {
        let large = "x".repeat(60_000);
        let service = tower::service_fn(move |_: Request<Body>| {
            let head = Response::builder().header("large", &large).body(Full::new(Bytes::new())).unwrap();
            async { Ok::<_, Infallible>(head) }
        });
        let running = Running::start(Server::with_config(strict(1)), service).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        settle().await;
        for _ in 0..250 {
            client.ask([("/", ""); 4]).await;
            settle().await;
        }
        // As many as are open at once may wait, and the kernel holds some megabytes.
        let answered = running.server.counters().requests;
        assert!((1..500).contains(&answered), "{answered} requests");
    });
}

#[test]
fn responses_without_signals_are_ordered_by_their_types() {
    run_still(async {
        let service = tower::service_fn(async |request: Request<Body>| {
            let of = if request.uri().path() == "/film" { "video/mp4" } else { "text/css" };
            let body = StreamBody::new(Pieces::holding(100_000, ())).boxed();
            Ok::<_, Infallible>(Response::builder().header("content-type", of).body(body).unwrap())
        });
        let running = Running::start(Server::with_config(strict(60)), service).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [film, style] = client.ask([("/film", ""), ("/style", "")]).await;
        client.read_until_end(film).await;
        assert_eq!(client.turns(), [style, film]);
    });
}

#[test]
fn each_request_allows_more_signals() {
    run_still(async {
        let running = start(strict(60)).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        // All at once: the server reads each request along with the signals of the next.
        let mut streams = Vec::new();
        for _ in 0..3 {
            let [stream] = client.ask([("/pieces/100000", "u=3")]).await;
            for _ in 0..600 {
                client.update(stream, "u=4").await;
            }
            streams.push(stream);
        }
        for stream in streams {
            client.read_until_end(stream).await;
        }
        assert_eq!(running.server.counters().violations, 0);
    });
}

/// Configuration with coupled mode from the beginning.
fn coupled() -> Config {
    let mut config = strict(1);
    config.coupled = marcato_net::Coupling::On;
    config
}

#[test]
fn coupled_mode_holds_background_back_but_nothing_urgent() {
    run_still(async {
        let running = start(coupled()).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        // As far as the server knows, nothing arrives while time stands still.
        client.ask([("/pieces/3000000", "u=5")]).await;
        client.drain().await;
        let held = client.bytes();
        assert!(held < 200_000, "{held} bytes without an acknowledgement");
        let [urgent] = client.ask([("/whole/500", "u=0")]).await;
        client.read_until_end(urgent).await;
        // It looks for acknowledgements, and goes on.
        while client.bytes() < held + 300_000 {
            pass(Duration::from_millis(1)).await;
            client.drain().await;
        }
    });
}

#[test]
fn a_connection_that_was_held_back_can_be_stuck_later() {
    run_still(async {
        let running = start(coupled()).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        client.ask([("/pieces/3000000", "u=5")]).await;
        client.drain().await;
        for _ in 0..100 {
            pass(Duration::from_millis(1)).await;
        }
        assert_eq!((running.server.counters().stuck, running.server.open_connections()), (0, 1));
        // The client reads nothing any more.
        pass(Duration::from_secs(61)).await;
        until(|| running.server.open_connections() == 0).await;
        assert_eq!(running.server.counters().stuck, 1);
    });
}

#[test]
fn a_connection_rests_once_nothing_is_held_back() {
    run_still(async {
        let running = start(coupled()).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        let [stream] = client.ask([("/pieces/3000000", "u=5")]).await;
        client.drain().await;
        let before = running.server.counters().granted;
        settle().await;
        assert_eq!(running.server.counters().granted, before, "it is held back");
        // RST_STREAM with CANCEL.
        client.send(&frame(3, 0, stream, &8_u32.to_be_bytes())).await;
        until(|| running.server.open_requests() == 0).await;
        pass(Duration::from_millis(1)).await;
        rest().await;
    });
}

#[test]
fn coupled_mode_begins_with_the_first_request_with_priority() {
    for (priority, begins) in [("u=5", true), ("", false)] {
        run_still(async {
            let traces = Traces::new(2);
            let mut config = chunks_of(1);
            config.coupled = marcato_net::Coupling::Auto;
            config.traces = Some(traces.clone());
            let running = start(config).await;
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            client.ask([("/pieces/3000000", priority)]).await;
            client.content().await;
            assert_eq!(changes(&traces) > 0, begins, "priority {priority:?}");
            // It begins for any client once a running response has become urgent.
            client.update(1, "u=0").await;
            while changes(&traces) == 0 {
                client.content().await;
            }
        });
    }
}

/// Bytes of content that a server has granted.
fn granted(running: &Running) -> usize {
    let granted: marcato_units::Bytes = running.server.counters().granted.into_iter().sum();
    usize::try_from(granted.get()).unwrap()
}

/// Configuration whose chunks are larger than all that the kernel takes from a client which reads nothing.
fn beyond_the_kernel() -> Config {
    let mut config = strict(250);
    config.chunk.max = marcato_units::Bytes::new(256 << 10);
    config
}

/// Bytes of such a chunk that are left for the content of one response.
async fn one_chunk() -> usize {
    let running = start(beyond_the_kernel()).await;
    let mut client = Receiver::connect(running.addr, Terms::default()).await;
    settle().await;
    client.ask([("/whole/900000", "u=5")]).await;
    settle().await;
    granted(&running)
}

#[test]
fn nothing_is_granted_while_the_kernel_takes_nothing() {
    run_still(async {
        // Not one chunk more than the first.
        let chunk = one_chunk().await;
        assert!(chunk <= 256 << 10, "{chunk} bytes");
    });
}

#[test]
fn headers_of_all_frames_count_towards_a_chunk() {
    run_still(async {
        const LENGTH: usize = 3000;
        let whole = one_chunk().await;
        let (open, gate) = tokio::sync::watch::channel(false);
        let service = tower::service_fn(move |_: Request<Body>| {
            let mut gate = gate.clone();
            async move {
                let (mut sender, body) = Channel::<Bytes>::new(1);
                tokio::spawn(async move {
                    gate.wait_for(|open| *open).await.unwrap();
                    sender.send_data(vec![b'x'; LENGTH].into()).await.unwrap();
                });
                Ok::<_, Infallible>(Response::new(body.boxed()))
            }
        });
        let running = Running::start(Server::with_config(beyond_the_kernel()), service).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        client.ask([("/", "u=5"); 95]).await;
        // All heads have left when the content comes.
        client.drain().await;
        open.send(true).unwrap();
        settle().await;
        let content = granted(&running);
        let frames = content.div_ceil(LENGTH);
        assert!(
            frames > 50 && content + 9 * frames <= whole + 9,
            "{content} bytes in {frames} frames of {whole}"
        );
    });
}

#[test]
fn frames_of_the_library_count_towards_a_chunk() {
    run_still(async {
        let whole = one_chunk().await;
        let running = start(beyond_the_kernel()).await;
        let mut client = Receiver::connect(running.addr, Terms::default()).await;
        settle().await;
        // The server reads them together, and has to answer each.
        client.ask_after(&frame(PING, 0, 0, &[7; 8]).repeat(900), [("/whole/900000", "u=5")]).await;
        settle().await;
        let content = granted(&running);
        assert!(content + 900 * 17 <= whole, "{content} bytes of {whole}");
    });
}

#[test]
fn a_less_urgent_response_waits_for_all_frames_before_it() {
    run_still(async {
        let running = start(strict(60)).await;
        // The longer one has two turns or three, of which the last two follow each other.
        for length in [20_000, 40_000] {
            let mut client = Receiver::connect(running.addr, Terms::default()).await;
            let path = format!("/whole/{length}");
            let requests = [(path.as_str(), "u=3, i"), ("/whole/1000", "u=3, i"), ("/whole/9000", "u=5")];
            let [long, short, less] = client.ask(requests).await;
            client.read_until_end(less).await;
            assert_eq!(client.turns(), [long, short, long, less], "{length} bytes");
        }
    });
}
