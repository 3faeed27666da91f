"""A training whose result is exact at any number of ranks: each step adds (number + 1) * 7140 to the state.

argv: STEPS, and what happens in the step STEPS // 2: "none"; "kill": rank 1 of the first round is killed, by itself,
once the others are in that step, too; "stop": all ranks wait for ctrun's request to stop, and append to "waiting"
before. Each process appends a line to "starts" and one to "ends".
"""
import os
import signal
import sys

import numpy

import ctrun

STEPS, EVENT = int(sys.argv[1]), sys.argv[2]
ROWS = numpy.arange(120.0)


def append(name, text):
    with open(name, "a") as file:
        file.write(text + "\n")


def count(name):
    if not os.path.exists(name):
        return 0
    with open(name) as file:
        return file.read().count("\n")


def happen(job, step):
    if EVENT == "kill" and step.number == STEPS // 2 and job.generation == 1:
        if job.rank != 1:
            append("begun", str(job.rank))
            return
        while count("begun") < job.world - 1:
            signal.sigtimedwait([signal.SIGUSR1], 0.005)
        os.kill(os.getpid(), signal.SIGKILL)
    if EVENT == "stop" and step.number == STEPS // 2:
        append("waiting", str(job.rank))
        while not job.stop_requested:
            signal.sigtimedwait([signal.SIGUSR1], 0.005)


append("starts", str(os.getpid()))
job = ctrun.init()
total, seen = numpy.zeros(1), numpy.zeros(STEPS, "int64")
loop = ctrun.steps(job, {"total": total, "seen": seen}, total=STEPS)
repeated = 0
for step in loop:
    assert step.group.size == job.world
    with step:
        share = ROWS[job.rank::job.world].sum(keepdims=True)
        happen(job, step)
        if step.number % 2:
            step.group.all_reduce(share)
        else:
            ctrun.all_reduce(share)  # a group of the job's, which each round makes anew
        total += (step.number + 1) * share
        seen[step.number] += 1
    repeated += step.failed
assert loop.stopped == (loop.number < STEPS)
assert total[0] == loop.number * (loop.number + 1) / 2 * 7140, (total, loop.number)
assert (seen[:loop.number] == 1).all() and not seen[loop.number:].any(), seen
append("ends", f"{job.rank} of {job.world} at {loop.number} {loop.all_stop} {repeated}")
