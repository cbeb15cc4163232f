"""Tables as labelled arrays of xarray."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ._errors import needs
from ._store import SEED
from ._table import Table


def dataset_of(table: Table, settings: Sequence[str]) -> Any:
    """Returns the metrics of a sweep over its settings and seeds as an ``xarray.Dataset``."""
    xarray = needs("xarray", "xarray")
    columns = table.to_pydict()
    names = list(columns)
    metrics = names[names.index(SEED) + 1 :]
    axes: dict[str, list[Any]] = {}
    for key in settings:
        numbers = [name for name in names if name.startswith(f"{key}_") and name not in metrics]
        # A key with text for some values has no number there: text tells all of them apart.
        is_number = bool(numbers) and all(cell is not None for cell in columns[numbers[0]])
        axes[numbers[0] if is_number else key] = columns[numbers[0] if is_number else key]
    axes[SEED] = columns[SEED]
    coordinates = {name: list(dict.fromkeys(cells)) for name, cells in axes.items()}
    places = [{cell: place for place, cell in enumerate(cells)} for cells in coordinates.values()]
    shape = [len(cells) for cells in coordinates.values()]
    rows = [_flat(shape, [place[cell] for place, cell in zip(places, row)]) for row in zip(*axes.values())]
    variables = {}
    for name in metrics:
        flat = [math.nan] * math.prod(shape)
        for row, value in zip(rows, columns[name]):
            flat[row] = math.nan if value is None else value
        variables[name] = xarray.DataArray(flat, dims=["flat"]).data.reshape(shape)
    return xarray.Dataset(
        {name: (list(coordinates), values, {"units": unit} if (unit := table.units.get(name)) else {}) for name, values in variables.items()},
        coords=coordinates,
    )


def _flat(shape: Sequence[int], place: Sequence[int]) -> int:
    flat = 0
    for size, index in zip(shape, place):
        flat = flat * size + index
    return flat
