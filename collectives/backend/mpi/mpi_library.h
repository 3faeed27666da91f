/* The part of MPI that is used: a library that is loaded at run time, without any MPI's headers.
 *
 * The standard fixes the functions, not their ABI. Two ABIs cover the libraries in use:
 *
 *                          Open MPI                          MPICH and kin (Intel, MVAPICH, Cray)
 *     a handle is          a pointer                         an int
 *     MPI_COMM_WORLD       &ompi_mpi_comm_world              0x44000000
 *     MPI_BYTE             &ompi_mpi_byte                    0x4c00010d
 *     MPI_ERRORS_RETURN    &ompi_mpi_errors_return           0x54000001
 *     MPI_ANY_SOURCE       -1                                -2
 *     MPI_TAG_UB           0                                 0x64400001
 *     loaded with          RTLD_GLOBAL, for its plugins      RTLD_LOCAL
 *     detected by          the symbol ompi_mpi_comm_world    its absence
 *
 * Other differences do not matter: MPI_Status is given room and never read, no other constant is
 * used, and the rest (MPI_ANY_TAG, the levels of threads) is common to both.
 *
 * Only three functions here wait, and their comments say so. One thread calls at a time. All return
 * 0 or MPI's own code, for which `text` has a sentence. */
#ifndef CT_COLL_MPI_LIBRARY_H
#define CT_COLL_MPI_LIBRARY_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

union ct_mpi_handle {
    void *pointer;
    int number;
};

enum { CT_MPI_ANYONE = -1, CT_MPI_ANY_TAG = -1, CT_MPI_TEXT_MAX = 8192 };

struct ct_mpi_message {
    const void *send; /* or */
    void *recv;
    int bytes;
    int peer; /* CT_MPI_ANYONE: from any sender */
    int tag;
    bool synchronous; /* a send that completes only when the receiver has matched it */
};

struct ct_mpi_library {
    void *handle;
    const char *file;
    const struct ct_mpi_abi *abi;
    void *functions; /* of that form */
    union ct_mpi_handle comm;
    bool started; /* here, and so ended here */
};

struct ct_mpi_abi {
    const char *name;

    /* Find the functions and constants. */
    int (*load)(struct ct_mpi_library *lib, struct ct_error *err);

    /* Start MPI unless the program has, and make a communicator of all ranks for this library.
     * Waits. `*ret_level` as MPI_Init_thread gives it: 2 or more lets several threads call in
     * turn. */
    int (*start)(struct ct_mpi_library *lib, int *ret_level);
    int (*place)(const struct ct_mpi_library *lib, int *ret_rank, int *ret_world, int *ret_tag_max);
    /* Gather the `bytes` of all ranks into `all`, by rank. Waits. */
    int (*gather)(const struct ct_mpi_library *lib, const void *own, int bytes, void *all);
    /* Finish MPI. Waits for all ranks. */
    int (*finish)(struct ct_mpi_library *lib);

    int (*post)(const struct ct_mpi_library *lib, const struct ct_mpi_message *message,
                union ct_mpi_handle *ret_request);
    /* Return whether the request is over, which frees it; makes MPI progress. */
    int (*test)(const struct ct_mpi_library *lib, union ct_mpi_handle *request, bool *ret_over);
    /* Cancel a receive, which is then to be tested until it is over. */
    int (*cancel)(const struct ct_mpi_library *lib, union ct_mpi_handle *request);

    /* Match a message with this tag that has arrived: `receive` must follow. */
    int (*find)(const struct ct_mpi_library *lib, int tag, bool *ret_found, int *ret_bytes,
                union ct_mpi_handle *ret_message);
    int (*receive)(const struct ct_mpi_library *lib, union ct_mpi_handle *message, void *data,
                   int bytes, union ct_mpi_handle *ret_request);

    void (*version)(const struct ct_mpi_library *lib, char text[static CT_MPI_TEXT_MAX]);
    void (*text)(const struct ct_mpi_library *lib, int code, char text[static CT_MPI_TEXT_MAX]);
};

/* Load `file`, or, when it is NULL, the first of the usual names that is found, those of Open MPI
 * first if `open_mpi`. It stays loaded until the process ends. 0, or CT_EUNSUPPORTED with a
 * sentence that says what to install. */
int ct_mpi_library_load(struct ct_mpi_library *lib, const char *file, bool open_mpi,
                        struct ct_error *err);

#endif
