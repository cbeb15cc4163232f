"""Snippets of the documents, as they are written."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conftest import ROOT
from pymarcato._engine import environment

#: Documents that may have snippets of Python.
PLACES = ["*.md", "docs/**/*.md", "python/*.md"]


def snippets(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def cases() -> list[tuple[str, int]]:
    documents = sorted({str(path.relative_to(ROOT)) for place in PLACES for path in ROOT.glob(place)})
    return [(document, number) for document in documents for number in range(len(snippets(document)))]


@pytest.mark.parametrize(("document", "number"), cases())
def test_a_snippet_runs_by_itself(document: str, number: int, tmp_path: Path) -> None:
    # A directory as that of the checkout, from which the documents say to run.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    code = snippets(document)[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=300
    )
    assert (done.returncode, done.stderr) == (0, ""), code


def test_the_guide_and_the_page_of_sweeps_have_snippets() -> None:
    assert len(cases()) >= 6 and {document for document, _ in cases()} >= {"docs/python.md", "docs/sweeps.md"}
