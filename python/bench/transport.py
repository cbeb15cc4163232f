"""Processor time and round trips of messages over the loopback interface, from Python.

    python python/bench/transport.py [quic|tcp] [MESSAGES]

`cargo run --release -p marcato-net --example message_costs -- quic|tcp [MESSAGES]` does the same in Rust.
"""

from __future__ import annotations

import asyncio
import sys
import time

import pymarcato

#: Bytes of a message.
SIZE = 100


def used() -> tuple[float, float]:
    """Processor time of this thread, and of the process."""
    return time.thread_time(), time.process_time()


def told(what: str, count: int, since: tuple[float, float], began: float) -> None:
    thread, process = (now - then for now, then in zip(used(), since))
    wall = time.perf_counter() - began
    print(
        f"{what:<28} {wall / count * 1e6:7.2f} µs elapsed, {process / count * 1e6:7.2f} µs of all threads,"
        f" {thread / count * 1e6:7.2f} µs of the event loop"
    )


async def main(engine: str, count: int) -> None:
    identity = pymarcato.Identity.self_signed("localhost")
    listener = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=identity)
    [address] = listener.local_addresses
    connecting = pymarcato.connect(address, engine=engine, name="localhost", trust=identity.trust)
    client, server = await asyncio.gather(connecting, listener.accept())
    data = bytes(SIZE)

    async def send(number: int) -> None:
        for _ in range(number):
            await client.send(data)

    async def receive(number: int) -> None:
        for _ in range(number):
            await server.receive()

    async def answer(number: int) -> None:
        for _ in range(number):
            request = await server.accept_request()
            await request.reply(request.data)

    await asyncio.gather(send(1000), receive(1000))
    since, began = used(), time.perf_counter()
    await asyncio.gather(send(count), receive(count))
    told("message, sent and received", count, since, began)

    requests = count // 10
    since, began = used(), time.perf_counter()
    answering = asyncio.create_task(answer(requests))
    for _ in range(requests):
        await client.request(data)
    await answering
    told("request and reply, in turn", requests, since, began)
    client.abort()
    listener.abort()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    asyncio.run(main(arguments.get(1, "quic"), int(arguments.get(2, 200_000))))
