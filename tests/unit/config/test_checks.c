/* Rules across keys: what a training needs, and when a rule keeps quiet. */
#include "config_test.h"

#include "base/assert.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <string.h>

TestSuite(checks, .timeout = 30);

#define MODEL "model: {classes: 10}\n"
#define GPT "model: {type: gpt, context: 8, layers: 2, heads: 2, width: 8}\n"
#define DATA "data: {train: {path: d.csv}}\n"
#define TEXT "data: {train: {format: text, path: t}}\n"

static const struct {
    const char *yaml, *complaints;
} cases[] = {
    {MODEL DATA, ""},
    {"seed: 1\n", "a.yaml: model.classes is missing: say how many classes the labels have\n"
                  "a.yaml: data.train.path is missing: format csv reads it\n"},
    {DATA "model: {classes: 1}\n",
     "a.yaml:2:18: model.classes must be at least 2 with this loss\n"},
    {DATA "model: {classes: 1, loss: mse}\n", ""},
    {MODEL "data: {train: {format: idx}}\n",
     "a.yaml: data.train.images is missing: format idx reads it\n"
     "a.yaml: data.train.labels is missing: format idx reads it\n"},
    {MODEL "data: {train: {format: idx, images: i, labels: l}}\n", ""},
    {MODEL "data: {train: {format: idx, images: i, labels: l, path: p}}\n",
     "a.yaml:2:57: data.train.path is given, but format idx does not read it\n"},
    {MODEL "data: {train: {path: d}, eval: {labels: l}}\n",
     "a.yaml: data.eval.path is missing: format csv reads it\n"
     "a.yaml:2:41: data.eval.labels is given, but format csv does not read it\n"},
    {GPT "data: {train: {format: text}}\n",
     "a.yaml: data.train.path is missing: format text reads it\n"},
    {GPT "data: {train: {format: text, path: p, tokenizer: gpt2}}\n",
     "a.yaml: data.train.merges is missing: the tokenizer gpt2 reads it\n"},
    {GPT "data: {train: {format: text, path: p, tokenizer: char, merges: m}}\n",
     "a.yaml:2:64: data.train.merges is given, but only a text's tokenizer gpt2 reads it\n"},
    {GPT "data: {train: {format: tokens, path: p_*.bin, images: i}}\n",
     "a.yaml:2:55: data.train.images is given, but format tokens does not read it\n"},
    {MODEL "data: {train: {path: d}, eval: {format: idx, labels: l}}\n",
     "a.yaml: data.eval.images is missing: format idx reads it\n"},
    {MODEL "data: {train: {path: d}, eval: {format: idx}}\n", ""},
    {MODEL "data: {train: {path: d, split: [0.5, 0.5]}}\n",
     "a.yaml:2:32: data.train.split must go from a smaller to a larger fraction, not from 0.5 to "
     "0.5\n"},
    {MODEL DATA "batch: {global: 64, micro: 24}\n",
     "a.yaml:3:28: batch.micro must divide batch.global (64), which 24 does not; 16 would\n"},
    {MODEL DATA "batch: {global: 64, micro: 100}\n",
     "a.yaml:3:28: batch.micro must divide batch.global (64), which 100 does not; 64 would\n"},
    {MODEL DATA "batch: {global: 64, micro: 16}\n", ""},
    {MODEL DATA "parallel: {strategy: zero1, shard: grad}\n",
     "a.yaml:3:36: parallel.shard is for fsdp; set parallel.strategy to fsdp, or leave it out\n"},
    {MODEL DATA "train: {precision: f16, loss_scale: 1024, loss_scale_every: 10}\n", ""},
    {MODEL DATA "parallel: {strategy: dp, replicate: 2}\ntrain: {device: cuda}\n",
     "a.yaml:4:17: train.device cuda is not for parallel.strategy dp, which computes on the CPU; "
     "use ddp with one worker per GPU, or set train.device to cpu\n"},
    {MODEL DATA "parallel: {strategy: ps}\ntrain: {device: cuda}\n",
     "a.yaml:4:17: train.device cuda is not for parallel.strategy ps, which computes on the CPU; "
     "use ddp with one worker per GPU, or set train.device to cpu\n"},
    {MODEL DATA "memory: {offload: file, offload_dir: /var/tmp}\n", ""},
    {MODEL DATA "memory: {offload: host, offload_dir: /var/tmp}\n",
     "a.yaml:3:38: memory.offload_dir is for activations in a file; set memory.offload to file, or "
     "leave it out\n"},
    {MODEL DATA "parallel: {reduce: reproducible, reduce_dtype: bf16}\n", ""},
    {MODEL DATA "parallel: {reduce: invariant, reduce_dtype: bf16}\n",
     "a.yaml:3:45: parallel.reduce_dtype is bf16, which rounds the gradients of each worker, so "
     "the "
     "bits are not those of other numbers of workers; set parallel.reduce to reproducible or "
     "fast\n"},
    {MODEL DATA "train: {precision: bf16, loss_scale: 1024}\n",
     "a.yaml:3:38: train.loss_scale scales the loss of a training in f16; set train.precision to "
     "f16, or leave it out\n"},
    {MODEL DATA "train: {precision: f16, loss_scale: 1000}\n",
     "a.yaml:3:37: train.loss_scale is 1000, must be a power of two (512 or 1024)\n"},
    {MODEL DATA "train: {precision: bf16, rounding: stochastic}\n", ""},
    {MODEL DATA "train: {precision: f16, rounding: stochastic}\n",
     "a.yaml:3:35: train.rounding is stochastic, which is for copies of the parameters in bf16; "
     "set "
     "train.precision to bf16, or leave it out\n"},
    {MODEL DATA "train: {rounding: stochastic}\n",
     "a.yaml:3:19: train.rounding is stochastic, which is for copies of the parameters in bf16; "
     "set "
     "train.precision to bf16, or leave it out\n"},
    {MODEL DATA "parallel: {strategy: fsdp, shard: grad, prefetch: 0, replicate: 2}\n", ""},
    {MODEL DATA "parallel: {replicate: 2}\n",
     "a.yaml:3:23: parallel.replicate is 2, but with ddp every worker holds a copy; set "
     "parallel.strategy to zero1 or fsdp, or leave it out\n"},
    {MODEL DATA "parallel: {pipeline: 2, schedule: interleaved, chunks: 2}\n", ""},
    {MODEL DATA "parallel: {pipeline: 2, schedule: interleaved}\n",
     "a.yaml:3:35: parallel.schedule interleaved takes stages with several runs of layers; set "
     "parallel.chunks to 2 or more, or leave it out\n"},
    {MODEL DATA "parallel: {pipeline: 2, chunks: 2}\n",
     "a.yaml:3:33: parallel.chunks is 2, for stages with several runs of layers; set "
     "parallel.schedule to interleaved, or leave it out\n"},
    {MODEL DATA "parallel: {schedule: gpipe}\n",
     "a.yaml:3:22: parallel.schedule is about stages; set parallel.pipeline above 1, or leave it "
     "out\n"},
    {MODEL DATA "parallel: {pipeline: 2}\nmemory: {offload: host}\n", ""},
    {MODEL DATA "parallel: {pipeline: 2, tensor: 2}\ncheck: {replicas: 5}\n", ""},
    {MODEL DATA "launch: {nnodes: \"1:2\", rdzv_endpoint: \"a:1\", nproc_per_node: 4}\n"
                "parallel: {pipeline: 2, tensor: 2}\n",
     ""},
    {MODEL DATA "launch: {nnodes: \"1:2\", rdzv_endpoint: \"a:1\", nproc_per_node: 2}\n"
                "parallel: {pipeline: 2, tensor: 2}\n",
     "a.yaml:3:63: launch.nproc_per_node is 2, but parallel.tensor x parallel.pipeline is 4 and "
     "launch.nnodes 1:2; give each node a multiple of 4 workers, or launch.nnodes one number\n"},
    {MODEL DATA "parallel: {strategy: ps, servers: 2, staleness: 4}\n", ""},
    {MODEL DATA "parallel: {servers: 2}\n",
     "a.yaml:3:21: parallel.servers is about parameter servers; set parallel.strategy to ps, or "
     "leave it out\n"},
    {MODEL DATA "parallel: {staleness: 1}\n",
     "a.yaml:3:23: parallel.staleness is about parameter servers; set parallel.strategy to ps, or "
     "leave it out\n"},
    {MODEL DATA "parallel: {strategy: ps, tensor: 2}\n",
     "a.yaml:3:34: parallel.tensor is 2, but with parallel.strategy ps each worker computes the "
     "whole model; use ddp or fsdp, or leave it out\n"},
    {MODEL DATA "launch: {nnodes: \"1:2\", rdzv_endpoint: \"a:1\"}\nparallel: {strategy: ps}\n",
     "a.yaml:4:22: parallel.strategy is ps, for a fixed number of workers, but launch.nnodes is "
     "1:2; give one number\n"},
    {MODEL DATA "optim: {freeze: [\"layers.0.*\"], ema: 0.9}\ntrain: {precision: f16}\n"
                "parallel: {strategy: ps, reduce_dtype: bf16}\ncheck: {replicas: 5}\n"
                "eval: {ema: true}\n",
     "a.yaml:6:19: check.replicas compares whole states, and with parallel.strategy ps they lie "
     "with the servers; use ddp, or leave it out\n"
     "a.yaml:7:13: eval.ema is not for parallel.strategy ps, where the average lies with the "
     "servers; use ddp or fsdp, or leave it out\n"
     "a.yaml:3:17: optim.freeze is not for parallel.strategy ps, whose servers have what is "
     "learned; use ddp or fsdp, or leave it out\n"
     "a.yaml:4:20: train.precision is f16, whose loss is scaled by what all gradients say "
     "together, and with parallel.strategy ps nobody sees them all; use bf16 or f32\n"
     "a.yaml:5:40: parallel.reduce_dtype is not for parallel.strategy ps, whose servers add up in "
     "f32; leave it out\n"},
    {MODEL DATA "parallel: {strategy: dp, replicate: 4}\n", ""},
    {MODEL DATA "parallel: {strategy: dp, replicate: 65}\n",
     "a.yaml:3:37: parallel.replicate is 65; dp has at most 64 replicas\n"},
    {MODEL DATA "parallel: {strategy: dp, tensor: 2}\n",
     "a.yaml:3:34: parallel.tensor is 2, for that many workers, and with parallel.strategy dp "
     "there is one; use ddp, or leave it out\n"},
    {MODEL DATA "parallel: {strategy: dp}\nlaunch: {nproc_per_node: 2}\n",
     "a.yaml:4:26: launch.nproc_per_node starts several workers, but with parallel.strategy dp one "
     "holds all replicas, as threads; leave it 1 and set parallel.replicate, or use ddp\n"},
    {MODEL DATA "parallel: {strategy: zero1}\ncheck: {replicas: 5}\n", ""},
    {MODEL DATA "parallel: {strategy: fsdp, replicate: 2}\ncheck: {replicas: 5}\n", ""},
    {MODEL DATA "parallel: {strategy: fsdp}\ncheck: {replicas: 5}\n",
     "a.yaml:4:19: check.replicas compares what several workers hold, and with fsdp no two hold "
     "the same; set parallel.replicate above 1, or leave it out\n"},
    {MODEL DATA "optim: {ema: 0.9}\nparallel: {strategy: zero1}\neval: {ema: true}\n",
     "a.yaml:5:13: eval.ema is not for zero1, where a worker holds all parameters but a part of "
     "their average; set parallel.strategy to fsdp or ddp\n"},
    {MODEL DATA "parallel: {strategy: fsdp, shard: none}\ncheck: {replicas: 5}\n", ""},
    {MODEL DATA "train: {epochs: 0}\n", "a.yaml:3:17: train.epochs and train.steps are both 0; one "
                                        "of them must say how long to train\n"},
    {MODEL DATA "train: {epochs: 0, steps: 5}\n", ""},
    {MODEL DATA "train: {steps: 5}\nschedule: {warmup: 6}\n",
     "a.yaml:4:20: schedule.warmup is longer than the whole training (train.steps is 5); make it "
     "shorter (0 is none), or give more steps\n"},
    {MODEL DATA "train: {steps: 9}\nschedule: {type: wsd, warmup: 5, decay: 5}\n",
     "a.yaml:4:41: schedule.decay 5 and schedule.warmup 5 are longer than the whole training "
     "(train.steps is 9); make one of them shorter, or give more steps\n"},
    {MODEL DATA "train: {steps: 10}\nschedule: {type: wsd, warmup: 5, decay: 5}\n", ""},
    {MODEL DATA "schedule: {type: plateau}\n",
     "a.yaml:3:18: schedule.type plateau looks at held-out samples: give data.eval\n"},
    {MODEL DATA "optim: {lr_factors: [\"a=1\", \"head.*\"]}\n",
     "a.yaml:3:21: optim.lr_factors holds \"head.*\"; each part is PATTERN=FACTOR with a factor "
     "from "
     "0 to 1000, such as head.*=10\n"},
    {MODEL DATA "optim: {lr_factors: [\"head.*=-1\"]}\n",
     "a.yaml:3:21: optim.lr_factors holds \"head.*=-1\"; each part is PATTERN=FACTOR with a factor "
     "from 0 to 1000, such as head.*=10\n"},
    {MODEL DATA "optim: {lr_factors: [\"head.*=0.1\", \"a=b=2\"]}\n", ""},
    {MODEL DATA "optim: {no_decay: [\"*.bias\", auto]}\n",
     "a.yaml:3:19: optim.no_decay has auto beside others; it stands alone\n"},
    {MODEL DATA "optim: {no_decay: [\"*.bias\", 1d]}\n",
     "a.yaml:3:19: optim.no_decay has 1d behind others; put it first\n"},
    {MODEL DATA "optim: {no_decay: [1d, \"*.bias\"]}\n", ""},
    {MODEL DATA "eval: {ema: true}\n",
     "a.yaml:3:13: eval.ema looks at an average that is not kept: set optim.ema, 0.999 is usual\n"},
    {MODEL DATA "eval: {ema: true}\noptim: {ema: 0.9}\n", ""},
    {MODEL DATA "optim: {type: sgd, nesterov: true}\n",
     "a.yaml:3:30: optim.nesterov needs optim.momentum above 0, 0.9 is usual\n"},
    {MODEL DATA "optim: {type: lion, nesterov: true, momentum: 0.9}\n",
     "a.yaml:3:31: optim.nesterov is for sgd, but optim.type is lion\n"},
    {MODEL DATA "optim: {type: sgd, nesterov: true, momentum: 0.9}\n", ""},
    {MODEL DATA "launch: {module: true}\n",
     "a.yaml:3:18: launch.module is for programs, but a.yaml is a YAML file\n"},
    {MODEL DATA "launch: {nnodes: 3:2, nproc_per_node: 0}\n",
     "a.yaml:3:18: launch.nnodes 3:2: MIN exceeds MAX; swap them\n"
     "a.yaml:3:39: launch.nproc_per_node must be a number from 1 to 4096, cpu, gpu or auto, not "
     "\"0\"\n"},
    {GPT DATA, "a.yaml: data.train.format csv gives features, but a model of type gpt takes tokens "
               "(text, tokens)\n"},
    {MODEL "data: {train: {path: d}, eval: {format: text, path: t}}\n",
     "a.yaml:2:41: data.eval.format text gives tokens, but a model of type mlp takes features "
     "(csv, "
     "idx)\n"},
    {"model: {type: gpt, heads: 3, width: 8, classes: 2}\n" TEXT,
     "a.yaml:1:49: model.classes is not for a gpt: give model.vocabulary, or nothing\n"
     "a.yaml: model.context is missing: a gpt needs it, or a model.preset\n"
     "a.yaml: model.layers is missing: a gpt needs it, or a model.preset\n"
     "a.yaml:1:27: model.heads 3 does not divide model.width 8: each head has an equal share of "
     "the "
     "columns\n"},
    {"model: {type: gpt, preset: gpt2-124M}\n" TEXT, ""},
    {"model: {type: gpt, preset: gpt2-124M, layers: [relu]}\n" TEXT,
     "a.yaml:1:47: model.layers is a list, but a model of type gpt takes a number of blocks\n"},
    {"model: {type: layers}\n" DATA,
     "a.yaml: model.layers is missing: a model of type layers wants the list of them\n"
     "a.yaml: model.input is missing: say how many features a sample has, or the channels, height "
     "and width of an image ([1, 28, 28])\n"},
    {"model: {type: layers, layers: [linear: 2], input: [1, 2]}\n" DATA,
     "a.yaml:1:51: model.input has 2 numbers, must have 1 (features) or 3 (channels, height, "
     "width)\n"},
    {"model: {type: layers, layers: [linear: 2], input: 7}\n" DATA, ""},
    {"model: {classes: 2, input: [1, 2, 3]}\n" DATA,
     "a.yaml:1:28: model.input has 3 numbers, must have 1, the features of a sample\n"},
    {"model: {type: gpt, preset: gpt2-125M}\n" TEXT,
     "a.yaml:1:28: model.preset has no choice \"gpt2-125M\"; did you mean gpt2-124M? (choices: "
     "none, "
     "gpt2-124M, gpt2-355M, gpt2-774M, gpt2-1558M)\n"},
    /* A rule keeps quiet about keys that are wrong already, and about what may be misspelt. */
    {MODEL DATA "batch: {global: x, micro: 24}\n",
     "a.yaml:3:17: batch.global wants a whole number, not \"x\"\n"},
    {"model: {clases: 10}\n" DATA,
     "a.yaml:1:9: unknown key model.clases; did you mean model.classes?\n"},
};

