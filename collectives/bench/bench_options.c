/* See bench.h: the options, all from bench_options.def. */
#include "bench.h"

#include "base/assert.h"
#include "base/str.h"
#include "group/group.h"

#include <string.h>

enum type { BYTES, NUMBER, FLAG, TEXT };

static const struct option {
    const char *name;
    enum type type;
    const char *otherwise;
    const char *help;
} options[] = {
#define CT_BENCH_OPTION(name, type, member, otherwise, help) {name, type, otherwise, help},
#include "bench/bench_options.def"
#undef CT_BENCH_OPTION
};

enum index {
#define CT_BENCH_OPTION(name, type, member, otherwise, help) AT_##member,
#include "bench/bench_options.def"
#undef CT_BENCH_OPTION
    OPTIONS
};

/* The option that `word` (--name or --name=value) begins; OPTIONS when there is none. */
static size_t find(const char *word)
{
    for (size_t i = 0; i < OPTIONS && ct_starts_with(word, "--"); i++) {
        size_t length = strlen(options[i].name);

        if (strncmp(word + 2, options[i].name, length) == 0 &&
            (word[2 + length] == 0 || word[2 + length] == '='))
            return i;
    }
    return OPTIONS;
}

int ct_bench_option_words(int argc, const char *const *argv)
{
    size_t at = argc > 0 ? find(argv[0]) : OPTIONS;

    if (at == OPTIONS)
        return 0;
    return options[at].type == FLAG || strchr(argv[0], '=') != NULL || argc == 1 ? 1 : 2;
}

/* ---- words that other tables know ------------------------------------------------------------*/

static int find_word(const char *word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, words[i]) == 0)
            return i;
    return -1;
}

/* `word` is no value of the option at `at`. */
static int refuse(size_t at, const char *word, struct ct_error *err)
{
    static const char *const wanted[] = {
        [BYTES] = "a size such as 64MiB", [NUMBER] = "a whole number", [FLAG] = "no value"};

    return ct_error_set(err, CT_EUSAGE, "--%s wants %s%s, not \"%.64s\"", options[at].name,
                        options[at].type == TEXT ? "one of " : "",
                        options[at].type == TEXT ? options[at].help : wanted[options[at].type],
                        word);
}

static const char *op_name_at(const void *context, size_t index)
{
    (void)context;
    return index < CT_BENCH_OPS ? ct_bench_name((enum ct_bench_op)index) : "all";
}

static int refuse_op(const char *word, struct ct_error *err)
{
    const char *near = ct_nearest(word, CT_BENCH_OPS + 1, op_name_at, NULL);

    if (near != NULL)
        return ct_error_set(err, CT_EUSAGE, "--op \"%.64s\" is not known; did you mean %s?", word,
                            near);
    return ct_error_set(err, CT_EUSAGE,
                        "--op wants all_reduce, reduce, broadcast, all_gather, reduce_scatter, "
                        "gather, scatter, all_to_all, send_recv, barrier or all, not \"%.64s\"",
                        word);
}

static int read_ops(const char *text, unsigned *ret_ops, struct ct_error *err)
{
    char words[256], *rest = words;
    unsigned ops = 0;

    if (strcmp(text, "all") == 0) {
        *ret_ops = (1u << CT_BENCH_OPS) - 1;
        return 0;
    }
    if (!ct_str_copy(words, sizeof words, text))
        return refuse_op(text, err);
    for (char *word = strsep(&rest, ","); word != NULL; word = strsep(&rest, ",")) {
        int op = 0;

        while (op < CT_BENCH_OPS && strcmp(word, ct_bench_name((enum ct_bench_op)op)) != 0)
            op++;
        if (op == CT_BENCH_OPS)
            return refuse_op(word, err);
        ops |= 1u << op;
    }
    *ret_ops = ops;
    return 0;
}

/* Its buffers lie in the host's memory. */
static int check_backend(const char *name, struct ct_error *err)
{
    bool on_device = false;
    int code = ct_backend_check(name, &on_device, err);

    if (code == 0 && on_device)
        code = ct_error_set(
            err, CT_EUSAGE,
            "backend %s moves the memory of a device, and the bench has its buffers in "
            "the host's: use auto, shm, hier, ucx, tcp or mpi",
            name);
    return code == 0 ? 0 : ct_error_prefix(err, "--backend");
}

