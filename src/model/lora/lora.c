/* SPDX-License-Identifier: Apache-2.0
 * lora.c - where the numbers of adapters are, the slots, and rows grouped by adapter. */
#include "model/lora/lora.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/lora_stack.h"
#include <stdlib.h>
#include <string.h>

/* In passes of more than FEW_ROWS_MAX (steps.c) to that many rows the adapters' kernels run beside the products. */
enum { SUMS_ROWS = 64 };

/* ---- layout ---- */

/* Whether a step of the layer program multiplies with this slot in a way that an adapter can join: an activation with a
 * residual after it cannot be repeated after the sum. */
static bool is_multiplied(const proa_model *m, int slot)
{
    bool found = false;
    for (const proa_step *s = m->arch->stacks[proa_lora_stack_id(m)].layer; s->op != PROA_STEP_END; s++) {
        bool acts = s->flags & (PROA_ACT | PROA_HEAD_ACT | PROA_CONV_ACT) || PROA_ACT_OF_FLAGS(s->flags);
        if ((int)s->w != slot || (s->op != PROA_STEP_LINEAR && s->op != PROA_STEP_LINEAR_GATED)) continue;
        if (!proa_step_applies(s, &m->config, PROA_SOME_LAYER)) continue;
        if (acts && s->flags & (PROA_ADD | PROA_ADD_X)) return false;
        found = true;
    }
    return found;
}

/* The rows of the name map that a matrix is made of. 0: too many. */
static int32_t find_pieces(const proa_param *param, const proa_name *pieces[PROA_LORA_PIECES_MAX])
{
    int32_t count = 0;
    for (int32_t i = 0; i < param->parts; i++) {
        if (count && pieces[count - 1] == param->part[i].row) continue;
        if (count == PROA_LORA_PIECES_MAX) return 0;
        pieces[count++] = param->part[i].row;
    }
    return count;
}

/* Places the numbers of a matrix whose pieces end at l->end from *at on. */
static void place_numbers(proa_lora_store *s, proa_lora *l, int64_t *at)
{
    int64_t bytes = proa_dtype_bytes(s->dtype), panels = 0;
    l->dtype = s->dtype, l->rank = s->rank;
    for (int32_t p = 0; p < l->pieces; p++) panels += proa_lora_panels(l, p);
    l->use = *at;
    l->a = l->use + proa_round_up(l->pieces * (int64_t)sizeof(proa_lora_use), 64);
    l->b = l->a + proa_round_up(proa_round_up(l->K, 16) * l->pieces * l->rank * bytes, 64);
    *at = l->b + proa_round_up(panels * l->rank * PROA_LORA_PANEL * bytes, 64);
    s->columns = proa_max64(s->columns, l->pieces * l->rank);
}

/* A matrix of the whole model; NULL: no adapter can change it. */
static proa_lora_matrix *lay_out(proa_model *m, const proa_param *param, int64_t layer)
{
    proa_lora_matrix *w = PROA_ARENA_NEW(&m->arena, proa_lora_matrix, 1);
    int64_t end = 0;
    *w = (proa_lora_matrix){.layout = {.K = param->cols}};
    w->layout.pieces = find_pieces(param, w->piece);
    for (int32_t p = 0; p < w->layout.pieces; p++)
        w->layout.end[p] = end += proa_dim_in_layer(&m->config, w->piece[p]->rows, layer);
    if (!w->layout.pieces || end != param->rows) return NULL;
    place_numbers(&m->lora, &w->layout, &m->lora.image_bytes);
    return w;
}

/* Numbers are kept as the layers' matrices are: f32 beside f32, else 16 bits. */
static proa_dtype dtype_of(const proa_formats *f)
{
    if (f->main == PROA_WFMT_F32) return PROA_DTYPE_F32;
    if (f->main == PROA_WFMT_F16 || (f->checkpoint == PROA_DTYPE_F16 && f->main != PROA_WFMT_BF16))
        return PROA_DTYPE_F16;
    return PROA_DTYPE_BF16;
}

