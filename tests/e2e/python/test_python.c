/* The Python package (lib/python) in real jobs: scripts of this folder, its examples, its errors.
 *
 * The interpreter is Debian's with python3-numpy; the tests are skipped without it, and where the
 * library is a sanitizer's, which Python cannot load. */
#include "e2e.h"
#include "sanitized.h"
#include "speech.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SECONDS = 60 };

static const char python[] = "/usr/bin/python3";

/* Does the interpreter have the module? */
static bool has(const char *module)
{
    struct proc look;
    char code[128];
    const char *const argv[] = {python, "-c", code, NULL};

    (void)snprintf(code, sizeof code, "import importlib.util as u; exit(u.find_spec('%s') is None)",
                   module);
    bool found = access(python, X_OK) == 0 && proc_run(&look, argv, NULL, 30) == 0;
    if (access(python, X_OK) == 0)
        proc_free(&look);
    return found;
}

/* The build's library in place of the tree's, and the tree's package. */
static void enter(void)
{
    char library[4096];

    e2e_enter();
    if (SANITIZED)
        cr_skip_test("skipped: Python cannot load a sanitizer's library");
    if (!has("numpy"))
        cr_skip_test("skipped: %s has no NumPy (scripts/deps --test)", python);
    (void)snprintf(library, sizeof library, "%s", proc_program("ctrun"));
    (void)snprintf(strrchr(library, '/'), 32, "/../lib/libctrun.so.1");
    cr_assert_eq(setenv("CTRUN_LIBRARY", library, 1), 0);
    cr_assert_eq(setenv("PYTHON_EXEC", python, 1), 0);
    cr_assert_eq(setenv("PYTHONPATH", e2e_in_root("lib/python"), 1), 0);
    cr_assert_eq(setenv("PYTHONDONTWRITEBYTECODE", "1", 1), 0);
}

TestSuite(python, .init = enter, .fini = e2e_leave, .timeout = 180);

static const char *script(const char *name)
{
    char path[64];

    (void)snprintf(path, sizeof path, "tests/e2e/python/%s.py", name);
    return e2e_in_root(path);
}

/* Run a script by Python alone. */
static void by_python(struct proc *run, const char *path, const char *word)
{
    const char *const argv[] = {python, path, word, NULL};

    (void)proc_run(run, argv, NULL, SECONDS);
}

static void succeeded(struct proc *run)
{
    cr_assert_eq(run->status, 0, "%s", ct_buf_str(&run->text));
    proc_free(run);
}

Test(python, every_collective_gives_what_numpy_computes_on_1_to_4_ranks)
{
    static const char *const worlds[] = {"1", "2", "3", "4"};
    struct proc run;

    for (size_t i = 0; i < 4; i++) {
        (void)e2e_run(&run, "--nproc_per_node", worlds[i], script("collectives"), "auto", NULL);
        e2e_said(&run, i == 0 ? "13 collectives on self" : "15 collectives on shm");
        succeeded(&run);
    }
    (void)e2e_run(&run, "--nproc_per_node", "3", script("collectives"), "tcp", NULL);
    e2e_said(&run, "15 collectives on tcp");
    succeeded(&run);
}

Test(python, wrong_calls_are_refused_with_the_remedy_and_break_nothing)
{
    struct proc run;

    (void)e2e_run(&run, "--nproc_per_node", "2", script("errors"), NULL);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "all refused"), 2, "%s", ct_buf_str(&run.text));
    succeeded(&run);
}

Test(python, symmetric_memory_outlives_its_job_and_is_freed_with_its_last_array)
{
    struct proc run;

    (void)e2e_run(&run, "--nproc_per_node", "2", script("memory"), NULL);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "outlived"), 2, "%s", ct_buf_str(&run.text));
    succeeded(&run);
}

static void import_fails(const char *library, const char *words)
{
    const char *const argv[] = {python, "-c", "import ctrun", NULL};
    struct proc run;

    cr_assert_eq(setenv("CTRUN_LIBRARY", library, 1), 0);
    cr_assert_eq(proc_run(&run, argv, NULL, SECONDS), 1, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "UnsupportedError");
    e2e_said(&run, words);
    proc_free(&run);
}

