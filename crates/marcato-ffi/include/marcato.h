/* Marcato: prioritised messages and streams over kernel TCP and multipath QUIC.
 *
 * Rules for all functions:
 *
 * - A context is made by marcato_context_new and ended by marcato_context_free. All else has a number, and
 *   is ended by marcato_release. A number is never used twice: after its end it is MARCATO_UNKNOWN.
 * - No call blocks, except marcato_wait. MARCATO_AGAIN means: not now. Call again when marcato_next names
 *   the object; call until the answer is MARCATO_AGAIN, since an event is not repeated. An event may come
 *   without a cause: then the answer is MARCATO_AGAIN once more.
 * - Any thread may call, at the same time too, except marcato_context_free: it has to be the last call.
 * - Texts are UTF-8 and end with a zero. Memory that is given is not used after the call.
 * - A result below zero is a failure; marcato_error has its reason as text. Places for results must not be
 *   null unless it is said.
 */

#ifndef MARCATO_H
#define MARCATO_H

#include <stddef.h>
#include <stdint.h>
/* Context of a program: its thread, and all that it uses. */
typedef struct marcato_context marcato_context;

// Version of this interface. A program and a library of different versions do not work together.
#define MARCATO_ABI 1

// Done.
#define MARCATO_OK 0

// Not now: marcato_next tells when it is worth another call. Nothing was taken or changed.
#define MARCATO_AGAIN 1

// Nothing more will come: the peer has finished.
#define MARCATO_END 2

// An argument is wrong.
#define MARCATO_INVALID -1

// A number names no object, or one of another kind.
#define MARCATO_UNKNOWN -2

// The system refused a socket, an address or a thread.
#define MARCATO_IO -3

// The server cannot be reached, or did not answer.
#define MARCATO_UNREACHABLE -4

// TLS failed: the peer did not prove who it is, or refused this end.
#define MARCATO_UNTRUSTED -5

// One end's application has closed the connection.
#define MARCATO_CLOSED -6

// The connection was lost.
#define MARCATO_LOST -7

// A message or stream was not delivered: cancelled, expired, declined, or cut off.
#define MARCATO_UNDELIVERED -8

// The context has as many objects as it may.
#define MARCATO_FULL -9

// Error in the library itself. Please report it.
#define MARCATO_BUG -99

// Engine: multipath QUIC, over UDP.
#define MARCATO_QUIC 0

// Engine: the kernel's TCP.
#define MARCATO_TCP 1

// Flag: two layers on each lane, as the peer has to have them. Only QUIC.
#define MARCATO_LAYERED 1

// Flag: no encryption. Only TCP, and only on links that are protected otherwise.
#define MARCATO_PLAINTEXT 2

// Flag: no coupled mode, which otherwise bounds background data while there is urgent data.
#define MARCATO_UNCOUPLED 4

// Flag: messages above 16 MiB are accepted, as streams.
#define MARCATO_LONG 8

// Event of an endpoint: a client has connected; marcato_accept takes it.
#define MARCATO_ON_ACCEPT 1

// Event of a connection: its handshake is complete, or has failed; marcato_established tells.
#define MARCATO_ON_CONNECTED 2

// Event of a connection: a message has come; marcato_recv takes it.
#define MARCATO_ON_MESSAGE 3

// Event of a connection: a level that was full has room; marcato_send succeeds again.
#define MARCATO_ON_ROOM 4

// Event of a connection: a stream of the peer has begun; marcato_stream_accept takes it.
#define MARCATO_ON_STREAM 5

// Event of a connection: a request has come; marcato_request_accept takes it.
#define MARCATO_ON_REQUEST 6

// Event of a connection: all that was sent has been delivered, after marcato_finish.
#define MARCATO_ON_FINISHED 7

// Event of a connection: it has ended; marcato_closed tells how.
#define MARCATO_ON_CLOSED 8

// Event of a receipt or a stream: its fate is certain; marcato_delivery tells.
#define MARCATO_ON_DELIVERY 9

// Event of a stream of this end: it takes bytes again.
#define MARCATO_ON_WRITE 10

// Event of a stream of the peer: it has bytes, or has ended.
#define MARCATO_ON_READ 11

// Event of a request of this end: marcato_response takes the reply.
#define MARCATO_ON_REPLY 12

// Levels of priority: 0 is what the user waits for, 4 is background.
#define MARCATO_LEVELS 5

// Entry of the ready list.
typedef struct marcato_ready {
    // Object that is worth another call.
    uint64_t object;
    // Why: a MARCATO_ON_….
    uint32_t event;
} marcato_ready;

// Function that is called for an entry of the ready list.
typedef void (*marcato_on_ready)(void *user, const struct marcato_ready *ready);

// Function that is called when the ready list is no longer empty.
typedef void (*marcato_on_notify)(void *user);

