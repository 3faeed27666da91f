/* See endpoint.h. */
#include "net/endpoint.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

static int parse_unix(const char *path, struct ct_endpoint *ret_endpoint, struct ct_error *err)
{
    struct ct_endpoint endpoint = {.is_unix = true};

    if (path[0] == '\0')
        return ct_error_set(err, CT_EUSAGE, "endpoint unix: names no path");
    if (!ct_str_copy(endpoint.path, sizeof(endpoint.path), path))
        return ct_error_set(err, CT_EUSAGE, "socket path %s is longer than the %d bytes that fit",
                            path, CT_ENDPOINT_PATH - 1);
    *ret_endpoint = endpoint;
    return 0;
}

static int parse_port(const char *text, const char *port, struct ct_endpoint *endpoint,
                      struct ct_error *err)
{
    uint64_t value;

    if (ct_parse_u64(port, &value) != 0 || value > UINT16_MAX)
        return ct_error_set(err, CT_EUSAGE, "endpoint %s: port \"%s\" is no number from 0 to 65535",
                            text, port);
    endpoint->port = (uint16_t)value;
    return 0;
}

/* Split "host:port", "[v6]:port", "host"; `*ret_port` is NULL when there is none. */
static int split(const char *text, struct ct_endpoint *endpoint, const char **ret_port,
                 struct ct_error *err)
{
    const char *host = text, *end, *rest;

    if (text[0] == '[') {
        host = text + 1;
        end = strchr(host, ']');
        if (end == NULL || (end[1] != '\0' && end[1] != ':'))
            return ct_error_set(err, CT_EUSAGE, "endpoint %s: write [address]:port", text);
        rest = end + 1;
    } else {
        end = rest = host + strcspn(host, ":");
        if (*rest == ':' && strchr(rest + 1, ':') != NULL)
            return ct_error_set(err, CT_EUSAGE,
                                "endpoint %s: write an IPv6 address in brackets, [address]:port",
                                text);
    }
    if (end - host == 1 && *host == '*')
        host = end;
    if ((size_t)(end - host) >= sizeof(endpoint->host))
        return ct_error_set(err, CT_EUSAGE, "endpoint %s: the host name is too long", text);
    memcpy(endpoint->host, host, (size_t)(end - host));
    *ret_port = *rest == ':' ? rest + 1 : NULL;
    return 0;
}

int ct_endpoint_parse(const char *text, int default_port, struct ct_endpoint *ret_endpoint,
                      struct ct_error *err)
{
    struct ct_endpoint endpoint = {.port = (uint16_t)(default_port > 0 ? default_port : 0)};
    const char *port = NULL;

    if (ct_starts_with(text, "unix:"))
        return parse_unix(text + 5, ret_endpoint, err);
    if (text[0] == '/')
        return parse_unix(text, ret_endpoint, err);
    if (text[0] == '\0')
        return ct_error_set(err, CT_EUSAGE, "an endpoint is empty: write HOST:PORT");
    int code = split(text, &endpoint, &port, err);
    if (code == 0 && port == NULL && default_port < 0)
        code = ct_error_set(err, CT_EUSAGE, "endpoint %s names no port: write HOST:PORT", text);
    if (code == 0 && port != NULL)
        code = parse_port(text, port, &endpoint, err);
    if (code == 0)
        *ret_endpoint = endpoint;
    return code;
}

const char *ct_endpoint_print(const struct ct_endpoint *endpoint, char text[CT_ENDPOINT_TEXT])
{
    const char *host = endpoint->host[0] != '\0' ? endpoint->host : "*";

    if (endpoint->is_unix)
        snprintf(text, CT_ENDPOINT_TEXT, "unix:%s", endpoint->path);
    else if (strchr(host, ':') != NULL)
        snprintf(text, CT_ENDPOINT_TEXT, "[%s]:%u", host, endpoint->port);
    else
        snprintf(text, CT_ENDPOINT_TEXT, "%s:%u", host, endpoint->port);
    return text;
}

void ct_endpoint_next(const char **list, char one[CT_ENDPOINT_TEXT])
{
    size_t size = strcspn(*list, ",");

    (void)snprintf(one, CT_ENDPOINT_TEXT, "%.*s", (int)CT_MIN(size, (size_t)CT_ENDPOINT_TEXT),
                   *list);
    *list += size + ((*list)[size] == ',');
}
