"""What log.py has left in runs/log, by other readers than the writer: each step once, and TensorBoard's records."""
import glob
import json
import os
import struct

import ctrun  # noqa: F401  (its folder is in sys.path)
from ctrun.event_file import crc32c

assert crc32c(b"123456789") == 0xe3069283  # the check value of CRC-32C


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 0x7f) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at


def fields(data):
    """Each field of a message, (number, value)."""
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        elif key & 7 == 2:
            size, at = varint(data, at)
            value, at = data[at:at + size], at + size
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}[key & 7]
            value, at = struct.unpack(form, data[at:at + size])[0], at + size
        found.append((key >> 3, value))
    return found


def events(path):
    with open(path, "rb") as file:
        data = file.read()
    while data:
        size, = struct.unpack("<Q", data[:8])
        message = data[12:12 + size]
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        assert struct.unpack("<I", data[12 + size:16 + size])[0] == masked(message)
        yield dict(fields(message))
        data = data[16 + size:]


folders = glob.glob("runs/log/2*")
assert len(folders) == 1, folders
with open(os.path.join(folders[0], "metrics.jsonl")) as file:
    records = [json.loads(line) for line in file]
assert [record["step"] for record in records if record["kind"] == "train"] == list(range(1, 41))
assert [record["step"] for record in records if record["kind"] == "eval"] == [10, 20, 30, 40]
assert all(record["v"] == 1 and record["loss"] > 0 for record in records)
assert records[0]["odd"] is None and list(records[0])[:5] == ["v", "kind", "step", "epoch", "time"]

first, second = [list(events(path)) for path in sorted(glob.glob("runs/log/latest/events.out.tfevents.*"))]
assert first[0][3] == b"brain.Event:2" and second[0][3] == b"brain.Event:2"
assert second[1][7] == b"\x08\x01" and second[1][2] == 21, second[1]  # a session that starts at 21
assert [event[2] for event in first[2:]] == sorted([*range(1, 34), 10, 20, 30])
assert [event[2] for event in second[2:]] == sorted([*range(21, 41), 30, 40])
tag, value = [value for _, value in fields(dict(fields(second[-1][5]))[1])]
assert tag == b"eval/loss" or tag == b"eval/accuracy", tag
with open("runs/log/latest/run.json") as file:
    record = json.load(file)
assert (record["how"], record["starts"], record["step"], record["steps"]) == ("finished", 2, 40, 40), record
print("each step once")
