/* See slurm_conf.h. */
#include "slurm/slurm_conf.h"

#include <string.h>

/* The value of "Key=value" at `line`, of `size` bytes, blanks around '=' allowed; NULL: another
 * key. */
static const char *value_of(const char *line, size_t size, const char *key, size_t *ret_size)
{
    const char *end = line + size, *at = line + strlen(key);

    if (size <= strlen(key) || strncasecmp(line, key, strlen(key)) != 0)
        return NULL;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    if (at == end || *at != '=')
        return NULL;
    at++;
    while (at < end && (*at == ' ' || *at == '\t'))
        at++;
    *ret_size = 0;
    while (at + *ret_size < end && strchr(" \t\r#", at[*ret_size]) == NULL)
        ++*ret_size;
    return at;
}

/* "cred_expire=5,socket=/run/m": the path. */
static void read_socket(const char *info, size_t size, char ret_socket[CT_SLURM_SOCKET])
{
    static const char name[] = "socket=";

    while (size > 0) {
        const char *comma = memchr(info, ',', size);
        size_t length = comma != NULL ? (size_t)(comma - info) : size;
        size_t path = length - strlen(name);

        if (length > strlen(name) && strncasecmp(info, name, strlen(name)) == 0 &&
            info[strlen(name)] == '/' && path < CT_SLURM_SOCKET) {
            memcpy(ret_socket, info + strlen(name), path);
            ret_socket[path] = '\0';
        }
        size -= length + (comma != NULL);
        info += length + (comma != NULL);
    }
}

bool ct_slurm_conf_munge(const char *text, char ret_socket[CT_SLURM_SOCKET])
{
    static const char munge[] = "auth/munge";
    bool is_munge = true;

    ret_socket[0] = '\0';
    for (const char *line = text; line[0] != '\0';) {
        size_t size, length = strcspn(line, "\n");
        size_t blanks = strspn(line, " \t");

        if (blanks < length) {
            const char *type = value_of(line + blanks, length - blanks, "AuthType", &size);
            if (type != NULL)
                is_munge = size == strlen(munge) && strncasecmp(type, munge, size) == 0;
            const char *info = value_of(line + blanks, length - blanks, "AuthInfo", &size);
            if (info != NULL)
                read_socket(info, size, ret_socket);
        }
        line += length + (line[length] == '\n');
    }
    return is_munge;
}
