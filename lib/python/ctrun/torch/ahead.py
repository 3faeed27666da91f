"""What trainings in PyTorch import late, for interpreters that ctrun starts ahead (lib/launch/warm_start.c).

Since PyTorch 2 the first optimizer imports torch._dynamo: more than a second.
"""
try:
    import torch._dynamo  # noqa: F401
except ImportError:
    pass  # PyTorch 1
