//! Functions and types that C sees.
//!
//! Each function turns pointers into references and back, and nothing else: what it does is in
//! [`Context`](crate::context::Context). A null pointer where one is needed is an error, and a panic
//! ends in `MARCATO_BUG`: it never unwinds into C.
#![expect(unsafe_code, reason = "pointers of C become references here, and nowhere else")]
#![expect(
    clippy::missing_safety_doc,
    reason = "the rules are the same for all, and at the top of the header"
)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::time::Duration;

use bytes::Bytes;
use marcato_net::{CloseReason, Closed, Identity, Message, Priority, Received};

pub use crate::context::Context;
use crate::failure::{self, Failure};
use crate::objects::message;
use crate::options::{Settings, addresses};

/// Version of this interface. A program and a library of different versions do not work together.
pub const MARCATO_ABI: u32 = 1;

/// Done.
pub const MARCATO_OK: i32 = 0;
/// Not now: marcato_next tells when it is worth another call. Nothing was taken or changed.
pub const MARCATO_AGAIN: i32 = 1;
/// Nothing more will come: the peer has finished.
pub const MARCATO_END: i32 = 2;
/// An argument is wrong.
pub const MARCATO_INVALID: i32 = -1;
/// A number names no object, or one of another kind.
pub const MARCATO_UNKNOWN: i32 = -2;
/// The system refused a socket, an address or a thread.
pub const MARCATO_IO: i32 = -3;
/// The server cannot be reached, or did not answer.
pub const MARCATO_UNREACHABLE: i32 = -4;
/// TLS failed: the peer did not prove who it is, or refused this end.
pub const MARCATO_UNTRUSTED: i32 = -5;
/// One end's application has closed the connection.
pub const MARCATO_CLOSED: i32 = -6;
/// The connection was lost.
pub const MARCATO_LOST: i32 = -7;
/// A message or stream was not delivered: cancelled, expired, declined, or cut off.
pub const MARCATO_UNDELIVERED: i32 = -8;
/// The context has as many objects as it may.
pub const MARCATO_FULL: i32 = -9;
/// Error in the library itself. Please report it.
pub const MARCATO_BUG: i32 = -99;

/// Engine: multipath QUIC, over UDP.
pub const MARCATO_QUIC: u32 = 0;
/// Engine: the kernel's TCP.
pub const MARCATO_TCP: u32 = 1;

/// Flag: two layers on each lane, as the peer has to have them. Only QUIC.
pub const MARCATO_LAYERED: u32 = 1;
/// Flag: no encryption. Only TCP, and only on links that are protected otherwise.
pub const MARCATO_PLAINTEXT: u32 = 2;
/// Flag: no coupled mode, which otherwise bounds background data while there is urgent data.
pub const MARCATO_UNCOUPLED: u32 = 4;
/// Flag: messages above 16 MiB are accepted, as streams.
pub const MARCATO_LONG: u32 = 8;

/// Event of an endpoint: a client has connected; marcato_accept takes it.
pub const MARCATO_ON_ACCEPT: u32 = 1;
/// Event of a connection: its handshake is complete, or has failed; marcato_established tells.
pub const MARCATO_ON_CONNECTED: u32 = 2;
/// Event of a connection: a message has come; marcato_recv takes it.
pub const MARCATO_ON_MESSAGE: u32 = 3;
/// Event of a connection: a level that was full has room; marcato_send succeeds again.
pub const MARCATO_ON_ROOM: u32 = 4;
/// Event of a connection: a stream of the peer has begun; marcato_stream_accept takes it.
pub const MARCATO_ON_STREAM: u32 = 5;
/// Event of a connection: a request has come; marcato_request_accept takes it.
pub const MARCATO_ON_REQUEST: u32 = 6;
/// Event of a connection: all that was sent has been delivered, after marcato_finish.
pub const MARCATO_ON_FINISHED: u32 = 7;
/// Event of a connection: it has ended; marcato_closed tells how.
pub const MARCATO_ON_CLOSED: u32 = 8;
/// Event of a receipt or a stream: its fate is certain; marcato_delivery tells.
pub const MARCATO_ON_DELIVERY: u32 = 9;
/// Event of a stream of this end: it takes bytes again.
pub const MARCATO_ON_WRITE: u32 = 10;
/// Event of a stream of the peer: it has bytes, or has ended.
pub const MARCATO_ON_READ: u32 = 11;
/// Event of a request of this end: marcato_response takes the reply.
pub const MARCATO_ON_REPLY: u32 = 12;

