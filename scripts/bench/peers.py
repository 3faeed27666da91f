#!/usr/bin/env python3
"""Are the peers here, and are they worth measuring against?

usage: scripts/bench/peers.py [--weak-peer] [BUILD]

PyTorch without a good BLAS makes everything else look fast: Debian's reference BLAS does 3 GFLOP/s where a core does
100. So a benchmark that trains with PyTorch first measures a matrix product of 1024^3 in PyTorch's own process, on one
thread, and refuses it when another BLAS of this machine, or ctrun's own product (BUILD/bench/gemm), reaches more than
twice as much. --weak-peer, or WEAK_PEER=1, measures it all the same; the table says what both reach.
"""
import glob
import os
import re
import subprocess
import sys

sys.dont_write_bytecode = True
from launchers import HERE, PYTHON

PRODUCT = """
import time, torch
torch.set_num_threads(1)
n = 1024
a, b = torch.rand(n, n), torch.rand(n, n)
best = float("inf")
until = time.monotonic() + 1
while best == float("inf") or time.monotonic() < until:
    begin = time.thread_time()
    torch.mm(a, b)
    best = min(best, time.thread_time() - begin)
print(2e-9 * n ** 3 / best)
"""
BLAS = "/usr/lib/*/{openblas*,blis*,atlas,mkl}/libblas.so.3"


def install():
    """The peers of all benchmarks; without them a script stops here."""
    done = subprocess.run([os.path.join(HERE, "../deps"), "--bench"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{os.path.basename(sys.argv[0])}: peers are missing and cannot be installed "
                 f"(scripts/deps --bench): {done.stderr.strip().splitlines()[-1:] or ['no reason given']}")


def product(folder=None):
    """GFLOP/s of PyTorch's product, with the BLAS that it has, or that of a folder."""
    environment = dict(os.environ, OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    environment.pop("OPENBLAS_CORETYPE", None)
    if folder:
        environment["LD_LIBRARY_PATH"] = folder
    done = subprocess.run([PYTHON, "-c", PRODUCT], capture_output=True, text=True, env=environment, check=False)
    return float(done.stdout) if done.returncode == 0 else None


def own_product(build):
    """GFLOP/s of ctrun's best product of a layer; None when BUILD/bench/gemm has not been built."""
    program = os.path.join(build, "bench/gemm")
    if not os.path.exists(program):
        return None
    text = subprocess.run([program, "--ms", "20", "--openblas", "none"], capture_output=True, text=True, check=True).stdout
    return max(float(rate) for rate in re.findall(r"^ *1024 x +768 x 3072  \S+ +([\d.]+)", text, re.M))


def check(build, weak):
    """What PyTorch and ctrun reach, in words; ends the script when PyTorch reaches less than half of the best here."""
    peer, ours = product(), own_product(build)
    if peer is None:
        sys.exit(f"{os.path.basename(sys.argv[0])}: PyTorch is not installed (scripts/deps --bench)")
    if ours is None and not weak:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {build}/bench/gemm is missing, which tells a weak peer (make bench)")
    best, name = (ours or 0), "ctrun's own product"
    first, last = BLAS.split("{")[0], BLAS.split("}")[1]
    for kind in BLAS.split("{")[1].split("}")[0].split(","):
        for path in glob.glob(first + kind + last):
            rate = product(os.path.dirname(path))
            if rate and rate > best:
                best, name = rate, path
    words = f"f32 matrix products on one thread, GFLOP/s: PyTorch {peer:.1f}" + (f", ctrun {ours:.1f}" if ours else "")
    if peer < best / 2 and not weak:
        sys.exit(f"{os.path.basename(sys.argv[0])}: PyTorch's matrix product reaches {peer:.1f} GFLOP/s and {name} "
                 f"{best:.1f}: it has a weak BLAS (scripts/deps --bench installs OpenBLAS; --weak-peer measures anyway)")
    return words + (" (a WEAK PEER: ratios flatter)" if peer < best / 2 else "")


def weak_peer():
    """Was it told to measure a weak peer? Takes the word out of argv."""
    told = "--weak-peer" in sys.argv
    if told:
        sys.argv.remove("--weak-peer")
    return told or os.environ.get("WEAK_PEER") == "1"


if __name__ == "__main__":
    allowed = weak_peer()
    print(check(sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "../../build/release"), allowed))
