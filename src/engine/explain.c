/* SPDX-License-Identifier: Apache-2.0
 * explain.c - prints a model's program, memory plan and lower bound, as text or JSON. */
#include "engine/explain.h"

#include "engine/ranks/rank_set.h"

#include "base/alloc.h"
#include "kv/pages.h"
#include "model/ranks/traffic.h"
#include "model/relative.h"
#include <stdlib.h>
#include <string.h>

/* What one rank has and sends. */
typedef struct rank_figures {
    proa_rank_part part;
    proa_layer_range layers;
    int64_t weights, activations, kv; /* bytes */
    proa_rank_traffic traffic;
} rank_figures;

typedef struct explained {
    proa_pool *pool;
    proa_device *device;
    proa_model *m;
    proa_tokenizer *tokenizer;
    proa_sizes sizes;
    proa_memory memory;
    double bandwidth;
    rank_figures *ranks; /* [ranks] of a model that is divided; NULL: it is not */
    int32_t ranks_count;
} explained;

/* Keys and values of one token in all layers. */
static int64_t kv_token_bytes(const explained *x)
{
    const proa_kv_shape shape = proa_kv_shape_of(x->m);
    return proa_kv_shape_numbers(&shape) * proa_dtype_bytes(shape.dtype);
}

/* Lower bound of one decoding step of one sequence, in seconds: weights, keys and values are read once. */
static double floor_s(const explained *x, int64_t context)
{
    return (double)(x->m->plan.step_bytes + context * kv_token_bytes(x)) / x->bandwidth;
}

/* ---- the program ---- */

static const proa_param *param_of(const explained *x, proa_stack_id stack, const proa_step *s)
{
    const proa_params *p = &x->m->params[stack];
    for (int64_t layer = 0; layer < p->layers; layer++) /* the first layer that has it */
        if (proa_params_at(p, layer, s->w)->parts) return proa_params_at(p, layer, s->w);
    return proa_params_find(p, 0, s->w);
}

static bool has_weight(const proa_step *s)
{
    return s->op == PROA_STEP_EMBED || s->op == PROA_STEP_NORM || s->op == PROA_STEP_HEADS_NORM ||
           s->op == PROA_STEP_LINEAR || s->op == PROA_STEP_LINEAR_GATED || s->op == PROA_STEP_HEADS_LINEAR ||
           s->op == PROA_STEP_EXPERTS || s->op == PROA_STEP_CONV_STATE || s->op == PROA_STEP_NORM_GATED ||
           s->op == PROA_STEP_GROUP_SCALE || s->op == PROA_STEP_GROUP_NORM;
}

typedef struct line {
    char op[24], in[40], out[40], weight[48], notes[64];
    int64_t bytes;
} line;

static void reg_text(const explained *x, proa_reg reg, bool head, char out[40])
{
    int64_t width = x->m->plan.width[reg];
    if (reg == PROA_REG_NONE) snprintf(out, 40, "-");
    else snprintf(out, 40, "%s [%s, %lld]", proa_reg_name(reg), head ? "S" : "T", (long long)width);
}

/* The activation of a product, or "". */
static const char *act_text(const proa_config *c, const proa_step *s)
{
    if (s->flags & PROA_HEAD_ACT) return proa_act_name(c->head_act);
    if (s->flags & PROA_CONV_ACT) return proa_act_name(c->conv_act);
    if (s->flags & PROA_ACT || s->op == PROA_STEP_LINEAR_GATED) return proa_act_name(c->act);
    proa_act fixed = PROA_ACT_OF_FLAGS(s->flags);
    return fixed ? proa_act_name(fixed) : "";
}

/* How many are chosen; in how many layers a step of some layers runs. */
static int experts_note(const proa_config *c, const proa_step *s, char *out, size_t size)
{
    int64_t layers = 0;
    const char *comma = size < 64 ? ", " : "";
    for (int64_t i = 0; i < c->layers; i++) layers += proa_step_applies(s, c, i);
    if (s->flags & PROA_CONDITIONS_BY_LAYER && layers < c->layers)
        return snprintf(out, size, "%sin %lld layers", comma, (long long)layers);
    if (s->op != PROA_STEP_ROUTE) return 0;
    return snprintf(out, size, "%s%d of %lld", comma, c->router.chosen, (long long)c->experts);
}