/* A device reads adapters behind the matrix too, beside a matrix in FP8 as e4m3 unless they are to be exact. The plan
 * takes the slots back where they cannot be stored there. Returns whether it is a matrix in FP8. */
static bool set_stack(proa_model *m, proa_param *param, proa_weight_slot slot, proa_lora_matrix *w)
{
    bool fp8 = proa_formats_of(&m->formats, slot, param) == PROA_WFMT_FP8;
    if (!w || m->device->host || m->packed || m->lora.dtype == PROA_DTYPE_F32) return false;
    if (fp8 && m->lora.type == PROA_LORA_EXACT) return false;
    w->layout.slots = m->lora.slots;
    param->lora = &w->layout;
    return fp8;
}

proa_status proa_lora_plan(proa_model *m, proa_err *err)
{
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
    proa_lora_store *l = &m->lora;
    bool fp8 = false;
    if (m->arch->kind == PROA_KIND_ENCODER_DECODER) l->slots = 0; /* its adapters are prompt tables */
    if (!l->slots) return PROA_OK;
    l->rank = (int32_t)proa_round_up(l->rank, 16);
    l->dtype = dtype_of(&m->formats);
    l->config = m->config;
    l->matrix = PROA_ARENA_NEW(&m->arena, proa_lora_matrix *, p->layers * PROA_SLOT_COUNT);
    l->layer_at = PROA_ARENA_NEW(&m->arena, int64_t, p->layers + 1);
    for (int64_t layer = 0; layer < p->layers; layer++) {
        for (int s = 0; s < PROA_SLOT_COUNT; s++) {
            const proa_param *param = proa_params_at(p, layer, (proa_weight_slot)s);
            if (!proa_param_is_matrix(param) || param->experts || !is_multiplied(m, s)) continue;
            l->matrix[layer * PROA_SLOT_COUNT + s] = lay_out(m, param, layer);
            fp8 |= set_stack(m, &p->param[layer * PROA_SLOT_COUNT + s], (proa_weight_slot)s,
                             l->matrix[layer * PROA_SLOT_COUNT + s]);
        }
        l->layer_at[layer + 1] = l->image_bytes;
    }
    if (l->image_bytes == 0)
        return PROA_FAIL(err, UNSUPPORTED, "adapters of a %s: it has no matrix that they can change",
                         m->arch->name);
    if (l->type == PROA_LORA_FP8 && !fp8)
        return PROA_FAIL(
            err, UNSUPPORTED,
            "lora-dtype 'fp8' is offered beside weights in fp8 only (--device cuda --quant fp8)");
    return PROA_OK;
}

/* The columns of a piece of the whole matrix that this rank has. */
static int64_t own_columns(const proa_param *param, const proa_lora *all, int32_t piece)
{
    int64_t first = proa_lora_first(all, piece), end = all->end[piece], count = 0;
    if (param->cut.ranges == 0) return end - first;
    for (int32_t i = 0; i < param->cut.ranges; i++) {
        int64_t from = proa_max64(first, param->cut.row[i]),
                to = proa_min64(end, param->cut.row[i] + param->cut.rows[i]);
        count += proa_max64(0, to - from);
    }
    return count;
}

