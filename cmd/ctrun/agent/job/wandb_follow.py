"""Hands the records of a run's metrics.jsonl to the user's wandb, beside the training and never before it.

    python3 -c TEXT check                     exit status 0: wandb is installed
    python3 -c TEXT follow FOLDER MODE        until standard input ends; "end STATUS" there is the job's exit status

One run of wandb a run folder: its id is made of the id in run.json, so that restarts and resumes go on in it. Records
of one step are one row of wandb. FOLDER/wandb/ctrun.json keeps the last step that was handed over: steps that a
training repeats after a restart are left out. One process at a time holds FOLDER/wandb/ctrun.lock.

Messages for the user are lines on standard error: "I text" or "W text". What wandb itself prints goes to
FOLDER/wandb/ctrun.log.
"""
from __future__ import annotations

import ctypes
import fcntl
import hashlib
import importlib.util
import json
import os
import select
import signal
import sys
from typing import Any

POLL_S = 0.5
CHUNK = 64 << 10
TAIL = 256
PR_SET_PDEATHSIG = 1
TOLD = 3  # exit status: the user has been told why


def has_wandb() -> bool:
    """A folder `wandb`, as wandb leaves one where it was run, is no package."""
    spec = importlib.util.find_spec("wandb")
    return spec is not None and spec.origin is not None


def read_json(path: str) -> dict[str, Any]:
    """The object in a file, {} without one."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError):
        return {}


def first_line(error: BaseException) -> str:
    """What an exception says, on one line."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__)[:300]


class Input:
    """Standard input: the agent's end of it closes when nothing more will be written."""

    def __init__(self) -> None:
        self.ended = False
        self.status = 0

    def wait(self, seconds: float) -> None:
        """Until something came or the time is over."""
        if self.ended or not select.select([0], [], [], seconds)[0]:
            return
        data = os.read(0, 64)
        if data.startswith(b"end "):
            self.status = int(data[4:].split()[0])
        self.ended = True


class Rows:
    """Records as rows, a step each, handed to wandb once."""

    def __init__(self, folder: str, run: Any):
        self._run = run
        self._state = os.path.join(folder, "wandb", "ctrun.json")
        done = read_json(self._state).get("step")
        self._done = done if isinstance(done, int) else -1
        if getattr(run, "resumed", False):
            self._done = max(self._done, int(run.starting_step) - 1)
        self._step = -1
        self._row: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        """Add a record to the row of its step; a later step completes that row, an earlier one takes it back."""
        step, kind = record.get("step"), record.get("kind")
        if not isinstance(step, int) or not isinstance(kind, str) or step <= self._done:
            return
        if self._row and step > self._step:
            self.complete()
        elif step < self._step:
            self._row = {}
        self._step = step
        if isinstance(record.get("time"), float):
            self._row["_timestamp"] = record["time"]
        self._row["epoch"] = record.get("epoch", 0)
        for key, value in record.items():
            if key not in ("v", "kind", "step", "epoch", "time"):
                self._row[f"{kind}/{key}"] = float("nan") if value is None else value

    def complete(self) -> None:
        """Hand the row over."""
        if not self._row:
            return
        self._run.log(self._row, step=self._step)
        self._done, self._row = self._step, {}

    def keep(self) -> None:
        """Remember what was handed over."""
        if read_json(self._state).get("step") == self._done:
            return
        with open(f"{self._state}.new", "w", encoding="utf-8") as file:
            json.dump({"id": self._run.id, "step": self._done}, file)
        os.replace(file.name, self._state)


class File:
    """metrics.jsonl, which grows, and is cut and written on when a training goes back."""

    def __init__(self, folder: str):
        self._path = os.path.join(folder, "metrics.jsonl")
        self._offset = 0
        self._tail = b""

    def read(self) -> list[dict[str, Any]]:
        """The next whole records; from the first one on after the file was cut. [] when there is none now."""
        try:
            with open(self._path, "rb") as file:
                file.seek(self._offset - len(self._tail))
                if file.read(len(self._tail)) != self._tail:
                    file.seek(0)
                    self._offset, self._tail = 0, b""
                data = file.read(CHUNK)
        except FileNotFoundError:
            return []
        data = data[:data.rfind(b"\n") + 1]
        self._offset += len(data)
        self._tail = (self._tail + data)[-TAIL:]
        records = []
        for line in data.splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue  # torn by a crash of its writer: cut off when it goes on
            if isinstance(record, dict):
                records.append(record)
        return records