/* In an encoder: whether the step is in the first layer, or in all others. */
static void note_layer(const proa_step *s, char *out, size_t size)
{
    const char *comma = size < 64 ? ", " : "";
    if (s->flags & PROA_IF(FIRST_LAYER)) snprintf(out, size, "%sfirst layer", comma);
    if (s->flags & PROA_IF(LATER_LAYERS)) snprintf(out, size, "%snot the first layer", comma);
}

/* The window of those layers of a stack that have one; 0: none has. */
static int32_t widest_window(const proa_config *c, proa_stack_id stack)
{
    bool decoder = stack == PROA_STACK_DECODER;
    int64_t layers = decoder ? c->layers : c->encoder_layers;
    int32_t window = 0;
    for (int64_t i = 0; i < layers && window == 0; i++) window = proa_config_stack_window(c, decoder, i);
    return window;
}

/* The notes of a step: activation, residual, kind of rotation, window, scale, layers. */
static void notes_text(const explained *x, proa_stack_id stack, const proa_step *s, char out[64])
{
    const proa_config *c = &x->m->config;
    const char *act = act_text(c, s);
    const char *adds = s->flags & PROA_ADD ? "adds" : s->flags & PROA_ADD_X ? "adds x" : "";
    int n = snprintf(out, 64, "%s%s%s", act, *act && *adds ? ", " : "", adds);
    if (s->op == PROA_STEP_ROPE)
        n += snprintf(out + n, 64 - (size_t)n, "%s", s->flags & PROA_INTERLEAVED ? "pairs" : "halves");
    n += experts_note(c, s, out + n, 64 - (size_t)n);
    if (s->op == PROA_STEP_ATTEND && widest_window(c, stack))
        n += snprintf(out + n, 64 - (size_t)n, "%s %d", c->window_chunked ? "chunks of" : "window",
                      widest_window(c, stack));
    if (s->op == PROA_STEP_QUERY_SCALE)
        n += snprintf(out + n, 64 - (size_t)n, "from position %lld on",
                      (long long)c->query_scale.length - c->query_scale.offset);
    if (s->flags & PROA_SCALED && c->logit_scale != 1)
        n += snprintf(out + n, 64 - (size_t)n, "x %.4g", c->logit_scale);
    if (s->op == PROA_STEP_ATTEND && c->relative.used)
        n += snprintf(out + n, 64 - (size_t)n, "%lld relative positions", (long long)proa_relative_rows(c));
    note_layer(s, out + n, 64 - (size_t)n);
}

static void make_line(const explained *x, proa_stack_id stack, const proa_step *s, bool head, line *l)
{
    memset(l, 0, sizeof *l);
    snprintf(l->op, sizeof l->op, "%s", proa_step_name(s->op));
    reg_text(x, s->in, head && s->op != PROA_STEP_GATHER, l->in);
    reg_text(x, s->out, head, l->out);
    notes_text(x, stack, s, l->notes);
    if (!has_weight(s)) return;
    const proa_param *p = param_of(x, stack, s);
    char shape[64];
    proa_shape_text(shape, p->cols ? 2 : 1, (const int64_t[]){p->rows, p->cols});
    snprintf(l->weight, sizeof l->weight, "%s %s", proa_slot_name(s->w), shape);
    l->bytes = p->bytes;
    if (s->op != PROA_STEP_EXPERTS) return;
    proa_step down = {.w = PROA_SLOT_EXPERT_DOWN};
    l->bytes += param_of(x, stack, &down)->bytes;
}

static void program_rows(const explained *x, proa_buf *out, const char *title, proa_stack_id stack,
                         const proa_program *p, bool head)
{
    if (!p->count) return;
    proa_buf_printf(out, "\n%s\n", title);
    for (int32_t i = 0; i < p->count; i++) {
        line l;
        make_line(x, stack, &p->step[i], head, &l);
        proa_buf_printf(out, "  %-13s %-18s -> %-18s %-24s", l.op, l.in, l.out, l.weight);
        if (l.bytes) proa_buf_printf(out, " %10.3f MB", (double)l.bytes / 1e6);
        else proa_buf_printf(out, " %13s", "");
        proa_buf_printf(out, "  %s", l.notes);
        while (out->len && out->ptr[out->len - 1] == ' ') out->ptr[--out->len] = '\0';
        proa_buf_char(out, '\n');
    }
}

