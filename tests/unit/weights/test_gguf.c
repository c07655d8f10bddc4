/* SPDX-License-Identifier: Apache-2.0
 * test_gguf.c - GGUF files built byte by byte: what a good one gives, and each lie with its message. */
#include "base/file.h"
#include "base/limits.h"
#include "weights/weights.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- a file ---- */

enum { U32 = 4, F32 = 6, BOOL = 7, STRING = 8, ARRAY = 9, U64 = 10 }; /* types of values */

typedef struct builder {
    unsigned char bytes[1 << 16];
    size_t len;
    uint32_t version;
    uint64_t tensors, values; /* what the header says; the parts below count them */
} builder;

static void put_number(builder *b, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) b->bytes[b->len++] = (unsigned char)(value >> 8 * i);
}

static void put_str(builder *b, const char *s)
{
    put_number(b, strlen(s), 8);
    memcpy(b->bytes + b->len, s, strlen(s));
    b->len += strlen(s);
}

static void put_u32(builder *b, const char *key, uint32_t value)
{
    b->values++;
    put_str(b, key);
    put_number(b, U32, 4);
    put_number(b, value, 4);
}

static void put_text(builder *b, const char *key, const char *value)
{
    b->values++;
    put_str(b, key);
    put_number(b, STRING, 4);
    put_str(b, value);
}

static void put_f32(builder *b, const char *key, float value)
{
    b->values++;
    put_str(b, key);
    put_number(b, F32, 4);
    put_number(b, proa_f32_bits(value), 4);
}

/* A tensor of up to two axes; rows 0: one axis. Type 0 is F32, 2 is Q4_0. */
static void put_tensor(builder *b, const char *name, uint64_t rows, uint64_t cols, uint32_t type, uint64_t offset)
{
    b->tensors++;
    put_str(b, name);
    put_number(b, rows ? 2 : 1, 4);
    put_number(b, cols, 8);
    if (rows) put_number(b, rows, 8);
    put_number(b, type, 4);
    put_number(b, offset, 8);
}

static builder *begin(void)
{
    builder *b = calloc(1, sizeof *b);
    b->version = 3;
    b->len = 24;
    return b;
}

static void put_header(builder *b)
{
    size_t len = b->len;
    b->len = 0;
    memcpy(b->bytes, "GGUF", 4), b->len = 4;
    put_number(b, b->version, 4);
    put_number(b, b->tensors, 8);
    put_number(b, b->values, 8);
    b->len = len;
}

/* Data of n f32 that count up from 0, behind the header. */
static void end(builder *b, int64_t n)
{
    put_header(b);
    b->len = (b->len + 31) / 32 * 32;
    for (int64_t i = 0; i < n; i++) put_number(b, proa_f32_bits((float)i), 4);
}

static void put_llama(builder *b)
{
    put_text(b, "general.architecture", "llama");
    put_u32(b, "llama.embedding_length", 8);
    put_u32(b, "llama.block_count", 1);
    put_u32(b, "llama.feed_forward_length", 32);
    put_u32(b, "llama.attention.head_count", 2);
    put_u32(b, "llama.attention.head_count_kv", 1);
    put_u32(b, "llama.context_length", 64);
    put_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
}

static proa_weights *open_good(const builder *b)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_weights_open_bytes(&w, b->bytes, (int64_t)b->len, "x.gguf", &err) != PROA_OK)
        fail_msg("%s", err.text);
    return w;
}

/* Frees b. */
static void refused(builder *b, proa_status status, const char *text)
{
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    assert_int_equal(proa_weights_open_bytes(&w, b->bytes, (int64_t)b->len, "x.gguf", &err), status);
    assert_null(w);
    if (!strstr(err.text, text)) fail_msg("'%s' does not contain '%s'", err.text, text);
    free(b);
}

/* ---- good files ---- */

static float number_at(const proa_weights *w, const char *name, int64_t row, int64_t col)
{
    float out;
    const proa_weights_tensor *t = proa_weights_find(w, name);
    if (!t) fail_msg("no tensor '%s'", name);
    proa_tensor_source_read(&t->source, row, col, 1, &out);
    return out;
}

