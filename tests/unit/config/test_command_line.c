/* Command line and environment: torchrun's spellings, what belongs to the program, what is refused.
 */
#include "config_test.h"

#include "base/assert.h"
#include "config/value.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(command_line, .timeout = 30);

enum { ARGUMENTS = 12 };

static const struct {
    const char *argv[ARGUMENTS];
    const char *complaints;
} refused[] = {
    {{NULL},
     "nothing to run: give a YAML file or a program, for instance "
     "configs/digits_mlp.yaml\n"},
    {{"--nproc_per_node", "0", "x"},
     "--nproc_per_node must be a number from 1 to 4096, cpu, gpu or auto, not \"0\"\n"},
    {{"--nproc-per-node=gpus", "x"},
     "--nproc-per-node must be a number from 1 to 4096, cpu, gpu or auto, not \"gpus\"; for "
     "devices of another kind give their number\n"},
    {{"--nnodes", "3:2", "x"}, "--nnodes 3:2: MIN exceeds MAX; swap them\n"},
    {{"--nnodes", "0", "x"}, "--nnodes must be from 1 to 100000, not 0\n"},
    {{"--nnodes", "many", "x"}, "--nnodes wants a number or MIN:MAX, not \"many\"\n"},
    {{"--nnodes", "2", "x"},
     "--nnodes is above 1, so the nodes need a place to meet: add --rdzv_endpoint HOST:PORT, or "
     "--master_addr HOST\n"},
    {{"--node_rank", "1", "x"}, "--node_rank 1 is not below the number of nodes (nnodes 1)\n"},
    {{"--max-restarts=-1", "x"}, "--max-restarts must be from 0 to 1000000, not -1\n"},
    {{"x", "--nnodes"}, ""},
    {{"--nnodes", NULL}, "--nnodes wants a value\n"},
    {{"--nnodes", "--standalone", "x"},
     "--nnodes wants a value, but --standalone follows; write --nnodes=VALUE if that is the "
     "value\n"},
    {{"--nproc_per_nodes=2", "x"},
     "--nproc_per_nodes is no option; did you mean --nproc_per_node?\n"},
    {{"--monitor-intervall=2", "x"},
     "--monitor-intervall is no option; did you mean --monitor_interval?\n"},
    {{"--lr=2", "x"}, "--lr is no option; did you mean --optim.lr?\n"},
    {{"--optmi.lr=2", "x"}, "--optmi.lr is no option; did you mean --optim.lr?\n"},
    {{"--=2", "x"},
     "-- is no option; see ctrun help run; put the program's own options after the program\n"},
    {{"--xyzzyxyzzy", "x"},
     "--xyzzyxyzzy is no option; see ctrun help run; put the program's own options after the "
     "program\n"},
    {{"-z", "x"}, "-z is no option; see ctrun --help\n"},
    {{"-nproc_per_node", "2", "x"},
     "-nproc_per_node is no option; write two dashes: "
     "--nproc_per_node\n"},
    {{"-rdzv_id=a", "x"}, "-rdzv_id=a is no option; write two dashes: --rdzv_id=a\n"},
    {{"--version=3", "x"}, "--version takes no value\n"},
    {{"--standalone", "--nnodes=2", "x"},
     "--standalone means one node, but nnodes asks for at least 2; leave one of them out\n"},
    {{"--standalone", "--nnodes=1:2", "x"},
     "note: --nnodes has no effect: --standalone meets nobody\n"},
    {{"--standalone", "--nnodes=1", "x"}, ""},
    {{"--rdzv_backend=static", "--nnodes=1:2", "--master_addr=h", "x"},
     "--rdzv_backend static knows one number of nodes, not MIN:MAX; use c10d or leave it out\n"},
    {{"--rdzv-backend=etcd", "x"},
     "--rdzv-backend etcd is not offered by ctrun: leave it out: the nodes meet at "
     "--rdzv_endpoint, "
     "served by one of them or by a ctrund\n"},
    {{"--rdzv-backend=zookeeper", "x"},
     "--rdzv-backend has no choice \"zookeeper\" (choices: ctrun, static, c10d)\n"},
    {{"--rdzv_conf=protocol=https", "x"},
     "--rdzv_conf (protocol) is not offered by ctrun: leave it out: ctrun's rendezvous is no etcd; "
     "--key_file protects it\n"},
    {{"--standalone", "--rdzv_endpoint=h:1", "x"},
     "note: --rdzv_endpoint has no effect: --standalone meets nobody\n"},
    {{"--nproc", "xpu", "x"},
     "--nproc must be a number from 1 to 4096, cpu, gpu or auto, not \"xpu\"; for devices of "
     "another "
     "kind give their number\nnote: --nproc is taken for --nproc_per_node\n"},
    {{"--mod", "--shutdown=3", "--rdzv-e=h", "x"},
     "note: --mod is taken for --module\nnote: --shutdown is taken for --shutdown_timeout\n"
     "note: --rdzv-e is taken for --rdzv_endpoint\n"},
    {{"--dup", "x"},
     "--dup begins more than one option: --duplicate_stdout_filters, --duplicate_stderr_filters\n"},
    {{"--m", "3", "x"},
     "--m begins more than one option: --max_restarts, --master_addr, --master_port, --module, "
     "--monitor_interval\n"},
    {{"--", "x"}, ""},
    {{"-m", "--no-python", "x"}, "-m and no_python contradict each other; give one of them\n"},
    {{"--tee=4", "x"}, "--tee wants 0, 1, 2 or 3, or RANK:N,RANK:N with such numbers, not \"4\"\n"},
    {{"--join_timeout=1s", "--last_call=1s", "x"},
     "--last_call must be shorter than join_timeout\n"},
    {{"--run-path", "--virtual-local-rank", "x"}, ""},
    {{"--numa-binding", "gpu", "x"},
     "--numa-binding has no choice \"gpu\" (choices: auto, none, node, socket, exclusive, "
     "core-complex)\n"},
    {{"--signals-to-handle", "SIGTERM,SIGFOO", "x"},
     "--signals-to-handle names \"SIGFOO\", which is no signal; they are written as SIGTERM\n"},
    {{"--forward-signals=SIGUSR1,SIGKILL", "x"},
     "--forward-signals names SIGKILL, which cannot be taken or passed on; leave it out\n"},
    {{"--requeue_signals=SIGSTOP", "x"},
     "--requeue_signals names SIGSTOP, which cannot be taken or passed on; leave it out\n"},
    {{"--forward-signals=USR1", "--signals-to-handle=TERM, sigusr1", "x"},
     "--forward-signals and signals_to_handle both name USR1; a signal either ends the job or is "
     "passed on to the workers\n"},
    {{"--monitor_interval=1", "--start-method", "spawn", "x"},
     "note: --monitor_interval has no effect: ctrun does not poll, it sees the end of a worker at "
     "once\n"},
    {{"--rdzv-conf=store_type=file,fo=3,bare", "x"},
     "--rdzv-conf (store_type) is not offered by ctrun: leave it out: the store is part of the "
     "rendezvous\n--rdzv-conf has no setting \"fo\"; it has join_timeout, timeout, "
     "last_call_timeout, rank\n"
     "--rdzv-conf wants name=value,name=value, not \"bare\"\n"},
    {{"--rdzv-conf", "join_timeot=3", "x"},
     "--rdzv-conf has no setting \"join_timeot\"; did you mean join_timeout?\n"},
    {{"--rdzv-conf", "join_timeout=soon", "x"},
     "--rdzv-conf (join_timeout) wants a duration such as 250ms, 10s or 5m, not \"soon\"\n"},
};

