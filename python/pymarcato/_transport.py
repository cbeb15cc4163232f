"""Live transport: prioritised messages over QUIC or TCP, for asyncio."""

from __future__ import annotations

import asyncio
import functools
import os
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Any, Optional, Union

from . import _native
from ._errors import ConnectionClosed, MissedError
from ._native import Message
from ._waiting import result

if sys.version_info >= (3, 11):
    from typing import Self
else:
    Self = Any

PathLike = Union[str, "os.PathLike[str]"]

#: Content of a message. Only ``bytes`` is passed on without a copy in Python.
Data = Union[bytes, bytearray, memoryview]

#: Level of a message: ``"P0"`` (what the user waits for) to ``"P4"`` (background), or 0 to 4.
Priority = Union[str, int]

#: Span of time with its unit, such as ``"50 ms"``.
Span = Union[str, timedelta]

#: Size with its unit, such as ``"16 MB"``, or a number of bytes or messages.
Size = Union[str, int]

_span_ns = functools.lru_cache(maxsize=256)(_native.span_ns)


def _bytes(data: Data) -> bytes:
    if type(data) is bytes:
        return data
    try:
        return memoryview(data).tobytes()
    except TypeError:
        kind = type(data).__name__
        raise TypeError(f"a message is bytes, bytearray or memoryview, not {kind}: encode text first") from None


def _level(priority: Priority) -> str:
    return priority if isinstance(priority, str) else f"P{priority}"


def _lifetime_ns(span: Optional[Span]) -> Optional[int]:
    if span is None:
        return None
    if isinstance(span, timedelta):
        if span < timedelta(0):
            raise ValueError(f"a lifetime is not negative: give a span above 0, not {span}")
        return span // timedelta(microseconds=1) * 1000
    if isinstance(span, str):
        return _span_ns(span)
    raise TypeError(f'a lifetime needs a unit: write "50 ms" or a timedelta, not {span!r}')


class Identity:
    """Certificate of an end, and its key.

    Examples
    --------
    >>> import pymarcato
    >>> identity = pymarcato.Identity.self_signed("chat.example")
    >>> len(identity.fingerprint)
    64
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Identity) -> None:
        self._native = native

    @classmethod
    def self_signed(cls, name: str) -> Identity:
        """Creates a self-signed certificate, which clients have to pin.

        Parameters
        ----------
        name : str
            Name in the certificate.
        """
        return cls(_native.Identity.self_signed(name))

    @classmethod
    def from_pem_files(cls, chain: PathLike, key: PathLike) -> Identity:
        """Reads a chain and its key from PEM files, as authorities issue them.

        Parameters
        ----------
        chain : path
            Certificate of this end, and behind it those of intermediate authorities.
        key : path
            Key, not encrypted. Both may be in one file.

        Raises
        ------
        IdentityError
            If a file cannot be read, a part is missing, or the key is another's.
        """
        return cls(_native.Identity.from_pem_files(os.fspath(chain), os.fspath(key)))

    @classmethod
    def from_pem(cls, chain: bytes, key: bytes) -> Identity:
        """Reads a chain and its key from PEM data, like `from_pem_files`."""
        return cls(_native.Identity.from_pem(chain, key))

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate, as 64 hexadecimal digits."""
        return self._native.fingerprint

    @property
    def trust(self) -> Trust:
        """Trust in this certificate alone, for a client of this end."""
        return Trust(self._native.trust)

    @property
    def chain_pem(self) -> str:
        """Certificates in PEM."""
        return self._native.chain_pem

    @property
    def key_pem(self) -> str:
        """Key in PEM, not encrypted: only its owner may read it."""
        return self._native.key_pem

    def __repr__(self) -> str:
        return f"<pymarcato.Identity: {self.fingerprint}>"


