/* ctrun: one worker a device on every node, watched over. A table of subcommands; without one,
 * `run` is meant. */
#include "base/assert.h"
#include "base/bytes.h"
#include "base/error.h"
#include "base/str.h"
#include "base/version.h"
#include "commands.h"
#include "config/config.h"
#include "config_cmd.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const struct command {
    const char *name;
    int (*run)(int argc, char **argv);
    const char *usage;
    const char *help;
} commands[] = {
    {"run", ct_cmd_run, "[OPTIONS] train.yaml | script.py | PROGRAM [ARGS]",
     "start the workers of a job on this node (what `ctrun` does without a subcommand)"},
    {"status", ct_cmd_admin, "[--json] [--watch]", "what a running job does and waits for"},
    {"drain", ct_cmd_admin, "HOST [--reason TEXT]",
     "have a host leave a running job at the next step boundary"},
    {"cordon", ct_cmd_admin, "HOST [--for TIME] [--reason TEXT]",
     "keep a host out of new rounds of a running job"},
    {"uncordon", ct_cmd_admin, "HOST", "let it in again"},
    {"flight", ct_cmd_flight, "[--job ID] [--rank N] [--calls N] [--json]",
     "the last collectives of each rank on this machine; of a whole job, and who holds it up"},
    {"gpus", ct_cmd_gpus, "[--json]", "this machine's NVIDIA GPUs, and what is wrong with them"},
    {"config", ct_cmd_config, "[OPTIONS] FILE",
     "what a configuration comes to, and what may be in one"},
    {"plan", ct_cmd_plan, "FILE [--nnodes N] [--nproc_per_node M] [--device NAME] [--ops] [--json]",
     "what a training would take, without starting it: memory, collectives, time, what fits"},
    {"sample", ct_cmd_sample, "RUN | CHECKPOINT | train.yaml [--prompt TEXT] [--tokens N]",
     "text by a trained GPT (sample --help)"},
    {"export", ct_cmd_export, "RUN | CHECKPOINT | train.yaml FOLDER [--dtype TYPE]",
     "a trained GPT-2 as Hugging Face's transformers reads it"},
    {"slurm", ct_cmd_slurm, "[--submit] [--requeue] [OPTIONS] train.yaml | PROGRAM [ARGS]",
     "write a batch script for Slurm, or submit it"},
    {"bench", ct_cmd_bench, "collectives [--op OP] [--backend NAME] [OPTIONS]",
     "time and bandwidth of the collectives, as nccl-tests prints them (bench --help)"},
    {"key", ct_cmd_key, "new FILE", "make the key that the nodes of a job share"},
    {"help", ct_cmd_help, "[SUBCOMMAND]", "this, or what a subcommand takes"},
    {"version", ct_cmd_version, "", "the version"},
};

static const char *command_name_at(const void *context, size_t index)
{
    (void)context;
    return commands[index].name;
}

const char *ct_command_like(const char *word)
{
    return ct_nearest(word, CT_COUNT(commands), command_name_at, NULL);
}

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < CT_COUNT(commands); i++)
        if (strcmp(name, commands[i].name) == 0)
            return &commands[i];
    return NULL;
}

int ct_cmd_version(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    (void)puts("ctrun " CT_VERSION);
    return 0;
}

static int help_on(char *name)
{
    static char option[] = "--help";
    const struct command *command = find(name);
    const char *near = ct_command_like(name);

    if (command != NULL)
        return command->run(2, (char *[]){name, option, NULL});
    (void)fprintf(stderr, "ctrun help: error: there is no subcommand \"%s\"; %s%s%s\n", name,
                  near != NULL ? "did you mean " : "`ctrun help` lists them",
                  near != NULL ? near : "", near != NULL ? "?" : "");
    return ct_exit_status(CT_EUSAGE);
}

int ct_cmd_help(int argc, char **argv)
{
    struct ct_buf options;
    bool torchrun = ct_called_torchrun(argv[0]);

    if (argc > 1 && argv[1][0] != '-')
        return help_on(argv[1]);
    (void)puts("ctrun starts one worker a device on every node, gives each its rank and watches "
               "over them.\n");
    if (torchrun)
        (void)puts("  torchrun [OPTIONS] script.py [ARGS]\n      this is ctrun, called by "
                   "torchrun's name; its subcommands are `ctrun help`");
    for (size_t i = 0; !torchrun && i < CT_COUNT(commands); i++)
        (void)printf("  ctrun %s %s\n      %s\n", commands[i].name, commands[i].usage,
                     commands[i].help);
    (void)puts(torchrun ? "\nOptions:" : "\nOptions of run:");
    ct_buf_init(&options, 0);
    ct_config_help(false, &options);
    (void)fputs(ct_buf_str(&options), stdout);
    ct_buf_deinit(&options);
    return 0;
}

/* What the program that started ctrun may have left in an odd state. */
static void tidy_process(void)
{
    sigset_t none;
    int fd;

    do { /* descriptors 0 to 2 exist, so that no other file gets these numbers */
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd >= 0)
        (void)close(fd);
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_IGN);
}

bool ct_called_torchrun(const char *name)
{
    const char *slash = strrchr(name, '/');

    return strcmp(slash != NULL ? slash + 1 : name, "torchrun") == 0;
}

int main(int argc, char **argv)
{
    bool subcommands = argc > 1 && !ct_called_torchrun(argv[0]);
    const struct command *command = subcommands ? find(argv[1]) : NULL;

    tidy_process();
    int status = command != NULL ? command->run(argc - 1, argv + 1) : ct_cmd_run(argc, argv);
    bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
    return status == 0 && !written ? ct_exit_status(CT_EIO) : status;
}
