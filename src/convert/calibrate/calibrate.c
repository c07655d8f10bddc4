/* SPDX-License-Identifier: Apache-2.0
 * calibrate.c - which tensors are quantised, and the order of the work: gather inputs, smooth, round, make tensors. */
#include "convert/calibrate/calibrate.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include "base/log.h"
#include "convert/calibrate/session.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- which ---- */

/* A matrix of a layer whose products the observer sees: [N, cols] as it is stored. */
static bool is_product_of_layer(const proa_params *p, int64_t index, const proa_convert_tensor *t)
{
    const proa_param *param = &p->param[index];
    bool product = proa_param_is_matrix(param) && param->role == PROA_ROLE_MATRIX && !param->heads;
    return product && index < p->layers * PROA_SLOT_COUNT && param->cols == t->shape[t->rank - 1];
}

/* The slot that the tensor is of, if it is one slot only: a matrix of a layer. */
static bool find_slot(const proa_calibrate_session *s, const proa_convert_tensor *t, proa_stack_id *stack,
                      int64_t *index)
{
    int found = 0;
    for (int st = 0; st < PROA_STACK_COUNT; st++) {
        const proa_params *p = &s->tensors->params[st];
        for (int64_t i = 0; i < (p->layers + 1) * PROA_SLOT_COUNT; i++) {
            bool is_part = false;
            for (int32_t k = 0; k < p->param[i].parts; k++)
                is_part |= p->param[i].part[k].tensor == t->whole[0];
            if (!is_part) continue;
            *stack = (proa_stack_id)st, *index = i;
            found += is_product_of_layer(p, i, t) ? 1 : 2;
        }
    }
    return found == 1;
}

static bool is_router(int64_t index)
{
    int64_t slot = index % PROA_SLOT_COUNT;
    return slot == PROA_SLOT_ROUTER || slot == PROA_SLOT_SHARED_GATE;
}

/* Whether it is stored as torch's Linear has it: floats [N, K] named X.weight. */
static bool is_linear(const proa_convert_tensor *t)
{
    bool floats = t->dtype == PROA_DTYPE_F32 || t->dtype == PROA_DTYPE_F16 || t->dtype == PROA_DTYPE_BF16;
    bool plain = t->rank == 2 && !t->turned && t->slices <= 1 && t->whole_count == 1;
    return floats && plain && proa_str_ends(proa_str_c(t->name), proa_str_c(".weight"));
}

/* Sizes that the layouts can express, and the place of its inputs. */
static bool is_target(const proa_calibrate_session *s, const proa_convert_tensor *t,
                      proa_calibrate_target *out, proa_stack_id *stack, int64_t *index)
{
    if (!is_linear(t)) return false;
    *out = (proa_calibrate_target){.N = t->shape[0], .K = t->shape[1]};
    out->group = s->c->kind == PROA_CODES_INT4 ? s->c->group : out->K;
    if (out->N % 8 || out->K % 8 || out->K == 0 || out->K % out->group) return false;
    return find_slot(s, t, stack, index) && !is_router(*index);
}

static int64_t stats_of(proa_calibrate_session *s, proa_stack_id stack, int64_t index, int64_t K)
{
    for (int64_t i = 0; i < s->stats_count; i++)
        if (s->stats[i].stack == stack && s->stats[i].index == index) return i;
    s->stats[s->stats_count] = (proa_input_stats){.stack = stack, .index = index, .K = K};
    return s->stats_count++;
}

static int by_stats(const void *a, const void *b)
{
    const proa_calibrate_target *x = a, *y = b;
    return x->stats < y->stats ? -1 : x->stats > y->stats;
}