Test(checks, each_rule_blames_the_key_that_breaks_it)
{
    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        struct loaded *l = load_yaml(cases[i].yaml);
        cr_assert_str_eq(complaints(l), cases[i].complaints, "\"%s\":\n%s", cases[i].yaml,
                         complaints(l));
        unload(l);
    }
}

/* A run's folder holds its effective configuration, every key given: it starts the same run. */
Test(checks, no_rule_objects_to_the_effective_configuration_of_what_loads)
{
    for (size_t i = 0; i < CT_COUNT(cases); i++) {
        struct loaded *l = load_yaml(cases[i].yaml);
        struct ct_buf printed = {0};

        if (l->code == 0) {
            ct_config_print(&l->cfg, NULL, &printed);
            struct loaded *again = load_yaml(ct_buf_str(&printed));
            cr_assert_str_eq(complaints(again), "", "\"%s\":\n%s", cases[i].yaml,
                             complaints(again));
            unload(again);
            ct_buf_deinit(&printed);
        }
        unload(l);
    }
}

Test(checks, programs_need_no_model)
{
    static const char *const argv[] = {"--batch.micro=5", "train.py", NULL};
    struct loaded *l = load_argv(argv);

    cr_assert_str_eq(complaints(l), "");
    unload(l);
}

Test(checks, a_rule_names_the_option_that_broke_it)
{
    static const char *const argv[] = {"--batch.micro=5", NULL};
    struct loaded *l = load(&(struct given){.yaml = MODEL DATA, .argv = argv});

    cr_assert_str_eq(complaints(l),
                     "--batch.micro must divide batch.global (32), which 5 does not; 4 would\n");
    cr_assert_eq(l->code, CT_EUSAGE);
    unload(l);
}