void proa_lora_plan_part(proa_model *m)
{
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
    proa_lora_store *s = &m->lora;
    for (int64_t i = 0; s->slots && i < p->layers * PROA_SLOT_COUNT; i++) {
        proa_param *param = &p->param[i];
        proa_lora_matrix *w = s->matrix[i];
        if (!param->parts) param->lora = NULL; /* another stage has it */
        if (!w || !param->parts) continue;
        int64_t more = param->lora ? (int64_t)param->lora->slots * w->layout.pieces * s->rank : 0;
        if (more) more += proa_lora_stack_gap(param->rows, param->cols);
        s->sums_columns = proa_max64(s->sums_columns, param->rows + more);
        if (m->ranks == 1) {
            param->lora = &w->layout;
            continue;
        }
        int64_t end = 0;
        proa_lora *l = PROA_ARENA_NEW(&m->arena, proa_lora, 1);
        *l = (proa_lora){.pieces = w->layout.pieces, .K = param->cols, .slots = w->layout.slots};
        for (int32_t k = 0; k < l->pieces; k++) l->end[k] = end += own_columns(param, &w->layout, k);
        PROA_ASSERT(end == param->rows);
        place_numbers(s, l, &s->bytes);
        param->lora = l;
    }
    if (m->ranks == 1) s->bytes = s->image_bytes;
    if (s->slots && m->device->branch_begin) s->sums_rows = SUMS_ROWS;
}

int64_t proa_lora_image_bytes(const proa_model *m)
{
    return m->lora.image_bytes;
}

int64_t proa_lora_slot_bytes(const proa_model *m)
{
    return m->device->host && m->ranks == 1 ? 0 : m->lora.slots * m->lora.bytes;
}

int64_t proa_lora_stack_bytes(const proa_model *m)
{
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
    int64_t sum = 0;
    for (int64_t i = 0; m->lora.slots && i < p->layers * PROA_SLOT_COUNT; i++) {
        const proa_param *param = &p->param[i];
        if (param->lora && param->lora->slots) sum += param->bytes - proa_round_up(param->matrix.bytes, 64);
    }
    return sum;
}

int64_t proa_lora_sums_bytes(const proa_model *m)
{
    return m->lora.sums_rows * m->lora.sums_columns * (int64_t)sizeof(float);
}

/* ---- numbers of an image ---- */

void proa_lora_put_a(char *image, const proa_lora *l, int32_t piece, int32_t j, const float *row)
{
    int64_t columns = (int64_t)l->pieces * l->rank, bytes = proa_dtype_bytes(l->dtype);
    char *to = image + l->a + ((int64_t)piece * l->rank + j) * bytes;
    for (int64_t k = 0; k < l->K; k++) proa_from_f32(to + k * columns * bytes, l->dtype, &row[k], 1);
}

/* The number j of the row of B that makes column n of a piece; those of one column are PROA_LORA_PANEL apart. */
static int64_t place_in_b(const proa_lora *l, int32_t piece, int64_t n, int64_t j)
{
    int64_t panel = n / PROA_LORA_PANEL;
    for (int32_t p = 0; p < piece; p++) panel += proa_lora_panels(l, p);
    return l->b + ((panel * l->rank + j) * PROA_LORA_PANEL + n % PROA_LORA_PANEL) * proa_dtype_bytes(l->dtype);
}

void proa_lora_put_b(char *image, const proa_lora *l, int32_t piece, int64_t n, int32_t j, int32_t count,
                     const float *row)
{
    int64_t bytes = proa_dtype_bytes(l->dtype);
    char *to = image + place_in_b(l, piece, n, j);
    for (int32_t i = 0; i < count; i++) proa_from_f32(to + i * PROA_LORA_PANEL * bytes, l->dtype, &row[i], 1);
}

/* ---- a rank's part of an image ---- */

static int32_t piece_of(const proa_lora *l, int64_t column)
{
    int32_t p = 0;
    while (column >= l->end[p]) p++;
    return p;
}

/* Column `column` of the whole matrix becomes `own`. from: the image, from `base` on. */
static void take_column(char *to, const proa_lora *l, int64_t own, const char *from, int64_t base,
                        const proa_lora *all, int64_t column)
{
    int64_t bytes = proa_dtype_bytes(l->dtype);
    int32_t p = piece_of(l, own);
    char *own_b = to + place_in_b(l, p, own - proa_lora_first(l, p), 0);
    const char *b = from + (place_in_b(all, p, column - proa_lora_first(all, p), 0) - base);
    for (int32_t j = 0; j < l->rank; j++)
        memcpy(own_b + j * PROA_LORA_PANEL * bytes, b + j * PROA_LORA_PANEL * bytes, (size_t)bytes);
}

