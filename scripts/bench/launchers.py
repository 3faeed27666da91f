"""What the benchmarks of launchers share: their commands, and a worker that is killed again and again.

torchrun is that of the interpreter TEST_TORCH, or Debian's (python3-torch, scripts/deps --bench).
"""
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.environ.get("TEST_TORCH", "/usr/bin/python3")
TORCHRUN = [PYTHON, os.path.join(HERE, "torchrun.py"), "--standalone"]


def torch_version():
    """None without PyTorch."""
    ask = "import importlib.metadata as m; print(m.version('torch'))"
    answer = subprocess.run([PYTHON, "-c", ask], capture_output=True, text=True, check=False)
    return answer.stdout.strip() or None


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def wait_for(condition):
    """The condition's value, once it has one."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        value = condition()
        if value:
            return value
        time.sleep(0.002)
    sys.exit("nothing happened for a minute")


def respawn(command, workers, kills):
    """Seconds from the SIGKILL of one worker until all have been started anew, for each kill."""
    folder = tempfile.mkdtemp(prefix="ctrun-respawn-")
    starts = os.path.join(folder, "starts")
    script = os.path.join(folder, "worker")
    with open(script, "w", encoding="ascii") as file:
        file.write(f"#!/bin/bash\necho $$ $EPOCHREALTIME >> {starts}\nexec sleep 600\n")
    os.chmod(script, 0o755)
    open(starts, "w", encoding="ascii").close()

    def started():
        with open(starts, encoding="ascii") as file:
            return [line.split() for line in file.read().splitlines()]

    budget = ["--nproc_per_node", str(workers), "--max_restarts", str(kills + 1), "--no_python"]
    job = subprocess.Popen([*command, *budget, script], stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL)
    seconds = []
    for turn in range(kills):
        wait_for(lambda turn=turn: len(started()) >= workers * (turn + 1))
        time.sleep(0.5)
        killed_at = time.time()
        os.kill(int(started()[workers * turn][0]), signal.SIGKILL)
        wait_for(lambda turn=turn: len(started()) >= workers * (turn + 2))
        seconds.append(max(float(row[1]) for row in started()[workers * (turn + 1):]) - killed_at)
    job.send_signal(signal.SIGINT)
    job.wait()
    shutil.rmtree(folder)
    return seconds
