/* ctrun k8s [OPTIONS] [OPTIONS of run] train.yaml | PROGRAM: a manifest for Kubernetes on standard
 * output. The configuration is read here, so that its errors are found before pods are started. */
#include "cmd/ctrun/cli/commands.h"

#include "base/assert.h"
#include "base/fs.h"
#include "base/str.h"
#include "cmd/ctrun/agent/job/launch_job.h"
#include "cmd/ctrun/cli/key_option.h"
#include "config/config.h"
#include "kubernetes/manifest.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { FILE_BYTES = 900 << 10 }; /* a ConfigMap holds 1 MiB at most */

struct request {
    const char *image, *name, *space, *secret, *claim, *folder, *cpu, *memory, *gpus;
    bool help;
    struct ct_arena arena;
};

static int fail(int code, const struct ct_error *err)
{
    return ct_command_fail("ctrun", code, err->text);
}

/* ---- options ---- */

/* Where the value of an option goes; NULL for one that is not of this subcommand. */
static const char **place_of(struct request *request, const char *word, size_t size)
{
    const struct {
        const char *option;
        const char **place;
    } rows[] = {
        {"--image", &request->image},     {"--name", &request->name},
        {"--namespace", &request->space}, {"--secret", &request->secret},
        {"--claim", &request->claim},     {"--folder", &request->folder},
        {"--cpu", &request->cpu},         {"--memory", &request->memory},
        {"--gpus", &request->gpus},
    };

    for (size_t i = 0; i < CT_COUNT(rows); i++)
        if (strlen(rows[i].option) == size && strncmp(rows[i].option, word, size) == 0)
            return rows[i].place;
    return NULL;
}

/* The option at `words`, if it is one of this subcommand's: the words that it takes, 0 for another
 * word, or a negative code. */
static int take_option(struct request *request, char **words, struct ct_error *err)
{
    const char *word = words[0];
    size_t size = strcspn(word, "=");
    const char **place = place_of(request, word, size);

    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        request->help = true;
        return 1;
    }
    if (place == NULL)
        return 0;
    *place = word[size] == '=' ? word + size + 1 : words[1];
    if (*place == NULL || (*place)[0] == '\0')
        return ct_error_set(err, CT_EUSAGE, "%.*s wants a value", (int)size, word);
    return word[size] == '=' ? 1 : 2;
}

/* Take this subcommand's options out of the words, wherever they stand before a program's own
 * arguments; the rest, NULL-terminated, is run's. How many, or a negative code. */
static int read_options(struct request *request, char **words, struct ct_error *err)
{
    size_t kept = 0, at = 0;
    bool options = true;

    while (words[at] != NULL) {
        int taken = options ? take_option(request, words + at, err) : 0;
        size_t width = 1;

        if (taken < 0)
            return taken;
        if (taken > 0) {
            at += (size_t)taken;
            continue;
        }
        if (options && words[at][0] == '-' && words[at][1] != '\0') {
            width = (size_t)ct_config_option_width(words[at], words[at + 1]);
            if (width == 0 && strcmp(words[at], "--") != 0)
                return ct_command_unknown("k8s", words[at], err);
            options = width > 0; /* not behind "--" */
            width = CT_MAX(width, 1);
        } else if (options) {
            options = ct_ends_with(words[at], ".yaml") || ct_ends_with(words[at], ".yml");
        }
        for (; width > 0 && words[at] != NULL; width--)
            words[kept++] = words[at++];
    }
    words[kept] = NULL;
    return (int)kept;
}

static bool is_quantity(const char *text)
{
    size_t digits = strspn(text, "0123456789.");

    return text[0] >= '0' && text[0] <= '9' && strspn(text + digits, "mkKMGTPi") < 3 &&
           text[digits + strspn(text + digits, "mkKMGTPi")] == '\0';
}

static int check(const struct request *request, struct ct_error *err)
{
    const struct {
        const char *option, *value;
    } names[] = {{"--name", request->name},
                 {"--namespace", request->space},
                 {"--secret", request->secret},
                 {"--claim", request->claim}},
      amounts[] = {
          {"--cpu", request->cpu}, {"--memory", request->memory}, {"--gpus", request->gpus}};

    if (request->image == NULL)
        return ct_error_set(err, CT_EUSAGE,
                            "ctrun k8s wants --image IMAGE, a container image that has ctrun "
                            "(`make image` builds one)");
    for (size_t i = 0; i < CT_COUNT(names); i++)
        if (names[i].value != NULL && !ct_manifest_name_is_good(names[i].value))
            return ct_error_set(err, CT_EUSAGE,
                                "%s %.80s is no name in Kubernetes: it wants at most %d lower-case "
                                "letters, digits and dashes, a letter first and no dash last",
                                names[i].option, names[i].value, CT_MANIFEST_NAME);
    for (size_t i = 0; i < CT_COUNT(amounts); i++)
        if (amounts[i].value != NULL && !is_quantity(amounts[i].value))
            return ct_error_set(err, CT_EUSAGE, "%s %.80s is no amount such as 4, 500m or 16Gi",
                                amounts[i].option, amounts[i].value);
    if (request->folder[0] != '/')
        return ct_error_set(err, CT_EUSAGE, "--folder %.80s is no absolute path", request->folder);
    return 0;
}

