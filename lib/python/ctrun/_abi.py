"""The structures and functions of collectives/ctrun.h for ctypes, and the library they are called in.

collectives/job/library_version.c asserts where the fields lie. The library is, in this order: CTRUN_LIBRARY,
lib/libctrun.so.1 in this package (a wheel), the newest build of the source tree that this package lies in, or what
the system's loader finds.
"""
from __future__ import annotations

import os
from ctypes import (CDLL, CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_char_p, c_double, c_int, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p)

from ._version import __version__
from .errors import UnsupportedError, error_of

TYPE_CHECKING = False  # typing takes as long to import as all else here
if TYPE_CHECKING:
    from typing import Any

SONAME = "libctrun.so.1"


class ErrorText(Structure):
    """struct ct_error"""
    _fields_ = [("code", c_int), ("text", c_char * 1024), ("echo", c_int)]


class Assignment(Structure):
    """struct ct_assignment"""
    _fields_ = [("run_id", c_char_p), ("generation", c_uint64), ("lineage", c_uint64), ("base_step", c_uint64),
                ("base_rank", c_int), ("published_generation", c_uint64), ("published_step", c_uint64),
                ("rank", c_int), ("world", c_int), ("local_rank", c_int), ("local_world", c_int),
                ("node_rank", c_int), ("nnodes", c_int), ("restart_count", c_int)]


class Progress(Structure):
    """struct ct_progress"""
    _fields_ = [("epoch", c_uint64), ("epochs", c_uint64), ("step", c_uint64), ("steps", c_uint64),
                ("loss", c_double), ("samples_per_s", c_double), ("learning_rate", c_double), ("eta_s", c_double),
                ("trained_s", c_double), ("saving_s", c_double), ("straggler_s", c_double)]


class Step(Structure):
    """struct ct_job_step"""
    _fields_ = [("number", c_uint64), ("group", c_void_p), ("all_stop", c_bool), ("regrouped", c_bool)]


DIGEST_CALL = CFUNCTYPE(c_uint64, c_void_p)
BROADCAST_CALL = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)


class StateCalls(Structure):
    """struct ct_state_calls"""
    _fields_ = [("context", c_void_p), ("digest", DIGEST_CALL), ("broadcast", BROADCAST_CALL)]


class GroupOptions(Structure):
    """struct ct_group_options"""
    _fields_ = [("name", c_char_p), ("ranks", POINTER(c_int)), ("nranks", c_int), ("backend", c_char_p),
                ("timeout_ms", c_uint64), ("encrypt", c_bool), ("no_thread", c_bool), ("device", c_void_p)]


class Options(Structure):
    """struct ct_options"""
    _fields_ = [("timeout_ms", c_uint64), ("tag", c_uint32), ("mode", c_int), ("scale", c_double),
                ("stream", c_void_p)]


class Data(Structure):
    """struct ct_data"""
    _fields_ = [("send", c_void_p), ("recv", c_void_p), ("count", c_size_t), ("dtype", c_int)]


class Parts(Structure):
    """struct ct_parts"""
    _fields_ = [("counts", POINTER(c_size_t)), ("offsets", POINTER(c_size_t))]


class Transfer(Structure):
    """struct ct_transfer"""
    _fields_ = [("direction", c_int), ("peer", c_int), ("data", Data)]


_ERROR = POINTER(ErrorText)
_OPTIONS = POINTER(Options)

# The arguments of each collective between the group and the options.
COLLECTIVES: dict[str, tuple[Any, ...]] = {
    "all_reduce": (Data, c_int),
    "reduce": (Data, c_int, c_int),
    "broadcast": (Data, c_int),
    "all_gather": (Data,),
    "all_gather_v": (Data, Parts),
    "reduce_scatter": (Data, c_int),
    "reduce_scatter_v": (Data, Parts, c_int),
    "gather": (Data, c_int),
    "scatter": (Data, c_int),
    "all_to_all": (Data,),
    "all_to_all_v": (Data, Parts, Parts),
    "send": (Data, c_int),
    "recv": (Data, c_int),
    "exchange": (POINTER(Transfer), c_int),
    "barrier": (),
}

