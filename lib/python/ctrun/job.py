"""The job: this process's place in the round, what it reports, and its groups (ctrun.h, parts "the job", "steps")."""
from __future__ import annotations

import atexit
import os
import time
from ctypes import byref, c_int64, c_size_t, c_uint64, c_void_p, create_string_buffer, string_at

from . import _abi
from .errors import ClosedError, Error, RevokedError, TimeoutError, UsageError, error_of
from .group import Group, options_of
from .memory import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

SECTIONS = {"start": 0, "step": 1, "evaluate": 2, "checkpoint": 3, "publish": 4}
_VALUE_MAX = 1 << 20  # CT_KV_VALUE_MAX
_SLICE_S = 0.2  # a wait for the store lasts so long at once

_forked = False  # this process is a child by fork of one that has imported ctrun


def _after_fork() -> None:
    global _forked
    _forked = True


os.register_at_fork(after_in_child=_after_fork)


class Job:
    """A process's membership in the job. `ctrun.init` opens it; close it at the end, or use it with `with`."""

    def __init__(self) -> None:
        handle, error = c_void_p(), _abi.ErrorText()
        self._forked_before = _forked
        _abi.check(_abi.job_open(byref(handle), byref(error)), error)
        self._handle: int | None = handle.value
        self.groups: set[Group] = set()
        self._blocks = 0  # of symmetric memory that arrays refer to
        self._closing: int | None = None  # the handle of a closed job that has some
        self._default: Group | None = None
        self._assignment = _abi.job_assignment(self._handle).contents
        self._beats = 0

    # ---- inside --------------------------------------------------------------------------------

    def is_here(self) -> bool:
        """Whether this is the process that has opened the job, not a child of it."""
        return _forked == self._forked_before

    def check(self) -> None:
        """Raise when the job cannot be used."""
        if self._handle is None:
            raise ClosedError("the job was closed, and is used")
        if not self.is_here():
            raise UsageError("this process was forked from one that has opened a job, and has no part in it: "
                             "use ctrun in the parent alone, or start processes by spawn")

    @property
    def handle(self) -> int:
        """struct ct_job *, for the package's own calls."""
        self.check()
        assert self._handle is not None
        return self._handle

    def keep_memory(self) -> None:
        """Count a block of symmetric memory: the job stays open as long as arrays refer to one."""
        self._blocks += 1

    def free_memory(self, address: int) -> None:
        """Free a block that nothing refers to any more."""
        if not self.is_here():
            return
        self._blocks -= 1
        _abi.mem_free(self._handle or self._closing, address)
        if self._closing is not None and self._blocks == 0:
            closing, self._closing = self._closing, None
            _abi.job_close(closing)

    # ---- who I am ------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """This process's rank in the job; a new round may change it."""
        self.check()
        return self._assignment.rank

    @property
    def world(self) -> int:
        """How many ranks the job has in this round."""
        self.check()
        return self._assignment.world

    @property
    def local_rank(self) -> int:
        """This process's rank on its node."""
        self.check()
        return self._assignment.local_rank

    @property
    def local_world(self) -> int:
        """How many ranks the node has."""
        self.check()
        return self._assignment.local_world

    @property
    def node_rank(self) -> int:
        """The node's place in the round."""
        self.check()
        return self._assignment.node_rank

    @property
    def nodes(self) -> int:
        """How many nodes the round has."""
        self.check()
        return self._assignment.nnodes

    @property
    def generation(self) -> int:
        """The round's number; it only grows."""
        self.check()
        return self._assignment.generation

    @property
    def lineage(self) -> int:
        """The generation whose state the job goes on from when the round was made; 0: there is none yet."""
        self.check()
        return self._assignment.lineage

    @property
    def restart_count(self) -> int:
        """How many root failures the job has had."""
        self.check()
        return self._assignment.restart_count

    @property
    def run_id(self) -> str:
        """The job's name."""
        self.check()
        return self._assignment.run_id.decode()

    @property
    def published_step(self) -> int | None:
        """The step that was published last when the round was made, or None."""
        self.check()
        return self._assignment.published_step if self._assignment.published_generation else None

    # ---- groups and memory ---------------------------------------------------------------------

    def group(self, ranks: Sequence[int] | None = None, *, name: str | None = None, backend: str | None = None,
              timeout: float | None = None, encrypt: bool = False) -> Group:
        """Make a group of these ranks (ascending; None: all). Collective: every member calls it, with one name.

        Names are unique among open groups; None is "world". Backends: auto, self, shm, hier, tcp, ucx, mpi.
        """
        options = options_of(name, ranks, backend, timeout, encrypt)
        handle, error = c_void_p(), _abi.ErrorText()
        _abi.check(_abi.group_new(self.handle, byref(options), byref(handle), byref(error)), error)
        return Group(self, handle.value or 0).adopt()

    @property
    def default_group(self) -> Group:
        """The group of all ranks that ctrun.all_reduce and its like use, made at the first use."""
        if self._default is None:
            self._default = self.group(name="default")
        return self._default

    def drop_default_group(self) -> None:
        """Close the default group, which a new round has ended; its next use makes it anew, at all ranks."""
        if self._default is not None:
            self._default.close()
            self._default = None

    def memory(self, nbytes: int) -> Memory:
        """Return symmetric memory; `job.memory(4 * n).numpy("float32")` is an array of it."""
        return Memory(self, nbytes)

    # ---- the store of the round ----------------------------------------------------------------

    def store_set(self, key: str, value: bytes) -> None:
        """Set or replace the value of a key, which all ranks of the round see."""
        _abi.check(_abi.store_set(self.handle, key.encode(), value, len(value)))

    def store_get(self, key: str, timeout: float = 600.0) -> bytes:
        """Return the value of a key once it has one. TimeoutError when it has none in time (0: now)."""
        into, size = create_string_buffer(_VALUE_MAX), c_size_t(_VALUE_MAX)
        deadline = time.monotonic() + timeout
        while True:  # in slices, between which Python handles signals, as Ctrl-C
            left = max(deadline - time.monotonic(), 0.0)
            code = _abi.store_get(self.handle, key.encode(), into, byref(size), round(min(left, _SLICE_S) * 1000))
            if code == 0:
                return string_at(into, size.value)
            if code != TimeoutError.code or left <= _SLICE_S:
                raise error_of(code, f"key {key!r} of the round's store, for {timeout} s: "
                               f"{_abi.strerror(code).decode()}")

    def store_add(self, key: str, delta: int) -> int:
        """Add to a counter, which begins with 0; return the sum."""
        total = c_int64()
        _abi.check(_abi.store_add(self.handle, key.encode(), delta, byref(total)))
        return total.value

    # ---- what it reports -----------------------------------------------------------------------

    def progress(self, step: int, steps: int = 0, *, epoch: int = 0, epochs: int = 0, loss: float = float("nan"),
                 samples_per_s: float = float("nan"), learning_rate: float = float("nan"),
                 eta_s: float = float("nan")) -> None:
        """Report progress for the operator's line and metrics; rank 0's is shown."""
        report = _abi.Progress(epoch, epochs, step, steps, loss, samples_per_s, learning_rate, eta_s)
        _abi.check(_abi.job_progress(self.handle, byref(report)))

    def summary(self, text: str) -> None:
        """Rank 0's closing words, which ctrun prints."""
        _abi.check(_abi.job_summary(self.handle, text.encode()))

    def output(self, folder: str) -> None:
        """Tell the agent the folder of the run: it records there how the job ended, and tells later rounds."""
        _abi.check(_abi.job_output(self.handle, folder.encode()))

    def failure(self, error: BaseException) -> None:
        """Tell the agent why this process is about to exit."""
        code = error.code if isinstance(error, Error) and error.code else -1023
        text = _abi.ErrorText(code, f"{type(error).__name__}: {error}".encode()[:1023])
        _abi.check(_abi.job_failure(self.handle, byref(text)))

    def at(self, section: str, step: int) -> None:
        """Report what this process does from now on, `step` steps completed: start, step, evaluate, checkpoint."""
        try:
            number = SECTIONS[section]
        except KeyError:
            raise UsageError(f"there is no section {section!r}: it is one of {', '.join(SECTIONS)}") from None
        _abi.job_at(self.handle, number, step)

    def beat(self, step: int | None = None) -> None:
        """A sign of life, so that ctrun's launch.hang_timeout can tell a hanging process from a busy one."""
        self._beats = self._beats + 1 if step is None else step
        self.at("step", self._beats)

    @property
    def stop_requested(self) -> bool:
        """Whether the agent asks for a clean stop."""
        return bool(_abi.job_stop_requested(self.handle, None))

    @property
    def stop_deadline(self) -> float | None:
        """Seconds that a clean stop may take, from the request on; 0: save nothing. None: no stop is asked for."""
        limit = c_uint64()
        return limit.value / 1000 if _abi.job_stop_requested(self.handle, byref(limit)) else None

    @property
    def revoked(self) -> bool:
        """Whether the round is over."""
        return bool(_abi.job_revoked(self.handle))

    def is_round_over(self, error: BaseException) -> bool:
        """Whether a call failed because the round is over, not because this process failed."""
        return isinstance(error, Error) and bool(_abi.job_is_round_over(self.handle, error.code))

    # ---- publishing ----------------------------------------------------------------------------

    def publish(self, step: int, digest: int = 0, nbytes: int = 0) -> None:
        """Ask the rendezvous to record that the result of `step`, of `nbytes` on disk, counts; returns at once."""
        _abi.check(_abi.job_publish_sized(self.handle, step, digest, nbytes))

    def published(self, timeout: float = 0.0) -> bool:
        """Whether it has. FencedError: refused, for the round is over and a newer one may have gone on."""
        error = _abi.ErrorText()
        code = _abi.job_published(self.handle, round(timeout * 1000), byref(error))
        if code == -1010:
            return False
        _abi.check(code, error)
        return True

    # ---- end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Leave the job, with all its groups. Memory that arrays still refer to stays, and its job with it."""
        if self._handle is None or not self.is_here():
            return
        for group in list(self.groups):
            group.close()
        self._default = None
        if self._blocks > 0:
            self._closing = self._handle
        else:
            _abi.job_close(self._handle)
        self._handle = None

    def __enter__(self) -> Job:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, Exception) and self._handle is not None and self.is_here():
            try:
                self.failure(error)
            except Error:
                pass  # the agent is gone
        self.close()

    def __repr__(self) -> str:
        if self._handle is None:
            return "<ctrun.Job, closed>"
        return f"<ctrun.Job {self.run_id}: rank {self.rank} of {self.world}, generation {self.generation}>"


_current: Job | None = None


def init() -> Job:
    """Join the job that ctrun has started this process for, or a job of one rank; return it.

    Once a process: a second call returns the same job, as long as it is open. Who has left a job that ctrun started
    cannot join it again: UsageError.
    """
    global _current
    if _current is not None and _current._handle is None and _current.is_here() and "CTRUN_CONTROL_FD" in os.environ:
        raise UsageError("this process has left its job, and cannot join it again: keep one job until the end")
    if _current is None or _current._handle is None:
        _current = Job()
        atexit.register(_current.close)
    _current.check()
    return _current


def is_open() -> bool:
    """Whether this process has opened a job, and not closed it."""
    return _current is not None and _current._handle is not None


def current() -> Job:
    """Return the open job; UsageError without one."""
    if _current is None or _current._handle is None:
        raise UsageError("no job is open: call ctrun.init() first")
    return _current


__all__ = ["Job", "RevokedError", "current", "init"]
