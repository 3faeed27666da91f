/* Failures that repeat: where one happened, and whether a job gets on between two of them. */
#include "launch/failure/repeats.h"

#include "base/assert.h"
#include "base/error.h"

#include <criterion/criterion.h>
#include <signal.h>

TestSuite(repeats, .timeout = 30);

static uint64_t place_of(const struct ct_wire_failure *failure, const char *words)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    uint64_t place = ct_repeats_place(failure, &text);
    cr_assert_str_eq(ct_buf_str(&text), words);
    cr_assert_neq(place, 0);
    ct_buf_deinit(&text);
    return place;
}

static void at(const char *text, const char *words)
{
    const struct ct_wire_failure failure = {.rank = 1, .status = 1, .text = text};

    (void)place_of(&failure, words);
}

Test(repeats, a_traceback_s_last_line_of_the_user_is_the_place)
{
    at("Traceback (most recent call last):\n"
       "  File \"/h/train.py\", line 50, in <module>\n"
       "    main()\n"
       "  File \"/h/train.py\", line 31, in main\n"
       "    loss.backward()\n"
       "  File \"/x/site-packages/torch/_tensor.py\", line 487, in backward\n"
       "    torch.autograd.backward(\n"
       "RuntimeError: at step 17 something is wrong\n"
       "and more of it\n",
       "/h/train.py:31 (RuntimeError)");
    at("[rank1]: Traceback (most recent call last):\n"
       "[rank1]:   File \"/h/train.py\", line 31, in main\n"
       "[rank1]:     x()\n"
       "[rank1]: torch.OutOfMemoryError: CUDA out of memory\n",
       "/h/train.py:31 (torch.OutOfMemoryError)");
    at("  File \"/x/site-packages/a.py\", line 1, in f\n"
       "  File \"/x/site-packages/b.py\", line 2, in g\n"
       "KeyError: 3\n",
       "/x/site-packages/b.py:2 (KeyError)");
}

Test(repeats, of_chained_exceptions_the_last_is_the_place)
{
    at("Traceback (most recent call last):\n"
       "  File \"/h/a.py\", line 1, in f\n"
       "ValueError: one\n"
       "\n"
       "During handling of the above exception, another exception occurred:\n"
       "\n"
       "Traceback (most recent call last):\n"
       "  File \"/x/site-packages/b.py\", line 2, in g\n"
       "  File \"/h/c.py\", line 3, in h\n"
       "KeyError: 'x'\n",
       "/h/c.py:3 (KeyError)");
}

Test(repeats, without_a_traceback_the_end_and_the_last_line_are_the_place)
{
    struct ct_wire_failure failure = {
        .rank = 2, .status = 7, .text = "a\nstep 120: lost 3 of 16\n"};

    uint64_t before = place_of(&failure, "status 7 of rank 2, step #: lost # of #");
    failure.text = "b\nstep 99: lost 12 of 16";
    cr_assert_eq(place_of(&failure, "status 7 of rank 2, step #: lost # of #"), before);
    failure.rank = 3;
    cr_assert_neq(place_of(&failure, "status 7 of rank 3, step #: lost # of #"), before);
    failure.text = "";
    failure.signal = SIGSEGV;
    (void)place_of(&failure, "signal 11 of rank 3");
    failure.signal = SIGKILL;
    cr_assert_eq(ct_repeats_place(&failure, NULL), 0, "anybody may have sent it, anywhere");
}

Test(repeats, a_hang_s_place_is_in_its_sentence)
{
    struct ct_wire_failure failure = {
        .rank = 1,
        .signal = SIGKILL,
        .code = CT_EHUNG,
        .text = "rank 1 (host b, pid 9) hangs in barrier at /h/t.py:61 (train); no sign of life"};

    uint64_t place = place_of(&failure, "/h/t.py:61 (a hang)");
    failure.text = "rank 3 (host c, pid 7) hangs at /h/t.py:61 (train); no sign of life for 3 s";
    cr_assert_eq(place_of(&failure, "/h/t.py:61 (a hang)"), place);
    failure.text = "rank 1 (host b, pid 9) hangs outside any collective";
    (void)place_of(&failure, "signal 9 of rank 1, rank # (host b, pid #) hangs outside any "
                             "collective");
}

Test(repeats, strangers_text_is_a_place_that_can_be_printed)
{
    at("  File \"\", line 3, in f", "status 1 of rank 1,   File \"\", line #, in f");
    at("  File \"a\033.py\", line 3", "a\\x1b.py:3");
    at("  File \"a.py\", line ", "status 1 of rank 1,   File \"a.py\", line ");
    at("\n\n\n", "status 1 of rank 1");
}

Test(repeats, the_count_begins_anew_when_the_job_got_further)
{
    struct ct_repeats repeats = {.place = 0};

    for (int i = 0; i < 3; i++)
        cr_assert_not(ct_repeats_note(&repeats, 5, 40000, 0, 3));
    cr_assert(ct_repeats_note(&repeats, 5, 41000, 0, 3));
    cr_assert_not(ct_repeats_note(&repeats, 5, 100000, 0, 3), "more than twice as long");
    cr_assert_eq(repeats.count, 1);
    cr_assert_not(ct_repeats_note(&repeats, 5, CT_REPEATS_LONG_MS + 1, 0, 1));
    cr_assert_not(ct_repeats_note(&repeats, 5, 1000, 9, 1), "a later step");
    cr_assert(ct_repeats_note(&repeats, 5, 1000, 9, 1));
    cr_assert(ct_repeats_note(&repeats, 5, 1000, 4, 1), "from an older checkpoint, to less");
    cr_assert_not(ct_repeats_note(&repeats, 6, 1000, 4, 1), "elsewhere");
    cr_assert_not(ct_repeats_note(&repeats, 0, 1000, 4, 1), "nobody knows where");
    cr_assert_not(ct_repeats_note(&repeats, 0, 1000, 4, 1));
}