/* The columns of A and B that a rank has of a matrix, and the use of each piece. */
static void take_matrix(char *to, const proa_param *param, const char *from, int64_t base, const proa_lora *all)
{
    const proa_lora *l = param->lora;
    const proa_param_cut *cut = &param->cut;
    int64_t row = l->pieces * l->rank * proa_dtype_bytes(l->dtype), own = 0;
    memcpy(to + l->use, from + (all->use - base), (size_t)l->pieces * sizeof(proa_lora_use));
    memcpy(to + l->a, from + (all->a - base) + cut->col * row, (size_t)(l->K * row));
    for (int32_t i = 0; i < cut->ranges; i++)
        for (int64_t n = 0; n < cut->rows[i]; n++)
            take_column(to, l, own++, from, base, all, cut->row[i] + n);
    for (; cut->ranges == 0 && own < param->rows; own++) take_column(to, l, own, from, base, all, own);
}

static void take_layer(const proa_model *m, char *to, const char *image, int64_t layer)
{
    const proa_param *param = proa_params_at(&m->params[proa_lora_stack_id(m)], layer, 0);
    proa_lora_matrix *const *w = m->lora.matrix + layer * PROA_SLOT_COUNT;
    for (int s = 0; s < PROA_SLOT_COUNT; s++)
        if (param[s].lora) take_matrix(to, &param[s], image, m->lora.layer_at[layer], &w[s]->layout);
}

/* ---- slots ---- */

static bool make_sums(proa_model *m)
{
    proa_lora_store *l = &m->lora;
    if (l->sums_rows) l->sums = m->device->alloc(m->device, proa_lora_sums_bytes(m));
    return l->sums || !l->sums_rows;
}

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
    l->row_slot = PROA_ARENA_NEW(&m->arena, int32_t, rows);
    l->segment = PROA_ARENA_NEW(&m->arena, proa_lora_segment, proa_lora_segments(m, rows));
    l->divided_order = PROA_ARENA_NEW(&m->arena, int32_t, rows);
    l->divided_segment = PROA_ARENA_NEW(&m->arena, proa_lora_segment, proa_lora_segments_max(m));
    if (bytes == 0) return PROA_OK;
    l->memory = m->device->alloc(m->device, bytes);
    if (!m->device->host && m->ranks > 1) l->part = proa_pages_alloc(l->bytes);
    if (l->memory && m->device->host) memset(l->memory, 0, (size_t)bytes);
    if (!l->memory || !make_sums(m) || (!m->device->host && m->ranks > 1 && !l->part))
        return PROA_FAIL(err, NO_MEMORY, "cannot take %.1f MB for adapters on %s", (double)bytes / 1e6,
                         m->device->name);
    for (int32_t i = 0; i < l->slots && !m->device->host; i++) l->slot[i] = l->memory + i * l->bytes;
    return PROA_OK;
}

