//! Tests of the functions as a program calls them, rightly and wrongly.
#![expect(unsafe_code, reason = "functions of C are unsafe to call")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::undocumented_unsafe_blocks, reason = "each call gives what the header asks, or null")]

use std::ffi::{CStr, CString, c_void};
use std::ptr::{null, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

use marcato::abi::*;

/// Server and client of one context.
struct Pair {
    context: *mut Context,
    client: u64,
    server: u64,
}

/// Text of this thread's last failure.
fn error() -> String {
    unsafe { CStr::from_ptr(marcato_error()) }.to_str().unwrap().to_owned()
}

/// Repeats a call until its answer is another than `MARCATO_AGAIN`.
fn until_done(context: *mut Context, mut call: impl FnMut() -> i32) -> i32 {
    loop {
        let status = call();
        if status != MARCATO_AGAIN {
            return status;
        }
        assert_eq!(unsafe { marcato_wait(context, 60_000) }, MARCATO_OK, "nothing happens");
        while next(context).is_some() {}
    }
}

/// Takes an entry of the ready list.
fn next(context: *mut Context) -> Option<(u64, u32)> {
    let mut ready = Ready { object: 0, event: 0 };
    (unsafe { marcato_next(context, &raw mut ready) } == MARCATO_OK).then_some((ready.object, ready.event))
}

/// Waits for an entry, and passes over others.
fn wait_for(context: *mut Context, wanted: (u64, u32)) {
    loop {
        assert_eq!(unsafe { marcato_wait(context, 60_000) }, MARCATO_OK, "{wanted:?} does not come");
        while let Some(ready) = next(context) {
            if ready == wanted {
                return;
            }
        }
    }
}

fn options(engine: u32) -> Options {
    Options {
        size: size_of::<Options>(),
        engine,
        flags: 0,
        server_name: null(),
        authorities_pem: null(),
        fingerprint: null(),
        certificate_pem: null(),
        key_pem: null(),
        protocol: null(),
        idle_timeout_ms: 0,
    }
}

fn outbound(data: &[u8], priority: u32) -> Outbound {
    Outbound { data: data.as_ptr(), len: data.len(), priority, unreliable: 0, lifetime_ms: 0 }
}

impl Pair {
    fn new(engine: u32) -> Self {
        let context = marcato_context_new(MARCATO_ABI);
        assert!(!context.is_null(), "{}", error());
        let (mut certificate, mut key, mut fingerprint) = (null_mut(), null_mut(), null_mut());
        let made = unsafe {
            marcato_self_signed(
                c"a.example".as_ptr(),
                &raw mut certificate,
                &raw mut key,
                &raw mut fingerprint,
            )
        };
        assert_eq!(made, MARCATO_OK);
        let serving = Options { certificate_pem: certificate, key_pem: key, ..options(engine) };
        let asking = Options { server_name: c"a.example".as_ptr(), fingerprint, ..options(engine) };
        let (mut endpoint, mut client, mut server) = (0, 0, 0);
        let mut address = [0; 64];
        unsafe {
            let at = c"127.0.0.1:0".as_ptr();
            assert_eq!(
                marcato_listen(context, &raw const serving, at, &raw mut endpoint),
                MARCATO_OK,
                "{}",
                error()
            );
            assert_eq!(marcato_local_address(context, endpoint, 0, address.as_mut_ptr(), 64), MARCATO_OK);
            let connected = marcato_connect(context, &raw const asking, address.as_ptr(), &raw mut client);
            assert_eq!(connected, MARCATO_OK, "{}", error());
        }
        assert_eq!(
            until_done(context, || unsafe { marcato_accept(context, endpoint, &raw mut server) }),
            MARCATO_OK
        );
        assert_eq!(
            until_done(context, || unsafe { marcato_established(context, client) }),
            MARCATO_OK,
            "{}",
            error()
        );
        for text in [certificate, key, fingerprint] {
            unsafe { marcato_text_free(text) };
        }
        Self { context, client, server }
    }

    fn send(&self, data: &[u8], priority: u32) -> i32 {
        unsafe { marcato_send(self.context, self.client, &outbound(data, priority), null_mut()) }
    }

    /// Takes a message at the server, if one has come: its length and priority.
    fn try_receive(&self) -> Option<(usize, u32)> {
        let mut message = null_mut();
        let status = unsafe { marcato_recv(self.context, self.server, &raw mut message) };
        assert!(status == MARCATO_OK || status == MARCATO_AGAIN, "{}", error());
        (status == MARCATO_OK).then(|| unsafe {
            let got = ((*message).len, (*message).priority);
            marcato_message_free(message);
            got
        })
    }

    /// Waits for a message at the server.
    fn receive(&self) -> (usize, u32) {
        let mut got = None;
        until_done(self.context, || {
            got = self.try_receive();
            if got.is_some() { MARCATO_OK } else { MARCATO_AGAIN }
        });
        got.unwrap()
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        unsafe { marcato_context_free(self.context) };
    }
}

#[test]
fn wrong_arguments_are_told_by_name() {
    assert!(marcato_context_new(MARCATO_ABI + 1).is_null());
    assert!(error().contains("compile it with this library's header"), "{}", error());

    let context = marcato_context_new(MARCATO_ABI);
    let mut number = 0;
    unsafe {
        assert_eq!(marcato_wait(null(), 0), MARCATO_INVALID);
        assert_eq!(error(), "the context is null");
        let at = c"127.0.0.1:0".as_ptr();
        assert_eq!(marcato_listen(context, null(), at, &raw mut number), MARCATO_INVALID);
        assert!(error().contains("a server needs `certificate_pem`"), "{}", error());
        assert_eq!(marcato_listen(context, null(), null(), &raw mut number), MARCATO_INVALID);
        assert_eq!(error(), "the address is null");
        let short = Options { size: 8, ..options(MARCATO_QUIC) };
        assert_eq!(marcato_listen(context, &raw const short, at, &raw mut number), MARCATO_INVALID);
        assert!(error().contains("sizeof(marcato_options)"), "{}", error());
        let third = options(2);
        assert_eq!(marcato_connect(context, &raw const third, at, &raw mut number), MARCATO_INVALID);
        assert_eq!(error(), "engine 2: choose MARCATO_QUIC or MARCATO_TCP");
        let flags = Options { flags: 1 << 30, ..options(MARCATO_QUIC) };
        assert_eq!(marcato_connect(context, &raw const flags, at, &raw mut number), MARCATO_INVALID);
        let latin = CString::new([0xe4]).unwrap();
        assert_eq!(marcato_connect(context, null(), latin.as_ptr(), &raw mut number), MARCATO_INVALID);
        assert_eq!(error(), "the address is not UTF-8");
        assert_eq!(marcato_dispatch(context, None, null_mut()), MARCATO_INVALID);
        marcato_context_free(context);
        // Nothing happens.
        marcato_context_free(null_mut());
        marcato_message_free(null_mut());
        marcato_text_free(null_mut());
    }
}

#[test]
fn a_number_after_its_end_names_nothing() {
    let pair = Pair::new(MARCATO_QUIC);
    assert_eq!(unsafe { marcato_release(pair.context, pair.client) }, MARCATO_OK);
    assert_eq!(pair.send(b"late", 0), MARCATO_UNKNOWN);
    assert!(error().contains("is no connection of this context, or has been released"), "{}", error());
    assert_eq!(unsafe { marcato_release(pair.context, pair.client) }, MARCATO_UNKNOWN);
    // That of another kind likewise.
    let mut written = 0;
    let status =
        unsafe { marcato_stream_write(pair.context, pair.server, b"x".as_ptr(), 1, &raw mut written) };
    assert_eq!(status, MARCATO_UNKNOWN);
    // The peer learns that its connection was cut off.
    let context = pair.context;
    let ended = until_done(context, || unsafe { marcato_closed(context, pair.server, null_mut()) });
    assert!(ended == MARCATO_OK || ended == MARCATO_LOST, "{ended}");
}

#[test]
fn priorities_beyond_the_levels_and_null_data_are_refused() {
    let pair = Pair::new(MARCATO_TCP);
    assert_eq!(pair.send(b"x", 5), MARCATO_INVALID);
    assert_eq!(error(), "priority 5: it is 0 (most urgent) to 4");
    let nothing = Outbound { data: null(), len: 3, priority: 0, unreliable: 0, lifetime_ms: 0 };
    unsafe {
        assert_eq!(marcato_send(pair.context, pair.client, &raw const nothing, null_mut()), MARCATO_INVALID);
        assert_eq!(marcato_send(pair.context, pair.client, null(), null_mut()), MARCATO_INVALID);
        assert_eq!(marcato_recv(pair.context, pair.server, null_mut()), MARCATO_INVALID);
    }
    // Nothing was lost by that, and a message may be empty.
    assert_eq!(pair.send(b"", 0), MARCATO_OK);
    assert_eq!(pair.receive(), (0, 0));
}

#[test]
fn a_message_that_comes_after_again_is_listed() {
    for engine in [MARCATO_QUIC, MARCATO_TCP] {
        let pair = Pair::new(engine);
        for _ in 0..3 {
            assert_eq!(pair.try_receive(), None);
            assert_eq!(pair.send(b"one", 2), MARCATO_OK);
            // An entry may come early, for another reason: it is asked again.
            let mut got = None;
            while got.is_none() {
                wait_for(pair.context, (pair.server, MARCATO_ON_MESSAGE));
                got = pair.try_receive();
            }
            assert_eq!(got, Some((3, 2)));
        }
    }
}

#[test]
fn a_full_level_stops_itself_alone_and_tells_of_room() {
    let pair = Pair::new(MARCATO_QUIC);
    let piece = vec![7; 4 << 20];
    let mut sent = 0;
    // 64 MiB of a level wait at most, and what the server has taken from the network.
    while pair.send(&piece, 4) == MARCATO_OK {
        sent += 1;
        assert!(sent < 1000, "the level is never full");
    }
    assert!(sent >= 16, "{sent} pieces");
    assert_eq!(pair.send(b"urgent", 0), MARCATO_OK);
    let mut taken = Vec::new();
    'room: loop {
        while let Some(ready) = next(pair.context) {
            if ready == (pair.client, MARCATO_ON_ROOM) {
                break 'room;
            }
        }
        match pair.try_receive() {
            Some(message) => taken.push(message),
            None => assert_eq!(
                unsafe { marcato_wait(pair.context, 60_000) },
                MARCATO_OK,
                "no room after {taken:?}"
            ),
        }
    }
    // The urgent message passed what waited, and the level that was full takes another.
    assert!(taken.contains(&(6, 0)), "{taken:?}");
    assert_eq!(pair.send(&piece, 4), MARCATO_OK);
}

