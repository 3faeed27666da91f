/* ctrun flight: the flight recorders of the ranks, of this machine or of a whole job.
 *
 *   [--rank N] [--calls N] [--json]     of this machine. They lie in shared memory that each agent
 *                                       keeps open, so they are found in /proc, and read whatever
 *                                       agents and ranks are at
 *   and --job ID, --rdzv_endpoint E     of all nodes of the job, which their agents tell through
 * the rendezvous, with the verdict on them (flight_job.h) */
#include "commands.h"

#include "admin_uv.h"

#include "base/fs.h"
#include "base/str.h"
#include "flight_job.h"
#include "launch/traces.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RECORDS = 1024, ARGS = 16, JOB_CALLS = 8 };

static const char usage[] =
    "usage: ctrun flight [--rank N] [--calls N] [--json]\n"
    "       ctrun flight --job ID [--rdzv_endpoint HOST:PORT] [--key_file FILE] [--rank N] "
    "[--calls N] [--json]\n";

/* What the command line asks for. */
struct wish {
    int64_t rank;  /* -1: all */
    int64_t calls; /* of each rank; -1: as many as usual */
    bool json, help;
    char *rest[ARGS]; /* where the job is; none: this machine */
    int count;
    char job[160];
};

struct search {
    const struct wish *wish;
    ino_t seen[RECORDS]; /* a worker may still have its own descriptor */
    size_t seen_count;
    size_t shown;
    struct ct_buf text;
};

static bool is_new(struct search *search, ino_t inode)
{
    for (size_t i = 0; i < search->seen_count; i++)
        if (search->seen[i] == inode)
            return false;
    if (search->seen_count < RECORDS)
        search->seen[search->seen_count++] = inode;
    return true;
}

static void show(struct search *search, int fd)
{
    const struct ct_worker_record *record;
    struct ct_record_view view;
    struct ct_error err = {0};

    if (ct_worker_record_look(fd, &record, &err) != 0)
        return; /* of another version */
    ct_worker_record_read(record, &view);
    int64_t rank = search->wish->rank, calls = search->wish->calls;
    if (view.opened && (rank < 0 || view.rank == rank)) {
        uint32_t limit = calls < 0 ? CT_FLIGHT_ENTRIES : (uint32_t)calls;

        if (search->wish->json)
            (void)ct_flight_print_json(record, ct_ticks_now(), limit, &search->text);
        else
            (void)ct_flight_print(record, ct_ticks_now(), limit, &search->text);
        search->shown++;
    }
    ct_worker_record_unmap(record);
}

/* Is this a descriptor of a worker's record? */
static void look_at(struct search *search, const char *path)
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

static void look_into(struct search *search, const char *pid)
{
    char folder[64], path[PATH_MAX];
    struct dirent *entry;

    (void)snprintf(folder, sizeof folder, "/proc/%.16s/fd", pid);
    DIR *entries = opendir(folder);
    while (entries != NULL && (entry = readdir(entries)) != NULL) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        look_at(search, path);
    }
    if (entries != NULL)
        (void)closedir(entries);
}

static int complain(int code, const char *text)
{
    (void)fprintf(stderr, "ctrun flight: error: %s\n", text);
    return ct_exit_status(code);
}

static int look_here(const struct wish *wish)
{
    struct search search = {.wish = wish};
    struct dirent *entry;

    ct_buf_init(&search.text, 0);
    DIR *entries = opendir("/proc");
    while (entries != NULL && (entry = readdir(entries)) != NULL)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            look_into(&search, entry->d_name);
    if (entries != NULL)
        (void)closedir(entries);
    int rc = ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&search.text), search.text.size);
    ct_buf_deinit(&search.text);
    if (search.shown == 0)
        return complain(CT_ENOTFOUND, "no such rank of yours that uses ctrun's library runs on "
                                      "this machine; for a job of other machines give --job ID and "
                                      "--rdzv_endpoint HOST:PORT");
    return rc == 0 ? 0 : ct_exit_status(CT_EIO);
}

/* ---- a whole job ------------------------------------------------------------------------------*/

