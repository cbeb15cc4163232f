"""Files of a data set: parts of one schema, failures beside them, and claims of the sweeps that run."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import uuid
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

from . import _native
from ._errors import StoreError
from ._table import Table

#: Columns of every row, around those of the settings.
EXPERIMENT, RUN, SEED = "experiment", "run", "seed"

#: Key of a row: its experiment without the seed, and the seed.
Key = tuple[str, int]

#: Setting: key, value as written, and number with its unit if it is a quantity.
Said = tuple[str, str, Optional[tuple[str, float]]]

#: Columns as the native module takes them: name, type and cells.
Columns = list[tuple[str, str, list[Any]]]

#: What changes with the content of a file: its inode, its time and its length.
Mark = tuple[int, int, int]

#: Types of columns, by name and in their order.
Kinds = dict[str, str]

#: Errors of file systems that have no locks.
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP}


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
        return words([(key, value) for key, value, _ in self.said], self.seed)


@dataclass(frozen=True)
class Failure:
    """Error of a run.

    Attributes
    ----------
    error : str
        Message of the exception.
    type : str
        Name of its class.
    file : str
        File of the innermost frame; empty if there is none.
    line : int
        Line in that file.
    traceback : str
        Traceback as Python prints it.
    """

    error: str
    type: str = ""
    file: str = ""
    line: int = 0
    traceback: str = ""


@dataclass(frozen=True)
class Row:
    """Result of a run: its numbers, or its error."""

    point: Point
    numbers: tuple[tuple[str, float], ...]
    failure: Optional[Failure] = None


@dataclass
class _Schema:
    """Columns of a data set: those of settings stand between the experiment and the seed, metrics behind it."""

    settings: Kinds = field(default_factory=dict)
    metrics: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, columns: Iterable[tuple[str, str]]) -> _Schema:
        schema, is_metric = cls(), False
        for name, kind in columns:
            if name == SEED:
                is_metric = True
            elif is_metric:
                schema.metrics.append(name)
            elif name not in (RUN, EXPERIMENT):
                schema.settings[name] = kind
        return schema

    def joined(self, other: _Schema) -> _Schema:
        """Returns the columns of both, with new ones at the end."""
        if self == other:
            return self
        settings = {**self.settings, **{name: kind for name, kind in other.settings.items() if name not in self.settings}}
        metrics = list(dict.fromkeys(name for name in [*self.metrics, *other.metrics] if name not in settings))
        return _Schema(settings, metrics)

    def kinds(self) -> Kinds:
        """Returns all columns with their types."""
        first = {RUN: "text", EXPERIMENT: "text", **self.settings, SEED: "count"}
        return {**first, **{name: "number" for name in self.metrics}}


@dataclass(frozen=True)
class _Part:
    """Part that has been looked at."""

    mark: Mark
    schema: _Schema
    keys: list[Key]
    #: Settings as written, by key.
    texts: dict[str, list[str]]

    @classmethod
    def of(cls, mark: Mark, columns: dict[str, list[Any]], schema: _Schema) -> _Part:
        """Returns what is kept of a part that has these columns."""
        texts = {name: columns[name] for name, kind in schema.settings.items() if kind == "text"}
        return cls(mark, schema, list(zip(columns[EXPERIMENT], columns[SEED])), texts)


@dataclass
class Looked:
    """Points by their state: free ones may be executed, busy ones another sweep executes."""

    free: list[Point] = field(default_factory=list)
    busy: list[Point] = field(default_factory=list)
    done: list[Point] = field(default_factory=list)


class Store:
    """Partition of a data set that has the rows of one scenario and version.

    Below `directory` there are only Parquet files of results, all with the same columns. Failures, and the claims of
    the sweeps that run, are in ``_state`` of the root; it is there only while one of them exists.

    A sweep *claims* cells before it executes them. Its claims are a file with an exclusive lock of the kernel (flock),
    which ends with the process however it ends. Claims are taken, and rows are written, under another lock, so that
    no cell is claimed or written twice.
    """

    def __init__(self, root: Path, scenario: str) -> None:
        version = f"{_native.VERSION}+{_native.COMMIT}"
        partition = Path(f"scenario={scenario}") / f"version={version}"
        self.root = root
        self.directory = root / partition
        self._state = root / "_state" / partition
        self._parts: dict[str, _Part] = {}
        self._keys: set[Key] = set()
        #: Settings as rows have them, by experiment: those of its other seeds are the same.
        self._named: dict[str, dict[str, str]] = {}
        self._expected = _Schema()
        self._claimed: set[Key] = set()
        self._own: Optional[tuple[Path, int]] = None
        #: Descriptors of locks, which a forked child must not keep.
        self._open: set[int] = set()
        _stores.add(self)

    # What there is.

    def files(self) -> list[Path]:
        """Returns the complete files, in a fixed order."""
        return sorted(self.directory.glob("part-*.parquet"))

    def read(self) -> Table:
        """Returns all rows with results."""
        return Table(_native.read_rows(self.files()))

    def keys(self) -> set[Key]:
        """Returns the runs that have results."""
        self._look()
        return self._keys

    def lacks(self, points: Iterable[Point]) -> bool:
        """Returns whether rows of these experiments do not name all of their settings."""
        self._look()
        wanted = {point.experiment: point.said for point in points}
        return any(_missing(part, wanted) for part in self._parts.values())

    def failures(self) -> dict[Key, dict[str, Any]]:
        """Returns the failed runs with what is known of each."""
        try:
            text = (self._state / "failures.jsonl").read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            return {}
        rows = [json.loads(line) for line in text.splitlines()]
        return {(row[EXPERIMENT], row[SEED]): row for row in rows}

    def _look(self) -> None:
        """Looks at parts that are new or have changed."""
        found: dict[str, _Part] = {}
        for path in self.files():
            known = self._parts.get(path.name)
            # Before it is read: if another sweep replaces it meanwhile, it is read again later.
            mark = _mark(path)
            if known is None or known.mark != mark:
                table = _native.read_rows([path])
                schema = _Schema.of(table.kinds())
                wanted = [EXPERIMENT, SEED, *schema.settings]
                known = _Part.of(mark, {name: table.column(name) for name in wanted}, schema)
                self._learn(known)
            found[path.name] = known
        if not self._parts.keys() <= found.keys():
            # Somebody has removed files.
            self._keys = {key for part in found.values() for key in part.keys}
        self._parts = found

    def _learn(self, part: _Part) -> None:
        self._keys.update(part.keys)
        for name, texts in part.texts.items():
            for (experiment, _), text in zip(part.keys, texts):
                if text:
                    self._named.setdefault(experiment, {})[name] = text

    # Claims and rows.

    def open(self, points: Iterable[Point]) -> None:
        """Prepares the directory for rows of these points.

        Raises
        ------
        StoreError
            If the directory cannot be written.
        """
        self._expected = _Schema(settings_of(points))
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with self._locked():
                claims = self._state / "claims"
                claims.mkdir(exist_ok=True)
                path = claims / f"{uuid.uuid4().hex}.json"
                self._own = (path, self._lock(path, wait=False))
                self._save_claims()
                self._look()
                self._unify(self._expected)
                self._complete(points)
        except OSError as error:
            self.close()
            if error.errno in _NO_LOCKS:
                problem = "its file system has no locks (flock): choose a directory of another one as `out`"
            else:
                problem = f"{error.strerror or error}: choose another directory as `out`"
            raise StoreError(f"cannot write to `{self.root}`: {problem}") from error

    def look(self, points: Iterable[Point], retried: Optional[dict[Key, str]] = None, claim: bool = False) -> Looked:
        """Sorts points by their state, and claims those that are free if asked to.

        Parameters
        ----------
        points : iterable of Point
            Points.
        retried : dict, optional
            Failures that do not count, by their identity; one that another sweep adds counts.
        claim : bool
            Whether to claim the free ones.
        """
        looked = Looked()
        with self._locked():
            done, failures, busy = self.keys(), self.failures(), self._others()
            for point in points:
                failure = failures.get(point.key)
                is_failed = failure is not None and (retried or {}).get(point.key) != failure["id"]
                if point.key in done or is_failed:
                    looked.done.append(point)
                elif point.key in busy:
                    looked.busy.append(point)
                else:
                    looked.free.append(point)
            if claim and looked.free:
                self._claimed.update(point.key for point in looked.free)
                self._save_claims()
        return looked

    def write(self, rows: list[Row]) -> None:
        """Writes rows that are not there yet. The claims of all end."""
        with self._locked():
            done = self.keys()
            new = [row for row in rows if row.point.key not in done]
            results = [self._whole(row) for row in new if row.failure is None]
            if results:
                columns = columns_of(results)
                self._unify(self._expected.joined(_Schema.of((name, kind) for name, kind, _ in columns)))
                name = _native.fingerprint([f"{row.point.experiment} {row.point.seed}" for row in results])[:16]
                self._write_part(f"part-{name}.parquet", columns, self._schema())
            self._write_failures(new)
            self._claimed.difference_update(row.point.key for row in rows)
            self._save_claims()

    def complete(self, points: Iterable[Point]) -> None:
        """Adds the settings of these points to rows that other sweeps wrote without them."""
        with self._locked():
            self._look()
            self._unify(_Schema(settings_of(points)))
            self._complete(points)

    def close(self) -> None:
        """Ends the claims, and removes the state if nobody needs it."""
        if self._own is None:
            return
        path, descriptor = self._own
        self._own = None
        with contextlib.suppress(OSError), self._locked():
            path.unlink(missing_ok=True)
            self._unlock(descriptor)
            if not self.failures() and not self._others():
                # In this order: a sweep that waits for the lock sees that its file is gone, and makes another.
                (self._state / "claims").rmdir()
                (self._state / "failures.jsonl").unlink(missing_ok=True)
                (self._state / "lock").unlink()
                for directory in (self._state, self._state.parent, self._state.parent.parent):
                    directory.rmdir()

    def _schema(self) -> _Schema:
        schema = self._expected
        for part in self._parts.values():
            schema = part.schema.joined(schema)
        return schema

    def _unify(self, more: _Schema) -> None:
        """Rewrites parts that lack columns of others."""
        self._expected = self._expected.joined(more)
        schema = self._schema()
        for name, part in list(self._parts.items()):
            if list(part.schema.kinds().items()) != list(schema.kinds().items()):
                self._write_part(name, _native.read_rows([self.directory / name]).columns(), schema)

    def _complete(self, points: Iterable[Point]) -> None:
        """Adds settings that rows of other sweeps did not name, as their values were the defaults."""
        wanted = {point.experiment: point.said for point in points}
        for name, part in list(self._parts.items()):
            missing = _missing(part, wanted)
            if not missing:
                continue
            columns = _native.read_rows([self.directory / name]).columns()
            cells = {column: cells for column, _, cells in columns}
            for place, one in missing:
                column, *number = setting_columns(one)
                cells[column][place] = one[1]
                if number and one[2] is not None:
                    cells[number[0]][place] = one[2][1]
            for place in dict.fromkeys(place for place, _ in missing):
                said = [(column, cells[column][place]) for column in part.texts]
                cells[RUN][place] = words([one for one in said if one[1]], part.keys[place][1])
            self._write_part(name, columns, part.schema)

    def _whole(self, row: Row) -> Row:
        """Returns a row with the settings that other rows of its experiment name."""
        own = {key for key, _, _ in row.point.said}
        others = self._named.get(row.point.experiment, {})
        more = tuple(_native.setting(key, value) for key, value in others.items() if key not in own)
        return replace(row, point=replace(row.point, said=row.point.said + more)) if more else row

    def _write_part(self, name: str, columns: Columns, schema: _Schema) -> None:
        """Writes columns as one file, which appears whole or not at all. Cells of missing columns are empty."""
        known = {column: cells for column, _, cells in columns}
        rows = len(known[SEED])
        made = [
            (column, kind, known.get(column) or ([""] if kind == "text" else [None]) * rows)
            for column, kind in schema.kinds().items()
        ]
        # Readers of the directory never see a file that is not complete.
        _native.write_rows(os.fspath(self._state / name), made)
        path = self.directory / name
        os.replace(self._state / name, path)
        part = _Part.of(_mark(path), {column: cells for column, _, cells in made}, schema)
        self._parts[name] = part
        self._learn(part)

    def _write_failures(self, rows: list[Row]) -> None:
        failures = self.failures()
        before = dict(failures)
        for row in rows:
            failures.pop(row.point.key, None)
            if row.failure is not None:
                failures[row.point.key] = {
                    RUN: row.point.run,
                    EXPERIMENT: row.point.experiment,
                    "settings": {key: value for key, value, _ in row.point.said},
                    SEED: row.point.seed,
                    **vars(row.failure),
                    "id": uuid.uuid4().hex,
                }
        if failures == before:
            return
        path = self._state / "failures.jsonl"
        text = "".join(json.dumps(row) + "\n" for row in failures.values())
        new = path.with_suffix(".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, path)

    def _save_claims(self) -> None:
        if self._own is not None:
            # In place, as the lock belongs to the file. Others read it under the lock of all.
            text = json.dumps(sorted(self._claimed)).encode()
            os.ftruncate(self._own[1], 0)
            os.pwrite(self._own[1], text, 0)

    def _others(self) -> set[Key]:
        """Returns what other sweeps claim, and removes the claims of those that have ended."""
        claimed: set[Key] = set()
        for path in (self._state / "claims").glob("*.json"):
            if self._own is not None and path == self._own[0]:
                continue
            try:
                descriptor = self._lock(path, wait=False)
            except BlockingIOError:
                claimed.update((experiment, seed) for experiment, seed in json.loads(path.read_bytes()))
            else:
                path.unlink()
                self._unlock(descriptor)
        return claimed

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Excludes every other sweep from claims and files."""
        path = self._state / "lock"
        while True:
            self._state.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = self._lock(path, wait=True)
            except FileNotFoundError:
                continue
            # The last sweep removes the file: a lock of a file that is gone excludes nobody.
            with contextlib.suppress(FileNotFoundError):
                if os.fstat(descriptor).st_ino == os.stat(path).st_ino:
                    break
            self._unlock(descriptor)
        try:
            yield
        finally:
            self._unlock(descriptor)

    def _lock(self, path: Path, wait: bool) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BaseException:
            os.close(descriptor)
            raise
        self._open.add(descriptor)
        return descriptor

    def _unlock(self, descriptor: int) -> None:
        self._open.discard(descriptor)
        os.close(descriptor)

    def _forget(self) -> None:
        """Closes the locks of the parent in a forked child, in which they would outlive it."""
        for descriptor in self._open:
            os.close(descriptor)
        self._open, self._own = set(), None


