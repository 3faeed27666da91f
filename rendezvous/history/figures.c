/* See figures.h. */
#include "rendezvous/history/figures.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

static bool grow(struct ct_figures *figures, uint32_t member)
{
    uint32_t room = CT_MAX(member + 1, CT_MAX(8u, figures->room * 2));
    struct ct_node_figures **of = realloc(figures->of, room * sizeof(struct ct_node_figures *));

    if (of == NULL)
        return false;
    memset(of + figures->room, 0, (room - figures->room) * sizeof(struct ct_node_figures *));
    figures->of = of;
    figures->room = room;
    return true;
}

void ct_figures_keep(struct ct_figures *figures, uint32_t member, struct ct_id id, uint64_t now_ms,
                     const struct ct_msg_figures *m)
{
    uint32_t count = CT_MIN(m->ranks.count, (uint32_t)CT_FIGURES_RANKS);

    if (member >= figures->room && !grow(figures, member))
        return;
    struct ct_node_figures *node = figures->of[member];
    if (node == NULL || node->count < count) {
        struct ct_node_figures *more = realloc(node, sizeof *node + count * sizeof node->ranks[0]);
        if (more == NULL)
            return;
        figures->of[member] = node = more;
    }
    node->id = id;
    node->ms = now_ms;
    node->memory = m->memory;
    node->memory_total = m->memory_total;
    node->load = m->load;
    (void)ct_str_copy(node->trouble, sizeof node->trouble, m->trouble);
    node->count = count;
    if (count > 0)
        memcpy(node->ranks, m->ranks.data, count * sizeof node->ranks[0]);
}

const struct ct_node_figures *ct_figures_find(const struct ct_figures *figures, uint32_t member,
                                              struct ct_id id, uint64_t now_ms)
{
    const struct ct_node_figures *node = member < figures->room ? figures->of[member] : NULL;

    return node != NULL && ct_id_equal(node->id, id) && now_ms - node->ms < CT_FIGURES_MS ? node
                                                                                          : NULL;
}

void ct_figures_deinit(struct ct_figures *figures)
{
    for (uint32_t i = 0; i < figures->room; i++)
        free(figures->of[i]);
    free(figures->of);
    *figures = (struct ct_figures){.of = NULL};
}
