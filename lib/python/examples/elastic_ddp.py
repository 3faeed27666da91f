"""PyTorch's DistributedDataParallel tutorial, made elastic in the five lines that are numbered.

    ctrun --nproc_per_node 2 --max_restarts 5 lib/python/examples/elastic_ddp.py [FOLDER]
    kill -9 one of its ranks while it runs: the others keep their processes, a new one joins, the result is the same
    Ctrl-C: all ranks stop before the same step and save in FOLDER; the same command goes on from there

Needs PyTorch, on CPUs. The model learns which of ten random directions a point is closest to.
"""
import sys

import ctrun.torch  # 1
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

EPOCHS, BATCH = 4, 64


def make_data(rows=8192):
    random = torch.Generator().manual_seed(1)
    centres, points = torch.randn(10, 32, generator=random), torch.randn(rows, 32, generator=random)
    return TensorDataset(points, (points @ centres.T).argmax(1))


def main():
    ctrun.torch.init_process_group("ctrun")  # 2 instead of torch.distributed's
    torch.manual_seed(0)
    data = make_data()
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, 128), nn.ReLU(), nn.Linear(128, 10)))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    sampler = ctrun.torch.Sampler(data, BATCH, seed=0)  # 3 instead of DistributedSampler
    loader = DataLoader(data, BATCH, sampler=sampler)
    loss = nn.CrossEntropyLoss()
    with ctrun.torch.Elastic(model, optimizer, sampler=sampler,
                             checkpoint=sys.argv[1] if len(sys.argv) > 1 else None) as job:  # 4
        for points, labels in job.steps(loader, epochs=EPOCHS):  # 5 instead of two loops
            optimizer.zero_grad()
            loss(model(points), labels).backward()
            optimizer.step()
        if job.rank == 0 and not job.should_stop:
            with torch.no_grad():
                right = (model.module(data.tensors[0]).argmax(1) == data.tensors[1]).float().mean()
            print(f"after {job.step} steps {100 * right:.1f} % of the points are recognised")


main()
