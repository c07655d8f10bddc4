/* SPDX-License-Identifier: Apache-2.0
 * scene.c - the driver of scene.h. */
#include "scene.h"

#include "base/checked.h"

proa_view rows_of(proa_view v, int64_t begin, int64_t end)
{
    return v.rank ? proa_view_rows(v, begin, end) : v;
}

canvas scene_run(const scene *s, proa_ctx *c, int64_t begin, int64_t end)
{
    canvas out = canvas_clone(&s->out);
    s->run(c, s, begin, end, rows_of(out.view, begin, end));
    return out;
}

static void check_against_reference(tester *t, const scene *s, const canvas *mine, tolerance kind)
{
    canvas right = scene_run(s, &t->reference, 0, s->T);
    double worst = compare_rows(mine->view, right.view, kind);
    expect(t, kind != TOL_EXACT || device_mode.on ? worst <= 1.0 : worst == 0, "%s: off by %g tolerances",
           s->label, worst);
    if (worst > t->worst) t->worst = worst;
    canvas_free(&right);
}

static void check_part(tester *t, const scene *s, const canvas *all, int64_t begin, int64_t end, int threads)
{
    canvas part = scene_run(s, &t->tables[threads], begin, end);
    expect(t, same_bits(part.view, all->view, begin, end), "%s: rows %d to %d alone differ, %d threads",
           s->label, (int)begin, (int)end, threads + 1);
    expect(t, same_bits(part.view, s->out.view, 0, begin) && same_bits(part.view, s->out.view, end, s->T),
           "%s: rows outside %d to %d were written", s->label, (int)begin, (int)end);
    canvas_free(&part);
}

/* Rows alone, all of them where they are few, and batches of many sizes at many offsets. */
static void check_batches(tester *t, const scene *s, const canvas *all)
{
    if (device_mode.narrow != PROA_DTYPE_F32) return; /* the kernels choose by the view, not by the rows */
    uint64_t seed = (uint64_t)s->T;
    int64_t step_max = s->T > 48 ? s->T / 16 : 1;
    for (int64_t row = 0; row < s->T; row += 1 + rng_below(&seed, step_max))
        check_part(t, s, all, row, row + 1, 0);
    for (int64_t rows = 2; rows < s->T; rows += 1 + rows / 8) {
        int64_t begin = rng_below(&seed, s->T - rows + 1);
        check_part(t, s, all, begin, begin + rows, (int)(rows % CHECK_THREADS));
    }
}

static void check_in_place(tester *t, const scene *s, const canvas *all, int which)
{
    scene in_place = *s;
    canvas out = canvas_clone(&s->out);
    proa_view from = s->input[which];
    for (int64_t i = 0; i < s->T; i++) /* the input's rows into out; rank 2 or 3 with equal shapes */
        for (int64_t h = 0; h < (from.rank == 3 ? from.shape[1] : 1); h++)
            memcpy(proa_view_f32(out.view) + i * out.view.stride[0] +
                       h * (from.rank == 3 ? out.view.stride[1] : 0),
                   proa_view_f32(from) + i * from.stride[0] + h * (from.rank == 3 ? from.stride[1] : 0),
                   (size_t)from.shape[from.rank - 1] * 4);
    in_place.input[which] = out.view;
    if (s->epilogue.residual.rank && which == 1) in_place.epilogue.residual = out.view;
    s->run(&t->tables[0], &in_place, 0, s->T, out.view);
    expect(t, same_bits(out.view, all->view, 0, s->T), "%s: in place of input %d differs", s->label, which);
    expect(t, canvas_guards_hold(&out), "%s: in place, wrote outside", s->label);
    canvas_free(&out);
}

void check_scene(tester *t, const scene *s, tolerance kind)
{
    canvas mine = scene_run(s, &t->tables[0], 0, s->T);
    check_against_reference(t, s, &mine, kind);
    expect(t, canvas_guards_hold(&mine), "%s: wrote outside the view", s->label);
    for (int n = 1; n < CHECK_THREADS; n++) {
        canvas other = scene_run(s, &t->tables[n], 0, s->T);
        expect(t, same_bits(other.view, mine.view, 0, s->T), "%s: %d threads differ", s->label, n + 1);
        canvas_free(&other);
    }
    check_batches(t, s, &mine);
    for (int i = 0; i < 2; i++)
        if (s->alias[i] >= 0) check_in_place(t, s, &mine, s->alias[i]);
    canvas_free(&mine);
}

tolerance tolerance_of_act(proa_act act)
{
    return act == PROA_ACT_GELU || act == PROA_ACT_GELU_TANH ? TOL_GELU : TOL_MATH;
}

const int64_t scene_widths[18] = {1, 2, 3, 5, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 300, 1024};
const int64_t scene_heights[6] = {0, 1, 2, 7, 13, 40};

canvas odd_canvas(int64_t rows, int64_t cols)
{
    return canvas_make(2, (const int64_t[]){rows, cols}, (rows + cols) % 3 ? cols % 5 : 0, (rows * 7 + cols) % 4);
}

void for_shapes(tester *t, scene_check_fn *check)
{
    for (size_t h = 0; h < PROA_COUNT(scene_heights); h++)
        for (size_t w = 0; w < PROA_COUNT(scene_widths); w++)
            if ((scene_heights[h] < 40 || scene_widths[w] % 16 == 1) && takes_turn(t))
                check(t, scene_heights[h], scene_widths[w]);
    /* aligned, so that 8 elements go at once */
    static const int64_t aligned[][2] = {{4, 8},    {12, 24},   {12, 96},   {20, 64},
                                         {12, 768}, {20, 1024}, {12, 3072}, {12, 6144}};
    for (size_t i = 0; i < PROA_COUNT(aligned) && device_mode.narrow != PROA_DTYPE_F32; i++)
        check(t, aligned[i][0], aligned[i][1]);
}
