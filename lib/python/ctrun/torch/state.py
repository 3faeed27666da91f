"""The state of a training as named objects with state_dict() and load_state_dict(): its digest, and how a rank gets it.

A state is packed into a skeleton, in which each tensor is a Slot, and the list of its tensors.
"""
from __future__ import annotations

import pickle
from ctypes import string_at

import torch

from .. import _abi
from ..group import Group

_CHUNK = 16 << 20  # bytes of small tensors that are sent together


class Slot:
    """Stands for a tensor in a skeleton."""
    __slots__ = ("index", "shape", "dtype")

    def __init__(self, index: int, tensor: torch.Tensor):
        self.index, self.shape, self.dtype = index, tuple(tensor.shape), tensor.dtype


def _pack(value, tensors: list[torch.Tensor]):
    if isinstance(value, torch.Tensor):
        tensors.append(value.detach())
        return Slot(len(tensors) - 1, value)
    if isinstance(value, dict):
        return {key: _pack(inner, tensors) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_pack(inner, tensors) for inner in value) if type(value) in (list, tuple) else value
    return value


def _unpack(value, tensors: list[torch.Tensor]):
    if isinstance(value, Slot):
        return tensors[value.index]
    if isinstance(value, dict):
        return {key: _unpack(inner, tensors) for key, inner in value.items()}
    if type(value) in (list, tuple):
        return type(value)(_unpack(inner, tensors) for inner in value)
    return value


def _words(value) -> str:
    """What a digest sees of a skeleton: the same text for equal states in all processes."""
    if isinstance(value, Slot):
        return f"{value.dtype}{value.shape}"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{_words(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_words, value)) + "]"
    if value is None or isinstance(value, (bool, int, float, str, bytes)):
        return repr(value)
    return type(value).__name__


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's elements in the host's memory, as bytes; a view where possible."""
    return tensor.cpu().contiguous().view(-1).view(torch.uint8)


def _chunks(slots: list[tuple[tuple, torch.dtype]]) -> list[tuple[int, int, int]]:
    """Divide tensors into chunks of about _CHUNK bytes: (first, behind the last, bytes)."""
    chunks, first, held = [], 0, 0
    for i, (shape, dtype) in enumerate(slots):
        nbytes = torch.empty(0, dtype=dtype).element_size()
        for extent in shape:
            nbytes *= extent
        if held > 0 and held + nbytes > _CHUNK:
            chunks.append((first, i, held))
            first, held = i, 0
        held += nbytes
    if held > 0:
        chunks.append((first, len(slots), held))
    return chunks


class State:
    """Objects of a training by their names. Those of all ranks are the same."""

    def __init__(self, parts: dict[str, object]):
        for name, part in parts.items():
            for method in ("state_dict", "load_state_dict"):
                if not callable(getattr(part, method, None)):
                    raise TypeError(f"state {name!r} is a {type(part).__name__} without {method}()")
        self._parts = parts

    def state_dict(self) -> dict:
        """Return all parts' states, by their names."""
        return {name: part.state_dict() for name, part in self._parts.items()}

    def load_state_dict(self, states: dict) -> None:
        """Give each part its state. KeyError when one is missing."""
        for name, part in self._parts.items():
            part.load_state_dict(states[name])

    def _shared(self) -> dict:
        """What all ranks have alike: all but buffers, as those of batch norm are each rank's own."""
        states = self.state_dict()
        for name, part in self._parts.items():
            if isinstance(part, torch.nn.Module):
                own = {buffer for buffer, _ in part.named_buffers()}
                states[name] = {key: value for key, value in states[name].items() if key not in own}
        return states

    def digest(self) -> int:
        """Return 64 bits that equal states have in common."""
        tensors: list[torch.Tensor] = []
        words = _words(_pack(self._shared(), tensors)).encode()
        digest = _abi.digest(words, len(words), 0)
        for tensor in tensors:
            data = _bytes_of(tensor)
            digest = _abi.digest(data.data_ptr(), data.numel(), digest)
        return digest

    def broadcast(self, group: Group, base: int) -> None:
        """Collective: send the state of rank `base`; the others load it once they have all of it."""
        tensors: list[torch.Tensor] = []
        size = torch.zeros(1, dtype=torch.int64)
        if group.rank == base:
            skeleton = _pack(self.state_dict(), tensors)
            slots = [(tuple(tensor.shape), tensor.dtype) for tensor in tensors]
            head = torch.frombuffer(bytearray(pickle.dumps((skeleton, slots))), dtype=torch.uint8)
            size[0] = head.numel()
        group.broadcast(size, base)
        if group.rank != base:
            head = torch.empty(int(size), dtype=torch.uint8)
        group.broadcast(head, base)
        if group.rank != base:
            # Members of a job trust each other with code, as in PyTorch's object collectives.
            skeleton, slots = pickle.loads(string_at(head.data_ptr(), head.numel()))
            tensors = [torch.empty(shape, dtype=dtype) for shape, dtype in slots]
        for first, last, nbytes in _chunks(slots):
            self._broadcast_chunk(group, base, tensors[first:last], nbytes)
        if group.rank != base:
            self.load_state_dict(_unpack(skeleton, tensors))

    @staticmethod
    def _broadcast_chunk(group: Group, base: int, tensors: list[torch.Tensor], nbytes: int) -> None:
        chunk, at = torch.empty(nbytes, dtype=torch.uint8), 0
        if group.rank == base:
            chunk = torch.cat([_bytes_of(tensor) for tensor in tensors])
        group.broadcast(chunk, base)
        if group.rank == base:
            return
        for tensor in tensors:
            size = tensor.numel() * tensor.element_size()
            tensor.copy_(chunk[at:at + size].clone().view(tensor.dtype).view(tensor.shape))
            at += size
