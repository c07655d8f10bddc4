/* SPDX-License-Identifier: Apache-2.0
 * check_experts.c - the ops of mixtures of experts: route with all its kinds; experts in all formats, few rows and
 * many, experts that no row chooses and such that all rows choose. */
#include "scene.h"

#include "base/checked.h"
#include <math.h>
#include <string.h>

/* ---- route ---- */

/* out holds the weights in its first k columns and the ids, as floats, in the next k. */
static void run_route(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    int64_t k = out.shape[1] / 2, count = (end - begin) * k;
    int32_t *ids = malloc((size_t)(count + 2) * 4);
    PROA_ASSERT(ids);
    ids[0] = ids[count + 1] = 0x5a5a5a5a;
    c->ops->route(c, proa_view_cols(out, 0, k), ids + 1, rows_of(s->input[0], begin, end), s->router);
    PROA_ASSERT(ids[0] == 0x5a5a5a5a && ids[count + 1] == 0x5a5a5a5a);
    for (int64_t i = 0; i < count; i++)
        proa_view_f32(out)[i / k * out.stride[0] + k + i % k] = (float)ids[1 + i];
    free(ids);
}

static void route_case(tester *t, int64_t rows, int64_t experts, proa_router r, int variant)
{
    if (!takes_turn(t)) return;
    canvas x = odd_canvas(rows, experts);
    canvas_fill(&x, (uint64_t)(experts + variant), variant == 1);
    for (int64_t i = 0; i < rows && variant == 2; i++) /* many equal scores */
        for (int64_t j = 0; j < experts; j++) {
            float *v = proa_view_f32(x.view) + i * x.view.stride[0] + j;
            *v = rintf(*v * 2.0f);
        }
    scene s = {.run = run_route,
               .T = rows,
               .out = odd_canvas(rows, 2 * r.chosen),
               .alias = {-1, -1},
               .input = {x.view},
               .router = &r};
    LABEL(&s, "kind %d rows %d experts %d chosen %d groups %d correction %d scales %d scores %d", (int)r.kind,
          (int)rows, (int)experts, (int)r.chosen, (int)r.groups, r.correction != NULL, r.scales != NULL,
          variant);
    check_scene(t, &s, TOL_MATH);
    canvas_free(&s.out), canvas_free(&x);
}

static void route_experts(tester *t, int64_t rows, int64_t experts, int32_t chosen)
{
    float correction[PROA_EXPERTS_MAX];
    uint64_t seed = 5;
    for (int64_t e = 0; e < experts; e++) correction[e] = 0.25f * rng_normal(&seed);
    for (int variant = 0; variant < 3; variant++) {
        proa_router r = {.kind = PROA_ROUTER_SOFTMAX, .chosen = chosen, .renormalise = variant != 1};
        route_case(t, rows, experts, r, variant);
        r.scales = correction;
        route_case(t, rows, experts, r, variant);
        r.scales = NULL;
        r.kind = PROA_ROUTER_SIGMOID, r.scale = 2.5f, r.correction = variant ? correction : NULL;
        route_case(t, rows, experts, r, variant);
        r = (proa_router){.kind = PROA_ROUTER_SPARSEMIXER, .chosen = chosen, .jitter = 0.1f};
        route_case(t, rows, experts, r, variant);
        if (experts % 4 || chosen > experts / 4) continue;
        r = (proa_router){
            .kind = PROA_ROUTER_SIGMOID, .chosen = chosen, .renormalise = true, .correction = correction};
        r.groups = 4, r.chosen_groups = 1 + variant, r.group_best = 1 + variant % 2;
        route_case(t, rows, experts, r, variant);
        r.kind = PROA_ROUTER_SOFTMAX, r.correction = NULL, r.scale = 16.0f;
        route_case(t, rows, experts, r, variant);
    }
}

