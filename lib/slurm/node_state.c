/* See node_state.h. */
#include "slurm/node_state.h"

#include <stdio.h>
#include <string.h>

enum { STATE_BYTES = 64 };

/* The value of "key=" in a line, up to the next blank: its length, 0 when there is none. */
static size_t value_of(const char *line, size_t size, const char *key, const char **ret_value)
{
    size_t length = strlen(key);

    for (size_t at = 0; at + length < size; at++) {
        if (strncmp(line + at, key, length) != 0 || (at > 0 && line[at - 1] != ' '))
            continue;
        *ret_value = line + at + length;
        return strcspn(*ret_value, " \n");
    }
    return 0;
}

/* The state of a node; "" when the text has no line of it. */
static void find_state(const char *text, const char *node, char state[STATE_BYTES])
{
    const char *value = NULL;

    state[0] = '\0';
    for (const char *line = text; *line != '\0'; line += strspn(line, "\n")) {
        size_t size = strcspn(line, "\n");
        size_t length = value_of(line, size, "NodeName=", &value);

        if (length == strlen(node) && length > 0 && strncmp(value, node, length) == 0) {
            length = value_of(line, size, "State=", &value);
            if (length < STATE_BYTES)
                (void)snprintf(state, STATE_BYTES, "%.*s", (int)length, length > 0 ? value : "");
            return;
        }
        line += size;
    }
}

static bool is_down(const char *state)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZ_";

    return strspn(state, letters) == strlen("DOWN") && strncmp(state, "DOWN", 4) == 0;
}

bool ct_slurm_are_down(const char *text, const char *const *nodes, size_t count, char *why,
                       size_t room)
{
    char state[STATE_BYTES];

    for (size_t i = 0; i < count; i++) {
        find_state(text, nodes[i], state);
        if (is_down(state))
            continue;
        if (state[0] != '\0')
            (void)snprintf(why, room, "Slurm does not report node %s down (%s)", nodes[i], state);
        else
            (void)snprintf(why, room, "Slurm does not say in which state node %s is", nodes[i]);
        return false;
    }
    return count > 0;
}
