"""PyTorch's own tests of a process group (torch.testing._internal.distributed.distributed_test) on backend ctrun.

usage: pytorch_suite.py CTRUN [RANKS [NAME...]]        RANKS: 3; NAME: part of a test's name
       needs PyTorch 2.x with numpy and expecttest; prints a line a test and the sum

PyTorch starts processes for each test, which then belong to no agent. Here one job runs the bodies of all tests, one
after the other, each with a process group of its own; when a test ends the job, the next one goes on behind it. The
module is loaded as for gloo, so that gloo's tests are those that run, and then told that its backend is ctrun.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

BACKEND = os.environ.get("SUITE_BACKEND", "ctrun")  # gloo: to see which tests fail by themselves here
# What is not to pass, each with its reason; the first four fail with gloo, too.
NUMBERS, NO_GPU, WORDS = "differs in the last digits with gloo, too", "wants GPUs", "expects gloo's words of a sentence that ctrun says in its own"
NO_SOURCE = "ctrun receives from a rank that is named"
KNOWN = {
    "test_DistributedDataParallelCPU": NUMBERS,
    "test_DistributedDataParallelCPU_grad_is_view": NUMBERS,
    "test_accumulate_gradients_no_sync": NUMBERS,
    "test_SyncBatchNorm_process_group": "wants torchvision",
    "test_all_to_all_cuda": NO_GPU,
    "test_all_to_all_cuda_complex": NO_GPU,
    "test_all_to_all_full_group_cuda": NO_GPU,
    "test_batch_isend_irecv_mixed_backend_err": NO_GPU,
    "test_batch_isend_irecv_op_err": NO_GPU,
    "test_barrier_timeout_full_group": WORDS,
    "test_barrier_timeout_global": WORDS,
    "test_barrier_timeout_group": WORDS,
    "test_monitored_barrier_gloo": WORDS,
    "test_monitored_barrier_gloo_rank_0_timeout": WORDS,
    "test_send_recv_any_source": NO_SOURCE,
    "test_send_recv_any_source_autograd_profiler": NO_SOURCE,
    "test_send_recv_any_source_torch_profiler": NO_SOURCE,
    "test_sparse_all_reduce_sum": "ctrun sends no sparse tensors",
    "test_ddp_logging_data_cpu": "PyTorch's logger calls every backend that is not its own `custom`",
}
TIMEOUT_S = 20  # of each process group
JOB_S = 900  # of one job
NAMES = "names"  # in the folder: the tests to run
RESULTS = "results"


# ---- a rank ------------------------------------------------------------------------------------


class Backend(str):
    """The backend's name, which equals gloo's, too: tests of CPUs ask for that."""

    def __eq__(self, other):
        return str.__eq__(self, other) or other == "gloo"

    def __ne__(self, other):
        return not self == other

    __hash__ = str.__hash__


def load():
    os.environ["BACKEND"] = "gloo"
    os.environ.setdefault("WORLD_SIZE", "1")  # the driver's; only the ranks' count
    os.environ.setdefault("TEMP_DIR", tempfile.gettempdir())
    from torch.testing._internal.distributed import distributed_test as module
    module.BACKEND = Backend(BACKEND)

    class Tests(module.TestDistBackend, module.DistributedTest._DistTestBase):
        """The bodies, each run on this rank."""
    return module, Tests


def outcome(module, test, name):
    """Run one test's body: "passed", "skipped: why" or "failed: why"."""
    import unittest
    skips = {skip.exit_code: skip.message for skip in module.TEST_SKIPS.values()}
    try:
        getattr(test, name)()
        return "passed"
    except unittest.SkipTest as skip:
        return f"skipped: {skip}"
    except SystemExit as end:
        return f"skipped: {skips[end.code]}" if end.code in skips else f"failed: exit status {end.code}"
    except BaseException as error:  # pylint: disable=broad-except
        return f"failed: {type(error).__name__}: {str(error).strip().splitlines()[:1] or ['']}"


