/* See written.h. */
#include "written.h"

#include "e2e.h"

#include "base/fs.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 8192, PATH_BYTES = 256 };

int written_steps(const char *name, int steps, int *times)
{
    char path[PATH_BYTES], line[1024];
    int last = 0;

    memset(times, 0, ((size_t)steps + 1) * sizeof *times);
    (void)snprintf(path, sizeof path, "%s/log/metrics.jsonl", e2e_in_folder(name));
    FILE *file = fopen(path, "re");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *step = strstr(line, "\"step\":");

        if (step == NULL || strstr(line, "\"kind\":\"train\"") == NULL)
            continue;
        int at = atoi(step + strlen("\"step\":"));
        cr_assert(at >= 1 && at <= steps, "%s", line);
        times[at]++;
        last = at > last ? at : last;
    }
    if (file != NULL)
        (void)fclose(file);
    return last;
}

struct progress {
    const char *name;
    int steps, step;
};

static bool has_reached(void *context)
{
    const struct progress *progress = context;
    static int times[STEPS_MAX + 1];

    return written_steps(progress->name, progress->steps, times) >= progress->step;
}

void written_wait(const char *name, int steps, int step)
{
    struct progress progress = {name, steps, step};

    cr_assert_leq(steps, STEPS_MAX);
    proc_until(has_reached, &progress, 60, "the step");
}

void written_each_once(const char *name, int steps)
{
    static int times[STEPS_MAX + 1];

    cr_assert_leq(steps, STEPS_MAX);
    cr_assert_eq(written_steps(name, steps, times), steps);
    for (int step = 1; step <= steps; step++)
        cr_assert_eq(times[step], 1, "step %d is %d times in the metrics", step, times[step]);
}

static void read_result(const char *name, int steps, const char *which, struct ct_buf *to)
{
    char path[PATH_BYTES];
    struct ct_error err = {0};

    ct_buf_init(to, 0);
    (void)snprintf(path, sizeof path, "%s/ckpt/step_%08d/%s.safetensors", e2e_in_folder(name),
                   steps, which);
    cr_assert_eq(ct_fs_read(path, 1 << 24, to, &err), 0, "%s", err.text);
}

void written_equal(const char *a, const char *b, int steps)
{
    static const char *const files[] = {"model", "optim"};

    for (int i = 0; i < 2; i++) {
        struct ct_buf one, other;

        read_result(a, steps, files[i], &one);
        read_result(b, steps, files[i], &other);
        cr_assert(one.size > 1000 && one.size == other.size &&
                      memcmp(one.data, other.data, one.size) == 0,
                  "%s differs", files[i]);
        ct_buf_deinit(&one);
        ct_buf_deinit(&other);
    }
}
