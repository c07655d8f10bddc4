/* SPDX-License-Identifier: Apache-2.0
 * ft_models.c - the models whose FasterTransformer folders are read and written: GPT (GPT-2, OPT), BLOOM, GPT-J,
 * GPT-NeoX, T5.
 * For each: the keys of config.ini both ways, the files, and the config.json of the Hugging Face checkpoint that says
 * the same.
 * The tables are written with macros of one line each. */
#include "weights/ft.h"

#include <math.h>

/* clang-format off */

/* ---- files ---- */

#define EACH .layers = PROA_FT_LAYERS
#define ENC  .layers = PROA_FT_ENCODER_LAYERS
#define ONCE .layers = PROA_FT_ONE
/* A tensor: its names in Hugging Face and in FasterTransformer, how it is split over ranks, its shape
 * [in][groups][out], and which group is taken. */
#define ROW(hf, ft, how, n_in, n_out, n, which, ...) \
    {.name = hf, .file = ft, .split = PROA_FT_##how, .in = PROA_FT_##n_in, .out = PROA_FT_##n_out, \
     .groups = n, .group = which, __VA_ARGS__}
#define TURNED .turned = true
#define VECTOR(hf, ft, n, count)             ROW(hf, ft, WHOLE, ONE, n, 1, 0, count)
#define TABLE(hf, ft, rows, cols)            ROW(hf, ft, WHOLE, rows, cols, 1, 0, ONCE)
#define HEAD(hf, ft)                         ROW(hf, ft, WHOLE, VOCAB, HIDDEN, 1, 0, ONCE, .when = PROA_FT_IF_UNTIED)
#define OUTPUTS(hf, ft, n_in, n_out, count)  ROW(hf, ft, OUTPUTS, n_in, n_out, 1, 0, count, TURNED)
#define INPUTS(hf, ft, n_in, n_out, count)   ROW(hf, ft, INPUTS, n_in, n_out, 1, 0, count, TURNED)
#define CONV(hf, ft, how, n_in, n_out, n)    ROW(hf, ft, how, n_in, n_out, n, -1, EACH) /* GPT-2's Conv1D: [in, out] */
#define QKV(hf, ft, which)                   ROW(hf, ft, OUTPUTS, HIDDEN, INNER, 3, which, EACH, TURNED)
#define END {.name = NULL}

#define HF "transformer.h.%d."
#define FT "model.layers.%d."
static const proa_ft_tensor gpt[] = {
    TABLE ("transformer.wte.weight",    "model.wte",                           VOCAB,     HIDDEN),
    TABLE ("transformer.wpe.weight",    "model.wpe",                           POSITIONS, HIDDEN),
    VECTOR(HF "ln_1.weight",            FT "input_layernorm.weight",           HIDDEN,    EACH),
    VECTOR(HF "ln_1.bias",              FT "input_layernorm.bias",             HIDDEN,    EACH),
    CONV  (HF "attn.c_attn.weight",     FT "attention.query_key_value.weight", OUTPUTS, HIDDEN, INNER,  3),
    CONV  (HF "attn.c_attn.bias",       FT "attention.query_key_value.bias",   OUTPUTS, ONE,    INNER,  3),
    CONV  (HF "attn.c_proj.weight",     FT "attention.dense.weight",           INPUTS,  INNER,  HIDDEN, 1),
    VECTOR(HF "attn.c_proj.bias",       FT "attention.dense.bias",             HIDDEN,    EACH),
    VECTOR(HF "ln_2.weight",            FT "post_attention_layernorm.weight",  HIDDEN,    EACH),
    VECTOR(HF "ln_2.bias",              FT "post_attention_layernorm.bias",    HIDDEN,    EACH),
    CONV  (HF "mlp.c_fc.weight",        FT "mlp.dense_h_to_4h.weight",         OUTPUTS, HIDDEN, FFN,    1),
    CONV  (HF "mlp.c_fc.bias",          FT "mlp.dense_h_to_4h.bias",           OUTPUTS, ONE,    FFN,    1),
    CONV  (HF "mlp.c_proj.weight",      FT "mlp.dense_4h_to_h.weight",         INPUTS,  FFN,    HIDDEN, 1),
    VECTOR(HF "mlp.c_proj.bias",        FT "mlp.dense_4h_to_h.bias",           HIDDEN,    EACH),
    VECTOR("transformer.ln_f.weight",   "model.final_layernorm.weight",        HIDDEN,    ONCE),
    VECTOR("transformer.ln_f.bias",     "model.final_layernorm.bias",          HIDDEN,    ONCE),
    HEAD  ("lm_head.weight",            "model.lm_head.weight"),
    END};
/* Rows of q, k and v head by head in the checkpoint. */
#define REGROUPED(hf, ft, n_in, is_turned) \
    ROW(hf, ft, OUTPUTS, n_in, INNER, 3, -1, EACH, .final = true, .turned = is_turned)
