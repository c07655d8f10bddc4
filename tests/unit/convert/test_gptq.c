/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "convert/calibrate/gptq.h"
#include "convert/calibrate/smooth.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t int_of(const proa_json *c, const char *key)
{
    return proa_json_int(proa_json_get(c, key));
}

static float *numbers_of(const proa_json *c, const char *key, int64_t count)
{
    const proa_json *list = proa_json_get(c, key);
    float *out = proa_malloc((size_t)count * sizeof *out);
    assert_int_equal(proa_json_len(list), count);
    for (int64_t i = 0; i < count; i++) out[i] = (float)proa_json_double(proa_json_at(list, i));
    return out;
}

/* A case of the golden, and the matrix that is made of it. */
typedef struct gptq_case {
    const proa_json *json;
    proa_codes m;
    proa_gptq_inputs in;
} gptq_case;

static void open_case(gptq_case *c, const proa_json *json, proa_pool *pool)
{
    static const char *const kinds[] = {"int4", "int8", "fp8"};
    int kind = 0;
    while (!proa_str_is(proa_json_str(proa_json_get(json, "kind")), kinds[kind])) kind++;
    c->json = json;
    c->m = (proa_codes){.kind = (proa_codes_kind)kind, .N = int_of(json, "N"), .K = int_of(json, "K")};
    c->m.group = int_of(json, "group");
    c->m.asymmetric = proa_json_bool(proa_json_get(json, "asymmetric"));
    c->m.scale_dtype = kind == PROA_CODES_INT4 ? PROA_DTYPE_F16 : PROA_DTYPE_F32;
    int64_t count = c->m.N * c->m.K, groups = c->m.N * (c->m.K / c->m.group);
    c->m.numbers = numbers_of(json, "numbers", count);
    c->m.codes = proa_malloc((size_t)count);
    c->m.scales = proa_malloc((size_t)groups * sizeof *c->m.scales);
    c->m.zeros = c->m.asymmetric ? proa_malloc((size_t)groups) : NULL;
    proa_gptq_factor(&c->in, numbers_of(json, "hessian", c->m.K * c->m.K), c->m.K, pool);
}

static void close_case(gptq_case *c)
{
    free((void *)c->m.numbers);
    free(c->m.codes);
    free(c->m.scales);
    free(c->m.zeros);
    proa_gptq_release(&c->in);
}

/* The factor within 1e-4 of its diagonal, the order exactly. */
static void check_factor(const gptq_case *c)
{
    int64_t K = c->m.K;
    const proa_json *order = proa_json_get(c->json, "order");
    float *want = numbers_of(c->json, "factor", K * K);
    for (int64_t i = 0; i < K; i++) {
        assert_int_equal(c->in.order[i], proa_json_int(proa_json_at(order, i)));
        for (int64_t j = 0; j < K; j++)
            if (!(fabsf(c->in.factor[i * K + j] - want[i * K + j]) <= 1e-4f * want[i * K + i]))
                fail_msg("factor [%d, %d]: %.8g, want %.8g", (int)i, (int)j, (double)c->in.factor[i * K + j],
                         (double)want[i * K + j]);
    }
    free(want);
}

static void check_codes(const gptq_case *c, const char *key)
{
    const proa_codes *m = &c->m;
    const proa_json *want = proa_json_get(c->json, key);
    float *levels = numbers_of(want, "levels", m->N * m->K);
    float *scales = numbers_of(want, "scales", m->N * (m->K / m->group));
    for (int64_t i = 0; i < m->N * m->K; i++)
        if (proa_codes_unit(m, i / m->K, i % m->K) != levels[i])
            fail_msg("%s: level %d is %g, want %g", key, (int)i,
                     (double)proa_codes_unit(m, i / m->K, i % m->K), (double)levels[i]);
    for (int64_t i = 0; i < m->N * (m->K / m->group); i++)
        if (!(fabsf(m->scales[i] - scales[i]) <= 1e-6f * scales[i]))
            fail_msg("%s: scale %d is %.9g, want %.9g", key, (int)i, (double)m->scales[i], (double)scales[i]);
    double error = proa_json_double(proa_json_get(want, "error"));
    assert_true(fabs(proa_gptq_error(m, &c->in) - error) <= 1e-3 * error);
    free(levels);
    free(scales);
}

static void test_goldens(void **state)
{
    (void)state;
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, PROA_SOURCE_DIR "/tests/golden/gptq.json", PROA_MIB, &err))
        fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(root, "cases");
    assert_int_equal(proa_json_len(cases), 4);
    for (int64_t n = 0; n < 4; n++)
        for (int threads = 1; threads <= 3; threads += 2) {
            gptq_case c;
            proa_pool *pool = proa_pool_new(threads);
            open_case(&c, proa_json_at(cases, n), pool);
            check_factor(&c);
            proa_gptq_round(&c.m, &c.in, 0, pool);
            check_codes(&c, "feedback");
            for (int64_t i = 0; c.m.asymmetric && i < proa_json_len(proa_json_get(c.json, "zeros")); i++)
                assert_int_equal(c.m.zeros[i], proa_json_int(proa_json_at(proa_json_get(c.json, "zeros"), i)));
            proa_gptq_round(&c.m, &c.in, (int)int_of(c.json, "sweeps"), pool);
            check_codes(&c, "descent");
            close_case(&c);
            proa_pool_free(pool);
        }
    proa_json_free(root);
}