/* A device may do the norm of a row into 16 bits, the product that makes the scores, and the choice as one. */
static void router_case(tester *t, int64_t experts, int64_t K, proa_router r)
{
    const int64_t k = r.chosen;
    const float eps = 1e-6f;
    int32_t ids[PROA_EXPERTS_MAX], right_ids[PROA_EXPERTS_MAX];
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, (const int64_t[]){1, K}, 0, 0), n = canvas_clone(&x), right_n = canvas_clone(&x);
    canvas y = canvas_make(2, (const int64_t[]){1, experts}, 0, 0), right_y = canvas_clone(&y);
    canvas weights = canvas_make(2, (const int64_t[]){1, k}, 0, 0), right = canvas_clone(&weights);
    canvas numbers = canvas_make(2, (const int64_t[]){experts, K}, 0, 0),
           norm = canvas_make(1, &K, 0, experts % 2);
    canvas bias = canvas_make(1, &experts, 0, 1);
    canvas *all[] = {&x, &n, &right_n, &y, &right_y, &weights, &right, &numbers, &norm, &bias};
    canvas_fill(&x, 61, false), canvas_fill(&numbers, 62, false), canvas_fill(&norm, 63, false);
    canvas_fill(&bias, 64, false);
    for (int64_t i = 0; i < K; i++) /* scores are about 1: sigmoids of 17 and more are one in f32, but not in f64 */
        proa_view_f32(norm.view)[i] /= sqrtf((float)K);
    proa_tensor_source source = proa_tensor_source_of(numbers.view);
    test_weight ref = test_weight_pack(&t->reference, PROA_WFMT_F16, K, &source, 1);
    test_weight mine = test_weight_pack(&t->tables[0], PROA_WFMT_F16, K, &source, 1);
    proa_epilogue e = {.bias = proa_view_f32(bias.view)};
    hosted_router(weights.view, ids, y.view, n.view, x.view, norm.view, eps, &mine.w, e.bias, &r,
                  (proa_view){.rank = 0}, NULL);
    t->reference.ops->rms_norm(&t->reference, right_n.view, x.view, norm.view, eps);
    t->reference.ops->linear(&t->reference, right_y.view, n.view, &ref.w, &e);
    t->reference.ops->route(&t->reference, right.view, right_ids, y.view, &r); /* of the device's scores */
    double norms = compare_rows(n.view, right_n.view, TOL_NORM),
           chosen = compare_rows(weights.view, right.view, TOL_MATH);
    device_mode.limit = 1e-5, device_mode.floor = 0.25;
    double scores = compare_rows(y.view, right_y.view, TOL_MATH);
    device_mode.limit = 4e-6, device_mode.floor = 0;
    bool same = memcmp(ids, right_ids, (size_t)k * 4) == 0;
    expect(t, norms <= 1 && scores <= 1 && chosen <= 1 && same,
           "router of %d experts, K %d: row off by %g, scores by %g, weights by %g tolerances; ids %s",
           (int)experts, (int)K, norms, scores, chosen, same ? "right" : "wrong");
    for (size_t i = 0; i < PROA_COUNT(all); i++)
        expect(t, canvas_guards_hold(all[i]), "router of %d experts: wrote outside", (int)experts),
            canvas_free(all[i]);
    test_weight_free(&ref), test_weight_free(&mine);
}

static void router_cases(tester *t)
{
    static const int64_t shapes[][3] = {{128, 2048, 8}, {32, 2880, 4}, {8, 4096, 2},  {60, 72, 4},
                                        {17, 64, 2},    {1, 8, 1},     {128, 4096, 8}};
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        proa_router r = {.chosen = (int32_t)shapes[i][2], .renormalise = i % 2};
        router_case(t, shapes[i][0], shapes[i][1], r);
        r.kind = PROA_ROUTER_SIGMOID, r.scale = 2.5f;
        router_case(t, shapes[i][0], shapes[i][1], r);
    }
}

void check_route(tester *t)
{
    if (device_mode.narrow == PROA_DTYPE_F16) router_cases(t);
    static const int64_t counts[][2] = {{1, 1},  {2, 1},  {2, 2},   {4, 2},   {8, 2},   {16, 4},
                                        {60, 4}, {64, 6}, {128, 8}, {160, 6}, {256, 8}, {513, 12}};
    for (size_t h = 0; h < PROA_COUNT(scene_heights); h++)
        for (size_t i = 0; i < PROA_COUNT(counts); i++)
            route_experts(t, scene_heights[h], counts[i][0], (int32_t)counts[i][1]);
}

/* ---- experts ---- */

/* Weights of all experts, packed by one table, each with guard words behind it. */
typedef struct expert_pack {
    proa_weight w;
    char *memory;
} expert_pack;