class Trust:
    """Certificates that an end accepts of its peer."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Trust) -> None:
        self._native = native

    @classmethod
    def fingerprint(cls, fingerprint: str) -> Trust:
        """Pins a certificate.

        Parameters
        ----------
        fingerprint : str
            SHA-256 of the certificate, as 64 hexadecimal digits, with or without colons.
        """
        return cls(_native.Trust.fingerprint(fingerprint))

    @classmethod
    def from_pem_file(cls, authorities: PathLike) -> Trust:
        """Accepts certificates that authorities in a PEM file have signed."""
        return cls(_native.Trust.from_pem_file(os.fspath(authorities)))

    @classmethod
    def from_pem(cls, authorities: bytes) -> Trust:
        """Accepts certificates that authorities in PEM data have signed."""
        return cls(_native.Trust.from_pem(authorities))

    @classmethod
    def system(cls) -> Trust:
        """Accepts certificates that the system's authorities have signed. This is the default of `connect`."""
        return cls(_native.Trust.system())


@dataclass(frozen=True)
class LaneStats:
    """State of a lane. Values that the engine does not report are zero.

    Attributes
    ----------
    id : int
        Number within the connection.
    local_address, remote_address : str or None
        Addresses; ``None`` if the engine does not report them.
    layer : str
        Class in which the network serves it: ``"high"`` or ``"low"``.
    is_usable : bool
        Whether it carries data now.
    srtt_ms : float
        Smoothed round-trip time, in ms.
    cwnd_bytes, in_flight_bytes : int
        Congestion window, and bytes in flight, in bytes.
    backlog_bytes : int
        Bytes handed over to the kernel and not sent.
    sent_packets, sent_bytes : int
        Data packets sent, including retransmissions, and their bytes.
    lost_packets : int
        Packets lost; over TCP, packets retransmitted.
    """

    id: int
    local_address: Optional[str]
    remote_address: Optional[str]
    layer: str
    is_usable: bool
    srtt_ms: float
    cwnd_bytes: int
    in_flight_bytes: int
    backlog_bytes: int
    sent_packets: int
    sent_bytes: int
    lost_packets: int


@dataclass(frozen=True)
class LevelStats:
    """Outcomes of the messages of one level.

    Attributes
    ----------
    priority : str
        Level.
    queued_messages, queued_bytes : int
        Messages and bytes that wait.
    sent_messages, sent_bytes : int
        Messages and bytes handed to the engine.
    unfinished_messages : int
        Messages that have not been delivered.
    expired_messages : int
        Messages whose lifetime ended before they were sent.
    dropped_messages : int
        Messages that were cancelled, discarded, shed or evicted.
    received_messages, received_bytes : int
        Messages received whole, and bytes received.
    """

    priority: str
    queued_messages: int
    queued_bytes: int
    sent_messages: int
    sent_bytes: int
    unfinished_messages: int
    expired_messages: int
    dropped_messages: int
    received_messages: int
    received_bytes: int


@dataclass(frozen=True)
class ConnectionStats:
    """State of a connection; after its end, the last one.

    Attributes
    ----------
    lanes : tuple of LaneStats
        Lanes; over TCP one.
    levels : tuple of LevelStats
        Levels, P0 first.
    received_bytes : int
        Bytes of payload received.
    missed_messages : int
        Messages that the peer abandoned.
    unread_peak_bytes : int
        Largest number of bytes that waited for the application.
    reading_stops : int
        Times that reading stopped because the application had not taken messages.
    coupled_mode : str or None
        Mode of coupled mode: ``"startup"``, ``"steady"``, ``"compete"``, ``"test"``, ``"squeeze"`` or ``"lift"``;
        ``None`` until it acts.
    coupled_cap_bytes : int or None
        Bound on the bytes in flight while only background data waits.
    """

    lanes: tuple[LaneStats, ...]
    levels: tuple[LevelStats, ...]
    received_bytes: int
    missed_messages: int
    unread_peak_bytes: int
    reading_stops: int
    coupled_mode: Optional[str]
    coupled_cap_bytes: Optional[int]


@dataclass(frozen=True)
class ListenerStats:
    """Load and counters of a listener.

    Attributes
    ----------
    connections, handshakes : int
        Current connections, and handshakes in progress.
    held_bytes : int
        Bytes of received data that the connections hold.
    accepted, refused, crowded, retried, failed : int
        Peers accepted; refused at the limit of connections; refused because too many of their address
        were in their handshake; asked to prove their address; and handshakes that failed.
    """

    connections: int
    handshakes: int
    held_bytes: int
    accepted: int
    refused: int
    crowded: int
    retried: int
    failed: int


