#!/usr/bin/python3
"""Write mlp.txt: what PyTorch computes for a few small MLPs, in float32 on the CPU.

usage: apt-get install python3-torch && tests/golden/make_mlp.py > tests/golden/mlp.txt

Lines of the file:
    case NAME input I hidden N W1 .. WN classes C activation A loss L rows R clip M
    NAME COUNT v0 v1 ...        a tensor, row-major
Tensors of a case: x [10 * R, I], labels [10 * R] (-1: does not count), each parameter and, as
"grad.<name>", its gradient for the first R rows; logits [R, C] and loss [1] for them before any
step; losses of ten steps on ten batches with SGD (lr 0.1, momentum 0.9, weight decay 1e-3) and
AdamW (lr 0.01, weight decay 0.01), each from the same start; norms [10] of SGD's gradients before
clipping (clip 0: none).
"""
import functools
import sys

import golden
import torch
import torch.nn.functional as F

CASES = [
    # name, input, hidden, classes, activation, loss, rows, clip
    ("classifier", 5, [], 4, "relu", "cross_entropy", 6, 0.0),
    ("relu", 5, [7, 6], 4, "relu", "cross_entropy", 6, 0.0),
    ("gelu_clipped", 6, [9], 3, "gelu", "cross_entropy", 8, 0.2),
    ("gelu_tanh", 4, [8, 5, 6], 5, "gelu_tanh", "cross_entropy", 5, 0.0),
    ("tanh_mse", 5, [6, 5], 3, "tanh", "mse", 6, 0.0),
    ("relu_mse_clipped", 4, [10], 4, "relu", "mse", 7, 0.1),
]
ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "tanh": torch.tanh,
}


class Mlp(torch.nn.Module):
    def __init__(self, widths, activation):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(i, o) for i, o in zip(widths, widths[1:])
        )
        self.activation = ACTIVATIONS[activation]

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        return self.layers[-1](x)


def loss_of(name, logits, labels):
    if name == "cross_entropy":
        return F.cross_entropy(logits, labels, ignore_index=-1)
    counts = labels >= 0
    target = F.one_hot(labels[counts], logits.shape[1]).to(logits.dtype)
    return F.mse_loss(logits[counts], target)


def main():
    golden.begin("make_mlp.py")
    for name, inputs, hidden, classes, activation, loss_name, rows, clip in CASES:
        print("case", name, "input", inputs, "hidden", len(hidden), *hidden, "classes", classes,
              "activation", activation, "loss", loss_name, "rows", rows, "clip", clip)
        model = Mlp([inputs, *hidden, classes], activation)
        x = torch.randn(golden.STEPS * rows, inputs)
        labels = torch.randint(0, classes, (golden.STEPS * rows,))
        labels[1::rows] = -1
        golden.put_case(model, x, labels, clip, 0.01, functools.partial(loss_of, loss_name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
