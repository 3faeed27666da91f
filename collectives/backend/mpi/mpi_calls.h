/* The calls of MPI in one of its two forms (mpi_library.h): a template, included once for each with
 *
 *   FORM(name)      how its names are made
 *   HANDLE, FIELD   the type of its handles, and where one lies in union ct_mpi_handle
 *   ANY_SOURCE, TAG_UB
 *   CONSTANT(lib, NAME)   a handle that the library comes with: COMM_WORLD, BYTE, ERRORS_RETURN */

#define FUNCTIONS(X)                                                           \
    X(MPI_Initialized, (int *))                                                \
    X(MPI_Init_thread, (int *, char ***, int, int *))                          \
    X(MPI_Query_thread, (int *))                                               \
    X(MPI_Finalize, (void))                                                    \
    X(MPI_Get_library_version, (char *, int *))                                \
    X(MPI_Error_string, (int, char *, int *))                                  \
    X(MPI_Comm_dup, (HANDLE, HANDLE *))                                        \
    X(MPI_Comm_free, (HANDLE *))                                               \
    X(MPI_Comm_set_errhandler, (HANDLE, HANDLE))                               \
    X(MPI_Comm_get_attr, (HANDLE, int, void *, int *))                         \
    X(MPI_Comm_rank, (HANDLE, int *))                                          \
    X(MPI_Comm_size, (HANDLE, int *))                                          \
    X(MPI_Allgather, (const void *, int, HANDLE, void *, int, HANDLE, HANDLE)) \
    X(MPI_Isend, (const void *, int, HANDLE, int, int, HANDLE, HANDLE *))      \
    X(MPI_Issend, (const void *, int, HANDLE, int, int, HANDLE, HANDLE *))     \
    X(MPI_Irecv, (void *, int, HANDLE, int, int, HANDLE, HANDLE *))            \
    X(MPI_Test, (HANDLE *, int *, void *))                                     \
    X(MPI_Cancel, (HANDLE *))                                                  \
    X(MPI_Improbe, (int, int, HANDLE, int *, HANDLE *, void *))                \
    X(MPI_Get_count, (const void *, HANDLE, int *))                            \
    X(MPI_Imrecv, (void *, int, HANDLE, HANDLE *, HANDLE *))

struct FORM(functions) {
    HANDLE world;
    HANDLE byte;
    HANDLE errors_return;
#define MEMBER(name, arguments) int(*name) arguments;
    FUNCTIONS(MEMBER)
#undef MEMBER
};

static const struct FORM(functions) * FORM(of)(const struct ct_mpi_library *lib)
{
    return lib->functions;
}

static int FORM(load)(struct ct_mpi_library *lib, struct ct_error *err)
{
    static const struct symbol symbols[] = {
#define SYMBOL(name, arguments) {#name, offsetof(struct FORM(functions), name)},
        FUNCTIONS(SYMBOL)
#undef SYMBOL
    };
    struct FORM(functions) *mpi = calloc(1, sizeof *mpi);

    lib->functions = mpi;
    if (mpi == NULL)
        return ct_error_set(err, CT_ENOMEM, "no memory for an MPI library");
    mpi->world = CONSTANT(lib, COMM_WORLD);
    mpi->byte = CONSTANT(lib, BYTE);
    mpi->errors_return = CONSTANT(lib, ERRORS_RETURN);
    return find_symbols(lib, symbols, CT_COUNT(symbols), err);
}

static int FORM(start)(struct ct_mpi_library *lib, int *ret_level)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);
    int present = 0, code = mpi->MPI_Initialized(&present);

    if (code == 0 && present != 0)
        code = mpi->MPI_Query_thread(ret_level);
    else if (code == 0)
        code = mpi->MPI_Init_thread(NULL, NULL, SERIALIZED, ret_level);
    lib->started = code == 0 && present == 0;
    if (code == 0)
        code = mpi->MPI_Comm_dup(mpi->world, &lib->comm.FIELD);
    return code == 0 ? mpi->MPI_Comm_set_errhandler(lib->comm.FIELD, mpi->errors_return) : code;
}

