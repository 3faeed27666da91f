/* The rows of equal.h. */
#include "equal.h"

#include "base/assert.h"

#define INVARIANT " --parallel.reduce=invariant"
#define SGD " --optim.type=sgd --optim.momentum=0.9 --optim.lr=0.05"
#define DIGITS                                                                         \
    "--data.train.path=digits.csv --data.eval.path=digits.csv --data.train.split=0,1 " \
    "--data.eval.split=0,1"
#define PICTURES                                                                                   \
    "--data.train.images=images.idx --data.train.labels=labels.idx --data.eval.images=images.idx " \
    "--data.eval.labels=labels.idx --batch.global=32 --batch.micro=4"
#define TEXT "--data.train.path=text.txt --data.eval.path=text.txt --data.eval.split=0.8,1"

#define FSDP "--parallel.strategy=fsdp "
#define ZERO1 "--parallel.strategy=zero1 "
#define HYBRID " --parallel.replicate=2"
#define SLICES(n) "--parallel.tensor=" #n
#define TOKENS " --parallel.sequence=true"
#define STAGES(n, order) "--parallel.pipeline=" #n " --parallel.schedule=" order
#define CHUNKS STAGES(2, "interleaved") " --parallel.chunks=2"
#define DP(n) "--parallel.strategy=dp --parallel.replicate=" #n

/* A row of one layout; run by default, or when asked for. */
#define ENDS 0, ""
#define ALWAYS true
#define ASKED false

/* clang-format off */

/* 53 samples in batches of 32: every second batch is not full (E15). Four layers. */
static const struct equal_row digits[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E15 E16", 2, "--check.replicas=2", ENDS, ALWAYS},
    {"E1 E15 E16", 4, "--check.replicas=1", ENDS, ASKED},
    {"E1 E15", 8, "", ENDS, ALWAYS},
    {"E1", 1, DP(2), ENDS, ASKED},
    {"E1", 1, DP(8), ENDS, ALWAYS},
    {"E2", 2, FSDP "--parallel.shard=grad", ENDS, ASKED},
    {"E2", 4, ZERO1, ENDS, ALWAYS},
    {"E2", 4, FSDP "--parallel.shard=none", ENDS, ASKED},
    {"E2", 4, ZERO1 HYBRID, ENDS, ASKED},
    {"E2", 8, FSDP "--parallel.shard=full", ENDS, ALWAYS},
    {"E2", 8, FSDP "--parallel.shard=grad" HYBRID, ENDS, ASKED},
    {"E3", 2, STAGES(2, "gpipe"), ENDS, ALWAYS},
    {"E3", 4, STAGES(4, "1f1b"), ENDS, ASKED},
    {"E3", 2, CHUNKS, ENDS, ASKED},
    {"E3", 8, STAGES(2, "1f1b"), ENDS, ALWAYS},
    {"E7", 2, "--parallel.bucket=1KB --parallel.first_bucket=256", ENDS, ASKED},
    {"E7", 2, "--parallel.overlap=false", ENDS, ASKED},
    {"E7", 2, "--memory.recompute=block", ENDS, ASKED},
    {"E7", 1, "--memory.offload=host", ENDS, ASKED},
    {"E7", 2, "--memory.offload=file", ENDS, ALWAYS},
    {"E7", 4, FSDP "--parallel.prefetch=0", ENDS, ASKED},
    {"E7", 8, FSDP "--parallel.prefetch=2 --memory.recompute=gelu", ENDS, ASKED},
    {"E9", 2, "", 2, "", ASKED},
    {"E9 E10", 4, "", 1, "", ALWAYS},
    {"E10", 4, FSDP, 8, "", ASKED},
    {"E10", 2, ZERO1, 4, STAGES(4, "gpipe"), ASKED},
    {"E10", 4, STAGES(2, "1f1b"), 2, FSDP, ASKED},
};

/* Sums in other orders; the norm is above the clip in every step (E12). */
static const struct equal_row digits_near[] = {
    {"one worker", 1, "--batch.micro=4", ENDS, ASKED},
    {"E8", 1, "--batch.micro=32", ENDS, ALWAYS},
    {"E8 E12", 8, "", ENDS, ASKED},
    {"E2 E12", 8, FSDP "--batch.micro=4", ENDS, ALWAYS},
    {"E3 E12", 4, STAGES(2, "1f1b") " --batch.micro=4", ENDS, ASKED},
    {"E4 E12", 2, SLICES(2), ENDS, ALWAYS},
    {"E4 E12", 4, SLICES(4) " --batch.micro=4", ENDS, ASKED},
    {"E4 E12", 8, SLICES(8), ENDS, ASKED},
    {"E4 E2 E12", 8, SLICES(2) " " FSDP, ENDS, ASKED},
    {"E5", 4, SLICES(4) TOKENS, ENDS, ASKED},
    {"E6", 8, SLICES(2) " --parallel.pipeline=2 --batch.micro=4", ENDS, ALWAYS},
};

