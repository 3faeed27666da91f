/* What one sees of a training: on terminals of several kinds and widths, and in a file. */
#include "e2e.h"
#include "speech.h"

#include <criterion/criterion.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(screen, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* The shipped digits: 90 steps, an evaluation each 45. */
static void train(struct proc *run, const char *option)
{
    cr_assert_eq(e2e_run(run, "--nproc_per_node=2", "--checkpoint.dir=ckpt", "--log.dir=run",
                         "--log.overwrite=yes", "--train.epochs=2", option,
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&run->text));
}

/* ---- a file --------------------------------------------------------------------------------- */

Test(screen, in_a_file_each_evaluation_is_a_line_with_its_time_its_values_and_the_best)
{
    struct proc run;
    const char *at;
    int minute, second;

    if (speech_is_json())
        cr_skip_test("skipped: of the text format");
    train(&run, "--eval.every=45");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), " eval  step "), 2, "%s", ct_buf_str(&run.text));
    cr_assert_not_null(at = strstr(ct_buf_str(&run.text), " eval  step 45  loss "));
    cr_assert_not_null(strstr(at, " %  best "));
    cr_assert_not_null(strstr(at, " at step 45\n"));
    cr_assert_eq(sscanf(at - strlen("00:00"), "%2d:%2d", &minute, &second), 2, "%s",
                 ct_buf_str(&run.text));
    e2e_not_said(&run, "\x1b");
    proc_free(&run);
}

Test(screen, quiet_leaves_the_result_alone)
{
    struct proc run;

    train(&run, "-q");
    cr_assert(strncmp(ct_buf_str(&run.text), "accuracy ", 9) == 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "\nthroughput ");
    e2e_not_said(&run, "eval  ");
    e2e_not_said(&run, "epoch ");
    proc_free(&run);
}

Test(screen, verbose_tells_what_it_computes_on)
{
    struct proc run;

    train(&run, "--verbose");
    e2e_said(&run, "ctworker: using CPU (");
    proc_free(&run);
    train(&run, "--color=always");
    e2e_wrote(&run, "\x1b[32mbest ");
    e2e_not_said(&run, "using CPU");
    proc_free(&run);
}

Test(screen, the_closing_lines_name_trace_and_event_file)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--checkpoint.dir=ckpt", "--log.dir=run", "--train.epochs=1",
                         "--log.trace=2", "--log.tensorboard",
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0);
    e2e_said(&run, "\nmetrics     run/metrics.jsonl\n");
    e2e_said(&run, "\nevents      run/events.out.tfevents.");
    e2e_said(&run, "\ntrace       run/trace/rank*.json ");
    cr_assert(e2e_exists("run/trace/rank0.json"));
    proc_free(&run);
}

/* ---- a terminal ----------------------------------------------------------------------------- */

/* Run the training on a terminal of so many columns and collect what it gets. */
static void watch(struct ct_buf *seen, int columns, const char *name, const char *value)
{
    struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    const char *program = proc_program("ctrun");
    const char *config = e2e_in_root("configs/digits_mlp.yaml");
    char bytes[4096];
    ssize_t got;
    int screen, status;

    (void)setenv("TERM", "xterm", 1);
    (void)unsetenv("NO_COLOR");
    (void)setenv(name, value, 1);
    ct_buf_init(seen, 0);
    pid_t pid = forkpty(&screen, NULL, NULL, &size);
    cr_assert_geq(pid, 0);
    if (pid == 0) {
        (void)execl(program, program, "--nproc_per_node=2", "--checkpoint.dir=ckpt",
                    "--log.dir=run", "--log.overwrite=yes", "--train.epochs=4", config,
                    (char *)NULL);
        _exit(127);
    }
    while ((got = read(screen, bytes, sizeof bytes)) > 0)
        cr_assert_eq(ct_buf_append(seen, bytes, (size_t)got), 0);
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert_eq(status, 0, "%s", ct_buf_str(seen));
    (void)close(screen);
}

/* The widest live line, counted without escape sequences; live lines end without a newline. */
static size_t widest_live(const char *text)
{
    size_t widest = 0, width = 0;

    for (; *text != '\0'; text++) {
        if (*text == '\x1b')
            text += strcspn(text, "mK");
        else if (*text == '\r') {
            widest = text[1] != '\n' && width > widest ? width : widest;
            width = 0;
        } else if (*text == '\n')
            width = 0;
        else
            width++;
    }
    return widest;
}

Test(screen, a_terminal_has_a_live_line_of_its_width_with_a_bar_and_colour)
{
    static const int widths[] = {50, 80, 200};
    struct ct_buf seen;

    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        watch(&seen, widths[i], "TERM", "xterm");
        const char *text = ct_buf_str(&seen);
        cr_assert_not_null(strstr(text, "step 1/180  [\x1b[36m>"), "%s", text);
        cr_assert_not_null(strstr(text, "\x1b[32mbest "), "%s", text);
        cr_assert_lt(widest_live(text), (size_t)widths[i], "%s", text);
        cr_assert_gt(widest_live(text), (size_t)widths[i] / 3, "%s", text);
        cr_assert_null(strstr(text, ":00 eval"), "no time where a person watches");
        ct_buf_deinit(&seen);
    }
}

Test(screen, no_color_and_a_dumb_terminal_are_respected)
{
    struct ct_buf seen;

    watch(&seen, 80, "NO_COLOR", "1");
    cr_assert_not_null(strstr(ct_buf_str(&seen), "step 1/180  [>"), "the bar stays");
    cr_assert_null(strstr(ct_buf_str(&seen), "\x1b[3"), "%s", ct_buf_str(&seen));
    ct_buf_deinit(&seen);
    watch(&seen, 80, "TERM", "dumb");
    cr_assert_null(strstr(ct_buf_str(&seen), "\x1b"), "%s", ct_buf_str(&seen));
    ct_buf_deinit(&seen);
}