// Options of a connection. Set all to zero (`= {0}`), then `size` to sizeof(marcato_options), then
// what differs. Null texts are not given.
typedef struct marcato_options {
    // sizeof(marcato_options): tells which fields the program knows.
    size_t size;
    // MARCATO_QUIC or MARCATO_TCP.
    uint32_t engine;
    // MARCATO_LAYERED, MARCATO_PLAINTEXT, MARCATO_UNCOUPLED and MARCATO_LONG, added up.
    uint32_t flags;
    // Client, with a numeric address: the name in the server's certificate.
    const char *server_name;
    // Client: authorities that vouch for the server, as PEM. Null: those of the system.
    const char *authorities_pem;
    // Client: SHA-256 of the one certificate that the server may have, as marcato_self_signed gives it.
    const char *fingerprint;
    // Server, and a client that the server asks: certificate and its chain, as PEM.
    const char *certificate_pem;
    // Key of the certificate, as PEM.
    const char *key_pem;
    // Name of the application's protocol (ALPN). Null: `marcato/2`.
    const char *protocol;
    // Milliseconds of silence after which a connection is lost. Zero: 30 000.
    uint32_t idle_timeout_ms;
} marcato_options;

// Message to be sent. Set all to zero, then what differs.
typedef struct marcato_outbound {
    // Its bytes, which are copied.
    const uint8_t *data;
    // Number of its bytes.
    size_t len;
    // Level: 0 to 4.
    uint32_t priority;
    // Set if it is not sent again when lost. It has no receipt, and fits one packet over QUIC.
    uint32_t unreliable;
    // Milliseconds after which it is useless, and not sent any more. Zero: never.
    uint32_t lifetime_ms;
} marcato_outbound;

// Message that was received. marcato_message_free ends it.
typedef struct marcato_inbound {
    // Its bytes.
    const uint8_t *data;
    // Number of its bytes.
    size_t len;
    // Level that its sender gave: 0 to 4.
    uint32_t priority;
} marcato_inbound;

// Numbers of a connection.
typedef struct marcato_numbers {
    // Smoothed round-trip time of its first lane, in microseconds.
    uint64_t srtt_us;
    // Congestion windows of all lanes, in bytes.
    uint64_t cwnd;
    // Bytes in flight.
    uint64_t in_flight;
    // Packets sent.
    uint64_t packets_sent;
    // Packets lost; over TCP, retransmitted.
    uint64_t packets_lost;
    // Lanes in use.
    uint64_t lanes;
    // Messages handed to the network, by level.
    uint64_t sent[MARCATO_LEVELS];
    // Messages received, by level.
    uint64_t received[MARCATO_LEVELS];
    // Messages that have not been delivered, by level.
    uint64_t unfinished[MARCATO_LEVELS];
} marcato_numbers;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Version of the library, as text.
const char *marcato_version(void);

// Reason of this thread's last failure, as text: never null, and valid until its next failure.
const char *marcato_error(void);

// Creates a context, with a thread that moves the data. Give it MARCATO_ABI. Null after a failure.
marcato_context *marcato_context_new(uint32_t abi);

// Ends a context and its connections; null does nothing. Messages that were received stay valid.
void marcato_context_free(marcato_context *context);

// File descriptor that is readable while the ready list has entries. For poll and epoll; do not read it.
int marcato_fd(const marcato_context *context);

// Waits until the ready list has entries: at most so many milliseconds, or without end if negative.
// MARCATO_AGAIN if the time has passed.
int32_t marcato_wait(const marcato_context *context, int timeout_ms);

// Takes the next entry of the ready list. Then call what its event names until it returns MARCATO_AGAIN.
int32_t marcato_next(const marcato_context *context, struct marcato_ready *ready);

// Calls a function for each entry of the ready list, in this thread. Returns how many, or a failure.
int32_t marcato_dispatch(const marcato_context *context, marcato_on_ready call, void *user);

// Sets a function that is called, in another thread, when the ready list is no longer empty. It may wake an
// event loop, and may call nothing of this library. Null ends it; it may be running once more meanwhile.
int32_t marcato_set_notify(const marcato_context *context, marcato_on_notify call, void *user);

// Forgets an object. A connection that is not closed is cut off, a stream that has not ended is
// abandoned, a request is withdrawn; a message whose receipt is forgotten is delivered all the same.
int32_t marcato_release(const marcato_context *context, uint64_t object);

// Makes a certificate for a name, that no authority has signed: for tests, and for clients that know its
// fingerprint. Each text is freed by marcato_text_free.
int32_t marcato_self_signed(const char *name, char **certificate_pem, char **key_pem, char **fingerprint);

// Frees a text of marcato_self_signed; null does nothing.
void marcato_text_free(char *text);

// Listens at an address (`127.0.0.1:4433`, `[::1]:0`, or `:4433` for all), with the options of a server.
int32_t marcato_listen(const marcato_context *context,
                       const struct marcato_options *options,
                       const char *address,
                       uint64_t *endpoint);

