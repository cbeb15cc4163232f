"""Overhead of sweeps per run, in processor time, and their duration with one worker and with two.

    python python/bench/sweeps.py local|dask|ray [RUNS] [DURATION]
"""

from __future__ import annotations

import contextlib
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pymarcato

GRID = {"topology.rate": [f"{rate} Mbit/s" for rate in range(1, 11)]}


def scenario(duration: str) -> pymarcato.Scenario:
    """A bulk transfer that takes little time to simulate."""
    return pymarcato.Scenario.from_dict({
        "name": "bulk",
        "duration": duration,
        "topology": {
            "kind": "dumbbell",
            "rate": "10 Mbit/s",
            "delay": "5 ms",
            "loss": {"kind": "random", "probability": 0.01},
        },
        "flow": [{"name": "bulk", "kind": "tcp", "from": "client-1", "to": "server-1"}],
    })


@contextlib.contextmanager
def engine(name: str, workers: int) -> Iterator[Any]:
    """Starts an engine on this machine."""
    if name == "local":
        with pymarcato.LocalPool(workers) as pool:
            yield pool
    elif name == "dask":
        from distributed import Client, LocalCluster

        with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
            with Client(cluster) as client:
                yield client
    else:
        import ray

        ray.init(num_cpus=workers, include_dashboard=False, log_to_driver=False)
        yield ray
        ray.shutdown()


def used() -> tuple[float, float]:
    """Processor time of this process, and of its children that have ended."""
    own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return own.ru_utime + own.ru_stime, children.ru_utime + children.ru_stime


def bare(one: pymarcato.Scenario, seeds: int) -> float:
    """Processor time of a run without a sweep, in s."""
    began = time.process_time()
    for rate in GRID["topology.rate"]:
        for seed in range(1, seeds + 1):
            one.set("topology.rate", rate).run(seed)
    return (time.process_time() - began) / (10 * seeds)


def main() -> None:
    """Measures one engine."""
    name, runs = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 10_000
    one = scenario(sys.argv[3] if len(sys.argv) > 3 else "200 ms")
    print(f"a run without a sweep: {bare(one, 2) * 1e3:.3f} ms of processor time")
    for workers in (1, 2):
        before = used()
        with tempfile.TemporaryDirectory() as out, engine(name, workers) as on:
            began = time.perf_counter()
            dataset = pymarcato.sweep(one, GRID, range(1, runs // 10 + 1), on=on, out=out)
            seconds = time.perf_counter() - began
            # Without reading the rows.
            own, _ = used()
            count, files = len(dataset), dataset.files
            size = sum(file.stat().st_size for file in files)
        client, others = own - before[0], used()[1] - before[1]
        print(
            f"{name}, {workers} workers: {count} runs in {seconds:.1f} s; per run {client / count * 1e3:.3f} ms of the client's "
            f"processor time, {others / count * 1e3:.3f} ms of the workers'; {len(files)} files, {size / 1e6:.1f} MB"
        )


if __name__ == "__main__":
    main()
