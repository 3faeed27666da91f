/* `ctrun top` on a terminal: a VT52, of which every sequence is obeyed here. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

TestSuite(top, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

enum { ROWS = 30, COLUMNS = 110 };

/* ---- a terminal ------------------------------------------------------------------------------ */

struct terminal {
    int fd;
    pid_t pid;
    struct termios before;
    char cells[ROWS][COLUMNS + 1]; /* a character beyond ASCII is '#' */
    int row, column;
    int escape; /* 1: after ESC; 2: after ESC Y; 3: after its row */
    struct ct_buf all;
};

static void blank(struct terminal *t, int row, int from)
{
    for (int i = from; i < COLUMNS; i++)
        t->cells[row][i] = ' ';
}

static void obey(struct terminal *t, unsigned char byte)
{
    t->escape = byte == 'Y' ? 2 : 0;
    if (byte == 'H')
        t->row = t->column = 0;
    else if (byte == 'A' || byte == 'B')
        t->row += byte == 'A' ? -1 : 1;
    else if (byte == 'C' || byte == 'D')
        t->column += byte == 'C' ? 1 : -1;
    else if (byte == 'K' || byte == 'J')
        blank(t, t->row, t->column);
    else
        cr_assert(strchr("Y=>FG", byte) != NULL, "ESC %c is nothing to a VT52", byte);
    for (int row = t->row + 1; byte == 'J' && row < ROWS; row++)
        blank(t, row, 0);
}

static void take(struct terminal *t, unsigned char byte)
{
    if (t->escape == 1)
        obey(t, byte);
    else if (t->escape == 2)
        t->row = byte - ' ', t->escape = 3;
    else if (t->escape == 3)
        t->column = byte - ' ', t->escape = 0;
    else if (byte == 0x1b)
        t->escape = 1;
    else if (byte == '\r')
        t->column = 0;
    else if (byte == '\n')
        t->row++;
    else if (byte == '\b')
        t->column--;
    else if (byte == '\t')
        t->column = (t->column / 8 + 1) * 8;
    else if (byte >= ' ' && byte != 0x7f && (byte < 0x80 || byte >= 0xc0)) {
        cr_assert(t->row >= 0 && t->row < ROWS && t->column >= 0 && t->column < COLUMNS);
        t->cells[t->row][t->column] = (char)(byte < 0x80 ? byte : '#');
        t->column += t->column < COLUMNS - 1;
    } else {
        cr_assert(byte >= 0x80, "a control character: %02x", byte);
    }
}

/* Start `ctrun top` there. `more`: NULL, or "NAME=value" over the environment. */
static void terminal_open(struct terminal *t, const char *endpoint, const char *more)
{
    struct winsize size = {.ws_row = ROWS, .ws_col = COLUMNS};
    const char *program = proc_program("ctrun");
    int tty;

    *t = (struct terminal){.row = 0};
    ct_buf_init(&t->all, 0);
    for (int row = 0; row < ROWS; row++)
        blank(t, row, 0);
    cr_assert_eq(openpty(&t->fd, &tty, NULL, NULL, &size), 0);
    cr_assert_eq(tcgetattr(tty, &t->before), 0);
    (void)fcntl(t->fd, F_SETFD, FD_CLOEXEC);
    t->pid = fork();
    cr_assert_geq(t->pid, 0);
    if (t->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)login_tty(tty);
        (void)setenv("TERM", "vt52", 1);
        (void)setenv("LC_ALL", "C.UTF-8", 1);
        if (more != NULL)
            (void)putenv((char *)(uintptr_t)more);
        (void)execl(program, program, "top", "--rdzv_endpoint", endpoint, (char *)NULL);
        _exit(127);
    }
    (void)close(tty);
}

static bool shows(const struct terminal *t, const char *words)
{
    for (int row = 0; row < ROWS; row++)
        if (strstr(t->cells[row], words) != NULL)
            return true;
    return false;
}

