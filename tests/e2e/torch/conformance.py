"""Every collective of torch.distributed on backend ctrun: with the results of gloo, or those computed here.

usage: ctrun [options] conformance.py [all | brief]      few shapes by default; brief: few types, too

Elements are small integers, so that no order of a sum changes a bit. Each rank makes the inputs of all ranks, so it
computes what must come out; where gloo has the call for the type, it must say the same. Rank 0 prints how many results
were compared.
"""
import sys
import warnings
from datetime import timedelta

import ctrun.torch  # noqa: F401, registers the backend
import torch
import torch.distributed as dist

warnings.simplefilter("ignore")
EVERYTHING, BRIEF = "all" in sys.argv[1:], "brief" in sys.argv[1:]
MODERN = hasattr(dist.ProcessGroup, "_device_types")  # 2.0 and later
FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
REDUCED = [*FLOATS, *INTEGERS, torch.bool]
# What is only moved may be of any type.
MOVED = REDUCED + [getattr(torch, name) for name in ("complex64", "uint16", "uint64", "float8_e4m3fn") if hasattr(torch, name)]
SHAPES = [(), (0,), (3, 0), (1,), (5, 7), (4099,)] if EVERYTHING else [(5, 7)]
ODD = [(), (0,), (3, 0)]  # of one type in the gate
LARGE = [(1 << 18,), (300007,)] if EVERYTHING else [(1 << 18,)]
FEW = [torch.float32, torch.int64]  # compared with gloo in the gate
OPERATIONS = ["SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR"]


def made(rank, shape, dtype, salt=0, values=7):
    """The input of a rank: small integers behind an offset in their storage."""
    count = 1
    for extent in shape:
        count *= extent
    numbers = (torch.arange(count, dtype=torch.int64) * (rank + 3) + rank + salt) % values
    if values == 7 and dtype not in (torch.uint8, torch.bool) and not str(dtype).startswith("torch.uint"):
        numbers -= 2
    storage = torch.cat([torch.zeros(3, dtype=torch.int64), numbers])
    if dtype.is_complex:
        storage = torch.complex(storage.float(), storage.float() + 1)
    return storage.to(dtype)[3:].view(shape)


