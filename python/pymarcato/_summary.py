"""Statistics of sweeps."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Optional, Union

from . import _native
from ._dataset import Dataset
from ._errors import GridError
from ._result import PathLike
from ._store import EXPERIMENT, SEED
from ._table import Table, nearest

#: Ends of names, which state their units.
UNITS = ("_mbit_per_s", "_per_s", "_ms", "_s", "_bytes", "_packets", "_percent", "_kb")

#: Errors of failed runs, in data sets of versions before 0.1's layout 2.
ERROR = "error"

#: Columns that the directories of a data set add: rows of several are never pooled.
SCENARIO, VERSION = "scenario", "version"

#: Most seeds that an estimate returns.
_MOST_NEEDED = 1_000_000


def bare(column: str) -> str:
    """Returns the name of a column without its unit."""
    unit = next((unit for unit in UNITS if column.endswith(unit)), "")
    return column[: len(column) - len(unit)]


def matching(metric: str, columns: Sequence[str]) -> list[str]:
    """Returns the columns that a metric names: itself, or all that end with it but for the unit."""
    if metric in columns:
        return [metric]
    found = []
    for column in columns:
        if column.startswith(("flow.", "group.", "link.")):
            if any(form.endswith("." + metric) for form in (column, bare(column))):
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
        Columns whose values form a group; by default the settings that vary, and of a directory ``scenario`` and
        ``version``, if it has several. Rows of several are never pooled.
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
        Student's t; empty for fewer than two seeds), ``n``, and those above. Runs of an experiment that agree in every
        metric, as those of a scenario without anything random do, count as one and have no interval.

    Raises
    ------
    GridError
        If a column or a metric does not exist, or `by` would pool several versions or scenarios.
    """
    table = _table_of(dataset)
    columns = table.to_pydict()
    several = [name for name in (SCENARIO, VERSION) if len(set(columns.get(name, ()))) > 1]
    if by is None:
        by = dataset.settings if isinstance(dataset, Dataset) else _settings(table.column_names)
        by = [*(name for name in several if name not in by), *by]
    for name in [*by, *([paired[0]] if paired else [])]:
        if name not in columns:
            known = [*_settings(table.column_names), *several]
            raise GridError(f"there is no column `{name}`: {nearest(name, known)}")
    for name in several:
        if name not in by:
            found = ", ".join(sorted(map(str, set(columns[name]))))
            raise GridError(
                f"the rows are of several {name}s ({found}), which are never pooled: add {name!r} to `by`, "
                f"or give the directory of one"
            )
    names = _metrics(metrics, table.column_names)
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place in _results(columns):
        groups.setdefault(tuple(columns[name][place] for name in by), []).append(place)
    everything = _metrics(None, table.column_names)
    if paired:
        samples = _differences(columns, by, groups, names, everything, paired)
    else:
        samples = _plain(columns, groups, names, everything)
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
        raise FileNotFoundError(f"there are no files of a sweep in {dataset}: give the directory `out` of one")
    rows = _native.read_rows(files)
    made = rows.columns()
    for name in (SCENARIO, VERSION):
        values = [_part_of(file, name) for file in files]
        if name not in rows.column_names:
            one = len(set(values)) == 1
            counts = [rows.num_rows] if one else [_native.read_rows([file]).num_rows for file in files]
            made.append((name, "text", [value for value, count in zip(values, counts) for _ in range(count)]))
    return Table(_native.make_table(made))


def _part_of(file: Path, name: str) -> str:
    """Returns the value that a directory above a file has for a key, in the layout of Hive."""
    found = [part[len(name) + 1 :] for part in file.resolve().parts if part.startswith(f"{name}=")]
    return found[-1] if found else ""


def _results(columns: dict[str, list[Any]]) -> list[int]:
    """Returns the places of rows with results, each run once."""
    count = len(next(iter(columns.values()), []))
    errors = columns.get(ERROR) or [""] * count
    names = [name for name in (SCENARIO, VERSION, EXPERIMENT, SEED) if name in columns]
    places: dict[Any, int] = {}
    for place in range(count):
        if not errors[place]:
            key = tuple(columns[name][place] for name in names) if EXPERIMENT in names and SEED in names else place
            places.setdefault(key, place)
    return list(places.values())


def _settings(names: Sequence[str]) -> list[str]:
    """Returns the columns of settings, which stand between the experiment and the seed."""
    if EXPERIMENT not in names or SEED not in names:
        return []
    return list(names[names.index(EXPERIMENT) + 1 : names.index(SEED)])


def _metrics(metrics: Optional[Sequence[str]], names: Sequence[str]) -> list[str]:
    if metrics is None:
        later = names[names.index(SEED) + 1 :] if SEED in names else []
        return [name for name in later if name not in (ERROR, SCENARIO, VERSION)]
    chosen: list[str] = []
    for metric in metrics:
        found = matching(metric, names)
        if not found:
            raise GridError(f"there is no metric `{metric}`: {advice(metric, _metrics(None, names))}")
        chosen += found
    return list(dict.fromkeys(chosen))


_Samples = list[tuple[tuple[Any, ...], str, list[float]]]


def advice(metric: str, names: Sequence[str]) -> str:
    """Returns the metrics that resemble one that does not exist, for a message."""
    ends = [end for name in names for end in (bare(name).rsplit(".", 1)[-1], ".".join(bare(name).split(".")[1:]))]
    near = difflib.get_close_matches(metric, list(dict.fromkeys([*ends, *names])), 3, 0.6)
    if near:
        return "did you mean " + " or ".join(f"`{name}`" for name in near) + "?"
    some = ", ".join(f"`{end}`" for end in list(dict.fromkeys(ends))[:4])
    return f"name a column, or the end of one without its unit, such as {some}"


def _agree(rows: Iterable[tuple[Any, ...]]) -> bool:
    """Returns whether there are several rows, and all are the same."""
    kept = list(rows)
    return len(kept) > 1 and all(row == kept[0] for row in kept)


def _plain(
    columns: dict[str, list[Any]], groups: dict[tuple[Any, ...], list[int]], names: list[str], everything: list[str]
) -> _Samples:
    samples: _Samples = []
    for group, all_places in groups.items():
        experiments: dict[Any, list[int]] = {}
        for place in all_places:
            experiments.setdefault(columns[EXPERIMENT][place] if EXPERIMENT in columns else "", []).append(place)
        places = []
        for of in experiments.values():
            # Without anything random, seeds repeat one observation.
            is_one = _agree(tuple(columns[name][place] for name in everything) for place in of)
            places += of[:1] if is_one else of
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
    everything: list[str],
    paired: tuple[str, str],
) -> _Samples:
    key, reference = paired
    keys = list(columns)
    others = [name for name in _settings(keys) if name != key and not name.startswith(f"{key}_")]
    others += [name for name in (SCENARIO, VERSION) if name in columns]

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
        if _agree(tuple(columns[name][place] for name in everything for place in pair) for pair in pairs):
            pairs = pairs[:1]
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