Test(python, another_library_than_the_packages_is_refused_by_its_version)
{
    const char *source = e2e_write("old.c", "const char *ct_version(void) { return \"0.0.9\"; }\n"
                                            "int ct_job_open(void) { return 0; }\n");
    const char *library = e2e_in_folder("libctrun.so.1");
    const char *const argv[] = {"cc", "-shared", "-fPIC", "-o", library, source, NULL};
    struct proc run;

    (void)proc_run(&run, argv, NULL, SECONDS);
    succeeded(&run);
    import_fails(library, "is version 0.0.9 of the library (it has no ct_");
    import_fails("libm.so.6", "libm.so.6 is version unknown of the library");
    import_fails("/nowhere/libctrun.so.1", "or name it in CTRUN_LIBRARY");
    import_fails(source, "cannot be loaded");
}

Test(python, steps_go_on_when_a_rank_is_killed_and_each_counts_once)
{
    struct proc run;

    (void)e2e_run(&run, "--nproc_per_node", "3", "--max_restarts", "1", script("steps"), "60",
                  "kill", NULL);
    e2e_said(&run, "SIGKILL");
    succeeded(&run);
    cr_assert_eq(e2e_count(e2e_read("starts"), "\n"), 4, "survivors keep their process");
    cr_assert_eq(e2e_count(e2e_read("ends"), " of 3 at 60 False 1\n"), 2, "%s", e2e_read("ends"));
    cr_assert_eq(e2e_count(e2e_read("ends"), " of 3 at 60 False 0\n"), 1, "%s", e2e_read("ends"));
}

static bool all_wait(void *context)
{
    (void)context;
    return e2e_count(e2e_read("waiting"), "\n") == 3;
}

Test(python, a_stop_ends_the_steps_of_all_ranks_before_the_same_one)
{
    struct proc run;

    e2e_start(&run, "--nproc_per_node", "3", script("steps"), "60", "stop", NULL);
    proc_until(all_wait, NULL, SECONDS, "three ranks in step 30");
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, SECONDS), 128 + SIGTERM, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_count(e2e_read("ends"), " of 3 at 31 True 0\n"), 3, "%s", e2e_read("ends"));
}

Test(python, what_is_logged_stands_once_in_the_run_across_a_restart)
{
    struct proc run;

    (void)e2e_run(&run, "--nproc_per_node", "2", "--max_restarts", "1", script("log"), NULL);
    e2e_said(&run, "restart 1 of 1 follows");
    e2e_wrote(&run, "step 40/40  loss 0.0250  4.00k samples/s");
    succeeded(&run);
    by_python(&run, script("check_log"), NULL);
    e2e_said(&run, "each step once");
    succeeded(&run);
    (void)e2e_run(&run, "runs", "--json", NULL);
    e2e_said(&run, "\"how\":\"finished\"");
    e2e_said(&run, "\"best_loss\":0.05,\"last_loss\":0.05,\"best_accuracy\":0.8");
    succeeded(&run);
    cr_assert_neq(e2e_run(&run, "resume", "log", NULL), 0);
    e2e_said(&run, "is the run of a script");
    proc_free(&run);
}

/* The steps and losses in metrics.jsonl, and how the run ended. */
static void expect_alone(const char *records, const char *how)
{
    static const char reader[] =
        "import json\n"
        "for line in open('here/metrics.jsonl'):\n"
        "    r = json.loads(line); print(r['step'], r['loss'], end=' ')\n"
        "r = json.load(open('here/run.json')); print(r['how'], r['cause'])\n";
    const char *const argv[] = {python, "-c", reader, NULL};
    struct proc run;

    (void)proc_run(&run, argv, NULL, SECONDS);
    e2e_said(&run, records);
    e2e_said(&run, how);
    succeeded(&run);
}

Test(python, a_script_without_ctrun_logs_too_and_spoils_no_other_run)
{
    struct proc run;

    by_python(&run, script("log_alone"), "first");
    cr_assert_eq(run.status, 1, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "ValueError: it fails on purpose");
    proc_free(&run);
    expect_alone("1 1.5 2 1.5 3 1.5 failed", "ValueError: it fails on purpose");
    by_python(&run, script("log_alone"), "again");
    e2e_said(&run, "as it should");
    succeeded(&run);
    by_python(&run, script("log_alone"), "resume");
    e2e_said(&run, "as it should");
    succeeded(&run);
    expect_alone("1 1.5 2 1.5 3 4.5 finished", "finished");
}

