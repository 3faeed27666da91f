/* ctrun flight: the flight recorders of the ranks, of this machine or of a whole job.
 *
 *   [--rank N] [--calls N] [--json]   of this machine: they lie in shared memory that each agent
 *                                     keeps open, so they are found in /proc, and read whatever
 *                                     agents and ranks are doing
 *   --job ID, --rdzv_endpoint E       of all nodes of the job: their agents send them through the
 *                                     rendezvous; with the verdict on them (flight_job.h) */
#include "cmd/ctrun/cli/commands.h"

#include "asking.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "diagnose/traces.h"
#include "flight_job.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS = 1024, JOB_CALLS = 8 };

/* What the command line asks for. */
struct flight_options {
    int64_t rank;  /* -1: all */
    int64_t calls; /* of each rank; -1: as many as usual */
    bool json;
    char **rest; /* where the job is; none: this machine */
    int count;
};

struct search {
    const struct flight_options *options;
    ino_t inodes[RECORDS]; /* a worker may still have its own descriptor */
    size_t inode_count;
    size_t shown;
    struct ct_buf text;
};

static bool is_new(struct search *search, ino_t inode)
{
    for (size_t i = 0; i < search->inode_count; i++)
        if (search->inodes[i] == inode)
            return false;
    if (search->inode_count < RECORDS)
        search->inodes[search->inode_count++] = inode;
    return true;
}

static void show(struct search *search, int fd)
{
    const struct ct_worker_record *record;
    struct ct_record_view view;
    struct ct_error err = {0};

    if (ct_worker_record_map(fd, &record, &err) != 0)
        return; /* of another version */
    ct_worker_record_read(record, &view);
    int64_t rank = search->options->rank, calls = search->options->calls;
    if (view.opened && (rank < 0 || view.rank == rank)) {
        uint32_t limit = calls < 0 ? CT_FLIGHT_ENTRIES : (uint32_t)calls;

        if (search->options->json)
            (void)ct_flight_print_json(record, ct_ticks_now(), limit, &search->text);
        else
            (void)ct_flight_print(record, ct_ticks_now(), limit, &search->text);
        search->shown++;
    }
    ct_worker_record_unmap(record);
}

/* Is this a descriptor of a worker's record? */
static void inspect(struct search *search, const char *path)
{
    static const char name[] = "/memfd:ctrun-record";
    char target[PATH_MAX];
    struct stat stat;
    ssize_t size = readlink(path, target, sizeof target - 1);

    target[size > 0 ? size : 0] = '\0';
    if (strncmp(target, name, sizeof name - 1) != 0)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (fstat(fd, &stat) == 0 && is_new(search, stat.st_ino))
        show(search, fd);
    (void)close(fd);
}

static void inspect_process(struct search *search, const char *pid)
{
    char folder[64], path[PATH_MAX];
    struct dirent *entry;

    (void)snprintf(folder, sizeof folder, "/proc/%.16s/fd", pid);
    DIR *entries = opendir(folder);
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        inspect(search, path);
    }
    if (entries != NULL)
        (void)closedir(entries);
}

static int complain(int code, const char *text)
{
    return ct_command_fail("ctrun flight", code, text);
}

static int search_here(const struct flight_options *options)
{
    struct search search = {.options = options};
    struct ct_error err = {0};
    struct dirent *entry;

    ct_buf_init(&search.text, 0);
    DIR *entries = opendir("/proc");
    while (entries != NULL && (entry = readdir(entries)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            inspect_process(&search, entry->d_name);
    if (entries != NULL)
        (void)closedir(entries);
    int rc = asking_print("", &search.text, &err);
    ct_buf_deinit(&search.text);
    if (search.shown == 0)
        return complain(CT_ENOTFOUND, "no such rank of yours that uses ctrun's library runs on "
                                      "this machine; for a job of other machines give --job ID and "
                                      "--rdzv_endpoint HOST:PORT");
    return rc == 0 ? 0 : complain(rc, err.text);
}

/* ---- a whole job ------------------------------------------------------------------------------*/

/* `job` says what is asked for, and takes what the nodes answer. */
static int ask_job(struct admin_request *request, struct flight_job *job, struct ct_error *err)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    request->ask = (struct ct_message){.type = CT_MSG_FLIGHT_QUERY, .flight_query = job->query};
    request->on_answer = flight_job_receive;
    request->context = job;
    int rc = admin_ask(request, &text, err);
    if (rc == 0 && flight_job_print(job, &text) != 0)
        rc = ct_error_set(err, CT_ENOMEM, "no memory for what the nodes tell");
    if (rc == 0)
        rc = asking_print("", &text, err);
    ct_buf_deinit(&text);
    return rc;
}

static int query_job(struct flight_options *options)
{
    struct admin_request request = {.ask = {.type = CT_MSG_FLIGHT_QUERY}};
    struct flight_job job = {
        .query = {.rank = (int32_t)options->rank,
                  .calls = options->calls < 0 ? JOB_CALLS : (uint32_t)options->calls,
                  .json = options->json}};
    struct ct_error err = {0};
    int status = asking_load("ctrun flight", &request, options->count, options->rest);
    int rc = status == 0 ? ask_job(&request, &job, &err) : 0;

    if (rc != 0)
        status = complain(rc, err.text);
    flight_job_deinit(&job);
    ct_config_deinit(&request.cfg);
    return status;
}

/* ---- the command line -------------------------------------------------------------------------*/

/* `job` takes "--rdzv_id=ID". */
static int parse_arguments(struct flight_options *options, int argc, char **argv,
                           struct ct_buf *job, struct ct_error *err)
{
    const char *id = NULL;
    const struct ct_option rows[] = {{"rank", CT_OPTION_NUMBER, &options->rank},
                                     {"calls", CT_OPTION_NUMBER, &options->calls},
                                     {"json", CT_OPTION_FLAG, &options->json},
                                     {"job", CT_OPTION_TEXT, &id}};
    struct ct_cli_options cli = {.command = "flight",
                                 .options = rows,
                                 .option_count = CT_COUNT(rows),
                                 .rest = options->rest};
    int code = ct_cli_options_read(&cli, argc - 1, argv + 1, err);

    asking_put_job(&cli, id, job);
    options->count = cli.rest_count;
    if (code == 0 && (options->rank < -1 || options->rank > INT32_MAX))
        code = ct_error_set(err, CT_EUSAGE, "--rank wants a number from 0 on");
    if (code == 0 && (options->calls < -1 || options->calls > CT_FLIGHT_ENTRIES))
        code = ct_error_set(err, CT_EUSAGE, "--calls wants a number from 0 to %d",
                            (int)CT_FLIGHT_ENTRIES);
    return code;
}

int ct_cmd_flight(int argc, char **argv)
{
    struct flight_options options = {
        .rank = -1, .calls = -1, .rest = calloc((size_t)argc + 2, sizeof(char *))};
    struct ct_error err = {0};
    struct ct_buf job;
    int status;

    if (options.rest == NULL)
        return complain(CT_ENOMEM, "out of memory");
    ct_buf_init(&job, 0);
    if (parse_arguments(&options, argc, argv, &job, &err) != 0)
        status = complain(CT_EUSAGE, err.text);
    else
        status = options.count > 0 ? query_job(&options) : search_here(&options);
    ct_buf_deinit(&job);
    free(options.rest);
    return status;
}
