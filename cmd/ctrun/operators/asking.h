/* What the subcommands have in common that ask a running job: status and the orders, events,
 * flight, logs. */
#ifndef CT_CTRUN_ASKING_H
#define CT_CTRUN_ASKING_H

#include "admin_uv.h"
#include "cmd/ctrun/cli/cli_options.h"

/* Put --job ID, if it was given (not NULL), behind cli->rest as "--rdzv_id=ID", whose text `job`
 * holds. */
void asking_put_job(struct ct_cli_options *cli, const char *id, struct ct_buf *job);

/* Read the options that say where the job is, and sign the request. 0, or the exit status after the
 * complaint of `who` ("ctrun status"); request->cfg is to be freed in either case. */
int asking_load(const char *who, struct admin_request *request, int count, char **rest);

/* Print `text` behind `before`, which is printed as it is. Nodes and programs name things as they
 * like: nothing of the text drives the terminal. 0, or CT_ENOMEM or CT_EIO with the sentence. */
int asking_print(const char *before, const struct ct_buf *text, struct ct_error *err);

#endif
