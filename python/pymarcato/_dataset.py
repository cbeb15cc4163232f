"""Data sets of sweeps: Parquet files in the layout of Hive."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Optional

from . import _native
from ._store import EXPERIMENT, RUN, SEED, Key, Point, Store, settings_of
from ._table import Table

#: Columns that failures have beside those of their settings.
FAULTS = {"error": "text", "type": "text", "file": "text", "line": "count", "traceback": "text"}


class Dataset:
    """Results of a sweep, one row per run.

    Attributes
    ----------
    path : Path
        Directory of the Parquet files of this scenario and version, which all have the same columns. Other programs
        read it, too: ``read_parquet('PATH/*.parquet', hive_partitioning = false)`` in DuckDB.
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
        self._columns = settings_of(points)
        self._table: Optional[Table] = None

    @property
    def files(self) -> list[Path]:
        """Parquet files of the scenario and version."""
        return self._store.files()

    @property
    def table(self) -> Table:
        """Results of this sweep, in the order of its settings and seeds, as an Arrow table."""
        if self._table is None:
            self._table = self._read()
        return self._table

    @property
    def metrics(self) -> list[str]:
        """Names of the metrics."""
        names = self.table.column_names
        return names[names.index(SEED) + 1 :] if SEED in names else []

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Failed runs: settings and seed of each, and its ``error``, with ``type``, ``file``, ``line``, ``traceback``."""
        failures = self._store.failures()
        return [
            {
                RUN: point.run,
                **{key: value for key, value, _ in point.said},
                SEED: point.seed,
                **{name: failures[point.key][name] for name in FAULTS},
            }
            for point in self._points
            if point.key in failures
        ]

    @property
    def failure_table(self) -> Table:
        """Rows of `failures` as an Arrow table."""
        rows = self.failures
        kinds = {RUN: "text", **dict.fromkeys(self.settings, "text"), SEED: "count", **FAULTS}
        return Table(_native.make_table([(name, kind, [row[name] for row in rows]) for name, kind in kinds.items()]))

    def rows(self) -> Iterator[dict[str, Any]]:
        """Returns the rows as dictionaries."""
        return self.table.rows()

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns the columns as lists, by name."""
        return self.table.to_pydict()

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``; needs pandas and PyArrow."""
        return self.table.to_pandas()

    def to_polars(self) -> Any:
        """Returns a ``polars.DataFrame``; needs Polars."""
        return self.table.to_polars()

    def to_pyarrow(self) -> Any:
        """Returns a ``pyarrow.Table``; needs PyArrow."""
        return self.table.to_pyarrow()

    def to_xarray(self) -> Any:
        """Returns an ``xarray.Dataset``, whose dimensions are the settings and the seed; needs xarray.

        A quantity has numbers along its dimension, which are named with their unit. Runs that failed are not a number.
        """
        from ._arrays import dataset_of

        return dataset_of(self.table, self.settings)

    def __arrow_c_schema__(self) -> object:
        return self.table.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self.table.__arrow_c_stream__(requested_schema)

    def __len__(self) -> int:
        return len(self.table)

    def __repr__(self) -> str:
        return f"<pymarcato.Dataset: {len(self)} runs over {', '.join(self.settings) or 'seeds'} in {self.path}>"

    def _repr_html_(self) -> str:
        return self.table._repr_html_()

    def _read(self) -> Table:
        all_rows = self._store.read()
        if not all_rows.num_rows:
            kinds = {RUN: "text", EXPERIMENT: "text", **self._columns, SEED: "count"}
            return Table(_native.make_table([(name, kind, []) for name, kind in kinds.items()]))
        columns = all_rows._native.columns()
        cells = {name: cells for name, _, cells in columns}
        places: dict[Key, int] = {key: place for place, key in enumerate(zip(cells[EXPERIMENT], cells[SEED]))}
        wanted = [places[point.key] for point in self._points if point.key in places]
        metrics = list(cells)[list(cells).index(SEED) + 1 :]
        names = {RUN, EXPERIMENT, *self._columns, SEED, *metrics}
        return Table(
            _native.make_table(
                [(name, kind, [cells[place] for place in wanted]) for name, kind, cells in columns if name in names]
            )
        )
