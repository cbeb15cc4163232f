"""Loads a page over HTTP/3 with aioquic, several times, and prints the times as JSON.

Usage: late_http3.py ADDRESS PORT NAME DELAY_MS, and the files as JSON on standard input: name, length, urgency, incremental,
and destination of each; the last one is asked for after the delay. One line of input for each load; each load has a connection of
its own.
"""

import asyncio
import json
import ssl
import sys
import time

from aioquic.asyncio.client import connect
from aioquic.asyncio.protocol import QuicConnectionProtocol
from aioquic.h3.connection import H3Connection
from aioquic.h3.events import DataReceived, HeadersReceived
from aioquic.quic.configuration import QuicConfiguration

PATIENCE = 60  # seconds
# Windows of Chromium.
WINDOW = 6 << 20
CONNECTION_WINDOW = 15 << 20


class Client(QuicConnectionProtocol):
    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.http = H3Connection(self._quic)
        self.open = {}

    def ask(self, name, file):
        stream = self._quic.get_next_available_stream_id()
        incremental = ", i" if file["incremental"] else ""
        fields = {
            ":method": "GET",
            ":scheme": "https",
            ":authority": name,
            ":path": "/" + file["name"],
            "sec-fetch-dest": file["destination"],
            "priority": f"u={file['urgency']}{incremental}",
        }
        self.http.send_headers(stream, [(key.encode(), value.encode()) for key, value in fields.items()], end_stream=True)
        over = asyncio.get_running_loop().create_future()
        self.open[stream] = [over, file["length"]]
        self.transmit()
        return over

    def quic_event_received(self, event):
        for happened in self.http.handle_event(event):
            response = self.open.get(getattr(happened, "stream_id", None))
            if response is None:
                continue
            if isinstance(happened, HeadersReceived) and dict(happened.headers)[b":status"] != b"200":
                response[0].set_exception(RuntimeError(f"status {dict(happened.headers)[b':status']}"))
            if isinstance(happened, DataReceived):
                response[1] -= len(happened.data)
            if happened.stream_ended and not response[0].done():
                if response[1] != 0:
                    response[0].set_exception(RuntimeError(f"{response[1]} bytes are missing"))
                else:
                    response[0].set_result(time.monotonic())


async def load(address, port, name, delay, files):
    configuration = QuicConfiguration(
        is_client=True,
        alpn_protocols=["h3"],
        verify_mode=ssl.CERT_NONE,
        server_name=name,
        max_data=CONNECTION_WINDOW,
        max_stream_data=WINDOW,
    )
    async with connect(address, port, configuration=configuration, create_protocol=Client) as client:
        began = time.monotonic()
        early = [client.ask(name, file) for file in files[:-1]]
        await asyncio.sleep(began + delay - time.monotonic())
        asked = time.monotonic()
        late = await client.ask(name, files[-1])
        ends = [await over for over in early]
        return {"late": late - asked, "all": max([late, *ends]) - began}


async def main():
    address, port, name, delay = sys.argv[1:]
    for line in sys.stdin:
        loading = load(address, int(port), name, int(delay) / 1000, json.loads(line))
        print(json.dumps(await asyncio.wait_for(loading, PATIENCE)), flush=True)
        # What the server still has in flight for the connection leaves.
        await asyncio.sleep(0.3)


asyncio.run(main())
