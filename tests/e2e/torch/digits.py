"""What the training scripts here share: real digits, a small model, a digest of a model's bits."""
import gzip
import hashlib
import os

import torch

# Imported before there is a process group: the defaults of its functions' arguments would keep that
# group, and PyTorch aborts when a thread of gloo drops a tensor while the interpreter ends (#190489).
import torch.distributed.nn
from torch import nn

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../configs/data/digits.csv.gz")


def load():
    """1797 handwritten digits: pixels between 0 and 1, and labels."""
    with gzip.open(DATA, "rt") as lines:
        rows = torch.tensor([[float(cell) for cell in line.split(",")] for line in lines])
    return rows[:, :-1] / 16, rows[:, -1].long()


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))


def digest(module):
    """The same text for the same parameters, bit for bit."""
    bits = b"".join(p.detach().contiguous().numpy().tobytes() for p in module.parameters())
    return hashlib.sha256(bits).hexdigest()[:16]
