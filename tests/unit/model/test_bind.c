/* SPDX-License-Identifier: Apache-2.0
 * test_bind.c - checkpoints that are not what their configuration says are refused by the tensor's name, with the
 * shape expected. Each case is the golden Llama with a few bytes of config.json or of the header changed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/limits.h"
#include "model/model.h"
#include <cmocka.h>
#include <unistd.h>

#define SOURCE PROA_SOURCE_DIR "/tests/golden/arch/"

typedef struct change {
    const char *file, *from, *to;
} change;

/* The length of the header of a safetensors file is its first number. */
static void lengthen_header(proa_buf *file, int64_t more)
{
    uint64_t length;
    memcpy(&length, file->ptr, sizeof length);
    length += (uint64_t)more;
    memcpy(file->ptr, &length, sizeof length);
}

static void write_changed(const char *dir, const char *arch, const char *name, const change *c)
{
    char path[PROA_PATH_MAX];
    proa_buf buf;
    snprintf(path, sizeof path, SOURCE "%s/%s", arch, name);
    assert_int_equal(proa_file_read(&buf, path, 64 << 20, NULL), PROA_OK);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    char *at = c && strcmp(c->file, name) == 0 ? memmem(buf.ptr, buf.len, c->from, strlen(c->from)) : NULL;
    assert_true(at || !c || strcmp(c->file, name) != 0);
    if (at && strcmp(name, "model.safetensors") == 0)
        lengthen_header(&buf, (int64_t)strlen(c->to) - (int64_t)strlen(c->from));
    size_t before = at ? (size_t)(at - buf.ptr) : buf.len, skip = at ? strlen(c->from) : 0;
    fwrite(buf.ptr, 1, before, f);
    if (at) fwrite(c->to, 1, strlen(c->to), f);
    fwrite(buf.ptr + before + skip, 1, buf.len - before - skip, f);
    fclose(f);
    proa_buf_release(&buf);
}

static proa_status prepare(const char *arch, const change *c, proa_err *err)
{
    char dir[] = "/tmp/proa-bind-XXXXXX", path[64];
    assert_non_null(mkdtemp(dir));
    write_changed(dir, arch, "config.json", c);
    write_changed(dir, arch, "model.safetensors", c);
    proa_pool *pool = proa_pool_new(1);
    proa_model *m = NULL;
    proa_device *device;
    assert_int_equal(proa_device_open(&device, "cpu", err), PROA_OK);
    proa_model_options options = {.rows_max = 32, .head_rows = 8};
    proa_status status = proa_model_prepare(&m, dir, &options, device, pool, err);
    if (status == PROA_OK) status = proa_model_load(m, NULL, NULL, err);
    proa_model_free(m);
    proa_device_close(device);
    proa_pool_free(pool);
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
    return status;
}

static void refused(const char *arch, change c, proa_status status, const char *words)
{
    proa_err err = {.status = PROA_OK};
    assert_int_equal(prepare(arch, &c, &err), status);
    if (!strstr(err.text, words)) fail_msg("'%s' does not say '%s'", err.text, words);
}

static void unchanged_is_fine(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {.status = PROA_OK};
    if (prepare("llama", NULL, &err) != PROA_OK) fail_msg("%s", err.text);
}

