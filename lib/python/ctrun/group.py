"""Groups of ranks that communicate, and what they call; see ctrun.h for shapes, order and failures.

All calls work on arrays in place, or from `array` into `out`. Every member of a group calls the same collectives in
the same order. A call with wait=False returns a Request, and the arrays belong to it until it has ended.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from ctypes import byref, c_int, c_size_t, c_void_p

from . import _abi
from .buffers import DTYPES, FLOATS, View, view
from .errors import ClosedError, Error, UsageError, error_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .buffers import Array
    from .job import Job

OPERATIONS = {"sum": 0, "avg": 1, "max": 2, "min": 3, "prod": 4, "and": 5, "or": 6, "premul_sum": 7}
MODES = {"fast": 0, "reproducible": 1, "invariant": 2}
NO_COLOUR = -1
REQUESTS_MAX = 64  # CT_REQUESTS_MAX

_SLICE_S = 0.1  # a thread waits so long at once: between two slices Python handles signals, as Ctrl-C
_TURN_S = 0.001  # the same while several threads use the group
_PASS_S = 0.00005  # how long a waiting thread stays outside then
_FIRST_US = 1000  # the first slice of a blocking call


def _milliseconds(seconds: float | None) -> int:
    if seconds is None:
        return 0
    if seconds <= 0:
        raise UsageError(f"a timeout of {seconds} s: it must be positive")
    return max(1, round(seconds * 1000))


def _member(table: dict[str, int], what: str, name: str) -> int:
    try:
        return table[name]
    except (KeyError, TypeError):
        raise UsageError(f"there is no {what} {name!r}: it is one of {', '.join(table)}") from None


def _operation(name: str, dtype: int) -> int:
    number = _member(OPERATIONS, "operation", name)
    if name in ("and", "or") and dtype in FLOATS:
        raise UsageError(f"operation {name!r} is of bits, and {DTYPES[dtype]} has none: see ctrun.h, enum ct_reduce")
    if name == "premul_sum" and dtype not in FLOATS:
        raise UsageError(f"operation {name!r} is of floating-point numbers, not of {DTYPES[dtype]}")
    return number


class Lock:
    """A group's lock. It can be acquired again by its holder, and knows whether several threads use the group."""
    __slots__ = ("_lock", "acquire", "release", "shared")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self.acquire, self.release = self._lock.acquire, self._lock.release
        self.shared = False

    def __enter__(self) -> None:
        if not self.acquire(False):
            self.shared = True
            self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    @property
    def slice(self) -> float:
        """Seconds that its holder may wait at once."""
        return _TURN_S if self.shared else _SLICE_S

    def pass_on(self) -> None:
        """Called without the lock between two slices of a wait: others get it."""
        if self.shared:
            time.sleep(_PASS_S)


