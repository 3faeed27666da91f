/* Real worker processes under a real loop: started, heard, stopped. */
#include "launch/workers_uv.h"

#include "base/assert.h"
#include "base/fs.h"
#include "launch/worker_env.h"
#include "message_print.h"
#include "tree.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_WORKERS = 8 };

static struct node {
    uv_loop_t loop;
    struct ct_console *console;
    struct ct_log log;
    bool output_lost;
    struct ct_workers *workers;
    struct tree tree;
    int out, err; /* files that play the console */
    struct ct_worker_spec specs[MAX_WORKERS];
    struct ct_buf failure; /* "rank 1 status 3 signal 0 code 0: text" */
    struct ct_buf messages, casualties;
    unsigned failures, waits, finishes;
    bool well;
    uint32_t restart; /* rounds still to start when one has finished */
    const struct ct_workers_round *again;
    void (*on_message)(struct node *node);
    void (*on_left)(struct node *node);
    unsigned left; /* bits of local ranks */
} node;

static void on_message(void *context, uint32_t local_rank, const struct ct_message *message)
{
    struct node *n = context;

    (void)ct_buf_printf(&n->messages, "%u: ", local_rank);
    message_print(message, &n->messages);
    (void)ct_buf_puts(&n->messages, "\n");
    if (n->on_message != NULL)
        n->on_message(n);
}

static void on_failure(void *context, const struct ct_worker_failure *failure)
{
    struct node *n = context;

    const struct ct_wire_failure *record = &failure->record;
    const struct ct_exit end = ct_failure_exit(record);

    n->failures++;
    (void)ct_buf_printf(&n->failure, "rank %d status %d signal %d code %d: %s", record->rank,
                        end.status, end.signal, record->code,
                        record->error_file[0] != '\0' ? failure->sentence : record->text);
}

/* "rank 0 stopped by signal 15\n" */
static void on_casualty(void *context, const struct ct_worker_failure *failure)
{
    struct node *n = context;

    const struct ct_exit end = ct_failure_exit(&failure->record);

    (void)ct_buf_printf(&n->casualties, "rank %d %s status %d signal %d\n", failure->record.rank,
                        failure->stopped ? "stopped" : "failed", end.status, end.signal);
}

static void on_left(void *context, uint32_t local_rank)
{
    struct node *n = context;

    n->left |= 1u << local_rank;
    if (n->on_left != NULL)
        n->on_left(n);
}

static void on_waiting(void *context, const char *text)
{
    struct node *n = context;

    cr_assert_not_null(strstr(text, "waiting for rank"));
    n->waits++;
}

static void on_other(void *context, pid_t pid, int status)
{
    (void)context, (void)pid, (void)status;
}

static void on_finished(void *context, bool well)
{
    struct node *n = context;

    n->finishes++;
    n->well = well;
    if (n->restart > 0) {
        n->restart--;
        cr_assert_eq(ct_workers_start(n->workers, n->again, NULL, NULL), 0);
        return;
    }
    ct_workers_free(n->workers, NULL, NULL);
    ct_console_close(n->console, NULL, NULL);
}

static int open_file(const char *name)
{
    tree_file(&node.tree, name, "");
    int fd = open(tree_path(&node.tree, name), O_RDWR | O_APPEND | O_CLOEXEC);
    cr_assert_geq(fd, 0);
    return fd;
}

static void set_up(void)
{
    memset(&node, 0, sizeof node);
    tree_init(&node.tree);
    ct_buf_init(&node.failure, 0);
    ct_buf_init(&node.messages, 0);
    ct_buf_init(&node.casualties, 0);
    cr_assert_eq(uv_loop_init(&node.loop), 0);
    node.out = open_file("/out");
    node.err = open_file("/err");
    const struct ct_workers_callbacks callbacks = {&node,   on_message, on_failure,  on_casualty,
                                                   on_left, on_waiting, on_finished, on_other};
    node.console = ct_console_new(&node.loop, node.out, node.err, NULL, NULL);
    node.workers = ct_workers_new(&node.loop, node.console, 10000, &callbacks);
    cr_assert(node.console != NULL && node.workers != NULL);
    ct_console_log(node.console, &node.log, "ctrun");
    ct_console_report(node.console, &node.log, false, &node.output_lost);
    static char path[] = "PATH=/usr/bin:/bin";
    static char *env[] = {path, NULL};
    static const char *const prefixes[] = {"[0:0] ", "[0:1] ", "[0:2] ", "[0:3] ",
                                           "[0:4] ", "[0:5] ", "[0:6] ", "[0:7] "};
    for (uint32_t i = 0; i < MAX_WORKERS; i++)
        node.specs[i] = (struct ct_worker_spec){.rank = i,
                                                .origin = {.prefix = prefixes[i]},
                                                .envp = env,
                                                .routes = {{.console = true}, {.console = true}}};
}