typedef void section_fn(const explained *x, proa_buf *out, const char *title, proa_stack_id stack,
                        const proa_program *p, bool head);

/* All programs of the model in the order in which they run. */
static void each_section(const explained *x, proa_buf *out, section_fn *fn)
{
    const proa_plan *p = &x->m->plan;
    const proa_config *c = &x->m->config;
    char title[96];
    static const proa_stack_id order[] = {PROA_STACK_ENCODER, PROA_STACK_DECODER};
    for (int i = 0; i < 2; i++) {
        proa_stack_id s = order[i];
        const char *name = s == PROA_STACK_ENCODER ? "encoder" : "decoder";
        long long layers = p->layers[s].end - p->layers[s].first;
        if (!p->program[s][PROA_SECTION_LAYER].count) continue;
        snprintf(title, sizeof title, "%s: embedding", name);
        fn(x, out, title, s, &p->program[s][PROA_SECTION_EMBED], false);
        snprintf(title, sizeof title, "%s: from the stage before", name);
        fn(x, out, title, s, &p->program[s][PROA_SECTION_ENTER], false);
        snprintf(title, sizeof title, "%s: each of %lld layers", name, layers);
        fn(x, out, title, s, &p->program[s][PROA_SECTION_LAYER], false);
        snprintf(title, sizeof title, "%s: after the layers", name);
        fn(x, out, title, s, &p->program[s][PROA_SECTION_AFTER], false);
        snprintf(title, sizeof title, "%s: for all stages", name);
        fn(x, out, title, s, &p->program[s][PROA_SECTION_SHARE], false);
        if (s != PROA_STACK_ENCODER) continue;
        snprintf(title, sizeof title, "encoder memory: for each of %lld decoder layers", (long long)c->layers);
        fn(x, out, title, PROA_STACK_DECODER, &p->cross, false);
    }
    proa_stack_id last = x->m->arch->kind == PROA_KIND_ENCODER ? PROA_STACK_ENCODER : PROA_STACK_DECODER;
    fn(x, out, "head", last, &p->head, true);
    if (proa_model_has_pool(x->m)) fn(x, out, "pooler", last, &p->pool, true);
}

/* ---- as a table ---- */

static void text_head(const explained *x, proa_buf *out, const char *path)
{
    const proa_config *c = &x->m->config;
    const proa_plan *p = &x->m->plan;
    proa_buf_printf(out, "%s: %s, %.2f million parameters, %s checkpoint, weights in memory as %s, table %s\n",
                    path, x->m->arch->name, (double)p->parameters / 1e6,
                    proa_dtype_name(x->m->formats.checkpoint), proa_wfmt_name(x->m->formats.main),
                    x->m->ctx.ops->name);
    proa_buf_printf(
        out, "hidden %lld, heads %lld of %lld, key-value heads %lld, ffn %lld, vocabulary %lld, context %lld\n",
        (long long)c->hidden, (long long)c->heads, (long long)c->head_dim, (long long)c->kv_heads,
        (long long)c->ffn, (long long)c->vocab, (long long)c->context);
    if (x->m->ranks > 1)
        proa_buf_printf(
            out,
            "rank 0 of %d: its part of the weights, layers and heads; memory is that of all ranks on the "
            "host, of one on a GPU\n",
            x->m->ranks);
    proa_buf_printf(out, "T rows of a step (at most %lld), S rows that the head computes (%lld at once)\n",
                    (long long)p->rows_max, (long long)p->head_rows);
}

static void memory_line(proa_buf *out, const char *name, int64_t bytes, const char *note)
{
    proa_buf_printf(out, "  %-18s %12.3f MB  %s\n", name, (double)bytes / 1e6, note);
}

