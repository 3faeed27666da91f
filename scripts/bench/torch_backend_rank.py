"""A rank of scripts/bench/torch_backend: gloo, ctrun and "nothing" take turns in one job, on one group each.

usage: ctrun --nproc_per_node 2 torch_backend_rank.py REPEATS       rank 0 prints a line of JSON

"nothing" is backend ctrun whose large all-reduces move nothing: what it takes is DDP's and PyTorch's own. "tiny" moves 8
bytes instead, so that ranks wait for each other as with any backend. In "single"
each rank trains over gloo's group of itself, both at once: a backend in C++ that has nothing to send.
"""
import functools
import json
import statistics
import sys
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ctrun.torch
from ctrun.torch import process_group
from ctrun.torch.work import Work

warnings.simplefilter("ignore")
REPEATS = int(sys.argv[1])
STEPS, CALLS = 100, {8: 500, 1 << 16: 200, 1 << 20: 40, 1 << 24: 4}  # of one turn
SMALL = 1 << 10  # elements that "nothing" still reduces


class Nothing(process_group.ProcessGroup):
    """Moves no large tensor of an all-reduce."""

    def allreduce(self, tensors, opts=None):
        if tensors[0].numel() <= SMALL:
            return super().allreduce(tensors, opts)
        return self._handed(Work(self, (), tensors))


class Tiny(process_group.ProcessGroup):
    """Moves 8 bytes of a large tensor of an all-reduce."""
    few = torch.zeros(2)

    def allreduce(self, tensors, opts=None):
        if tensors[0].numel() <= SMALL:
            return super().allreduce(tensors, opts)
        return self._handed(Work(self, (self._group.all_reduce(self.few, wait=False),), tensors))


def create(kind, options, more):
    """A group of that kind."""
    kept, process_group.ProcessGroup = process_group.ProcessGroup, kind
    try:
        return process_group._create(options, more)
    finally:
        process_group.ProcessGroup = kept


def single():
    """gloo's group of this rank alone."""
    return [dist.new_group([rank], backend="gloo") for rank in range(dist.get_world_size())][dist.get_rank()]


def trainer(group, rank):
    """A function that trains for a turn, and returns steps a second; without a group by this process alone."""
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
    net = DistributedDataParallel(net, process_group=group) if group is not None else net
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rows, labels = torch.randn(64, 64), torch.randint(0, 10, (64,))

    def turn():
        begin = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(rows), labels).backward()
            optimizer.step()
        return STEPS / (time.perf_counter() - begin)
    return turn


def reducer(group, size):
    """A function that makes the all-reduces of a turn, and returns microseconds a call."""
    x = torch.zeros(size // 4)

    def turn():
        begin = time.perf_counter()
        for _ in range(CALLS[size]):
            dist.all_reduce(x, group=group)
        return (time.perf_counter() - begin) * 1e6 / CALLS[size]
    return turn


def alternating(turns):
    """The median of each, of turns that follow each other; the first round does not count."""
    found = {name: [] for name in turns}
    for _ in range(REPEATS + 1):
        for name, turn in turns.items():
            dist.barrier()
            found[name].append(turn())
    return {name: statistics.median(values[1:]) for name, values in found.items()}


def alone(rank):
    """A turn of rank 0, while the others wait."""
    turn = trainer(None, rank)

    def measured():
        rate = turn() if rank == 0 else 0.0
        dist.barrier()
        return rate
    return measured


def main():
    rank = dist.get_rank()
    groups = {"gloo": dist.new_group(backend="gloo"), "ctrun": dist.group.WORLD, "nothing": dist.new_group(backend="nothing"),
              "tiny": dist.new_group(backend="tiny"), "single": single()}
    turns = {name: trainer(group, rank) for name, group in groups.items()}
    result = {"torch": torch.__version__, "ddp": alternating({**turns, "alone": alone(rank)}), "all_reduce": {}}
    for size in CALLS:
        peers = {name: reducer(groups[name], size) for name in ("gloo", "ctrun")}
        result["all_reduce"][size] = alternating(peers)
    if rank == 0:
        print(json.dumps(result), flush=True)


for name, kind in {"nothing": Nothing, "tiny": Tiny}.items():
    try:
        dist.Backend.register_backend(name, functools.partial(create, kind), extended_api=True, devices=["cpu"])
    except TypeError:  # before PyTorch 2.0
        dist.Backend.register_backend(name, functools.partial(create, kind), extended_api=True)
dist.init_process_group("ctrun")
main()
dist.destroy_process_group()
