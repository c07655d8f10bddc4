/* SPDX-License-Identifier: Apache-2.0
 * test_encoded_weights.c - quantised checkpoints computed with the codes that they store, against the same checkpoint
 * decoded to f32 on the CPU. With PROA_TEST_DEVICE=cuda by the device's formats, which must be those of the codes. */
#include "engine_test.h"

static const struct {
    const char *folder;
    const char *quant; /* of proa_info on a device: "none" would mean that the codes were decoded */
    /* Limit of a step of many rows, on a device: with `fp8` activations are rounded to e4m3 there, which alone moves
     * logits of llmc_fp8 by 0.13 in torch. Narrow matrices of deepseek_v3_fp8 are `fp8` too. */
    double many;
} folders[] = {
    {"llmc_fp8", "fp8", 0.3},          {"llmc_w8a8", "int8", 0.02},      {"llmc_w4a16", "int4", 0.02},
    {"llmc_w4a16_asym", "int4", 0.02}, {"autogptq", "int4", 0.02},       {"autogptq_act_order", "int4", 0.02},
    {"autoawq", "int4", 0.02},         {"gptq_act_order", "int4", 0.02}, {"deepseek_v3_fp8", "fp8", 0.3}};

static const char *root = GOLDEN "arch";

#define HOST_LIMIT   0.1  /* share of the largest logit: activations in groups of int8 */
#define DEVICE_LIMIT 0.02 /* in f16 */

enum { SHORT = 5, LONG = 24 }; /* rows for the kernels of few rows, and of many */

static proa_engine *open_on(const char *path, const char *device, const char *dtype)
{
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    proa_engine_options options = {.device = device, .dtype = dtype};
    if (proa_engine_open(&engine, path, &options, &err) != PROA_OK) fail_msg("%s: %s", path, err.text);
    return engine;
}

static outcome logits_of(proa_engine *engine, int32_t count)
{
    static int32_t ids[LONG];
    outcome o = {0};
    for (int i = 0; i < LONG; i++) ids[i] = (i * 7 + 3) % 50;
    run_request(engine, (proa_request){.task = PROA_TASK_ROWS, .ids = ids, .ids_count = count}, &o);
    assert_int_equal(o.finish, PROA_FINISH_END);
    return o;
}

static void compare_logits(const char *folder, proa_engine *mine, proa_engine *exact, int32_t count, double limit)
{
    outcome have = logits_of(mine, count), want = logits_of(exact, count);
    double largest = 0, worst = 0;
    assert_int_equal(have.rows_count, want.rows_count);
    for (int64_t i = 0; i < want.rows_count * want.columns; i++) {
        largest = fmax(largest, fabs((double)want.rows[i]));
        worst = fmax(worst, fabs((double)have.rows[i] - (double)want.rows[i]));
    }
    if (!(worst <= limit * largest))
        fail_msg("%s, %d rows: differs by %.3g of the largest logit", folder, count, worst / largest);
    print_message("%s, %d rows: %.2g of the largest logit\n", folder, count, worst / largest);
    outcome_release(&have);
    outcome_release(&want);
}

static void computes_with_codes(void **state)
{
    PROA_UNUSED(state);
    const char *device = getenv("PROA_TEST_DEVICE");
    for (size_t i = 0; i < PROA_COUNT(folders); i++) {
        char path[PROA_PATH_MAX];
        proa_info info;
        snprintf(path, sizeof path, "%s/%s", root, folders[i].folder);
        proa_engine *mine = open_on(path, device, "auto"), *exact = open_on(path, NULL, "f32");
        proa_engine_info(mine, &info);
        if (device) assert_string_equal(info.quant, folders[i].quant);
        compare_logits(folders[i].folder, mine, exact, SHORT, device ? DEVICE_LIMIT : HOST_LIMIT);
        compare_logits(folders[i].folder, mine, exact, LONG, device ? folders[i].many : HOST_LIMIT);
        proa_engine_close(mine);
        proa_engine_close(exact);
    }
}

/* The argument: a folder in place of tests/golden/arch. */
int main(int argc, char **argv)
{
    if (argc > 1) root = argv[1];
    const struct CMUnitTest tests[] = {cmocka_unit_test(computes_with_codes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
