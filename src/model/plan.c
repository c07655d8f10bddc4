/* SPDX-License-Identifier: Apache-2.0
 * plan.c - links the programs of a model, places its registers in memory, and counts the bytes of its weights. */
#include "model/plan.h"

#include "base/checked.h"
#include "kernels/groups.h"
#include "kernels/lora_stack.h"
#include "model/lora/lora.h"
#include "model/ranks/collective.h"
#include "model/ranks/stage.h"
#include "model/relative.h"
#include <string.h>

/* Fuses rope followed by kv_append into one step, for which a device has one kernel. */
static void fuse_rope_append(proa_program *p, const proa_config *c)
{
    if (c->kv_lora > 0) return; /* the values are the keys as they are rotated */
    if (p->count < 2 || p->step[p->count - 1].op != PROA_STEP_KV_APPEND ||
        p->step[p->count - 2].op != PROA_STEP_ROPE || p->step[p->count - 2].flags & PROA_BLOCK)
        return;
    p->step[p->count - 2].op = PROA_STEP_ROPE_APPEND;
    p->count--;
}

static void link_program(proa_program *out, const proa_step *steps, const proa_config *c)
{
    out->count = 0;
    for (; steps && steps->op != PROA_STEP_END; steps++) {
        if (!proa_step_applies(steps, c, PROA_SOME_LAYER)) continue;
        PROA_ASSERT(out->count < PROA_PROGRAM_MAX - 1);
        out->step[out->count++] = *steps;
        fuse_rope_append(out, c);
    }
    out->step[out->count] = (proa_step){PROA_STEP_END, 0, 0, 0, 0};
}

static void link_all(proa_plan *plan, const proa_arch *arch, const proa_config *c)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        const proa_stack *stack = &arch->stacks[s];
        link_program(&plan->program[s][PROA_SECTION_EMBED], stack->embed, c);
        link_program(&plan->program[s][PROA_SECTION_LAYER], stack->layer, c);
        link_program(&plan->program[s][PROA_SECTION_AFTER], stack->after, c);
    }
    link_program(&plan->cross, arch->cross, c);
    link_program(&plan->head, arch->head, c);
    link_program(&plan->pool, arch->pool, c);
    link_program(&plan->fuse, arch->fuse, c);
}

static void add_collectives(proa_plan *plan, const proa_params params[PROA_STACK_COUNT], const proa_config *c)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int k = 0; k < PROA_SECTION_COUNT; k++) {
            int64_t layers = k == PROA_SECTION_LAYER ? params[s].layers : 0;
            proa_collective_steps(&plan->program[s][k], c, layers, false);
        }
    proa_collective_steps(&plan->cross, c, params[PROA_STACK_DECODER].layers, false);
    proa_collective_steps(&plan->head, c, 0, c->head_split > 0);
    proa_collective_steps(&plan->pool, c, 0, false);
}

static bool norms_stream(const proa_program *layer)
{
    bool found = false;
    for (int i = 0; i < layer->count; i++) {
        const proa_step *s = &layer->step[i];
        found = found || (s->op == PROA_STEP_NORM && s->out == PROA_REG_X && !(s->flags & PROA_ADD));
    }
    return found;
}

static bool reads_register(const proa_step *s, proa_reg reg)
{
    bool added = s->op == PROA_STEP_LINEAR && s->flags & PROA_ADD && s->out == reg;
    bool scanned = s->op == PROA_STEP_SELECTIVE_SCAN && reg == PROA_REG_PARAMS;
    return s->in == reg || added || scanned;
}

/* Is the next step a product of what step i of a layer makes, and does no later one read that? */
static bool feeds_next_product(const proa_program *p, int i)
{
    const proa_step *s = &p->step[i], *next = s + 1;
    proa_flags apart = PROA_FORK | PROA_JOIN | PROA_ADD | PROA_CAPPED;
    bool product = next->op == PROA_STEP_LINEAR && next->in == s->out && next->out != s->out;
    if (s->op != PROA_STEP_LINEAR || s->out == PROA_REG_X || !product) return false;
    if ((s->flags & apart) != 0 || (next->flags & (PROA_FORK | PROA_JOIN)) != 0) return false;
    for (int k = i + 2; k < p->count; k++) {
        if (reads_register(&p->step[k], s->out)) return false;
        if (p->step[k].out == s->out) return true;
    }
    return true;
}

