"""Process groups of elastic trainings: a newcomer's first one stands in for the real one.

Ranks that were there before wait for a newcomer in their loop's next step, and run nothing of what stands in front of
the loop, such as DistributedDataParallel's constructor. So until its own first step a newcomer's collectives return at
once, as if all ranks had what it has; then Elastic gives it the job's state and the real group.
"""
from __future__ import annotations

import threading

import torch
import torch.distributed as dist

from .. import UsageError
from ..job import init
from . import process_group


class Groups:
    """The default process group of an elastic training."""

    def __init__(self) -> None:
        self.backend: str | None = None  # None: the program has none
        self.generation = 0  # for which it was made
        self.is_provisional = False


groups = Groups()


class _Ended:
    """A request that has ended."""
    error = None

    def advance(self, _seconds) -> bool:
        return True


class Alone:
    """Has the part of ctrun.Group that makes sense as if all members had what this one has."""

    def __init__(self, rank: int, size: int):
        self.rank, self.size = rank, size
        self.lock = threading.RLock()
        self.open_requests: set = set()

    def all_reduce(self, *_, **__) -> _Ended:
        return _Ended()

    def broadcast(self, *_, **__) -> _Ended:
        return _Ended()

    def barrier(self, **__) -> _Ended:
        return _Ended()

    def all_gather(self, out: torch.Tensor, array: torch.Tensor, **__) -> _Ended:
        out.view(self.size, -1).copy_(array.reshape(1, -1).expand(self.size, -1))
        return _Ended()

    def close(self) -> None:
        pass

    def __getattr__(self, name: str):
        raise UsageError(f"{name} in front of steps(): a process that joins a running job is alone there; only "
                         "all_reduce, broadcast, all_gather and barrier may stand there")


class _Store(dist.Store):
    """What PyTorch needs of a store while it makes a group: counters at which everybody has arrived."""

    def __init__(self, world: int):
        super().__init__()
        self._world, self._values = world, {}

    def set(self, key, value) -> None:
        self._values[key] = value

    def get(self, key):
        return self._values.get(key, b"")

    def add(self, key, amount: int) -> int:
        return self._world

    def wait(self, keys, timeout=None) -> None:
        pass

    def check(self, keys) -> bool:
        return True


def _create(options, _backend_options):
    rank, size = options.group_rank, options.group_size
    return process_group.ProcessGroup(init(), Alone(rank, size), rank, size, "provisional", options.timeout)


def init_process_group(backend: str = "ctrun", **options) -> None:
    """torch.distributed.init_process_group for trainings with Elastic, which makes the group anew in each round.

    `backend` and `options` are PyTorch's; rank and world size are the job's.
    """
    job = init()
    groups.backend, groups.generation = backend, job.generation
    groups.is_provisional = job.generation > 1
    if not groups.is_provisional:
        dist.init_process_group(backend, **options)
        return
    process_group.register("ctrun_provisional", _create)
    dist.init_process_group("ctrun_provisional", store=_Store(job.world), rank=job.rank, world_size=job.world)
