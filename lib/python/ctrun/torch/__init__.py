"""ctrun for PyTorch: `import ctrun.torch` registers backend "ctrun" with torch.distributed."""
from __future__ import annotations

from .checkpoints import Checkpoints
from .elastic import Elastic
from .process_group import ProcessGroup, register
from .provisional import init_process_group
from .sampler import Sampler
from .store import Store

register()

__all__ = ["Checkpoints", "Elastic", "ProcessGroup", "Sampler", "Store", "init_process_group"]
