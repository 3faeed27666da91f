"""Every collective with NumPy arrays, beside what NumPy itself computes of all members' data.

argv: a backend. The data of each rank are known to all, so that each rank checks all of its result.
"""
import sys

import numpy

import ctrun
from ctrun import _abi

N = 37  # elements a part; prime, so that no algorithm's blocks fit
done = set()


def data(rank, count, dtype, seed=0):
    """Small whole numbers: sums and products of them are exact in each type."""
    random = numpy.random.default_rng([rank, count, seed])
    return random.integers(0, 3, count).astype(dtype)


def same(found, expected, what):
    done.add(what.split()[0])
    if not numpy.array_equal(found, expected):
        raise AssertionError(f"{what}: {found} is not {expected}")


def reductions(group, every):
    operations = {"sum": numpy.add, "prod": numpy.multiply, "max": numpy.maximum, "min": numpy.minimum}
    for dtype in ("f4", "f8", "f2", "i8", "i4", "i2", "i1", "u1", "?"):
        for name, function in operations.items():
            parts = [data(rank, N, dtype) for rank in every]
            expected = function.reduce(parts, dtype=numpy.dtype(dtype)) if dtype != "?" else {
                "sum": numpy.logical_or, "max": numpy.logical_or}.get(name, numpy.logical_and).reduce(parts)
            mine = parts[group.rank].copy()
            same(group.all_reduce(mine, name), expected, f"all_reduce in place of {dtype}, {name}")
            out = numpy.empty_like(mine)
            group.all_reduce(parts[group.rank], name, out=out)
            same(out, expected, f"all_reduce of {dtype}, {name}")
            for root in (0, group.size - 1):
                out = numpy.empty_like(mine) if group.rank == root else None
                group.reduce(parts[group.rank], root, name, out=out)
                done.add("reduce")
                if out is not None:
                    same(out, expected, f"reduce of {dtype}, {name}")
    for name, function in {"and": numpy.bitwise_and, "or": numpy.bitwise_or}.items():
        parts = [data(rank, N, "i4") for rank in every]
        same(group.all_reduce(parts[group.rank].copy(), name), function.reduce(parts), f"all_reduce {name}")
    parts = [data(rank, N, "f8") * len(every) for rank in every]
    same(group.all_reduce(parts[group.rank].copy(), "avg"), sum(parts) / len(every), "all_reduce avg")
    scaled = group.all_reduce(parts[group.rank].copy(), "premul_sum", scale=group.rank + 0.5, mode="reproducible")
    same(scaled, sum(part * (rank + 0.5) for rank, part in enumerate(parts)), "all_reduce premul_sum")


def moves(group, every):
    me, size = group.rank, group.size
    parts = [data(rank, N, "i4") for rank in every]
    whole = numpy.concatenate(parts)
    for root in every:
        same(group.broadcast(parts[me].copy(), root), parts[root], "broadcast")
        out = numpy.empty(size * N, "i4") if me == root else None
        group.gather(parts[me], out, root)
        done.add("gather")
        if out is not None:
            same(out, whole, "gather")
        out = numpy.empty(N, "i4")
        group.scatter(out, whole if me == root else None, root)
        same(out, parts[me], "scatter")
    same(group.all_gather(numpy.empty(size * N, "i4"), parts[me]), whole, "all_gather")
    in_place = numpy.zeros((size, N), "i4")
    in_place[me] = parts[me]
    same(group.all_gather(in_place), numpy.stack(parts), "all_gather in place")
    wholes = [data(rank, size * N, "f8") for rank in every]
    out = group.reduce_scatter(numpy.empty(N, "f8"), wholes[me])
    same(out, sum(wholes)[me * N:(me + 1) * N], "reduce_scatter")
    out = group.all_to_all(numpy.empty(size * N, "f8"), wholes[me])
    same(out, numpy.concatenate([whole[me * N:(me + 1) * N] for whole in wholes]), "all_to_all")


def uneven(group, every):
    me, size = group.rank, group.size
    counts = [3 * rank + 1 for rank in every]
    ends = numpy.cumsum([0, *counts])
    parts = [data(rank, counts[rank], "i2") for rank in every]
    out = group.all_gather_v(numpy.empty(ends[-1], "i2"), parts[me], counts)
    same(out, numpy.concatenate(parts), "all_gather_v")
    wholes = [data(rank, ends[-1], "i8") for rank in every]
    out = group.reduce_scatter_v(numpy.empty(counts[me], "i8"), wholes[me], counts)
    same(out, sum(wholes)[ends[me]:ends[me + 1]], "reduce_scatter_v")
    table = [[(sender + 2 * receiver) % 5 for receiver in every] for sender in every]
    messages = [[data(sender * 10 + receiver, table[sender][receiver], "f4") for receiver in every] for sender in every]
    received = [table[sender][me] for sender in every]
    out = group.all_to_all_v(numpy.empty(sum(received), "f4"), numpy.concatenate(messages[me]), table[me], received)
    same(out, numpy.concatenate([messages[sender][me] for sender in every]), "all_to_all_v")
    assert size == len(every)


def messages(group, every):
    me, size = group.rank, group.size
    if size > 1:
        right, left = (me + 1) % size, (me - 1) % size
        sent, out = data(me, N, "f4"), numpy.empty(N, "f4")
        requests = [group.recv(out, left, tag=7, wait=False), group.send(sent, right, tag=7, wait=False)]
        for request in requests:
            request.wait()
        same(out, data(left, N, "f4"), "recv")
        same(sent, data(me, N, "f4"), "send")
    outs = [numpy.empty(N, "i8") for _ in every]
    group.exchange([(data(me, N, "i8", peer), peer) for peer in every], [(outs[peer], peer) for peer in every])
    for peer in every:
        same(outs[peer], data(peer, N, "i8", me), "exchange")


def started(group, every):
    """More requests than a group has places, of arrays that nobody else refers to."""
    requests = [group.all_reduce(data(group.rank, N, "i8", turn), wait=False) for turn in range(100)]
    for turn, request in enumerate(requests):
        same(request.wait(), sum(data(rank, N, "i8", turn) for rank in every), "all_reduce started")
    waiting = group.barrier(wait=False)
    while not waiting.test():
        pass
    done.add("barrier")


def main():
    with ctrun.init() as job:
        group = job.group(name="tested", backend=sys.argv[1])
        every = range(group.size)
        for check in (reductions, moves, uneven, messages, started):
            check(group, every)
        half = group.split(group.rank % 2, key=-group.rank)
        members = [rank for rank in reversed(every) if rank % 2 == group.rank % 2]
        assert half is not None and members[half.rank] == group.rank
        of_half = half.all_reduce(data(group.rank, N, "f8"))
        same(of_half, sum(data(rank, N, "f8") for rank in members), "all_reduce of a half")
        untested = set(_abi.COLLECTIVES) - done - ({"send", "recv"} if group.size == 1 else set())
        assert not untested, untested
        assert ctrun.all_reduce(numpy.ones(1), "sum")[0] == job.world
        buffer = bytearray(b"from rank %d" % job.rank)
        ctrun.broadcast(buffer, root=job.world - 1)
        assert buffer == b"from rank %d" % (job.world - 1)
        if job.rank == 0:
            print(f"{len(done)} collectives on {group.backend}")


main()