#[test]
fn a_message_is_taken_back_before_it_leaves() {
    let pair = Pair::new(MARCATO_QUIC);
    let (file, mut receipts) = (vec![0; 8 << 20], [0; 2]);
    for receipt in &mut receipts {
        let sent = unsafe {
            marcato_send(pair.context, pair.client, &outbound(&file, 4), std::ptr::from_mut(receipt))
        };
        assert_eq!(sent, MARCATO_OK);
    }
    let [first, second] = receipts;
    assert_eq!(unsafe { marcato_cancel(pair.context, second) }, MARCATO_OK);
    let fate = |receipt| until_done(pair.context, || unsafe { marcato_delivery(pair.context, receipt) });
    assert_eq!(fate(second), MARCATO_UNDELIVERED);
    assert_eq!(error(), "the message was cancelled");
    assert_eq!(pair.receive(), (8 << 20, 4));
    assert_eq!(fate(first), MARCATO_OK);
    // A fate is told once.
    assert_eq!(fate(first), MARCATO_UNDELIVERED);
}

#[test]
fn a_request_that_is_released_is_withdrawn() {
    let pair = Pair::new(MARCATO_QUIC);
    let (mut request, mut call, mut message) = (0, 0, null_mut());
    let asked = unsafe { marcato_request(pair.context, pair.client, &outbound(b"?", 0), &raw mut request) };
    assert_eq!(asked, MARCATO_OK);
    let accepted = until_done(pair.context, || unsafe {
        marcato_request_accept(pair.context, pair.server, &raw mut call, &raw mut message)
    });
    assert_eq!(accepted, MARCATO_OK);
    unsafe { marcato_message_free(message) };
    // Refused by its receiver: the one who asked learns it.
    assert_eq!(unsafe { marcato_release(pair.context, call) }, MARCATO_OK);
    let answer =
        until_done(pair.context, || unsafe { marcato_response(pair.context, request, &raw mut message) });
    assert_eq!(answer, MARCATO_UNDELIVERED, "{}", error());
}