/* Without inputs each number takes the nearest code, whatever its neighbours are. */
static void test_unknown_inputs(void **state)
{
    (void)state;
    enum { K = 16 };
    float numbers[K], scales[2];
    uint8_t codes[K];
    proa_gptq_inputs in;
    proa_codes m = {.kind = PROA_CODES_INT4, .N = 1, .K = K, .group = 8, .scale_dtype = PROA_DTYPE_F32};
    m.numbers = numbers, m.codes = codes, m.scales = scales;
    for (int i = 0; i < K; i++) numbers[i] = i < 8 ? (float)(i - 4) : 0;
    proa_pool *pool = proa_pool_new(1);
    proa_gptq_unknown(&in, K);
    proa_gptq_round(&m, &in, 4, pool);
    for (int i = 0; i < 8; i++)
        assert_true(proa_codes_unit(&m, 0, i) == fmaxf(-8, fminf(7, rintf(numbers[i] / scales[0]))));
    assert_true(scales[1] == 0);
    for (int i = 8; i < K; i++) assert_int_equal(codes[i], 8);
    proa_gptq_release(&in);
    proa_pool_free(pool);
}

/* A Hessian of zeros, or with infinity, gives plain rounding. */
static void test_inputs_that_say_nothing(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        proa_gptq_inputs in;
        float *hessian = proa_calloc(16, sizeof *hessian);
        if (i) hessian[5] = INFINITY;
        proa_gptq_factor(&in, hessian, 4, NULL);
        assert_null(in.factor);
        assert_null(in.hessian);
        assert_true(in.weight[3] == 1);
        proa_gptq_release(&in);
    }
}

/* ---- smoothing ---- */

static void expect_near(const float *got, const float *want, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * fabsf(want[i])))
            fail_msg("%d: %.9g, want %.9g", (int)i, (double)got[i], (double)want[i]);
}

static void check_smooth(const proa_json *c, proa_pool *pool)
{
    int64_t K = int_of(c, "K"), N = int_of(c, "N");
    float *numbers = numbers_of(c, "numbers", N * K), *hessian = numbers_of(c, "hessian", K * K);
    float *mean = numbers_of(c, "mean", K), *want = numbers_of(c, "scale", K), scale[64];
    proa_smooth_sample s = {.kind = PROA_CODES_INT4, .N = N, .K = K, .group = int_of(c, "group")};
    s.asymmetric = proa_json_bool(proa_json_get(c, "asymmetric"));
    s.numbers = numbers, s.hessian = hessian, s.mean = mean;
    float power = proa_smooth_awq(scale, &s, pool);
    assert_true(fabs((double)power - proa_json_double(proa_json_get(c, "power"))) < 1e-6);
    expect_near(scale, want, K);
    float *most_x = numbers_of(c, "most_x", K), *most_w = numbers_of(c, "most_w", K);
    float *smooth = numbers_of(c, "smoothquant", K);
    proa_smooth_activations(scale, most_x, most_w, K);
    expect_near(scale, smooth, K);
    free(numbers), free(hessian), free(mean), free(want), free(most_x), free(most_w), free(smooth);
}

static void test_smooth_goldens(void **state)
{
    (void)state;
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, PROA_SOURCE_DIR "/tests/golden/gptq.json", PROA_MIB, &err))
        fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(root, "smooth");
    proa_pool *pool = proa_pool_new(2);
    assert_int_equal(proa_json_len(cases), 2);
    for (int64_t n = 0; n < 2; n++) check_smooth(proa_json_at(cases, n), pool);
    proa_pool_free(pool);
    proa_json_free(root);
}

/* Whatever the type rounds, weight times scale is what it was; what cannot be divided stays. */
static void test_norms_take_scales(void **state)
{
    (void)state;
    enum { K = 6 };
    const float before[K] = {0.8f, -1.25f, 0, 3e4f, 1.5f, 0.1f};
    for (int plus = 0; plus < 2; plus++) {
        float weight[K], bias[K], scale[K] = {3, 0.7f, 2, 1e-30f, 1e9f, 1.1f};
        for (int i = 0; i < K; i++) weight[i] = before[i] - (float)plus, bias[i] = 1;
        proa_smooth_norm(weight, bias, (float)plus, PROA_DTYPE_BF16, scale, K);
        for (int i = 0; i < K; i++) {
            float whole = before[i] - (float)plus + (float)plus;
            assert_true(weight[i] == proa_codes_round_float(PROA_DTYPE_BF16, weight[i]) || scale[i] == 1);
            assert_true(fabsf((weight[i] + (float)plus) * scale[i] - whole) <= 1e-6f * fabsf(whole));
            assert_true(fabsf(bias[i] * scale[i] - 1) <= 1e-6f);
        }
        assert_true(fabsf(scale[0] / 3 - 1) < 0.01f && scale[2] == 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_goldens),
        cmocka_unit_test(test_unknown_inputs),
        cmocka_unit_test(test_inputs_that_say_nothing),
        cmocka_unit_test(test_smooth_goldens),
        cmocka_unit_test(test_norms_take_scales),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
