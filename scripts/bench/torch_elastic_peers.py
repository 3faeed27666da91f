"""A rank of scripts/bench/torch_elastic under torchft or torchrun (torch_elastic_model.py)."""
import datetime
import os
import sys

import torch
import torch.distributed as dist
from torch_elastic_model import BATCH, DATA, FOLDER, NET, ROWS, STEPS, completed, ended, train

SAVED_EACH = 100


def batches(epoch, rank, world):
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch))[rank::world]
    for at in range(0, len(order) - BATCH + 1, BATCH):
        yield DATA[order[at:at + BATCH]]


def torchft():
    from torchft import DistributedDataParallel, Manager, Optimizer, ProcessGroupGloo
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    optimizer = torch.optim.Adam(NET.parameters(), lr=1e-3)

    def state():
        return {"net": NET.state_dict(), "optimizer": optimizer.state_dict()}

    def load(found):
        NET.load_state_dict(found["net"])
        optimizer.load_state_dict(found["optimizer"])
    manager = Manager(pg=ProcessGroupGloo(timeout=datetime.timedelta(seconds=30)), min_replica_size=2,
                      load_state_dict=load, state_dict=state, replica_id=os.environ["REPLICA"], rank=0, world_size=1,
                      hostname="127.0.0.1", store_addr="127.0.0.1", store_port=store.port)
    model, wrapped = DistributedDataParallel(manager, NET), Optimizer(manager, optimizer)
    while manager.current_step() < STEPS:
        for rows, labels in batches(manager.batches_committed(), int(os.environ["REPLICA"]), 3):
            before = manager.current_step()
            train(model, wrapped, rows, labels)
            if manager.current_step() > before:
                completed(before, manager.num_participants(), manager._quorum_id)
            if manager.current_step() >= STEPS:
                break
    manager.shutdown()


def torchrun():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    model = torch.nn.parallel.DistributedDataParallel(NET)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    step, path = 0, os.path.join(FOLDER, "checkpoint.pt")
    if os.path.exists(path):
        saved = torch.load(path)
        NET.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    while step < STEPS:
        for rows, labels in batches(step, rank, world):
            if step % SAVED_EACH == 0 and rank == 0:
                torch.save({"net": NET.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, path + ".new")
                os.replace(path + ".new", path)
            train(model, optimizer, rows, labels)
            completed(step, world, int(os.environ["TORCHELASTIC_RESTART_COUNT"]))
            step += 1


{"torchft": torchft, "torchrun": torchrun}[sys.argv[1]]()
ended()