Test(command_line, each_wrong_line_gets_its_sentence)
{
    for (size_t i = 0; i < CT_COUNT(refused); i++) {
        struct loaded *l = load(&(struct given){.argv = refused[i].argv, .command_needed = true});
        bool missing = strstr(complaints(l), "nothing to run") != NULL && i > 0;
        cr_assert(missing ? strstr(complaints(l), refused[i].complaints) == complaints(l)
                          : strcmp(complaints(l), refused[i].complaints) == 0,
                  "%s:\n%s", refused[i].argv[0], complaints(l));
        cr_assert(l->code == 0 || ct_exit_status(l->code) == 2);
        unload(l);
    }
}

Test(command_line, what_follows_the_program_is_its_own)
{
    static const char *const argv[] = {
        "--nproc-per-node", "2", "train.py", "--nnodes", "7", "-h", "--", NULL};
    struct loaded *l = load_argv(argv);

    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.command.program, "train.py");
    cr_assert_null(l->cfg.command.file);
    cr_assert_eq(l->cfg.command.arg_count, 4);
    cr_assert_eq(l->cfg.command.args, (char *const *)argv + 3);
    cr_assert_eq(l->cfg.launch.nnodes.max, 1);
    cr_assert_not(l->cfg.command.help);
    unload(l);
}

