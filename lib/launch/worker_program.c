/* See worker_program.h. */
#include "launch/worker_program.h"

#include "base/assert.h"
#include "base/find_program.h"
#include "base/str.h"
#include "hardware/affinity.h"
#include "launch/worker_env.h"
#include "output/template.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_directory(const char *path)
{
    struct stat st;

    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* `head` (NULL-terminated), then `tail`. */
static int compose(const char *const *head, char *const *tail, struct ct_arena *arena,
                   struct ct_program *program, struct ct_error *err)
{
    size_t heads = 0, tails = 0, used = 0;

    while (head[heads] != NULL)
        heads++;
    while (tail[tails] != NULL)
        tails++;
    program->argv = ct_arena_array(arena, heads + tails + 1, sizeof *program->argv);
    if (program->argv == NULL)
        return ct_error_set(err, CT_ENOMEM, "out of memory for a command line of %zu words",
                            heads + tails);
    for (size_t i = 0; i < heads; i++)
        program->argv[used++] = (char *)(uintptr_t)head[i];
    for (size_t i = 0; i < tails; i++)
        program->argv[used++] = tail[i];
    return 0;
}

/* A file that some interpreter is to read. */
static int check_script(const char *path, struct ct_error *err)
{
    if (is_directory(path))
        return ct_error_set(err, CT_ENOINPUT, "%s is a directory, not a script", path);
    if (access(path, R_OK) != 0)
        return ct_error_set(err, CT_ENOINPUT, "%s cannot be read: %s", path, ct_strerror(-errno));
    return 0;
}

/* How much of the path of ctrun's executable is its folder. */
static int folder_size(const char *self)
{
    const char *slash = strrchr(self, '/');

    return slash != NULL ? (int)(slash - self) : 0;
}

static int decide_trainer(const struct ct_program_request *request, struct ct_arena *arena,
                          struct ct_program *program, struct ct_error *err)
{
    int folder = folder_size(request->self);

    program->native = true;
    program->path = request->worker[0] != '\0'
                        ? ct_find_program(request->worker, ct_env_find(request->env, "PATH"), arena)
                        : ct_arena_printf(arena, "%.*s/ctworker", folder, request->self);
    if (program->path == NULL || !ct_is_executable(program->path))
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "the trainer %s, which runs %s, is missing or not executable; install "
                            "it, or name another with --worker",
                            program->path != NULL ? program->path : request->worker, request->yaml);
    return compose((const char *const[]){program->path, NULL}, request->args, arena, program, err);
}

/* The interpreter of the virtual environment that ctrun was installed in by pip, which has the
 * package of the same version; or else that of PATH. */
static const char *default_python(const char *self, struct ct_arena *arena)
{
    int folder = folder_size(self);
    const char *mark = ct_arena_printf(arena, "%.*s/../pyvenv.cfg", folder, self);
    const char *python = ct_arena_printf(arena, "%.*s/python3", folder, self);
    bool environment = mark != NULL && access(mark, F_OK) == 0;

    return environment && python != NULL && ct_is_executable(python) ? python : "python3";
}

/* The interpreter of this environment as it is named, and its path; *ret_path is NULL when it is
 * not in PATH. */
static const char *find_python(const char *self, char *const *env, struct ct_arena *arena,
                               const char **ret_path)
{
    const char *python = ct_env_find(env, "PYTHON_EXEC");

    if (python == NULL || *python == '\0')
        python = default_python(self, arena);
    *ret_path = ct_find_program(python, ct_env_find(env, "PATH"), arena);
    return python;
}

int ct_program_python(char *const *env, struct ct_arena *arena, const char **ret_path,
                      struct ct_error *err)
{
    char self[4096];
    ssize_t size = readlink("/proc/self/exe", self, sizeof self - 1);

    self[CT_MAX(size, 0)] = '\0';
    const char *python = find_python(self, env, arena, ret_path);
    if (*ret_path != NULL)
        return 0;
    return ct_error_set(err, CT_EUNAVAILABLE,
                        "%s is not in PATH; install it, or name another in PYTHON_EXEC", python);
}

static int decide_python(const struct ct_program_request *request, struct ct_arena *arena,
                         struct ct_program *program, struct ct_error *err)
{
    const char *python = find_python(request->self, request->env, arena, &program->path);

    if (program->path == NULL)
        return ct_error_set(err, CT_EUNAVAILABLE,
                            "%s, needed to run %s, is not in PATH; install it, name another in "
                            "PYTHON_EXEC, or give --no_python for a program of another kind",
                            python, request->name);
    if (request->module)
        return compose((const char *const[]){python, "-u", "-m", request->name, NULL},
                       request->args, arena, program, err);
    program->script = true;
    return compose((const char *const[]){python, "-u", request->name, NULL}, request->args, arena,
                   program, err);
}

/* The executable file that the request's name means, or NULL. */
static const char *find_executable(const struct ct_program_request *request, struct ct_arena *arena)
{
    const char *name = request->name;

    if (request->in_path || strchr(name, '/') != NULL)
        return ct_find_program(name, ct_env_find(request->env, "PATH"), arena);
    return ct_is_executable(name) ? ct_arena_printf(arena, "./%s", name) : NULL;
}

/* A name that is no file to execute: what to write instead, where there is something. */
static int refuse_executable(const struct ct_program_request *request, struct ct_arena *arena,
                             struct ct_error *err)
{
    const char *name = request->name, *elsewhere = NULL;
    bool bare = strchr(name, '/') == NULL;

