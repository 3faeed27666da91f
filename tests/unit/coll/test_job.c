/* Jobs: alone, and with an agent, which here is a thread at the other end of a socket pair. */
#include "job/job.h"
#include "kv.h"

#include "base/assert.h"
#include "message_print.h"
#include "wire/control_page.h"
#include "wire/link.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEARD = 16, GENERATION = 3, KEY = 64 };

/* Answers store requests as told, and keeps the names of what else it hears. */
struct agent {
    int fds[2];
    struct ct_link link;
    struct ct_control_page *page;
    pthread_t thread;
    struct ct_msg_assign assign;
    bool stop_first; /* ask the worker to stop before it is answered */
    bool regroups;   /* answer READY with the next round, or else with a stop */
    bool early;      /* the next round begins while the store is asked */
    char heard[HEARD][200];
    int count;
    unsigned char value[KEY];
    size_t value_size;
};

static void forget_environment(void)
{
    (void)unsetenv("CTRUN_CONTROL_FD");
    (void)unsetenv("CTRUN_PAGE_FD");
}

TestSuite(job, .timeout = 30, .init = forget_environment, .fini = forget_environment);

static const struct ct_wire_run runs[] = {{1, 2, "a"}, {1, 3, "b"}};

static void tell(struct agent *agent, const struct ct_message *message)
{
    cr_assert_eq(ct_link_send(&agent->link, message, 5000, NULL), 0);
}

static void answer(struct agent *agent, uint64_t request, int code, bool value)
{
    struct ct_message reply = {
        .type = CT_MSG_STORE_REPLY,
        .store_reply = {.request = request, .generation = GENERATION, .code = code}};

    if (agent->stop_first) {
        struct ct_message stop = {.type = CT_MSG_STOP,
                                  .stop = {.generation = GENERATION, .deadline_ms = 1500}};

        tell(agent, &stop);
        agent->stop_first = false;
    }
    if (value)
        reply.store_reply.value = (struct ct_bytes){agent->value, agent->value_size};
    tell(agent, &reply);
}

static void keep_line(struct agent *agent, const struct ct_message *message)
{
    struct ct_buf line;

    ct_buf_init(&line, 0);
    message_print(message, &line);
    cr_assert_lt(agent->count, HEARD);
    (void)snprintf(agent->heard[agent->count++], sizeof agent->heard[0], "%s", ct_buf_str(&line));
    ct_buf_deinit(&line);
}

/* An old assignment on the way is passed over. */
static void next_round(struct agent *agent)
{
    struct ct_message message = {.type = CT_MSG_ASSIGN, .assign = agent->assign};
    struct ct_message stop = {.type = CT_MSG_STOP};

    tell(agent, &message);
    message.assign.generation = GENERATION + 2;
    message.assign.world = 2;
    message.assign.rank = 1;
    message.assign.base_rank = 0;
    message.assign.runs.count = 1;
    tell(agent, agent->regroups ? &message : &stop);
}

/* Yes to even steps; an answer to another question comes first. */
static void answer_publication(struct agent *agent, const struct ct_msg_publish *asked)
{
    struct ct_message message = {.type = CT_MSG_PUBLISHED,
                                 .published = {.generation = asked->generation,
                                               .step = asked->step + 1,
                                               .code = CT_EIO,
                                               .text = "of another one"}};

    tell(agent, &message);
    message.published.step = asked->step;
    message.published.code = asked->step % 2 == 0 ? 0 : CT_EFENCED;
    message.published.text = "round 3 is over";
    if (asked->step < 100)
        tell(agent, &message);
}

static void serve(struct agent *agent, const struct ct_message *message)
{
    switch (message->type) {
    case CT_MSG_READY:
        if (message->ready.generation == GENERATION && !agent->early)
            next_round(agent);
        keep_line(agent, message);
        return;
    case CT_MSG_PUBLISH:
        answer_publication(agent, &message->publish);
        keep_line(agent, message);
        return;
    case CT_MSG_STORE_SET:
        agent->value_size = CT_MIN(message->store_set.value.size, sizeof agent->value);
        memcpy(agent->value, message->store_set.value.data, agent->value_size);
        if (agent->early)
            next_round(agent);
        answer(agent, message->store_set.request, 0, false);
        return;
    case CT_MSG_STORE_WAIT:
        if (strcmp(message->store_wait.key, "away") == 0)
            return;
        if (strcmp(message->store_wait.key, "never") == 0) {
            ct_control_page_revoke(agent->page, GENERATION);
            return;
        }
        answer(agent, message->store_wait.request,
               strcmp(message->store_wait.key, "late") == 0 ? CT_ETIMEOUT : 0, true);
        return;
    default:
        keep_line(agent, message);
    }
}