/* `job` says what is asked for, and takes what the nodes answer. */
static int ask_job(struct admin_request *request, struct flight_job *job, struct ct_error *err)
{
    struct ct_buf text;

    ct_buf_init(&text, 0);
    request->ask = (struct ct_message){.type = CT_MSG_LOOK, .look = job->look};
    request->take = flight_job_take;
    request->context = job;
    admin_sign(request);
    int rc = admin_ask(request, &text, err);
    if (rc == 0 && flight_job_print(job, &text) != 0)
        rc = ct_error_set(err, CT_ENOMEM, "no memory for what the nodes tell");
    if (rc == 0 && ct_fs_write_all(STDOUT_FILENO, ct_buf_str(&text), text.size) != 0)
        rc = ct_error_set(err, CT_EIO, "cannot write to standard output");
    ct_buf_deinit(&text);
    return rc;
}

static int look_at_job(struct wish *wish)
{
    struct ct_config_errors *errs = calloc(1, sizeof *errs);
    struct admin_request request = {.ask = {.type = CT_MSG_LOOK}};
    struct flight_job job = {.look = {.rank = (int32_t)wish->rank,
                                      .calls = wish->calls < 0 ? JOB_CALLS : (uint32_t)wish->calls,
                                      .json = wish->json}};
    const struct ct_config_input input = {.argc = wish->count, .argv = wish->rest, .env = environ};
    struct ct_error err = {0};

    if (errs == NULL)
        return complain(CT_ENOMEM, "out of memory");
    int rc = ct_config_load(&request.cfg, &input, errs);
    int status = ct_exit_status(rc);
    if (rc != 0)
        ct_complain(errs, false);
    else if ((rc = ask_job(&request, &job, &err)) != 0)
        status = complain(rc, err.text);
    flight_job_deinit(&job);
    ct_config_deinit(&request.cfg);
    free(errs);
    return status;
}

/* ---- the command line -------------------------------------------------------------------------*/

/* The value of option `name` at *at, which moves on when the value is a word of its own; NULL: it
 * is another option. */
static const char *value_of(char **argv, int *at, const char *name)
{
    size_t size = strlen(name);
    const char *word = argv[*at];

    if (strncmp(word, name, size) != 0 || (word[size] != '=' && word[size] != '\0'))
        return NULL;
    if (word[size] == '=')
        return word + size + 1;
    return argv[*at + 1] != NULL ? argv[++*at] : "";
}

/* False: no word of ours, or a bad one. */
static bool read_word(struct wish *wish, char **argv, int *at)
{
    const char *value;

    if (strcmp(argv[*at], "--json") == 0)
        return wish->json = true;
    if (strcmp(argv[*at], "--help") == 0 || strcmp(argv[*at], "-h") == 0)
        return wish->help = true;
    if ((value = value_of(argv, at, "--rank")) != NULL)
        return ct_parse_i64(value, &wish->rank) == 0 && wish->rank >= 0 && wish->rank <= INT32_MAX;
    if ((value = value_of(argv, at, "--calls")) != NULL)
        return ct_parse_i64(value, &wish->calls) == 0 && wish->calls >= 0 &&
               wish->calls <= CT_FLIGHT_ENTRIES;
    if ((value = value_of(argv, at, "--job")) != NULL) {
        (void)snprintf(wish->job, sizeof wish->job, "--rdzv_id=%s", value);
        wish->rest[wish->count++] = wish->job;
        return value[0] != '\0' && strlen(value) <= 128;
    }
    if (strncmp(argv[*at], "--rdzv", 6) != 0 && strncmp(argv[*at], "--key", 5) != 0)
        return false;
    wish->rest[wish->count++] = argv[*at];
    if (strchr(argv[*at], '=') == NULL && argv[*at + 1] != NULL)
        wish->rest[wish->count++] = argv[++*at];
    return true;
}

int ct_cmd_flight(int argc, char **argv)
{
    struct wish wish = {.rank = -1, .calls = -1};
    bool good = true;

    (void)argc;
    for (int i = 1; good && argv[i] != NULL; i++)
        good = wish.count + 3 <= ARGS && read_word(&wish, argv, &i);
    if (!good) {
        (void)fputs(usage, stderr);
        return complain(CT_EUSAGE,
                        "it takes --rank and --calls with a number from 0 on (4096 calls "
                        "at most), --json, --job ID, --rdzv_endpoint, --key_file");
    }
    if (wish.help)
        return fputs(usage, stdout) < 0;
    return wish.count > 0 ? look_at_job(&wish) : look_here(&wish);
}
