"""Congestion controls, lane schedulers and workloads in Python."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from pathlib import Path
from typing import Any, Optional

import pytest

import pymarcato
from conftest import ROOT
from plugins import Aimd, Cheapest, Pages

EXAMPLES = ROOT / "crates/marcato-sim/examples"


@pytest.fixture(scope="module")
def rust() -> dict[str, Any]:
    """Documents of the examples with plug-ins in Rust."""
    built = os.environ.get("MARCATO_PLUGIN_DOCUMENTS")
    if not built:
        pytest.skip("there are no documents of Rust: name the example `plugin_documents` in MARCATO_PLUGIN_DOCUMENTS")
    parsed: dict[str, Any] = json.loads(subprocess.run([built], check=True, capture_output=True).stdout)
    return parsed


def own() -> pymarcato.Scenario:
    return pymarcato.Scenario.from_file(EXAMPLES / "own_congestion_control.toml", plugins=[Aimd])


def test_a_congestion_control_gives_the_bytes_of_the_same_one_in_rust(rust: dict[str, Any]) -> None:
    numbers = [number for number in range(own().num_runs)]
    ours = {run.id: run.json for run in (own()._native.run(number, False) for number in numbers)}
    theirs = {name: document for name, document in rust.items() if "congestion=" in name}
    assert len(ours) == 2 and ours == theirs


def test_a_lane_scheduler_gives_the_bytes_of_the_same_one_in_rust(rust: dict[str, Any]) -> None:
    source = (EXAMPLES / "own_lane_scheduler.rs").read_text()
    text = source.split('r#"', 1)[1].split('"#', 1)[0]
    read = pymarcato.Scenario.from_str(text, plugins=[Cheapest])
    ours = {run.id: run.json for run in (read._native.run(number, False) for number in range(read.num_runs))}
    theirs = {name: document for name, document in rust.items() if "scheduler=" in name}
    assert len(ours) == 2 and ours == theirs


def pages(*plugins: Any) -> pymarcato.Scenario:
    source = (EXAMPLES / "own_workload.rs").read_text()
    text = source.split('r#"', 1)[1].split('"#', 1)[0]
    return pymarcato.Scenario.from_str(text, plugins=[Pages, *plugins])


def test_a_workload_gives_the_bytes_of_the_same_one_in_rust(rust: dict[str, Any]) -> None:
    read = pages()
    ours = {run.id: run.json for run in (read._native.run(number, False) for number in range(read.num_runs))}
    theirs = {name: document for name, document in rust.items() if "feeder=" in name}
    assert len(ours) == 2 and ours == theirs


class Forever(pymarcato.Workload):
    name = "forever"

    def next(self, now_ns: int, random: pymarcato.Random) -> Any:
        return (0, 100, 0, None)


class Short(pymarcato.Workload):
    name = "short"

    def next(self, now_ns: int, random: pymarcato.Random) -> Any:
        return pymarcato.Release(1, 15)


class Late(pymarcato.Workload):
    name = "late"

    def next(self, now_ns: int, random: pymarcato.Random) -> Any:
        return pymarcato.Release(1, 16, priority=5)


class Wordy(pymarcato.Workload):
    name = "wordy"

    def next(self, now_ns: int, random: pymarcato.Random) -> Any:
        return "soon"


class Lost(pymarcato.Workload):
    name = "lost"

    def next(self, now_ns: int, random: pymarcato.Random) -> Any:
        raise ArithmeticError("lost count")


@pytest.mark.parametrize(
    ("plugin", "error", "text"),
    [
        (Forever, pymarcato.RunError, "more than 1000000 messages: let it release fewer"),
        (Short, pymarcato.RunError, "at least 16 B, not 15 B"),
        (Late, ValueError, "0 .most urgent. to 4, not 5"),
        (Wordy, TypeError, "a Release of whole numbers, or None, not soon"),
        (Lost, ArithmeticError, "lost count"),
    ],
)
def test_a_workload_that_cannot_be_sent_ends_the_run(plugin: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        pages(plugin).set("flow.web.feeder", "fifo").set("flow.web.workload", plugin.name).run()


def test_random_numbers_of_a_workload_follow_the_seed() -> None:
    drawn: list[tuple[int, int, float]] = []

    class Draws(pymarcato.Workload):
        name = "draws"

        def next(self, now_ns: int, random: pymarcato.Random) -> Optional[pymarcato.Release]:
            drawn.append((random.bits(), random.below(10), random.unit()))
            return None if len(drawn) % 2 == 0 else pymarcato.Release(1, 100)

    scenario = pages(Draws).set("flow.web.workload", "draws").set("flow.web.feeder", "fifo").set("duration", "1 s")
    for seed in (1, 1, 2):
        scenario.run(seed=seed)
    first, second, again, more, other, _ = drawn
    assert (first, second) == (again, more) and len({first, second, other}) == 3
    assert all(0 <= below < 10 and 0 <= unit < 1 for _, below, unit in drawn)


def test_parameters_are_keywords() -> None:
    gentle = own().set("flow.bulk.congestion", {"kind": "aimd", "decrease": 0.8})
    hard = own().set("flow.bulk.congestion", {"kind": "aimd", "decrease": 0.2})
    assert gentle.run()["flow.bulk.goodput_mbit_per_s"] > hard.run()["flow.bulk.goodput_mbit_per_s"]  # type: ignore[operator]
    with pytest.raises(pymarcato.ScenarioError, match="`decrease`"):
        own().set("flow.bulk.congestion", {"kind": "aimd", "increase": 0.8})


class Broken(Aimd):
    name = "broken"

    def on_congestion(self, now_ns: int, in_flight: int, signal: str) -> None:
        raise ArithmeticError(f"lost at {in_flight} bytes")


class Wrong(Aimd):
    name = "wrong"

    def on_established(self, now_ns: int, rtt_ns: Any) -> None:
        self.cwnd = 2.5  # type: ignore[assignment]


class Unmade(Aimd):
    name = "unmade"

    def __init__(self, start: pymarcato.Start) -> None:
        raise LookupError("no such thing")


@pytest.mark.parametrize(
    ("plugin", "error", "text"),
    [(Broken, ArithmeticError, "lost at"), (Wrong, TypeError, "whole number of bytes"), (Unmade, LookupError, "no such")],
)
def test_an_exception_of_a_plug_in_ends_the_run(plugin: Any, error: type[Exception], text: str) -> None:
    read = pymarcato.Scenario.from_file(EXAMPLES / "own_congestion_control.toml", plugins=[Aimd, plugin])
    with pytest.raises(error, match=text):
        read.set("flow.bulk.congestion", plugin.name).run()


class Nowhere(pymarcato.LaneScheduler):
    name = "nowhere"

    def choose(self, now_ns: int, lanes: list[pymarcato.Lane], packet: pymarcato.Packet) -> int:
        return 7


def test_a_lane_that_does_not_exist_ends_the_run() -> None:
    source = (EXAMPLES / "own_lane_scheduler.rs").read_text()
    text = source.split('r#"', 1)[1].split('"#', 1)[0]
    read = pymarcato.Scenario.from_str(text, plugins=[Cheapest, Nowhere]).set("flow.session.scheduler", "nowhere")
    with pytest.raises(ValueError, match="there is no lane 7"):
        read.run()


def test_names_that_are_taken_and_classes_of_other_kinds_are_refused() -> None:
    class Reno(Aimd):
        name = "reno"

    with pytest.raises(ValueError, match="built in"):
        pymarcato.Scenario.from_file(EXAMPLES / "own_congestion_control.toml", plugins=[Reno])
    with pytest.raises(TypeError, match="a plug-in is"):
        pymarcato.Scenario.from_file(EXAMPLES / "own_congestion_control.toml", plugins=[int])  # type: ignore[list-item]


def test_a_sweep_takes_plug_ins_along(tmp_path: Path) -> None:
    brief = own().set("duration", "12 s")
    assert pickle.loads(pickle.dumps(brief)) == brief
    dataset = pymarcato.sweep(brief, seeds=[1], out=tmp_path)
    assert dataset.failures == [] and len(dataset) == 2
    again = [brief._native.run(number, False) for number in range(2)]
    assert dataset.table["flow.bulk.goodput_mbit_per_s"] == [
        dict(run.numbers())["flow.bulk.goodput_mbit_per_s"] for run in again
    ]


def test_changed_code_is_computed_anew(tmp_path: Path) -> None:
    brief = own().set("duration", "11 s").set("flow.bulk.congestion", "aimd")
    assert pymarcato.sweep(brief, seeds=[1], out=tmp_path).computed == 1

    class Changed(Aimd):
        def on_recovered(self, now_ns: int) -> None:
            self.cwnd = self.ssthresh + 1

    other = pymarcato.Scenario.from_file(EXAMPLES / "own_congestion_control.toml", plugins=[Changed])
    other = other.set("duration", "11 s").set("flow.bulk.congestion", "aimd")
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as executor:
        assert pymarcato.sweep(other, seeds=[1], on=executor, out=tmp_path).computed == 1
