"""Ranks train in step; at one step a rank goes wrong, and no rank ever gets on.

usage: ctrun --hang_timeout T [options] planted.py stop | loop | skip | read | loader | behind

The last rank is the one at fault. The line of its hang is marked with the way's name. "behind" needs PyTorch with a
flight recorder for gloo: collectives only begin there, as on a GPU, and all ranks wait at one line; the last one
has left a collective out.
"""
import os
import signal
import sys
import threading

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

STEPS = 6
way = sys.argv[1]


class Numbers(Dataset):
    """The numbers of the steps; of one, the process that loads it waits for a lock that it has."""

    def __init__(self, victim):
        self.victim = victim
        self.lock = threading.Lock()

    def __len__(self):
        return STEPS

    def __getitem__(self, step):
        if self.victim and way == "loader" and step == 3:
            self.lock.acquire()
            self.lock.acquire()  # loader's child
        return torch.tensor(float(step))


def stop():
    os.kill(os.getpid(), signal.SIGSTOP)  # stop


def loop():
    while True: pass  # loop


def read():
    path = os.environ["PLANTED_FIFO"]
    with open(path, encoding="ascii") as source:  # read
        source.read()


def answer_requests(path):
    """Dump the flight recorder at a byte from its pipe, as the monitor of NCCL's groups does."""
    os.mkfifo(path)
    with open(path, "rb") as pipe:
        pipe.read(1)
    torch._C._distributed_c10d._dump_fr_trace_file(dist.get_rank(), includeStackTraces=True)


def lag(victim):
    path = os.environ["TORCH_NCCL_DEBUG_INFO_PIPE_FILE"] + os.environ["RANK"] + ".pipe"
    threading.Thread(target=answer_requests, args=(path,), daemon=True).start()
    begun = []
    for step in range(STEPS):
        os.utime(os.environ["CTRUN_HEARTBEAT_FILE"])
        if victim and step == STEPS - 1:
            break
        begun.append(dist.all_reduce(torch.ones(step), async_op=True))
    threading.Event().wait()  # behind


def train(victim):
    loader = DataLoader(Numbers(victim), batch_size=1, num_workers=1 if way == "loader" else 0)
    for step, value in enumerate(loader):  # loader
        if victim and step == 3 and way in ("stop", "loop", "read"):
            globals()[way]()
        os.utime(os.environ["CTRUN_HEARTBEAT_FILE"])
        if victim and step == 3 and way == "skip":
            continue
        dist.all_reduce(value)
    dist.barrier()  # skip


dist.init_process_group("gloo")
(lag if way == "behind" else train)(dist.get_rank() == dist.get_world_size() - 1)
dist.destroy_process_group()
