"""Ranks that take their time, and none of which hangs: nothing here may be taken for a hang.

usage: ctrun --hang_timeout T [options] patient.py STEPS SECONDS

STEPS steps of DDP on real digits, where each rank waits in one of eight for up to three times the others. In
the middle, all compute for SECONDS without a word (an evaluation); at three quarters, rank 0 writes a
checkpoint that slowly to its disk, while the others wait for it in a barrier.
"""
import os
import random
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist
from digits import load, model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

BASE = 0.002  # seconds of a step without jitter
pause = threading.Event()
steps, seconds = int(sys.argv[1]), float(sys.argv[2])


def evaluate(net, pixels):
    end = time.monotonic() + seconds
    with torch.no_grad():
        while time.monotonic() < end:
            net(pixels)


def checkpoint(net):
    end = time.monotonic() + seconds
    with tempfile.TemporaryFile(dir=".") as file:
        while time.monotonic() < end:
            torch.save(net.state_dict(), file)
            file.flush()
            pause.wait(0.2)  # as a slow disk


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    dice = random.Random(rank)
    pixels, labels = load()
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    for step in range(steps):
        if step == steps // 2:
            evaluate(net.module, pixels)
        if step == steps * 3 // 4:
            if rank == 0:
                checkpoint(net.module)
            dist.barrier()
        pause.wait(BASE * (dice.uniform(1, 3) if dice.random() < 1 / 8 else 1))
        mine = slice(step % 20 * 60 + rank, step % 20 * 60 + 60, world)
        optimizer.zero_grad()
        cross_entropy(net(pixels[mine]), labels[mine]).backward()
        optimizer.step()
        if rank == 0 and step % 50 == 0:
            print("step", step, flush=True)
    if rank == 0:
        print(f"done after {steps} steps", flush=True)


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