static void text_memory(const explained *x, proa_buf *out)
{
    const proa_memory *m = &x->memory;
    char note[128];
    bool host = x->m->device->host;
    int64_t available = x->m->device->available(x->m->device);
    proa_buf_printf(out, host ? "\nmemory\n" : "\nmemory of %s\n", x->m->device->name);
    memory_line(out, "weights", m->weights, host ? "packed for this CPU" : "as the kernels read them");
    snprintf(note, sizeof note, "%lld tokens in pages of %d, %s, %lld bytes a token",
             (long long)proa_sizes_pages(&x->sizes) * PROA_PAGE_TOKENS, PROA_PAGE_TOKENS,
             proa_dtype_name(x->m->formats.kv), (long long)kv_token_bytes(x));
    if (x->m->kv_layers) memory_line(out, "keys and values", m->kv, note);
    else memory_line(out, "page tables", m->kv, "no layer attends: pages only count tokens");
    const proa_state_counts states = proa_sizes_states(&x->sizes);
    snprintf(note, sizeof note, "of %d sequences%s and %d cached ones, %lld bytes each",
             x->sizes.sequences_max, states.marks ? ", twice for draft tokens," : "", x->sizes.states_kept,
             (long long)(m->states / proa_state_counts_all(&states)));
    if (m->states) memory_line(out, "recurrent states", m->states, note);
    memory_line(out, "activations", m->activations, "registers of the program, shared where their lives allow");
    memory_line(out, "scratch", m->scratch, "of the kernels");
    if (host) {
        memory_line(out, "tokenizer", m->tokenizer, "");
        memory_line(out, "bookkeeping", m->bookkeeping, "page tables, sampler, names");
        memory_line(out, "program", m->program, "code and libraries");
    }
    snprintf(note, sizeof note, "of %.0f MB available%s", (double)available / 1e6,
             m->total > available ? ": DOES NOT FIT" : "");
    memory_line(out, "total", m->total, note);
}

static void text_ranks(const explained *x, proa_buf *out)
{
    if (!x->ranks_count) return;
    proa_buf_printf(out, "\nranks              layers      weights  keys and values  activations\n");
    for (int32_t i = 0; i < x->ranks_count; i++) {
        const rank_figures *r = &x->ranks[i];
        proa_buf_printf(out, "  %3d of stage %2d  %3lld..%-3lld %9.3f MB %13.3f MB %9.3f MB\n", i,
                        r->part.stage, (long long)r->layers.first, (long long)(r->layers.end - 1),
                        (double)r->weights / 1e6, (double)r->kv / 1e6, (double)r->activations / 1e6);
    }
    const proa_rank_traffic *t = &x->ranks[0].traffic;
    proa_buf_printf(out, "\nlinks: bytes from one rank to another in a pass of T rows\n");
    if (x->ranks[0].part.tensors > 1)
        proa_buf_printf(out,
                        "  inside stage 0     %lld T in %lld sums, and %lld S of outputs in the last stage\n",
                        (long long)t->sum_bytes, (long long)t->sums, (long long)t->output_bytes);
    if (t->stage_bytes) proa_buf_printf(out, "  to the next stage  %lld T\n", (long long)t->stage_bytes);
}

static void text_floor(const explained *x, proa_buf *out)
{
    const proa_plan *p = &x->m->plan;
    if (x->bandwidth <= 0) return;
    proa_buf_printf(out, "\nfloor at %.1f GB/s read bandwidth\n", x->bandwidth / 1e9);
    if (x->m->arch->kind == PROA_KIND_ENCODER) {
        proa_buf_printf(out, "  a step reads %.3f MB of weights: at least %.3f ms\n",
                        (double)p->step_bytes / 1e6, 1e3 * floor_s(x, 0));
        return;
    }
    int64_t context[] = {0, x->m->config.context};
    for (int i = 0; i < 2; i++)
        proa_buf_printf(
            out, "  batch 1, context %6lld: %9.3f MB a token, at least %8.3f ms, at most %9.1f tokens/s\n",
            (long long)context[i], (double)(p->step_bytes + context[i] * kv_token_bytes(x)) / 1e6,
            1e3 * floor_s(x, context[i]), 1 / floor_s(x, context[i]));
}

/* ---- as JSON ---- */

