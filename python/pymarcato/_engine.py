"""Engines that execute the tasks of a sweep."""

from __future__ import annotations

import concurrent.futures as futures
import itertools
import os
import pickle
import queue
import struct
import subprocess
import sys
import threading
from typing import IO, Any, Callable, Optional, Protocol

from ._errors import Error

#: Function that a worker calls with a task.
Work = Callable[[Any], Any]


class EngineError(Error, RuntimeError):
    """Engine that cannot go on."""


class Engine(Protocol):
    """Executor of tasks: hands them to workers, and returns them as they finish."""

    #: Number of tasks that run at once, as far as the engine knows.
    width: int

    def submit(self, task: Any) -> None:
        """Hands a task over."""

    def next_done(self) -> tuple[Any, Any, Optional[BaseException]]:
        """Waits for any task, and returns it with its result or with the error of the engine."""

    def close(self) -> None:
        """Drops tasks that have not finished, and ends workers that the engine started itself."""


def engine_of(on: Any, work: Work) -> Engine:
    """Returns the engine for the argument `on` of a sweep.

    Raises
    ------
    TypeError
        If `on` is nothing that runs tasks.
    """
    if on is None or on == "local":
        return _Futures(LocalPool(), work, is_own=True)
    if isinstance(on, futures.Executor):
        return _Futures(on, work, is_own=False)
    if isinstance(on, str) and on.startswith("dask://"):
        return _Dask(_dask_client("tcp://" + on[len("dask://") :]), work, is_own=True)
    if on == "ray" or getattr(on, "__name__", "") == "ray":
        return _Ray(work)
    if type(on).__module__.split(".")[0] == "distributed" and hasattr(on, "submit"):
        return _Dask(on, work, is_own=False)
    raise TypeError(
        f"a sweep runs on None (this machine), a dask.distributed.Client, ray, or a concurrent.futures.Executor, not {on!r}"
    )


def _dask_client(address: str) -> Any:
    try:
        from distributed import Client
    except ImportError as error:
        raise EngineError("Dask is not installed: pip install 'dask[distributed]'") from error
    return Client(address)


class _Futures:
    """Engine on an executor of the standard library."""

    def __init__(self, executor: futures.Executor, work: Work, is_own: bool) -> None:
        self._executor, self._work, self._is_own = executor, work, is_own
        self._pending: dict[futures.Future[Any], Any] = {}
        self.width = int(getattr(executor, "_max_workers", None) or os.cpu_count() or 1)

    def submit(self, task: Any) -> None:
        try:
            self._pending[self._executor.submit(self._work, task)] = task
        except futures.BrokenExecutor as error:
            raise EngineError(
                f"the executor is broken ({error}): what has finished is kept, run the same sweep on a new one"
            ) from error

    def next_done(self) -> tuple[Any, Any, Optional[BaseException]]:
        done, _ = futures.wait(self._pending, return_when=futures.FIRST_COMPLETED)
        future = next(iter(done))
        task = self._pending.pop(future)
        if future.cancelled():
            return task, None, EngineError("the executor cancelled the task")
        error = future.exception()
        return task, (None if error else future.result()), error

    def close(self) -> None:
        for future in self._pending:
            future.cancel()
        if self._is_own:
            self._executor.shutdown(wait=True)


class _Dask:
    """Engine on a cluster of Dask, which runs tasks of a lost worker again."""

    def __init__(self, client: Any, work: Work, is_own: bool) -> None:
        from distributed import as_completed

        self._client, self._work, self._is_own = client, work, is_own
        self._pending: dict[str, Any] = {}
        self._completed = as_completed(with_results=False)
        self._number = itertools.count()
        self.width = max(1, sum(client.nthreads().values()))

    def submit(self, task: Any) -> None:
        # Runs are pure, but a task that is submitted again has to run again.
        key = f"marcato-{id(self)}-{next(self._number)}"
        future = self._client.submit(self._work, task, key=key, pure=False)
        self._pending[key] = (task, future)
        self._completed.add(future)

    def next_done(self) -> tuple[Any, Any, Optional[BaseException]]:
        future = next(self._completed)
        task, _ = self._pending.pop(future.key)
        if future.status == "finished":
            return task, future.result(), None
        error = future.exception() if future.status == "error" else EngineError(f"the task is {future.status}")
        return task, None, error

    def close(self) -> None:
        self._client.cancel([future for _, future in self._pending.values()])
        if self._is_own:
            self._client.close()


