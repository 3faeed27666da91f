"""A sampler whose whole state is one integer: which samples a rank takes follows from the position, seed and world.

An epoch visits the samples in the order of a permutation keyed by seed and epoch (lib/data/sampler.h: a Feistel network
over the next power of four, walked until it falls below n), so a training in PyTorch sees the order of one in C, on any
number of ranks, and goes on at the exact sample on another number.
"""
from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler as _Sampler

_ROUNDS = 6
_AT_ONCE = 4096


def _signed(value: int) -> int:
    return value - (1 << 64) if value >= 1 << 63 else value


def _shift(value: torch.Tensor, bits: int) -> torch.Tensor:
    """Shift 64-bit words right and fill with zeros."""
    return (value >> bits) & ((1 << (64 - bits)) - 1)


def _mix(value: torch.Tensor) -> torch.Tensor:
    """splitmix64's finaliser of 64-bit words (ct_mix64)."""
    value = (value ^ _shift(value, 30)) * _signed(0xBF58476D1CE4E5B9)
    value = (value ^ _shift(value, 27)) * _signed(0x94D049BB133111EB)
    return value ^ _shift(value, 31)


def permute(index: torch.Tensor, n: int, key: int) -> torch.Tensor:
    """Return the places of indices (int64, each < n) in a permutation of 0 .. n-1 (ct_permute)."""
    half = 1
    while 1 << 2 * half < n:
        half += 1
    mask = (1 << half) - 1
    value, outside = index.clone(), torch.ones_like(index, dtype=torch.bool)
    while bool(outside.any()):
        left, right = value[outside] >> half, value[outside] & mask
        for round_ in range(_ROUNDS):
            mixed = _mix(_signed(key) ^ _mix(right + (round_ << 48) + 1)) & mask
            left, right = right, left ^ mixed
        value[outside] = left << half | right
        outside = value >= n
    return value


class Sampler(_Sampler):
    """For DataLoader(dataset, batch_size, sampler=Sampler(dataset, batch_size)): this rank's samples of each batch.

    `data` is a dataset or the number of its samples. A step takes batch_size samples at each of the ranks; `position`
    counts the samples that all ranks have taken since the start, and Elastic moves it with each completed step. The
    last step of an epoch is filled up from the epoch's start (drop_last: it is left out), as DistributedSampler does.
    """

    def __init__(self, data: Sized | int, batch_size: int, *, seed: int = 0, shuffle: bool = True,
                 drop_last: bool = False, rank: int = 0, world: int = 1):
        self.rows = data if isinstance(data, int) else len(data)
        if self.rows < 1 or batch_size < 1:
            raise ValueError(f"{self.rows} samples in batches of {batch_size}: both must be positive")
        self.batch_size, self.seed, self.shuffle, self.drop_last = batch_size, seed, shuffle, drop_last
        self.rank, self.world = rank, world
        self.position = 0

    @property
    def epoch(self) -> int:
        """The epoch of the position, from 0."""
        return self.position // self.rows

    def next_position(self) -> int:
        """Return the position after the step at this one."""
        offset, taken = self.position % self.rows, self.batch_size * self.world
        left = self.rows - offset - taken
        ends = left <= 0 or (self.drop_last and left < taken)
        return self.position - offset + self.rows if ends else self.position + taken

    def _steps_left(self) -> int:
        left, taken = self.rows - self.position % self.rows, self.batch_size * self.world
        return left // taken if self.drop_last else -(-left // taken)

    def __len__(self) -> int:
        return self._steps_left() * self.batch_size

    def __iter__(self) -> Iterator[int]:
        """This rank's samples from the position to the end of the epoch."""
        epoch, taken = self.epoch, self.batch_size * self.world
        key = int(_mix(torch.tensor(_signed(self.seed & (1 << 64) - 1))
                       ^ _mix(torch.tensor(epoch + 1))))
        left, start = self._steps_left(), self.position % self.rows + self.rank * self.batch_size
        while left > 0:  # some thousand samples at once cost little more than one
            steps = min(left, max(1, _AT_ONCE // self.batch_size))
            index = (start + taken * torch.arange(steps).unsqueeze(1) + torch.arange(self.batch_size)) % self.rows
            index = index.view(-1)
            yield from (permute(index, self.rows, key) if self.shuffle else index).tolist()
            start, left = start + taken * steps, left - steps

    def state_dict(self) -> dict:
        """The position, and what gives it a meaning."""
        return {"position": self.position, "seed": self.seed, "rows": self.rows}

    def load_state_dict(self, state: dict) -> None:
        """Go on at a position. ValueError when it is one of other data."""
        if state["rows"] != self.rows or state["seed"] != self.seed:
            raise ValueError(f"the state is of {state['rows']} samples with seed {state['seed']}, and this sampler has "
                             f"{self.rows} with seed {self.seed}")
        self.position = state["position"]
