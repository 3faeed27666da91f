"""What is refused, and with which words. Two ranks."""
import os

import numpy

import ctrun


def refused(kind, words, call, *arguments, **options):
    try:
        call(*arguments, **options)
    except ctrun.Error as error:
        if not isinstance(error, kind) or words not in str(error):
            raise AssertionError(f"{kind.__name__} with {words!r} was expected") from error
        return error
    raise AssertionError(f"{kind.__name__} with {words!r} was expected, and nothing failed")


def wrong_arguments(group):
    x = numpy.ones((4, 4), "f4")
    refused(ctrun.UsageError, "not contiguous", group.all_reduce, x[:, 0])
    refused(ctrun.UsageError, "not contiguous", group.all_reduce, x.T)
    refused(ctrun.UsageError, "ctrun has F32", group.all_reduce, x.astype("c8"))
    refused(ctrun.UsageError, "ctrun has F32", group.all_reduce, x.astype(">f4"))
    refused(ctrun.UsageError, "no array", group.all_reduce, [1.0, 2.0])
    frozen = numpy.ones(4)
    frozen.flags.writeable = False
    refused(ctrun.UsageError, "cannot be written", group.all_reduce, frozen)
    refused(ctrun.UsageError, "cannot be written", group.broadcast, b"bytes", 1 - group.rank)
    refused(ctrun.UsageError, "no operation 'mean'", group.all_reduce, x, "mean")
    refused(ctrun.UsageError, "no mode 'exact'", group.all_reduce, x, mode="exact")
    refused(ctrun.UsageError, "must be positive", group.barrier, timeout=0)
    refused(ctrun.UsageError, "different types", group.all_reduce, x, out=numpy.empty(16, "f8"))
    refused(ctrun.UsageError, "16 are needed", group.all_reduce, x, out=numpy.empty(15, "f4"))
    refused(ctrun.UsageError, "no 2 equal parts", group.all_gather, numpy.empty(3))
    refused(ctrun.UsageError, "is of bits", group.all_reduce, x, "and")
    refused(ctrun.UsageError, "floating-point", group.reduce, numpy.ones(2, "i4"), 0, "premul_sum")
    refused(ctrun.UsageError, "broadcast: wrong usage", group.broadcast, x, 5)
    refused(ValueError, "counts", group.all_gather_v, numpy.empty(3), numpy.empty(1), [1, 1, 1])
    same = group.all_reduce(numpy.ones(2), "sum")  # nothing of all this has broken it
    assert same[0] == 2, same


def mismatched(job):
    group = job.group(name="mismatched")
    error = refused(ctrun.MismatchError, "all_reduce", group.all_reduce, numpy.ones(3 + job.rank))
    assert error.code == -1019, error.code
    refused(ctrun.MismatchError, "all_reduce", group.barrier)  # it is broken from then on
    group.close()


def late(job):
    """Rank 1 calls when rank 0 has given up."""
    group = job.group(name="late")
    if job.rank == 0:
        error = refused(ctrun.TimeoutError, "barrier", group.barrier, timeout=0.05)
        assert isinstance(error, TimeoutError)  # Python's own
        group.close()
        job.store_set("gave up", b"")
    else:
        job.store_get("gave up")
        refused(ctrun.Error, "", group.barrier, timeout=10)
        group.close()
    refused(ctrun.TimeoutError, "no key", job.store_get, "no key", 0.01)


def forked(job):
    """A child by fork has no part in the job, and does not disturb it by its end."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            refused(ctrun.UsageError, "was forked", ctrun.barrier)
            refused(ctrun.UsageError, "was forked", lambda: job.rank)
            job.close()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    ctrun.barrier()


def closed(job):
    group = job.group(name="closed")
    group.close()
    group.close()
    refused(ctrun.ClosedError, "was closed", group.barrier)
    left = job.group(name="left")
    job.close()
    refused(ctrun.ClosedError, "was closed", left.barrier)
    refused(ctrun.ClosedError, "was closed", lambda: job.rank)
    refused(ctrun.UsageError, "no job is open", ctrun.barrier)
    refused(ctrun.UsageError, "has left its job", ctrun.init)


def main():
    refused(ctrun.UsageError, "no job is open", ctrun.barrier)
    job = ctrun.init()
    assert ctrun.init() is job
    ctrun.barrier()
    for check in (lambda job: wrong_arguments(job.group(name="usage")), mismatched, late, forked, closed):
        check(job)
    print("all refused")


main()