Test(checks, a_list_of_signals_that_was_given_wins_over_the_default_of_the_other)
{
    static const struct {
        const char *argv[3];
        uint64_t ends, forwards, requeue;
    } lists[] = {
        {{NULL},
         1 << SIGTERM | 1 << SIGINT | 1 << SIGHUP | 1 << SIGQUIT,
         1 << SIGUSR1 | 1 << SIGUSR2,
         0},
        {{"--signals-to-handle=SIGTERM,SIGUSR1"}, 1 << SIGTERM | 1 << SIGUSR1, 1 << SIGUSR2, 0},
        {{"--forward-signals=SIGHUP"}, 1 << SIGTERM | 1 << SIGINT | 1 << SIGQUIT, 1 << SIGHUP, 0},
        {{"--forward-signals=", "--signals-to-handle=TERM"}, 1 << SIGTERM, 0, 0},
        {{"--requeue-signals=USR1,TERM"},
         1 << SIGINT | 1 << SIGHUP | 1 << SIGQUIT,
         1 << SIGUSR2,
         1 << SIGUSR1 | 1 << SIGTERM},
    };

    for (size_t i = 0; i < CT_COUNT(lists); i++) {
        struct loaded *l = load_argv(lists[i].argv);
        uint64_t ends = 0, forwards = 0;
        ct_config_signals(&l->cfg, &ends, &forwards);
        cr_assert_str_eq(complaints(l), "");
        cr_assert_eq(ends, lists[i].ends, "case %zu", i);
        cr_assert_eq(forwards, lists[i].forwards, "case %zu", i);
        cr_assert_eq(ct_config_requeue_signals(&l->cfg), lists[i].requeue, "case %zu", i);
        unload(l);
    }
}