class Request:
    """An operation that was started. Wait for it, or test it until it has ended; only then use its arrays.

    One that is dropped goes on; its group keeps its arrays meanwhile.
    """
    __slots__ = ("_group", "_handle", "_keep", "_error", "result")

    def __init__(self, group: Group, handle: int, keep: object, result: Any):
        self._group, self._keep, self.result = group, keep, result
        self._handle: int | None = handle
        self._error: Error | None = None

    def _end(self, code: int) -> None:
        self._handle = None
        self._group.open_requests.discard(self)
        self._keep = None
        if code < 0:
            self._error = self._group.failure_of(code)

    def advance(self, seconds: float | None) -> bool:
        """Block until it ends, for that long at most (None: for ever); return whether it has, well or not."""
        lock = self._group.lock
        if seconds is not None and seconds <= lock.slice:
            return self._advance(seconds)
        deadline = None if seconds is None else time.monotonic() + seconds
        while not self._advance(lock.slice if deadline is None else min(deadline - time.monotonic(), lock.slice)):
            if deadline is not None and time.monotonic() >= deadline:
                return False
            lock.pass_on()
        return True

    def _advance(self, seconds: float) -> bool:
        group = self._group
        with group.lock:
            if self._handle is not None:
                group.check()
                try:
                    code = _abi.wait_for(self._handle, int(seconds * 1e6)) if seconds > 0 else _abi.test(self._handle)
                except BaseException:
                    self._abandon()
                    raise
                if code == 0:
                    return False
                self._end(code)
        return True

    def _abandon(self) -> None:
        """A signal's handler raised: whether the operation has ended is not known, so its arrays are kept."""
        self._group.abandoned.append(self._keep)
        self._group.open_requests.discard(self)
        self._handle, self._error = None, Error("the wait for this operation was interrupted")

    @property
    def error(self) -> Error | None:
        """The exception with which it has ended, or None."""
        return self._error

    def _ended(self) -> None:
        if self._error is not None:
            raise self._error

    def wait(self) -> Any:
        """Block until it ends; return the array that it has filled."""
        self.advance(None)
        self._ended()
        return self.result

    def wait_for(self, seconds: float) -> bool:
        """Block until it ends, but no longer than that; return whether it has ended."""
        if not self.advance(seconds):
            return False
        self._ended()
        return True

    def test(self) -> bool:
        """Return whether it has ended, without waiting."""
        return self.wait_for(0)


