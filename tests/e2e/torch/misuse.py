"""Wrong and unusual use of backend ctrun: each must end with one sentence, or work; nothing may hang.

usage: ctrun --nproc_per_node 2 misuse.py        what leaves the job whole
       ... misuse.py WHAT                        what ends it: exits, killed, undestroyed, numbers
"""
import contextlib
import os
import signal
import sys
import threading
import time
import warnings
from datetime import timedelta

import ctrun.torch
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset, _utils

warnings.simplefilter("ignore")
_utils.MP_STATUS_CHECK_INTERVAL = 0.1  # DataLoader waits so long for a worker that failed; 5 s
MODERN = hasattr(dist.ProcessGroup, "_device_types")  # 2.0 and later
ROUNDS = 50  # of init_process_group and destroy_process_group


@contextlib.contextmanager
def raises(kind, *words, within=5.0):
    """The block must raise `kind` with these words, on one line, in time."""
    begin = time.monotonic()
    try:
        yield
    except kind as error:
        text = str(error).split("\n\nAt:")[0]  # PyTorch puts a traceback behind the errors of futures
        assert all(word in text for word in words), f"{words} are not in: {text}"
        assert "\n" not in text.strip(), f"more than a sentence: {text}"
        assert time.monotonic() - begin < within, f"took {time.monotonic() - begin:.1f} s: {text}"
        return
    raise AssertionError(f"no {kind} with {words}")


@contextlib.contextmanager
def group_of_all(**options):
    """A group that may break, closed at all members behind a barrier."""
    group = dist.new_group(**options)
    yield group
    dist.barrier()
    dist.destroy_process_group(group)


def wrong_tensors(rank):
    x = torch.ones(4, 4)
    for call in (dist.all_reduce, lambda t: dist.broadcast(t, 0), lambda t: dist.send(t, 1 - rank)):
        with raises(ValueError, "not contiguous", "contiguous()"):
            call(x.t()[:, :2])
    with raises(ValueError, "sparse", "to_dense()"):
        dist.all_reduce(x.to_sparse())
    with raises(ValueError, "a tensor on meta", "cpu:ctrun,cuda:nccl"):
        if MODERN:  # PyTorch itself leaves out what is called for tensors without elements
            ctrun.current().default_group.all_reduce(torch.empty(3, device="meta"))
        dist.reduce(torch.empty(3, device="meta"), 0)
    with raises(ValueError, "BXOR", "it has SUM"):
        dist.all_reduce(torch.ones(3, dtype=torch.int32), dist.ReduceOp.BXOR)
    with raises(ValueError, "complex64", "ctrun has F32"):
        dist.reduce_scatter(torch.ones(3, dtype=torch.complex64), [torch.ones(3, dtype=torch.complex64)] * 2)
    with raises((ValueError, RuntimeError), "size"):
        dist.all_to_all_single(torch.ones(3), torch.ones(3), [1, 1], [1, 2])
    with raises(ctrun.UnsupportedError, "pass src to recv"):
        dist.recv(torch.ones(3))
    dist.all_reduce(x)
    assert x[0, 0] == 2


def mismatches(rank):
    other = rank == 1
    for call, words in ((lambda g: dist.all_reduce(torch.ones(3 + other), group=g), ("3 F32", "4 F32")),
                        (lambda g: dist.all_reduce(torch.ones(3).to(torch.float64 if other else torch.float32), group=g),
                         ("F32", "F64")),
                        (lambda g: dist.all_reduce(torch.ones(3), dist.ReduceOp.MAX if other else dist.ReduceOp.MIN, group=g),
                         ("MIN", "MAX")),
                        (lambda g: dist.barrier(group=g) if other else dist.broadcast(torch.ones(3), 0, group=g),
                         ("barrier", "broadcast")),
                        (lambda g: dist.reduce(torch.ones(3), int(other), group=g), ("root 0", "root 1"))):
        with group_of_all() as group:
            with raises(ctrun.MismatchError, *words):
                call(group)
                dist.barrier(group=group)  # the root of a broadcast need not wait
            with raises(ctrun.MismatchError):
                dist.barrier(group=group)


def timeouts(rank):
    with group_of_all(timeout=timedelta(seconds=0.5)) as group:
        if rank == 0:
            with raises(TimeoutError, "all_reduce", "rank 1", "500 ms", within=1.5):
                dist.all_reduce(torch.ones(3), group=group)
    with group_of_all(timeout=timedelta(seconds=0.5)) as group:
        if rank == 1:
            work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
            with raises((TimeoutError, RuntimeError), "rank 0", "500 ms", within=2.0):
                work.get_future().wait()
    with group_of_all() as group:
        if rank == 0:
            work = dist.all_reduce(torch.ones(3), group=group, async_op=True)
            with raises(TimeoutError, "not complete after 0.1 s", within=1.0):
                work.wait(timedelta(seconds=0.1))
        dist.barrier()
        if rank == 1:
            dist.all_reduce(torch.ones(3), group=group)
    if MODERN:
        with group_of_all() as group:
            if rank == 0:
                with raises(TimeoutError, "Rank 1 failed to pass monitoredBarrier in 300 ms", within=2.0):
                    dist.monitored_barrier(group, timedelta(seconds=0.3))


def closed(_rank):
    group = dist.new_group()
    dist.barrier()
    dist.destroy_process_group(group)
    if MODERN:  # before, PyTorch does not tell the backend
        with raises(ctrun.ClosedError, "closed"):
            group.allreduce([torch.ones(3)]).wait()


