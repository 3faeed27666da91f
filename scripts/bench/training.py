"""What the benchmarks of training share: a training by ctrun, and the same file's by PyTorch DDP with gloo.

A configuration is a dictionary with the keys of train.yaml; train_torch.py reads the file that ctrun does. Data are
made up: bytes as images, or tokens. Each side has one compute thread a worker and rows of batch.global / workers,
and tells milliseconds a step in windows of log.every steps, by rank 0's clock; the first window does not count.
"""
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

from launchers import HERE, PYTHON, TORCHRUN

ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
ENVIRONMENT.pop("OPENBLAS_CORETYPE", None)  # it makes PyTorch's matrix products slow
SAMPLES = 4096


def _idx(path, sizes, content):
    with open(path, "wb") as out:
        out.write(bytes([0, 0, 8, len(sizes)]) + b"".join(size.to_bytes(4, "big") for size in sizes) + content)


def made_up(folder, model):
    """The data section for a model, its files in `folder`."""
    generator = random.Random(1)
    if model["type"] == "gpt":
        ids = (generator.randrange(model["vocabulary"]) for _ in range(SAMPLES * model["context"]))
        with open(f"{folder}/tokens", "wb") as out:
            out.write(b"".join(token.to_bytes(2, "little") for token in ids))
        return {"train": {"format": "tokens", "ids": "u16", "path": f"{folder}/tokens"}}
    shape = model["input"] if model["type"] == "layers" else [model["input"]]
    size = 1
    for extent in shape:
        size *= extent
    classes = model["classes"]
    _idx(f"{folder}/images", [SAMPLES, *shape], generator.randbytes(SAMPLES * size))
    _idx(f"{folder}/labels", [SAMPLES], bytes(i % classes for i in range(SAMPLES)))
    return {"train": {"format": "idx", "images": f"{folder}/images", "labels": f"{folder}/labels", "scale": 1 / 255}}


def describe(folder, model, rows, workers, steps, every, **sections):
    """The path of a file that trains `model` with AdamW on `rows` a worker; it logs into its own folder."""
    run = tempfile.mkdtemp(dir=folder)
    text = {"model": model, "data": made_up(run, model), "optim": {"type": "adamw", "lr": 1e-4, "weight_decay": 0.01},
            "batch": {"global": rows * workers}, "train": {"steps": steps, "device": "cpu"},
            "log": {"dir": f"{run}/log", "every": every}}
    for name, keys in sections.items():
        text[name] = {**text.get(name, {}), **keys}
    with open(f"{run}/bench.yaml", "w", encoding="ascii") as out:
        json.dump(text, out)
    return f"{run}/bench.yaml"


def ctrun(build, configs, workers):
    """Milliseconds a step of each training, run beside each other."""
    command = [os.path.join(build, "bin/ctrun"), "--nproc_per_node", str(workers)]
    started = [subprocess.Popen([*command, config], stdout=subprocess.DEVNULL, env=ENVIRONMENT) for config in configs]
    if any([process.wait() != 0 for process in started]):
        sys.exit(f"{' '.join(command)} failed")
    medians = []
    for config in configs:
        with open(os.path.join(os.path.dirname(config), "log/metrics.jsonl"), encoding="utf-8") as lines:
            rows = [json.loads(line) for line in lines]
        medians.append(statistics.median((b["time"] - a["time"]) * 1e3 / (b["step"] - a["step"])
                                         for a, b in zip(rows, rows[1:])))
    return medians


def torch(config, workers):
    """Milliseconds a step of PyTorch with that file; one worker has no process group."""
    launcher = [*TORCHRUN, "--nproc_per_node", str(workers)] if workers > 1 else [PYTHON]
    command = [*launcher, os.path.join(HERE, "train_torch.py"), config]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stderr}")
    return statistics.median(json.loads(done.stdout))
