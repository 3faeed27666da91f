"""A stop's signals in a loop whose ranks agree on the step before which they stop.

ctrun sends the signal to its workers besides a message; the message is what all ranks agree on. A rank that does not
come to its next step within ctrun's --grace is killed.
"""
from __future__ import annotations

import os
import signal
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class StopSignals:
    """Within `with`, signals by which ctrun stops workers do nothing to them; their children end by them.

    Without an agent, and in a thread that is not the main one, nothing is changed.
    """

    def __init__(self) -> None:
        self._worker = os.getpid()
        self._before: dict[int, Any] = {}

    def _handle(self, number: int, _frame: object) -> None:
        if os.getpid() != self._worker:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def __enter__(self) -> None:
        if os.environ.get("CTRUN_STOP_SIGNALS") and threading.current_thread() is threading.main_thread():
            for number in map(int, os.environ["CTRUN_STOP_SIGNALS"].split(",")):
                self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
