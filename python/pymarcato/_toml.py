"""Python values as TOML."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Union

#: Values that a scenario can have.
Value = Union[str, int, float, bool, Mapping[str, Any], Sequence[Any]]

_BARE = re.compile(r"[A-Za-z0-9_-]+\Z")


def document(table: Mapping[str, Any]) -> str:
    """Returns a table as a TOML document, with its keys in their order.

    Tables and lists of tables at the top become sections, so that faults have useful lines.

    Raises
    ------
    TypeError
        If it is no dictionary.
    """
    if not isinstance(table, Mapping):
        raise TypeError(
            f"a scenario is a dictionary with the keys of a scenario file, not {type(table).__name__}: "
            "read a file with `from_file`, and text with `from_str`"
        )
    plain, sections = [], []
    for key, value in table.items():
        if isinstance(value, Mapping):
            sections.append(f"\n[{_key(key)}]\n" + "".join(_line(*one) for one in value.items()))
        elif _is_list(value) and value and all(isinstance(one, Mapping) for one in value):
            for one in value:
                sections.append(f"\n[[{_key(key)}]]\n" + "".join(_line(*entry) for entry in one.items()))
        else:
            plain.append(_line(key, value))
    return "".join(plain + sections)


def spoken(value: Value) -> str:
    """Returns a value as it is written after ``--set KEY=``: text stands without quotes."""
    return checked(value) if isinstance(value, str) else _value(value)


def checked(text: str) -> str:
    """Returns a text that can be written as UTF-8.

    Raises
    ------
    ValueError
        If it has surrogates.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        found = text[error.start]
        raise ValueError(
            f"the text {text!r} has half of a character, {found!r}: decode it with the encoding that it was written in"
        ) from None
    return text


def _line(key: str, value: Any) -> str:
    return f"{_key(key)} = {_value(value)}\n"


def _key(key: object) -> str:
    if not isinstance(key, str):
        raise TypeError(f"a key of a scenario is a string, not {key!r}")
    return key if _BARE.match(key) else _quoted(key)


def _quoted(text: str) -> str:
    # JSON escapes as TOML does, but for DEL and for characters outside of the basic plane.
    return json.dumps(checked(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes, bytearray))


def _value(value: Any) -> str:
    if hasattr(value, "tolist") and not isinstance(value, (str, Mapping)):
        value = value.tolist()  # A scalar or an array of NumPy.
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a value of a scenario is finite, not {value}")
        return repr(float(value))
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items()) + " }" if value else "{}"
    if _is_list(value):
        return "[" + ", ".join(_value(one) for one in value) + "]"
    raise TypeError(f"a value of a scenario is text, a number, a flag, a list or a dictionary, not {value!r}")
