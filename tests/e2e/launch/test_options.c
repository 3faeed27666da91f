/* torchrun's options and variables, meant as torchrun means them, and those that ctrun adds.
 *
 * Most tests run a shell script that shows what a worker got. The last one runs a program under
 * PyTorch's own torchrun and under a link of that name to ctrun, and compares; it is skipped
 * without PyTorch (TEST_TORCH, or Debian's python3-torch). */
#include "e2e.h"
#include "speech.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(options, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* ---- every option --------------------------------------------------------------------------- */

/* All that `torchrun --help` of 2.15 lists and takes, with a value that leaves a run of one worker
 * as it is; "" for a flag. */
static const struct {
    const char *name, *value;
} options[] = {
    {"nnodes", "1:1"},
    {"nproc-per-node", "1"},
    {"rdzv-backend", "c10d"},
    {"rdzv-endpoint", "localhost:0"},
    {"rdzv-id", "me"},
    {"rdzv-conf", "join_timeout=9,close_timeout=3,read_timeout=60"},
    {"standalone", ""},
    {"max-restarts", "0"},
    {"monitor-interval", "0.1"},
    {"start-method", "spawn"},
    {"event-log-handler", "null"},
    {"role", "trainer"},
    {"no-python", ""},
    {"log-dir", "logs"},
    {"redirects", "0"},
    {"tee", "0"},
    {"log-line-prefix-template", "$${rank}: "},
    {"local-ranks-filter", "0"},
    {"duplicate-stdout-filters", "a,,b"},
    {"duplicate-stderr-filters", "x"},
    {"node-rank", "0"},
    {"master-addr", "127.0.0.1"},
    {"master-port", "29511"},
    {"local-addr", "127.0.0.1"},
    {"signals-to-handle", "SIGTERM,SIGINT"},
    {"shutdown-timeout", "30"},
    {"virtual-local-rank", ""},
};

Test(options, every_option_of_torchrun_is_taken_with_dashes_underscores_and_as_a_variable)
{
    for (size_t i = 0; i < CT_COUNT(options); i++) {
        char words[3][128];
        const char *flag = options[i].value[0] == '\0' ? NULL : options[i].value;
        struct proc run;

        (void)snprintf(words[0], sizeof words[0], "--%s", options[i].name);
        (void)snprintf(words[1], sizeof words[1], "--%s%s%s", options[i].name,
                       flag != NULL ? "=" : "", options[i].value);
        (void)snprintf(words[2], sizeof words[2], "PET_%s=%s", options[i].name,
                       flag != NULL ? flag : "1");
        for (char *at = words[1] + 2; *at != '\0' && *at != '='; at++)
            *at = *at == '-' ? '_' : *at;
        for (char *at = words[2]; *at != '='; at++)
            *at = *at == '-' ? '_' : (char)(*at >= 'a' ? *at - 'a' + 'A' : *at);
        const char *const dashed[] = {proc_program("ctrun"), words[0],
                                      flag != NULL ? flag : "/bin/true",
                                      flag != NULL ? "/bin/true" : NULL, NULL};
        const char *const scored[] = {proc_program("ctrun"), words[1], "/bin/true", NULL};
        const char *const bare[] = {proc_program("ctrun"), "/bin/true", NULL};
        const char *const env[] = {words[2], NULL};
        cr_assert_eq(proc_run(&run, dashed, NULL, 30), 0, "%s: %s", words[0],
                     ct_buf_str(&run.text));
        proc_free(&run);
        cr_assert_eq(proc_run(&run, scored, NULL, 30), 0, "%s: %s", words[1],
                     ct_buf_str(&run.text));
        proc_free(&run);
        cr_assert_eq(proc_run(&run, bare, env, 30), 0, "%s: %s", words[2], ct_buf_str(&run.text));
        proc_free(&run);
    }
}

