"""What the ranks of scripts/bench/torch_elastic share: a perceptron, its data, a line for each completed step.

usage: torch_elastic_rank.py FOLDER STEPS                               ctrun's
       torch_elastic_peers.py torchft|torchrun FOLDER STEPS             others'

A line of FOLDER/PID.log: seconds, step, ranks, incarnation of the group that made the step. The last one is "end" and a
digest of the parameters.
"""
import hashlib
import os
import sys
import time

import torch
from torch import nn

FOLDER, STEPS = sys.argv[-2], int(sys.argv[-1])
ROWS, BATCH = 1200, 10
LOG = open(os.path.join(FOLDER, f"{os.getpid()}.log"), "w", buffering=1, encoding="ascii")
torch.set_num_threads(1)
torch.manual_seed(0)
DATA = torch.utils.data.TensorDataset(torch.randn(ROWS, 64), torch.randint(0, 10, (ROWS,)))
NET = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10))
LOSS = nn.CrossEntropyLoss()


def completed(step, world, incarnation):
    LOG.write(f"{time.monotonic()} {step} {world} {incarnation}\n")


def train(model, optimizer, rows, labels):
    optimizer.zero_grad()
    LOSS(model(rows), labels).backward()
    optimizer.step()


def ended():
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in NET.parameters())).hexdigest()[:16]
    LOG.write(f"end {digest}\n")