/* Names of the class; rows of q and k in the order of halves. */
static void names_and_rotation(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    put_tensor(b, "blk.0.attn_q.weight", 8, 8, 0, 128);
    put_tensor(b, "blk.0.attn_k.weight", 4, 8, 0, 384);
    put_tensor(b, "blk.0.attn_v.weight", 4, 8, 0, 512);
    put_tensor(b, "output_norm.weight", 0, 8, 0, 640);
    end(b, 168);
    proa_weights *w = open_good(b);
    assert_int_equal(proa_weights_count(w), 5);
    assert_true(number_at(w, "model.embed_tokens.weight", 1, 2) == 10);
    /* Two heads of four rows: rows 0, 1, 2, 3 are stored at 0, 2, 1, 3. */
    const int stored[8] = {0, 2, 1, 3, 4, 6, 5, 7};
    for (int row = 0; row < 8; row++)
        assert_true(number_at(w, "model.layers.0.self_attn.q_proj.weight", row, 5) ==
                    (float)(32 + 8 * stored[row] + 5));
    for (int row = 0; row < 4; row++)
        assert_true(number_at(w, "model.layers.0.self_attn.k_proj.weight", row, 0) ==
                    (float)(96 + 8 * stored[row]));
    for (int row = 0; row < 4; row++)
        assert_true(number_at(w, "model.layers.0.self_attn.v_proj.weight", row, 0) == (float)(128 + 8 * row));
    assert_true(proa_weights_find(w, "model.norm.weight")->final);
    proa_weights_close(w);
    free(b);
}

/* q, k and v in one tensor become three. */
static void fused_attention(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b);
    put_u32(b, "llama.vocab_size", 4);
    put_tensor(b, "blk.7.attn_qkv.weight", 16, 8, 0, 0);
    end(b, 128);
    proa_weights *w = open_good(b);
    assert_int_equal(proa_weights_count(w), 3);
    assert_true(number_at(w, "model.layers.7.self_attn.q_proj.weight", 1, 0) == 16);
    assert_true(number_at(w, "model.layers.7.self_attn.k_proj.weight", 1, 0) == 8 * (8 + 2));
    assert_true(number_at(w, "model.layers.7.self_attn.v_proj.weight", 1, 0) == 8 * (12 + 1));
    proa_weights_close(w);
    free(b);
}

static void configuration(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b);
    put_f32(b, "llama.rope.freq_base", 500000);
    put_text(b, "llama.rope.scaling.type", "linear");
    put_f32(b, "llama.rope.scaling.factor", 2);
    put_u32(b, "tokenizer.ggml.eos_token_id", 3);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    put_tensor(b, "output.weight", 4, 8, 0, 128);
    end(b, 64);
    proa_weights *w = open_good(b);
    proa_json *json = NULL;
    const proa_files *files = proa_weights_files(w);
    assert_int_equal(proa_files_json(&json, files, "config.json", PROA_CONFIG_BYTES_MAX, NULL), PROA_OK);
    static const struct {
        const char *key;
        double value;
    } want[] = {{"vocab_size", 4},          {"hidden_size", 8},         {"num_hidden_layers", 1},
                {"num_attention_heads", 2}, {"num_key_value_heads", 1}, {"intermediate_size", 32},
                {"rms_norm_eps", 1e-5},     {"rope_theta", 500000},     {"max_position_embeddings", 64}};
    for (size_t i = 0; i < PROA_COUNT(want); i++)
        if (proa_json_double(proa_json_get(json, want[i].key)) != want[i].value)
            fail_msg("%s is %.17g", want[i].key, proa_json_double(proa_json_get(json, want[i].key)));
    assert_false(proa_json_bool(proa_json_get(json, "tie_word_embeddings")));
    assert_true(proa_str_is(proa_json_str(proa_json_at(proa_json_get(json, "architectures"), 0)),
                            "LlamaForCausalLM"));
    assert_true(proa_json_double(proa_json_get(proa_json_get(json, "rope_scaling"), "factor")) == 2);
    assert_int_equal(proa_json_int(proa_json_at(proa_json_get(json, "eos_token_id"), 0)), 3);
    proa_json_free(json);
    proa_weights_close(w);
    free(b);
}

static void pooling_of_embedders(void **state)
{
    static const char *const names[] = {NULL, "mean", "cls", "lasttoken", NULL}; /* 4: a score */
    PROA_UNUSED(state);
    for (uint32_t type = 0; type < PROA_COUNT(names); type++) {
        builder *b = begin();
        put_llama(b);
        put_u32(b, "llama.pooling_type", type);
        put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
        end(b, 32);
        proa_weights *w = open_good(b);
        proa_json *json = NULL;
        const proa_files *files = proa_weights_files(w);
        assert_int_equal(proa_files_has(files, "1_Pooling/config.json"), names[type] != NULL);
        if (names[type])
            assert_int_equal(
                proa_files_json(&json, files, "1_Pooling/config.json", PROA_CONFIG_BYTES_MAX, NULL), PROA_OK);
        if (names[type])
            assert_true(proa_str_is(proa_json_str(proa_json_get(json, "pooling_mode")), names[type]));
        proa_json_free(json);
        proa_weights_close(w);
        free(b);
    }
}

/* The last layers may be such as predict further tokens, but not all. */
static void further_layers(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b);
    put_u32(b, "llama.nextn_predict_layers", 1);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    end(b, 32);
    refused(b, PROA_INVALID, "1 of 1 layers predict further tokens");
}

