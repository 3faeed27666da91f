"""The peer of scripts/bench/train and models: what a train.yaml (as JSON) says, by PyTorch, under DDP with gloo.

usage: [torchrun.py --standalone --nproc_per_node N] train_torch.py CONFIG
Of the file it takes model, batch.global, optim.lr, weight_decay and clip, train.steps and log.every. Models are those
of tests/golden, data are random and in memory. Rank 0 prints milliseconds a step of each log.every steps but the first.
"""

import json
import os
import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/golden"))
import make_cnn  # noqa: E402
import make_gpt  # noqa: E402

BATCHES = 16  # different ones, taken in turns


def perceptron(model):
    widths = [model["input"], *model["hidden"], model["classes"]]
    layers = []
    for i in range(len(widths) - 1):
        layers += [nn.Linear(widths[i], widths[i + 1])] + [nn.ReLU()] * (i + 2 < len(widths))
    return nn.Sequential(*layers)


def convolutional(model):
    layers = []
    for layer in model["layers"]:
        kind, options = next(iter(layer.items())) if isinstance(layer, dict) else (layer, {})
        if not isinstance(options, dict):
            options = {"kernel" if kind == "maxpool" else "out": options}
        kernel = options.get("kernel", 0)
        layers.append((kind.replace("conv2d", "conv"), options.get("out", 0), kernel,
                       kernel if kind == "maxpool" else 1, options.get("pad", 0), options.get("act", make_cnn.NONE)))
    return make_cnn.Cnn(model["input"], layers)


def language(model):
    made = make_gpt.Gpt({**model, "inner": 4 * model["width"], "positions": "learned", "norm": "layernorm",
                         "mlp": "gelu", "untied": 0, "unbiased": 0})
    for parameter in made.parameters():
        if parameter.dim() > 1:
            nn.init.normal_(parameter, 0, 0.02)  # GPT-2's, as ctrun has them
    return made


def learner(model, rows):
    """The module, inputs [BATCHES, rows, ...] and the labels of each batch as one vector."""
    if model["type"] == "gpt":
        below, places = model["vocabulary"], (BATCHES, rows, model["context"])
        labels = torch.randint(below, places).view(BATCHES, -1)
        return language(model), torch.randint(below, places), labels
    labels = torch.randint(model["classes"], (BATCHES, rows))
    if model["type"] == "layers":
        return convolutional(model), torch.rand(BATCHES, rows, *model["input"]), labels
    return perceptron(model), torch.rand(BATCHES, rows, model["input"]), labels


def main():
    with open(sys.argv[1], encoding="ascii") as text:
        config = json.load(text)
    world, rank = (int(os.environ.get(name, other)) for name, other in (("WORLD_SIZE", "1"), ("RANK", "0")))
    torch.set_num_threads(1)
    torch.manual_seed(1 + rank)
    model, x, labels = learner(config["model"], config["batch"]["global"] // world)
    if world > 1:
        dist.init_process_group("gloo")
        model = nn.parallel.DistributedDataParallel(model)
    optim, every = config["optim"], config["log"]["every"]
    optimizer = torch.optim.AdamW(model.parameters(), lr=optim["lr"], weight_decay=optim["weight_decay"])
    times = []
    for step in range(1, config["train"]["steps"] + 1):
        optimizer.zero_grad(set_to_none=True)
        logits = model(x[step % BATCHES])
        F.cross_entropy(logits.view(-1, logits.shape[-1]), labels[step % BATCHES]).backward()
        if "clip" in optim:
            nn.utils.clip_grad_norm_(model.parameters(), optim["clip"])
        optimizer.step()
        if step % every == 0:
            times.append(time.monotonic())
    if rank == 0:
        print([(b - a) * 1e3 / every for a, b in zip(times, times[1:])], flush=True)


if __name__ == "__main__":
    main()