class _Ray:
    """Engine on a cluster of Ray, which runs tasks of a lost worker again."""

    def __init__(self, work: Work) -> None:
        try:
            import ray
        except ImportError as error:
            raise EngineError("Ray is not installed: pip install ray") from error
        self._ray = ray
        if not ray.is_initialized():
            ray.init(log_to_driver=False)
        self._remote = ray.remote(max_retries=3)(work)
        self._pending: dict[Any, Any] = {}
        self.width = max(1, int(ray.cluster_resources().get("CPU", 1)))

    def submit(self, task: Any) -> None:
        self._pending[self._remote.remote(task)] = task

    def next_done(self) -> tuple[Any, Any, Optional[BaseException]]:
        [reference], _ = self._ray.wait(list(self._pending), num_returns=1)
        task = self._pending.pop(reference)
        try:
            return task, self._ray.get(reference), None
        except self._ray.exceptions.RayError as error:
            return task, None, error

    def close(self) -> None:
        for reference in self._pending:
            self._ray.cancel(reference, force=True)


def environment() -> dict[str, str]:
    """Returns the environment of a process that imports what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}


class WorkerLost(Error, RuntimeError):
    """End of a worker process during a task."""


class LocalPool(futures.Executor):
    """Processes of this machine.

    Unlike those of `multiprocessing`, workers do not import the main module, so a script needs no
    guard, and a notebook works. A worker that dies fails its task only, and another takes its place.

    Parameters
    ----------
    workers : int, optional
        Number of processes; one per processor by default.
    """

    def __init__(self, workers: Optional[int] = None) -> None:
        self._max_workers = workers or _processors()
        self._tasks: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        self._threads = [threading.Thread(target=self._serve, daemon=True) for _ in range(self._max_workers)]
        for thread in self._threads:
            thread.start()

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> futures.Future[Any]:
        """Hands a call over to a process."""
        if self._is_closed:
            raise RuntimeError("the pool is closed")
        future: futures.Future[Any] = futures.Future()
        self._tasks.put((future, function, arguments, named))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends the processes; calls that have not finished are dropped."""
        with self._lock:
            self._is_closed = True
            for process in self._processes:
                process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        if wait:
            for thread in self._threads:
                thread.join()

    def _serve(self) -> None:
        process: Optional[subprocess.Popen[bytes]] = None
        while (item := self._tasks.get()) is not None and not self._is_closed:
            future, function, arguments, named = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                message = dumps((function, arguments, named))
                if process is None:
                    process = self._start()
                is_error, value = _call(process, message)
            except EOFError:
                status = process.wait() if process else None
                self._forget(process)
                process = None
                future.set_exception(WorkerLost(f"the worker ended with status {status} during its task"))
            except BaseException as error:  # The pool must not hang: the caller gets every error.
                future.set_exception(error)
            else:
                future.set_exception(value) if is_error else future.set_result(value)
        if process is not None:
            process.kill()
            process.wait()
            self._forget(process)

    def _start(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._is_closed:
                raise RuntimeError("the pool is closed")
            # A session of its own: Ctrl-C reaches the parent only, which ends the workers.
            process = subprocess.Popen(
                [sys.executable, "-m", "pymarcato._worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                start_new_session=True,
                env=environment(),
            )
            self._processes.add(process)
            return process

    def _forget(self, process: Optional[subprocess.Popen[bytes]]) -> None:
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe:
                try:
                    pipe.close()
                except BrokenPipeError:
                    pass
        with self._lock:
            self._processes.discard(process)


def _processors() -> int:
    """Returns the number of processors that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def dumps(value: Any) -> bytes:
    """Pickles a value; classes of the main module by their code, if cloudpickle is installed."""
    try:
        import cloudpickle
    except ImportError:
        return pickle.dumps(value)
    return bytes(cloudpickle.dumps(value))


def send(pipe: IO[bytes], message: bytes) -> None:
    """Writes a message with its length."""
    pipe.write(struct.pack(">Q", len(message)) + message)
    pipe.flush()


def receive(pipe: IO[bytes]) -> bytes:
    """Reads a message.

    Raises
    ------
    EOFError
        If the other end has closed the pipe.
    """
    head = pipe.read(8)
    if len(head) < 8:
        raise EOFError
    (length,) = struct.unpack(">Q", head)
    message = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message


def _call(process: subprocess.Popen[bytes], message: bytes) -> tuple[bool, Any]:
    if process.stdin is None or process.stdout is None:
        raise EOFError
    try:
        send(process.stdin, message)
    except BrokenPipeError as error:
        raise EOFError from error
    answer: tuple[bool, Any] = pickle.loads(receive(process.stdout))
    return answer
