"""Exceptions of the package."""

from __future__ import annotations

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


class GridError(Error, ValueError):
    """Use of a scenario with several runs where one is needed, or of a grid that is none."""