/* Encoded tensors, an own alignment, version 2. */
static void blocks_and_alignment(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    b->version = 2;
    put_llama(b);
    put_u32(b, "general.alignment", 8);
    put_u32(b, "llama.vocab_size", 4);
    put_tensor(b, "blk.0.ffn_up.weight", 2, 64, 2, 0); /* 72 bytes */
    put_tensor(b, "blk.0.ffn_norm.weight", 0, 2, 0, 72);
    put_header(b);
    b->len = (b->len + 7) / 8 * 8 + 80;
    proa_weights *w = open_good(b);
    const proa_weights_tensor *t = proa_weights_find(w, "model.layers.0.mlp.up_proj.weight");
    assert_int_equal(t->source.encoding, PROA_ENCODING_Q4_0);
    assert_int_equal(proa_tensor_source_bytes(&t->source), 72);
    proa_weights_close(w);
    free(b);
}

/* ---- lies of the header ---- */

static void lying_header(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_header(b);
    b->len = 20;
    refused(b, PROA_CORRUPT, "20 bytes, a GGUF file has at least 24");
    b = begin(), b->version = 1, put_header(b);
    refused(b, PROA_UNSUPPORTED, "version 1");
    b = begin(), b->version = 3 << 24, put_header(b);
    refused(b, PROA_UNSUPPORTED, "big-endian");
    b = begin(), b->values = UINT64_MAX, put_header(b);
    refused(b, PROA_LIMIT, "18446744073709551615 values");
    b = begin(), b->tensors = UINT64_MAX, put_header(b);
    refused(b, PROA_LIMIT, "tensors, at most");
    b = begin(), b->values = 3, put_header(b);
    refused(b, PROA_CORRUPT, "do not fit into 24 bytes");
    b = begin(), put_tensor(b, "a", 0, 1, 0, 0), end(b, 1);
    refused(b, PROA_INVALID, "'general.architecture' is missing");
    b = begin(), put_text(b, "general.architecture", "rwkv7"), put_tensor(b, "a", 0, 1, 0, 0), end(b, 1);
    refused(b, PROA_UNSUPPORTED, "'rwkv7' is not supported (llama, ");
}

static builder *value(const char *key, uint32_t type)
{
    builder *b = begin();
    b->values = 1;
    put_str(b, key);
    put_number(b, type, 4);
    return b;
}

static void lying_values(void **state)
{
    PROA_UNUSED(state);
    builder *b = value("a", 13);
    end(b, 0);
    refused(b, PROA_CORRUPT, "'a' has the unknown type 13");
    b = value("a", STRING), put_number(b, UINT64_MAX, 8), put_header(b);
    refused(b, PROA_CORRUPT, "goes beyond the file's");
    b = value("a", ARRAY), put_number(b, U32, 4), put_number(b, UINT64_MAX / 2, 8), put_header(b);
    refused(b, PROA_CORRUPT, "goes beyond the file's");
    b = value("a", ARRAY), put_number(b, U64, 4), put_number(b, 5, 8), put_number(b, 0, 8), put_header(b);
    refused(b, PROA_CORRUPT, "goes beyond the file's");
    b = value("a", ARRAY), put_number(b, STRING, 4), put_number(b, 20, 8), put_str(b, "x"), put_header(b);
    refused(b, PROA_CORRUPT, "goes beyond the file's");
    b = value("a", ARRAY), put_number(b, ARRAY, 4), put_number(b, 0, 8), put_header(b);
    refused(b, PROA_UNSUPPORTED, "'a' is an array of arrays");
    b = begin(), put_u32(b, "a", 1), put_u32(b, "b", 1), put_u32(b, "a", 1), end(b, 0);
    refused(b, PROA_CORRUPT, "'a' is there twice");
    b = begin(), put_llama(b), put_u32(b, "general.alignment", 24), end(b, 0);
    refused(b, PROA_CORRUPT, "'general.alignment' is 24, must be a power of 2");
    b = begin(), put_llama(b), put_u32(b, "general.alignment", 0), end(b, 0);
    refused(b, PROA_INVALID, "'general.alignment' is 0, must be 1 to 1048576");
    b = begin(), put_text(b, "general.architecture", "llama"), put_text(b, "llama.embedding_length", "8"),
    put_tensor(b, "a", 0, 1, 0, 0), end(b, 1);
    refused(b, PROA_INVALID, "'llama.embedding_length' is string, must be an integer");
    b = begin(), put_llama(b), put_u32(b, "llama.rope.dimension_count", 2);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0), end(b, 32);
    refused(b, PROA_UNSUPPORTED, "'llama.rope.dimension_count' is 2; a LlamaForCausalLM with other than 4");
    b = begin(), put_llama(b), put_tensor(b, "a", 0, 1, 0, 0), end(b, 1);
    refused(b, PROA_INVALID, "the vocabulary has 0 tokens");
}

