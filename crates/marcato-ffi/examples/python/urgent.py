"""As the example in C, by ctypes: an urgent line overtakes 4 MB in the background.

    MARCATO_LIBRARY=/usr/lib/libmarcato.so python3 urgent.py quic     (or tcp)
"""

import ctypes as c
import os
import select
import sys

ABI, AGAIN, END = 1, 1, 2


class Options(c.Structure):
    _fields_ = [
        ("size", c.c_size_t),
        ("engine", c.c_uint32),
        ("flags", c.c_uint32),
        ("server_name", c.c_char_p),
        ("authorities_pem", c.c_char_p),
        ("fingerprint", c.c_char_p),
        ("certificate_pem", c.c_char_p),
        ("key_pem", c.c_char_p),
        ("protocol", c.c_char_p),
        ("idle_timeout_ms", c.c_uint32),
    ]


class Ready(c.Structure):
    _fields_ = [("object", c.c_uint64), ("event", c.c_uint32)]


class Outbound(c.Structure):
    _fields_ = [
        ("data", c.c_char_p),
        ("len", c.c_size_t),
        ("priority", c.c_uint32),
        ("unreliable", c.c_uint32),
        ("lifetime_ms", c.c_uint32),
    ]


class Inbound(c.Structure):
    _fields_ = [("data", c.POINTER(c.c_char)), ("len", c.c_size_t), ("priority", c.c_uint32)]


library = c.CDLL(os.environ.get("MARCATO_LIBRARY", "libmarcato.so"))
library.marcato_error.restype = c.c_char_p
library.marcato_context_new.restype = c.c_void_p
library.marcato_text_free.argtypes = [c.c_char_p]
context = c.c_void_p(library.marcato_context_new(ABI))
if not context:
    sys.exit(library.marcato_error().decode())
poll = select.poll()
poll.register(library.marcato_fd(context), select.POLLIN)


def done(function, *arguments):
    """Calls a function until it is done, and sleeps in between."""
    while (status := getattr(library, function)(context, *arguments)) == AGAIN:
        if not poll.poll(10_000):
            sys.exit(f"{function}: nothing happens")
        ready = Ready()
        while library.marcato_next(context, c.byref(ready)) == 0:
            pass
    if status < 0:
        sys.exit(f"{function}: {library.marcato_error().decode()} ({status})")
    return status


engine = 1 if sys.argv[1:] == ["tcp"] else 0
certificate, key, fingerprint = c.c_char_p(), c.c_char_p(), c.c_char_p()
if library.marcato_self_signed(b"chat.example", c.byref(certificate), c.byref(key), c.byref(fingerprint)) < 0:
    sys.exit(library.marcato_error().decode())
serving = Options(size=c.sizeof(Options), engine=engine, certificate_pem=certificate, key_pem=key)
asking = Options(size=c.sizeof(Options), engine=engine, server_name=b"chat.example", fingerprint=fingerprint)

endpoint, client, server, receipt = (c.c_uint64() for _ in range(4))
address = c.create_string_buffer(64)
done("marcato_listen", c.byref(serving), b"127.0.0.1:0", c.byref(endpoint))
done("marcato_local_address", endpoint, c.c_size_t(0), address, c.c_size_t(64))
done("marcato_connect", c.byref(asking), address, c.byref(client))
done("marcato_accept", endpoint, c.byref(server))
done("marcato_established", client)

file = bytes(4_000_000)
done("marcato_send", client, c.byref(Outbound(data=file, len=len(file), priority=4)), None)
done("marcato_send", client, c.byref(Outbound(data=b"hello", len=5, priority=0)), c.byref(receipt))
for _ in range(2):
    message = c.POINTER(Inbound)()
    done("marcato_recv", server, c.byref(message))
    print(f"P{message.contents.priority}, {message.contents.len} bytes")
    library.marcato_message_free(message)
done("marcato_delivery", receipt)
print("the line is delivered")
library.marcato_context_free(context)
