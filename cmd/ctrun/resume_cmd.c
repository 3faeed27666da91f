/* ctrun resume: a run goes on in its folder, from its newest checkpoint, with the configuration
 * that it left there; options behind the run's name override it.
 *
 *     ctrun resume                                   the run that began last
 *     ctrun resume digits_mlp --train.epochs 60      the newest of that name, for longer
 *     ctrun resume digits_mlp --best --optim.lr 1e-4 from its best evaluation, with a lower rate */
#include "cli/commands.h"

#include "agent/job/run_text.h"
#include "base/error.h"
#include "base/str.h"
#include "train/checkpoint/checkpoint.h"
#include "train/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The words for `ctrun run`: the run's configuration and place, then the user's options. */
static int run_with(const char *folder, const char *checkpoint, int argc, char **argv)
{
    char config[PATH_MAX + 16], dir[PATH_MAX + 16], resume[PATH_MAX + 32];
    char **words = calloc((size_t)argc + 5, sizeof *words);
    static char name[] = "run";
    int count = 0;

    if (words == NULL)
        return ct_exit_status(CT_ENOMEM);
    (void)snprintf(config, sizeof config, "%s/config.yaml", folder);
    (void)snprintf(dir, sizeof dir, "--log.dir=%s", folder);
    (void)snprintf(resume, sizeof resume, "--checkpoint.resume=%s", checkpoint);
    words[count++] = name;
    words[count++] = config;
    words[count++] = dir;
    words[count++] = resume;
    for (int i = 0; i < argc; i++)
        words[count++] = argv[i];
    int status = ct_run_job(count, words, false);
    free(words);
    return status;
}

/* Remove --best from the words; returns whether it was there. The others are those of run. */
static bool take_best(int *argc, char **argv)
{
    int kept = 1;

    for (int i = 1; i < *argc; i++)
        if (strcmp(argv[i], "--best") != 0)
            argv[kept++] = argv[i];
    bool found = kept < *argc;
    *argc = kept;
    return found;
}

int ct_cmd_resume(int argc, char **argv)
{
    char folder[PATH_MAX] = "", checkpoint[PATH_MAX] = "";
    struct ct_error err = {0};
    uint64_t step = 0;
    bool best = take_best(&argc, argv);
    bool named = argc > 1 && argv[1][0] != '-';

    int code = ct_runs_find(named ? argv[1] : "", folder, &err);
    if (code == 0)
        code = run_checkpoint(folder, best, checkpoint, &step, &err);
    if (code != 0)
        return ct_command_fail("ctrun resume", code, err.text);
    ct_command_note("resuming %s from step %llu (%s)", ct_run_title(folder),
                    (unsigned long long)step, checkpoint);
    return run_with(folder, checkpoint, argc - 1 - named, argv + 1 + named);
}