static const proa_ft_tensor bloom[] = {
    TABLE    ("transformer.word_embeddings.weight",           "model.wte", VOCAB, HIDDEN),
    VECTOR   ("transformer.word_embeddings_layernorm.weight", "model.pre_decoder_layernorm.weight", HIDDEN, ONCE),
    VECTOR   ("transformer.word_embeddings_layernorm.bias",   "model.pre_decoder_layernorm.bias",   HIDDEN, ONCE),
    VECTOR   (HF "input_layernorm.weight",                FT "input_layernorm.weight",              HIDDEN, EACH),
    VECTOR   (HF "input_layernorm.bias",                  FT "input_layernorm.bias",                HIDDEN, EACH),
    REGROUPED(HF "self_attention.query_key_value.weight", FT "attention.query_key_value.weight",    HIDDEN, true),
    REGROUPED(HF "self_attention.query_key_value.bias",   FT "attention.query_key_value.bias",      ONE, false),
    INPUTS   (HF "self_attention.dense.weight",           FT "attention.dense.weight",           INNER,  HIDDEN, EACH),
    VECTOR   (HF "self_attention.dense.bias",             FT "attention.dense.bias",                HIDDEN, EACH),
    VECTOR   (HF "post_attention_layernorm.weight",       FT "post_attention_layernorm.weight",     HIDDEN, EACH),
    VECTOR   (HF "post_attention_layernorm.bias",         FT "post_attention_layernorm.bias",       HIDDEN, EACH),
    OUTPUTS  (HF "mlp.dense_h_to_4h.weight",              FT "mlp.dense_h_to_4h.weight",         HIDDEN, FFN,    EACH),
    OUTPUTS  (HF "mlp.dense_h_to_4h.bias",                FT "mlp.dense_h_to_4h.bias",           ONE,    FFN,    EACH),
    INPUTS   (HF "mlp.dense_4h_to_h.weight",              FT "mlp.dense_4h_to_h.weight",         FFN,    HIDDEN, EACH),
    VECTOR   (HF "mlp.dense_4h_to_h.bias",                FT "mlp.dense_4h_to_h.bias",              HIDDEN, EACH),
    VECTOR   ("transformer.ln_f.weight",                  "model.final_layernorm.weight",           HIDDEN, ONCE),
    VECTOR   ("transformer.ln_f.bias",                    "model.final_layernorm.bias",             HIDDEN, ONCE),
    END};
static const proa_ft_tensor gptj[] = {
    TABLE  ("transformer.wte.weight",   "model.wte",                           VOCAB,     HIDDEN),
    VECTOR (HF "ln_1.weight",           FT "input_layernorm.weight",           HIDDEN,    EACH),
    VECTOR (HF "ln_1.bias",             FT "input_layernorm.bias",             HIDDEN,    EACH),
    QKV    (HF "attn.q_proj.weight",    FT "attention.query_key_value.weight", 0),
    QKV    (HF "attn.k_proj.weight",    FT "attention.query_key_value.weight", 1),
    QKV    (HF "attn.v_proj.weight",    FT "attention.query_key_value.weight", 2),
    INPUTS (HF "attn.out_proj.weight",  FT "attention.dense.weight",           INNER,  HIDDEN, EACH),
    OUTPUTS(HF "mlp.fc_in.weight",      FT "mlp.dense_h_to_4h.weight",         HIDDEN, FFN,    EACH),
    OUTPUTS(HF "mlp.fc_in.bias",        FT "mlp.dense_h_to_4h.bias",           ONE,    FFN,    EACH),
    INPUTS (HF "mlp.fc_out.weight",     FT "mlp.dense_4h_to_h.weight",         FFN,    HIDDEN, EACH),
    VECTOR (HF "mlp.fc_out.bias",       FT "mlp.dense_4h_to_h.bias",           HIDDEN,    EACH),
    VECTOR ("transformer.ln_f.weight",  "model.final_layernorm.weight",        HIDDEN,    ONCE),
    VECTOR ("transformer.ln_f.bias",    "model.final_layernorm.bias",          HIDDEN,    ONCE),
    TABLE  ("lm_head.weight",           "model.lm_head.weight",                VOCAB,     HIDDEN),
    ROW    ("lm_head.bias",             "model.lm_head.bias", WHOLE, ONE, VOCAB, 1, 0, ONCE, .when = PROA_FT_IF_FILE),
    END};
#undef HF
/* use_gptj_residual: attention and FFN are parallel, and FasterTransformer reads only the sum of their biases. The
 * converter has divided both by the number of ranks. */
#define HF "gpt_neox.layers.%d."
#define SHARED(hf, ft)           ROW(hf, ft, WHOLE, ONE, HIDDEN, 1, 0, EACH, .shared = true)
#define SUM(hf, which) \
    ROW(hf, FT "mlp.attention.bias.sum", WHOLE, ONE, HIDDEN, 2, which, EACH, .shared = true, .summed = true, \
        .when = PROA_FT_COPY_IF_PARALLEL)
