/* SPDX-License-Identifier: Apache-2.0
 * linear_amx.c - int8 and bf16 products by AMX: a multiplication takes 16 rows of x and 16 outputs over 64 bytes of
 * k. The packed panels are what its tiles read, at a stride of one step: so all levels share them. Tiles are always
 * whole: rows beyond the last hold whatever is in the scratch (the driver reserves memory for them), and their sums
 * are not used. int8 sums are exact, so few rows may go by VNNI, which is as fast at reading weights; bf16 sums have
 * AMX's own order (of 16 pairs the first of each and the second of each, then both, then the earlier sum), so a single
 * row uses AMX too. */
#include "kernels/cpu/linear.h"
#include "kernels/cpu/linear_width512.h"
#include "kernels/cpu/overlay.h"

#define TILE_ROWS  16
#define TILE_STEPS 16 /* of 4 bytes */
#define STEP_BYTES 128
#define AHEAD      4096 /* bytes */

/* GCC does not know that a tile load reads memory: this barrier keeps the writes before it. */
#define WRITTEN()  __asm__ volatile("" ::: "memory")

/* Eight tiles of 16 rows by 64 bytes: four of sums, two of x, two of weights. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;

static void enter_tiles(void)
{
    static const tile_config config = {
        .palette = 1, .row_bytes = {64, 64, 64, 64, 64, 64, 64, 64}, .rows = {16, 16, 16, 16, 16, 16, 16, 16}};
    _tile_loadconfig(&config);
}

/* Else every switch of threads saves 8 KB from here on. */
static void leave_tiles(void)
{
    _tile_release();
}

static PROA_ALWAYS_INLINE void fetch_ahead(const char *w)
{
    for (int i = 0; i < TILE_STEPS * STEP_BYTES; i += 64) _mm_prefetch(w + AHEAD + i, _MM_HINT_T0);
}

/* One multiplication deep: 16 or 32 rows (tall) with the 32 outputs of a panel. */
#define STEP(DOT, tall, x, x_stride, w)                                                                      \
    do {                                                                                                     \
        _tile_loadd(6, w, STEP_BYTES);                                                                       \
        _tile_loadd(7, (w) + STEP_BYTES / 2, STEP_BYTES);                                                    \
        _tile_loadd(4, x, x_stride);                                                                         \
        DOT(0, 4, 6);                                                                                        \
        DOT(1, 4, 7);                                                                                        \
        if (tall) {                                                                                          \
            _tile_loadd(5, (x) + TILE_ROWS * (x_stride), x_stride);                                          \
            DOT(2, 5, 6);                                                                                    \
            DOT(3, 5, 7);                                                                                    \
        }                                                                                                    \
    } while (0)

/* What is left of k, behind it zeros: x's own padding may hold anything, and NaN times 0 is no number. */
typedef struct k_tail {
    char x[2 * TILE_ROWS][TILE_STEPS * 4];
    char w[TILE_STEPS][STEP_BYTES];
} k_tail;

static void k_tail_fill(k_tail *r, const char *x, int64_t x_stride, int rows, const char *w, int64_t steps)
{
    memset(r, 0, sizeof *r);
    for (int i = 0; i < rows; i++) memcpy(r->x[i], x + i * x_stride, (size_t)steps * 4);
    memcpy(r->w, w, (size_t)steps * STEP_BYTES);
    WRITTEN();
}

#define DEFINE_PANEL(name, DOT)                                                                                \
    static PROA_ALWAYS_INLINE void name(const proa_tile *t, const char *w, char *sums, const bool tall)        \
    {                                                                                                          \
        const int64_t whole = t->steps / TILE_STEPS * TILE_STEPS, stride = t->sums_stride * 4;                 \
        _tile_zero(0);                                                                                         \
        _tile_zero(1);                                                                                         \
        if (tall) _tile_zero(2);                                                                               \
        if (tall) _tile_zero(3);                                                                               \
        for (int64_t s = 0; s < whole; s += TILE_STEPS) {                                                      \
            if (!tall) fetch_ahead(w + s * STEP_BYTES);                                                        \
            STEP(DOT, tall, t->x + s * 4, t->x_stride, w + s * STEP_BYTES);                                    \
        }                                                                                                      \
        if (whole < t->steps) {                                                                                \
            k_tail r;                                                                                          \
            k_tail_fill(&r, t->x + whole * 4, t->x_stride, t->rows, w + whole * STEP_BYTES, t->steps - whole); \
            STEP(DOT, tall, r.x[0], (int64_t)sizeof r.x[0], r.w[0]);                                           \
        }                                                                                                      \
        _tile_stored(0, sums, stride);                                                                         \
        _tile_stored(1, sums + 64, stride);                                                                    \
        if (tall) _tile_stored(2, sums + TILE_ROWS * stride, stride);                                          \
        if (tall) _tile_stored(3, sums + TILE_ROWS * stride + 64, stride);                                     \
    }                                                                                                          \
    static void tile_##name(const proa_tile *t)                                                                \
    {                                                                                                          \
        for (int64_t p = 0; p < t->panels; p++) {                                                              \
            const char *w = t->w + p * t->panel_bytes;                                                         \
            char *sums = (char *)t->sums + p * PROA_PANEL * 4;                                                 \
            if (t->rows > TILE_ROWS) name(t, w, sums, true);                                                   \
            else name(t, w, sums, false);                                                                      \
        }                                                                                                      \
    }

DEFINE_PANEL(i8, _tile_dpbusd)
DEFINE_PANEL(bf16dot, _tile_dpbf16ps)

static proa_linear_isa amx, vnni; /* written once, by the overlay */
static void (*tile_skinny_i8)(const proa_tile *t);

static void tile_any_i8(const proa_tile *t)
{
    if (t->rows <= PROA_SKINNY_MAX) tile_skinny_i8(t);
    else tile_i8(t);
}

static const proa_linear_isa *isa_of(const proa_weight *w)
{
    return w->format == PROA_WFMT_I8 || w->format == PROA_WFMT_BF16DOT ? &amx : &vnni;
}

static void linear_amx(proa_ctx *c, proa_view y, proa_view x, const proa_weight *w, const proa_epilogue *e)
{
    proa_linear_run(c, y, x, w, e, isa_of(w));
}

static void experts_amx(proa_ctx *c, proa_view y, proa_view x, proa_view weights, const int32_t *ids,
                        const proa_experts *e)
{
    proa_experts_run(c, y, x, weights, ids, e, isa_of(e->up), isa_of(e->down));
}

void proa_overlay_linear_amx(proa_ops *ops)
{
    proa_linear_vnni_isa(&amx);
    vnni = amx;
    tile_skinny_i8 = amx.tile[PROA_WFMT_I8];
    amx.tile[PROA_WFMT_I8] = tile_any_i8;
    amx.tile[PROA_WFMT_BF16DOT] = tile_bf16dot;
    amx.rows_max = 2 * TILE_ROWS;
    amx.rows_whole = TILE_ROWS;
    amx.speed = 32;
    amx.enter = enter_tiles;
    amx.leave = leave_tiles;
    ops->linear = linear_amx;
    ops->experts = experts_amx;
}
