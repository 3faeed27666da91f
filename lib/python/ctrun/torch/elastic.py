"""Training that goes on when ranks are lost or join, without restarting Python.

    ctrun.torch.init_process_group("ctrun")
    model = DistributedDataParallel(net)
    sampler = ctrun.torch.Sampler(dataset, 64)
    loader = DataLoader(dataset, 64, sampler=sampler)
    with ctrun.torch.Elastic(model, optimizer, scheduler=scheduler, sampler=sampler) as job:
        for x, y in job.steps(loader, epochs=10):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()

    a rank is lost      its collectives end at once in all others; the step's optimizer.step() does nothing
    steps() again       the process group is closed; the next round; who is behind or new gets the state of the most
                        advanced rank; process group and DDP are made anew; the step is repeated with its batch
    a rank joins        all leave before one step, likewise; nothing is repeated

The body of the loop is one step: it changes the state by optimizer.step() and behind it, not before. A step that was
not completed leaves no trace: buffers (batch norm) and the random number generator are put back. What stands in front
of the loop is run by a newcomer alone, while the others wait for it in theirs: its collectives there return as if all
ranks had what it has (provisional.py).
"""
from __future__ import annotations

import contextlib
import functools
import os
import time
from collections.abc import Iterable, Iterator
from ctypes import byref

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from .. import ClosedError, Error, UsageError, _abi
from ..errors import error_of
from ..group import Group
from ..job import init
from ..stop_signals import StopSignals
from . import process_group
from .checkpoints import Checkpoints
from .other_backends import guard_ddp
from .provisional import groups
from .remake import remake
from .sampler import Sampler
from .state import State
from .store import Store

_BUG = -1006  # CT_EBUG
_LAST_S = 10.0  # for the publication of what the last steps have saved
_PATIENCE_S = 10  # until a node that is silent counts as lost