static void tear_down(void)
{
    cr_assert_eq(uv_loop_close(&node.loop), 0, "a handle was left open");
    (void)close(node.out);
    (void)close(node.err);
    ct_buf_deinit(&node.failure);
    ct_buf_deinit(&node.messages);
    ct_buf_deinit(&node.casualties);
    tree_deinit(&node.tree);
}

TestSuite(workers, .timeout = 30, .init = set_up, .fini = tear_down);

static struct ct_workers_round round_of(const char *script, uint32_t count)
{
    static char shell[] = "sh", option[] = "-c";
    static char *argv[] = {shell, option, NULL, NULL};

    argv[2] = (char *)(uintptr_t)script;
    return (struct ct_workers_round){
        .path = "/bin/sh", .argv = argv, .page_fd = -1, .count = count, .specs = node.specs};
}

static void run(const char *script, uint32_t count)
{
    struct ct_workers_round round = round_of(script, count);
    struct ct_error err = {0};

    cr_assert_eq(ct_workers_start(node.workers, &round, NULL, &err), 0, "%s", err.text);
    cr_assert_eq(uv_run(&node.loop, UV_RUN_DEFAULT), 0);
    while (waitpid(-1, NULL, 0) > 0) /* what was swept up; a living child fails by the time limit */
        continue;
}

/* What the file holds; static storage. */
static const char *content(const char *name)
{
    static char text[1 << 20];
    int fd = open(tree_path(&node.tree, name), O_RDONLY | O_CLOEXEC);
    size_t used = 0;
    ssize_t size;

    cr_assert_geq(fd, 0, "%s is missing", name);
    while ((size = read(fd, text + used, sizeof text - 1 - used)) > 0)
        used += (size_t)size;
    text[used] = '\0';
    cr_assert_eq(close(fd), 0);
    return text;
}

Test(workers, a_round_ends_well_when_every_worker_does)
{
    run("echo hello; echo oops >&2", 3);
    cr_assert(node.finishes == 1 && node.well && node.failures == 0);
    for (int i = 0; i < 3; i++) {
        char line[32];

        (void)snprintf(line, sizeof line, "[0:%d] hello\n", i);
        cr_assert_not_null(strstr(content("/out"), line));
        (void)snprintf(line, sizeof line, "[0:%d] oops\n", i);
        cr_assert_not_null(strstr(content("/err"), line));
    }
}

Test(workers, the_first_failure_is_told_with_its_last_lines_and_ends_the_others)
{
    node.specs[1].envp = (char *[]){(char[]){"FAIL=1"}, NULL};
    run("if [ $FAIL ]; then echo good; echo bad >&2; exit 3; fi; read never </dev/tty; "
        "while :; do :; done",
        2);
    cr_assert(node.finishes == 1 && !node.well && node.failures == 1);
    cr_assert_str_eq(ct_buf_str(&node.failure), "rank 1 status 3 signal 0 code 0: bad\n");
}

static void on_condemn(uv_timer_t *timer)
{
    const struct ct_error error = {.code = CT_EHUNG, .text = "it hangs"};

    cr_assert_not_null(ct_workers_record(node.workers, 0));
    cr_assert_gt(ct_workers_pid(node.workers, 0), 0);
    cr_assert_not(ct_workers_held(node.workers, 0));
    ct_workers_condemn(node.workers, 0, &error);
    uv_close((uv_handle_t *)timer, NULL);
}