/* Counts the matrices of layers whose sizes neither the layouts nor the groups fit. */
static void report_others(const proa_calibrate_session *s)
{
    proa_stack_id stack;
    int64_t index, others = 0;
    for (int64_t i = 0; i < s->tensors->count; i++) {
        const proa_convert_tensor *t = &s->tensors->at[i];
        proa_calibrate_target unused;
        if (t->rank < 2 || !find_slot(s, t, &stack, &index) || is_router(index)) continue;
        others += !is_target(s, t, &unused, &stack, &index);
    }
    if (others)
        PROA_LOG(WARNING,
                 "--calibrate: %lld matrices of layers stay as they are: they are no [N, K] with N a "
                 "multiple of 8 and "
                 "K one of the group",
                 (long long)others);
}

static proa_status find_targets(proa_calibrate_session *s)
{
    proa_convert_tensors *all = s->tensors;
    s->target = proa_calloc((size_t)proa_max64(all->count, 1), sizeof *s->target);
    s->stats = proa_calloc((size_t)proa_max64(all->count, 1), sizeof *s->stats);
    if (!all->arch)
        return PROA_FAIL(s->err, UNSUPPORTED, "--calibrate: '%s' is of no known architecture", s->job->in);
    for (int64_t i = 0; i < all->count; i++) {
        proa_stack_id stack = PROA_STACK_ENCODER;
        int64_t index = 0;
        proa_calibrate_target *t = &s->target[s->targets];
        if (!is_target(s, &all->at[i], t, &stack, &index)) continue;
        t->tensor = &all->at[i];
        t->stats = stats_of(s, stack, index, t->K);
        s->targets++;
    }
    qsort(s->target, (size_t)s->targets, sizeof *s->target, by_stats);
    if (s->targets) return report_others(s), PROA_OK;
    return PROA_FAIL(s->err, UNSUPPORTED,
                     "--calibrate: '%s' has no matrices [N, K] of floats with K a multiple of the group",
                     s->job->in);
}

/* ---- rounding ---- */

static bool feeds_back(const proa_calibrate *c)
{
    return c->method == PROA_CALIBRATE_GPTQ || c->method == PROA_CALIBRATE_AWQ_GPTQ;
}

/* Takes the Hessian. */
static void factor_stats(const proa_calibrate_session *s, proa_input_stats *st)
{
    proa_gptq_inputs *in = &st->inputs;
    if (st->rows > 0) proa_gptq_factor(in, st->hessian, st->K, s->job->pool);
    else proa_gptq_unknown(in, st->K); /* of experts, and of what the text does not reach */
    if (st->rows <= 0) free(st->hessian);
    st->hessian = NULL;
    if (feeds_back(s->c)) return;
    free(in->factor);
    free(in->hessian);
    in->factor = in->hessian = NULL;
}

/* The numbers of the matrix, smoothed: [N][K]. */
static proa_status read_numbers(const proa_calibrate_session *s, const proa_calibrate_target *t, float *numbers)
{
    const float *scale = s->stats[t->stats].scale;
    int64_t count = t->N * t->K;
    proa_convert_tensor_read_f32(t->tensor, 0, count, numbers);
    for (int64_t i = 0; i < count; i++) {
        if (scale) numbers[i] *= scale[i % t->K];
        if (!isfinite(numbers[i]))
            return PROA_FAIL(s->err, INVALID, "tensor '%.120s' holds NaN or infinity", t->tensor->name);
    }
    return PROA_OK;
}

static proa_status quantise_tensor(proa_calibrate_session *s, const proa_calibrate_target *t)
{
    proa_convert_tensor *from = t->tensor;
    bool int4 = s->c->kind == PROA_CODES_INT4;
    int64_t count = t->N * t->K, scales = t->N * (t->K / t->group);
    proa_codes m = {.kind = s->c->kind, .N = t->N, .K = t->K, .group = t->group};
    float *numbers = proa_malloc((size_t)count * sizeof *numbers);
    m.asymmetric = int4 && s->c->asymmetric;
    m.scale_dtype = int4 ? (from->dtype == PROA_DTYPE_BF16 ? PROA_DTYPE_BF16 : PROA_DTYPE_F16) : PROA_DTYPE_F32;
    m.numbers = numbers;
    m.codes = proa_malloc((size_t)count);
    m.scales = proa_malloc((size_t)scales * sizeof *m.scales);
    m.zeros = m.asymmetric ? proa_malloc((size_t)scales) : NULL;
    proa_status status = read_numbers(s, t, numbers);
    if (status == PROA_OK) {
        proa_gptq_round(&m, &s->stats[t->stats].inputs, s->c->sweeps, s->job->pool);
        proa_calibrate_new_matrix(s, t, &m);
    }
    proa_convert_tensor_drop(s->job, from);
    from->count = -1; /* replaced */
    free(numbers), free(m.codes), free(m.scales), free(m.zeros);
    return status;
}