#[test]
fn an_unknown_server_is_a_failure_of_trust() {
    let context = marcato_context_new(MARCATO_ABI);
    let (mut certificate, mut key, mut fingerprint) = (null_mut(), null_mut(), null_mut());
    let (mut endpoint, mut client, mut address) = (0, 0, [0; 64]);
    unsafe {
        marcato_self_signed(c"a.example".as_ptr(), &raw mut certificate, &raw mut key, &raw mut fingerprint);
        for engine in [MARCATO_QUIC, MARCATO_TCP] {
            let serving = Options { certificate_pem: certificate, key_pem: key, ..options(engine) };
            let asking = Options { server_name: c"a.example".as_ptr(), ..options(engine) };
            let at = c"127.0.0.1:0".as_ptr();
            assert_eq!(marcato_listen(context, &raw const serving, at, &raw mut endpoint), MARCATO_OK);
            assert_eq!(marcato_local_address(context, endpoint, 0, address.as_mut_ptr(), 64), MARCATO_OK);
            assert_eq!(marcato_local_address(context, endpoint, 1, address.as_mut_ptr(), 64), MARCATO_END);
            assert_eq!(marcato_local_address(context, endpoint, 0, address.as_mut_ptr(), 4), MARCATO_INVALID);
            // Trust in the system's authorities, which know nothing of this certificate.
            assert_eq!(
                marcato_connect(context, &raw const asking, address.as_ptr(), &raw mut client),
                MARCATO_OK
            );
            let made = until_done(context, || marcato_established(context, client));
            // A machine without any authorities refuses the configuration.
            assert!(made == MARCATO_UNTRUSTED || error().contains("authorit"), "{made}: {}", error());
            // The failure stays.
            assert_eq!(marcato_established(context, client), made);
        }
        for text in [certificate, key, fingerprint] {
            marcato_text_free(text);
        }
        marcato_context_free(context);
    }
}

