/* SPDX-License-Identifier: Apache-2.0
 * rank_set.c - devices, threads and page memory of the ranks of a model. */
#include "engine/rank_set.h"

#include "base/checked.h"
#include "base/thread.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The name of rank `rank`'s device. */
static const char *name_device(char out[32], const char *device, int32_t rank)
{
    const char *colon = device ? strchr(device, ':') : NULL;
    if (!device || strncmp(device, "cuda", 4) != 0 || rank == 0) return device;
    snprintf(out, 32, "cuda:%ld", (colon ? strtol(colon + 1, NULL, 10) : 0) + rank);
    return out;
}

static proa_status check_count(const char *option, int32_t count, int32_t most, proa_err *err)
{
    if (count >= 0 && count <= most) return PROA_OK;
    return PROA_FAIL(err, INVALID, "option '%s' is %d, must be 0 to %d", option, count, most);
}

proa_status proa_rank_count(int32_t *ranks, int32_t tensor_parallel, int32_t pipeline_parallel, proa_err *err)
{
    PROA_TRY(check_count("tp", tensor_parallel, PROA_RANKS_MAX, err));
    int32_t tensors = tensor_parallel > 1 ? tensor_parallel : 1;
    PROA_TRY(check_count("pp", pipeline_parallel, PROA_RANKS_MAX / tensors, err));
    *ranks = tensors * (pipeline_parallel > 1 ? pipeline_parallel : 1);
    return PROA_OK;
}

proa_status proa_rank_set_open(proa_rank_set *s, const char *device, int32_t ranks, int threads, proa_err *err)
{
    char name[32];
    int all = threads ? threads : proa_cpu_count();
    s->count = ranks;
    for (int32_t i = 0; i < s->count; i++) {
        s->pool[i] = proa_pool_new(s->count == 1 ? threads : (int)proa_max64(1, all / s->count));
        PROA_TRY(proa_device_open(&s->device[i], name_device(name, device, i), err));
    }
    return PROA_OK;
}

proa_status proa_rank_set_pages(proa_rank_set *s, proa_kv_pages *pages, proa_model *m, proa_err *err)
{
    for (int32_t i = 1; i < s->count; i++) {
        const proa_model *part = proa_ranks_model(m, i);
        const proa_config *c = &part->config;
        PROA_TRY(proa_kv_pages_init_beside(&s->pages[i], pages, s->device[i], part->kv_layers, c->kv_heads,
                                           c->head_dim, m->formats.kv, err));
    }
    return PROA_OK;
}

void proa_rank_set_layers(const proa_rank_set *s, const proa_kv_pages *pages, const proa_model *m, proa_kv *kv)
{
    for (int32_t rank = 0; rank < s->count; rank++)
        for (int32_t layer = 0; layer < proa_ranks_model(m, rank)->kv_layers; layer++)
            kv[rank * m->kv_stride + layer] = proa_kv_pages_layer(rank ? &s->pages[rank] : pages, layer);
}

proa_status proa_rank_set_failed(const proa_rank_set *s, proa_err *err)
{
    for (int32_t i = 0; i < s->count; i++) PROA_TRY(s->device[i]->failed(s->device[i], err));
    return PROA_OK;
}

void proa_rank_set_release_pages(proa_rank_set *s)
{
    for (int32_t i = 1; i < s->count; i++) proa_kv_pages_release(&s->pages[i]);
}

void proa_rank_set_close(proa_rank_set *s)
{
    for (int32_t i = 0; i < s->count; i++) {
        proa_device_close(s->device[i]);
        proa_pool_free(s->pool[i]);
    }
}
