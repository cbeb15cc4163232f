/* A server and a client in one program: 4 MB in the background, then a line of chat, which overtakes them;
 * a stream; a request and its reply; and an orderly end.
 *
 *   cc urgent.c -lmarcato -o urgent && ./urgent quic     (or tcp)
 */
#include <marcato.h>

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static marcato_context *context;

static void check(int32_t status, const char *call) {
    if (status < 0) {
        fprintf(stderr, "%s: %s (%d)\n", call, marcato_error(), status);
        exit(1);
    }
}

/* Sleeps until something is ready, as an event loop does among its other descriptors. */
static void wait_for_events(void) {
    struct pollfd one = {.fd = marcato_fd(context), .events = POLLIN};
    marcato_ready ready;
    if (poll(&one, 1, 10000) != 1) {
        fprintf(stderr, "nothing happens\n");
        exit(1);
    }
    /* This program asks everything again after each event; one with many connections looks at `ready`. */
    while (marcato_next(context, &ready) == MARCATO_OK) {
    }
}

/* Repeats a call until it is done. */
#define UNTIL_DONE(status, call)                    \
    do {                                            \
        while ((status = (call)) == MARCATO_AGAIN)  \
            wait_for_events();                      \
        check(status, #call);                       \
    } while (0)

int main(int count, char **arguments) {
    marcato_options server_options = {0}, client_options = {0};
    char *certificate, *key, *fingerprint, address[64];
    uint64_t endpoint, client, server, receipt, stream, incoming, request, call;
    uint32_t priority;
    int32_t status;

    context = marcato_context_new(MARCATO_ABI);
    if (context == NULL) {
        fprintf(stderr, "%s\n", marcato_error());
        return 1;
    }
    server_options.size = client_options.size = sizeof(marcato_options);
    server_options.engine = client_options.engine =
        count > 1 && strcmp(arguments[1], "tcp") == 0 ? MARCATO_TCP : MARCATO_QUIC;

    check(marcato_self_signed("chat.example", &certificate, &key, &fingerprint), "marcato_self_signed");
    server_options.certificate_pem = certificate;
    server_options.key_pem = key;
    check(marcato_listen(context, &server_options, "127.0.0.1:0", &endpoint), "marcato_listen");
    check(marcato_local_address(context, endpoint, 0, address, sizeof address), "marcato_local_address");

    client_options.server_name = "chat.example";
    client_options.fingerprint = fingerprint;
    check(marcato_connect(context, &client_options, address, &client), "marcato_connect");
    UNTIL_DONE(status, marcato_accept(context, endpoint, &server));
    UNTIL_DONE(status, marcato_established(context, client));

    /* The file first, then the line. */
    uint8_t *file = calloc(1, 4000000);
    marcato_outbound background = {.data = file, .len = 4000000, .priority = 4};
    marcato_outbound line = {.data = (const uint8_t *)"hello", .len = 5, .priority = 0};
    UNTIL_DONE(status, marcato_send(context, client, &background, NULL));
    UNTIL_DONE(status, marcato_send(context, client, &line, &receipt));
    free(file);
    for (int number = 0; number < 2; number++) {
        marcato_inbound *message;
        UNTIL_DONE(status, marcato_recv(context, server, &message));
        printf("P%u, %zu bytes\n", message->priority, message->len);
        marcato_message_free(message);
    }
    UNTIL_DONE(status, marcato_delivery(context, receipt));
    printf("the line is delivered\n");
    check(marcato_release(context, receipt), "marcato_release");

    /* A stream: its bytes come in order. */
    UNTIL_DONE(status, marcato_stream_open(context, client, 1, &stream));
    const char *text = "one byte after another";
    for (size_t sent = 0, taken; sent < strlen(text); sent += taken)
        UNTIL_DONE(status, marcato_stream_write(context, stream, (const uint8_t *)text + sent, strlen(text) - sent, &taken));
    UNTIL_DONE(status, marcato_stream_end(context, stream));
    UNTIL_DONE(status, marcato_stream_accept(context, server, &incoming, &priority));
    printf("P%u: ", priority);
    for (;;) {
        uint8_t piece[8];
        size_t read;
        UNTIL_DONE(status, marcato_stream_read(context, incoming, piece, sizeof piece, &read));
        if (status == MARCATO_END)
            break;
        printf("%.*s", (int)read, (const char *)piece);
    }
    printf("\n");
    UNTIL_DONE(status, marcato_delivery(context, stream));

    /* A request, and its reply. */
    marcato_inbound *question, *answer;
    marcato_outbound ask = {.data = (const uint8_t *)"6 * 7", .len = 5, .priority = 0};
    marcato_outbound reply = {.data = (const uint8_t *)"42", .len = 2, .priority = 0};
    UNTIL_DONE(status, marcato_request(context, client, &ask, &request));
    UNTIL_DONE(status, marcato_request_accept(context, server, &call, &question));
    check(marcato_reply(context, call, &reply), "marcato_reply");
    UNTIL_DONE(status, marcato_response(context, request, &answer));
    printf("%.*s = %.*s\n", (int)question->len, (const char *)question->data, (int)answer->len,
           (const char *)answer->data);
    marcato_message_free(question);
    marcato_message_free(answer);

    marcato_numbers numbers;
    check(marcato_stats(context, client, &numbers, sizeof numbers), "marcato_stats");
    printf("%llu background message sent\n", (unsigned long long)numbers.sent[4]);

    /* The end: the peer learns a code. */
    uint32_t code = 0;
    check(marcato_close(context, client, 7, "done"), "marcato_close");
    UNTIL_DONE(status, marcato_closed(context, server, &code));
    UNTIL_DONE(status, marcato_closed(context, client, NULL));
    printf("closed with %u\n", code);

    marcato_text_free(certificate);
    marcato_text_free(key);
    marcato_text_free(fingerprint);
    marcato_context_free(context);
    return 0;
}