enum { GUARD = 64 };

static expert_pack pack_experts(proa_ctx *c, proa_wfmt format, proa_view all)
{
    int64_t E = all.shape[0], N = all.shape[1], K = all.shape[2];
    expert_pack p = {.w = {.format = format, .N = N, .K = K, .experts = E}};
    p.w.bytes = c->ops->pack_bytes(format, N, K);
    p.w.stride = proa_round_up(p.w.bytes, 64) + GUARD;
    p.memory = aligned_alloc(64, (size_t)(E * p.w.stride));
    PROA_ASSERT(p.memory);
    memset(p.memory, 0xa5, (size_t)(E * p.w.stride));
    p.w.data = p.memory;
    for (int64_t e = 0; e < E; e++) {
        proa_weight one = p.w;
        proa_tensor_source source = proa_tensor_source_of(
            proa_view_2d(proa_view_f32(all) + e * N * K, PROA_DTYPE_F32, N, K));
        one.data = p.memory + e * p.w.stride, one.experts = 0;
        c->ops->pack(c, &one, &source, 1);
    }
    return p;
}

static bool pack_guards_hold(const expert_pack *p)
{
    for (int64_t e = 0; e < p->w.experts; e++)
        for (int64_t i = p->w.bytes; i < p->w.stride; i++)
            if ((unsigned char)p->memory[e * p->w.stride + i] != 0xa5) return false;
    return true;
}

static void run_experts(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    proa_experts e = *s->experts[c->ops != s->reference];
    proa_view weights = rows_of(s->input[2], begin, end);
    e.residual = rows_of(s->epilogue.residual, begin, end);
    c->ops->experts(c, out, rows_of(s->input[0], begin, end), weights, s->ints + begin * weights.shape[1], &e);
}

typedef struct expert_shape {
    int64_t T, E, k, K, F, N;
} expert_shape;

/* ids: spread over the experts, or all rows with the same, or the last ones. */
static int32_t *make_ids(const expert_shape *d, int variant)
{
    int32_t *ids = malloc((size_t)(d->T * d->k + 1) * 4);
    uint64_t seed = 71;
    PROA_ASSERT(ids);
    for (int64_t t = 0; t < d->T; t++) {
        int64_t first = variant % 3 == 0 ? rng_below(&seed, d->E) : variant % 3 == 1 ? 0 : d->E - 1;
        for (int64_t j = 0; j < d->k; j++)
            ids[t * d->k + j] = (int32_t)((first + j * (1 + d->E / 7 % 2)) % d->E);
        for (int64_t j = 1; j < d->k; j++) /* distinct */
            for (int64_t i = 0; i < j; i++)
                if (ids[t * d->k + i] == ids[t * d->k + j])
                    ids[t * d->k + j] = (int32_t)((ids[t * d->k + j] + 1) % d->E), i = -1;
    }
    return ids;
}

/* Of two products one behind the other, in formats of a device. */
static double device_limit_of(proa_wfmt format)
{
    return format == PROA_WFMT_F32                                   ? 6e-5
           : format == PROA_WFMT_FP8                                 ? 2e-1
           : format == PROA_WFMT_BF16 || format == PROA_WFMT_BF16DOT ? 4e-2
                                                                     : 6e-3;
}

static bool rounds_inputs(proa_wfmt format)
{
    return format == PROA_WFMT_I8 || format == PROA_WFMT_BF16DOT || proa_wfmt_is_grouped(format);
}

/* Where the FFN is rounded before the second product, it must be the same number in both tables. */
static proa_act act_of(proa_wfmt format, int variant)
{
    static const proa_act acts[] = {PROA_ACT_SILU, PROA_ACT_QUICK_GELU, PROA_ACT_GELU_TANH, PROA_ACT_RELU};
    return rounds_inputs(format) && !device_mode.on ? PROA_ACT_RELU : acts[variant % 4];
}

/* As make_ids; variant 16: one expert before those of *e and two behind them are chosen too. */
static int32_t *choose_experts(proa_experts *e, expert_shape d, int variant)
{
    if (variant & 16) d.E += 3, e->first = 1, e->all = (int32_t)d.E;
    return make_ids(&d, variant);
}

