"""Remote procedure calls, met over env://.

usage: ctrun | torchrun [options] rpc.py OUT

OUT gets from rank 0 what the others answered.
"""
import os
import sys

import torch
import torch.distributed.rpc as rpc

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def where(offset):
    return rpc.get_worker_info().name, rank + offset


rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world)
if rank == 0:
    lines = []
    for other in range(1, world):
        name = f"worker{other}"
        lines.append(f"sync {rpc.rpc_sync(name, where, args=(10,))}")
        future = rpc.rpc_async(name, torch.add, args=(torch.ones(2), other))
        lines.append(f"async {future.wait().tolist()}")
        reference = rpc.remote(name, torch.full, args=((3,), float(other)))
        lines.append(f"remote {reference.to_here().tolist()}")
    with open(sys.argv[1], "w", encoding="ascii") as out:
        print(*lines, sep="\n", file=out)
rpc.shutdown()
