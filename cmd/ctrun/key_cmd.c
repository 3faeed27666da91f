/* ctrun key new FILE: the secret that the nodes of a job share. */
#include "cli/commands.h"

#include "base/error.h"
#include "net/key.h"

#include <stdio.h>
#include <string.h>

int ct_cmd_key(int argc, char **argv)
{
    struct ct_error err = {0};

    if (argc != 3 || strcmp(argv[1], "new") != 0)
        return ct_command_fail("ctrun key", CT_EUSAGE,
                               "usage: ctrun key new FILE (copy the file to every node)");
    int rc = ct_net_key_new(argv[2], &err);
    if (rc != 0)
        return ct_command_fail("ctrun", rc, err.text);
    (void)printf("%s holds a new key; copy it to every node (mode 0600) and give --key_file\n",
                 argv[2]);
    return 0;
}
