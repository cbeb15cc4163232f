"""Statistics of sweeps."""

from __future__ import annotations

import math
from typing import Any

import pytest

import pymarcato
from pymarcato import _native, _summary


def table(rows: list[dict[str, Any]]) -> pymarcato.Table:
    kinds = {"run": "text", "experiment": "text", "queue": "text", "seed": "count", "error": "text"}
    made = [(name, kinds.get(name, "number"), [row[name] for row in rows]) for name in rows[0]]
    return pymarcato.Table(_native.make_table(made))


def row(queue: str, seed: int, goodput: Any, error: str = "") -> dict[str, Any]:
    named = {"run": f"{queue} {seed}", "experiment": queue, "queue": queue, "seed": seed, "error": error}
    return {**named, "flow.bulk.goodput_mbit_per_s": goodput, "link.up.queue_mean_bytes": None}


ROWS = table(
    [row("codel", 1, 4.0), row("codel", 2, 6.0), row("codel", 3, 8.0), row("codel", 4, None, "failed")]
    + [row("fifo", 1, 5.0), row("fifo", 2, 7.5), row("fifo", 3, 9.0), row("fifo", 5, 50.0)]
)


def test_means_have_intervals_of_student() -> None:
    codel, fifo = pymarcato.summarise(ROWS).rows()
    assert (codel["queue"], codel["metric"], codel["mean"], codel["n"]) == ("codel", "flow.bulk.goodput_mbit_per_s", 6.0, 3)
    assert codel["ci95"] == pytest.approx(4.302652729 * 2 / math.sqrt(3))
    assert fifo["n"] == 4


def test_pairs_have_the_same_seed() -> None:
    [fifo] = pymarcato.summarise(ROWS, paired=("queue", "codel"), metrics=["goodput"]).rows()
    # Seed 4 failed with codel, and seed 5 has no partner.
    assert (fifo["queue"], fifo["against"], fifo["n"]) == ("fifo", "codel", 3)
    assert fifo["mean"] == pytest.approx((1.0 + 1.5 + 1.0) / 3)
    assert fifo["ci95"] < pymarcato.summarise(ROWS)["ci95"][0]


def test_a_bootstrapped_interval_repeats_and_covers_the_mean() -> None:
    codel, _ = pymarcato.summarise(ROWS, bootstrap=2000).rows()
    again, _ = pymarcato.summarise(ROWS, bootstrap=2000).rows()
    assert codel == again
    assert 4.0 <= codel["lo"] < codel["mean"] < codel["hi"] <= 8.0


def test_seeds_that_an_interval_needs_give_it() -> None:
    codel, _ = pymarcato.summarise(ROWS, width="10%").rows()
    seeds = codel["seeds_needed"]
    deviation = 2.0
    assert _native.student_t(seeds - 1) is not None
    half = [(_native.student_t(n - 1) or math.inf) * deviation / math.sqrt(n) for n in (seeds - 1, seeds)]
    assert half[0] > 0.6 >= half[1]


def test_a_metric_is_named_by_its_end() -> None:
    names = ["flow.a.goodput_mbit_per_s", "flow.b.goodput_mbit_per_s", "link.up.back.queue_mean_bytes", "goodput"]
    assert _summary.matching("goodput", names[:3]) == names[:2]
    assert _summary.matching("b.goodput", names) == names[1:2]
    assert _summary.matching("goodput", names) == ["goodput"]
    assert _summary.matching("queue_mean_bytes", names) == names[2:3]
    assert _summary.matching("put", names) == []


@pytest.mark.parametrize(
    "named", [{"by": ["none"]}, {"metrics": ["none"]}, {"paired": ("none", "a")}, {"paired": ("queue", "red")}]
)
def test_a_name_that_is_none_is_refused(named: dict[str, Any]) -> None:
    with pytest.raises(pymarcato.GridError):
        pymarcato.summarise(ROWS, **named)


def test_a_width_that_is_none_is_refused() -> None:
    for width in ("wide", "-1", "nan%"):
        with pytest.raises(ValueError, match="a width is"):
            pymarcato.summarise(ROWS, width=width)
