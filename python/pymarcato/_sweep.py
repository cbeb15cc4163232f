"""Sweeps: a scenario with many settings and seeds, on any engine."""

from __future__ import annotations

import itertools
import math
import re
import threading
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Optional, Union

from . import _native, _toml
from ._dataset import Dataset
from ._engine import Engine, engine_of
from ._errors import GridError
from ._plugin import Plugin
from ._plugin import described as description
from ._result import PathLike
from ._scenario import Scenario, ScenarioLike, limit_ns, scenario_of, seed_of
from ._schedule import Schedule
from ._store import EXPERIMENT, SEED, Failure, Key, Point, Row, Store
from ._toml import Value

#: Seeds of each combination before sequential stopping looks at the interval.
FIRST_SEEDS = 5

#: Wall-clock time between looks at cells that other sweeps execute.
LOOK_SECONDS = 0.1

#: Layout of data sets: another one is kept in other directories.
LAYOUT = "2"

#: Scenario as the arguments that create it, without its seed.
Source = tuple[str, str, list[str], dict[str, str], list[Plugin]]

#: Runs of a task: the scenario, the settings and the seed of each, and the longest time of each in ns.
Task = tuple[Source, list[tuple[tuple[str, ...], int]], Optional[int]]

#: Numbers or error of a run.
Outcome = tuple[list[tuple[str, float]], Optional[Failure]]

#: What a worker returns: what came of each run, and the time that all took.
Answer = tuple[list[Outcome], float]


def work(task: Task) -> Answer:
    """Executes the runs of a task, in any process."""
    (name, text, sets, files, plugins), runs, limit = task
    began = time.perf_counter()
    described = [description(plugin) for plugin in plugins]
    rows: list[Outcome] = []
    for more, seed in runs:
        try:
            scenario = _native.Scenario(name, text, [*sets, *more], seed, files, described)
            rows.append((scenario.run(0, False, limit).numbers(), None))
        except Exception as error:
            rows.append(([], failure(error)))
        except BaseException as error:
            # A panic of the simulator derives from BaseException, as do interrupts. Python interrupts the main
            # thread alone: in another, a plug-in has raised it, and it would end a worker of Dask.
            is_panic = type(error).__name__ == "PanicException"
            if not is_panic and threading.current_thread() is threading.main_thread():
                raise
            rows.append(([], failure(error, "a defect of the simulator: " if is_panic else "")))
    return rows, time.perf_counter() - began


def failure(error: BaseException, head: str = "") -> Failure:
    """Returns what is kept of an exception."""
    frames = traceback.extract_tb(error.__traceback__)
    file, line = (frames[-1].filename, frames[-1].lineno or 0) if frames else ("", 0)
    told = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    return Failure(head + (str(error) or type(error).__name__), type(error).__name__, file, line, told)


def sweep(
    scenario: ScenarioLike,
    grid: Optional[Mapping[str, Iterable[Value]]] = None,
    seeds: Optional[Iterable[int]] = None,
    on: Any = None,
    *,
    out: PathLike = "sweeps",
    until: Optional[str] = None,
    retry_failed: bool = False,
    time_limit: Union[str, timedelta, None] = None,
    progress: Optional[bool] = None,
) -> Dataset:
    """Runs every combination of settings with every seed, and keeps the results.

    Results are written as they arrive, into Parquet files below
    ``OUT/scenario=HASH/version=VERSION``. Only runs that are missing there are executed, whichever
    engine executed the others. Several sweeps may use one directory at once: each run is executed by one
    of them. A run that fails has no row; `Dataset.failures` lists it.

    Parameters
    ----------
    scenario : Scenario or path
        Scenario. Its own grid is swept, too, unless `grid` sets the same keys.
    grid : mapping, optional
        Values of each key that varies, as for `Scenario.set`. The first key changes slowest.
    seeds : iterable of int, optional
        Seeds; those of the scenario's grid by default.
    on : optional
        Engine: processes of this machine (``None``), a ``dask.distributed.Client``, ``ray`` or the
        module of that name, or a ``concurrent.futures.Executor``.
    out : path
        Directory of the data set. Several scenarios may share it.
    until : str, optional
        Rule of sequential stopping, for example ``"ci(goodput) < 2%"``: seeds are added to a
        combination until half of its 95 % interval is narrower than this part of the mean, or
        `seeds` run out (by default 1 to 1000). Without ``%`` the bound has the metric's unit.
    retry_failed : bool
        Whether runs that failed in an earlier sweep are executed again.
    time_limit : str or timedelta, optional
        Longest wall-clock time of a run, for example ``"60 s"``: one that takes longer fails with a
        `TimeLimitError`. A handler of a plug-in is not interrupted.
    progress : bool, optional
        Whether to show a bar (needs tqdm); by default if it is installed and there is a terminal.

    Returns
    -------
    Dataset
        Rows of the sweep.

    Raises
    ------
    ScenarioError
        If a combination is no valid scenario. All are checked before the first run.
    StoreError
        If `out` cannot be written.
    EngineError
        If the engine cannot go on. What has finished is kept.
    """
    source = scenario_of(scenario)
    rule = None if until is None else Rule.parse(until)
    points = _points(source, grid, seeds, None if rule is None else range(1, 1001))
    limit = limit_ns(time_limit)
    if rule is not None:
        _check_metric(source, points, rule.metric)
    store = Store(Path(out), _native.fingerprint([LAYOUT, source._native.identity])[:16])
    name, text, sets, _, files = source._native.parts()
    run = _Run(
        (name, text, sets, files, source._native.plugins()),
        store,
        points,
        on=on,
        retry_failed=retry_failed,
        limit=limit,
        progress=progress,
    )
    try:
        if rule is None:
            run.execute(points)
            kept = points
        else:
            kept = _until(run, points, rule)
        run.complete()
    finally:
        run.close()
    return Dataset(store, kept, run.computed)