/// Levels of priority: 0 is what the user waits for, 4 is background.
pub const MARCATO_LEVELS: usize = 5;

/// Options of a connection. Set all to zero (`= {0}`), then `size` to sizeof(marcato_options), then
/// what differs. Null texts are not given.
#[repr(C)]
pub struct Options {
    /// sizeof(marcato_options): tells which fields the program knows.
    pub size: usize,
    /// MARCATO_QUIC or MARCATO_TCP.
    pub engine: u32,
    /// MARCATO_LAYERED, MARCATO_PLAINTEXT, MARCATO_UNCOUPLED and MARCATO_LONG, added up.
    pub flags: u32,
    /// Client, with a numeric address: the name in the server's certificate.
    pub server_name: *const c_char,
    /// Client: authorities that vouch for the server, as PEM. Null: those of the system.
    pub authorities_pem: *const c_char,
    /// Client: SHA-256 of the one certificate that the server may have, as marcato_self_signed gives it.
    pub fingerprint: *const c_char,
    /// Server, and a client that the server asks: certificate and its chain, as PEM.
    pub certificate_pem: *const c_char,
    /// Key of the certificate, as PEM.
    pub key_pem: *const c_char,
    /// Name of the application's protocol (ALPN). Null: `marcato/2`.
    pub protocol: *const c_char,
    /// Milliseconds of silence after which a connection is lost. Zero: 30 000.
    pub idle_timeout_ms: u32,
}

/// Entry of the ready list.
#[repr(C)]
pub struct Ready {
    /// Object that is worth another call.
    pub object: u64,
    /// Why: a MARCATO_ON_….
    pub event: u32,
}

/// Message to be sent. Set all to zero, then what differs.
#[repr(C)]
pub struct Outbound {
    /// Its bytes, which are copied.
    pub data: *const u8,
    /// Number of its bytes.
    pub len: usize,
    /// Level: 0 to 4.
    pub priority: u32,
    /// Set if it is not sent again when lost. It has no receipt, and fits one packet over QUIC.
    pub unreliable: u32,
    /// Milliseconds after which it is useless, and not sent any more. Zero: never.
    pub lifetime_ms: u32,
}

/// Message that was received. marcato_message_free ends it.
#[repr(C)]
pub struct Inbound {
    /// Its bytes.
    pub data: *const u8,
    /// Number of its bytes.
    pub len: usize,
    /// Level that its sender gave: 0 to 4.
    pub priority: u32,
}

/// Inbound message with what keeps its bytes.
#[repr(C)]
struct Kept {
    /// First, so that a pointer to it is one to the whole.
    inbound: Inbound,
    _bytes: Bytes,
}

/// Numbers of a connection.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct Stats {
    /// Smoothed round-trip time of its first lane, in microseconds.
    pub srtt_us: u64,
    /// Congestion windows of all lanes, in bytes.
    pub cwnd: u64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// Packets sent.
    pub packets_sent: u64,
    /// Packets lost; over TCP, retransmitted.
    pub packets_lost: u64,
    /// Lanes in use.
    pub lanes: u64,
    /// Messages handed to the network, by level.
    pub sent: [u64; MARCATO_LEVELS],
    /// Messages received, by level.
    pub received: [u64; MARCATO_LEVELS],
    /// Messages that have not been delivered, by level.
    pub unfinished: [u64; MARCATO_LEVELS],
}

/// Function that is called for an entry of the ready list.
pub type OnReady = Option<unsafe extern "C" fn(user: *mut c_void, ready: *const Ready)>;

