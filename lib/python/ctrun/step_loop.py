"""Training that goes on when ranks are lost or join, without starting Python anew (ctrun.h, part "steps").

    for step in ctrun.steps(job, {"weights": weights}, total=300):
        with step:
            gradient = slope(weights, job.rank, job.world)
            step.group.all_reduce(gradient, "avg")
            weights -= 0.1 * gradient              # the state changes behind the last collective of the step

    a rank is lost    its collectives end at once in all others; `with step` swallows that error, as the round is over
    the next step     survivors and whoever is new take the state of the most advanced survivor; at most the step in
                      flight is repeated, under its number; rank and world may be others
    a stop            all ranks leave the loop before the same step, with whole state: steps.all_stop

Make data and state before the loop, and call no collectives there: a new rank runs that part alone, while the others
wait for it at their next step.
"""
from __future__ import annotations

from ctypes import byref

from . import _abi
from .buffers import SIZES, view
from .errors import ClosedError, UsageError
from .group import Group
from .stop_signals import StopSignals

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .buffers import Array, View
    from .job import Job

_ECLOSED = ClosedError.code


class StepGroup(Group):
    """All ranks of the round: the job's own group, which ends with its round."""

    def close(self) -> None:
        """Forget the group; it is the job's to free."""
        self._handle = None
        self.open_requests.clear()
        self._job.groups.discard(self)


class Step:
    """One step of the loop, as `with step:` begins it.

    number     steps that were completed before this one
    group      all ranks, for the step's collectives
    regrouped  this is a new round (or the first): rank and world may have changed, and groups of the program's own
               (job.group, split) are to be closed and made anew
    failed     the body ended early since its round is over; the step is repeated
    """

    def __init__(self, job: Job, number: int, group: StepGroup, regrouped: bool):
        self._job, self.number, self.group, self.regrouped, self.failed = job, number, group, regrouped, False

    def give_up(self, error: BaseException) -> bool:
        """Give the step up when `error` means that the round is over, and return whether it does.

        For bodies that catch errors themselves; what `with step` calls. The caller then goes on to the next step.
        """
        if not self._job.is_round_over(error):
            return False
        self.failed = True
        _abi.job_abandon_step(self._job.handle)
        return True

    def __enter__(self) -> Step:
        return self

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> bool:
        return error is not None and self.give_up(error)

    def __repr__(self) -> str:
        return f"<ctrun.Step {self.number}, rank {self._job.rank} of {self._job.world}>"


class Steps:
    """What `ctrun.steps` returns: iterate over it once.

    `number` steps are completed; `stopped`: the loop has ended before `total`, since ctrun was asked to stop;
    `all_stop`: all ranks have, before this same step, so that the state can be saved.
    """

    def __init__(self, job: Job, state: Mapping[str, Array], total: int | None, start: int):
        self._job, self._total = job, total
        self._step = _abi.Step(number=start)
        self._group: StepGroup | None = None
        self._arrays: list[View] = []  # registered: they stay where they are as long as the job
        self.stopped = self.all_stop = False
        if not state:
            raise UsageError("steps of no state: name the arrays that all ranks share, as {\"weights\": weights}")
        for name, array in state.items():
            self._register(name, view(array))

    def _register(self, name: str, array: View) -> None:
        error = _abi.ErrorText()
        nbytes = array.count * SIZES[array.dtype]
        _abi.check(_abi.job_register_state(self._job.handle, name.encode(), array.address, nbytes, byref(error)), error)
        self._arrays.append(array)

    @property
    def number(self) -> int:
        """How many steps are completed."""
        return int(self._step.number)

    def _begin(self) -> bool:
        error = _abi.ErrorText()
        code = _abi.job_begin_step(self._job.handle, byref(self._step), byref(error))
        if code == _ECLOSED:
            self.stopped, self.all_stop = True, bool(self._step.all_stop)
            return False
        _abi.check(code, error)
        return True

    def _renew(self) -> StepGroup:
        if self._group is not None:
            self._group.close()
        self._job.drop_default_group()
        group = StepGroup(self._job, self._step.group)
        group.adopt()
        return group

    def __iter__(self) -> Iterator[Step]:
        with StopSignals():
            while self._begin():
                if self._total is not None and self.number >= self._total:
                    return
                if self._step.regrouped or self._group is None:
                    self._group = self._renew()
                yield Step(self._job, self.number, self._group, bool(self._step.regrouped))


def steps(job: Job, state: Mapping[str, Array], total: int | None = None, start: int = 0) -> Steps:
    """Return the steps of a training whose `state`, named arrays, is equal on all ranks; for a `for` loop.

    The arrays are registered where they lie: change them in place, behind the last collective of a step. At the first
    step all ranks get rank 0's. `start`: steps that were completed before, as by a checkpoint; equal on all ranks. The
    loop ends after `total` steps (None: never), or before one when the job is to stop. It raises DivergedError when
    ranks hold different states, and Error when no rank is left that has it. Once a job.
    """
    return Steps(job, state, total, start)
