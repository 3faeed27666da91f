/* See look.h. */
#include "cmd/ctrun/doctor/look.h"

#include "backend/mpi/mpi_library.h"
#include "base/arena.h"
#include "base/clock.h"
#include "base/str.h"
#include "base/version.h"
#include "launch/worker_program.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ANSWER_MS = 3000, ARENA_BYTES = 64 << 10 };

/* Read what comes within the time, terminated. False: the end has not come by then. */
static bool read_until_end(int fd, char *text, size_t room)
{
    uint64_t end_ms = ct_clock_mono_ms(&ct_clock_system) + ANSWER_MS;
    size_t used = 0;

    for (;;) {
        uint64_t now_ms = ct_clock_mono_ms(&ct_clock_system);
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        char rest[256];
        bool is_full = used + 1 >= room;

        text[used] = '\0';
        if (now_ms >= end_ms || poll(&wait, 1, (int)(end_ms - now_ms)) <= 0)
            return false;
        ssize_t got =
            is_full ? read(fd, rest, sizeof rest) : read(fd, text + used, room - used - 1);
        if (got <= 0)
            return got == 0;
        used += is_full ? 0 : (size_t)got;
    }
}

/* Run a program and take what it prints; whoever takes too long is killed. */
static bool run(const char *path, char *const argv[], char *text, size_t room)
{
    posix_spawn_file_actions_t actions;
    int ends[2];
    pid_t pid;
    int status = -1;

    text[0] = '\0';
    if (pipe2(ends, O_CLOEXEC) != 0)
        return false;
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    (void)posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    bool done = posix_spawn(&pid, path, &actions, NULL, argv, environ) == 0;
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    if (done) {
        done = read_until_end(ends[0], text, room);
        if (!done)
            (void)kill(pid, SIGKILL);
        done = waitpid(pid, &status, 0) == pid && status == 0 && done;
    }
    (void)close(ends[0]);
    return done;
}

/* Take line `number` of a text. */
static void take_line(const char *text, int number, char *to, size_t room)
{
    for (; number > 0 && text != NULL; number--)
        text = strchr(text, '\n') != NULL ? strchr(text, '\n') + 1 : NULL;
    if (text != NULL && ct_str_copy(to, room, text))
        to[strcspn(to, "\n")] = '\0';
}

/* ctworker and the shared library lie where this ctrun does, or beside its folder. */
static void look_versions(const char *self, struct doctor_facts *to)
{
    static const char *const places[] = {"../lib/", ""};
    int folder = (int)(strrchr(self, '/') - self);
    char path[PATH_MAX], text[256];
    char *const argv[] = {path, (char[]){"--version"}, NULL};

    (void)ct_str_copy(to->version, sizeof to->version, CT_VERSION);
    (void)snprintf(path, sizeof path, "%.*s/ctworker", folder, self);
    if (run(path, argv, text, sizeof text)) {
        bool is_named = strncmp(text, "ctworker ", 9) == 0;

        (void)ct_str_copy(to->worker, sizeof to->worker, is_named ? text + 9 : "another one");
        to->worker[strcspn(to->worker, "\n")] = '\0';
    }
    for (size_t i = 0; i < 2 && !to->has_library; i++) {
        (void)snprintf(path, sizeof path, "%.*s/%slibctrun.so.1", folder, self, places[i]);
        to->has_library = access(path, F_OK) == 0;
    }
    void *library = to->has_library ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *symbol = library != NULL ? dlsym(library, "ct_version") : NULL;
    const char *(*version)(void) = NULL;

    memcpy(&version, &symbol, sizeof version);
    if (version != NULL)
        (void)ct_str_copy(to->library, sizeof to->library, version());
    if (library != NULL)
        (void)dlclose(library);
}

/* The interpreter as scripts get it; torch is looked for, not imported, which takes seconds. */
static void look_python(const char *self, struct doctor_facts *to)
{
    static char script[] = "import sys\nprint(sys.version.split()[0])\n"
                           "from importlib import metadata\n"
                           "try:\n    print(metadata.version('torch'))\n"
                           "except metadata.PackageNotFoundError:\n    pass\n";
    char *none[] = {NULL};
    const struct ct_program_request request = {
        .name = "any", .module = true, .args = none, .self = self, .env = environ};
    struct ct_arena arena;
    struct ct_program program = {0};
    struct ct_error err = {0};
    char text[256];

    ct_arena_init(&arena, ARENA_BYTES);
    if (ct_program_decide(&request, &arena, &program, &err) == 0) {
        char *const argv[] = {program.argv[0], (char[]){"-c"}, script, NULL};

        (void)ct_str_copy(to->python, sizeof to->python, program.path);
        if (run(program.path, argv, text, sizeof text)) {
            take_line(text, 0, to->python_version, sizeof to->python_version);
            take_line(text, 1, to->torch, sizeof to->torch);
        }
    }
    ct_arena_deinit(&arena);
}

/* As the backends look for them (mpi_library.c, ucx_library.c). */
static void look_libraries(const struct ct_config *cfg, struct doctor_facts *to)
{
    const char *named = getenv("CTRUN_MPI");
    struct ct_mpi_library library = {0};
    struct ct_error err = {0};
    bool has_name = named != NULL && *named != '\0';

    to->mpi.wanted = has_name || cfg->parallel.backend == CT_CONFIG_BACKEND_MPI;
    to->mpi.code = ct_mpi_library_load(&library, has_name ? named : NULL, true, &err);
    if (to->mpi.code == 0)
        (void)snprintf(to->mpi.text, sizeof to->mpi.text, "%s is loaded as %s", library.file,
                       library.abi->name);
    else
        (void)ct_str_copy(to->mpi.text, sizeof to->mpi.text, err.text);
    free(library.functions);
    void *ucp = dlopen("libucp.so.0", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    to->ucx.wanted = cfg->parallel.backend == CT_CONFIG_BACKEND_UCX;
    to->ucx.code = ucp != NULL ? 0 : CT_EUNSUPPORTED;
    (void)snprintf(to->ucx.text, sizeof to->ucx.text, "%s",
                   ucp != NULL ? "libucp.so.0 is loaded" : dlerror());
}

void doctor_look_programs(const struct ct_config *cfg, struct doctor_facts *ret_facts)
{
    char self[PATH_MAX] = "";
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);

    self[size > 0 ? size : 0] = '\0';
    if (strchr(self, '/') != NULL) {
        look_versions(self, ret_facts);
        look_python(self, ret_facts);
    }
    look_libraries(cfg, ret_facts);
}