static void mark_fed_products(proa_plan *plan)
{
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        proa_program *layer = &plan->program[s][PROA_SECTION_LAYER];
        for (int i = 0; i + 1 < layer->count; i++)
            if (feeds_next_product(layer, i)) layer->step[i].flags |= PROA_FEEDS_PRODUCT;
    }
}

int32_t proa_program_product(const proa_program *p)
{
    int32_t i = p->count - 1;
    while (i >= 0 && p->step[i].op == PROA_STEP_GATHER_COLUMNS) i--;
    return i;
}

proa_reg proa_plan_hidden(const proa_plan *plan)
{
    int32_t last = proa_program_product(&plan->head);
    proa_reg read = last >= 0 ? plan->head.step[last].in : PROA_REG_OUT;
    return read == PROA_REG_X ? PROA_REG_OUT : read;
}

/* clash[a][b]: a and b are alive in the same step of some program. */
typedef struct liveness {
    bool clash[PROA_REG_COUNT][PROA_REG_COUNT];
    bool used[PROA_REG_COUNT];
} liveness;

static void mark_alive(int first[], int last[], liveness *l, proa_reg reg, int step)
{
    if (reg == PROA_REG_NONE) return;
    l->used[reg] = true;
    if (first[reg] < 0) first[reg] = step;
    if (last[reg] < step) last[reg] = step;
}

/* Registers that are live during the whole step: the residual stream, the rotary tables, and OUT of a headless
 * model, from which the first rows may be copied to the host while others still run through the layers. */
static bool lives_whole_step(const proa_plan *plan, int reg)
{
    return reg == PROA_REG_X || reg == PROA_REG_KEPT || reg == PROA_REG_MEANS || reg == PROA_REG_ROPE ||
           reg == PROA_REG_LAYER_INPUTS || reg == PROA_REG_STREAMS || reg == PROA_REG_LOCAL_ROPE ||
           reg == PROA_REG_BLOCK_ROPE || reg == PROA_REG_PICKED || (reg == PROA_REG_OUT && plan->headless);
}

/* The registers that a step reads or writes beside in and out, up to PROA_REG_COUNT. */
static const proa_reg *registers_beside(const proa_step *s, bool ranks)
{
    static const proa_reg none[] = {PROA_REG_COUNT},
                          heads[] = {PROA_REG_HEADS_PART, PROA_REG_HEADS_ALL, PROA_REG_COUNT},
                          sums[] = {PROA_REG_SUM_PART, PROA_REG_SUM_PADDED, PROA_REG_COUNT},
                          streams[] = {PROA_REG_STREAM_COEFS, PROA_REG_D, PROA_REG_COUNT},
                          others[] = {PROA_REG_HEAD_OTHERS, PROA_REG_COUNT},
                          gates[] = {PROA_REG_U, PROA_REG_COUNT},
                          parted_gates[] = {PROA_REG_MOMENTS, PROA_REG_SUM_IN, PROA_REG_COUNT},
                          blocks[] = {PROA_REG_BLOCK_QKV, PROA_REG_COUNT},
                          index[] = {PROA_REG_INDEX_K, PROA_REG_INDEX_W, PROA_REG_COUNT},
                          picked[] = {PROA_REG_PICKED, PROA_REG_PICKED_KEYS, PROA_REG_COUNT},
                          rates[] = {PROA_REG_RATES, PROA_REG_COUNT}, mix[] = {PROA_REG_MIX, PROA_REG_COUNT},
                          channels[] = {PROA_REG_MIX, PROA_REG_PARAMS, PROA_REG_RATES, PROA_REG_COUNT},
                          experts[] = {PROA_REG_EXPERT_W, PROA_REG_EXPERT_IDS, PROA_REG_COUNT};
    switch (s->op) {
    case PROA_STEP_HEADS_NORM: return ranks && s->flags & PROA_WHOLE ? heads : none;
    case PROA_STEP_GATHER_INPUTS: return sums;
    case PROA_STEP_CORRECT_STREAMS: return streams;
    case PROA_STEP_JOIN_STREAMS: return others;
    case PROA_STEP_LINEAR_GATED: return gates;
    case PROA_STEP_GATE_SPARSE: return ranks ? parted_gates : none;
    case PROA_STEP_PICK_KEYS: return index;
    case PROA_STEP_ATTEND:
        return s->flags & PROA_OF_PICKED ? picked : s->flags & PROA_OF_BLOCKS ? blocks : none;
    case PROA_STEP_GATED_DELTA: return rates;
    case PROA_STEP_SELECTIVE_SCAN: return s->flags & PROA_BY_CHANNEL ? channels : mix;
    case PROA_STEP_ROUTE:
    case PROA_STEP_EXPERTS: return experts;
    default: return none;
    }
}

