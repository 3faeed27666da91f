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
import copy
import sys

import torch
import torch.nn.functional as F

STEPS = 10
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


def put(name, tensor):
    values = tensor.detach().reshape(-1).tolist()
    print(name, len(values), *("%.9g" % v for v in values))


def train(model, optimizer, x, labels, rows, clip):
    losses, norms = [], []
    for step in range(STEPS):
        batch = slice(step * rows, (step + 1) * rows)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x[batch]), labels[batch], ignore_index=-1)
        loss.backward()
        limit = clip if clip > 0 else 1e30
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), limit).item())
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), torch.tensor(norms)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print("# by make_cnn.py with torch", torch.__version__)
    for name, shape, rows, clip, layers in CASES:
        print("layers", name, "channels", shape[0], "height", shape[1], "width", shape[2],
              "count", len(layers),
              *(w for kind, out, kernel, stride, pad, act in layers
                for w in (kind, "out", out, "kernel", kernel, "stride", stride, "pad", pad,
                          "act", act)),
              "rows", rows, "clip", clip)
        model = Cnn(shape, layers)
        x = torch.randn(STEPS * rows, *shape)
        labels = torch.randint(0, layers[-1][1], (STEPS * rows,))
        labels[1::rows] = -1
        put("x", x)
        put("labels", labels)
        for key, value in model.named_parameters():
            put(key, value)
        logits = model(x[:rows])
        loss = F.cross_entropy(logits, labels[:rows], ignore_index=-1)
        loss.backward()
        put("logits", logits)
        put("loss", loss)
        for key, value in model.named_parameters():
            put("grad." + key, value.grad)
        sgd_model, adamw_model = copy.deepcopy(model), copy.deepcopy(model)
        sgd = torch.optim.SGD(sgd_model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        adamw = torch.optim.AdamW(adamw_model.parameters(), lr=0.003, weight_decay=0.01)
        losses, norms = train(sgd_model, sgd, x, labels, rows, clip)
        put("losses.sgd", losses)
        put("norms.sgd", norms)
        losses, _ = train(adamw_model, adamw, x, labels, rows, clip)
        put("losses.adamw", losses)
    return 0


if __name__ == "__main__":
    sys.exit(main())
