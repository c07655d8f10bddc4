/* SPDX-License-Identifier: Apache-2.0
 * lora.c - where the numbers of adapters are, the slots, and rows grouped by adapter. */
#include "model/lora/lora.h"

#include "base/alloc.h"
#include "base/checked.h"
#include <stdlib.h>
#include <string.h>

/* ---- layout ---- */

/* Whether a step of the layer program multiplies with this slot in a way that an adapter can join: an activation with a
 * residual behind it cannot be repeated after the sum. */
static bool is_multiplied(const proa_model *m, int slot)
{
    const proa_program *p = &m->plan.program[PROA_STACK_DECODER][PROA_SECTION_LAYER];
    bool found = false;
    for (int i = 0; i < p->count; i++) {
        const proa_step *s = &p->step[i];
        bool acts = s->flags & (PROA_ACT | PROA_HEAD_ACT | PROA_CONV_ACT) || PROA_ACT_OF_FLAGS(s->flags);
        if ((int)s->w != slot || (s->op != PROA_STEP_LINEAR && s->op != PROA_STEP_LINEAR_GATED)) continue;
        if (acts && s->flags & (PROA_ADD | PROA_ADD_X)) return false;
        found = true;
    }
    return found;
}

int32_t proa_lora_pieces(const proa_param *param, const proa_name *pieces[PROA_LORA_PIECES_MAX])
{
    int32_t count = 0;
    for (int32_t i = 0; i < param->parts; i++) {
        if (count && pieces[count - 1] == param->part[i].row) continue;
        if (count == PROA_LORA_PIECES_MAX) return 0;
        pieces[count++] = param->part[i].row;
    }
    return count;
}

/* The numbers of one matrix from *at on. false: no adapter can change it. */
static bool lay_out(proa_model *m, proa_param *param, int64_t *at)
{
    const proa_name *row[PROA_LORA_PIECES_MAX];
    int32_t pieces = proa_lora_pieces(param, row);
    int64_t bytes = proa_dtype_bytes(m->lora.dtype), rank = m->lora.rank, end = 0, panels = 0;
    if (!pieces) return false;
    proa_lora *l = PROA_ARENA_NEW(&m->arena, proa_lora, 1);
    *l = (proa_lora){.dtype = m->lora.dtype, .rank = (int32_t)rank, .pieces = pieces, .K = param->cols};
    for (int32_t p = 0; p < pieces; p++) {
        l->end[p] = end += proa_dim_size(&m->config, row[p]->rows);
        panels += proa_lora_panels(l, p);
    }
    l->use = *at;
    l->a = l->use + proa_round_up(pieces * (int64_t)sizeof(proa_lora_use), 64);
    l->b = l->a + proa_round_up(proa_round_up(l->K, 16) * pieces * rank * bytes, 64);
    *at = l->b + proa_round_up(panels * rank * PROA_LORA_PANEL * bytes, 64);
    m->lora.columns = proa_max64(m->lora.columns, pieces * rank);
    param->lora = l;
    return end == param->rows;
}

/* Numbers are kept as the layers' matrices are: f32 beside f32, else 16 bits. */
static proa_dtype dtype_of(const proa_formats *f)
{
    if (f->main == PROA_WFMT_F32) return PROA_DTYPE_F32;
    if (f->main == PROA_WFMT_F16 || (f->checkpoint == PROA_DTYPE_F16 && f->main != PROA_WFMT_BF16))
        return PROA_DTYPE_F16;
    return PROA_DTYPE_BF16;
}

proa_status proa_lora_plan(proa_model *m, proa_err *err)
{
    const proa_params *p = &m->params[PROA_STACK_DECODER];
    if (!m->lora.slots) return PROA_OK;
    if (m->arch->kind != PROA_KIND_DECODER)
        return PROA_FAIL(err, UNSUPPORTED, "adapters of a %s: only decoders take them", m->arch->name);
    m->lora.rank = (int32_t)proa_round_up(m->lora.rank, 16);
    m->lora.dtype = dtype_of(&m->formats);
    for (int64_t layer = 0; layer < p->layers; layer++)
        for (int s = 0; s < PROA_SLOT_COUNT; s++) {
            proa_param *param = proa_params_at(p, layer, (proa_weight_slot)s);
            if (!proa_param_is_matrix(param) || param->experts || !is_multiplied(m, s)) continue;
            if (!lay_out(m, param, &m->lora.bytes)) param->lora = NULL;
        }
    if (m->lora.bytes == 0)
        return PROA_FAIL(err, UNSUPPORTED, "adapters of a %s: it has no matrix that they can change",
                         m->arch->name);
    return PROA_OK;
}

int64_t proa_lora_image_bytes(const proa_model *m)
{
    return m->lora.bytes;
}

int64_t proa_lora_slot_bytes(const proa_model *m)
{
    return m->device->host ? 0 : m->lora.slots * m->lora.bytes;
}

/* ---- numbers of an image ---- */

void proa_lora_put_a(char *image, const proa_lora *l, int32_t piece, int32_t j, const float *row)
{
    int64_t columns = (int64_t)l->pieces * l->rank, bytes = proa_dtype_bytes(l->dtype);
    char *to = image + l->a + ((int64_t)piece * l->rank + j) * bytes;
    for (int64_t k = 0; k < l->K; k++) proa_from_f32(to + k * columns * bytes, l->dtype, &row[k], 1);
}