/// Function that is called when the ready list is no longer empty.
pub type OnNotify = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// Status or failure of a call, as one number; keeps the text of a failure.
fn status(call: impl FnOnce() -> Result<i32, Failure>) -> i32 {
    // After a panic, locks are taken as they are, and each change under one is whole.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(status)) => status,
        Ok(Err(failure)) => {
            failure::keep(&failure.text);
            failure.status
        }
        Err(_) => {
            failure::keep("this is an error in Marcato: please report it with the text on standard error");
            MARCATO_BUG
        }
    }
}

/// Status of what is done, or has to wait.
const fn done_or_again(is_done: bool) -> i32 {
    if is_done { MARCATO_OK } else { MARCATO_AGAIN }
}

/// Returns the context, unless it is null.
unsafe fn of<'a>(context: *const Context) -> Result<&'a Context, Failure> {
    // SAFETY: by the header, it is null or from marcato_context_new and not freed.
    unsafe { context.as_ref() }.ok_or_else(|| Failure::invalid("the context is null"))
}

/// Returns a text; `None` for a null pointer.
unsafe fn text<'a>(text: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: by the header, texts end with a zero, and stay as they are during the call.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Failure::invalid(format!("{name} is not UTF-8")))
}

unsafe fn needed_text<'a>(given: *const c_char, name: &str) -> Result<&'a str, Failure> {
    // SAFETY: as for `text`.
    unsafe { text(given, name) }?.ok_or_else(|| Failure::invalid(format!("{name} is null")))
}

/// Returns bytes; none of them may be at a null pointer.
unsafe fn bytes<'a>(data: *const u8, len: usize) -> Result<&'a [u8], Failure> {
    match len {
        0 => Ok(&[]),
        _ if data.is_null() => Err(Failure::invalid("the data is null, but has a length")),
        _ if isize::try_from(len).is_err() => {
            Err(Failure::invalid("the length is above half of the address space"))
        }
        // SAFETY: by the header, `data` has `len` bytes that stay as they are during the call.
        _ => Ok(unsafe { std::slice::from_raw_parts(data, len) }),
    }
}

/// Stores a result, unless its place is null.
unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid("the place for the result is null"));
    }
    // SAFETY: by the header, a place that is not null is aligned, and can be written.
    unsafe { place.write(value) };
    Ok(())
}

/// Takes a result if there is one, and stores it. Its place is looked at first, so that nothing is taken in vain.
unsafe fn give<T>(place: *mut T, take: impl FnOnce() -> Result<Option<T>, Failure>) -> Result<i32, Failure> {
    if place.is_null() {
        return Err(Failure::invalid("the place for the result is null"));
    }
    let Some(value) = take()? else { return Ok(MARCATO_AGAIN) };
    // SAFETY: by the header, a place that is not null is aligned, and can be written.
    unsafe { place.write(value) };
    Ok(MARCATO_OK)
}

fn level(priority: u32) -> Result<Priority, Failure> {
    usize::try_from(priority)
        .ok()
        .and_then(Priority::from_index)
        .ok_or_else(|| Failure::invalid(format!("priority {priority}: it is 0 (most urgent) to 4")))
}

/// Returns the number of a level, as C has it.
fn number(level: Priority) -> u32 {
    u32::try_from(level.index()).unwrap_or(u32::MAX)
}

unsafe fn outbound(given: *const Outbound) -> Result<Message, Failure> {
    // SAFETY: by the header, it is null or a message that stays as it is during the call.
    let given = unsafe { given.as_ref() }.ok_or_else(|| Failure::invalid("the message is null"))?;
    // SAFETY: its bytes likewise.
    let mut outbound = message(unsafe { bytes(given.data, given.len) }?, level(given.priority)?);
    if given.unreliable != 0 {
        outbound = outbound.unreliable();
    }
    if given.lifetime_ms != 0 {
        outbound = outbound.with_lifetime(Duration::from_millis(given.lifetime_ms.into()));
    }
    Ok(outbound)
}

