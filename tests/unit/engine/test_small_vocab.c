/* SPDX-License-Identifier: Apache-2.0
 * test_small_vocab.c - a model of fewer tokens than a request has sequences, beams or candidates, as those of
 * proteins and nucleotides may be: all that were asked for run. The model is a GPT-2 of one layer that the test
 * writes. */
#include "engine_test.h"

#include "base/checked.h"
#include "base/file.h"
#include "base/str.h"
#include <unistd.h>

enum { WIDTH = 16, CONTEXT = 32, TENSORS = 16, NUMBERS_MAX = 4 * WIDTH * WIDTH };

static char folder[] = "/tmp/proa-small-XXXXXX";

static const struct tensor {
    const char *name;
    int rows, cols; /* rows 0: the vocabulary; cols 0: a vector */
} tensors[TENSORS] = {{"h.0.attn.c_attn.bias", 3 * WIDTH, 0},
                      {"h.0.attn.c_attn.weight", WIDTH, 3 * WIDTH},
                      {"h.0.attn.c_proj.bias", WIDTH, 0},
                      {"h.0.attn.c_proj.weight", WIDTH, WIDTH},
                      {"h.0.ln_1.bias", WIDTH, 0},
                      {"h.0.ln_1.weight", WIDTH, 0},
                      {"h.0.ln_2.bias", WIDTH, 0},
                      {"h.0.ln_2.weight", WIDTH, 0},
                      {"h.0.mlp.c_fc.bias", 4 * WIDTH, 0},
                      {"h.0.mlp.c_fc.weight", WIDTH, 4 * WIDTH},
                      {"h.0.mlp.c_proj.bias", WIDTH, 0},
                      {"h.0.mlp.c_proj.weight", 4 * WIDTH, WIDTH},
                      {"ln_f.bias", WIDTH, 0},
                      {"ln_f.weight", WIDTH, 0},
                      {"wpe.weight", CONTEXT, WIDTH},
                      {"wte.weight", 0, WIDTH}};

static void write_file(const char *name, const proa_buf *head, const proa_buf *body)
{
    char path[64];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fwrite(head->ptr, 1, head->len, f);
    if (body) fwrite(body->ptr, 1, body->len, f);
    fclose(f);
}

static void write_config(int vocab)
{
    proa_buf text;
    proa_buf_init(&text, PROA_MIB);
    proa_buf_printf(
        &text,
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"model_type\":\"gpt2\",\"n_embd\":%d,\"n_head\":2,"
        "\"n_layer\":1,\"n_positions\":%d,\"vocab_size\":%d,\"eos_token_id\":0,\"bos_token_id\":0,"
        "\"activation_function\":\"gelu_new\",\"layer_norm_epsilon\":1e-05}",
        WIDTH, CONTEXT, vocab);
    write_file("config.json", &text, NULL);
    proa_buf_release(&text);
}

/* Numbers in [-1, 1), the same in every run. */
static void add_numbers(proa_buf *body, int count)
{
    static uint32_t state = 7;
    for (int i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        float x = (float)(state >> 8) / 0x1p23F - 1;
        proa_buf_append(body, &x, sizeof x);
    }
}

static void write_weights(int vocab)
{
    proa_buf head, body;
    proa_buf_init(&head, PROA_MIB), proa_buf_init(&body, PROA_MIB);
    proa_buf_append(&head, "\0\0\0\0\0\0\0\0{", 9);
    for (int i = 0; i < TENSORS; i++) {
        const struct tensor *t = &tensors[i];
        int rows = t->rows ? t->rows : vocab;
        size_t begin = body.len;
        add_numbers(&body, rows * (t->cols ? t->cols : 1));
        proa_buf_printf(&head, "%s\"transformer.%s\":{\"dtype\":\"F32\",\"shape\":[%d", i ? "," : "", t->name,
                        rows);
        if (t->cols) proa_buf_printf(&head, ",%d", t->cols);
        proa_buf_printf(&head, "],\"data_offsets\":[%zu,%zu]}", begin, body.len);
    }
    proa_buf_char(&head, '}');
    uint64_t length = head.len - 8;
    memcpy(head.ptr, &length, sizeof length);
    write_file("model.safetensors", &head, &body);
    proa_buf_release(&head), proa_buf_release(&body);
}

