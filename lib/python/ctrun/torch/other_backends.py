"""DistributedDataParallel over gloo or nccl under Elastic: a failure of its communication stays in the loop's body.

PyTorch's own backends raise inside backward() and forward(). DDP's reduction is done by a communication hook instead,
and its broadcast of buffers is guarded, so that both end in vain once the round is over, as backend ctrun's do. Other
collectives of the body raise; catch what they raise, and go on to the next step, when job.failed.
"""
from __future__ import annotations

import functools

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def _hook(absorbs, bucket):
    """DDP's default reduction, an average, whose failure `absorbs` may take for the end of the round."""
    buffer = bucket.buffer().div_(dist.get_world_size())

    def settle(future):
        try:
            return future.value()[0]
        except Exception as error:  # of any kind: each backend has its own
            if not absorbs(error):
                raise
            return buffer

    try:
        return dist.all_reduce(buffer, async_op=True).get_future().then(settle)
    except Exception as error:
        if not absorbs(error):
            raise
    done = torch.futures.Future()
    done.set_result(buffer)
    return done


def guard_ddp(ddp: DistributedDataParallel, absorbs) -> None:
    """Have the communication of `ddp` ask absorbs(error), a bool, about its failures. Once after each constructor."""
    ddp.register_comm_hook(absorbs, _hook)
    sync = ddp._sync_buffers

    @functools.wraps(sync)
    def guarded() -> None:
        try:
            sync()
        except Exception as error:
            if not absorbs(error):
                raise
    ddp._sync_buffers = guarded
