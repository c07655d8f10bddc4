/* SPDX-License-Identifier: Apache-2.0
 * test_adapters_mixed.c - low-rank adapters from TensorRT-LLM's tensors: equal to PEFT's goldens; and 32 of them beside
 * everything else that a batch can hold, in 4 slots: prompt lookup, preemption, grammars, the prefix cache, beams. One
 * by one equals batched, bit for bit on the CPU. Adapters are unloaded while requests use them. */
#include "golden_rows.h"

#include "base/checked.h"
#include "weights/weights.h"

/* ---- TensorRT-LLM's tensors of PEFT's folders ---- */

enum { MODULES_MAX = 64 };

typedef struct tensors {
    int32_t config[3 * MODULES_MAX];
    float *weights;
    int64_t rows, width;
} tensors;

static void append_matrix(float *to, const proa_weights_tensor *t, float scale)
{
    int64_t cols = t->source.view.shape[1];
    for (int64_t i = 0; i < t->source.view.shape[0]; i++)
        proa_tensor_source_read(&t->source, i, 0, cols, to + i * cols);
    for (int64_t i = 0; i < t->source.view.shape[0] * cols; i++) to[i] *= scale;
}

/* One module of one layer, if the folder has it. */
static void append_module(tensors *out, const proa_weights *w, const char *module, int32_t id, int32_t layer,
                          float scale)
{
    char name[256];
    snprintf(name, sizeof name, "base_model.model.%s.lora_A.weight", module);
    const proa_weights_tensor *a = proa_weights_find(w, name);
    snprintf(name, sizeof name, "base_model.model.%s.lora_B.weight", module);
    const proa_weights_tensor *b = proa_weights_find(w, name);
    if (!a || !b) fail_msg("no %s", name);
    int64_t rank = a->source.view.shape[0], K = a->source.view.shape[1], N = b->source.view.shape[0];
    assert_true(out->rows < MODULES_MAX && rank * (K + N) <= out->width);
    memcpy(out->config + 3 * out->rows, (const int32_t[]){id, layer, (int32_t)rank}, 3 * sizeof(int32_t));
    append_matrix(out->weights + out->rows * out->width, a, 1);
    append_matrix(out->weights + out->rows * out->width + rank * K, b, scale);
    out->rows++;
}

typedef struct naming {
    const char *format; /* with the layer */
    int32_t id;
} naming;

/* In TensorRT-LLM's words the gate is mlp_h_to_4h, and the other matrix mlp_gate. */
static const naming llama_names[] = {
    {"model.layers.%d.self_attn.q_proj", 1}, {"model.layers.%d.self_attn.k_proj", 2},
    {"model.layers.%d.self_attn.v_proj", 3}, {"model.layers.%d.self_attn.o_proj", 4},
    {"model.layers.%d.mlp.gate_proj", 5},    {"model.layers.%d.mlp.up_proj", 7},
    {"model.layers.%d.mlp.down_proj", 6},    {NULL, 0}};
static const naming gpt2_names[] = {{"transformer.h.%d.attn.c_attn", 0},
                                    {"transformer.h.%d.attn.c_proj", 4},
                                    {"transformer.h.%d.mlp.c_fc", 5},
                                    {"transformer.h.%d.mlp.c_proj", 6},
                                    {NULL, 0}};

static void read_folder(tensors *out, const char *folder, const naming *names, float scale)
{
    char path[512], module[128];
    proa_weights *w = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, "%s/adapter_model.safetensors", folder);
    if (proa_weights_open(&w, path, &err) != PROA_OK) fail_msg("%s", err.text);
    *out = (tensors){.width = 4096};
    out->weights = calloc((size_t)(MODULES_MAX * out->width), sizeof *out->weights);
    for (int32_t layer = 0; layer < 2; layer++)
        for (const naming *n = names; n->format; n++) {
            snprintf(module, sizeof module, n->format, (int)layer);
            append_module(out, w, module, n->id, layer, scale);
        }
    proa_weights_close(w);
}