/* In f16, with a number that overflows in each epoch, which one rank meets. */
static const struct equal_row digits_f16[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E13", 2, "", ENDS, ALWAYS},
    {"E13", 4, FSDP, ENDS, ASKED},
    {"E13", 4, STAGES(2, "1f1b"), ENDS, ASKED},
    {"E13", 8, "", ENDS, ASKED},
    {"E13 E9", 2, "", 4, ZERO1, ASKED},
};

/* Synchronised batch norm, whose statistics are part of the state. */
static const struct equal_row resnet[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E15", 2, "", ENDS, ALWAYS},
    {"E1 E15", 4, "", ENDS, ASKED},
    {"E1 E15", 8, "", ENDS, ASKED},
    {"E2", 4, FSDP, ENDS, ASKED},
    {"E7", 2, "--memory.recompute=block", ENDS, ASKED},
    {"E9 E10", 2, "", 4, ZERO1, ALWAYS},
};

static const struct equal_row perceptron[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E15", 2, "", ENDS, ALWAYS},
    {"E1 E15", 4, "", ENDS, ASKED},
    {"E1 E15", 8, "", ENDS, ASKED},
};

/* With dropout. */
static const struct equal_row pictures[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E15", 2, "", ENDS, ALWAYS},
    {"E1 E15", 4, "", ENDS, ASKED},
    {"E1 E15", 8, "", ENDS, ASKED},
    {"E2", 4, FSDP, ENDS, ASKED},
    {"E3", 2, STAGES(2, "1f1b"), ENDS, ALWAYS},
    {"E3", 8, STAGES(4, "gpipe"), ENDS, ASKED},
    {"E7", 2, "--memory.recompute=block", ENDS, ASKED},
    {"E9 E10", 4, "", 2, FSDP, ASKED},
};

/* Four blocks with dropout and a head of its own. */
static const struct equal_row novel[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E16", 2, "--check.replicas=2", ENDS, ALWAYS},
    {"E1", 4, "", ENDS, ASKED},
    {"E1", 8, "", ENDS, ASKED},
    {"E1", 1, DP(4), ENDS, ASKED},
    {"E2", 2, ZERO1, ENDS, ASKED},
    {"E2", 4, FSDP "--parallel.shard=grad", ENDS, ASKED},
    {"E2", 8, FSDP HYBRID, ENDS, ALWAYS},
    {"E3", 2, STAGES(2, "gpipe"), ENDS, ASKED},
    {"E3", 2, CHUNKS, ENDS, ALWAYS},
    {"E3", 2, STAGES(2, "eager"), ENDS, ALWAYS},
    {"E3 E7", 2, STAGES(2, "eager") " --parallel.overlap=false", ENDS, ASKED},
    {"E3", 4, STAGES(4, "1f1b"), ENDS, ASKED},
    {"E3 E2", 8, STAGES(2, "1f1b") " " FSDP "--parallel.shard=grad", ENDS, ASKED},
    {"E7", 2, "--memory.recompute=gelu", ENDS, ASKED},
    {"E7", 2, "--memory.recompute=attention --parallel.bucket=1KB --parallel.first_bucket=256", ENDS, ASKED},
    {"E7", 4, FSDP "--memory.recompute=block --memory.blocks=2", ENDS, ASKED},
    {"E7", 2, "--memory.offload=host", ENDS, ASKED},
    {"E9", 2, "", 2, "", ASKED},
    {"E9 E10", 4, FSDP, 4, STAGES(4, "1f1b"), ALWAYS},
    {"E10", 4, STAGES(2, "1f1b"), 1, "", ASKED},
};

/* Products in bf16; sharded, what they read is gathered so, and what norms read is not. Rounded to
 * the nearest, and by chance. */
static const struct equal_row novel_bf16[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1", 4, "", ENDS, ASKED},
    {"E2", 2, FSDP "--parallel.shard=grad", ENDS, ASKED},
    {"E2", 4, FSDP, ENDS, ALWAYS},
    {"E2", 8, FSDP HYBRID " --memory.recompute=block", ENDS, ASKED},
    {"E2", 4, ZERO1, ENDS, ASKED},
    {"E3", 4, STAGES(2, "1f1b"), ENDS, ASKED},
    {"E9 E10", 4, FSDP, 2, "", ASKED},
};