/* Weights of inputs are powers of 2, so that they change no rounding of these. */
static void fill_weights(canvas *weights, const expert_shape *d, int variant)
{
    canvas_fill(weights, 47, false);
    for (int64_t i = 0; variant & 32 && i < d->T * d->k; i++)
        proa_view_f32(weights->view)[i / d->k * weights->view.stride[0] + i % d->k] = exp2f((float)(-i % 4));
}

static void set_variant(proa_experts *e, int variant, const float *up_bias, const float *down_bias)
{
    if (variant & 1) e->up_bias = up_bias, e->down_bias = down_bias;
    if (variant & 8) e->limit = 1.5f, e->offset = 1.0f;
    if (variant & 64) e->bias = down_bias;
    e->scales_inputs = variant & 32;
}

/* variant: 1 biases, 2 residual, 4 not gated, 8 limit and offset, 16 experts of other ranks are chosen too, 32 inputs
 * are scaled, 64 one more bias. */
static void experts_case(tester *t, proa_wfmt format, expert_shape d, int variant)
{
    proa_ctx *mine = &t->tables[0];
    bool gated = !(variant & 4);
    int64_t up = gated ? 2 * d.F : d.F, up_biases = d.E * up, down_biases = d.E * d.N;
    if (mine->ops->pack_bytes(format, up, d.K) < 0 || !takes_turn(t)) return;
    if (format == PROA_WFMT_BF16DOT && mine->ops->isa >= PROA_ISA_BF16)
        return; /* other sums are other roundings */
    device_mode.limit = device_limit_of(format);
    const double scale = d.K >= 256 ? 0.125 : 1.0; /* of x: long sums stay within f16's range */
    device_mode.floor = scale * sqrt((double)d.K) * sqrt((double)d.F) / 4;
    if (gated) device_mode.floor *= 1 + scale * sqrt((double)d.K);
    canvas ups = canvas_make(1, (const int64_t[]){d.E * up * d.K}, 0, 0);
    canvas downs = canvas_make(1, (const int64_t[]){d.E * d.N * d.F}, 0, 0);
    canvas up_bias = canvas_make(1, &up_biases, 0, 1), down_bias = canvas_make(1, &down_biases, 0, 3);
    canvas_fill(&ups, 41, false), canvas_fill(&downs, 42, false);
    canvas_fill(&up_bias, 43, false), canvas_fill(&down_bias, 44, false);
    proa_view up_view = proa_view_3d(ups.view.data, PROA_DTYPE_F32, d.E, up, d.K);
    proa_view down_view = proa_view_3d(downs.view.data, PROA_DTYPE_F32, d.E, d.N, d.F);
    expert_pack packs[4] = {pack_experts(&t->reference, format, up_view),
                            pack_experts(&t->reference, format, down_view),
                            pack_experts(mine, format, up_view), pack_experts(mine, format, down_view)};
    proa_experts e = {.up = &packs[0].w, .down = &packs[1].w, .act = act_of(format, variant), .gated = gated};
    set_variant(&e, variant, proa_view_f32(up_bias.view), proa_view_f32(down_bias.view));
    canvas x = odd_canvas(d.T, d.K), residual = odd_canvas(d.T, d.N), weights = odd_canvas(d.T, d.k);
    canvas_fill(&x, 45, variant % 2), canvas_fill(&residual, 46, false), fill_weights(&weights, &d, variant);
    for (int64_t i = 0; i < d.T * d.K; i++)
        proa_view_f32(x.view)[i / d.K * x.view.stride[0] + i % d.K] *= (float)scale;
    int32_t *ids = choose_experts(&e, d, variant);
    proa_experts own = e;
    own.up = &packs[2].w, own.down = &packs[3].w;
    scene s = {.run = run_experts,
               .T = d.T,
               .out = odd_canvas(d.T, d.N),
               .alias = {-1, -1},
               .input = {x.view, residual.view, weights.view},
               .ints = ids,
               .reference = t->reference.ops,
               .experts = {&e, &own}};
    if (variant & 2) s.epilogue.residual = residual.view, s.alias[0] = 1;
    LABEL(&s, "%s rows %d, %d of %d experts [%d,%d,%d] act %s variant %d", proa_wfmt_name(format), (int)d.T,
          (int)d.k, (int)d.E, (int)d.K, (int)d.F, (int)d.N, proa_act_name(e.act), variant);
    check_scene(t, &s, rounds_inputs(format) ? TOL_ELEMENT : TOL_ATTEND);
    for (int i = 0; i < 4; i++)
        expect(t, pack_guards_hold(&packs[i]), "%s: pack wrote beyond pack_bytes", s.label),
            free(packs[i].memory);
    canvas *all[] = {&ups, &downs, &up_bias, &down_bias, &x, &residual, &weights, &s.out};
    for (size_t i = 0; i < PROA_COUNT(all); i++) canvas_free(all[i]);
    free(ids);
}

