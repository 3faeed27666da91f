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
import copy
import sys

import torch
import torch.nn.functional as F

STEPS = 10
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


def put(name, tensor):
    values = tensor.detach().reshape(-1).tolist()
    print(name, len(values), *("%.9g" % v for v in values))


def train(model, optimizer, loss_name, x, labels, rows, clip):
    losses, norms = [], []
    for step in range(STEPS):
        batch = slice(step * rows, (step + 1) * rows)
        optimizer.zero_grad()
        loss = loss_of(loss_name, model(x[batch]), labels[batch])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip if clip > 0 else 1e30)
        optimizer.step()
        losses.append(loss.item())
        norms.append(norm.item())
    return torch.tensor(losses), torch.tensor(norms)


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    print("# by make_mlp.py with torch", torch.__version__)
    for name, inputs, hidden, classes, activation, loss_name, rows, clip in CASES:
        print("case", name, "input", inputs, "hidden", len(hidden), *hidden, "classes", classes,
              "activation", activation, "loss", loss_name, "rows", rows, "clip", clip)
        model = Mlp([inputs, *hidden, classes], activation)
        x = torch.randn(STEPS * rows, inputs)
        labels = torch.randint(0, classes, (STEPS * rows,))
        labels[1::rows] = -1
        put("x", x)
        put("labels", labels)
        for key, value in model.named_parameters():
            put(key, value)
        logits = model(x[:rows])
        loss = loss_of(loss_name, logits, labels[:rows])
        loss.backward()
        put("logits", logits)
        put("loss", loss)
        for key, value in model.named_parameters():
            put("grad." + key, value.grad)
        sgd_model, adamw_model = copy.deepcopy(model), copy.deepcopy(model)
        sgd = torch.optim.SGD(sgd_model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
        adamw = torch.optim.AdamW(adamw_model.parameters(), lr=0.01, weight_decay=0.01)
        losses, norms = train(sgd_model, sgd, loss_name, x, labels, rows, clip)
        put("losses.sgd", losses)
        put("norms.sgd", norms)
        losses, _ = train(adamw_model, adamw, loss_name, x, labels, rows, clip)
        put("losses.adamw", losses)
    return 0


if __name__ == "__main__":
    sys.exit(main())
