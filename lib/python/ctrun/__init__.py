"""ctrun: collectives and elastic jobs for processes that `ctrun` starts.

    import ctrun, numpy

    with ctrun.init() as job:                       # ctrun --nproc_per_node 4 program.py
        x = numpy.full(1000, job.rank, "float32")
        ctrun.all_reduce(x, "avg")                  # in place, over all ranks
        pair = job.group(ranks=[0, 1]) if job.rank < 2 else None

Arrays are PyTorch tensors, NumPy arrays or buffers, in the host's memory and contiguous; nothing is copied. Errors are
ctrun.Error and its kinds, whose text says what, where, and the remedy. `import ctrun.torch` adds the backend "ctrun" to
torch.distributed, and elastic training. `ctrun.steps` is a loop that survives lost ranks, `ctrun.log` records metrics,
`ctrun.run` starts jobs from notebooks.
"""
from __future__ import annotations

from ._version import __version__
from .errors import (ClosedError, DivergedError, Error, FencedError, JobError, LimitError, MismatchError,
                     RevokedError, TimeoutError, UnsupportedError, UsageError)
from .group import NO_COLOUR, Group, Request
from .job import Job, current, init
from .memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .buffers import Array
    from .launch import run
    from .metrics import log, log_to, run_folder
    from .step_loop import Steps, steps


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


# What most ranks need no line of: imported when it is used.
_LATER = {"run": "launch", "log": "metrics", "log_to": "metrics", "run_folder": "metrics", "steps": "step_loop",
          "Steps": "step_loop"}


def __getattr__(name: str) -> Any:
    module = _LATER.get(name)
    if module is None:
        raise AttributeError(f"module 'ctrun' has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(f".{module}", __name__), name)
    return value


__all__ = ["__version__", "ClosedError", "DivergedError", "Error", "FencedError", "Group", "Job", "JobError",
           "LimitError", "Memory", "MismatchError", "NO_COLOUR", "Request", "RevokedError", "Steps", "TimeoutError",
           "UnsupportedError", "UsageError", "all_gather", "all_reduce", "barrier", "beat", "broadcast", "current",
           "init", "log", "log_to", "run", "run_folder", "steps"]
