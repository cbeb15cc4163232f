"""Marcato delivers what matters first: its simulator, experiments and sweeps for Python.

Examples
--------
>>> import marcato
>>> scenario = marcato.Scenario.from_file("examples/codel-cubic.toml")   # doctest: +SKIP
>>> result = scenario.run(seed=3)                                        # doctest: +SKIP
>>> result.flows.to_pandas()                                             # doctest: +SKIP
"""

from ._dataset import Dataset
from ._engine import EngineError, LocalPool
from ._errors import Error, Fault, GridError, RunError, ScenarioError
from ._native import COMMIT as __commit__
from ._native import VERSION as __version__
from ._native import Ack, Lane, Packet, Start
from ._papers import Report, papers, validate
from ._plugin import CongestionControl, LaneScheduler
from ._result import Result
from ._scenario import Scenario
from ._summary import summarise
from ._sweep import sweep
from ._table import Table

__all__ = [
    "Ack",
    "CongestionControl",
    "Dataset",
    "EngineError",
    "Error",
    "Fault",
    "GridError",
    "Lane",
    "LaneScheduler",
    "LocalPool",
    "Packet",
    "Report",
    "Result",
    "RunError",
    "Scenario",
    "ScenarioError",
    "Start",
    "Table",
    "__commit__",
    "__version__",
    "papers",
    "summarise",
    "sweep",
    "validate",
]
