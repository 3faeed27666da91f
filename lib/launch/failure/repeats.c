/* See repeats.h. */
#include "launch/failure/repeats.h"

#include "base/assert.h"
#include "base/error.h"
#include "base/number/hash.h"
#include "launch/failure/python_file.h"

#include <ctype.h>
#include <string.h>

/* Linux's numbers, without the header that knows processes. */
enum { HANGUP = 1, INTERRUPT = 2, KILL = 9, TERMINATE = 15 };

/* A part of the text. */
struct span {
    const char *at;
    size_t size;
};

/* The name of an exception at the front of a line, as in "[rank1]: ValueError: a banana". */
static struct span read_exception(const char *line, size_t size)
{
    const char *end = line + size;
    size_t count = 0;

    if (size > 0 && *line == '[') {
        const char *behind = memmem(line, size, "]: ", 3);
        line = behind != NULL ? behind + 3 : line;
    }
    while (line + count < end &&
           (isalnum((unsigned char)line[count]) || line[count] == '.' || line[count] == '_'))
        count++;
    bool is_name =
        count > 0 && isalpha((unsigned char)*line) && (line + count == end || line[count] == ':');
    return (struct span){line, is_name ? count : 0};
}

/* The last traceback's innermost frame of the user's code, else its innermost one, and what was
 * raised. False: there is no traceback. */
static bool print_traceback(const char *text, struct ct_buf *to)
{
    struct ct_python_line place = {.file = NULL}, found;
    struct span raised = {NULL, 0}, name;
    bool own = false, in_frames = false;

    while (*text != '\0') {
        size_t size = strcspn(text, "\n");

        if (ct_python_line_find(text, size, &found)) {
            bool is_own = !ct_python_is_library(found.file, found.file_size);

            own = own && in_frames; /* a new traceback begins anew */
            if (!in_frames || is_own || !own) {
                place = found;
                own = is_own;
            }
            in_frames = true;
            raised.size = 0;
        } else if (in_frames && (name = read_exception(text, size)).size > 0) {
            raised = name;
            in_frames = false;
        }
        text += size + (text[size] == '\n');
    }
    if (place.file == NULL)
        return false;
    (void)ct_buf_printf(to, "%.*s:%.*s", (int)place.file_size, place.file, (int)place.digit_count,
                        place.digits);
    if (raised.size > 0)
        (void)ct_buf_printf(to, " (%.*s)", (int)raised.size, raised.at);
    return true;
}

/* " at /home/me/train.py:31 (" of the sentence on a hang. */
static bool print_hang(const struct ct_wire_failure *failure, struct ct_buf *to)
{
    const char *hangs = strstr(failure->text, " hangs");
    const char *at = hangs != NULL ? strstr(hangs, " at ") : NULL;
    const char *end = at != NULL ? strstr(at + strlen(" at "), " (") : NULL;

    if (failure->code != CT_EHUNG || end == NULL)
        return false;
    (void)ct_buf_printf(to, "%.*s (a hang)", (int)(end - at - 4), at + 4);
    return true;
}

/* Its end and its last line: where it has numbers, one # each. */
static void print_end(const struct ct_wire_failure *failure, struct ct_buf *to)
{
    const char *text = failure->text, *end = text + strlen(text);

    (void)ct_buf_printf(to, "%s %d of rank %d", failure->signal != 0 ? "signal" : "status",
                        failure->signal != 0 ? failure->signal : failure->status, failure->rank);
    while (end > text && end[-1] == '\n')
        end--;
    const char *line = end;
    while (line > text && line[-1] != '\n')
        line--;
    if (line < end)
        (void)ct_buf_puts(to, ", ");
    for (; line < end; line++) {
        bool is_digit = isdigit((unsigned char)*line);

        if (!is_digit || line[1] == '\0' || !isdigit((unsigned char)line[1]))
            (void)ct_buf_append(to, is_digit ? "#" : line, 1);
    }
}

/* Has somebody else ended it? */
static bool is_from_outside(const struct ct_wire_failure *failure)
{
    static const int signals[] = {HANGUP, INTERRUPT, KILL, TERMINATE};

    for (size_t i = 0; i < CT_COUNT(signals); i++)
        if (failure->signal == signals[i] && failure->code != CT_EHUNG)
            return true;
    return false;
}

uint64_t ct_repeats_place(const struct ct_wire_failure *failure, struct ct_buf *to)
{
    struct ct_buf words;

    if (is_from_outside(failure))
        return 0;
    ct_buf_init(&words, 0);
    if (!print_hang(failure, &words) && !print_traceback(failure->text, &words))
        print_end(failure, &words);
    uint64_t place = ct_hash_str(ct_buf_str(&words));
    ct_buf_put_clean(to, ct_buf_str(&words), "");
    ct_buf_deinit(&words);
    return CT_MAX(place, UINT64_C(1));
}

bool ct_repeats_note(struct ct_repeats *repeats, uint64_t place, uint64_t ran_ms, uint64_t step,
                     uint32_t limit)
{
    bool is_further = step > repeats->step || ran_ms > CT_REPEATS_LONG_MS ||
                      ran_ms > 2 * repeats->longest_ms + CT_REPEATS_SLACK_MS;

    if (place == 0 || place != repeats->place || is_further) {
        *repeats = (struct ct_repeats){
            .place = place, .count = 1, .longest_ms = ran_ms, .step = CT_MAX(step, repeats->step)};
        return false;
    }
    repeats->count++;
    repeats->longest_ms = CT_MAX(repeats->longest_ms, ran_ms);
    return limit > 0 && repeats->count > limit;
}
