"""Symmetric memory lives as long as an array refers to it, whatever was closed before. Two ranks."""
import gc
import os

import ctrun

BYTES = 1 << 20


def resident():
    """How many bytes of this process's address space are mappings of the size of a block, or more."""
    with open("/proc/self/maps") as maps:
        spans = [line.split(maxsplit=1)[0].split("-") for line in maps if "ctrun" in line]
    return sum(int(end, 16) - int(start, 16) for start, end in spans)


job = ctrun.init()
x = job.memory(BYTES).numpy("float32", (4, -1))  # the block itself is referred to by the array alone
assert x.shape == (4, BYTES // 16) and not x.any()
group = job.group()
for turn in range(3):
    x[:] = job.rank + turn
    group.all_reduce(x)
    assert (x == 1 + 2 * turn).all(), x
link = int(os.environ["CTRUN_CONTROL_FD"])
part = x[1, 10:20]
half = job.memory(64).numpy("float64", (4,), offset=32)
half[:] = 7
job.close()
del x
gc.collect()
assert (part == 5).all() and (half == 7).all()
part += 1
assert part.sum() == 60, part
held = resident()
assert held >= BYTES, held
assert os.path.exists(f"/proc/self/fd/{link}")
del part, half
gc.collect()
assert resident() < held, "the memory of a closed job was not freed with its last array"
assert not os.path.exists(f"/proc/self/fd/{link}"), "the job was not left with its last array"
print("the memory outlived the job")
