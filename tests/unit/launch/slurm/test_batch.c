/* Batch scripts for Slurm: what is in them, and that a shell reads words as they were. */
#include "slurm/batch_script.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(batch, .timeout = 30);

static const char *const arguments[] = {"--nproc_per_node", "2",          "a b.yaml",
                                        "--note",           "it's $HOME", NULL};

static const struct ct_batch plain = {
    .ctrun = "/opt/ctrun", .name = "digits", .nodes = 1, .arguments = arguments};

static void expect(const struct ct_batch *batch, const char *const wanted[],
                   const char *const unwanted[])
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    ct_batch_print(batch, &text);
    for (size_t i = 0; wanted[i] != NULL; i++)
        cr_assert_not_null(strstr(ct_buf_str(&text), wanted[i]), "\"%s\" is missing in:\n%s",
                           wanted[i], ct_buf_str(&text));
    for (size_t i = 0; unwanted[i] != NULL; i++)
        cr_assert_null(strstr(ct_buf_str(&text), unwanted[i]), "\"%s\" is in:\n%s", unwanted[i],
                       ct_buf_str(&text));
    ct_buf_deinit(&text);
}

Test(batch, words_are_quoted_as_a_shell_needs_it)
{
    static const struct {
        const char *word, *quoted;
    } rows[] = {
        {"plain-1.0/x:y,z@%j=a+b", "plain-1.0/x:y,z@%j=a+b"},
        {"", "''"},
        {"a b", "'a b'"},
        {"$HOME", "'$HOME'"},
        {"it's", "'it'\\''s'"},
        {"a\nb", "'a\nb'"},
        {"~", "'~'"},
        {"*", "'*'"},
        {"`id`", "'`id`'"},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        struct ct_buf text;
        ct_buf_init(&text, 0);
        ct_batch_quote(rows[i].word, &text);
        cr_assert_str_eq(ct_buf_str(&text), rows[i].quoted);
        ct_buf_deinit(&text);
    }
}

Test(batch, one_node_needs_no_key_and_waits_in_the_foreground)
{
    static const char *const wanted[] = {
        "#!/bin/bash\n",
        "#SBATCH --job-name=digits\n",
        "#SBATCH --nodes=1\n",
        "#SBATCH --ntasks-per-node=1\n",
        "#SBATCH --output=%x-%j.out\n",
        "\nsrun /opt/ctrun --nproc_per_node 2 'a b.yaml' --note 'it'\\''s $HOME'\n",
        NULL};
    static const char *const unwanted[] = {"key",  "--no-kill",      "requeue",
                                           "USR1", "#SBATCH --cpus", NULL};

    expect(&plain, wanted, unwanted);
}

Test(batch, several_nodes_share_a_key_that_goes_with_the_job)
{
    struct ct_batch batch = plain;
    static const char *const wanted[] = {"#SBATCH --nodes=4\n",
                                         "#SBATCH --cpus-per-task=8\n",
                                         "/opt/ctrun key new \"$key\"",
                                         "trap 'rm -f \"$key\"' EXIT",
                                         "srun /opt/ctrun --key_file \"$key\" --nproc",
                                         NULL};
    static const char *const unwanted[] = {"--no-kill", NULL};

    batch.nodes = 4;
    batch.cpus = 8;
    batch.own_key = true;
    expect(&batch, wanted, unwanted);
}

Test(batch, an_elastic_job_outlives_its_nodes)
{
    struct ct_batch batch = plain;
    static const char *const wanted[] = {"#SBATCH --no-kill\n", "srun --no-kill ", NULL};
    static const char *const unwanted[] = {"key_file", NULL};

    batch.elastic = true;
    expect(&batch, wanted, unwanted);
}

Test(batch, a_job_that_is_queued_again_gets_its_signal_and_gives_it_on)
{
    struct ct_batch batch = plain;
    static const char *const wanted[] = {"#SBATCH --requeue\n",
                                         "#SBATCH --signal=B:USR1@60\n",
                                         "#SBATCH --open-mode=append\n",
                                         "requeue_signals USR1 ",
                                         " &\nsrun=$!\n",
                                         "trap 'kill -USR1 \"$srun\"' USR1",
                                         "-eq 75 ]",
                                         "scontrol requeue",
                                         NULL};
    static const char *const unwanted[] = {"key_file", NULL};

    batch.requeue = true;
    expect(&batch, wanted, unwanted);
}

Test(batch, a_directive_that_is_given_takes_the_place_of_its_own)
{
    struct ct_batch batch = plain;
    static const char *const given[] = {"--job-name=mine", "--output=a b.out", "--array=0-3",
                                        "--nodes", "--signal=B:USR1@120"};
    static const char *const wanted[] = {"#SBATCH --job-name=mine\n",
                                         "#SBATCH '--output=a b.out'\n", "#SBATCH --array=0-3\n",
                                         "#SBATCH --signal=B:USR1@120\n", NULL};
    static const char *const unwanted[] = {"digits", "%x-%j", "--nodes=1", "USR1@60", NULL};

    batch.requeue = true;
    batch.sbatch = given;
    batch.sbatch_count = CT_COUNT(given);
    expect(&batch, wanted, unwanted);
}

Test(batch, tasks_of_an_array_write_to_files_of_their_own)
{
    struct ct_batch batch = plain;
    static const char *const given[] = {"--array=0-3"};
    static const char *const wanted[] = {"#SBATCH --output=%x-%A_%a.out\n", NULL};
    static const char *const unwanted[] = {NULL};

    batch.sbatch = given;
    batch.sbatch_count = 1;
    expect(&batch, wanted, unwanted);
}