/* The head is the embedding, as shipped. */
static const struct equal_row novel_near[] = {
    {"one worker", 1, "--batch.micro=2", ENDS, ASKED},
    {"E8", 1, "--batch.micro=16", ENDS, ASKED},
    {"E1 E12", 8, "", ENDS, ASKED},
    {"E2 E12", 4, FSDP "--batch.micro=2", ENDS, ASKED},
    {"E3 E12", 2, STAGES(2, "1f1b") " --batch.micro=2", ENDS, ASKED},
    {"E4 E12", 2, SLICES(2), ENDS, ALWAYS},
    {"E4", 4, SLICES(4), ENDS, ASKED},
    {"E4", 8, SLICES(8), ENDS, ASKED},
    {"E5", 2, SLICES(2) TOKENS, ENDS, ASKED},
    {"E5 E2", 8, SLICES(4) TOKENS " " FSDP, ENDS, ALWAYS},
    {"E6 E5", 8, SLICES(2) TOKENS " --parallel.pipeline=2 --batch.micro=2", ENDS, ASKED},
    {"E6 E10", 4, SLICES(2) " --parallel.pipeline=2 --batch.micro=2", 8, SLICES(4) " " FSDP, ASKED},
    {"E10", 4, "", 4, SLICES(2) " " ZERO1, ASKED},
};

/* Sharded slices and stages in bf16, with the bits of slices that hold all. */
static const struct equal_row novel_bf16_slices[] = {
    {"two slices, two batches", 4, SLICES(2), ENDS, ASKED},
    {"E2", 4, SLICES(2) " " FSDP "--parallel.shard=grad", ENDS, ALWAYS},
    {"E2", 4, SLICES(2) " " FSDP, ENDS, ASKED},
    {"E6", 8, SLICES(2) " --parallel.pipeline=2 " FSDP "--parallel.shard=grad", ENDS, ASKED},
};

/* Stages and samples over two slices, with the bits of two slices. */
static const struct equal_row novel_slices[] = {
    {"two slices", 2, SLICES(2), ENDS, ASKED},
    {"E6", 4, SLICES(2) " --parallel.pipeline=2", ENDS, ALWAYS},
    {"E6", 8, SLICES(2) " --parallel.pipeline=2", ENDS, ASKED},
    {"E6 E2", 8, SLICES(2) " " FSDP, ENDS, ASKED},
};

static const struct equal_row novel_first[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E11", 2, "", ENDS, ASKED},
    {"E11", 8, FSDP HYBRID, ENDS, ASKED},
    {"E11", 4, STAGES(4, "gpipe"), ENDS, ASKED},
    {"E11", 8, SLICES(8), ENDS, ASKED},
    {"E11", 8, SLICES(2) TOKENS " --parallel.pipeline=2 " ZERO1, ENDS, ALWAYS},
    {"E11", 1, DP(4), ENDS, ASKED},
};

static const struct equal_row gpt2[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1", 2, "", ENDS, ALWAYS},
    {"E1", 4, "", ENDS, ASKED},
    {"E1", 8, "", ENDS, ASKED},
};

static const struct equal_row gpt2_fsdp[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E2 E7", 2, "", ENDS, ALWAYS},
    {"E1 E2 E7", 4, "", ENDS, ASKED},
    {"E1 E2 E7", 8, "", ENDS, ASKED},
};

#define WHOLE "--parallel.tensor=1 --parallel.strategy=ddp --parallel.shard=full"

static const struct equal_row gpt_2d[] = {
    {"one worker", 1, WHOLE " --parallel.sequence=false", ENDS, ASKED},
    {"E4 E5", 2, "", ENDS, ASKED},
    {"E2 E4 E5", 4, "", ENDS, ALWAYS},
    {"E2 E4 E5", 8, "", ENDS, ASKED},
};

static const struct equal_row gpt_3d[] = {
    {"one worker", 1, WHOLE " --parallel.pipeline=1", ENDS, ASKED},
    {"E6", 4, "", ENDS, ASKED},
    {"E6", 8, "", ENDS, ALWAYS},
};

static const struct equal_row elastic[] = {
    {"one worker", 1, "", ENDS, ASKED},
    {"E1 E16", 2, "--check.replicas=2", ENDS, ASKED},
    {"E1 E16", 4, "--check.replicas=2", ENDS, ALWAYS},
    {"E1 E16", 8, "--check.replicas=2", ENDS, ASKED},
    {"E1 E9", 4, "", 2, "", ASKED},
};

