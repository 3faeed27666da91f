/* --log_format json: whatever happens, each line that ctrun or ctrund prints is one JSON object
 * with time and kind, and what belongs to a rank says which. */
#include "e2e.h"
#include "speech.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

TestSuite(records, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

#define JSON "--log_format", "json"

/* ---- reading -------------------------------------------------------------------------------- */

static const char *text_of(const json_t *record, const char *key)
{
    const char *text = json_string_value(json_object_get(record, key));

    return text != NULL ? text : "";
}

/* Check all that a process has said; its records, to be released. */
static json_t *records_of(const struct proc *run)
{
    const char *at = ct_buf_str(&run->text), *end = at + run->text.size;
    json_t *all = json_array();
    json_error_t error;

    while (at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        cr_assert_not_null(newline, "the last line is not whole: %s", at);
        json_t *record = json_loadb(at, (size_t)(newline - at), JSON_REJECT_DUPLICATES, &error);
        cr_assert(json_is_object(record), "%s: %.*s", error.text, (int)(newline - at), at);
        speech_check(record, at);
        (void)json_array_append_new(all, record);
        at = newline + 1;
    }
    return all;
}

/* How many records have this text under this key. */
static size_t count(const json_t *all, const char *key, const char *text)
{
    size_t found = 0;

    for (size_t i = 0; i < json_array_size(all); i++)
        found += strcmp(text_of(json_array_get(all, i), key), text) == 0;
    return found;
}

/* The last of a kind, or fail. */
static const json_t *last(const struct proc *run, const json_t *all, const char *kind)
{
    for (size_t i = json_array_size(all); i-- > 0;)
        if (strcmp(text_of(json_array_get(all, i), "kind"), kind) == 0)
            return json_array_get(all, i);
    cr_assert_fail("no record \"%s\" in:\n%s", kind, ct_buf_str(&run->text));
    return NULL;
}

static double number(const json_t *record, const char *key)
{
    return json_number_value(json_object_get(record, key));
}

/* ---- training ------------------------------------------------------------------------------- */

Test(records, a_training_tells_progress_evaluations_and_summary_with_numbers)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, JSON, "--nproc_per_node=2", "--checkpoint.dir=ckpt", "--log.dir=run",
                         "--log.level=debug", "--train.epochs=2",
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&run.text));
    json_t *all = records_of(&run);
    const json_t *summary = last(&run, all, "summary"), *eval = last(&run, all, "eval");
    cr_assert_gt(number(last(&run, all, "progress"), "samples_per_s"), 0);
    cr_assert_float_eq(number(eval, "step"), number(summary, "steps"), 0);
    cr_assert_gt(number(eval, "accuracy"), 0.5);
    cr_assert_leq(number(eval, "best"), number(eval, "loss"));
    cr_assert_not_null(strstr(text_of(summary, "text"), "accuracy"));
    cr_assert_gt(count(all, "program", "ctworker"), 0u, "the trainer's log is one of records, too");
    cr_assert_eq(count(all, "kind", "output"), 0u);
    json_decref(all);
    proc_free(&run);
}

Test(records, data_errors_are_records_of_the_worker_and_of_the_job)
{
    struct proc run;
    const char *config = e2e_write("bad.yaml", "model: {type: mlp, hidden: [4], classes: 2}\n"
                                               "data: {train: {format: csv, path: none.csv}}\n"
                                               "train: {steps: 3}\n");

    cr_assert_eq(e2e_run(&run, JSON, "--nproc_per_node=2", config, NULL), 66);
    json_t *all = records_of(&run);
    const json_t *failure = last(&run, all, "failure");
    cr_assert_float_eq(number(failure, "exit_status"), 66, 0);
    cr_assert_not_null(strstr(text_of(failure, "text"), "none.csv"));
    json_decref(all);
    proc_free(&run);
}

Test(records, a_trainer_without_a_launcher_speaks_in_records_of_the_same_fields)
{
    const char *config = e2e_in_root("configs/digits_mlp.yaml");
    const char *const argv[] = {proc_program("ctworker"),
                                JSON,
                                "--checkpoint.dir=ckpt",
                                "--log.dir=run",
                                "--train.epochs=1",
                                config,
                                NULL};
    const char *const wrong[] = {proc_program("ctworker"), JSON, "--optim.lr=fast", config, NULL};
    const char *const missing[] = {proc_program("ctworker"), JSON, "--data.train.path=none.csv",
                                   config, NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, NULL, 60), 0, "%s", ct_buf_str(&run.text));
    json_t *all = records_of(&run);
    const json_t *summary = last(&run, all, "summary"), *eval = last(&run, all, "eval");
    cr_assert_float_eq(number(last(&run, all, "progress"), "step"), number(summary, "steps"), 0);
    cr_assert_gt(number(eval, "accuracy"), 0.5);
    cr_assert_not_null(strstr(text_of(summary, "text"), "accuracy"));
    json_decref(all);
    proc_free(&run);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_run(&run, i == 0 ? wrong : missing, NULL, 30), i == 0 ? 2 : 66);
        all = records_of(&run);
        cr_assert_eq(count(all, "level", "error"), 1u, "%s", ct_buf_str(&run.text));
        json_decref(all);
        proc_free(&run);
    }
}

