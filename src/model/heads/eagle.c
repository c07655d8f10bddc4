/* SPDX-License-Identifier: Apache-2.0
 * eagle.c - EAGLE draft heads: found, checked against their target, and run over kept hidden states. */
#include "model/heads/eagle.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/file.h"
#include "model/ranks/states.h"
#include "model/run.h"
#include "model/staging/staging.h"
#include <stdlib.h>
#include <string.h>

/* ---- which heads a folder has ---- */

static bool has_tensor(const proa_weights *w, const char *name)
{
    char other[PROA_TENSOR_NAME_MAX];
    snprintf(other, sizeof other, "model.%s", name);
    return proa_weights_find(w, name) || proa_weights_find(w, other);
}

/* Published configurations name the class of the target, so the tensors say what it is. */
const proa_arch *proa_eagle_find(const char *folder)
{
    proa_weights *w = NULL;
    proa_err unused = {.status = PROA_OK};
    const proa_arch *arch = NULL;
    if (!proa_dir_exists(folder) || !proa_weights_in_folder(folder)) return NULL;
    if (proa_weights_open(&w, folder, &unused) != PROA_OK) return NULL;
    bool third = has_tensor(w, "midlayer.hidden_norm.weight") || has_tensor(w, "layers.0.hidden_norm.weight") ||
                 has_tensor(w, "midlayer.self_attn.q_proj.weight");
    if (has_tensor(w, "fc.weight")) arch = third ? &proa_arch_eagle3 : &proa_arch_eagle;
    proa_weights_close(w);
    return arch;
}

/* ---- checks against the target ---- */

static proa_status check_size(const char *key, int64_t value, int64_t wanted, proa_err *err)
{
    if (value == wanted) return PROA_OK;
    return PROA_FAIL(err, INVALID, "'%s' is %lld, that of the model is %lld", key, (long long)value,
                     (long long)wanted);
}

/* The layers of the target whose inputs are the states: those of the published implementation, or the named ones. */
static proa_status find_taps(proa_eagle *h, proa_err *err)
{
    int64_t layers = h->target->config.layers;
    const int64_t published[PROA_TAPS_MAX] = {2, layers / 2, layers - 3};
    const int64_t *named = h->model->config.tapped;
    const int64_t *tapped = named[0] < 0 ? published : named;
    if (named[0] < 0 && layers < 3)
        return PROA_FAIL(err, INVALID, "'eagle_aux_hidden_state_layer_ids' is needed for a model of %lld layers",
                         (long long)layers);
    for (int32_t i = 0; i < PROA_TAPS_MAX; i++)
        if (tapped[i] > layers)
            return PROA_FAIL(err, INVALID,
                             "'eagle_aux_hidden_state_layer_ids' has %lld, the model has %lld layers",
                             (long long)tapped[i], (long long)layers);
    memcpy(h->target->taps.layer, tapped, sizeof published);
    h->target->taps.count = PROA_TAPS_MAX; /* other stages hear of it when the target is loaded */
    return PROA_OK;
}

static proa_status check_sizes(proa_eagle *h, proa_err *err)
{
    const proa_config *c = &h->model->config, *t = &h->target->config;
    int64_t outputs = h->target->plan.width[PROA_REG_OUT];
    PROA_TRY(check_size("vocab_size", c->vocab, t->vocab, err));
    if (!h->fused) {
        PROA_TRY(check_size("hidden_size", c->hidden, proa_model_hidden_width(h->target), err));
        return check_size("draft_vocab_size", c->draft_vocab, outputs, err);
    }
    PROA_TRY(check_size("target_hidden_size", c->states / PROA_TAPS_MAX, t->hidden, err));
    if (c->draft_vocab > outputs)
        return PROA_FAIL(err, INVALID, "'draft_vocab_size' is %lld, the vocabulary of the model has %lld tokens",
                         (long long)c->draft_vocab, (long long)outputs);
    if (c->states == c->hidden)
        return PROA_FAIL(err, UNSUPPORTED, "'hidden_size' is %lld, the size of three states",
                         (long long)c->hidden);
    return find_taps(h, err);
}