static void sizes_by_layer(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b);
    b->values++;
    put_str(b, "llama.attention.key_length");
    put_number(b, ARRAY, 4), put_number(b, U32, 4), put_number(b, 2, 8), put_number(b, 4, 4),
        put_number(b, 5, 4);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    end(b, 32);
    refused(b, PROA_UNSUPPORTED, "'llama.attention.key_length' is 4 and 5: layers of different sizes");
}

/* A list of the layers with a window has an entry for each layer. */
static void windows_by_layer(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_text(b, "general.architecture", "exaone4");
    put_u32(b, "exaone4.embedding_length", 8);
    put_u32(b, "exaone4.block_count", 3);
    put_u32(b, "exaone4.feed_forward_length", 32);
    put_u32(b, "exaone4.attention.head_count", 2);
    put_u32(b, "exaone4.attention.sliding_window", 16);
    b->values++;
    put_str(b, "exaone4.attention.sliding_window_pattern");
    put_number(b, ARRAY, 4), put_number(b, BOOL, 4), put_number(b, 2, 8), put_number(b, 1, 1),
        put_number(b, 0, 1);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    end(b, 32);
    refused(b, PROA_INVALID, "'exaone4.attention.sliding_window_pattern' has 2 entries for 3 layers");
}

static void put_key_u32(builder *b, const char *arch, const char *key, uint32_t value)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", arch, key);
    put_u32(b, full, value);
}

/* A model of three layers, of which the list of heads has `kv_heads`: 0 in a recurrent one, `second` in the second. */
static builder *begin_hybrid(const char *arch, int kv_heads, int64_t second)
{
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"embedding_length", 8},     {"block_count", 3},       {"feed_forward_length", 32},
                 {"attention.head_count", 2}, {"ssm.conv_kernel", 4},   {"ssm.state_size", 4},
                 {"ssm.group_count", 1},      {"ssm.time_step_rank", 4}};
    char full[96];
    builder *b = begin();
    put_text(b, "general.architecture", arch);
    for (size_t i = 0; i < PROA_COUNT(sizes); i++) put_key_u32(b, arch, sizes[i].key, sizes[i].value);
    snprintf(full, sizeof full, "%s.attention.head_count_kv", arch);
    b->values++;
    put_str(b, full);
    put_number(b, ARRAY, 4), put_number(b, U32, 4), put_number(b, (uint64_t)kv_heads, 8);
    for (int i = 0; i < kv_heads; i++) put_number(b, i == 1 ? (uint64_t)second : 0, 4);
    return b;
}

static builder *begin_granite(int kv_heads, int64_t second)
{
    return begin_hybrid("granitehybrid", kv_heads, second);
}

static void recurrent_layers(void **state)
{
    PROA_UNUSED(state);
    proa_buf text = {0};
    proa_err err = {.status = PROA_OK};
    builder *b = begin_granite(3, 2);
    put_u32(b, "granitehybrid.ssm.inner_size", 16);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0), put_tensor(b, "blk.0.ssm_a", 4, 1, 0, 128);
    end(b, 36);
    proa_weights *w = open_good(b);
    assert_int_equal(proa_files_read(&text, proa_weights_files(w), "config.json", PROA_CONFIG_BYTES_MAX, &err),
                     PROA_OK);
    assert_non_null(strstr(text.ptr, "[\"linear_attention\", \"full_attention\", \"linear_attention\"]"));
    assert_non_null(strstr(text.ptr, "\"num_key_value_heads\": 2"));
    assert_non_null(strstr(text.ptr, "\"mamba_d_head\": 4"));
    const proa_weights_tensor *decay = proa_weights_find(w, "model.layers.0.mamba.A_log");
    assert_non_null(decay);
    assert_true(decay->final && decay->source.negated_exp && decay->source.view.rank == 1);
    proa_buf_release(&text), proa_weights_close(w), free(b);

    b = begin_granite(2, 2), put_u32(b, "granitehybrid.ssm.inner_size", 16);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0), end(b, 32);
    refused(b, PROA_INVALID, "'granitehybrid.attention.head_count_kv' has 2 entries for 3 layers");
    b = begin_granite(3, 2), put_u32(b, "granitehybrid.ssm.inner_size", 18);
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0), end(b, 32);
    refused(b, PROA_INVALID, "'granitehybrid.ssm.inner_size' is 18, which are not 4 heads");
}

static void end_with_table(builder *b)
{
    put_tensor(b, "token_embd.weight", 4, 8, 0, 0);
    end(b, 32);
}

