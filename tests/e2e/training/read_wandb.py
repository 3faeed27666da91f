"""What the offline runs of wandb below a run's folder hold, by wandb's own messages; for test_wandb.c.

    python3 read_wandb.py FOLDER EARLIER

Prints the ids, the number of files, whether each step stands once and all of metrics.jsonl are there, and some values.
EARLIER is metrics.jsonl as it was before a restart: steps that were handed over from it stand as they were then.
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

def read_metrics(path):
    """The records of metrics.jsonl, and as rows by step."""
    with open(path, encoding="utf-8") as metrics:
        found = [json.loads(line) for line in metrics if line.endswith("\n")]
    by_step = {}
    for entry in found:
        row = by_step.setdefault(entry["step"], {})
        row.update({f"{entry['kind']}/{key}": value for key, value in entry.items()
                    if key not in ("v", "kind", "step")})
    return found, by_step


def is_same(row, other):
    """Has a row of wandb the values and the time of one of metrics.jsonl?"""
    time = max(value for key, value in other.items() if key.endswith("/time"))
    return abs(row["_timestamp"] - time) <= 0.001 and all(
        row.get(key) == other.get(key) for key in ("train/loss", "eval/accuracy", "eval/loss"))


metrics, expected = read_metrics(os.path.join(folder, "metrics.jsonl"))
_, earlier = read_metrics(sys.argv[2])
steps = [step for step, _ in rows]
missing = set(expected) - set(steps)
wrong = [step for step, row in rows
         if not any(step in lives and is_same(row, lives[step]) for lives in (expected, earlier))]
last = metrics[-1]
print(f"files {len(files)}, ids {len(ids)}, project {' '.join(projects)}, exits {exits}")
print(f"rows {len(rows)}, steps {len(set(steps))}, ascending {steps == sorted(set(steps))}, missing {len(missing)}, "
      f"wrong {len(wrong)}")
print(f"seed {config.get('seed')}, hidden {config.get('model', {}).get('hidden')}, "
      f"command {'yes' if config.get('ctrun', {}).get('command') else 'no'}")
print(f"summary {summary.get('eval/accuracy') == last.get('accuracy')} {summary.get('_step')}")
