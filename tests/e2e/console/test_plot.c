/* Pictures of runs: drawn for the terminal and into a file, with what tells the runs apart. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(plot, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

static void train(const char *folder, const char *rate)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, e2e_in_root("configs/digits_mlp.yaml"), "--train.epochs=2", folder,
                         "--log.every=1", rate, NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* What a script logs besides, a step that a rolled-back run took again, and a line in the making.
 */
static void add_lines(const char *path)
{
    static const char lines[] =
        "{\"v\":1,\"kind\":\"train\",\"step\":88,\"time\":1,\"loss\":0.5,\"entropy\":2}\n"
        "{\"v\":1,\"kind\":\"train\",\"step\":89,\"time\":2,\"loss\":null,\"entropy\":1}\n"
        "{\"v\":1,\"kind\":\"train\",\"step\":90,\"tim";
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

    cr_assert_geq(fd, 0, "%s", path);
    cr_assert_eq(write(fd, lines, sizeof lines - 1), (ssize_t)sizeof lines - 1);
    (void)close(fd);
}

Test(plot, runs_are_drawn_in_the_terminal_and_as_svg_with_what_tells_them_apart)
{
    static const char check[] = "import sys, xml.dom.minidom as m; d = m.parse('p.svg'); "
                                "print(len(d.getElementsByTagName('path')))";
    struct proc run;

    train("--log.dir=a", "--optim.lr=0.01");
    train("--log.dir=b", "--optim.lr=0.02");
    add_lines("b/metrics.jsonl");
    (void)e2e_write("results.txt", "no run");
    cr_assert_eq(setenv("LC_ALL", "C", 1), 0);
    cr_assert_eq(e2e_run(&run, "plot", "a", "b", "results.txt", "--log", "-o", "p.svg", NULL), 0,
                 "%s", ct_buf_str(&run.text));
    e2e_said(&run, "loss, logarithmic\n");
    e2e_said(&run, "\n  a  optim.lr 0.01\n  b  optim.lr 0.02\n  A  evaluations\n");
    e2e_said(&run, "  1 value of loss in optim.lr 0.02 is not finite, or not above 0: gaps\n");
    e2e_said(&run, "p.svg written, ");
    proc_free(&run);
    const char *const python[] = {"python3", "-c", check, NULL};
    cr_assert_eq(proc_run(&run, python, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    cr_assert_geq(proc_number_after(&run, ""), 10);
    proc_free(&run);
    cr_assert_lt(strlen(e2e_read("p.svg")), 150000);
    cr_assert_not_null(strstr(e2e_read("p.svg"), ">optim.lr 0.02</text>"));

    /* One alone, over time; a script's own metric. */
    cr_assert_eq(setenv("LC_ALL", "C.UTF-8", 1), 0);
    cr_assert_eq(e2e_run(&run, "plot", "a", "--x=time", NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "seconds\n  \u2501  a\n  \u25CF  evaluations\n");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "plot", "b", "--metric=entropy", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    e2e_said(&run, "entropy\n2.0 ");
    proc_free(&run);
}

Test(plot, what_is_not_there_is_named_with_what_is)
{
    struct proc run;

    train("--log.dir=a", "--log.jsonl=true");
    cr_assert_eq(e2e_run(&run, "plot", "a", "--metric=los", NULL), 66);
    e2e_said(&run, "no run has the metric \"los\"; there are: loss, lr, grad_norm, samples");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "plot", "b", NULL), 66);
    e2e_said(&run, "ctrun plot: error: there is no run \"b\"");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "plot", "a", "--x=steps", NULL), 2);
    e2e_said(&run, "--x steps: it is step, time or samples");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "plot", "a", "-o", "a.png", NULL), 2);
    e2e_said(&run, "-o a.png: the file is an SVG");
    proc_free(&run);
}