/* Read until the end of `ctrun top`, or until the screen shows the words. */
static void read_until(struct terminal *t, const char *words)
{
    double until_s = proc_now_s() + 20;
    unsigned char bytes[4096];

    while (words == NULL || !shows(t, words)) {
        struct pollfd wait = {.fd = t->fd, .events = POLLIN};
        int left_ms = (int)((until_s - proc_now_s()) * 1000);

        if (left_ms <= 0 || poll(&wait, 1, left_ms) <= 0)
            break;
        ssize_t got = read(t->fd, bytes, sizeof bytes);
        if (got <= 0)
            break;
        (void)ct_buf_append(&t->all, bytes, (size_t)got);
        for (ssize_t i = 0; i < got; i++)
            take(t, bytes[i]);
    }
    for (int row = 0; words != NULL && !shows(t, words) && row < ROWS; row++)
        fprintf(stderr, "%s\n", t->cells[row]);
    cr_assert(words == NULL || shows(t, words), "the screen never had: %s", words);
}

static void type(struct terminal *t, const char *keys)
{
    cr_assert_eq(write(t->fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

/* Wait for its end: its exit status, and the terminal as it was before. */
static int terminal_close(struct terminal *t)
{
    struct termios after;
    int status;

    cr_assert_eq(tcgetattr(t->fd, &after), 0);
    while (waitpid(t->pid, &status, WNOHANG) == 0)
        read_until(t, NULL);
    cr_assert_eq(tcgetattr(t->fd, &after), 0);
    cr_assert_eq(after.c_lflag, t->before.c_lflag);
    cr_assert_eq(after.c_iflag, t->before.c_iflag);
    cr_assert_eq(after.c_oflag, t->before.c_oflag);
    (void)close(t->fd);
    ct_buf_deinit(&t->all);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* ---- what it shows --------------------------------------------------------------------------- */

static void start_node(struct proc *node, const char *endpoint, const char *rank)
{
    e2e_start(node, "--nnodes=1:2", "--nproc_per_node=1", "--max_restarts=3", "--rdzv_endpoint",
              endpoint, "--node_rank", rank, "--rdzv_id=night", "--train.epochs=1000000",
              "--log.dir=run", "--log.overwrite=yes", "--checkpoint.dir=ckpt",
              "--checkpoint.every=1000000", e2e_in_root("configs/digits_mlp.yaml"), NULL);
}

Test(top, an_elastic_training_is_shown_and_the_loss_of_a_node_with_its_cause)
{
    struct proc daemon, first, second;
    struct terminal t;
    const char *endpoint = e2e_daemon(&daemon);

    start_node(&first, endpoint, "0");
    start_node(&second, endpoint, "1");
    (void)proc_wait_text(&first, "epoch ", 20);
    terminal_open(&t, endpoint, NULL);
    read_until(&t, "night  running");
    read_until(&t, "round 1 runs with 2 nodes, 2 ranks");
    type(&t, "2");
    read_until(&t, "HOST#");
    cr_assert(shows(&t, "1 job, 2 nodes, 2 ranks"));
    read_until(&t, "loss #");
    cr_assert_eq(kill(second.pid, SIGKILL), 0);
    read_until(&t, " is lost: its connection closed");
    read_until(&t, "restarted because node vm was lost");
    read_until(&t, "1 job, 1 node, 1 rank");
    type(&t, "q");
    cr_assert_eq(terminal_close(&t), 0);
    cr_assert_eq(kill(first.pid, SIGTERM), 0);
    (void)proc_finish(&first, 20);
    (void)proc_finish(&second, 20);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    proc_free(&first);
    proc_free(&second);
    proc_free(&daemon);
}

/* ---- orders, and what may go wrong ----------------------------------------------------------- */

Test(top, an_order_is_confirmed_and_a_daemon_that_is_gone_is_asked_again)
{
    struct proc daemon, again, node;
    struct terminal t;
    const char *endpoint = e2e_daemon(&daemon);
    struct winsize small = {.ws_row = 15, .ws_col = 60};

    e2e_start(&node, "--nnodes=1:2", "--nproc_per_node=2", "--rdzv_endpoint", endpoint,
              "--rdzv_id=nap", e2e_script("nap", "#!/bin/sh\necho up\nexec sleep 600\n"), NULL);
    (void)proc_wait_text(&node, "up", 10);
    terminal_open(&t, endpoint, "NO_COLOR=1");
    read_until(&t, "q quit");
    type(&t, "2c");
    read_until(&t, " of job nap? y: yes");
    type(&t, "y");
    read_until(&t, "cordoned: by ");
    type(&t, "uy");
    read_until(&t, ": done");
    cr_assert_eq(ioctl(t.fd, TIOCSWINSZ, &small), 0);
    type(&t, "h");
    read_until(&t, "any key: back");
    type(&t, "1");
    cr_assert_eq(kill(daemon.pid, SIGKILL), 0);
    (void)proc_finish(&daemon, 10);
    read_until(&t, "out of date since ");
    const char *const words[] = {proc_program("ctrund"), "--listen", endpoint, NULL};
    proc_start(&again, words, NULL);
    read_until(&t, "again: no job");
    type(&t, "\x03");
    cr_assert_eq(terminal_close(&t), 0, "Ctrl-C quits");
    cr_assert_eq(kill(node.pid, SIGTERM), 0);
    (void)proc_finish(&node, 20);
    cr_assert_eq(kill(again.pid, SIGTERM), 0);
    (void)proc_finish(&again, 10);
    proc_free(&node);
    proc_free(&daemon);
    proc_free(&again);
}

Test(top, where_it_cannot_draw_it_says_so_and_names_ctrun_status)
{
    static const char *const types[][2] = {
        {"TERM=dumb", "TERM is unset or dumb"},
        {"TERM=no-such-type", "nothing is known of the terminal"}};
    struct proc daemon, node, run;
    const char *endpoint = e2e_daemon(&daemon);

    cr_assert_eq(e2e_run(&run, "top", "--rdzv_endpoint", endpoint, NULL), 2);
    e2e_said(&run, "no terminal: `ctrun status` prints the same");
    proc_free(&run);
    e2e_start(&node, "--nnodes=1", "--nproc_per_node=1", "--rdzv_endpoint", endpoint,
              e2e_script("nap", "#!/bin/sh\necho up\nexec sleep 600\n"), NULL);
    (void)proc_wait_text(&node, "up", 10);
    for (size_t i = 0; i < CT_COUNT(types); i++) {
        struct terminal t;

        terminal_open(&t, endpoint, types[i][0]);
        read_until(&t, types[i][1]);
        cr_assert(shows(&t, "`ctrun status`"));
        cr_assert_eq(terminal_close(&t), 2);
    }
    cr_assert_eq(kill(node.pid, SIGTERM), 0);
    (void)proc_finish(&node, 20);
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    (void)proc_finish(&daemon, 10);
    proc_free(&node);
    proc_free(&daemon);
}

/* Two jobs of this user are hosted here; an order that names neither would be a guess. */
Test(top, an_order_that_names_its_job_finds_it_among_those_hosted_here)
{
    struct proc jobs[2], run;
    const char *script = e2e_script("nap", "#!/bin/sh\necho up\nexec sleep 600\n");

    cr_assert_eq(setenv("XDG_RUNTIME_DIR", e2e_in_folder(""), 1), 0);
    for (int i = 0; i < 2; i++) {
        e2e_start(&jobs[i], "--nproc_per_node=1", i == 0 ? "--rdzv_id=a" : "--rdzv_id=b", script,
                  NULL);
        (void)proc_wait_text(&jobs[i], "up", 10);
    }
    cr_assert_eq(e2e_run(&run, "cordon", "other", NULL), 2);
    e2e_said(&run, "several jobs of yours are hosted on this machine");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "cordon", "other", "--job=b", NULL), 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(e2e_run(&run, "status", i == 0 ? "--job=a" : "--job=b", NULL), 0);
        cr_assert_eq(e2e_count(ct_buf_str(&run.text), "cordoned   other"), i, "%s",
                     ct_buf_str(&run.text));
        proc_free(&run);
    }
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(kill(jobs[i].pid, SIGTERM), 0);
        (void)proc_finish(&jobs[i], 20);
        proc_free(&jobs[i]);
    }
}