/// Makes a received message one of C's.
fn inbound(received: Received) -> *mut Inbound {
    let bytes = received.bytes;
    let priority = number(received.priority);
    let inbound = Inbound { data: bytes.as_ptr(), len: bytes.len(), priority };
    Box::into_raw(Box::new(Kept { inbound, _bytes: bytes })).cast()
}

unsafe fn settings<'a>(options: *const Options) -> Result<Settings<'a>, Failure> {
    // SAFETY: by the header, it is null or an `Options` that stays as it is during the call.
    let Some(options) = (unsafe { options.as_ref() }) else { return Ok(Settings::default()) };
    if options.size != size_of::<Options>() {
        return Err(Failure::invalid(format!(
            "`size` of the options is {}: set it to sizeof(marcato_options), which is {} here",
            options.size,
            size_of::<Options>()
        )));
    }
    // SAFETY: its texts are null or end with a zero.
    unsafe {
        Ok(Settings {
            engine: options.engine,
            flags: options.flags,
            server_name: text(options.server_name, "server_name")?,
            authorities_pem: text(options.authorities_pem, "authorities_pem")?,
            fingerprint: text(options.fingerprint, "fingerprint")?,
            certificate_pem: text(options.certificate_pem, "certificate_pem")?,
            key_pem: text(options.key_pem, "key_pem")?,
            protocol: text(options.protocol, "protocol")?,
            idle_timeout: Duration::from_millis(options.idle_timeout_ms.into()),
        })
    }
}

/// Version of the library, as text.
#[unsafe(no_mangle)]
pub extern "C" fn marcato_version() -> *const c_char {
    const VERSION: &CStr =
        match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
            Ok(version) => version,
            Err(_) => c"",
        };
    VERSION.as_ptr()
}

/// Reason of this thread's last failure, as text: never null, and valid until its next failure.
#[unsafe(no_mangle)]
pub extern "C" fn marcato_error() -> *const c_char {
    failure::last(CStr::as_ptr)
}

/// Creates a context, with a thread that moves the data. Give it MARCATO_ABI. Null after a failure.
#[unsafe(no_mangle)]
pub extern "C" fn marcato_context_new(abi: u32) -> *mut Context {
    let mut created = ptr::null_mut();
    status(|| {
        if abi != MARCATO_ABI {
            let text = format!("the program was compiled for interface {abi}, the library has {MARCATO_ABI}");
            return Err(Failure::invalid(format!("{text}: compile it with this library's header")));
        }
        let context = Context::new().map_err(|error| Failure::new(MARCATO_IO, error))?;
        created = Box::into_raw(Box::new(context));
        Ok(MARCATO_OK)
    });
    created
}

/// Ends a context and its connections; null does nothing. Messages that were received stay valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_context_free(context: *mut Context) {
    if !context.is_null() {
        status(|| {
            // SAFETY: by the header, it is from marcato_context_new, not freed, and no other call uses it.
            drop(unsafe { Box::from_raw(context) });
            Ok(MARCATO_OK)
        });
    }
}

/// File descriptor that is readable while the ready list has entries. For poll and epoll; do not read it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_fd(context: *const Context) -> c_int {
    // SAFETY: as the header says.
    status(|| Ok(unsafe { of(context) }?.ready.fd()))
}

/// Waits until the ready list has entries: at most so many milliseconds, or without end if negative.
/// MARCATO_AGAIN if the time has passed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_wait(context: *const Context, timeout_ms: c_int) -> i32 {
    status(|| {
        let within = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        // SAFETY: as the header says.
        Ok(done_or_again(unsafe { of(context) }?.ready.wait(within)))
    })
}

/// Takes the next entry of the ready list. Then call what its event names until it returns MARCATO_AGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_next(context: *const Context, ready: *mut Ready) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let take = || Ok(context.next().map(|(object, event)| Ready { object, event }));
        // SAFETY: as the header says.
        unsafe { give(ready, take) }
    })
}

