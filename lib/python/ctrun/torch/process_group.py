"""Backend "ctrun" of torch.distributed: PyTorch's collectives of CPU tensors over ctrun's groups.

    import ctrun.torch
    torch.distributed.init_process_group("ctrun")                   # or "cpu:ctrun,cuda:nccl"

The calls are those of PyTorch's Backend class (torch/csrc/distributed/c10d/Backend.hpp), under the names of PyTorch
1.13 and those of 2.15. Where Backend cannot be subclassed in Python, ProcessGroup is, and then the backend composes
with no other. What differs from gloo:
  - every type of ctrun.h with every operation, also AVG, reduce_scatter, BF16; but no BXOR and no uint16 to uint64;
  - a tensor is received from a named rank only, and tags must be equal, they reorder nothing;
  - mismatched calls raise MismatchError, which says what each side called.
"""
from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .. import Error, TimeoutError, UnsupportedError, UsageError
from ..group import Group
from ..job import Job, init

_INLINE_S = 0.001  # a future's operation is waited for so long at once, before it is left to a thread
_POLL_S = 0.00005  # how often that thread looks; the group's helper advances the operation meanwhile

_OPERATIONS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "and", "BOR": "or"}
_BY_OPERATION = [(getattr(dist.ReduceOp, name), ours) for name, ours in _OPERATIONS.items()
                 if hasattr(dist.ReduceOp, name)]


def _base() -> type:
    """PyTorch's Backend if Python can subclass it (2.9 and later), else ProcessGroup."""
    backend = getattr(c10d, "Backend", None)
    try:
        type("Probe", (backend,), {"__init__": lambda self: backend.__init__(self, 0, 1)})()
        return backend
    except TypeError:
        return c10d.ProcessGroup


_BASE = _base()
_WORKS_LIVE = _BASE is not c10d.ProcessGroup


def _operation(op) -> tuple[str, float]:
    """Return the name of a reduction in ctrun, and its factor."""
    for theirs, ours in _BY_OPERATION:
        if op == theirs:
            return ours, 0.0
    factor = getattr(op, "factor", None)
    if isinstance(factor, float):
        return "premul_sum", factor
    raise UsageError(f"backend ctrun has no reduction {op}: it has {', '.join(_OPERATIONS)} and PREMUL_SUM")


class Guard:
    """Decides what becomes of an operation that failed; ctrun.torch.Elastic replaces it."""

    def absorbs(self, error: Error) -> bool:
        """Whether the operation counts as ended, its tensors undefined, because the step is repeated anyway."""
        return False


guard: object = Guard()


def _settle(error: Error | None) -> Error | None:
    return None if error is None or guard.absorbs(error) else error


class Work(c10d.Work):
    """An operation of PyTorch's on the way: some requests of ctrun's, and what is left to do when they have ended."""

    def __init__(self, group: ProcessGroup, requests: list, tensors: list, finish=None):
        super().__init__()
        self._group, self._requests, self._tensors, self._finish = group, requests, tensors, finish
        self._error: Error | None = None
        self._over = False
        self._future = None

    def advance(self, seconds: float | None) -> bool:
        """Wait until all has ended, for that long at most; return whether it has, well or not."""
        if self._over:
            return True
        try:
            for request in self._requests:
                if not request.advance(seconds):
                    return False
        except Error as error:  # the group was closed
            self._error, self._over = error, True
            return True
        self._error = _settle(next((request.error for request in self._requests if request.error is not None), None))
        if self._error is None and self._finish is not None:
            self._finish()
        self._finish = None
        self._over = True
        return True

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        if not self.advance(seconds if seconds > 0 else None):
            raise TimeoutError(f"an operation of backend ctrun is not complete after {seconds} s")
        if self._error is not None:
            raise self._error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.advance(0)

    def is_success(self) -> bool:
        return self.advance(0) and self._error is None

    def exception(self):
        return self._error

    def result(self) -> list:
        return self._tensors

    def get_future(self, inline: float = _INLINE_S):
        if self._future is None:
            self._future = torch.futures.Future()
            if self.advance(inline):
                self.conclude()
            else:
                self._group.complete_later(self)
        return self._future

    def conclude(self) -> None:
        """Give the future what the operation ended with."""
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            self._future.set_result(self._tensors)


