"""A script that opens a TCPStore of its own beside the job's.

usage: ctrun | torchrun [options] own_store.py OUT

Rank 0 serves it on a port of its choice, which the others learn over the job's process group.
OUT gets from rank 0 what the ranks found in both.
"""
import sys
from datetime import timedelta

import torch.distributed as dist

WAIT = timedelta(seconds=120)


def main():
    rank, world = dist.get_rank(), dist.get_world_size()

    port = [None]
    if rank == 0:
        own = dist.TCPStore("127.0.0.1", 0, None, True, WAIT, wait_for_workers=False)
        port = [own.port]
    dist.broadcast_object_list(port, src=0)
    if rank != 0:
        own = dist.TCPStore("127.0.0.1", port[0], None, False, WAIT, wait_for_workers=False)

    # The same key in two stores: neither sees the other's.
    job = dist.distributed_c10d._get_default_store()
    job.set(f"name{rank}", f"job {rank}")
    own.set(f"name{rank}", f"own {rank}")
    neighbour = (rank + 1) % world
    found = [store.get(f"name{neighbour}").decode() for store in (own, job)]
    own.add("arrived", 1)
    everybody = [None] * world
    dist.all_gather_object(everybody, found)
    if rank == 0:
        with open(sys.argv[1], "w", encoding="ascii") as out:
            print(*everybody, own.add("arrived", 0), sep="\n", file=out)
    dist.barrier()


dist.init_process_group("gloo", timeout=WAIT)
main()
dist.destroy_process_group()
