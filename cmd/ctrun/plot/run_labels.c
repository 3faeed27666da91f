/* See run_labels.h. */
#include "cmd/ctrun/plot/run_labels.h"

#include "base/assert.h"
#include "base/str.h"
#include "cmd/ctrun/agent/job/run_text.h"
#include "train/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The runs that have a configuration. */
struct labels {
    size_t count;
    size_t of[RUN_LABELS_MAX]; /* which runs they are */
    const struct ct_config *cfgs[RUN_LABELS_MAX];
    struct ct_buf texts[RUN_LABELS_MAX]; /* of all runs */
};

static void add_difference(void *context, const char *key, const char *const *values)
{
    struct labels *to = context;

    if (run_is_place(key))
        return;
    for (size_t i = 0; i < to->count; i++) {
        struct ct_buf *text = &to->texts[to->of[i]];
        (void)ct_buf_printf(text, "%s%s ", text->size > 0 ? ", " : "", key);
        ct_buf_put_clean(text, values[i], "");
    }
}

static void put_title(const char *folder, const char *before, char to[RUN_LABEL_SIZE])
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    (void)ct_buf_puts(&text, before);
    (void)ct_buf_puts(&text, before[0] != '\0' ? ": " : "");
    ct_buf_put_clean(&text, ct_run_title(folder), "");
    (void)ct_str_copy(to, RUN_LABEL_SIZE, ct_buf_str(&text));
    ct_buf_deinit(&text);
}

/* Runs of equal configurations, and those that have none, are told apart by name. */
static void make_unique(char (*folders)[PATH_MAX], size_t count, const struct ct_buf *texts,
                        char (*labels)[RUN_LABEL_SIZE])
{
    for (size_t i = 0; i < count; i++) {
        const char *text = ct_buf_str(&texts[i]);
        bool alone = text[0] != '\0';

        for (size_t k = 0; k < count && alone; k++)
            alone = k == i || strcmp(text, ct_buf_str(&texts[k])) != 0;
        if (alone)
            (void)ct_str_copy(labels[i], RUN_LABEL_SIZE, text);
        else
            put_title(folders[i], text, labels[i]);
    }
}

static int load(struct labels *labels, char (*folders)[PATH_MAX], size_t count,
                struct ct_config *cfgs, struct ct_error *err)
{
    char path[PATH_MAX];

    for (size_t i = 0; i < count; i++) {
        if (snprintf(path, sizeof path, "%s/config.yaml", folders[i]) >= (int)sizeof path ||
            access(path, F_OK) != 0)
            continue;
        labels->of[labels->count] = i;
        labels->cfgs[labels->count] = &cfgs[labels->count];
        int code = run_config(&cfgs[labels->count++], path, err);
        if (code != 0)
            return code;
    }
    return 0;
}

int run_labels(char (*folders)[PATH_MAX], size_t count, char (*ret_labels)[RUN_LABEL_SIZE],
               struct ct_error *err)
{
    struct labels labels = {.count = 0};
    struct ct_config *cfgs = calloc(RUN_LABELS_MAX, sizeof *cfgs);

    CT_ASSERT(count <= RUN_LABELS_MAX);
    if (cfgs == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for the configurations of %zu runs",
                            count);
    int code = load(&labels, folders, count, cfgs, err);
    if (code == 0) {
        ct_config_differences(labels.cfgs, labels.count, add_difference, &labels);
        make_unique(folders, count, labels.texts, ret_labels);
    }
    for (size_t i = 0; i < labels.count; i++)
        ct_config_deinit(&cfgs[i]);
    for (size_t i = 0; i < count; i++)
        ct_buf_deinit(&labels.texts[i]);
    free(cfgs);
    return code;
}
