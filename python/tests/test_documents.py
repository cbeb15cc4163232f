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

DOCUMENTS = ["docs/python.md", "docs/sweeps.md"]


def snippets(document: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", (ROOT / document).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def cases() -> list[tuple[str, int]]:
    return [(document, number) for document in DOCUMENTS for number in range(len(snippets(document)))]


@pytest.mark.parametrize(("document", "number"), cases())
def test_a_snippet_runs_by_itself(document: str, number: int, tmp_path: Path) -> None:
    # A directory as that of the checkout, from which the documents say to run.
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    code = snippets(document)[number]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=tmp_path, capture_output=True, text=True, env=environment(), timeout=300
    )
    assert (done.returncode, done.stderr) == (0, ""), code


def test_every_document_has_snippets() -> None:
    assert len(cases()) >= 5 and {document for document, _ in cases()} == set(DOCUMENTS)
