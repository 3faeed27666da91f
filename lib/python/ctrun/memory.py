"""Symmetric memory: arrays that the other ranks of the node read and write in place (ctrun.h, part "memory")."""
from __future__ import annotations

import weakref
from ctypes import byref, c_char, c_void_p

from . import _abi

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .job import Job


class Memory:
    """`nbytes` of zeroed symmetric memory; a buffer, freed when nothing refers to it any more.

    Calls that are given arrays in it, at every member, copy nothing. It outlives groups and rounds.
    """

    def __init__(self, job: Job, nbytes: int):
        block, error = c_void_p(), _abi.ErrorText()
        _abi.check(_abi.mem_alloc(job.handle, nbytes, byref(block), byref(error)), error)
        self.nbytes = nbytes
        address = block.value or 0
        # Each array refers to the block, and the block's end frees the memory.
        self._block = (c_char * nbytes).from_address(address)
        job.keep_memory()
        weakref.finalize(self._block, job.free_memory, address).atexit = False

    def numpy(self, dtype: Any = "float32", shape: Sequence[int] | None = None, offset: int = 0) -> Any:
        """Return a NumPy array over this memory, from byte `offset` on; flat without a shape."""
        import numpy  # the user's

        flat = numpy.frombuffer(self._block, dtype=dtype, offset=offset,
                                count=-1 if shape is None else int(numpy.prod(shape)))
        return flat if shape is None else flat.reshape(shape)

    def torch(self, dtype: Any = None, shape: Sequence[int] | None = None, offset: int = 0) -> Any:
        """Return a PyTorch tensor over this memory, from byte `offset` on; flat without a shape."""
        import torch  # the user's

        dtype = dtype or torch.float32
        count = -1
        if shape is not None:
            count = 1
            for extent in shape:
                count *= extent
        flat = torch.frombuffer(self._block, dtype=dtype, offset=offset, count=count)
        return flat if shape is None else flat.view(shape)

    def __len__(self) -> int:
        return self.nbytes