static int read_words(const char *const *values, struct ct_bench_options *options_,
                      struct ct_error *err)
{
    static const char *const reduces[] = {"sum", "avg", "max", "min", "prod"};
    static const char *const modes[] = {"fast", "reproducible", "invariant"};
    int dtype = ct_dtype_find(values[AT_dtype]);
    int reduce = find_word(values[AT_red], reduces, CT_COUNT(reduces));
    int mode = find_word(values[AT_mode], modes, CT_COUNT(modes));

    if (dtype < 0 || dtype == CT_BOOL)
        return refuse(AT_dtype, values[AT_dtype], err);
    if (reduce < 0)
        return refuse(AT_red, values[AT_red], err);
    if (mode < 0)
        return refuse(AT_mode, values[AT_mode], err);
    options_->dtype = (enum ct_dtype)dtype;
    options_->reduce = (enum ct_reduce)reduce;
    options_->mode = (enum ct_reduce_mode)mode;
    options_->backend = values[AT_backend];
    int code = check_backend(values[AT_backend], err);
    return code == 0 ? read_ops(values[AT_op], &options_->ops, err) : code;
}

/* ---- reading ---------------------------------------------------------------------------------*/

static int read_number(size_t at, const char *value, uint64_t *ret_number, struct ct_error *err)
{
    int code = options[at].type == BYTES ? ct_parse_bytes(value, ret_number)
                                         : ct_parse_u64(value, ret_number);

    return code == 0 ? 0 : refuse(at, value, err);
}

/* The word given for each option, or its default. */
static int collect(int argc, const char *const *argv, const char **values, struct ct_error *err)
{
    for (size_t i = 0; i < OPTIONS; i++)
        values[i] = options[i].otherwise;
    for (int i = 0; i < argc;) {
        size_t at = find(argv[i]);
        int taken = ct_bench_option_words(argc - i, argv + i);
        const char *equals = strchr(argv[i], '=');

        if (taken == 0)
            return ct_error_set(err, CT_EUSAGE, "\"%s\" is no option of the bench", argv[i]);
        if (taken == 1 && equals == NULL && options[at].type != FLAG)
            return ct_error_set(err, CT_EUSAGE, "--%s wants a value: %s", options[at].name,
                                options[at].help);
        values[at] = taken == 2 ? argv[i + 1] : equals != NULL ? equals + 1 : "1";
        i += taken;
    }
    return 0;
}

int ct_bench_read(int argc, const char *const *argv, struct ct_bench_options *ret_options,
                  struct ct_error *err)
{
    struct ct_bench_options read = {0};
    const char *values[OPTIONS];
    uint64_t symmetric = 0, encrypt = 0, json = 0, tune = 0;
    const struct {
        size_t at;
        uint64_t *number;
    } numbers[] = {{AT_min_bytes, &read.min_bytes},
                   {AT_max_bytes, &read.max_bytes},
                   {AT_factor, &read.factor},
                   {AT_root, &read.root},
                   {AT_iters, &read.iters},
                   {AT_check, &read.check},
                   {AT_symmetric, &symmetric},
                   {AT_encrypt, &encrypt},
                   {AT_json, &json},
                   {AT_tune, &tune}};
    int code = collect(argc, argv, values, err);

    for (size_t i = 0; i < CT_COUNT(numbers) && code == 0; i++)
        code = read_number(numbers[i].at, values[numbers[i].at], numbers[i].number, err);
    if (code == 0)
        code = read_words(values, &read, err);
    if (code == 0 && (read.factor < 2 || read.iters == 0 || read.min_bytes > read.max_bytes))
        code = ct_error_set(err, CT_EUSAGE,
                            "--min is at most --max, --factor at least 2, --iters at least 1");
    read.symmetric = symmetric != 0;
    read.encrypt = encrypt != 0;
    read.json = json != 0;
    read.tune = tune != 0;
    if (code == 0)
        *ret_options = read;
    return code;
}