class Numbers(Dataset):
    """Touches torch.distributed in a worker when told to."""

    def __init__(self, communicate):
        self.communicate = communicate

    def __len__(self):
        return 8

    def __getitem__(self, at):
        if self.communicate:
            dist.all_reduce(torch.ones(3))
        return torch.tensor(float(at))


def forks(rank):
    assert sum(batch.sum().item() for batch in DataLoader(Numbers(False), 2, num_workers=2)) == 28.0
    with raises(Exception, "forked"):
        try:
            list(DataLoader(Numbers(True), 2, num_workers=1))
        except Exception as error:
            raise Exception(str(error).strip().splitlines()[-1]) from None
    child = os.fork()
    if child == 0:
        try:
            dist.barrier()
        except ctrun.UsageError as error:
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x[0] == 2


def many(rank):
    tensors = [torch.full((100,), float(i)) for i in range(1000)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    for work in works:
        work.wait()
    assert all(tensor[99] == 2.0 * i for i, tensor in enumerate(tensors))
    got = [torch.empty(10) for _ in range(1000)]
    works = [dist.irecv(tensor, 1 - rank) for tensor in got]  # all before the first send
    works += [dist.isend(torch.full((10,), float(i)), 1 - rank) for i in range(1000)]
    for work in works:
        work.wait()
    assert all(tensor[9] == i for i, tensor in enumerate(got))
    for i in range(300):
        dist.all_reduce(torch.ones(1000), async_op=True)  # dropped
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == 2


def threads(rank):
    found = {}

    def work(name, group):
        x = torch.ones(1000)
        for _ in range(200):
            dist.all_reduce(x, group=group)
            x /= 2
        found[name] = x[0].item()

    with group_of_all() as one, group_of_all() as other:
        both = [threading.Thread(target=work, args=(i, group)) for i, group in enumerate((one, other))]
        for thread in both:
            thread.start()
        for thread in both:
            thread.join()
        assert found == {0: 1.0, 1: 1.0}
        # One receives while another sends, in one group.
        got = torch.empty(3)
        about, calls = threading.Event(), (lambda: about.set(), lambda: dist.recv(got, 1 - rank, group=one))
        receiver = threading.Thread(target=lambda: [call() for call in calls])
        receiver.start()
        about.wait()
        dist.send(torch.full((3,), float(rank)), 1 - rank, group=one)
        receiver.join()
        assert got[0] == 1 - rank


def interrupts(rank):
    """Ctrl-C while the other rank does not come."""
    def barrier(group):
        dist.barrier(group=group)

    def later(group):
        dist.all_reduce(torch.ones(3), group=group, async_op=True).wait()

    def from_other(group):
        dist.recv(torch.ones(3), 1, group=group)

    def large(group):
        dist.all_reduce(torch.ones(1 << 20), group=group)

    for call in (barrier, later, from_other, large):
        with group_of_all() as group:
            if rank == 0:
                threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                with raises(KeyboardInterrupt, within=1.0):
                    call(group)


def again(rank):
    """init and destroy many times leave neither threads nor descriptors behind."""
    def counts():
        return len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd"))

    found, store = [], dist.distributed_c10d._get_default_store()
    for turn in range(ROUNDS):
        dist.destroy_process_group()
        found.append(counts())
        own = dist.PrefixStore(f"again {turn}", store)  # PyTorch 1.13 waits for ever in one that was used
        dist.init_process_group("ctrun", store=own, rank=rank, world_size=2)
        x = torch.ones(1000)
        dist.all_reduce(x, async_op=True).get_future().wait()
        group = dist.new_group([0, 1])
        dist.all_reduce(x, group=group)
        assert x[0] == 4
    # A group has two threads where operations stayed open, which may still end after it: two groups' at most.
    threads, descriptors = zip(*found)
    assert max(threads) <= 2 + 2 * 2 and len(set(descriptors[1:])) == 1, found


def all_that_stays_whole():
    dist.init_process_group("ctrun", timeout=timedelta(seconds=60))
    rank, names = dist.get_rank(), []
    for scenario in (wrong_tensors, mismatches, timeouts, closed, forks, many, threads, interrupts, again):
        begin = time.monotonic()
        scenario(rank)
        names.append(f"{scenario.__name__} {time.monotonic() - begin:.2f} s")
    dist.destroy_process_group()
    if rank == 0:
        print(f"PyTorch {torch.__version__}: {', '.join(names)}")


def ending(what):
    if what == "numbers":  # with a store that does not wait for those who have others
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        for numbers in ((1 - rank, world), (0, 1) if rank == 0 else (rank, world + 1)):
            with raises(ctrun.UsageError, f"rank {rank} of {world}", "start the script with ctrun"):
                dist.init_process_group("ctrun", store=dist.HashStore(), rank=numbers[0], world_size=numbers[1])
        return
    dist.init_process_group("ctrun")
    rank, x = dist.get_rank(), torch.ones(1000)
    dist.all_reduce(x)
    if what == "undestroyed":
        dist.all_reduce(x, async_op=True)
        return
    if rank == 1:
        sys.exit(0) if what == "exits" else os.kill(os.getpid(), signal.SIGKILL)
    begin = time.monotonic()
    with raises(ctrun.Error, "rank 1"):
        dist.all_reduce(x)
    print(f"rank {rank} was told after {time.monotonic() - begin:.2f} s")


if len(sys.argv) > 1:
    ending(sys.argv[1])
else:
    all_that_stays_whole()