/* ---- all of it ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const proa_convert_tensor *)a)->name, ((const proa_convert_tensor *)b)->name);
}

/* The list without what was replaced and with what was made. */
static void join_lists(proa_calibrate_session *s)
{
    proa_convert_tensors *all = s->tensors;
    proa_convert_tensor *at = PROA_ARENA_NEW(&all->arena, proa_convert_tensor, all->count + s->made_count);
    int64_t n = 0;
    for (int64_t i = 0; i < all->count; i++)
        if (all->at[i].count >= 0) at[n++] = all->at[i];
    memcpy(at + n, s->made, (size_t)s->made_count * sizeof *at);
    all->at = at, all->count = n + s->made_count;
    qsort(at, (size_t)all->count, sizeof *at, by_name);
}

static proa_status quantise_all(proa_calibrate_session *s)
{
    int64_t next = 0;
    while (s->end < s->stats_count) {
        PROA_TRY(proa_calibrate_gather(s));
        for (int64_t i = s->first; i < s->end; i++) {
            PROA_TRY(proa_calibrate_smooth(s, i));
            factor_stats(s, &s->stats[i]);
            for (; next < s->targets && s->target[next].stats == i; next++) {
                PROA_TRY(quantise_tensor(s, &s->target[next]));
                if (!s->c->progress(s->c->context, next + 1, s->targets))
                    return PROA_FAIL(s->err, CANCELLED, "interrupted");
            }
            proa_input_stats_release(&s->stats[i]);
        }
    }
    return PROA_OK;
}

proa_status proa_calibrate_tensors(proa_calibrated *out, proa_convert_tensors *tensors,
                                   const proa_convert_job *job, proa_err *err)
{
    proa_calibrate_session s = {.job = job, .c = job->calibrate, .tensors = tensors, .out = out, .err = err};
    *out = (proa_calibrated){.matrices = 0};
    proa_arena_init(&out->arena);
    proa_buf_init(&out->config, (size_t)PROA_CONFIG_BYTES_MAX);
    proa_status status = find_targets(&s);
    s.made = proa_calloc((size_t)(5 * s.targets + 2 * s.stats_count + 1), sizeof *s.made);
    if (status == PROA_OK) status = quantise_all(&s);
    if (status == PROA_OK) {
        out->matrices = s.targets;
        proa_calibrate_write_config(&s);
        join_lists(&s);
        if (out->config.full)
            status = PROA_FAIL(err, LIMIT,
                               "the names of matrices that stay as they are take more than %lld bytes",
                               (long long)PROA_CONFIG_BYTES_MAX);
    }
    for (int64_t i = 0; i < s.stats_count; i++) proa_input_stats_release(&s.stats[i]);
    free(s.made), free(s.stats), free(s.target);
    return status;
}

void proa_calibrated_release(proa_calibrated *c)
{
    proa_arena_release(&c->arena);
    proa_buf_release(&c->config);
}

uint64_t proa_calibrate_key(const proa_calibrate *c, uint64_t key)
{
    const uint64_t parts[] = {c->text_key, (uint64_t)c->kind, (uint64_t)c->method, (uint64_t)c->group,
                              c->asymmetric};
    for (size_t i = 0; i < PROA_COUNT(parts); i++) key = (key ^ parts[i]) * 0x100000001b3ULL + (key >> 29);
    return key;
}
