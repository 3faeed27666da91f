/* Dumps of PyTorch's flight recorder, asked for and read as from a process of Python. The dumps are
 * PyTorch 2.15's, of gloo in tests/e2e/torch/planted.py, way "behind", on three ranks. */
#include "diagnose/torch_flight.h"

#include "base/clock.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(torch_flight, .timeout = 60);

#define WAITS "tests/golden/torch_flight_waits.pickle"
#define BEHIND "tests/golden/torch_flight_behind.pickle"

/* An interpreter that waits for the end of its input, in place of a worker; its pid. */
static pid_t start_python(int *ret_input)
{
    char program[] = "python3", command[] = "-c";
    char code[] = "import sys; print(flush=True); sys.stdin.read()";
    char *argv[] = {program, command, code, NULL};
    int ends[2], output[2];
    char byte;

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    cr_assert_eq(pipe2(output, O_CLOEXEC), 0);
    pid_t pid = fork();
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        (void)dup2(ends[0], STDIN_FILENO);
        (void)dup2(output[1], STDOUT_FILENO);
        (void)execv("/usr/bin/python3", argv);
        _exit(127);
    }
    (void)close(ends[0]);
    (void)close(output[1]);
    cr_assert_eq(read(output[0], &byte, 1), 1, "python3 does not start");
    (void)close(output[0]);
    *ret_input = ends[1];
    return pid;
}

/* Read a dump as the agent does. */
static struct ct_buf read_dump(const char *path, uint64_t patience_ms)
{
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + 30000;
    struct ct_buf text;
    int input;

    ct_buf_init(&text, 65536);
    pid_t pid = start_python(&input);
    ct_torch_flight_read(path, pid, patience_ms, deadline_ms, &text);
    (void)close(input);
    (void)waitpid(pid, NULL, 0);
    return text;
}

/* The pid that the text was made for. */
static int pid_of(const struct ct_buf *text)
{
    const char *process = strstr(ct_buf_str(text), "Process ");

    return process != NULL ? atoi(process + strlen("Process ")) : 1;
}

Test(torch_flight, a_rank_that_waits_has_a_place_and_one_that_is_behind_has_fewer_calls)
{
    struct ct_torch_flight waits, behind;
    struct ct_buf text = read_dump(WAITS, 0);

    cr_assert(ct_torch_flight_parse(ct_buf_str(&text), pid_of(&text), &waits), "%s",
              ct_buf_str(&text));
    cr_assert_not_null(strstr(ct_buf_str(&text), "gloo:all_reduce, number 6, of [[5]] ['Float']"));
    ct_buf_deinit(&text);
    cr_assert_eq(waits.group_count, 1);
    cr_assert_str_eq(waits.groups[0].name, "default_pg (0)");
    cr_assert_eq(waits.groups[0].calls, 6);
    cr_assert(waits.waits.known);
    cr_assert_str_eq(waits.waits.call, "all_reduce");
    cr_assert_str_eq(waits.waits.function, "lag");
    cr_assert_not_null(strstr(waits.waits.file, "/planted.py"));

    text = read_dump(BEHIND, 0);
    cr_assert(ct_torch_flight_parse(ct_buf_str(&text), pid_of(&text), &behind), "%s",
              ct_buf_str(&text));
    ct_buf_deinit(&text);
    cr_assert_str_eq(behind.groups[0].name, waits.groups[0].name);
    cr_assert_eq(behind.groups[0].calls, 5);
    cr_assert_not(behind.waits.known);
}

/* A file of this test. */
static const char *temporary(const char *name)
{
    static char folder[] = "/tmp/torch_flight_XXXXXX", path[PATH_MAX];
    static bool is_made; /* its name may end in an X as well */

    if (!is_made)
        cr_assert_not_null(mkdtemp(folder));
    is_made = true;
    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void remove_folder(void)
{
    (void)rmdir(temporary(""));
}

Test(torch_flight, what_is_no_whole_dump_is_nothing, .fini = remove_folder)
{
    static const char harmful[] = "cos\nsystem\n(S'touch harmed'\ntR.";
    const char *path = temporary("dump");
    char whole[8192];
    FILE *from = fopen(WAITS, "rb");
    size_t size = fread(whole, 1, sizeof whole, from);

    (void)fclose(from);
    for (int turn = 0; turn < 3; turn++) {
        FILE *to = fopen(path, "wb");
        const char *bytes = turn == 0 ? harmful : whole;

        (void)fwrite(bytes, 1, turn == 0 ? sizeof harmful - 1 : size * (size_t)(turn - 1) / 2, to);
        (void)fclose(to);
        struct ct_buf text = read_dump(path, 0);
        cr_assert_eq(text.size, 0, "%s", ct_buf_str(&text));
        ct_buf_deinit(&text);
    }
    (void)unlink(path);
    cr_assert_neq(access("harmed", F_OK), 0, "a dump's code was run");
    struct ct_buf text = read_dump(path, 0);
    cr_assert_eq(text.size, 0, "there is no dump");
    ct_buf_deinit(&text);
}

static void remove_pipe(void)
{
    (void)unlink(temporary("dump.pipe"));
    remove_folder();
}

Test(torch_flight, a_rank_that_listens_is_asked_and_no_other_is_waited_for, .fini = remove_pipe)
{
    char path[PATH_MAX], pipe[PATH_MAX], byte;

    (void)snprintf(path, sizeof path, "%s", temporary("dump"));
    (void)snprintf(pipe, sizeof pipe, "%s", temporary("dump.pipe"));
    cr_assert_not(ct_torch_flight_ask(path), "there is no pipe");
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    cr_assert_not(ct_torch_flight_ask(path), "nobody reads it");
    int end = open(pipe, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    cr_assert_geq(end, 0);
    cr_assert(ct_torch_flight_ask(path));
    cr_assert_eq(read(end, &byte, 1), 1);
    (void)close(end);
}

Test(torch_flight, whatever_is_printed_the_result_is_well_formed)
{
    static const char *const none[] = {
        "",
        "calls, the last waits, of group a",
        "7 calls",
        "7 calls, the last waits",
        "7 calls, the last waits, of group ",
        "7x calls, the last waits, of group a",
    };
    struct ct_torch_flight flight;
    struct ct_buf text;

    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        cr_assert_not(ct_torch_flight_parse(none[i], 1, &flight), "%s", none[i]);
    ct_buf_init(&text, 0);
    for (int i = 0; i < CT_FLIGHT_GROUPS + 5; i++)
        (void)ct_buf_printf(&text, "%d calls, the last has ended, of group \x1b%0100d\n", i, i);
    cr_assert(ct_torch_flight_parse(ct_buf_str(&text), 1, &flight));
    ct_buf_deinit(&text);
    cr_assert_eq(flight.group_count, CT_FLIGHT_GROUPS);
    cr_assert_eq(flight.groups[3].calls, 3);
    cr_assert_eq(strlen(flight.groups[3].name), CT_FLIGHT_NAME - 1);
    cr_assert_eq(flight.groups[3].name[0], '?');
}