# name: (result, arguments)
FUNCTIONS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "version": (c_char_p, ()),
    "strerror": (c_char_p, (c_int,)),
    "error_name": (c_char_p, (c_int,)),
    "exit_status": (c_int, (c_int,)),
    "job_open": (c_int, (POINTER(c_void_p), _ERROR)),
    "job_close": (None, (c_void_p,)),
    "job_assignment": (POINTER(Assignment), (c_void_p,)),
    "job_progress": (c_int, (c_void_p, POINTER(Progress))),
    "job_summary": (c_int, (c_void_p, c_char_p)),
    "job_output": (c_int, (c_void_p, c_char_p)),
    "job_failure": (c_int, (c_void_p, _ERROR)),
    "job_at": (None, (c_void_p, c_int, c_uint64)),
    "job_stop_requested": (c_bool, (c_void_p, POINTER(c_uint64))),
    "job_revoked": (c_bool, (c_void_p,)),
    "job_is_round_over": (c_bool, (c_void_p, c_int)),
    "digest": (c_uint64, (c_void_p, c_size_t, c_uint64)),
    "job_register_state": (c_int, (c_void_p, c_char_p, c_void_p, c_size_t, _ERROR)),
    "job_register_calls": (c_int, (c_void_p, POINTER(StateCalls), _ERROR)),
    "job_begin_step": (c_int, (c_void_p, POINTER(Step), _ERROR)),
    "job_abandon_step": (None, (c_void_p,)),
    "job_publish": (c_int, (c_void_p, c_uint64, c_uint64)),
    "job_publish_sized": (c_int, (c_void_p, c_uint64, c_uint64, c_uint64)),
    "job_published": (c_int, (c_void_p, c_int, _ERROR)),
    "store_set": (c_int, (c_void_p, c_char_p, c_char_p, c_size_t)),
    "store_get": (c_int, (c_void_p, c_char_p, c_void_p, POINTER(c_size_t), c_uint64)),
    "store_add": (c_int, (c_void_p, c_char_p, c_int64, POINTER(c_int64))),
    "mem_alloc": (c_int, (c_void_p, c_size_t, POINTER(c_void_p), _ERROR)),
    "mem_free": (None, (c_void_p, c_void_p)),
    "group_new": (c_int, (c_void_p, POINTER(GroupOptions), POINTER(c_void_p), _ERROR)),
    "group_free": (None, (c_void_p,)),
    "group_rank": (c_int, (c_void_p,)),
    "group_size": (c_int, (c_void_p,)),
    "group_backend": (c_char_p, (c_void_p,)),
    "group_waited_ns": (c_uint64, (c_void_p,)),
    "group_split": (c_int, (c_void_p, c_int, c_int, POINTER(c_void_p), _ERROR)),
    "group_revoke": (None, (c_void_p,)),
    "group_explain": (c_int, (c_void_p, c_int, _ERROR)),
    "test": (c_int, (c_void_p,)),
    "wait": (c_int, (c_void_p,)),
    "wait_for": (c_int, (c_void_p, c_uint64)),
}


def _candidates() -> list[str]:
    named = os.environ.get("CTRUN_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    beside = os.path.join(here, "lib", SONAME)
    built = os.path.join(here, *[os.pardir] * 3, "build", "release", "lib", SONAME)
    return [path for path in (beside, built) if os.path.exists(path)] + [SONAME]


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _load() -> CDLL:
    path = _candidates()[0]
    try:
        library = CDLL(path)
    except OSError as error:
        raise UnsupportedError(f"{path} cannot be loaded ({error}): build it (make), or name it in "
                               "CTRUN_LIBRARY") from None
    names = [*FUNCTIONS, *COLLECTIVES, *(f"{name}_start" for name in COLLECTIVES)]
    missing = [name for name in names if not hasattr(library, f"ct_{name}")]
    version = "unknown"
    if hasattr(library, "ct_version"):
        library.ct_version.restype = c_char_p
        version = library.ct_version().decode()
    if missing or _number(version) < _number(__version__):
        raise UnsupportedError(f"{path} is version {version} of the library"
                               f"{f' (it has no ct_{missing[0]})' if missing else ''}, and this package needs "
                               f"{__version__} or a later one of {SONAME}: install both from one release")
    return library


def _bind() -> None:
    """Set this module's name for each function of the library, typed: _abi.job_open and so on."""
    library = _load()
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, f"ct_{name}")
        function.restype, function.argtypes = result, arguments
        globals()[name] = function
    for name, middle in COLLECTIVES.items():
        for end in ("", "_start"):
            function = getattr(library, f"ct_{name}{end}")
            function.restype = c_int
            function.argtypes = (c_void_p, *middle, _OPTIONS, *([POINTER(c_void_p)] if end else []))
            globals()[f"{name}{end}"] = function


if TYPE_CHECKING:
    def __getattr__(name: str) -> Any:
        """What _bind sets."""
else:
    _bind()


def check(code: int, error: ErrorText | None = None) -> None:
    """Raise the exception for a code of the library that is not 0, with the sentence of its struct ct_error."""
    if code != 0:
        text = error.text.decode(errors="replace") if error is not None else ""
        raise error_of(code, text or globals()["strerror"](code).decode())