class Sent:
    """Handle of a message that was accepted for sending. The message is sent without it, too."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Sent) -> None:
        self._native = native

    async def acknowledged(self) -> None:
        """Waits until the peer's transport has the message.

        Its application may not have taken it: see `received`.

        Raises
        ------
        DeliveryError
            If it will not be delivered, or the connection has ended.
        """
        await result(self._native.acknowledged())

    async def received(self) -> None:
        """Waits until the peer's application has taken a message that was sent with ``receipt=True``.

        Raises
        ------
        DeliveryError
            If the application discarded it, the connection ended before, or no receipt was asked for.
        """
        await result(self._native.received())

    def cancel(self) -> None:
        """Cancels the message, if part of it is still queued.

        Raises
        ------
        ChangeError
            If all of it has left the queue.
        """
        self._native.cancel()

    def reprioritise(self, priority: Priority) -> None:
        """Moves the queued rest of the message to another level.

        Parameters
        ----------
        priority : str or int
            ``"P0"`` to ``"P4"``.

        Raises
        ------
        ChangeError
            If all of it has left the queue, or the level is being discarded.
        """
        self._native.reprioritise(_level(priority))


class Request:
    """Request of the peer. One that is dropped without a reply fails at the peer."""

    __slots__ = ("_native", "message")

    #: Message of the request.
    message: Message

    def __init__(self, native: _native.Request) -> None:
        self._native = native
        self.message = native.message

    @property
    def data(self) -> bytes:
        """Content of the request."""
        return self.message.data

    @property
    def priority(self) -> str:
        """Level of the request, ``"P0"`` to ``"P4"``."""
        return self.message.priority

    async def reply(self, data: Data, priority: Optional[Priority] = None, lifetime: Optional[Span] = None) -> Sent:
        """Queues the reply as soon as there is room for it.

        A request is answered once. If this is cancelled before there is room, there is no reply.

        Parameters
        ----------
        data : bytes, bytearray or memoryview
            Content.
        priority : str or int, optional
            Level of the reply; that of the request if not given.
        lifetime : str or timedelta, optional
            As for `Connection.send`.

        Raises
        ------
        SendError
            If the peer wants no reply any more, or the request has been answered.
        """
        level = self.priority if priority is None else _level(priority)
        properties = (level, _lifetime_ns(lifetime), False, False, False)
        return Sent(await result(self._native.reply(_bytes(data), properties)))

    def decline(self) -> None:
        """Tells the peer that there is no reply.

        Raises
        ------
        SendError
            If the request has been answered.
        """
        self._native.decline()

    def __repr__(self) -> str:
        return f"<pymarcato.Request: {len(self.message)} bytes of {self.priority}>"


class MessageWriter:
    """Message that is sent piece by piece, because it is long or not complete yet.

    As a context manager it is finished at the end, and cancelled after an exception.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Writer) -> None:
        self._native = native

    async def write(self, data: Data) -> None:
        """Waits for room, and accepts the next bytes. If it is cancelled, it has accepted none."""
        await result(self._native.write(_bytes(data)))

    async def finish(self) -> None:
        """Waits for room for the rest, and ends the message."""
        await result(self._native.finish())

    async def acknowledged(self) -> None:
        """Waits until the peer's transport has all of the message; `finish` it before."""
        await result(self._native.acknowledged())

    async def received(self) -> None:
        """Waits until the peer's application has taken the last piece; needs ``receipt=True``."""
        await result(self._native.received())

    def cancel(self) -> None:
        """Cancels the message. If part of it has left, the receiver is informed."""
        self._native.cancel()

    def reprioritise(self, priority: Priority) -> None:
        """Moves the queued rest of the message, and later pieces, to another level."""
        self._native.reprioritise(_level(priority))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is None:
            await self.finish()
        else:
            self.cancel()


class MessageReader:
    """Long message that is read while it arrives: an asynchronous iterator of its pieces, each ``bytes``."""

    __slots__ = ("_native",)

    def __init__(self, native: _native.Pieces) -> None:
        self._native = native

    @property
    def priority(self) -> str:
        """Level given by the sender, ``"P0"`` to ``"P4"``."""
        return self._native.priority

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        piece: Optional[bytes] = await result(self._native.next())
        if piece is None:
            raise StopAsyncIteration
        return piece


