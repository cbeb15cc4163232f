"""Scenarios."""

from __future__ import annotations

import html
import operator
import os
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Optional, Union

from . import _native, _toml
from ._errors import GridError
from ._plugin import Plugin, described
from ._result import PathLike, Result
from ._toml import Value


class Scenario:
    """Description of an experiment, read and checked.

    A scenario does not change: `set` returns another one. It contains the files that it names, so it
    can be pickled and run anywhere.

    Examples
    --------
    >>> import pymarcato
    >>> scenario = pymarcato.Scenario.from_dict({
    ...     "name": "one-flow",
    ...     "duration": "5 s",
    ...     "topology": {"kind": "dumbbell", "rate": "10 Mbit/s", "delay": "20 ms"},
    ...     "flow": [{"name": "bulk", "kind": "tcp", "from": "client-1", "to": "server-1"}],
    ... })
    >>> result = scenario.set("topology.rate", "5 Mbit/s").run()
    >>> 4.0 < result.flows["goodput_mbit_per_s"][0] < 5.0
    True
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Scenario) -> None:
        self._native = native

    @classmethod
    def from_file(cls, path: PathLike, plugins: Iterable[Plugin] = ()) -> Scenario:
        """Reads a scenario from a file, and the traces that it names.

        Parameters
        ----------
        path : path
            File in the format of ``docs/scenarios.md``.
        plugins : iterable of classes
            Congestion controls, lane schedulers and workloads that the scenario may name.

        Raises
        ------
        ScenarioError
            With all faults of the file, each with line, column and remedy.
        """
        return cls(_native.Scenario.load(os.fspath(path), _described(plugins)))

    @classmethod
    def from_str(
        cls,
        text: str,
        name: str = "<string>",
        files: Optional[Mapping[str, str]] = None,
        plugins: Iterable[Plugin] = (),
    ) -> Scenario:
        """Reads a scenario from text.

        Parameters
        ----------
        text : str
            Text of a scenario file.
        name : str
            Path in messages. Files that the scenario names are relative to its directory.
        files : mapping, optional
            Contents of files that the scenario names, instead of those of the file system.
        plugins : iterable of classes
            As for `from_file`.

        Raises
        ------
        ScenarioError
            With all faults of the text.
        """
        if not isinstance(text, str):
            raise TypeError(f"the text of a scenario is a string, not {type(text).__name__}: decode it, or use `from_dict`")
        return cls(_native.Scenario(name, _toml.checked(text), [], None, dict(files or {}), _described(plugins)))

    @classmethod
    def from_dict(
        cls,
        scenario: Mapping[str, Any],
        files: Optional[Mapping[str, str]] = None,
        plugins: Iterable[Plugin] = (),
    ) -> Scenario:
        """Reads a scenario from a dictionary with the keys of a scenario file.

        Parameters
        ----------
        scenario : mapping
            Keys of the file. Quantities are text with a unit, as in a file: ``"20 ms"``.
        files : mapping, optional
            As for `from_str`.
        plugins : iterable of classes
            As for `from_file`.

        Raises
        ------
        ScenarioError
            With all faults. Their places are those in the text of the scenario, which each fault
            quotes.
        """
        text = _toml.document(scenario)
        return cls(_native.Scenario("<dict>", text, [], None, dict(files or {}), _described(plugins)))

    def set(self, path: str, value: Value) -> Scenario:
        """Returns a copy with another value; the scenario itself stays the same.

        Parameters
        ----------
        path : str
            Key, for example ``topology.rate``, ``link.bottleneck.queue`` or ``flow.bulk.size``.
        value : str, int, float, bool, list or dict
            Value. Text is read as after ``marcato sim --set KEY=``.

        Raises
        ------
        ScenarioError
            If the key or the value does not fit.
        """
        if not isinstance(path, str):
            raise TypeError(f"a key of a scenario is a string, not {path!r}")
        return Scenario(self._native.with_settings([f"{_toml.checked(path)}={_toml.spoken(value)}"], None))

    def with_seed(self, seed: int) -> Scenario:
        """Returns a copy with this seed, of which the grid then varies none."""
        return Scenario(self._native.with_settings([], seed_of(seed)))

    @property
    def name(self) -> str:
        """Name of the scenario."""
        return self._native.name

    @property
    def about(self) -> str:
        """Description in one line; may be empty."""
        return self._native.about

    @property
    def duration_s(self) -> float:
        """Duration of a run, in seconds of virtual time."""
        return self._native.duration_s

    @property
    def seed(self) -> int:
        """Seed of a run that names none."""
        return self._native.seed

    @property
    def num_runs(self) -> int:
        """Number of runs: every combination of the scenario's grid with every seed."""
        return self._native.count

    def to_toml(self) -> str:
        """Returns the experiment as a scenario file with every default, and without the grid."""
        return self._native.toml

    def explain(self) -> str:
        """Returns what would run, in words, as ``marcato sim --explain`` prints it."""
        return self._native.explain()

    def run(self, seed: Optional[int] = None, time_limit: Union[str, timedelta, None] = None) -> Result:
        """Runs the scenario in virtual time.

        The interpreter's lock is released while it runs, unless it has plug-ins, so threads run in
        parallel. Ctrl-C ends the run with `KeyboardInterrupt`. An exception of a plug-in ends it, too.

        Parameters
        ----------
        seed : int, optional
            Seed of all random numbers; that of the scenario by default, which is 1 if it names none.
        time_limit : str or timedelta, optional
            Longest wall-clock time, for example ``"60 s"``. A handler of a plug-in is not interrupted.

        Returns
        -------
        Result
            Values that ``marcato sim`` prints, to the last bit.

        Raises
        ------
        GridError
            If the scenario has several runs: use `pymarcato.sweep`.
        RunError
            If the run fails; a `TimeLimitError` if it takes longer than `time_limit`.
        """
        native = self._native if seed is None else self._native.with_settings([], seed_of(seed))
        if native.count != 1:
            raise GridError(
                f"the scenario `{self.name}` is a grid of {native.count} runs: run it with pymarcato.sweep, "
                "or set the keys that vary"
            )
        return Result(native.run(0, True, limit_ns(time_limit)))

    def __reduce__(self) -> Any:
        return _read, (*self._native.parts(), self._native.plugins())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Scenario):
            return NotImplemented
        ours, theirs = self._native, other._native
        return ours.parts() == theirs.parts() and ours.plugins() == theirs.plugins()

    def __hash__(self) -> int:
        name, text, settings, seed, _ = self._native.parts()
        return hash((name, text, tuple(settings), seed))

    def __repr__(self) -> str:
        runs = "" if self.num_runs == 1 else f", {self.num_runs} runs"
        return f"<pymarcato.Scenario: {self.name}, {self.duration_s:g} s{runs}>"

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.explain())}</pre>"


