"""An elastic training over real digits: what a rank lost, a stop, a node lost or joined leave behind.

usage: ctrun [options] elastic.py BACKEND EPOCHS

In this folder, each process writes pid_PID when its loop has begun, and end_RANK at the end: pid, steps, world, rounds
lived through, digest. Rank 0 writes step, the number of the newest step. FAULT says what happens at a step, once:
  kill:STEP:RANK     that rank ends itself by SIGKILL
  node:STEP:RANK     it ends its ctrun so
  stop:STEP:RANK     it asks its ctrun to stop
  signal of Slurm:STEP:RANK    it sends it SIGUSR1
  slow               a step takes 20 ms more, so that a node has time to join
With CHECKPOINT=FOLDER the training saves there, in front of its last step, too, and goes on from there.
"""
import os
import select
import signal
import sys

import ctrun.torch
import torch
from digits import digest, load
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset


def write(name, text):
    with open(name + ".new", "w", encoding="ascii") as file:
        file.write(text)
    os.replace(name + ".new", name)


def happen(job, fault):
    kind, _, place = fault.partition(":")
    if kind == "slow":
        select.select([], [], [], 0.02)
        return
    step, _, rank = place.partition(":")
    if fault and job.step == int(step) and job.rank == int(rank) and not os.path.exists("happened"):
        write("happened", fault)
        pid, number = {"kill": (os.getpid(), signal.SIGKILL), "node": (os.getppid(), signal.SIGKILL),
                       "stop": (os.getppid(), signal.SIGTERM),
                       "signal of Slurm": (os.getppid(), signal.SIGUSR1)}[kind]
        os.kill(pid, number)


def train(backend, epochs):
    torch.set_num_threads(1)
    ctrun.torch.init_process_group(backend)
    torch.manual_seed(1)
    data = TensorDataset(*load())
    net = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.1), nn.Linear(64, 10))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.002)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 20, 0.9)
    sampler = ctrun.torch.Sampler(data, 20, seed=3)
    loader = DataLoader(data, 20, sampler=sampler)
    with ctrun.torch.Elastic(model, optimizer, scheduler=scheduler, sampler=sampler, seed=7,
                             checkpoint=os.environ.get("CHECKPOINT"), every=89) as job:
        write(f"pid_{os.getpid()}", "")
        for x, y in job.steps(loader, epochs=epochs):
            optimizer.zero_grad()
            cross_entropy(model(x), y).backward()
            optimizer.step()
            scheduler.step()
            if job.rank == 0:
                write("step", f"{job.step}\n")
            happen(job, os.environ.get("FAULT", ""))
        write(f"end_{job.rank}", f"{os.getpid()} {job.step} {job.world} {job.regroups} {digest(net)}\n")


train(sys.argv[1], int(sys.argv[2]))