static const struct equal_row dp[] = {
    {"one worker", 1, "--parallel.strategy=ddp --parallel.replicate=1", ENDS, ASKED},
    {"E1", 1, "", ENDS, ASKED},
    {"E1", 1, DP(4), ENDS, ALWAYS},
    {"E1", 1, DP(8), ENDS, ASKED},
    {"E1", 2, "--parallel.strategy=ddp --parallel.replicate=1", ENDS, ASKED},
    {"E1", 8, "--parallel.strategy=ddp --parallel.replicate=1", ENDS, ASKED},
    {"E1 E10", 1, "", 4, FSDP "--parallel.replicate=1", ASKED},
};

/* ---- on emulated GPUs (e2e/test_device.c). Two GPUs: four ranks share them ---- */

#define ON_CPU "--train.device=cpu "
#define NCCL "--parallel.backend=nccl "
#define STAGED "--parallel.backend=staged "

/* In f32 a perceptron has the CPU's bits: the fake cuBLASLt adds up as the CPU does. */
static const struct equal_row gpu_digits[] = {
    {"the CPU's", 1, ON_CPU, ENDS, ALWAYS},
    {"E1", 1, "", ENDS, ALWAYS},
    {"E1 E15 E16", 2, NCCL "--check.replicas=2", ENDS, ALWAYS},
    {"E1 E15", 4, STAGED, ENDS, ALWAYS},
    {"E2", 2, NCCL ZERO1, ENDS, ALWAYS},
    {"E2", 2, NCCL FSDP, ENDS, ALWAYS},
    {"E2", 2, STAGED FSDP "--parallel.shard=grad", ENDS, ALWAYS},
    {"E3", 2, NCCL STAGES(2, "1f1b"), ENDS, ALWAYS},
    {"E3", 4, STAGED STAGES(2, "gpipe"), ENDS, ALWAYS},
    {"E7", 2, NCCL "--parallel.overlap=false --memory.recompute=block", ENDS, ALWAYS},
    {"E7", 1, "--memory.offload=host", ENDS, ALWAYS},
    {"E7", 2, STAGED "--memory.offload=file --parallel.bucket=1KB --parallel.first_bucket=256", ENDS, ALWAYS},
    {"E9 E10", 2, NCCL, 1, ON_CPU, ALWAYS},
    {"E9 E10", 2, ON_CPU FSDP, 2, NCCL STAGES(2, "1f1b"), ALWAYS},
};

static const struct equal_row gpu_digits_near[] = {
    {"the CPU's", 1, ON_CPU, ENDS, ALWAYS},
    {"E4 E12", 2, NCCL SLICES(2), ENDS, ALWAYS},
    {"E5 E12", 2, STAGED SLICES(2) TOKENS, ENDS, ALWAYS},
    {"E6", 4, STAGED SLICES(2) " --parallel.pipeline=2 --batch.micro=4", ENDS, ALWAYS},
};

static const struct equal_row gpu_digits_f16[] = {
    {"one worker", 1, "", ENDS, ALWAYS},
    {"E13", 2, NCCL, ENDS, ALWAYS},
    {"E13 E9", 2, STAGED FSDP, 1, "", ALWAYS},
};

static const struct equal_row gpu_near[] = {
    {"the CPU's", 1, ON_CPU, ENDS, ALWAYS},
    {"E1 E2", 2, NCCL FSDP, ENDS, ALWAYS},
};

static const struct equal_row gpu_novel[] = {
    {"one worker", 1, "", ENDS, ALWAYS},
    {"E2", 2, NCCL FSDP "--memory.recompute=block", ENDS, ALWAYS},
    {"E3", 2, STAGED STAGES(2, "1f1b"), ENDS, ALWAYS},
};

#define SMALL_GPT " --model.width=16 --model.context=16 --model.heads="