static void changed_is_named(void **state)
{
    const char *st = "model.safetensors", *config = "config.json";
    PROA_UNUSED(state);
    refused("llama", (change){st, "model.norm.weight", "model.norn.weight"}, PROA_INVALID,
            "tensor 'model.norm.weight' [64] is missing (there is 'model.norn.weight')");
    refused("llama", (change){st, "layers.1.mlp.up_proj", "layers.7.mlp.up_proj"}, PROA_INVALID,
            "'model.layers.1.mlp.up_proj.weight' [160, 64] is missing");
    refused("llama", (change){config, "\"intermediate_size\": 160", "\"intermediate_size\": 161"},
            PROA_INVALID, "is [160, 64], expected [161, 64]");
    refused("llama", (change){config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1"}, PROA_INVALID,
            "is extra");
    refused("llama", (change){config, "\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"}, PROA_INVALID,
            "model.layers.2.");
    refused("llama", (change){config, "\"vocab_size\": 200", "\"vocab_size\": 2000000"}, PROA_INVALID,
            "expected [2000000, 64]");
    refused("llama", (change){st, "\"dtype\":\"F32\"", "\"dtype\":\"I32\""}, PROA_UNSUPPORTED, "is i32");
    refused("llama", (change){config, "{", "("}, PROA_CORRUPT, "not JSON");
    refused("qwen3", (change){st, "k_norm", "k_morn"}, PROA_INVALID, "k_norm");
    refused("bart", (change){config, "\"max_position_embeddings\": 96", "\"max_position_embeddings\": 98"},
            PROA_INVALID, "'model.encoder.embed_positions.weight' is [98, 64], expected [100, 64]");
    refused("bart", (change){config, "\"decoder_ffn_dim\": 128", "\"decoder_ffn_dim\": 64"}, PROA_INVALID,
            "'model.decoder.layers.0.fc1.weight' is [128, 64], expected [64, 64]");
    refused("roberta", (change){config, "\"pad_token_id\": 0", "\"pad_token_id\": 99"}, PROA_INVALID,
            "'max_position_embeddings' 98 leaves no positions after 'pad_token_id' 99");
    refused("opennmt", (change){config, "\"tgt_vocab_size\": 200", "\"tgt_vocab_size\": 201"},
            PROA_UNSUPPORTED, "'tgt_vocab_size' 201 is not 'src_vocab_size' 200");
    refused("opennmt", (change){config, "\"self_attn_type\": \"scaled-dot\"", "\"self_attn_type\": \"average\""},
            PROA_UNSUPPORTED, "'self_attn_type' 'average' is not supported");
    refused("opennmt", (change){config, "\"max_relative_positions\": 0", "\"max_relative_positions\": -1"},
            PROA_UNSUPPORTED, "'max_relative_positions' -1 is not supported");
    refused("opennmt", (change){config, "\"dec_hid_size\": 48", "\"dec_hid_size\": 96"}, PROA_UNSUPPORTED,
            "the decoder is 96 wide, the encoder 48");
}

/* Gemma 3's multimodal checkpoints: one tensor has the other name, or is of a part that no row knows. */
static void other_beginnings(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {.status = PROA_OK};
    change c = {"model.safetensors", "language_model.model.norm.weight", "model.language_model.norm.weight"};
    if (prepare("gemma3_multimodal", &c, &err) != PROA_OK) fail_msg("%s", err.text);
    refused("gemma3_multimodal", (change){"model.safetensors", "vision_tower.vision", "vision_torso.vision"},
            PROA_INVALID, "'vision_torso.vision_model.post_layernorm.weight' [8] is extra");
}

static void accepted(const char *arch, const char *from, const char *to)
{
    proa_err err = {.status = PROA_OK};
    change c = {"model.safetensors", from, to};
    if (prepare(arch, &c, &err) != PROA_OK) fail_msg("%s: %s", arch, err.text);
}

/* A tied embedding is found under the name of the head or of a stack; what has such a name must be a copy. A head that
 * is not tied has its bias under another name (DeBERTa). */
static void other_names_of_the_embedding(void **state)
{
    PROA_UNUSED(state);
    accepted("gemma2", "\"model.embed_tokens.weight\"", "\"lm_head.weight\"");
    accepted("gpt2", "\"transformer.wte.weight\"", "\"lm_head.weight\"");
    accepted("t5_v1_1", "\"shared.weight\"", "\"decoder.embed_tokens.weight\"");
    refused("llama", (change){"model.safetensors", "\"model.embed_tokens.weight\"", "\"model.embed.weight\""},
            PROA_INVALID, "'model.embed_tokens.weight' [200, 64] is missing");
    accepted("deberta_mlm", "\"cls.predictions.bias\"", "\"cls.predictions.decoder.bias\"");
    refused("t5_own_head",
            (change){"model.safetensors", "\"lm_head.weight\"", "\"encoder.embed_tokens.weight\""},
            PROA_UNSUPPORTED, "'encoder.embed_tokens.weight' differs from 'shared.weight'");
}

/* GPT-NeoX in memory: the name that transformers 5 gives the head, which its files do not have. */
static void head_of_a_state_dict(void **state)
{
    PROA_UNUSED(state);
    accepted("gpt_neox", "\"embed_out.weight\"", "\"lm_head.weight\"");
    refused("gpt_neox", (change){"model.safetensors", "\"embed_out.weight\"", "\"embed_off.weight\""},
            PROA_INVALID, "'embed_out.weight' [200, 64] is missing");
}

/* A head of its own in the file of a class that has none is not read, and is not taken for the embedding. */
static void heads_of_other_classes(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {.status = PROA_OK};
    const char *const from[][3] = {{"bert_mlm_untied", "BertForMaskedLM", "BertModel"},
                                   {"roberta_mlm_untied", "RobertaForMaskedLM", "RobertaModel"}};
    for (size_t i = 0; i < PROA_COUNT(from); i++) {
        change c = {"config.json", from[i][1], from[i][2]};
        if (prepare(from[i][0], &c, &err) != PROA_OK) fail_msg("%s: %s", from[i][0], err.text);
    }
}

/* facebook/bart-base and bart-large name the class without a head, whose head is the embedding all the same. */
static void class_without_head(void **state)
{
    PROA_UNUSED(state);
    proa_err err = {.status = PROA_OK};
    change c = {"config.json", "BartForConditionalGeneration", "BartModel"};
    if (prepare("bart", &c, &err) != PROA_OK) fail_msg("%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unchanged_is_fine),    cmocka_unit_test(changed_is_named),
        cmocka_unit_test(other_beginnings),     cmocka_unit_test(other_names_of_the_embedding),
        cmocka_unit_test(head_of_a_state_dict), cmocka_unit_test(heads_of_other_classes),
        cmocka_unit_test(class_without_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