/// Calls a function for each entry of the ready list, in this thread. Returns how many, or a failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_dispatch(context: *const Context, call: OnReady, user: *mut c_void) -> i32 {
    status(|| {
        let call = call.ok_or_else(|| Failure::invalid("the function is null"))?;
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let mut called = 0;
        // Entries that the function causes wait for the next call.
        for _ in 0..context.ready.len() {
            let Some((object, event)) = context.next() else { break };
            // SAFETY: the program gave the function and its argument for this.
            unsafe { call(user, &Ready { object, event }) };
            called += 1;
        }
        Ok(called)
    })
}

/// Sets a function that is called, in another thread, when the ready list is no longer empty. It may wake an
/// event loop, and may call nothing of this library. Null ends it; it may be running once more meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_set_notify(
    context: *const Context,
    call: OnNotify,
    user: *mut c_void,
) -> i32 {
    /// Argument of the function, which the program lets other threads use.
    struct User(*mut c_void);
    // SAFETY: by the header, the function may be called in any thread with this argument.
    unsafe impl Send for User {}
    // SAFETY: likewise.
    unsafe impl Sync for User {}
    impl User {
        const fn get(&self) -> *mut c_void {
            self.0
        }
    }

    status(|| {
        let user = User(user);
        let notify = call.map(|call| -> crate::ready::Notify {
            // SAFETY: the program gave the function and its argument for this.
            Box::new(move || unsafe { call(user.get()) })
        });
        // SAFETY: as the header says.
        unsafe { of(context) }?.ready.set_notify(notify);
        Ok(MARCATO_OK)
    })
}

/// Forgets an object. A connection that is not closed is cut off, a stream that has not ended is
/// abandoned, a request is withdrawn; a message whose receipt is forgotten is delivered all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_release(context: *const Context, object: u64) -> i32 {
    // SAFETY: as the header says.
    status(|| unsafe { of(context) }?.release(object).map(|()| MARCATO_OK))
}

/// Makes a certificate for a name, that no authority has signed: for tests, and for clients that know its
/// fingerprint. Each text is freed by marcato_text_free.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_self_signed(
    name: *const c_char,
    certificate_pem: *mut *mut c_char,
    key_pem: *mut *mut c_char,
    fingerprint: *mut *mut c_char,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let identity = Identity::self_signed(unsafe { needed_text(name, "the name") }?)?;
        let print = identity.fingerprint().map(|print| print.to_string()).unwrap_or_default();
        for (place, text) in
            [(certificate_pem, identity.chain_pem()), (key_pem, identity.key_pem()), (fingerprint, print)]
        {
            let text = CString::new(text).map_err(Failure::invalid)?;
            // SAFETY: as the header says.
            unsafe { store(place, text.into_raw()) }?;
        }
        Ok(MARCATO_OK)
    })
}

/// Frees a text of marcato_self_signed; null does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_text_free(text: *mut c_char) {
    if !text.is_null() {
        // SAFETY: by the header, it is from this library, and not freed.
        drop(unsafe { CString::from_raw(text) });
    }
}

/// Listens at an address (`127.0.0.1:4433`, `[::1]:0`, or `:4433` for all), with the options of a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_listen(
    context: *const Context,
    options: *const Options,
    address: *const c_char,
    endpoint: *mut u64,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, settings, address) =
            unsafe { (of(context)?, settings(options)?, needed_text(address, "the address")?) };
        // SAFETY: as the header says.
        unsafe {
            give(endpoint, || {
                context.listen(&settings.config()?, &addresses(address)?, &settings.server()?).map(Some)
            })
        }
    })
}