static void mark_step(int first[], int last[], liveness *l, const proa_step *s, int step, bool ranks)
{
    for (const proa_reg *r = registers_beside(s, ranks); *r != PROA_REG_COUNT; r++)
        mark_alive(first, last, l, *r, step);
    mark_alive(first, last, l, s->in, step);
    mark_alive(first, last, l, s->out, step);
    if (s->op == PROA_STEP_CROSS_ATTEND && first[PROA_REG_CKV] >= 0) /* made by the same program */
        mark_alive(first, last, l, PROA_REG_CKV, step);
}

/* The last step that may run at the same time as step i: a forked step runs until the join. */
static int branch_end(const proa_program *p, int i)
{
    if (!(p->step[i].flags & PROA_FORK)) return i;
    while (i + 1 < p->count && !(p->step[i + 1].flags & PROA_JOIN)) i++;
    return i;
}

/* read: a register that is read after the program, if the program has it; else PROA_REG_NONE. */
static void add_lives(liveness *l, const proa_program *p, bool ranks, proa_reg read)
{
    int first[PROA_REG_COUNT], last[PROA_REG_COUNT];
    for (int r = 0; r < PROA_REG_COUNT; r++) first[r] = last[r] = -1;
    for (int i = 0; i < p->count; i++) {
        mark_step(first, last, l, &p->step[i], i, ranks);
        mark_step(first, last, l, &p->step[i], branch_end(p, i), ranks);
    }
    if (first[read] >= 0) last[read] = p->count - 1;
    for (int a = 0; a < PROA_REG_COUNT; a++)
        for (int b = 0; b < PROA_REG_COUNT; b++)
            if (a != b && first[a] >= 0 && first[b] >= 0 && first[a] <= last[b] && first[b] <= last[a])
                l->clash[a][b] = true;
}

static int64_t reg_bytes(const proa_plan *plan, int reg)
{
    bool few = reg == PROA_REG_H || reg == PROA_REG_HN || reg == PROA_REG_HE || reg == PROA_REG_OUT_PART ||
               reg == PROA_REG_HEAD_STREAMS || reg == PROA_REG_HEAD_OTHERS ||
               (reg == PROA_REG_OUT && !plan->headless);
    bool blocks = reg == PROA_REG_BLOCKS || reg == PROA_REG_BLOCK_QKV;
    int64_t rows = few ? plan->device_head_rows : blocks ? plan->block_rows : plan->rows_max;
    if (reg == PROA_REG_PICKED_KEYS) rows = PROA_PICKED_ROWS;
    return proa_round_up(rows * plan->width[reg] * 4, 64);
}

/* The lowest offset at which the register overlaps none of the registers already placed that it clashes with. */
static int64_t lowest_offset(const proa_plan *plan, const liveness *l, int reg)
{
    int64_t at = 0, bytes = reg_bytes(plan, reg);
    for (bool moved = true; moved;) {
        moved = false;
        for (int o = 1; o < PROA_REG_COUNT; o++) {
            int64_t begin = plan->offset[o], end = begin + (begin < 0 ? 0 : reg_bytes(plan, o));
            bool clash = l->clash[reg][o] || lives_whole_step(plan, reg) || lives_whole_step(plan, o);
            if (o == reg || begin < 0 || !clash || at >= end || at + bytes <= begin) continue;
            at = end;
            moved = true;
        }
    }
    return at;
}

