/* See setup.h. What a rank does alone comes first, so that bad data or a bad batch size is told
 * before anybody waits for anybody. */
#include "setup.h"

#include "base/assert.h"
#include "base/str.h"
#include "config/config_keys.h"
#include "dp.h"
#include "recipe/recipe.h"
#include "tensor/plugin.h"
#include "training_round.h"
#include "worker/agree.h"

#include <string.h>
#include <unistd.h>

/* Words of config.def and of tensor/plugin.h that carry the same meaning have the same order. */
#define SAME(a, b) _Static_assert((int)(a) == (int)(b), #a)
SAME(CT_CONFIG_DEVICE_AUTO, CT_DEVICE_AUTO);
SAME(CT_CONFIG_DEVICE_CPU, CT_DEVICE_CPU);
SAME(CT_CONFIG_DEVICE_CUDA, CT_DEVICE_CUDA);

/* Which setting names the file that cannot be read, and where MNIST's come from, whose names the
 * shipped configurations have. */
static int add_remedy(const struct ct_config *cfg, const struct ct_config_source *source,
                      struct ct_error *err)
{
    const char *const *const files[] = {&source->path, &source->images, &source->labels,
                                        &source->merges};
    const char *key = NULL, *file = "";
    const struct ct_error said = *err;

    for (size_t i = 0; i < CT_COUNT(files) && key == NULL; i++) {
        file = *files[i];
        if (file[0] != '\0' && ct_starts_with(said.text, file))
            key = ct_config_key_of(cfg, files[i])->path;
    }
    if (key == NULL)
        return said.code;
    return ct_error_set(err, said.code, "%.700s; put it there, or name another with --%s=FILE%s",
                        said.text, key,
                        strstr(file, "idx3-ubyte") != NULL || strstr(file, "idx1-ubyte") != NULL
                            ? " (the files of MNIST are not shipped, each of its mirrors has them: "
                              "configs/README.md)"
                            : "");
}

static int load_source(struct ct_dataset *ret, const struct ct_worker *worker,
                       const struct ct_config_source *source, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    int64_t context = ct_recipe_context(cfg);
    const struct ct_data_spec spec = {
        .format = ct_config_word(cfg, &source->format),
        .path = source->path,
        .images = source->images,
        .labels = source->labels,
        .label = (int)source->label,
        .header = source->header,
        .classes = (int32_t)(context != 0 ? ct_recipe_vocabulary(cfg) : ct_recipe_classes(cfg)),
        .scale = source->scale,
        .mean = source->mean,
        .std = source->std,
        .split_lo = source->split.at[0],
        .split_hi = source->split.at[1],
        .tokenizer = ct_config_word(cfg, &source->tokenizer),
        .merges = source->merges,
        .shared = worker->train.tokenizer,
        .ids = (enum ct_token_format)source->ids,
        .context = (size_t)context,
    };
    int code = ct_dataset_load(ret, &spec, err);

    if (code == CT_ENOINPUT)
        code = add_remedy(cfg, source, err);
    int64_t width = ct_recipe_width(cfg);
    if (code == 0 && width != 0 && (size_t)width != ret->width)
        code = ct_error_set(err, CT_EDATA, "model.input is %d, but %s has %zu features a sample",
                            (int)width, source->path[0] != '\0' ? source->path : source->images,
                            ret->width);
    int64_t vocabulary = ct_recipe_vocabulary(cfg);
    if (code == 0 && vocabulary != 0 && vocabulary < ret->classes)
        code = ct_error_set(err, CT_EDATA, "model.vocabulary is %d, but %s has %d different tokens",
                            (int)vocabulary, source->path, ret->classes);
    return code;
}

static int load_data(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config_source *eval = &worker->cfg->data.eval;
    int code = load_source(&worker->train, worker, &worker->cfg->data.train, err);

    if (code != 0 || (eval->path[0] == '\0' && eval->images[0] == '\0'))
        return code;
    code = load_source(&worker->eval, worker, eval, err);
    if (code == 0 && worker->eval.width != worker->train.width)
        code = ct_error_set(err, CT_EDATA,
                            "data.eval has %zu features a sample, but data.train has %zu",
                            worker->eval.width, worker->train.width);
    return code == 0 ? ct_text_sample_prepare(worker, err) : code;
}

/* Where NVIDIA's driver has never been, nobody expects a GPU, and nobody is told of the CPU. */
static bool has_card(void)
{
    return access("/dev/nvidiactl", F_OK) == 0;
}

static int open_device(struct ct_worker *worker, struct ct_error *err)
{
    const struct ct_config *cfg = worker->cfg;
    bool on_cpu = cfg->parallel.strategy == CT_CONFIG_STRATEGY_DP ||
                  cfg->parallel.strategy == CT_CONFIG_STRATEGY_PS;
    const struct ct_device_request request = {
        .kind = on_cpu ? CT_DEVICE_CPU : (enum ct_device_kind)cfg->train.device,
        .threads = ct_dp_threads(cfg),
        .local_rank = worker->me->local_rank};
    struct ct_error why = {0};
    int code = ct_device_open(&request, &worker->device, &why, err);

    if (code == 0 && ct_device_accel(worker->device) == NULL &&
        (cfg->parallel.backend == CT_CONFIG_BACKEND_NCCL ||
         cfg->parallel.backend == CT_CONFIG_BACKEND_STAGED)) {
        ct_device_free(worker->device);
        worker->device = NULL;
        return ct_error_set(err, CT_EUNSUPPORTED,
                            "parallel.backend %s carries memory of a GPU, and this computes on the "
                            "CPU; leave it out, or see why with train.device: cuda",
                            ct_config_word(cfg, &cfg->parallel.backend));
    }
    if (code == 0 && why.code != 0 && worker->me->rank == 0)
        ct_log_event(worker->log, has_card() ? CT_LOG_INFO : CT_LOG_DEBUG, "device",
                     "using CPU (%s)", why.text);
    return code;
}

int ct_setup(struct ct_worker *worker, struct ct_error *err)
{
    worker->scope = CT_SCOPE_NODE;
    (void)ct_job_survive(worker->job); /* who loads data can join a later round just as well */
    int code = load_data(worker, err);

    if (code != 0)
        return code;
    ct_agree_prepare(worker);
    ct_stop_init(worker->stop);
    code = open_device(worker, err);
    if (code != 0)
        return code;
    return ct_round_enter(worker, err);
}

void ct_setup_undo(struct ct_worker *worker)
{
    ct_report_close(worker);
    ct_round_undo(worker);
    ct_text_sample_deinit(&worker->text_sample);
    ct_device_free(worker->device);
    ct_dataset_deinit(&worker->train);
    ct_dataset_deinit(&worker->eval);
}
