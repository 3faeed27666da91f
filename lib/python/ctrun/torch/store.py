"""The round's store as PyTorch sees it, so that process groups can be made anew in each round.

PyTorch's own store (MASTER_ADDR, MASTER_PORT) ends with the round that it was started in; ctrun's begins empty in each.
"""
from __future__ import annotations

import time
from datetime import timedelta

import torch.distributed as dist

from .. import TimeoutError
from ..job import Job


def _bytes(value) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


class Store(dist.Store):
    """torch.distributed.Store over Job.store_set, store_get and store_add: values, counters, waits.

    A counter is read as its decimal digits, as in PyTorch. Keys cannot be deleted or compared.
    """

    def __init__(self, job: Job, timeout: timedelta = timedelta(seconds=300)):
        super().__init__()
        self._job, self._timeout = job, timeout
        self._prefix = f"torch/{job.generation}/"
        self._counters: set[str] = set()

    def _wait(self, key: str, seconds: float) -> bytes:
        try:
            return self._job.store_get(self._prefix + key, seconds)
        except TimeoutError as error:
            raise TimeoutError(f"PyTorch waits for {error}", error.code) from None

    def set(self, key, value) -> None:
        self._job.store_set(self._prefix + key, _bytes(value))

    def get(self, key):
        if key in self._counters:
            return str(self.add(key, 0)).encode()
        return self._wait(key, self._timeout.total_seconds())

    def add(self, key, amount: int) -> int:
        self._counters.add(key)
        return self._job.store_add(self._prefix + key, amount)

    def wait(self, keys, timeout: timedelta | None = None) -> None:
        deadline = time.monotonic() + (timeout or self._timeout).total_seconds()
        for key in keys:
            self._wait(key, max(deadline - time.monotonic(), 0.0))

    def check(self, keys) -> bool:
        try:
            for key in keys:
                self._wait(key, 0.0)
        except TimeoutError:
            return False
        return True

    def set_timeout(self, timeout: timedelta) -> None:
        self._timeout = timeout

    @property
    def timeout(self) -> timedelta:
        """How long get and wait wait for a key."""
        return self._timeout
