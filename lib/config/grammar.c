/* Texts with a grammar of their own; see config.h. */
#include "config/config.h"

#include "base/error.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>

/* The N at the start of `text`, ended by a comma or the end; -1 for anything else. */
static int stream_bits(const char *text)
{
    bool good = text[0] >= '0' && text[0] <= '3' && (text[1] == '\0' || text[1] == ',');

    return good ? text[0] - '0' : -1;
}

int ct_config_streams(const char *spec, int64_t local_rank)
{
    int bits = 0;

    if (strchr(spec, ':') == NULL)
        return stream_bits(spec) >= 0 && spec[1] == '\0' ? stream_bits(spec) : CT_EUSAGE;
    for (const char *at = spec;;) {
        char digits[20];
        size_t length = strspn(at, "0123456789");
        int64_t rank;

        if (length >= sizeof digits || at[length] != ':')
            return CT_EUSAGE;
        (void)snprintf(digits, sizeof digits, "%.*s", (int)length, at);
        at += length + 1;
        if (ct_parse_i64(digits, &rank) != 0 || stream_bits(at) < 0)
            return CT_EUSAGE;
        if (rank == local_rank)
            bits = stream_bits(at);
        if (at[1] == '\0')
            return bits;
        at += 2;
    }
}

int ct_config_factor(const char *text, char ret_pattern[CT_CONFIG_PATTERN_SIZE], double *ret_factor)
{
    enum { MOST = 1000 };
    const char *equals = strrchr(text, '=');
    size_t length = equals != NULL ? (size_t)(equals - text) : 0;
    double factor;

    if (length == 0 || length >= CT_CONFIG_PATTERN_SIZE || ct_parse_f64(equals + 1, &factor) != 0 ||
        factor < 0 || factor > MOST)
        return CT_EUSAGE;
    memcpy(ret_pattern, text, length);
    ret_pattern[length] = '\0';
    *ret_factor = factor;
    return 0;
}