Test(options, what_ctrun_has_not_is_refused_with_its_own_way)
{
    static const struct {
        const char *word, *sentence;
    } refused[] = {
        {"--logs-specs=mine", "--logs-specs is not offered by ctrun: use --log_dir"},
        {"--start-method=fork", "--start-method fork is not offered by ctrun: leave it out: every"},
        {"--event-log-handler=console",
         "--event-log-handler console is not offered by ctrun: leave it out: events are lines of "
         "the log; --log_format json"},
        {"--print-completion=bash", "use ctrun config --completion bash"},
        {"--rdzv-backend=etcd-v2", "--rdzv-backend etcd-v2 is not offered by ctrun: leave it out"},
        {"--rdzv-conf=etcd_prefix=/x", "--rdzv_id tells the jobs of one endpoint apart"},
        {"--nproc-per-node=xpu", "for devices of another kind give their number"},
        {"--signals-to-handle=SIGKILL", "cannot be taken or passed on"},
        {"--d", "--d begins more than one option: --devices, --duplicate_stdout_filters, "
                "--duplicate_stderr_filters"},
    };

    for (size_t i = 0; i < CT_COUNT(refused); i++) {
        struct proc run;

        cr_assert_eq(e2e_run(&run, refused[i].word, "/bin/true", NULL), 2, "%s", refused[i].word);
        e2e_said(&run, refused[i].sentence);
        proc_free(&run);
    }
}

Test(options, the_command_line_counts_before_ctruns_variables_and_these_before_torchruns)
{
    const char *show = e2e_script("show", "#!/bin/sh\necho \"role $ROLE_NAME\"\n");
    const char *const all[] = {"PET_ROLE=pet", "CTRUN_LAUNCH_ROLE=ours", NULL};
    const char *const argv[] = {proc_program("ctrun"), "--role", "line", show, NULL};
    const char *const bare[] = {proc_program("ctrun"), show, NULL};
    const char *const pet[] = {"PET_ROLE=pet", NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, argv, all, 30), 0);
    e2e_said(&run, "role line\n");
    proc_free(&run);
    cr_assert_eq(proc_run(&run, bare, all, 30), 0);
    e2e_said(&run, "role ours\n");
    proc_free(&run);
    cr_assert_eq(proc_run(&run, bare, pet, 30), 0);
    e2e_said(&run, "role pet\n");
    proc_free(&run);
}

/* ---- output --------------------------------------------------------------------------------- */

Test(options, lines_begin_with_the_template_and_only_the_chosen_local_ranks_are_shown)
{
    const char *talk = e2e_script("talk", "#!/bin/sh\necho out\necho err >&2\n");
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "3", "--role", "r", "--log_dir", "logs",
                         "--local-ranks-filter=0,2", "--log-line-prefix-template",
                         "${role_name}/$rank/${local_rank}/$$: ", talk, NULL),
                 0);
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 4, "%s", ct_buf_str(&run.text));
    e2e_wrote(&run, "r/0/0/$: out\n");
    e2e_wrote(&run, "r/0/0/$: err\n");
    e2e_wrote(&run, "r/2/2/$: out\n");
    e2e_wrote(&run, "r/2/2/$: err\n");
    cr_assert_str_eq(e2e_read(e2e_glob("logs/none_*/attempt_0_g1/1/stdout.log")), "out\n",
                     "files are not affected");
    proc_free(&run);
}

Test(options, lines_that_match_a_filter_are_gathered_in_a_file_of_the_attempt)
{
    const char *talk = e2e_script("talk", "#!/bin/sh\necho \"loss a,b $RANK\"\necho gain\n"
                                          "echo \"loss $RANK\" >&2\n");
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "2", "--log_dir", "logs", "--redirects=3",
                         "--duplicate-stdout-filters", "a,,b,never",
                         "--duplicate-stderr-filters=never", talk, NULL),
                 0);
    cr_assert_str_eq(ct_buf_str(&run.text), "", "redirects still hold");
    const char *lines = e2e_read(e2e_glob("logs/none_*/attempt_0_g1/filtered_stdout.log"));
    cr_assert(strcmp(lines, "[0:0] loss a,b 0\n[0:1] loss a,b 1\n") == 0 ||
                  strcmp(lines, "[0:1] loss a,b 1\n[0:0] loss a,b 0\n") == 0,
              "%s", lines);
    cr_assert_str_eq(e2e_read(e2e_glob("logs/none_*/attempt_0_g1/filtered_stderr.log")), "");
    proc_free(&run);
}