def _read(
    name: str, text: str, settings: list[str], seed: Optional[int], files: dict[str, str], plugins: list[Plugin]
) -> Scenario:
    return Scenario(_native.Scenario(name, text, settings, seed, files, _described(plugins)))


def _described(plugins: Iterable[Plugin]) -> list[_native.PluginParts]:
    return [described(plugin) for plugin in plugins]


def seed_of(seed: Any) -> int:
    """Returns a seed as a number.

    Raises
    ------
    TypeError
        If it is no whole number.
    GridError
        If it is out of range.
    """
    try:
        number = operator.index(seed)
    except TypeError:
        raise TypeError(f"a seed is a whole number, not {seed!r}: write one, or a range such as range(10) for several") from None
    if isinstance(seed, bool) or not 0 <= number <= _native.MOST_SEED:
        raise GridError(f"a seed is a whole number from 0 to {_native.MOST_SEED}, not {seed!r}: choose another")
    return number


def limit_ns(limit: Union[str, timedelta, None]) -> Optional[int]:
    """Returns a limit of wall-clock time in nanoseconds.

    Raises
    ------
    TypeError, ValueError
        If it is no span of time above zero.
    """
    if limit is None:
        return None
    if isinstance(limit, timedelta):
        span = int(limit / timedelta(microseconds=1)) * 1000
    elif isinstance(limit, str):
        span = _native.span_ns(limit)
    else:
        raise TypeError(f'a time limit is a text with a unit such as "60 s", or a timedelta, not {limit!r}')
    if span <= 0:
        raise ValueError(f"a time limit is longer than 0 s, not {limit!r}: leave it out for none")
    return span


#: Scenario, or the path of its file.
ScenarioLike = Union[Scenario, str, "os.PathLike[str]"]


def scenario_of(scenario: ScenarioLike) -> Scenario:
    """Returns a scenario, read from its file if it is a path."""
    return scenario if isinstance(scenario, Scenario) else Scenario.from_file(Path(scenario))
