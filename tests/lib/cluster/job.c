/* See job.h. */
#include "cluster/job.h"

#include "base/assert.h"
#include "base/str.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

void job_init(struct job *job, const struct hosts *hosts, const char *programs, const char *folder)
{
    memset(job, 0, sizeof *job);
    job->hosts = hosts;
    job->programs = programs;
    job->folder = folder;
}

void job_end(struct job *job)
{
    for (int i = 0; i < JOB_SLOTS; i++)
        process_free(&job->agents[i]);
    for (int i = 0; i < JOB_SEATS; i++)
        process_free(&job->seats[i].daemon);
}

static const char *in_folder(const struct job *job, char path[PATH_MAX], const char *name)
{
    CT_ASSERT(snprintf(path, PATH_MAX, "%s/%s", job->folder, name) < PATH_MAX);
    return path;
}

static const char *program(const struct job *job, char path[PATH_MAX], const char *name)
{
    CT_ASSERT(snprintf(path, PATH_MAX, "%s/%s", job->programs, name) < PATH_MAX);
    return path;
}

int job_start(struct job *job, struct proc *proc, const char *name, int host, const char *host_name,
              const char *const argv[])
{
    struct process_how how = job->how;
    char log[PATH_MAX], file[40], *blank;

    process_free(proc);
    how.name = name;
    (void)snprintf(file, sizeof file, "%s.log", name);
    while ((blank = strchr(file, ' ')) != NULL)
        *blank = '-';
    how.log = job->logs ? in_folder(job, log, file) : NULL;
    return hosts_spawn(job->hosts, host, host_name, proc, argv, &how);
}

bool job_make_key(struct job *job, double seconds)
{
    char ctrun[PATH_MAX], path[PATH_MAX];
    const char *const argv[] = {program(job, ctrun, "ctrun"), "key", "new",
                                in_folder(job, path, "key"), NULL};
    struct proc proc = {0};

    bool made = job_start(job, &proc, "key", HOSTS_HERE, NULL, argv) == 0 &&
                process_await_end(&proc, seconds) && proc.status == 0;
    process_free(&proc);
    if (made)
        (void)ct_str_copy(job->key, sizeof job->key, path);
    return made;
}

/* ---- daemons -------------------------------------------------------------------------------- */

void job_daemon_words(struct words *words, const char *ctrund, const char *endpoint,
                      const char *port_file)
{
    const char *const list[] = {ctrund, "--listen", endpoint, "--port_file", port_file, NULL};

    words_append(words, list);
}

static void name_endpoint(const struct job *job, struct job_seat *seat)
{
    (void)snprintf(seat->endpoint, sizeof seat->endpoint, "%s:%d",
                   hosts_address(job->hosts, seat->host), job->port);
}

static const char *name_port_file(const struct job *job, int seat, char path[PATH_MAX])
{
    char name[16];

    (void)snprintf(name, sizeof name, "port.%d", seat);
    return in_folder(job, path, name);
}

int job_start_daemon(struct job *job, int seat, int host, const char *host_name,
                     const char *const words[])
{
    struct job_seat *it = &job->seats[seat];
    char ctrund[PATH_MAX], port_file[PATH_MAX], journal[PATH_MAX], status[PATH_MAX + 8], name[32];
    const char *const durable[] = {"--status", status, "--journal", journal, NULL};
    const char *const together[] = {"--peers", job->peers, NULL};
    const char *const secret[] = {"--key_file", job->key, NULL};
    struct words all = {0};

    it->host = host;
    name_endpoint(job, it);
    (void)snprintf(name, sizeof name, job->peers != NULL ? "journal.%d" : "journal", seat);
    (void)in_folder(job, journal, name);
    (void)snprintf(name, sizeof name, "status.%d", seat);
    (void)snprintf(status, sizeof status, "unix:%s", in_folder(job, it->socket, name));
    (void)unlink(name_port_file(job, seat, port_file));
    words_append(&all, job->start_by);
    job_daemon_words(&all, program(job, ctrund, "ctrund"), it->endpoint, port_file);
    words_append(&all, job->bare ? NULL : durable);
    words_append(&all, job->peers != NULL ? together : NULL);
    words_append(&all, job->key[0] != '\0' ? secret : NULL);
    words_append(&all, words);
    (void)snprintf(name, sizeof name, "daemon %d", seat);
    return job_start(job, &it->daemon, name, host, host_name, all.list);
}

static int read_port(const char *port_file)
{
    int port = 0;
    FILE *file = fopen(port_file, "re");

    if (file != NULL && fscanf(file, "%d", &port) != 1)
        port = 0;
    if (file != NULL)
        (void)fclose(file);
    return port;
}

static bool has_port(void *context)
{
    return read_port(context) != 0;
}

int job_await_port(const char *port_file, double seconds)
{
    (void)process_until(has_port, (void *)(uintptr_t)port_file, seconds);
    return read_port(port_file);
}

bool job_await_daemon(struct job *job, int seat, double seconds)
{
    char port_file[PATH_MAX];
    int port = job_await_port(name_port_file(job, seat, port_file), seconds);

    if (port == 0)
        return false;
    job->port = port;
    name_endpoint(job, &job->seats[seat]);
    return true;
}

/* ---- agents --------------------------------------------------------------------------------- */

int job_start_agent(struct job *job, int slot, int host, const char *host_name,
                    const struct job_agent *agent)
{
    char ctrun[PATH_MAX], restarts[16], workers[16], name[32];
    const char *const own[] = {program(job, ctrun, "ctrun"),
                               "--nnodes",
                               agent->nodes,
                               "--lease",
                               agent->lease,
                               "--max_restarts",
                               restarts,
                               "--nproc_per_node",
                               workers,
                               NULL};
    const char *const there[] = {"--rdzv_endpoint", agent->endpoints, NULL};
    const char *const secret[] = {"--key_file", job->key, NULL};
    struct words words = {0};

    (void)snprintf(restarts, sizeof restarts, "%d", agent->restarts);
    (void)snprintf(workers, sizeof workers, "%d", agent->workers);
    (void)snprintf(name, sizeof name, "agent %d", slot);
    words_append(&words, job->start_by);
    words_append(&words, own);
    words_append(&words, agent->endpoints != NULL ? there : NULL);
    words_append(&words, job->key[0] != '\0' ? secret : NULL);
    words_append(&words, agent->options);
    words_add(&words, agent->program);
    return job_start(job, &job->agents[slot], name, host, host_name, words.list);
}
