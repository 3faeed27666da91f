"""Where the elements of an array lie: PyTorch tensors, NumPy arrays (anything with __array_interface__), buffers.

Neither PyTorch nor NumPy is imported. Nothing is copied: arrays must be contiguous and in the host's memory.
"""
from __future__ import annotations

import ctypes

from .errors import UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Array = Any  # what view() takes

# As in lib/base/number/dtype.def: the order is the number.
DTYPES = ("F32", "F64", "BF16", "F16", "I64", "I32", "I16", "I8", "U8", "BOOL")
SIZES = (4, 8, 2, 2, 8, 4, 2, 1, 1, 1)
FLOATS = range(4)

_TORCH = {"torch.float32": 0, "torch.float64": 1, "torch.bfloat16": 2, "torch.float16": 3, "torch.int64": 4,
          "torch.int32": 5, "torch.int16": 6, "torch.int8": 7, "torch.uint8": 8, "torch.bool": 9}
_NUMPY = {"<f4": 0, "<f8": 1, "<f2": 3, "<i8": 4, "<i4": 5, "<i2": 6, "|i1": 7, "|u1": 8, "|b1": 9, "|S1": 8}
_FORMATS = {"f": 0, "d": 1, "e": 3, "q": 4, "l": 4, "i": 5, "h": 6, "b": 7, "B": 8, "c": 8, "?": 9}
_torch_dtypes: dict[object, int] = {}  # by torch.dtype, filled as they are met


class View:
    """`count` elements of `dtype` (an index of DTYPES) at `address`; `owner` keeps them alive."""
    __slots__ = ("address", "count", "dtype", "owner")

    def __init__(self, address: int, count: int, dtype: int, owner: object):
        self.address, self.count, self.dtype, self.owner = address, count, dtype, owner


def _unknown(name: object) -> UsageError:
    return UsageError(f"elements of type {name} cannot be sent: ctrun has {', '.join(DTYPES)}")


def _of_tensor(tensor: Any) -> View:
    dtype = _torch_dtypes.get(tensor.dtype)
    if dtype is None:
        dtype = _TORCH.get(str(tensor.dtype))
        if dtype is None:
            raise _unknown(tensor.dtype)
        _torch_dtypes[tensor.dtype] = dtype
    if not tensor.is_cpu:
        raise UsageError(f"a tensor on {tensor.device}: ctrun's groups take tensors of the CPU; in PyTorch, combine "
                         'the backends: init_process_group("cpu:ctrun,cuda:nccl")')
    if tensor.is_sparse:
        raise UsageError(f"a sparse tensor of shape {tuple(tensor.shape)}: pass tensor.to_dense()")
    if not tensor.is_contiguous():
        raise UsageError(f"a tensor of shape {tuple(tensor.shape)} that is not contiguous: pass tensor.contiguous()")
    return View(tensor.data_ptr(), tensor.numel(), dtype, tensor)


def _of_interface(array: Any, interface: dict[str, Any], writable: bool) -> View:
    address, readonly = interface["data"]
    dtype = _NUMPY.get(interface["typestr"])
    count = 1
    for extent in interface["shape"]:
        count *= extent
    if dtype is None:
        raise _unknown(interface["typestr"])
    if interface.get("strides") is not None and count > 1:
        raise UsageError(f"an array of shape {interface['shape']} that is not contiguous: pass "
                         "numpy.ascontiguousarray(a)")
    if readonly and writable:
        raise UsageError("an array that cannot be written is to receive data: pass a copy")
    return View(address, count, dtype, array)


def _of_buffer(data: Any, writable: bool) -> View:
    try:
        memory = memoryview(data)
    except TypeError:
        raise UsageError(f"{type(data).__name__} is no array: pass a tensor, a NumPy array or a buffer") from None
    if not memory.c_contiguous:
        raise UsageError("a buffer that is not contiguous: pass a copy")
    dtype = _FORMATS.get(memory.format.lstrip("@=<"))
    if dtype is None:
        raise _unknown(memory.format)
    count = memory.nbytes // SIZES[dtype]
    if memory.readonly:
        if writable:
            raise UsageError(f"{type(data).__name__} cannot be written, and is to receive data: pass a bytearray")
        held = ctypes.create_string_buffer(memory.tobytes(), max(memory.nbytes, 1))
    else:
        held = (ctypes.c_char * memory.nbytes).from_buffer(memory.cast("B") if memory.nbytes else bytearray(1))
    return View(ctypes.addressof(held), count, dtype, (data, held))


def view(array: Array, writable: bool = True) -> View:
    """Return where an array lies. UsageError when it cannot be used as it is."""
    if hasattr(array, "data_ptr"):
        return _of_tensor(array)
    interface = getattr(array, "__array_interface__", None)
    if interface is not None:
        return _of_interface(array, interface, writable)
    return _of_buffer(array, writable)