/// Writes the address at which an endpoint listens, with a zero at its end: the first, or that of another index.
/// MARCATO_END if it has no more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_local_address(
    context: *const Context,
    endpoint: u64,
    index: usize,
    buffer: *mut c_char,
    size: usize,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let endpoint = unsafe { of(context) }?.endpoint(endpoint)?;
        let Some(address) = endpoint.endpoint.local_addrs().get(index) else { return Ok(MARCATO_END) };
        let text = CString::new(address.to_string()).map_err(Failure::invalid)?;
        let text = text.as_bytes_with_nul();
        if buffer.is_null() || size < text.len() {
            return Err(Failure::invalid(format!("the address needs {} bytes", text.len())));
        }
        // SAFETY: by the header, the buffer has `size` bytes, and it is not the text made here.
        unsafe { ptr::copy_nonoverlapping(text.as_ptr(), buffer.cast(), text.len()) };
        Ok(MARCATO_OK)
    })
}

/// Takes the next connection of a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_accept(context: *const Context, endpoint: u64, connection: *mut u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        // SAFETY: as the header says.
        unsafe { give(connection, || context.accept(endpoint)) }
    })
}

/// Begins to connect with a server: a numeric address, or a name with a port. marcato_established tells when
/// it is done; calls before return MARCATO_AGAIN.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_connect(
    context: *const Context,
    options: *const Options,
    address: *const c_char,
    connection: *mut u64,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, settings, address) =
            unsafe { (of(context)?, settings(options)?, needed_text(address, "the address")?) };
        // SAFETY: as the header says.
        unsafe {
            give(connection, || context.connect(settings.config()?, settings.target(address)?).map(Some))
        }
    })
}

/// MARCATO_OK once the connection is made.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_established(context: *const Context, connection: u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let open = context.connection(connection)?.open(context.runtime())?;
        Ok(done_or_again(open.is_some()))
    })
}

/// Sends a message: more urgent ones overtake it as long as it has not left. MARCATO_AGAIN if its level is
/// full. Unless `receipt` is null, it gets an object whose fate marcato_delivery tells.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_send(
    context: *const Context,
    connection: u64,
    message: *const Outbound,
    receipt: *mut u64,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, message) = unsafe { (of(context)?, outbound(message)?) };
        let Some(sent) = context.send(connection, message, !receipt.is_null())? else {
            return Ok(MARCATO_AGAIN);
        };
        if !receipt.is_null() {
            // SAFETY: as the header says.
            unsafe { store(receipt, sent) }?;
        }
        Ok(MARCATO_OK)
    })
}

/// Tells the fate of a message (by its receipt) or of a stream of this end, which it ends if need be: MARCATO_OK
/// once the peer has all of it, MARCATO_UNDELIVERED once it is certain that it does not get it. Once only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_delivery(context: *const Context, receipt: u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let fate = match context.receipt(receipt) {
            Ok(receipt) => receipt.delivery(context.runtime()),
            Err(failure) => context.outgoing(receipt).map_err(|_| failure)?.delivery(context.runtime()),
        };
        fate.map_or(Ok(MARCATO_AGAIN), |fate| fate.map(|()| MARCATO_OK))
    })
}

/// Takes a message back, if it has not left. marcato_delivery tells whether it had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_cancel(context: *const Context, receipt: u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        unsafe { of(context) }?.receipt(receipt)?.cancel();
        Ok(MARCATO_OK)
    })
}

/// Moves what has not left of a message (by its receipt) or of a stream of this end to another level.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_reprioritise(context: *const Context, receipt: u64, priority: u32) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, priority) = (unsafe { of(context) }?, level(priority)?);
        match context.receipt(receipt) {
            Ok(receipt) => receipt.reprioritise(priority),
            Err(failure) => context.outgoing(receipt).map_err(|_| failure)?.reprioritise(priority)?,
        }
        Ok(MARCATO_OK)
    })
}

/// Takes the most urgent message that has wholly arrived. MARCATO_END once the peer has finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_recv(
    context: *const Context,
    connection: u64,
    message: *mut *mut Inbound,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let take = || Ok(context.connection(connection)?.receive(context.runtime())?.map(inbound));
        // SAFETY: as the header says.
        unsafe { give(message, take) }
    })
}

