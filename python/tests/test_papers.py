"""Experiments of the papers."""

from __future__ import annotations

import json
import subprocess

import pytest

import pymarcato


def test_names_that_are_no_paper_and_wrong_seeds_are_refused() -> None:
    with pytest.raises(ValueError, match="there is no experiment `dogs`"):
        pymarcato.papers("dogs")
    with pytest.raises(ValueError, match="the seed 3 is given twice"):
        pymarcato.papers("cats", seeds=[3, 3])
    with pytest.raises(ValueError, match="one report"):
        pymarcato.papers("all")


@pytest.mark.slow
def test_rows_are_those_of_the_command(command: str) -> None:
    report = pymarcato.papers("cats", quick=True, seeds=[2])
    run = [command, "papers", "cats", "--quick", "--seed", "2", "--format", "json"]
    printed = subprocess.run(run, capture_output=True, text=True).stdout
    assert report.to_json() == printed
    rows = json.loads(printed)["rows"]
    assert report.rows["id"] == [row["id"] for row in rows] and len(rows) > 20
    assert report.rows["measured"] == [row["measured"] for row in rows]
    assert report.holds == all(row["ok"] is not False for row in rows)
    assert "<svg" in "".join(report.figures().values()) and "<table>" in report._repr_html_()


@pytest.mark.slow
def test_the_simulator_is_compared_with_theory(command: str) -> None:
    report = pymarcato.validate(quick=True)
    run = [command, "validate", "--quick", "--format", "json"]
    assert report.to_json() == subprocess.run(run, capture_output=True, text=True).stdout
