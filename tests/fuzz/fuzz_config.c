/* SPDX-License-Identifier: Apache-2.0
 * fuzz_config.c - config.json: whatever it says, the row is found or refused, the sizes are sane, and a plan of its
 * registers can be made without overflow. */
#include "base/limits.h"
#include "model/relative.h"
#include <math.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_sizes(const proa_config *c)
{
    PROA_ASSERT(c->hidden > 0 && c->hidden <= PROA_HIDDEN_MAX && c->vocab > 0 && c->vocab <= PROA_VOCAB_MAX);
    PROA_ASSERT(c->layers >= 0 && c->layers <= PROA_LAYERS_MAX && c->context > 0 &&
                c->context <= PROA_CONTEXT_MAX);
    int64_t head = proa_config_attends(c, PROA_SOME_LAYER), ffn = proa_config_has_dense(c, PROA_SOME_LAYER);
    PROA_ASSERT(c->head_dim >= head && c->head_dim <= PROA_HEAD_DIM_MAX);
    PROA_ASSERT(c->heads >= head && c->heads <= PROA_HEADS_MAX);
    PROA_ASSERT(!head || (c->kv_heads > 0 && c->heads % c->kv_heads == 0));
    PROA_ASSERT(c->rotary_dim <= c->head_dim && c->ffn >= ffn && c->ffn <= PROA_FFN_MAX);
    PROA_ASSERT(isfinite(c->attention_scale) && isfinite(c->embed_scale) && isfinite(c->logit_scale));
}

/* The tables that a load fills, on the stack with the largest sizes: the sanitizer sees what lies beyond. */
static void check_tables(const proa_config *c)
{
    float freq[PROA_HEAD_DIM_MAX / 2 + 1], slopes[PROA_HEADS_MAX];
    for (int longer = 0; longer < 2; longer++) proa_rope_inv_freq(&c->rope, c->rotary_dim, longer, freq);
    if (c->local_rope.theta > 0) proa_rope_inv_freq(&c->local_rope, c->rotary_dim, true, freq);
    proa_config_alibi(c, slopes);
    for (int64_t h = 0; h < c->heads; h++) PROA_ASSERT(slopes[h] >= 0 && slopes[h] <= 1);
    PROA_ASSERT(proa_relative_rows(c) <= 2 * PROA_RELATIVE_CONTEXT_MAX - 1);
}

static void check(const proa_arch *arch, const proa_config *c)
{
    check_sizes(c);
    for (int r = 1; r < PROA_REG_COUNT; r++) {
        int64_t width = proa_reg_width(arch, c, (proa_reg)r);
        PROA_ASSERT(width >= 0 && width <= (int64_t)1 << 40);
    }
    for (int64_t i = 0; i < c->layers; i++) PROA_ASSERT(proa_config_window(c, i) >= 0);
    check_tables(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_json *json = NULL;
    const proa_arch *arch = NULL;
    proa_config config;
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    proa_arena_init(&arena);
    if (proa_json_parse(&json, (proa_str){(const char *)data, size}, "config.json", &err) == PROA_OK) {
        proa_status status = proa_arch_configure(&arch, &config, json, json, &arena, &err);
        if (status == PROA_OK) check(arch, &config);
        else PROA_ASSERT(err.text[0] != '\0');
    }
    proa_json_free(json);
    proa_arena_release(&arena);
    return 0;
}