class Elastic:
    """Registered state, steps, and process groups that are made anew in each round.

    `model` is a DistributedDataParallel or any module; `state` has further objects with state_dict and load_state_dict
    by their names (a GradScaler, a second model). With `checkpoint`, a folder that all nodes see, rank 0 saves every
    `every` steps and at a stop, and a job that starts anew goes on from there. With `seed`, torch's random numbers
    follow from (seed, step, rank), so that a repeated or resumed step draws the same.
    """

    def __init__(self, model: torch.nn.Module, optimizer: torch.optim.Optimizer | None = None, *, scheduler=None,
                 sampler: Sampler | None = None, state: dict[str, object] | None = None,
                 checkpoint: str | None = None, every: int = 0, seed: int | None = None):
        self._job = init()
        self._model, self._optimizer, self._sampler, self._seed = model, optimizer, sampler, seed
        self._ddp = model if isinstance(model, DistributedDataParallel) else None
        module = model.module if self._ddp is not None else model
        parts = {"model": module, "optimizer": optimizer, "scheduler": scheduler, "sampler": sampler, **(state or {})}
        self._state = State({name: part for name, part in parts.items() if part is not None})
        self._scheduler = scheduler
        self._checkpoints = Checkpoints(self._job, checkpoint, self._state) if checkpoint else None
        self._every = every
        self._step = _abi.Step()
        self._calls = _abi.StateCalls(None, _abi.DIGEST_CALL(self._digest), _abi.BROADCAST_CALL(self._broadcast))
        self._call_error: BaseException | None = None  # of one of these
        self._loops = 0  # of steps() and epochs(), inside which failures are absorbed
        self._ready = False  # a step has begun whose body was not entered yet
        self._inside = False  # the body of a step was entered
        self._failed: BaseException | None = None  # why the step is not completed
        self._stepped = False  # its optimizer has made its step
        self._rng = torch.get_rng_state()
        self._buffers: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._schedule: dict = {}
        self._options: list[dict] = []
        self._stopping = False
        self._entered = 0  # the generation that process group and DDP are of
        self._regroups = 0
        self._undo = contextlib.ExitStack()

    # ---- what a program asks -------------------------------------------------------------------

    @property
    def step(self) -> int:
        """The number of steps that are completed; in the body of the loop, the number of its step, from 0."""
        return self._step.number

    @property
    def epoch(self) -> int:
        """The sampler's epoch, from 0."""
        return self._sampler.epoch if self._sampler is not None else 0

    @property
    def should_stop(self) -> bool:
        """Whether the job is to stop: steps() has ended for it, at all ranks before the same step."""
        return self._stopping

    @property
    def failed(self) -> bool:
        """Whether this step's collectives have failed, so that it is repeated. For updates without an optimizer."""
        return self._failed is not None

    @property
    def rank(self) -> int:
        """This process's rank in the current round."""
        return self._job.rank

    @property
    def world(self) -> int:
        """The number of ranks in the current round."""
        return self._job.world

    @property
    def regroups(self) -> int:
        """How many rounds this process has gone on into."""
        return self._regroups

    # ---- what the library calls ----------------------------------------------------------------

    def _digest(self, _context) -> int:
        try:
            return self._state.digest()
        except BaseException as error:  # nothing may pass through C
            self._call_error = error
            return 0

    def _broadcast(self, _context, group: int, base: int) -> int:
        try:
            self._state.broadcast(Group(self._job, group), base)
            return 0
        except Error as error:
            return error.code or _BUG
        except BaseException as error:
            self._call_error = error
            return _BUG

    # ---- failures ------------------------------------------------------------------------------

    def absorbs(self, error: Error) -> bool:
        """process_group.guard: an operation failed as the round is over. The step goes on to its end, in vain."""
        if self._loops == 0 or not self._job.is_round_over(error):
            return False
        self._failed = self._failed or error
        return True

    def _absorbs_any(self, error: Exception) -> bool:
        """The same for another backend's error, which does not say why: the agent does, at once or in a moment."""
        for _ in range(_PATIENCE_S * 100 if self._loops > 0 else 0):
            if self._job.revoked:
                self._failed = self._failed or error
                return True
            time.sleep(0.01)
        return False

    def _guarded(self, function):
        """Return an optimizer's step() that does nothing in a step that has failed before it."""
        @functools.wraps(function)
        def step(*arguments, **options):
            if self._failed is not None and not self._stepped:
                return None
            self._stepped = True
            return function(*arguments, **options)
        return step

    def _keep(self) -> None:
        """Remember what the body of a step changes besides the optimizer's state and parameters."""
        self._rng = torch.get_rng_state()
        self._buffers = [(buffer, buffer.detach().clone()) for buffer in self._model.buffers()]
        if self._scheduler is not None:
            self._schedule = self._scheduler.state_dict()
            self._options = [{key: value for key, value in group.items() if key != "params"}
                             for group in self._optimizer.param_groups]

    def _put_back(self) -> None:
        torch.set_rng_state(self._rng)
        with torch.no_grad():
            for buffer, kept in self._buffers:
                buffer.copy_(kept)
        if self._scheduler is not None:
            self._scheduler.load_state_dict(self._schedule)
            for group, kept in zip(self._optimizer.param_groups, self._options):
                group.update(kept)

    # ---- a step --------------------------------------------------------------------------------

    def _conclude(self) -> None:
        """Count the step whose body has ended, or give it up."""
        if self._failed is not None and not self._stepped:
            if self._inside:
                self._put_back()
            _close_groups()
            _abi.job_abandon_step(self._job.handle)
        elif self._inside and self._sampler is not None:
            self._sampler.position = self._sampler.next_position()
        self._failed, self._stepped, self._inside = None, False, False

    def _begin(self) -> bool:
        """Begin the next step, in a new round if need be; return whether there is one."""
        if self._ready and self._failed is None:
            return True
        while True:
            if self._entered:
                self._conclude()
            error = _abi.ErrorText()
            code = _abi.job_begin_step(self._job.handle, byref(self._step), byref(error))
            if self._call_error is not None:
                failure, self._call_error = self._call_error, None
                raise failure
            if code != 0:
                return self._end(error_of(code, error.text.decode(errors="replace")))
            try:
                if self._entered != self._job.generation:
                    self._enter_round()
                self._ready = True
                return True
            except Exception as failure:
                if not self._is_over(failure):
                    raise
                self._failed = failure

    def _is_over(self, failure: Exception) -> bool:
        """Whether making the groups failed because the round is over."""
        return self._job.is_round_over(failure) or (not isinstance(failure, Error) and self._absorbs_any(failure))

    def _end(self, failure: Error) -> bool:
        """No further step: a stop, or an error."""
        if not isinstance(failure, ClosedError) or not self._job.stop_requested:
            raise failure
        self._stopping = True
        if self._step.all_stop:
            self._save(self._job.stop_deadline or 0.0)
        return False

    @property
    def _written(self) -> Checkpoints | None:
        """The checkpoints, on the rank that writes them."""
        return self._checkpoints if self._job.rank == 0 else None

    def _save(self, seconds: float) -> None:
        written = self._written
        if written is None:
            return
        self._job.at("checkpoint", self.step)
        written.save(self.step)
        written.conclude(seconds)
        self._job.at("step", self.step)

    def epochs(self, count: int) -> Iterator[int]:
        """Yield the epochs from the sampler's on, for an outer loop around steps(loader)."""
        if self._sampler is None:
            raise UsageError("epochs() without a sampler: nothing says which epoch it is; give Elastic a "
                             "ctrun.torch.Sampler")
        self._loops += 1
        try:
            while self._begin() and self.epoch < count:
                yield self.epoch
        finally:
            self._loops -= 1

    def steps(self, loader: Iterable, *, epochs: int | None = None, total: int | None = None) -> Iterator:
        """Yield a batch for each step: to the end of the sampler's epoch, of `epochs` epochs, or of `total` steps.

        With a sampler, the batch of a step depends on the sampler's position, the rank and the world alone. Without
        one, batches follow each other as the loader has them, once through.
        """
        self._loops += 1
        try:
            yield from self._steps(loader, epochs, total)
        finally:
            self._loops -= 1

    def _steps(self, loader: Iterable, epochs: int | None, total: int | None) -> Iterator:
        batches, batch, at, end = None, None, None, None
        while self._begin():
            if end is None:
                end = self.epoch + 1 if epochs is None and total is None else epochs
            if (end is not None and self.epoch >= end) or (total is not None and self.step >= total):
                return
            place = (self._job.rank, self._job.world, self.epoch)
            if batches is None or (self._sampler is not None and place != at[0]):
                batches, at = iter(loader), None
            if at is None or at[1] != self.step:  # else the step is repeated, with its batch
                batch = next(batches, None)
                if batch is None:
                    return
            at = (place, self.step)
            self._enter_body()
            yield batch

    def _enter_body(self) -> None:
        written = self._written
        if written is not None:
            written.conclude(0.0)
            if self._every and self.step and self.step % self._every == 0:
                self._save(0.0)
        self._keep()
        if self._seed is not None:
            torch.manual_seed(_mixed(self._seed, self.step, self._job.rank))
        self._ready, self._inside = False, True

    # ---- rounds --------------------------------------------------------------------------------

    def _enter_round(self) -> None:
        """Make process group and DDP anew, for the rank and world of this round."""
        job, first = self._job, self._entered == 0
        if self._sampler is not None:
            self._sampler.rank, self._sampler.world = job.rank, job.world
        if not first:
            self._regroups += 1
        made_here = groups.generation == job.generation and not groups.is_provisional
        self._entered = job.generation
        if made_here or groups.backend is None:
            return
        for name, value in (("RANK", job.rank), ("WORLD_SIZE", job.world), ("LOCAL_RANK", job.local_rank),
                            ("LOCAL_WORLD_SIZE", job.local_world), ("GROUP_RANK", job.node_rank)):
            os.environ[name] = str(value)
        _close_groups()
        groups.generation, groups.is_provisional = job.generation, False
        dist.init_process_group(groups.backend, store=Store(job), rank=job.rank, world_size=job.world)
        if self._ddp is not None:
            remake(self._ddp)
            self._guard_ddp()

    def _guard_ddp(self) -> None:
        if self._ddp is not None and groups.backend not in (None, "ctrun"):
            guard_ddp(self._ddp, self._absorbs_any)

    # ---- with ----------------------------------------------------------------------------------

    def __enter__(self) -> Elastic:
        if dist.is_initialized() and groups.backend is None:
            raise UsageError("the process group was made by torch.distributed.init_process_group, and Elastic cannot "
                             "make it anew in each round: call ctrun.torch.init_process_group instead")
        error = _abi.ErrorText()
        _abi.check(_abi.job_register_calls(self._job.handle, byref(self._calls), byref(error)), error)
        written = self._written
        if written is not None and self._job.lineage == 0:
            self._step.number = written.load()
        if self._optimizer is not None:
            original = self._optimizer.step
            self._optimizer.step = self._guarded(original)
            self._undo.callback(setattr, self._optimizer, "step", original)
        if not groups.is_provisional:
            self._guard_ddp()
        before, process_group.guard = process_group.guard, self
        self._undo.callback(setattr, process_group, "guard", before)
        self._undo.enter_context(StopSignals())
        return self

    def __exit__(self, kind, error, _) -> None:
        try:
            written = self._written
            if error is None and written is not None:
                written.conclude(_LAST_S)
        finally:
            self._undo.close()
        if isinstance(error, Exception) and not isinstance(error, ClosedError):
            try:
                self._job.failure(error)
            except Error:
                pass  # the agent is gone


def _mixed(seed: int, step: int, rank: int) -> int:
    """63 bits of (seed, step, rank), the same in each process."""
    mixed = 0
    for word in (seed, step, rank):
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15 & (1 << 64) - 1
        mixed ^= mixed >> 29
    return mixed & (1 << 63) - 1


def _close_groups() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()
    process_group.close_all()
