"""The peer of scripts/bench/train: the same perceptron under PyTorch DDP with gloo.

usage: torchrun.py --standalone --nproc_per_node N train_torch.py STEPS BATCH WIDTH...
Random data in memory, AdamW, `BATCH` rows a worker; prints steps a second of the last 80 % of STEPS.
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

steps, batch, *widths = (int(word) for word in sys.argv[1:])
torch.set_num_threads(1)
torch.manual_seed(1)
layers = []
for i in range(len(widths) - 1):
    layers.append(nn.Linear(widths[i], widths[i + 1]))
    if i + 2 < len(widths):
        layers.append(nn.ReLU())
model = nn.Sequential(*layers)
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loss_of = nn.CrossEntropyLoss()
x = torch.rand(64, batch, widths[0])
labels = torch.randint(widths[-1], (64, batch))
warm = steps // 5
for step in range(steps):
    if step == warm:
        start = time.monotonic()
    optimizer.zero_grad(set_to_none=True)
    loss_of(model(x[step % 64]), labels[step % 64]).backward()
    optimizer.step()
if int(os.environ.get("RANK", "0")) == 0:
    print("steps/s", (steps - warm) / (time.monotonic() - start), flush=True)
