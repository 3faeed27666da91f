#!/usr/bin/python3
"""Write cnn.txt: what PyTorch computes for two small CNNs, in float32 on the CPU.

usage: apt-get install python3-torch && tests/golden/make_cnn.py > tests/golden/cnn.txt

Lines of the file:
    layers NAME channels C height H width W count N [LAYER out O kernel K stride S pad P act A] x N
        rows R clip X                                                              (one line)
    NAME COUNT v0 v1 ...        a tensor, row-major
Tensors of a case, as in make_mlp.py: x [10 * R, C, H, W], labels [10 * R] (-1: does not count), each
parameter and, as "grad.<name>", its gradient for the first R rows; logits and loss for them before any
step; losses of ten steps on ten batches with SGD (lr 0.1, momentum 0.9, weight decay 1e-3) and AdamW
(lr 0.003, weight decay 0.01), each from the same start; norms [10] of SGD's gradients before clipping
(clip 0: none).
"""
import sys

import golden
import torch
import torch.nn.functional as F

NONE = "none"
# kind, out, kernel, stride, pad, act
CASES = [
    ("mnist", (1, 10, 10), 4, 0.0, [
        ("conv", 3, 3, 1, 1, "relu"), ("maxpool", 0, 2, 2, 0, NONE), ("conv", 4, 3, 1, 1, "relu"),
        ("maxpool", 0, 2, 2, 0, NONE), ("flatten", 0, 0, 0, 0, NONE), ("linear", 8, 0, 0, 0, "relu"),
        ("linear", 10, 0, 0, 0, NONE)]),
    ("strides", (3, 9, 7), 3, 0.5, [
        ("conv", 5, 3, 2, 1, "gelu"), ("avgpool", 0, 2, 1, 1, NONE), ("conv", 4, 2, 1, 0, "tanh"),
        ("maxpool", 0, 3, 2, 1, NONE), ("flatten", 0, 0, 0, 0, NONE),
        ("linear", 4, 0, 0, 0, NONE)]),
]
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "tanh": torch.tanh, NONE: lambda x: x}


class Cnn(torch.nn.Module):
    def __init__(self, shape, layers):
        super().__init__()
        self.specs = layers
        self.layers = torch.nn.ModuleList()
        x = torch.zeros(1, *shape)
        for kind, out, kernel, stride, pad, _ in layers:
            self.layers.append(
                torch.nn.Conv2d(x.shape[1], out, kernel, stride, pad) if kind == "conv" else
                torch.nn.MaxPool2d(kernel, stride, pad) if kind == "maxpool" else
                torch.nn.AvgPool2d(kernel, stride, pad) if kind == "avgpool" else
                torch.nn.Flatten() if kind == "flatten" else
                torch.nn.Linear(x.shape[1], out))
            x = self.layers[-1](x)

    def forward(self, x):
        for layer, spec in zip(self.layers, self.specs):
            x = ACTIVATIONS[spec[-1]](layer(x))
        return x


def main():
    golden.begin("make_cnn.py")
    for name, shape, rows, clip, layers in CASES:
        print("layers", name, "channels", shape[0], "height", shape[1], "width", shape[2],
              "count", len(layers),
              *(w for kind, out, kernel, stride, pad, act in layers
                for w in (kind, "out", out, "kernel", kernel, "stride", stride, "pad", pad,
                          "act", act)),
              "rows", rows, "clip", clip)
        model = Cnn(shape, layers)
        x = torch.randn(golden.STEPS * rows, *shape)
        labels = torch.randint(0, layers[-1][1], (golden.STEPS * rows,))
        labels[1::rows] = -1
        golden.put_case(model, x, labels, clip, 0.003,
                        lambda logits, wanted: F.cross_entropy(logits, wanted, ignore_index=-1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
