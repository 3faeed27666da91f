"""Forty steps that are logged; after the 33rd rank 0 fails once, and the second attempt goes on from step 21."""
import sys

import ctrun

with ctrun.init() as job:
    ctrun.log_to(steps=40)
    for step in range(21 if job.restart_count else 1, 41):
        ctrun.log({"loss": 1 / step, "samples_per_s": 100 * step, "lr": 0.1, "odd": float("nan")}, step=step)
        if step % 10 == 0:
            ctrun.log({"loss": 2 / step, "accuracy": step / 50}, step=step, kind="eval")
        if step == 33 and job.rank == 0 and job.restart_count == 0:
            sys.exit(3)
        ctrun.barrier()
