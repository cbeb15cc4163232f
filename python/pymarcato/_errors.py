"""Exceptions of the package."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Fault:
    """One error of a scenario, with its place.

    Attributes
    ----------
    file : str
        Name of the file, or the setting: ``--set link.bottleneck.rate``.
    line, column : int
        Place, both counted from 1; 0 if the file could not even be read.
    width : int
        Number of characters that the fault covers.
    problem : str
        Problem and remedy.
    text : str
        Text of the line.
    """

    file: str
    line: int
    column: int
    width: int
    problem: str
    text: str

    @property
    def remedy(self) -> str:
        """Part of the problem that says what to do; empty if it is not separate."""
        return _split(self.problem)[1]

    @property
    def message(self) -> str:
        """Part of the problem that says what is wrong."""
        return _split(self.problem)[0]


def _split(problem: str) -> tuple[str, str]:
    """Returns a problem and its remedy, which follows a colon outside of quotes."""
    quote = ""
    for place, char in enumerate(problem):
        if quote:
            quote = "" if char == quote else quote
        elif char in "`\"":
            quote = char
        elif problem.startswith(": ", place):
            return problem[:place], problem[place + 2 :]
    return problem, ""


class Error(Exception):
    """Base of the exceptions of this package."""


class PackageError(Error, ImportError):
    """Optional package that is not installed."""


def needs(module: str, package: str) -> Any:
    """Returns a module of an optional package.

    Raises
    ------
    PackageError
        If the package is not installed, with the command that installs it.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise PackageError(f"`{package}` is not installed: pip install {package}") from error


class ScenarioError(Error, ValueError):
    """All faults of a scenario.

    Its text shows each fault with the line that contains it.

    Attributes
    ----------
    faults : tuple of Fault
        Faults in the order of the text; at least one.
    """

    faults: tuple[Fault, ...]

    def __init__(self, text: str, faults: Any = ()) -> None:
        super().__init__(text)
        self._parts = [tuple(vars(one).values()) if isinstance(one, Fault) else tuple(one) for one in faults]
        self.faults = tuple(Fault(*parts) for parts in self._parts)

    def __reduce__(self) -> Any:
        # Exceptions of workers cross processes.
        return type(self), (self.args[0], self._parts)

    def __str__(self) -> str:
        return str(self.args[0]).rstrip()


class RunError(Error, RuntimeError):
    """Failure of a run."""


class TimeLimitError(RunError):
    """Run that took longer than it was allowed to."""


class StoreError(Error, OSError):
    """Directory of a data set that cannot be used."""


class GridError(Error, ValueError):
    """Use of a scenario with several runs where one is needed, or of a grid that is none."""


class TransportError(Error):
    """Base of the exceptions of the live transport."""


class IdentityError(TransportError, ValueError):
    """Certificate, key, fingerprint or trust that cannot be used."""


class ListenError(TransportError, OSError):
    """Address at which this host cannot listen, or an invalid configuration."""


class LaneError(TransportError):
    """Lane that cannot be added or removed."""


class ChangeError(TransportError):
    """Message that can no longer be cancelled or moved to another level."""


class _KindError(TransportError):
    """Error with a kind, for programs."""

    def __init__(self, text: str, kind: str) -> None:
        super().__init__(text)
        #: Kind of the error, in one word.
        self.kind = kind

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.kind)


class ConnectError(_KindError, ConnectionError):
    """Connection that could not be established.

    Attributes
    ----------
    kind : str
        ``"config"``, ``"bind"``, ``"unknown-host"``, ``"unreachable"``, ``"tls"`` (most often an
        untrusted certificate), ``"not-plaintext"``, ``"not-tls"``, ``"protocol"``, ``"timed-out"`` or
        ``"ended"``.
    """


class SendError(_KindError):
    """Message that was not accepted for sending.

    Attributes
    ----------
    kind : str
        ``"finished"``, ``"too-long"``, ``"needs-reliable"``, ``"withdrawn"``, ``"no-datagrams"``,
        ``"discarding"``, ``"answered"`` or ``"ended"``.
    """


class DeliveryError(_KindError):
    """Message that was accepted and not delivered, or not taken by the peer.

    Attributes
    ----------
    kind : str
        ``"cancelled"``, ``"expired"`` (its lifetime ended), ``"discarded"``, ``"shed"``, ``"evicted"``,
        ``"declined"``, ``"unwanted"``, ``"not-taken"``, ``"no-receipt"`` or ``"closed"``. After the
        end of the connection, the cause of the exception is `ConnectionClosed`.
    """


class RequestError(_KindError):
    """Request without a reply.

    Attributes
    ----------
    kind : str
        ``"unanswered"``, ``"refused"`` (too many are open) or ``"closed"``.
    """


class MissedError(TransportError):
    """Message that its sender has abandoned, for example because its lifetime ended.

    Attributes
    ----------
    number : int
        Number of the sender.
    received_bytes : int
        Bytes of it that had arrived, in bytes.
    """

    def __init__(self, text: str, number: int, received_bytes: int) -> None:
        super().__init__(text)
        self.number, self.received_bytes = number, received_bytes

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.number, self.received_bytes)


class ConnectionClosed(TransportError, ConnectionError):
    """End of a connection.

    Attributes
    ----------
    kind : str
        ``"local"`` (this end has closed it), ``"by-peer"``, ``"aborted"`` (by the peer, with a code),
        ``"finished"`` (the peer sends no more) or ``"lost"``.
    code : int
        Code that the application of the peer gave; 0 if it gave none.
    reason : str
        Explanation that it gave; may be empty.
    """

    def __init__(self, text: str, kind: str, code: int = 0, reason: str = "") -> None:
        super().__init__(text)
        self.kind, self.code, self.reason = kind, code, reason

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.kind, self.code, self.reason)

    @property
    def is_orderly(self) -> bool:
        """Whether all that the peer had to send has arrived."""
        return self.kind in ("local", "by-peer", "finished")
