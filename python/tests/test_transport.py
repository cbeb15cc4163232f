"""Live transport: messages, requests, cancellation, ends, errors."""

from __future__ import annotations

import asyncio
import contextlib
import doctest
import gc
import pickle
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, TypeVar

import pytest

import pymarcato
from conftest import ROOT
from pymarcato import _native, _transport, _waiting
from pymarcato._engine import environment

T = TypeVar("T")

IDENTITY = pymarcato.Identity.self_signed("localhost")
OTHER = pymarcato.Identity.self_signed("localhost")

#: Bounds with which little of what a peer does not take leaves its sender.
TIGHT = {"unread": "64 kB", "surplus": "256 kB"}

#: Names that only users of Rust know.
RUST = re.compile(r"[a-z]::[a-z]|send_long|with_receipt")

engines = pytest.mark.parametrize("engine", ["quic", "tcp"])


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a test, which a defect may let wait for ever."""
    return asyncio.run(asyncio.wait_for(main, 60))


def connect(listener: pymarcato.Listener, engine: str, **settings: Any) -> Awaitable[pymarcato.Connection]:
    [address] = listener.local_addresses
    settings = {"trust": IDENTITY.trust, "name": "localhost", **settings}
    return pymarcato.connect(address, engine=engine, **settings)


@contextlib.asynccontextmanager
async def pair(
    engine: str, client: Any = None, server: Any = None
) -> AsyncIterator[tuple[pymarcato.Connection, pymarcato.Connection]]:
    """Connects a client and a server in this loop."""
    listener = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY, **(server or {}))
    near, far = await asyncio.gather(connect(listener, engine, **(client or {})), listener.accept())
    try:
        yield near, far
    finally:
        near.abort()
        listener.abort()


async def until(condition: Callable[[], bool]) -> None:
    """Waits for what other threads do, while the loop goes on."""
    while not condition():
        await asyncio.sleep(0)


@contextlib.contextmanager
def elsewhere() -> Any:
    """Runs an event loop in another thread, and yields a function that executes a coroutine there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@engines