static const char yaml[] = "model: {classes: 3}\ndata: {train: {path: d}}\n";

/* Loads `argv`, in which a.yaml stands for the text above. */
static struct loaded *load_with_file(const char *const *argv)
{
    return load(&(struct given){.yaml = yaml, .argv = argv, .command_needed = true});
}

Test(command_line, options_may_follow_a_yaml_file)
{
    static const char *const argv[] = {"--nnodes=1", "a.yaml", "--optim.lr", "3", NULL};
    struct loaded *l = load_with_file(argv);

    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.command.file, "a.yaml");
    cr_assert_eq(l->cfg.optim.lr, 3);
    cr_assert_eq(l->cfg.command.arg_count, 0);
    unload(l);
}

Test(command_line, a_double_dash_ends_the_options)
{
    static const char *const program[] = {"--nnodes=1", "--", "--odd-name", "-x", NULL};
    static const char *const file[] = {"a.yaml", "--seed=3", "--", "--for", "it", NULL};
    static const char *const both[] = {"--", "a.yaml", "--for", NULL};
    struct loaded *l = load_argv(program);

    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.command.program, "--odd-name");
    cr_assert_eq(l->cfg.command.arg_count, 1);
    unload(l);
    l = load_with_file(file);
    cr_assert_str_eq(complaints(l), "");
    cr_assert_eq(l->cfg.command.arg_count, 2);
    cr_assert_str_eq(l->cfg.command.args[0], "--for");
    unload(l);
    l = load_with_file(both);
    cr_assert_str_eq(complaints(l), "");
    cr_assert_eq(l->cfg.command.arg_count, 1);
    unload(l);
}

Test(command_line, the_value_of_an_unknown_option_is_no_second_mistake)
{
    static const char *const argv[] = {"a.yaml", "--quark.charm", "2", NULL};
    struct loaded *l = load_with_file(argv);

    cr_assert_not_null(strstr(complaints(l), "--quark.charm is no option"), "%s", complaints(l));
    cr_assert_null(strstr(complaints(l), "too many"), "%s", complaints(l));
    unload(l);
}

Test(command_line, a_second_word_after_a_yaml_file_is_one_too_many)
{
    static const char *const argv[] = {"a.yaml", "b.yaml", NULL};
    struct loaded *l = load_with_file(argv);

    cr_assert_str_eq(complaints(l), "b.yaml is one word too many: a.yaml is the file already, and "
                                    "words for the trainer come behind \"--\"\n");
    unload(l);
}

Test(command_line, flags_take_no_word_that_could_be_the_program)
{
    static const char *const bare[] = {"--standalone", "true", NULL};
    static const char *const dotted[] = {"--launch.standalone", "false", "true", NULL};
    static const char *const equals[] = {"--no-python=no", "-m", "mod", NULL};
    struct loaded *l = load_argv(bare);

    cr_assert(l->cfg.launch.standalone);
    cr_assert_str_eq(l->cfg.command.program, "true");
    unload(l);
    l = load_argv(dotted);
    cr_assert_not(l->cfg.launch.standalone);
    cr_assert_str_eq(l->cfg.command.program, "true");
    unload(l);
    l = load_argv(equals);
    cr_assert_not(l->cfg.launch.no_python);
    cr_assert(l->cfg.launch.module);
    cr_assert_str_eq(l->cfg.command.program, "mod");
    unload(l);
}

