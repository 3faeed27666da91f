"""ctrun: collectives and elastic jobs for processes that `ctrun` starts.

    import ctrun, numpy

    with ctrun.init() as job:                       # ctrun --nproc_per_node 4 program.py
        x = numpy.full(1000, job.rank, "float32")
        ctrun.all_reduce(x, "avg")                  # in place, over all ranks
        pair = job.group(ranks=[0, 1]) if job.rank < 2 else None

Arrays are PyTorch tensors, NumPy arrays or buffers, in the host's memory and contiguous; nothing is copied. Errors are
ctrun.Error and its kinds, whose text says what, where, and the remedy. `import ctrun.torch` adds the backend "ctrun" to
torch.distributed, and elastic training. `ctrun.run` starts jobs from notebooks.
"""
from __future__ import annotations

from ._version import __version__
from .errors import (ClosedError, DivergedError, Error, FencedError, LimitError, MismatchError, RevokedError,
                     TimeoutError, UnsupportedError, UsageError)
from .group import NO_COLOUR, Group, Request
from .job import Job, current, init
from .memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .buffers import Array


def all_reduce(array: Array, op: str = "sum", **options: Any) -> Any:
    """Group.all_reduce over all ranks."""
    return current().default_group.all_reduce(array, op, **options)


def broadcast(array: Array, root: int = 0, **options: Any) -> Any:
    """Group.broadcast over all ranks."""
    return current().default_group.broadcast(array, root, **options)


def all_gather(out: Array, array: Array | None = None, **options: Any) -> Any:
    """Group.all_gather over all ranks."""
    return current().default_group.all_gather(out, array, **options)


def barrier(**options: Any) -> None:
    """Group.barrier over all ranks."""
    current().default_group.barrier(**options)


def beat(step: int | None = None) -> None:
    """Job.beat: a sign of life."""
    current().beat(step)


__all__ = ["__version__", "ClosedError", "DivergedError", "Error", "FencedError", "Group", "Job", "LimitError",
           "Memory", "MismatchError", "NO_COLOUR", "Request", "RevokedError", "TimeoutError", "UnsupportedError",
           "UsageError", "all_gather", "all_reduce", "barrier", "beat", "broadcast", "current", "init"]
