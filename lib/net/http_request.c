/* See http_request.h. */
#include "net/http_request.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* The value of a header field, without blanks in front; NULL: it is not there. `line` is the end of
 * the line before, `head_end` the blank line. */
static const char *find_field(const char *line, const char *head_end, const char *name)
{
    size_t length = strlen(name);

    for (; line != NULL && line < head_end; line = strstr(line + 2, "\r\n"))
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 3 + length + strspn(line + 3 + length, " \t");
    return NULL;
}

/* "127.0.0.1:9100", "[::1]:9100", "localhost": no name that its owner can make point anywhere. */
static bool is_own_name(const char *host)
{
    size_t length = host != NULL ? strcspn(host, "\r") : 0;

    if (length >= 9 && strncasecmp(host, "localhost", 9) == 0 &&
        (length == 9 || host[9] == ':' || host[9] == ' '))
        return true;
    return length == 0 || strspn(host, "0123456789.:") >= length || host[0] == '[';
}

/* The size of the body: "Content-Length", without which there is no POST. 0, or the status. */
static int read_length(const char *field, size_t room, size_t *ret_size)
{
    size_t digits = field != NULL ? strspn(field, "0123456789") : 0;

    *ret_size = 0;
    if (field == NULL)
        return 411;
    if (digits == 0 || (field[digits] != '\r' && field[digits] != ' '))
        return 400;
    for (size_t i = 0; i < digits; i++) {
        *ret_size = *ret_size * 10 + (size_t)(field[i] - '0');
        if (*ret_size > room)
            return 413;
    }
    return 0;
}

static bool is_admitted(const struct ct_http_rules *rules, const char *authorization)
{
    char token[CT_WEB_TOKEN_MAX + 1];

    if (rules->admits == NULL)
        return true;
    size_t size = ct_web_token(authorization, token);
    bool is_in = rules->admits(rules->context, token, size);
    explicit_bzero(token, sizeof token);
    return is_in;
}

int ct_http_parse(char *text, size_t size, const struct ct_http_rules *rules,
                  struct ct_http_request *ret_request)
{
    char *line_end = strstr(text, "\r\n"), *head_end = strstr(text, "\r\n\r\n");
    char *path = strchr(text, ' ');
    char *version = path != NULL && path < line_end ? strchr(path + 1, ' ') : NULL;
    bool is_post = ct_starts_with(text, "POST ");
    size_t body_size = 0;

    if (head_end == NULL || version == NULL || version > line_end || path[1] != '/' ||
        !ct_starts_with(version + 1, "HTTP/1."))
        return 400;
    if (!ct_starts_with(text, "GET ") && !(is_post && rules->may_post))
        return 405;
    if (!rules->any_host && !is_own_name(find_field(line_end, head_end, "Host")))
        return 421;
    if (!is_admitted(rules, find_field(line_end, head_end, "Authorization")))
        return 401;
    char *body = head_end + 4;
    if (is_post) {
        int status = read_length(find_field(line_end, head_end, "Content-Length"),
                                 rules->room - (size_t)(body - text), &body_size);
        if (status != 0)
            return status;
    }
    if (body_size > size - (size_t)(body - text))
        return 0;
    const char *last_event = find_field(line_end, head_end, "Last-Event-ID");
    *ret_request = (struct ct_http_request){
        .path = path + 1,
        .last_event = last_event != NULL ? strtoull(last_event, NULL, 10) : 0,
        .body = is_post ? body : NULL,
        .body_size = body_size,
    };
    *version = '\0';
    path[1 + strcspn(path + 1, "?#")] = '\0';
    return 200;
}

const char *ct_http_reason(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {411, "Length Required"},
        {413, "Content Too Large"},
        {421, "Misdirected Request"},
        {431, "Request Header Fields Too Large"},
        {500, "Internal Server Error"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
    };

    for (size_t i = 0; i < CT_COUNT(reasons); i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}
