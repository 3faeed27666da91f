/* What the metrics of a run come to; see run_values.h. */
#include "train/run_values.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static double number(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);

    return json_is_number(value) ? json_number_value(value) : NAN;
}

void ct_run_values_add(struct ct_run_values *to, const char *line, size_t size)
{
    json_t *root = json_loadb(line, size, 0, NULL);
    const char *kind = json_string_value(json_object_get(root, "kind"));
    bool evaluation = kind != NULL && strcmp(kind, "eval") == 0;
    double loss = number(root, "loss"), accuracy = number(root, "accuracy");
    const json_t *step = json_object_get(root, "step");

    if (kind != NULL && json_is_integer(step))
        to->step = (uint64_t)json_integer_value(step);
    if (kind != NULL && !isnan(number(root, "time")))
        to->time = number(root, "time");
    if (kind != NULL && evaluation && !to->evaluated) { /* from here on evaluations alone count */
        to->evaluated = true;
        to->any = false;
    }
    if (kind != NULL && evaluation == to->evaluated && !isnan(loss)) {
        if (!to->any || loss < to->best_loss) {
            to->best_loss = loss;
            to->best_step = to->step;
        }
        to->last_loss = loss;
        to->best_accuracy = to->any ? fmax(to->best_accuracy, accuracy) : accuracy;
        to->last_accuracy = accuracy;
        to->any = true;
    }
    json_decref(root);
}

/* Read the lines that have `words`, NULL: all. */
static void read_lines(const char *folder, const char *words, struct ct_run_values *ret)
{
    char path[PATH_MAX], *line = NULL;
    size_t room = 0;
    ssize_t size;

    *ret = (struct ct_run_values){.any = false};
    if (snprintf(path, sizeof path, "%s/metrics.jsonl", folder) >= (int)sizeof path)
        return;
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    while ((size = getline(&line, &room, file)) > 0)
        if (words == NULL || strstr(line, words) != NULL)
            ct_run_values_add(ret, line, (size_t)size);
    free(line);
    (void)fclose(file);
}

void ct_run_values_read(const char *folder, struct ct_run_values *ret)
{
    read_lines(folder, NULL, ret);
}

void ct_run_values_read_evaluations(const char *folder, struct ct_run_values *ret)
{
    read_lines(folder, "\"eval\"", ret);
}
