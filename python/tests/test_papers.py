"""Experiments of the papers."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import pymarcato


def test_names_that_are_no_paper_and_wrong_seeds_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(ValueError, match="there is no experiment `dogs`"):
        pymarcato.papers("dogs")
    with pytest.raises(ValueError, match="the seed 3 is given twice"):
        pymarcato.papers("cats", seeds=[3, 3])
    with pytest.raises(ValueError, match="one report"):
        pymarcato.papers("all")
    # Notebooks show what the process of the experiments prints, such as warnings.
    assert capfd.readouterr().err == ""


CLAIMS = """
name = "own"
duration = "2 s"
topology = { kind = "dumbbell", rate = "10 Mbit/s", delay = "10 ms" }
[[flow]]
name = "bulk"
kind = "tcp"
from = "client-1"
to = "server-1"
[[claim]]
id = "own.goodput"
metric = "flow.bulk.goodput_mbit_per_s"
at-least = 5
[[claim]]
id = "own.none"
metric = "flow.bulk.goodput_mbit_per_s"
at-most = 1
"""


def test_claims_of_a_directory_are_a_table(tmp_path: Path, command: str) -> None:
    (tmp_path / "own.toml").write_text(CLAIMS)
    experiment = pymarcato.experiment(tmp_path)
    claims = experiment.claims()
    assert (claims["id"], claims["ok"]) == (["own.goodput", "own.none"], [1, 0])
    assert claims["verdict"] == ["held", "off"]
    printed = subprocess.run([command, "papers", str(tmp_path), "--format", "json"], capture_output=True, text=True)
    assert (printed.stdout, printed.returncode) == (experiment.run().to_json(), 1)
    assert experiment.claims(seeds=[3, 4])["n"] == [2, 2]
    (tmp_path / "own.toml").write_text(CLAIMS.replace("goodput_mbit", "goodptu_mbit"))
    with pytest.raises((ValueError, pymarcato.RunError), match="did you mean `flow.bulk.goodput_mbit_per_s`"):
        experiment.claims()
    with pytest.raises(FileNotFoundError, match="there is no directory .*none`: give one"):
        pymarcato.experiment(tmp_path / "none")


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
