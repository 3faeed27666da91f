"""Backend "ctrun" of torch.distributed: PyTorch's collectives of CPU tensors over ctrun's groups.

    import ctrun.torch
    torch.distributed.init_process_group("ctrun")                   # or "cpu:ctrun,cuda:nccl"

The calls are those of PyTorch's Backend class (torch/csrc/distributed/c10d/Backend.hpp), under the names of PyTorch
1.13 and those of 2.15. Where Backend cannot be subclassed in Python, ProcessGroup is, and then the backend composes
with no other. What differs from gloo:
  - reductions of every type of ctrun.h, also AVG, PREMUL_SUM, BF16, bool; but no BXOR and no uint16 to uint64;
  - reduce_scatter, all_to_all, and whatever only moves elements, of every type of PyTorch;
  - a tensor is received from a named rank only, and tags must be equal, they reorder nothing;
  - mismatched calls raise MismatchError, which says what each side called.
"""
from __future__ import annotations

import sys
import time
import weakref
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d
from torch.distributed import distributed_c10d

from .. import Error, TimeoutError, UnsupportedError, UsageError
from ..group import Group
from ..job import Job, init
from .work import Completer, Line, Work, repair_is_completed

_REDUCTIONS = {"SUM": "sum", "AVG": "avg", "PRODUCT": "prod", "MIN": "min", "MAX": "max", "BAND": "and", "BOR": "or"}
_BY_HASH = {hash(getattr(dist.ReduceOp, name)): ours for name, ours in _REDUCTIONS.items()
            if hasattr(dist.ReduceOp, name)}  # of PyTorch's kinds of ReduceOp, equal ones have equal hashes
_PREMUL_SUM = hash(dist.ReduceOp.PREMUL_SUM) if hasattr(dist.ReduceOp, "factor") else None  # 1.13 does not say it
_TYPES = {torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.int16,
          torch.int8, torch.uint8, torch.bool}
_BUSY = 16  # with fewer open operations than that in a group one starts at once, whatever its kind
_MONITORED_S = 300.0  # a monitored barrier without a timeout


def _base() -> type:
    """PyTorch's Backend if Python can subclass it (2.9 and later), else ProcessGroup."""
    backend = getattr(c10d, "Backend", None)
    try:
        type("Probe", (backend,), {"__init__": lambda self: backend.__init__(self, 0, 1)})()
        return backend
    except TypeError:
        return c10d.ProcessGroup


_BASE = _base()
_IS_BACKEND = _BASE is not c10d.ProcessGroup
if _IS_BACKEND:
    repair_is_completed()


def _reduction(opts) -> tuple[str, float]:
    """Return the name of a call's reduction in ctrun, and its factor."""
    if opts is None:
        return "sum", 0.0
    op = opts.reduceOp
    name = _BY_HASH.get(hash(op))
    if name is not None:
        return name, 0.0
    if hash(op) == _PREMUL_SUM and isinstance(op.factor, float):
        return "premul_sum", op.factor
    what = getattr(getattr(op, "op", op), "name", op)
    raise UsageError(f"backend ctrun has no reduction {what}: it has {', '.join(_REDUCTIONS)}, PREMUL_SUM of floats")


class Guard:
    """Decides what becomes of an operation that failed; ctrun.torch.Elastic replaces it."""

    def absorbs(self, error: Error) -> bool:
        """Whether the operation counts as ended, its tensors undefined, because the step is repeated anyway."""
        return False


guard: object = Guard()


def _one(tensors: list, what: str) -> torch.Tensor:
    if len(tensors) != 1:
        raise UsageError(f"{what} of {len(tensors)} tensors: backend ctrun takes one a call")
    return tensors[0]


