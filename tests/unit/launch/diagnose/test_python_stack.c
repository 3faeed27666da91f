/* Stacks of Python, as py-spy and faulthandler print them: where the user's code is, and in which
 * collective. */
#include "diagnose/python_stack.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

TestSuite(python_stack, .timeout = 30);

#define C10D "/usr/lib/python3/dist-packages/torch/distributed/distributed_c10d.py"

static const char of_spy[] = "Process 4711: python3 -u train.py\n"
                             "Python v3.11.2 (/usr/bin/python3.11)\n"
                             "\n"
                             "Thread 4720 (idle): \"Thread-1 (watch)\"\n"
                             "    wait (/usr/lib/python3.11/threading.py:320)\n"
                             "    watch (/home/me/monitor.py:7)\n"
                             "Thread 4711 (idle): \"MainThread\"\n"
                             "    wait (" C10D ":99)\n"
                             "    all_reduce (" C10D ":1320)\n"
                             "    step (/home/me/my (own) train.py:31)\n"
                             "    <module> (/home/me/train.py:50)\n";

static const char of_handler[] = "a line of the program\n"
                                 "Fatal Python error: Aborted\n"
                                 "\n"
                                 "Thread 0x00007f10aa5a1740 (most recent call first):\n"
                                 "  File \"/usr/lib/python3.11/threading.py\", line 327 in wait\n"
                                 "  File \"/home/me/monitor.py\", line 7 in watch\n"
                                 "\n"
                                 "Current thread 0x00007f10b35a1740 (most recent call first):\n"
                                 "  File \"" C10D "\", line 3328 in barrier\n"
                                 "  File \"/home/me/train.py\", line 44 in main\n"
                                 "  File \"/home/me/train.py\", line 50 in <module>\n"
                                 "\n"
                                 "Extension modules: numpy.core._multiarray_umath (total: 1)\n";

static struct ct_python_place find(const char *text, int pid)
{
    struct ct_python_place place = {.known = false};

    cr_assert(ct_python_place_find(text, pid, &place), "%s", text);
    return place;
}

Test(python_stack, the_main_threads_innermost_line_of_the_user_is_the_place)
{
    struct ct_python_place place = find(of_spy, 4711);

    cr_assert_str_eq(place.file, "/home/me/my (own) train.py");
    cr_assert_eq(place.line, 31);
    cr_assert_str_eq(place.function, "step");
    cr_assert_str_eq(place.call, "all_reduce", "the call that the user knows");
}

Test(python_stack, an_aborted_programs_stack_is_read_behind_other_output)
{
    struct ct_python_place place = find(of_handler, 4711);

    cr_assert_str_eq(place.file, "/home/me/train.py");
    cr_assert_eq(place.line, 44);
    cr_assert_str_eq(place.call, "barrier");
}

Test(python_stack, calls_are_known_by_their_public_names)
{
    static const struct {
        const char *frames, *call;
    } cases[] = {
        {"    wait (/x/site-packages/torch/distributed/distributed_c10d.py:1)\n"
         "    all_gather (/x/site-packages/torch/distributed/distributed_c10d.py:2)\n"
         "    wrapper (/x/site-packages/torch/distributed/c10d_logger.py:3)\n"
         "    all_gather_object (/x/site-packages/torch/distributed/distributed_c10d.py:4)\n",
         "all_gather_object"},
        {"    _run_backward (/x/site-packages/torch/autograd/graph.py:1)\n"
         "    backward (/x/site-packages/torch/autograd/__init__.py:2)\n"
         "    backward (/x/site-packages/torch/_tensor.py:3)\n",
         "backward"},
        {"    rendezvous (/x/site-packages/torch/distributed/rendezvous.py:1)\n", "rendezvous"},
        {"    get (/usr/lib/python3.11/queue.py:1)\n"
         "    __next__ (/x/site-packages/torch/utils/data/dataloader.py:2)\n",
         ""},
        {"", ""},
    };

    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        char text[1024];

        (void)snprintf(text, sizeof text,
                       "Process 7: x\nThread 7 (idle): \"MainThread\"\n%s    f (/h/a.py:9)\n"
                       "    wrapper (/x/site-packages/torch/distributed/elastic/errors.py:5)\n"
                       "    <module> (/h/a.py:20)\n",
                       cases[i].frames);
        struct ct_python_place place = find(text, 7);
        cr_assert_str_eq(place.call, cases[i].call);
        cr_assert_eq(place.line, 9);
    }
}

