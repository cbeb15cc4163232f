"""Congestion controls, lane schedulers and workloads written in Python."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar, NamedTuple, Optional, Union

from . import _native
from ._native import Ack, Lane, Packet, Random, Start


class CongestionControl:
    """Base of congestion controls of TCP in scenarios.

    A scenario names the class by `name` (``congestion = "aimd"``), and gives its `parameters` as keys
    of a table; ``-`` in a key becomes ``_``. Each sender has an instance of its own. After each call
    the sender reads `cwnd` and `ssthresh`.

    All sizes are in bytes and all times in integer nanoseconds.

    Attributes
    ----------
    name : str
        Name in scenarios.
    parameters : tuple of str
        Names of parameters, which the constructor receives as keywords.
    cwnd : int
        Congestion window, in bytes.
    ssthresh : int
        Slow start threshold, in bytes.
    pacing_rate_bps : int or None
        Pacing rate, in bit/s.
    uses_prr : bool
        Whether recovery uses proportional rate reduction (RFC 6937); read once.
    limits_itself : bool
        Whether samples of the delivery rate count as limited by the application; read once.
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple[str, ...]] = ()
    cwnd: int
    ssthresh: int
    pacing_rate_bps: Optional[int] = None
    uses_prr: bool = True
    limits_itself: bool = False

    def __init__(self, start: Start) -> None:
        self.cwnd, self.ssthresh = start.initial_cwnd, start.initial_ssthresh

    def on_ack(self, ack: Ack) -> None:
        """Handles an acknowledgement."""

    def on_congestion(self, now_ns: int, in_flight: int, signal: str) -> None:
        """Handles the first loss or ECN echo in a window; `signal` is ``loss`` or ``ecn``."""

    def on_recovered(self, now_ns: int) -> None:
        """Handles the end of recovery or reduction; not called after a timeout."""

    def on_rto(self, now_ns: int, in_flight: int, first: bool) -> None:
        """Handles an expiry of the retransmission timer; `first` is false for a repeated one."""

    def on_idle_restart(self, now_ns: int, app_limited: bool, expired: bool) -> None:
        """Handles the resumption of sending after an idle time."""

    def on_established(self, now_ns: int, rtt_ns: Optional[int]) -> None:
        """Handles the end of the handshake."""

    def on_echo(self, newly_acked: int, una: int, nxt: int, ece: bool) -> None:
        """Handles progress of the acknowledgements, with or without an ECN echo."""

    def on_idle_decay(self, timeouts: int) -> None:
        """Handles an idle time of more than `timeouts` retransmission timeouts."""


class LaneScheduler:
    """Base of lane schedulers of QUIC sessions in scenarios.

    A scenario names the class by `name` (``scheduler = "cheapest"``). Each session has an instance of
    its own, which is created with the parameters as keywords.
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple[str, ...]] = ()

    def choose(self, now_ns: int, lanes: list[Lane], packet: Packet) -> Union[int, list[int], None]:
        """Chooses among the lanes that the packet may take.

        Returns
        -------
        int, list of int or None
            Id of a lane, ids of several for a copy on each, or ``None`` to wait. A lane without room for
            the packet is waited for.
        """
        raise NotImplementedError

    def sent(self, now_ns: int, lane: Lane, packet: Packet) -> None:
        """Records that the packet was sent."""

    def acked(self, now_ns: int, lane: int, length: int) -> None:
        """Records that `length` bytes on this lane were acknowledged."""

    def lost(self, now_ns: int, lane: int) -> None:
        """Records a loss on this lane."""


class Release(NamedTuple):
    """Message of a workload.

    Attributes
    ----------
    gap_ns : int
        Time from the message before, or from the start of the flow, in ns.
    size : int
        Length, in bytes; at least 16.
    priority : int
        Urgency, 0 (critical) to 4 (background).
    lifetime_ns : int or None
        Time for which it is worth sending, in ns; ``None`` for always.
    """

    gap_ns: int
    size: int
    priority: int = 2
    lifetime_ns: Optional[int] = None


class Workload:
    """Base of workloads: sources of the messages of a flow.

    A flow of kind ``messages`` or ``quic`` names the class by `name` (``workload = "pages"``). Each
    flow has an instance of its own, which is created with the parameters as keywords. It cannot observe
    the network: its messages are released before the run begins.

    Examples
    --------
    >>> import pymarcato
    >>> class Chat(pymarcato.Workload):
    ...     name = "chat"
    ...     def next(self, now_ns, random):
    ...         return pymarcato.Release(random.exponential_ns(60_000_000_000), 20 + random.below(200), priority=0)
    """

    name: ClassVar[str] = ""
    parameters: ClassVar[tuple[str, ...]] = ()

    def next(self, now_ns: int, random: Random) -> Optional[Release]:
        """Returns the next message; ``None`` after the last.

        Parameters
        ----------
        now_ns : int
            Release time of the message before, or the start of the flow, in ns.
        random : Random
            Random numbers of this flow, which depend on the seed of the run and the flow's name.
        """
        raise NotImplementedError


#: Class of a plug-in.
Plugin = Union[type[CongestionControl], type[LaneScheduler], type[Workload]]


def described(plugin: Plugin) -> _native.PluginParts:
    """Returns a class as the native half takes it."""
    kinds = {CongestionControl: "congestion", LaneScheduler: "scheduler", Workload: "workload"}
    kind = next((kind for base, kind in kinds.items() if isinstance(plugin, type) and issubclass(plugin, base)), None)
    if kind is None:
        raise TypeError(f"a plug-in is a subclass of CongestionControl, LaneScheduler or Workload, not {plugin!r}")
    return kind, plugin.name, list(plugin.parameters), plugin, _code(plugin)


def _code(plugin: type[Any]) -> str:
    """Returns a text that changes with the code of a class, as far as it is known.

    Functions that the class calls are not part of it.
    """
    try:
        return inspect.getsource(plugin)
    except (OSError, TypeError):
        return f"{plugin.__module__}.{plugin.__qualname__}"
