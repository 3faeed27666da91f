/* The table of subcommands, and what it says to a person: see commands.def. */
#include "base/assert.h"
#include "base/str.h"
#include "base/version.h"
#include "commands.h"

#include <stdio.h>
#include <string.h>

enum { WIDTH = 80, BRIEF_AT = 13, HELP_AT = 27 };

static const struct ct_command commands[] = {
#define CT_GROUP(heading) {NULL, NULL, "", heading, CT_COMMAND_NONE, ""},
#define CT_COMMAND(name, function, usage, brief, also, arguments) \
    {#name, function, usage, brief, CT_COMMAND_##also, arguments},
#include "commands.def"
};

#define DEVICE(NAME, name, ...) name " "
#define CT_DEVICE_NAMES devices
static const char devices[] = "here "
#include "collectives/planner/device.def"
    ;
#define VALUE_BYTES "SIZE"
#define VALUE_NUMBER "N"
#define VALUE_TEXT "NAME"
#define VALUE_FLAG ""
static const struct ct_command_option options[] = {
#define CT_OPTION(name, option, value, standard, help, choices) \
    {#name, option, value, standard, help, choices},
#include "commands.def"
#define CT_BENCH_OPTION(name, type, member, otherwise, help) \
    {"bench", name, VALUE_##type, VALUE_##type[0] == '\0' ? "off" : otherwise, help, ""},
#include "collectives/bench/bench_options.def"
};

static const struct line {
    const char *command, *text;
} proses[] =
    {
#define CT_PROSE(name, text) {#name, text},
#include "commands.def"
},
  examples[] = {
#define CT_EXAMPLE(name, line) {#name, line},
#include "commands.def"
};

/* ---- finding ---------------------------------------------------------------------------------*/

const struct ct_command *ct_command_at(size_t index)
{
    return index < CT_COUNT(commands) ? &commands[index] : NULL;
}

const struct ct_command_option *ct_command_option_at(size_t index)
{
    return index < CT_COUNT(options) ? &options[index] : NULL;
}

const struct ct_command *ct_command_find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(commands); i++)
        if (commands[i].name != NULL && strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

const struct ct_command_option *ct_command_option_find(const char *command, const char *name)
{
    for (size_t i = 0; i < CT_COUNT(options); i++)
        if (strcmp(options[i].command, command) == 0 && ct_config_same_name(options[i].name, name))
            return &options[i];
    return NULL;
}

static const char *command_name_at(const void *context, size_t index)
{
    (void)context;
    return commands[index].name != NULL ? commands[index].name : "";
}

const char *ct_command_like(const char *word)
{
    const char *near = ct_nearest(word, CT_COUNT(commands), command_name_at, NULL);

    return near != NULL && near[0] != '\0' ? near : NULL;
}

static const char *option_name_at(const void *command, size_t index)
{
    return strcmp(options[index].command, command) == 0 ? options[index].name : "";
}

int ct_command_unknown(const char *command, const char *word, struct ct_error *err)
{
    const struct ct_command *row = ct_command_find(command);
    const char *text = word + strspn(word, "-"), *dashes = "--";
    char name[64] = "";

    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(text, "="), text);
    const char *near = ct_nearest(name, CT_COUNT(options), option_name_at, command);
    if (near != NULL && near[0] == '\0')
        near = NULL;
    const char *key = row->also == CT_COMMAND_RUN ? ct_config_option_like(name) : NULL;
    if (key != NULL && (near == NULL || ct_edit_distance(name, key) < ct_edit_distance(name, near)))
        near = key;
    if (near == NULL)
        near = command, dashes = "";
    return ct_error_set(err, CT_EUSAGE, "unknown option %.*s; %s%s%s%s",
                        (int)CT_MIN(strcspn(word, "="), (size_t)64), word,
                        dashes[0] != '\0' ? "did you mean " : "see ctrun help ", dashes, near,
                        dashes[0] != '\0' ? "?" : "");
}

/* ---- help ------------------------------------------------------------------------------------*/

int ct_cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)puts("ctrun " CT_VERSION);
    return 0;
}

static void put_option(const struct ct_command_option *option, struct ct_buf *to)
{
    struct ct_buf text;
    size_t before = to->size;

    ct_buf_init(&text, 0);
    (void)ct_buf_puts(&text, option->help);
    for (const char *at = option->choices; *at != '\0'; at += strspn(at, " ")) {
        (void)ct_buf_printf(&text, "%s%.*s", at == option->choices ? ": " : ", ",
                            (int)strcspn(at, " "), at);
        at += strcspn(at, " ");
    }
    if (option->standard[0] != '\0')
        (void)ct_buf_printf(&text, " (default %s)", option->standard);
    (void)ct_buf_printf(to, "  --%s%s%s", option->name, option->value[0] != '\0' ? " " : "",
                        option->value);
    int column = (int)(to->size - before);
    (void)ct_buf_printf(to, column < HELP_AT ? "%*s" : "\n%*s",
                        column < HELP_AT ? HELP_AT - column : HELP_AT, "");
    ct_buf_wrap(to, ct_buf_str(&text), HELP_AT, HELP_AT, WIDTH);
    (void)ct_buf_puts(to, "\n");
    ct_buf_deinit(&text);
}

