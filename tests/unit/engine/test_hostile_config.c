/* SPDX-License-Identifier: Apache-2.0
 * test_hostile_config.c - each number of each golden architecture's config.json, one after the other, is replaced by
 * values that no model has. The configuration is refused with a text, or the model opens (or does not fit its
 * weights) and runs: nothing is written outside of what was taken, which the sanitizer builds see. */
#include "engine_test.h"

#include "model/arch.h"
#include <ftw.h>
#include <json-c/json.h>
#include <unistd.h>

static const char *const values[] = {
    "-1",
    "0",
    "1",
    "2",
    "3",
    "5",
    "7",
    "512",
    "1025",
    "65536",
    "2147483647",
    "2147483648",
    "1e-300",
    "1e308",
    "4294967297",
    "4611686018427387905",
    "9223372036854775807",
    "-9223372036854775808",
    "0.5",
    "\"x\"",
    "true",
    "null",
    "[1,2]",
    "{\"a\":1}",
};

typedef struct trial {
    const char *source;  /* the golden folder */
    char folder[64];     /* a copy with links to its weights and a config.json of ours */
    proa_config base;    /* of the golden config.json */
    int refused, opened; /* how the values ended */
} trial;

static proa_status configure(proa_config *c, const char *text, proa_err *err)
{
    proa_json *json = NULL;
    const proa_arch *arch;
    proa_arena arena;
    *c = (proa_config){0};
    proa_arena_init(&arena);
    proa_status status = proa_json_parse(&json, proa_str_c(text), "config.json", err);
    if (status == PROA_OK) status = proa_arch_configure(&arch, c, json, NULL, &arena, err);
    c->window_layers = NULL; /* the arena's */
    proa_json_free(json);
    proa_arena_release(&arena);
    return status;
}

