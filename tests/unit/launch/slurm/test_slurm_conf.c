/* Whether slurm.conf says that the cluster has munge. */
#include "slurm/slurm_conf.h"

#include <criterion/criterion.h>
#include <string.h>

TestSuite(slurm_conf, .timeout = 10);

Test(slurm_conf, munge_is_the_default_and_its_socket_is_read_from_auth_info)
{
    static const struct {
        const char *text;
        bool is_munge;
        const char *socket;
    } rows[] = {
        {"", true, ""},
        {"ClusterName=a\nAuthType=auth/munge\n", true, ""},
        {"authtype = AUTH/MUNGE # ours", true, ""},
        {"AuthType=auth/none\n", false, ""},
        {"AuthType=auth/slurm", false, ""},
        {"#AuthType=auth/none\nAuthTypes=auth/none\nAuthType\n", true, ""},
        {"AuthInfo=socket=/run/m/s,cred_expire=5\n", true, "/run/m/s"},
        {"  AuthInfo=cred_expire=5,Socket=/run/m/s\r\n", true, "/run/m/s"},
        {"AuthInfo=cred_expire=5,socket=s,sock", true, ""},
        {"AuthInfo=,socket=", true, ""},
        {"AuthInfo=", true, ""},
    };

    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char socket[CT_SLURM_SOCKET] = "?";

        cr_assert_eq(ct_slurm_conf_munge(rows[i].text, socket), rows[i].is_munge, "%s",
                     rows[i].text);
        cr_assert_str_eq(socket, rows[i].socket, "%s: %s", rows[i].text, socket);
    }
}

Test(slurm_conf, a_socket_whose_path_is_too_long_is_none)
{
    char text[300] = "AuthInfo=socket=/", socket[CT_SLURM_SOCKET];

    memset(text + strlen(text), 'x', 150);
    cr_assert(ct_slurm_conf_munge(text, socket));
    cr_assert_str_eq(socket, "");
}
