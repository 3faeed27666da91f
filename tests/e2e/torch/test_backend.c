/* Backend "ctrun" of torch.distributed (lib/python/ctrun/torch), driven by scripts of this folder.
 *
 * The interpreter is TEST_TORCH, or Debian's with python3-torch; the tests are skipped when it has
 * no PyTorch. The package comes from the source tree, the library from the build under test. */
#include "e2e.h"
#include "torch/interpreter.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    SECONDS = 120,
    ENDS_S = 20
}; /* on a busy machine: for one run, and where something ends early */

TestSuite(torch_backend, .init = e2e_enter, .fini = e2e_leave, .timeout = 600);

/* The environment of a script; `more` is one further word, or NULL. */
static const char *const *environment(const char *more)
{
    static const char *list[12];
    int count = torch_environment(list, 10);

    list[count++] = more;
    list[count] = NULL;
    return list;
}

static int run(struct proc *proc, const char *more, double seconds, const char *ranks,
               const char *script, const char *word)
{
    char path[64];

    (void)snprintf(path, sizeof path, "tests/e2e/torch/%s.py", script);
    const char *const argv[] = {
        proc_program("ctrun"), "--nproc_per_node", ranks, e2e_in_root(path), word, NULL};
    return proc_run(proc, argv, environment(more), seconds);
}

static void works(const char *more, const char *ranks, const char *script, const char *word)
{
    struct proc proc;

    cr_assert_eq(run(&proc, more, SECONDS, ranks, script, word), 0, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "PyTorch ");
    proc_free(&proc);
}

/* The script ends with `status` in good time, and the agent or a rank has said `words`. */
static void ends(const char *how, int status, const char *words)
{
    struct proc proc;

    cr_assert_eq(run(&proc, NULL, ENDS_S, "2", "misuse", how), status, "%s",
                 ct_buf_str(&proc.text));
    if (words != NULL)
        e2e_said(&proc, words);
    proc_free(&proc);
}

Test(torch_backend, one_rank_gets_what_gloo_gives)
{
    works(NULL, "1", "conformance", NULL);
}

Test(torch_backend, two_ranks_get_what_gloo_gives)
{
    works(NULL, "2", "conformance", NULL);
}

Test(torch_backend, three_ranks_get_what_gloo_gives)
{
    works(NULL, "3", "conformance", "brief");
}

Test(torch_backend, five_ranks_get_what_gloo_gives)
{
    works(NULL, "5", "conformance", "brief");
}

Test(torch_backend, what_is_built_on_collectives_has_gloos_bits)
{
    works(NULL, "2", "parallel", NULL);
}

Test(torch_backend, what_is_built_on_collectives_works_under_pytorchs_checks)
{
    if (getenv("TEST_TORCH") == NULL)
        cr_skip_test("skipped: PyTorch 1.13 checks its own backends alone (scripts/test-torch)");
    works("TORCH_DISTRIBUTED_DEBUG=DETAIL", "2", "parallel", NULL);
}

Test(torch_backend, wrong_use_gives_a_sentence_and_never_hangs)
{
    works(NULL, "2", "misuse", NULL);
}

Test(torch_backend, a_rank_that_leaves_is_named_to_those_who_then_leave_their_group_open)
{
    ends("exits", 0, "was told after");
}

Test(torch_backend, a_rank_that_is_killed_ends_the_job)
{
    ends("killed", 137, "SIGKILL");
}

Test(torch_backend, wrong_ranks_and_world_sizes_are_refused)
{
    ends("numbers", 0, NULL);
}

Test(torch_backend, without_ctrun_a_group_of_two_is_refused)
{
    struct proc proc;
    const char *const argv[] = {
        torch_python(), "-c",
        "import ctrun.torch, torch.distributed as dist\n"
        "dist.init_process_group('ctrun', store=dist.HashStore(), rank=0, world_size=2)\n",
        NULL};

    cr_assert_eq(proc_run(&proc, argv, environment(NULL), ENDS_S), 1, "%s", ct_buf_str(&proc.text));
    e2e_said(&proc, "as rank 0 of 2, and ctrun's job as rank 0 of 1: start the script with ctrun");
    proc_free(&proc);
}