def _points(
    source: Scenario,
    grid: Optional[Mapping[str, Iterable[Value]]],
    seeds: Optional[Iterable[int]],
    default: Optional[Iterable[int]],
) -> list[Point]:
    """Returns every run, and so checks every combination."""
    axes = _axes(grid)
    wanted = None if seeds is None else _checked(seeds)
    if wanted is None and default is not None:
        wanted = list(default)
    points: list[Point] = []
    for combination in itertools.product(*axes.values()):
        values = [_toml.spoken(value) for value in combination]
        sets = tuple(f"{key}={value}" for key, value in zip(axes, values))
        native = source._native.with_settings(list(sets), None) if sets else source._native
        given = tuple(_native.setting(key, value) for key, value in zip(axes, values))
        listed = native.runs()
        if wanted is not None:
            # Seeds of the scenario's own grid are replaced.
            first = listed[0][2]
            listed = [one for one in listed if one[2] == first]
        for _, said, seed, experiment in listed:
            own = tuple(f"{key}={value}" for key, value, _ in said)
            for one in [seed] if wanted is None else wanted:
                points.append(Point(sets + own, (*given, *said), one, experiment[:16]))
    if len({point.key for point in points}) < len(points):
        raise GridError("two combinations of the grid are the same experiment: leave one out")
    return points


def _axes(grid: Optional[Mapping[str, Iterable[Value]]]) -> dict[str, list[Value]]:
    """Returns the keys of a grid with their values."""
    if grid is not None and not isinstance(grid, Mapping):
        raise TypeError(f'a grid is a dictionary of keys with lists of values, {{"topology.rate": ["5 Mbit/s"]}}, not {grid!r}')
    axes: dict[str, list[Value]] = {}
    for key, choices in (grid or {}).items():
        if not isinstance(key, str):
            raise TypeError(f"a key of a grid is a string, not {key!r}")
        if isinstance(choices, (str, bytes, Mapping)) or not isinstance(choices, Iterable):
            raise TypeError(f"`{key}` has the values {choices!r}, which is no list of values: write [{choices!r}]")
        axes[key] = list(choices)
        if not axes[key]:
            raise GridError(f"`{key}` has no values: give one, or leave the key out")
    return axes


def _checked(seeds: Iterable[int]) -> list[int]:
    if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Iterable):
        raise TypeError(f"seeds are a list or a range of whole numbers, such as range(10), not {seeds!r}")
    wanted = [seed_of(seed) for seed in seeds]
    if not wanted:
        raise GridError("there are no seeds: give one, or leave `seeds` out")
    if len(set(wanted)) < len(wanted):
        raise GridError("a seed occurs twice: its run would count twice")
    return wanted


def _check_metric(source: Scenario, points: list[Point], metric: str) -> None:
    """Looks for a metric in the combinations before any of them runs.

    Raises
    ------
    GridError
        If none of them has it, with similar names.
    """
    from ._summary import advice, matching

    known: dict[str, None] = {}
    seen: set[str] = set()
    for point in points:
        if point.experiment in seen:
            continue
        seen.add(point.experiment)
        native = source._native.with_settings(list(point.sets), point.seed)
        names = native.metrics()
        if matching(metric, names):
            return
        known.update(dict.fromkeys(names))
    raise GridError(f"there is no metric `{metric}` in `until`: {advice(metric, list(known))}")


