"""Results of a run: tables, files, and what notebooks show."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
from concurrent.futures import Executor, ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

import pymarcato

TABLES = ["flows", "times", "groups", "lanes", "links", "series", "messages", "summary"]


@pytest.fixture(scope="module")
def result() -> pymarcato.Result:
    from conftest import SMALL

    return pymarcato.Scenario.from_dict(SMALL).run(seed=7)


def test_tables_have_the_rows_of_the_document(result: pymarcato.Result) -> None:
    document = result.document()
    assert result.flows["flow"] == [flow["flow"] for flow in document["flows"]] == ["bulk", "asks"]
    assert result.flows["goodput_mbit_per_s"] == [flow["goodput_mbit_per_s"] for flow in document["flows"]]
    assert len(result.links) == len(document["links"])
    assert len(result.series) == 30 and "link.bottleneck.queue" in result.series
    assert result.messages.num_rows > 10
    assert result["flow.bulk.goodput_mbit_per_s"] == result.flows["goodput_mbit_per_s"][0]
    assert result["flow.bulk.low_packets"] is None
    with pytest.raises(KeyError):
        result["flow.bulk.none"]


def test_a_missing_value_is_null(result: pymarcato.Result) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    flows = pyarrow.table(result.flows)
    assert flows["low_packets"].null_count == 2
    assert str(flows.schema.field("flow").type) == "string"
    assert str(flows.schema.field("sent_packets").type) == "int64"


def test_data_frame_libraries_take_every_table(result: pymarcato.Result) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    polars = pytest.importorskip("polars")
    for name in TABLES:
        table = getattr(result, name)
        taken = pyarrow.table(table)
        assert taken.to_pydict() == table.to_pydict() and taken.num_rows == table.num_rows
        assert polars.DataFrame(table).to_dict(as_series=False) == table.to_pydict()


def test_duckdb_reads_a_table(result: pymarcato.Result) -> None:
    duckdb = pytest.importorskip("duckdb")
    flows = result.flows
    [(count,)] = duckdb.sql("select count(*) from flows where goodput_mbit_per_s > 0").fetchall()
    assert count == len(flows) == 2


def test_pandas_has_the_numbers(result: pymarcato.Result) -> None:
    pytest.importorskip("pandas")
    frame = result.flows.to_pandas()
    assert frame["goodput_mbit_per_s"].tolist() == result.flows["goodput_mbit_per_s"]


def test_a_table_outlives_its_result(small: pymarcato.Scenario) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    flows = pyarrow.table(small.run().flows)
    assert flows["flow"].to_pylist() == ["bulk", "asks"]


def test_parquet_files_have_the_tables(result: pymarcato.Result, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    files = {path.stem: path for path in result.to_parquet(tmp_path / "new")}
    assert set(files) == {"flows", "times", "links", "series", "completions"}
    assert parquet.read_table(files["flows"]).to_pydict() == result.flows.to_pydict()
    assert parquet.read_table(files["completions"]).to_pydict() == result.messages.to_pydict()


def test_captures_are_copied(result: pymarcato.Result, tmp_path: Path) -> None:
    files = result.pcap(tmp_path)
    assert [path.name for path in files] == ["bottleneck.back.pcap", "bottleneck.there.pcap"]
    assert files[0].read_bytes()[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")


def test_a_scenario_without_captures_has_none(small: pymarcato.Scenario, tmp_path: Path) -> None:
    assert small.set("record.pcap", []).run().pcap(tmp_path / "none") == []


def test_the_command_gives_the_same_bytes(result: pymarcato.Result, tmp_path: Path, command: str) -> None:
    from conftest import SMALL
    from pymarcato import _toml

    file = tmp_path / "small.toml"
    file.write_text(_toml.document(SMALL))
    run = [command, "sim", str(file), "--seed", "7", "--format", "json", "--out", str(tmp_path / "command")]
    printed = subprocess.run(run, check=True, capture_output=True, text=True).stdout
    assert printed == result.to_json()
    result.save(tmp_path / "package")
    ours = {path.name: path.read_bytes() for path in (tmp_path / "package").iterdir()}
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "command").iterdir()}
    assert set(theirs) - set(ours) == {"manifest.json"}
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_a_notebook_shows_tables_and_pictures(result: pymarcato.Result, small: pymarcato.Scenario) -> None:
    shown = result._repr_html_()
    assert "data:image/svg+xml" in shown and "<th>goodput_mbit_per_s</th>" in shown
    assert "low_packets" not in shown
    assert "<svg" in result.figures()["queue"]
    assert "bottleneck" in small._repr_html_()
    assert "18 more rows" not in result.flows._repr_html_()


def test_names_are_escaped_in_pages() -> None:
    from pymarcato._table import table_html

    assert "<script>" not in table_html({"a<script>": ["<script>"]}, 1)


def told(result: pymarcato.Result, directory: Path) -> dict[str, object]:
    """All that a result can tell."""
    result.save(directory / "all")
    return {
        **{name: getattr(result, name).to_pydict() for name in TABLES},
        **{name: getattr(result, name) for name in ("scenario", "id", "seed", "events", "warnings")},
        "json": result.to_json(),
        "report": result.report(),
        "figures": result.figures(),
        "page": result._repr_html_(),
        "dict": result.to_dict(),
        "files": {path.name: path.read_bytes() for path in (directory / "all").iterdir()},
        "parquet": {path.name: path.read_bytes() for path in result.to_parquet(directory / "parquet")},
        "pcap": {path.name: path.read_bytes() for path in result.pcap(directory / "pcap")},
    }


def test_a_result_can_be_pickled_and_copied(result: pymarcato.Result, tmp_path: Path) -> None:
    expected = told(result, tmp_path / "own")
    copies = [pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)]
    copies.append(pickle.loads(pickle.dumps(copies[0])))
    for number, one in enumerate(copies):
        assert told(one, tmp_path / str(number)) == expected
    flows = pickle.loads(pickle.dumps(result.flows))
    assert flows.to_pydict() == result.flows.to_pydict()
    assert flows._native.kinds() == copy.deepcopy(result.flows)._native.kinds() == result.flows._native.kinds()


def test_executors_return_results(small: pymarcato.Scenario) -> None:
    expected = [small.run(seed).to_json() for seed in (1, 2)]
    processes: Executor = ProcessPoolExecutor(2, get_context("spawn"))
    with processes, pymarcato.LocalPool(2) as local:
        for executor in (processes, local):
            assert [result.to_json() for result in executor.map(small.run, (1, 2))] == expected


def test_joblib_and_dask_return_results(small: pymarcato.Scenario) -> None:
    joblib = pytest.importorskip("joblib")
    dask = pytest.importorskip("dask")
    expected = [small.run(seed).to_json() for seed in (1, 2)]
    parallel = joblib.Parallel(n_jobs=2, backend="multiprocessing")
    assert [result.to_json() for result in parallel(joblib.delayed(small.run)(seed) for seed in (1, 2))] == expected
    delayed = [dask.delayed(small.run)(seed) for seed in (1, 2)]
    assert [result.to_json() for result in dask.compute(*delayed, scheduler="processes")] == expected


def test_metrics_are_keys(result: pymarcato.Result) -> None:
    name = "flow.bulk.goodput_mbit_per_s"
    assert name in result and "flow.bulk.none" not in result and 0 not in result
    assert result.keys() == list(result) == result._ipython_key_completions_() == result.summary["metric"]
    assert dict(result) == result.to_dict() and result.to_dict()[name] == result[name]
    with pytest.raises(KeyError, match="no metric `flow.bulk.goodptu_mbit_per_s`: did you mean `flow.bulk.goodput_mbit_per_s`"):
        result["flow.bulk.goodptu_mbit_per_s"]
    with pytest.raises(KeyError, match="no metric `bulk.goodput`: did you mean `flow.bulk.goodput_mbit_per_s`"):
        result["bulk.goodput"]
    with pytest.raises(KeyError, match="no column `flwo`: did you mean `flow`"):
        result.flows["flwo"]
    assert result.flows._ipython_key_completions_() == result.flows.column_names
    assert result.flows.to_dict() == result.flows.to_pydict()


def test_a_missing_package_is_named(result: pymarcato.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    for package, call in (("pyarrow", "to_pyarrow"), ("polars", "to_polars"), ("pandas", "to_pandas")):
        monkeypatch.setitem(sys.modules, package, None)
        with pytest.raises(pymarcato.PackageError, match=f"`{package}` is not installed: pip install {package}"):
            getattr(result.flows, call)()


def test_a_report_is_a_page(result: pymarcato.Result, tmp_path: Path) -> None:
    page = result.report(tmp_path / "report.html")
    assert page.startswith("<!DOCTYPE html>") or page.startswith("<!doctype html>")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert json.loads(result.to_json())["seed"] == 7
