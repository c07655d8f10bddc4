/* SPDX-License-Identifier: Apache-2.0
 * trtllm.c - low-rank adapters from TensorRT-LLM's tensors lora_weights and lora_config (docs/source/advanced/lora.md).
 * Each row is A [D,K] and B [N,D] of one module of one layer, with the scale in B. A module is a range of the columns
 * of one of the model's matrices. Where a module has a part of a piece (q of a fused qkv), or several pieces (qkv of
 * three), the ranks of modules follow each other in a piece, so that each column has the sum of what is meant for it.
 */
#include "model/lora/lora.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "base/limits.h"
#include <string.h>

/* Columns [begin, end) of a matrix. */
typedef struct range {
    int64_t begin, end;
} range;

typedef struct module {
    int32_t id;
    const char *name;
    proa_weight_slot slot;
} module;

/* LoraManager.LORA_MODULE_IDS; those of cross attention and experts are not here. */
enum { QKV = 0, Q, K, V, DENSE, H_TO_4H, DOWN, GATE, GATE_UP = 18 };
static const module modules[] = {
    {QKV, "attn_qkv", PROA_SLOT_QKV},      {Q, "attn_q", PROA_SLOT_QKV},
    {K, "attn_k", PROA_SLOT_QKV},          {V, "attn_v", PROA_SLOT_QKV},
    {DENSE, "attn_dense", PROA_SLOT_O},    {H_TO_4H, "mlp_h_to_4h", PROA_SLOT_UP},
    {DOWN, "mlp_4h_to_h", PROA_SLOT_DOWN}, {GATE, "mlp_gate", PROA_SLOT_UP},
    {GATE_UP, "mlp_gate_up", PROA_SLOT_UP}};

static const module *find_module(int32_t id)
{
    for (size_t i = 0; i < PROA_COUNT(modules); i++)
        if (modules[i].id == id) return &modules[i];
    return NULL;
}

/* Whether the layer's first FFN matrix is two: the gate's and the other one. */
static bool is_gated(const proa_model *m)
{
    const proa_program *p = &m->plan.program[PROA_STACK_DECODER][PROA_SECTION_LAYER];
    for (int i = 0; i < p->count; i++)
        if (p->step[i].op == PROA_STEP_LINEAR_GATED && p->step[i].w == PROA_SLOT_UP) return true;
    return false;
}

/* The columns of a module in the order of the rows of its B. TensorRT-LLM calls the gate's matrix h_to_4h and the other
 * one the gate; of a fused pair h_to_4h has both halves, the gate's last. Returns how many ranges there are. */
static int columns_of(range out[2], const proa_model *m, const module *of, const proa_lora *l)
{
    const proa_config *c = &m->lora.config;
    int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim, N = l->end[l->pieces - 1], F = N / 2;
    bool gated = of->slot == PROA_SLOT_UP && is_gated(m), fused = gated && l->pieces == 1;
    out[0] = (range){0, N};
    switch (of->id) {
    case Q: out[0] = (range){0, q}; break;
    case K: out[0] = (range){q, q + kv}; break;
    case V: out[0] = (range){q + kv, q + 2 * kv}; break;
    case H_TO_4H:
        if (gated) out[0] = (range){0, F};
        if (fused) out[0] = (range){F, N}, out[1] = (range){0, F};
        return fused ? 2 : 1;
    case GATE: out[0] = (range){F, N}; return gated ? 1 : 0;
    case GATE_UP: return gated ? 1 : 0;
    default: break;
    }
    return out[0].end <= N ? 1 : 0;
}

/* One row of the tensors. */
typedef struct entry {
    const module *of;
    const proa_lora *lora;
    range columns[2];
    int ranges;
    int32_t rank;
    const float *a, *b; /* [rank][K], [columns][rank] */
    char *image;
} entry;

static proa_status check_rank(const entry *e, int32_t used, proa_err *err)
{
    if (used + e->rank <= e->lora->rank) return PROA_OK;
    return PROA_FAIL(err, LIMIT,
                     "module '%s' brings rank %d, adapters of this model have at most %d (--lora-rank)",
                     e->of->name, used + e->rank, e->lora->rank);
}

/* Appends the entry's rank to a piece, with what its B has for columns [begin, end) of it; `row` is that of B. */
static void put_columns(const entry *e, int32_t piece, int32_t used, range columns, int64_t row)
{
    int64_t first = proa_lora_first(e->lora, piece);
    for (int64_t n = columns.begin; n < columns.end; n++, row++)
        proa_lora_put_b(e->image, e->lora, piece, n - first, used, e->rank, e->b + row * e->rank);
}

