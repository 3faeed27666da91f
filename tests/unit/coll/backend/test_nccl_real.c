/* The NCCL of this machine, as far as it can be called without a GPU: what backend nccl takes for
 * granted of it. */
#include "backend/nccl/nccl_library.h"
#include "base/assert.h"

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* Sockets that a unique id opens listen on loopback alone. */
static void stay_at_home(void)
{
    setenv("NCCL_SOCKET_IFNAME", "lo", 1);
}

TestSuite(nccl_real, .init = stay_at_home, .timeout = 60);

/* Where it may lie; the first is the loader's own choice. */
static const char *const files[] = {"libnccl.so.2", "/usr/local/cuda/lib64/libnccl.so.2"};

/* False, and the test is skipped: there is none, or one that needs what is not here. */
static bool load(struct ct_nccl_library *lib)
{
    struct ct_error err = {0};
    void *handle = NULL;

    for (size_t i = 0; i < CT_COUNT(files) && handle == NULL; i++) {
        handle = dlopen(files[i], RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
        if (handle != NULL)
            setenv("CTRUN_NCCL", files[i], 1);
    }
    if (handle == NULL)
        return false;
    int code = ct_nccl_library_load(lib, &err);
    cr_assert_eq(code, 0, "%s", err.text);
    return true;
}

Test(nccl_real, is_loaded_with_all_functions_that_its_version_has)
{
    struct ct_nccl_library lib;

    if (!load(&lib))
        cr_skip_test("skipped: libnccl.so.2 is not on this machine");
    cr_assert_gt(lib.version, 21800);
    cr_assert_eq(lib.ncclMemAlloc != NULL, lib.version >= 21901);
    cr_assert_eq(lib.ncclCommInitRankScalable != NULL, lib.version >= 22304);
    cr_assert_eq(lib.ncclCommWindowRegister != NULL, lib.version >= 22703);
    cr_assert_eq(lib.ncclCommWindowDeregister != NULL, lib.version >= 22703);
    cr_assert_eq(lib.ncclCommShrink != NULL, lib.version >= 22703);
    cr_assert_eq(lib.ncclCommRevoke != NULL, lib.version >= 22807);
}

Test(nccl_real, results_have_the_meaning_that_our_names_say)
{
    static const struct {
        enum ct_nccl_result result;
        const char *word;
    } rows[] = {{CT_NCCL_SUCCESS, "no error"},
                {CT_NCCL_UNHANDLED_CUDA_ERROR, "cuda error"},
                {CT_NCCL_SYSTEM_ERROR, "system error"},
                {CT_NCCL_INTERNAL_ERROR, "internal error"},
                {CT_NCCL_INVALID_ARGUMENT, "invalid argument"},
                {CT_NCCL_INVALID_USAGE, "invalid usage"},
                {CT_NCCL_REMOTE_ERROR, "remote process"},
                {CT_NCCL_IN_PROGRESS, "in progress"}};
    struct ct_nccl_library lib;

    if (!load(&lib))
        cr_skip_test("skipped: libnccl.so.2 is not on this machine");
    for (size_t i = 0; i < CT_COUNT(rows); i++)
        cr_assert_not_null(strstr(lib.ncclGetErrorString((int)rows[i].result), rows[i].word),
                           "%d: %s", rows[i].result, lib.ncclGetErrorString((int)rows[i].result));
}

Test(nccl_real, ids_differ_and_need_no_gpu)
{
    struct ct_nccl_id first = {{0}}, second = {{0}}, none = {{0}};
    struct ct_nccl_library lib;

    if (!load(&lib))
        cr_skip_test("skipped: libnccl.so.2 is not on this machine");
    cr_assert_eq(lib.ncclGetUniqueId(&first), (int)CT_NCCL_SUCCESS, "%s",
                 lib.ncclGetLastError(NULL));
    cr_assert_eq(lib.ncclGetUniqueId(&second), (int)CT_NCCL_SUCCESS);
    cr_assert_neq(memcmp(&first, &none, sizeof first), 0);
    cr_assert_neq(memcmp(&first, &second, sizeof first), 0);
}

/* Groups of nothing are fine, and so is to give back nothing: an end calls both. */
Test(nccl_real, nothing_may_be_aborted_and_grouped)
{
    struct ct_nccl_library lib;

    if (!load(&lib))
        cr_skip_test("skipped: libnccl.so.2 is not on this machine");
    cr_assert_eq(lib.ncclCommAbort(NULL), (int)CT_NCCL_SUCCESS);
    cr_assert_eq(lib.ncclCommDestroy(NULL), (int)CT_NCCL_SUCCESS);
    cr_assert_eq(lib.ncclGroupStart(), (int)CT_NCCL_SUCCESS);
    cr_assert_eq(lib.ncclGroupEnd(), (int)CT_NCCL_SUCCESS);
}

/* Backend nccl falls back to staged by it: a sentence and no hang. With a GPU both succeed. */
Test(nccl_real, without_a_gpu_memory_and_communicators_fail_at_once_with_a_sentence)
{
    struct ct_nccl_library lib;
    struct ct_error err = {0};
    void *memory = NULL;

    if (!load(&lib))
        cr_skip_test("skipped: libnccl.so.2 is not on this machine");
    if (lib.ncclMemAlloc == NULL || lib.ncclMemAlloc(&memory, CT_NCCL_WIN_ALIGN) == 0)
        cr_skip_test("skipped: a GPU is here");
    cr_assert_null(memory);
    int code = ct_nccl_error(&lib, NULL, CT_NCCL_UNHANDLED_CUDA_ERROR, "no memory", &err);
    cr_assert_eq(code, CT_EUNAVAILABLE);
    cr_assert_not_null(strstr(err.text, "last: Cuda failure"), "%s", err.text);

    struct ct_nccl_config config = {.size = sizeof config,
                                    .magic = (unsigned)CT_NCCL_CONFIG_MAGIC,
                                    .version = CT_NCCL_CONFIG_VERSION,
                                    .cga_cluster_size = CT_NCCL_UNDEFINED,
                                    .min_ctas = CT_NCCL_UNDEFINED,
                                    .max_ctas = CT_NCCL_UNDEFINED};
    struct ct_nccl_comm *comm = NULL;
    struct ct_nccl_id id;
    cr_assert_eq(lib.ncclGetUniqueId(&id), (int)CT_NCCL_SUCCESS);
    cr_assert_eq(lib.ncclCommInitRankConfig(&comm, 2, id, 0, &config),
                 (int)CT_NCCL_UNHANDLED_CUDA_ERROR);
    cr_assert_null(comm);
}
