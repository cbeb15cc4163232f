"""Sweeps: one set of values on every engine, kept and continued."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

import pymarcato
from conftest import SMALL
from pymarcato import _dataset, _engine, _store, _sweep, _toml

GRID: dict[str, list[Any]] = {"topology.rate": ["5 Mbit/s", "10 Mbit/s"], "flow.bulk.congestion": ["reno", "cubic"]}
SEEDS = range(1, 4)


@pytest.fixture
def brief() -> pymarcato.Scenario:
    return pymarcato.Scenario.from_dict({**SMALL, "duration": "1500 ms", "record": {}})


def values(dataset: pymarcato.Dataset) -> list[dict[str, Any]]:
    return list(dataset.rows())


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    brief = pymarcato.Scenario.from_dict({**SMALL, "duration": "1500 ms", "record": {}})
    return values(pymarcato.sweep(brief, GRID, SEEDS, out=tmp_path_factory.mktemp("local")))


def test_rows_are_in_the_order_of_settings_and_seeds(expected: list[dict[str, Any]]) -> None:
    assert [row["seed"] for row in expected] == [1, 2, 3] * 4
    assert [row["topology.rate"] for row in expected] == ["5 Mbit/s"] * 6 + ["10 Mbit/s"] * 6
    assert [row["topology.rate_mbit_per_s"] for row in expected] == [5.0] * 6 + [10.0] * 6
    assert [row["flow.bulk.congestion"] for row in expected[::3]] == ["reno", "cubic"] * 2
    assert "error" not in expected[0]
    assert len({row["experiment"] for row in expected}) == 4


def test_a_row_has_the_numbers_of_its_run(expected: list[dict[str, Any]], brief: pymarcato.Scenario) -> None:
    row = expected[4]
    scenario = brief.set("topology.rate", row["topology.rate"]).set("flow.bulk.congestion", row["flow.bulk.congestion"])
    result = scenario.run(seed=row["seed"])
    numbers = result.summary.to_pydict()
    assert {name: row[name] for name in numbers["metric"]} == dict(zip(numbers["metric"], numbers["value"]))


@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_executors_give_the_same_bits(
    kind: str, expected: list[dict[str, Any]], brief: pymarcato.Scenario, tmp_path: Path
) -> None:
    made: Any = ThreadPoolExecutor(2) if kind == "threads" else ProcessPoolExecutor(2, get_context("spawn"))
    with made as executor:
        assert values(pymarcato.sweep(brief, GRID, SEEDS, on=executor, out=tmp_path)) == expected


def test_dask_gives_the_same_bits(expected: list[dict[str, Any]], brief: pymarcato.Scenario, tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        with distributed.Client(cluster) as client:
            assert values(pymarcato.sweep(brief, GRID, SEEDS, on=client, out=tmp_path)) == expected


@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_bits(expected: list[dict[str, Any]], brief: pymarcato.Scenario, tmp_path: Path) -> None:
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    try:
        assert values(pymarcato.sweep(brief, GRID, SEEDS, on=ray, out=tmp_path)) == expected
    finally:
        ray.shutdown()


def test_the_command_gives_the_same_bits(expected: list[dict[str, Any]], tmp_path: Path, command: str) -> None:
    vary = {"vary": GRID, "seeds": len(SEEDS)}
    file = tmp_path / "grid.toml"
    file.write_text(_toml.document({**SMALL, "duration": "1500 ms", "record": {}, "grid": vary}))
    run = [command, "sim", str(file), "--out", str(tmp_path / "out"), "--format", "json"]
    subprocess.run(run, check=True, capture_output=True)
    documents = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "out/runs").glob("*.json")}
    assert len(documents) == len(expected)
    for row in expected:
        name = f"rate={row['topology.rate'].replace(' ', '').replace('/', '-')},congestion={row['flow.bulk.congestion']}"
        for flow in documents[f"{name},seed={row['seed']}"]["flows"]:
            numbers = {key: value for key, value in flow.items() if isinstance(value, (int, float))}
            assert len(numbers) > 10
            assert numbers == {key: row[f"flow.{flow['flow']}.{key}"] for key in numbers}


def test_the_command_prints_the_same_means(expected: list[dict[str, Any]], tmp_path: Path, command: str) -> None:
    vary = {"vary": GRID, "seeds": len(SEEDS)}
    file = tmp_path / "grid.toml"
    file.write_text(_toml.document({**SMALL, "duration": "1500 ms", "record": {}, "grid": vary}))
    printed = subprocess.run([command, "sim", str(file), "--format", "json"], check=True, capture_output=True)
    columns = {name: [row[name] for row in expected] for name in expected[0]}
    made = [(name, "text" if isinstance(cells[0], str) else "number", cells) for name, cells in columns.items()]
    table = pymarcato.Table(_dataset._native.make_table(made))
    ours = {
        (row["topology.rate"], row["flow.bulk.congestion"], row["metric"]): (row["mean"], row["ci95"], row["n"])
        for row in pymarcato.summarise(table, by=list(GRID)).rows()
    }
    theirs = {
        (row["topology.rate"], row["flow.bulk.congestion"], row["metric"]): (row["mean"], row["ci95"], row["n"])
        for row in json.loads(printed.stdout)["rows"]
        if row["n"]
    }
    assert theirs == ours and len(ours) > 100


def test_only_missing_runs_are_computed(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    first = pymarcato.sweep(brief, {"topology.rate": ["5 Mbit/s"]}, [1, 2], out=tmp_path)
    assert first.computed == 2
    more = pymarcato.sweep(brief, {"topology.rate": ["5 Mbit/s", "8 Mbit/s"]}, [2, 3], out=tmp_path)
    assert (more.computed, len(more)) == (3, 4)
    with ThreadPoolExecutor(1) as other:
        again = pymarcato.sweep(brief, {"topology.rate": ["8 Mbit/s"]}, [3], on=other, out=tmp_path)
    assert again.computed == 0
    assert values(again) == values(more)[-1:]


def test_another_scenario_is_computed_anew(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    pymarcato.sweep(brief, seeds=[1], out=tmp_path)
    assert pymarcato.sweep(brief.set("duration", "1 s"), seeds=[1], out=tmp_path).computed == 1
    assert len(list(tmp_path.glob("scenario=*/version=*"))) == 2


def test_an_interrupted_sweep_goes_on_where_it_was(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    class Interrupted(ThreadPoolExecutor):
        left = 3

        def submit(self, *arguments: Any, **named: Any) -> Any:
            Interrupted.left -= 1
            if Interrupted.left < 0:
                raise KeyboardInterrupt
            return super().submit(*arguments, **named)

    with Interrupted(1) as executor, pytest.raises(KeyboardInterrupt):
        pymarcato.sweep(brief, GRID, SEEDS, on=executor, out=tmp_path)
    kept = sum(1 for _ in tmp_path.rglob("part-*.parquet"))
    assert 0 < kept < 12
    assert pymarcato.sweep(brief, GRID, SEEDS, out=tmp_path).computed == 12 - kept


def test_a_failing_run_is_kept_beside_the_results(tmp_path: Path) -> None:
    work = _sweep.work

    def fail(task: _sweep.Task) -> _sweep.Answer:
        rows, seconds = work(task)
        unlucky = _store.Failure("out of luck", "Bad", "luck.py", 7, "Traceback")
        marked = [(([], unlucky) if seed == 2 else row) for row, (_, seed) in zip(rows, task[1])]
        return marked, seconds

    brief = pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}})
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(_sweep, "work", fail)
        dataset = pymarcato.sweep(brief, seeds=SEEDS, on=executor, out=tmp_path)
    assert [row["seed"] for row in dataset.rows()] == [1, 3]
    failed = {"error": "out of luck", "type": "Bad", "file": "luck.py", "line": 7, "traceback": "Traceback"}
    assert dataset.failures == [{"run": "seed = 2", "seed": 2, **failed}]
    assert list(dataset.failure_table.rows()) == dataset.failures
    assert pymarcato.sweep(brief, seeds=SEEDS, out=tmp_path).computed == 0
    again = pymarcato.sweep(brief, seeds=SEEDS, out=tmp_path, retry_failed=True)
    assert (again.computed, again.failures) == (1, [])
    # A failure does not stay beside the result of the run.
    assert [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix != ".parquet"] == []
    assert max(pymarcato.summarise(tmp_path)["n"]) == 3
    assert [row["n"] for row in pymarcato.summarise(dataset, metrics=["bulk.goodput"]).rows()] == [2]


def test_a_worker_reports_its_error() -> None:
    source: _sweep.Source = ("bad", "name = 1", [], {}, [])
    [(numbers, failure)], _ = _sweep.work((source, [((), 1)], None))
    assert numbers == [] and failure is not None and "`name`" in failure.error
    assert failure.type == "ScenarioError" and failure.file.endswith("_sweep.py") and failure.line > 0
    assert failure.traceback.startswith("Traceback") and "`name`" in failure.traceback


def test_a_combination_that_is_no_scenario_is_refused_before_any_run(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    with pytest.raises(pymarcato.ScenarioError, match="5 Mbit"):
        pymarcato.sweep(brief, {"topology.rate": ["5 Mbit/s", "5 Mbits"]}, [1], out=tmp_path)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("grid", "seeds"), [({"topology.rate": []}, [1]), ({}, []), ({}, [1, 1]), ({"topology.rate": ["1 Mbit/s"] * 2}, [1])]
)
def test_a_grid_that_is_none_is_refused(
    grid: dict[str, Any], seeds: list[int], brief: pymarcato.Scenario, tmp_path: Path
) -> None:
    with pytest.raises(pymarcato.GridError):
        pymarcato.sweep(brief, grid, seeds, out=tmp_path)


def test_an_engine_that_runs_no_tasks_is_refused(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="dask"):
        pymarcato.sweep(brief, seeds=[1], on=3, out=tmp_path)


@pytest.mark.parametrize(
    ("on", "missing", "command"),
    [("dask://127.0.0.1:1", "distributed", r"pip install 'dask\[distributed\]'"), ("ray", "ray", "pip install ray")],
)
def test_a_missing_engine_is_named_by_its_own_package(
    on: str, missing: str, command: str, brief: pymarcato.Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The package is on no index: its extras would be those of a stranger.
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(pymarcato.EngineError, match=f"is not installed: {command}$"):
        pymarcato.sweep(brief, seeds=[1], on=on, out=tmp_path)


class Interrupting(pymarcato.Workload):
    """Workload that raises what ends a worker."""

    name, parameters = "interrupting", ()

    def next(self, now_ns: int, random: Any) -> pymarcato.Release:
        raise KeyboardInterrupt("by a plug-in")


def test_an_interrupt_by_a_plug_in_fails_its_run_only(tmp_path: Path) -> None:
    flow = {"name": "own", "kind": "messages", "from": "client-1", "to": "server-1", "workload": {"kind": "interrupting"}}
    scenario = pymarcato.Scenario.from_dict({**SMALL, "record": {}, "flow": [flow]}, plugins=[Interrupting])
    with ThreadPoolExecutor(1) as executor:
        dataset = pymarcato.sweep(scenario, seeds=[1, 2], on=executor, out=tmp_path)
    failures = [(one["seed"], one["error"], one["type"]) for one in dataset.failures]
    assert failures == [(seed, "by a plug-in", "KeyboardInterrupt") for seed in (1, 2)]
    assert dataset.failures[0]["file"] == __file__
    source = Path(__file__).read_text().splitlines()
    assert "raise KeyboardInterrupt" in source[dataset.failures[0]["line"] - 1]
    assert "in next" in dataset.failures[0]["traceback"]


def test_the_scenarios_own_grid_is_swept(tmp_path: Path) -> None:
    grid = {"vary": {"flow.bulk.congestion": ["reno", "cubic"]}, "seeds": 2}
    own = pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}, "grid": grid})
    dataset = pymarcato.sweep(own, out=tmp_path)
    assert [(row["flow.bulk.congestion"], row["seed"]) for row in dataset.rows()] == [
        ("reno", 1), ("reno", 2), ("cubic", 1), ("cubic", 2),
    ]  # fmt: skip
    assert pymarcato.sweep(own, {"flow.bulk.congestion": ["reno"]}, out=tmp_path).computed == 0


def die_once(path: str) -> int:
    """Ends the process at its first call."""
    if not os.path.exists(path):
        Path(path).touch()
        os._exit(9)
    return os.getpid()


def test_a_dead_worker_loses_its_task_only(tmp_path: Path) -> None:
    with _engine.LocalPool(1) as pool:
        lost = pool.submit(die_once, str(tmp_path / "died"))
        kept = pool.submit(die_once, str(tmp_path / "died"))
        with pytest.raises(_engine.WorkerLost, match="status 9"):
            lost.result(60)
        assert kept.result(60) > 0
        with pytest.raises(ZeroDivisionError):
            pool.submit(divmod, 1, 0).result(60)


def dies_at_first(task: _sweep.Task) -> _sweep.Answer:
    """Ends the process at the first run of seed 3."""
    path = Path(os.environ["DIED"])
    if any(seed == 3 for _, seed in task[1]) and not path.exists():
        path.touch()
        os._exit(9)
    return _sweep.work(task)


def dies_always(task: _sweep.Task) -> _sweep.Answer:
    """Ends the process at every run of seed 3."""
    if any(seed == 3 for _, seed in task[1]):
        os._exit(9)
    return _sweep.work(task)


def test_tasks_of_a_lost_worker_run_again(
    brief: pymarcato.Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DIED", str(tmp_path / "died"))
    clean = values(pymarcato.sweep(brief, seeds=SEEDS, out=tmp_path / "clean"))
    run = _sweep.work
    monkeypatch.setattr(_sweep, "work", dies_at_first)
    dataset = pymarcato.sweep(brief, seeds=SEEDS, out=tmp_path / "lost")
    assert (tmp_path / "died").exists() and values(dataset) == clean
    monkeypatch.setattr(_sweep, "work", dies_always)
    dataset = pymarcato.sweep(brief, seeds=SEEDS, out=tmp_path / "gone")
    assert [failure["seed"] for failure in dataset.failures] == [3]
    assert "lost it 3 times" in dataset.failures[0]["error"]
    monkeypatch.setattr(_sweep, "work", run)


def test_files_of_a_data_set_are_read_by_others(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    pymarcato.sweep(brief, {"topology.rate": ["5 Mbit/s", "10 Mbit/s"]}, [1, 2], out=tmp_path)
    rows = duckdb.sql(
        f"select \"topology.rate_mbit_per_s\", count(*), any_value(version) from read_parquet('{tmp_path}/**/*.parquet', "
        "union_by_name = true, hive_partitioning = true) group by 1 order by 1"
    ).fetchall()
    assert [(rate, count) for rate, count, _ in rows] == [(5.0, 2), (10.0, 2)]
    assert rows[0][2].startswith(pymarcato.__version__)


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import json, pymarcato\n"
        f"scenario = pymarcato.Scenario.from_dict(json.loads({json.dumps(json.dumps({**SMALL, 'duration': '1 s'}))}))\n"
        f"print(pymarcato.sweep(scenario, seeds=[1, 2], out={str(tmp_path / 'out')!r}).computed)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=_engine.environment())
    assert (done.stdout, done.returncode) == ("2\n", 0), done.stderr


def test_seeds_are_added_until_the_interval_is_narrow(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    dataset = pymarcato.sweep(brief, seeds=range(1, 41), until="ci(bulk.goodput) < 8%", out=tmp_path)
    [row] = pymarcato.summarise(dataset, metrics=["bulk.goodput"], width="8%").rows()
    assert _sweep.FIRST_SEEDS <= row["n"] < 40 and row["ci95"] < 0.08 * row["mean"]
    assert len(dataset) == row["n"] == row["seeds_needed"] or row["seeds_needed"] <= row["n"]
    wide = pymarcato.sweep(brief, seeds=range(1, 41), until="ci(bulk.goodput) < 100 ", out=tmp_path)
    assert (wide.computed, len(wide)) == (0, _sweep.FIRST_SEEDS)
    few = pymarcato.sweep(brief, seeds=[1, 2], until="ci(bulk.goodput) < 0.0001%", out=tmp_path)
    assert len(few) == 2


@pytest.mark.parametrize("rule", ["goodput < 2%", "ci(goodput) > 2%", "ci(goodput) < -2%", "ci() < 2", "ci(a) < nan"])
def test_a_rule_that_is_none_is_refused(rule: str) -> None:
    with pytest.raises(ValueError, match="a rule is"):
        _sweep.Rule.parse(rule)


def test_a_metric_that_is_none_is_refused(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no metric"):
        pymarcato.sweep(brief, seeds=[1, 2], until="ci(goodputs) < 2%", out=tmp_path)