def _mark(path: Path) -> Mark:
    """Returns the mark of a file."""
    status = path.stat()
    return status.st_ino, status.st_mtime_ns, status.st_size


_stores: weakref.WeakSet[Store] = weakref.WeakSet()


def _forked() -> None:
    for store in list(_stores):
        store._forget()


os.register_at_fork(after_in_child=_forked)


def words(said: Iterable[tuple[str, str]], seed: int) -> str:
    """Returns settings and a seed in words."""
    return ", ".join([*(f"{key} = {value}" for key, value in said), f"seed = {seed}"])


def _missing(part: _Part, wanted: dict[str, tuple[Said, ...]]) -> list[tuple[int, Said]]:
    """Returns the settings of experiments that rows of a part do not name, with the places of these rows."""
    missing = []
    for place, (experiment, _) in enumerate(part.keys):
        for one in wanted.get(experiment, ()):
            cells = part.texts.get(one[0])
            if cells is None or not cells[place]:
                missing.append((place, one))
    return missing


def setting_columns(said: Said) -> list[str]:
    """Returns the names of the columns of a setting."""
    key, _, number = said
    return [key] if number is None else [key, f"{key}_{number[0] or 'number'}"]


def settings_of(points: Iterable[Point]) -> Kinds:
    """Returns the columns of the settings of points, with their types."""
    kinds: Kinds = {}
    for one in dict.fromkeys(one for point in points for one in point.said):
        name, *number = setting_columns(one)
        kinds.setdefault(name, "text")
        for column in number:
            kinds.setdefault(column, "number")
    return kinds


def columns_of(rows: list[Row]) -> Columns:
    """Returns rows as columns: run, settings, seed, metrics.

    Each setting is a column of text. One that is a quantity has another column, of numbers, whose
    name ends with the unit; that of a plain number ends with ``number``.
    """
    settings: dict[str, tuple[str, list[Any]]] = {}
    metrics: dict[str, list[Any]] = {}
    for name, kind in settings_of(row.point for row in rows).items():
        settings[name] = (kind, [""] * len(rows) if kind == "text" else [None] * len(rows))
    for place, row in enumerate(rows):
        for one in row.point.said:
            name, *more = setting_columns(one)
            settings[name][1][place] = one[1]
            if one[2] is not None:
                settings[more[0]][1][place] = one[2][1]
        for name, size in row.numbers:
            cells = metrics.get(name)
            if cells is None:
                cells = metrics[name] = [None] * len(rows)
            cells[place] = size
    return [
        (RUN, "text", [row.point.run for row in rows]),
        (EXPERIMENT, "text", [row.point.experiment for row in rows]),
        *((name, kind, cells) for name, (kind, cells) in settings.items()),
        (SEED, "count", [row.point.seed for row in rows]),
        *((name, "number", cells) for name, cells in metrics.items() if name not in settings),
    ]
