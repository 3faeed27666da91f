"""Linear regression by NumPy that goes on when a rank is killed. No PyTorch, no checkpoint.

    ctrun --nproc_per_node 4 lib/python/examples/elastic_numpy.py
    kill -9 one of its ranks while it runs: the others go on, and a new one joins them (--max_restarts 1)

Each rank takes its share of the rows, the same at any number of ranks; the weights are equal on all. That state is
registered: survivors keep it, and whoever is new gets it.
"""
import sys

import numpy

import ctrun

STEPS = int(sys.argv[1]) if len(sys.argv) > 1 else 300
ROWS, COLUMNS = 1200, 8


def make_data():
    random = numpy.random.default_rng(1)
    x = random.standard_normal((ROWS, COLUMNS))
    truth = numpy.arange(1.0, COLUMNS + 1)
    return x, x @ truth + 0.01 * random.standard_normal(ROWS), truth


def main():
    x, y, truth = make_data()
    weights = numpy.zeros(COLUMNS)
    with ctrun.init() as job:
        ctrun.log_to(steps=STEPS)
        for step in ctrun.steps(job, {"weights": weights}, total=STEPS):
            if step.regrouped and job.rank == 0:
                print(f"step {step.number}: {job.world} ranks", flush=True)
            with step:
                mine = slice(job.rank, ROWS, job.world)
                errors = x[mine] @ weights - y[mine]
                sums = numpy.append(errors @ x[mine], errors @ errors)  # gradient and loss in one call
                step.group.all_reduce(sums)
                weights -= 0.1 * sums[:-1] / ROWS  # behind the last collective: a failed step leaves no trace
                ctrun.log({"loss": sums[-1] / ROWS}, step=step.number + 1)
        if job.rank == 0:
            job.summary(f"weights are off by {numpy.abs(weights - truth).max():.4f} at most")


main()