def test_messages_that_wait_are_received_in_order_of_priority(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            sent = [await client.send(level.encode(), priority=level) for level in ("P4", "P2", "P0", "P3", "P1")]
            for one in sent:
                await one.acknowledged()
            received = [await server.receive() for _ in sent]
            assert [message.priority for message in received] == ["P0", "P1", "P2", "P3", "P4"]
            assert [message.data for message in received] == [b"P0", b"P1", b"P2", b"P3", b"P4"]

    run(main())


@engines
def test_an_urgent_message_overtakes_a_long_one(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            await client.send(bytes(8_000_000), priority=4)
            await client.send(b"hello", priority=0)
            assert [(await server.receive()).priority for _ in range(2)] == ["P0", "P4"]

    run(main())


@engines
@pytest.mark.parametrize("data", [b"bytes", bytearray(b"bytes"), memoryview(b"xbytesx")[1:-1], b""])
def test_content_is_anything_with_bytes(engine: str, data: Any) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            await client.send(data)
            message = await server.receive()
            assert (type(message.data), message.data, bytes(message)) == (bytes, bytes(data), bytes(data))
            assert (len(message), message.priority) == (len(data), "P2")
            assert repr(message) == f"<pymarcato.Message: {len(data)} bytes of P2>"

    run(main())


@engines
def test_requests_are_answered_in_any_order(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            first = asyncio.create_task(client.request(b"first", priority="P3"))
            one = await server.accept_request()
            second = asyncio.create_task(client.request(b"second", priority="P0"))
            two = await server.accept_request()
            assert (one.data, one.priority, two.data, two.priority) == (b"first", "P3", b"second", "P0")
            await two.reply(two.data.upper())
            await one.reply(one.data.upper(), priority="P4")
            assert ((await first).data, (await second).data) == (b"FIRST", b"SECOND")
            assert ((await first).priority, (await second).priority) == ("P4", "P0")

    run(main())


@engines
def test_both_ends_send_receive_and_finish(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            for number in range(1, 11):
                await client.send(bytes([number]))
            finished = asyncio.create_task(client.finish())
            total = 0
            async for message in server:
                total += message.data[0]
            await finished
            await server.send(bytes([total]), receipt=True)
            assert (await client.receive()).data == bytes([55])
            with pytest.raises(pymarcato.SendError, match="finished") as caught:
                await client.send(b"more")
            assert caught.value.kind == "finished"

    run(main())


@engines
def test_a_handle_tells_when_the_peer_has_and_takes_the_message(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            sent = await client.send(b"order", receipt=True)
            received = asyncio.create_task(sent.received())
            await sent.acknowledged()
            await sent.acknowledged()
            assert not received.done()
            await server.receive()
            await received

    run(main())


@engines
def test_several_tasks_wait_for_one_handle(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            sent = await client.send(bytes(4_000_000), receipt=True)
            waiting = [asyncio.create_task(sent.received()) for _ in range(3)]
            waiting += [asyncio.create_task(sent.acknowledged()) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[3].cancel()
            await server.receive()
            outcomes = await asyncio.gather(*waiting, return_exceptions=True)
            cancelled = [isinstance(outcome, asyncio.CancelledError) for outcome in outcomes]
            assert cancelled == [True, False, False, True, False, False], outcomes

    run(main())


@engines
@pytest.mark.parametrize("is_woken", [False, True])
def test_a_message_that_arrives_at_a_cancellation_is_received_next(engine: str, is_woken: bool) -> None:
    async def serve(at: Any) -> None:
        at["listener"] = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY)

    async def accept(at: Any) -> None:
        at["server"] = await at["listener"].accept()

    async def send(at: Any, number: int) -> None:
        await at["server"].send(number.to_bytes(4, "big"))

    async def main(there: Any) -> None:
        at: dict[str, Any] = {}
        there(serve(at))
        client = await connect(at["listener"], engine)
        there(accept(at))
        for number in range(200):
            receiving = asyncio.create_task(client.receive())
            await asyncio.sleep(0)
            # This loop stands still until the message has arrived. The task is cancelled before it can go on.
            there(send(at, number))
            while client.stats().levels[2].received_messages <= number:
                pass
            if is_woken:
                _waiting._waiters[asyncio.get_running_loop()].wake()
            receiving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await receiving
            assert (await client.receive()).data == number.to_bytes(4, "big")
        client.abort()
        at["listener"].abort()

    with elsewhere() as there:
        run(main(there))


@engines
def test_a_timeout_loses_no_message(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            for number in range(20):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(server.receive(), 0.001)
                await client.send(bytes([number]))
                assert (await server.receive()).data == bytes([number])

    run(main())


@engines
def test_a_cancelled_send_sends_nothing(engine: str) -> None:
    async def main() -> None:
        async with pair(engine, client={"limits": {"unfinished": 1}}) as (client, server):
            first = await client.send(bytes(10_000_000))
            second = asyncio.create_task(client.send(b"second"))
            await asyncio.sleep(0)
            second.cancel()
            with pytest.raises(asyncio.CancelledError):
                await second
            assert len(await server.receive()) == 10_000_000
            await first.acknowledged()
            await client.send(b"third")
            assert (await server.receive()).data == b"third"

    run(main())


@engines
def test_a_cancelled_request_is_withdrawn(engine: str) -> None:
    async def main() -> None:
        # One request at a time: while the first is open, the second would wait.
        async with pair(engine, client={"limits": {"requests": 1}}) as (client, server):
            first = asyncio.create_task(client.request(b"first"))
            request = await server.accept_request()
            first.cancel()
            second = asyncio.create_task(client.request(b"second"))
            await (await server.accept_request()).reply(b"answer")
            assert (await second).data == b"answer"
            with pytest.raises(pymarcato.SendError, match="withdrawn") as caught:
                await request.reply(b"late")
            assert caught.value.kind == "withdrawn"

    run(main())


@engines
def test_a_cancelled_connect_leaves_no_task_of_the_runtime(engine: str) -> None:
    # In a process of its own, whose runtime has no other tasks.
    code = (
        "import asyncio, socket, sys, pymarcato\n"
        "from pymarcato._native import live_tasks\n"
        "async def until(condition):\n"
        "    while not condition():\n"
        "        await asyncio.sleep(0)\n"
        "async def main(engine, kind):\n"
        "    with socket.socket(socket.AF_INET, kind) as silent:\n"
        "        silent.bind(('127.0.0.1', 0))\n"
        "        if engine == 'tcp':\n"
        "            silent.listen()\n"
        "        address = '127.0.0.1:%d' % silent.getsockname()[1]\n"
        "        trust = pymarcato.Identity.self_signed('localhost').trust\n"
        "        connecting = asyncio.create_task(pymarcato.connect(address, engine=engine, trust=trust))\n"
        "        await until(lambda: live_tasks() > 0)\n"
        "        connecting.cancel()\n"
        "        await asyncio.wait([connecting])\n"
        "        assert connecting.cancelled()\n"
        "        await until(lambda: live_tasks() == 0)\n"
        "        print('none is left')\n"
    )
    kind = "SOCK_DGRAM" if engine == "quic" else "SOCK_STREAM"
    done = executed(code + f"asyncio.run(main({engine!r}, socket.{kind}))\n")
    assert (done.stdout, done.stderr, done.returncode) == ("none is left\n", "", 0)


@engines
def test_a_full_inbox_lets_other_tasks_have_their_turn(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            sent = [await client.send(b"x") for _ in range(1000)]
            for one in sent:
                await one.acknowledged()
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    turns += 1
                    await asyncio.sleep(0)

            task = asyncio.create_task(other())
            for _ in sent:
                await server.receive()
            task.cancel()
            assert turns >= 10

    run(main())


@engines
def test_a_sender_waits_for_a_receiver_that_takes_nothing(engine: str) -> None:
    async def main() -> None:
        limits = {"queued": "1 MB"}
        async with pair(engine, client={"limits": limits}, server={"limits": TIGHT}) as (client, server):
            sent = 0

            async def send() -> None:
                nonlocal sent
                for _ in range(640):
                    await client.send(bytes(100_000))
                    sent += 1

            sending = asyncio.create_task(send())
            for number in range(640):
                message = await server.receive()
                # Far less than all of it fits into queues, windows and sockets.
                assert (len(message), sent < number + 300) == (100_000, True), (number, sent)
            await sending

    run(main())


@engines
def test_a_queued_message_is_moved_and_cancelled(engine: str) -> None:
    async def main() -> None:
        # Its sockets and its window take far less than all of it, once the level is held.
        async with pair(engine, server={"limits": {"unread": "64 kB"}}) as (client, server):
            first = [await client.send(bytes(100_000), priority="P4") for _ in range(400)]
            last = await client.send(b"last", priority="P4")
            moved = await client.send(b"moved", priority="P4")
            last.cancel()
            with pytest.raises(pymarcato.DeliveryError, match="cancelled") as caught:
                await last.acknowledged()
            assert caught.value.kind == "cancelled"
            # Its level is held, as the server takes nothing of it.
            moved.reprioritise("P0")
            await moved.acknowledged()
            late = await client.send(b"late", priority="P4", lifetime="1 ms")
            with pytest.raises(pymarcato.DeliveryError, match="longer one") as caught:
                await late.acknowledged()
            assert caught.value.kind == "expired"
            with pytest.raises(pymarcato.ChangeError, match="sooner"):
                moved.cancel()
            client.discard_less_urgent_than("P3")
            with pytest.raises(pymarcato.SendError, match="accept its level again") as refused:
                await client.send(b"more", priority="P4")
            assert refused.value.kind == "discarding"
            with pytest.raises(pymarcato.DeliveryError) as caught:
                await first[-1].acknowledged()
            assert caught.value.kind == "discarded"

    run(main())


@engines
def test_unreliable_messages_arrive_on_a_good_path(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            assert (client.max_unreliable_bytes or 0) > 1000
            sent = await client.send(b"sample", unreliable=True, lifetime=timedelta(seconds=5))
            await sent.acknowledged()
            message = await server.receive()
            assert message.data == b"sample"
            assert (message.number is None) == (engine == "quic")
            with pytest.raises(pymarcato.SendError, match="send it reliably") as caught:
                await client.send(b"x", unreliable=True, receipt=True)
            assert caught.value.kind == "needs-reliable"

    run(main())


@engines
def test_a_long_message_is_written_and_read_piece_by_piece(engine: str) -> None:
    async def main() -> None:
        server_settings = {"long_messages": "stream", "limits": {"max_message": "100 kB"}}
        async with pair(engine, server=server_settings) as (client, server):
            piece = bytes(range(256)) * 1000

            async def write() -> None:
                async with client.stream(priority="P3", receipt=True) as writer:
                    for _ in range(20):
                        await writer.write(piece)
                await writer.acknowledged()
                await writer.received()
                with pytest.raises(pymarcato.SendError, match="begin another"):
                    await writer.write(b"more")

            writing = asyncio.create_task(write())
            reader = await server.accept_stream()
            assert reader.priority == "P3"
            assert b"".join([part async for part in reader]) == piece * 20
            await writing

    run(main())


@engines
def test_a_writer_that_fails_cancels_its_message(engine: str) -> None:
    async def main() -> None:
        server_settings = {"long_messages": "stream", "limits": {"max_message": "100 kB"}}
        async with pair(engine, server=server_settings) as (client, server):
            with pytest.raises(ArithmeticError):
                async with client.stream() as writer:
                    await writer.write(bytes(1_000_000))
                    reader = await server.accept_stream()
                    raise ArithmeticError
            with pytest.raises(pymarcato.MissedError, match="cancelled") as caught:
                async for _ in reader:
                    pass
            assert caught.value.received_bytes > 100_000
            assert (await server.missed()).number == caught.value.number
            with pytest.raises(pymarcato.DeliveryError, match="cancelled"):
                await writer.acknowledged()

    run(main())


@engines
def test_an_end_tells_its_code_and_reason(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            await server.send(b"last")
            _, end = await asyncio.gather(server.close(7, "back at noon"), client.closed())
            assert (end.kind, end.code, end.reason, end.is_orderly) == ("by-peer", 7, "back at noon", True)
            # What had arrived before is still received.
            assert [message.data async for message in client] == [b"last"]
            with pytest.raises(pymarcato.ConnectionClosed, match="code 7: back at noon.: connect again"):
                await client.receive()
            with pytest.raises(pymarcato.ConnectionClosed) as caught:
                await client.send(b"late")
            assert isinstance(caught.value, ConnectionError) and isinstance(caught.value, pymarcato.TransportError)
            assert (await server.closed()).kind == "local"

    run(main())


@engines
def test_an_aborted_connection_ends_iterations_with_an_error(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            reading = asyncio.create_task(client.receive())
            serving = asyncio.create_task(client.accept_request())
            asking = asyncio.create_task(client.request(b"unanswered"))
            request = await server.accept_request()
            server.abort(9, "out of memory")
            for task in (reading, serving):
                with pytest.raises(pymarcato.ConnectionClosed) as caught:
                    await task
                assert (caught.value.kind, caught.value.code) == ("aborted", 9)
            with pytest.raises(pymarcato.RequestError) as failed:
                await asking
            assert failed.value.kind == "closed"
            assert isinstance(failed.value.__cause__, pymarcato.ConnectionClosed)
            with pytest.raises(pymarcato.ConnectionClosed, match="out of memory"):
                async for _ in client:
                    pass
            with pytest.raises(pymarcato.ConnectionClosed):
                await request.reply(b"late")

    run(main())


@engines
def test_a_context_closes_a_connection_or_aborts_it_on_exception(engine: str) -> None:
    async def main() -> None:
        async with await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY) as listener:
            client, server = await asyncio.gather(connect(listener, engine), listener.accept())
            async with client:
                await client.send(bytes(2_000_000))
            assert len(await server.receive()) == 2_000_000
            assert (await server.closed()).kind == "by-peer"

            client, server = await asyncio.gather(connect(listener, engine), listener.accept())
            with pytest.raises(ArithmeticError):
                async with client:
                    raise ArithmeticError
            assert (await server.closed()).kind == "lost"

            client, server = await asyncio.gather(connect(listener, engine), listener.accept())
            async with client:
                # The peer closes first.
                await server.close()

    run(main())


@engines
def test_a_dropped_connection_and_request_are_ended(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            asking = asyncio.create_task(client.request(b"dropped"))
            request = await server.accept_request()
            del request
            gc.collect()
            with pytest.raises(pymarcato.RequestError, match="answer each request") as caught:
                await asking
            assert caught.value.kind == "unanswered"
            asking = asyncio.create_task(client.request(b"declined"))
            request = await server.accept_request()
            request.decline()
            with pytest.raises(pymarcato.RequestError):
                await asking
            with pytest.raises(pymarcato.SendError, match="answer each request once"):
                await request.reply(b"late")

        listener = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY)
        client, server = await asyncio.gather(connect(listener, engine), listener.accept())
        del client
        gc.collect()
        assert (await server.closed()).kind == "lost"
        listener.abort()

    run(main())


@engines
def test_a_listener_iterates_over_its_peers_until_it_is_closed(engine: str) -> None:
    async def main() -> None:
        listener = await pymarcato.listen(["127.0.0.1:0"], engine=engine, identity=IDENTITY)
        served = 0

        async def serve() -> None:
            nonlocal served
            async for connection in listener:
                served += 1
                async for request in connection.requests():
                    await request.reply(request.data)

        serving = asyncio.create_task(serve())
        for number in range(3):
            async with await connect(listener, engine) as client:
                assert (await client.request(bytes([number]))).data == bytes([number])
        assert (listener.stats().accepted, listener.stats().failed) == (3, 0)
        listener.close(3, "maintenance")
        await serving
        await listener.wait_closed()
        assert served == 3
        with pytest.raises(pymarcato.ConnectionClosed, match="listen again"):
            await listener.accept()

    run(main())


@engines
def test_a_certificate_that_is_not_pinned_is_refused(engine: str) -> None:
    async def main() -> None:
        listener = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY)
        for trust in (OTHER.trust, pymarcato.Trust.fingerprint(OTHER.fingerprint)):
            with pytest.raises(pymarcato.ConnectError, match="was expected") as caught:
                await connect(listener, engine, trust=trust)
            assert caught.value.kind == "tls"
        for trust in (IDENTITY.trust, pymarcato.Trust.fingerprint(IDENTITY.fingerprint)):
            client = await connect(listener, engine, trust=trust)
            assert client.peer_fingerprint == IDENTITY.fingerprint
            client.abort()
        with pytest.raises(pymarcato.ConnectError):
            await connect(listener, engine, name="elsewhere.example")
        listener.abort()

    run(main())


@engines
def test_a_server_asks_for_certificates_of_its_clients(engine: str) -> None:
    async def main() -> None:
        settings = {"clients": [pymarcato.Trust.fingerprint(OTHER.fingerprint)]}
        async with pair(engine, client={"identity": OTHER}, server=settings) as (_, server):
            assert server.peer_fingerprint == OTHER.fingerprint

    run(main())


def test_identities_are_read_from_pem(tmp_path: Path) -> None:
    chain, key = tmp_path / "chain.pem", tmp_path / "key.pem"
    chain.write_text(IDENTITY.chain_pem)
    key.write_text(IDENTITY.key_pem)
    assert pymarcato.Identity.from_pem_files(chain, key).fingerprint == IDENTITY.fingerprint
    again = pymarcato.Identity.from_pem(IDENTITY.chain_pem.encode(), IDENTITY.key_pem.encode())
    assert (again.fingerprint, repr(again)) == (IDENTITY.fingerprint, f"<pymarcato.Identity: {IDENTITY.fingerprint}>")
    assert isinstance(pymarcato.Trust.from_pem_file(chain), pymarcato.Trust)
    assert isinstance(pymarcato.Trust.from_pem(IDENTITY.chain_pem.encode()), pymarcato.Trust)
    with pytest.raises(pymarcato.IdentityError, match="no private key: give PEM"):
        pymarcato.Identity.from_pem_files(chain, chain)
    with pytest.raises(pymarcato.IdentityError, match="does not fit"):
        pymarcato.Identity.from_pem(OTHER.chain_pem.encode(), IDENTITY.key_pem.encode())
    with pytest.raises(pymarcato.IdentityError, match="64 hexadecimal digits"):
        pymarcato.Trust.fingerprint("ab:cd")
    with pytest.raises(pymarcato.IdentityError, match="cannot read"):
        pymarcato.Trust.from_pem_file(tmp_path / "none.pem")


def test_plaintext_is_for_tcp_only() -> None:
    async def main() -> None:
        listener = await pymarcato.listen("127.0.0.1:0", engine="tcp", plaintext=True)
        [address] = listener.local_addresses
        client, server = await asyncio.gather(
            pymarcato.connect(address, engine="tcp", plaintext=True), listener.accept()
        )
        await client.send(b"in the clear")
        assert ((await server.receive()).data, client.peer_fingerprint, client.alpn) == (b"in the clear", None, None)
        with pytest.raises(pymarcato.ConnectError, match="connect in plaintext") as caught:
            await pymarcato.connect(address, engine="tcp", trust=IDENTITY.trust)
        assert caught.value.kind == "not-tls"
        listener.abort()
        with pytest.raises(pymarcato.ListenError, match="quic is always encrypted"):
            await pymarcato.listen("127.0.0.1:0", plaintext=True)
        with pytest.raises(pymarcato.ConnectError, match="quic is always encrypted") as caught:
            await pymarcato.connect(address, plaintext=True)
        assert caught.value.kind == "config"

    run(main())


@engines
def test_applications_name_their_protocols(engine: str) -> None:
    async def main() -> None:
        async with pair(engine, {"alpn": ["chat/1"]}, {"alpn": ["chat/2", "chat/1"]}) as (client, server):
            assert (client.alpn, server.alpn) == ("chat/1", "chat/1")

    run(main())


@engines
def test_statistics_have_their_units_in_their_names(engine: str) -> None:
    async def main() -> None:
        async with pair(engine) as (client, server):
            for _ in range(5):
                sent = await client.send(bytes(1000), priority="P1")
                await sent.acknowledged()
            assert len(await server.receive()) == 1000
            ours, theirs = client.stats(), server.stats()
            [lane] = ours.lanes
            assert (lane.id, lane.layer, lane.is_usable, lane.remote_address) == (0, "high", True, client.remote_address)
            assert lane.cwnd_bytes > 1000 and 0 < lane.srtt_ms < 60_000 and lane.sent_bytes >= 5000
            level = ours.levels[1]
            assert (level.priority, level.sent_messages, level.sent_bytes, level.unfinished_messages) == ("P1", 5, 5000, 0)
            assert [one.priority for one in ours.levels] == ["P0", "P1", "P2", "P3", "P4"]
            assert theirs.levels[1].received_messages == 5 and theirs.received_bytes == 5000
            assert (ours.missed_messages, ours.coupled_mode) == (0, None)
            with pytest.raises(AttributeError):
                ours.received_bytes = 3  # type: ignore[misc]

    run(main())


def test_lanes_are_added_and_removed() -> None:
    async def main() -> None:
        listener = await pymarcato.listen(["127.0.0.1:0", "127.0.0.1:0"], identity=IDENTITY)
        first, second = listener.local_addresses
        client, server = await asyncio.gather(
            pymarcato.connect(first, trust=IDENTITY.trust, name="localhost"), listener.accept()
        )
        client.add_lane(second, local="127.0.0.1:0")
        await until(lambda: [lane.is_usable for lane in client.stats().lanes] == [True, True])
        client.remove_lane(0)
        await until(lambda: [lane.id for lane in client.stats().lanes if lane.is_usable] == [1])
        await client.send(b"by the second")
        assert (await server.receive()).data == b"by the second"
        with pytest.raises(pymarcato.LaneError):
            client.remove_lane(1)
        with pytest.raises(ValueError, match="192.0.2.1:4433"):
            client.add_lane("somewhere")
        with pytest.raises(ValueError, match="`layer`"):
            client.add_lane(second, layer="middle")
        with pytest.raises(pymarcato.LaneError):
            server.add_lane(second)
        listener.abort()

    run(main())


@engines
def test_loops_of_two_threads_use_one_connection(engine: str) -> None:
    async def serve() -> pymarcato.Listener:
        listener = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY)

        async def answer() -> None:
            async for connection in listener:
                async for request in connection.requests():
                    await request.reply(request.data.upper())

        # The loop keeps a weak reference only.
        tasks.append(asyncio.get_running_loop().create_task(answer()))
        return listener

    async def ask(client: pymarcato.Connection, text: str) -> None:
        for number in range(100):
            assert (await client.request(f"{text} {number}".encode())).data == f"{text} {number}".upper().encode()

    async def main(there: Any) -> None:
        listener = there(serve())
        client = await connect(listener, engine)
        thread = threading.Thread(target=lambda: there(ask(client, "there")))
        thread.start()
        await ask(client, "here")
        await asyncio.get_running_loop().run_in_executor(None, thread.join)
        await client.close()
        listener.close()
        await asyncio.get_running_loop().run_in_executor(None, there, asyncio.wait(tasks))

    tasks: list[asyncio.Task[None]] = []
    with elsewhere() as there:
        run(main(there))


@engines
def test_a_loop_may_end_before_its_connections(engine: str) -> None:
    at: dict[str, Any] = {}

    async def begin() -> None:
        at["listener"] = await pymarcato.listen("127.0.0.1:0", engine=engine, identity=IDENTITY)
        at["client"], at["server"] = await asyncio.gather(connect(at["listener"], engine), at["listener"].accept())
        # The end of the loop cancels this task.
        at["task"] = asyncio.create_task(at["client"].receive())
        await asyncio.sleep(0)

    async def go_on() -> None:
        await at["server"].send(b"across loops")
        assert (await at["client"].receive()).data == b"across loops"

    run(begin())
    assert at["task"].cancelled()
    run(go_on())

    # A loop that is closed with a task in it: the message that arrives then rings for nobody.
    loop = asyncio.new_event_loop()
    task = loop.create_task(at["client"].receive())
    loop.run_until_complete(asyncio.sleep(0))
    assert not task.done()
    loop.close()
    run(go_on_after(at))
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    kept = weakref.ref(loop)
    del loop, task
    gc.collect()
    assert kept() is None
    at["client"].abort()
    at["listener"].abort()


async def go_on_after(at: dict[str, Any]) -> None:
    sent = await at["server"].send(b"after the loop")
    await sent.acknowledged()
    assert (await at["client"].receive()).data == b"after the loop"


def executed(code: str) -> subprocess.CompletedProcess[str]:
    """Executes code in a process of its own, which has to end by itself."""
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, env=environment(), text=True, timeout=60
    )


OPENED = """
import asyncio, os, sys, threading, pymarcato
async def open_():
    identity = pymarcato.Identity.self_signed("localhost")
    listener = await pymarcato.listen("127.0.0.1:0", engine={engine!r}, identity=identity)
    [address] = listener.local_addresses
    connecting = pymarcato.connect(address, engine={engine!r}, trust=identity.trust, name="localhost")
    client, server = await asyncio.gather(connecting, listener.accept())
    return listener, client, server
async def flood(client, server):
    while True:
        await client.send(bytes(10_000), priority="P4")
        await server.receive()
"""


@engines
def test_a_process_ends_while_connections_are_busy(engine: str) -> None:
    code = OPENED + (
        "async def main():\n"
        "    global kept\n"
        "    kept = await open_()\n"
        "    begun.set()\n"
        "    await flood(*kept[1:])\n"
        "begun = threading.Event()\n"
        "threading.Thread(target=asyncio.run, args=(main(),), daemon=True).start()\n"
        "begun.wait()\n"
        "async def other():\n"
        "    global more, task\n"
        "    more = await open_()\n"
        "    task = asyncio.get_running_loop().create_task(more[1].receive())\n"
        "asyncio.run(other())\n"
        "print('ended')\n"
    )
    for _ in range(5):
        done = executed(code.replace("{engine!r}", repr(engine)))
        assert (done.stdout, done.stderr, done.returncode) == ("ended\n", "", 0)


@engines
def test_a_forked_child_connects_anew(engine: str) -> None:
    code = OPENED + (
        "listener, client, server = asyncio.run(open_())\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    for used in (client.stats, lambda: asyncio.run(client.receive()), listener.close):\n"
        "        try:\n"
        "            used()\n"
        "        except RuntimeError as error:\n"
        "            assert 'connect again' in str(error)\n"
        "        else:\n"
        "            os._exit(1)\n"
        "    del listener, client, server\n"
        "    async def ask():\n"
        "        _, client, server = await open_()\n"
        "        await client.send(b'anew')\n"
        "        return (await server.receive()).data\n"
        "    sys.exit(0 if asyncio.run(ask()) == b'anew' else 2)\n"
        "_, status = os.waitpid(child, 0)\n"
        "async def go_on():\n"
        "    await client.send(b'still here')\n"
        "    return (await server.receive()).data\n"
        "print(status, asyncio.run(go_on()))\n"
    )
    done = executed(code.replace("{engine!r}", repr(engine)))
    assert (done.stdout, done.stderr, done.returncode) == ("0 b'still here'\n", "", 0)


@pytest.mark.parametrize(
    ("begin", "error", "text"),
    [
        (lambda: pymarcato.listen("127.0.0.1:0"), ValueError, "give `identity`"),
        (lambda: pymarcato.listen("127.0.0.1:0", identity=IDENTITY, plaintext=True), ValueError, "leave out"),
        (lambda: pymarcato.listen("here", identity=IDENTITY), ValueError, "127.0.0.1:4433"),
        (lambda: pymarcato.listen("192.0.2.1:0", identity=IDENTITY), pymarcato.ListenError, "192.0.2.1:0"),
        (lambda: pymarcato.listen([], identity=IDENTITY), pymarcato.ListenError, "at least one address"),
        (lambda: pymarcato.listen("127.0.0.1:0", identity=IDENTITY, drivers=0), pymarcato.ListenError, "1 to 64"),
        (lambda: pymarcato.connect("example.com"), pymarcato.ConnectError, "example.com:4433"),
        (lambda: pymarcato.connect("here:1", name="there"), ValueError, "192.0.2.1:4433"),
        (lambda: pymarcato.connect("127.0.0.1:1", engine="sctp"), ValueError, '"quic" or "tcp"'),
        (lambda: pymarcato.connect("127.0.0.1:1", coupled="maybe"), ValueError, '"auto" or "on" or "off"'),
        (lambda: pymarcato.connect("127.0.0.1:1", long_messages="cut"), ValueError, '"refuse" or "stream"'),
        (lambda: pymarcato.connect("127.0.0.1:1", limits={"queue": 1}), ValueError, "queued, unfinished"),
        (lambda: pymarcato.connect("127.0.0.1:1", limits={"queued": "many"}), ValueError, "many"),
        (lambda: pymarcato.connect("127.0.0.1:1", limits={"queued": 0}, trust=IDENTITY.trust), pymarcato.ConnectError, "zero"),
        (lambda: pymarcato.connect("127.0.0.1:1", engine="tcp", trust=IDENTITY.trust), pymarcato.ConnectError, "check the address"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_with_a_remedy(begin: Any, error: type[Exception], text: str) -> None:
    async def main() -> None:
        with pytest.raises(error, match=re.escape(text)) as caught:
            await begin()
        assert not RUST.search(str(caught.value))

    run(main())


def test_messages_that_do_not_fit_are_refused_with_a_remedy() -> None:
    async def main() -> None:
        async with pair("quic", client={"limits": {"queued": "1 MB"}}) as (client, server):
            for send, error, text in (
                (client.send("text"), TypeError, "encode text first"),  # type: ignore[arg-type]
                (client.send(b"", priority="P9"), ValueError, '"P0"'),
                (client.send(b"", lifetime="50"), ValueError, "unit"),
                (client.send(b"", lifetime=0.05), TypeError, 'write "50 ms"'),  # type: ignore[arg-type]
                (client.send(b"", lifetime=timedelta(-1)), ValueError, "above 0"),
                (client.send(bytes(2_000_000)), pymarcato.SendError, "send it with `stream`"),
                (client.send(bytes(100_000), unreliable=True), pymarcato.SendError, "send it reliably, or split it"),
                (client.send(b"", priority=5), ValueError, "`P5` is no priority"),
            ):
                with pytest.raises(error, match=re.escape(text)) as caught:
                    await send
                assert not RUST.search(str(caught.value))
            sent = await client.send(b"")
            with pytest.raises(pymarcato.DeliveryError, match="`receipt=True`") as delivery:
                await sent.received()
            assert delivery.value.kind == "no-receipt"
            assert await server.receive() is not None

    run(main())


@pytest.mark.parametrize(
    "error",
    [
        pymarcato.ConnectionClosed("text", "by-peer", 7, "noon"),
        pymarcato.ConnectError("text", "tls"),
        pymarcato.MissedError("text", 3, 4),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), "text", vars(error))


def test_examples_of_the_documentation_run() -> None:
    assert doctest.testmod(_transport).attempted > 3
    assert doctest.testmod(_transport).failed == 0
    section = (ROOT / "docs/python.md").read_text().split("## Live transport")[1]
    done = executed(section.split("```python\n")[1].split("```")[0])
    assert (done.stdout, done.stderr, done.returncode) == ("HELLO\n['P0', 'P4']\n", "", 0)