/* A GLM-4 of images and text has its heads in another order. */
static void glm_of_images(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *key;
        uint32_t value;
    } sizes[] = {{"embedding_length", 8},        {"block_count", 1},
                 {"feed_forward_length", 32},    {"attention.head_count", 2},
                 {"attention.head_count_kv", 1}, {"context_length", 64},
                 {"rope.dimension_sections", 2}};
    builder *b = begin();
    put_text(b, "general.architecture", "glm4");
    for (size_t i = 0; i < PROA_COUNT(sizes); i++) put_key_u32(b, "glm4", sizes[i].key, sizes[i].value);
    put_f32(b, "glm4.attention.layer_norm_rms_epsilon", 1e-5f);
    end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "a glm4 with 'rope.dimension_sections' is not supported");
}

/* config.json of a file; release it. */
static proa_buf config_of(builder *b)
{
    proa_buf text = {0};
    proa_err err = {.status = PROA_OK};
    proa_weights *w = open_good(b);
    assert_int_equal(proa_files_read(&text, proa_weights_files(w), "config.json", PROA_CONFIG_BYTES_MAX, &err),
                     PROA_OK);
    proa_weights_close(w), free(b);
    return text;
}

/* Bamba has the name of Granite 4, and rotates half of each head of 4 numbers. */
static void bamba(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin_granite(3, 2);
    put_u32(b, "granitehybrid.ssm.inner_size", 16), put_u32(b, "granitehybrid.rope.dimension_count", 2);
    end_with_table(b);
    proa_buf text = config_of(b);
    assert_non_null(strstr(text.ptr, "\"BambaForCausalLM\""));
    assert_non_null(strstr(text.ptr, "\"attn_layer_indices\": [1]"));
    assert_non_null(strstr(text.ptr, "\"mamba_d_head\": 4"));
    proa_buf_release(&text);

    b = begin_granite(3, 2), put_u32(b, "granitehybrid.ssm.inner_size", 16);
    put_u32(b, "granitehybrid.rope.dimension_count", 4), end_with_table(b);
    text = config_of(b);
    assert_non_null(strstr(text.ptr, "\"GraniteMoeHybridForCausalLM\""));
    proa_buf_release(&text);

    b = begin_granite(4, 2), put_u32(b, "granitehybrid.ssm.inner_size", 16);
    put_u32(b, "granitehybrid.rope.dimension_count", 2), end_with_table(b);
    refused(b, PROA_INVALID, "'granitehybrid.attention.head_count_kv' has 4 entries for 3 layers");
    b = begin_granite(3, 2), put_u32(b, "granitehybrid.ssm.inner_size", 16);
    put_u32(b, "granitehybrid.rope.dimension_count", 3), end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "'granitehybrid.rope.dimension_count' is 3");
}

static void falcon_h1(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin_hybrid("falcon-h1", 0, 0);
    put_u32(b, "falcon-h1.ssm.inner_size", 16), end_with_table(b);
    proa_buf text = config_of(b);
    assert_non_null(strstr(text.ptr, "\"mamba_d_head\": 4"));
    assert_non_null(strstr(text.ptr, "\"mamba_rms_norm\": false"));
    proa_buf_release(&text);
    b = begin_hybrid("falcon-h1", 0, 0), put_u32(b, "falcon-h1.ssm.inner_size", 17), end_with_table(b);
    refused(b, PROA_INVALID, "'falcon-h1.ssm.inner_size' is 17, which are not 4 heads");
    b = begin_hybrid("falcon-h1", 0, 0), put_u32(b, "falcon-h1.ssm.inner_size", 16);
    put_u32(b, "falcon-h1.rope.dimension_count", 2), end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "'falcon-h1.rope.dimension_count' is 2");
}

static void short_convolutions(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin_hybrid("lfm2", 3, 1);
    put_u32(b, "lfm2.shortconv.l_cache", 3), end_with_table(b);
    proa_buf text = config_of(b);
    assert_non_null(strstr(text.ptr, "[\"linear_attention\", \"full_attention\", \"linear_attention\"]"));
    assert_non_null(strstr(text.ptr, "\"conv_L_cache\": 3"));
    assert_non_null(strstr(text.ptr, "\"block_auto_adjust_ff_dim\": false"));
    proa_buf_release(&text);
    b = begin_hybrid("lfm2", 3, 1), end_with_table(b);
    refused(b, PROA_INVALID, "'lfm2.shortconv.l_cache' is missing");
    b = begin_hybrid("lfm2", 2, 1), put_u32(b, "lfm2.shortconv.l_cache", 3), end_with_table(b);
    refused(b, PROA_INVALID, "'lfm2.attention.head_count_kv' has 2 entries for 3 layers");
    b = begin_hybrid("lfm2", 3, 1), put_u32(b, "lfm2.shortconv.l_cache", 3);
    put_u32(b, "lfm2.attention.sliding_window", 64), end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "'lfm2.attention.sliding_window' is 64");
    b = begin_hybrid("lfm2", 3, 1), put_u32(b, "lfm2.shortconv.l_cache", 3);
    b->values++, put_str(b, "lfm2.attention.causal"), put_number(b, BOOL, 4), put_number(b, 0, 1),
        end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "'lfm2.attention.causal' is false");
    b = begin_hybrid("lfm2moe", 3, 1), put_u32(b, "lfm2moe.shortconv.l_cache", 3);
    put_u32(b, "lfm2moe.expert_gating_func", 1), end_with_table(b);
    refused(b, PROA_UNSUPPORTED, "'lfm2moe.expert_gating_func' is 1");
}

