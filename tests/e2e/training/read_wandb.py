"""What the offline runs of wandb below a run's folder hold, by wandb's own messages; for test_wandb.c.

    python3 read_wandb.py FOLDER

Prints the ids, the number of files, whether each step stands once and all of metrics.jsonl are there, and some values.
"""
import glob
import json
import os
import struct
import sys

from wandb.proto import wandb_internal_pb2

BLOCK = 32768
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


def parts(path):
    """The bytes of the records of a file of wandb: LevelDB's log format behind a header of 7 bytes."""
    with open(path, "rb") as file:
        text = file.read()
    assert text.startswith(b":W&B"), path
    at, record = 7, b""
    while at + 7 <= len(text):
        if BLOCK - at % BLOCK < 7:  # no room for a header
            at += BLOCK - at % BLOCK
            continue
        _, size, kind = struct.unpack_from("<IHB", text, at)
        if kind not in (FULL, FIRST, MIDDLE, LAST):
            return
        record = text[at + 7:at + 7 + size] if kind in (FULL, FIRST) else record + text[at + 7:at + 7 + size]
        at += 7 + size
        if kind in (FULL, LAST):
            yield record


def records(path):
    """The records of a file of wandb."""
    for data in parts(path):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        yield record


def values(items):
    """Items of a record as a dict."""
    return {item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items}


folder = sys.argv[1]
ids, projects, config, summary, rows, exits = set(), set(), {}, {}, [], []
files = sorted(glob.glob(os.path.join(folder, "wandb", "offline-run-*", "*.wandb")))
for path in files:
    for record in records(path):
        kind = record.WhichOneof("record_type")
        if kind == "run":
            ids.add(record.run.run_id)
            projects.add(record.run.project)
            config.update(values(record.run.config.update))
        elif kind == "history":
            rows.append((record.history.step.num, values(record.history.item)))
        elif kind == "summary":
            summary.update(values(record.summary.update))
        elif kind == "exit":
            exits.append(record.exit.exit_code)

with open(os.path.join(folder, "metrics.jsonl"), encoding="utf-8") as file:
    metrics = [json.loads(line) for line in file]
expected = {}
for record in metrics:
    row = expected.setdefault(record["step"], {})
    row.update({f"{record['kind']}/{key}": value for key, value in record.items() if key not in ("v", "kind", "step")})
steps = [step for step, _ in rows]
missing = set(expected) - set(steps)
wrong = [step for step, row in rows for key in ("train/loss", "eval/accuracy", "eval/loss")
         if step in expected and row.get(key) != expected[step].get(key)]
late = [step for step, row in rows if step in expected and abs(row["_timestamp"] - max(
    value for key, value in expected[step].items() if key.endswith("/time"))) > 0.001]
last = metrics[-1]
print(f"files {len(files)}, ids {len(ids)}, project {' '.join(projects)}, exits {exits}")
print(f"rows {len(rows)}, steps {len(set(steps))}, ascending {steps == sorted(set(steps))}, missing {len(missing)}, "
      f"wrong {len(wrong)}, late {len(late)}")
print(f"seed {config.get('seed')}, hidden {config.get('model', {}).get('hidden')}, "
      f"command {'yes' if config.get('ctrun', {}).get('command') else 'no'}")
print(f"summary {summary.get('eval/accuracy') == last.get('accuracy')} {summary.get('_step')}")