/* ---- what a worker gets --------------------------------------------------------------------- */

static const char *show_devices(void)
{
    return e2e_script("show", "#!/bin/sh\necho \"$RANK: local $LOCAL_RANK of $LOCAL_WORLD_SIZE "
                              "sees ${CUDA_VISIBLE_DEVICES-all} $*\"\n");
}

static void assert_devices(const char *visible, const char *const argv[], const char *first,
                           const char *second)
{
    char word[128];
    const char *const env[] = {visible != NULL ? word : NULL, NULL};
    struct proc run;

    (void)snprintf(word, sizeof word, "CUDA_VISIBLE_DEVICES=%s", visible != NULL ? visible : "");
    cr_assert_eq(proc_run(&run, argv, env, 30), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, first);
    e2e_said(&run, second);
    proc_free(&run);
}

Test(options, a_virtual_local_rank_is_0_and_sees_one_device_of_the_given_ones)
{
    const char *show = show_devices();
    const char *const argv[] = {proc_program("ctrun"), "--nproc_per_node=2", "--virtual-local-rank",
                                show, NULL};
    const char *const three[] = {proc_program("ctrun"), "--nproc_per_node=3",
                                 "--virtual-local-rank", show, NULL};
    const char *const env[] = {"CUDA_VISIBLE_DEVICES=6,7", NULL};
    struct proc run;

    assert_devices(NULL, argv, "] 0: local 0 of 2 sees 0", "] 1: local 0 of 2 sees 1");
    assert_devices("6, 7", argv, "] 0: local 0 of 2 sees 6", "] 1: local 0 of 2 sees 7");
    cr_assert_eq(proc_run(&run, three, env, 30), 2);
    e2e_said(&run, "ctrun: error: --virtual-local-rank gives GPU 2, which the list that ctrun was "
                   "given does not have (CUDA_VISIBLE_DEVICES=\"6,7\")\n");
    proc_free(&run);
}

Test(options, devices_are_given_out_by_worker_and_count_the_workers)
{
    const char *show = show_devices();
    const char *const argv[] = {proc_program("ctrun"), "--devices", "0+1,GPU-6", show, NULL};
    struct proc run;

    assert_devices("5,4,3", argv, "] 0: local 0 of 2 sees 5,4", "] 1: local 1 of 2 sees GPU-6");
    cr_assert_eq(e2e_run(&run, "--devices", "0,1", "--nproc-per-node", "3", show, NULL), 2);
    e2e_said(&run, "--devices gives the GPUs of 2 workers, but 3 start here");
    proc_free(&run);
}

Test(options, a_yaml_file_names_devices_and_the_number_of_workers_of_each_host)
{
    char host[128] = "", text[640];
    struct proc run;

    cr_assert_eq(gethostname(host, sizeof host - 1), 0);
    (void)snprintf(text, sizeof text,
                   "model: {classes: 2}\ndata: {train: {path: d}}\n"
                   "launch: {worker: %s, nproc_per_node: \"%s=2,*=1\", devices: [0+1, 2], "
                   "virtual_local_rank: yes, forward_signals: [SIGUSR2]}\n",
                   show_devices(), host);
    cr_assert_eq(e2e_run(&run, e2e_write("a.yaml", text), NULL), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "] 0: local 0 of 2 sees 0,1");
    e2e_said(&run, "] 1: local 0 of 2 sees 2");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--nproc_per_node", "elsewhere=2", "/bin/true", NULL), 2);
    e2e_said(&run, "--nproc_per_node: it names no number for this host");
    proc_free(&run);
}

