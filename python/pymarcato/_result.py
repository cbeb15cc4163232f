"""Results of a run."""

from __future__ import annotations

import html
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from . import _native
from ._table import Table, nearest

PathLike = Union[str, "os.PathLike[str]"]


#: Tables of a result.
TABLES = ("summary", "flows", "times", "groups", "lanes", "links", "series", "completions")


@dataclass(frozen=True)
class Kept:
    """All that a result of the native module has, as values that can be pickled."""

    id: str
    scenario: str
    about: str
    seed: int
    events: int
    warnings: list[str]
    json: str
    tables: dict[str, list[tuple[str, str, list[Any]]]]
    pairs: list[tuple[str, float]]
    page: str
    drawn: list[tuple[str, str, str]]
    files: dict[str, bytes]
    parquet: list[str]
    captures: list[str]

    @classmethod
    def of(cls, native: Native) -> Kept:
        """Returns the values of a result."""
        if isinstance(native, Kept):
            return native
        with tempfile.TemporaryDirectory(prefix="marcato-") as name:
            directory = Path(name)
            native.save(directory / "all")
            return cls(
                native.id,
                native.scenario,
                native.about,
                native.seed,
                native.events,
                native.warnings,
                native.json,
                {table: native.table(table).columns() for table in TABLES},
                native.numbers(),
                native.report(),
                native.figures(),
                {
                    str(path.relative_to(directory / "all")): path.read_bytes()
                    for path in sorted((directory / "all").rglob("*"))
                    if path.is_file()
                },
                [path.name for path in native.to_parquet(directory / "parquet")],
                [path.name for path in native.pcap(directory / "pcap")],
            )

    def numbers(self) -> list[tuple[str, float]]:
        """Returns every number with its name."""
        return self.pairs

    def table(self, name: str) -> _native.Table:
        """Returns a table by its name."""
        return _native.make_table(self.tables[name])

    def report(self) -> str:
        """Returns the report as a page of HTML."""
        return self.page

    def figures(self) -> list[tuple[str, str, str]]:
        """Returns name, SVG and caption of each figure."""
        return self.drawn

    def to_parquet(self, directory: PathLike) -> list[Path]:
        """Writes the tables that have rows."""
        return self._write(directory, self.parquet)

    def pcap(self, directory: PathLike) -> list[Path]:
        """Writes the captures."""
        return self._write(directory, self.captures)

    def save(self, directory: PathLike) -> None:
        """Writes all files."""
        self._write(directory, list(self.files))

    def _write(self, directory: PathLike, names: list[str]) -> list[Path]:
        paths = [Path(directory) / name for name in names]
        for name, path in zip(names, paths):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.files[name])
        return paths


#: Result of the native module, or one that was pickled.
Native = Union[_native.Result, Kept]