static int FORM(place)(const struct ct_mpi_library *lib, int *ret_rank, int *ret_world,
                       int *ret_tag_max)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);
    int code = mpi->MPI_Comm_rank(lib->comm.FIELD, ret_rank), known = 0;
    const int *tag_max = NULL;

    if (code == 0)
        code = mpi->MPI_Comm_size(lib->comm.FIELD, ret_world);
    if (code == 0)
        code = mpi->MPI_Comm_get_attr(lib->comm.FIELD, TAG_UB, (void *)&tag_max, &known);
    *ret_tag_max = code == 0 && known != 0 ? *tag_max : TAG_UB_LEAST;
    return code;
}

static int FORM(gather)(const struct ct_mpi_library *lib, const void *own, int bytes, void *all)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);

    return mpi->MPI_Allgather(own, bytes, mpi->byte, all, bytes, mpi->byte, lib->comm.FIELD);
}

static int FORM(finish)(struct ct_mpi_library *lib)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);
    int code = mpi->MPI_Comm_free(&lib->comm.FIELD);

    return code == 0 && lib->started ? mpi->MPI_Finalize() : code;
}

static int FORM(post)(const struct ct_mpi_library *lib, const struct ct_mpi_message *message,
                      union ct_mpi_handle *ret_request)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);
    int peer = message->peer == CT_MPI_ANYONE ? ANY_SOURCE : message->peer;

    if (message->recv != NULL)
        return mpi->MPI_Irecv(message->recv, message->bytes, mpi->byte, peer, message->tag,
                              lib->comm.FIELD, &ret_request->FIELD);
    return (message->synchronous ? mpi->MPI_Issend : mpi->MPI_Isend)(
        message->send, message->bytes, mpi->byte, peer, message->tag, lib->comm.FIELD,
        &ret_request->FIELD);
}

static int FORM(test)(const struct ct_mpi_library *lib, union ct_mpi_handle *request,
                      bool *ret_over)
{
    struct status status;
    int over = 0, code = FORM(of)(lib)->MPI_Test(&request->FIELD, &over, &status);

    *ret_over = over != 0;
    return code;
}

static int FORM(cancel)(const struct ct_mpi_library *lib, union ct_mpi_handle *request)
{
    return FORM(of)(lib)->MPI_Cancel(&request->FIELD);
}

static int FORM(find)(const struct ct_mpi_library *lib, int tag, bool *ret_found, int *ret_bytes,
                      union ct_mpi_handle *ret_message)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);
    struct status status;
    int found = 0;
    int code =
        mpi->MPI_Improbe(ANY_SOURCE, tag, lib->comm.FIELD, &found, &ret_message->FIELD, &status);

    *ret_found = code == 0 && found != 0;
    return *ret_found ? mpi->MPI_Get_count(&status, mpi->byte, ret_bytes) : code;
}

static int FORM(receive)(const struct ct_mpi_library *lib, union ct_mpi_handle *message, void *data,
                         int bytes, union ct_mpi_handle *ret_request)
{
    const struct FORM(functions) *mpi = FORM(of)(lib);

    return mpi->MPI_Imrecv(data, bytes, mpi->byte, &message->FIELD, &ret_request->FIELD);
}

static void FORM(version)(const struct ct_mpi_library *lib, char text[static CT_MPI_TEXT_MAX])
{
    int length = 0;

    if (FORM(of)(lib)->MPI_Get_library_version(text, &length) != 0)
        length = 0;
    text[length] = '\0';
}

static void FORM(text)(const struct ct_mpi_library *lib, int code,
                       char text[static CT_MPI_TEXT_MAX])
{
    int length = 0;

    if (FORM(of)(lib)->MPI_Error_string(code, text, &length) != 0)
        length = 0;
    text[length] = '\0';
}

#undef FUNCTIONS
