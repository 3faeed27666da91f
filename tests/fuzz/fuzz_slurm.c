/* Fuzz: the variables of Slurm, a line each, and slurm.conf. What is read must be consistent, what
 * is not must have a sentence. */
#include "base/assert.h"
#include "slurm/slurm.h"
#include "slurm/slurm_conf.h"

#include <stdint.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { LINES = 32, TEXT_BYTES = 4096 };

/* Split into lines that end with a terminator each; the list ends with NULL. */
static void split(char *text, char *lines[LINES + 1])
{
    size_t count = 0;

    for (char *rest = text; count < LINES;) {
        char *line = strsep(&rest, "\n");
        if (line == NULL)
            break;
        lines[count++] = line;
    }
    lines[count] = NULL;
}

static void check(const struct ct_slurm *slurm, struct ct_arena *arena)
{
    static const struct ct_slurm_request requests[] = {
        {.min_nodes = 1, .max_nodes = 1, .node_rank = -1},
        {.nodes_given = true, .min_nodes = 2, .max_nodes = 4, .node_rank = 1},
        {.standalone = true, .min_nodes = 1, .max_nodes = 1, .node_rank = -1},
    };

    CT_ASSERT(slurm->nodes == 0 || slurm->node_rank < slurm->nodes);
    for (uint32_t i = 0; slurm->hosts != NULL && i < slurm->nodes; i++)
        CT_ASSERT(slurm->hosts[i][0] != '\0' && strpbrk(slurm->hosts[i], "[],") == NULL);
    for (size_t i = 0; i < CT_COUNT(requests); i++) {
        struct ct_error err = {0};
        int rc = ct_slurm_check(slurm, &requests[i], &err);
        CT_ASSERT((rc == 0) == (err.text[0] == '\0'));
    }
    CT_ASSERT(ct_slurm_run_id(slurm, arena) != NULL);
    CT_ASSERT(ct_slurm_port(slurm) >= 20000 && ct_slurm_port(slurm) < 30000);
}

/* The same text as slurm.conf. */
static void check_conf(const char *text)
{
    char socket[CT_SLURM_SOCKET];

    (void)ct_slurm_conf_munge(text, socket);
    CT_ASSERT(socket[0] == '\0' || (socket[0] == '/' && strpbrk(socket, " ,\n") == NULL));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char text[TEXT_BYTES + 1];
    char *lines[LINES + 1];
    struct ct_slurm slurm;
    struct ct_error err = {0};
    struct ct_arena arena;

    size = CT_MIN(size, (size_t)TEXT_BYTES);
    memcpy(text, data, size);
    text[size] = '\0';
    check_conf(text);
    split(text, lines);
    ct_arena_init(&arena, 32 << 20);
    if (ct_slurm_read(lines, &arena, &slurm, &err) == 0)
        check(&slurm, &arena);
    else
        CT_ASSERT(err.text[0] != '\0');
    ct_arena_deinit(&arena);
    return 0;
}