Test(command_line, short_options_take_their_value_glued_or_apart)
{
    static const char *const argv[] = {"-r3", "-t", "0:1,1:2", "-m", "mod", NULL};
    struct loaded *l = load_argv(argv);

    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.launch.redirects, "3");
    cr_assert_str_eq(l->cfg.launch.tee, "0:1,1:2");
    cr_assert(l->cfg.launch.module);
    unload(l);
    l = load_argv((const char *const[]){"-r=1", "-t=0:2", NULL});
    cr_assert_str_eq(complaints(l), "");
    cr_assert_str_eq(l->cfg.launch.redirects, "1");
    cr_assert_str_eq(l->cfg.launch.tee, "0:2");
    unload(l);
}

Test(command_line, quiet_verbose_and_color_are_short_for_keys_of_log)
{
    static const struct {
        const char *option;
        enum ct_config_level level;
    } rows[] = {{"-q", CT_CONFIG_LEVEL_ERROR},
                {"--quiet", CT_CONFIG_LEVEL_ERROR},
                {"-v", CT_CONFIG_LEVEL_DEBUG},
                {"--verbose", CT_CONFIG_LEVEL_DEBUG}};
    struct loaded *l;

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        l = load_argv((const char *const[]){rows[i].option, "--color", "never", "x", NULL});
        cr_assert_str_eq(complaints(l), "");
        cr_assert_eq((enum ct_config_level)l->cfg.log.level, rows[i].level);
        cr_assert_eq(l->cfg.log.color, CT_CONFIG_COLOR_NEVER);
        cr_assert_str_eq(l->cfg.command.program, "x", "they take no value");
        unload(l);
    }
    l = load_argv((const char *const[]){"--quiet=yes", "x", NULL});
    cr_assert_str_eq(complaints(l), "--quiet takes no value\n");
    unload(l);
}

Test(command_line, every_key_is_an_option_with_dashes_too)
{
    for (size_t i = 0; i < CT_CONFIG_KEYS; i++) {
        const struct ct_config_key *key = &ct_config_keys[i];
        char option[160], dashed[160];
        const char *const argv[] = {option, NULL}, *const short_argv[] = {dashed, NULL};

        (void)snprintf(option, sizeof option, "--%s=%s", key->path, key->standard);
        for (char *at = option + 2; *at != '='; at++)
            *at = *at == '_' ? '-' : *at;
        struct loaded *l = load_argv(argv);
        cr_assert_str_eq(complaints(l), "", "%s", option);
        cr_assert_eq(l->cfg.origins[i].layer, CT_CONFIG_COMMAND_LINE, "%s", option);
        unload(l);
        if (strcmp(key->section, "launch") != 0)
            continue;
        (void)snprintf(dashed, sizeof dashed, "--%s=%s", key->name, key->standard);
        l = load_argv(short_argv);
        cr_assert_eq(l->cfg.origins[i].layer, CT_CONFIG_COMMAND_LINE, "%s", dashed);
        unload(l);
    }
}

Test(command_line, where_only_a_file_will_do_any_name_is_one)
{
    static const char *const none[] = {NULL}, *const named[] = {"no-such-file", NULL};
    struct loaded *l =
        load(&(struct given){.argv = none, .command_needed = true, .file_only = true});

    cr_assert_str_eq(complaints(l), "nothing to show: give a YAML file, for instance "
                                    "configs/digits_mlp.yaml\n");
    unload(l);
    l = load(&(struct given){.argv = named, .file_only = true});
    cr_assert_str_eq(complaints(l), "no-such-file: cannot be opened: No such file or directory\n");
    unload(l);
}

