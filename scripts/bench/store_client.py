"""Clients of a TCPStore, for scripts/bench/store: PyTorch's own, forked after the import.

usage: store_client.py serve                   serve PyTorch's own store, print its port, until stdin ends
       store_client.py run OUT SECONDS [PID]   use the store at MASTER_ADDR, MASTER_PORT, which process PID
                                               (the parent, if none is given) serves

OUT gets JSON: for each figure its value and the microseconds of CPU that the server took a call.
"""
import glob
import json
import os
import sys
import time
from datetime import timedelta

from torch.distributed import TCPStore

WAIT = timedelta(seconds=120)
VALUE = "x" * 64
KEYS = [f"many{i}" for i in range(64)]
BARRIERS = 20


def serve():
    server = TCPStore("127.0.0.1", 0, None, True, WAIT, wait_for_workers=False)
    print(server.port, flush=True)
    sys.stdin.read()


def connect():
    address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return TCPStore(*address, None, False, WAIT, wait_for_workers=False)


def meet(store, name, clients):
    """The barrier that every version of PyTorch builds out of requests."""
    if store.add(f"{name}/number", 1) == clients:
        store.set(f"{name}/last", "1")
    store.wait([f"{name}/last"], WAIT)


def cpu_s(pid):
    """Seconds that the threads of a process have run."""
    total = 0
    for path in glob.glob(f"/proc/{pid}/task/*/schedstat"):
        with open(path, encoding="ascii") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def fork(clients, work):
    """What `work(store, index)` returned in each of so many processes."""
    pipes = []
    for index in range(clients):
        ours, theirs = os.pipe()
        if os.fork() == 0:
            try:
                os.close(ours)
                os.write(theirs, json.dumps(work(connect(), index)).encode())
            finally:
                os._exit(0)  # whoever fails gives no answer
        os.close(theirs)
        pipes.append(ours)
    answers = []
    for pipe in pipes:
        with os.fdopen(pipe, "rb") as file:
            answers.append(json.loads(file.read()))
        os.wait()
    return answers


def rate(name, clients, seconds, server, call):
    """Calls a second of all clients together; the server's CPU a call."""

    def work(store, index):
        store.set(f"key{index}", VALUE)
        meet(store, f"{name} {clients}", clients)
        begin, cpu = time.monotonic(), cpu_s(server)
        calls, took = 0, 0
        while took < seconds:
            for _ in range(50):
                call(store, index)
            calls += 50
            took = time.monotonic() - begin
        store.add("end", 0)  # what is under way has been done
        took = time.monotonic() - begin
        return calls / took, (cpu_s(server) - cpu) / took

    answers = fork(clients, work)
    calls = sum(answer[0] for answer in answers)
    return calls, answers[0][1] / calls * 1e6


def barrier(name, clients, server, call):
    """Milliseconds a barrier; the server's CPU a barrier."""

    def work(store, index):
        meet(store, f"start {name} {clients}", clients)
        begin, cpu = time.monotonic(), cpu_s(server) if index == 0 else 0
        for turn in range(BARRIERS):
            call(store, f"{name} {clients} {turn}", clients)
        took = time.monotonic() - begin
        return took / BARRIERS * 1e3, (cpu_s(server) - cpu) / BARRIERS * 1e6 if index == 0 else 0

    answers = fork(clients, work)
    return max(answer[0] for answer in answers), answers[0][1]


def run(out, seconds, server):
    calls = {
        "set": lambda store, index: store.set(f"key{index}", VALUE),
        "add": lambda store, index: store.add(f"count{index}", 1),
        "get": lambda store, index: store.get(f"key{index}"),
    }
    barriers = {"of requests": meet}
    if hasattr(TCPStore, "multi_get"):
        connect().multi_set(KEYS, [VALUE] * len(KEYS))
        calls["multi_get of 64"] = lambda store, index: store.multi_get(KEYS)
    if hasattr(TCPStore, "barrier"):
        barriers["as one request"] = lambda store, key, world: store.barrier(key, world, WAIT)
    figures = {}
    for clients in (1, 8):
        for name, call in calls.items():
            figures[f"{name}, {clients}"] = rate(name, clients, seconds, server, call)
    for clients in (64, 256):
        for name, call in barriers.items():
            figures[f"barrier {name}, {clients}"] = barrier(name, clients, server, call)
    with open(out, "w", encoding="ascii") as file:
        json.dump(figures, file)


if sys.argv[1] == "serve":
    serve()
else:
    run(sys.argv[2], float(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else os.getppid())