void proa_lora_put_b(char *image, const proa_lora *l, int32_t piece, int64_t n, int32_t j, int32_t count,
                     const float *row)
{
    int64_t panel = n / PROA_LORA_PANEL, bytes = proa_dtype_bytes(l->dtype);
    for (int32_t p = 0; p < piece; p++) panel += proa_lora_panels(l, p);
    char *to = image + l->b + ((panel * l->rank + j) * PROA_LORA_PANEL + n % PROA_LORA_PANEL) * bytes;
    for (int32_t i = 0; i < count; i++) proa_from_f32(to + i * PROA_LORA_PANEL * bytes, l->dtype, &row[i], 1);
}

/* ---- slots ---- */

proa_status proa_lora_make(proa_model *m, proa_err *err)
{
    proa_lora_store *l = &m->lora;
    int64_t rows = m->plan.rows_max, bytes = proa_lora_slot_bytes(m);
    if (!l->slots) return PROA_OK;
    l->slot = PROA_ARENA_NEW(&m->arena, const char *, l->slots);
    l->changes = PROA_ARENA_NEW(&m->arena, bool, l->slots *PROA_SLOT_COUNT);
    l->changed = PROA_ARENA_NEW(&m->arena, int32_t, PROA_SLOT_COUNT);
    l->count = PROA_ARENA_NEW(&m->arena, int32_t, l->slots + 1);
    l->order = PROA_ARENA_NEW(&m->arena, int32_t, rows);
    l->segment = PROA_ARENA_NEW(&m->arena, proa_lora_segment, proa_lora_segments(m, rows));
    if (m->device->host) return PROA_OK;
    l->memory = m->device->alloc(m->device, bytes);
    if (!l->memory)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for adapters on %s", (double)bytes / 1e6,
                         m->device->name);
    for (int32_t i = 0; i < l->slots; i++) l->slot[i] = l->memory + i * l->bytes;
    return PROA_OK;
}

void proa_lora_free(proa_model *m)
{
    m->device->free(m->device, m->lora.memory, proa_lora_slot_bytes(m));
    m->lora.memory = NULL;
}

static bool changes_matrix(const proa_lora *l, const char *image)
{
    for (int32_t p = 0; p < l->pieces; p++)
        if (((const proa_lora_use *)(const void *)(image + l->use))[p].rank) return true;
    return false;
}

/* Counts again which weight slots adapters change, now that this one is in the slot. */
static void note_changes(proa_model *m, int32_t slot, const char *image)
{
    const proa_params *p = &m->params[PROA_STACK_DECODER];
    proa_lora_store *s = &m->lora;
    bool *changes = s->changes + slot * PROA_SLOT_COUNT, now[PROA_SLOT_COUNT] = {false};
    for (int64_t i = 0; image && i < p->layers * PROA_SLOT_COUNT; i++)
        if (p->param[i].lora && changes_matrix(p->param[i].lora, image)) now[i % PROA_SLOT_COUNT] = true;
    for (int i = 0; i < PROA_SLOT_COUNT; i++) {
        int32_t was = s->changed[i];
        s->changed[i] += (int32_t)now[i] - (int32_t)changes[i];
        if (!was != !s->changed[i]) s->version++;
        changes[i] = now[i];
    }
}

void proa_lora_set_slot(proa_model *m, int32_t slot, const char *image)
{
    note_changes(m, slot, image);
    if (m->device->host) m->lora.slot[slot] = image;
    else if (image) m->device->upload(m->device, m->lora.memory + slot * m->lora.bytes, image, m->lora.bytes);
}

/* ---- rows grouped by adapter ---- */

int64_t proa_lora_segments(const proa_model *m, int64_t rows)
{
    return rows / PROA_LORA_ROWS + proa_min64(rows, m->lora.slots);
}

/* Rows of each slot, and where they begin in `order`: count[s] for slot s, count[slots] for all. */
static void count_rows(proa_model *m, const proa_batch *batch)
{
    proa_lora_store *l = &m->lora;
    int32_t at = 0;
    memset(l->count, 0, (size_t)(l->slots + 1) * sizeof *l->count);
    for (int64_t i = 0; i < batch->self.count; i++)
        if (batch->lora[i] >= 0) l->count[batch->lora[i]] += batch->self.span[i].rows;
    for (int32_t s = 0; s <= l->slots; s++) {
        int32_t rows = l->count[s];
        l->count[s] = at, at += rows;
    }
}

void proa_lora_group(proa_model *m, const proa_batch *batch, proa_lora_rows *out)
{
    proa_lora_store *l = &m->lora;
    int64_t segments = 0, most = proa_lora_segments(m, batch->rows);
    count_rows(m, batch);
    for (int32_t s = 0; s < l->slots; s++)
        for (int32_t first = l->count[s]; first < l->count[s + 1]; first += PROA_LORA_ROWS)
            l->segment[segments++] = (proa_lora_segment){
                l->slot[s], first, (int32_t)proa_min64(PROA_LORA_ROWS, l->count[s + 1] - first)};
    PROA_ASSERT(segments <= most);
    for (int64_t i = segments; segments && i < most && !m->device->host; i++)
        l->segment[i] = (proa_lora_segment){l->slot[0], 0, 0};
    for (int64_t i = 0; i < batch->self.count; i++) {
        const proa_span *span = &batch->self.span[i];
        for (int32_t r = 0; r < span->rows && batch->lora[i] >= 0; r++)
            l->order[l->count[batch->lora[i]]++] = span->row + r;
    }
    *out = (proa_lora_rows){l->order, l->segment, m->device->host || !segments ? segments : most};
}