Test(workers, a_condemned_worker_ends_for_the_reason_that_is_given)
{
    char expected[80];
    uv_timer_t timer;

    (void)uv_timer_init(&node.loop, &timer);
    (void)uv_timer_start(&timer, on_condemn, 0, 0);
    run("kill -STOP $$", 1);
    (void)snprintf(expected, sizeof expected, "rank 0 status 0 signal 9 code %d: it hangs",
                   CT_EHUNG);
    cr_assert_str_eq(ct_buf_str(&node.failure), expected);
}

Test(workers, a_signal_is_told_as_such_and_output_serves_when_nothing_went_to_errors)
{
    run("echo last words; kill -SEGV $$", 1);
    cr_assert_str_eq(ct_buf_str(&node.failure), "rank 0 status 0 signal 11 code 0: last words\n");
}

Test(workers, one_that_ignores_sigterm_is_killed_after_the_grace)
{
    uint64_t before = uv_hrtime();

    node.specs[0].envp = (char *[]){(char[]){"FAIL=1"}, NULL};
    ct_workers_free(node.workers, NULL, NULL);
    const struct ct_workers_callbacks callbacks = {&node,   on_message, on_failure,  on_casualty,
                                                   on_left, on_waiting, on_finished, on_other};
    node.workers = ct_workers_new(&node.loop, node.console, 1200, &callbacks);
    char script[256];
    (void)snprintf(script, sizeof script,
                   "cd %s; if [ $FAIL ]; then until [ -e ready ]; do :; done; exit 1; fi; "
                   "trap '' TERM; : >ready; while :; do sleep 0.05; done",
                   node.tree.root);
    run(script, 2);
    double seconds = (double)(uv_hrtime() - before) / 1e9;
    cr_assert(seconds > 1.1 && seconds < 10, "%f s", seconds);
    cr_assert_eq(node.waits, 1u, "what lasts longer than a second is said");
    cr_assert_eq(node.failures, 1u, "its end by our signal is no failure");
}

Test(workers, what_a_worker_leaves_behind_ends_with_it)
{
    run("cat /dev/zero >/dev/null & echo $!; exit 0", 1);
    int pid = 0;
    cr_assert_eq(sscanf(content("/out"), "[0:0] %d", &pid), 1);
    cr_assert_eq(kill(pid, 0), -1, "%d lives", pid);
    cr_assert(node.well);
}

/* A file with the frames of `messages`, for a script to send: cat FILE >&3. */
static const char *frames_file(const struct ct_message *messages, uint32_t count)
{
    struct ct_buf frames;

    ct_buf_init(&frames, 0);
    for (uint32_t i = 0; i < count; i++)
        cr_assert_eq(ct_wire_encode(&messages[i], i, &frames, NULL), 0);
    int fd = open_file("/frames");
    cr_assert_eq(ct_fs_write_all(fd, frames.data, frames.size), 0);
    cr_assert_eq(close(fd), 0);
    ct_buf_deinit(&frames);
    return tree_path(&node.tree, "/frames");
}

static void stop(struct node *n)
{
    ct_workers_stop(n->workers, SIGTERM);
}

static void hang_up(struct node *n)
{
    ct_workers_stop(n->workers, SIGHUP);
    ct_workers_stop(n->workers, SIGTERM); /* the first counts */
}

Test(workers, they_get_the_signal_that_ctrun_got)
{
    const struct ct_message ready = {.type = CT_MSG_PROGRESS};
    char script[512];

    (void)snprintf(script, sizeof script,
                   "trap 'echo got HUP; exit 0' HUP; trap 'echo got TERM' TERM; cat %s >&3; "
                   "while :; do sleep 0.05; done",
                   frames_file(&ready, 1));
    node.on_message = hang_up;
    run(script, 1);
    cr_assert_str_eq(content("/out"), "[0:0] got HUP\n");
}

static void pass_on(struct node *n)
{
    cr_assert_eq(ct_workers_signal(n->workers, SIGUSR1), 1);
}

