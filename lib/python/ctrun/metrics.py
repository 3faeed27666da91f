"""ctrun.log: what a training measures, in the folder of its run, in TensorBoard and on the operator's line.

    ctrun.log({"loss": 0.31, "samples_per_s": 5200, "lr": 0.1}, step=40)
    ctrun.log({"loss": 0.28, "accuracy": 0.97}, step=40, kind="eval")

Rank 0 writes; the calls of other ranks do nothing. The folder is runs/SCRIPT/DATE_TIME below the working directory, as
that of a `ctrun train.yaml` is, or the one of ctrun.log_to; `ctrun runs` lists it.

    metrics.jsonl         {"v":1,"kind":"train","step":40,"epoch":0,"time":...,"loss":0.31,...}, lib/train/README.md
    events.out.tfevents.* the same for TensorBoard, with the tags train/loss, ...
    run.json              what ran and how it ended, lib/train/runs.h

A step stands once in the file. After a restart the first step that is logged cuts off all records from that one on,
and so does a step that is logged again, as it is repeated; TensorBoard is told the same.
"""
from __future__ import annotations

import atexit
import json
import math
import os
import socket
import sys
import time

from . import event_file
from ._version import __version__
from .errors import Error, FencedError, UsageError
from .job import init

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from .job import Job

VERSION = 1  # CT_METRICS_VERSION
_RESERVED = ("v", "kind", "step", "epoch", "time")
_KINDS = ("train", "eval")
# The keys that the operator's line shows, by the names that people give them.
_PROGRESS = {"loss": "loss", "samples_per_s": "samples_per_s", "lr": "learning_rate", "learning_rate": "learning_rate"}


def _number(key: str, value: Any) -> float | int:
    if key in _RESERVED:
        raise UsageError(f"a metric cannot be named {key!r}, which each record has by itself")
    item = getattr(value, "item", None)
    try:
        number = item() if item is not None else value
        if isinstance(number, bool) or not isinstance(number, (int, float)):
            number = float(number)
    except (TypeError, ValueError, RuntimeError):
        raise UsageError(f"metric {key!r} is {value!r}, and must be a number") from None
    return number


def _kept(text: bytes, step: int) -> int:
    """The end of the last whole record up to `step`, looking from the end of the file, where what is to be cut is."""
    size = len(text)
    while size > 0:
        start = text.rfind(b"\n", 0, size - 1) + 1
        try:
            if text[size - 1:size] == b"\n" and json.loads(text[start:size])["step"] <= step:
                return size
        except (ValueError, KeyError, TypeError):
            pass  # no record: cut off
        size = start
    return 0


def _last_step(folder: str) -> int:
    """The step of the last whole record, 0 without one."""
    try:
        with open(os.path.join(folder, "metrics.jsonl"), "rb") as file:
            text = file.read()
        line = text[:_kept(text, sys.maxsize)].splitlines()[-1]
        return int(json.loads(line)["step"])
    except (OSError, IndexError):
        return 0


