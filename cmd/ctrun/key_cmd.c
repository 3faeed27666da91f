/* ctrun key new FILE: the secret that the nodes of a job share. */
#include "commands.h"

#include "base/error.h"
#include "net/key.h"

#include <stdio.h>
#include <string.h>

int ct_cmd_key(int argc, char **argv)
{
    struct ct_error err = {0};

    if (argc > 1 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0))
        return puts("usage: ctrun key new FILE     write a new key, which all nodes of a job need "
                    "a copy of, to FILE") < 0;
    if (argc != 3 || strcmp(argv[1], "new") != 0) {
        (void)fputs("ctrun: error: it is `ctrun key new FILE`: write a new key, which all nodes of "
                    "a job need a copy of, to FILE\n",
                    stderr);
        return ct_exit_status(CT_EUSAGE);
    }
    int rc = ct_net_key_new(argv[2], &err);
    if (rc != 0)
        (void)fprintf(stderr, "ctrun: error: %s\n", err.text);
    else
        (void)printf("%s holds a new key; copy it to every node (mode 0600) and give --key_file\n",
                     argv[2]);
    return ct_exit_status(rc);
}