Test(workers, a_forwarded_signal_reaches_the_worker_and_not_its_helpers)
{
    const struct ct_message ready = {.type = CT_MSG_PROGRESS};
    char script[512];

    (void)snprintf(script, sizeof script,
                   "sleep 600 & helper=$!; trap 'kill -0 $helper && echo got it; exit 0' USR1; "
                   "cat %s >&3; while :; do sleep 0.05; done",
                   frames_file(&ready, 1));
    node.on_message = pass_on;
    run(script, 1);
    cr_assert_str_eq(content("/out"), "[0:0] got it\n");
    cr_assert(node.well && node.failures == 0);
}

/* Rank 1 leaves an error file of `age_s` seconds ago and goes on; rank 0 ends badly after that. */
static void run_with_error_file(int age_s)
{
    static char first[] = "FIRST=1", path[] = "PATH=/usr/bin:/bin";
    static char *env[] = {first, path, NULL};
    char script[1024], file[128];

    (void)snprintf(file, sizeof file, "%s/error.json", node.tree.root);
    (void)snprintf(script, sizeof script,
                   "cd %s; if [ $FIRST ]; then t=$(($(date +%%s) - %d)); "
                   "echo '{\"message\": \"no such layer\", \"timestamp\": '$t'}' >e.new; "
                   "touch -d @$t e.new; mv e.new error.json; while :; do sleep 0.05; done; fi; "
                   "until [ -e error.json ]; do sleep 0.02; done; exit 7",
                   node.tree.root, age_s);
    node.specs[1].envp = env;
    node.specs[1].error_file = file;
    run(script, 2);
    cr_assert_eq(node.failures, 1);
}

Test(workers, who_left_an_error_file_before_failed_first_although_it_still_runs)
{
    run_with_error_file(1);
    cr_assert_str_eq(ct_buf_str(&node.failure), "rank 1 status 1 signal 0 code 0: no such layer");
    cr_assert_str_eq(ct_buf_str(&node.casualties), "rank 0 failed status 7 signal 0\n");
}

Test(workers, who_has_long_got_over_its_error_is_not_to_blame)
{
    run_with_error_file(60);
    cr_assert_str_eq(ct_buf_str(&node.failure), "rank 0 status 7 signal 0 code 0: ");
    cr_assert_str_eq(ct_buf_str(&node.casualties), "rank 1 failed status 0 signal 15\n");
}

Test(workers, children_of_a_stopping_worker_may_end_in_their_own_way)
{
    const struct ct_message ready = {.type = CT_MSG_PROGRESS};
    char script[512];

    /* The first process dies of SIGTERM at once, its child takes a moment to clean up. */
    (void)snprintf(script, sizeof script,
                   "sh -c \"trap 'echo cleaned up; exit' TERM; cat %s >&3; while :; do sleep 0.05; "
                   "done\" & wait",
                   frames_file(&ready, 1));
    node.on_message = stop;
    run(script, 1);
    cr_assert_not_null(strstr(content("/out"), "cleaned up"), "%s", content("/out"));
    cr_assert(!node.well && node.failures == 0);
}

Test(workers, a_worker_has_its_descriptors_and_no_others)
{
    int leaked = fcntl(STDERR_FILENO, F_DUPFD, 50); /* without close-on-exec */

    run("ls /proc/self/fd; read line || echo no input; "
        "tr '\\0' ' ' </proc/$$/stat | cut -d' ' -f1,5",
        1);
    (void)close(leaked);
    const char *out = content("/out");
    int pid, group;
    /* 5 is the directory that ls reads. */
    cr_assert_eq(
        strncmp(out, "[0:0] 0\n[0:0] 1\n[0:0] 2\n[0:0] 3\n[0:0] 4\n[0:0] 5\n[0:0] no input\n", 63),
        0, "%s", out);
    cr_assert_eq(
        sscanf(strstr(out, "no input") + strlen("no input\n[0:0] "), "%d %d", &pid, &group), 2);
    cr_assert_eq(pid, group, "a process group of its own");
}