/* ---- lies of tensors ---- */

/* A file with one tensor of these numbers and 32 f32 of data. */
static builder *tensor(uint64_t rows, uint64_t cols, uint32_t type, uint64_t offset)
{
    builder *b = begin();
    put_llama(b);
    put_tensor(b, "token_embd.weight", rows, cols, type, offset);
    end(b, 32);
    return b;
}

static void lying_tensors(void **state)
{
    PROA_UNUSED(state);
    refused(tensor(4, 8, 43, 0), PROA_CORRUPT, "unknown type 43");
    refused(tensor(4, 8, 16, 0), PROA_UNSUPPORTED, "the type IQ2_XXS is not supported");
    refused(tensor(4, 9, 0, 0), PROA_CORRUPT, "144 bytes at offset 0 go beyond the 128 bytes of data");
    refused(tensor(4, 4, 0, 96), PROA_CORRUPT, "64 bytes at offset 96 go beyond the 128 bytes of data");
    refused(tensor(2, 4, 0, 8), PROA_CORRUPT, "offset 8 is not a multiple of 32");
    refused(tensor(2, 4, 0, UINT64_C(1) << 63), PROA_CORRUPT, "is at offset 9223372036854775808");
    refused(tensor(2, 4, 0, UINT64_C(1) << 62), PROA_CORRUPT, "go beyond the 128 bytes of data");
    refused(tensor(UINT64_MAX, 4, 0, 0), PROA_CORRUPT, "has an axis of 18446744073709551615");
    refused(tensor(UINT64_C(1) << 40, UINT64_C(1) << 40, 0, 0), PROA_CORRUPT,
            "more elements than can be counted");
    refused(tensor(UINT64_C(1) << 40, UINT64_C(1) << 40, 2, 0), PROA_CORRUPT,
            "more elements than can be counted");
    refused(tensor(0, 31, 2, 0), PROA_CORRUPT, "are not whole blocks of Q4_0 (32)");
    refused(tensor(2, 4, 0, 32), PROA_CORRUPT, "the 32 bytes before it belong to no tensor");
}

static void lying_pairs(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_llama(b), put_tensor(b, "a", 4, 4, 0, 0), put_tensor(b, "b", 4, 4, 0, 32), end(b, 64);
    refused(b, PROA_CORRUPT, "tensor 'b': overlaps the tensor before it by 32 bytes");
    b = begin();
    put_llama(b), put_tensor(b, "a", 2, 4, 0, 0), put_tensor(b, "a", 2, 4, 0, 32), end(b, 64);
    refused(b, PROA_CORRUPT, "tensor 'a': there are two of it");
    b = begin(); /* the class's name of a tensor, and the tensor that gets it */
    put_llama(b), put_tensor(b, "output_norm.weight", 2, 4, 0, 0),
        put_tensor(b, "model.norm.weight", 2, 4, 0, 32);
    end(b, 64);
    refused(b, PROA_CORRUPT, "there are two of it");
    b = begin(), put_llama(b), put_tensor(b, "", 2, 4, 0, 0), end(b, 64);
    refused(b, PROA_CORRUPT, "a tensor's name must have 1 to");
    b = begin(), put_llama(b), put_tensor(b, "blk.0.attn_q.weight", 5, 4, 0, 0), end(b, 64);
    refused(b, PROA_INVALID, "5 rows are not 2 heads of an even size");
    b = begin(), put_llama(b), put_tensor(b, "blk.0.attn_qkv.weight", 15, 8, 0, 0), end(b, 128);
    refused(b, PROA_INVALID, "15 rows are not 8 of q, 4 of k and 4 of v");
    b = begin(), put_llama(b);
    b->tensors = 1, put_str(b, "x"), put_number(b, 5, 4), end(b, 64);
    refused(b, PROA_CORRUPT, "has 5 axes, must have 1 to 4");
}