def config_of(folder: str) -> dict[str, Any]:
    """What the run was started with: config.yaml, and of scripts the command."""
    record = read_json(os.path.join(folder, "run.json"))
    config = {key: record[key] for key in ("command", "commit", "host") if record.get(key)}
    try:
        import yaml  # type: ignore[import]  # of wandb's own requirements

        with open(os.path.join(folder, "config.yaml"), encoding="utf-8") as file:
            loaded = yaml.safe_load(file)
        return {**loaded, "ctrun": config} if isinstance(loaded, dict) else {"ctrun": config}
    except (ImportError, OSError, ValueError, yaml.YAMLError):
        return {"ctrun": config}


class Follower:
    """One run of wandb."""

    def __init__(self, folder: str, mode: str):
        self._folder, self._mode = folder, mode
        self._words = os.fdopen(os.dup(2), "w", encoding="utf-8", errors="replace")
        os.makedirs(os.path.join(folder, "wandb"), exist_ok=True)
        log = os.open(os.path.join(folder, "wandb", "ctrun.log"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(log, 1)
        os.dup2(log, 2)

    def say(self, level: str, text: str) -> None:
        """A line for the user; nobody may read it any more."""
        try:
            print(f"{level} {text}", file=self._words, flush=True)
        except OSError:
            pass

    def _begin(self, wandb: Any, mode: str) -> Any:
        record = read_json(os.path.join(self._folder, "run.json"))
        name = os.path.basename(self._folder)
        parent, above = os.path.split(os.path.dirname(self._folder))
        project = above if os.path.basename(parent) == "runs" else "ctrun"
        run_id = hashlib.sha256(str(record.get("id") or self._folder).encode()).hexdigest()[:16]
        return wandb.init(dir=self._folder, mode=mode, id=run_id, resume="allow" if mode == "online" else None,
                          project=os.environ.get("WANDB_PROJECT") or project,
                          name=os.environ.get("WANDB_NAME") or name, config=config_of(self._folder),
                          settings=wandb.Settings(silent=True, console="off", save_code=False))

    def _open(self, wandb: Any) -> Any:
        if self._mode == "online":
            try:
                return self._begin(wandb, "online")
            except Exception as error:  # no key, no network, no answer
                self.say("W", f"no run online, so it is written to {self._folder}/wandb, for `wandb sync`: "
                              f"{first_line(error)}")
                wandb.teardown()
        return self._begin(wandb, "offline")

    def _lock(self, source: Input) -> bool:
        """False: another process had it for as long as there was something to follow."""
        file = os.open(os.path.join(self._folder, "wandb", "ctrun.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if source.ended:
                    return False
                source.wait(POLL_S)

    def follow(self) -> None:
        """Until the end of standard input, and all that is written by then."""
        source = Input()
        if not self._lock(source):
            self.say("W", f"the last records of {self._folder} were not handed over: another process did so still")
            return
        import wandb

        run = self._open(wandb)
        self.say("I", f"run {run.id} of project {run.project}: " +
                      (f"{self._folder}/wandb, for `wandb sync`" if run.offline else str(run.url)))
        file, rows = File(self._folder), Rows(self._folder, run)
        while True:
            ended = source.ended  # before the last look at the file
            records = file.read()
            for record in records:
                rows.take(record)
            if ended and not records:
                break
            rows.keep()
            if not records:
                source.wait(POLL_S)
        rows.complete()
        rows.keep()
        run.finish(exit_code=source.status)


def main() -> int:
    """See above."""
    if sys.path and sys.path[0] == "":
        del sys.path[0]  # the user's folder holds no module of ours, and may hold one of such a name
    if sys.argv[1] == "check":
        return 0 if has_wandb() else 1
    os.nice(5)  # starting wandb takes two seconds of a processor
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0)  # what the agent leaves behind is handed over still
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the end of standard input is the end
    follower = Follower(os.path.abspath(sys.argv[2]), sys.argv[3])
    try:
        follower.follow()
    except Exception as error:
        follower.say("W", f"nothing more is handed over, metrics.jsonl has all of it: {type(error).__name__}: "
                          f"{first_line(error)}")
        return TOLD
    return 0


sys.exit(main())
