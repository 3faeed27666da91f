/* A program of a user's own that links the library lives on as the trainer does. */
#include "e2e.h"
#include "faults/drill.h"
#include "sanitized.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(library, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

enum { RANKS = 3 };

static const char *line_program(void)
{
    return proc_program("../tests/programs/line");
}

/* Where a rank says that it is. */
struct where {
    int pid;
    unsigned long long step;
};

/* All zero before it said so, and while it writes. */
static struct where read_where(int rank)
{
    char name[32];
    struct where at = {0}, none = {0};

    (void)snprintf(name, sizeof name, "rank_%d", rank);
    return sscanf(e2e_read(e2e_in_folder(name)), "%d %llu\n", &at.pid, &at.step) == 2 ? at : none;
}

/* Of a rank that has said it before. */
static struct where where(int rank)
{
    struct where at;

    do
        at = read_where(rank);
    while (at.pid == 0);
    return at;
}

struct goal {
    int rank;
    unsigned long long step;
    int not_pid;
};

static bool is_reached(void *context)
{
    const struct goal *goal = context;
    struct where at = read_where(goal->rank);

    return at.pid != 0 && at.step >= goal->step && at.pid != goal->not_pid;
}

static void wait_for(int rank, unsigned long long step, int not_pid)
{
    struct goal goal = {rank, step, not_pid};

    proc_until(is_reached, &goal, 60, "the step of a rank");
}

Test(library, a_rank_that_is_killed_is_replaced_and_the_others_keep_their_process_and_state)
{
    struct proc agent;
    struct where before[RANKS];

    e2e_start(&agent, "--nproc_per_node=3", "--max_restarts=5", line_program(), e2e_in_folder(""),
              NULL);
    for (int turn = 0; turn < 2; turn++) {
        int victim = turn == 0 ? 1 : 0; /* rank 0 is not special */

        wait_for(2, 40 + 80 * (unsigned)turn, 0);
        for (int rank = 0; rank < RANKS; rank++)
            before[rank] = where(rank);
        cr_assert_eq(kill(before[victim].pid, SIGKILL), 0);
        wait_for(victim, before[victim].step, before[victim].pid);
        for (int rank = 0; rank < RANKS; rank++) {
            if (rank != victim)
                cr_assert_eq(where(rank).pid, before[rank].pid, "rank %d was started again", rank);
        }
    }
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "y = 2.00 x + 1.00 after 300 steps on 3 ranks");
    e2e_said(&agent, "2 of 3 workers continue from step");
    proc_free(&agent);
}

static bool both_are_there(void *context)
{
    (void)context;
    return e2e_count(e2e_read(e2e_in_folder("there")), "rank") == 2;
}

/* The group forms through the store, so it waits; it does not give up. */
Test(library, a_daemon_that_is_away_while_a_group_forms_fails_nobody)
{
    struct proc daemon, agent;
    const char *endpoint = e2e_daemon(&daemon);
    const char *script = e2e_script("gate", "#!/bin/sh\n"
                                            "echo rank >>there\n"
                                            "read -r line <go\n"
                                            "exec \"$@\"\n");

    cr_assert_eq(mkfifo("go", 0600), 0);
    e2e_start(&agent, "--nproc_per_node=2", "--rdzv_endpoint", endpoint, script, line_program(),
              e2e_in_folder(""), NULL);
    proc_until(both_are_there, NULL, 20, "two ranks at the gate");
    cr_assert_eq(kill(daemon.pid, SIGSTOP), 0);
    int gate = open("go", O_WRONLY | O_CLOEXEC);
    cr_assert_geq(gate, 0);
    cr_assert_eq(write(gate, "\n\n", 2), 2);
    drill_pass(6);
    cr_assert_eq(read_where(0).pid, 0, "no group without a store");
    cr_assert_eq(kill(daemon.pid, SIGCONT), 0);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "y = 2.00 x + 1.00 after 300 steps on 2 ranks");
    (void)close(gate);
    proc_free(&agent);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 10), 0);
    proc_free(&daemon);
}