Test(command_line, help_and_version_stop_everything)
{
    static const char *const help[] = {"--rubbish", "--help", "--nonsense", NULL};
    static const char *const letter[] = {"-h", NULL};
    static const char *const version[] = {"--version", NULL};
    const char *const *const lines[] = {help, letter, version};

    for (size_t i = 0; i < CT_COUNT(lines); i++) {
        struct loaded *l = load(&(struct given){.argv = lines[i], .command_needed = true});
        cr_assert_str_eq(complaints(l), "");
        cr_assert_eq(l->cfg.command.help, i < 2);
        cr_assert_eq(l->cfg.command.version, i == 2);
        unload(l);
    }
}

Test(command_line, rdzv_conf_sets_what_its_layer_does_not_set_itself)
{
    static const char *const argv[] = {"--rdzv_conf",
                                       "timeout=7,last_call_timeout=2,rank=0,read_timeout=3",
                                       "--last_call=1", "x", NULL};
    static const char *const env[] = {"PET_JOIN_TIMEOUT=9", NULL};
    struct loaded *l = load(&(struct given){.argv = argv, .env = env});

    cr_assert_str_eq(complaints(l), "note: --rdzv_conf (read_timeout) has no effect: the waiting "
                                    "time is --join_timeout\n");
    cr_assert_eq(l->cfg.launch.join_timeout_ms, 7000, "above the environment");
    cr_assert_eq(l->cfg.launch.last_call_ms, 1000, "an option of its own is more exact");
    cr_assert_eq(l->cfg.launch.node_rank, 0);
    unload(l);
}

/* ---- environment ---------------------------------------------------------------------------- */

static const struct {
    const char *variable, *complaints;
} variables[] = {
    {"CTRUN_OPTIM_LRR=3", "CTRUN_OPTIM_LRR is no setting of ctrun; did you mean CTRUN_OPTIM_LR?\n"},
    {"CTRUN_OPTIM_LR=x", "CTRUN_OPTIM_LR wants a number such as 1e-3, not \"x\"\n"},
    {"CTRUN_HOME=/opt",
     "CTRUN_HOME is no setting of ctrun; unset it (CTRUN_OPTIM_LR sets optim.lr, "
     "and so on for every key)\n"},
    {"CTRUN_CONTROL_FD=3", ""},
    {"CTRUN_PAGE_FD=4", ""},
    {"CTRUN_RECORD_FD=5", ""},
    {"CTRUN_GENERATION=4", ""},
    {"PET_NNODES=0", "PET_NNODES must be from 1 to 100000, not 0\n"},
    {"PET_NNODES=", ""},
    {"PET_UNHEARD_OF=1", ""},
    {"PET_RUN_PATH=0", ""},
    {"PET_RUN_PATH=2", ""},
    {"PET_RUN_PATH=maybe", "PET_RUN_PATH wants true or false, not \"maybe\"\n"},
    {"CTRUN_LAUNCH_RUN_PATH=2", "CTRUN_LAUNCH_RUN_PATH wants true or false, not \"2\"\n"},
    {"PET_LOGS_SPECS=mine", ""},
    {"PET_LOG_FORMAT=json", ""},
    {"LOGLEVEL=TRACE", ""},
    {"TORCHELASTIC_SIGNALS_TO_HANDLE=SIGFOO",
     "TORCHELASTIC_SIGNALS_TO_HANDLE names \"SIGFOO\", which is no signal; they are written as "
     "SIGTERM\n"},
    {"TORCHELASTIC_HEALTH_CHECK_PORT=80",
     "note: TORCHELASTIC_HEALTH_CHECK_PORT has no effect: ctrun status asks a running job\n"},
    {"PET_MONITOR_INTERVAL=1", "note: PET_MONITOR_INTERVAL has no effect: ctrun does not poll, it "
                               "sees the end of a worker at once\n"},
    {"CTRUN", ""},
    {"CTRUN_SEED", ""},
    {"OTHER=1", ""},
};

