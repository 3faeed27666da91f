/* Signals: names of all spellings, sets, what may not be listed. */
#include "base/assert.h"
#include "base/signals.h"

#include <criterion/criterion.h>
#include <signal.h>

TestSuite(signals, .timeout = 20);

static uint64_t bit(int signo)
{
    return UINT64_C(1) << signo;
}

Test(signals, a_name_with_or_without_its_stem_and_a_number_mean_the_same)
{
    static const char *const names[] = {"SIGUSR1", "USR1", "sigusr1", " usr1 ", "10"};

    for (size_t i = 0; i < CT_COUNT(names); i++) {
        uint64_t set = 0;
        cr_assert_eq(ct_signals_parse(&names[i], 1, &set, NULL), 0, "%s", names[i]);
        cr_assert_eq(set, bit(SIGUSR1), "%s", names[i]);
    }
}

Test(signals, a_list_is_a_set)
{
    static const char *const names[] = {"SIGTERM", "SIGINT", "SIGTERM"};
    uint64_t set = 1;

    cr_assert_eq(ct_signals_parse(names, 3, &set, NULL), 0);
    cr_assert_eq(set, bit(SIGTERM) | bit(SIGINT));
    cr_assert(ct_signals_has(set, SIGTERM) && ct_signals_has(set, SIGINT));
    cr_assert(!ct_signals_has(set, SIGHUP) && !ct_signals_has(set, 0) && !ct_signals_has(set, 64));
    cr_assert_eq(ct_signals_parse(names, 0, &set, NULL), 0);
    cr_assert_eq(set, 0);
}

Test(signals, what_is_no_signal_or_cannot_be_handled_is_refused)
{
    static const struct {
        const char *name, *sentence;
    } cases[] = {
        {"SIGFOO", "names \"SIGFOO\", which is no signal; they are written as SIGTERM"},
        {"", "names \"\", which is no signal; they are written as SIGTERM"},
        {"0", "names \"0\", which is no signal; they are written as SIGTERM"},
        {"64", "names \"64\", which is no signal; they are written as SIGTERM"},
        {"9", "names SIGKILL, which cannot be taken or passed on; leave it out"},
        {"stop", "names SIGSTOP, which cannot be taken or passed on; leave it out"},
        {"SIGCHLD", "names SIGCHLD, which cannot be taken or passed on; leave it out"},
    };

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        struct ct_error err = {0};
        uint64_t set = 7;
        cr_assert_eq(ct_signals_parse(&cases[i].name, 1, &set, &err), CT_EUSAGE, "%s",
                     cases[i].name);
        cr_assert_str_eq(err.text, cases[i].sentence);
        cr_assert_eq(set, 7, "untouched on failure");
    }
}