static void put_lines(const struct ct_command *command, struct ct_buf *to)
{
    bool headed = false;

    for (size_t i = 0; i < CT_COUNT(options); i++) {
        if (strcmp(options[i].command, command->name) != 0)
            continue;
        (void)ct_buf_puts(to, headed ? "" : "\nOptions:\n");
        headed = true;
        put_option(&options[i], to);
    }
    if (command->also == CT_COMMAND_RUN)
        (void)ct_buf_puts(to, "Every option of run is taken as well: see ctrun help run.\n");
    headed = false;
    for (size_t i = 0; i < CT_COUNT(examples); i++) {
        if (strcmp(examples[i].command, command->name) != 0)
            continue;
        (void)ct_buf_printf(to, "%s  %s\n", headed ? "" : "\nExamples:\n", examples[i].text);
        headed = true;
    }
}

static int print(struct ct_buf *text)
{
    bool written = !text->failed && fputs(ct_buf_str(text), stdout) >= 0;

    ct_buf_deinit(text);
    return written ? 0 : ct_exit_status(CT_EIO);
}

static const char run_text[] =
    "Start the workers of a job on this node, one per GPU or CPU slot, give each its\n"
    "rank and keep the job going.\n\n"
    "  train.yaml   a training, run by ctworker; its keys are options as well:\n"
    "               --optim.lr 0.1 (ctrun config --options lists them)\n"
    "  script.py    a Python script, with python3 -u\n"
    "  PROGRAM      an executable file; -- PROGRAM, --no_python PROGRAM: one of PATH\n\n"
    "A name may have dashes for underscores, and be shortened while it stays unique.\n"
    "--log_dir keeps the files of what workers print; --log.dir is a training's own\n"
    "folder, for metrics, configuration and trace.\n\n"
    "Options:\n";

/* All of run's own options; called torchrun, it is the only command. */
static int help_on_run(const char *usage)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_printf(&text, "usage: %s\n%s", usage, run_text);
    ct_config_help(false, &text);
    return print(&text);
}

int ct_command_help(const char *name)
{
    const struct ct_command *command = ct_command_find(name);
    struct ct_buf text;

    if (strcmp(name, "run") == 0)
        return help_on_run("ctrun [run] [OPTIONS] train.yaml | script.py | PROGRAM [ARGS]");
    ct_buf_init(&text, 0);
    (void)ct_buf_printf(&text, "usage: ctrun %s%s%s\n", name, command->usage[0] != '\0' ? " " : "",
                        command->usage);
    for (size_t i = 0; i < CT_COUNT(proses); i++)
        if (strcmp(proses[i].command, name) == 0) {
            ct_buf_wrap(&text, proses[i].text, 0, 0, WIDTH);
            (void)ct_buf_puts(&text, "\n");
        }
    put_lines(command, &text);
    return print(&text);
}

static const char most_used[] =
    "Options most used (ctrun help run lists all):\n"
    "  --nproc_per_node N       workers on this node: a number, gpu, cpu, auto\n"
    "  --nnodes N|MIN:MAX, --max_restarts N   nodes of the job; restarts of it\n"
    "  --rdzv_endpoint HOST:PORT, --node_rank N, --key_file FILE   where nodes meet\n"
    "Examples:\n"
    "  ctrun --nproc_per_node 2 configs/digits_mlp.yaml\n"
    "  ctrun --nproc_per_node gpu --max_restarts 3 train.py --lr 3e-4\n";

static int overview(void)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_puts(&text, "usage: ctrun [OPTIONS] train.yaml | script.py | PROGRAM [ARGS]\n"
                             "       ctrun SUBCOMMAND [OPTIONS]\n"
                             "Start one worker per GPU or CPU slot on each node and keep the job "
                             "going.\n\n");
    for (size_t i = 0; i < CT_COUNT(commands); i++)
        if (commands[i].name == NULL)
            (void)ct_buf_printf(&text, "%s\n", commands[i].brief);
        else
            (void)ct_buf_printf(&text, "  %-*s%s\n", BRIEF_AT - 2, commands[i].name,
                                commands[i].brief);
    (void)ct_buf_puts(&text, most_used);
    return print(&text);
}

int ct_cmd_help(int argc, char **argv)
{
    if (ct_called_torchrun(argv[0]))
        return help_on_run("torchrun [OPTIONS] script.py [ARGS]");
    if (argc < 2 || argv[1][0] == '-')
        return overview();
    if (ct_command_find(argv[1]) != NULL)
        return ct_command_help(argv[1]);
    const char *near = ct_command_like(argv[1]);
    char text[256];
    (void)snprintf(text, sizeof text, "there is no subcommand \"%.64s\"; %s%s%s", argv[1],
                   near != NULL ? "did you mean " : "see ctrun --help", near != NULL ? near : "",
                   near != NULL ? "?" : "");
    return ct_command_fail("ctrun help", CT_EUSAGE, text);
}