#define GROUP(name, file, how, common, rows) \
    {#name, "configs/" file ".yaml", EQUAL_##how, common, rows, CT_COUNT(rows)}

const struct equal_group equal_groups[] = {
    GROUP(digits, "digits_mlp", BITS,
          DIGITS INVARIANT " --batch.micro=4 --model.hidden=32,24,16", digits),
    GROUP(digits_near, "digits_mlp", NEAR,
          DIGITS SGD " --model.hidden=32,24,16 --optim.clip=0.1", digits_near),
    GROUP(digits_f16, "digits_mlp", SKIPS,
          DIGITS INVARIANT " --data.train.path=planted.csv --batch.micro=4 --model.hidden=32,16 "
          "--train.precision=f16 --train.skip_nonfinite=3", digits_f16),
    GROUP(resnet, "digits_resnet", BITS, DIGITS INVARIANT " --batch.micro=4", resnet),
    GROUP(perceptron, "mnist_mlp", BITS, PICTURES INVARIANT " --model.hidden=32", perceptron),
    GROUP(pictures, "mnist_cnn", BITS, PICTURES INVARIANT, pictures),
    GROUP(novel, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2", novel),
    GROUP(novel_bf16, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2 --train.precision=bf16", novel_bf16),
    GROUP(novel_bf16_slices, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2 --train.precision=bf16", novel_bf16_slices),
    GROUP(novel_rounded, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2 --train.precision=bf16 --train.rounding=stochastic",
          novel_bf16),
    GROUP(novel_rounded_slices, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2 --train.precision=bf16 --train.rounding=stochastic",
          novel_bf16_slices),
    GROUP(novel_near, "char_gpt", NEAR,
          TEXT SGD SMALL_GPT "8 --model.dropout=0.1 --optim.clip=0.5 --batch.global=16", novel_near),
    GROUP(novel_slices, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.dropout=0.1 --model.tie=false --optim.clip=0 "
          "--batch.global=16 --batch.micro=2", novel_slices),
    GROUP(novel_first, "char_gpt", FIRST,
          TEXT SMALL_GPT "8 --optim.lr=0 --batch.global=16 --batch.micro=2", novel_first),
    GROUP(gpt2, "gpt2_124m", BITS,
          TEXT INVARIANT SMALL_GPT "2 --model.layers=2 --model.vocabulary=256 "
          "--data.train.tokenizer=byte --data.eval.tokenizer=byte --data.train.merges= "
          "--data.eval.merges=", gpt2),
    GROUP(gpt2_fsdp, "gpt2_124m_fsdp", BITS,
          INVARIANT SMALL_GPT "2 --model.layers=2 --model.vocabulary=256 --optim.clip=0 "
          "--data.train.path=tokens.bin --data.eval.path=tokens.bin --data.eval.split=0.8,1 "
          "--batch.global=16 --batch.micro=2", gpt2_fsdp),
    GROUP(gpt_2d, "gpt_2d", NEAR, TEXT SGD SMALL_GPT "4", gpt_2d),
    GROUP(gpt_3d, "gpt_3d", NEAR, TEXT SGD SMALL_GPT "4", gpt_3d),
    GROUP(elastic, "elastic", BITS,
          DIGITS INVARIANT " --launch.nnodes=1 --launch.rdzv_endpoint= --model.hidden=16,16 "
          "--batch.micro=3", elastic),
    GROUP(dp, "dp_vs_ddp", BITS, DIGITS " --model.hidden=32,32 --batch.micro=8", dp),
    GROUP(gpu_digits, "digits_mlp", BITS,
          DIGITS INVARIANT " --train.device=cuda --batch.micro=4 --model.hidden=32,24,16", gpu_digits),
    GROUP(gpu_digits_near, "digits_mlp", NEAR,
          DIGITS SGD " --train.device=cuda --model.hidden=32,24,16 --optim.clip=0.1", gpu_digits_near),
    GROUP(gpu_digits_f16, "digits_mlp", SKIPS,
          DIGITS INVARIANT " --train.device=cuda --data.train.path=planted.csv --batch.micro=4 "
          "--model.hidden=32,16 --train.precision=f16 --train.skip_nonfinite=3", gpu_digits_f16),
    GROUP(gpu_resnet, "digits_resnet", NEAR,
          DIGITS SGD " --train.device=cuda --batch.global=8 --batch.micro=4 --data.eval.split=0.9,1",
          gpu_near),
    GROUP(gpu_novel_near, "char_gpt", NEAR,
          TEXT SGD SMALL_GPT "2 --train.device=cuda --model.layers=2 --batch.global=4", gpu_near),
    GROUP(gpu_novel, "char_gpt", BITS,
          TEXT INVARIANT SMALL_GPT "2 --train.device=cuda --model.layers=2 --model.dropout=0.1 "
          "--model.tie=false --optim.clip=0 --train.precision=bf16 --batch.global=4 --batch.micro=2",
          gpu_novel),
};

const int equal_group_count = CT_COUNT(equal_groups);
/* clang-format on */