static void *run_agent(void *argument)
{
    struct agent *agent = argument;
    struct ct_message message = {.type = CT_MSG_ASSIGN, .assign = agent->assign};
    struct ct_arena arena;

    tell(agent, &message);
    ct_arena_init(&arena, 1 << 20);
    while (ct_link_receive(&agent->link, -1, &arena, &message, NULL) == 0)
        serve(agent, &message);
    ct_arena_deinit(&arena);
    return NULL;
}

static void agent_init(struct agent *agent)
{
    *agent = (struct agent){.assign = {.generation = GENERATION,
                                       .lineage = 2,
                                       .base_step = 70,
                                       .base_rank = 4,
                                       .run_id = "digits",
                                       .rank = 3,
                                       .world = 5,
                                       .local_rank = 1,
                                       .local_world = 3,
                                       .node_rank = 1,
                                       .restart_count = 6,
                                       .store = 1,
                                       .address = "10.0.0.2",
                                       .runs = {runs, 2}}};
}

static void set_descriptor(const char *name, int fd)
{
    char text[16];

    (void)snprintf(text, sizeof text, "%d", fd);
    cr_assert_eq(setenv(name, text, 1), 0);
}

/* Start the agent and open the job as its worker. */
static int open_job(struct agent *agent, struct ct_job **ret_job, struct ct_error *err)
{
    int page_fd;

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, agent->fds), 0);
    cr_assert_eq(ct_control_page_new(&agent->page, &page_fd, NULL), 0);
    ct_link_init(&agent->link, agent->fds[1], CT_FROM_WORKER);
    set_descriptor("CTRUN_CONTROL_FD", agent->fds[0]);
    set_descriptor("CTRUN_PAGE_FD", page_fd);
    cr_assert_eq(pthread_create(&agent->thread, NULL, run_agent, agent), 0);
    return ct_job_open(ret_job, err);
}

/* After the worker's end is closed. */
static void agent_deinit(struct agent *agent)
{
    (void)pthread_join(agent->thread, NULL);
    ct_link_deinit(&agent->link);
    (void)close(agent->fds[1]);
    ct_control_page_unmap(agent->page);
}

/* ---- alone -----------------------------------------------------------------------------------*/

Test(job, without_an_agent_it_is_a_world_of_one)
{
    struct ct_job *job;
    struct ct_group *group;
    double x = 4.5;

    cr_assert_eq(ct_job_open(&job, NULL), 0);
    cr_assert_eq(ct_job_assignment(job)->world, 1);
    cr_assert_eq(ct_job_assignment(job)->rank, 0);
    cr_assert_eq(ct_job_progress(job, &(struct ct_progress){.step = 1}), 0);
    cr_assert_not(ct_job_stop_requested(job, NULL));
    cr_assert_not(ct_job_revoked(job));
    cr_assert_not(ct_job_boundary_requested(job));
    cr_assert_eq(ct_job_survive(job), 0);
    cr_assert_eq(ct_job_regroup(job, &(struct ct_ready){.step = 1}, NULL), CT_EUNSUPPORTED);
    cr_assert_eq(ct_group_new(job, NULL, &group, NULL), 0);
    cr_assert_eq(ct_all_reduce(group, ct_inplace(&x, 1, CT_F64), CT_REDUCE_AVG, NULL), 0);
    cr_assert_eq(x, 4.5);
    ct_group_free(group);
    ct_job_close(job);
}

Test(job, a_variable_that_names_no_descriptor_is_said)
{
    static const char *const values[] = {"999", "x", "-1", "3 "};

    for (size_t i = 0; i < CT_COUNT(values); i++) {
        struct ct_job *job = NULL;
        struct ct_error err = {0};

        cr_assert_eq(setenv("CTRUN_CONTROL_FD", values[i], 1), 0);
        cr_assert_eq(ct_job_open(&job, &err), CT_EUSAGE);
        cr_assert_null(job);
        cr_assert_not_null(strstr(err.text, "CTRUN_CONTROL_FD"));
    }
}

/* ---- with an agent ---------------------------------------------------------------------------*/

