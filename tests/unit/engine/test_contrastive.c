/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"
#include "engine/decode/contrastive.h"
#include "table_model.h"

/* Made-up states and probabilities, as tools/golden_contrastive.py has them. */
static uint32_t value(uint32_t seed, uint32_t place, uint32_t row, uint32_t column)
{
    return mix(mix(mix(seed ^ place) + row) + column);
}

static void fill_states(float *to, uint32_t seed, uint32_t place, uint32_t rows, uint32_t hidden)
{
    for (uint32_t r = 0; r < rows; r++) {
        uint32_t lean = value(seed, place, r, UINT32_MAX) % 4;
        for (uint32_t i = 0; i < hidden; i++) {
            int32_t x = (int32_t)((value(seed, place, r, i) >> 8) % 2048) - 1024 + (i % 4 == lean ? 3000 : 0);
            to[r * hidden + i] = (float)x / 1024;
        }
    }
}

static void test_goldens(void **state)
{
    (void)state;
    static float rows[64 * 64], probs[64];
    proa_json *root;
    proa_err err = {0};
    if (proa_json_load(&root, PROA_SOURCE_DIR "/tests/golden/contrastive.json", PROA_MIB, &err))
        fail_msg("%s", err.text);
    assert_int_equal(proa_json_len(proa_json_get(root, "cases")), 60);
    for (int64_t n = 0; n < 60; n++) {
        const proa_json *c = proa_json_at(proa_json_get(root, "cases"), n),
                        *chosen = proa_json_get(c, "chosen");
        uint32_t seed = (uint32_t)proa_json_int(proa_json_get(c, "seed"));
        int64_t prompt = proa_json_int(proa_json_get(c, "prompt")), steps = proa_json_len(chosen);
        proa_contrastive_options o = {.k = (int32_t)proa_json_int(proa_json_get(c, "k")),
                                      .alpha = (float)proa_json_double(proa_json_get(c, "alpha")),
                                      .hidden = proa_json_int(proa_json_get(c, "hidden")),
                                      .tokens_max = prompt + steps};
        proa_contrastive *search;
        if (proa_contrastive_new(&search, &o, &err) != PROA_OK) fail_msg("%s", err.text);
        uint64_t allocations = proa_alloc_count();
        fill_states(rows, seed, 0, (uint32_t)prompt, (uint32_t)o.hidden);
        /* in two parts, as prompts come in chunks */
        assert_int_equal(proa_contrastive_add(search, rows, prompt / 2, NULL), PROA_OK);
        assert_int_equal(proa_contrastive_add(search, rows + prompt / 2 * o.hidden, prompt - prompt / 2, NULL),
                         PROA_OK);
        for (uint32_t s = 1; s <= (uint32_t)steps; s++) {
            int32_t index;
            for (uint32_t j = 0; j < (uint32_t)o.k; j++)
                probs[j] = (float)((value(seed, s, j, UINT32_MAX - 1) >> 8) % 1024) / 1024;
            fill_states(rows, seed, s, (uint32_t)o.k, (uint32_t)o.hidden);
            assert_int_equal(proa_contrastive_choose(search, &index, probs, rows, NULL), PROA_OK);
            assert_int_equal(index, proa_json_int(proa_json_at(chosen, s - 1)));
        }
        assert_int_equal(proa_alloc_count(), allocations);
        proa_contrastive_free(search);
    }
    proa_json_free(root);
}

