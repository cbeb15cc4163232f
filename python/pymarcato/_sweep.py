"""Sweeps: a scenario with many settings and seeds, on any engine."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

from . import _native, _toml
from ._dataset import ERROR, EXPERIMENT, SEED, Dataset, Key, Point, Row, Store
from ._engine import Engine, engine_of
from ._errors import GridError
from ._plugin import Plugin
from ._plugin import described as description
from ._result import PathLike
from ._scenario import Scenario, ScenarioLike, scenario_of
from ._schedule import Schedule
from ._toml import Value

#: Seeds of each combination before sequential stopping looks at the interval.
FIRST_SEEDS = 5

#: Scenario as the arguments that create it, without its seed.
Source = tuple[str, str, list[str], dict[str, str], list[Plugin]]

#: Runs of a task: the settings and the seed of each.
Task = tuple[Source, list[tuple[tuple[str, ...], int]]]

#: What a worker returns: numbers and error of each run, and the time that all took.
Answer = tuple[list[tuple[list[tuple[str, float]], str]], float]


def work(task: Task) -> Answer:
    """Executes the runs of a task, in any process."""
    (name, text, sets, files, plugins), runs = task
    began = time.perf_counter()
    described = [description(plugin) for plugin in plugins]
    rows: list[tuple[list[tuple[str, float]], str]] = []
    for more, seed in runs:
        try:
            scenario = _native.Scenario(name, text, [*sets, *more], seed, files, described)
            rows.append((scenario.run(0, False).numbers(), ""))
        except Exception as error:
            rows.append(([], str(error) or type(error).__name__))
        except BaseException as error:
            # A panic of the simulator derives from BaseException, as do interrupts.
            if type(error).__name__ != "PanicException":
                raise
            rows.append(([], f"a defect of the simulator: {error}"))
    return rows, time.perf_counter() - began


def sweep(
    scenario: ScenarioLike,
    grid: Optional[Mapping[str, Iterable[Value]]] = None,
    seeds: Optional[Iterable[int]] = None,
    on: Any = None,
    *,
    out: PathLike = "sweeps",
    until: Optional[str] = None,
    retry_failed: bool = False,
    progress: Optional[bool] = None,
) -> Dataset:
    """Runs every combination of settings with every seed, and keeps the results.

    Results are written as they arrive, into Parquet files below
    ``OUT/scenario=HASH/version=VERSION``. Only runs that are missing there are executed, whichever
    engine executed the others. A run that fails is a row with an error.

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
    EngineError
        If the engine cannot go on. What has finished is kept.
    """
    source = scenario_of(scenario)
    points = _points(source, grid, seeds, None if until is None else range(1, 1001))
    keys = sorted({key for point in points for key, _, _ in point.said})
    identity = _native.fingerprint([source._native.identity, *keys])[:16]
    store = Store(Path(out), identity)
    done = _known(store, retry_failed)
    name, text, sets, _, files = source._native.parts()
    run = _Run((name, text, sets, files, source._native.plugins()), store, done, on=on, progress=progress)
    try:
        if until is None:
            run.execute([point for point in points if point.key not in done])
            kept = points
        else:
            kept = _until(run, points, Rule.parse(until))
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
    axes = {key: list(values) for key, values in (grid or {}).items()}
    for key, choices in axes.items():
        if not choices:
            raise GridError(f"`{key}` has no values: give one, or leave the key out")
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


def _checked(seeds: Iterable[int]) -> list[int]:
    wanted = [int(seed) for seed in seeds]
    if not wanted:
        raise GridError("there are no seeds: give one, or leave `seeds` out")
    if len(set(wanted)) < len(wanted):
        raise GridError("a seed occurs twice: its run would count twice")
    return wanted


def _known(store: Store, retry_failed: bool) -> set[Key]:
    """Returns the runs that the data set has."""
    rows = store.read()
    if not rows.num_rows:
        return set()
    errors = rows[ERROR]
    keys = list(zip(rows[EXPERIMENT], rows[SEED]))
    failed = {key for key, error in zip(keys, errors) if error} if retry_failed else set()
    succeeded = {key for key, error in zip(keys, errors) if not error}
    return set(keys) - (failed - succeeded)


class _Run:
    """Execution of the points of a sweep on an engine."""

    def __init__(
        self,
        source: Source,
        store: Store,
        done: set[Key],
        on: Any,
        progress: Optional[bool],
    ) -> None:
        self.source, self.store, self.done = source, store, done
        self.computed = 0
        self._engine: Optional[Engine] = None
        self._on, self._progress = on, progress
        self._schedule: Optional[Schedule[Point]] = None

    def execute(self, points: Sequence[Point]) -> None:
        """Executes these points, and writes their rows as they arrive."""
        if not points:
            return
        if self._engine is None or self._schedule is None:
            # A sweep that has everything starts no workers.
            self._engine = engine_of(self._on, work)
            self._schedule = Schedule(self._engine, self._task, self._keep, self._lose)
        self._schedule.execute(points, self._progress)

    def _task(self, points: list[Point]) -> Task:
        return self.source, [(point.sets, point.seed) for point in points]

    def _keep(self, points: list[Point], results: list[tuple[list[tuple[str, float]], str]]) -> None:
        self._write([Row(point, tuple(numbers), error) for point, (numbers, error) in zip(points, results)])

    def _lose(self, point: Point, reason: str) -> None:
        self._write([Row(point, (), reason)])

    def _write(self, rows: list[Row]) -> None:
        self.store.write(rows)
        self.computed += len(rows)
        self.done.update(row.point.key for row in rows)

    def close(self) -> None:
        """Drops what has not finished."""
        if self._engine is not None:
            self._engine.close()


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
        run.execute([point for point in wanted if point.key not in run.done])
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
    names = matching(metric, table.column_names)
    if not names and any(not error for error in table[ERROR]):
        raise ValueError(f"there is no metric `{metric}`: name a column of the data set, or the end of one")
    keys = list(zip(table[EXPERIMENT], table[SEED]))
    values: dict[Key, dict[str, float]] = {}
    for name in names:
        for key, value in zip(keys, table[name]):
            if value is not None:
                values.setdefault(key, {})[name] = value
    return values
