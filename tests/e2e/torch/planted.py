"""Ranks train in step; at one step a rank goes wrong, and no rank ever gets on.

usage: ctrun --hang_timeout T [options] planted.py stop | loop | skip | read | loader

The last rank is the one at fault. The line of its hang is marked with the way's name.
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
train(dist.get_rank() == dist.get_world_size() - 1)
dist.destroy_process_group()
