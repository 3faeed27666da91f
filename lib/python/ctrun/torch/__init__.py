"""ctrun for PyTorch: `import ctrun.torch` registers backend "ctrun" with torch.distributed."""
from __future__ import annotations

from .process_group import register

register()