Test(records, a_training_that_is_resumed_says_so_in_a_record)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, JSON, "--train.steps=4", "--checkpoint.every=2",
                         e2e_in_root("configs/digits_mlp.yaml"), NULL),
                 0, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "resume", JSON, "--train.steps=6", NULL), 0, "%s",
                 ct_buf_str(&run.text));
    json_t *all = records_of(&run);
    cr_assert(strncmp(text_of(json_array_get(all, 0), "message"), "resuming ", 9) == 0, "%s",
              ct_buf_str(&run.text));
    json_decref(all);
    proc_free(&run);
}

/* ---- programs ------------------------------------------------------------------------------- */

Test(records, output_is_a_record_a_line_whatever_its_bytes)
{
    struct proc run;
    const char *odd =
        e2e_script("odd", "#!/bin/sh\nprintf 'a \"b\" \\\\ \\t\\303\\251 \\377\\000 end\\n'\n"
                          "printf '{\"time\":\"mine\"}\\n{\"time\": broken\\n' >&2\n"
                          "printf '50 %%\\r100 %%\\nno newline'\n");

    cr_assert_eq(e2e_run(&run, JSON, odd, NULL), 0, "%s", ct_buf_str(&run.text));
    json_t *all = records_of(&run);
    cr_assert_eq(count(all, "text", "a \"b\" \\ \t\303\251 \357\277\275\357\277\275 end"), 1u, "%s",
                 ct_buf_str(&run.text));
    cr_assert_eq(count(all, "text", "{\"time\":\"mine\"}"), 1u, "a program's own JSON is text");
    cr_assert_eq(count(all, "text", "100 %"), 1u);
    cr_assert_eq(count(all, "text", "no newline"), 1u);
    cr_assert_eq(count(all, "stream", "stderr"), 2u);
    json_decref(all);
    proc_free(&run);
}

Test(records, a_line_of_megabytes_is_cut_and_each_piece_is_a_record)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, JSON, "--no_python", "--", "sh", "-c",
                         "head -c 3000000 /dev/zero | tr '\\0' '\\351'", NULL),
                 0);
    json_t *all = records_of(&run);
    cr_assert_eq(json_array_size(all), (3000000u + 32767) / 32768);
    json_decref(all);
    proc_free(&run);
}

