/* See scontrol_uv.h. */
#include "slurm/scontrol_uv.h"

#include "base/bytes.h"
#include "base/capture.h"
#include "base/clock.h"
#include "base/error.h"
#include "slurm/node_state.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct ct_scontrol {
    uv_work_t work;
    struct ct_scontrol_options options;
    char program[PATH_MAX]; /* "": none */
    char *list;             /* of the nodes, with commas */
    bool asks;
    bool freed; /* when the open question is over */
    atomic_bool stop;

    /* The thread's. */
    bool down;
    char why[256];
};

/* scontrol in the first folder of `path` that has it. */
static void find_program(const char *path, char program[PATH_MAX])
{
    for (const char *at = path; at != NULL && *at != '\0';) {
        size_t size = strcspn(at, ":");
        int length = snprintf(program, PATH_MAX, "%.*s/scontrol", (int)size, at);

        if (size > 0 && at[0] == '/' && length < PATH_MAX && access(program, X_OK) == 0)
            return;
        at += size + (at[size] == ':');
    }
    program[0] = '\0';
}

static char *join(const char *const *nodes, size_t count)
{
    struct ct_buf list;

    ct_buf_init(&list, 0);
    for (size_t i = 0; i < count; i++)
        (void)ct_buf_printf(&list, "%s%s", i > 0 ? "," : "", nodes[i]);
    char *text = strdup(ct_buf_str(&list));
    ct_buf_deinit(&list);
    return text;
}

struct ct_scontrol *ct_scontrol_new(const struct ct_scontrol_options *options)
{
    struct ct_scontrol *scontrol = calloc(1, sizeof *scontrol);

    if (scontrol == NULL)
        return NULL;
    scontrol->options = *options;
    scontrol->work.data = scontrol;
    scontrol->list = join(options->nodes, options->count);
    if (scontrol->list == NULL) {
        free(scontrol);
        return NULL;
    }
    find_program(options->path, scontrol->program);
    return scontrol;
}

static void ask(uv_work_t *work)
{
    struct ct_scontrol *scontrol = work->data;
    char oneliner[] = "--oneliner", show[] = "show", node[] = "node";
    char *argv[] = {scontrol->program, oneliner, show, node, scontrol->list, NULL};
    uint64_t deadline_ms = ct_clock_mono_ms(&ct_clock_system) + CT_SCONTROL_MS;
    struct ct_buf text;

    ct_buf_init(&text, CT_SCONTROL_BYTES);
    scontrol->down = false;
    int rc = scontrol->program[0] != '\0'
                 ? ct_capture(scontrol->program, argv, deadline_ms, &scontrol->stop, &text)
                 : CT_ENOINPUT;
    if (rc == CT_ENOINPUT)
        (void)snprintf(scontrol->why, sizeof scontrol->why,
                       "Slurm cannot be asked: there is no scontrol on PATH");
    else if (rc != 0)
        (void)snprintf(scontrol->why, sizeof scontrol->why, "Slurm does not answer");
    else
        scontrol->down =
            ct_slurm_are_down(ct_buf_str(&text), scontrol->options.nodes, scontrol->options.count,
                              scontrol->why, sizeof scontrol->why);
    ct_buf_deinit(&text);
}

static void release(struct ct_scontrol *scontrol)
{
    free(scontrol->list);
    free(scontrol);
}

static void on_asked(uv_work_t *work, int status)
{
    struct ct_scontrol *scontrol = work->data;

    (void)status; /* never cancelled */
    scontrol->asks = false;
    if (scontrol->freed)
        release(scontrol);
    else
        scontrol->options.answered(scontrol->options.context, scontrol->down, scontrol->why);
}

void ct_scontrol_ask(struct ct_scontrol *scontrol)
{
    if (!scontrol->asks)
        scontrol->asks = uv_queue_work(scontrol->options.loop, &scontrol->work, ask, on_asked) == 0;
}

void ct_scontrol_free(struct ct_scontrol *scontrol)
{
    if (scontrol == NULL)
        return;
    scontrol->freed = true;
    atomic_store(&scontrol->stop, true);
    if (!scontrol->asks)
        release(scontrol);
}
