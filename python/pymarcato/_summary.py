"""Statistics of sweeps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Optional, Union

from . import _native
from ._dataset import ERROR, EXPERIMENT, SEED, Dataset
from ._errors import GridError
from ._result import PathLike
from ._table import Table

#: Ends of names, which state their units.
UNITS = ("_mbit_per_s", "_per_s", "_ms", "_s", "_bytes", "_packets", "_percent", "_kb")

#: Most seeds that an estimate returns.
_MOST_NEEDED = 1_000_000


def matching(metric: str, columns: Sequence[str]) -> list[str]:
    """Returns the columns that a metric names: itself, or all that end with it but for the unit."""
    if metric in columns:
        return [metric]
    found = []
    for column in columns:
        if column.startswith(("flow.", "group.", "link.")):
            unit = next((unit for unit in UNITS if column.endswith(unit)), "")
            forms = (column, column[: len(column) - len(unit)])
            if any(form.endswith("." + metric) for form in forms):
                found.append(column)
    return found


def needed(ci95: float, count: int, width: float) -> int:
    """Returns the number of seeds for which half of the interval is expected to be `width`.

    The deviation is that of `count` seeds, and Student's t that of the result.
    """
    t = _native.student_t(count - 1)
    if t is None or width <= 0:
        return _MOST_NEEDED
    deviation = ci95 * math.sqrt(count) / t
    low, high = 2, _MOST_NEEDED
    while low < high:
        middle = (low + high) // 2
        if (_native.student_t(middle - 1) or math.inf) * deviation / math.sqrt(middle) <= width:
            high = middle
        else:
            low = middle + 1
    return low


def summarise(
    dataset: Union[Dataset, Table, PathLike],
    by: Optional[Sequence[str]] = None,
    metrics: Optional[Sequence[str]] = None,
    *,
    paired: Optional[tuple[str, str]] = None,
    width: Optional[str] = None,
    bootstrap: int = 0,
) -> Table:
    """Returns means over seeds with 95 % intervals.

    Parameters
    ----------
    dataset : Dataset, Table or path
        Rows of a sweep, or the directory of a data set. Failed runs are left out.
    by : sequence of str, optional
        Columns whose values form a group; by default the settings that vary.
    metrics : sequence of str, optional
        Metrics: names of columns, or their ends without the unit (``"goodput"``); all by default.
    paired : (str, str), optional
        Setting and its reference, for example ``("flow.bulk.congestion", "reno")``. Rows are then
        differences from the runs with the reference that have the same seed and other settings. With
        common random numbers their intervals are often much narrower.
    width : str, optional
        Wanted half-width of intervals, ``"2%"`` of the mean or ``"0.5"`` in the metric's unit. The
        column ``seeds_needed`` then has the number of seeds that it takes.
    bootstrap : int
        Number of resamples for the columns ``lo`` and ``hi``, the 95 % percentile interval of the
        bootstrapped mean; 0 for none.

    Returns
    -------
    Table
        Columns of `by`, ``against`` (if paired), ``metric``, ``mean``, ``ci95`` (half of the interval,
        Student's t; empty for fewer than two seeds), ``n``, and those above.
    """
    table = _table_of(dataset)
    columns = table.to_pydict()
    if by is None:
        by = dataset.settings if isinstance(dataset, Dataset) else _settings(table.column_names)
    for name in [*by, *([paired[0]] if paired else [])]:
        if name not in columns:
            raise GridError(f"there is no column `{name}`: choose from {', '.join(_settings(table.column_names))}")
    names = _metrics(metrics, table.column_names)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, error in enumerate(columns.get(ERROR, [])):
        if not error:
            groups.setdefault(tuple(columns[name][place] for name in by), []).append(place)
    samples = _differences(columns, by, groups, names, paired) if paired else _plain(columns, groups, names)
    out: dict[str, list[Any]] = {name: [] for name in [*by, *(["against"] if paired else []), "metric"]}
    numbers: dict[str, list[Any]] = {"mean": [], "ci95": [], "n": []}
    if width is not None:
        numbers["seeds_needed"] = []
    if bootstrap:
        numbers.update(lo=[], hi=[])
    for group, metric, values in samples:
        for name, value in zip(out, [*group, *([paired[1]] if paired else []), metric]):
            out[name].append(value)
        mean, ci95, count = _native.mean(values)
        numbers["mean"].append(mean)
        numbers["ci95"].append(ci95)
        numbers["n"].append(count)
        if width is not None:
            bound = _width(width, mean)
            numbers["seeds_needed"].append(None if ci95 is None else needed(ci95, count, bound) if ci95 else count)
        if bootstrap:
            lo, hi = _native.bootstrap(values, bootstrap, 1)
            numbers["lo"].append(lo)
            numbers["hi"].append(hi)
    kinds = {"n": "count", "seeds_needed": "count"}
    made = [(name, _kind(cells), cells) for name, cells in out.items()]
    made += [(name, kinds.get(name, "number"), cells) for name, cells in numbers.items()]
    return Table(_native.make_table(made))


def _kind(cells: list[Any]) -> str:
    return "number" if cells and all(isinstance(cell, (int, float)) or cell is None for cell in cells) else "text"


def _table_of(dataset: Union[Dataset, Table, PathLike]) -> Table:
    if isinstance(dataset, Dataset):
        return dataset.table
    if isinstance(dataset, Table):
        return dataset
    files = sorted(Path(dataset).rglob("part-*.parquet"))
    if not files:
        raise FileNotFoundError(f"there are no files of a sweep in {dataset}")
    return Table(_native.read_rows(files))


def _settings(names: Sequence[str]) -> list[str]:
    """Returns the columns of settings, which stand between the experiment and the seed."""
    if EXPERIMENT not in names or SEED not in names:
        return []
    return list(names[names.index(EXPERIMENT) + 1 : names.index(SEED)])


def _metrics(metrics: Optional[Sequence[str]], names: Sequence[str]) -> list[str]:
    if metrics is None:
        return [name for name in names[names.index(ERROR) + 1 :]] if ERROR in names else []
    chosen: list[str] = []
    for metric in metrics:
        found = matching(metric, names)
        if not found:
            raise GridError(f"there is no metric `{metric}`: name a column, or the end of one without its unit")
        chosen += found
    return list(dict.fromkeys(chosen))


_Samples = list[tuple[tuple[Any, ...], str, list[float]]]


def _plain(
    columns: dict[str, list[Any]], groups: dict[tuple[Any, ...], list[int]], names: list[str]
) -> _Samples:
    samples: _Samples = []
    for group, places in groups.items():
        for name in names:
            values = [columns[name][place] for place in places if columns[name][place] is not None]
            if values:
                samples.append((group, name, values))
    return samples


def _differences(
    columns: dict[str, list[Any]],
    by: Sequence[str],
    groups: dict[tuple[Any, ...], list[int]],
    names: list[str],
    paired: tuple[str, str],
) -> _Samples:
    key, reference = paired
    keys = list(columns)
    others = [name for name in _settings(keys) if name != key and not name.startswith(f"{key}_")]

    def identity(place: int) -> tuple[Any, ...]:
        return tuple(columns[name][place] for name in [*others, SEED])

    base = {
        identity(place): place
        for places in groups.values()
        for place in places
        if columns[key][place] == reference
    }
    if not base:
        raise GridError(f"no run has {key} = {reference}: choose a value of the sweep")
    samples: _Samples = []
    for group, places in groups.items():
        pairs = [(place, base[identity(place)]) for place in places if identity(place) in base]
        pairs = [(one, other) for one, other in pairs if one != other]
        for name in names:
            cells = columns[name]
            values = [
                cells[one] - cells[other] for one, other in pairs if cells[one] is not None and cells[other] is not None
            ]
            if values:
                samples.append((group, name, values))
    return samples


def _width(width: str, mean: float) -> float:
    text = width.strip()
    try:
        size = float(text[:-1]) / 100.0 * abs(mean) if text.endswith("%") else float(text)
    except ValueError:
        size = math.nan
    if not size >= 0:
        raise ValueError(f'a width is "2%" or a number such as "0.5", not {width!r}')
    return size
