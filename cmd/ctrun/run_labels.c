/* See run_labels.h. */
#include "run_labels.h"

#include "agent/job/run_text.h"
#include "base/assert.h"
#include "base/str.h"
#include "train/runs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct labels {
    struct ct_buf *texts; /* one for each configuration */
    size_t count;
};

static void add_difference(void *context, const char *key, const char *const *values)
{
    struct labels *to = context;

    if (run_is_place(key))
        return;
    for (size_t i = 0; i < to->count; i++) {
        (void)ct_buf_printf(&to->texts[i], "%s%s ", to->texts[i].size > 0 ? ", " : "", key);
        ct_buf_put_clean(&to->texts[i], values[i], "");
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

/* Load the configurations of the runs that have one; *ret_count of them, in *cfgs. */
static int load(char (*folders)[PATH_MAX], size_t count, struct ct_config *cfgs, size_t *ret_of,
                size_t *ret_count, struct ct_error *err)
{
    char path[PATH_MAX];

    *ret_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (snprintf(path, sizeof path, "%s/config.yaml", folders[i]) >= (int)sizeof path ||
            access(path, F_OK) != 0)
            continue;
        ret_of[*ret_count] = i;
        int code = run_config(&cfgs[(*ret_count)++], path, err);
        if (code != 0)
            return code;
    }
    return 0;
}

int run_labels(char (*folders)[PATH_MAX], size_t count, char (*ret_labels)[RUN_LABEL_SIZE],
               struct ct_error *err)
{
    struct ct_config *cfgs = calloc(count + 1, sizeof *cfgs);
    const struct ct_config **list = calloc(count + 1, sizeof *list);
    struct ct_buf *texts = calloc(2 * count + 1, sizeof *texts);
    size_t *of = calloc(count + 1, sizeof *of), known = 0;
    int code = 0;

    if (cfgs == NULL || list == NULL || texts == NULL || of == NULL)
        code = ct_error_set(err, CT_ENOMEM, "out of memory for %zu runs", count);
    if (code == 0)
        code = load(folders, count, cfgs, of, &known, err);
    if (code == 0) {
        struct labels labels = {.texts = texts + count, .count = known};

        for (size_t i = 0; i < known; i++)
            list[i] = &cfgs[i];
        ct_config_differences(list, known, add_difference, &labels);
        for (size_t i = 0; i < known; i++) { /* to its run's place */
            texts[of[i]] = labels.texts[i];
            labels.texts[i] = (struct ct_buf){.size = 0};
        }
        make_unique(folders, count, texts, ret_labels);
    }
    for (size_t i = 0; i < known; i++)
        ct_config_deinit(&cfgs[i]);
    for (size_t i = 0; texts != NULL && i < 2 * count; i++)
        ct_buf_deinit(&texts[i]);
    free(cfgs);
    free(list);
    free(texts);
    free(of);
    return code;
}
