"""Checkpoints in a folder behind the rendezvous' fence: readers see a step only once it is on record.

    FOLDER/step_00000300.pt     torch.save({"step", "state"})
    FOLDER/latest               the name of the newest that counts

A process that was cut off and still writes cannot replace a newer state by an old one: its publication is refused.
"""
from __future__ import annotations

import os

import torch

from .. import FencedError, UnsupportedError
from ..job import Job
from .state import State

_KEPT = 2


class Checkpoints:
    """One writer, rank 0, and any number of readers."""

    def __init__(self, job: Job, folder: str, state: State):
        self._job, self._folder, self._state = job, folder, state
        self._asked: int | None = None  # the step whose publication is asked for

    def _path(self, step: int) -> str:
        return os.path.join(self._folder, f"step_{step:08d}.pt")

    def _latest(self) -> str | None:
        try:
            with open(os.path.join(self._folder, "latest"), encoding="ascii") as file:
                return os.path.join(self._folder, file.read().strip())
        except FileNotFoundError:
            return None

    def load(self) -> int:
        """Load the step that the rendezvous has on record, else the newest; return it, 0 without any."""
        published = self._job.published_step
        path = self._path(published) if published else self._latest()
        if path is None:
            return 0
        try:
            saved = torch.load(path, map_location="cpu", weights_only=False)  # a scheduler's state has objects
        except FileNotFoundError:
            raise UnsupportedError(f"{path} is on record as the job's newest checkpoint, and is not there: is the "
                                   "folder the same on all nodes?") from None
        self._state.load_state_dict(saved["state"])
        return saved["step"]

    def save(self, step: int) -> None:
        """Write a checkpoint and ask for its publication; the one before is concluded first."""
        self.conclude(60.0)
        os.makedirs(self._folder, exist_ok=True)
        path = self._path(step)
        with open(path + ".new", "wb") as file:
            torch.save({"step": step, "state": self._state.state_dict()}, file)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(path + ".new", path)
        self._job.publish(step, nbytes=size)
        self._asked = step

    def conclude(self, seconds: float) -> None:
        """Point readers to what was asked for, if it is on record within that time."""
        if self._asked is None:
            return
        try:
            if not self._job.published(seconds):
                return
        except FencedError:
            self._asked = None  # the round is over: whoever went on writes its own
            return
        step, self._asked = self._asked, None
        name = os.path.join(self._folder, "latest")
        with open(name + ".new", "w", encoding="ascii") as file:
            file.write(os.path.basename(self._path(step)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.replace(name + ".new", name)
        self._remove_old(step)

    def _remove_old(self, newest: int) -> None:
        steps = sorted(int(name[5:-3]) for name in os.listdir(self._folder)
                       if name.startswith("step_") and name.endswith(".pt") and name[5:-3].isdigit())
        for step in [step for step in steps if step <= newest][:-_KEPT]:
            os.unlink(self._path(step))
