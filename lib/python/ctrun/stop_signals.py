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
    """Within `with`, SIGTERM and SIGINT do nothing to a worker of ctrun; its children end by them, as they would.

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
        if "CTRUN_CONTROL_FD" in os.environ and threading.current_thread() is threading.main_thread():
            for number in (signal.SIGTERM, signal.SIGINT):
                self._before[number] = signal.signal(number, self._handle)

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