#[test]
fn an_event_loop_is_told_by_descriptor_and_by_function() {
    unsafe extern "C" fn count(user: *mut c_void) {
        unsafe { &*user.cast::<AtomicUsize>() }.fetch_add(1, Ordering::SeqCst);
    }
    unsafe extern "C" fn collect(user: *mut c_void, ready: *const Ready) {
        unsafe { (*user.cast::<Vec<u64>>()).push((*ready).object) };
    }

    let notified = AtomicUsize::new(0);
    let pair = Pair::new(MARCATO_QUIC);
    while next(pair.context).is_some() {}
    let user = (&raw const notified).cast_mut().cast();
    assert_eq!(unsafe { marcato_set_notify(pair.context, Some(count), user) }, MARCATO_OK);
    assert!(unsafe { marcato_fd(pair.context) } >= 0);
    let mut message = null_mut();
    assert_eq!(unsafe { marcato_recv(pair.context, pair.server, &raw mut message) }, MARCATO_AGAIN);
    assert_eq!(pair.send(b"ring", 0), MARCATO_OK);
    assert_eq!(unsafe { marcato_wait(pair.context, 60_000) }, MARCATO_OK);
    // Another thread calls it, once the list has its entry.
    while notified.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let mut objects: Vec<u64> = Vec::new();
    let called = unsafe { marcato_dispatch(pair.context, Some(collect), (&raw mut objects).cast()) };
    assert_eq!((called, objects), (1, vec![pair.server]));
    assert_eq!(unsafe { marcato_set_notify(pair.context, None, null_mut()) }, MARCATO_OK);
}

#[test]
fn threads_may_call_at_the_same_time() {
    let pair = Pair::new(MARCATO_QUIC);
    let (context, client) = (pair.context as usize, pair.client);
    let threads: Vec<_> = (0..4)
        .map(|priority| {
            std::thread::spawn(move || {
                for _ in 0..100 {
                    let message = outbound(b"together", priority);
                    let sent = unsafe {
                        marcato_send(context as *mut Context, client, &raw const message, null_mut())
                    };
                    assert_eq!(sent, MARCATO_OK);
                }
            })
        })
        .collect();
    let mut taken = [0; 4];
    for _ in 0..400 {
        taken[pair.receive().1 as usize] += 1;
    }
    assert_eq!(taken, [100; 4]);
    for thread in threads {
        thread.join().unwrap();
    }
    let mut numbers = Stats::default();
    assert_eq!(
        unsafe { marcato_stats(pair.context, pair.server, &raw mut numbers, size_of::<Stats>()) },
        MARCATO_OK
    );
    assert_eq!(numbers.received, [100, 100, 100, 100, 0]);
}
