"""Division of work into tasks."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from typing import Any, Callable, Generic, Optional, TypeVar

from ._engine import Engine

#: Wall-clock time that a task should take: short enough to lose little, long against its overhead.
TASK_SECONDS = 2.0

#: Most items of one task.
MOST_ITEMS = 500

#: Times that an item is tried on an engine that loses workers.
TRIES = 3

Item = TypeVar("Item")


class Schedule(Generic[Item]):
    """Schedule of items on an engine, whose tasks answer with a result per item and their duration.

    Parameters
    ----------
    engine : Engine
        Engine.
    task : callable
        Returns the task of some items.
    keep : callable
        Receives items with their results as they finish.
    lose : callable
        Receives an item that the engine lost too often, with the reason.
    take : callable, optional
        Returns those of some items that may be executed now; all by default.
    """

    def __init__(
        self,
        engine: Engine,
        task: Callable[[list[Item]], Any],
        keep: Callable[[list[Item], list[Any]], None],
        lose: Callable[[Item, str], None],
        take: Optional[Callable[[list[Item]], list[Item]]] = None,
    ) -> None:
        self._engine, self._task, self._keep, self._lose, self._take = engine, task, keep, lose, take
        #: Duration and number of the items that have finished.
        self._seconds, self._items = 0.0, 0

    def execute(self, items: Sequence[Item], progress: Optional[bool]) -> None:
        """Executes those of these items that may be, and returns when all have finished."""
        waiting = list(reversed(range(len(items))))
        alone: list[int] = []
        tries = [0] * len(items)
        taken: dict[int, list[int]] = {}
        with Bar(len(items), progress) as bar:
            while waiting or alone or taken:
                while (waiting or alone) and len(taken) < 2 * self._engine.width:
                    if alone:
                        places = [alone.pop()]
                    else:
                        places = self._taken([waiting.pop() for _ in range(self._size(len(waiting)))], items, bar)
                        if not places:
                            continue
                    task = self._task([items[place] for place in places])
                    taken[id(task)] = places
                    self._engine.submit(task)
                if not taken:
                    continue
                task, answer, error = self._engine.next_done()
                places = taken.pop(id(task))
                if error is None:
                    results, seconds = answer
                    self._seconds += seconds
                    self._items += len(places)
                    self._keep([items[place] for place in places], results)
                    bar.advance(len(places))
                    continue
                for place in places:
                    # A task of several items is taken apart, so that only the one at fault is lost.
                    tries[place] += len(places) == 1
                    if tries[place] < TRIES:
                        alone.append(place)
                    else:
                        reason = str(error) or type(error).__name__
                        self._lose(items[place], f"the engine lost it {TRIES} times: {reason}")
                        bar.advance(1)

    def _taken(self, places: list[int], items: Sequence[Item], bar: Bar) -> list[int]:
        """Returns the places of items that may be executed now."""
        if self._take is None:
            return places
        allowed = {id(item) for item in self._take([items[place] for place in places])}
        kept = [place for place in places if id(items[place]) in allowed]
        bar.advance(len(places) - len(kept))
        return kept

    def _size(self, waiting: int) -> int:
        """Returns the number of items of the next task."""
        if not self._items:
            return 1
        fitting = int(TASK_SECONDS / max(self._seconds / self._items, 1e-6))
        # Towards the end tasks shrink, so that all workers end together.
        fair = math.ceil(waiting / (2 * self._engine.width))
        return max(1, min(fitting, fair, MOST_ITEMS, waiting))


class Bar:
    """Progress bar of tqdm, or none."""

    def __init__(self, total: int, wanted: Optional[bool]) -> None:
        self._bar: Any = None
        if wanted is False or (wanted is None and not _is_watched()):
            return
        try:
            from tqdm.auto import tqdm
        except ImportError:
            if wanted:
                raise
            return
        self._bar = tqdm(total=total, unit="run")

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.close()

    def advance(self, runs: int) -> None:
        """Counts runs that have finished."""
        if self._bar is not None:
            self._bar.update(runs)


def _is_watched() -> bool:
    return sys.stderr.isatty() or "ipykernel" in sys.modules or os.environ.get("MARCATO_PROGRESS") == "1"