static const proa_ft_tensor gptneox[] = {
    TABLE    ("gpt_neox.embed_in.weight",                "model.wte",                           VOCAB,  HIDDEN),
    VECTOR   (HF "input_layernorm.weight",            FT "input_layernorm.weight",              HIDDEN, EACH),
    VECTOR   (HF "input_layernorm.bias",              FT "input_layernorm.bias",                HIDDEN, EACH),
    REGROUPED(HF "attention.query_key_value.weight",  FT "attention.query_key_value.weight",    HIDDEN, true),
    REGROUPED(HF "attention.query_key_value.bias",    FT "attention.query_key_value.bias",      ONE, false),
    INPUTS   (HF "attention.dense.weight",            FT "attention.dense.weight",              INNER,  HIDDEN, EACH),
    SHARED   (HF "attention.dense.bias",              FT "attention.dense.bias"),
    VECTOR   (HF "post_attention_layernorm.weight",   FT "post_attention_layernorm.weight",     HIDDEN, EACH),
    VECTOR   (HF "post_attention_layernorm.bias",     FT "post_attention_layernorm.bias",       HIDDEN, EACH),
    OUTPUTS  (HF "mlp.dense_h_to_4h.weight",          FT "mlp.dense_h_to_4h.weight",            HIDDEN, FFN, EACH),
    OUTPUTS  (HF "mlp.dense_h_to_4h.bias",            FT "mlp.dense_h_to_4h.bias",              ONE,    FFN, EACH),
    INPUTS   (HF "mlp.dense_4h_to_h.weight",          FT "mlp.dense_4h_to_h.weight",            FFN,    HIDDEN, EACH),
    SHARED   (HF "mlp.dense_4h_to_h.bias",            FT "mlp.dense_4h_to_h.bias"),
    SUM      (HF "attention.dense.bias", 0),
    SUM      (HF "mlp.dense_4h_to_h.bias", 1),
    VECTOR   ("gpt_neox.final_layer_norm.weight",        "model.final_layernorm.weight",        HIDDEN, ONCE),
    VECTOR   ("gpt_neox.final_layer_norm.bias",          "model.final_layernorm.bias",          HIDDEN, ONCE),
    TABLE    ("embed_out.weight",                        "model.lm_head.weight",                VOCAB,  HIDDEN),
    END};
#undef HF
#undef FT

#define SAME(name, kind, n_in, n_out, count) kind(name, name, n_in, n_out, count)
#define NORM(name, count)                    VECTOR(name, name, HIDDEN, count)
#define POSITION_BIAS(block) \
    SAME(block ".0.layer.0.SelfAttention.relative_attention_bias.weight", INPUTS, HEADS, BUCKETS, ONCE)