static void json_str(proa_buf *out, const char *key, const char *value)
{
    proa_buf_printf(out, "\"%s\":", key);
    proa_buf_json_str(out, proa_str_c(value));
    proa_buf_char(out, ',');
}

static void json_int(proa_buf *out, const char *key, int64_t value)
{
    proa_buf_printf(out, "\"%s\":%lld,", key, (long long)value);
}

static void end_list(proa_buf *out, char close)
{
    if (out->len && out->ptr[out->len - 1] == ',') out->ptr[--out->len] = '\0';
    proa_buf_char(out, close);
    proa_buf_char(out, ',');
}

static void json_section(const explained *x, proa_buf *out, const char *title, proa_stack_id stack,
                         const proa_program *p, bool head)
{
    if (!p->count) return;
    proa_buf_char(out, '{');
    json_str(out, "section", title);
    proa_buf_printf(out, "\"steps\":[");
    for (int32_t i = 0; i < p->count; i++) {
        line l;
        make_line(x, stack, &p->step[i], head, &l);
        proa_buf_char(out, '{');
        json_str(out, "op", l.op);
        json_str(out, "in", l.in);
        json_str(out, "out", l.out);
        json_str(out, "weight", l.weight);
        json_str(out, "notes", l.notes);
        json_int(out, "weight_bytes", l.bytes);
        end_list(out, '}');
    }
    end_list(out, ']');
    end_list(out, '}');
}

static void json_memory(const explained *x, proa_buf *out)
{
    const proa_memory *m = &x->memory;
    proa_buf_printf(out, "\"memory\":{");
    json_int(out, "weights_bytes", m->weights);
    json_int(out, "kv_bytes", m->kv);
    if (m->states) json_int(out, "states_bytes", m->states);
    json_int(out, "activations_bytes", m->activations);
    json_int(out, "scratch_bytes", m->scratch);
    json_int(out, "tokenizer_bytes", m->tokenizer);
    json_int(out, "bookkeeping_bytes", m->bookkeeping);
    json_int(out, "program_bytes", m->program);
    json_int(out, "total_bytes", m->total);
    json_int(out, "available_bytes", x->m->device->available(x->m->device));
    end_list(out, '}');
}

static void json_ranks(const explained *x, proa_buf *out)
{
    if (!x->ranks_count) return;
    proa_buf_printf(out, "\"ranks\":[");
    for (int32_t i = 0; i < x->ranks_count; i++) {
        const rank_figures *r = &x->ranks[i];
        proa_buf_char(out, '{');
        json_int(out, "stage", r->part.stage);
        json_int(out, "first_layer", r->layers.first);
        json_int(out, "end_layer", r->layers.end);
        json_int(out, "weights_bytes", r->weights);
        json_int(out, "kv_bytes", r->kv);
        json_int(out, "activations_bytes", r->activations);
        json_int(out, "sums", r->traffic.sums);
        json_int(out, "sum_bytes_row", r->traffic.sum_bytes);
        json_int(out, "stage_bytes_row", r->traffic.stage_bytes);
        json_int(out, "output_bytes_row", r->traffic.output_bytes);
        end_list(out, '}');
    }
    end_list(out, ']');
}

static void json_all(const explained *x, proa_buf *out, const char *path)
{
    const proa_config *c = &x->m->config;
    const proa_plan *p = &x->m->plan;
    proa_buf_char(out, '{');
    json_str(out, "model", path);
    json_str(out, "arch", x->m->arch->name);
    json_str(out, "isa", x->m->ctx.ops->name);
    json_str(out, "checkpoint_dtype", proa_dtype_name(x->m->formats.checkpoint));
    json_str(out, "weight_format", proa_wfmt_name(x->m->formats.main));
    json_str(out, "kv_dtype", proa_dtype_name(x->m->formats.kv));
    json_int(out, "parameters", p->parameters);
    json_int(out, "hidden", c->hidden);
    json_int(out, "layers", c->layers);
    json_int(out, "encoder_layers", c->encoder_layers);
    json_int(out, "heads", c->heads);
    json_int(out, "kv_heads", c->kv_heads);
    json_int(out, "head_dim", c->head_dim);
    json_int(out, "ffn", c->ffn);
    json_int(out, "vocab", c->vocab);
    json_int(out, "context", c->context);
    json_int(out, "rows_max", p->rows_max);
    json_int(out, "kv_tokens", proa_sizes_pages(&x->sizes) * PROA_PAGE_TOKENS);
    json_int(out, "kv_token_bytes", kv_token_bytes(x));
    json_int(out, "step_weight_bytes", p->step_bytes);
    proa_buf_printf(out, "\"program\":[");
    each_section(x, out, json_section);
    end_list(out, ']');
    json_memory(x, out);
    json_ranks(x, out);
    if (x->bandwidth > 0)
        proa_buf_printf(out, "\"bandwidth_bytes_s\":%.9g,\"floor_step_s\":%.9g,\"floor_tokens_s\":%.9g,",
                        x->bandwidth, floor_s(x, 0), 1 / floor_s(x, 0));
    end_list(out, '}');
    out->ptr[--out->len] = '\0'; /* the last comma */
    proa_buf_char(out, '\n');
}

