"""Process of a local pool: calls functions that arrive on the standard input."""

from __future__ import annotations

import os
import pickle
import sys
from typing import Any

from ._engine import dumps, receive, send


def main() -> None:
    """Answers calls until the parent closes the pipe."""
    calls = sys.stdin.buffer
    # What a run prints must not meet the answers.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            message = receive(calls)
        except EOFError:
            return
        answer: tuple[bool, Any]
        try:
            function, arguments, named = pickle.loads(message)
            answer = (False, function(*arguments, **named))
        except BaseException as error:
            answer = (True, error)
        try:
            packed = dumps(answer)
        except Exception as error:
            packed = dumps((True, RuntimeError(f"the answer cannot be sent: {error}")))
        try:
            send(answers, packed)
        except BrokenPipeError:
            # The parent was killed: nobody wants answers any more.
            os._exit(1)


if __name__ == "__main__":
    main()