static void place_registers(proa_plan *plan, const proa_arch *arch, const proa_config *c)
{
    liveness l = {0};
    bool ranks = plan->part.tensors > 1;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int k = 0; k < PROA_SECTION_COUNT; k++)
            add_lives(&l, &plan->program[s][k], ranks, PROA_REG_NONE);
    add_lives(&l, &plan->cross, ranks, PROA_REG_NONE);
    add_lives(&l, &plan->head, ranks, proa_plan_hidden(plan));
    add_lives(&l, &plan->pool, ranks, PROA_REG_NONE);
    add_lives(&l, &plan->fuse, ranks, PROA_REG_NONE);
    plan->block_rows = c->side_block > 0 ? plan->rows_max / c->side_block : 0;
    for (int r = 0; r < PROA_REG_COUNT; r++) plan->offset[r] = -1;
    for (int r = 1; r < PROA_REG_COUNT; r++) {
        if (!l.used[r]) continue;
        plan->width[r] = proa_reg_width(arch, c, (proa_reg)r);
        plan->offset[r] = lowest_offset(plan, &l, r);
        plan->activation_bytes = proa_max64(plan->activation_bytes, plan->offset[r] + reg_bytes(plan, r));
    }
}

/* A table is read in the mapped file if it is dense and the file stays mapped; else it has memory of its own. */
static void size_table(proa_param *param, const proa_formats *formats, bool tables)
{
    const proa_tensor_source *s = &param->part[0].source;
    proa_dtype dtype = proa_formats_table(formats, param);
    param->table = proa_view_2d(NULL, dtype, param->rows, param->cols);
    if (proa_tensor_source_is_dense(s)) param->table = s->view;
    if ((tables || !proa_tensor_source_is_dense(s)) && !param->shared) {
        param->bytes = proa_round_up(param->rows * param->cols * proa_dtype_bytes(dtype), 64);
        param->table = proa_view_2d(NULL, dtype, param->rows, param->cols);
    }
}

/* Bytes behind a matrix for the adapters of proa_lora.slots. Sets slots to 0 where they cannot be stored there. */
static int64_t lora_stack_bytes(const proa_param *param, const proa_weight *w)
{
    if (!param->lora || !param->lora->slots) return 0;
    if (!proa_lora_stack_takes(w)) param->lora->slots = 0;
    return param->lora->slots ? proa_lora_stack_of(param->lora, w).end - w->bytes : 0;
}

static proa_status size_matrix(proa_param *param, const proa_ops *ops, proa_wfmt format, proa_err *err)
{
    const char *name = param->part[0].tensor->name;
    int64_t count = proa_max64(param->experts, 1);
    if (format == PROA_WFMT_I8 && param->cols > PROA_I8_INPUTS_MAX)
        return PROA_FAIL(err, UNSUPPORTED, "tensor '%s' has %lld inputs, int8 takes at most %d", name,
                         (long long)param->cols, PROA_I8_INPUTS_MAX);
    proa_weight w = {.format = format, .N = param->rows, .K = param->cols, .experts = param->experts};
    w.permuted = param->packed ? param->matrix.permuted : proa_formats_permutes(format, param);
    w.bytes = ops->pack_bytes(format, w.N, w.K);
    if (w.bytes < 0)
        return PROA_FAIL(err, UNSUPPORTED, "weights as %s are not offered on this device",
                         proa_wfmt_name(format));
    w.bytes += proa_group_order_bytes(&w);
    int64_t behind = lora_stack_bytes(param, &w);
    w.stride = proa_round_up(w.bytes + behind, behind ? PROA_LORA_MATRIX_ALIGN : 64);
    if (!proa_mul(w.stride, count, &param->bytes))
        return PROA_FAIL(err, LIMIT, "tensor '%s' is too large", name);
    param->matrix = w;
    return PROA_OK;
}