static proa_param *shared_param(const proa_model *m, proa_weight_slot slot)
{
    const proa_params *p = &m->params[PROA_STACK_DECODER];
    return proa_params_at(p, p->layers, slot);
}

/* The slot of the target's last product. */
static proa_weight_slot head_slot(const proa_model *target)
{
    int32_t last = target->plan.head.count - 1;
    if (target->plan.head.step[last].op == PROA_STEP_GATHER_COLUMNS) last--;
    return target->plan.head.step[last].w;
}

/* Weights that the head lacks are the target's, if they have the right size. */
static proa_status check_shared(const proa_eagle *h, proa_err *err)
{
    const proa_param *table = shared_param(h->target, PROA_SLOT_TOKENS);
    int64_t hidden = h->model->config.hidden, outputs = h->target->plan.width[PROA_REG_OUT];
    if (!shared_param(h->model, PROA_SLOT_TOKENS)->parts && (!table->parts || table->cols != hidden))
        return PROA_FAIL(
            err, INVALID,
            "tensor 'embed_tokens.weight' is missing, and the rows of the model's have %lld numbers, "
            "not 'hidden_size' %lld",
            (long long)table->cols, (long long)hidden);
    if (shared_param(h->model, PROA_SLOT_HEAD)->parts || h->model->config.draft_vocab == outputs)
        return PROA_OK;
    return PROA_FAIL(err, INVALID, "tensor 'lm_head.weight' [%lld, %lld] is missing",
                     (long long)h->model->config.draft_vocab, (long long)hidden);
}

/* d2t [outputs]: what is added to an id of the head to make it one of the target. */
static proa_status read_ids(proa_eagle *h, proa_err *err)
{
    const proa_weights_tensor *t = proa_weights_find(h->model->weights, "d2t");
    int64_t outputs = h->model->config.draft_vocab, vocab = h->target->plan.width[PROA_REG_OUT];
    if (!t && outputs == vocab) return PROA_OK;
    if (!t)
        return PROA_FAIL(err, INVALID, "tensor 'd2t' is missing: 'draft_vocab_size' is %lld, 'vocab_size' %lld",
                         (long long)outputs, (long long)vocab);
    const proa_view *v = &t->source.view;
    char have[64];
    if (v->rank != 1 || v->shape[0] != outputs || (v->dtype != PROA_DTYPE_I64 && v->dtype != PROA_DTYPE_I32))
        return PROA_FAIL(err, INVALID, "tensor 'd2t' is %s %s, expected i64 [%lld]", proa_dtype_name(v->dtype),
                         proa_shape_text(have, v->rank, v->shape), (long long)outputs);
    h->ids = proa_malloc((size_t)outputs * sizeof *h->ids);
    for (int64_t i = 0; i < outputs; i++) {
        int64_t bytes = proa_dtype_bytes(v->dtype), more = 0;
        int32_t word;
        const char *at = (const char *)v->data + i * v->stride[0] * bytes; /* perhaps unaligned */
        if (bytes == 8) memcpy(&more, at, 8);
        else memcpy(&word, at, 4), more = word;
        if (more < -i || more >= vocab - i)
            return PROA_FAIL(err, INVALID,
                             "tensor 'd2t' has %lld at %lld: the token would be outside of 0 to %lld",
                             (long long)more, (long long)i, (long long)vocab - 1);
        h->ids[i] = (int32_t)(i + more);
    }
    return PROA_OK;
}

/* ---- memory ---- */