class Writer:
    """metrics.jsonl and a TensorBoard event file in a folder; records after `resumed_step` are dropped from the first,
    and TensorBoard is told to. Raises OSError."""

    def __init__(self, folder: str, resumed_step: int, tensorboard: bool = True):
        self.path = os.path.join(folder, "metrics.jsonl")
        os.makedirs(folder, exist_ok=True)
        self._jsonl = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        with open(self.path, "rb") as file:
            os.ftruncate(self._jsonl, _kept(file.read(), resumed_step))
        self._left = os.fstat(self._jsonl).st_size
        self._events = -1
        if tensorboard:
            self._open_events(folder, resumed_step)

    def _open_events(self, folder: str, resumed_step: int) -> None:
        now = time.time_ns()
        name = f"events.out.tfevents.{now // 10**9:010d}.{socket.gethostname()}.{os.getpid()}.{now % 10**9:09d}"
        self._events = os.open(os.path.join(folder, name), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
        os.write(self._events, event_file.version(now / 1e9) + event_file.start(now / 1e9, resumed_step + 1))

    def write(self, kind: str, step: int, epoch: int, values: dict[str, float | int]) -> None:
        """Append one record to each file. FencedError: another process has written to the first one meanwhile."""
        now = time.time()
        if os.fstat(self._jsonl).st_size != self._left:
            raise FencedError(f"{self.path}: another process writes it now")
        record = {"v": VERSION, "kind": kind, "step": step, "epoch": epoch, "time": round(now, 6)}
        record.update((key, value if math.isfinite(value) else None) for key, value in values.items())
        os.write(self._jsonl, (json.dumps(record, separators=(",", ":"), allow_nan=False) + "\n").encode())
        self._left = os.fstat(self._jsonl).st_size
        if self._events >= 0:
            tagged = {f"{kind}/{key}": value for key, value in values.items()}
            os.write(self._events, event_file.scalars(now, step, tagged))

    def close(self) -> None:
        """Close both files."""
        os.close(self._jsonl)
        if self._events >= 0:
            os.close(self._events)


# ---- the folder of the run -----------------------------------------------------------------------

def _script_name() -> str:
    """The name of what runs, without its ending: that of its folder for `python -m folder`."""
    path = os.path.abspath(sys.argv[0] or "python")
    name = os.path.splitext(os.path.basename(path))[0]
    if name == "__main__":
        name = os.path.basename(os.path.dirname(path))
    return name if name not in ("", "-c") else "python"


def _read_record(folder: str) -> dict[str, Any]:
    try:
        with open(os.path.join(folder, "run.json"), encoding="utf-8") as file:
            record = json.load(file)
        return record if isinstance(record, dict) else {}
    except (OSError, ValueError):
        return {}


def _write_record(folder: str, record: dict[str, Any]) -> None:
    path = os.path.join(folder, "run.json")
    with open(f"{path}.{os.getpid()}", "w", encoding="utf-8") as file:
        json.dump(record, file, indent=2)
    os.replace(file.name, path)


def _folder_of_job(base: str, run_id: str) -> str | None:
    """The newest folder below `base` whose record has this job."""
    try:
        names = sorted(os.listdir(base), reverse=True)
    except OSError:
        return None
    folders = (os.path.join(base, name) for name in names if name != "latest")
    return next((folder for folder in folders if _read_record(folder).get("job") == run_id), None)


def _make_folder(base: str) -> str:
    """A new folder below `base`, named after the time, and `latest` for it."""
    os.makedirs(base, exist_ok=True)
    name = time.strftime("%Y-%m-%d_%H-%M-%S")
    for number in range(1, 1000):
        candidate = name if number == 1 else f"{name}-{number}"
        try:
            os.mkdir(os.path.join(base, candidate))
        except FileExistsError:
            continue
        link = os.path.join(base, f".latest.{os.getpid()}")
        os.symlink(candidate, link)
        os.replace(link, os.path.join(base, "latest"))
        return os.path.join(base, candidate)
    raise Error(f"{base}: no folder can be made for this run")


class Run:
    """The folder of this job's run, of rank 0."""

    def __init__(self, job: Job, folder: str | None, resume: bool):
        self._alone = "CTRUN_CONTROL_FD" not in os.environ
        again = job.restart_count > 0 or job.generation > 1
        base = os.path.join("runs", _script_name())
        run_id = os.environ.get("TORCHELASTIC_RUN_ID") or job.run_id  # unique where the job has no name
        known = None if folder is not None else os.environ.get("CTRUN_RUN_FOLDER")
        if folder is None and not known and again:
            known = _folder_of_job(base, run_id)
        self.folder = os.path.abspath(folder or known or _make_folder(base))
        record = _read_record(self.folder)
        other = bool(record) and not again and not resume
        if folder is not None and other:
            raise UsageError(f"{folder} holds another run: name another folder, or go on in it with resume=True")
        if not record:
            record = {"id": f"{run_id[:100]}/{int.from_bytes(os.urandom(8), 'big'):016x}", "commit": "",
                      "command": " ".join(["python" if self._alone else "ctrun", *sys.argv]), "directory": os.getcwd(),
                      "started": int(time.time()), "starts": 0, "steps": 0, "step": 0, "ended": 0, "seconds": 0}
        record.update(job=run_id, version=__version__, host=socket.gethostname(), how="running", status=0, cause="",
                      pid=os.getpid() if self._alone else os.getppid(), began=int(time.time()),
                      starts=record.get("starts", 0) + 1)
        os.makedirs(self.folder, exist_ok=True)
        _write_record(self.folder, record)
        if self._alone:
            atexit.register(self._end)
        else:
            job.output(self.folder)  # the agent records the end

    def note_steps(self, steps: int) -> None:
        """Record how many steps the training is to have."""
        record = _read_record(self.folder)
        if record.get("steps") != steps:
            _write_record(self.folder, {**record, "steps": steps})

    def _end(self) -> None:
        """Without an agent this process records its own end."""
        error = getattr(sys, "last_value", None)
        record = _read_record(self.folder)
        now = int(time.time())
        record.update(how="failed" if error is not None else "finished", status=1 if error is not None else 0,
                      cause=f"{type(error).__name__}: {error}"[:500] if error is not None else "", ended=now,
                      seconds=record.get("seconds", 0) + now - record.get("began", now))
        _write_record(self.folder, record)


# ---- what programs call --------------------------------------------------------------------------

class Logger:
    """The state behind ctrun.log: where it writes, and what was written last."""

    def __init__(self) -> None:
        self._folder: str | None = None
        self._resume, self._tensorboard, self._steps = False, True, 0
        self._run: Run | None = None
        self._writer: Writer | None = None
        self._last = 0
        self._kinds: set[str] = set()  # of the last step

    def place(self, folder: str | None, resume: bool, tensorboard: bool, steps: int) -> None:
        """See log_to."""
        if self._writer is not None:
            raise UsageError("ctrun.log_to is called before the first ctrun.log")
        self._folder, self._resume, self._tensorboard, self._steps = folder, resume, tensorboard, steps

    def _open_run(self, job: Job) -> Run:
        if self._run is None:
            self._run = Run(job, self._folder, self._resume)
            if self._steps:
                self._run.note_steps(self._steps)
        return self._run

    def _open(self, run: Run, step: int) -> Writer:
        """Make what is written begin with `step`."""
        if self._writer is not None:
            self._writer.close()
        self._writer = Writer(run.folder, step - 1, self._tensorboard)
        self._kinds.clear()
        return self._writer

    def log(self, values: Mapping[str, Any], step: int | None, epoch: int, kind: str) -> None:
        """See log."""
        job = init()
        if job.rank != 0:
            return
        if kind not in _KINDS:
            raise UsageError(f"there is no kind {kind!r} of records: it is one of {', '.join(_KINDS)}")
        numbers = {key: _number(key, value) for key, value in values.items()}
        if step is not None and step < 0:
            raise UsageError(f"step {step}: steps are counted from 0")
        writer = self._writer
        try:
            run = self._open_run(job)
            if writer is None and step is None:
                self._last = _last_step(run.folder)
            at = self._last + 1 if step is None else int(step)
            if writer is None or at < self._last or (at == self._last and kind in self._kinds):
                writer = self._open(run, at)
            elif at > self._last:
                self._kinds.clear()
            writer.write(kind, at, epoch, numbers)
        except OSError as error:
            raise Error(f"metrics cannot be written: {error}") from error
        self._last = at
        self._kinds.add(kind)
        if kind == "train":
            self._report(job, at, epoch, numbers)

    def _report(self, job: Job, step: int, epoch: int, numbers: dict[str, float | int]) -> None:
        shown = {_PROGRESS[key]: float(value) for key, value in numbers.items() if key in _PROGRESS}
        job.progress(step, self._steps, epoch=epoch, **shown)  # type: ignore[arg-type]

    @property
    def folder(self) -> str | None:
        """See run_folder."""
        return self._run.folder if self._run is not None else None


_logger = Logger()


def log(values: Mapping[str, Any], step: int | None = None, *, epoch: int = 0, kind: str = "train") -> None:
    """Record what was measured after `step` completed steps, in rank 0; at other ranks do nothing.

    The values are numbers (or arrays and tensors of one), by any name but v, kind, step, epoch and time. "loss" (nats),
    "samples_per_s" and "lr" are shown while the job runs, too, and "loss" and "accuracy" (0 to 1) by `ctrun runs`.
    `step` None: one after the last. Give it when the training can be restarted or repeats steps: the record replaces
    those of the same step and all later ones, unless they were just written with another `kind`. Opens the job if none
    is open. Raises UsageError for values that are no numbers; FencedError when a newer round's rank 0 has taken the
    file over; Error when it cannot be written.
    """
    _logger.log(values, step, epoch, kind)


def log_to(folder: str | None = None, *, resume: bool = False, tensorboard: bool = True, steps: int = 0) -> None:
    """Say where and what ctrun.log writes; before its first call, at all ranks.

    `folder` None: runs/SCRIPT/DATE_TIME. One that holds another job's run is refused (UsageError at the first log)
    unless `resume`. `steps`: how many the training is to have, for the operator's line.
    """
    _logger.place(folder, resume, tensorboard, steps)


def run_folder() -> str | None:
    """Return the absolute path of the folder that this process logs to, None before the first ctrun.log or elsewhere
    than in rank 0. A place for checkpoints, too."""
    return _logger.folder