/* ---- the manifest ---- */

/* The words, with the path that the file has in the container. */
static const char *const *words_of(struct request *request, char **words, const char *file,
                                   const char *inside)
{
    size_t count = 0;

    while (words[count] != NULL)
        count++;
    const char **list = ct_arena_array(&request->arena, count + 1, sizeof *list);
    for (size_t i = 0; list != NULL && i < count; i++)
        list[i] = file != NULL && strcmp(words[i], file) == 0 ? inside : words[i];
    return list;
}

static int make(struct request *request, const struct ct_config *cfg, char **words,
                struct ct_error *err)
{
    const char *file = cfg->command.file;
    const char *path = file != NULL ? file : cfg->command.program;
    char name[CT_MANIFEST_NAME + 1];
    struct ct_buf text, out;
    uint64_t workers = 0;

    ct_manifest_name_of(path, name);
    (void)ct_parse_u64(cfg->launch.nproc_per_node, &workers); /* or "gpu": not said */
    struct ct_manifest m = {
        .name = request->name != NULL ? request->name : name,
        .space = request->space,
        .image = request->image,
        .nodes_min = cfg->launch.nnodes.min,
        .nodes_max = cfg->launch.nnodes.max,
        .grace_s = (cfg->launch.grace_ms + 999) / 1000,
        .claim = request->claim,
        .cpu = request->cpu,
        .memory = request->memory,
        .gpus = request->gpus,
        .folder = request->folder,
    };
    const char *slash = file != NULL ? strrchr(file, '/') : NULL;
    m.file_name = slash != NULL ? slash + 1 : file;
    if (m.cpu == NULL && workers > 0)
        m.cpu = ct_arena_printf(&request->arena, "%llu", (unsigned long long)workers);
    if (request->secret != NULL || (m.nodes_max > 1 && !key_option_given(cfg)))
        m.secret = request->secret != NULL ? request->secret
                                           : ct_arena_printf(&request->arena, "%s-key", m.name);
    m.arguments = words_of(request, words, file,
                           ct_arena_printf(&request->arena, "%s/%s", m.folder, m.file_name));
    ct_buf_init(&text, 0);
    ct_buf_init(&out, 0);
    int rc = file != NULL ? ct_fs_read(file, FILE_BYTES, &text, err) : 0;
    if (rc == 0) {
        m.file_text = ct_buf_str(&text);
        ct_manifest_print(&m, &out);
        rc = out.failed || m.arguments == NULL
                 ? ct_error_set(err, CT_ENOMEM, "out of memory for the manifest")
                 : ct_fs_write_all(STDOUT_FILENO, out.data, out.size);
    }
    if (rc < 0 && err->code == 0)
        (void)ct_error_set(err, CT_EIO, "the manifest cannot be written: %s", ct_strerror(rc));
    ct_buf_deinit(&text);
    ct_buf_deinit(&out);
    return rc;
}

int ct_cmd_k8s(int argc, char **argv)
{
    /* Where the nodes meet, and by which key, the manifest says. */
    static const struct ct_config_preset later = {"launch.rdzv_endpoint", "kubernetes",
                                                  "Kubernetes"};
    struct request request = {.folder = "/run/ctrun/job"};
    struct ct_config_errors errs = {0};
    struct ct_config cfg = {0};
    struct ct_error err = {0};
    int status;

    ct_arena_init(&request.arena, 4 << 20);
    (void)argc;
    int rc = read_options(&request, argv + 1, &err);
    const struct ct_config_input input = {
        .argc = CT_MAX(rc, 0),
        .argv = argv + 1,
        .env = environ,
        .command_needed = true,
        .presets = &later,
        .preset_count = 1,
    };
    if (request.help) {
        status = ct_command_help("k8s");
    } else if (rc < 0 || check(&request, &err) != 0) {
        status = fail(err.code, &err);
    } else if ((rc = ct_config_load(&cfg, &input, &errs)) != 0) {
        ct_complain(&errs, false);
        status = ct_exit_status(rc);
    } else {
        rc = make(&request, &cfg, argv + 1, &err);
        status = rc == 0 ? 0 : fail(err.code, &err);
    }
    ct_config_deinit(&cfg);
    ct_arena_deinit(&request.arena);
    return status;
}