/* ---- a short trial of a long training ------------------------------------------------------- */

#define TRIAL MODEL DATA "train: {steps: 1000}\n"

static struct loaded *load_trial(const char *yaml, const char *option, const char *more)
{
    const char *const argv[] = {option, more, NULL};

    return load(&(struct given){.yaml = yaml, .argv = argv});
}

Test(checks, fewer_steps_from_a_stronger_layer_shorten_warm_up_and_decay_in_proportion)
{
    static const struct {
        const char *yaml, *option, *more;
        int64_t warmup, decay;
        const char *complaints;
    } trials[] = {
        {TRIAL "schedule: {type: cosine, warmup: 100}\n", "--train.steps=3", NULL, 3, 0,
         "note: --train.steps 3 shortens schedule.warmup from 100 (a.yaml:4:34) to 3\n"},
        {TRIAL "schedule: {type: cosine, warmup: 100}\n", "--train.steps=100", NULL, 100, 0, ""},
        {TRIAL "schedule: {type: wsd, warmup: 100, decay: 200}\n", "--train.steps=30", NULL, 10, 20,
         "note: --train.steps 30 shortens schedule.warmup from 100 (a.yaml:4:31) to 10\n"
         "note: --train.steps 30 shortens schedule.decay from 200 (a.yaml:4:43) to 20\n"},
        {TRIAL "schedule: {type: wsd, warmup: 1, decay: 200}\n", "--train.steps=1", NULL, 0, 1,
         "note: --train.steps 1 shortens schedule.warmup from 1 (a.yaml:4:31) to 0\n"
         "note: --train.steps 1 shortens schedule.decay from 200 (a.yaml:4:41) to 1\n"},
        {TRIAL "schedule: {type: linear, warmup: 2, decay: 200}\n", "--train.steps=3", NULL, 2, 200,
         ""},
        /* Who says both at once means both. */
        {TRIAL, "--train.steps=3", "--schedule.warmup=4", 4, 0,
         "--schedule.warmup is longer than the whole training (train.steps is 3); make it shorter "
         "(0 is none), or give more steps\n"},
        {TRIAL "schedule: {type: wsd, warmup: 2}\n", "--train.steps=3", "--schedule.decay=2", 2, 2,
         "--schedule.decay 2 and schedule.warmup 2 are longer than the whole training (train.steps "
         "is 3); make one of them shorter, or give more steps\n"},
        {TRIAL, "--schedule.warmup=1001", NULL, 1001, 0,
         "--schedule.warmup is longer than the whole training (train.steps is 1000); make it "
         "shorter (0 is none), or give more steps\n"},
    };

    for (size_t i = 0; i < CT_COUNT(trials); i++) {
        struct loaded *l = load_trial(trials[i].yaml, trials[i].option, trials[i].more);

        cr_expect_str_eq(complaints(l), trials[i].complaints, "%zu:\n%s", i, complaints(l));
        cr_expect_eq(l->cfg.schedule.warmup, trials[i].warmup, "%zu", i);
        cr_expect_eq(l->cfg.schedule.decay, trials[i].decay, "%zu", i);
        unload(l);
    }
}

Test(checks, what_a_trial_was_shortened_to_has_the_place_of_its_steps_and_starts_again_as_it_is)
{
    struct loaded *l = load_trial(TRIAL "schedule: {warmup: 100}\n", "--train.steps=3", NULL);
    struct ct_buf printed = {0};

    cr_assert_eq(l->code, 0);
    cr_assert_str_eq(ct_config_origin(&l->cfg, &l->cfg.schedule.warmup)->name, "--train.steps");
    ct_config_print(&l->cfg, NULL, &printed);
    struct loaded *again = load_yaml(ct_buf_str(&printed));
    cr_assert_str_eq(complaints(again), "");
    cr_assert_eq(again->cfg.schedule.warmup, 3);
    unload(again);
    unload(l);
    ct_buf_deinit(&printed);
}
