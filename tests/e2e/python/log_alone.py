"""Metrics of a script that no ctrun has started. argv: what to do in the folder "here"."""
import sys

import ctrun
from ctrun.metrics import Writer


def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
        return
    raise AssertionError(f"no {kind.__name__}")


what = sys.argv[1]
ctrun.log_to("here", resume=what == "resume", tensorboard=False)
if what == "first":
    for _ in range(3):
        ctrun.log({"loss": 1.5})  # steps 1 to 3
    refused(ctrun.UsageError, "'step'", lambda: ctrun.log({"step": 4}))
    refused(ctrun.UsageError, "must be a number", lambda: ctrun.log({"loss": "small"}))
    refused(ctrun.UsageError, "no kind 'test'", lambda: ctrun.log({"loss": 1}, kind="test"))
    refused(ctrun.UsageError, "before the first", lambda: ctrun.log_to("there"))
    assert ctrun.run_folder().endswith("/here")
    raise ValueError("it fails on purpose")
elif what == "again":
    refused(ctrun.UsageError, "holds another run", lambda: ctrun.log({"loss": 9.0}))
else:
    ctrun.log({"loss": 2.5})  # step 4
    ctrun.log({"loss": 3.5}, step=3)  # repeated: 3 and 4 are dropped
    older = Writer("here", 3, False)
    newer = Writer("here", 2, False)
    refused(ctrun.FencedError, "another process writes it", lambda: older.write("train", 4, 0, {"loss": 0.5}))
    newer.write("train", 3, 0, {"loss": 4.5})
print("as it should")