    if (bare && !request->in_path)
        elsewhere = ct_find_program(name, ct_env_find(request->env, "PATH"), arena);
    if (elsewhere != NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "%s is neither a subcommand nor an executable file here; to run %s, "
                            "write: ctrun -- %s (or --no_python %s)",
                            name, elsewhere, name, name);
    if (is_directory(name))
        return ct_error_set(err, CT_ENOINPUT, "%s is a directory, not a program", name);
    if (bare && ct_is_executable(name))
        return ct_error_set(err, CT_ENOINPUT, "%s is not in PATH; for the file here write ./%s",
                            name, name);
    if (access(name, F_OK) != 0)
        return ct_error_set(err, CT_ENOINPUT,
                            "the program %s was not found%s; give a YAML file, a *.py script, an "
                            "executable file, or a module with -m",
                            name, bare ? ", here or in PATH" : "");
    return ct_error_set(err, CT_ENOINPUT,
                        "%s is not executable; make it so (chmod +x), or give it a name ending in "
                        ".py or .yaml if it is a script or a configuration",
                        name);
}

/* A script from Windows: the kernel, or env, would look for an interpreter whose name ends in CR
 * and report only that there is none. An interpreter's own options may end so. */
static int check_line_ends(const char *path, struct ct_error *err)
{
    char line[256];
    size_t length, blank;

    if (!ct_sys_read("", path, line, sizeof line) || !ct_starts_with(line, "#!"))
        return 0;
    length = strcspn(line, "\n");
    blank = 2 + strspn(line + 2, " \t");
    blank += strcspn(line + blank, " \t\n");
    bool is_env = blank >= 4 && strncmp(line + blank - 4, "/env", 4) == 0;
    if (line[length] != '\n' || line[length - 1] != '\r' || (blank < length && !is_env))
        return 0;
    return ct_error_set(err, CT_ENOINPUT,
                        "%s cannot be executed: its first line ends in CR LF (Windows line ends): "
                        "convert it, e.g. sed -i 's/\\r$//' %s",
                        path, path);
}

static int decide_executable(const struct ct_program_request *request, struct ct_arena *arena,
                             struct ct_program *program, struct ct_error *err)
{
    program->path = find_executable(request, arena);
    if (program->path == NULL)
        return refuse_executable(request, arena, err);
    int rc = check_line_ends(program->path, err);
    if (rc != 0)
        return rc;
    return compose((const char *const[]){request->name, NULL}, request->args, arena, program, err);
}

static bool is_script(const struct ct_program_request *request)
{
    return request->script || (!request->no_python && ct_ends_with(request->name, ".py"));
}

int ct_program_check_name(const struct ct_program_request *request, struct ct_arena *arena,
                          struct ct_error *err)
{
    if (request->yaml != NULL || request->module || is_script(request) || request->in_path ||
        strchr(request->name, '/') != NULL || find_executable(request, arena) != NULL)
        return 0;
    return refuse_executable(request, arena, err);
}

int ct_program_decide(const struct ct_program_request *request, struct ct_arena *arena,
                      struct ct_program *ret_program, struct ct_error *err)
{
    struct ct_program program = {.templates = request->templates};
    int rc;

    CT_ASSERT(request->yaml != NULL || request->name != NULL);
    if (request->module && request->no_python)
        return ct_error_set(err, CT_EUSAGE,
                            "--module and --no_python exclude each other: a module needs python3");
    if (request->yaml != NULL) {
        rc = decide_trainer(request, arena, &program, err);
    } else if (request->module) {
        rc = decide_python(request, arena, &program, err);
    } else if (is_script(request)) {
        rc = check_script(request->name, err);
        rc = rc != 0 ? rc : decide_python(request, arena, &program, err);
    } else {
        rc = decide_executable(request, arena, &program, err);
    }
    if (rc == 0)
        *ret_program = program;
    return rc;
}

/* Is there something to replace in this word? */
static bool is_template(const struct ct_program *program, const char *word,
                        const struct ct_template_value *value)
{
    if (program->templates)
        return !program->native && strchr(word, '$') != NULL;
    return !program->native && ct_template_uses(word, value, 1);
}

int ct_program_argv(const struct ct_program *program, uint32_t local_rank, struct ct_arena *arena,
                    char *const **ret_argv)
{
    char number[16];
    const struct ct_template_value value = {"local_rank", number};
    size_t count = 0;
    bool used = false;

    (void)snprintf(number, sizeof number, "%" PRIu32, local_rank);
    for (; program->argv[count] != NULL; count++)
        used = used || is_template(program, program->argv[count], &value);
    *ret_argv = NULL;
    if (!used)
        return 0;
    char **argv = ct_arena_array(arena, count + 1, sizeof *argv);
    for (size_t i = 0; argv != NULL && i < count; i++) {
        struct ct_buf word;

        argv[i] = program->argv[i];
        if (!is_template(program, argv[i], &value))
            continue;
        ct_buf_init(&word, 0);
        ct_template_expand(argv[i], &value, 1, &word);
        argv[i] = word.failed ? NULL : ct_arena_strdup(arena, ct_buf_str(&word));
        ct_buf_deinit(&word);
        if (argv[i] == NULL)
            return CT_ENOMEM;
    }
    *ret_argv = argv;
    return argv != NULL ? 0 : CT_ENOMEM;
}