/* torchrun: --standalone settles it, whatever MIN:MAX says; several nodes at least contradict it.
 */
Test(options, a_standalone_job_of_min_to_max_nodes_is_one_node)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--standalone", "--nnodes=1:2", "--nproc_per_node=2", "/bin/sh",
                         "-c", "echo nodes $GROUP_WORLD_SIZE world $WORLD_SIZE", NULL),
                 0);
    e2e_said(&run, "[0:1] nodes 1 world 2");
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--standalone", "--nnodes=2:3", "/bin/true", NULL), 2);
    e2e_said(&run, "at least 2");
    proc_free(&run);
}

Test(options, the_macro_of_the_local_rank_is_replaced_in_arguments)
{
    struct proc run;

    cr_assert_eq(
        e2e_run(&run, "--nproc_per_node=2", show_devices(), "--dev=${local_rank}", "$$", NULL), 0);
    e2e_said(&run, "] 0: local 0 of 2 sees all --dev=0 $$\n");
    e2e_said(&run, "] 1: local 1 of 2 sees all --dev=1 $$\n");
    proc_free(&run);
}

Test(options, numa_binding_leaves_no_core_to_two_workers)
{
    const char *show =
        e2e_script("show", "#!/bin/sh\nexec grep Cpus_allowed_list: /proc/self/status\n");
    struct proc run;

    if (e2e_exists("/proc/driver/nvidia/gpus") || sysconf(_SC_NPROCESSORS_ONLN) < 2)
        cr_skip_test("skipped: needs two cores and no GPU");
    cr_assert_eq(e2e_run(&run, "--nproc_per_node=2", "--numa-binding", "exclusive", show, NULL), 0,
                 "%s", ct_buf_str(&run.text));
    const char *first = strstr(ct_buf_str(&run.text), "[0:0] Cpus_allowed_list:");
    const char *second = strstr(ct_buf_str(&run.text), "[0:1] Cpus_allowed_list:");
    cr_assert(first != NULL && second != NULL, "%s", ct_buf_str(&run.text));
    first += strlen("[0:0] ");
    second += strlen("[0:1] ");
    cr_assert_neq(strncmp(first, second, strcspn(first, "\n") + 1), 0, "%s", first);
    proc_free(&run);
}

Test(options, uneven_nodes_and_roles_are_counted_as_torchelastic_counts)
{
    static const char *const workers[] = {"2", "3", "1"};
    static const char *const roles[] = {"trainer", "reader", "trainer"};
    static const char *const lines[] = {
        "] 0/6 local 0/2 group 0/3 trainer 0/3\n", "] 1/6 local 1/2 group 0/3 trainer 1/3\n",
        "] 2/6 local 0/3 group 1/3 reader 0/3\n",  "] 3/6 local 1/3 group 1/3 reader 1/3\n",
        "] 4/6 local 2/3 group 1/3 reader 2/3\n",  "] 5/6 local 0/1 group 2/3 trainer 2/3\n"};
    const char *show = e2e_script(
        "show", "#!/bin/sh\necho \"$RANK/$WORLD_SIZE local $LOCAL_RANK/$LOCAL_WORLD_SIZE group "
                "$GROUP_RANK/$GROUP_WORLD_SIZE $ROLE_NAME $ROLE_RANK/$ROLE_WORLD_SIZE\"\n");
    struct proc daemon, nodes[3];
    const char *endpoint = e2e_daemon(&daemon);
    char rank[3][2] = {"0", "1", "2"};

    for (int i = 0; i < 3; i++)
        e2e_start(&nodes[i], "--nnodes=3", "--rdzv_endpoint", endpoint, "--node_rank", rank[i],
                  "--nproc_per_node", workers[i], "--role", roles[i], show, NULL);
    for (int i = 0, line = 0; i < 3; i++) {
        cr_assert_eq(proc_finish(&nodes[i], 60), 0, "%s", ct_buf_str(&nodes[i].text));
        for (int worker = 0; worker < atoi(workers[i]); worker++)
            e2e_said(&nodes[i], lines[line++]);
        proc_free(&nodes[i]);
    }
    proc_free(&daemon);
}

