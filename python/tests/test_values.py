"""Values as users and NumPy write them, and messages about wrong ones."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import pymarcato
from conftest import SMALL
from pymarcato import _sweep


@pytest.fixture
def brief() -> pymarcato.Scenario:
    return pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}})


@pytest.fixture
def no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every run an error."""

    def work(task: _sweep.Task) -> _sweep.Answer:
        raise AssertionError(f"a run began: {task}")

    monkeypatch.setattr(_sweep, "work", work)


@pytest.mark.parametrize(
    ("seeds", "error", "message"),
    [
        ("123", TypeError, "seeds are a list or a range of whole numbers, such as range(10), not '123'"),
        (5, TypeError, "seeds are a list or a range of whole numbers, such as range(10), not 5"),
        ([1.7, 2.2], TypeError, "a seed is a whole number, not 1.7"),
        (["1"], TypeError, "a seed is a whole number, not '1'"),
        ([True], pymarcato.GridError, "a seed is a whole number from 0 to"),
        ([-1], pymarcato.GridError, "a seed is a whole number from 0 to"),
        ([2**63], pymarcato.GridError, "a seed is a whole number from 0 to"),
    ],
)
def test_seeds_that_are_none_are_refused(
    seeds: Any, error: type[Exception], message: str, brief: pymarcato.Scenario, tmp_path: Path, no_run: None
) -> None:
    with pytest.raises(error) as raised:
        pymarcato.sweep(brief, seeds=seeds, out=tmp_path)
    assert str(raised.value).startswith(message)
    if isinstance(seeds, list):
        with pytest.raises(error, match="a seed is a whole number"):
            brief.run(seed=seeds[0])
        with pytest.raises(error, match="a seed is a whole number"):
            brief.with_seed(seeds[0])


@pytest.mark.parametrize(
    ("grid", "message"),
    [
        ({"topology.rate": "10 Mbit/s"}, r"`topology.rate` has the values '10 Mbit/s'.*: write \['10 Mbit/s'\]"),
        ({"topology.rate": 5}, r"`topology.rate` has the values 5"),
        ({"topology.queue": {"kind": "codel"}}, r"write \[{'kind': 'codel'}\]"),
        ({5: ["10 Mbit/s"]}, "a key of a grid is a string, not 5"),
        (["topology.rate"], "a grid is a dictionary of keys with lists of values"),
    ],
)
def test_values_that_are_no_list_are_refused(
    grid: Any, message: str, brief: pymarcato.Scenario, tmp_path: Path, no_run: None
) -> None:
    with pytest.raises(TypeError, match=message):
        pymarcato.sweep(brief, grid, [1], out=tmp_path)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("ci(goodptu) < 2%", "no metric `goodptu`.*did you mean `goodput`"),
        ("ci(bulk.goodptu) < 2%", "did you mean `bulk.goodput`"),
        ("ci(latency) < 2%", "no metric `latency`.*: name a column, or the end of one without its unit, such as `"),
        ("goodput < 2%", "a rule is"),
    ],
)
def test_a_wrong_rule_is_told_before_the_first_run(
    rule: str, message: str, brief: pymarcato.Scenario, tmp_path: Path, no_run: None
) -> None:
    with pytest.raises(ValueError, match=message):
        pymarcato.sweep(brief, seeds=[1, 2], until=rule, out=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_metric_of_another_combination_is_a_rule(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    pages = {**SMALL["flow"][0], "name": "other"}
    both = pymarcato.Scenario.from_dict({**SMALL, "duration": "1 s", "record": {}, "flow": [SMALL["flow"][0], pages]})
    assert len(pymarcato.sweep(both, seeds=[1, 2], until="ci(other.goodput) < 200%", out=tmp_path)) == 2


def test_a_summary_names_the_nearest_metric(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    dataset = pymarcato.sweep(brief, seeds=[1, 2], out=tmp_path)
    with pytest.raises(pymarcato.GridError, match="no metric `goodptu`: did you mean `goodput`"):
        pymarcato.summarise(dataset, metrics=["goodptu"])


def test_a_text_that_is_none_is_refused(brief: pymarcato.Scenario) -> None:
    half = "cafe \ud800"
    for call in (
        lambda: pymarcato.Scenario.from_str(half),
        lambda: pymarcato.Scenario.from_dict({**SMALL, "name": half}),
        lambda: brief.set("name", half),
        lambda: brief.set(half, "x"),
    ):
        with pytest.raises(ValueError, match="has half of a character, '.ud800': decode it"):
            call()
    wrong: Any = [SMALL]
    with pytest.raises(TypeError, match="a scenario is a dictionary .*, not list: read a file with `from_file`"):
        pymarcato.Scenario.from_dict(wrong)
    wrong = b"name = 1"
    with pytest.raises(TypeError, match="a string, not bytes: decode it"):
        pymarcato.Scenario.from_str(wrong)


def test_numbers_of_a_program_are_quantities(brief: pymarcato.Scenario) -> None:
    # As numpy.linspace(0.01, 0.1, 31) has them: 19 of 31 have more digits than a nanosecond.
    delays = [0.01 + place * ((0.1 - 0.01) / 30) for place in range(31)]
    assert sum(len(str(delay)) > 11 for delay in delays) > 10
    for place, delay in enumerate(delays):
        toml = brief.set("topology.delay", f"{delay} s").to_toml()
        assert f'delay = "{10 + 3 * place} ms"' in toml
    assert 'rate = "5560 kbit/s"' in brief.set("topology.rate", f"{5.56 * (1 + 1e-16)} Mbit/s").to_toml()
    assert 'rate = "5560 kbit/s"' in brief.set("topology.rate", "5.5600000000000005 Mbit/s").to_toml()
    assert 'delay = "10 us"' in brief.set("topology.delay", f"{0.00001} s").to_toml()


def test_scalars_and_arrays_of_numpy_are_values(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    numpy = pytest.importorskip("numpy")
    losses = numpy.linspace(0.0, 0.01, 2)
    dataset = pymarcato.sweep(brief, {"topology.loss.probability": losses}, numpy.arange(2), out=tmp_path)
    assert dataset.table["seed"] == [0, 1, 0, 1]
    assert set(dataset.table["topology.loss.probability_number"]) == {0.0, 0.01}
    delay = numpy.float32(0.25)
    assert brief.set("topology.delay", f"{delay} s").to_toml() == brief.set("topology.delay", "250 ms").to_toml()
    assert brief.run(seed=numpy.int64(3)).seed == 3


def test_a_run_ends_at_its_time_limit(brief: pymarcato.Scenario, tmp_path: Path) -> None:
    with pytest.raises(pymarcato.TimeLimitError, match="not complete after 0.000001 s: allow it more time"):
        brief.run(time_limit="1 us")
    dataset = pymarcato.sweep(brief, seeds=[1, 2], time_limit="1 us", out=tmp_path)
    assert [one["type"] for one in dataset.failures] == ["TimeLimitError"] * 2 and len(dataset) == 0
    again = pymarcato.sweep(brief, seeds=[1, 2], time_limit=timedelta(hours=1), retry_failed=True, out=tmp_path)
    assert (len(again), again.failures) == (2, [])
    for wrong, error in ((5, TypeError), ("0 s", ValueError), ("5 parsecs", ValueError), (timedelta(0), ValueError)):
        with pytest.raises(error):
            brief.run(time_limit=wrong)  # type: ignore[arg-type]
