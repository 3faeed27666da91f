"""A rank of scripts/bench/torch_elastic under ctrun (torch_elastic_model.py)."""
import ctrun.torch
import torch
from torch.nn.parallel import DistributedDataParallel
from torch_elastic_model import BATCH, DATA, NET, STEPS, completed, ended, train

ctrun.torch.init_process_group("ctrun")
model = DistributedDataParallel(NET)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
sampler = ctrun.torch.Sampler(DATA, BATCH, seed=3)
loader = torch.utils.data.DataLoader(DATA, BATCH, sampler=sampler)
with ctrun.torch.Elastic(model, optimizer, sampler=sampler) as job:
    for rows, labels in job.steps(loader, total=STEPS):
        train(model, optimizer, rows, labels)
        if not job.failed:
            completed(job.step, job.world, ctrun.init().generation)
ended()