/// Frees a received message; null does nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_message_free(message: *mut Inbound) {
    if !message.is_null() {
        // SAFETY: by the header, it is from this library and not freed, and so the first field of a `Kept`.
        drop(unsafe { Box::from_raw(message.cast::<Kept>()) });
    }
}

/// Opens a stream to the peer: bytes that arrive in the order in which they were written, each as soon as it can.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stream_open(
    context: *const Context,
    connection: u64,
    priority: u32,
    stream: *mut u64,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, priority) = (unsafe { of(context) }?, level(priority)?);
        // SAFETY: as the header says.
        unsafe { give(stream, || context.open(connection, priority)) }
    })
}

/// Writes to a stream of this end. `written` tells how many of the bytes were taken: at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stream_write(
    context: *const Context,
    stream: u64,
    data: *const u8,
    len: usize,
    written: *mut usize,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, data) = unsafe { (of(context)?, bytes(data, len)?) };
        if written.is_null() {
            return Err(Failure::invalid("the place for the number of bytes is null"));
        }
        let taken = context.outgoing(stream)?.write(context.runtime(), data)?;
        // SAFETY: as the header says.
        unsafe { store(written, taken.unwrap_or(0)) }?;
        Ok(done_or_again(taken.is_some()))
    })
}

/// Ends a stream of this end. MARCATO_OK once all its bytes are on their way; marcato_delivery tells more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stream_end(context: *const Context, stream: u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let ended = context.outgoing(stream)?.end(context.runtime())?;
        Ok(done_or_again(ended.is_some()))
    })
}

/// Takes the next stream of the peer, and its priority unless that place is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stream_accept(
    context: *const Context,
    connection: u64,
    stream: *mut u64,
    priority: *mut u32,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let take = || {
            let Some((accepted, level)) = context.accept_stream(connection)? else { return Ok(None) };
            if !priority.is_null() {
                // SAFETY: as the header says.
                unsafe { store(priority, number(level)) }?;
            }
            Ok(Some(accepted))
        };
        // SAFETY: as the header says.
        unsafe { give(stream, take) }
    })
}

/// Reads from a stream of the peer. `read` tells how many bytes. MARCATO_END after the last.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stream_read(
    context: *const Context,
    stream: u64,
    buffer: *mut u8,
    size: usize,
    read: *mut usize,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        if buffer.is_null() || size == 0 || isize::try_from(size).is_err() || read.is_null() {
            return Err(Failure::invalid(
                "the buffer and the place for the number of bytes have to be there",
            ));
        }
        // SAFETY: by the header, the buffer has `size` bytes that nobody else uses during the call. Programs give
        // memory that was never written: it gets a value first, since a slice of Rust needs one.
        let buffer = unsafe {
            ptr::write_bytes(buffer, 0, size);
            std::slice::from_raw_parts_mut(buffer, size)
        };
        let got = context.incoming(stream)?.read(context.runtime(), buffer)?;
        // SAFETY: as the header says.
        unsafe { store(read, got.unwrap_or(0)) }?;
        Ok(match got {
            None => MARCATO_AGAIN,
            Some(0) => MARCATO_END,
            Some(_) => MARCATO_OK,
        })
    })
}

/// Sends a request, a message that has a reply. marcato_response takes it; releasing it withdraws the request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_request(
    context: *const Context,
    connection: u64,
    message: *const Outbound,
    request: *mut u64,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, message) = unsafe { (of(context)?, outbound(message)?) };
        // SAFETY: as the header says.
        unsafe { give(request, || context.request(connection, message)) }
    })
}

/// Takes the reply to a request of this end. Once only.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_response(
    context: *const Context,
    request: u64,
    message: *mut *mut Inbound,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let take =
            || context.reply(request)?.take(context.runtime()).map(|reply| reply.map(inbound)).transpose();
        // SAFETY: as the header says.
        unsafe { give(message, take) }
    })
}

