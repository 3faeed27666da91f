"""`python -m ctrun ...` is `ctrun ...`, with this interpreter for scripts."""
import os
import sys

from .launch import program

os.environ.setdefault("PYTHON_EXEC", sys.executable)
os.execv(program(), ["ctrun", *sys.argv[1:]])
