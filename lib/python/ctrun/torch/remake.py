"""DistributedDataParallel over another process group, in place: its own constructor once more."""
from __future__ import annotations

import inspect

from torch.nn.parallel import DistributedDataParallel

# What the constructor is not given again: the module and the default group are, the rest has no attribute of its name.
_OTHERS = {"self", "module", "process_group", "device_mesh", "bucket_cap_mb", "init_sync"}


def remake(ddp: DistributedDataParallel) -> None:
    """Have `ddp` reduce over the default process group that exists now. Collective over it, as the constructor is.

    Options, hooks of the wrapper, and communication hooks (of PyTorch 2) are kept.
    """
    parameters = inspect.signature(DistributedDataParallel.__init__).parameters
    options = {name: getattr(ddp, name) for name in parameters if name not in _OTHERS and hasattr(ddp, name)}
    options["bucket_cap_mb"] = ddp.bucket_bytes_cap // (1 << 20)
    if "init_sync" in parameters:
        options["init_sync"] = False  # all ranks have the same state already
    kept = {name: value for name, value in vars(ddp).items() if name.endswith("_hooks") and name != "_comm_hooks"}
    hooks, training, module = list(getattr(ddp, "_comm_hooks", [])), ddp.training, ddp.module
    vars(ddp).pop("_sync_buffers", None)  # other_backends.py guards it anew
    ddp.reducer = ddp.logger = None  # its hooks on the parameters go with it
    ddp.__init__(module, **options)
    vars(ddp).update(kept)
    ddp.training = training
    for hook, state in hooks:
        if hook.__module__ != "ctrun.torch.other_backends":
            ddp.register_comm_hook(state, hook)
