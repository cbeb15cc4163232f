"""Experiments of the papers, and the validation of the simulator."""

from __future__ import annotations

import html
import json
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Optional

from . import _native
from ._engine import environment
from ._errors import RunError
from ._result import PathLike, _picture
from ._scenario import seed_of
from ._table import Table

#: Columns of a row, with their types.
_COLUMNS = {
    "id": "text", "what": "text", "unit": "text", "paper": "number", "measured": "number", "virtual": "number",
    "n": "count", "ci95": "number", "lo": "number", "hi": "number", "ok": "count",
}  # fmt: skip


class Report:
    """Report of one paper's experiments."""

    def __init__(self, name: str, document: str, csv: str, page: str, figures: list[tuple[str, str, str]]) -> None:
        self.name = name
        self._json, self._csv, self._page, self._figures = document, csv, page, figures

    @property
    def rows(self) -> Table:
        """Rows as ``marcato papers`` prints them; ``ok`` is 1, 0, or null where nothing is claimed.

        ``verdict`` says the same in words: held, off, or unclaimed.
        """
        rows = self.document()["rows"]
        made = []
        for name, kind in _COLUMNS.items():
            cells = [row[name] for row in rows]
            if name == "ok":
                cells = [None if cell is None else int(cell) for cell in cells]
            made.append((name, kind, cells))
        words = {True: "held", False: "off", None: "unclaimed"}
        made.append(("verdict", "text", [words[row["ok"]] for row in rows]))
        return Table(_native.make_table(made))

    @property
    def holds(self) -> bool:
        """Whether no row lies outside its band."""
        return all(row["ok"] is not False for row in self.document()["rows"])

    def document(self) -> dict[str, Any]:
        """Returns the document of ``marcato papers --format json``."""
        parsed: dict[str, Any] = json.loads(self._json)
        return parsed

    def to_json(self) -> str:
        """Returns the document as text."""
        return self._json

    def to_csv(self) -> str:
        """Returns the rows as CSV."""
        return self._csv

    def report(self, path: Optional[PathLike] = None) -> str:
        """Returns the report as a page of HTML, and writes it to `path` if there is one."""
        if path is not None:
            Path(path).write_text(self._page, encoding="utf-8")
        return self._page

    def figures(self) -> dict[str, str]:
        """Returns the figures as SVG, by name."""
        return {name: svg for name, svg, _ in self._figures}

    def __repr__(self) -> str:
        rows = self.document()["rows"]
        outside = sum(row["ok"] is False for row in rows)
        return f"<pymarcato.Report: {self.name}, {len(rows)} rows, {outside} outside their bands>"

    def _repr_html_(self) -> str:
        figures = "".join(
            f"<figure>{_picture(svg, caption)}<figcaption>{html.escape(caption)}</figcaption></figure>"
            for _, svg, caption in self._figures
        )
        return f"<h4>{html.escape(self.name)}</h4>{figures}{self.rows._repr_html_()}"


class Experiment:
    """Directory of scenario files with claims, as `experiments` has them.

    Attributes
    ----------
    directory : Path
        Directory.
    """

    def __init__(self, directory: PathLike) -> None:
        self.directory = Path(directory)
        if not self.directory.is_dir():
            raise FileNotFoundError(f"there is no directory `{directory}`: give one that has scenario files with claims")

    def run(self, quick: bool = False, seeds: Optional[Iterable[int]] = None) -> Report:
        """Runs the scenarios in virtual time, as ``marcato papers DIR``.

        They run in a process of their own, which Ctrl-C ends.

        Parameters
        ----------
        quick : bool
            Shorter runs, by the table ``[quick]`` of each file.
        seeds : iterable of int, optional
            Seeds; those of each file by default.

        Returns
        -------
        Report
            A row per claim, and the text and figures of the files.

        Raises
        ------
        ValueError
            If a file is wrong, or has no claim.
        RunError
            If a run fails.
        """
        wanted = None if seeds is None else [seed_of(seed) for seed in seeds]
        return Report(*_answered(str(self.directory), "experiment", str(self.directory), quick, wanted))

    def claims(self, quick: bool = False, seeds: Optional[Iterable[int]] = None) -> Table:
        """Runs the scenarios, and returns their claims: the `rows` of the report of `run`."""
        return self.run(quick, seeds).rows

    def __repr__(self) -> str:
        return f"<pymarcato.Experiment: {self.directory}>"


def experiment(directory: PathLike) -> Experiment:
    """Returns the experiment of a directory of scenario files with claims.

    Examples
    --------
    >>> import pymarcato
    >>> claims = pymarcato.experiment("experiments/cats").claims(quick=True)    # doctest: +SKIP
    >>> claims.to_pandas()                                                      # doctest: +SKIP
    """
    return Experiment(directory)


def papers(paper: str, quick: bool = False, seeds: Iterable[int] = (1,)) -> Report:
    """Runs the experiments of a paper in virtual time.

    They run in a process of their own, which Ctrl-C ends.

    Parameters
    ----------
    paper : str
        ``"cats"``, ``"plt"``, ``"cwr"``, ``"crq"`` or ``"coupled"``.
    quick : bool
        Shorter runs.
    seeds : iterable of int
        Seeds: values are means over them.

    Returns
    -------
    Report
        Rows of ``marcato papers``.

    Raises
    ------
    ValueError
        If there is no such paper, or a seed does not fit.
    RunError
        If an experiment fails.
    """
    return _isolated(paper, quick, [int(seed) for seed in seeds])


def validate(quick: bool = False, seeds: Iterable[int] = (1,)) -> Report:
    """Compares the simulator with theory, as ``marcato validate``.

    Parameters
    ----------
    quick : bool
        Shorter runs.
    seeds : iterable of int
        Seeds: values are means over them.
    """
    return _isolated("validate", quick, [int(seed) for seed in seeds])


def _isolated(paper: str, quick: bool, seeds: list[int]) -> Report:
    if paper == "all":
        raise ValueError("one report is of one paper: give its name")
    [report] = _answered(paper, "papers", paper, quick, seeds)
    return Report(*report)


def _answered(what: str, function: str, *arguments: Any) -> Any:
    """Calls a function of the native module in a process of its own."""
    # Not by `-m`, which warns of a module that the package has imported already.
    command = [sys.executable, "-c", "from pymarcato._papers import _main; _main()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as child:
        try:
            out, _ = child.communicate(pickle.dumps((function, arguments)))
        except BaseException:
            child.kill()
            raise
    if child.returncode != 0:
        raise RunError(f"the experiments of `{what}` ended with status {child.returncode}")
    is_error, answer = pickle.loads(out)
    if is_error:
        raise answer
    return answer


def _main() -> None:
    # The terminal sends Ctrl-C to both processes: experiments never look for it.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    function, arguments = pickle.load(sys.stdin.buffer)
    try:
        answer: tuple[bool, Any] = (False, getattr(_native, function)(*arguments))
    except Exception as error:
        answer = (True, error)
    sys.stdout.buffer.write(pickle.dumps(answer))
