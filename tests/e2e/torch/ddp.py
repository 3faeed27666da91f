"""Data-parallel training: three epochs of digits.

usage: ctrun | torchrun [options] ddp.py OUT

OUT gets from rank 0: the loss of each epoch, the accuracy, the model's digest on every rank.
"""
import sys

import torch
import torch.distributed as dist
from digits import digest, load, model
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def main():
    pixels, labels = load()
    data = TensorDataset(pixels, labels)
    sampler = DistributedSampler(data, seed=7)
    loader = DataLoader(data, batch_size=64 // dist.get_world_size(), sampler=sampler, drop_last=True)
    net = DistributedDataParallel(model())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2, momentum=0.9)
    lines = []

    for epoch in range(3):
        sampler.set_epoch(epoch)
        total = torch.zeros(())
        for x, y in loader:
            optimizer.zero_grad()
            loss = cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.detach()
        dist.all_reduce(total)
        lines.append(f"epoch {epoch} loss {total.item() / len(loader) / dist.get_world_size():.6f}")

    accuracy = (net(pixels).argmax(1) == labels).double().mean().item()
    digests = [None] * dist.get_world_size()
    dist.all_gather_object(digests, digest(net))
    if dist.get_rank() == 0:
        with open(sys.argv[1], "w", encoding="ascii") as out:
            print(*lines, f"accuracy {accuracy:.4f}", *digests, sep="\n", file=out)


dist.init_process_group("gloo")
main()
dist.destroy_process_group()
