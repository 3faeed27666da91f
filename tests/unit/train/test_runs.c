/* Names of runs, their records, and finding them by words. */
#include "train/run_values.h"
#include "train/runs.h"

#include "base/fs.h"
#include "base/str.h"
#include "folder.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char before[PATH_MAX];

static void enter(void)
{
    folder_make();
    cr_assert_not_null(getcwd(before, sizeof before));
    cr_assert_eq(chdir(folder_path("")), 0);
}

static void leave(void)
{
    cr_assert_eq(chdir(before), 0);
    folder_remove();
}

TestSuite(runs, .init = enter, .fini = leave, .timeout = 60);

Test(runs, a_name_is_the_local_time_and_a_number_for_those_of_one_second)
{
    const struct tm local = {
        .tm_year = 126, .tm_mon = 10, .tm_mday = 3, .tm_hour = 9, .tm_min = 5, .tm_sec = 7};
    char name[64];

    ct_run_name(&local, 1, name);
    cr_assert_str_eq(name, "2026-11-03_09-05-07");
    ct_run_name(&local, 2, name);
    cr_assert_str_eq(name, "2026-11-03_09-05-07-2");
    cr_assert_str_eq(ct_run_title("runs/digits/x"), "digits/x");
    cr_assert_str_eq(ct_run_title("/data/x"), "/data/x");
}

/* A folder that is a run: it has a configuration and a record. */
static void make_run(const char *base, time_t now, uint64_t started, const char *job,
                     char folder[PATH_MAX])
{
    struct ct_run_record *record = calloc(1, sizeof *record);
    char path[PATH_MAX];

    cr_assert_eq(ct_runs_make(base, now, folder, NULL), 0);
    (void)snprintf(path, sizeof path, "%.4000s/config.yaml", folder);
    cr_assert_eq(ct_fs_replace(path, "seed: 1\n", 8, NULL), 0);
    (void)strcpy(record->id, "none/1");
    (void)snprintf(record->job, sizeof record->job, "%s", job);
    record->started = record->began = started;
    cr_assert_eq(ct_run_record_write(folder, record, NULL), 0);
    free(record);
}

static void expect_found(const char *words, const char *folder)
{
    char found[PATH_MAX] = "";
    struct ct_error err = {0};

    cr_assert_eq(ct_runs_find(words, found, &err), 0, "\"%s\": %s", words, err.text);
    cr_assert_str_eq(found, folder, "\"%s\": %s, not %s", words, found, folder);
}

Test(runs, runs_of_one_second_do_not_share_a_folder_and_are_listed_in_their_order)
{
    char folder[12][PATH_MAX], (*all)[PATH_MAX] = NULL;
    size_t count = 0;

    for (int i = 0; i < 12; i++)
        make_run("runs/a", 1000, 1000, "none", folder[i]);
    cr_assert_eq(ct_runs_list("runs/a", &all, &count), 0);
    cr_assert_eq(count, 12);
    for (size_t i = 0; i < count; i++)
        cr_assert_str_eq(all[i], folder[i]);
    free(all);
}

Test(runs, a_run_is_found_by_its_name_by_its_folder_and_by_nothing_the_newest)
{
    char old[PATH_MAX], young[PATH_MAX], other[PATH_MAX], found[PATH_MAX];
    struct ct_error err = {0};

    cr_assert_eq(ct_runs_find("", found, &err), CT_ENOTFOUND);
    make_run("runs/a", 1000, 1000, "none", old);
    make_run("runs/b", 3000, 3000, "none", other);
    make_run("runs/a", 2000, 2000, "none", young);
    expect_found("", other);
    expect_found("a", young);
    expect_found("runs/a", young);
    expect_found("runs/a/", young);
    expect_found("a/latest", young);
    expect_found("runs/a/latest", young);
    expect_found(old, old);
    expect_found(ct_run_title(old), old);
    expect_found(strrchr(old, '/') + 1, old);
    cr_assert_eq(ct_runs_find("c", found, &err), CT_ENOTFOUND);
    cr_assert_str_eq(err.text, "there is no run \"c\"; `ctrun runs` lists them");
}

/* Python scripts log into runs, too. */
Test(runs, a_folder_with_a_record_and_no_configuration_is_a_run)
{
    char folder[PATH_MAX], path[PATH_MAX];

    make_run("runs/script", 1000, 1000, "none", folder);
    (void)snprintf(path, sizeof path, "%.4000s/config.yaml", folder);
    cr_assert_eq(unlink(path), 0);
    expect_found("script", folder);
    (void)snprintf(path, sizeof path, "%.4000s/run.json", folder);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(ct_runs_find("script", folder, NULL), CT_ENOTFOUND);
}

Test(runs, without_links_the_last_by_name_is_the_newest)
{
    char old[PATH_MAX], young[PATH_MAX];

    make_run("runs/a", 1000, 1000, "none", old);
    make_run("runs/a", 2000, 2000, "none", young);
    cr_assert_eq(unlink("runs/a/latest"), 0);
    expect_found("a", young);
}

Test(runs, a_job_knows_its_newest_run_among_those_of_others)
{
    char first[PATH_MAX], second[PATH_MAX], other[PATH_MAX], found[PATH_MAX];

    make_run("runs/a", 1000, 1000, "4711.0", first);
    make_run("runs/a", 2000, 2000, "4711.0", second);
    make_run("runs/a", 3000, 3000, "4712.0", other);
    cr_assert(ct_runs_of_job("runs/a", "4711.0", found));
    cr_assert_str_eq(found, second);
    cr_assert_not(ct_runs_of_job("runs/a", "4713.0", found));
}