/* By hand: two dimensions, the context points along x. */
static void test_by_hand(void **state)
{
    (void)state;
    proa_contrastive_options o = {.k = 3, .alpha = 0.5F, .hidden = 2, .tokens_max = 4};
    proa_contrastive *c;
    int32_t index;
    assert_int_equal(proa_contrastive_new(&c, &o, NULL), PROA_OK);
    /* no context: by probability; among equals the first */
    assert_int_equal(proa_contrastive_choose(c, &index, (float[]){0.25F, 0.5F, 0.5F},
                                             (float[]){1, 1, 1e30F, 0, 0, 1}, NULL),
                     PROA_OK);
    assert_int_equal(index, 1);
    /* cosines with (1, 0): 1, 0.6, -1; scores 0.45 - 0.5, 0.2 - 0.3, 0.05 + 0.5 */
    const float hidden[] = {7, 0, 3, 4, -1e-30F, 0};
    assert_int_equal(proa_contrastive_choose(c, &index, (float[]){0.9F, 0.4F, 0.1F}, hidden, NULL), PROA_OK);
    assert_int_equal(index, 2);
    /* now (-1, 0) is in the context too: 0.45 - 0.5, 0.2 - 0.3, and zeros, which are like nothing: 0.05 - 0 */
    const float more[] = {7, 0, 3, 4, 0, 0};
    assert_int_equal(proa_contrastive_choose(c, &index, (float[]){0.9F, 0.4F, 0.1F}, more, NULL), PROA_OK);
    assert_int_equal(index, 2);
    proa_contrastive_free(c);
}

static void test_bad_input(void **state)
{
    (void)state;
    proa_contrastive_options o = {.k = 2, .alpha = 0.5F, .hidden = 2, .tokens_max = 2};
    proa_contrastive *c;
    proa_err err = {0};
    int32_t index;
    const float probs[] = {0.5F, 0.25F}, rows[] = {1, 2, 3, 4, 5, 6}, bad[] = {1, 2, NAN, 4},
                no_probs[] = {0.5F, NAN};
    assert_int_equal(proa_contrastive_new(&c, &o, NULL), PROA_OK);
    assert_int_equal(proa_contrastive_add(c, rows, 3, &err), PROA_LIMIT);
    assert_non_null(strstr(err.text, "0 tokens and 3 more, at most 2 have room"));
    err = (proa_err){0};
    assert_int_equal(proa_contrastive_add(c, bad, 2, &err), PROA_INTERNAL);
    assert_non_null(strstr(err.text, "hidden state of token 1 is not finite"));
    assert_int_equal(proa_contrastive_choose(c, &index, probs, bad, NULL), PROA_INTERNAL);
    assert_int_equal(proa_contrastive_choose(c, &index, no_probs, rows, NULL), PROA_INTERNAL);
    /* nothing was appended: both tokens have room */
    assert_int_equal(proa_contrastive_add(c, rows, 2, NULL), PROA_OK);
    assert_int_equal(proa_contrastive_choose(c, &index, probs, rows, NULL), PROA_LIMIT);
    proa_contrastive_free(c);
    proa_contrastive_free(NULL);
}

static void test_refusals(void **state)
{
    (void)state;
    const struct {
        proa_contrastive_options o;
        const char *text;
    } bad[] = {{{.k = 0, .hidden = 4, .tokens_max = 1}, "candidates is 0, must lie in 1..256"},
               {{.k = 257, .hidden = 4, .tokens_max = 1}, "candidates is 257"},
               {{.k = 2, .hidden = 0, .tokens_max = 1}, "hidden size is 0"},
               {{.k = 2, .hidden = INT64_MAX, .tokens_max = 1}, "hidden size is 9223372036854775807"},
               {{.k = 2, .hidden = 4, .tokens_max = INT64_MAX}, "number of tokens is"},
               {{.k = 2, .hidden = 4, .tokens_max = 1, .alpha = 1.5F}, "alpha is 1.5, must lie in 0..1"},
               {{.k = 2, .hidden = 4, .tokens_max = 1, .alpha = NAN}, "alpha is"}};
    for (size_t i = 0; i < PROA_COUNT(bad); i++) {
        proa_contrastive *c = (proa_contrastive *)(void *)&state;
        proa_err err = {0};
        assert_int_equal(proa_contrastive_new(&c, &bad[i].o, &err), PROA_INVALID);
        assert_null(c);
        assert_non_null(strstr(err.text, bad[i].text));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_goldens), cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_bad_input), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
