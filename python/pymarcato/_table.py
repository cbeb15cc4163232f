"""Tables in Arrow's memory layout."""

from __future__ import annotations

import difflib
import html
from collections.abc import Iterable, Iterator
from typing import Any

from . import _native
from ._errors import needs

#: Rows that a notebook shows of a table.
SHOWN = 20


class Table:
    """Table that other libraries take without a copy.

    It exports the Arrow PyCapsule interface (``__arrow_c_stream__``). Numbers and counts are 64 bits
    wide, and a missing value is null. A table can be pickled and copied.

    Examples
    --------
    >>> import pyarrow, polars                          # doctest: +SKIP
    >>> pyarrow.table(result.flows)                     # doctest: +SKIP
    >>> polars.DataFrame(result.flows)                  # doctest: +SKIP
    >>> flows = result.flows                            # doctest: +SKIP
    >>> duckdb.sql("select * from flows")               # doctest: +SKIP
    """

    __slots__ = ("_native",)

    def __init__(self, native: _native.Table) -> None:
        self._native = native

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self._native.num_rows

    @property
    def column_names(self) -> list[str]:
        """Names of the columns, each with its unit at the end."""
        return self._native.column_names

    @property
    def units(self) -> dict[str, str]:
        """Units of the columns that have one, which are also in the metadata of Arrow's fields."""
        return {name: unit for name in self.column_names if (unit := _native.unit(name))}

    def __len__(self) -> int:
        return self.num_rows

    def __getitem__(self, name: str) -> list[Any]:
        """Returns a column as a list; ``None`` stands for a missing value."""
        if name not in self:
            raise KeyError(f"there is no column `{name}`: {nearest(name, self.column_names)}")
        return self._native.column(name)

    def __contains__(self, name: object) -> bool:
        return name in self.column_names

    def to_pydict(self) -> dict[str, list[Any]]:
        """Returns the columns as lists, by name."""
        return self._native.to_pydict()

    def to_dict(self) -> dict[str, list[Any]]:
        """Returns the columns as lists, by name."""
        return self.to_pydict()

    def rows(self) -> Iterator[dict[str, Any]]:
        """Returns the rows as dictionaries."""
        columns = self.to_pydict()
        for cells in zip(*columns.values()):
            yield dict(zip(columns, cells))

    def to_pandas(self) -> Any:
        """Returns a ``pandas.DataFrame``; needs pandas and PyArrow."""
        needs("pandas", "pandas")
        return self.to_pyarrow().to_pandas()

    def to_polars(self) -> Any:
        """Returns a ``polars.DataFrame``; needs Polars."""
        return needs("polars", "polars").DataFrame(self)

    def to_pyarrow(self) -> Any:
        """Returns a ``pyarrow.Table``; needs PyArrow."""
        return needs("pyarrow", "pyarrow").table(self)

    def __arrow_c_schema__(self) -> object:
        return self._native.__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._native.__arrow_c_stream__(requested_schema)

    def __reduce__(self) -> Any:
        return _restored, (self._native.columns(),)

    def _ipython_key_completions_(self) -> list[str]:
        return self.column_names

    def __repr__(self) -> str:
        return f"<pymarcato.Table: {self.num_rows} rows of {', '.join(self.column_names)}>"

    def _repr_html_(self) -> str:
        return table_html(self.to_pydict(), self.num_rows)


def _restored(columns: list[tuple[str, str, list[Any]]]) -> Table:
    return Table(_native.make_table(columns))


def nearest(name: object, names: Iterable[str]) -> str:
    """Returns the names that resemble one that does not exist, for a message."""
    known = list(names)
    near = difflib.get_close_matches(str(name), known, 3, 0.6)
    if near:
        return "did you mean " + " or ".join(f"`{one}`" for one in near) + "?"
    return "choose from " + ", ".join(known[:12]) + (f" and {len(known) - 12} more" if len(known) > 12 else "")


def table_html(columns: dict[str, list[Any]], rows: int) -> str:
    """Returns columns as a table of HTML without those that are empty."""
    shown = {name: cells for name, cells in columns.items() if any(cell not in (None, "") for cell in cells)}
    head = "".join(f"<th>{html.escape(name)}</th>" for name in shown)
    lines = []
    for row in range(min(rows, SHOWN)):
        cells = "".join(f"<td>{html.escape(_text(cells[row]))}</td>" for cells in shown.values())
        lines.append(f"<tr>{cells}</tr>")
    more = f"<p>{rows - SHOWN} more rows</p>" if rows > SHOWN else ""
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.6g}"
    return str(cell)