static proa_engine *open_small(int vocab, const char *ahead)
{
    const proa_engine_options o = {.sequences_max = 16, .kv_tokens = 2048, .threads = 1};
    write_config(vocab);
    write_weights(vocab);
    setenv("PROA_AHEAD", ahead, 1);
    proa_engine *engine = open_or_fail(folder, &o);
    unsetenv("PROA_AHEAD");
    return engine;
}

static void generate(proa_engine *engine, proa_options options, outcome *o)
{
    const int32_t ids[] = {1, 0, 1};
    run_request(engine, (proa_request){.ids = ids, .ids_count = 3, .options = options}, o);
    assert_string_equal(o->error, "");
}

static void all_beams_run(void **state)
{
    static const char *const modes[] = {"host", "1"};
    PROA_UNUSED(state);
    for (int vocab = 2; vocab <= 7; vocab++)
        for (int mode = 0; mode < 2; mode++) {
            proa_engine *engine = open_small(vocab, modes[mode]);
            for (int i = 0; i < 9; i++) {
                outcome o = {.count = 0};
                generate(engine,
                         (proa_options){.beams = 8,
                                        .style = (proa_style)(i % 3),
                                        .max_tokens = 1 + i,
                                        .ignore_eos = i > 5,
                                        .repetition_penalty = i == 4 ? 1.1F : 0},
                         &o);
                assert_in_range(o.beams, 1, 8);
                if (i > 5) assert_int_equal(o.beams, 8);
                for (int k = 1; k < o.beams; k++) assert_true(o.beam_score[k] <= o.beam_score[k - 1]);
                outcome_release(&o);
            }
            proa_engine_close(engine);
        }
}

/* Each draws with its own seed: with 12 of them and 3 tokens, all of the first sequence's length. */
static void all_sequences_run(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = open_small(3, "host");
    proa_options options = {.n = 12, .temperature = 1, .seed = 5, .max_tokens = 6, .ignore_eos = true};
    outcome o = {.count = 0}, best = {.count = 0};
    generate(engine, options, &o);
    assert_int_equal(o.beams, 12);
    assert_int_equal(o.count, 12 * 6);
    options.best_of = 12, options.n = 5;
    generate(engine, options, &best);
    assert_int_equal(best.beams, 5);
    for (int k = 0; k < best.beams; k++) assert_int_equal(best.beam_count[k], 6);
    outcome_release(&o), outcome_release(&best);
    proa_engine_close(engine);
}

/* Of these there are no more than tokens. */
static void candidates_are_the_vocabulary(void **state)
{
    PROA_UNUSED(state);
    proa_engine *engine = open_small(3, "host");
    outcome o = {.count = 0}, fewer = {.count = 0};
    proa_options options = {.penalty_alpha = 0.6F, .top_k = 9, .max_tokens = 8, .ignore_eos = true};
    generate(engine, options, &o);
    options.top_k = 3;
    generate(engine, options, &fewer);
    assert_int_equal(o.count, 8);
    assert_memory_equal(o.ids, fewer.ids, 8 * sizeof *o.ids);
    outcome_release(&o), outcome_release(&fewer);
    proa_engine_close(engine);
}

static int make_folder(void **state)
{
    PROA_UNUSED(state);
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[64];
    PROA_UNUSED(state);
    snprintf(path, sizeof path, "%s/config.json", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_beams_run), cmocka_unit_test(all_sequences_run),
                                       cmocka_unit_test(candidates_are_the_vocabulary)};
    return cmocka_run_group_tests_name("small vocabularies", tests, make_folder, remove_folder);
}