Test(job, the_assignment_is_the_agents)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error err = {0};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, &err), 0, "%s", err.text);
    const struct ct_assignment *a = ct_job_assignment(job);
    cr_assert_str_eq(a->run_id, "digits");
    cr_assert(a->generation == GENERATION && a->lineage == 2 && a->base_step == 70);
    cr_assert(a->base_rank == 4 && a->rank == 3 && a->world == 5 && a->local_rank == 1);
    cr_assert(a->local_world == 3 && a->node_rank == 1 && a->nnodes == 2);
    cr_assert_eq(a->restart_count, 6);
    cr_assert_str_eq(job->address, "10.0.0.2");
    for (int rank = 0; rank < 5; rank++) {
        cr_assert_eq(ct_job_node(job, rank)->first_rank, rank < 2 ? 0 : 2);
        cr_assert_eq(ct_job_node(job, rank)->slots, rank < 2 ? 2 : 3);
    }
    cr_assert_neq(fcntl(agent.fds[0], F_GETFD) & FD_CLOEXEC, 0);
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, what_the_worker_tells_arrives)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error failure = {.code = CT_EDATA, .text = "row 7 is empty"};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(ct_job_progress(job, &(struct ct_progress){.step = 12, .loss = 0.5}), 0);
    cr_assert_eq(ct_job_summary(job, "done"), 0);
    cr_assert_eq(ct_job_failure(job, &failure), 0);
    cr_assert_eq(ct_job_survive(job), 0);
    ct_job_close(job);
    agent_deinit(&agent);
    cr_assert_eq(agent.count, 4);
    cr_assert_not_null(strstr(agent.heard[0], "PROGRESS generation=3"));
    cr_assert_not_null(strstr(agent.heard[0], "step=12"));
    cr_assert_not_null(strstr(agent.heard[1], "SUMMARY generation=3 text=\"done\""));
    cr_assert_not_null(strstr(agent.heard[2], "row 7 is empty"));
    cr_assert_not_null(strstr(agent.heard[3], "READY generation=0 survivable=1"));
}

Test(job, the_store_is_the_agents)
{
    struct agent agent;
    struct ct_job *job;
    char room[KEY] = "";
    struct ct_kv_value value = {room, sizeof room}, tight = {room, 2};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(job->kv.set(job->kv.context, "k", "hello", 6), 0);
    cr_assert_eq(job->kv.wait(job->kv.context, "k", &value, 1000), 0);
    cr_assert_eq(value.size, 6);
    cr_assert_str_eq(room, "hello");
    cr_assert_eq(job->kv.wait(job->kv.context, "k", &tight, 1000), CT_ELIMIT);
    cr_assert_eq(job->kv.wait(job->kv.context, "late", &value, 1), CT_ETIMEOUT);
    ct_job_close(job);
    agent_deinit(&agent);
}

/* What a group at work does: it must not wait for a daemon that is away. */
Test(job, a_group_at_work_sends_to_the_store_and_asks_with_patience)
{
    struct agent agent;
    struct ct_job *job;
    char room[KEY] = "";
    struct ct_kv_value value = {room, sizeof room};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(job->kv.send(job->kv.context, "k", "bye", 4), 0);
    cr_assert_eq(job->kv.poll(job->kv.context, "away", &value, 10), CT_ETIMEOUT);
    cr_assert_eq(job->kv.poll(job->kv.context, "k", &value, 20000), 0);
    cr_assert_str_eq(room, "bye");
    cr_assert_eq(job->kv.poll(job->kv.context, "late", &value, 20000), CT_ETIMEOUT);
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, a_revoked_round_ends_a_wait_for_the_store)
{
    struct agent agent;
    struct ct_job *job;
    char room[KEY];
    struct ct_kv_value value = {room, sizeof room};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_not(ct_job_revoked(job));
    cr_assert_eq(job->kv.wait(job->kv.context, "never", &value, 20000), CT_EREVOKED);
    cr_assert(ct_job_revoked(job));
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, a_stop_is_seen_whoever_receives_it)
{
    struct agent agent;
    struct ct_job *job;
    uint64_t deadline_ms = 0;

    agent_init(&agent);
    agent.stop_first = true;
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_not(ct_job_stop_requested(job, NULL));
    cr_assert_eq(job->kv.set(job->kv.context, "n", "1", 1), 0);
    cr_assert(ct_job_stop_requested(job, &deadline_ms));
    cr_assert_eq(deadline_ms, 1500);
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, who_regroups_gets_the_next_round)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error err = {0};
    const struct ct_ready ready = {.lineage = 3, .step = 71, .digest = 9};

    agent_init(&agent);
    agent.regroups = true;
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    const struct ct_assignment *a = ct_job_assignment(job);
    ct_control_page_boundary(agent.page, GENERATION);
    cr_assert_not(ct_job_boundary_requested(job), "this round's own boundary is behind it");
    ct_control_page_boundary(agent.page, GENERATION + 2);
    cr_assert(ct_job_boundary_requested(job));
    cr_assert_eq(ct_job_regroup(job, &ready, &err), 0, "%s", err.text);
    cr_assert(a->generation == GENERATION + 2 && a->world == 2 && a->rank == 1 && a->nnodes == 1);
    cr_assert_not(ct_job_boundary_requested(job));
    ct_control_page_revoke(agent.page, GENERATION + 1);
    cr_assert_not(ct_job_revoked(job));
    ct_job_close(job);
    agent_deinit(&agent);
    cr_assert_not_null(strstr(agent.heard[0], "READY generation=3 survivable=1 lineage=3 step=71"),
                       "%s", agent.heard[0]);
}

