"""A rank of ctrun.run: the program that ctrun starts (launch.py)."""
import os
import sys

sys.path[0] = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # not this folder

from ctrun import launch  # noqa: E402

launch.serve(sys.argv[1])
