/* SPDX-License-Identifier: Apache-2.0
 * gguf_factors.c - factors of products as part of the weights, where the format has no keys for them (Falcon-H1). */
#include "convert/gguf_values.h"

#include <math.h>

static double of_scores(const proa_config *c)
{
    return c->attention_scale * sqrt((double)c->head_dim);
}

/* Of one number of what a recurrent layer makes of its input. */
static double of_part(const proa_config *c, int64_t at)
{
    int64_t widths[5], i = 0;
    if (c->factors.parts[0] == 0) return 1;
    proa_mix_parts(widths, c);
    while (i < 4 && at >= widths[i]) at -= widths[i++];
    return c->factors.parts[i];
}

static double of_slot(const proa_config *c, proa_weight_slot slot)
{
    double factor = proa_slot_factor(c, slot);
    return factor == 0 ? 1 : factor;
}

double proa_gguf_factor(const proa_config *c, const proa_bound_tensor *t, int64_t row)
{
    int64_t at = t->first + row;
    switch (t->name->slot) {
    case PROA_SLOT_TOKENS: return c->embed_scale;
    case PROA_SLOT_HEAD: return c->logit_scale;
    case PROA_SLOT_QKV:
    case PROA_SLOT_QKV_B: return at < c->heads * c->head_dim ? of_scores(c) : 1;
    case PROA_SLOT_MIX: return of_slot(c, PROA_SLOT_MIX) * of_part(c, at);
    case PROA_SLOT_MIX_B: return of_part(c, at);
    default: return of_slot(c, t->name->slot);
    }
}

void proa_gguf_drop_factors(proa_config *c)
{
    if (c->embed_scale != c->logit_scale) c->tied = false;
    c->embed_scale = c->logit_scale = 1;
    c->attention_scale = 1 / sqrt((double)c->head_dim);
    c->factors = (proa_factors){.mix = 1, .mix_out = 1, .attention_out = 1, .ffn_up = 1, .ffn_out = 1};
}