/* Takes the parts of the block; with memory NULL it only counts. */
static void place_states(proa_eagle *h, char *memory)
{
    int64_t hidden = h->model->config.hidden, each = proa_dtype_bytes(h->dtype), at = 0;
    int64_t rows = h->kept_max + (h->fused ? 0 : h->own_max);
    h->kept = proa_view_2d(memory, h->dtype, rows, h->width);
    h->own = h->kept;
    h->own_first = h->fused ? 0 : h->kept_max;
    at = proa_round_up(rows * h->width * each, 256);
    if (h->fused) {
        h->own = proa_view_2d(memory ? memory + at : NULL, h->dtype, h->own_max, hidden);
        at += proa_round_up(h->own_max * hidden * each, 256);
        h->taps = proa_view_2d(memory ? memory + at : NULL, h->dtype, h->target->plan.rows_max, h->width);
        at += proa_round_up(h->taps.shape[0] * h->width * each, 256);
    }
    h->whole_at = at;
    if (h->whole) at += shared_param(h->whole, head_slot(h->target))->bytes;
    if (h->whole) at += shared_param(h->whole, head_slot(h->target) + 1)->bytes;
    h->bytes = at;
}

/* The head follows the target in all that concerns tokens. */
static void take_factors(proa_eagle *h)
{
    proa_config *c = &h->model->config;
    const proa_config *t = &h->target->config;
    c->embed_scale = t->embed_scale;
    if (!h->fused) c->logit_scale = t->logit_scale, c->logit_cap = t->logit_cap;
}

/* Whether rank 0 has only a part of the last product, or none of it. */
static bool lacks_head(const proa_model *target)
{
    return target->config.head_split || target->plan.part.stages > 1;
}

static proa_status prepare_heads(proa_eagle *h, const char *folder, const proa_model_options *given, proa_err *err)
{
    proa_model_options options = *given;
    options.arch = proa_eagle_find(folder);
    options.lora_slots = options.lora_rank = 0;
    if (h->target->arch->kind != PROA_KIND_DECODER || h->target->config.prefix_end >= 0)
        return PROA_FAIL(err, INVALID, "they need a causal decoder, this is a %s", h->target->arch->name);
    if (!options.arch) return PROA_FAIL(err, INVALID, "there is no checkpoint with a tensor 'fc.weight'");
    h->fused = options.arch == &proa_arch_eagle3;
    h->dtype = proa_states_dtype(h->target);
    if (!h->target->device->host)
        options.dtype = proa_dtype_name(h->dtype); /* shared weights have this type */
    PROA_TRY(proa_model_prepare(&h->model, folder, &options, h->target->device, h->target->ctx.pool, err));
    PROA_TRY(check_sizes(h, err));
    PROA_TRY(check_shared(h, err));
    PROA_TRY(read_ids(h, err));
    take_factors(h);
    if (lacks_head(h->target) && !shared_param(h->model, PROA_SLOT_HEAD)->parts) {
        options = *given;
        options.lora_slots = options.lora_rank = 0;
        PROA_TRY(proa_model_prepare(&h->whole, h->target->path, &options, h->target->device,
                                    h->target->ctx.pool, err));
    }
    h->sums = proa_malloc((size_t)h->model->plan.head_rows * sizeof *h->sums);
    h->width = h->fused ? h->model->config.states : h->model->config.hidden;
    place_states(h, NULL);
    return PROA_OK;
}

proa_status proa_eagle_prepare(proa_eagle **out, const char *folder, proa_model *target,
                               const proa_eagle_options *options, proa_err *err)
{
    proa_eagle *h = proa_calloc(1, sizeof *h);
    *out = NULL;
    h->target = target;
    h->kept_max = options->kept_max, h->own_max = options->own_max;
    proa_status status = prepare_heads(h, folder, options->model, err);
    if (status != PROA_OK) {
        proa_err_prefix(err, "option 'draft-model': EAGLE heads '%s'", folder);
        return proa_eagle_free(h), status;
    }
    *out = h;
    return PROA_OK;
}

