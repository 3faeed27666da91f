/* The disturbed training beside one that nothing happened to: the same lines, the same parameters.
 * See soak.h. */
#include "soak.h"

#include "base/fs.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 2048, SLOW_S = 3600 };

/* The step of the checkpoint that `latest` names, 0: none. */
static uint64_t latest_step(const struct soak *soak)
{
    char path[SOAK_PATH + 32];
    uint64_t step = 0;

    (void)snprintf(path, sizeof path, "%s/checkpoints/latest", soak->run);
    FILE *file = fopen(path, "re");
    if (file != NULL && fscanf(file, "step_%" SCNu64, &step) != 1)
        step = 0;
    if (file != NULL)
        (void)fclose(file);
    return step;
}

static bool train_reference(struct soak *soak, const char *folder, uint64_t steps)
{
    char program[SOAK_PATH], log[SOAK_PATH + 32], words[48];
    const char *const argv[] = {program, soak->config, words, NULL};
    struct proc reference = {0};

    (void)snprintf(program, sizeof program, "%s/ctworker", soak->programs);
    (void)snprintf(words, sizeof words, "--train.steps=%" PRIu64, steps);
    (void)snprintf(log, sizeof log, "%s/reference.log", soak->folder);
    bool well =
        process_spawn(&reference, argv, &(struct process_how){.cwd = folder, .log = log}) == 0 &&
        process_await_end(&reference, SLOW_S) && reference.status == 0;
    process_free(&reference);
    return well;
}

/* The next line about a training step; what of it must be equal goes to `ret_facts`. */
static bool next_step(FILE *file, uint64_t *ret_step, char ret_facts[LINE_BYTES])
{
    static const char head[] = "\"kind\":\"train\",\"step\":";
    char line[LINE_BYTES];

    while (fgets(line, sizeof line, file) != NULL) {
        const char *step = strstr(line, head), *loss = strstr(line, "\"loss\":");
        if (step == NULL || loss == NULL)
            continue;
        *ret_step = strtoull(step + strlen(head), NULL, 10);
        (void)snprintf(ret_facts, LINE_BYTES, "%.*s", (int)strcspn(loss, ","), loss);
        return true;
    }
    return false;
}

/* Each line of the one has its equal in the other, once and in order, up to step `last`. */
static void compare_lines(struct soak *soak, const char *reference, uint64_t last)
{
    char path[2][SOAK_PATH + 32], facts[2][LINE_BYTES];
    uint64_t step[2] = {0, 0}, lines = 0;
    bool there[2];

    (void)snprintf(path[0], sizeof path[0], "%s/log/metrics.jsonl", soak->run);
    (void)snprintf(path[1], sizeof path[1], "%s/log/metrics.jsonl", reference);
    FILE *file[2] = {fopen(path[0], "re"), fopen(path[1], "re")};
    for (;;) {
        for (int i = 0; i < 2; i++)
            there[i] = file[i] != NULL && next_step(file[i], &step[i], facts[i]);
        if (!there[1] || !there[0] || step[0] != step[1] || strcmp(facts[0], facts[1]) != 0)
            break;
        lines++;
    }
    /* The undisturbed run ends with step `last`, and reports it for that alone. */
    bool only_its_end = there[1] && !there[0] && step[1] == last;
    if ((there[1] && !only_its_end) || (there[0] && step[0] <= last))
        report_alarm(soak,
                     "the metrics differ from the undisturbed run after %" PRIu64
                     " equal lines: step %" PRIu64 " %s, there step %" PRIu64 " %s",
                     lines, there[0] ? step[0] : 0, there[0] ? facts[0] : "(none)",
                     there[1] ? step[1] : 0, there[1] ? facts[1] : "(none)");
    else
        report_event(soak, "%" PRIu64 " lines of metrics equal those of the undisturbed run",
                     lines);
    for (int i = 0; i < 2; i++)
        if (file[i] != NULL)
            (void)fclose(file[i]);
}

static void compare_files(struct soak *soak, const char *reference, uint64_t step, const char *name)
{
    const char *folders[2] = {soak->run, reference};
    struct ct_buf bytes[2];
    struct ct_error err = {0};
    int rc = 0;

    for (int i = 0; i < 2; i++) {
        char path[SOAK_PATH + 96];
        (void)snprintf(path, sizeof path, "%s/checkpoints/step_%08" PRIu64 "/%s.safetensors",
                       folders[i], step, name);
        ct_buf_init(&bytes[i], 0);
        rc = rc != 0 ? rc : ct_fs_read(path, 1u << 28, &bytes[i], &err);
    }
    if (rc != 0)
        report_alarm(soak, "%s", err.text);
    else if (bytes[0].size != bytes[1].size ||
             memcmp(bytes[0].data, bytes[1].data, bytes[0].size) != 0)
        report_alarm(soak, "%s of step %" PRIu64 " differs from the undisturbed run", name, step);
    else
        report_event(soak, "%s of step %" PRIu64 " equals the undisturbed run's, %zu bytes", name,
                     step, bytes[0].size);
    ct_buf_deinit(&bytes[0]);
    ct_buf_deinit(&bytes[1]);
}

void verify_run(struct soak *soak)
{
    uint64_t step = latest_step(soak);
    char reference[SOAK_PATH];
    struct ct_error err = {0};

    (void)snprintf(reference, sizeof reference, "%s/reference", soak->folder);
    if (step == 0 || ct_fs_make_dirs(reference, &err) != 0) {
        report_alarm(soak, "there is no checkpoint to compare");
        return;
    }
    report_event(soak, "one undisturbed process trains %" PRIu64 " steps for comparison", step);
    if (!train_reference(soak, reference, step)) {
        report_alarm(soak, "the undisturbed run did not end well");
        return;
    }
    compare_lines(soak, reference, step);
    compare_files(soak, reference, step, "model");
    compare_files(soak, reference, step, "optim");
}