/* A tensor [experts, rows, cols] is one tensor for each expert; a vector is a matrix of one row. */
static void experts(void **state)
{
    PROA_UNUSED(state);
    builder *b = begin();
    put_text(b, "general.architecture", "qwen2moe");
    put_u32(b, "qwen2moe.embedding_length", 8), put_u32(b, "qwen2moe.block_count", 1);
    put_u32(b, "qwen2moe.feed_forward_length", 32), put_u32(b, "qwen2moe.attention.head_count", 2);
    put_u32(b, "qwen2moe.vocab_size", 4);
    b->tensors = 1, put_str(b, "blk.0.ffn_up_exps.weight"), put_number(b, 3, 4);
    put_number(b, 8, 8), put_number(b, 2, 8), put_number(b, 4, 8), put_number(b, 0, 4), put_number(b, 0, 8);
    put_tensor(b, "blk.0.ffn_gate_inp_shexp.weight", 0, 8, 0, 256);
    end(b, 72);
    proa_weights *w = open_good(b);
    assert_int_equal(proa_weights_count(w), 5);
    assert_true(number_at(w, "model.layers.0.mlp.experts.3.up_proj.weight", 1, 2) == 3 * 16 + 8 + 2);
    assert_true(number_at(w, "model.layers.0.mlp.shared_expert_gate.weight", 0, 7) == 64 + 7);
    proa_weights_close(w);
    free(b);
}

/* ---- tokenizers ---- */

/* An array of n strings, or of n zeros of another type. */
static void put_list(builder *b, const char *key, uint32_t type, int n, const char *const *texts)
{
    b->values++;
    put_str(b, key);
    put_number(b, ARRAY, 4), put_number(b, type, 4), put_number(b, (uint64_t)n, 8);
    for (int i = 0; i < n && texts; i++) put_str(b, texts[i]);
    for (int i = 0; i < n && !texts; i++) put_number(b, 0, 4);
}

static builder *tokenizer(const char *model, const char *pre)
{
    static const char *const tokens[] = {"a", "", "b"};
    builder *b = begin();
    put_text(b, "tokenizer.ggml.model", model);
    if (pre) put_text(b, "tokenizer.ggml.pre", pre);
    put_list(b, "tokenizer.ggml.tokens", STRING, 3, tokens);
    return b;
}

/* A file without tensors is a tokenizer alone. */
static void tokenizer_alone(void **state)
{
    PROA_UNUSED(state);
    builder *b = tokenizer("gpt2", "llama-bpe");
    put_u32(b, "tokenizer.ggml.bos_token_id", 2), put_text(b, "tokenizer.chat_template", "{{ \"x\" }}");
    put_text(b, "tokenizer.chat_template.tool", "y");
    end(b, 0);
    proa_weights *w = open_good(b);
    const proa_files *files = proa_weights_files(w);
    proa_buf text;
    assert_false(proa_files_has(files, "config.json"));
    assert_int_equal(proa_files_read(&text, files, "tokenizer.json", 1 << 20, NULL), PROA_OK);
    assert_non_null(strstr(text.ptr, "\"[EMPTY_1]\":1"));
    assert_non_null(strstr(text.ptr, "\"ignore_merges\": true"));
    proa_buf_release(&text);
    assert_int_equal(proa_files_read(&text, files, "tokenizer_config.json", 1 << 20, NULL), PROA_OK);
    assert_non_null(strstr(text.ptr, "\"bos_token\": \"b\""));
    assert_non_null(strstr(text.ptr, "{\"name\": \"default\", \"template\": \"{{ \\\"x\\\" }}\"}"));
    assert_non_null(strstr(text.ptr, "{\"name\": \"tool\", \"template\": \"y\"}"));
    proa_buf_release(&text);
    proa_weights_close(w);
    free(b);
}

/* The names of published files whose text is cut as Llama 3's. */
static void pretokenizer_names(void **state)
{
    PROA_UNUSED(state);
    static const char *const names[] = {"falcon-h1", "lfm2", "llama-bpe"};
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        builder *b = tokenizer("gpt2", names[i]);
        put_u32(b, "tokenizer.ggml.bos_token_id", 2), end(b, 0);
        proa_weights_close(open_good(b)), free(b);
    }
}

static void lying_tokenizers(void **state)
{
    PROA_UNUSED(state);
    builder *b = tokenizer("rwkv", NULL);
    end(b, 0);
    refused(b, PROA_UNSUPPORTED, "'tokenizer.ggml.model' 'rwkv' is not supported");
    b = tokenizer("gpt2", "kimi-k2"), end(b, 0);
    refused(b, PROA_UNSUPPORTED, "'tokenizer.ggml.pre' 'kimi-k2' is not supported");
    b = begin(), put_text(b, "tokenizer.ggml.model", "gpt2"), end(b, 0);
    refused(b, PROA_INVALID, "'tokenizer.ggml.tokens' is missing or empty");
    b = tokenizer("llama", NULL), put_list(b, "tokenizer.ggml.scores", F32, 2, NULL), end(b, 0);
    refused(b, PROA_INVALID, "'tokenizer.ggml.scores' has 2 elements for 3 tokens");
    b = tokenizer("llama", NULL), put_list(b, "tokenizer.ggml.token_type", U32, 3, NULL), end(b, 0);
    refused(b, PROA_INVALID, "'tokenizer.ggml.token_type' is uint32[], must be int32[]");
    b = tokenizer("gpt2", NULL), put_u32(b, "tokenizer.ggml.eos_token_id", 3), end(b, 0);
    refused(b, PROA_INVALID, "'tokenizer.ggml.eos_token_id' is 3, must be 0 to 2");
    b = tokenizer("gpt2", NULL), put_u32(b, "tokenizer.ggml.add_bos_token", 1), end(b, 0);
    refused(b, PROA_INVALID, "'tokenizer.ggml.add_bos_token' is uint32, must be bool");
}