/* The parameter of the target, or of the target as one model, which has its memory. */
static void share_param(proa_eagle *h, const proa_model *of, proa_weight_slot slot, proa_weight_slot of_target)
{
    proa_param *p = shared_param(h->model, slot);
    *p = *shared_param(of, of_target);
    p->bytes = 0, p->lora = NULL;
}

/* The target's last product, in one part. */
static proa_status load_whole(proa_eagle *h, proa_err *err)
{
    proa_param *matrix = shared_param(h->whole, head_slot(h->target)),
               *bias = shared_param(h->whole, head_slot(h->target) + 1);
    proa_model_load_param(h->whole, matrix, h->memory + h->whole_at);
    proa_model_load_param(h->whole, bias, h->memory + h->whole_at + matrix->bytes);
    PROA_TRY(proa_weights_check(h->whole->weights, err));
    proa_weights_detach(h->whole->weights);
    return PROA_OK;
}

proa_status proa_eagle_load(proa_eagle *h, proa_progress_fn *progress, void *arg, proa_err *err)
{
    proa_device *device = h->target->device;
    proa_weight_slot head = head_slot(h->target);
    PROA_TRY(proa_model_load(h->model, progress, arg, err));
    h->memory = device->alloc(device, h->bytes);
    if (!h->memory)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for hidden states on %s",
                         (double)h->bytes / 1e6, device->name);
    place_states(h, h->memory);
    if (h->whole) PROA_TRY(load_whole(h, err));
    const proa_model *of = h->whole ? h->whole : h->target;
    if (!shared_param(h->model, PROA_SLOT_TOKENS)->parts)
        share_param(h, h->target, PROA_SLOT_TOKENS, PROA_SLOT_TOKENS);
    if (!shared_param(h->model, PROA_SLOT_HEAD)->parts) {
        share_param(h, of, PROA_SLOT_HEAD, head);
        share_param(h, of, PROA_SLOT_HEAD_B, head + 1);
    }
    h->target->taps.rows = h->taps;
    return PROA_OK;
}

void proa_eagle_free(proa_eagle *h)
{
    if (!h) return;
    h->target->taps.count = 0;
    h->target->device->free(h->target->device, h->memory, h->bytes);
    proa_model_free(h->model);
    proa_model_free(h->whole);
    free(h->ids);
    free(h->sums);
    free(h);
}

/* ---- running ---- */

void proa_eagle_keep(proa_eagle *h, int64_t at, const int32_t *rows, int64_t count)
{
    PROA_ASSERT(at + count <= h->kept_max);
    proa_view to = proa_view_rows(h->kept, at, at + count);
    if (h->fused) proa_states_tapped(h->target, rows, count, to);
    else proa_states_hidden(h->target, rows, count, to);
}

void proa_eagle_decode(proa_eagle *h, const proa_kv *kv, const proa_batch *batch, bool own)
{
    proa_batch b = *batch;
    b.states = own ? h->own : h->kept;
    proa_model_decode(h->model, kv, &b);
}

void proa_eagle_keep_own(proa_eagle *h, int64_t at, const int32_t *rows, int64_t count)
{
    PROA_ASSERT(at + count <= h->own_max);
    at += h->own_first;
    proa_run_copy_stream(h->model, proa_view_rows(h->own, at, at + count), rows, count);
}

void proa_eagle_top_k(proa_eagle *h, const int32_t *rows, int64_t count, int32_t k, int32_t *ids, float *logprobs)
{
    for (int64_t i = 0, n; i < count; i += n) {
        n = proa_min64(count - i, h->model->plan.head_rows);
        proa_model_top_k(h->model, rows + i, n, k, ids + i * k, logprobs + i * k, h->sums);
        for (int64_t j = 0; j < n * k; j++) logprobs[i * k + j] -= h->sums[j / k];
    }
    for (int64_t j = 0; h->ids && j < count * k; j++) ids[j] = h->ids[ids[j]];
}

int64_t proa_eagle_outputs(const proa_eagle *h)
{
    return h->model->plan.width[PROA_REG_OUT];
}
