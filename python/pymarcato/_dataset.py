"""Data sets of sweeps: Parquet files in the layout of Hive."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional

from . import _native
from ._table import Table

#: Columns of every row, before the metrics.
ERROR, EXPERIMENT, RUN, SEED = "error", "experiment", "run", "seed"

#: Key of a row: its experiment without the seed, and the seed.
Key = tuple[str, int]

#: Setting: key, value as written, and number with its unit if it is a quantity.
Said = tuple[str, str, Optional[tuple[str, float]]]


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes
    ----------
    sets : tuple of str
        Settings as ``KEY=VALUE``.
    said : tuple
        Settings with their numbers.
    seed : int
        Seed.
    experiment : str
        Identity of the experiment without the seed.
    """

    sets: tuple[str, ...]
    said: tuple[Said, ...]
    seed: int
    experiment: str

    @property
    def key(self) -> Key:
        """Key of the row."""
        return self.experiment, self.seed

    @property
    def run(self) -> str:
        """Settings and seed in words."""
        return ", ".join([*(f"{key} = {value}" for key, value, _ in self.said), f"seed = {self.seed}"])


@dataclass(frozen=True)
class Row:
    """Result of a run: its numbers, or its error."""

    point: Point
    numbers: tuple[tuple[str, float], ...]
    error: str = ""


class Store:
    """Partition of a data set that has the rows of one scenario and version."""

    def __init__(self, root: Path, scenario: str) -> None:
        version = f"{_native.VERSION}+{_native.COMMIT}"
        self.root = root
        self.directory = root / f"scenario={scenario}" / f"version={version}"

    def files(self) -> list[Path]:
        """Returns the complete files, in a fixed order."""
        return sorted(self.directory.glob("part-*.parquet"))

    def read(self) -> Table:
        """Returns all rows."""
        return Table(_native.read_rows(self.files()))

    def write(self, rows: list[Row]) -> Path:
        """Writes rows as one file, which appears whole or not at all."""
        self.directory.mkdir(parents=True, exist_ok=True)
        name = _native.fingerprint([f"{row.point.experiment} {row.point.seed}" for row in rows])[:16]
        path = self.directory / f"part-{name}.parquet"
        _native.write_rows(os.fspath(path), columns_of(rows))
        return path


def columns_of(rows: list[Row]) -> list[tuple[str, str, list[Any]]]:
    """Returns rows as columns: run, settings, seed, error, metrics.

    Each setting is a column of text. One that is a quantity has another column, of numbers, whose
    name ends with the unit; that of a plain number ends with ``number``.
    """
    columns: list[tuple[str, str, list[Any]]] = [
        (RUN, "text", [row.point.run for row in rows]),
        (EXPERIMENT, "text", [row.point.experiment for row in rows]),
    ]
    settings: dict[str, tuple[str, list[Any]]] = {}
    metrics: dict[str, list[Any]] = {}
    for place, row in enumerate(rows):
        for key, value, number in row.point.said:
            name, *more = setting_columns((key, value, number))
            settings.setdefault(name, ("text", [""] * len(rows)))[1][place] = value
            if number is not None:
                settings.setdefault(more[0], ("number", [None] * len(rows)))[1][place] = number[1]
        for name, size in row.numbers:
            metrics.setdefault(name, [None] * len(rows))[place] = size
    columns += [(name, kind, cells) for name, (kind, cells) in settings.items()]
    columns.append((SEED, "count", [row.point.seed for row in rows]))
    columns.append((ERROR, "text", [row.error for row in rows]))
    columns += [(name, "number", cells) for name, cells in metrics.items() if name not in settings]
    return columns


class Dataset:
    """Rows of a sweep, one per run.

    Attributes
    ----------
    path : Path
        Directory of the Parquet files of this scenario and version. Other programs read it, too:
        ``read_parquet('PATH/*.parquet', union_by_name = true)`` in DuckDB.
    settings : tuple of str
        Keys that vary.
    computed : int
        Number of runs that the sweep executed; the others were there already.
    """

    def __init__(self, store: Store, points: list[Point], computed: int) -> None:
        self._store, self._points = store, points
        self.path = store.directory
        self.settings = tuple(dict.fromkeys(key for point in points for key, _, _ in point.said))
        self.computed = computed
        said = (one for point in points for one in point.said)
        self._columns = list(dict.fromkeys(name for one in said for name in setting_columns(one)))
        self._table: Optional[Table] = None

    @property
    def files(self) -> list[Path]:
        """Parquet files of the scenario and version."""
        return self._store.files()

    @property
    def table(self) -> Table:
        """Rows of this sweep, in the order of its settings and seeds, as an Arrow table."""
        if self._table is None:
            self._table = self._read()
        return self._table

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        names = self.table.column_names
        return names[names.index(ERROR) + 1 :] if ERROR in names else []

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Failed runs: settings, seed and error of each."""
        kept = [RUN, *self.settings, SEED, ERROR]
        columns = self.table.to_pydict()
        places = [place for place, error in enumerate(columns[ERROR]) if error]
        return [{name: columns[name][place] for name in kept} for place in places]

    def rows(self) -> Iterator[dict[str, Any]]:
        """Returns the rows as dictionaries."""
        return self.table.rows()

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``; needs pandas and PyArrow."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """Returns a ``polars.DataFrame``; needs Polars."""
        return self.table.to_polars()

    def to_pyarrow(self) -> Any:
        """Returns a ``pyarrow.Table``; needs PyArrow."""
        return self.table.to_pyarrow()

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self._points)

    def __repr__(self) -> str:
        return f"<pymarcato.Dataset: {len(self)} runs over {', '.join(self.settings) or 'seeds'} in {self.path}>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def _read(self) -> Table:
        all_rows = self._store.read()
        columns = all_rows.to_pydict()
        places: dict[Key, int] = {}
        for place, key in enumerate(zip(columns.get(EXPERIMENT, []), columns.get(SEED, []))):
            # A run that was repeated after a failure has two rows.
            if key not in places or columns[ERROR][places[key]]:
                places[key] = place
        wanted = [places[point.key] for point in self._points if point.key in places]
        names = all_rows.column_names
        made = []
        first = [RUN, EXPERIMENT, *self._columns, SEED, ERROR]
        for name in first + [name for name in names if name not in set(first)]:
            if name not in columns:
                continue
            cells = [columns[name][place] for place in wanted]
            kind = "count" if name == SEED else "text" if _is_text(columns[name]) else "number"
            made.append((name, kind, cells))
        return Table(_native.make_table(made))


def _is_text(cells: list[Any]) -> bool:
    return any(isinstance(cell, str) for cell in cells)


def setting_columns(said: Said) -> list[str]:
    """Returns the names of the columns of a setting."""
    key, _, number = said
    return [key] if number is None else [key, f"{key}_{number[0] or 'number'}"]
