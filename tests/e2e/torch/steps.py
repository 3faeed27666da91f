"""Data-parallel training without an end, whose steps can be followed from outside.

usage: ctrun [options] steps.py          STEPS_FOLDER=FOLDER in the environment

Rank 0 writes to FOLDER/metrics.jsonl when each step has ended, as ctworker does, and a checkpoint every
20 steps, from which all go on when they are started anew.
"""
import json
import os
import time

import torch
import torch.distributed as dist
from digits import load, model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

EVERY = 20
folder = os.environ["STEPS_FOLDER"]
checkpoint = os.path.join(folder, "model.pt")


def save(net, optimizer, step):
    torch.save({"step": step, "model": net.state_dict(), "optimizer": optimizer.state_dict()}, checkpoint + ".new")
    os.replace(checkpoint + ".new", checkpoint)


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    pixels, labels = load()
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, map_location="cpu")
        step = state["step"]
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    with open(os.path.join(folder, "metrics.jsonl"), "a", encoding="ascii", buffering=1) as metrics:
        while True:
            step += 1
            mine = slice(step % 20 * 60 + rank, step % 20 * 60 + 60, world)
            optimizer.zero_grad()
            cross_entropy(net(pixels[mine]), labels[mine]).backward()
            optimizer.step()
            if rank == 0:
                print(json.dumps({"kind": "train", "step": step, "time": time.time()}, separators=(",", ":")),
                      file=metrics)
                if step % EVERY == 0:
                    save(net, optimizer, step)


dist.init_process_group("gloo")
main()