def _flat(tensors: list) -> torch.Tensor:
    """The elements of tensors one after the other: a view if they are one tensor, else a copy."""
    if len(tensors) == 1 and tensors[0].is_contiguous():
        return tensors[0].view(-1)
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _room_for(parts: list, like: torch.Tensor) -> torch.Tensor:
    """Memory for the elements of all parts."""
    if any(part.dtype != like.dtype for part in parts):
        raise UsageError(f"the tensors of one call have different types: {like.dtype} is sent")
    return torch.empty(sum([part.numel() for part in parts]), dtype=like.dtype)


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    """What stands for a tensor that is only moved: itself, or its bytes where ctrun does not have the type."""
    if tensor.dtype in _TYPES or not tensor.is_contiguous() or not tensor.is_cpu:
        return tensor
    if tensor.is_conj():
        raise UsageError("a tensor that is conjugated lazily: pass tensor.resolve_conj()")
    return tensor.view(-1).view(torch.uint8)


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

    # Where a backend in Python does not say these, PyTorch 2.15 asks itself without end.
    supports_splitting = supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = False
    _supports_time_estimate = False

    def __init__(self, job: Job, group: Group, rank: int, size: int, name: str, timeout: timedelta):
        super().__init__(rank, size)
        self._options = c10d.Backend.Options("ctrun", timeout) if _IS_BACKEND else None
        self._job, self._group, self._name = job, group, name
        self.completer = Completer()
        self._collectives, self._sends, self._recvs = Line(group.lock), Line(group.lock), Line(group.lock)
        self._started = 0  # collectives
        self._arrivals = 0
        self._coalesced: list[Work] | None = None  # between _start_coalescing and _end_coalescing
        _open.add(self)

    # ---- inside --------------------------------------------------------------------------------

    def settle(self, error: Error | None) -> Error | None:
        """Return the error that an operation ends with for PyTorch."""
        return None if error is None or guard.absorbs(error) else error

    def _start(self, line: Line, call, arguments: tuple, options: dict):
        """Start an operation of the group, now or when there is room."""
        if line.waiting or len(self._group.open_requests) >= _BUSY:
            return line.add(call, arguments, options)
        return call(*arguments, wait=False, **options)

    def _run(self, opts, tensors: list, call, *arguments, finish=None, **options):
        """Call a collective of the group. Return what PyTorch is to wait for, or None when it has ended already."""
        self._started += 1
        line = self._collectives
        try:
            if not getattr(opts, "asyncOp", True) and self._coalesced is None and not line.waiting:
                call(*arguments, **options)
                if finish is not None:
                    finish()
                return None
            parts = (self._start(line, call, arguments, options),)
        except Error as error:
            if self.settle(error) is not None:
                raise
            parts, finish = (), None
        return self._handed(Work(self, parts, tensors, finish))

    def _run_all(self, tensors: list, calls: list, finish=None):
        """The same of several calls, each (function, arguments, options), that end together."""
        self._started += 1
        try:
            parts = [self._start(self._collectives, *call) for call in calls]
        except Error as error:
            if self.settle(error) is not None:
                raise
            parts, finish = (), None
        return self._handed(Work(self, parts, tensors, finish))

    def _transfer(self, line: Line, tensors: list, call, *arguments, **options):
        try:
            parts = (self._start(line, call, arguments, options),)
        except Error as error:
            if self.settle(error) is not None:
                raise
            parts = ()
        return self._handed(Work(self, parts, tensors))

    def _handed(self, work: Work):
        """Return what PyTorch gets for a work. Called by what a method of PyTorch's calls.

        Before PyTorch 2.9 a Work of Python's that only C++ refers to is lost, so C++ gets one of its own around the
        future. Its wait raises nothing, so that only DDP's all-reduces, whose future is read, are left to go on.
        torch.distributed's functions are Python, and keep a Work.
        """
        if self._coalesced is not None:
            self._coalesced.append(work)
            return work
        caller = sys._getframe(2)
        if _IS_BACKEND or caller.f_back.f_globals is _PYTORCH:
            return work
        if caller.f_code is not ProcessGroup.allreduce.__code__:
            work.wait()
        return c10d._create_work_from_future(work.get_future())

    # ---- collectives ---------------------------------------------------------------------------

    def allreduce(self, tensors, opts=None):
        op, scale = _reduction(opts)
        return self._run(opts, tensors, self._group.all_reduce, _one(tensors, "all_reduce"), op, scale=scale)

    def allreduce_coalesced(self, tensors, opts=None):
        op, scale = _reduction(opts)
        return self._run_all(tensors, [(self._group.all_reduce, (tensor, op), {"scale": scale}) for tensor in tensors])

    def broadcast(self, tensors, opts=None):
        root = opts.rootRank if opts is not None else 0
        return self._run(opts, tensors, self._group.broadcast, _moved(_one(tensors, "broadcast")), root)

    def reduce(self, tensors, opts):
        op, scale = _reduction(opts)
        return self._run(opts, tensors, self._group.reduce, _one(tensors, "reduce"), opts.rootRank, op, scale=scale)

    def allgather(self, outputs, inputs, opts=None):
        tensor, parts = _one(inputs, "all_gather"), _one(outputs, "all_gather")
        self._has_one_for_each(parts)
        flat = _room_for(parts, tensor)
        sizes = {part.numel() for part in parts}
        if len(sizes) == 1:
            return self._run(opts, outputs, self._group.all_gather, _moved(flat), _moved(tensor),
                             finish=_spread(flat, parts))
        bytes_of = tensor.element_size() if tensor.dtype not in _TYPES else 1
        return self._run(opts, outputs, self._group.all_gather_v, _moved(flat), _moved(tensor),
                         [part.numel() * bytes_of for part in parts], finish=_spread(flat, parts))

    def all_gather_single(self, output, tensor, opts=None):
        return self._run(opts, [output], self._group.all_gather, _moved(output), _moved(tensor))

    _allgather_base = all_gather_single

    def allgather_coalesced(self, outputs, inputs, opts=None):
        """outputs[r][i] becomes rank r's input i."""
        self._has_one_for_each(outputs)
        calls, finishes = [], []
        for i, tensor in enumerate(inputs):
            flat = torch.empty(self._group.size * tensor.numel(), dtype=tensor.dtype)
            calls.append((self._group.all_gather, (_moved(flat), _moved(tensor)), {}))
            finishes.append(_spread(flat, [of_rank[i] for of_rank in outputs]))
        return self._run_all(outputs, calls, lambda: [finish() for finish in finishes])

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        return self._run_all(outputs, [(self._group.all_gather, (_moved(output), _moved(tensor)), {})
                                       for output, tensor in zip(outputs, inputs)])

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def reduce_scatter(self, outputs, inputs, opts):
        op, scale = _reduction(opts)
        output, parts = _one(outputs, "reduce_scatter"), _one(inputs, "reduce_scatter")
        self._has_one_for_each(parts)
        flat, counts = _flat(parts), [part.numel() for part in parts]
        if len(set(counts)) == 1:
            return self._run(opts, outputs, self._group.reduce_scatter, output, flat, op, scale=scale)
        if scale:
            raise UsageError("reduce_scatter of tensors of different sizes has no PREMUL_SUM")
        return self._run(opts, outputs, self._group.reduce_scatter_v, output, flat, counts, op)

    def reduce_scatter_single(self, output, tensor, opts):
        op, scale = _reduction(opts)
        return self._run(opts, [output], self._group.reduce_scatter, output, tensor, op, scale=scale)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        op, scale = _reduction(opts)
        return self._run_all(outputs, [(self._group.reduce_scatter, (output, tensor, op), {"scale": scale})
                                       for output, tensor in zip(outputs, inputs)])

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    def gather(self, outputs, inputs, opts):
        tensor, root = _one(inputs, "gather"), opts.rootRank
        if self._group.rank != root:
            return self._run(opts, [], self._group.gather, _moved(tensor), None, root)
        parts = _one(outputs, "gather")
        self._has_one_for_each(parts)
        flat = _room_for(parts, tensor)
        return self._run(opts, outputs, self._group.gather, _moved(tensor), _moved(flat), root,
                         finish=_spread(flat, parts))

    def gather_single(self, output, tensor, opts):
        target = _moved(output) if self._group.rank == opts.rootRank else None
        return self._run(opts, [output], self._group.gather, _moved(tensor), target, opts.rootRank)

    gather_into_tensor = gather_single

    def scatter(self, outputs, inputs, opts):
        tensor, root, flat = _one(outputs, "scatter"), opts.rootRank, None
        if self._group.rank == root:
            parts = _one(inputs, "scatter")
            self._has_one_for_each(parts)
            flat = _moved(_flat(parts))
        return self._run(opts, outputs, self._group.scatter, _moved(tensor), flat, root)

    def alltoall(self, outputs, inputs, opts=None):
        self._has_one_for_each(outputs)
        self._has_one_for_each(inputs)
        source, flat = _flat(inputs), _room_for(outputs, inputs[0])
        bytes_of = source.element_size() if source.dtype not in _TYPES else 1
        return self._run(opts, outputs, self._group.all_to_all_v, _moved(flat), _moved(source),
                         [tensor.numel() * bytes_of for tensor in inputs],
                         [tensor.numel() * bytes_of for tensor in outputs], finish=_spread(flat, outputs))

    def all_to_all_single(self, output, tensor, output_split_sizes=(), input_split_sizes=(), opts=None):
        """Splits are of the first dimension; without any, it is divided equally."""
        source, target = _moved(tensor), _moved(output)
        if not output_split_sizes and not input_split_sizes:
            return self._run(opts, [output], self._group.all_to_all, target, source)
        return self._run(opts, [output], self._group.all_to_all_v, target, source,
                         self._counts(tensor, source, input_split_sizes),
                         self._counts(output, target, output_split_sizes))

    alltoall_base = all_to_all_single

    def _counts(self, whole: torch.Tensor, moved: torch.Tensor, splits) -> list[int]:
        """The elements of `moved` for each member, whose shares of `whole` are rows."""
        rows, size = whole.shape[0] if whole.dim() else 1, self._group.size
        if not splits:
            if rows % size:
                raise UsageError(f"{rows} rows cannot be divided among {size} members: pass split sizes")
            splits = [rows // size] * size
        if len(splits) != size or sum(splits) != rows:
            raise UsageError(f"split sizes {list(splits)} are not {size} that add up to {rows} rows")
        row = moved.numel() // rows if rows else 0
        return [split * row for split in splits]

    def _has_one_for_each(self, parts: list) -> None:
        if len(parts) != self._group.size:
            raise UsageError(f"a list of {len(parts)} tensors for {self._group.size} members")

    def barrier(self, opts=None):
        return self._run(opts, [], self._group.barrier)

    # ---- from one to one -----------------------------------------------------------------------

    def send(self, tensors, to, tag=0):
        return self._transfer(self._sends, tensors, self._group.send, _moved(_one(tensors, "send")), to, tag=tag)

    def recv(self, tensors, source, tag=0):
        return self._transfer(self._recvs, tensors, self._group.recv, _moved(_one(tensors, "recv")), source, tag=tag)

    def recv_anysource(self, tensors, tag=0):
        raise UnsupportedError("backend ctrun receives from a rank that is named: pass src to recv or irecv")

    # ---- the monitored barrier -----------------------------------------------------------------

    def monitored_barrier(self, opts=None, wait_all_ranks=False):
        """Rank 0 names who does not arrive: all of them with wait_all_ranks, else the first. By the round's store."""
        given = (opts if isinstance(opts, timedelta) else opts.timeout).total_seconds() if opts is not None else -1.0
        seconds = given if given >= 0 else _MONITORED_S
        deadline = time.monotonic() + seconds
        self._arrivals += 1
        key = f"{self._name}/{self._arrivals}"
        if self._group.rank != 0:
            self._job.store_set(f"{key}/{self._group.rank}", b"")
            verdict = self._value(f"{key}/all", deadline + 5.0)
            if verdict is None:
                raise TimeoutError(f"Rank 0 failed to pass monitoredBarrier in {round(seconds * 1000)} ms")
        else:
            verdict = self._missing(key, deadline, wait_all_ranks)
            self._job.store_set(f"{key}/all", verdict)
        if verdict:  # in gloo's words
            raise TimeoutError(f"{verdict.decode()} failed to pass monitoredBarrier in {round(seconds * 1000)} ms")

    def _value(self, key: str, deadline: float) -> bytes | None:
        """A value of the round's store, None when there is none in time."""
        try:
            return self._job.store_get(key, max(deadline - time.monotonic(), 0.0))
        except TimeoutError:
            return None

    def _missing(self, key: str, deadline: float, all_of_them: bool) -> bytes:
        missing = []
        for rank in range(1, self._group.size):
            if self._value(f"{key}/{rank}", deadline) is None:
                missing.append(str(rank))
                if not all_of_them:
                    break
        return f"Rank{'s' if len(missing) > 1 else ''} {', '.join(missing)}".encode() if missing else b""

    # ---- what PyTorch asks besides -------------------------------------------------------------

    @property
    def options(self):
        """c10d.Backend.Options: the timeout; split_group and others read it."""
        return self._options

    def getBackendName(self) -> str:
        return "ctrun"

    _get_backend_name = getBackendName

    def _set_sequence_number_for_group(self) -> None:
        pass

    def _get_sequence_number_for_group(self) -> int:
        return self._started

    def start_coalescing(self, *_) -> None:
        self._coalesced = []

    _start_coalescing = start_coalescing

    def end_coalescing(self, *_):
        works, self._coalesced = self._coalesced or [], None
        return Work(self, works, [tensor for work in works for tensor in work.result()])

    _end_coalescing = end_coalescing

    def abort(self) -> None:
        """End every operation with an error, here and at the other members. Any thread."""
        self._group.revoke()

    def shutdown(self) -> None:
        """Close the group. PyTorch's destroy_process_group calls it; where it does not, the last reference does."""
        _open.discard(self)
        self._close()

    def _close(self) -> None:
        if self._job.is_here():  # a child by fork has no part in it, and none of its threads
            self._group.close()
            self.completer.close()

    def __del__(self) -> None:
        if hasattr(self, "completer"):
            self._close()


_PYTORCH = vars(distributed_c10d)
# From 2.9 on PyTorch's C++ owns a backend, but not its Python half.
_open: set[ProcessGroup] | weakref.WeakSet[ProcessGroup]
_open = set() if _IS_BACKEND else weakref.WeakSet()


class _Worlds:
    """Counts the default groups of a round, for names that are the same at all members and unique among open groups."""

    def __init__(self) -> None:
        self._generation = self._count = 0

    def begin(self, job: Job) -> None:
        """A default group is made: those before it were destroyed, which PyTorch before 2.x tells nobody."""
        for left in list(_open):
            left.shutdown()
        self._count = self._count + 1 if self._generation == job.generation else 0
        self._generation = job.generation

    def name(self, group_id: str) -> str:
        return f"torch/{self._count}/{group_id}"


_worlds = _Worlds()


def _create(options, _backend_options) -> ProcessGroup:
    """PyTorch calls this at the members of a group that it makes."""
    job = init()
    ranks, rank = [int(member) for member in options.global_ranks_in_group] or None, options.group_rank
    here = rank if ranks is None else ranks[rank]
    if here != job.rank or (ranks is None and options.group_size != job.world) or max(ranks or [0]) >= job.world:
        raise UsageError(f"torch.distributed has this process as rank {here} of "
                         f"{options.group_size if ranks is None else dist.get_world_size()}, and ctrun's job as rank "
                         f"{job.rank} of {job.world}: start the script with ctrun, and let init_process_group read "
                         "rank and world size from the environment")
    if ranks is not None and ranks != sorted(ranks):
        raise UnsupportedError(f"a group of the ranks {ranks}: backend ctrun has groups in ascending order only")
    if ranks is None:
        _worlds.begin(job)
    name = _worlds.name(options.group_id or "world")
    group = job.group(ranks, name=name, timeout=options.timeout.total_seconds())
    return ProcessGroup(job, group, rank, options.group_size, name, options.timeout)


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
    for group in list(_open):
        group.shutdown()
