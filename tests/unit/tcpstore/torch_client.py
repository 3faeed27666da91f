"""What PyTorch's own TCPStore client sees, as lines on standard output.

usage: torch_client.py own | torch_client.py HOST PORT

With "own" the store is served by PyTorch in this process. The lines must be the same whoever
serves. Exit status 77: PyTorch is not here.
"""
import ctypes
import sys
import threading
import warnings
from datetime import timedelta

ctypes.CDLL(None).prctl(1, 9)  # end with the test
warnings.filterwarnings("ignore")
try:
    import torch
    from torch.distributed import TCPStore
except ImportError:
    sys.exit(77)

SOON = timedelta(milliseconds=150)
LONG = timedelta(seconds=60)
MODERN = hasattr(TCPStore, "multi_get")  # from 2.1 on
own = sys.argv[1] == "own"
host, port = ("127.0.0.1", 0) if own else (sys.argv[1], int(sys.argv[2]))


def client(**more):
    return TCPStore(host, port, None, False, LONG, wait_for_workers=False, **more)


def show(what, function):
    """A line with the result, or with the kind of the error."""
    try:
        result = function()
    except Exception as error:  # the kinds differ between versions, not between servers
        result = type(error).__name__
    print(f"{what}: {result!r}", flush=True)


if own:
    server = TCPStore(host, 0, None, True, LONG, wait_for_workers=False)
    port = server.port
store = client()

# ---- values
show("set", lambda: store.set("k", "value"))
show("get", lambda: store.get("k"))
show("set again", lambda: (store.set("k", "other"), store.get("k")))
show("empty", lambda: (store.set("empty", ""), store.get("empty")))
show("unicode", lambda: (store.set("schlüssel", "größe"), store.get("schlüssel")))
show("large", lambda: (store.set("large", "x" * (8 << 20)), len(store.get("large"))))
show("long key", lambda: (store.set("y" * 8191, "v"), store.get("y" * 8191)))
show("delete", lambda: [store.delete_key(k) for k in ("large", "large", "none")])
show("keys", store.num_keys)

# ---- counters
show("add", lambda: [store.add("n", i) for i in (0, 5, -7, 1 << 40)])
show("counter as text", lambda: store.get("n"))
show("add to text", lambda: (store.set("n", "12"), store.add("n", 1)))

# ---- compare and set
for before, expected in ((None, ""), (None, "x"), ("a", "a"), ("a", "b"), ("a", "")):
    store.delete_key("c")
    if before is not None:
        store.set("c", before)
    show(f"compare_set {before} {expected}", lambda: store.compare_set("c", expected, "new"))
    show("keys", store.num_keys)

# ---- waiting
show("wait for what is there", lambda: store.wait(["k", "n", "k"]))
show("wait in vain", lambda: client().wait(["k", "never"], SOON))
impatient = client()
impatient.set_timeout(SOON)
show("get in vain", lambda: impatient.get("never"))
if MODERN:
    show("the same client goes on", lambda: (impatient.set("p", "1"), impatient.get("p")))
    show("and waits again", lambda: impatient.wait(["never", "k"]))
    show("and again", lambda: impatient.get("k"))

others = [client() for _ in range(3)]
woken = []
threads = [threading.Thread(target=lambda s=s: (s.wait(["w1", "w2"], LONG), woken.append(s.get("w2"))))
           for s in others]
for thread in threads:
    thread.start()
store.set("w1", "1")
store.set("w2", "2")
for thread in threads:
    thread.join()
show("woken", lambda: woken)

# ---- 48 clients meet
world, met = 48, []


def meet(rank):
    mine = client()
    mine.set(f"rank{rank}", str(rank))
    if mine.add("arrived", 1) == world:
        mine.set("all", "yes")
    mine.wait(["all"] + [f"rank{(rank + i) % world}" for i in range(world)], LONG)
    met.append(int(mine.get(f"rank{(rank + 1) % world}")))


threads = [threading.Thread(target=meet, args=(rank,)) for rank in range(world)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
show("met", lambda: sorted(met) == list(range(world)))

if MODERN:
    show("check", lambda: [store.check(keys) for keys in (["k"], ["k", "no"], [])])
    show("append", lambda: (store.append("log", "a"), store.append("log", "bc"), store.get("log")))
    show("multi", lambda: (store.multi_set(["m1", "m2"], ["1", ""]), store.multi_get(["m2", "m1", "k"])))
    show("multi in vain", lambda: impatient.multi_get(["m1", "never"]))
    show("multi of 5000", lambda: (store.multi_set([f"z{i}" for i in range(5000)], ["v" * 100] * 5000),
                                   len(b"".join(store.multi_get([f"z{i}" for i in range(5000)])))))
if hasattr(TCPStore, "clone"):
    show("clone", lambda: (store.clone().set("from", "clone"), store.get("from")))
if hasattr(TCPStore, "queue_push"):
    show("push", lambda: [store.queue_push("q", v) for v in ("1", "2", "")])
    show("len", lambda: [store.queue_len("q"), store.queue_len("none")])
    show("pop", lambda: [store.queue_pop("q"), store.queue_pop("q", False), store.queue_pop("q")])
    show("pop of nothing", lambda: store.queue_pop("q", False))
    show("pop in vain", lambda: impatient.queue_pop("q"))
    # One at a time: PyTorch's own server may wake one of several poppers twice, and another never.
    popped, popper = [], client()
    for job in ("a", "b", "c"):
        thread = threading.Thread(target=lambda: popped.append(popper.queue_pop("jobs")))
        thread.start()
        store.queue_push("jobs", job)
        thread.join()
    show("popped", lambda: popped)
if hasattr(TCPStore, "list_keys"):
    show("list", lambda: sorted(key for key in store.list_keys() if key[0] not in "rzy"))
if hasattr(TCPStore, "barrier"):
    passed = []

    def pass_barrier():
        client().barrier("bar", 16, LONG)
        passed.append(1)

    threads = [threading.Thread(target=pass_barrier) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    show("passed", lambda: len(passed))
    show("late", lambda: store.barrier("bar", 16, LONG))
    show("barrier in vain", lambda: store.barrier("other", 2, SOON))
    show("and on", lambda: store.get("k"))
if MODERN:
    # Above the limits: the server ends the connection, others notice nothing.
    show("value too large", lambda: (impatient.set("huge", "x" * ((8 << 20) + 1)), impatient.get("k")))
    show("key too long", lambda: (lambda s: (s.set("y" * 8193, "v"), s.get("k")))(client()))
show("at the end", lambda: (store.get("k"), store.num_keys()))
