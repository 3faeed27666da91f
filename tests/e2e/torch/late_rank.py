"""A worker crashes; after the restart one rank comes to the meeting later than the others.

usage: ctrun | torchrun --max_restarts 1 [options] late_rank.py OUT

Whoever comes first must not meet what the first attempt has left in the store. OUT gets from rank 0
the sum over the ranks.
"""
import os
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist

first_try = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if not first_try and os.environ["RANK"] == "1":
    threading.Event().wait(1.5)  # late, as with a slow disk


def main():
    total = torch.ones(1)
    dist.all_reduce(total)
    if first_try and dist.get_rank() == 1:
        sys.exit(3)
    dist.barrier()
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w", encoding="ascii") as out:
            print(f"sum {total.item()}", file=out)


dist.init_process_group("gloo", timeout=timedelta(seconds=120))
main()
dist.destroy_process_group()
