"""Debian's torchrun 1.13.1, made to work on Python 3.11.

Python 3.11 no longer yields the zero member when a Flag class is iterated, so torchrun's own parser
of --redirects finds nothing for "0" and crashes. Nothing else is changed.

usage: torchrun.py [torchrun options...]
"""

import sys

from torch.distributed.elastic.multiprocessing.api import Std
from torch.distributed.run import main

from_str = Std.from_str.__func__
Std.from_str = classmethod(lambda cls, text: cls(int(text)) if text.isdigit() else from_str(cls, text))

if __name__ == "__main__":
    main(sys.argv[1:])
