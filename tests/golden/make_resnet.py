#!/usr/bin/python3
"""Write resnet.txt: what PyTorch computes for a small residual network with batch norm, in float32 on
the CPU.

usage: apt-get install python3-torch && tests/golden/make_resnet.py > tests/golden/resnet.txt

Lines of the file:
    resnet NAME rows R clip X                                                  (one line)
    NAME COUNT v0 v1 ...        a tensor, row-major
Tensors as in make_cnn.py; logits and loss are those of an evaluation before any step, gradients those
of a training step. All labels count. The running statistics are those after the ten steps with SGD.
The network itself is written once more in tests/unit/exec/test_golden.c.
"""
import sys

import golden
import torch
import torch.nn.functional as F

SHAPE, ROWS, CLASSES = (2, 8, 8), 6, 5


def conv(before, out, kernel, stride=1, pad=0):
    return torch.nn.Conv2d(before, out, kernel, stride, pad, bias=False)


class Residual(torch.nn.Module):
    def __init__(self, body, shortcut=()):
        super().__init__()
        self.body = torch.nn.Sequential(*body)
        self.shortcut = torch.nn.Sequential(*shortcut)

    def forward(self, x):
        return F.relu(self.shortcut(x) + self.body(x))


class ResNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        norm, relu = torch.nn.BatchNorm2d, torch.nn.ReLU
        self.layers = torch.nn.Sequential(
            conv(2, 4, 3, 1, 1), norm(4), relu(),
            Residual([conv(4, 4, 3, 1, 1), norm(4), relu(), conv(4, 4, 3, 1, 1), norm(4)]),
            Residual([conv(4, 6, 3, 2, 1), norm(6, eps=1e-3), relu(), conv(6, 6, 3, 1, 1),
                      norm(6, momentum=0.3)], [conv(4, 6, 1, 2), norm(6)]),
            torch.nn.AvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(6, CLASSES))

    def forward(self, x):
        return self.layers(x)


def main():
    golden.begin("make_resnet.py")
    print("resnet small rows", ROWS, "clip 0.5")
    model = ResNet()
    x = torch.randn(golden.STEPS * ROWS, *SHAPE)
    labels = torch.randint(0, CLASSES, (golden.STEPS * ROWS,))
    golden.put_case(model, x, labels, 0.5, 0.003, F.cross_entropy)
    return 0


if __name__ == "__main__":
    sys.exit(main())
