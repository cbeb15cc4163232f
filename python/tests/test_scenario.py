"""Scenarios: reading, settings, errors."""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import pymarcato
from conftest import ROOT, SMALL
from pymarcato._engine import environment


def test_every_example_is_read() -> None:
    files = sorted((ROOT / "examples").glob("*.toml"))
    assert len(files) > 8
    for file in files:
        assert pymarcato.Scenario.from_file(file).num_runs >= 1


def test_a_dictionary_and_its_text_are_the_same_experiment(small: pymarcato.Scenario) -> None:
    again = pymarcato.Scenario.from_str(small.to_toml(), name="small.toml")
    assert again.to_toml() == small.to_toml()


def test_all_faults_are_told_with_line_column_and_remedy(tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    text = (ROOT / "examples/codel-cubic.toml").read_text()
    first = next(line for line in text.splitlines() if line.startswith("duration"))
    file.write_text(text.replace(first, "duration = 5") + '\n[record]\nseries = ["link.bottlneck.queue"]\n')
    with pytest.raises(pymarcato.ScenarioError) as caught:
        pymarcato.Scenario.from_file(file)
    faults = caught.value.faults
    assert len(faults) >= 2
    fault = faults[0]
    assert (fault.file, fault.line, fault.column) == (str(file), text.splitlines().index(first) + 1, 12)
    assert fault.message == "`duration` is a span of time and needs a unit"
    assert fault.remedy == 'write "5 s", not 5'
    assert "duration = 5" in str(caught.value) and "^" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_an_error_survives_pickling() -> None:
    with pytest.raises(pymarcato.ScenarioError) as caught:
        pymarcato.Scenario.from_str("name = 3")
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.faults) == (str(caught.value), caught.value.faults)


def test_a_file_that_is_missing_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(pymarcato.ScenarioError, match="cannot be read"):
        pymarcato.Scenario.from_file(tmp_path / "none.toml")


def test_a_file_that_is_no_text_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "binary.toml"
    file.write_bytes(b'name = "a"\n\xff\n')
    with pytest.raises(pymarcato.ScenarioError) as caught:
        pymarcato.Scenario.from_file(file)
    assert caught.value.faults[0].line == 2


def test_set_returns_another_scenario(small: pymarcato.Scenario) -> None:
    before = small.to_toml()
    slow = small.set("topology.rate", "5 Mbit/s").set("link.bottleneck.queue.ecn", True)
    assert small.to_toml() == before
    assert 'rate = "5 Mbit/s"' in slow.to_toml() and "ecn = true" in slow.to_toml()
    assert "5 Mbit/s" in slow.explain()


@pytest.mark.parametrize("value", [{"kind": "random", "probability": 0.25}, '{ kind = "random", probability = 0.25 }'])
def test_a_table_is_set_as_a_dictionary_or_as_text(small: pymarcato.Scenario, value: object) -> None:
    assert "probability = 0.25" in small.set("link.bottleneck.loss", value).to_toml()  # type: ignore[arg-type]


def test_a_setting_that_does_not_fit_names_its_key(small: pymarcato.Scenario) -> None:
    with pytest.raises(pymarcato.ScenarioError) as caught:
        small.set("link.bottlneck.rate", "5 Mbit/s")
    assert caught.value.faults[0].file == "--set link.bottlneck.rate"
    assert "did you mean `bottleneck`" in caught.value.faults[0].problem


def test_values_that_are_no_toml_are_refused() -> None:
    for value in (None, object(), float("nan"), b"bytes"):
        with pytest.raises((TypeError, ValueError)):
            pymarcato.Scenario.from_dict({**SMALL, "about": value})


def test_text_of_a_dictionary_is_quoted() -> None:
    about = 'a "quoted" \\ line,\ttab and é \x7f'
    assert pymarcato.Scenario.from_dict({**SMALL, "about": about}).about == about


def test_a_scenario_carries_its_files_with_it(tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces/down").write_text("1\n3\n4\n")
    scenario = {key: value for key, value in SMALL.items() if key not in ("topology", "flow", "record")}
    scenario |= {
        "nodes": ["a", "b"],
        "link": [{"between": ["a", "b"], "trace": "traces/down", "delay": "5 ms", "back": {"rate": "1 Mbit/s"}}],
        "flow": [{"name": "bulk", "kind": "tcp", "from": "a", "to": "b"}],
    }
    from pymarcato import _toml

    (tmp_path / "traced.toml").write_text(_toml.document(scenario))
    read = pymarcato.Scenario.from_file(tmp_path / "traced.toml")
    expected = read.run().to_json()
    packed = pickle.dumps(read)
    (tmp_path / "traces/down").unlink()
    assert pickle.loads(packed).run().to_json() == expected
    given = pymarcato.Scenario.from_dict(scenario, files={"traces/down": "1\n3\n4\n"})
    assert given.run().to_json() == expected
    with pytest.raises(pymarcato.ScenarioError, match="traces/down"):
        pymarcato.Scenario.from_dict(scenario)


def test_a_grid_is_no_single_run() -> None:
    grid = pymarcato.Scenario.from_dict({**SMALL, "grid": {"seeds": 3}})
    assert grid.num_runs == 3
    with pytest.raises(pymarcato.GridError, match="pymarcato.sweep"):
        grid.run()
    assert grid.run(seed=2).seed == 2


def test_runs_in_threads_release_the_lock(small: pymarcato.Scenario) -> None:
    expected = small.run(seed=5).to_json()
    results: list[str] = []
    threads = [threading.Thread(target=lambda: results.append(small.run(seed=5).to_json())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 4


def test_ctrl_c_interrupts_a_run() -> None:
    # Thirty days of virtual time: the run ends by the interrupt only. It comes once the run has begun.
    code = (
        "import pymarcato, os, signal, sys, threading\n"
        "from conftest import SMALL\n"
        # A process that a shell starts in the background ignores the signal.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "scenario = pymarcato.Scenario.from_dict({**SMALL, 'duration': '720 h', 'record': {}})\n"
        "main = threading.get_ident()\n"
        "def interrupt():\n"
        "    while sys._current_frames()[main].f_code.co_name != 'run':\n"
        "        pass\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "threading.Thread(target=interrupt).start()\n"
        "try:\n"
        "    scenario.run()\n"
        "except KeyboardInterrupt:\n"
        "    print('interrupted')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, env=environment(), text=True, timeout=60)
    assert (done.stdout, done.returncode) == ("interrupted\n", 0), done.stderr


def test_the_ten_lines_of_the_manual_run() -> None:
    section = (ROOT / "docs/python.md").read_text().split("## Ten lines")[1]
    code = section.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    bulk = [next(iter(names[name].flows.rows())) for name in ("result", "codel")]
    assert [row["flow"] for row in bulk] == ["bulk", "bulk"]
    assert bulk[0] != bulk[1]