def reduced(op, tensors):
    """What a reduction of the members' tensors must give."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        ours = {"SUM": "any", "BOR": "any", "MAX": "any", "PRODUCT": "all", "BAND": "all", "MIN": "all"}
        return getattr(torch.stack(tensors), ours[op])(0)
    wide = torch.stack([tensor.to(torch.float64 if dtype.is_floating_point else torch.int64) for tensor in tensors])
    if op in ("SUM", "AVG"):
        total = wide.sum(0)
        if op == "AVG" and dtype.is_floating_point:
            return (total.to(torch.float64) / len(tensors)).to(torch.float32 if dtype != torch.float64 else dtype).to(dtype)
        if op == "AVG":
            total = torch.div(total.to(dtype), len(tensors), rounding_mode="trunc")
        return total.to(dtype)
    if op in ("MIN", "MAX"):
        return getattr(wide, f"a{op.lower()}")(0).to(dtype)
    if op == "PRODUCT":
        return wide.prod(0).to(dtype)
    total = wide[0]
    for other in wide[1:]:
        total = total & other if op == "BAND" else total | other
    return total.to(dtype)


def exists(op, dtype):
    if op in ("BAND", "BOR"):
        return not dtype.is_floating_point
    return op != "AVG" or dtype != torch.bool


class Comparison:
    """Calls on both groups, and what was found."""

    def __init__(self, group, gloo):
        self.group, self.gloo = group, gloo
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.compared = self.with_gloo = 0

    def same(self, got, expected, what):
        got, expected = list(got), list(expected)
        assert len(got) == len(expected), f"{what}: {len(got)} tensors for {len(expected)}"
        for one, other in zip(got, expected):
            a, b = (tensor.contiguous().view(-1) for tensor in (one, other))
            assert a.dtype == b.dtype and a.shape == b.shape, f"{what}: {a.dtype}{a.shape} for {b.dtype}{b.shape}"
            if a.numel() and not torch.equal(a.view(torch.uint8), b.view(torch.uint8)):
                raise AssertionError(f"{what}: got {one.flatten()[:8]}..., expected {other.flatten()[:8]}...")
        self.compared += 1

    def check(self, what, call, expected):
        """call(group, wait) -> tensors: in both ways of waiting, and by gloo if it can."""
        self.same(call(self.group, lambda work: None, False), expected, what)
        self.same(call(self.group, self.finish, True), expected, f"{what}, asynchronous")
        if not any(tensor.numel() for tensor in expected) or not (EVERYTHING or expected[0].dtype in FEW):
            return  # gloo of PyTorch 1.13 divides by the size
        try:
            theirs = call(self.gloo, lambda work: None, False)
        except (RuntimeError, ValueError, TypeError, AttributeError, NotImplementedError):
            return  # not there, or not for this type
        theirs = [x.view(torch.uint8) != 0 if x.dtype == torch.bool else x for x in theirs]  # True may be 2 there
        self.same(theirs, expected, f"{what} by gloo")
        self.with_gloo += 1

    @staticmethod
    def finish(work):
        work.wait()
        if not hasattr(work, "done"):  # all_reduce_coalesced returns a future
            assert work.is_completed() and work.is_success()


def everybody(compare, shape, dtype, **options):
    return [made(rank, shape, dtype, **options) for rank in range(compare.size)]


def reductions(compare, shape, dtype):
    size, rank = compare.size, compare.rank
    for name in OPERATIONS:
        if not exists(name, dtype):
            continue
        op, what = getattr(dist.ReduceOp, name), f"{name} of {dtype}{list(shape)} among {size}"
        values = 3 if name == "PRODUCT" else 7
        inputs = everybody(compare, shape, dtype, values=values)
        expected = reduced(name, inputs)

        def all_reduce(group, done, later):
            x = inputs[rank].clone()
            done(dist.all_reduce(x, op, group=group, async_op=later))
            return [x]

        def coalesced(group, done, later):
            xs = [inputs[rank].clone(), inputs[rank][..., :1].clone() if shape else inputs[rank].clone()]
            done(dist.all_reduce_coalesced(xs, op, group=group, async_op=later))
            return xs

        def reduce(group, done, later):
            x = inputs[rank].clone()
            done(dist.reduce(x, dist.get_global_rank(group, size - 1), op, group=group, async_op=later))
            return [x] if rank == size - 1 else [expected]

        compare.check(f"all_reduce, {what}", all_reduce, [expected])
        compare.check(f"all_reduce_coalesced, {what}", coalesced, [expected, expected[..., :1] if shape else expected])
        compare.check(f"reduce, {what}", reduce, [expected])

        parts = [everybody(compare, shape, dtype, salt=5 * to, values=values) for to in range(size)]
        mine = reduced(name, parts[rank])

        def reduce_scatter(group, done, later):
            x = torch.empty(shape, dtype=dtype)
            done(dist.reduce_scatter(x, [parts[to][rank] for to in range(size)], op, group=group, async_op=later))
            return [x]

        def reduce_scatter_tensor(group, done, later):
            x = torch.empty(shape, dtype=dtype).view(-1)
            whole = torch.cat([parts[to][rank].reshape(-1) for to in range(size)])
            done(dist.reduce_scatter_tensor(x, whole, op, group=group, async_op=later))
            return [x]

        compare.check(f"reduce_scatter, {what}", reduce_scatter, [mine])
        compare.check(f"reduce_scatter_tensor, {what}", reduce_scatter_tensor, [mine])


def moves(compare, shape, dtype):
    size, rank = compare.size, compare.rank
    inputs = everybody(compare, shape, dtype)
    what, root = f"of {dtype}{list(shape)} among {size}", size // 2
    mine, at_root = inputs[rank], dist.get_global_rank(compare.group, root)

    def empties(count=size):
        return [torch.empty(shape, dtype=dtype) for _ in range(count)]

    def broadcast(group, done, later):
        x = mine.clone() if rank == root else empties(1)[0]
        done(dist.broadcast(x, at_root, group=group, async_op=later))
        return [x]

    def all_gather(group, done, later):
        xs = empties()
        done(dist.all_gather(xs, mine, group=group, async_op=later))
        return xs

    def all_gather_into_tensor(group, done, later):
        x = torch.empty(size * mine.numel(), dtype=dtype)
        done(dist.all_gather_into_tensor(x, mine.reshape(-1), group=group, async_op=later))
        return [x]

    def all_gather_coalesced(group, done, later):
        lists = [empties(2) for _ in range(size)]
        done(dist.all_gather_coalesced(lists, [mine, mine.clone()], group=group, async_op=later))
        return [x for pair in lists for x in pair]

    def gather(group, done, later):
        xs = empties() if rank == root else None
        done(dist.gather(mine, xs, at_root, group=group, async_op=later))
        return xs or inputs

    def scatter(group, done, later):
        x = empties(1)[0]
        done(dist.scatter(x, inputs if rank == root else None, at_root, group=group, async_op=later))
        return [x]

    def all_to_all(group, done, later):
        xs = empties()
        done(dist.all_to_all(xs, [made(rank, shape, dtype, salt=to) for to in range(size)], group=group, async_op=later))
        return xs

    def all_to_all_single(group, done, later):
        whole = torch.cat([made(rank, shape, dtype, salt=to).reshape(-1) for to in range(size)])
        x = torch.empty_like(whole)
        done(dist.all_to_all_single(x, whole, group=group, async_op=later))
        return [x]

    swapped = [made(source, shape, dtype, salt=rank) for source in range(size)]
    compare.check(f"broadcast {what}", broadcast, [inputs[root]])
    compare.check(f"all_gather {what}", all_gather, inputs)
    compare.check(f"all_gather_into_tensor {what}", all_gather_into_tensor, [torch.cat([x.reshape(-1) for x in inputs])])
    compare.check(f"all_gather_coalesced {what}", all_gather_coalesced, [x for x in inputs for _ in range(2)])
    compare.check(f"gather {what}", gather, inputs)
    compare.check(f"scatter {what}", scatter, [mine])
    compare.check(f"all_to_all {what}", all_to_all, swapped)
    compare.check(f"all_to_all_single {what}", all_to_all_single, [torch.cat([x.reshape(-1) for x in swapped])])


def splits(compare, dtype):
    """all_to_all_single with rows for each: rank r sends (r + to) % 3 rows to `to`."""
    size, rank = compare.size, compare.rank
    gives = [(rank + to) % 3 for to in range(size)]
    whole = torch.cat([made(rank, (rows, 5), dtype, salt=to) for to, rows in enumerate(gives)])
    expected = torch.cat([made(source, (rows, 5), dtype, salt=rank) for source, rows in enumerate(gives)])

    def call(group, done, later):
        x = torch.empty(sum(gives), 5, dtype=dtype)
        done(dist.all_to_all_single(x, whole, gives, gives, group=group, async_op=later))
        return [x]

    def uneven(group, done, later):
        xs = [torch.empty(rows, 5, dtype=dtype) for rows in gives]
        done(dist.all_to_all(xs, list(whole.split(gives)), group=group, async_op=later))
        return [torch.cat(xs)]

    compare.check(f"all_to_all_single of rows of {dtype} among {size}", call, [expected])
    compare.check(f"all_to_all of rows of {dtype} among {size}", uneven, [expected])


def one_to_one(compare, shape, dtype):
    """Around a ring, in all the ways that PyTorch has."""
    size, rank = compare.size, compare.rank
    if size == 1:
        return
    to, source = (dist.get_global_rank(compare.group, (rank + step) % size) for step in (1, -1))
    mine, expected = made(rank, shape, dtype), made((rank - 1) % size, shape, dtype)

    def blocking(group, _done, _later):
        x = torch.empty(shape, dtype=dtype)
        calls = [lambda: dist.send(mine, to, group=group, tag=3), lambda: dist.recv(x, source, group=group, tag=3)]
        for call in calls if rank % 2 == 0 else calls[::-1]:
            call()
        return [x]

    def later(group, done, _later):
        x = torch.empty(shape, dtype=dtype)
        works = [dist.irecv(x, source, group=group), dist.isend(mine, to, group=group)]
        for work in works:
            work.wait()
            done(work)
        return [x]

    def batch(group, _done, _later):
        x = torch.empty(shape, dtype=dtype)
        operations = [dist.P2POp(dist.isend, mine, to, group), dist.P2POp(dist.irecv, x, source, group)]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        return [x]

    compare.check(f"send and recv of {dtype}{list(shape)}", blocking, [expected])
    compare.check(f"isend and irecv of {dtype}{list(shape)}", later, [expected])
    compare.check(f"batch_isend_irecv of {dtype}{list(shape)}", batch, [expected])


def objects(compare):
    size, rank, group = compare.size, compare.rank, compare.group
    first, last = dist.get_global_rank(group, 0), dist.get_global_rank(group, size - 1)
    things = [{"rank": r, "text": "x" * (100 * r)} for r in range(size)]
    got = [None] * size
    dist.all_gather_object(got, things[rank], group=group)
    assert got == things
    got = [None] * size if rank == size - 1 else None
    dist.gather_object(things[rank], got, last, group=group)
    assert got is None or got == things
    one = [things[0] if rank == 0 else None, 7 if rank == 0 else None]
    dist.broadcast_object_list(one, first, group=group)
    assert one == [things[0], 7]
    if first == 0 or MODERN:  # PyTorch 1.13 takes the source for a rank of the group there
        part = [None]
        dist.scatter_object_list(part, things if rank == 0 else None, first, group=group)
        assert part == [things[rank]]
    compare.compared += 4


def waiting(compare):
    """Works: futures, is_completed, several open at once, the others' order of waiting."""
    size, group = compare.size, compare.group
    works, tensors = [], [torch.full((100 + 1000 * i,), float(i)) for i in range(50)]
    for x in tensors:
        works.append(dist.all_reduce(x, group=group, async_op=True))
    for work in works[::-1]:
        work.wait()
    assert all(torch.equal(x, torch.full_like(x, float(i * size))) for i, x in enumerate(tensors))

    x = torch.ones(1 << 16)
    work = dist.all_reduce(x, group=group, async_op=True)
    while not work.is_completed():
        pass
    assert torch.equal(x, torch.full_like(x, float(size)))

    x = torch.ones(1000)
    seen = dist.all_reduce(x, group=group, async_op=True).get_future().then(lambda future: future.value()[0] * 2)
    assert torch.equal(seen.wait(), torch.full_like(x, 2.0 * size))
    compare.compared += 3
    dist.barrier(group=group)
    if MODERN:  # before, monitored_barrier was gloo's alone
        dist.monitored_barrier(group, timedelta(seconds=30))
        dist.monitored_barrier(group, timedelta(seconds=30), wait_all_ranks=True)


