"""A script whose main function torchelastic records: its exception goes to the error file.

usage: ctrun | torchrun [options] record.py

Rank 1 fails; the others wait for it and are stopped.
"""
import threading

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise ValueError("the learning rate is a banana")
    threading.Event().wait()


main()