Test(records, crashes_signals_and_restarts_are_records_with_their_cause)
{
    static const struct {
        const char *name, *script, *restarts;
        int status;
        const char *key, *value;
    } rows[] = {
        {"exits", "echo no; exit 7", "0", 7, "message", NULL},
        {"dies", "kill -SEGV $$", "0", 128 + SIGSEGV, "signal", "SIGSEGV"},
        {"twice", "exit 3", "1", 3, "event", "job_failed"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        char script[128];
        struct proc run;
        (void)snprintf(script, sizeof script, "#!/bin/sh\n%s\n", rows[i].script);
        cr_assert_eq(e2e_run(&run, JSON, "--nproc_per_node=2", "--max_restarts", rows[i].restarts,
                             e2e_script(rows[i].name, script), NULL),
                     rows[i].status, "%s", ct_buf_str(&run.text));
        json_t *all = records_of(&run);
        const json_t *failure = last(&run, all, "failure");
        if (rows[i].value != NULL)
            cr_assert_str_eq(text_of(failure, rows[i].key), rows[i].value);
        cr_assert_float_eq(number(failure, "exit_status"), rows[i].status, 0);
        cr_assert_float_eq(number(failure, "restarts"), rows[i].restarts[0] - '0', 0);
        cr_assert_eq(count(all, "event", "restart"), (size_t)(rows[i].restarts[0] - '0'));
        json_decref(all);
        proc_free(&run);
    }
}

Test(records, a_hang_and_what_is_found_out_about_it_are_records)
{
    struct proc run;

    e2e_start(&run, JSON, "--nproc_per_node=2", "--hang_timeout=1s", "--no_python",
              proc_program("../tests/programs/hangs"), "stop", "1", "20", NULL);
    cr_assert_neq(proc_finish(&run, 60), 0);
    json_t *all = records_of(&run);
    cr_assert_float_eq(number(last(&run, all, "failure"), "rank"), 1, 0);
    json_decref(all);
    proc_free(&run);
}

Test(records, a_worker_that_did_not_stop_in_order_is_a_failure_with_the_status)
{
    struct proc run;
    const char *nap = e2e_script("nap", "#!/bin/sh\ntrap 'exit 3' TERM\necho up\n"
                                        "while :; do sleep 0.05; done\n");

    e2e_start(&run, JSON, nap, NULL);
    (void)proc_wait_text(&run, "\"text\":\"up\"", 20);
    cr_assert_eq(kill(run.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&run, 20), 3, "%s", ct_buf_str(&run.text));
    json_t *all = records_of(&run);
    const json_t *failure = last(&run, all, "failure");
    cr_assert_str_eq(text_of(failure, "event"), "stop_failed");
    cr_assert_float_eq(number(failure, "exit_status"), 3, 0);
    json_decref(all);
    proc_free(&run);
}

Test(records, a_stop_is_told_in_records)
{
    struct proc run;
    const char *nap = e2e_script("nap", "#!/bin/sh\necho up\nexec sleep 600\n");

    e2e_start(&run, JSON, nap, NULL);
    (void)proc_wait_text(&run, "\"text\":\"up\"", 20);
    cr_assert_eq(kill(run.pid, SIGINT), 0);
    cr_assert_eq(proc_finish(&run, 20), 128 + SIGINT);
    json_t *all = records_of(&run);
    cr_assert_eq(count(all, "event", "stopped"), 1u);
    json_decref(all);
    proc_free(&run);
}

/* ---- before the start ----------------------------------------------------------------------- */

Test(records, wrong_arguments_and_files_are_records)
{
    static const char *const lines[][3] = {
        {"--nproc_per_node=two", "true", NULL},   {"--nproc_per_nod=1", "--", "/nowhere/program"},
        {"--optim.lr=fast", "none.yaml", NULL},   {"none.yaml", NULL, NULL},
        {"--nnodes=3:2", "true", NULL},           {"resume", "--log_format=json", "nothing"},
        {"plan", "--log_format=json", "x.yaml"},  {"config", "--log_format=json", "x.yaml"},
        {"slurm", "--log_format=json", "x.yaml"},
    };

    for (size_t i = 0; i < CT_COUNT(lines); i++) {
        struct proc run;
        int status = lines[i][0][0] != '-' && lines[i][1] != NULL
                         ? e2e_run(&run, lines[i][0], lines[i][1], lines[i][2], NULL)
                         : e2e_run(&run, JSON, lines[i][0], lines[i][1], lines[i][2], NULL);
        cr_assert(status == 2 || status == 66, "%s", ct_buf_str(&run.text));
        json_t *all = records_of(&run);
        cr_assert_gt(count(all, "level", "error"), 0u);
        json_decref(all);
        proc_free(&run);
    }
}

/* ---- two nodes and a daemon ----------------------------------------------------------------- */

Test(records, nodes_and_the_daemon_speak_in_records_and_nodes_say_that_they_joined)
{
    const char *port_file = e2e_in_folder("port");
    const char *const argv[] = {
        proc_program("ctrund"), "--listen", "127.0.0.1:0", "--port_file", port_file,
        "--log_level",          "debug",    JSON,          NULL};
    const char *show = e2e_script("show", "#!/bin/sh\necho rank $RANK\n");
    struct proc daemon, nodes[2];
    char endpoint[64];

    proc_start(&daemon, argv, NULL);
    (void)snprintf(endpoint, sizeof endpoint, "127.0.0.1:%.5s", e2e_wait_file(port_file, 20));
    endpoint[strcspn(endpoint, "\n")] = '\0';
    for (int i = 0; i < 2; i++)
        e2e_start(&nodes[i], JSON, "--nnodes=2", "--rdzv_endpoint", endpoint, "--node_rank",
                  i == 0 ? "0" : "1", show, NULL);
    for (int i = 0; i < 2; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 30), 0, "%s", ct_buf_str(&nodes[i].text));
        json_t *all = records_of(&nodes[i]);
        cr_assert_float_eq(number(last(&nodes[i], all, "output"), "node"), i, 0);
        cr_assert_eq(count(all, "event", "joined"), 1u);
        cr_assert_eq(count(all, "event", "complete"), (size_t)i);
        json_decref(all);
        proc_free(&nodes[i]);
    }
    cr_assert_eq(kill(daemon.pid, SIGTERM), 0);
    cr_assert_eq(proc_finish(&daemon, 20), 0);
    json_t *all = records_of(&daemon);
    cr_assert_gt(count(all, "program", "ctrund"), 0u);
    json_decref(all);
    proc_free(&daemon);
}

Test(records, a_daemon_that_cannot_start_says_so_in_a_record)
{
    const char *const argv[][5] = {
        {proc_program("ctrund"), JSON, "--listen", "nowhere:1:2"},
        {proc_program("ctrund"), "--nosuch", JSON},
    };

    for (size_t i = 0; i < CT_COUNT(argv); i++) {
        const char *const words[] = {argv[i][0], argv[i][1], argv[i][2],
                                     argv[i][3], argv[i][4], NULL};
        struct proc daemon;
        cr_assert_neq(proc_run(&daemon, words, NULL, 20), 0);
        json_t *all = records_of(&daemon);
        cr_assert_eq(count(all, "level", "error"), 1u);
        json_decref(all);
        proc_free(&daemon);
    }
}
