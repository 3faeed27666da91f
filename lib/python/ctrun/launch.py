"""ctrun.run: start a job on this machine from a notebook or a program, and get what its ranks return.

    def train(steps):
        job = ctrun.init()
        ...
        return float(loss)

    losses = ctrun.run(train, nproc=4, args=(300,), max_restarts=1)

It starts the program ctrun by exec: this process is not forked, so its threads and GPUs are no matter.
Each rank is a new interpreter (this one's executable, with its sys.path). A function and its arguments travel in a file
of a temporary folder, and the results come back the same way. A function of a module is found there by its name. One
of a notebook, a script, or within another function is sent by cloudpickle where that is installed; else by its byte
code with the global names it uses: functions, modules, and values that can be pickled, but no classes of a notebook.
"""
from __future__ import annotations

import dis
import importlib
import io
import linecache
import marshal
import os
import pickle
import selectors
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import traceback
import types

from . import job as _job
from .errors import JobError, UnsupportedError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))
_REPORT_LINES = 40


# ---- a function for other processes --------------------------------------------------------------

def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """This code and those of the functions within it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _global_names(code: types.CodeType) -> set[str]:
    return {instruction.argval for each in _codes(code) for instruction in dis.get_instructions(each)
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")}


def _make_function(code: bytes, module: str, name: str, cells: int) -> types.FunctionType:
    namespace = importlib.import_module(module).__dict__
    return types.FunctionType(marshal.loads(code), namespace, name, None, tuple(types.CellType() for _ in range(cells)))


def _fill_function(function: types.FunctionType, state: dict[str, Any]) -> None:
    function.__globals__.update(state["globals"])
    function.__defaults__, function.__kwdefaults__ = state["defaults"], state["kwdefaults"]
    for cell, content in zip(function.__closure__ or (), state["cells"]):
        if content:  # a cell may be empty
            cell.cell_contents = content[0]


def _cell_content(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:
        return ()


class _Pickler(pickle.Pickler):
    """Functions that cannot be found by their names go by their code; modules by their names."""

    def _is_found(self, function: types.FunctionType) -> bool:
        found: Any = sys.modules.get(function.__module__)
        for name in function.__qualname__.split("."):
            found = getattr(found, name, None)
        return function.__module__ != "__main__" and found is function

    def reducer_override(self, thing: Any) -> Any:
        """See pickle.Pickler."""
        if isinstance(thing, types.ModuleType):
            return importlib.import_module, (thing.__name__,)
        if isinstance(thing, type) and thing.__module__ == "__main__":
            raise UsageError(f"class {thing.__name__} of {_where()} cannot be sent to other processes: put it into a "
                             "module, define it within the function, or install cloudpickle")
        if not isinstance(thing, types.FunctionType) or self._is_found(thing):
            return NotImplemented
        names = _global_names(thing.__code__) if thing.__module__ == "__main__" else set()
        cells = [_cell_content(cell) for cell in thing.__closure__ or ()]
        state = {"globals": {name: thing.__globals__[name] for name in sorted(names) if name in thing.__globals__},
                 "defaults": thing.__defaults__, "kwdefaults": thing.__kwdefaults__,
                 "cells": cells}
        make = (marshal.dumps(thing.__code__), thing.__module__, thing.__name__, len(cells))
        return _make_function, make, state, None, None, _fill_function


def _where() -> str:
    return "this script" if hasattr(sys.modules["__main__"], "__file__") else "this notebook"


def _dump(call: tuple[Any, ...]) -> bytes:
    """The function with its arguments. UsageError when something of it cannot be sent."""
    try:
        return bytes(importlib.import_module("cloudpickle").dumps(call))
    except ImportError:
        pass
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=4).dump(call)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise UsageError(f"{call[0].__name__} cannot be sent to other processes, with what it uses: {error}") from error
    return file.getvalue()


def _sources(function: Callable[..., Any]) -> dict[str, list[str]]:
    """The lines of a notebook's cell, for tracebacks."""
    code = getattr(function, "__code__", None)
    if code is None or os.path.exists(code.co_filename):
        return {}
    return {code.co_filename: linecache.getlines(code.co_filename)}


def serve(folder: str) -> None:
    """Be a rank: call the function that `folder` has, and leave there what it returns. Ends the process on failure."""
    with open(os.path.join(folder, "call"), "rb") as file:
        head = pickle.load(file)
        sys.path[:] = head["path"]
        for name, lines in head["sources"].items():
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
        function, args, kwargs = pickle.load(file)
    sys.argv = [head["name"]]
    try:
        result = function(*args, **kwargs)
    except Exception as error:
        below = error.__traceback__.tb_next if error.__traceback__ is not None else None
        traceback.print_exception(type(error), error, below)
        sys.exit(1)
    rank = _job.current().rank if _job.is_open() else os.environ["RANK"]
    path = os.path.join(folder, f"result.{rank}")
    with open(path + ".part", "wb") as file:
        try:
            pickle.dump(result, file, protocol=4)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            sys.exit(f"{head['name']} returned {type(result).__name__}, which cannot be sent back: {error}")
    os.replace(path + ".part", path)


# ---- the program ---------------------------------------------------------------------------------

