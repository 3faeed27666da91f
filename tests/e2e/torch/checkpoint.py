"""Data-parallel training that goes on from its last checkpoint when it is started anew.

usage: ctrun | torchrun [options] checkpoint.py OUT CHECKPOINT [EPOCH]

With EPOCH the last rank dies in the middle of that epoch when the job has not been restarted yet.
OUT gets from rank 0 the number of epochs that had been found and the model's digest at the end.
"""
import os
import signal
import sys

import torch
import torch.distributed as dist
from digits import digest, load, model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

out, checkpoint = sys.argv[1:3]
dies_in = int(sys.argv[3]) if len(sys.argv) > 3 else None
first_try = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    pixels, labels = load()
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    found = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, map_location="cpu")
        found = state["epochs"]
        net.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])

    for epoch in range(found, 4):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(epoch))
        for step, batch in enumerate(order[: len(labels) // 64 * 64].split(64)):
            if epoch == dies_in and step == 5 and first_try and rank == world - 1:
                os.kill(os.getpid(), signal.SIGKILL)
            mine = batch[rank::world]
            optimizer.zero_grad()
            cross_entropy(net(pixels[mine]), labels[mine]).backward()
            optimizer.step()
        if rank == 0:
            torch.save({"epochs": epoch + 1, "model": net.state_dict(),
                        "optimizer": optimizer.state_dict()}, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
        dist.barrier()

    if rank == 0:
        with open(out, "w", encoding="ascii") as file:
            print(f"found {found}", digest(net), sep="\n", file=file)


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
