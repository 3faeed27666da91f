/* GPT-2 and its relatives: the parts of a token model.
 *
 *     ids [rows, sequence]
 *      |
 *      v
 *     wte + wpe --> dropout --> h
 *                               |
 *      .----------- h.<i>, `layers` times -------------.
 *      |                                               |
 *      |   h := h + c_proj(attention(c_attn(ln_1 h)))  |
 *      |   h := h + c_proj(act(c_fc(ln_2 h)))          |
 *      |                                               |
 *      '-----------------------------------------------'
 *                               |
 *                               v
 *                             ln_f --> head --> logits
 *
 * Names are those of Hugging Face's GPT-2: wte.weight, wpe.weight, h.0.ln_1.weight, h.0.attn.c_attn
 * .weight, ... , ln_f.bias; an untied head is lm_head.weight, SwiGLU's gate h.0.mlp.c_gate.weight.
 * A linear weight is [out, in] here, [in, out] in its files. c_attn yields [q | k | v].
 *
 * Initial values as GPT-2: normal with 0.02, projections into the residual stream divided by sqrt(2
 * layers), biases 0, norms 1. Dropout follows the embedding and both projections. */
#ifndef CT_GRAPH_GPT_H
#define CT_GRAPH_GPT_H

#include <stdbool.h>
#include <stdint.h>

enum ct_positions { CT_POSITIONS_LEARNED, CT_POSITIONS_ROTARY, CT_POSITIONS_COUNT };
enum ct_norm { CT_NORM_LAYER, CT_NORM_RMS, CT_NORM_COUNT };
enum ct_mlp { CT_MLP_GELU, CT_MLP_SWIGLU, CT_MLP_COUNT };

/* Of a micro-batch. */
enum { CT_GPT_MAX_TOKENS = 1 << 24 };

struct ct_gpt_spec {
    int64_t vocabulary;
    int64_t context;  /* the longest sequence: rows of wpe */
    int64_t sequence; /* tokens of a sample; 0: context */
    int64_t layers, heads, width;
    int64_t inner; /* width of the MLP; 0: 4 * width */
    enum ct_positions positions;
    enum ct_norm norm;
    enum ct_mlp mlp; /* gelu: the tanh form, as GPT-2 */
    bool untied;     /* the head has weights of its own */
    bool unbiased;   /* no biases, neither of linear layers nor of norms */
    double dropout;
    double eps;         /* of the norms; 0: 1e-5 */
    double rotary_base; /* 0: 10000 */
};

/* Set the sizes of "gpt2-124M", "gpt2-355M", "gpt2-774M" or "gpt2-1558M" in `spec`, whose other
 * fields stay; false for another name. */
bool ct_gpt_preset(const char *name, struct ct_gpt_spec *spec);

/* Parse "learned", "rotary"; "layernorm", "rmsnorm"; "gelu", "swiglu". -1 for another name. */
int ct_positions_find(const char *name);
int ct_norm_find(const char *name);
int ct_mlp_find(const char *name);

#endif