/// Takes the next request of the peer, with its content.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_request_accept(
    context: *const Context,
    connection: u64,
    request: *mut u64,
    message: *mut *mut Inbound,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        if request.is_null() || message.is_null() {
            return Err(Failure::invalid("the place for the request or for its message is null"));
        }
        let Some((accepted, call)) = context.accept_request(connection)? else { return Ok(MARCATO_AGAIN) };
        // SAFETY: as the header says.
        unsafe {
            store(request, accepted)?;
            store(message, inbound(call.content.clone()))?;
        }
        Ok(MARCATO_OK)
    })
}

/// Replies to a request of the peer. Releasing a request without a reply refuses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_reply(
    context: *const Context,
    request: u64,
    message: *const Outbound,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, message) = unsafe { (of(context)?, outbound(message)?) };
        context.call(request)?.reply(context.runtime(), message).map(|()| MARCATO_OK)
    })
}

/// Ends sending. MARCATO_OK once all that was sent is delivered; receiving goes on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_finish(context: *const Context, connection: u64) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let finished = context.connection(connection)?.finish(context.runtime())?;
        Ok(done_or_again(finished.is_some()))
    })
}

/// Closes a connection after all that was sent is delivered. marcato_closed tells when it has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_close(
    context: *const Context,
    connection: u64,
    code: u32,
    reason: *const c_char,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let (context, reason) = unsafe { (of(context)?, text(reason, "the reason")?) };
        let reason = CloseReason::new(code, reason.unwrap_or_default());
        let closing = context.connection(connection)?.close(context.runtime(), reason)?;
        Ok(done_or_again(closing.is_some()))
    })
}

/// Tells the end of a connection: MARCATO_OK once one end has closed it, with the code of the peer unless that
/// place is null; MARCATO_LOST if it was lost.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_closed(context: *const Context, connection: u64, code: *mut u32) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let Some(closed) = context.connection(connection)?.closed(context.runtime())? else {
            return Ok(MARCATO_AGAIN);
        };
        if let Closed::ByPeer(reason) | Closed::Aborted(reason) = &closed
            && !code.is_null()
        {
            // SAFETY: as the header says.
            unsafe { store(code, reason.code) }?;
        }
        if matches!(closed, Closed::Lost { .. }) { Err(closed.into()) } else { Ok(MARCATO_OK) }
    })
}

/// Writes the numbers of a connection: the first `size` bytes of them, which is sizeof(marcato_stats).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn marcato_stats(
    context: *const Context,
    connection: u64,
    stats: *mut Stats,
    size: usize,
) -> i32 {
    status(|| {
        // SAFETY: as the header says.
        let context = unsafe { of(context) }?;
        let Some(connection) = context.connection(connection)?.open(context.runtime())? else {
            return Ok(MARCATO_AGAIN);
        };
        if stats.is_null() {
            return Err(Failure::invalid("the place for the numbers is null"));
        }
        let numbers = connection.stats();
        let mut told = Stats { lanes: numbers.lanes.len() as u64, ..Stats::default() };
        for lane in &numbers.lanes {
            told.cwnd += lane.cwnd.get();
            told.in_flight += lane.in_flight.get();
            told.packets_sent += lane.sent;
            told.packets_lost += lane.lost;
        }
        told.srtt_us =
            numbers.lanes.first().map_or(0, |lane| u64::try_from(lane.srtt.as_micros()).unwrap_or(u64::MAX));
        for (at, priority) in Priority::ALL.into_iter().enumerate() {
            let level = numbers.level(priority);
            told.sent[at] = level.sent.messages;
            told.received[at] = level.received.messages;
            told.unfinished[at] = level.unfinished as u64;
        }
        // SAFETY: by the header, the place has `size` bytes; no more than the numbers have are copied.
        unsafe {
            ptr::copy_nonoverlapping(
                ptr::from_ref(&told).cast::<u8>(),
                stats.cast(),
                size.min(size_of::<Stats>()),
            );
        };
        Ok(MARCATO_OK)
    })
}

/// All threads of a program may use a context.
const _: fn() = || {
    fn shared<T: Send + Sync>() {}
    shared::<Context>();
};