static rank_figures figures_of(const proa_model *m, int64_t pages)
{
    bool encoder = m->arch->kind == PROA_KIND_ENCODER;
    rank_figures r = {
        .part = m->plan.part, .weights = m->plan.weight_bytes, .activations = m->plan.activation_bytes};
    r.layers = m->plan.layers[encoder ? PROA_STACK_ENCODER : PROA_STACK_DECODER];
    r.kv = proa_kv_pages_bytes(pages, proa_kv_shape_of(m));
    r.traffic = proa_rank_traffic_of(m);
    return r;
}

/* Rank 0 stays prepared; the others are prepared one after the other. */
static proa_status read_ranks(explained *x, const char *path, proa_err *err)
{
    int64_t pages = proa_sizes_pages(&x->sizes);
    if (x->m->ranks == 1) return PROA_OK;
    x->ranks = proa_calloc((size_t)x->m->ranks, sizeof *x->ranks);
    x->ranks[x->ranks_count++] = figures_of(x->m, pages);
    for (int32_t i = 1; i < x->m->ranks; i++) {
        proa_model_options o = x->sizes.model;
        proa_model *m;
        o.rank = i;
        PROA_TRY(proa_model_prepare(&m, path, &o, x->device, x->pool, err));
        x->ranks[x->ranks_count++] = figures_of(m, pages);
        proa_model_free(m);
    }
    return PROA_OK;
}

static proa_status read_model(explained *x, const char *path, const proa_engine_options *options, proa_err *err)
{
    PROA_TRY(proa_sizes_make(&x->sizes, options, err));
    x->pool = proa_pool_new(x->sizes.threads);
    PROA_TRY(proa_device_open(&x->device, options ? options->device : NULL, err));
    int32_t ranks = 0;
    if (options) PROA_TRY(proa_rank_count(&ranks, options->tensor_parallel, options->pipeline_parallel, err));
    x->sizes.model.ranks = ranks;
    PROA_TRY(proa_model_prepare(&x->m, path, &x->sizes.model, x->device, x->pool, err));
    proa_err why = {.status = PROA_OK};
    proa_status status = proa_tokenizer_open_files(&x->tokenizer, proa_model_files(x->m), &why);
    if (status != PROA_OK && status != PROA_NOT_FOUND) return PROA_FAIL(err, INVALID, "%s", why.text);
    proa_sizes_for_model(&x->sizes, x->m);
    proa_memory_plan(&x->memory, &x->sizes, x->m, x->tokenizer);
    return read_ranks(x, path, err);
}

proa_status proa_explain(proa_buf *out, const char *path, const proa_engine_options *options,
                         double bandwidth, bool json, proa_err *err)
{
    explained x = {.bandwidth = bandwidth};
    proa_status status = read_model(&x, path, options, err);
    if (status == PROA_OK && json) json_all(&x, out, path);
    if (status == PROA_OK && !json) {
        text_head(&x, out, path);
        each_section(&x, out, program_rows);
        text_memory(&x, out);
        text_ranks(&x, out);
        text_floor(&x, out);
    }
    free(x.ranks);
    proa_tokenizer_free(x.tokenizer);
    proa_model_free(x.m);
    proa_device_close(x.device);
    proa_pool_free(x.pool);
    return status;
}
