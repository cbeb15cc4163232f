"""Grids that the command hands over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import pymarcato
from conftest import SMALL
from pymarcato import _handover, _toml
from pymarcato._engine import environment


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    vary = {"vary": {"flow.bulk.congestion": ["reno", "cubic"]}, "seeds": 2}
    file = tmp_path / "grid.toml"
    file.write_text(_toml.document({**SMALL, "duration": "1 s", "record": {}, "grid": vary}))
    return file


def sim(command: str, file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    run = [command, "sim", str(file), "--format", "json", *more]
    env = {**environment(), "MARCATO_PYTHON": sys.executable}
    return subprocess.run(run, capture_output=True, text=True, env=env, cwd=file.parent)


def files(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_the_command_writes_the_same_files_with_an_engine(command: str, grid: Path, tmp_path: Path) -> None:
    own = sim(command, grid, "--out", str(tmp_path / "own"))
    handed = sim(command, grid, "--out", str(tmp_path / "handed"), "--runs-on", "local")
    assert handed.returncode == 0, handed.stderr
    assert handed.stdout == own.stdout
    assert files(tmp_path / "handed") == files(tmp_path / "own")
    assert sim(command, grid, "--runs-on", "local").stdout == own.stdout


def test_dask_is_reached_by_its_address(command: str, grid: Path) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        address = cluster.scheduler_address.replace("tcp://", "dask://")
        handed = sim(command, grid, "--runs-on", address)
    assert handed.returncode == 0, handed.stderr
    assert handed.stdout == sim(command, grid).stdout


def test_another_version_is_refused(grid: Path, tmp_path: Path) -> None:
    order: dict[str, Any] = {
        "version": "0.0.1", "commit": "none", "file": str(grid), "set": [], "seed": None, "on": "local", "runs": [],
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "pymarcato._handover"],
        input=json.dumps(order), capture_output=True, text=True, env=environment(),
    )  # fmt: skip
    assert f"the package is version {pymarcato.__version__}" in json.loads(done.stdout)["error"]
    assert "install the package of the same commit" in json.loads(done.stdout)["error"]


def test_a_document_appears_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError):
        _handover.write(tmp_path / "run.json", "{}")
    assert list(tmp_path.iterdir()) == []