Test(runs, a_record_comes_back_as_it_was_written_and_knows_how_the_run_ended)
{
    struct ct_run_record *record = calloc(1, sizeof *record), *read = calloc(1, sizeof *read);
    const struct ct_run_record end = {
        .how = CT_RUN_FAILED, .status = 93, .step = 40, .cause = "the loss is nan"};

    cr_assert_eq(ct_run_record_end(".", &end, 100, NULL), 0, "a folder that is no run");
    cr_assert_eq(ct_run_record_read(".", read, NULL), CT_ENOINPUT);
    (void)strcpy(record->id, "job/0123");
    (void)strcpy(record->command, "ctrun --nproc_per_node 2 'a b.yaml'");
    record->began = 1000;
    record->pid = 77;
    record->steps = 50;
    cr_assert_eq(ct_run_record_write(".", record, NULL), 0);
    cr_assert_eq(ct_run_record_end(".", &end, 1060, NULL), 0);
    cr_assert_eq(ct_run_record_read(".", read, NULL), 0);
    cr_assert_str_eq(read->command, record->command);
    cr_assert_str_eq(read->cause, "the loss is nan");
    cr_assert_eq(read->how, CT_RUN_FAILED);
    cr_assert_eq(read->pid, 77);
    cr_assert_eq(read->steps, 50);
    cr_assert_eq(read->step, 40);
    cr_assert_eq(read->status, 93);
    cr_assert_eq(read->seconds, 60);
    cr_assert_eq(ct_fs_replace("run.json", "[1]", 3, NULL), 0);
    cr_assert_eq(ct_run_record_read(".", read, NULL), CT_EDATA);
    free(record);
    free(read);
}

Test(runs, the_commit_is_read_from_a_branch_from_packed_refs_and_from_a_detached_head)
{
    static const struct {
        const char *head, *packed, *commit;
    } rows[] = {
        {"1111111111111111111111111111111111111111\n", "",
         "1111111111111111111111111111111111111111"},
        {"ref: refs/heads/main\n",
         "# pack-refs\n2222 refs/heads/mainly\n3333333333 refs/heads/main\n", "3333333333"},
        {"ref: refs/heads/none\n", "4444 refs/heads/main\n", ""},
    };
    char commit[72];

    cr_assert_eq(mkdir(".git", 0755), 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        cr_assert_eq(ct_fs_replace(".git/HEAD", rows[i].head, strlen(rows[i].head), NULL), 0);
        cr_assert_eq(
            ct_fs_replace(".git/packed-refs", rows[i].packed, strlen(rows[i].packed), NULL), 0);
        ct_run_commit(commit);
        cr_assert_str_eq(commit, rows[i].commit);
    }
    cr_assert_eq(ct_fs_make_dirs(".git/refs/heads", NULL), 0);
    cr_assert_eq(ct_fs_replace(".git/refs/heads/none", "5555\n", 5, NULL), 0);
    ct_run_commit(commit);
    cr_assert_str_eq(commit, "5555");
}

Test(runs, the_best_loss_is_that_of_evaluations_once_there_is_one)
{
    static const char *const lines[] = {
        "{\"kind\":\"train\",\"step\":1,\"time\":5,\"loss\":0.1}",
        "{\"kind\":\"eval\",\"step\":2,\"time\":6,\"loss\":0.5,\"accuracy\":0.8}",
        "not a record",
        "{\"kind\":\"train\",\"step\":3,\"time\":7,\"loss\":0.01}",
        "{\"kind\":\"eval\",\"step\":4,\"time\":8,\"loss\":0.7,\"accuracy\":0.9}",
    };
    struct ct_run_values values = {.any = false};

    ct_run_values_add(&values, lines[0], strlen(lines[0]));
    cr_assert(values.any && !values.evaluated && values.best_loss == 0.1);
    cr_assert(isnan(values.best_accuracy));
    for (size_t i = 1; i < sizeof lines / sizeof *lines; i++)
        ct_run_values_add(&values, lines[i], strlen(lines[i]));
    cr_assert(values.evaluated);
    cr_assert_eq(values.step, 4);
    cr_assert_eq(values.time, 8);
    cr_assert(values.best_loss == 0.5 && values.best_step == 2 && values.last_loss == 0.7);
    cr_assert(values.best_accuracy == 0.9 && values.last_accuracy == 0.9);
}

Test(runs, the_evaluations_alone_have_the_best_loss_of_the_whole_run)
{
    static const char text[] = "{\"kind\":\"train\",\"step\":1,\"time\":5,\"loss\":0.1}\n"
                               "{\"kind\":\"eval\",\"step\":2,\"time\":6,\"loss\":0.5}\n"
                               "{\"kind\":\"eval\",\"step\":4,\"time\":8,\"loss\":0.7}\n"
                               "{\"kind\":\"train\",\"step\":5,\"time\":9,\"loss\":0.01}\n";
    struct ct_run_values all, evaluations;

    folder_write("metrics.jsonl", text, sizeof text - 1);
    ct_run_values_read(".", &all);
    ct_run_values_read_evaluations(".", &evaluations);
    cr_assert(all.step == 5 && all.best_step == 2);
    cr_assert(evaluations.step == 4 && evaluations.evaluated && evaluations.any);
    cr_assert(evaluations.best_step == 2 && evaluations.best_loss == 0.5);
}
