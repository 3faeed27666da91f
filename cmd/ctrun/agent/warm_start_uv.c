/* See warm_start_uv.h. */
#include "warm_start_uv.h"

#include "job/round.h"
#include "node_state_uv.h"

enum { ENV_BYTES = 16 << 20 };

void warm_start_fill(struct node *node, uint32_t wanted)
{
    const struct job *job = node->job;
    const struct ct_program *program = &job->program;
    struct ct_error err = {0};
    struct ct_arena arena;

    if (!program->script || !job->cfg.launch.warm_start || node->warm.count >= wanted ||
        !ct_warm_suits(program->argv[2]))
        return;
    ct_arena_init(&arena, ENV_BYTES);
    const struct ct_spawn spawn = {
        .path = program->path,
        .argv = program->argv,
        .envp =
            round_warm_env(job, node->guard.marks[0] != '\0' ? node->guard.marks : NULL, &arena),
    };
    if (spawn.envp != NULL && ct_warm_fill(&node->warm, wanted, &spawn, &err) != 0)
        ct_log_event(&node->log, CT_LOG_WARN, "warm_start", "%s", err.text);
    ct_arena_deinit(&arena);
}
