"""Fixtures of all tests."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pytest

import pymarcato

#: The file that lists skipped tests of all languages (tools/skips/run).
SKIPS = os.environ.get("MARCATO_SKIPS")

ROOT = Path(__file__).resolve().parents[2]

#: A bottleneck with random loss, two flows, and messages: short, and with something in each table.
SMALL: dict[str, Any] = {
    "name": "small",
    "about": "two flows and messages at a bottleneck",
    "duration": "3 s",
    "warm-up": "500 ms",
    "topology": {
        "kind": "dumbbell",
        "pairs": 2,
        "rate": "10 Mbit/s",
        "delay": "20 ms",
        "queue": {"kind": "codel"},
        "loss": {"kind": "random", "probability": 0.001},
    },
    "flow": [
        {"name": "bulk", "kind": "tcp", "from": "client-1", "to": "server-1", "congestion": "cubic"},
        {
            "name": "asks",
            "kind": "request-response",
            "from": "client-2",
            "to": "server-2",
            "response": "20 kB",
            "think": "50 ms",
        },
    ],
    "record": {"every": "100 ms", "series": ["link.bottleneck.queue"], "pcap": ["bottleneck"]},
}


def _count_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and SKIPS and not hasattr(report, "wasxfail"):
        # For a skip it is the file, the line and the reason.
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        name = report.nodeid.replace(" ", "_")
        with open(SKIPS, "a") as file:
            file.write(f"python: {name}: {' '.join(why.removeprefix('Skipped: ').split())}\n")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _count_skip(report)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    _count_skip(report)


@pytest.fixture
def small() -> pymarcato.Scenario:
    return pymarcato.Scenario.from_dict(SMALL)


@pytest.fixture(scope="session")
def command() -> str:
    """The command `marcato`, of the same commit as the package."""
    built = os.environ.get("MARCATO") or shutil.which("marcato")
    if built is None:
        pytest.skip("there is no command `marcato`: name it in the variable MARCATO")
    return built
