"""The library's errors as exceptions: the text is its sentence, `code` its number (lib/base/error.def)."""
from __future__ import annotations

import builtins


class Error(RuntimeError):
    """A call of ctrun failed. `code` is the negative code of error.def, 0 where the package itself refused.

    Programs that catch what PyTorch's own backends raise catch RuntimeError.
    """
    code = 0

    def __init__(self, text: str, code: int = 0):
        super().__init__(text)
        self.code = code or type(self).code


class UsageError(Error, ValueError):
    """The call itself was wrong; nothing was started, and the group stays usable."""
    code = -1001


class TimeoutError(Error, builtins.TimeoutError):
    """A member is slow, stuck or never came; the group is broken."""
    code = -1010


class RevokedError(Error):
    """The round is over: a member was lost, or the group was revoked. The group is broken."""
    code = -1015


class ClosedError(Error):
    """A member closed the group, its connection broke, or the job is to stop. The group is broken."""
    code = -1020


class MismatchError(Error):
    """Members called different operations, sizes, types, roots or tags. The group is broken."""
    code = -1019


class UnsupportedError(Error):
    """What was asked for is not possible here."""
    code = -1022


class LimitError(Error):
    """A limit was reached; nothing was started."""
    code = -1017


class DivergedError(Error):
    """Ranks that must hold equal states hold different ones."""
    code = -1014


class FencedError(Error):
    """A publication was refused, because its round is over."""
    code = -1011


class JobError(Error):
    """A job that ctrun.run has started failed: the text is ctrun's final report, `status` its exit status."""
    code = -1023

    def __init__(self, text: str, status: int):
        super().__init__(text)
        self.status = status


_BY_CODE = {kind.code: kind for kind in (UsageError, TimeoutError, RevokedError, ClosedError, MismatchError,
                                         UnsupportedError, LimitError, DivergedError, FencedError)}


def error_of(code: int, text: str) -> Error:
    """Return the exception for a code of the library and its sentence."""
    return _BY_CODE.get(code, Error)(text, code)