static void load_rows(proa_engine *engine, const char *name, const tensors *t)
{
    proa_err err = {.status = PROA_OK};
    proa_adapter_rows rows = {t->weights, t->config, t->rows, t->width};
    if (proa_engine_load_adapter_rows(engine, name, &rows, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void check_golden(const char *model, const naming *names, tensors *t)
{
    char path[512], folder[512];
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    snprintf(folder, sizeof folder, GOLDEN "adapters/%s/a", model);
    snprintf(path, sizeof path, GOLDEN "arch/%s", model);
    proa_engine *engine = open_or_fail(path, &(proa_engine_options){.dtype = "f32", .adapter_slots = 2});
    read_folder(t, folder, names, 12.0F / 4); /* lora_alpha / r */
    load_rows(engine, "7", t);
    snprintf(path, sizeof path, "%s/golden.json", folder);
    if (proa_json_load(&json, path, 64 << 20, &err) != PROA_OK) fail_msg("%s", err.text);
    const proa_json *cases = proa_json_get(json, "cases");
    for (int64_t k = 0; k < proa_json_len(cases); k++)
        golden_check_adapter(engine, "7", proa_json_at(cases, k));
    proa_json_free(json);
    proa_engine_close(engine);
}

static void equal_to_goldens(void **state)
{
    tensors t;
    PROA_UNUSED(state);
    check_golden("llama", llama_names, &t);
    free(t.weights);
    check_golden("gpt2", gpt2_names, &t);
    free(t.weights);
}

/* attn_q, attn_k and attn_v of a model with one qkv matrix: their ranks follow each other in it. */
static void parts_of_a_piece(void **state)
{
    enum { H = 64 };
    tensors t, parts = {.width = 4096};
    int32_t ids[] = {5, 17, 3, 99, 42};
    outcome whole = {0}, split = {0};
    PROA_UNUSED(state);
    proa_engine *engine = open_or_fail(GOLDEN "arch/gpt2",
                                       &(proa_engine_options){.dtype = "f32", .adapter_slots = 2});
    read_folder(&t, GOLDEN "adapters/gpt2/a", gpt2_names, 3);
    t.rows = 1; /* attn_qkv of the first layer */
    parts.weights = calloc((size_t)(3 * parts.width), sizeof *parts.weights);
    int32_t rank = t.config[2];
    for (int32_t p = 0; p < 3; p++) {
        memcpy(parts.config + 3 * p, (const int32_t[]){1 + p, 0, rank}, 3 * sizeof(int32_t));
        float *to = parts.weights + p * parts.width;
        memcpy(to, t.weights, (size_t)(rank * H) * sizeof *to);
        memcpy(to + rank * H, t.weights + rank * H + p * H * rank, (size_t)(H * rank) * sizeof *to);
        parts.rows++;
    }
    load_rows(engine, "whole", &t);
    load_rows(engine, "split", &parts);
    proa_request r = {.task = PROA_TASK_ROWS, .ids = ids, .ids_count = 5, .options = {.adapter = "whole"}};
    run_request(engine, r, &whole);
    r.options.adapter = "split";
    run_request(engine, r, &split);
    for (int64_t i = 0; i < whole.rows_count * whole.columns; i++)
        assert_true(fabsf(whole.rows[i] - split.rows[i]) < 1e-5F);
    outcome_release(&whole), outcome_release(&split);
    free(t.weights), free(parts.weights);
    proa_engine_close(engine);
}

/* ---- 32 adapters, and everything else, in 4 slots ---- */

enum { ADAPTERS = 32, SLOTS = 4, REQUESTS = 72, NEW = 10, RANK = 4, LAYERS = 2 };

/* Adapter `number` of a model with `hidden` heads * head_dim: attn_q and attn_dense of its first layers. */
static void load_made_up(proa_engine *engine, int32_t number, int64_t hidden)
{
    char name[16];
    tensors t = {.width = 2 * RANK * hidden};
    t.weights = calloc((size_t)(2 * LAYERS * t.width), sizeof *t.weights);
    for (int32_t i = 0; i < 2 * LAYERS; i++, t.rows++)
        memcpy(t.config + 3 * i, (const int32_t[]){i % 2 ? 4 : 1, i / 2, RANK}, 3 * sizeof(int32_t));
    for (int64_t i = 0; i < t.rows * t.width; i++)
        t.weights[i] = (float)((i * 73 + i * i * (number + 1) + number * 31) % 97 - 48) / 400.0F;
    snprintf(name, sizeof name, "%d", number);
    load_rows(engine, name, &t);
    free(t.weights);
}

static proa_engine *open_many(const proa_engine_options *options, int32_t slots)
{
    proa_engine_options all = *options;
    proa_info info;
    all.adapter_slots = slots, all.adapters_max = ADAPTERS, all.adapter_rank = RANK;
    proa_engine *engine = open_or_fail(STORIES, &all);
    proa_engine_info(engine, &info);
    for (int32_t i = 0; i < ADAPTERS; i++) load_made_up(engine, i, info.hidden);
    return engine;
}

/* Prompts repeat, so that prompt lookup finds drafts and the cache finds pages. */
static proa_request request_of(int i, char name[16])
{
    static const char *const texts[] = {"the sea and the sky and the sea and the sky and the sea and the",
                                        "It was a dark and stormy night; the rain fell in torrents, except "
                                        "at occasional intervals, when it was checked "
                                        "by a violent gust of wind which swept up the streets, for it is in "
                                        "London that our scene lies, rattling along "
                                        "the housetops, and fiercely agitating the scanty flame of the lamps "
                                        "that struggled against the darkness.",
                                        "He said that he"};
    proa_options o = {.max_tokens = NEW, .ignore_eos = true, .logprobs = true};
    snprintf(name, 16, "%d", i % 36 * 5 % ADAPTERS); /* of half of them there are two */
    if (i % 36 % 9 != 8) o.adapter = name;
    if (i % 6 == 1) o.beams = 3, o.logprobs = false;
    if (i % 6 == 2) o.regex = "[a-z ]{4,}", o.ignore_eos = false;
    if (i % 6 == 3) o.n = 2, o.temperature = 1, o.seed = 11;
    if (i % 6 == 4) o.repetition_penalty = 1.2F;
    if (i % 12 == 5) o.max_tokens = 70; /* it grows over the end of a page */
    return (proa_request){.text = texts[i % 3], .options = o};
}

static void same_outcome(const outcome *a, const outcome *b, const char *what, int i)
{
    if (a->error[0] || b->error[0]) fail_msg("%s: request %d: %s%s", what, i, a->error, b->error);
    assert_int_equal(a->beams, b->beams);
    if (getenv("PROA_TEST_DEVICE")) return;
    bool same = a->count == b->count;
    /* tokens of several sequences come in the order of steps; with them are the results as a whole */
    same = same && (a->count == 0 || a->beams ||
                    (!memcmp(a->ids, b->ids, (size_t)a->count * sizeof *a->ids) &&
                     !memcmp(a->logprobs, b->logprobs, (size_t)a->count * sizeof *a->logprobs)));
    for (int32_t k = 0; k < a->beams; k++)
        same = same && a->beam_count[k] == b->beam_count[k] && a->beam_score[k] == b->beam_score[k] &&
               !memcmp(a->beam_ids[k], b->beam_ids[k], (size_t)a->beam_count[k] * sizeof(int32_t));
    if (!same) fail_msg("%s: request %d differs", what, i);
}

/* Together: the second half comes while the first runs, and has a higher priority. */
static void run_all(proa_engine *engine, outcome out[REQUESTS], int requests, bool together)
{
    for (int i = 0; i < requests; i++) {
        char name[16];
        proa_request r = request_of(i, name);
        r.options.priority = i >= requests / 2;
        for (int k = 0; k < 4 && 2 * i == requests; k++) proa_engine_step(engine);
        submit_or_fail(engine, r, &out[i]);
        if (!together) proa_engine_run(engine);
    }
    proa_engine_run(engine);
}

static void release_all(outcome out[REQUESTS])
{
    for (int i = 0; i < REQUESTS; i++) outcome_release(&out[i]);
}

static void one_by_one_equals_batched(void **state)
{
    const int requests = PART_OF(REQUESTS, 48);
    const struct {
        const char *what;
        proa_engine_options options;
    } ways[] = {{"with drafts and cached pages", {.sequences_max = 16, .step_tokens = 64, .speculation = "ngram"}},
                {"with few pages", {.sequences_max = 16, .step_tokens = 64, .kv_tokens = 7 * 64}}};
    outcome alone[REQUESTS] = {0};
    proa_stats stats;
    PROA_UNUSED(state);
    proa_engine *engine = open_many(&(proa_engine_options){.prefix_cache = "off"}, ADAPTERS);
    run_all(engine, alone, requests, false);
    proa_engine_close(engine);
    for (size_t w = 0; w < PROA_COUNT(ways); w++) {
        outcome batched[REQUESTS] = {0};
        engine = open_many(&ways[w].options, SLOTS);
        run_all(engine, batched, requests, true);
        for (int i = 0; i < requests; i++) same_outcome(&alone[i], &batched[i], ways[w].what, i);
        proa_engine_stats(engine, &stats);
        assert_int_equal(stats.pages_used, 0);
        if (w == 0) assert_true(stats.prefix_hits > 0 && stats.accepted > 0);
        else assert_true(stats.preemptions > 0);
        release_all(batched);
        proa_engine_close(engine);
    }
    release_all(alone);
}

/* All adapters are unloaded while requests run and wait; these end as if nothing had happened, and then all are
 * gone. */
static void unloaded_in_use(void **state)
{
    const int requests = PART_OF(REQUESTS, 48);
    outcome whole[REQUESTS] = {0}, out[REQUESTS] = {0};
    char name[16];
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(state);
    const proa_engine_options options = {.sequences_max = 16, .step_tokens = 64};
    proa_engine *engine = open_many(&options, SLOTS);
    run_all(engine, whole, requests, true);
    for (int i = 0; i < requests; i++) submit_or_fail(engine, request_of(i, name), &out[i]);
    for (int i = 0; i < 3; i++) assert_true(proa_engine_step(engine));
    for (int32_t i = 0; i < ADAPTERS; i++) {
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(proa_engine_unload_adapter(engine, name, &err), PROA_OK);
    }
    assert_int_equal(proa_engine_adapters(engine, NULL, NULL), 0);
    proa_engine_run(engine);
    for (int i = 0; i < requests; i++) same_outcome(&whole[i], &out[i], "unloaded in use", i);
    proa_info info;
    proa_engine_info(engine, &info);
    for (int32_t i = 0; i < ADAPTERS; i++) load_made_up(engine, i, info.hidden); /* there is room again */
    release_all(whole), release_all(out);
    proa_engine_close(engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(equal_to_goldens), cmocka_unit_test(parts_of_a_piece),
                                       cmocka_unit_test(one_by_one_equals_batched),
                                       cmocka_unit_test(unloaded_in_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