Test(python_stack, without_a_line_of_the_user_the_innermost_one_is_told)
{
    struct ct_python_place place = find("Process 7: python -m x\nThread 7 (active)\n"
                                        "    select (/usr/lib/python3.11/selectors.py:468)\n"
                                        "    serve (/x/site-packages/server.py:2)\n"
                                        "    <module> (<frozen runpy>:88)\n",
                                        7);

    cr_assert_str_eq(place.file, "/usr/lib/python3.11/selectors.py");
    cr_assert_eq(place.line, 468);
}

/* A forked child has the stack of its parent below its own. */
Test(python_stack, a_childs_place_is_what_it_does_since_its_birth)
{
    static const char text[] = "Process 7: python train.py\n"
                               "Thread 7 (idle): \"MainThread\"\n"
                               "    _try_get_data (/x/site-packages/torch/dataloader.py:1)\n"
                               "    main (/h/train.py:9)\n"
                               "\tProcess 8: ignored, it is not a header\n"
                               "Process 8: python train.py\n"
                               "Thread 8 (idle): \"MainThread\"\n"
                               "    get (/usr/lib/python3.11/multiprocessing/queues.py:103)\n"
                               "    _worker_loop (/x/site-packages/torch/worker.py:10)\n"
                               "    _bootstrap (/usr/lib/python3.11/multiprocessing/process.py:1)\n"
                               "    main (/h/train.py:9)\n"
                               "Process 9: python train.py\n"
                               "Thread 9 (idle): \"MainThread\"\n"
                               "    __getitem__ (/h/data.py:30)\n"
                               "    _worker_loop (/x/site-packages/torch/worker.py:11)\n"
                               "    _bootstrap (/usr/lib/python3.11/multiprocessing/process.py:1)\n"
                               "    main (/h/train.py:9)\n";
    struct ct_python_place place;

    cr_assert_eq(ct_python_child_find(text, 7, &place), 9);
    cr_assert_str_eq(place.file, "/h/data.py");
    cr_assert_eq(place.line, 30);
    cr_assert_eq(find(text, 7).line, 9);
    cr_assert_eq(ct_python_child_find(of_spy, 4711, &place), 0);
}

Test(python_stack, strangers_text_gives_short_printable_places_or_none)
{
    static const char *const none[] = {
        "",
        "\n\n",
        "    (:)",
        "    f (:1)",
        "    f (a.py:)",
        "    f (a.py:1x)",
        "    f (a.py:12345678901234567890)",
        "  File \"",
        "  File \"a.py\", line x in f",
        "  File \"a.py\", line 3",
        "  File \"\", line 3 in f",
        "Process 8: of another\n    f (a.py:1)",
        "Process 99999999999: x",
        "Process",
    };
    struct ct_python_place place;
    char text[2000];

    for (size_t i = 0; i < CT_COUNT(none); i++)
        cr_assert(!ct_python_place_find(none[i], 7, &place), "%s", none[i]);
    memset(text, 'x', sizeof text);
    memcpy(text, "    \033[31mf (/", 12);
    memcpy(text + sizeof text - 10, "/a\tb.py:1)", 10);
    text[sizeof text - 1] = ')';
    char ended[sizeof text + 1];
    memcpy(ended, text, sizeof text);
    ended[sizeof text] = '\0';
    place = find(ended, 7);
    cr_assert_lt(strlen(place.file), sizeof place.file);
    cr_assert(strstr(place.file, "/a?b.py") != NULL, "%s", place.file);
    cr_assert_null(strchr(place.function, '\033'));
}