/* ---- split files ---- */

static char dir[64];

static void write_part(const builder *b, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(b->bytes, 1, b->len, f), b->len);
    fclose(f);
}

static builder *part(int number, int count, const char *tensor)
{
    builder *b = begin();
    if (number == 0) put_llama(b), put_u32(b, "split.tensors.count", 2);
    put_u32(b, "split.no", (uint32_t)number);
    put_u32(b, "split.count", (uint32_t)count);
    put_tensor(b, tensor, 4, 8, 0, 0);
    end(b, 32);
    return b;
}

static proa_status open_path(const char *name, int64_t *count, proa_err *err)
{
    char path[128];
    proa_weights *w = NULL;
    *err = (proa_err){.status = PROA_OK};
    snprintf(path, sizeof path, "%s%s%s", dir, name ? "/" : "", name ? name : "");
    proa_status status = proa_weights_open(&w, path, err);
    if (w) *count = proa_weights_count(w);
    proa_weights_close(w);
    return status;
}

static void split_files(void **state)
{
    PROA_UNUSED(state);
    proa_err err;
    int64_t count = 0;
    const char *first = "m-00001-of-00002.gguf", *second = "m-00002-of-00002.gguf";
    builder *a = part(0, 2, "token_embd.weight"), *b = part(1, 2, "output.weight");
    write_part(a, first);
    assert_int_equal(open_path(first, &count, &err), PROA_NOT_FOUND);
    write_part(b, second);
    assert_int_equal(open_path(first, &count, &err), PROA_OK);
    assert_int_equal(count, 2);
    assert_int_equal(open_path(NULL, &count, &err), PROA_OK); /* the folder */
    assert_int_equal(open_path(second, &count, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "is file 2 of 2: open the first one"));
    write_part(a, second);
    assert_int_equal(open_path(first, &count, &err), PROA_CORRUPT);
    assert_non_null(strstr(err.text, "says that it is file 1 of 2, should be 2 of 2"));
    free(b);
    b = part(1, 2, "token_embd.weight");
    write_part(b, second);
    assert_int_equal(open_path(first, &count, &err), PROA_CORRUPT);
    assert_non_null(strstr(err.text, "there are two of it"));
    write_part(a, "other.gguf");
    assert_int_equal(open_path("other.gguf", &count, &err), PROA_INVALID);
    assert_non_null(strstr(err.text, "its name does not end with '-00001-of-00002.gguf'"));
    assert_int_equal(open_path(NULL, &count, &err), PROA_INVALID); /* two checkpoints */
    free(a), free(b);
}

static int make_dir(void **state)
{
    PROA_UNUSED(state);
    snprintf(dir, sizeof dir, "/tmp/proa_gguf_XXXXXX");
    return mkdtemp(dir) ? 0 : -1;
}

static int remove_dir(void **state)
{
    PROA_UNUSED(state);
    static const char *const names[] = {"m-00001-of-00002.gguf", "m-00002-of-00002.gguf", "other.gguf"};
    char path[128];
    for (size_t i = 0; i < PROA_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    return rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_rotation),
        cmocka_unit_test(fused_attention),
        cmocka_unit_test(configuration),
        cmocka_unit_test(pooling_of_embedders),
        cmocka_unit_test(further_layers),
        cmocka_unit_test(blocks_and_alignment),
        cmocka_unit_test(lying_header),
        cmocka_unit_test(lying_values),
        cmocka_unit_test(sizes_by_layer),
        cmocka_unit_test(windows_by_layer),
        cmocka_unit_test(recurrent_layers),
        cmocka_unit_test(glm_of_images),
        cmocka_unit_test(bamba),
        cmocka_unit_test(falcon_h1),
        cmocka_unit_test(short_convolutions),
        cmocka_unit_test(lying_tensors),
        cmocka_unit_test(lying_pairs),
        cmocka_unit_test(experts),
        cmocka_unit_test(tokenizer_alone),
        cmocka_unit_test(pretokenizer_names),
        cmocka_unit_test(lying_tokenizers),
        cmocka_unit_test_setup_teardown(split_files, make_dir, remove_dir),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