class Result:
    """Results of one run, from the end of the warm-up on.

    The columns of all tables are those of ``marcato sim``; ``docs/sim.md`` describes each with its
    unit. A result can be pickled and copied, with its captures.
    """

    __slots__ = ("_native", "_numbers")

    def __init__(self, native: Native) -> None:
        self._native = native
        self._numbers: Optional[dict[str, float]] = None

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return self._native.scenario

    @property
    def id(self) -> str:
        """Name of the run among those of its scenario."""
        return self._native.id

    @property
    def seed(self) -> int:
        """Seed of the run."""
        return self._native.seed

    @property
    def events(self) -> int:
        """Number of events that the simulator processed."""
        return self._native.events

    @property
    def warnings(self) -> list[str]:
        """Signs that the run did not do what was meant."""
        return self._native.warnings

    @property
    def summary(self) -> Table:
        """Every number of the run: columns ``metric`` and ``value``.

        Metrics are ``flow.NAME.COLUMN``, ``flow.NAME.WHAT.COLUMN``, ``group.NAME.COLUMN``,
        ``link.NAME.COLUMN`` and ``link.NAME.back.COLUMN``.
        """
        return self._table("summary")

    def __getitem__(self, metric: str) -> Optional[float]:
        """Returns a number of `summary` by its name; ``None`` if it is missing in this run.

        Raises
        ------
        KeyError
            If there is no such metric, with similar names.
        """
        numbers = self._all()
        if metric not in numbers:
            from ._summary import matching

            whole = matching(str(metric), list(numbers))[:3]
            advice = " or ".join(f"`{name}`" for name in whole)
            raise KeyError(
                f"there is no metric `{metric}`: {f'did you mean {advice}?' if whole else nearest(metric, numbers)}"
            )
        value = numbers[metric]
        return None if value != value else value

    def __contains__(self, metric: object) -> bool:
        return metric in self._all()

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def keys(self) -> list[str]:
        """Returns the names of all metrics."""
        return list(self._all())

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()

    def to_dict(self) -> dict[str, Optional[float]]:
        """Returns every number by its name; ``None`` stands for a missing one."""
        return {metric: self[metric] for metric in self}

    def _all(self) -> dict[str, float]:
        if self._numbers is None:
            self._numbers = dict(self._native.numbers())
        return self._numbers

    def __reduce__(self) -> Any:
        return Result, (Kept.of(self._native),)

    @property
    def flows(self) -> Table:
        """One row per flow."""
        return self._table("flows")

    @property
    def times(self) -> Table:
        """One row per kind of completion, such as a flow's transfers or messages."""
        return self._table("times")

    @property
    def groups(self) -> Table:
        """One row for each flow with several instances, and for each process."""
        return self._table("groups")

    @property
    def lanes(self) -> Table:
        """One row per lane of QUIC."""
        return self._table("lanes")

    @property
    def links(self) -> Table:
        """One row per direction of a link."""
        return self._table("links")

    @property
    def series(self) -> Table:
        """Recorded series: a row per sample, ``time_s`` first. Empty if the scenario records none."""
        return self._table("series")

    @property
    def messages(self) -> Table:
        """Completions: a row per transfer, response or message."""
        return self._table("completions")

    def _table(self, name: str) -> Table:
        return Table(self._native.table(name))

    def document(self) -> dict[str, Any]:
        """Returns the document of ``marcato sim --format json``."""
        parsed: dict[str, Any] = json.loads(self._native.json)
        return parsed

    def to_json(self) -> str:
        """Returns the document as text, byte for byte that of ``marcato sim --format json``."""
        return self._native.json

    def to_parquet(self, directory: PathLike) -> list[Path]:
        """Writes a Parquet file for each table that has rows.

        Parameters
        ----------
        directory : path
            Directory of the files, which is created if it is missing.

        Returns
        -------
        list of Path
            Files that were written.
        """
        return self._native.to_parquet(os.fspath(directory))

    def pcap(self, directory: PathLike) -> list[Path]:
        """Copies the captures of the links that the scenario records (``record.pcap``).

        Parameters
        ----------
        directory : path
            Directory of the files, which is created if it is missing.

        Returns
        -------
        list of Path
            Files that were written; none if nothing was captured.
        """
        return self._native.pcap(os.fspath(directory))

    def save(self, directory: PathLike) -> None:
        """Writes all files of ``marcato sim --out``: tables, document, report, figures, captures."""
        self._native.save(os.fspath(directory))

    def report(self, path: Optional[PathLike] = None) -> str:
        """Returns the report as a page of HTML, and writes it to `path` if there is one."""
        page = self._native.report()
        if path is not None:
            Path(path).write_text(page, encoding="utf-8")
        return page

    def figures(self) -> dict[str, str]:
        """Returns the figures as SVG, by name: recorded series, and the CCDF of completion times."""
        return {name: svg for name, svg, _ in self._native.figures()}

    def __repr__(self) -> str:
        return f"<pymarcato.Result: {self.scenario}, seed {self.seed}, {len(self.flows)} flows>"

    def _repr_html_(self) -> str:
        parts = [f"<h4>{html.escape(self.scenario)}</h4><p>{html.escape(self._native.about)} Seed {self.seed}.</p>"]
        parts += [f"<p><b>{html.escape(warning)}</b></p>" for warning in self.warnings]
        for name, svg, caption in self._native.figures():
            # A picture of its own, so that its styles and names do not meet those of others.
            parts.append(f"<figure>{_picture(svg, caption)}<figcaption>{html.escape(caption)}</figcaption></figure>")
        for table in (self.flows, self.times, self.links):
            if table.num_rows:
                parts.append(table._repr_html_())
        return "".join(parts)


def _picture(svg: str, caption: str) -> str:
    from base64 import b64encode

    data = b64encode(svg.encode()).decode()
    return f'<img alt="{html.escape(caption, quote=True)}" src="data:image/svg+xml;base64,{data}">'