def rank_main(folder):
    from datetime import timedelta
    module, tests = load()
    import ctrun.torch  # noqa: F401
    import torch.distributed as dist
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), world, False)
    with open(os.path.join(folder, NAMES), encoding="utf-8") as file:
        names = json.load(file)
    for name in names:
        if rank == 0:
            for left in os.listdir(os.path.join(folder, "barrier")):
                os.unlink(os.path.join(folder, "barrier", left))
        module.Barrier.barrier_id = 0
        os.environ["WORLD_SIZE"] = "8" if name.endswith("_group") else str(world)  # what such tests ask for; they use 3
        test = tests(name)
        test.rank, test.file_name = rank, os.path.join(folder, "file")
        store.set(f"begins/{name}/{rank}", "")
        store.wait([f"begins/{name}/{other}" for other in range(world)], timedelta(seconds=120))
        dist.init_process_group(BACKEND, store=dist.PrefixStore(name, store), rank=rank, world_size=world,
                                timeout=timedelta(seconds=TIMEOUT_S))
        result = outcome(module, test, name)
        if dist.is_initialized():
            store.set(f"ended/{name}/{rank}", result)
            store.wait([f"ended/{name}/{other}" for other in range(world)], timedelta(seconds=120))
            dist.destroy_process_group()
        else:
            store.set(f"ended/{name}/{rank}", result)
            store.wait([f"ended/{name}/{other}" for other in range(world)], timedelta(seconds=120))
        if rank == 0:
            results = [store.get(f"ended/{name}/{other}").decode() for other in range(world)]
            worst = next((text for kind in ("failed", "passed", "skipped") for text in results if text.startswith(kind)))
            with open(os.path.join(folder, RESULTS), "a", encoding="utf-8") as out:
                print(json.dumps([name, worst]), file=out)


# ---- the driver --------------------------------------------------------------------------------


def results_of(folder):
    path = os.path.join(folder, RESULTS)
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as lines:
        return dict(json.loads(line) for line in lines)


def main(ctrun, ranks, parts):
    _, tests = load()
    names = [name for name in sorted(dir(tests)) if name.startswith("test_") and (
        not parts or any(part in name for part in parts))]
    folder = tempfile.mkdtemp()
    for name in ("barrier", "test_dir", "init_dir"):
        os.mkdir(os.path.join(folder, name))
    environment = dict(os.environ, TEMP_DIR=folder, PYTHON_EXEC=sys.executable, OMP_NUM_THREADS="1",
                       TORCH_CPP_LOG_LEVEL="FATAL")
    while left := [name for name in names if name not in results_of(folder)]:
        with open(os.path.join(folder, NAMES), "w", encoding="utf-8") as file:
            json.dump(left, file)
        begin, before = time.monotonic(), len(results_of(folder))
        with open(os.path.join(folder, "log"), "ab") as log:
            try:
                subprocess.run([ctrun, "--nproc_per_node", str(ranks), __file__, "--rank", folder], env=environment,
                               stdout=log, stderr=log, timeout=JOB_S, check=False)
            except subprocess.TimeoutExpired:
                pass
        done = results_of(folder)
        if len(done) < len(names):
            ended = next(name for name in left if name not in done)
            with open(os.path.join(folder, RESULTS), "a", encoding="utf-8") as out:
                print(json.dumps([ended, "failed: ended the job"]), file=out)
        print(f"# {len(done) - before} tests in {time.monotonic() - begin:.0f} s", flush=True)
    done = results_of(folder)
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    unknown = 0
    for name in names:
        kind = done[name].split(":")[0]
        counts[kind] += 1
        unknown += kind == "failed" and name not in KNOWN
        print(f"{name}: {done[name]}" + (f" (known: {KNOWN[name]})" if kind == "failed" and name in KNOWN else ""))
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()), f"(log: {folder}/log), {unknown} not known")
    sys.exit(unknown > 0)


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] == "--rank":
        rank_main(sys.argv[2])
    elif len(sys.argv) > 1:
        main(os.path.abspath(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3, sys.argv[3:])
    else:
        sys.exit(__doc__)