Test(job, a_stop_ends_the_wait_for_the_next_round)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error err = {0};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(ct_job_regroup(job, &(struct ct_ready){.step = 1}, &err), CT_ECLOSED);
    cr_assert(ct_job_stop_requested(job, NULL));
    cr_assert_eq(ct_job_assignment(job)->generation, GENERATION);
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, an_assignment_that_does_not_add_up_is_refused)
{
    for (int i = 0; i < 4; i++) {
        struct agent agent;
        struct ct_job *job = NULL;
        struct ct_error err = {0};

        agent_init(&agent);
        agent.assign.world = i == 0 ? 6 : 5;
        agent.assign.rank = i == 1 ? 5 : 3;
        agent.assign.runs.count = i == 2 ? 0 : 2;
        agent.assign.base_rank = i == 3 ? 5 : 0;
        cr_assert_eq(open_job(&agent, &job, &err), CT_EPROTOCOL, "case %d", i);
        cr_assert_null(job);
        agent_deinit(&agent);
    }
}

Test(job, a_lost_agent_is_an_error_and_not_a_wait)
{
    int fds[2];
    struct ct_job *job = NULL;
    struct ct_error err = {0};

    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    set_descriptor("CTRUN_CONTROL_FD", fds[0]);
    (void)close(fds[1]);
    cr_assert_eq(ct_job_open(&job, &err), CT_ECLOSED);
    cr_assert_not_null(strstr(err.text, "no assignment from the agent"));
}

Test(job, a_round_that_begins_while_an_older_one_is_entered_is_not_missed)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error err = {0};

    agent_init(&agent);
    agent.regroups = agent.early = true;
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(job->kv.set(job->kv.context, "n", "1", 1), 0);
    cr_assert_eq(ct_job_regroup(job, &(struct ct_ready){.step = 1}, &err), 0, "%s", err.text);
    cr_assert_eq(ct_job_assignment(job)->generation, GENERATION + 2);
    ct_job_close(job);
    agent_deinit(&agent);
}

Test(job, a_publication_is_answered_by_generation_and_step)
{
    struct agent agent;
    struct ct_job *job;
    struct ct_error err = {0};

    agent_init(&agent);
    cr_assert_eq(open_job(&agent, &job, NULL), 0);
    cr_assert_eq(ct_job_publish(job, 40, 7), 0);
    cr_assert_eq(ct_job_published(job, 20000, &err), 0, "%s", err.text);
    cr_assert_eq(ct_job_published(job, 0, &err), 0, "the answer stays");
    cr_assert_eq(ct_job_publish(job, 41, 7), 0);
    cr_assert_eq(ct_job_published(job, 20000, &err), CT_EFENCED);
    cr_assert_str_eq(err.text, "round 3 is over");
    cr_assert_eq(ct_job_publish(job, 100, 7), 0);
    cr_assert_eq(ct_job_published(job, 0, &err), CT_ETIMEOUT);
    cr_assert_eq(ct_job_published(job, 30, &err), CT_ETIMEOUT, "the one who waits looks again");
    ct_job_close(job);
    agent_deinit(&agent);
    cr_assert_not_null(strstr(agent.heard[0], "PUBLISH generation=3"), "%s", agent.heard[0]);
    cr_assert_not_null(strstr(agent.heard[0], "step=40 digest=7"), "%s", agent.heard[0]);
}

Test(job, without_an_agent_everything_may_be_published)
{
    struct ct_job *job;

    cr_assert_eq(ct_job_open(&job, NULL), 0);
    cr_assert_eq(ct_job_publish(job, 40, 7), 0);
    cr_assert_eq(ct_job_published(job, 0, NULL), 0);
    ct_job_close(job);
}

Test(job, groups_of_a_name_are_counted_from_one_in_each_round)
{
    struct ct_job_names *names = ct_job_names_new();

    cr_assert_eq(ct_job_names_count(names, "world"), 1u);
    cr_assert_eq(ct_job_names_count(names, "pair"), 1u);
    cr_assert_eq(ct_job_names_count(names, "world"), 2u);
    ct_job_names_reset(names);
    cr_assert_eq(ct_job_names_count(names, "world"), 1u);
    ct_job_names_free(names);
}