def differ(compare):
    """Where ctrun has what gloo does not: a factor for each rank, and tensors of different sizes."""
    size, rank, group = compare.size, compare.rank, compare.group
    if hasattr(dist.ReduceOp, "factor"):
        x = torch.full((9,), 2.0)
        dist.all_reduce(x, dist._make_nccl_premul_sum(rank + 1.0), group=group)
        assert torch.equal(x, torch.full_like(x, float(size * (size + 1))))
    xs = [torch.empty(r + 1, dtype=torch.int32) for r in range(size)]
    dist.all_gather(xs, torch.full((rank + 1,), rank, dtype=torch.int32), group=group)
    assert all(torch.equal(x, torch.full_like(x, r)) for r, x in enumerate(xs))
    out = torch.empty(rank + 1, dtype=torch.int32)
    dist.reduce_scatter(out, [torch.full((r + 1,), r, dtype=torch.int32) for r in range(size)], group=group)
    assert torch.equal(out, torch.full_like(out, rank * size))
    compare.compared += 3


def all_of(compare):
    for dtype in FEW if BRIEF else REDUCED:
        for shape in SHAPES:
            reductions(compare, shape, dtype)
    for dtype in FEW if BRIEF else MOVED:
        for shape in SHAPES:
            moves(compare, shape, dtype)
        splits(compare, dtype)
        one_to_one(compare, (5, 7), dtype)
    for shape in [] if BRIEF else LARGE:
        for dtype in FLOATS + [torch.int64] if EVERYTHING else [torch.float32]:
            reductions(compare, shape, dtype)
            moves(compare, shape, dtype)
            one_to_one(compare, shape, dtype)
    for shape in ODD:
        reductions(compare, shape, torch.float32)
        moves(compare, shape, torch.float32)
    objects(compare)
    waiting(compare)
    differ(compare)