#define UP(hf, ft, condition, count) \
    ROW(hf, ft, OUTPUTS, HIDDEN, FFN, 1, 0, count, TURNED, .when = PROA_FT_IF_##condition)
#define FFN_OF(part, count) \
    UP  (part "wi.weight",   part "wi.weight",  PLAIN, count), \
    UP  (part "wi_0.weight", part "wi.weight",  GATED, count), \
    UP  (part "wi_1.weight", part "wi2.weight", GATED, count), \
    SAME(part "wo.weight", INPUTS, FFN, HIDDEN, count)
#define ENCODER "encoder.block.%d.layer."
#define DECODER "decoder.block.%d.layer."
#define FUSED  DECODER "0.SelfAttention.qkv.weight"
static const proa_ft_tensor t5_encoder[] = {
    TABLE("shared.weight", "shared.weight_T", VOCAB, HIDDEN),
    NORM (ENCODER "0.layer_norm.weight", ENC),
    SAME (ENCODER "0.SelfAttention.q.weight", OUTPUTS, HIDDEN, INNER, ENC),
    SAME (ENCODER "0.SelfAttention.k.weight", OUTPUTS, HIDDEN, INNER, ENC),
    SAME (ENCODER "0.SelfAttention.v.weight", OUTPUTS, HIDDEN, INNER, ENC),
    SAME (ENCODER "0.SelfAttention.o.weight", INPUTS,  INNER, HIDDEN, ENC),
    POSITION_BIAS("encoder.block"),
    NORM (ENCODER "1.layer_norm.weight", ENC),
    FFN_OF(ENCODER "1.DenseReluDense.", ENC),
    NORM ("encoder.final_layer_norm.weight", ONCE),
    END};
static const proa_ft_tensor t5_decoder[] = {
    NORM (DECODER "0.layer_norm.weight", EACH),
    QKV  (DECODER "0.SelfAttention.q.weight", FUSED, 0),
    QKV  (DECODER "0.SelfAttention.k.weight", FUSED, 1),
    QKV  (DECODER "0.SelfAttention.v.weight", FUSED, 2),
    SAME (DECODER "0.SelfAttention.o.weight", INPUTS, INNER, HIDDEN, EACH),
    POSITION_BIAS("decoder.block"),
    NORM (DECODER "1.layer_norm.weight", EACH),
    SAME (DECODER "1.EncDecAttention.q.weight", OUTPUTS, HIDDEN, INNER, EACH),
    SAME (DECODER "1.EncDecAttention.k.weight", OUTPUTS, HIDDEN, INNER, EACH),
    SAME (DECODER "1.EncDecAttention.v.weight", OUTPUTS, HIDDEN, INNER, EACH),
    SAME (DECODER "1.EncDecAttention.o.weight", INPUTS,  INNER, HIDDEN, EACH),
    NORM (DECODER "2.layer_norm.weight", EACH),
    FFN_OF(DECODER "2.DenseReluDense.", EACH),
    NORM ("decoder.final_layer_norm.weight", ONCE),
    HEAD ("lm_head.weight", "lm_head.weight"),
    ROW  ("shared.weight",  "lm_head.weight", WHOLE, VOCAB, HIDDEN, 1, 0, ONCE, .when = PROA_FT_COPY_IF_TIED),
    END};
/* clang-format on */

/* ---- keys ---- */

static proa_status read_sizes(proa_ft *ft, const char *section, const proa_ft_key *keys)
{
    for (const proa_ft_key *k = keys; k->key; k++) {
        PROA_TRY(proa_ini_int(&ft->ini, section, k->key, 1, k->max, &ft->dim[k->dim], ft->err));
        if (ft->dim[k->dim] == 0) return FAIL_FT(ft, INVALID, "[%s] has no %s", section, k->key);
    }
    return PROA_OK;
}

/* head_dim is in `head`, the size that the keys give it in. */
static void put_sizes(proa_buf *ini, const proa_ft_facts *f, const proa_ft_key *keys, proa_ft_dim head)
{
    for (const proa_ft_key *k = keys; k->key; k++)
        proa_buf_printf(ini, "%s = %lld\n", k->key, (long long)(k->dim == head ? f->head_dim : f->dim[k->dim]));
}

/* A key that may be absent but has only one value that is supported. */
static proa_status require_value(const proa_ft *ft, const char *section, const char *key, const char *wanted)
{
    proa_str value;
    if (!proa_ini_find(&ft->ini, section, key, &value) || proa_str_is(value, wanted)) return PROA_OK;
    return FAIL_FT(ft, UNSUPPORTED, "[%s] %s is '%.*s', only %s is supported", section, key,
                   value.len > 60 ? 60 : (int)value.len, value.ptr, wanted);
}

static proa_status require_not(const proa_ft *ft, const char *section, const char *key)
{
    bool on = false;
    PROA_TRY(proa_ini_bool(&ft->ini, section, key, &on, ft->err));
    return on ? FAIL_FT(ft, UNSUPPORTED, "[%s] %s is on, which is not supported", section, key) : PROA_OK;
}

static proa_status read_dtype(proa_ft *ft, const char *section)
{
    proa_str value = {"fp32", 4};
    proa_ini_find(&ft->ini, section, "weight_data_type", &value);
    ft->dtype = PROA_DTYPE_F32;
    if (proa_str_is(value, "fp16")) ft->dtype = PROA_DTYPE_F16;
    else if (proa_str_is(value, "bf16")) ft->dtype = PROA_DTYPE_BF16;
    else if (!proa_str_is(value, "fp32"))
        return FAIL_FT(ft, UNSUPPORTED, "[%s] weight_data_type is '%.*s', must be fp32, fp16 or bf16",
                       section, value.len > 60 ? 60 : (int)value.len, value.ptr);
    return PROA_OK;
}

static void put_dtype(proa_buf *ini, const proa_ft_facts *f)
{
    const char *name = f->dtype == PROA_DTYPE_F16 ? "fp16" : f->dtype == PROA_DTYPE_BF16 ? "bf16" : "fp32";
    proa_buf_printf(ini, "weight_data_type = %s\n", name);
}

static void put_id(proa_buf *ini, const char *key, int64_t id)
{
    if (id >= 0) proa_buf_printf(ini, "%s = %lld\n", key, (long long)id);
}

/* ---- config.json ---- */

static void write_size(const proa_ft *ft, proa_buf *out, const char *key, proa_ft_dim dim)
{
    proa_buf_printf(out, "\"%s\":%lld,", key, (long long)ft->dim[dim]);
}

/* A token id, which may be absent or "None". */
static proa_status write_id(const proa_ft *ft, proa_buf *out, const char *key, const char *section,
                            const char *name)
{
    int64_t id = -1;
    PROA_TRY(proa_ini_int(&ft->ini, section, name, -1, PROA_VOCAB_MAX, &id, ft->err));
    if (id >= 0) proa_buf_printf(out, "\"%s\":%lld,", key, (long long)id);
    return PROA_OK;
}

static proa_status write_epsilon(const proa_ft *ft, proa_buf *out, const char *key, const char *section,
                                 const char *name, double eps)
{
    PROA_TRY(proa_ini_double(&ft->ini, section, name, 0, 1, &eps, ft->err));
    proa_buf_printf(out, "\"%s\":%.9g,", key, eps);
    return PROA_OK;
}

/* ---- GPT and GPT-J: their converters use the same names ---- */

static const proa_ft_key gpt_keys[] = {
    {"head_num", PROA_FT_HEADS, PROA_HEADS_MAX},   {"size_per_head", PROA_FT_HIDDEN, PROA_HEAD_DIM_MAX},
    {"inter_size", PROA_FT_FFN, PROA_FFN_MAX},     {"num_layer", PROA_FT_LAYERS, PROA_LAYERS_MAX},
    {"vocab_size", PROA_FT_VOCAB, PROA_VOCAB_MAX}, {.key = NULL}};
static const proa_ft_key position_keys[] = {{"max_pos_seq_len", PROA_FT_POSITIONS, PROA_CONTEXT_MAX},
                                            {.key = NULL}};

static proa_status read_gpt_sizes(proa_ft *ft, const char *section)
{
    PROA_TRY(read_sizes(ft, section, gpt_keys));
    ft->dim[PROA_FT_HIDDEN] *= ft->dim[PROA_FT_HEADS]; /* so far it was the size of a head */
    ft->dim[PROA_FT_INNER] = ft->dim[PROA_FT_HIDDEN];
    if (ft->dim[PROA_FT_HIDDEN] > PROA_HIDDEN_MAX)
        return FAIL_FT(ft, LIMIT, "[%s] head_num times size_per_head is %lld, at most %d", section,
                       (long long)ft->dim[PROA_FT_HIDDEN], PROA_HIDDEN_MAX);
    PROA_TRY(require_not(ft, section, "has_adapters"));
    return read_dtype(ft, section);
}

static void put_gpt_keys(proa_buf *ini, const char *section, const proa_ft_facts *f)
{
    proa_buf_printf(ini, "[%s]\nmodel_name = %s\n", section, section);
    put_sizes(ini, f, gpt_keys, PROA_FT_HIDDEN);
    proa_buf_printf(ini, "layernorm_eps = %.9g\n", f->eps);
    put_id(ini, "start_id", f->bos);
    put_id(ini, "end_id", f->eos);
    put_dtype(ini, f);
    proa_buf_printf(ini, "tensor_para_size = %d\n", f->ranks);
}

static proa_status write_gpt_config(const proa_ft *ft, proa_buf *out, const char *section)
{
    write_size(ft, out, "n_embd", PROA_FT_HIDDEN);
    write_size(ft, out, "n_head", PROA_FT_HEADS);
    write_size(ft, out, "n_layer", PROA_FT_LAYERS);
    write_size(ft, out, "n_inner", PROA_FT_FFN);
    write_size(ft, out, "vocab_size", PROA_FT_VOCAB);
    PROA_TRY(write_id(ft, out, "bos_token_id", section, "start_id"));
    PROA_TRY(write_id(ft, out, "eos_token_id", section, "end_id"));
    return write_epsilon(ft, out, "layer_norm_epsilon", section, "layernorm_eps", 1e-5);
}

static proa_status read_gpt(proa_ft *ft, proa_buf *out)
{
    static const char section[] = "gpt";
    proa_str act = {"Gelu", 4};
    bool head_norm = true;
    PROA_TRY(read_gpt_sizes(ft, section));
    PROA_TRY(read_sizes(ft, section, position_keys));
    PROA_TRY(require_value(ft, section, "model_variant", "gpt"));
    PROA_TRY(require_value(ft, section, "layernorm_type", "pre_layernorm"));
    PROA_TRY(proa_ini_bool(&ft->ini, section, "has_post_decoder_layernorm", &head_norm, ft->err));
    if (!head_norm)
        return FAIL_FT(ft, UNSUPPORTED, "a [%s] without has_post_decoder_layernorm is not supported", section);
    proa_ini_find(&ft->ini, section, "activation_type", &act);
    bool relu = proa_str_is(act, "Relu");
    if (!relu) PROA_TRY(require_value(ft, section, "activation_type", "Gelu"));
    ft->tied = !proa_ft_has_file(ft, "model.lm_head.weight.bin");
    PROA_TRY(write_gpt_config(ft, out, section));
    write_size(ft, out, "n_positions", PROA_FT_POSITIONS);
    proa_buf_printf(out,
                    "\"activation_function\":\"%s\",\"tie_word_embeddings\":%s,\"model_type\":\"gpt2\","
                    "\"architectures\":[\"GPT2LMHeadModel\"]}",
                    relu ? "relu" : "gelu_new", ft->tied ? "true" : "false");
    return PROA_OK;
}

static void put_gpt(proa_buf *ini, const proa_ft_facts *f)
{
    put_gpt_keys(ini, "gpt", f);
    put_sizes(ini, f, position_keys, PROA_FT_DIM_COUNT);
    proa_buf_printf(ini,
                    "model_variant = gpt\nlayernorm_type = pre_layernorm\nhas_post_decoder_layernorm = True\n"
                    "has_adapters = False\nactivation_type = %s\n",
                    f->relu ? "Relu" : "Gelu");
}

/* ---- BLOOM: the GPT of FasterTransformer with ALiBi and a norm after the embedding ---- */

static proa_status check_bloom(proa_ft *ft, const char *section)
{
    bool positions = false, alibi = true;
    PROA_TRY(require_value(ft, section, "layernorm_type", "pre_layernorm"));
    PROA_TRY(require_value(ft, section, "activation_type", "Gelu"));
    PROA_TRY(proa_ini_bool(&ft->ini, section, "has_positional_encoding", &positions, ft->err));
    PROA_TRY(proa_ini_bool(&ft->ini, section, "use_attention_linear_bias", &alibi, ft->err));
    if (positions || !alibi)
        return FAIL_FT(ft, UNSUPPORTED, "a BLOOM with %s is not supported",
                       positions ? "has_positional_encoding" : "use_attention_linear_bias off");
    if (ft->dim[PROA_FT_FFN] == 4 * ft->dim[PROA_FT_HIDDEN]) return PROA_OK;
    return FAIL_FT(ft, UNSUPPORTED, "[%s] inter_size is %lld, of a BLOOM only %lld is supported", section,
                   (long long)ft->dim[PROA_FT_FFN], (long long)(4 * ft->dim[PROA_FT_HIDDEN]));
}

static proa_status read_bloom(proa_ft *ft, proa_buf *out)
{
    static const char section[] = "gpt";
    PROA_TRY(read_gpt_sizes(ft, section));
    PROA_TRY(check_bloom(ft, section));
    ft->tied = true;
    write_size(ft, out, "hidden_size", PROA_FT_HIDDEN);
    write_size(ft, out, "n_head", PROA_FT_HEADS);
    write_size(ft, out, "n_layer", PROA_FT_LAYERS);
    write_size(ft, out, "vocab_size", PROA_FT_VOCAB);
    PROA_TRY(write_id(ft, out, "bos_token_id", section, "start_id"));
    PROA_TRY(write_id(ft, out, "eos_token_id", section, "end_id"));
    PROA_TRY(write_epsilon(ft, out, "layer_norm_epsilon", section, "layernorm_eps", 1e-5));
    proa_buf_printf(out, "\"model_type\":\"bloom\",\"architectures\":[\"BloomForCausalLM\"]}");
    return PROA_OK;
}

static void put_bloom(proa_buf *ini, const proa_ft_facts *f)
{
    put_gpt_keys(ini, "gpt", f);
    proa_buf_printf(ini, "model_variant = bloom-pre\nlayernorm_type = pre_layernorm\nactivation_type = Gelu\n"
                         "has_positional_encoding = False\nhas_pre_decoder_layernorm = True\n"
                         "has_post_decoder_layernorm = True\nuse_attention_linear_bias = True\n");
}

/* config.ini does not say how many positions there are: 2,048 as in the published GPT-J. */
static proa_status read_gptj(proa_ft *ft, proa_buf *out)
{
    static const char section[] = "gptj";
    int64_t rotary = 0;
    PROA_TRY(read_gpt_sizes(ft, section));
    PROA_TRY(proa_ini_int(&ft->ini, section, "rotary_embedding", 2, PROA_HEAD_DIM_MAX, &rotary, ft->err));
    if (rotary == 0) rotary = ft->dim[PROA_FT_HIDDEN] / ft->dim[PROA_FT_HEADS];
    PROA_TRY(write_gpt_config(ft, out, section));
    proa_buf_printf(
        out,
        "\"rotary_dim\":%lld,\"n_positions\":2048,\"activation_function\":\"gelu_new\","
        "\"tie_word_embeddings\":false,\"model_type\":\"gptj\",\"architectures\":[\"GPTJForCausalLM\"]}",
        (long long)rotary);
    return PROA_OK;
}

static void put_gptj(proa_buf *ini, const proa_ft_facts *f)
{
    put_gpt_keys(ini, "gptj", f);
    proa_buf_printf(ini, "rotary_embedding = %lld\n", (long long)f->rotary_dim);
}

/* ---- GPT-NeoX ---- */

/* config.ini says neither how many positions there are, 2,048 as in the published models, nor the activation: GELU as
 * in Pythia, unless hidden_act, a key that Proa writes, names another one. rotary_pct times the size of a head is
 * rounded down, so half a number is added to it. */
static proa_status read_gptneox(proa_ft *ft, proa_buf *out)
{
    static const char section[] = "gptneox";
    int64_t rotary = 0, head_dim;
    proa_str act = {"gelu", 4};
    PROA_TRY(read_gpt_sizes(ft, section));
    head_dim = ft->dim[PROA_FT_HIDDEN] / ft->dim[PROA_FT_HEADS];
    PROA_TRY(proa_ini_int(&ft->ini, section, "rotary_embedding", 0, head_dim, &rotary, ft->err));
    ft->parallel = true;
    PROA_TRY(proa_ini_bool(&ft->ini, section, "use_gptj_residual", &ft->parallel, ft->err));
    proa_ini_find(&ft->ini, section, "hidden_act", &act);
    write_size(ft, out, "hidden_size", PROA_FT_HIDDEN);
    write_size(ft, out, "num_attention_heads", PROA_FT_HEADS);
    write_size(ft, out, "num_hidden_layers", PROA_FT_LAYERS);
    write_size(ft, out, "intermediate_size", PROA_FT_FFN);
    write_size(ft, out, "vocab_size", PROA_FT_VOCAB);
    PROA_TRY(write_id(ft, out, "bos_token_id", section, "start_id"));
    PROA_TRY(write_id(ft, out, "eos_token_id", section, "end_id"));
    PROA_TRY(write_epsilon(ft, out, "layer_norm_eps", section, "layernorm_eps", 1e-5));
    proa_buf_str(out, proa_str_c("\"hidden_act\":"));
    proa_buf_json_str(out, act);
    proa_buf_printf(out,
                    ",\"rotary_pct\":%.17g,\"use_parallel_residual\":%s,\"tie_word_embeddings\":false,"
                    "\"model_type\":\"gpt_neox\",\"architectures\":[\"GPTNeoXForCausalLM\"]}",
                    fmin(((double)rotary + 0.5) / (double)head_dim, 1), ft->parallel ? "true" : "false");
    return PROA_OK;
}

static void put_gptneox(proa_buf *ini, const proa_ft_facts *f)
{
    put_gpt_keys(ini, "gptneox", f);
    proa_buf_printf(ini, "rotary_embedding = %lld\nuse_gptj_residual = %d\nhidden_act = %s\n",
                    (long long)f->rotary_dim, f->parallel, f->act);
}

/* ---- T5 ---- */

/* clang-format off */
#define T5_KEYS(layers) \
    {"d_model", PROA_FT_HIDDEN, PROA_HIDDEN_MAX}, {"num_heads", PROA_FT_HEADS, PROA_HEADS_MAX}, \
    {"d_kv", PROA_FT_INNER, PROA_HEAD_DIM_MAX}, {"d_ff", PROA_FT_FFN, PROA_FFN_MAX}, \
    {"num_layers", PROA_FT_##layers, PROA_LAYERS_MAX}, {"vocab_size", PROA_FT_VOCAB, PROA_VOCAB_MAX}, \
    {"relative_attention_num_buckets_or_max_pos_seq_len", PROA_FT_BUCKETS, PROA_BUCKETS_MAX}, {.key = NULL}
static const proa_ft_key encoder_keys[] = {T5_KEYS(ENCODER_LAYERS)};
static const proa_ft_key decoder_keys[] = {T5_KEYS(LAYERS)};
/* clang-format on */

static proa_status read_t5_sizes(proa_ft *ft, const char *section, proa_ft_dim layers)
{
    PROA_TRY(read_sizes(ft, section, layers == PROA_FT_LAYERS ? decoder_keys : encoder_keys));
    return read_dtype(ft, section);
}

/* Encoder and decoder must have the same sizes but for the number of layers, as T5's have. */
static proa_status read_t5_stacks(proa_ft *ft)
{
    int64_t first[PROA_FT_DIM_COUNT];
    if (!proa_ini_has_section(&ft->ini, "decoder"))
        return FAIL_FT(ft, UNSUPPORTED, "a T5 without [%s] is not supported", "decoder");
    PROA_TRY(read_t5_sizes(ft, "encoder", PROA_FT_ENCODER_LAYERS));
    proa_dtype dtype = ft->dtype;
    memcpy(first, ft->dim, sizeof first);
    memset(ft->dim, 0, sizeof ft->dim);
    PROA_TRY(read_t5_sizes(ft, "decoder", PROA_FT_LAYERS));
    ft->dim[PROA_FT_ONE] = 1, ft->dim[PROA_FT_ENCODER_LAYERS] = first[PROA_FT_ENCODER_LAYERS];
    for (int i = 0; i < PROA_FT_DIM_COUNT; i++)
        if (i != PROA_FT_LAYERS && first[i] != ft->dim[i])
            return FAIL_FT(ft, UNSUPPORTED, "[encoder] and [decoder] differ: %lld and %lld",
                           (long long)first[i], (long long)ft->dim[i]);
    return dtype == ft->dtype
               ? PROA_OK
               : FAIL_FT(ft, UNSUPPORTED, "[encoder] and [decoder] differ: %s", "weight_data_type");
}

static proa_status write_t5_config(const proa_ft *ft, proa_buf *out, int64_t head_dim)
{
    proa_str ffn = proa_str_c(ft->gated ? "gated-gelu" : "relu");
    int64_t distance = 128;
    proa_ini_find(&ft->ini, "encoder", "feed_forward_proj", &ffn);
    PROA_TRY(proa_ini_int(&ft->ini, "encoder", "relative_attention_max_distance", 2, PROA_CONTEXT_MAX,
                          &distance, ft->err));
    write_size(ft, out, "d_model", PROA_FT_HIDDEN);
    write_size(ft, out, "d_ff", PROA_FT_FFN);
    write_size(ft, out, "num_heads", PROA_FT_HEADS);
    write_size(ft, out, "num_layers", PROA_FT_ENCODER_LAYERS);
    write_size(ft, out, "num_decoder_layers", PROA_FT_LAYERS);
    write_size(ft, out, "vocab_size", PROA_FT_VOCAB);
    write_size(ft, out, "relative_attention_num_buckets", PROA_FT_BUCKETS);
    PROA_TRY(write_id(ft, out, "pad_token_id", "decoder", "pad_token_id"));
    PROA_TRY(write_id(ft, out, "eos_token_id", "decoder", "eos_token_id"));
    PROA_TRY(write_id(ft, out, "decoder_start_token_id", "decoder", "decoder_start_token_id"));
    PROA_TRY(write_epsilon(ft, out, "layer_norm_epsilon", "encoder", "layer_norm_epsilon", 1e-6));
    proa_buf_str(out, proa_str_c("\"feed_forward_proj\":"));
    proa_buf_json_str(out, ffn);
    proa_buf_printf(out,
                    ",\"d_kv\":%lld,\"relative_attention_max_distance\":%lld,\"tie_word_embeddings\":%s,"
                    "\"model_type\":\"t5\",\"architectures\":[\"T5ForConditionalGeneration\"]}",
                    (long long)head_dim, (long long)distance, ft->tied ? "true" : "false");
    return PROA_OK;
}

static proa_status read_t5(proa_ft *ft, proa_buf *out)
{
    PROA_TRY(require_not(ft, "structure", "t5_with_bias"));
    PROA_TRY(require_value(ft, "structure", "position_embedding_type", "relative"));
    PROA_TRY(proa_ini_bool(&ft->ini, "structure", "use_gated_activation", &ft->gated, ft->err));
    ft->tied = true;
    PROA_TRY(proa_ini_bool(&ft->ini, "decoder", "tie_word_embeddings", &ft->tied, ft->err));
    PROA_TRY(read_t5_stacks(ft));
    int64_t head_dim = ft->dim[PROA_FT_INNER];
    ft->dim[PROA_FT_INNER] *= ft->dim[PROA_FT_HEADS]; /* so far it was the size of a head */
    return write_t5_config(ft, out, head_dim);
}

static void put_t5_stack(proa_buf *ini, const char *section, const proa_ft_key *keys, const proa_ft_facts *f)
{
    proa_buf_printf(ini, "[%s]\n", section);
    put_sizes(ini, f, keys, PROA_FT_INNER);
    proa_buf_printf(
        ini,
        "relative_attention_max_distance = %lld\nlayer_norm_epsilon = %.9g\nfeed_forward_proj = %s\n"
        "tie_word_embeddings = %s\n",
        (long long)f->rel_distance, f->eps, f->ffn, f->tied ? "True" : "False");
    put_id(ini, "pad_token_id", f->pad);
    put_id(ini, "eos_token_id", f->eos);
    put_id(ini, "decoder_start_token_id", f->decoder_start);
    put_dtype(ini, f);
    proa_buf_printf(ini, "tensor_para_size = %d\n", f->ranks);
}

static void put_t5(proa_buf *ini, const proa_ft_facts *f)
{
    put_t5_stack(ini, "encoder", encoder_keys, f);
    put_t5_stack(ini, "decoder", decoder_keys, f);
    proa_buf_printf(ini,
                    "[structure]\nt5_with_bias = false\nuse_gated_activation = %s\n"
                    "position_embedding_type = relative\n",
                    f->gated ? "true" : "false");
}

const proa_ft_model proa_ft_models[] = {
    {"gptj", NULL, "GPTJForCausalLM", {gptj}, read_gptj, put_gptj},
    {"gpt", "bloom-pre", "BloomForCausalLM", {bloom}, read_bloom, put_bloom},
    {"gpt", NULL, "GPT2LMHeadModel", {gpt}, read_gpt, put_gpt},
    {"gptneox", NULL, "GPTNeoXForCausalLM", {gptneox}, read_gptneox, put_gptneox},
    {"encoder", NULL, "T5ForConditionalGeneration", {t5_encoder, t5_decoder}, read_t5, put_t5},
    {.section = NULL}};

proa_status proa_ft_read_model(proa_ft *ft, const proa_ft_model **model, proa_buf *config)
{
    ft->dim[PROA_FT_ONE] = 1;
    proa_buf_char(config, '{');
    for (const proa_ft_model *m = proa_ft_models; m->section; m++) {
        proa_str variant = {"", 0};
        if (!proa_ini_has_section(&ft->ini, m->section)) continue;
        proa_ini_find(&ft->ini, m->section, "model_variant", &variant);
        if (!m->variant || proa_str_is(variant, m->variant)) return *model = m, m->read(ft, config);
    }
    return FAIL_FT(ft, UNSUPPORTED, "has none of the sections %s", "[gpt], [gptj], [gptneox], [encoder]");
}
