"""Marcato delivers what matters first: its simulator, experiments, sweeps and transport for Python.

Examples
--------
>>> import pymarcato
>>> scenario = pymarcato.Scenario.from_file("examples/codel-cubic.toml")   # doctest: +SKIP
>>> result = scenario.run(seed=3)                                        # doctest: +SKIP
>>> result.flows.to_pandas()                                             # doctest: +SKIP
"""

from ._dataset import Dataset
from ._engine import EngineError, LocalPool
from ._errors import (
    ChangeError,
    ConnectError,
    ConnectionClosed,
    DeliveryError,
    Error,
    Fault,
    GridError,
    IdentityError,
    LaneError,
    ListenError,
    MissedError,
    PackageError,
    RequestError,
    RunError,
    ScenarioError,
    SendError,
    StoreError,
    TimeLimitError,
    TransportError,
)
from ._native import COMMIT as __commit__
from ._native import VERSION as __version__
from ._native import Ack, Lane, Message, Packet, Random, Start, size_bytes, span_ns
from ._papers import Experiment, Report, experiment, papers, validate
from ._plugin import CongestionControl, LaneScheduler, Release, Workload
from ._result import Result
from ._scenario import Scenario
from ._summary import summarise
from ._sweep import sweep
from ._table import Table
from ._transport import (
    Connection,
    ConnectionStats,
    Identity,
    LaneStats,
    LevelStats,
    Listener,
    ListenerStats,
    MessageReader,
    MessageWriter,
    Request,
    Sent,
    Trust,
    connect,
    listen,
)

__all__ = [
    "Ack",
    "ChangeError",
    "CongestionControl",
    "ConnectError",
    "Connection",
    "ConnectionClosed",
    "ConnectionStats",
    "Dataset",
    "DeliveryError",
    "EngineError",
    "Error",
    "Experiment",
    "Fault",
    "GridError",
    "Identity",
    "IdentityError",
    "Lane",
    "LaneError",
    "LaneScheduler",
    "LaneStats",
    "LevelStats",
    "ListenError",
    "Listener",
    "ListenerStats",
    "LocalPool",
    "Message",
    "MessageReader",
    "MessageWriter",
    "MissedError",
    "PackageError",
    "Packet",
    "Random",
    "Release",
    "Report",
    "Request",
    "RequestError",
    "Result",
    "RunError",
    "Scenario",
    "ScenarioError",
    "SendError",
    "Sent",
    "Start",
    "StoreError",
    "Table",
    "TimeLimitError",
    "TransportError",
    "Trust",
    "Workload",
    "__commit__",
    "__version__",
    "connect",
    "experiment",
    "listen",
    "papers",
    "size_bytes",
    "span_ns",
    "summarise",
    "sweep",
    "validate",
]