Test(workers, files_get_the_stream_as_it_is)
{
    const char *file = tree_path(&node.tree, "/rank0.log");

    node.specs[0].routes[CT_CONSOLE_OUT] = (struct ct_output_route){.console = false, .file = file};
    node.specs[1].routes[CT_CONSOLE_OUT] = (struct ct_output_route){.console = true, .file = file};
    run("printf 'a\\rb\\nno end'", 2);
    cr_assert_str_eq(content("/rank0.log"), "a\rb\nno enda\rb\nno end");
    cr_assert_str_eq(content("/out"), "[0:1] b\n[0:1] no end\n");
}

Test(workers, lines_that_match_are_written_a_second_time_by_all)
{
    static const char *const texts[] = {"loss", "done"};
    const struct ct_output_route route = {.console = false,
                                          .filter = {texts, 2},
                                          .filtered_file = tree_path(&node.tree, "/filtered")};

    node.specs[0].routes[CT_CONSOLE_OUT] = route;
    node.specs[1].routes[CT_CONSOLE_ERR] = route;
    run("echo loss 3; echo gain; echo loss 4 >&2; printf 'is do'; printf 'ne'", 2);
    cr_assert_str_eq(content("/out"), "[0:1] loss 3\n[0:1] gain\n[0:1] is done\n");
    cr_assert_str_eq(content("/err"), "[0:0] loss 4\n");
    const char *filtered = content("/filtered");
    cr_assert_eq(strlen(filtered), strlen("[0:0] loss 3\n[0:0] is done\n[0:1] loss 4\n"), "%s",
                 filtered);
    cr_assert(strstr(filtered, "[0:0] loss 3\n") != NULL &&
                  strstr(filtered, "[0:0] is done\n") != NULL &&
                  strstr(filtered, "[0:1] loss 4\n") != NULL,
              "%s", filtered);
}

Test(workers, a_bare_stream_has_no_prefix)
{
    node.specs[0].routes[CT_CONSOLE_OUT] = (struct ct_output_route){.console = true, .bare = true};
    run("echo out; echo err >&2", 1);
    cr_assert_str_eq(content("/out"), "out\n");
    cr_assert_str_eq(content("/err"), "[0:0] err\n");
}

Test(workers, a_worker_may_have_arguments_of_its_own)
{
    static char shell[] = "sh", option[] = "-c", script[] = "echo \"$0\"", own[] = "mine";
    static char *const argv[] = {shell, option, script, own, NULL};

    node.specs[1].argv = argv;
    run("echo all", 2);
    cr_assert(strcmp(content("/out"), "[0:0] all\n[0:1] mine\n") == 0 ||
              strcmp(content("/out"), "[0:1] mine\n[0:0] all\n") == 0);
}

Test(workers, a_program_that_cannot_start_is_an_error_and_the_round_still_finishes)
{
    struct ct_workers_round round = round_of("", 2);
    struct ct_error err = {0};
    uint32_t failed = 99;

    tree_file(&node.tree, "/junk", "\x01\x02");
    cr_assert_eq(chmod(tree_path(&node.tree, "/junk"), 0755), 0);
    round.path = tree_path(&node.tree, "/junk");
    cr_assert_eq(ct_workers_start(node.workers, &round, &failed, &err), CT_ENOINPUT);
    cr_assert_eq(failed, 0u);
    cr_assert_not_null(strstr(err.text, "#! line"), "%s", err.text);
    cr_assert_eq(node.finishes, 0u, "not from inside the call");
    cr_assert_eq(uv_run(&node.loop, UV_RUN_DEFAULT), 0);
    cr_assert(node.finishes == 1 && !node.well && node.failures == 0);
}

/* Rank 0 says that it can live on; now rank 1 may fail. */
static void keep_rank_0(struct node *n)
{
    ct_workers_keep(n->workers, 0);
    tree_file(&n->tree, "/kept", "");
}

/* Rank 1 has left: the next round, with another one in its place. */
static void refill_rank_1(struct node *n)
{
    struct ct_error err = {0};
    uint32_t failed;

    n->on_left = NULL;
    cr_assert(ct_workers_alive(n->workers, 0) && !ct_workers_alive(n->workers, 1));
    n->specs[0].origin.prefix = "[0:6] ";
    n->specs[1].envp = (char *[]){(char[]){"SECOND=1"}, NULL};
    cr_assert_eq(ct_workers_refill(n->workers, n->again, &failed, &err), 0, "%s", err.text);
}