class Group:
    """Ranks that communicate. Made by Job.group or Group.split, which are collective.

    Any thread may call it; one call goes on at a time. revoke() ends that one, from any thread.
    """

    def __init__(self, job: Job, handle: int):
        self._job = job
        self._handle: int | None = handle
        self.lock = Lock()
        self.open_requests: set[Request] = set()
        self.abandoned: list[object] = []  # arrays of operations during which a signal's handler raised
        self.rank: int = _abi.group_rank(handle)
        self.size: int = _abi.group_size(handle)
        self.backend: str = _abi.group_backend(handle).decode()

    # ---- inside --------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise when this group cannot be used any more: it was closed, or this process was forked from its owner."""
        if self._handle is None:
            raise ClosedError("this group was closed, and is used")
        self._job.check()

    def failure_of(self, code: int, name: str = "") -> Error:
        """Return the exception for a call that failed with `code`; with its name, where the library has no sentence."""
        error = _abi.ErrorText()
        _abi.group_explain(self._handle, code, byref(error))
        text, bare = error.text.decode(errors="replace"), _abi.strerror(code).decode()
        if name and text in ("", bare):
            text = f"{name}: {bare}: a rank, a root or a count that this group does not have"
        return error_of(code, text or bare)

    def call(self, name: str, arguments: tuple[Any, ...], options: _abi.Options | None, wait: bool, keep: object,
             result: Any) -> Any:
        """Call a collective of COLLECTIVES by its name."""
        with self.lock:
            self.check()
            if len(self.open_requests) >= REQUESTS_MAX:
                self._make_room()
            request = c_void_p()
            try:
                code = getattr(_abi, name + "_start")(self._handle, *arguments, options, byref(request))
                if code == 0 and wait:  # in slices, so not by the library's blocking form
                    code = _abi.wait_for(request, _FIRST_US)
                    if code == 1:
                        return result
            except BaseException:
                self.abandoned.append((keep, arguments, options))
                raise
            if code != 0:
                raise self.failure_of(code, name)
            started = Request(self, request.value or 0, (keep, arguments, options), result)
            self.open_requests.add(started)
        return started.wait() if wait else started

    def _make_room(self) -> None:
        """A group has REQUESTS_MAX requests: conclude those that have ended, and wait when none has."""
        seconds = 0.0
        while len(self.open_requests) >= REQUESTS_MAX:
            for request in list(self.open_requests):
                request.advance(seconds)
            seconds = 0.001

    @staticmethod
    def _options(timeout: float | None, mode: str = "fast", scale: float = 0.0, tag: int = 0) -> _abi.Options | None:
        if timeout is None and mode == "fast" and scale == 0.0 and tag == 0:
            return None
        return _abi.Options(_milliseconds(timeout), tag, _member(MODES, "mode", mode), scale, None)

    @staticmethod
    def _data(array: Array, out: Array | None, written: str, count_of: int = 1) -> tuple[_abi.Data, tuple[View, View]]:
        """In place: `array` alone. Else from `array` to `out`. The count is `written`'s, over count_of parts."""
        source = view(array, writable=out is None)
        if out is None:
            target, send, recv = source, None, source.address
        else:
            target = view(out)
            send, recv = source.address, target.address
        if target.dtype != source.dtype:
            raise UsageError("the arrays of one call have different types")
        counted = source if written == "array" else target
        if counted.count % count_of:
            raise UsageError(f"{counted.count} elements cannot be divided among {count_of} members")
        return _abi.Data(send, recv, counted.count // count_of, source.dtype), (source, target)

    @staticmethod
    def _has(target: View, count: int, what: str) -> None:
        if target.count != count:
            raise UsageError(f"{what} has {target.count} elements, and {count} are needed")

    # ---- collectives ---------------------------------------------------------------------------

    def all_reduce(self, array: Array, op: str = "sum", *, out: Array | None = None, mode: str = "fast",
                   scale: float = 0.0, timeout: float | None = None, wait: bool = True) -> Any:
        """Reduce the members' arrays [n] element by element; all get the result [n]. `scale`: of premul_sum."""
        data, keep = self._data(array, out, "array")
        self._has(keep[1], data.count, "out")
        return self.call("all_reduce", (data, _operation(op, data.dtype)),
                         self._options(timeout, mode, scale), wait, keep, array if out is None else out)

    def reduce(self, array: Array, root: int = 0, op: str = "sum", *, out: Array | None = None, mode: str = "fast",
               scale: float = 0.0, timeout: float | None = None, wait: bool = True) -> Any:
        """Reduce the members' arrays [n]; the root gets the result [n], in place or in its `out`."""
        data, keep = self._data(array, out if self.rank == root else None, "array")
        self._has(keep[1], data.count, "out")
        return self.call("reduce", (data, _operation(op, data.dtype), root),
                         self._options(timeout, mode, scale), wait, keep, array if out is None else out)

    def broadcast(self, array: Array, root: int = 0, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Copy the root's array [n] to all."""
        source = view(array, writable=self.rank != root)
        return self.call("broadcast", (_abi.Data(None, source.address, source.count, source.dtype), root),
                         self._options(timeout), wait, source, array)

    def all_gather(self, out: Array, array: Array | None = None, *, timeout: float | None = None,
                   wait: bool = True) -> Any:
        """Gather the members' arrays [n] in the order of their ranks into `out` [size * n] at all.

        Without `array` this rank's part lies in `out` already.
        """
        target = view(out)
        if target.count % self.size:
            raise UsageError(f"out has {target.count} elements, which are no {self.size} equal parts")
        source = view(array, writable=False) if array is not None else None
        if source is not None:
            self._has(source, target.count // self.size, "array")
        data = _abi.Data(source and source.address, target.address, target.count // self.size, target.dtype)
        return self.call("all_gather", (data,), self._options(timeout), wait, (source, target), out)

    def reduce_scatter(self, out: Array, array: Array, op: str = "sum", *, mode: str = "fast", scale: float = 0.0,
                       timeout: float | None = None, wait: bool = True) -> Any:
        """Reduce the members' arrays [size * n]; rank r gets part r [n] of the result in `out`."""
        source, target = view(array, writable=False), view(out)
        self._has(source, target.count * self.size, "array")
        data = _abi.Data(source.address, target.address, target.count, target.dtype)
        return self.call("reduce_scatter", (data, _operation(op, data.dtype)),
                         self._options(timeout, mode, scale), wait, (source, target), out)

    def gather(self, array: Array, out: Array | None = None, root: int = 0, *, timeout: float | None = None,
               wait: bool = True) -> Any:
        """Gather the members' arrays [n] into the root's `out` [size * n], in the order of their ranks."""
        source = view(array, writable=False)
        target = None
        if self.rank == root:
            target = view(out)
            self._has(target, source.count * self.size, "out")
        data = _abi.Data(source.address, target and target.address, source.count, source.dtype)
        return self.call("gather", (data, root), self._options(timeout), wait, (source, target), out)

    def scatter(self, out: Array, array: Array | None = None, root: int = 0, *, timeout: float | None = None,
                wait: bool = True) -> Any:
        """Part r of the root's array [size * n] becomes rank r's `out` [n]."""
        target = view(out)
        source = None
        if self.rank == root:
            source = view(array, writable=False)
            self._has(source, target.count * self.size, "array")
        # The others' `send` is ignored, but NULL would say that the input lies in `recv`.
        data = _abi.Data(source.address if source else target.address, target.address, target.count, target.dtype)
        return self.call("scatter", (data, root), self._options(timeout), wait, (source, target), out)

    def all_to_all(self, out: Array, array: Array, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Part r of rank s's array becomes part s of rank r's `out`; both are [size * n]."""
        source, target = view(array, writable=False), view(out)
        self._has(target, source.count, "out")
        if source.count % self.size:
            raise UsageError(f"array has {source.count} elements, which are no {self.size} equal parts")
        data = _abi.Data(source.address, target.address, source.count // self.size, source.dtype)
        return self.call("all_to_all", (data,), self._options(timeout), wait, (source, target), out)

    def _parts(self, counts: Sequence[int]) -> tuple[_abi.Parts, int]:
        if len(counts) != self.size:
            raise UsageError(f"{len(counts)} counts for {self.size} members")
        if min(counts) < 0:
            raise UsageError(f"counts {list(counts)}: none may be negative")
        kind = c_size_t * self.size
        places, at = [], 0
        for count in counts:
            places.append(at)
            at += count
        parts = _abi.Parts(kind(*counts), kind(*places))
        return parts, max(place + count for place, count in zip(places, counts))

    def all_gather_v(self, out: Array, array: Array, counts: Sequence[int], *, timeout: float | None = None,
                     wait: bool = True) -> Any:
        """As all_gather with parts of different sizes: `counts` has all members', the same at each."""
        source, target = view(array, writable=False), view(out)
        parts, end = self._parts(counts)
        self._has(source, counts[self.rank], "array")
        self._has(target, end, "out")
        data = _abi.Data(source.address, target.address, source.count, target.dtype)
        return self.call("all_gather_v", (data, parts), self._options(timeout), wait, (source, target), out)

    def reduce_scatter_v(self, out: Array, array: Array, counts: Sequence[int], op: str = "sum", *, mode: str = "fast",
                         timeout: float | None = None, wait: bool = True) -> Any:
        """As reduce_scatter with parts of different sizes: `counts` has all members', the same at each."""
        source, target = view(array, writable=False), view(out)
        parts, end = self._parts(counts)
        self._has(target, counts[self.rank], "out")
        self._has(source, end, "array")
        data = _abi.Data(source.address, target.address, target.count, target.dtype)
        return self.call("reduce_scatter_v", (data, parts, _operation(op, data.dtype)),
                         self._options(timeout, mode), wait, (source, target), out)

    def all_to_all_v(self, out: Array, array: Array, send_counts: Sequence[int], recv_counts: Sequence[int], *,
                     timeout: float | None = None, wait: bool = True) -> Any:
        """As all_to_all with parts of different sizes: send_counts[r] goes to r, recv_counts[r] comes from r."""
        source, target = view(array, writable=False), view(out)
        (sends, sent), (recvs, received) = self._parts(send_counts), self._parts(recv_counts)
        self._has(source, sent, "array")
        self._has(target, received, "out")
        data = _abi.Data(source.address, target.address, 0, target.dtype)
        return self.call("all_to_all_v", (data, sends, recvs), self._options(timeout), wait, (source, target), out)

    def send(self, array: Array, to: int, *, tag: int = 0, timeout: float | None = None, wait: bool = True) -> Any:
        """Send an array; it matches the receiver's calls in order, and the tags must be equal."""
        source = view(array, writable=False)
        return self.call("send", (_abi.Data(source.address, None, source.count, source.dtype), to),
                         self._options(timeout, tag=tag), wait, source, array)

    def recv(self, array: Array, source: int, *, tag: int = 0, timeout: float | None = None, wait: bool = True) -> Any:
        """Receive an array of this size and type from rank `source`."""
        target = view(array)
        return self.call("recv", (_abi.Data(None, target.address, target.count, target.dtype), source),
                         self._options(timeout, tag=tag), wait, target, array)

    def exchange(self, sends: Sequence[tuple[Array, int]] = (), recvs: Sequence[tuple[Array, int]] = (), *,
                 timeout: float | None = None, wait: bool = True) -> Any:
        """Send and receive many arrays at once, each (array, peer): no order of them causes a deadlock."""
        views = [(0, peer, view(array, writable=False)) for array, peer in sends]
        views += [(1, peer, view(array)) for array, peer in recvs]
        transfers = (_abi.Transfer * max(len(views), 1))()
        for transfer, (direction, peer, at) in zip(transfers, views):
            transfer.direction, transfer.peer = direction, peer
            transfer.data = _abi.Data(None if direction else at.address, at.address if direction else None, at.count,
                                      at.dtype)
        return self.call("exchange", (transfers, len(views)), self._options(timeout), wait, views, None)

    def barrier(self, *, timeout: float | None = None, wait: bool = True) -> Any:
        """Wait until every member has called it."""
        return self.call("barrier", (), self._options(timeout), wait, None, None)

    # ---- the group -----------------------------------------------------------------------------

    def split(self, colour: int, key: int = 0) -> Group | None:
        """Make a group of the members with the same colour, ranked by key; NO_COLOUR belongs to none: None."""
        with self.lock:
            self.check()
            handle, error = c_void_p(), _abi.ErrorText()
            code = _abi.group_split(self._handle, colour, key, byref(handle), byref(error))
        _abi.check(code, error)
        return Group(self._job, handle.value).adopt() if handle.value else None

    def adopt(self) -> Group:
        """Have the job close this group with itself."""
        self._job.groups.add(self)
        return self

    @property
    def waited(self) -> float:
        """Seconds that this rank has waited in calls of this group."""
        with self.lock:
            self.check()
            return _abi.group_waited_ns(self._handle) / 1e9

    def revoke(self) -> None:
        """End every operation of this group with RevokedError, here and soon at the other members. Any thread."""
        handle = self._handle
        if handle is not None:
            _abi.group_revoke(handle)

    def close(self) -> None:
        """Leave the group; members that wait for this one get ClosedError. Not collective."""
        if not self._job.is_here():
            self._handle = None  # it is the parent's; a lock may be held by a thread that is not here
            return
        if not self.lock.acquire(blocking=False):
            self.revoke()  # whoever waits in it returns, and gives up the lock
            self.lock.acquire()
        handle, self._handle = self._handle, None
        self.open_requests.clear()
        self.abandoned.clear()
        if handle is not None:
            _abi.group_free(handle)
        self.lock.release()
        self._job.groups.discard(self)

    def __enter__(self) -> Group:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else self.backend
        return f"<ctrun.Group rank {self.rank} of {self.size}, {state}>"


def options_of(name: str | None, ranks: Sequence[int] | None, backend: str | None, timeout: float | None,
               encrypt: bool) -> _abi.GroupOptions:
    """Return struct ct_group_options; what its pointers point to lives as long as it."""
    members = (c_int * len(ranks))(*ranks) if ranks is not None else None
    options = _abi.GroupOptions(name=name.encode() if name else None, ranks=members,
                                nranks=len(ranks) if ranks is not None else 0,
                                backend=backend.encode() if backend else None,
                                timeout_ms=_milliseconds(timeout), encrypt=encrypt)
    return options