Test(command_line, variables_of_ours_are_strict_and_those_of_others_are_left_alone)
{
    for (size_t i = 0; i < CT_COUNT(variables); i++) {
        const char *const env[] = {variables[i].variable, NULL};
        struct loaded *l = load(&(struct given){.env = env});
        cr_assert_str_eq(complaints(l), variables[i].complaints, "%s", complaints(l));
        unload(l);
    }
}

Test(command_line, pet_variables_are_numbers_for_flags)
{
    static const char *const env[] = {"PET_STANDALONE=1", "PET_NO_PYTHON=0", "PET_TEE=3",
                                      "PET_SHUTDOWN_TIMEOUT=4", NULL};
    struct loaded *l = load(&(struct given){.env = env});

    cr_assert_str_eq(complaints(l), "");
    cr_assert(l->cfg.launch.standalone);
    cr_assert_not(l->cfg.launch.no_python);
    cr_assert_str_eq(l->cfg.launch.tee, "3");
    cr_assert_eq(l->cfg.launch.grace_ms, 4000);
    unload(l);
}

Test(command_line, each_key_has_a_variable_of_its_own)
{
    char a[CT_CONFIG_VARIABLE_ROOM], b[CT_CONFIG_VARIABLE_ROOM];

    for (size_t i = 0; i < CT_CONFIG_KEYS; i++)
        for (size_t j = 0; j < i; j++)
            cr_assert_str_neq(ct_config_variable(&ct_config_keys[i], a),
                              ct_config_variable(&ct_config_keys[j], b));
}

Test(command_line, streams_are_a_number_or_a_map)
{
    static const struct {
        const char *spec;
        int of_0, of_1, of_12;
    } good[] = {{"0", 0, 0, 0},
                {"3", 3, 3, 3},
                {"1:2", 0, 2, 0},
                {"0:3,12:1", 3, 0, 1},
                {"1:1,1:2", 0, 2, 0}};
    static const char *const bad[] = {"",    "4",   "01",   "x",     "1:",   ":1",
                                      "1:4", "1,2", "1:2,", "1:2,3", "-1:2", "1:22"};

    for (size_t i = 0; i < CT_COUNT(good); i++) {
        cr_assert_eq(ct_config_streams(good[i].spec, 0), good[i].of_0, "%s", good[i].spec);
        cr_assert_eq(ct_config_streams(good[i].spec, 1), good[i].of_1, "%s", good[i].spec);
        cr_assert_eq(ct_config_streams(good[i].spec, 12), good[i].of_12, "%s", good[i].spec);
    }
    for (size_t i = 0; i < CT_COUNT(bad); i++)
        cr_assert_eq(ct_config_streams(bad[i], 0), CT_EUSAGE, "%s", bad[i]);
}

Test(command_line, variables_that_torchrun_reads_are_weaker_than_its_options)
{
    static const char *const env[] = {"LOGLEVEL=WARNING",
                                      "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7",
                                      "TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
                                      "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM, SIGUSR2",
                                      "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=${rank}: ",
                                      NULL};
    static const char *const both[] = {"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "PET_SHUTDOWN_TIMEOUT=8",
                                       "LOGLEVEL=7", NULL};
    struct loaded *l = load(&(struct given){.env = env});

    cr_assert_str_eq(complaints(l), "");
    cr_assert_eq(l->cfg.log.level, CT_CONFIG_LEVEL_WARN);
    cr_assert_eq(l->cfg.launch.grace_ms, 7000);
    cr_assert_eq(l->cfg.launch.torch_store, CT_CONFIG_TORCH_STORE_RANK0);
    cr_assert_eq(l->cfg.launch.signals_to_handle.count, 2);
    cr_assert_str_eq(l->cfg.launch.log_line_prefix_template, "${rank}: ");
    cr_assert_str_eq(ct_config_origin(&l->cfg, &l->cfg.log.level)->name, "LOGLEVEL");
    unload(l);
    l = load(&(struct given){.env = both});
    cr_assert_str_eq(complaints(l), "");
    cr_assert_eq(l->cfg.launch.grace_ms, 8000);
    cr_assert_eq(l->cfg.log.level, CT_CONFIG_LEVEL_INFO);
    unload(l);
}
