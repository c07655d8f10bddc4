/* SPDX-License-Identifier: Apache-2.0
 * test_pooling.c - the embedding of an encoder where neither its folder nor the request names a pooling: the mean of
 * its rows, of DPR's encoders the first one, of CLIP's text encoder the last one. */
#include "rig.h"

/* The embedding of seven tokens, with a pooling or none (NULL); returns its width. */
static int64_t embed(float to[64], const char *row, const char *pooling)
{
    static const int32_t ids[] = {9, 41, 7, 120, 33, 58, 198};
    char folder[PROA_PATH_MAX];
    rig g;
    snprintf(folder, sizeof folder, GOLDEN "arch/%s", row);
    rig_open(&g, &proa_backend_engine, "backend: \"engine\"", folder);
    proa_infer *r = ask();
    put_i32(r, "input_ids", ids, 7);
    param_text(r, "task", "embed");
    if (pooling) param_text(r, "pooling", pooling);
    const proa_reply *reply = only(run(&g, r));
    int64_t width = (int64_t)(out(reply, "embedding")->bytes / sizeof(float));
    assert_true(width <= 64);
    memcpy(to, floats(reply, "embedding"), (size_t)width * sizeof(float));
    forget(r);
    rig_close(&g);
    return width;
}

static void defaults(void **state)
{
    PROA_UNUSED(state);
    static const struct {
        const char *row, *pooling, *other;
    } rows[] = {{"dpr", "cls", "mean"}, {"clip_text", "last", "mean"}, {"bert", "mean", "cls"}};
    for (size_t i = 0; i < PROA_COUNT(rows); i++) {
        float plain[64], named[64], other[64];
        int64_t width = embed(plain, rows[i].row, NULL);
        assert_int_equal(embed(named, rows[i].row, rows[i].pooling), width);
        assert_int_equal(embed(other, rows[i].row, rows[i].other), width);
        assert_memory_equal(plain, named, (size_t)width * sizeof(float));
        assert_memory_not_equal(plain, other, (size_t)width * sizeof(float));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(defaults)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
