"""What PyTorch builds on its collectives, on backend ctrun with gloo's results: DDP, FSDP, tensor parallelism and more.

usage: ctrun [options] parallel.py [NAME...]      all that this PyTorch has, by default

Among two ranks sums have one order, so parameters must have the same bits; among more they must be close. With
TORCH_DISTRIBUTED_DEBUG=DETAIL gloo is left out: PyTorch 2.15 crashes there. Rank 0 prints what worked.
"""
import contextlib
import os
import sys
import tempfile
import warnings
from datetime import timedelta

import ctrun.torch  # noqa: F401, registers the backend
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

warnings.simplefilter("ignore")
MODERN = hasattr(dist.ProcessGroup, "_device_types")  # 2.0 and later
DETAIL = os.environ.get("TORCH_DISTRIBUTED_DEBUG") == "DETAIL"
CHECKS = {}


def check(function):
    """function(group) -> tensors that must be the same by both backends."""
    CHECKS[function.__name__] = function
    return function


def modern(function):
    return check(function) if MODERN else function


def model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 4))


def batch(step, rank):
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(8, 16, generator=generator), torch.randint(0, 4, (8,), generator=generator)


def trained(net, group, steps=4, optimizer=None, between=None):
    """Train; even steps are inside of `between` and update nothing."""
    optimizer = optimizer or torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        pixels, labels = batch(step, dist.get_rank(group))
        only_adds = between is not None and step % 2 == 0
        with between() if only_adds else contextlib.nullcontext():
            cross_entropy(net(pixels), labels).backward()
        if not only_adds:
            optimizer.step()
            optimizer.zero_grad()
    return [parameter.detach().clone() for parameter in net.parameters()]


def ddp(group, net=None, **options):
    return DistributedDataParallel(net or model(), process_group=group, **options)


# ---- data parallel -----------------------------------------------------------------------------


@check
def plain(group):
    return trained(ddp(group), group)


@check
def several_buckets(group):
    return trained(ddp(group, bucket_cap_mb=0.002), group) + trained(ddp(group, gradient_as_bucket_view=True), group)


@check
def static_graph(group):
    return trained(ddp(group, static_graph=True), group)