Test(python, a_run_that_fails_is_recorded_with_its_cause)
{
    const char *path = e2e_write("bad.py", "import ctrun\n"
                                           "with ctrun.init():\n"
                                           "    ctrun.log({'loss': 2.0}, step=7)\n"
                                           "    raise ValueError('a banana')\n");
    struct proc run;

    cr_assert_eq(e2e_run(&run, path, NULL), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    (void)e2e_run(&run, "runs", "--json", NULL);
    e2e_said(&run, "\"how\":\"failed\"");
    e2e_said(&run, "a banana");
    e2e_said(&run, "\"step\":7,");
    succeeded(&run);
}

Test(python, jobs_that_a_program_starts_give_back_results_or_their_report)
{
    struct proc run;

    by_python(&run, script("run"), NULL);
    e2e_said(&run, "all ran");
    e2e_said(&run, "stopped by SIGINT; 2 workers ended");
    succeeded(&run);
}

Test(python, the_example_without_torch_trains_and_logs)
{
    struct proc run;

    (void)e2e_run(&run, "--nproc_per_node", "2",
                  e2e_in_root("lib/python/examples/elastic_numpy.py"), "120", NULL);
    e2e_said(&run, "weights are off by 0.00");
    succeeded(&run);
    cr_assert_eq(e2e_count(e2e_read("runs/elastic_numpy/latest/metrics.jsonl"), "\n"), 120);
}

Test(python, the_notebook_runs_as_in_jupyter)
{
    struct proc run;

    if (!has("nbclient") || !has("ipykernel"))
        cr_skip_test("skipped: %s has no nbclient and ipykernel (scripts/deps --test)", python);
    by_python(&run, script("notebook"), e2e_in_root("lib/python/examples/notebook.ipynb"));
    e2e_said(&run, "[0:1] rank 1 is done");
    e2e_said(&run, "array([1., 2., 3.])");
    e2e_said(&run, "True");
    e2e_said(&run, "1 | ZeroDivisionError: division by zero");
    succeeded(&run);
}

/* As lib/python/README.md says it, but that the environment borrows Debian's pip, which saves half
 * of the time; pip has no network here. */
Test(python, the_wheel_installs_without_a_network_and_runs_scripts_with_its_environments_python)
{
    char build[4096];
    struct proc run;

    (void)snprintf(build, sizeof build, "%s", proc_program("ctrun"));
    (void)snprintf(strrchr(build, '/'), 8, "/..");
    const char *install =
        e2e_script("install", "#!/bin/sh -e\n"
                              "\"$1\" \"$2\" wheel >/dev/null\n"
                              "unset PYTHONPATH PYTHON_EXEC CTRUN_LIBRARY\n"
                              "pip=$(echo /usr/share/python-wheels/pip-*.whl)\n"
                              "[ -e \"$pip\" ] || exit 77\n"
                              "/usr/bin/python3 -m venv --without-pip env\n"
                              "env/bin/python \"$pip/pip\" install -q --no-index wheel/*.whl\n"
                              "env/bin/ctrun --nproc_per_node 2 hello.py\n"
                              "env/bin/python -m ctrun --nproc_per_node 2 hello.py\n"
                              "env/bin/python -c 'import ctrun, operator\n"
                              "print(ctrun.run(operator.add, (2, 3), nproc=2, show=False))'\n");
    const char *const argv[] = {install, e2e_in_root("scripts/package/wheel"), build, NULL};

    (void)e2e_write("hello.py",
                    "import array, ctrun\n"
                    "with ctrun.init() as job:\n"
                    "    x = array.array('f', [job.rank + 1.0] * 4)\n"
                    "    ctrun.all_reduce(x)\n"
                    "    print(f'rank {job.rank} of {job.world}: {x[0]}', ctrun.__file__)\n");
    (void)strcat(build, "/wheel/ctrun");
    if (access(build, X_OK) != 0)
        cr_skip_test("skipped: the wheel's programs were not linked (make tests)");
    *strrchr(build, '/') = '\0';
    *strrchr(build, '/') = '\0';
    (void)proc_run(&run, argv, NULL, SECONDS);
    if (run.status == 77)
        cr_skip_test("skipped: there is no python3-venv (scripts/deps --test)");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "rank 0 of 2: 3.0"), 2, "%s",
                 ct_buf_str(&run.text));
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "/env/lib/python3"), 4, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "[5, 5]");
    succeeded(&run);
}
