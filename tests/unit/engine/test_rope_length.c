/* SPDX-License-Identifier: Apache-2.0
 * test_rope_length.c - models whose rotary frequencies depend on the length of a sequence: what a sequence gives
 * depends neither on how its prompt is cut into steps nor on the lengths of others, and LongRoPE's two lists of factors
 * are chosen by the length that it can come to. */
#include "engine_test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LONG = 40, SHORT = 9 };

static const int32_t *prompt_ids(void)
{
    static int32_t ids[LONG];
    for (int i = 0; i < LONG; i++) ids[i] = 3 + i * 37 % 190;
    return ids;
}

static proa_engine *open_steps(const char *path, int32_t step_tokens)
{
    return open_or_fail(path, &(proa_engine_options){.dtype = "f32", .step_tokens = step_tokens});
}

static outcome generate(proa_engine *engine, int64_t prompt, int32_t tokens)
{
    outcome o = {0};
    run_request(engine,
                (proa_request){.ids = prompt_ids(),
                               .ids_count = prompt,
                               .options = {.max_tokens = tokens, .ignore_eos = true}},
                &o);
    return o;
}

static bool same(const outcome *a, const outcome *b)
{
    return a->count == b->count && memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) == 0;
}

/* A prompt in five steps of eight rows gives what it gives in one step. */
static void chunks_are_one_prompt(void **state)
{
    proa_engine *whole = open_steps(*state, 64), *parts = open_steps(*state, 8);
    outcome a = generate(whole, LONG, 12), b = generate(parts, LONG, 12);
    assert_int_equal(a.count, 12);
    assert_true(same(&a, &b));
    outcome_release(&a), outcome_release(&b);
    proa_engine_close(whole);
    proa_engine_close(parts);
}

static void neighbours_have_their_own_length(void **state)
{
    proa_engine *engine = open_steps(*state, 64);
    outcome together[2] = {{0}}, alone[2];
    const int64_t length[] = {SHORT, LONG};
    for (int i = 0; i < 2; i++) {
        alone[i] = generate(engine, length[i], 12);
        submit_or_fail(engine,
                       (proa_request){.ids = prompt_ids(),
                                      .ids_count = length[i],
                                      .options = {.max_tokens = 12, .ignore_eos = true}},
                       &together[i]);
        if (i == 1) proa_engine_run(engine);
    }
    for (int i = 0; i < 2; i++) {
        assert_true(same(&together[i], &alone[i]));
        outcome_release(&together[i]), outcome_release(&alone[i]);
    }
    proa_engine_close(engine);
}

/* ---- LongRoPE with one of its lists in the place of both ---- */

static void copy_file(const char *from, const char *to, const char *name)
{
    char path[PROA_PATH_MAX], target[PROA_PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", from, name);
    snprintf(target, sizeof target, "%s/%s", to, name);
    assert_int_equal(symlink(path, target), 0);
}

/* A configuration whose two lists of factors are both the list `kept` of the model in `from`. */
static void write_config(const char *from, const char *to, const char *kept, const char *gone)
{
    char path[PROA_PATH_MAX];
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, "%s/config.json", from);
    assert_int_equal(proa_json_load(&json, path, 1 << 20, &err), PROA_OK);
    const proa_json *list = proa_json_get(proa_json_get(json, "rope_scaling"), kept);
    snprintf(path, sizeof path, "%s/config.json", to);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fprintf(f, "{\"architectures\":[\"Phi3ForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":128,"
               "\"max_position_embeddings\":128,\"num_attention_heads\":4,\"num_hidden_layers\":2,"
               "\"original_max_position_embeddings\":32,\"rms_norm_eps\":1e-05,\"vocab_size\":200,"
               "\"rope_scaling\":{\"type\":\"longrope\"");
    for (int twice = 0; twice < 2; twice++) {
        fprintf(f, ",\"%s\":[", twice ? gone : kept);
        for (int64_t i = 0; i < proa_json_len(list); i++)
            fprintf(f, "%s%.9g", i ? "," : "", proa_json_double(proa_json_at(list, i)));
        fprintf(f, "]");
    }
    fprintf(f, "}}");
    fclose(f);
    proa_json_free(json);
}

/* 20 tokens of the prompt and 12 new ones stay within 32 positions, 20 and 13 do not. */
static void long_factors_from_the_first_token(void **state)
{
    static const char *const lists[] = {"short_factor", "long_factor"};
    const char *path = *state;
    proa_engine *both = open_steps(path, 64);
    for (int i = 0; i < 2; i++) {
        char dir[] = "/tmp/proa-rope-XXXXXX", name[64];
        assert_non_null(mkdtemp(dir));
        write_config(path, dir, lists[i], lists[1 - i]);
        copy_file(path, dir, "model.safetensors");
        proa_engine *one = open_steps(dir, 64);
        outcome within[2] = {generate(both, 20, 12), generate(one, 20, 12)};
        outcome beyond[2] = {generate(both, 20, 13), generate(one, 20, 13)};
        assert_int_equal(same(&within[0], &within[1]), i == 0);
        assert_int_equal(same(&beyond[0], &beyond[1]), i == 1);
        for (int k = 0; k < 2; k++) outcome_release(&within[k]), outcome_release(&beyond[k]);
        proa_engine_close(one);
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "%s/%s", dir, k ? "config.json" : "model.safetensors");
            unlink(name);
        }
        rmdir(dir);
    }
    proa_engine_close(both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {ON(chunks_are_one_prompt, "llama_dynamic"),
                                       ON(chunks_are_one_prompt, "phi3_longrope"),
                                       ON(chunks_are_one_prompt, "qwen"),
                                       ON(neighbours_have_their_own_length, "llama_dynamic"),
                                       ON(neighbours_have_their_own_length, "qwen"),
                                       ON(neighbours_have_their_own_length, "phi3_longrope"),
                                       ON(long_factors_from_the_first_token, "phi3_longrope")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
