"""Sharded training (FSDP2) on CPUs, where this PyTorch can.

usage: ctrun | torchrun [options] fsdp.py OUT

OUT gets from rank 0 the losses, and how many of the parameters' rows each rank holds; or "not here".
"""
import sys

import torch
import torch.distributed as dist
from digits import load, model
from torch.nn.functional import cross_entropy

try:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
except ImportError:
    fully_shard = None


def main():
    rank, world = dist.get_rank(), dist.get_world_size()
    lines = ["not here"]
    if fully_shard is not None:
        pixels, labels = load()
        net = model()
        # A group of its own: DTensor's caches keep the mesh, and so its group's threads, to the
        # interpreter's end. What ends this script runs in the default group, which ends with main.
        mesh = DeviceMesh.from_group(dist.new_group(), "cpu")
        for layer in (net[0], net[2], net):
            fully_shard(layer, mesh=mesh)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
        lines = []
        for step in range(10):
            batch = slice(64 * step + rank, 64 * (step + 1), world)
            optimizer.zero_grad()
            loss = cross_entropy(net(pixels[batch]), labels[batch])
            loss.backward()
            optimizer.step()
            total = loss.detach()
            dist.all_reduce(total)
            lines.append(f"step {step} loss {total.item() / world:.6f}")
        rows = [None] * world
        dist.all_gather_object(rows, [p.to_local().shape[0] for p in net.parameters()])
        lines += map(str, rows)
    if rank == 0:
        with open(sys.argv[1], "w", encoding="ascii") as out:
            print(*lines, sep="\n", file=out)


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
