"""Symmetric memory: arrays that the other ranks of the node read and write in place (ctrun.h, part "memory")."""
from __future__ import annotations

import weakref
from ctypes import byref, c_char, c_void_p

from . import _abi
from .errors import error_of


class Memory:
    """`nbytes` of zeroed symmetric memory; a buffer, freed when nothing refers to it any more.

    Calls that are given arrays in it, at every member, copy nothing. It outlives groups and rounds.
    """

    def __init__(self, job, nbytes: int):
        address, error = c_void_p(), _abi.ErrorText()
        code = _abi.mem_alloc(job.handle, nbytes, byref(address), byref(error))
        if code != 0:
            raise error_of(code, error.text.decode(errors="replace"))
        self.nbytes = nbytes
        # Each array refers to the block, and the block's end frees the memory.
        self._block = (c_char * nbytes).from_address(address.value)
        job.keep_memory()
        weakref.finalize(self._block, job.free_memory, address.value).atexit = False

    def numpy(self, dtype="float32", shape=None, offset: int = 0):
        """Return a NumPy array over this memory, from byte `offset` on; flat without a shape."""
        import numpy  # the user's

        flat = numpy.frombuffer(self._block, dtype=dtype, offset=offset,
                                count=-1 if shape is None else int(numpy.prod(shape)))
        return flat if shape is None else flat.reshape(shape)

    def torch(self, dtype=None, shape=None, offset: int = 0):
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