/* The same with the experts behind it: a device may make the choice in their first product. */
static void router_experts_case(tester *t, proa_wfmt format, int64_t E, int64_t K, proa_router r)
{
    enum { F = 48 };
    const float eps = 1e-6f;
    int32_t ids[PROA_EXPERTS_MAX], right_ids[PROA_EXPERTS_MAX];
    const int64_t row[] = {1, K}, of[] = {1, E}, chosen[] = {1, r.chosen}, ups = E * 2 * F * K,
                  downs = E * K * F;
    if (!takes_turn(t)) return;
    canvas x = canvas_make(2, row, 0, 0), n = canvas_clone(&x), y = canvas_clone(&x), right_y = canvas_clone(&x);
    canvas scores = canvas_make(2, of, 0, 0), weights = canvas_make(2, chosen, 0, 0),
           right = canvas_clone(&weights);
    canvas numbers = canvas_make(2, (const int64_t[]){E, K}, 0, 0), norm = canvas_make(1, &K, 0, 0);
    canvas up = canvas_make(1, &ups, 0, 0), down = canvas_make(1, &downs, 0, 0);
    canvas *all[] = {&x, &n, &y, &right_y, &scores, &weights, &right, &numbers, &norm, &up, &down};
    canvas_fill(&x, 65, false), canvas_fill(&numbers, 66, false), canvas_fill(&norm, 67, false);
    canvas_fill(&up, 68, false), canvas_fill(&down, 69, false);
    for (int64_t i = 0; i < K; i++) proa_view_f32(norm.view)[i] /= sqrtf((float)K);
    proa_tensor_source source = proa_tensor_source_of(numbers.view);
    test_weight router = test_weight_pack(&t->tables[0], PROA_WFMT_F16, K, &source, 1);
    proa_view up_view = proa_view_3d(up.view.data, PROA_DTYPE_F32, E, 2 * (int64_t)F, K),
              down_view = proa_view_3d(down.view.data, PROA_DTYPE_F32, E, K, F);
    expert_pack packs[4] = {
        pack_experts(&t->reference, format, up_view), pack_experts(&t->reference, format, down_view),
        pack_experts(&t->tables[0], format, up_view), pack_experts(&t->tables[0], format, down_view)};
    proa_experts e = {.up = &packs[0].w, .down = &packs[1].w, .act = PROA_ACT_SILU, .gated = true}, own = e;
    own.up = &packs[2].w, own.down = &packs[3].w;
    hosted_router(weights.view, ids, scores.view, n.view, x.view, norm.view, eps, &router.w, NULL, &r, y.view,
                  &own);
    t->reference.ops->route(&t->reference, right.view, right_ids, scores.view, &r); /* of the device's scores */
    t->reference.ops->experts(&t->reference, right_y.view, n.view, weights.view, ids, &e);
    bool same = memcmp(ids, right_ids, (size_t)r.chosen * 4) == 0;
    double off = compare_rows(weights.view, right.view, TOL_MATH);
    device_mode.limit = device_limit_of(format), device_mode.floor = sqrt((double)F) / 2;
    double worst = compare_rows(y.view, right_y.view, TOL_ATTEND);
    device_mode.limit = 4e-6, device_mode.floor = 0;
    expect(t, same && off <= 1 && worst <= 1,
           "%s router and experts: %d of %d, K %d: ids %s, weights off by %g tolerances, outputs by %g",
           proa_wfmt_name(format), (int)r.chosen, (int)E, (int)K, same ? "right" : "wrong", off, worst);
    for (size_t i = 0; i < PROA_COUNT(all); i++)
        expect(t, canvas_guards_hold(all[i]), "router and experts: wrote outside"), canvas_free(all[i]);
    for (int i = 0; i < 4; i++) free(packs[i].memory);
    test_weight_free(&router);
}

