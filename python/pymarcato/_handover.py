"""Runs that the command `marcato sim --runs-on` hands over."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from . import _native
from ._engine import engine_of
from ._errors import Error
from ._schedule import Schedule

#: Arguments that create the scenario, and the numbers of its runs.
Task = tuple[tuple[Any, ...], list[int]]


def documents(task: Task) -> tuple[list[tuple[str, str]], float]:
    """Executes runs of a scenario, and returns the document or the error of each."""
    parts, numbers = task
    began = time.perf_counter()
    name, text, settings, seed, files = parts
    scenario = _native.Scenario(name, text, settings, seed, files, [])
    results: list[tuple[str, str]] = []
    for number in numbers:
        try:
            results.append((scenario.run(number, False).json, ""))
        except Exception as error:
            results.append(("", str(error) or type(error).__name__))
    return results, time.perf_counter() - began


def run(order: dict[str, Any]) -> list[tuple[int, str]]:
    """Executes the runs of an order, writes their documents, and returns those that failed.

    An order has the command's `version` and `commit`, the `file` of the scenario, its settings `set`
    and `seed`, the engine `on`, and for each run its number and the path of its document (`runs`).
    """
    ours = (_native.VERSION, _native.COMMIT)
    if ours != (order["version"], order["commit"]):
        theirs = f"{order['version']} ({order['commit']})"
        raise Error(
            f"the package is version {ours[0]} ({ours[1]}) and the command {theirs}: install the package of the same commit"
        )
    scenario = _native.Scenario.load(order["file"], []).with_settings(order["set"], order["seed"])
    parts = scenario.parts()
    failed: list[tuple[int, str]] = []
    # Run by `-m`, this module is `__main__`. Workers have another one, so they are told the module's name.
    from pymarcato import _handover

    engine = engine_of(order["on"], _handover.documents)

    def keep(runs: list[tuple[int, str]], results: list[tuple[str, str]]) -> None:
        for (number, path), (document, error) in zip(runs, results):
            if error:
                failed.append((number, error))
            else:
                write(Path(path), document)

    try:
        schedule: Schedule[tuple[int, str]] = Schedule(
            engine,
            task=lambda runs: (parts, [number for number, _ in runs]),
            keep=keep,
            lose=lambda run, reason: failed.append((run[0], reason)),
        )
        schedule.execute([(number, path) for number, path in order["runs"]], None)
    finally:
        engine.close()
    return sorted(failed)


def write(path: Path, text: str) -> None:
    """Writes a file that appears whole or not at all."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def main() -> int:
    """Reads an order from the standard input, and answers on the standard output."""
    order = json.load(sys.stdin)
    # What engines print must not meet the answer.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        answer: dict[str, Any] = {"failed": run(order)}
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        answer = {"error": str(error) or type(error).__name__}
    json.dump(answer, answers)
    answers.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
