//! A page is ordered the same by each way in which a client may signal.

use marcato_sched::exchange::{Config, Exchange, Parameters};
use marcato_sched::order::StreamId;
use marcato_units::Bytes;
use marcato_web::{
    Decision, Event, FrameReader, GuessTable, Protocol, RequestHints, ResponseHints, Signals, Source, Update,
};

/// Request of a browser, in all forms that it may take.
struct Asked {
    path: &'static str,
    /// `Sec-Fetch-Dest`.
    destination: &'static str,
    content_type: &'static str,
    /// `priority` field; empty if the browser omits it.
    priority: &'static str,
    /// Stream that it depends on in Firefox; Chromium depends on the stream before.
    group: u32,
    weight: u16,
}

const fn asked(
    path: &'static str,
    destination: &'static str,
    content_type: &'static str,
    priority: &'static str,
    (group, weight): (u32, u16),
) -> Asked {
    Asked { path, destination, content_type, priority, group, weight }
}

/// Page as Chromium asks for it.
const CHROMIUM: [Asked; 8] = [
    asked("/", "document", "text/html; charset=utf-8", "u=0, i", (0, 256)),
    asked("/b.jpg", "image", "image/jpeg", "u=2, i", (0, 183)),
    asked("/film", "video", "video/mp4", "i", (0, 147)),
    asked("/api", "empty", "application/json", "", (0, 147)),
    asked("/hero.webp", "image", "image/webp", "u=2, i", (0, 183)),
    asked("/a.js", "script", "text/javascript", "u=1", (0, 220)),
    asked("/a.css", "style", "text/css", "u=0", (0, 256)),
    asked("/f.woff2", "font", "font/woff2", "u=1", (0, 220)),
];

/// Page as Firefox asks for it, with the groups of its tree.
const FIREFOX: [Asked; 7] = [
    asked("/", "document", "text/html", "u=0, i", (13, 42)),
    asked("/b.jpg", "image", "image/jpeg", "u=5, i", (11, 12)),
    asked("/next.js", "script", "text/javascript", "u=6", (9, 22)),
    asked("/api", "empty", "application/json", "u=4", (11, 22)),
    asked("/f.woff2", "font", "font/woff2", "", (5, 22)),
    asked("/a.js", "script", "text/javascript", "u=2", (3, 22)),
    asked("/a.css", "style", "text/css", "u=2", (3, 22)),
];

/// Groups that Firefox makes: stream, stream above, weight.
const GROUPS: [(u32, u32, u16); 6] =
    [(3, 0, 201), (5, 0, 101), (7, 0, 1), (9, 7, 1), (11, 3, 1), (13, 0, 241)];

/// Stream of the first request, after Firefox's groups.
const FIRST: u32 = 15;