static void router_experts_cases(tester *t, proa_wfmt format)
{
    static const int64_t shapes[][3] = {{128, 64, 8}, {32, 720, 4}, {8, 2048, 2}, {17, 64, 2}, {100, 128, 32}};
    if (device_mode.narrow != PROA_DTYPE_F16 || !(proa_wfmt_is_quantised(format) || format == PROA_WFMT_F16) ||
        t->tables[0].ops->pack_bytes(format, 16, 16) < 0)
        return; /* the row is of 16 bits, those of f16 */
    for (size_t i = 0; i < PROA_COUNT(shapes); i++) {
        proa_router r = {.chosen = (int32_t)shapes[i][2], .renormalise = i % 2};
        router_experts_case(t, format, shapes[i][0], shapes[i][1], r);
        r.kind = PROA_ROUTER_SIGMOID, r.scale = 2.5f;
        router_experts_case(t, format, shapes[i][0], shapes[i][1], r);
    }
}

void check_experts(tester *t)
{
    static const expert_shape shapes[] = {
        {0, 4, 2, 8, 8, 8},      {1, 1, 1, 16, 16, 16},    {1, 8, 2, 64, 96, 64},     {2, 4, 3, 33, 17, 31},
        {3, 8, 8, 64, 32, 40},   {7, 16, 4, 72, 40, 72},   {13, 4, 2, 130, 65, 130},  {40, 8, 2, 64, 64, 64},
        {40, 60, 6, 32, 48, 24}, {16, 128, 8, 64, 24, 64}, {33, 4, 4, 200, 104, 200}, {5, 3, 2, 1, 3, 2},
        {1, 16, 8, 33, 17, 31},
    };
    for (int format = 0; format < PROA_WFMT_COUNT; format++) {
        if (t->format && strcmp(t->format, proa_wfmt_name((proa_wfmt)format)) != 0) continue;
        if (checked_below(t, (proa_wfmt)format)) continue;
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            for (int variant = (int)i % 2; variant < 16; variant += i < 4 ? 2 : 5)
                experts_case(t, (proa_wfmt)format, shapes[i], variant);
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            experts_case(t, (proa_wfmt)format, shapes[i], 16 + (int)i);
        for (size_t i = 0; i < PROA_COUNT(shapes); i++)
            experts_case(t, (proa_wfmt)format, shapes[i], 32 + (int)i % 3 * 32 + (int)i);
        /* more rows of an expert than a group has; long sums, and outputs that are whole tiles of a device */
        experts_case(t, (proa_wfmt)format, (expert_shape){200, 2, 1, 24, 16, 24}, 3);
        if (format == PROA_WFMT_F32 || device_mode.on) /* and more pairs than a piece has */
            experts_case(t, (proa_wfmt)format, (expert_shape){520, 9, 8, 8, 8, 8}, 2);
        if (!device_mode.on) continue;
        router_experts_cases(t, (proa_wfmt)format);
        experts_case(t, (proa_wfmt)format, (expert_shape){1, 4, 3, 2048, 768, 2048}, 3);
        experts_case(t, (proa_wfmt)format, (expert_shape){1, 8, 4, 720, 720, 720}, 11);
        experts_case(t, (proa_wfmt)format, (expert_shape){1, 8, 8, 80, 1100, 72},
                     3); /* several groups of rows a block */
        experts_case(t, (proa_wfmt)format, (expert_shape){2, 4, 2, 2048, 768, 2048}, 2);
        experts_case(t, (proa_wfmt)format, (expert_shape){40, 4, 2, 512, 384, 512}, 0);
        experts_case(t, (proa_wfmt)format, (expert_shape){150, 4, 2, 256, 192, 256}, 2);
        experts_case(t, (proa_wfmt)format, (expert_shape){1, 4, 1, 720, 384, 720}, 34);
        experts_case(t, (proa_wfmt)format, (expert_shape){40, 4, 2, 512, 384, 512}, 98);
        experts_case(t, (proa_wfmt)format, (expert_shape){150, 4, 2, 256, 192, 256}, 32);
    }
}

