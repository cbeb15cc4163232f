"""Waiting of event loops for the native half."""

from __future__ import annotations

import asyncio
import itertools
import os
import weakref
from typing import Any

from . import _native

#: Operations in a row that need not wait, after which other tasks of the loop have their turn.
_BURST = 64


class Waiter:
    """Operations of one event loop.

    The loop polls each operation itself. The native half rings by a descriptor that the loop watches.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wakeups = _native.Wakeups()
        # Weak references: a loop that was closed with tasks in it must not be kept by them.
        self._futures: dict[int, weakref.ref[asyncio.Future[None]]] = {}
        self._numbers = itertools.count()
        self._burst = 0
        loop.add_reader(self._wakeups.fileno(), self.wake)

    def wake(self) -> None:
        """Lets the coroutines go on whose operations can."""
        for number in self._wakeups.take():
            found = self._futures.pop(number, None)
            future = found() if found is not None else None
            if future is not None and not future.done():
                future.set_result(None)

    async def result(self, operation: _native.Operation, loop: asyncio.AbstractEventLoop) -> Any:
        """Waits for the result of an operation, which is cancelled with its coroutine."""
        number = next(self._numbers)
        try:
            self._burst += 1
            if self._burst >= _BURST:
                # Before the result is taken: a cancellation here loses nothing.
                self._burst = 0
                await asyncio.sleep(0)
            while (done := operation.poll(self._wakeups, number)) is None:
                self._burst = 0
                future = loop.create_future()
                self._futures[number] = weakref.ref(future)
                await future
            return done[0]
        except BaseException:
            operation.cancel()
            self._futures.pop(number, None)
            raise


_waiters: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, Waiter] = weakref.WeakKeyDictionary()


async def result(operation: _native.Operation) -> Any:
    """Waits for the result of an operation in the running loop."""
    loop = asyncio.get_running_loop()
    waiter = _waiters.get(loop)
    if waiter is None:
        waiter = _waiters[loop] = Waiter(loop)
    return await waiter.result(operation, loop)


def _forked() -> None:
    _waiters.clear()
    _native.forked()


os.register_at_fork(after_in_child=_forked)
