"""Jobs that a program starts: what comes back, what is refused, how they end. Run by Python alone."""
import contextlib
import io
import os
import signal
import sys
import threading

import ctrun

scale, forks = 3, []
os.register_at_fork(before=lambda: forks.append(1))


def scaled(x):
    return x * scale


def work(a, *, b):
    import numpy

    job = ctrun.init()
    x = ctrun.all_reduce(numpy.full(4, job.rank + 1.0))
    print(f"line of {job.rank}")
    return {"rank": job.rank, "value": scaled(x[0]) + a + b, "parts": x[:2]}


def made_by(base):
    def closure(x):
        return recursive(3) + base + x
    return closure


def recursive(n):
    return 0 if n == 0 else n + recursive(n - 1)


def fail():
    if ctrun.init().rank == 1:
        raise ValueError("a banana")
    ctrun.barrier()


def stuck(folder):
    job = ctrun.init()
    with open(os.path.join(folder, f"pid.{job.rank}"), "w") as file:
        file.write(str(os.getpid()))
    ctrun.barrier()
    with open(os.path.join(folder, "ready"), "w") as file:
        file.write("yes")
    signal.pause()


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def interrupted(folder):
    """As a notebook is: SIGINT for this process alone, once all ranks wait for something that never comes."""
    def interrupt():
        while not os.path.exists(os.path.join(folder, "ready")):
            finished.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    finished = threading.Event()
    thread = threading.Thread(target=interrupt)
    thread.start()
    refused(KeyboardInterrupt, "", lambda: ctrun.run(stuck, (folder,), nproc=2, grace="5s"))
    thread.join()
    for rank in range(2):
        with open(os.path.join(folder, f"pid.{rank}")) as file:
            assert not os.path.exists(f"/proc/{file.read()}"), f"rank {rank} lives on"


class Local:
    pass


def main():
    lines = io.StringIO()
    with contextlib.redirect_stdout(lines):
        results = ctrun.run(work, (10,), {"b": 5}, nproc=3)
    assert [result["rank"] for result in results] == [0, 1, 2], results
    assert all(result["value"] == 33 and result["parts"].shape == (2,) for result in results), results
    shown = sorted(lines.getvalue().split("\n"))
    assert shown[1:] == [f"[0:{rank}] line of {rank}" for rank in range(3)], shown
    assert ctrun.run(made_by(100), (1,), show=False) == [107]
    assert ctrun.run(os.path.basename, ("a/b",), show=False) == ["b"]

    error = refused(ctrun.JobError, "rank 1", lambda: ctrun.run(fail, nproc=2, show=False))
    assert error.status == 1 and "ValueError: a banana" in str(error), error
    assert refused(ctrun.JobError, "status 7", lambda: ctrun.run(sys.exit, (7,), show=False)).status == 7
    assert ctrun.run(["test", "a", "=", "a"], show=False, no_python=True) == []
    refused(ctrun.JobError, "nothing.py", lambda: ctrun.run("nothing.py", show=False))
    refused(ctrun.JobError, "nproc_per_node", lambda: ctrun.run(recursive, (1,), nproc="two", show=False))
    refused(ctrun.JobError, "cannot be sent back", lambda: ctrun.run(lambda: (n for n in range(3)), show=True))
    if "cloudpickle" not in sys.modules:
        refused(ctrun.UsageError, "class Local", lambda: ctrun.run(lambda: Local(), show=False))
    refused(ctrun.UsageError, "cannot be sent", lambda: ctrun.run(lambda: forks.append(lock), show=False))
    interrupted(os.getcwd())
    assert not forks, "this process was forked"
    print("all ran")


lock = threading.Lock()
main()