class Connection:
    """Connection to a peer: messages in both directions.

    It is an asynchronous iterator of the messages that arrive, the most urgent first. The iteration
    ends when the peer closes the connection or finishes sending, and raises `ConnectionClosed` if the
    connection was lost or aborted.

    As a context manager it is closed at the end, which waits until everything sent is acknowledged. It
    is aborted after an exception. A connection that is dropped is aborted, too.

    Each method that waits can be cancelled without loss: what arrives at that moment is returned by
    the next call. Several tasks, also in event loops of other threads, may use a connection at once.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Connection) -> None:
        self._native = native

    async def send(
        self,
        data: Data,
        priority: Priority = "P2",
        lifetime: Optional[Span] = None,
        unreliable: bool = False,
        receipt: bool = False,
        partial_ok: bool = False,
    ) -> Sent:
        """Queues a message as soon as there is room at its level.

        Messages leave in the order of their priority at the moment of sending, and in no order relative
        to others of their level.

        Parameters
        ----------
        data : bytes, bytearray or memoryview
            Content, which may be empty.
        priority : str or int
            ``"P0"`` (what the user waits for) to ``"P4"`` (background), or 0 to 4.
        lifetime : str or timedelta, optional
            Span for which it is worth sending, such as ``"50 ms"``; always if not given.
        unreliable : bool
            Whether it may be lost. Over QUIC it then travels in one datagram
            (`max_unreliable_bytes`), over TCP like any other message.
        receipt : bool
            Whether the peer reports when its application has taken it (`Sent.received`).
        partial_ok : bool
            Whether it may be abandoned after a part of it has left.

        Returns
        -------
        Sent
            Handle, which waits for the delivery or cancels it.

        Raises
        ------
        SendError
            If the message cannot be sent at all.
        ConnectionClosed
            If the connection has ended or is closing.
        """
        properties = (_level(priority), _lifetime_ns(lifetime), unreliable, receipt, partial_ok)
        return Sent(await result(self._native.send(_bytes(data), properties)))

    async def receive(self) -> Message:
        """Waits for a message that has wholly arrived, and takes the most urgent.

        Raises
        ------
        ConnectionClosed
            If the connection has ended, or the peer has finished sending.
        """
        message: Message = await result(self._native.receive())
        return message

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        try:
            return await self.receive()
        except ConnectionClosed as end:
            if end.is_orderly:
                raise StopAsyncIteration from None
            raise

    async def request(self, data: Data, priority: Priority = "P2", lifetime: Optional[Span] = None) -> Message:
        """Sends a request, and waits for the reply.

        If it is cancelled, the request is withdrawn, and the peer learns of it.

        Parameters
        ----------
        data : bytes, bytearray or memoryview
            Content.
        priority : str or int
            ``"P0"`` to ``"P4"``. The reply has a priority of its own.
        lifetime : str or timedelta, optional
            As for `send`.

        Raises
        ------
        RequestError
            If the peer does not reply, or the connection ends before the reply.
        SendError, DeliveryError, ConnectionClosed
            If the request cannot be sent or delivered.
        """
        properties = (_level(priority), _lifetime_ns(lifetime), False, False, False)
        reply: Message = await result(self._native.request(_bytes(data), properties))
        return reply

    async def accept_request(self) -> Request:
        """Waits for a request of the peer, and takes the most urgent. `receive` returns no requests.

        Raises
        ------
        ConnectionClosed
            If the connection has ended.
        """
        return Request(await result(self._native.accept_request()))

    async def requests(self) -> AsyncIterator[Request]:
        """Iterates over the requests of the peer, until it closes the connection.

        Raises
        ------
        ConnectionClosed
            If the connection was lost or aborted.
        """
        while True:
            try:
                request = await self.accept_request()
            except ConnectionClosed as end:
                if end.is_orderly:
                    return
                raise
            yield request

    def stream(self, priority: Priority = "P2", receipt: bool = False) -> MessageWriter:
        """Begins a message that is sent piece by piece. Up to 128 KiB wait until it is finished.

        A receiver with ``long_messages="stream"`` reads it while it arrives, if it is longer than the
        limit ``max_message``.

        Parameters
        ----------
        priority : str or int
            ``"P0"`` to ``"P4"``.
        receipt : bool
            As for `send`.

        Raises
        ------
        ConnectionClosed
            If the connection has ended or is closing.
        """
        return MessageWriter(self._native.stream(_level(priority), receipt))

    async def accept_stream(self) -> MessageReader:
        """Waits for the next long message that begins to arrive; needs ``long_messages="stream"``.

        Raises
        ------
        ConnectionClosed
            If the connection has ended.
        """
        return MessageReader(await result(self._native.accept_stream()))

    async def missed(self) -> MissedError:
        """Waits for the next message that the peer has abandoned, and returns its description.

        Raises
        ------
        ConnectionClosed
            If the connection has ended.
        """
        missed: MissedError = await result(self._native.missed())
        return missed

    async def finish(self) -> None:
        """Sends no more messages, and waits until all are acknowledged. The peer can go on sending."""
        await result(self._native.finish())

    async def close(self, code: int = 0, reason: str = "") -> None:
        """Ends the connection when all messages are acknowledged.

        A peer that takes nothing more can hold this up: set a timeout, and `abort` after it. Cancelling
        does not undo it.

        Parameters
        ----------
        code : int
            Code for the application of the peer, 0 to 2³² − 1.
        reason : str
            Explanation for people. The first 512 bytes count.

        Raises
        ------
        ConnectionClosed
            If the connection ended before everything was delivered.
        """
        await result(self._native.close(code, reason))

    def abort(self, code: Optional[int] = None, reason: str = "") -> None:
        """Ends the connection now. Messages that are not delivered may be lost.

        Parameters
        ----------
        code : int, optional
            Code for the application of the peer. Without one, the peer learns that the connection was
            lost.
        reason : str
            Explanation for people.
        """
        self._native.abort(None if code is None else (code, reason))

    async def closed(self) -> ConnectionClosed:
        """Waits until the connection has ended, and returns the exception that describes the end."""
        end: ConnectionClosed = await result(self._native.closed())
        return end

    def discard_less_urgent_than(self, threshold: Priority) -> None:
        """Refuses messages less urgent than a level from now on, and drops those queued.

        Parameters
        ----------
        threshold : str or int
            Least urgent level that is accepted; ``"P4"`` accepts all again.
        """
        self._native.discard_less_urgent_than(_level(threshold))

    def add_lane(self, remote: str, local: Optional[str] = None, layer: str = "high", backup: bool = False) -> None:
        """Adds a lane of a QUIC connection, at a client.

        Parameters
        ----------
        remote : str
            Address of the server for this lane, such as ``"192.0.2.1:4433"``.
        local : str, optional
            Address of this host, usually of another interface; with port 0 the system chooses one.
        layer : str
            Class in which the network should serve it: ``"high"`` or ``"low"``.
        backup : bool
            Whether it is used only while no other is available.

        Raises
        ------
        LaneError
            Over TCP, at a server, at the limit of lanes, or if the system refuses the address.
        """
        if layer not in ("high", "low"):
            raise ValueError(f'`layer` is "high" or "low", not {layer!r}')
        self._native.add_lane(remote, local, layer == "low", backup)

    def remove_lane(self, lane: int) -> None:
        """Closes a lane. Its packets in flight are sent again on other lanes.

        Parameters
        ----------
        lane : int
            Number of the lane, as in `stats`.

        Raises
        ------
        LaneError
            Over TCP, if there is no such lane, or it is the last.
        """
        self._native.remove_lane(lane)

    def stats(self) -> ConnectionStats:
        """Returns the state and the counters."""
        values = self._native.stats()
        lanes = tuple(LaneStats(**lane) for lane in values.pop("lanes"))
        levels = tuple(LevelStats(**level) for level in values.pop("levels"))
        return ConnectionStats(lanes, levels, **values)

    @property
    def remote_address(self) -> Optional[str]:
        """Address of the peer: over QUIC, that of the first lane."""
        return self._native.remote_address

    @property
    def peer_fingerprint(self) -> Optional[str]:
        """Fingerprint of the certificate that the peer has proved; ``None`` if it presented none."""
        return self._native.peer_fingerprint

    @property
    def alpn(self) -> Optional[str]:
        """Protocol of the application that was negotiated; ``None`` in plaintext."""
        return self._native.alpn

    @property
    def max_unreliable_bytes(self) -> Optional[int]:
        """Length of the longest unreliable message that can be sent now; ``None`` if the peer takes none."""
        return self._native.max_unreliable_bytes

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None:
            self.abort()
            return
        try:
            await self.close()
        except ConnectionClosed as end:
            if not end.is_orderly:
                raise
        except asyncio.CancelledError:
            # Nobody else will close it.
            self.abort()
            raise

    def __repr__(self) -> str:
        return f"<pymarcato.Connection: {self.remote_address}>"


class Listener:
    """Endpoint to which peers connect: an asynchronous iterator of their connections.

    As a context manager it is closed at the end, which waits for the end of its connections, and
    aborted after an exception.
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Listener) -> None:
        self._native = native

    @property
    def local_addresses(self) -> list[str]:
        """Addresses that peers can connect to, with the ports that the system has chosen."""
        return self._native.local_addresses

    async def accept(self) -> Connection:
        """Waits for the next peer that connects.

        Raises
        ------
        ConnectionClosed
            If the listener is closed.
        """
        native = await result(self._native.accept())
        if native is None:
            raise ConnectionClosed("the listener is closed: listen again", "local")
        return Connection(native)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Connection:
        try:
            return await self.accept()
        except ConnectionClosed:
            raise StopAsyncIteration from None

    def set_identity(self, identity: Identity) -> None:
        """Presents another identity in handshakes from now on, for example with a renewed certificate."""
        self._native.set_identity(identity._native)

    def stats(self) -> ListenerStats:
        """Returns the load and the counters."""
        return ListenerStats(**self._native.stats())

    def close(self, code: int = 0, reason: str = "") -> None:
        """Accepts no more peers, and ends each connection once everything sent on it is acknowledged.

        Parameters
        ----------
        code : int
            Code for the applications of the peers, 0 to 2³² − 1.
        reason : str
            Explanation for people.
        """
        self._native.close(code, reason)

    def abort(self, code: Optional[int] = None, reason: str = "") -> None:
        """Accepts no more peers, and ends all connections at once.

        Parameters
        ----------
        code : int, optional
            Code for the applications of the peers. Without one, they learn that the connection was lost.
        reason : str
            Explanation for people.
        """
        self._native.abort(None if code is None else (code, reason))

    async def wait_closed(self) -> None:
        """Waits until every connection accepted so far has ended."""
        await result(self._native.wait_idle())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is not None:
            self.abort()
            return
        self.close()
        try:
            await self.wait_closed()
        except asyncio.CancelledError:
            self.abort()
            raise

    def __repr__(self) -> str:
        return f"<pymarcato.Listener: {', '.join(self.local_addresses)}>"