def program() -> str:
    """Return the path of ctrun: of the library that CTRUN_LIBRARY names, of the source tree that has this package, of
    this interpreter's environment, or of PATH. UnsupportedError without one."""
    library = os.environ.get("CTRUN_LIBRARY", "")
    beside = os.path.join(os.path.dirname(library), os.pardir, "bin", "ctrun")
    built = os.path.join(_HERE, *[os.pardir] * 3, "build", "release", "bin", "ctrun")
    folders = [os.path.dirname(sys.executable), sysconfig.get_path("scripts")]
    if "posix_user" in sysconfig.get_scheme_names():
        folders.append(sysconfig.get_path("scripts", "posix_user"))
    for path in [*([beside] if library else []), built, *(os.path.join(folder, "ctrun") for folder in folders)]:
        if os.access(path, os.X_OK):
            return os.path.normpath(path)
    found = shutil.which("ctrun")
    if found is None:
        raise UnsupportedError("the program ctrun is neither beside this interpreter nor in PATH: install the wheel, "
                               "or build it (make)")
    return found


class _Lines:
    """One stream of ctrun's, shown line by line as it comes."""

    def __init__(self, show: bool, stream_name: str):
        self._show, self._name, self._rest = show, stream_name, b""
        self.own: list[str] = []  # ctrun's own lines, the last of them; a worker's begin with "["

    def add(self, data: bytes) -> None:
        """Take what was read."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._put(line.decode(errors="replace"))

    def end(self) -> None:
        """Take the last line, which may have no newline."""
        if self._rest:
            self._put(self._rest.decode(errors="replace"))
            self._rest = b""

    def _put(self, line: str) -> None:
        if self._show:
            print(line, file=getattr(sys, self._name), flush=True)
        if not line.startswith("["):
            self.own = [*self.own[1 - _REPORT_LINES:], line]


def _pump(process: subprocess.Popen[bytes], streams: dict[Any, _Lines]) -> None:
    """Show what comes, until both streams have ended."""
    with selectors.DefaultSelector() as selector:
        for pipe in streams:
            if not pipe.closed:
                selector.register(pipe, selectors.EVENT_READ)
        while selector.get_map():
            for key, _ in selector.select():
                data = os.read(key.fd, 1 << 16)
                if data:
                    streams[key.fileobj].add(data)
                else:
                    selector.unregister(key.fileobj)
                    streams[key.fileobj].end()
                    key.fileobj.close()  # type: ignore[union-attr]
    process.wait()


def _watch(argv: Sequence[str], env: Mapping[str, str], show: bool) -> tuple[int, str]:
    """Run ctrun; return its exit status and its own last lines. An interrupt is passed on as SIGINT, and raised when
    ctrun has ended; a second one ends the workers at once."""
    # In a session of its own, as a terminal would interrupt it, too; ended with the thread that waits for it.
    guard = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
    process = subprocess.Popen([*guard, *argv], env=dict(env), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, start_new_session=True)
    streams: dict[Any, _Lines] = {process.stdout: _Lines(show, "stdout"), process.stderr: _Lines(show, "stderr")}
    interrupt: KeyboardInterrupt | None = None
    try:
        while process.returncode is None:
            try:
                _pump(process, streams)
            except KeyboardInterrupt as error:
                interrupt = error
                process.send_signal(signal.SIGINT)
    finally:
        for pipe in streams:
            pipe.close()
        if process.returncode is None:
            process.terminate()
            process.wait()
    if interrupt is not None:
        raise interrupt
    return int(process.returncode or 0), "\n".join(streams[process.stderr].own)


def _options(options: Mapping[str, Any]) -> list[str]:
    """max_restarts=1 as --max_restarts=1; True as a word alone; None and False as nothing."""
    return [f"--{name}" if value is True else f"--{name}={value}" for name, value in options.items()
            if value is not None and value is not False]


def _results(folder: str) -> list[Any]:
    """What the ranks have left, by rank."""
    results: list[Any] = []
    while os.path.exists(os.path.join(folder, f"result.{len(results)}")):
        with open(os.path.join(folder, f"result.{len(results)}"), "rb") as file:
            results.append(pickle.load(file))
    return results


def run(what: Callable[..., Any] | str | os.PathLike[str] | Sequence[str], args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None, *, nproc: int | str = 1, env: Mapping[str, str] | None = None,
        show: bool = True, **options: Any) -> list[Any]:
    """Run a job of `nproc` ranks on this machine and wait for its end.

    `what`: a function, which each rank calls with `args` and `kwargs`; or a script, program or train.yaml with `args`
    as its words; or a list of such words. `options` are ctrun's own, by their names: max_restarts=1, log_dir="logs".
    `env`: variables over this process's. With `show` the ranks' lines and ctrun's are printed as they come.

    Returns what the function returned, by rank; [] for a script. Raises JobError with ctrun's final report when the job
    fails; UsageError when the function cannot be sent; UnsupportedError without ctrun. KeyboardInterrupt stops the job
    as Ctrl-C does in a terminal, and is raised when all ranks have ended.
    """
    command = [program(), f"--nproc_per_node={nproc}", *_options(options)]
    variables = {**os.environ, "PYTHON_EXEC": sys.executable, **(env or {})}
    with tempfile.TemporaryDirectory(prefix="ctrun-run-") as folder:
        if callable(what):
            name = getattr(what, "__name__", type(what).__name__)
            with open(os.path.join(folder, "call"), "wb") as file:
                pickle.dump({"path": sys.path, "sources": _sources(what), "name": name}, file)
                file.write(_dump((what, tuple(args), dict(kwargs or {}))))
            words = [os.path.join(_HERE, "_rank.py"), folder]
        elif kwargs:
            raise UsageError("kwargs are a function's; the words of a script are its args")
        else:
            first = [os.fspath(what)] if isinstance(what, (str, os.PathLike)) else list(what)
            words = [*first, *map(str, args)]
        status, report = _watch([*command, *words], variables, show)
        if status != 0:
            raise JobError(report or f"ctrun ended with status {status}", status)
        return _results(folder)
