/* SPDX-License-Identifier: Apache-2.0
 * ops.c - the tables: the reference, overlaid level by level; and the context that kernels run in. */
#include "kernels/ops.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "kernels/coded.h"
#include "kernels/cpu/linear.h"
#include "kernels/cpu/overlay.h"
#include "kernels/reference/reference.h"
#include <math.h>
#include <pthread.h>
#include <string.h>

const char *const proa_op_names[] = {
#define PROA_OP(name, args) #name,
#include "kernels/ops.def"
#include "kernels/decode.def"
#undef PROA_OP
    NULL};

const char *proa_act_name(proa_act act)
{
    static const char *const names[PROA_ACT_COUNT] = {
#define ROW(name, text) text,
        PROA_ACT_LIST(ROW)
#undef ROW
    };
    return (unsigned)act < PROA_ACT_COUNT ? names[act] : "unknown";
}

bool proa_act_find(proa_str name, proa_act *act)
{
    static const struct {
        const char *name;
        proa_act act;
    } others[] = {{"linear", PROA_ACT_NONE},
                  {"gelu_python", PROA_ACT_GELU},
                  {"gelu_pytorch_tanh", PROA_ACT_GELU_TANH},
                  {"swish", PROA_ACT_SILU},
                  {"gelu_fast", PROA_ACT_GELU_TANH}};
    for (int i = 0; i < PROA_ACT_COUNT; i++) {
        if (!proa_str_is(name, proa_act_name((proa_act)i))) continue;
        *act = (proa_act)i;
        return true;
    }
    for (size_t i = 0; i < PROA_COUNT(others); i++) {
        if (!proa_str_is(name, others[i].name)) continue;
        *act = others[i].act;
        return true;
    }
    return false;
}

const char *proa_wfmt_name(proa_wfmt format)
{
    static const char *const names[PROA_WFMT_COUNT] = {
#define ROW(name, text) text,
        PROA_WFMT_LIST(ROW)
#undef ROW
    };
    return (unsigned)format < PROA_WFMT_COUNT ? names[format] : "unknown";
}

float proa_rope_freq(const proa_rope_freqs *f, int32_t length, int64_t i, int64_t r)
{
    if (!proa_rope_is_long(f, length)) return f->inv_freq[i];
    if (f->long_inv_freq) return f->long_inv_freq[i];
    double factor = (double)f->ntk_factor, growth = factor * length / f->border - (factor - 1);
    return (float)((double)f->inv_freq[i] * pow(growth, -2.0 * (double)i / (double)(r - 2)));
}

int32_t proa_rel_bucket(int32_t relative, int32_t buckets, int32_t distance, bool bidirectional)
{
    int32_t base = 0;
    if (bidirectional) {
        buckets /= 2;
        if (relative > 0) base = buckets;
        else relative = -relative;
    } else {
        relative = relative < 0 ? -relative : 0;
    }
    /* The first half of the buckets are one position each, the others grow with the logarithm up to `distance`. */
    int32_t exact = buckets / 2;
    if (relative < exact) return base + relative;
    float share = logf((float)relative / (float)exact) / (float)log((double)distance / (double)exact);
    float bucket = (float)exact + truncf(share * (float)(buckets - exact));
    return base + (bucket > (float)(buckets - 1) ? buckets - 1 : (int32_t)bucket);
}

/* ---- tables ---- */

static proa_ops tables[PROA_ISA_COUNT];

/* What each level adds to the one below it. */
static void overlay_table(proa_ops *ops, proa_isa isa)
{
    switch (isa) {
#if defined(__x86_64__)
    case PROA_ISA_AVX2:
        proa_overlay_vec_avx2(ops);
        proa_overlay_linear_avx2(ops);
        break;
    case PROA_ISA_AVX512:
        proa_overlay_vec_avx512(ops);
        proa_overlay_linear_avx512(ops);
        break;
    case PROA_ISA_VNNI: proa_overlay_linear_vnni(ops); break;
    case PROA_ISA_BF16: proa_overlay_linear_bf16(ops); break;
    case PROA_ISA_AMX: proa_overlay_linear_amx(ops); break;
#endif
    default: PROA_UNUSED(ops);
    }
}

static void fill_tables(void)
{
    proa_isa have = proa_isa_detect();
    proa_reference_fill(&tables[PROA_ISA_GENERIC]);
    for (int i = PROA_ISA_GENERIC + 1; i <= (int)have; i++) {
        proa_isa isa = (proa_isa)i;
        proa_ops *ops = &tables[i];
        *ops = tables[i - 1];
        ops->isa = isa;
        ops->name = proa_isa_name(isa);
        overlay_table(ops, isa);
    }
}

const proa_ops *proa_ops_cpu(proa_isa isa)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    PROA_ASSERT((unsigned)isa < PROA_ISA_COUNT);
    pthread_once(&once, fill_tables);
    return tables[isa].name ? &tables[isa] : NULL;
}

typedef struct packed_layout {
    const char *layout;
    proa_copy_packed_fn *copy;
    proa_row_scale_fn *row_scale;
} packed_layout;

