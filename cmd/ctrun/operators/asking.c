/* See asking.h. */
#include "asking.h"

#include "base/fs.h"
#include "cmd/ctrun/cli/commands.h"

#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

void asking_put_job(struct ct_cli_options *cli, const char *id, struct ct_buf *job)
{
    if (id == NULL)
        return;
    (void)ct_buf_printf(job, "--rdzv_id=%s", id);
    cli->rest[cli->rest_count++] = (char *)(uintptr_t)ct_buf_str(job);
}

int asking_load(const char *who, struct admin_request *request, int count, char **rest)
{
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    const struct ct_config_input input = {.argc = count, .argv = rest, .env = environ};

    if (errs == NULL)
        return ct_command_fail(who, CT_ENOMEM, "out of memory");
    int rc = ct_config_load(&request->cfg, &input, errs);
    if (rc != 0)
        ct_complain(errs, false);
    free(errs);
    admin_sign(request);
    return ct_exit_status(rc);
}

int asking_print(const char *before, const struct ct_buf *text, struct ct_error *err)
{
    struct ct_buf clean;
    int rc = 0;

    ct_buf_init(&clean, 0);
    (void)ct_buf_puts(&clean, before);
    ct_buf_put_clean(&clean, ct_buf_str(text), "\n\t");
    if (text->failed || clean.failed)
        rc = ct_error_set(err, CT_ENOMEM, "no memory for the answer");
    else if (ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&clean), clean.size) != 0)
        rc = ct_error_set(err, CT_EIO, "cannot write to standard output");
    ct_buf_deinit(&clean);
    return rc;
}
