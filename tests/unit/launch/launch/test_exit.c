/* How a worker ended. */
#include "launch/failure/exit.h"

#include "base/assert.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <signal.h>

TestSuite(exit, .timeout = 10);

Test(exit, a_wait_status_is_a_status_or_a_signal)
{
    struct ct_exit end = ct_exit_of(3 << 8);

    cr_assert(end.status == 3 && end.signal == 0 && !ct_exit_ok(end));
    cr_assert_eq(ct_exit_shell_status(end), 3);
    end = ct_exit_of(SIGSEGV | 0x80); /* with a core file */
    cr_assert(end.status == 0 && end.signal == SIGSEGV && !ct_exit_ok(end));
    cr_assert_eq(ct_exit_shell_status(end), 128 + SIGSEGV);
    cr_assert(ct_exit_ok(ct_exit_of(0)));
}

Test(exit, in_one_batch_the_cause_outranks_its_echoes)
{
    static const struct ct_exit ascending[][2] = {
        {{.status = 75}, {.status = 1}},      /* revoked by another's end */
        {{.status = 1}, {.signal = SIGKILL}}, /* a broken pipe's traceback, and who broke it */
        {{.signal = SIGPIPE}, {.status = 3}}, /* lost its reader */
        {{.status = 75}, {.signal = SIGSEGV}}, {{.signal = SIGTERM}, {.signal = SIGABRT}},
    };

    for (size_t i = 0; i < CT_COUNT(ascending); i++)
        cr_assert_lt(ct_exit_blame(ascending[i][0]), ct_exit_blame(ascending[i][1]), "row %zu", i);
}

Test(exit, a_worker_that_was_told_to_stop_may_end_in_few_ways)
{
    static const struct {
        struct ct_exit end;
        int code, signal;
        bool native, scripts; /* is it a stop? */
    } rows[] = {
        {{.status = 0}, 0, SIGTERM, true, true},
        {{.signal = SIGTERM}, 0, SIGTERM, true, true},
        {{.status = 143}, 0, SIGTERM, true, true},
        {{.signal = SIGTERM}, 0, SIGHUP, true, true}, /* ctworker gets SIGTERM for every signal */
        {{.signal = SIGHUP}, 0, SIGHUP, true, true},
        {{.status = 129}, 0, SIGHUP, true, true},
        {{.signal = SIGPIPE}, 0, SIGTERM, true, true},
        {{.signal = SIGINT}, 0, SIGTERM, false, false},
        {{.signal = SIGSEGV}, 0, SIGTERM, false, false},
        {{.signal = SIGSEGV}, 0, SIGINT, false, false},
        {{.signal = SIGKILL}, 0, SIGTERM, false, false},
        {{.status = 139}, 0, SIGTERM, false, false},
        {{.status = 1}, 0, SIGTERM, false, false},
        {{.status = 1}, 0, SIGINT, false, true}, /* KeyboardInterrupt, caught by somebody */
        {{.status = 74}, CT_EIO, SIGINT, false, true},
        {{.status = 75}, 0, SIGTERM, true, false},
        {{.status = 75}, CT_EREVOKED, SIGTERM, true, false},
        {{.status = 75}, CT_ETIMEOUT, SIGTERM, false, false},
        {{.status = 69}, CT_ECLOSED, SIGTERM, true, false},
        {{.status = 69}, CT_ELIMIT, SIGTERM, false, false},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++) {
        cr_assert_eq(ct_exit_is_stop(rows[i].end, rows[i].code, rows[i].signal, true),
                     rows[i].native, "row %zu", i);
        cr_assert_eq(ct_exit_is_stop(rows[i].end, rows[i].code, rows[i].signal, false),
                     rows[i].scripts, "row %zu", i);
    }
}

Test(exit, a_native_worker_that_cannot_succeed_is_not_restarted)
{
    static const int final[] = {2, 65, 66, 73, 77}, passing[] = {0, 1, 69, 70, 71, 74, 75, 76, 137};

    for (size_t i = 0; i < CT_COUNT(final); i++) {
        struct ct_exit end = {.status = final[i]};

        cr_assert(ct_exit_is_final(end, true), "%d", final[i]);
        cr_assert_not(ct_exit_is_final(end, false), "of a script %d may mean anything", final[i]);
    }
    for (size_t i = 0; i < CT_COUNT(passing); i++)
        cr_assert_not(ct_exit_is_final((struct ct_exit){.status = passing[i]}, true));
    cr_assert_not(ct_exit_is_final((struct ct_exit){.signal = 2}, true));
}