def _settings(
    engine: str,
    alpn: Iterable[str],
    coupled: str,
    layered: bool,
    long_messages: str,
    limits: Optional[Mapping[str, Size]],
    drivers: int = 1,
) -> dict[str, Any]:
    sizes = {name: _native.size_bytes(size) if isinstance(size, str) else size for name, size in (limits or {}).items()}
    return {
        "engine": engine,
        "alpn": list(alpn),
        "coupled": coupled,
        "layered": layered,
        "long_messages": long_messages,
        "limits": sizes,
        "drivers": drivers,
    }


async def connect(
    address: str,
    *,
    engine: str = "quic",
    trust: Optional[Trust] = None,
    identity: Optional[Identity] = None,
    name: Optional[str] = None,
    plaintext: bool = False,
    alpn: Iterable[str] = ("marcato/2",),
    coupled: str = "auto",
    layered: bool = False,
    long_messages: str = "refuse",
    limits: Optional[Mapping[str, Size]] = None,
) -> Connection:
    """Connects to a server.

    Parameters
    ----------
    address : str
        Host and port, such as ``"example.com:4433"`` or ``"[2001:db8::1]:4433"``. All addresses of a
        name are tried (RFC 8305).
    engine : str
        ``"quic"`` or ``"tcp"``.
    trust : Trust, optional
        Certificates to accept; those that the system trusts if not given.
    identity : Identity, optional
        Certificate for a server that asks for one.
    name : str, optional
        Name in the server's certificate; the host if not given. Needs an IP address as host.
    plaintext : bool
        Neither encryption nor authentication. Only over TCP, for links that are protected otherwise.
    alpn : iterable of str
        Names of the application's protocols (RFC 7301).
    coupled : str
        Coupled mode: ``"auto"``, ``"on"`` or ``"off"``.
    layered : bool
        Whether each lane gets one of the lower-effort class. Both ends have to set it; only over QUIC.
    long_messages : str
        Handling of messages longer than the limit ``max_message``: ``"refuse"`` loses the connection,
        ``"stream"`` hands them out piece by piece (`Connection.accept_stream`).
    limits : mapping, optional
        Bounds of memory by name, in bytes (or with a unit, ``"16 MB"``) or messages: ``queued``,
        ``unfinished``, ``streamed``, ``max_message``, ``open_messages``, ``open``, ``unread``,
        ``unread_messages``, ``surplus``, ``unreliable``, ``missed``, ``memory``, ``receipts`` and
        ``requests``.

    Returns
    -------
    Connection
        Connection whose first lane carries messages.

    Raises
    ------
    ConnectError
        If the server cannot be reached, or its certificate is not accepted.
    ValueError
        If an argument does not fit.

    Examples
    --------
    >>> import asyncio, pymarcato
    >>> async def shout(text: str) -> str:
    ...     identity = pymarcato.Identity.self_signed("localhost")
    ...     listener = await pymarcato.listen("127.0.0.1:0", identity=identity)
    ...     async def serve() -> None:
    ...         async for connection in listener:
    ...             async for request in connection.requests():
    ...                 await request.reply(request.data.upper())
    ...     server = asyncio.create_task(serve())
    ...     [address] = listener.local_addresses
    ...     async with await pymarcato.connect(address, name="localhost", trust=identity.trust) as connection:
    ...         reply = await connection.request(text.encode(), priority="P0")
    ...     listener.close()
    ...     await server
    ...     return reply.data.decode()
    >>> asyncio.run(shout("hello"))
    'HELLO'
    """
    settings = _settings(engine, alpn, coupled, layered, long_messages, limits)
    native_trust = None if trust is None else trust._native
    native_identity = None if identity is None else identity._native
    return Connection(await result(_native.connect(address, settings, name, native_trust, native_identity, plaintext)))


