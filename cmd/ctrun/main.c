/* ctrun: one worker per device on every node, watched over. A table of subcommands (commands.def);
 * without one, `run` is meant. */
#include "base/error.h"
#include "cli/commands.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

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

/* Is help asked for? What follows the program of run or slurm is not ours: they look themselves. */
static bool asks_help(const struct ct_command *command, int argc, char **argv)
{
    bool has_program = command->run == ct_cmd_run || command->run == ct_cmd_slurm;
    int last = has_program && argc > 2 ? 2 : argc;

    for (int i = 1; i < last && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
            return true;
    return false;
}

int main(int argc, char **argv)
{
    bool subcommands = argc > 1 && !ct_called_torchrun(argv[0]);
    const struct ct_command *command = subcommands ? ct_command_find(argv[1]) : NULL;
    int status;

    tidy_process();
    ct_complaints_open(argv);
    if (command == NULL)
        status = ct_cmd_run(argc, argv);
    else if (asks_help(command, argc - 1, argv + 1))
        status = ct_command_help(command->name);
    else
        status = command->run(argc - 1, argv + 1);
    bool written = fflush(stdout) == 0 && ferror(stdout) == 0;
    return status == 0 && !written ? ct_exit_status(CT_EIO) : status;
}