/* ---- heads_linear ---- */

static void run_heads_linear(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->heads_linear(c, out, rows_of(s->input[0], begin, end), s->weights[c->ops != s->reference],
                         (int64_t)s->value);
}

static void heads_linear_case(tester *t, proa_wfmt format, int64_t T, int64_t H, int64_t N, int64_t K, int64_t kept)
{
    if (t->tables[0].ops->pack_bytes(format, N, K) < 0 || !takes_turn(t)) return;
    if (format == PROA_WFMT_BF16DOT && t->tables[0].ops->isa >= PROA_ISA_BF16)
        return; /* sums of another order */
    device_mode.limit = device_limit_of(format), device_mode.floor = sqrt((double)K) / 4;
    canvas numbers = canvas_make(1, (const int64_t[]){H * N * K}, 0, 0);
    canvas_fill(&numbers, 51, false);
    proa_view all = proa_view_3d(numbers.view.data, PROA_DTYPE_F32, H, N, K);
    expert_pack ref = pack_experts(&t->reference, format, all), mine = pack_experts(&t->tables[0], format, all);
    canvas x = canvas_make(3, (const int64_t[]){T, H, K + kept}, T % 3, T % 2);
    canvas_fill(&x, 52, T % 2);
    scene s = {.run = run_heads_linear,
               .T = T,
               .out = canvas_make(3, (const int64_t[]){T, H, kept + N}, T % 2, T % 3),
               .alias = {-1, -1},
               .input = {x.view},
               .weights = {&ref.w, &mine.w},
               .reference = t->reference.ops,
               .value = (float)kept};
    LABEL(&s, "%s rows %d heads %d [%d,%d] kept %d", proa_wfmt_name(format), (int)T, (int)H, (int)K, (int)N,
          (int)kept);
    check_scene(t, &s, tolerance_of_format(format));
    expect(t, pack_guards_hold(&mine), "%s: pack wrote beyond pack_bytes", s.label);
    free(ref.memory), free(mine.memory);
    canvas_free(&numbers), canvas_free(&x), canvas_free(&s.out);
}

void check_heads_linear(tester *t)
{
    static const int64_t shapes[][5] = {{0, 2, 8, 8, 0},     {1, 1, 16, 16, 0},   {1, 4, 32, 16, 8},
                                        {3, 2, 33, 17, 5},   {7, 3, 64, 128, 16}, {13, 4, 128, 64, 0},
                                        {40, 2, 72, 40, 24}, {33, 4, 16, 32, 0},  {20, 8, 256, 64, 32}};
    for (int format = 0; format < PROA_WFMT_COUNT; format++)
        for (size_t i = 0; i < PROA_COUNT(shapes) && !checked_below(t, (proa_wfmt)format); i++)
            heads_linear_case(t, (proa_wfmt)format, shapes[i][0], shapes[i][1], shapes[i][2], shapes[i][3],
                              shapes[i][4]);
}

/* ---- sigmoid_mul ---- */

static void run_sigmoid_mul(proa_ctx *c, const scene *s, int64_t begin, int64_t end, proa_view out)
{
    c->ops->sigmoid_mul(c, out, rows_of(s->input[0], begin, end));
}

/* gates: one for each row, or for each number. */
static void sigmoid_mul_case(tester *t, int64_t rows, int64_t cols, int64_t gates)
{
    canvas gate = odd_canvas(rows, gates);
    canvas_fill(&gate, 13, false);
    scene s = {
        .run = run_sigmoid_mul, .T = rows, .out = odd_canvas(rows, cols), .alias = {-1, -1}, .input = {gate.view}};
    canvas_fill(&s.out, (uint64_t)cols, true);
    LABEL(&s, "rows %d width %d gates %d", (int)rows, (int)cols, (int)gates);
    check_scene(t, &s, TOL_MATH);
    canvas_free(&s.out), canvas_free(&gate);
}

static void sigmoid_mul_shape(tester *t, int64_t rows, int64_t cols)
{
    sigmoid_mul_case(t, rows, cols, 1);
    if (cols > 1) sigmoid_mul_case(t, rows, cols, cols);
}

void check_sigmoid_mul(tester *t)
{
    for_shapes(t, sigmoid_mul_shape);
}