async def listen(
    addresses: Union[str, Iterable[str]],
    *,
    engine: str = "quic",
    identity: Optional[Identity] = None,
    clients: Iterable[Trust] = (),
    plaintext: bool = False,
    alpn: Iterable[str] = ("marcato/2",),
    coupled: str = "auto",
    layered: bool = False,
    long_messages: str = "refuse",
    limits: Optional[Mapping[str, Size]] = None,
    drivers: int = 1,
) -> Listener:
    """Lets peers connect.

    Parameters
    ----------
    addresses : str or iterable of str
        Addresses of this host with a port: ``"127.0.0.1:0"`` (port 0: the system chooses one), or
        ``":4433"`` for all addresses.
    engine : str
        ``"quic"`` or ``"tcp"``.
    identity : Identity
        Certificate to present; required unless `plaintext` is set.
    clients : iterable of Trust
        Certificates that clients have to present; none if empty.
    plaintext : bool
        Neither encryption nor authentication. Only over TCP, for links that are protected otherwise.
    alpn, coupled, layered, long_messages, limits
        As for `connect`.
    drivers : int
        Tasks that drive the connections of a QUIC endpoint, 1 to 64, each on a core of its own.

    Returns
    -------
    Listener
        Endpoint that accepts connections.

    Raises
    ------
    ListenError
        If the system refuses an address, or the configuration is invalid.
    ValueError
        If an argument does not fit.
    """
    if identity is None and not plaintext:
        raise ValueError("a server needs a certificate: give `identity`, for example Identity.self_signed(\"localhost\")")
    if identity is not None and plaintext:
        raise ValueError("a server in plaintext presents no certificate: leave out `identity` or `plaintext`")
    settings = _settings(engine, alpn, coupled, layered, long_messages, limits, drivers)
    at = [addresses] if isinstance(addresses, str) else list(addresses)
    accepted = [trust._native for trust in clients]
    native_identity = None if identity is None else identity._native
    return Listener(await result(_native.listen(at, settings, native_identity, accepted)))