Test(workers, those_that_live_on_keep_their_process_when_one_is_replaced)
{
    const struct ct_message ready = {.type = CT_MSG_READY, .ready.survivable = 1};
    const char *frames = frames_file(&ready, 1);
    char script[1024];

    node.specs[0].envp = (char *[]){(char[]){"STAYS=1"}, NULL};
    node.specs[1].envp = (char *[]){(char[]){"FAILS=1"}, NULL};
    (void)snprintf(
        script, sizeof script,
        "cd %s; if [ $STAYS ]; then echo $$; cat %s >&3; until [ -e second ]; do :; done; "
        "echo $$; elif [ $FAILS ]; then until [ -e kept ]; do :; done; exit 3; "
        "else echo second; : >second; fi",
        node.tree.root, frames);
    struct ct_workers_round again = round_of(script, 2);
    node.again = &again;
    node.on_message = keep_rank_0;
    node.on_left = refill_rank_1;
    run(script, 2);
    cr_assert(node.failures == 1 && node.finishes == 1 && node.well, "%u failures", node.failures);
    int before = 0, after = 0;
    const char *out = content("/out");
    const char *renamed = strstr(out, "[0:6] ");
    cr_assert_eq(sscanf(out, "[0:0] %d", &before), 1, "%s", out);
    cr_assert(renamed != NULL && sscanf(renamed, "[0:6] %d", &after) == 1, "%s", out);
    cr_assert_eq(before, after);
    cr_assert_not_null(strstr(out, "[0:1] second\n"));
}

static void dismiss_rank_0(struct node *n)
{
    ct_workers_dismiss(n->workers, 0);
}

Test(workers, one_that_is_dismissed_is_no_failure)
{
    const struct ct_message ready = {.type = CT_MSG_READY};
    char script[512];

    (void)snprintf(script, sizeof script, "cat %s >&3; kill -STOP $$", frames_file(&ready, 1));
    node.on_message = dismiss_rank_0;
    run(script, 1);
    cr_assert(node.failures == 0 && node.finishes == 1 && !node.well && node.left == 1);
}

Test(workers, rounds_follow_each_other)
{
    struct ct_workers_round round = round_of("echo again", 4);

    node.restart = 3;
    node.again = &round;
    run("echo again", 4);
    cr_assert_eq(node.finishes, 4u);
    size_t lines = 0;
    for (const char *at = content("/out"); (at = strchr(at, '\n')) != NULL; at++)
        lines++;
    cr_assert_eq(lines, 16u);
}

static void answer(struct node *n)
{
    struct ct_message reply = {.type = CT_MSG_STORE_REPLY, .store_reply = {.request = 5}};

    if (n->finishes == 0 && strstr(ct_buf_str(&n->messages), "PROGRESS") != NULL)
        ct_workers_send(n->workers, 0, &reply);
}

Test(workers, a_worker_talks_over_its_link_and_its_own_words_explain_its_end)
{
    static const struct ct_message said[] = {
        {.type = CT_MSG_PROGRESS, .progress = {.step = 7}},
        {.type = CT_MSG_FAULT, .fault = {.code = CT_EDATA, .text = "label 11 is out of range"}},
    };
    char script[512];

    (void)snprintf(script, sizeof script, "cat %s >&3; head -c 4 <&3 >%s/reply; exit 65",
                   frames_file(said, CT_COUNT(said)), node.tree.root);
    node.on_message = answer;
    run(script, 1);
    cr_assert_not_null(strstr(ct_buf_str(&node.messages), "0: PROGRESS"));
    cr_assert_str_eq(ct_buf_str(&node.failure),
                     "rank 0 status 65 signal 0 code -1003: label 11 is out of range");
    cr_assert_eq(strlen(content("/reply")), 4u, "the first bytes of an answer");
}

Test(workers, one_that_breaks_the_protocol_loses_the_link_not_its_life)
{
    run("echo this is no frame of ours >&3; echo alive", 1);
    cr_assert(node.well);
    cr_assert_not_null(strstr(content("/out"), "alive"));
    cr_assert_not_null(strstr(content("/err"), "control link of rank 0 is closed"));
}
