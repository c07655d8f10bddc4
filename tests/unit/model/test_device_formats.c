/* SPDX-License-Identifier: Apache-2.0
 * test_device_formats.c - which formats a GPU would get for quantised checkpoints, and where its matrices begin. The
 * device is the host's, told to be another one, with the plain reference as its kernels: it has every format. */
#include "base/compiler.h"
#include "kernels/ops.h"
#include "kernels/reference/reference.h"
#include "model/lora/lora.h"
#include "model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <cmocka.h>

#define GOLDEN PROA_SOURCE_DIR "/tests/golden/arch/"

static proa_device gpu;
static proa_ops reference;

static proa_model *prepare(const char *folder, const char *quant, proa_pool *pool)
{
    char path[1024];
    proa_model *m = NULL;
    proa_err err = {.status = PROA_OK};
    proa_model_options options = {.quant = quant, .rows_max = 8, .head_rows = 8};
    snprintf(path, sizeof path, GOLDEN "%s", folder);
    if (proa_model_prepare(&m, path, &options, &gpu, pool, &err) != PROA_OK) fail_msg("%s", err.text);
    return m;
}

/* How many matrices have this format; the others must be f16, or fp8 where one block of fp8g is a whole row. */
static int count_format(const proa_model *m, proa_wfmt format)
{
    int count = 0;
    for (int s = 0; s < PROA_STACK_COUNT; s++)
        for (int64_t i = 0; i < (m->params[s].layers + 1) * PROA_SLOT_COUNT; i++) {
            const proa_param *p = &m->params[s].param[i];
            if (!proa_param_is_matrix(p)) continue;
            bool row = format == PROA_WFMT_FP8G && p->matrix.format == PROA_WFMT_FP8 && p->cols <= 128;
            if (p->matrix.format == format) count++;
            else if (p->matrix.format != PROA_WFMT_F16 && !row)
                fail_msg("%s beside %s", proa_wfmt_name(p->matrix.format), proa_wfmt_name(format));
        }
    return count;
}

static void keeps_codes(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *folder;
        proa_wfmt format;
        int count; /* Llama: of 2 layers qkv, o, gate and up, down */
    } cases[] = {{"llmc_fp8", PROA_WFMT_FP8, 8},
                 {"llmc_w8a8", PROA_WFMT_I8W, 8},
                 {"llmc_w4a16", PROA_WFMT_I4A32, 8},
                 {"llmc_w4a16_asym", PROA_WFMT_I4A32, 8},
                 {"autogptq_act_order", PROA_WFMT_I4A32, 8},
                 {"gptq_act_order", PROA_WFMT_I4A32, 8},
                 {"deepseek_v3_fp8", PROA_WFMT_FP8G, 10}};
    proa_pool *pool = proa_pool_new(1);
    for (size_t i = 0; i < PROA_COUNT(cases); i++) {
        proa_model *m = prepare(cases[i].folder, NULL, pool);
        int count = count_format(m, cases[i].format);
        if (count != cases[i].count) fail_msg("%s: %d matrices keep codes", cases[i].folder, count);
        assert_int_equal(m->formats.main, cases[i].format);
        assert_int_equal(m->formats.kv, PROA_DTYPE_F16);
        proa_model_free(m);
    }
    proa_pool_free(pool);
}

/* How many matrices have adapters behind them. Each begins where the one before ends, with what is behind that. */
static int count_stacks(const char *quant, proa_lora_type type, proa_pool *pool)
{
    proa_model *m = NULL;
    proa_err err = {.status = PROA_OK};
    proa_model_options options = {.dtype = "bf16",
                                  .quant = quant,
                                  .rows_max = 8,
                                  .head_rows = 8,
                                  .lora_slots = 1,
                                  .lora_rank = 16,
                                  .lora_type = type};
    int found = 0;
    proa_status status = proa_model_prepare(&m, GOLDEN "llama", &options, &gpu, pool, &err);
    if (status != PROA_OK) fail_msg("%s", err.text);
    const proa_params *params = &m->params[PROA_STACK_DECODER];
    for (int64_t i = 0; i < params->layers * PROA_SLOT_COUNT; i++) {
        const proa_param *p = &params->param[i];
        if (!p->lora || !p->lora->slots) continue;
        assert_int_equal(p->matrix.stride % PROA_LORA_MATRIX_ALIGN, 0);
        found++;
    }
    proa_model_free(m);
    return found;
}

static void adapters_are_behind_matrices(void **state)
{
    PROA_UNUSED(state);
    proa_pool *pool = proa_pool_new(1);
    assert_int_equal(count_stacks("none", PROA_LORA_EXACT, pool), 8);
    assert_int_equal(count_stacks("fp8", PROA_LORA_EXACT, pool), 0);
    assert_int_equal(count_stacks("fp8", PROA_LORA_AUTO, pool), 8);
    assert_int_equal(count_stacks("fp8", PROA_LORA_FP8, pool), 8);
    assert_int_equal(count_stacks("int8", PROA_LORA_AUTO, pool), 0);
    proa_pool_free(pool);
}

/* fp8 adapters are refused where no matrix is in FP8. */
static void fp8_adapters_need_fp8_weights(void **state)
{
    PROA_UNUSED(state);
    proa_pool *pool = proa_pool_new(1);
    proa_model *m = NULL;
    proa_err err = {.status = PROA_OK};
    proa_model_options options = {
        .rows_max = 8, .head_rows = 8, .lora_slots = 1, .lora_rank = 16, .lora_type = PROA_LORA_FP8};
    assert_int_equal(proa_model_prepare(&m, GOLDEN "llama", &options, &gpu, pool, &err), PROA_UNSUPPORTED);
    assert_non_null(strstr(err.text, "lora-dtype 'fp8'"));
    proa_pool_free(pool);
}

int main(void)
{
    proa_device *host;
    proa_err err = {.status = PROA_OK};
    if (proa_device_open(&host, "cpu", &err) != PROA_OK) return 1;
    gpu = *host, gpu.host = false, gpu.name = "test";
    proa_reference_fill(&reference);
    gpu.ops = &reference;
    const struct CMUnitTest tests[] = {cmocka_unit_test(keeps_codes),
                                       cmocka_unit_test(adapters_are_behind_matrices),
                                       cmocka_unit_test(fp8_adapters_need_fp8_weights)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    proa_device_close(host);
    return failed;
}