static proa_status put_piece(const entry *e, int32_t piece, proa_err *err)
{
    proa_lora_use *use = (proa_lora_use *)(void *)(e->image + e->lora->use) + piece;
    range own = {proa_lora_first(e->lora, piece), e->lora->end[piece]};
    int64_t row = 0;
    bool any = false;
    for (int i = 0; i < e->ranges; i++) {
        range r = e->columns[i], both = {proa_max64(r.begin, own.begin), proa_min64(r.end, own.end)};
        if (both.begin < both.end) {
            if (!any) PROA_TRY(check_rank(e, use->rank, err));
            any = true;
            put_columns(e, piece, use->rank, both, row + both.begin - r.begin);
        }
        row += r.end - r.begin;
    }
    if (!any) return PROA_OK;
    for (int32_t j = 0; j < e->rank; j++)
        proa_lora_put_a(e->image, e->lora, piece, use->rank + j, e->a + j * e->lora->K);
    *use = (proa_lora_use){1, use->rank + e->rank};
    return PROA_OK;
}

/* Row i of lora_config: [module, layer, rank]. */
static proa_status read_entry(entry *e, const proa_model *m, const proa_adapter_rows *rows, int64_t i,
                              proa_err *err)
{
    const int32_t *config = rows->config + 3 * i;
    const proa_params *p = &m->params[PROA_STACK_DECODER];
    int64_t columns = 0, needed = 0;
    e->of = find_module(config[0]);
    if (!e->of) return PROA_FAIL(err, UNSUPPORTED, "module %d is not supported", config[0]);
    if (config[1] < 0 || config[1] >= p->layers)
        return PROA_FAIL(err, INVALID, "layer %d, must be 0 to %lld", config[1], (long long)p->layers - 1);
    const proa_lora_matrix *w = m->lora.matrix[config[1] * (int64_t)PROA_SLOT_COUNT + e->of->slot];
    e->lora = w ? &w->layout : NULL;
    e->ranges = w ? columns_of(e->columns, m, e->of, e->lora) : 0;
    if (!e->ranges)
        return PROA_FAIL(err, UNSUPPORTED, "module '%s': a %s has no such matrix that an adapter can change",
                         e->of->name, m->arch->name);
    if (config[2] < 1 || config[2] > PROA_LORA_RANK_MAX)
        return PROA_FAIL(err, INVALID, "rank %d, must be 1 to %d", config[2], PROA_LORA_RANK_MAX);
    e->rank = config[2];
    for (int k = 0; k < e->ranges; k++) columns += e->columns[k].end - e->columns[k].begin;
    needed = (int64_t)e->rank * (e->lora->K + columns);
    if (needed > rows->width)
        return PROA_FAIL(err, INVALID, "module '%s' of rank %d has %lld numbers, the row has %lld",
                         e->of->name, e->rank, (long long)needed, (long long)rows->width);
    e->a = rows->weights + i * rows->width;
    e->b = e->a + e->rank * e->lora->K;
    return PROA_OK;
}

static proa_status put_entry(const entry *e, proa_err *err)
{
    for (int32_t piece = 0; piece < e->lora->pieces; piece++) PROA_TRY(put_piece(e, piece, err));
    return PROA_OK;
}

/* Whether an earlier row is of the same module and layer: their ranks would be added. */
static bool is_repeated(const proa_adapter_rows *rows, int64_t i)
{
    for (int64_t k = 0; k < i; k++)
        if (memcmp(rows->config + 3 * k, rows->config + 3 * i, 2 * sizeof *rows->config) == 0) return true;
    return false;
}

proa_status proa_adapter_read_rows(char **image, const proa_model *m, const proa_adapter_rows *rows, proa_err *err)
{
    int64_t most = m->params[PROA_STACK_DECODER].layers * (int64_t)PROA_COUNT(modules);
    *image = NULL;
    if (!m->lora.image_bytes)
        return PROA_FAIL(err, UNSUPPORTED, "lora_weights: the model was opened without adapters (--lora-slots)");
    if (rows->rows < 1 || rows->rows > most)
        return PROA_FAIL(err, INVALID, "lora_config has %lld rows, must be 1 to %lld", (long long)rows->rows,
                         (long long)most);
    entry e = {.image = proa_pages_alloc(m->lora.image_bytes)};
    if (!e.image) return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB", (double)m->lora.image_bytes / 1e6);
    proa_status status = PROA_OK;
    for (int64_t i = 0; status == PROA_OK && i < rows->rows; i++) {
        if (is_repeated(rows, i))
            status = PROA_FAIL(err, INVALID, "it is of the same module as an earlier row");
        if (status == PROA_OK) status = read_entry(&e, m, rows, i, err);
        if (status == PROA_OK) status = put_entry(&e, err);
        if (status != PROA_OK) proa_err_prefix(err, "row %lld of lora_config", (long long)i);
    }
    if (status == PROA_OK) *image = e.image;
    else proa_adapter_free(m, e.image);
    return status;
}