void proa_lora_free(proa_model *m)
{
    m->device->free(m->device, m->lora.memory, proa_lora_slot_bytes(m));
    m->device->free(m->device, m->lora.sums, proa_lora_sums_bytes(m));
    if (m->lora.part) proa_pages_free(m->lora.part, m->lora.bytes);
    m->lora.memory = m->lora.part = m->lora.sums = NULL;
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
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
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

/* What a slot has, once more behind the matrices (kernels/lora_stack.h). */
static void stack_slot(proa_model *m, int32_t slot)
{
    const proa_params *p = &m->params[proa_lora_stack_id(m)];
    for (int64_t i = 0; i < p->layers * PROA_SLOT_COUNT; i++)
        if (p->param[i].lora && p->param[i].lora->slots)
            m->ctx.ops->lora_stack(&m->ctx, &p->param[i].matrix, p->param[i].lora, slot, m->lora.slot[slot]);
}

void proa_lora_set_slot(proa_model *m, int32_t slot, const char *image)
{
    note_changes(m, slot, image);
    if (m->device->host) m->lora.slot[slot] = image;
    else if (image) {
        m->device->upload(m->device, m->lora.memory + slot * m->lora.bytes, image, m->lora.bytes);
        stack_slot(m, slot);
    }
}

void proa_run_adapter(proa_model *m, int32_t slot, int64_t layer, const char *image)
{
    proa_lora_store *l = &m->lora;
    bool last = layer + 1 == m->params[proa_lora_stack_id(m)].layers;
    char *to = m->device->host ? l->memory + slot * l->bytes : l->part;
    if (image) take_layer(m, to, image, layer);
    if (!image || last) proa_lora_set_slot(m, slot, image ? to : NULL);
}

/* ---- rows grouped by adapter ---- */

int64_t proa_lora_segments(const proa_model *m, int64_t rows)
{
    return rows / PROA_LORA_ROWS + proa_min64(rows, m->lora.slots);
}

int64_t proa_lora_segments_max(const proa_model *m)
{
    int64_t rows = m->plan.rows_max, parts = m->plan.part.stages > 1 ? PROA_MICRO_BATCHES_MAX : 1;
    return rows / PROA_LORA_ROWS + proa_min64(rows, parts * m->lora.slots);
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
        for (int32_t r = 0; r < span->rows; r++) l->row_slot[span->row + r] = batch->lora[i];
    }
    *out = (proa_lora_rows){l->order, l->segment, m->device->host || !segments ? segments : most, l->row_slot};
}

/* Adds a row to the last segment from `begin` on, if that is of the same adapter and has room, or to a new one. */
static void add_row(const proa_lora_store *l, proa_lora_rows *to, int64_t begin, const char *base, int64_t row)
{
    proa_lora_segment *last = to->count > begin ? &l->divided_segment[to->count - 1] : NULL;
    int32_t at = to->count ? l->divided_segment[to->count - 1].first + l->divided_segment[to->count - 1].rows
                           : 0;
    l->divided_order[at] = (int32_t)row;
    if (last && last->base == base && last->rows < PROA_LORA_ROWS) last->rows++;
    else l->divided_segment[to->count++] = (proa_lora_segment){base, at, 1};
}

/* Adds the rows [first, end), which are a micro-batch. */
static void add_rows(const proa_lora_store *l, proa_lora_rows *to, const proa_lora_rows *all, int64_t first,
                     int64_t end)
{
    int64_t begin = to->count;
    for (int64_t i = 0; i < all->count; i++) {
        const proa_lora_segment *s = &all->segment[i];
        for (int32_t k = s->first; k < s->first + s->rows; k++)
            if (all->order[k] >= first && all->order[k] < end)
                add_row(l, to, begin, s->base, all->order[k] - first);
    }
}

void proa_lora_divide(proa_model *m, proa_lora_rows *rows, const proa_span *span, proa_micro_batches *micro)
{
    const proa_lora_store *l = &m->lora;
    const proa_lora_rows all = *rows;
    *rows = (proa_lora_rows){l->divided_order, l->divided_segment, 0, all.slot};
    for (int32_t i = 0; i < micro->count; i++) {
        const proa_span *last = &span[micro->end[i] - 1];
        add_rows(l, rows, &all, span[i ? micro->end[i - 1] : 0].row, last->row + last->rows);
        micro->segments_end[i] = rows->count;
    }
    PROA_ASSERT(rows->count <= proa_lora_segments_max(m));
}

proa_lora_rows proa_lora_rows_of(const proa_lora_rows *divided, const proa_micro_batches *micro, int32_t i,
                                 int64_t first)
{
    int64_t begin = i ? micro->segments_end[i - 1] : 0;
    return (proa_lora_rows){divided->order, divided->segment + begin, micro->segments_end[i] - begin,
                            divided->slot + first};
}