Test(options, jobs_that_nobody_named_have_names_of_their_own)
{
    const char *show =
        e2e_script("show", "#!/bin/sh\n[ $RANK = 0 ] && echo $TORCHELASTIC_RUN_ID\n");
    char first[64];
    struct proc run;

    cr_assert_eq(e2e_run(&run, show, NULL), 0);
    (void)snprintf(first, sizeof first, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, show, NULL), 0);
    cr_assert_str_neq(ct_buf_str(&run.text), first);
    proc_free(&run);
    cr_assert_eq(e2e_run(&run, "--rdzv_id=mine", show, NULL), 0);
    cr_assert_str_eq(ct_buf_str(&run.text), "[0:0] mine\n");
    proc_free(&run);
}

/* ---- called torchrun ------------------------------------------------------------------------ */

/* A link of that name to ctrun, in the test's folder. */
static const char *as_torchrun(void)
{
    const char *path = e2e_in_folder("torchrun");
    char *program = realpath(proc_program("ctrun"), NULL);

    cr_assert_not_null(program);
    if (!e2e_exists(path))
        cr_assert_eq(symlink(program, path), 0);
    free(program);
    return path;
}

Test(options, called_torchrun_it_has_no_subcommands_and_runs_python)
{
    const char *const script[] = {as_torchrun(), e2e_write("status", "print('a script')\n"), NULL};
    const char *const help[] = {as_torchrun(), "--help", NULL};
    const char *const missing[] = {as_torchrun(), "version", NULL};
    struct proc run;

    cr_assert_eq(proc_run(&run, script, NULL, 30), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "a script\n");
    cr_assert(speech_is_json() || ct_buf_str(&run.text)[0] == 'a', "no prefix without --tee");
    proc_free(&run);
    cr_assert_eq(proc_run(&run, help, NULL, 30), 0);
    e2e_said(&run, "torchrun [OPTIONS] script.py [ARGS]");
    e2e_not_said(&run, "ctrun status");
    proc_free(&run);
    cr_assert_eq(proc_run(&run, missing, NULL, 30), 66);
    e2e_said(&run, "version cannot be read: No such file");
    proc_free(&run);
}

/* The interpreter that has PyTorch; the test is skipped without one. */
static const char *python(void)
{
    const char *wanted = getenv("TEST_TORCH");
    const char *path = wanted != NULL ? wanted : "/usr/bin/python3";
    const char *const argv[] = {
        path, "-c", "import importlib.util as u; exit(u.find_spec('torch') is None)", NULL};
    struct proc look;

    if (access(path, X_OK) != 0 || proc_run(&look, argv, NULL, 30) != 0)
        cr_skip_test("skipped: %s has no PyTorch (scripts/deps --test)", path);
    proc_free(&look);
    return path;
}

/* Run one command line under PyTorch's torchrun, which is told to look at its workers ten times a
 * second, and under ctrun. WHO says which of them it is. */
