"""Data sets: sweeps that share one, versions, and what other programs read."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pymarcato
from conftest import SMALL
from pymarcato import _engine, _store, _sweep

GRID: dict[str, list[Any]] = {"topology.rate": ["5 Mbit/s", "10 Mbit/s"], "flow.bulk.congestion": ["reno", "cubic"]}

#: Nothing in it is random.
PLAIN: dict[str, Any] = {
    "name": "plain",
    "duration": "1 s",
    "topology": {"kind": "dumbbell", "rate": "10 Mbit/s", "delay": "20 ms"},
    "flow": [{"name": "bulk", "kind": "tcp", "from": "client-1", "to": "server-1"}],
}


@pytest.fixture
def brief() -> pymarcato.Scenario:
    return pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}})


def fails_at_2(task: _sweep.Task) -> _sweep.Answer:
    """Fails the runs of seed 2."""
    rows, seconds = work(task)
    return [([], _store.Failure("bad luck")) if seed == 2 else row for row, (_, seed) in zip(rows, task[1])], seconds


work = _sweep.work


def read_raw(root: Path) -> dict[str, list[Any]]:
    """Columns of a data set as PyArrow reads its files."""
    dataset = pytest.importorskip("pyarrow.dataset")
    table = dataset.dataset(root, partitioning="hive").to_table()
    columns: dict[str, list[Any]] = {name: table[name].to_pylist() for name in table.column_names}
    return columns


def arrow(relation: Any) -> Any:
    """A result of DuckDB, whose versions name it differently."""
    return (getattr(relation, "to_arrow_table", None) or relation.arrow)()


SCRIPT = """
import json, sys, pymarcato
scenario, out, seeds = json.loads(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
print("ready", flush=True)
sys.stdin.readline()
dataset = pymarcato.sweep(pymarcato.Scenario.from_dict(scenario), {"topology.rate": ["5 Mbit/s", "10 Mbit/s"]}, seeds, out=out)
print(json.dumps([dataset.computed, len(dataset), list(dataset.rows())[0]["seed"]]))
"""


def started(tmp_path: Path, scenario: dict[str, Any], seeds: list[int]) -> subprocess.Popen[str]:
    """Starts a sweep in a process, which waits for a line before it begins."""
    arguments = [json.dumps(scenario), str(tmp_path / "out"), json.dumps(seeds)]
    child = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_engine.environment(),
    )  # fmt: skip
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


def test_ten_sweeps_at_once_compute_each_cell_once(tmp_path: Path) -> None:
    scenario = {**SMALL, "duration": "1 s", "record": {}}
    seeds = list(range(1, 21))
    children = [started(tmp_path, scenario, seeds) for _ in range(10)]
    for child in children:
        assert child.stdin is not None
        child.stdin.write("go\n")
        child.stdin.flush()
    answers = [json.loads(child.communicate(timeout=300)[0]) for child in children]
    assert [child.returncode for child in children] == [0] * 10
    assert sum(computed for computed, _, _ in answers) == 40
    assert [(rows, first) for _, rows, first in answers] == [(40, 1)] * 10
    rows = read_raw(tmp_path / "out")
    assert len(set(zip(rows["experiment"], rows["seed"]))) == len(rows["seed"]) == 40
    assert {row["n"] for row in pymarcato.summarise(tmp_path / "out", metrics=["bulk.goodput"]).rows()} == {20}
    assert not (tmp_path / "out/_state").exists()


def test_sweeps_on_threads_share_a_directory(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    def one(_: int) -> pymarcato.Dataset:
        with ThreadPoolExecutor(2) as executor:
            return pymarcato.sweep(brief, seeds=range(1, 13), on=executor, out=tmp_path)

    with ThreadPoolExecutor(4) as threads:
        made = list(threads.map(one, range(4)))
    assert sum(dataset.computed for dataset in made) == 12
    assert [dataset.table["seed"] for dataset in made] == [list(range(1, 13))] * 4


def test_claims_of_a_killed_sweep_are_taken_over(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    child = started(tmp_path, {**SMALL, "duration": "1 s", "record": {}}, [1, 2])
    store = _store.Store(tmp_path / "out", identity(brief))
    points = _sweep._points(brief, {"topology.rate": ["5 Mbit/s", "10 Mbit/s"]}, [1, 2], None)
    assert child.stdin is not None
    killer = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys, pathlib, os, signal\n"
            "from pymarcato import _store, _sweep, Scenario\n"
            "import json\n"
            "brief = Scenario.from_dict(json.loads(sys.argv[1]))\n"
            "points = _sweep._points(brief, {'topology.rate': ['5 Mbit/s', '10 Mbit/s']}, [1, 2], None)\n"
            "store = _store.Store(pathlib.Path(sys.argv[2]), sys.argv[3])\n"
            "store.open(points)\n"
            "print(len(store.look(points, claim=True).free), flush=True)\n"
            "sys.stdin.readline()\n",
            json.dumps({**SMALL, "duration": "1 s", "record": {}}),
            str(tmp_path / "out"),
            identity(brief),
        ],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=_engine.environment(),
    )  # fmt: skip
    assert killer.stdout is not None and killer.stdout.readline() == "4\n"
    # While it lives, all cells are its own; and then nobody's.
    store.open(points)
    assert len(store.look(points).busy) == 4
    killer.kill()
    killer.wait()
    for pipe in (killer.stdin, killer.stdout):
        assert pipe is not None
        pipe.close()
    assert len(store.look(points).free) == 4
    store.close()
    out, _ = child.communicate("go\n", timeout=120)
    assert json.loads(out)[:2] == [4, 4]


def identity(scenario: pymarcato.Scenario) -> str:
    return _store._native.fingerprint([_sweep.LAYOUT, scenario._native.identity])[:16]


def test_a_forked_child_keeps_no_claims(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    points = _sweep._points(brief, None, [1], None)
    first, second = (_store.Store(tmp_path, identity(brief)) for _ in range(2))
    first.open(points)
    assert len(first.look(points, claim=True).free) == 1
    (ready, told), (wait, end) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(end)
        os.write(told, b"x")
        os.read(wait, 1)
        os._exit(0)
    try:
        second.open(points)
        assert len(second.look(points).busy) == 1
        assert os.read(ready, 1) == b"x" and first._own is not None
        # As if the parent had ended: its claims end, although the child lives.
        os.close(first._own[1])
        assert len(second.look(points).free) == 1
        second.close()
    finally:
        for descriptor in (end, wait, ready, told):
            os.close(descriptor)
        os.waitpid(child, 0)


def test_a_row_that_is_there_is_not_written_twice(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    points = _sweep._points(brief, None, [1, 2], None)
    store = _store.Store(tmp_path, identity(brief))
    store.open(points)
    rows = [_store.Row(point, (("flow.a.x_ms", 1.0),)) for point in points]
    for some in (rows[:1], rows, [_store.Row(points[0], (), _store.Failure("late"))]):
        store.write(some)
    assert store.read()["seed"] == [1, 2] and store.failures() == {}
    store.close()


def test_a_run_that_fails_again_is_retried_once(
    tmp_path: Path, brief: pymarcato.Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_sweep, "work", fails_at_2)
    for computed, retry in ((3, False), (0, False), (1, True), (1, True)):
        with ThreadPoolExecutor(1) as executor:
            dataset = pymarcato.sweep(brief, seeds=[1, 2, 3], on=executor, out=tmp_path, retry_failed=retry)
        assert (dataset.computed, len(dataset), len(dataset.failures)) == (computed, 2, 1)
    # A failure that another sweep added meanwhile counts: it is not the one to retry.
    store = _store.Store(tmp_path, identity(brief))
    points = _sweep._points(brief, None, [1, 2, 3], None)
    old = {key: row["id"] for key, row in store.failures().items()}
    assert [point.seed for point in store.look(points, old).free] == [2]
    store.open(points)
    store.write([_store.Row(points[1], (), _store.Failure("again"))])
    assert store.look(points, old).free == []
    store.close()


def test_versions_are_never_pooled(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    dataset = pymarcato.sweep(brief, GRID, seeds=[1, 2, 3], out=tmp_path)
    other = dataset.path.with_name("version=0.0.1+older")
    shutil.copytree(dataset.path, other)
    rows = list(pymarcato.summarise(tmp_path, metrics=["bulk.goodput"]).rows())
    assert len(rows) == 8 and {row["n"] for row in rows} == {3}
    assert {row["version"] for row in rows} == {"0.0.1+older", dataset.path.name[len("version=") :]}
    with pytest.raises(pymarcato.GridError, match=r"several versions \(0.0.1\+older, .*add 'version' to `by`"):
        pymarcato.summarise(tmp_path, by=["topology.rate"])
    one = pymarcato.summarise(other, metrics=["bulk.goodput"])
    assert sorted(one["mean"]) == sorted(pymarcato.summarise(dataset, metrics=["bulk.goodput"])["mean"])
    pairs = pymarcato.summarise(tmp_path, metrics=["bulk.goodput"], paired=("flow.bulk.congestion", "reno"))
    assert {row["n"] for row in pairs.rows()} == {3} and len(pairs) == 4


def test_scenarios_of_one_directory_are_never_pooled(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    for scenario in (brief, brief.set("topology.delay", "40 ms")):
        pymarcato.sweep(scenario, seeds=[1, 2, 3], out=tmp_path)
    rows = list(pymarcato.summarise(tmp_path, metrics=["bulk.goodput"]).rows())
    assert [row["n"] for row in rows] == [3, 3] and len({row["scenario"] for row in rows}) == 2


def test_nothing_random_gives_no_interval(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    plain = pymarcato.Scenario.from_dict(PLAIN)
    grid = {"topology.rate": ["5 Mbit/s", "10 Mbit/s"]}
    dataset = pymarcato.sweep(plain, grid, seeds=range(1, 6), out=tmp_path)
    for rows in (pymarcato.summarise(dataset), pymarcato.summarise(tmp_path)):
        assert set(rows["ci95"]) == {None} and set(rows["n"]) == {1}
    differences = pymarcato.summarise(dataset, metrics=["goodput"], paired=("topology.rate", "5 Mbit/s"))
    assert (differences["ci95"], differences["n"]) == ([None], [1])
    # A metric that is the same for all seeds of a random scenario keeps its interval of nothing.
    random = pymarcato.summarise(pymarcato.sweep(brief, seeds=range(1, 6), out=tmp_path / "random"))
    assert (0.0, 5) in set(zip(random["ci95"], random["n"]))


def test_a_key_with_its_default_computes_nothing_anew(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    rates = {"topology.rate": ["5 Mbit/s", "10 Mbit/s"]}
    first = pymarcato.sweep(brief, rates, seeds=[1, 2], out=tmp_path)
    # CUBIC is what the file has.
    more = pymarcato.sweep(brief, {**rates, "flow.bulk.congestion": ["cubic"]}, seeds=[1, 2], out=tmp_path)
    assert (first.computed, more.computed, len(more)) == (4, 0, 4)
    assert set(more.table["flow.bulk.congestion"]) == {"cubic"}
    assert more.table["run"][0] == "topology.rate = 5 Mbit/s, flow.bulk.congestion = cubic, seed = 1"
    grown = pymarcato.sweep(brief, {**rates, "flow.bulk.congestion": ["cubic", "reno"]}, seeds=[1, 2], out=tmp_path)
    assert grown.computed == 4
    assert len(pymarcato.summarise(tmp_path, metrics=["bulk.goodput"])) == 4


def test_seeds_of_an_experiment_name_the_same_settings(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    keyed = {"flow.bulk.congestion": ["cubic"], "topology.rate": ["10 Mbit/s"]}
    pymarcato.sweep(brief, keyed, seeds=[1], out=tmp_path)
    # Another sweep adds seeds, and names neither key. The first sweep's rows know them.
    pymarcato.sweep(brief, seeds=[2, 3], out=tmp_path)
    [row] = pymarcato.summarise(tmp_path, metrics=["bulk.goodput"]).rows()
    assert (row["n"], row["flow.bulk.congestion"], row["topology.rate_mbit_per_s"]) == (3, "cubic", 10.0)
    # A key that is named later holds for seeds that the sweep does not have.
    dataset = pymarcato.sweep(brief, {**keyed, "topology.delay": ["20 ms"]}, seeds=[1], out=tmp_path)
    assert dataset.computed == 0
    [row] = pymarcato.summarise(tmp_path, metrics=["bulk.goodput"]).rows()
    assert (row["n"], row["topology.delay_ms"]) == (3, 20.0)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> tuple[pymarcato.Dataset, Path]:
    """Sweep whose first run fails, and whose combinations have different metrics."""
    out = tmp_path_factory.mktemp("mixed")
    scenario = pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}})
    grid = {"topology.queue": ["droptail", "codel"], "topology.rate": ["5 Mbit/s", "10 Mbit/s"]}
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(_sweep, "work", fails_at_2)
        dataset = pymarcato.sweep(scenario, grid, seeds=[2, 1, 3], on=executor, out=out)
    # Another key adds a column to all files.
    dataset = pymarcato.sweep(scenario, {**grid, "flow.asks.think": ["50 ms", "80 ms"]}, seeds=[2, 1, 3], out=out)
    assert len(dataset.files) > 2 and len(dataset.failures) == 4
    return dataset, out


def test_every_file_has_the_same_columns(mixed: tuple[pymarcato.Dataset, Path]) -> None:
    dataset, _ = mixed
    kinds = [_store._native.read_rows([file]).kinds() for file in dataset.files]
    assert all(one == kinds[0] for one in kinds) and len(kinds[0]) > 100


@pytest.mark.parametrize("reader", ["pandas", "polars", "pyarrow", "duckdb"])
def test_raw_readers_agree_with_the_data_set(reader: str, mixed: tuple[pymarcato.Dataset, Path]) -> None:
    module = pytest.importorskip(reader)
    pyarrow = pytest.importorskip("pyarrow")
    dataset, root = mixed
    # As docs/sweeps.md has it: one scenario and version, and all of the directory.
    for place, is_all in ((str(dataset.path), False), (str(root), True)):
        if reader == "pandas":
            table = pyarrow.Table.from_pandas(module.read_parquet(place), preserve_index=False)
        elif reader == "polars":
            scan = module.scan_parquet(f"{place}/**/*.parquet", hive_partitioning=True) if is_all else module.scan_parquet(place)
            table = scan.collect().to_arrow()
        elif reader == "pyarrow":
            import pyarrow.dataset

            table = pyarrow.dataset.dataset(place, partitioning="hive").to_table()
        else:
            options = "union_by_name = true, hive_partitioning = true" if is_all else "hive_partitioning = false"
            query = f"from read_parquet('{place}/{'**/' if is_all else ''}*.parquet', {options})"
            table = arrow(module.sql(query))
        ours = dataset.to_pyarrow()
        partition = [name for name in table.column_names if name in ("scenario", "version")]
        assert sorted(partition) == (["scenario", "version"] if is_all else [])
        assert [name for name in table.column_names if name not in partition] == ours.column_names
        plain = {"large_string": "string", "string_view": "string"}
        types = {field.name: plain.get(str(field.type), str(field.type)) for field in table.schema if field.name not in partition}
        assert types == {name: str(ours.schema.field(name).type) for name in ours.column_names}
        keys = ["experiment", "seed"]
        theirs = {tuple(row[key] for key in keys): row for row in table.select(ours.column_names).to_pylist()}
        assert len(theirs) == table.num_rows == len(dataset) == 20
        assert theirs == {tuple(row[key] for key in keys): row for row in ours.to_pylist()}


def test_fields_have_their_units(mixed: tuple[pymarcato.Dataset, Path]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    dataset, _ = mixed
    for schema in (dataset.to_pyarrow().schema, parquet.read_schema(dataset.files[0])):
        assert schema.field("flow.bulk.goodput_mbit_per_s").metadata[b"unit"] == b"Mbit/s"
        assert schema.field("topology.rate_mbit_per_s").metadata[b"unit"] == b"Mbit/s"
        assert schema.field("link.bottleneck.queue_delay_p95_ms").metadata[b"unit"] == b"ms"
        assert not (schema.field("seed").metadata or {}).get(b"unit")
    assert dataset.table.units["link.bottleneck.queue_delay_p95_ms"] == "ms"


def test_a_directory_that_cannot_be_written_is_told_first(tmp_path: Path, brief: pymarcato.Scenario) -> None:
    (tmp_path / "file").write_text("")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_sweep, "work", None)
        with pytest.raises(pymarcato.StoreError, match="cannot write to .*/file/out`: Not a directory: choose another"):
            pymarcato.sweep(brief, seeds=[1], out=tmp_path / "file/out")
    assert issubclass(pymarcato.StoreError, OSError)


def test_arrays_have_settings_as_dimensions(mixed: tuple[pymarcato.Dataset, Path]) -> None:
    pytest.importorskip("xarray")
    dataset, _ = mixed
    arrays = dataset.to_xarray()
    name = "flow.bulk.goodput_mbit_per_s"
    assert arrays[name].dims == ("topology.queue", "topology.rate_mbit_per_s", "flow.asks.think_ms", "seed")
    assert arrays[name].attrs == {"units": "Mbit/s"}
    for row in dataset.rows():
        place = {dimension: row[dimension] for dimension in arrays[name].dims}
        assert arrays[name].sel(place).item() == row[name]
    # Runs of seed 2 with the first value failed.
    assert int(arrays[name].isnull().sum()) == len(dataset.failures) == 4
