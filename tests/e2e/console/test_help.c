/* What ctrun says about itself: help, shell completion, and what a misspelt word may mean. */
#include "e2e.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(help, .init = e2e_enter, .fini = e2e_leave, .timeout = 60);

enum { COLUMNS = 80, ROWS = 40 };

/* Fail unless every line fits; returns how many there are. */
static int assert_fits(const char *text, const char *of)
{
    int lines = 0;

    for (; *text != '\0'; text += strcspn(text, "\n") + 1, lines++)
        cr_assert_leq(strcspn(text, "\n"), COLUMNS, "%s: %.120s", of, text);
    return lines;
}

Test(help, the_overview_is_40_lines_of_80_columns_with_usage_groups_and_examples)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "--help", NULL), 0);
    cr_assert_leq(assert_fits(ct_buf_str(&run.text), "--help"), ROWS);
    cr_assert_eq(strncmp(ct_buf_str(&run.text), "usage: ctrun ", 13), 0);
    e2e_said(&run, "\nTrain:\n");
    e2e_said(&run, "\nA running job:\n");
    e2e_said(&run, "\nExamples:\n  ctrun ");
    e2e_not_said(&run, "refused");
    proc_free(&run);
}

/* The subcommands are those that `ctrun help` lists. */
Test(help, every_subcommand_has_one_form_of_help_that_fits_80_columns)
{
    struct proc list, run, again;
    int count = 0;

    cr_assert_eq(e2e_run(&list, "help", NULL), 0);
    for (const char *at = ct_buf_str(&list.text); (at = strstr(at, "\n  ")) != NULL; at++) {
        char name[32] = "", usage[64];

        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 3, " \n"), at + 3);
        if (name[0] == '\0' || name[0] == '-' || strcmp(name, "ctrun") == 0)
            continue; /* usage, an option, an example */
        count++;
        (void)snprintf(usage, sizeof usage, "usage: ctrun %s%s",
                       strcmp(name, "run") == 0 ? "[run" : name,
                       strcmp(name, "run") == 0 ? "]" : "");
        cr_expect_eq(e2e_run(&run, name, "--help", NULL), 0, "%s --help", name);
        cr_expect_eq(strncmp(ct_buf_str(&run.text), usage, strlen(usage)), 0, "%s:\n%s", usage,
                     ct_buf_str(&run.text));
        (void)assert_fits(ct_buf_str(&run.text), name);
        if (strcmp(name, "version") != 0 && strcmp(name, "run") != 0)
            e2e_said(&run, "\n\nExamples:\n  ");
        cr_expect_eq(e2e_run(&again, "help", name, NULL), 0, "help %s", name);
        cr_expect_str_eq(ct_buf_str(&again.text), ct_buf_str(&run.text),
                         "help %s and %s --help differ", name, name);
        proc_free(&again);
        proc_free(&run);
    }
    cr_assert_geq(count, 16);
    proc_free(&list);
}

Test(help, the_options_of_run_say_their_defaults_and_torchruns_others_stand_apart)
{
    struct proc run;

    cr_assert_eq(e2e_run(&run, "help", "run", NULL), 0);
    e2e_said(&run, "Python module\n                              (python3 -m) (default off)");
    e2e_said(&run, "(default 10s)");
    const char *apart = strstr(ct_buf_str(&run.text), "\n\nOther options of torchrun:\n");
    const char *refused = strstr(ct_buf_str(&run.text), "refused: ");
    cr_assert(apart != NULL && refused != NULL && refused > apart, "%s", ct_buf_str(&run.text));
    proc_free(&run);
}

/* What bash completes a line to, the words of it separated by blanks; the last is completed. */
static const struct completion {
    const char *line;
    const char *words; /* what it comes to, whole; or with "..." at the end, its beginning */
    const char *without;
} completions[] = {
    {"ctrun st", "status", NULL},
    {"ctrun help s", "sample status slurm", NULL},
    {"ctrun plan --device h", "h100 h200", NULL},
    {"ctrun plan --device = h", "h100 h200", NULL},
    {"ctrun plan --dev", "--device", NULL},
    {"ctrun status --",
     "--help --json --watch --job --rdzv_endpoint --key_file --tls_cert --tls_key "
     "--tls_ca",
     NULL},
    {"ctrun drain node --", "--reason", "--nnodes"},
    {"ctrun sample --t", "--tokens --temperature --top_k --top_p", NULL},
    {"ctrun bench collectives --it", "--iters", NULL},
    {"ctrun slurm --par", "--partition", NULL},
    {"ctrun key n", "new", NULL},
    {"ctrun config --completion z", "zsh", NULL},
    {"ctrun --nnod", "--nnodes", NULL},
    {"ctrun --optim.type a", "adamw", NULL},
    {"ctrun run --optim.type a", "adamw", NULL},
    {"ctrun some", "some.yaml", NULL},
    {"ctrun resume dig", "digits digits/2026-11-23_20-15-04", "digits/latest"},
    {"ctrun sample digits/2", "digits/2026-11-23_20-15-04", NULL},
    {"ctrun runs --j", "--json", NULL},
};

Test(help, bash_completes_subcommands_their_options_and_values_and_files)
{
    const char *script =
        e2e_write("try", "source ctrun.bash\nCOMP_WORDS=($1)\nCOMP_CWORD=$((${#COMP_WORDS[@]}-1))\n"
                         "COMPREPLY=()\n_ctrun\necho \" ${COMPREPLY[*]} \"\n");
    struct proc run;

    (void)e2e_write("some.yaml", "");
    cr_assert_eq(system("mkdir -p runs/digits/2026-11-23_20-15-04 runs/other && "
                        "echo '{}' >runs/digits/2026-11-23_20-15-04/run.json && "
                        "ln -s 2026-11-23_20-15-04 runs/digits/latest"),
                 0);
    cr_assert_eq(e2e_run(&run, "config", "--completion", "bash", NULL), 0);
    (void)e2e_write("ctrun.bash", ct_buf_str(&run.text));
    proc_free(&run);
    for (size_t i = 0; i < CT_COUNT(completions); i++) {
        const struct completion *row = &completions[i];
        const char *const argv[] = {"/bin/bash", script, row->line, NULL};
        char words[128];

        cr_assert_eq(proc_run(&run, argv, NULL, 20), 0, "%s", ct_buf_str(&run.text));
        (void)snprintf(words, sizeof words, " %s ", row->words);
        cr_expect_not_null(strstr(ct_buf_str(&run.text), words), "%s: %s", row->line,
                           ct_buf_str(&run.text));
        if (row->without != NULL)
            e2e_not_said(&run, row->without);
        proc_free(&run);
    }
}