/// Forms of its signals that a client uses.
#[derive(Clone, Copy, Debug)]
struct Client {
    header: bool,
    weights: bool,
    /// Fetch metadata: `Sec-Fetch-Dest`.
    metadata: bool,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn priority(parent: u32, weight: u16, exclusive: bool) -> Vec<u8> {
    let parent = parent | if exclusive { 1 << 31 } else { 0 };
    [parent.to_be_bytes().as_slice(), &[u8::try_from(weight - 1).unwrap()]].concat()
}

/// Loads a page. Returns the decision for each response, in the order of the requests.
fn load(page: &[Asked], client: Client) -> Vec<Decision> {
    let mut reader = FrameReader::new(FrameReader::MAX_FRAME_SIZE);
    let mut signals = Signals::new(Protocol::Http2, 100);
    let table = GuessTable::default();
    let mut feed = |signals: &mut Signals, bytes: &[u8]| {
        reader.feed(bytes, |event: Event| signals.event(event).unwrap()).unwrap();
    };
    feed(&mut signals, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    let firefox = page[0].group != 0;
    if firefox && client.weights {
        for (group, parent, weight) in GROUPS {
            feed(&mut signals, &frame(0x2, 0, group, &priority(parent, weight, false)));
        }
    }
    let streams: Vec<u32> = (FIRST..).step_by(2).take(page.len()).collect();
    for (asked, &stream) in page.iter().zip(&streams) {
        let before = if stream == FIRST { 0 } else { stream - 2 };
        let parent = if firefox { asked.group } else { before };
        let payload =
            if client.weights { priority(parent, asked.weight, !firefox) } else { b"block".to_vec() };
        feed(&mut signals, &frame(0x1, if client.weights { 0x25 } else { 0x5 }, stream, &payload));
        let destination = client.metadata.then_some(asked.destination.as_bytes());
        let hints = RequestHints { path: asked.path, destination, ..RequestHints::default() };
        let header = Some(asked.priority.as_bytes()).filter(|value| client.header && !value.is_empty());
        signals.request(StreamId(stream.into()), header, table.request(&hints)).unwrap();
    }
    let respond = |(asked, &stream): (&Asked, &u32)| {
        let stream = StreamId(stream.into());
        let content_type = Some(asked.content_type.as_bytes());
        let hints = ResponseHints { content_type, ..ResponseHints::default() };
        let guess = table.response(signals.guess(stream), &hints);
        signals.response(stream, None, guess).unwrap()
    };
    page.iter().zip(&streams).map(respond).collect()
}

/// Returns the request that sends next, for each segment of all responses, 30 kB each.
fn order(decisions: &[Decision]) -> Vec<u64> {
    let mut exchange = Exchange::new(Config::default()).unwrap();
    for (index, decision) in decisions.iter().enumerate() {
        let stream = StreamId(index as u64);
        let mut response = exchange.open(stream, decision.parameters).unwrap();
        response.supply(Bytes::kb(30)).unwrap();
        response.finish();
    }
    std::iter::from_fn(|| exchange.grant(Bytes::new(1400))).map(|grant| grant.stream.0).collect()
}

fn client(header: bool, weights: bool, metadata: bool) -> Client {
    Client { header, weights, metadata }
}

fn parameters(decisions: &[Decision]) -> Vec<Parameters> {
    decisions.iter().map(|decision| decision.parameters).collect()
}

#[test]
fn a_page_of_chromium_has_one_order_whatever_it_signals() {
    let both = load(&CHROMIUM, client(true, true, true));
    let order_of_both = order(&both);
    assert_eq!(order_of_both.len(), CHROMIUM.len() * 22);
    // The document and the stylesheet go before all, and the video and the request of a script last.
    assert!(order_of_both[..22 * 2].iter().all(|stream| [0, 6].contains(stream)));
    assert!(order_of_both[22 * 6..].iter().all(|stream| [2, 3].contains(stream)));
    for metadata in [true, false] {
        for (header, weights) in [(true, false), (false, true), (false, false), (true, true)] {
            let client = client(header, weights, metadata);
            let decisions = load(&CHROMIUM, client);
            assert_eq!(parameters(&decisions), parameters(&both), "{client:?}");
            assert_eq!(order(&decisions), order_of_both, "{client:?}");
        }
    }
}

#[test]
fn a_page_of_firefox_has_one_order_by_header_or_weights() {
    let both = load(&FIREFOX, client(true, true, true));
    for (header, weights) in [(true, false), (false, true)] {
        for metadata in [true, false] {
            let client = client(header, weights, metadata);
            let decisions = load(&FIREFOX, client);
            assert_eq!(parameters(&decisions), parameters(&both), "{client:?}");
            assert_eq!(order(&decisions), order(&both), "{client:?}");
        }
    }
}

#[test]
fn each_decision_names_its_source() {
    let sources =
        |client| -> Vec<Source> { load(&CHROMIUM, client).iter().map(|decision| decision.source).collect() };
    let by_header = sources(client(true, true, true));
    assert!(by_header.iter().enumerate().all(|(index, source)| {
        *source == if CHROMIUM[index].priority.is_empty() { Source::Default } else { Source::Header }
    }));
    assert!(sources(client(false, true, true)).iter().all(|source| *source == Source::Weights));
    let guessed = sources(client(false, false, true));
    assert!(guessed.iter().enumerate().all(|(index, source)| {
        *source == if index == 3 { Source::Default } else { Source::Destination }
    }));
    let by_type = sources(client(false, false, false));
    assert!(by_type.iter().enumerate().all(|(index, source)| {
        *source == if index == 3 { Source::Default } else { Source::ContentType }
    }));
}

#[test]
fn both_versions_read_the_same_update() {
    let http2 = Update::from_http2(0, b"\0\0\0\x05u=1, i").unwrap();
    let http3 = Update::from_http3(Update::HTTP3_REQUEST_TYPE, b"\x08u=1, i").unwrap();
    assert_eq!(http2.field, http3.field);
}
