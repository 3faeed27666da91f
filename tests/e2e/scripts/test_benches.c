/* Benchmarks that cannot flatter: what they compare with must be worth it. */
#include "e2e.h"

#include <criterion/criterion.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

TestSuite(benches, .init = e2e_enter, .fini = e2e_leave, .timeout = 120);

/* Debian's reference BLAS, some thirty times slower than a core; the test is skipped without it. */
static const char *reference_blas(char *room, size_t size)
{
    glob_t found = {0};

    if (glob("/usr/lib/*/blas/libblas.so.3", 0, NULL, &found) == 0)
        (void)snprintf(room, size, "LD_LIBRARY_PATH=%.*s",
                       (int)(strrchr(found.gl_pathv[0], '/') - found.gl_pathv[0]),
                       found.gl_pathv[0]);
    globfree(&found);
    return room[0] != '\0' ? room : NULL;
}

Test(benches, a_peer_with_a_weak_blas_is_refused_unless_it_is_asked_for)
{
    char blas[256] = "", build[512];
    const char *const env[] = {reference_blas(blas, sizeof blas), "TEST_TORCH=/usr/bin/python3",
                               NULL};
    const char *peers = e2e_in_root("scripts/bench/peers.py");
    const char *const torch[] = {"/usr/bin/python3", "-c", "import torch", NULL};
    struct proc run;

    (void)snprintf(build, sizeof build, "%s/..", getenv("TEST_PROGRAMS"));
    const char *const argv[] = {peers, build, NULL};
    const char *const weak[] = {peers, "--weak-peer", build, NULL};
    (void)snprintf(build + strlen(build), sizeof build - strlen(build), "/bench/gemm");
    bool has_gemm = access(build, X_OK) == 0;
    *strstr(build, "/bench/gemm") = '\0';
    if (env[0] == NULL || !has_gemm || proc_run(&run, torch, NULL, 60) != 0)
        cr_skip_test("skipped: needs PyTorch, libblas3 and a release build's bench/gemm");
    proc_free(&run);
    cr_assert_eq(proc_run(&run, argv, env, 60), 1, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "it has a weak BLAS");
    e2e_said(&run, "--weak-peer");
    cr_assert_eq(e2e_count(ct_buf_str(&run.text), "\n"), 1, "%s", ct_buf_str(&run.text));
    proc_free(&run);
    cr_assert_eq(proc_run(&run, weak, env, 60), 0, "%s", ct_buf_str(&run.text));
    e2e_said(&run, "WEAK PEER");
    e2e_said(&run, ", ctrun ");
    proc_free(&run);
}