static proa_status size_param(proa_param *param, proa_weight_slot slot, const proa_plan_of *of,
                              int64_t relative_rows, proa_err *err)
{
    int64_t count = proa_max64(param->experts, 1), bytes = 0;
    if (param->load_only) return PROA_OK;
    if (!proa_mul(param->rows, count, &count) || !proa_mul(count, param->cols ? param->cols : 1, &count) ||
        !proa_mul(count, 8, &bytes))
        return PROA_FAIL(err, LIMIT, "tensor '%s' is too large", param->part[0].tensor->name);
    if (param->projected) param->bytes = proa_round_up(relative_rows * param->rows * 4, 64);
    else if (param->role == PROA_ROLE_VECTOR || param->role == PROA_ROLE_F32)
        param->bytes = proa_round_up(count * 4, 64);
    else if (param->role == PROA_ROLE_TABLE) size_table(param, of->formats, of->own_tables);
    else return size_matrix(param, of->ops, proa_formats_of(of->formats, slot, param), err);
    return PROA_OK;
}

/* Counts weights; those of the main stack are read once per step, whatever the batch, but for experts: of these one row
 * reads those that are chosen for it. */
static void count_bytes(proa_plan *plan, const proa_params *p, const proa_config *c, bool main_stack)
{
    for (int64_t layer = 0; layer <= p->layers; layer++)
        for (int s = 0; s < PROA_SLOT_COUNT; s++) {
            const proa_param *param = proa_params_at(p, layer, (proa_weight_slot)s);
            if (!param->parts) continue;
            plan->weight_bytes += param->bytes;
            if (proa_param_is_matrix(param)) plan->matrix_bytes += param->bytes;
            if (!(main_stack && proa_param_is_matrix(param)) || s == PROA_SLOT_CROSS_KV) continue;
            int64_t experts = param->heads ? param->experts : proa_min64(c->router.chosen, param->experts);
            if (!param->heads) plan->expert_bytes += experts * param->matrix.bytes;
            plan->step_bytes += proa_max64(experts, 1) * param->matrix.bytes;
        }
}

static int64_t numbers_of(const proa_name *n, const proa_config *c, int64_t layer)
{
    int64_t cols = proa_dim_in_layer(c, n->cols, layer);
    return proa_dim_in_layer(c, n->rows, layer) * (cols ? cols : 1);
}

/* Tensors bound twice (a tied head) count once. */
int64_t proa_plan_parameters(const proa_params params[PROA_STACK_COUNT], const proa_arch *arch,
                             const proa_config *c)
{
    int64_t sum = 0;
    for (const proa_name *n = arch->names; n->name; n++) {
        const proa_params *p = &params[n->stack];
        if (n->flags & PROA_SHARED) continue;
        bool per_layer = strstr(n->name, "%d") != NULL;
        int64_t copies = proa_name_copies(n, c);
        for (int64_t i = per_layer ? 0 : p->layers; i < (per_layer ? p->layers : p->layers + 1); i++)
            if (proa_name_applies(n, c, per_layer ? i : PROA_SOME_LAYER) && proa_params_at(p, i, n->slot)->parts)
                sum += copies * numbers_of(n, c, per_layer ? i : PROA_SOME_LAYER);
    }
    return sum;
}

proa_status proa_plan_make(proa_plan *plan, proa_params params[PROA_STACK_COUNT], const proa_plan_of *of,
                           proa_err *err)
{
    const proa_arch *arch = of->arch;
    const proa_config *c = of->config;
    bool encoder = arch->kind == PROA_KIND_ENCODER;
    link_all(plan, arch, c);
    if (plan->part.tensors > 1) add_collectives(plan, params, c);
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        plan->normed_stream = plan->normed_stream || norms_stream(&plan->program[s][PROA_SECTION_LAYER]);
    plan->headless = plan->head.count == 1 && plan->head.step[0].op == PROA_STEP_GATHER;
    proa_stage_steps(plan, c);
    mark_fed_products(plan);
    place_registers(plan, arch, c);
    int64_t relative_rows = proa_relative_rows(c);
    for (int s = 0; s < PROA_STACK_COUNT; s++) {
        for (int64_t i = 0; i < (params[s].layers + 1) * PROA_SLOT_COUNT; i++)
            if (params[s].param[i].parts)
                PROA_TRY(size_param(&params[s].param[i], (proa_weight_slot)(i % PROA_SLOT_COUNT), of,
                                    relative_rows, err));
        count_bytes(plan, &params[s], c, encoder || s == PROA_STACK_DECODER);
    }
    return PROA_OK;
}