static void run_both(const char *const *words, struct proc *theirs, struct proc *ours)
{
    enum { PATIENCE_S = 150 }; /* importing PyTorch on a busy machine */
    char interpreter[300];
    const char *const their_env[] = {"WHO=theirs", "OMP_NUM_THREADS=1", NULL};
    const char *const our_env[] = {"WHO=ours", "OMP_NUM_THREADS=1", interpreter, NULL};
    const char *their_argv[24] = {python(), e2e_in_root("scripts/bench/torchrun.py"),
                                  "--monitor_interval=0.1"};
    const char *our_argv[24] = {as_torchrun()};

    (void)snprintf(interpreter, sizeof interpreter, "PYTHON_EXEC=%s", python());
    for (size_t i = 0; words[i] != NULL; i++) {
        their_argv[i + 3] = words[i];
        our_argv[i + 1] = words[i];
    }
    cr_assert_eq(proc_run(ours, our_argv, our_env, 60), 0, "%s", ct_buf_str(&ours->text));
    cr_assert_eq(proc_run(theirs, their_argv, their_env, PATIENCE_S), 0, "%s",
                 ct_buf_str(&theirs->text));
}

/* Two files, each the only match of a pattern, are equal and not empty. */
static void assert_same_files(const char *theirs, const char *ours)
{
    char *expected = strdup(e2e_read(e2e_glob(theirs)));

    cr_assert_str_neq(expected, "", "%s", theirs);
    cr_assert_str_eq(e2e_read(e2e_glob(ours)), expected, "%s", ours);
    free(expected);
}

static const char show_all[] =
    "import os, sys\n"
    "names = ['RANK', 'LOCAL_RANK', 'WORLD_SIZE', 'LOCAL_WORLD_SIZE', 'GROUP_RANK',\n"
    "         'GROUP_WORLD_SIZE', 'ROLE_NAME', 'ROLE_RANK', 'ROLE_WORLD_SIZE',\n"
    "         'TORCHELASTIC_RESTART_COUNT', 'TORCHELASTIC_MAX_RESTARTS',\n"
    "         'TORCHELASTIC_RUN_ID', 'OMP_NUM_THREADS', 'CUDA_VISIBLE_DEVICES']\n"
    "with open(os.environ['WHO'] + os.environ['RANK'], 'w') as f:\n"
    "    for name in names:\n"
    "        print(name, os.environ.get(name), file=f)\n"
    "    print(sys.argv[1:], os.environ['MASTER_PORT'].isdigit(),\n"
    "          os.environ['TORCHELASTIC_ERROR_FILE'].split('/')[-2:], file=f)\n"
    "print('out', os.environ['RANK'], flush=True)\n"
    "print('err', os.environ['RANK'], file=sys.stderr, flush=True)\n";

Test(options, called_torchrun_it_gives_workers_console_and_files_what_torchrun_gives,
     .timeout = 300)
{
    const char *const words[] = {"--nproc_per_node=2",
                                 "--rdzv_backend=c10d",
                                 "--rdzv_endpoint=localhost:0",
                                 "--rdzv_id=night",
                                 "--max_restarts=2",
                                 "--role=r",
                                 "--log_dir=logs",
                                 "-r=0:2,1:2",
                                 "-t=0:1",
                                 e2e_write("show.py", show_all),
                                 "${local_rank}",
                                 "$$x",
                                 "--nnodes",
                                 NULL};
    struct proc theirs, ours;

    run_both(words, &theirs, &ours);
    assert_same_files("theirs0", "ours0");
    assert_same_files("theirs1", "ours1");
    assert_same_files("logs/*/attempt_0/0/stdout.log", "logs/*/attempt_0_g1/0/stdout.log");
    assert_same_files("logs/*/attempt_0/0/stderr.log", "logs/*/attempt_0_g1/0/stderr.log");
    assert_same_files("logs/*/attempt_0/1/stderr.log", "logs/*/attempt_0_g1/1/stderr.log");
    e2e_said(&theirs, "[r0]:"); /* its lines run into each other */
    cr_assert(speech_is_json() || strcmp(ct_buf_str(&ours.text), "out 1\n[r0]:out 0\n") == 0 ||
                  strcmp(ct_buf_str(&ours.text), "[r0]:out 0\nout 1\n") == 0,
              "%s", ct_buf_str(&ours.text));
    proc_free(&theirs);
    proc_free(&ours);
}