static const packed_layout *find_layout(const char *layout)
{
    static const packed_layout known[] = {
        {PROA_REFERENCE_LAYOUT, proa_reference_copy, proa_reference_row_scale},
#if defined(__x86_64__)
        {PROA_PANELS_LAYOUT, proa_panels_copy, proa_panels_row_scale},
#endif
        {PROA_CUDA_LAYOUT, proa_coded_copy, proa_coded_row_scale}
    };
    for (size_t i = 0; i < PROA_COUNT(known); i++)
        if (strcmp(layout, known[i].layout) == 0) return &known[i];
    return NULL;
}

proa_copy_packed_fn *proa_copy_packed_find(const char *layout)
{
    const packed_layout *known = find_layout(layout);
    return known ? known->copy : NULL;
}

proa_row_scale_fn *proa_row_scale_find(const char *layout)
{
    const packed_layout *known = find_layout(layout);
    return known ? known->row_scale : NULL;
}

/* ---- the context ---- */

/* linear works on at most PROA_LINEAR_ROWS rows at a time: those rows as it wants to read them (bf16 at most, K
 * padded) with a scale each, whole tiles of them, and for each worker a block of sums. */
static int64_t linear_scratch(const proa_ctx_need *need, int threads)
{
    int64_t rows = proa_round_up(proa_min64(need->rows, PROA_LINEAR_ROWS), PROA_LINEAR_TILE_ROWS);
    return rows * (proa_round_up(need->inputs, 64) * 2 + 128) + 64 + threads * PROA_LINEAR_WORKER_BYTES;
}

/* attend: for each worker queries, scores and sums of a tile of 64 queries by a page of 64 keys. */
static int64_t attend_scratch(const proa_ctx_need *need, int threads)
{
    int64_t tile = PROA_PAGE_TOKENS * (3 * proa_round_up(need->head_dim, 16) + 2 * PROA_PAGE_TOKENS + 64) * 4;
    /* and one partial result (sums, maximum, total) for each row and head, as many as a decode step has rows */
    int64_t rows = proa_min64(need->rows, PROA_LINEAR_ROWS);
    return threads * tile + rows * need->heads * (proa_round_up(need->head_dim, 16) + 16) * 4;
}

int64_t proa_expert_pairs(int64_t rows, int64_t chosen)
{
    int64_t piece = proa_max64(1, PROA_EXPERT_PAIRS / proa_max64(chosen, 1));
    return proa_min64(rows, piece) * chosen;
}

/* experts: where the pairs of each expert begin; for each pair its row as linear reads it (bf16 at most, with a scale),
 * its input or output, and the FFN between. */
static int64_t experts_scratch(const proa_ctx_need *need, int threads)
{
    int64_t pairs = proa_expert_pairs(need->rows, need->chosen), tile = PROA_LINEAR_TILE_ROWS;
    int64_t inputs = proa_max64(need->expert_width, need->expert_ffn);
    if (!need->experts) return 0;
    int64_t lists = (2 * need->experts + 4 * (pairs + need->experts + 1)) * 8 + 4 * 64;
    int64_t words = (pairs + tile) * (proa_round_up(inputs, 64) * 2 + 128 + 4) + 64;
    int64_t values = (pairs + tile) * (need->expert_width + need->expert_ffn) * 4 + 2 * 64;
    return lists + words + values + threads * PROA_LINEAR_WORKER_BYTES + 64;
}

/* lora: the rank's numbers of each row. */
static int64_t lora_scratch(const proa_ctx_need *need)
{
    return need->rows * need->lora * 4;
}

/* pick_keys: the scores of as many rows as there are workers, or more. */
static int64_t pick_scratch(const proa_ctx_need *need, int threads)
{
    return threads * need->keys * 4;
}

int64_t proa_ctx_scratch_bytes(const proa_ctx_need *need, int threads)
{
    int64_t bytes = proa_max64(linear_scratch(need, threads), attend_scratch(need, threads));
    bytes = proa_max64(bytes, experts_scratch(need, threads));
    bytes = proa_max64(bytes, lora_scratch(need));
    bytes = proa_max64(bytes, pick_scratch(need, threads));
    bytes = proa_max64(bytes, need->columns * PROA_SAMPLE_COLUMN_BYTES);
    return proa_round_up(proa_max64(bytes, threads * need->columns * 8), 4096);
}

proa_status proa_ctx_init(proa_ctx *c, const proa_ops *ops, proa_pool *pool, const proa_ctx_need *need,
                          proa_err *err)
{
    *c = (proa_ctx){.ops = ops ? ops : proa_ops_cpu(proa_isa_choose()), .pool = pool};
    int64_t bytes = proa_ctx_scratch_bytes(need, proa_pool_threads(pool));
    c->scratch = proa_pages_alloc(bytes);
    if (!c->scratch)
        return PROA_FAIL(err, NO_MEMORY, "cannot take %lld bytes for the kernels' scratch, %lld are available",
                         (long long)bytes, (long long)proa_memory_available());
    c->scratch_bytes = bytes;
    return PROA_OK;
}

void proa_ctx_release(proa_ctx *c)
{
    if (c->scratch) proa_pages_free(c->scratch, c->scratch_bytes);
    *c = (proa_ctx){0};
}
