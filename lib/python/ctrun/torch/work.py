"""Operations of PyTorch's on the way: what is waited for, futures, and operations that have no room yet.

    dist.all_reduce(x, async_op=True)
        room in the group?        yes: a ctrun.Request        no: a Deferred, which becomes one in its Line
    Work                          some of these, and what is left to do when all have ended
        .wait()                   waits for them
        .get_future()             a future; the group's Completer completes it unless the end comes at once
"""
from __future__ import annotations

import threading
import time
from collections import deque
from datetime import timedelta

import torch
from torch._C import _distributed_c10d as c10d

from .. import Error, TimeoutError

_INLINE_S = 0.001  # a future's operation is waited for so long at once, before it is left to a thread
_POLL_S = 0.00005  # how often that thread looks; the group's helper advances the operation meanwhile
_ROOM = 16  # operations open in a line; three lines and as many that need none are the 64 of a group


class Line:
    """Operations of one kind (collectives, sends, receives) that start in their order, as far as there is room.

    Each kind has room of its own: a thousand open receives do not keep the sends back that others wait for.
    """

    def __init__(self, lock) -> None:
        self._lock = lock
        self._open: list = []
        self.waiting: deque[Deferred] = deque()

    def add(self, call, arguments: tuple, options: dict) -> Deferred:
        deferred = Deferred(self, call, arguments, options)
        with self._lock:
            self.waiting.append(deferred)
        self.admit()
        return deferred

    def admit(self) -> None:
        """Start those for which there is room."""
        with self._lock:
            while self.waiting:
                self._open = [request for request in self._open if not request.advance(0)]
                if len(self._open) >= _ROOM:
                    return
                request = self.waiting.popleft().start()
                if request is not None:
                    self._open.append(request)


class Deferred:
    """An operation that its line starts when there is room; to be used as a Request is."""
    __slots__ = ("_line", "_call", "_request", "error")

    def __init__(self, line: Line, call, arguments: tuple, options: dict):
        self._line, self._call, self._request = line, (call, arguments, options), None
        self.error: Error | None = None

    def start(self):
        """Return the request that was started, or None when that failed."""
        call, arguments, options = self._call
        self._call = None
        try:
            self._request = call(*arguments, wait=False, **options)
        except Error as error:
            self.error = error
        return self._request

    def advance(self, seconds: float | None) -> bool:
        """Block until it ends, for that long at most (None: for ever); return whether it has, well or not."""
        deadline = None if seconds is None else time.monotonic() + seconds
        while self._call is not None:
            self._line.admit()
            if self._call is not None:
                if deadline is not None and time.monotonic() >= deadline:
                    return False
                time.sleep(_POLL_S)
        if self._request is None:
            return True
        if not self._request.advance(None if deadline is None else max(deadline - time.monotonic(), 0.0)):
            return False
        self.error = self._request.error
        return True


class Work(c10d.Work):
    """An operation of PyTorch's: `parts` (Request, Deferred, Work), and what to do when all have ended."""

    def __init__(self, group, parts, tensors: list, finish=None):
        super().__init__()
        self._group, self._parts, self._tensors, self._finish = group, parts, tensors, finish
        self._lock = threading.Lock()  # the completer's thread may wait for it, too
        self.error: Error | None = None
        self._over = False
        self._future = None

    def advance(self, seconds: float | None) -> bool:
        """Wait until all has ended, for that long at most (None: for ever); return whether it has, well or not."""
        if self._over:
            return True
        error = None
        try:
            for part in self._parts:
                if not part.advance(seconds):
                    return False
                error = error or part.error
        except Error as closed:
            error = closed
        with self._lock:
            if not self._over:
                self._end(error)
        return True

    def _end(self, error: Error | None) -> None:
        self.error = self._group.settle(error)
        if error is None and self._finish is not None:
            self._finish()
        self._parts, self._finish = (), None
        self._over = True

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        seconds = timeout.total_seconds()
        if not self.advance(seconds if seconds > 0 else None):
            raise TimeoutError(f"an operation of backend ctrun is not complete after {seconds} s")
        if self.error is not None:
            raise self.error
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.advance(0)

    def is_success(self) -> bool:
        return self.advance(0) and self.error is None

    def exception(self):
        return self.error

    def result(self) -> list:
        return self._tensors

    def get_future(self):
        if self._future is None:
            completer, over = self._group.completer, torch.futures.Future()
            if self.advance(None if completer.is_this_thread() else _INLINE_S) and self.error is None:
                over.set_result(self._tensors)
                self._future = over
            else:  # for C++ a future has failed only when a callback raises
                self._future, self._concluded = over.then(self._outcome), over
                if self._over:
                    self.conclude()
                else:
                    completer.add(self)
        return self._future

    def _outcome(self, _) -> list:
        if self.error is not None:
            raise self.error
        return self._tensors

    def conclude(self) -> None:
        """Give the future what the operation ended with."""
        self._concluded.set_result(None)


class Completer:
    """A thread that completes the futures of operations that did not end at once."""

    def __init__(self) -> None:
        self._works: list[Work] = []
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

    def is_this_thread(self) -> bool:
        """Whether the caller is a callback of a future. If it waits for another future, nobody else completes that."""
        return threading.current_thread() is self._thread

    def close(self) -> None:
        """End the thread. The group was closed before, so the operations that are open end with that."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._works and not self._closed:
                    self._changed.wait()
                if not self._works:
                    return
                works = self._works.copy()
            begin = time.monotonic()
            ended = [work for work in works if work.advance(0)]
            with self._changed:
                self._works = [work for work in self._works if work not in ended]
            for work in ended:
                work.conclude()
            if not ended:
                time.sleep(max(_POLL_S, time.monotonic() - begin))


def repair_is_completed() -> None:
    """Have Work.is_completed of PyTorch ask the future, too.

    From 2.9 on PyTorch hands out a holder of a Work of Python's, and its is_completed is False for ever.
    """
    theirs = c10d.Work.is_completed

    def is_completed(work) -> bool:
        if theirs(work):
            return True
        try:
            return work.get_future().done()
        except RuntimeError:  # a Work without a future
            return False

    c10d.Work.is_completed = is_completed