static void write_config(const trial *t, const char *text)
{
    char path[128];
    snprintf(path, sizeof path, "%s/config.json", t->folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
}

/* What configures may still disagree with the weights; what opens must run. */
static void open_and_run(trial *t, const char *text)
{
    const int32_t ids[] = {1, 3, 4};
    proa_engine *engine = NULL;
    proa_err err = {.status = PROA_OK};
    outcome o = {0};
    proa_engine_options options = {.threads = 1, .sequences_max = 2, .step_tokens = 16, .kv_tokens = 256};
    write_config(t, text);
    if (proa_engine_open(&engine, t->folder, &options, &err) != PROA_OK) {
        assert_true(err.text[0]);
        t->refused++;
        return;
    }
    t->opened++;
    proa_request r = {.ids = ids, .ids_count = 3, .options.max_tokens = 2, .on_event = collect, .arg = &o};
    if (proa_engine_submit(engine, &r, NULL, &err) == PROA_OK) proa_engine_run(engine), assert_true(o.done);
    outcome_release(&o);
    proa_engine_close(engine);
}

static void try_text(trial *t, const char *text)
{
    proa_config c;
    proa_err err = {.status = PROA_OK};
    if (configure(&c, text, &err) != PROA_OK) {
        assert_true(err.text[0]);
        t->refused++;
    } else if (memcmp(&c, &t->base, sizeof c) != 0) {
        open_and_run(t, text); /* else the key says nothing to us */
    }
}

static bool worth(const json_object *value)
{
    return json_object_is_type(value, json_type_int) || json_object_is_type(value, json_type_double) ||
           json_object_is_type(value, json_type_boolean) || json_object_is_type(value, json_type_null);
}

/* Each member of `object` (a part of `root`) in turn, and those of the objects within it. */
static void try_members(trial *t, json_object *root, json_object *object)
{
    const char *names[128];
    int count = 0;
    json_object_object_foreach(object, key, member)
    {
        PROA_UNUSED(member);
        assert_true(count < 128);
        names[count++] = key;
    }
    for (int i = 0; i < count; i++) {
        json_object *old = json_object_get(json_object_object_get(object, names[i]));
        if (json_object_is_type(old, json_type_object)) try_members(t, root, old);
        for (size_t v = 0; worth(old) && v < PROA_COUNT(values); v++) {
            json_object_object_add(object, names[i], json_tokener_parse(values[v]));
            try_text(t, json_object_to_json_string(root));
        }
        json_object_object_add(object, names[i], old);
    }
}

static void make_folder(trial *t)
{
    char from[512], to[128];
    snprintf(t->folder, sizeof t->folder, "/tmp/proa-hostile-XXXXXX");
    assert_non_null(mkdtemp(t->folder));
    snprintf(from, sizeof from, "%s/model.safetensors", t->source);
    snprintf(to, sizeof to, "%s/model.safetensors", t->folder);
    assert_int_equal(symlink(from, to), 0);
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    PROA_UNUSED(st);
    PROA_UNUSED(kind);
    PROA_UNUSED(at);
    return remove(path);
}

static void every_number_may_lie(void **state)
{
    trial t = {.source = *state};
    char path[512];
    proa_err err = {.status = PROA_OK};
    snprintf(path, sizeof path, "%s/config.json", t.source);
    json_object *root = json_object_from_file(path);
    assert_non_null(root);
    assert_int_equal(configure(&t.base, json_object_to_json_string(root), &err), PROA_OK);
    make_folder(&t);
    try_members(&t, root, root);
    json_object_put(root);
    assert_true(t.refused > 50);
    assert_true(t.opened > 5);
    nftw(t.folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* One head of 1,536 floats: its rotary table was written over the stack. */
static void a_derived_head_size_has_a_limit(void **state)
{
    static const char *const wide[] = {
        "{\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":16,\"hidden_size\":1536,\"intermediate_"
        "size\":64,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":1}",
        "{\"architectures\":[\"GPT2LMHeadModel\"],\"vocab_size\":16,\"n_embd\":131072,\"n_layer\":1,\"n_"
        "head\":1}",
        "{\"architectures\":[\"BloomForCausalLM\"],\"vocab_size\":16,\"n_embed\":2048,\"n_layer\":1,\"n_"
        "head\":1}",
        "{\"architectures\":[\"MptForCausalLM\"],\"vocab_size\":16,\"d_model\":2048,\"n_layers\":1,\"n_"
        "heads\":1}",
        "{\"architectures\":[\"BertModel\"],\"vocab_size\":16,\"hidden_size\":1025,\"intermediate_size\":64,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":1}",
    };
    PROA_UNUSED(state);
    for (size_t i = 0; i < PROA_COUNT(wide); i++) {
        proa_config c;
        proa_err err = {.status = PROA_OK};
        assert_int_equal(configure(&c, wide[i], &err), PROA_INVALID);
        if (!strstr(err.text, "'head_dim'")) fail_msg("%s", err.text);
    }
}

static void a_derived_ffn_has_a_limit(void **state)
{
    proa_config c;
    proa_err err = {.status = PROA_OK};
    PROA_UNUSED(state);
    assert_int_equal(configure(&c,
                               "{\"architectures\":[\"MptForCausalLM\"],\"vocab_size\":16,\"d_model\":131072,"
                               "\"n_layers\":1,\"n_heads\":1024,\"expansion_ratio\":64}",
                               &err),
                     PROA_INVALID);
    assert_non_null(strstr(err.text, "'ffn' is 8388608"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON(every_number_may_lie, "llama"),
        ON(every_number_may_lie, "llama3"),
        ON(every_number_may_lie, "mistral"),
        ON(every_number_may_lie, "qwen2"),
        ON(every_number_may_lie, "qwen3"),
        ON(every_number_may_lie, "gemma2"),
        ON(every_number_may_lie, "gpt2"),
        ON(every_number_may_lie, "gptj"),
        ON(every_number_may_lie, "bloom"),
        ON(every_number_may_lie, "mpt"),
        ON(every_number_may_lie, "mpt_grouped"),
        ON(every_number_may_lie, "opt_350m"),
        ON(every_number_may_lie, "stablelm"),
        ON(every_number_may_lie, "starcoder2"),
        ON(every_number_may_lie, "internlm2"),
        ON(every_number_may_lie, "baichuan2_13b"),
        ON(every_number_may_lie, "glm4"),
        ON(every_number_may_lie, "chatglm3_32k"),
        ON(every_number_may_lie, "chatglm_6b"),
        ON(every_number_may_lie, "t5"),
        ON(every_number_may_lie, "t5_v1_1"),
        ON(every_number_may_lie, "bert"),
        ON(every_number_may_lie, "bert_mlm"),
        ON(every_number_may_lie, "bert_regress"),
        ON(every_number_may_lie, "modernbert"),
        ON(every_number_may_lie, "deberta_v3"),
        ON(every_number_may_lie, "deberta_v2_conv"),
        ON(every_number_may_lie, "xlnet_cls"),
        cmocka_unit_test(a_derived_head_size_has_a_limit),
        cmocka_unit_test(a_derived_ffn_has_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
