/* Slurm's answers about nodes, from a stand-in for scontrol. */
#include "slurm/scontrol_uv.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char *const nodes[] = {"a1", "b2"};
static char folder[64], program[96];
static uv_loop_t loop;
static int answers;
static bool last_down;
static char last_why[256];

static void set_up(void)
{
    (void)snprintf(folder, sizeof folder, "/tmp/scontrol-XXXXXX");
    cr_assert_not_null(mkdtemp(folder));
    (void)snprintf(program, sizeof program, "%s/scontrol", folder);
    cr_assert_eq(uv_loop_init(&loop), 0);
}

static void tear_down(void)
{
    cr_assert_eq(uv_loop_close(&loop), 0);
    (void)unlink(program);
    (void)rmdir(folder);
}

TestSuite(scontrol, .init = set_up, .fini = tear_down, .timeout = 30);

static void write_program(const char *script)
{
    FILE *file = fopen(program, "w");

    cr_assert_not_null(file);
    (void)fprintf(file, "#!/bin/sh\n%s\n", script);
    cr_assert_eq(fclose(file), 0);
    cr_assert_eq(chmod(program, 0755), 0);
}

static void answered(void *context, bool down, const char *why)
{
    (void)context;
    answers++;
    last_down = down;
    (void)snprintf(last_why, sizeof last_why, "%s", why);
}

static struct ct_scontrol *make(const char *path)
{
    const struct ct_scontrol_options options = {
        .loop = &loop, .path = path, .nodes = nodes, .count = 2, .answered = answered};
    struct ct_scontrol *scontrol = ct_scontrol_new(&options);

    cr_assert_not_null(scontrol);
    return scontrol;
}

static void ask_once(const char *path)
{
    struct ct_scontrol *scontrol = make(path);

    answers = 0;
    ct_scontrol_ask(scontrol);
    ct_scontrol_ask(scontrol); /* one is open */
    cr_assert_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    cr_assert_eq(answers, 1);
    ct_scontrol_free(scontrol);
}

static const char *path_with_it(void)
{
    static char path[128];

    (void)snprintf(path, sizeof path, "/nowhere::relative:%s", folder);
    return path;
}

Test(scontrol, all_nodes_are_asked_for_at_once)
{
    write_program("test \"$*\" = '--oneliner show node a1,b2' || exit 1\n"
                  "echo NodeName=a1 State=DOWN*\necho NodeName=b2 State=DOWN+DRAIN");
    ask_once(path_with_it());
    cr_assert(last_down, "%s", last_why);
}

Test(scontrol, what_is_no_answer_proves_nothing)
{
    write_program("echo 'slurm_load_node error: Unable to contact slurm controller' >&2; exit 1");
    ask_once(path_with_it());
    cr_assert_not(last_down);
    cr_assert_str_eq(last_why, "Slurm does not say in which state node a1 is");
    ask_once("/nowhere");
    cr_assert_not(last_down);
    cr_assert_str_eq(last_why, "Slurm cannot be asked: there is no scontrol on PATH");
    ask_once(NULL);
    cr_assert_not(last_down);
    write_program("exec yes NodeName=a1 State=DOWN");
    ask_once(path_with_it());
    cr_assert_not(last_down);
    cr_assert_str_eq(last_why, "Slurm does not answer");
}

Test(scontrol, one_that_hangs_does_not_hold_up_the_end)
{
    struct ct_scontrol *scontrol;
    uint64_t since_ms = uv_hrtime() / 1000000;

    write_program("exec tail -f /dev/null");
    scontrol = make(path_with_it());
    answers = 0;
    ct_scontrol_ask(scontrol);
    ct_scontrol_free(scontrol);
    cr_assert_eq(uv_run(&loop, UV_RUN_DEFAULT), 0);
    cr_assert_eq(answers, 0);
    cr_assert_lt(uv_hrtime() / 1000000 - since_ms, CT_SCONTROL_MS);
}
