/* See batch_script.h. */
#include "slurm/batch_script.h"

#include <inttypes.h>
#include <string.h>

void ct_batch_quote(const char *word, struct ct_buf *to)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "_-+=./:,@%";

    if (word[0] != '\0' && strspn(word, plain) == strlen(word)) {
        (void)ct_buf_puts(to, word);
        return;
    }
    (void)ct_buf_puts(to, "'");
    for (const char *at = word; *at != '\0'; at++)
        if (*at == '\'')
            (void)ct_buf_puts(to, "'\\''");
        else
            (void)ct_buf_append(to, at, 1);
    (void)ct_buf_puts(to, "'");
}

/* ---- directives ---- */

/* "--time=1:00" and "--time" have the name "--time". */
static bool has_name(const char *directive, const char *name)
{
    size_t length = strlen(name);

    return strncmp(directive, name, length) == 0 &&
           (directive[length] == '\0' || directive[length] == '=');
}

static bool is_given(const struct ct_batch *batch, const char *name)
{
    for (size_t i = 0; i < batch->sbatch_count; i++)
        if (has_name(batch->sbatch[i], name))
            return true;
    return false;
}

static void directive(const struct ct_batch *batch, const char *name, const char *value,
                      struct ct_buf *to)
{
    if (is_given(batch, name))
        return;
    (void)ct_buf_printf(to, "#SBATCH %s%s", name, value[0] != '\0' ? "=" : "");
    if (value[0] != '\0')
        ct_batch_quote(value, to);
    (void)ct_buf_puts(to, "\n");
}

static void directive_number(const struct ct_batch *batch, const char *name, int64_t value,
                             struct ct_buf *to)
{
    if (!is_given(batch, name))
        (void)ct_buf_printf(to, "#SBATCH %s=%" PRId64 "\n", name, value);
}

static void print_directives(const struct ct_batch *batch, struct ct_buf *to)
{
    directive(batch, "--job-name", batch->name, to);
    directive_number(batch, "--nodes", batch->nodes, to);
    directive_number(batch, "--ntasks-per-node", 1, to);
    if (batch->cpus > 0)
        directive_number(batch, "--cpus-per-task", batch->cpus, to);
    if (batch->elastic)
        directive(batch, "--no-kill", "", to);
    if (batch->requeue) {
        directive(batch, "--requeue", "", to);
        directive(batch, "--signal", "B:USR1@60", to);
        directive(batch, "--open-mode", "append", to);
    }
    directive(batch, "--output", is_given(batch, "--array") ? "%x-%A_%a.out" : "%x-%j.out", to);
    for (size_t i = 0; i < batch->sbatch_count; i++) {
        (void)ct_buf_puts(to, "#SBATCH ");
        ct_batch_quote(batch->sbatch[i], to);
        (void)ct_buf_puts(to, "\n");
    }
}

/* ---- commands ---- */

static void print_key(const struct ct_batch *batch, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "\n# The nodes know each other by this key, in the home directory that "
                          "they share.\n"
                          "key=$HOME/.ctrun/job-$SLURM_JOB_ID.key\n"
                          "mkdir -p -m 700 \"${key%/*}\"\n"
                          "rm -f \"$key\"\n");
    ct_batch_quote(batch->ctrun, to);
    (void)ct_buf_puts(to, " key new \"$key\" >/dev/null\n"
                          "trap 'rm -f \"$key\"' EXIT\n");
}

static void print_srun(const struct ct_batch *batch, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "\nsrun ");
    if (batch->elastic)
        (void)ct_buf_puts(to, "--no-kill --wait=0 --kill-on-bad-exit=0 ");
    ct_batch_quote(batch->ctrun, to);
    if (batch->own_key)
        (void)ct_buf_puts(to, " --key_file \"$key\"");
    if (batch->requeue)
        (void)ct_buf_puts(to, " --requeue_signals USR1 --grace 45s");
    for (const char *const *word = batch->arguments; *word != NULL; word++) {
        (void)ct_buf_puts(to, " ");
        ct_batch_quote(*word, to);
    }
    (void)ct_buf_puts(to, batch->requeue ? " &\n" : "\n");
}

void ct_batch_print(const struct ct_batch *batch, struct ct_buf *to)
{
    (void)ct_buf_puts(to, "#!/bin/bash\n# Written by `ctrun slurm`; sbatch submits it.\n");
    print_directives(batch, to);
    (void)ct_buf_puts(to,
                      "set -euo pipefail\n\n"
                      "# Since 22.05 srun does not take over sbatch's --cpus-per-task by itself.\n"
                      "[ -z \"${SLURM_CPUS_PER_TASK:-}\" ] ||\n"
                      "    export SRUN_CPUS_PER_TASK=\"$SLURM_CPUS_PER_TASK\"\n");
    if (batch->own_key)
        print_key(batch, to);
    if (batch->requeue)
        (void)ct_buf_puts(to, "\n# 60 s before its time is up the job saves, ends with 75 and is "
                              "queued again. In the background,\n"
                              "# as a shell handles signals only between commands and in `wait`.");
    print_srun(batch, to);
    if (batch->requeue)
        (void)ct_buf_puts(
            to, "srun=$!\n"
                "trap 'kill -USR1 \"$srun\"' USR1\n\n"
                "status=0\n"
                "wait \"$srun\" || status=$?\n"
                "while kill -0 \"$srun\" 2>/dev/null; do # a signal has ended the wait, not srun\n"
                "    status=0\n"
                "    wait \"$srun\" || status=$?\n"
                "done\n"
                "if [ \"$status\" -eq 75 ] && [ \"${SLURM_RESTART_COUNT:-0}\" -lt 100 ]; then\n"
                "    scontrol requeue \"$SLURM_JOB_ID\"\n"
                "fi\n"
                "exit \"$status\"\n");
}