class _Run:
    """Execution of the points of a sweep on an engine."""

    def __init__(
        self,
        source: Source,
        store: Store,
        points: list[Point],
        on: Any,
        retry_failed: bool,
        limit: Optional[int],
        progress: Optional[bool],
    ) -> None:
        self.source, self.store = source, store
        self.computed = 0
        failures = store.failures()
        #: Failures that were there before, and do not count.
        self._retried = {key: row["id"] for key, row in failures.items()} if retry_failed else {}
        self._done = set(store.keys()) | (set(failures) - set(self._retried))
        self._points, self._is_open = points, False
        self._limit = limit
        self._engine: Optional[Engine] = None
        self._on, self._progress = on, progress
        self._schedule: Optional[Schedule[Point]] = None
        self.complete()

    def execute(self, points: Sequence[Point]) -> None:
        """Executes these points, and writes their rows as they arrive.

        What another sweep executes is waited for.
        """
        left = [point for point in points if point.key not in self._done]
        if not left:
            # A sweep that has everything writes nothing and starts no workers.
            return
        self._open()
        while left:
            looked = self.store.look(left, self._retried)
            self._done.update(point.key for point in looked.done)
            if looked.free:
                if self._engine is None or self._schedule is None:
                    self._engine = engine_of(self._on, work)
                    self._schedule = Schedule(self._engine, self._task, self._keep, self._lose, self._take)
                self._schedule.execute(looked.free, self._progress)
            elif looked.busy:
                time.sleep(LOOK_SECONDS)
            left = [point for point in left if point.key not in self._done]

    def complete(self) -> None:
        """Has all rows of these experiments name their settings."""
        if self.store.lacks(self._points):
            self._open()
            self.store.complete(self._points)

    def _open(self) -> None:
        if not self._is_open:
            self._is_open = True
            self.store.open(self._points)

    def _take(self, points: list[Point]) -> list[Point]:
        looked = self.store.look(points, self._retried, claim=True)
        self._done.update(point.key for point in looked.done)
        return looked.free

    def _task(self, points: list[Point]) -> Task:
        return self.source, [(point.sets, point.seed) for point in points], self._limit

    def _keep(self, points: list[Point], results: list[Outcome]) -> None:
        self._write([Row(point, tuple(numbers), error) for point, (numbers, error) in zip(points, results)])

    def _lose(self, point: Point, reason: str) -> None:
        self._write([Row(point, (), Failure(reason, "EngineError"))])

    def _write(self, rows: list[Row]) -> None:
        self.store.write(rows)
        self.computed += len(rows)
        self._done.update(row.point.key for row in rows)

    def close(self) -> None:
        """Drops what has not finished."""
        try:
            if self._engine is not None:
                self._engine.close()
        finally:
            self.store.close()


class Rule:
    """Rule of sequential stopping: a bound of half of the 95 % interval of metrics."""

    def __init__(self, metric: str, bound: float, is_relative: bool) -> None:
        self.metric, self.bound, self.is_relative = metric, bound, is_relative

    @classmethod
    def parse(cls, text: str) -> Rule:
        """Reads a rule: ``ci(METRIC) < NUMBER`` or ``ci(METRIC) < NUMBER%``."""
        found = re.fullmatch(r"\s*ci\(\s*([^()\s]+)\s*\)\s*<\s*([0-9.eE+-]+)\s*(%?)\s*", text)
        try:
            bound = float(found.group(2)) if found else 0.0
        except ValueError:
            bound = 0.0
        if found is None or not (bound > 0 and math.isfinite(bound)):
            raise ValueError(f'a rule is "ci(METRIC) < NUMBER" or "ci(METRIC) < NUMBER%", not {text!r}')
        return cls(found.group(1), bound / (100.0 if found.group(3) else 1.0), bool(found.group(3)))

    def needed(self, values: Sequence[float]) -> int:
        """Returns the number of seeds that the interval needs, from the values of some."""
        from ._summary import needed

        mean, ci95, count = _native.mean(list(values))
        if ci95 is None:
            return max(count + 1, 2)
        width = abs(mean) * self.bound if self.is_relative else self.bound
        return count if ci95 < width or ci95 == 0 else max(count + 1, needed(ci95, count, width))


def _until(run: _Run, points: list[Point], rule: Rule) -> list[Point]:
    """Executes seeds of each combination until the rule holds, and returns the runs that it needed."""
    combinations: dict[str, list[Point]] = {}
    for point in points:
        combinations.setdefault(point.experiment, []).append(point)
    goal = {experiment: min(FIRST_SEEDS, len(of)) for experiment, of in combinations.items()}
    while True:
        wanted = [point for experiment, of in combinations.items() for point in of[: goal[experiment]]]
        run.execute(wanted)
        values = _values(run, rule.metric)
        grown = False
        for experiment, of in combinations.items():
            have = of[: goal[experiment]]
            metrics = [values.get(point.key, {}) for point in have]
            names = {name for numbers in metrics for name in numbers}
            needed = [
                rule.needed([numbers[name] for numbers in metrics if name in numbers]) for name in sorted(names)
            ]
            # At most twice as many at once: the first estimates are poor.
            more = min(max(needed, default=goal[experiment]), 2 * goal[experiment], len(of))
            grown |= more > goal[experiment]
            goal[experiment] = max(more, goal[experiment])
        if not grown:
            return wanted


def _values(run: _Run, metric: str) -> dict[Key, dict[str, float]]:
    """Returns the values of a metric, by run and full name."""
    from ._summary import matching

    table = run.store.read()
    if not table.num_rows:
        return {}
    names = matching(metric, table.column_names)
    keys = list(zip(table[EXPERIMENT], table[SEED]))
    values: dict[Key, dict[str, float]] = {}
    for name in names:
        for key, value in zip(keys, table[name]):
            if value is not None:
                values.setdefault(key, {})[name] = value
    return values