class Branches(nn.Module):
    """Ranks use different halves of the parameters."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.even, self.odd = nn.Linear(16, 4), nn.Linear(16, 4)

    def forward(self, x):
        return (self.odd if dist.get_rank() % 2 else self.even)(x)


@check
def unused_parameters(group):
    return trained(ddp(group, Branches(), find_unused_parameters=True), group)


@check
def no_sync(group):
    net = ddp(group)
    return trained(net, group, between=net.no_sync)


@check
def buffers(group):
    torch.manual_seed(1)
    net = ddp(group, nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Linear(32, 4)))
    trained(net, group)
    net.eval()
    return [buffer.clone() for buffer in net.buffers()] if dist.get_rank(group) == 0 else []


@check
def compressed(group):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    net = ddp(group)
    net.register_comm_hook(group, default_hooks.fp16_compress_hook)
    return trained(net, group)


@check
def low_rank(group):
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power
    net = ddp(group)
    state = power.PowerSGDState(process_group=group, matrix_approximation_rank=2, start_powerSGD_iter=2)
    net.register_comm_hook(state, power.powerSGD_hook)
    return trained(net, group, steps=6)


@check
def sharded_optimizer(group):
    from torch.distributed.optim import ZeroRedundancyOptimizer
    net = ddp(group)
    optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01, process_group=group)
    parameters = trained(net, group, optimizer=optimizer)
    optimizer.consolidate_state_dict(0)
    return parameters


@check
def uneven_inputs(group):
    from torch.distributed.algorithms.join import Join
    net = ddp(group)
    with Join([net]):
        for step in range(2 + dist.get_rank(group)):
            pixels, labels = batch(step, 0)
            cross_entropy(net(pixels), labels).backward()
    return []


@check
def sampled(group):
    """A DataLoader whose workers are forked after the group was made, as usual."""
    data = TensorDataset(*batch(0, 0))
    sampler = DistributedSampler(data, dist.get_world_size(group), dist.get_rank(group), seed=3)
    seen = torch.cat([pixels for pixels, _ in DataLoader(data, 2, sampler=sampler, num_workers=1)])
    total = seen.sum(0)
    dist.all_reduce(total, group=group)
    return [total]


# ---- sharded -----------------------------------------------------------------------------------


@modern  # PyTorch 1.13's does not load in Python 3.11
def fully_sharded(group):
    from torch.distributed.fsdp import FullyShardedDataParallel
    net = FullyShardedDataParallel(model(), process_group=group, device_id=torch.device("cpu"))
    trained(net, group, optimizer=torch.optim.SGD(net.parameters(), lr=0.1))
    with FullyShardedDataParallel.summon_full_params(net):
        return [parameter.detach().clone() for parameter in net.parameters()]


@modern
def fully_sharded_layers(group):
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import fully_shard
    mesh, net = DeviceMesh.from_group(group, "cpu"), model()
    for layer in [*net[::2], net]:
        fully_shard(layer, mesh=mesh)
    trained(net, group, optimizer=torch.optim.Adam(net.parameters(), lr=0.01))
    return [parameter.full_tensor().detach() for parameter in net.parameters()]


@modern
def checkpointed(group):
    import torch.distributed.checkpoint as checkpoint
    net, place = model(), tempfile.TemporaryDirectory() if dist.get_rank() == 0 else None
    folder = [place and place.name]
    dist.broadcast_object_list(folder, 0)
    state = {"net": net.state_dict()}
    checkpoint.save(state, checkpoint_id=folder[0], process_group=group)
    for parameter in net.parameters():
        parameter.data.zero_()
    checkpoint.load(state, checkpoint_id=folder[0], process_group=group)
    dist.barrier()
    return [parameter.detach().clone() for parameter in net.parameters()]


# ---- tensors over a mesh -----------------------------------------------------------------------


@modern
def distributed_tensors(_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard, distribute_tensor
    world = dist.get_world_size()
    mesh, x = init_device_mesh("cpu", (world,)), torch.arange(16.0 * world).view(4 * world, 4)
    spread = distribute_tensor(x, mesh, [Shard(0)])
    assert torch.equal(spread.full_tensor(), x) and torch.equal(spread.sum().full_tensor(), x.sum())
    return [spread.redistribute(mesh, [Shard(1)]).full_tensor()]


@modern
def two_dimensions(_group):
    from torch.distributed.device_mesh import init_device_mesh
    world, sums = dist.get_world_size(), []
    rows = 2 if world % 2 == 0 else 1
    mesh = init_device_mesh("cpu", (rows, world // rows), mesh_dim_names=("data", "tensor"))
    for name, size in (("data", rows), ("tensor", world // rows)):
        x = torch.ones(3)
        dist.all_reduce(x, group=mesh[name].get_group())
        assert x[0] == size
        sums.append(x)
    return sums


@modern
def tensor_parallel(_group):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    if 64 % dist.get_world_size():
        return []
    mesh, whole, net = init_device_mesh("cpu", (dist.get_world_size(),)), model(), model()
    parallelize_module(net, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    pixels, _ = batch(0, 0)
    torch.testing.assert_close(net(pixels), whole(pixels))
    net(pixels).sum().backward()
    return []


# ---- functions ---------------------------------------------------------------------------------


@check
def differentiable(group):
    from torch.distributed.nn import functional
    found = []
    for call in (lambda x: functional.all_reduce(x, group=group), lambda x: functional.broadcast(x, 0, group=group),
                 lambda x: torch.cat(list(functional.all_gather(x, group=group)))):
        x = torch.randn(4, generator=torch.Generator().manual_seed(dist.get_rank()), requires_grad=True)
        y = call(x)
        (y * y).sum().backward()
        found += [y.detach().clone(), x.grad.clone()]
    return found


@modern
def functional_collectives(group):
    import torch.distributed._functional_collectives as functional
    world, x = dist.get_world_size(), torch.arange(8.0) + dist.get_rank()
    many = torch.cat([x] * world)
    found = [functional.all_reduce(x, "sum", group), functional.all_gather_tensor(x, 0, group),
             functional.reduce_scatter_tensor(many, "sum", 0, group), functional.broadcast(x, 0, group),
             functional.all_to_all_single(torch.arange(float(world)), None, None, group),
             *functional.all_reduce_coalesced([x, 2 * x], "sum", group),
             *functional.all_gather_into_tensor_coalesced([x, 2 * x], group),
             *functional.reduce_scatter_tensor_coalesced([many, 2 * many], "sum", [0, 0], group)]
    return [tensor.wait() for tensor in found]


@modern
def coalesced(group):
    from torch.distributed.distributed_c10d import _coalescing_manager
    tensors = [torch.full((4,), float(i)) for i in range(5)]
    with _coalescing_manager(group, async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor, group=group)
    manager.wait()
    return tensors


def main():
    gloo, worked = None if DETAIL else dist.new_group(backend="gloo"), []
    for name in sys.argv[1:] or CHECKS:
        ours = CHECKS[name](dist.group.WORLD)
        for one, other in zip(ours, CHECKS[name](gloo) if gloo is not None else ours):
            if dist.get_world_size() == 2:
                assert torch.equal(one, other), f"{name} differs from gloo's"
            else:
                torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)
        worked.append(name)
    dist.barrier()
    if dist.get_rank() == 0:
        print(f"PyTorch {torch.__version__}: {len(worked)} work: {', '.join(worked)}")


dist.init_process_group("ctrun", timeout=timedelta(seconds=60))
main()
dist.destroy_process_group()
