"""Collectives, groups, objects and barriers over gloo.

usage: ctrun | torchrun [options] groups.py OUT

OUT gets from rank 0 what every rank has seen, a line each.
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    assert [rank, world] == [int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])]
    seen = [f"rank {rank} of {world}"]

    numbers = torch.arange(4.0) + rank
    dist.all_reduce(numbers)
    seen.append(f"sum {numbers.tolist()}")

    word = [f"from {rank}"]
    dist.broadcast_object_list(word, src=world - 1)
    seen.append(f"word {word[0]}")

    # Every rank makes every group, and uses its own.
    halves = [dist.new_group(list(range(parity, world, 2))) for parity in (0, 1)]
    half = halves[rank % 2]
    value = torch.tensor([float(rank)])
    dist.all_reduce(value, group=half)
    seen.append(f"half {dist.get_rank(half)} of {dist.get_world_size(half)}: {value.item()}")
    dist.barrier(group=half)

    everybody = [None] * world
    dist.all_gather_object(everybody, {"rank": rank, "local": int(os.environ["LOCAL_RANK"])})
    seen.append(f"objects {everybody}")

    left, right = (rank - 1) % world, (rank + 1) % world
    box = torch.zeros(1)
    request = dist.isend(torch.tensor([float(rank)]), right)
    dist.recv(box, left)
    request.wait()
    seen.append(f"from the left {box.item()}")

    dist.barrier()
    dist.monitored_barrier(timeout=timedelta(seconds=120), wait_all_ranks=True)

    reports = [None] * world if rank == 0 else None
    dist.gather_object(seen, reports, dst=0)
    if rank == 0:
        with open(sys.argv[1], "w", encoding="ascii") as out:
            for report in reports:
                print("; ".join(report), file=out)


dist.init_process_group("gloo", timeout=timedelta(seconds=120))
main()
dist.destroy_process_group()