class Completer:
    """A thread that completes the futures of operations that did not end at once, in the order of their start."""

    def __init__(self) -> None:
        self._works: deque[Work] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, work: Work) -> None:
        with self._changed:
            self._works.append(work)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ctrun futures", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._works and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                work = self._works[0]
            if work.advance(0):
                self._works.popleft()
                work.conclude()
            else:
                time.sleep(_POLL_S)


def _flat(tensors: list) -> torch.Tensor:
    """The elements of tensors one after the other: a view if they are one tensor, else a copy."""
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return tensors[0].view(-1)
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _spread(flat: torch.Tensor, tensors: list):
    """Return a function that copies the parts of `flat` to tensors."""
    def copy() -> None:
        at = 0
        with torch.no_grad():
            for tensor in tensors:
                tensor.copy_(flat[at:at + tensor.numel()].view(tensor.shape))
                at += tensor.numel()
    return copy


class ProcessGroup(_BASE):
    """A group of torch.distributed over a ctrun.Group."""

    def __init__(self, job: Job, group: Group, rank: int, size: int):
        super().__init__(rank, size)
        self._job, self._group = job, group
        self._completer = Completer()
        self._arrivals = 0
        self._together: list[Work] | None = None  # between _start_coalescing and _end_coalescing
        _open.add(self)

    # ---- inside --------------------------------------------------------------------------------

    def complete_later(self, work: Work) -> None:
        self._completer.add(work)

    def _work(self, starts: list, tensors: list, finish=None, inline: float = _INLINE_S):
        """Start requests, by functions without arguments, and return the operation that they make up.

        Before PyTorch 2.9 a Work of Python's that only C++ refers to is lost: one of C++'s stands for it, around the
        future.
        """
        requests = []
        try:
            for start in starts:
                requests.append(start())
        except Error as error:
            if _settle(error) is not None:
                raise
            finish = None
        work = Work(self, requests, tensors, finish)
        if self._together is not None:
            self._together.append(work)
            return work
        return work if _WORKS_LIVE else c10d._create_work_from_future(work.get_future(inline))

    def _one(self, tensors: list, what: str):
        if len(tensors) != 1:
            raise UsageError(f"{what} of {len(tensors)} tensors: backend ctrun takes one a call")
        return tensors[0]

    # ---- collectives ---------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None):
        op, scale = _operation(opts.reduceOp) if opts is not None else ("sum", 0.0)
        tensor = self._one(tensors, "all_reduce")
        return self._work([lambda: self._group.all_reduce(tensor, op, scale=scale, wait=False)], tensors)

    def allreduce_coalesced(self, tensors, opts=None):
        op, scale = _operation(opts.reduceOp) if opts is not None else ("sum", 0.0)
        return self._work([lambda t=tensor: self._group.all_reduce(t, op, scale=scale, wait=False)
                           for tensor in tensors], tensors)

    def broadcast(self, tensors, opts=None):
        root = opts.rootRank if opts is not None else 0
        tensor = self._one(tensors, "broadcast")
        return self._work([lambda: self._group.broadcast(tensor, root, wait=False)], tensors)

    def reduce(self, tensors, opts):
        op, scale = _operation(opts.reduceOp)
        tensor = self._one(tensors, "reduce")
        return self._work([lambda: self._group.reduce(tensor, opts.rootRank, op, scale=scale, wait=False)], tensors)

    def allgather(self, outputs, inputs, opts=None):
        tensor, parts = self._one(inputs, "all_gather"), outputs[0]
        flat = torch.empty(sum(part.numel() for part in parts), dtype=tensor.dtype)
        return self._work([lambda: self._group.all_gather(flat, tensor, wait=False)], outputs, _spread(flat, parts))

    def all_gather_single(self, output, tensor, opts=None):
        return self._work([lambda: self._group.all_gather(output, tensor, wait=False)], [output])

    _allgather_base = all_gather_single

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i] becomes rank r's input i."""
        starts, finishes = [], []
        for i, tensor in enumerate(inputs):
            flat = torch.empty(self._group.size * tensor.numel(), dtype=tensor.dtype)
            starts.append(lambda f=flat, t=tensor: self._group.all_gather(f, t, wait=False))
            finishes.append(_spread(flat, [of_rank[i] for of_rank in outputs]))
        return self._work(starts, outputs, lambda: [finish() for finish in finishes])

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._work([lambda o=output, t=tensor: self._group.all_gather(o, t, wait=False)
                           for output, tensor in zip(outputs, inputs)], outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        op, scale = _operation(opts.reduceOp)
        output, parts = self._one(outputs, "reduce_scatter"), inputs[0]
        flat, counts = _flat(parts), [part.numel() for part in parts]
        if len(set(counts)) == 1:
            return self._work([lambda: self._group.reduce_scatter(output, flat, op, scale=scale, wait=False)], outputs)
        return self._work([lambda: self._group.reduce_scatter_v(output, flat, counts, op, wait=False)], outputs)

    def reduce_scatter_single(self, output, tensor, opts):
        op, scale = _operation(opts.reduceOp)
        return self._work([lambda: self._group.reduce_scatter(output, tensor, op, scale=scale, wait=False)], [output])

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        op, scale = _operation(opts.reduceOp)
        return self._work([lambda o=output, t=tensor: self._group.reduce_scatter(o, t, op, scale=scale, wait=False)
                           for output, tensor in zip(outputs, inputs)], outputs)

    def gather(self, outputs, inputs, opts):
        tensor, root = self._one(inputs, "gather"), opts.rootRank
        if self._group.rank != root:
            return self._work([lambda: self._group.gather(tensor, None, root, wait=False)], [])
        parts = outputs[0]
        flat = torch.empty(sum(part.numel() for part in parts), dtype=tensor.dtype)
        return self._work([lambda: self._group.gather(tensor, flat, root, wait=False)], outputs, _spread(flat, parts))

    def scatter(self, outputs, inputs, opts):
        tensor, root = self._one(outputs, "scatter"), opts.rootRank
        flat = _flat(inputs[0]) if self._group.rank == root else None
        return self._work([lambda: self._group.scatter(tensor, flat, root, wait=False)], outputs)

    def alltoall(self, outputs, inputs, opts=None):
        flat = torch.empty(sum(output.numel() for output in outputs), dtype=outputs[0].dtype)
        counts = [tensor.numel() for tensor in inputs], [output.numel() for output in outputs]
        return self._work([lambda: self._group.all_to_all_v(flat, _flat(inputs), *counts, wait=False)], outputs,
                          _spread(flat, outputs))

    def all_to_all_single(self, output, tensor, output_split_sizes=(), input_split_sizes=(), opts=None):
        """Splits are of the first dimension; without any, it is divided equally."""
        if not output_split_sizes and not input_split_sizes:
            return self._work([lambda: self._group.all_to_all(output, tensor, wait=False)], [output])
        counts = []
        for whole, splits in ((tensor, input_split_sizes), (output, output_split_sizes)):
            row = whole.numel() // whole.shape[0] if whole.shape[0] else 0
            counts.append([split * row for split in splits or [whole.shape[0] // self._group.size] * self._group.size])
        return self._work([lambda: self._group.all_to_all_v(output, tensor, *counts, wait=False)], [output])

    alltoall_base = all_to_all_single

    def send(self, tensors, to, tag=0):
        tensor = self._one(tensors, "send")
        return self._work([lambda: self._group.send(tensor, to, tag=tag, wait=False)], tensors, inline=0)

    def recv(self, tensors, source, tag=0):
        tensor = self._one(tensors, "recv")
        return self._work([lambda: self._group.recv(tensor, source, tag=tag, wait=False)], tensors, inline=0)

    def recv_anysource(self, tensors, tag=0):
        raise UnsupportedError("backend ctrun receives from a rank that is named: pass src to recv or irecv")

    def barrier(self, opts=None):
        return self._work([lambda: self._group.barrier(wait=False)], [])

    def monitored_barrier(self, opts=None, wait_all_ranks=False):
        """Rank 0 names who does not arrive: all of them with wait_all_ranks, else the first. By the round's store."""
        given = opts if isinstance(opts, timedelta) else getattr(opts, "timeout", timedelta(0))
        seconds = given.total_seconds() if given.total_seconds() > 0 else 300.0
        self._arrivals += 1
        key = f"torch/{self._group.size}/{id_of(self)}/{self._arrivals}"
        self._job.store_set(f"{key}/{self._group.rank}", b"")
        if self._group.rank != 0:
            verdict = self._job.store_get(f"{key}/all", seconds + 5.0).decode()
        else:
            verdict = self._missing(key, time.monotonic() + seconds, wait_all_ranks)
            self._job.store_set(f"{key}/all", verdict.encode())
        if verdict:
            raise TimeoutError(f"monitored barrier: within {seconds} s {verdict} did not arrive")

    def _missing(self, key: str, deadline: float, all_of_them: bool) -> str:
        missing = []
        for rank in range(1, self._group.size):
            try:
                self._job.store_get(f"{key}/{rank}", max(deadline - time.monotonic(), 0.0))
            except TimeoutError:
                missing.append(str(rank))
                if not all_of_them:
                    break
        return f"rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}" if missing else ""

    # ---- what PyTorch asks besides -------------------------------------------------------------

    def getBackendName(self) -> str:
        return "ctrun"

    _get_backend_name = getBackendName

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return 0

    def _start_coalescing(self, device=None) -> None:
        self._together = []

    def _end_coalescing(self, device=None):
        works, self._together = self._together or [], None
        return Work(self, [request for work in works for request in work._requests],
                    [tensor for work in works for tensor in work._tensors],
                    lambda: [work.advance(None) for work in works])

    def abort(self) -> None:
        """End every operation with an error, here and at the other members. Any thread."""
        self._group.revoke()

    def shutdown(self) -> None:
        """Close the group. PyTorch's destroy_process_group calls it; where it does not, the last reference does."""
        self._completer.close()
        self._group.close()
        _open.discard(self)

    def __del__(self) -> None:
        if hasattr(self, "_completer"):
            self._completer.close()
            self._group.close()


class _Open:
    """All backends. PyTorch's C++ does not keep the Python half of a Backend alive, and this does."""

    def __init__(self) -> None:
        self.all: weakref.WeakSet = weakref.WeakSet()
        self._kept: set[ProcessGroup] = set()

    def add(self, group: ProcessGroup) -> None:
        self.all.add(group)
        if _WORKS_LIVE:
            self._kept.add(group)

    def discard(self, group: ProcessGroup) -> None:
        self.all.discard(group)
        self._kept.discard(group)


_open = _Open()


def id_of(group: ProcessGroup) -> str:
    """The group's name among its members."""
    return group.name_in_job


def _create(options, _backend_options) -> ProcessGroup:
    """PyTorch calls this at the members of a group that it makes."""
    job = init()
    ranks = list(options.global_ranks_in_group) or None
    if ranks is None and (options.group_rank, options.group_size) != (job.rank, job.world):
        raise UsageError(f"init_process_group says rank {options.group_rank} of {options.group_size}, and ctrun's job "
                         f"has this process as rank {job.rank} of {job.world}: start the script with ctrun, and let "
                         "init_process_group read rank and world size from the environment")
    name = f"torch/{options.group_id or 'world'}"
    group = job.group(ranks, name=name, timeout=options.timeout.total_seconds())
    made = ProcessGroup(job, group, options.group_rank, options.group_size)
    made.name_in_job = name
    return made


def register(name: str = "ctrun", create=_create) -> None:
    """Make a backend known to torch.distributed; again does nothing."""
    if hasattr(dist.Backend, name.upper()):
        return
    try:
        dist.Backend.register_backend(name, create, extended_api=True, devices=["cpu"])
    except TypeError:  # before 2.0 backends had no devices
        dist.Backend.register_backend(name, create, extended_api=True)


def close_all() -> None:
    """Close the groups of all of this process's backends."""
    for group in list(_open.all):
        group.shutdown()