// Writes the address at which an endpoint listens, with a zero at its end: the first, or that of another index.
// MARCATO_END if it has no more.
int32_t marcato_local_address(const marcato_context *context,
                              uint64_t endpoint,
                              size_t index,
                              char *buffer,
                              size_t size);

// Takes the next connection of a client.
int32_t marcato_accept(const marcato_context *context, uint64_t endpoint, uint64_t *connection);

// Begins to connect with a server: a numeric address, or a name with a port. marcato_established tells when
// it is done; calls before return MARCATO_AGAIN.
int32_t marcato_connect(const marcato_context *context,
                        const struct marcato_options *options,
                        const char *address,
                        uint64_t *connection);

// MARCATO_OK once the connection is made.
int32_t marcato_established(const marcato_context *context, uint64_t connection);

// Sends a message: more urgent ones overtake it as long as it has not left. MARCATO_AGAIN if its level is
// full. Unless `receipt` is null, it gets an object whose fate marcato_delivery tells.
int32_t marcato_send(const marcato_context *context,
                     uint64_t connection,
                     const struct marcato_outbound *message,
                     uint64_t *receipt);

// Tells the fate of a message (by its receipt) or of a stream of this end, which it ends if need be: MARCATO_OK
// once the peer has all of it, MARCATO_UNDELIVERED once it is certain that it does not get it. Once only.
int32_t marcato_delivery(const marcato_context *context,
                         uint64_t receipt);

// Takes a message back, if it has not left. marcato_delivery tells whether it had.
int32_t marcato_cancel(const marcato_context *context, uint64_t receipt);

// Moves what has not left of a message (by its receipt) or of a stream of this end to another level.
int32_t marcato_reprioritise(const marcato_context *context, uint64_t receipt, uint32_t priority);

// Takes the most urgent message that has wholly arrived. MARCATO_END once the peer has finished.
int32_t marcato_recv(const marcato_context *context, uint64_t connection, struct marcato_inbound **message);

// Frees a received message; null does nothing.
void marcato_message_free(struct marcato_inbound *message);

// Opens a stream to the peer: bytes that arrive in the order in which they were written, each as soon as it can.
int32_t marcato_stream_open(const marcato_context *context,
                            uint64_t connection,
                            uint32_t priority,
                            uint64_t *stream);

// Writes to a stream of this end. `written` tells how many of the bytes were taken: at least one.
int32_t marcato_stream_write(const marcato_context *context,
                             uint64_t stream,
                             const uint8_t *data,
                             size_t len,
                             size_t *written);

// Ends a stream of this end. MARCATO_OK once all its bytes are on their way; marcato_delivery tells more.
int32_t marcato_stream_end(const marcato_context *context, uint64_t stream);

// Takes the next stream of the peer, and its priority unless that place is null.
int32_t marcato_stream_accept(const marcato_context *context,
                              uint64_t connection,
                              uint64_t *stream,
                              uint32_t *priority);

// Reads from a stream of the peer. `read` tells how many bytes. MARCATO_END after the last.
int32_t marcato_stream_read(const marcato_context *context,
                            uint64_t stream,
                            uint8_t *buffer,
                            size_t size,
                            size_t *read);

// Sends a request, a message that has a reply. marcato_response takes it; releasing it withdraws the request.
int32_t marcato_request(const marcato_context *context,
                        uint64_t connection,
                        const struct marcato_outbound *message,
                        uint64_t *request);

// Takes the reply to a request of this end. Once only.
int32_t marcato_response(const marcato_context *context, uint64_t request, struct marcato_inbound **message);

// Takes the next request of the peer, with its content.
int32_t marcato_request_accept(const marcato_context *context,
                               uint64_t connection,
                               uint64_t *request,
                               struct marcato_inbound **message);

// Replies to a request of the peer. Releasing a request without a reply refuses it.
int32_t marcato_reply(const marcato_context *context,
                      uint64_t request,
                      const struct marcato_outbound *message);

// Ends sending. MARCATO_OK once all that was sent is delivered; receiving goes on.
int32_t marcato_finish(const marcato_context *context, uint64_t connection);

// Closes a connection after all that was sent is delivered. marcato_closed tells when it has ended.
int32_t marcato_close(const marcato_context *context, uint64_t connection, uint32_t code, const char *reason);

// Tells the end of a connection: MARCATO_OK once one end has closed it, with the code of the peer unless that
// place is null; MARCATO_LOST if it was lost.
int32_t marcato_closed(const marcato_context *context, uint64_t connection, uint32_t *code);

// Writes the numbers of a connection: the first `size` bytes of them, which is sizeof(marcato_stats).
int32_t marcato_stats(const marcato_context *context,
                      uint64_t connection,
                      struct marcato_numbers *stats,
                      size_t size);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* MARCATO_H */