def main():
    world, rank = dist.get_world_size(), dist.get_rank()
    compare = Comparison(dist.group.WORLD, dist.new_group(backend="gloo"))
    all_of(compare)
    compared, with_gloo = compare.compared, compare.with_gloo
    halves = [list(range(begin, world, 2)) for begin in range(min(world, 2))] + [list(range(1, world))] * (world > 3)
    for ranks in halves:  # subgroups: even ranks, odd ranks, all but the first
        group, gloo = dist.new_group(ranks, backend="ctrun"), dist.new_group(ranks, backend="gloo")
        if rank in ranks and world > 1:
            part = Comparison(group, gloo)
            reductions(part, (5, 7), torch.float32)
            moves(part, (5, 7), torch.int64)
            one_to_one(part, (5, 7), torch.float32)
            objects(part)
            waiting(part)
            differ(part)
            compared, with_gloo = compared + part.compared, with_gloo + part.with_gloo
    dist.barrier()
    if rank == 0:
        print(f"PyTorch {torch.__version__}: {world} ranks, {compared} results compared, {with_gloo} also by gloo")


if not hasattr(dist, "get_global_rank"):
    dist.get_global_rank = lambda group, rank: rank  # noqa: E731
dist.init_process_group("ctrun")
main()
dist.destroy_process_group()