Test(library, a_small_program_reduces_over_its_ranks)
{
    struct proc agent;

    e2e_start(&agent, "--nproc_per_node=3", proc_program("../tests/programs/pi"), "100000", NULL);
    cr_assert_eq(proc_finish(&agent, 60), 0, "%s", ct_buf_str(&agent.text));
    e2e_said(&agent, "pi is about 3.1");
    e2e_said(&agent, "on 3 ranks");
    proc_free(&agent);
}

/* What the program prints after "<ranks> ranks: ". Static, two stay valid. */
static const char *spiral(const char *program, const char *ranks)
{
    static char texts[2][256];
    static unsigned next;
    char *text = texts[next++ % 2], option[32];
    struct proc run;

    (void)snprintf(option, sizeof option, "--nproc_per_node=%s", ranks);
    cr_assert_eq(e2e_run(&run, option, program, NULL), 0, "%s", ct_buf_str(&run.text));
    const char *said = strstr(ct_buf_str(&run.text), " ranks: ");
    cr_assert_not_null(said, "%s", ct_buf_str(&run.text));
    (void)snprintf(text, sizeof texts[0], "%s", said);
    cr_assert_geq(proc_number_after(&run, "ranks: "), 90, "of 96 points: %s", text);
    proc_free(&run);
    return text;
}

Test(library, a_model_of_ones_own_learns_the_same_on_one_rank_and_on_two)
{
    const char *program = proc_program("../tests/programs/spiral");

    cr_assert_str_eq(spiral(program, "2"), spiral(program, "1"));
}

/* Whether what is installed can be linked without the flags it was built with. */
static bool is_plain_build(void)
{
    return !SANITIZED && strstr(proc_program("ctrun"), "cov") == NULL;
}

Test(library, what_is_installed_is_enough_to_build_and_train_a_model)
{
    const char *build = e2e_in_folder("build");
    struct proc run;

    if (!is_plain_build())
        cr_skip_test("instrumented libraries need the flags they were built with");
    cr_assert_eq(symlink(proc_program(".."), build), 0);
    const char *script = e2e_script(
        "install", "#!/bin/sh -e\n"
                   "\"$1/scripts/install\" \"$2\" \"$3\" >install.log 2>&1\n"
                   "export PKG_CONFIG_PATH=$3/lib/pkgconfig\n"
                   "cp \"$1/tests/e2e/programs/spiral.c\" .\n"
                   "cc -std=c17 -D_GNU_SOURCE -Wall -Wextra -Werror -c spiral.c "
                   "$(pkg-config --cflags ctrun-train)\n"
                   "cc -pthread spiral.o $(pkg-config --libs ctrun-train) -o spiral\n"
                   "cc \"$1/tests/e2e/programs/line.c\" -D_GNU_SOURCE -L\"$3/lib\" "
                   "$(pkg-config --cflags ctrun) -lctrun -lm -Wl,-rpath,\"$3/lib\" -o line\n"
                   "ldd ./line | grep -F \"$3/lib/libctrun.so.1\"\n");
    const char *argv[] = {script, e2e_in_root("."), build, e2e_in_folder("prefix"), NULL};
    cr_assert_eq(proc_run(&run, argv, NULL, 100), 0, "%s %s", ct_buf_str(&run.text),
                 e2e_read("install.log"));
    proc_free(&run);
    (void)spiral(e2e_in_folder("spiral"), "2");
}

Test(library, alone_it_is_a_world_of_one)
{
    struct proc program;
    const char *argv[] = {line_program(), e2e_in_folder(""), NULL};

    proc_start(&program, argv, NULL);
    cr_assert_eq(proc_finish(&program, 60), 0, "%s", ct_buf_str(&program.text));
    e2e_said(&program, "y = 2.00 x + 1.00 after 300 steps on 1 ranks");
    proc_free(&program);
}
