/* See kubernetes_layer.h. */
#include "kubernetes_layer.h"

#include "base/clock.h"
#include "base/str.h"
#include "cmd/ctrun/agent/host/endpoint_list.h"

#include <netdb.h>
#include <signal.h>
#include <time.h>

enum { POLL_MS = 250, REPORT_MS = 1000 };

static int take_index(struct ct_config *cfg, const char *index, struct ct_error *err)
{
    int64_t nodes = cfg->launch.nnodes.max;
    uint64_t rank = 0;

    if (index == NULL || ct_config_origin(cfg, &cfg->launch.node_rank)->layer > CT_CONFIG_DEFAULT)
        return 0;
    if (ct_parse_u64(index, &rank) != 0 || rank >= (uint64_t)nodes)
        return ct_error_set(err, CT_EUSAGE,
                            "JOB_COMPLETION_INDEX=%.40s is no node of a job of %lld: give the Job "
                            "as many completions as --nnodes has nodes, or --node_rank",
                            index, (long long)nodes);
    cfg->launch.node_rank = (int64_t)rank;
    return 0;
}

static bool is_known(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;

    if (getaddrinfo(host, "1", &hints, &found) != 0)
        return false;
    freeaddrinfo(found);
    return true;
}

/* Nothing runs yet, and of process 1 the kernel takes no signal that has no handler: they are taken
 * between two looks. */
static int await_name(const char *host, int64_t limit_ms, const struct ct_log *log,
                      struct ct_error *err)
{
    const struct timespec pause = {.tv_nsec = POLL_MS * 1000000L};
    uint64_t begin_ms = ct_clock_mono_ms(&ct_clock_system), waited_ms = 0;
    bool told = false;
    sigset_t ends, before;
    int signal = 0, rc = 0;

    (void)sigemptyset(&ends);
    (void)sigaddset(&ends, SIGTERM);
    (void)sigaddset(&ends, SIGINT);
    (void)sigprocmask(SIG_BLOCK, &ends, &before);
    while (rc == 0 && !is_known(host)) {
        waited_ms = ct_clock_mono_ms(&ct_clock_system) - begin_ms;
        if (waited_ms >= (uint64_t)limit_ms)
            rc = ct_error_set(err, CT_ETIMEOUT,
                              "the cluster's DNS does not know %s: has that pod no machine, or the "
                              "job no headless Service of that name?",
                              host);
        else if ((signal = sigtimedwait(&ends, NULL, &pause)) > 0)
            rc = ct_error_set(err, CT_EREQUEUE,
                              "stopped by signal %d, while the cluster's DNS did not know %s yet",
                              signal, host);
        if (rc == 0 && !told && waited_ms >= REPORT_MS) {
            told = true;
            ct_log_event(log, CT_LOG_INFO, "waiting", "waiting for the cluster's DNS to know %s",
                         host);
        }
    }
    (void)sigprocmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int kubernetes_complete(struct ct_config *cfg, char *const *env, const struct ct_log *log,
                        struct ct_error *err)
{
    char list[ENDPOINT_LIST_BYTES];
    struct ct_endpoint first = {.port = 0};

    if (ct_env_find(env, "KUBERNETES_SERVICE_HOST") == NULL || cfg->launch.nnodes.max <= 1)
        return 0;
    int rc = take_index(cfg, ct_env_find(env, "JOB_COMPLETION_INDEX"), err);
    if (rc != 0 || cfg->launch.standalone || endpoint_list_read(cfg, &first, list, NULL) != 0 ||
        first.is_unix || first.host[0] == '\0')
        return rc;
    return await_name(first.host, cfg->launch.join_timeout_ms, log, err);
}
