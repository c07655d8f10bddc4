/* SPDX-License-Identifier: Apache-2.0
 * tiny_model.h - a repository with a random Llama that has two layers and the tokenizer of classics-10m, and
 * low-rank adapters of it: a model that is fast even under ThreadSanitizer. Include cmocka.h before. */
#ifndef PROA_TEST_TINY_MODEL_H
#define PROA_TEST_TINY_MODEL_H

#include "base/str.h"

#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TINY_VOCAB = 8192, TINY_HIDDEN = 64, TINY_INNER = 96, TINY_LAYERS = 2, TINY_RANK = 4 };

typedef struct tiny_file { /* safetensors, f32 */
    proa_buf header, data;
    uint32_t seed;
} tiny_file;

static inline void tiny_tensor(tiny_file *f, const char *name, int rows, int columns, float scale)
{
    size_t begin = f->data.len, count = (size_t)rows * (size_t)(columns ? columns : 1);
    for (size_t i = 0; i < count; i++) {
        f->seed = f->seed * 1664525u + 1013904223u;
        float value = columns ? scale * ((float)(f->seed >> 8) / (float)(1 << 23) - 1) : 1; /* norms are one */
        assert_true(proa_buf_append(&f->data, &value, sizeof value));
    }
    proa_buf_printf(&f->header, "%s\"%s\":{\"dtype\":\"F32\",\"shape\":[%d", f->header.len ? "," : "{", name,
                    rows);
    if (columns) proa_buf_printf(&f->header, ",%d", columns);
    proa_buf_printf(&f->header, "],\"data_offsets\":[%zu,%zu]}", begin, f->data.len);
}

static inline void tiny_layer(tiny_file *f, int layer)
{
    static const struct {
        const char *name;
        int rows, columns;
    } tensors[] = {{"input_layernorm", TINY_HIDDEN, 0},
                   {"post_attention_layernorm", TINY_HIDDEN, 0},
                   {"self_attn.q_proj", TINY_HIDDEN, TINY_HIDDEN},
                   {"self_attn.k_proj", TINY_HIDDEN, TINY_HIDDEN},
                   {"self_attn.v_proj", TINY_HIDDEN, TINY_HIDDEN},
                   {"self_attn.o_proj", TINY_HIDDEN, TINY_HIDDEN},
                   {"mlp.gate_proj", TINY_INNER, TINY_HIDDEN},
                   {"mlp.up_proj", TINY_INNER, TINY_HIDDEN},
                   {"mlp.down_proj", TINY_HIDDEN, TINY_INNER}};
    char name[128];
    for (size_t i = 0; i < PROA_COUNT(tensors); i++) {
        snprintf(name, sizeof name, "model.layers.%d.%s.weight", layer, tensors[i].name);
        tiny_tensor(f, name, tensors[i].rows, tensors[i].columns, 0.3F);
    }
}

static inline void tiny_write(const char *path, const void *bytes, size_t len)
{
    FILE *out = fopen(path, "w");
    assert_non_null(out);
    assert_int_equal(fwrite(bytes, 1, len, out), len);
    fclose(out);
}

static inline void tiny_text(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tiny_write(path, text, strlen(text));
}

static inline void tiny_open(tiny_file *f, uint32_t seed)
{
    proa_buf_init(&f->header, 1 << 20);
    proa_buf_init(&f->data, 64 << 20);
    f->seed = seed;
}

static inline void tiny_close(tiny_file *f, const char *folder, const char *name)
{
    char path[512];
    uint64_t len = f->header.len + 1;
    proa_buf all;
    proa_buf_init(&all, 80 << 20);
    proa_buf_append(&all, &len, sizeof len);
    proa_buf_append(&all, f->header.ptr, f->header.len);
    proa_buf_char(&all, '}');
    assert_true(proa_buf_append(&all, f->data.ptr, f->data.len));
    snprintf(path, sizeof path, "%s/%s", folder, name);
    tiny_write(path, all.ptr, all.len);
    proa_buf_release(&all);
    proa_buf_release(&f->header);
    proa_buf_release(&f->data);
}

static inline void tiny_folder(char *path, size_t size, const char *parent, const char *name)
{
    snprintf(path, size, "%s/%s", parent, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* Large values, so that it changes the text. */
static inline void tiny_adapter(const char *folder, uint32_t seed)
{
    static const char module[] = "base_model.model.model.layers.1.mlp.down_proj.";
    char name[128];
    tiny_file f;
    tiny_open(&f, seed + 6);
    snprintf(name, sizeof name, "%slora_A.weight", module);
    tiny_tensor(&f, name, TINY_RANK, TINY_INNER, 1);
    snprintf(name, sizeof name, "%slora_B.weight", module);
    tiny_tensor(&f, name, TINY_HIDDEN, TINY_RANK, 1);
    tiny_close(&f, folder, "adapter_model.safetensors");
    tiny_text(folder, "adapter_config.json", "{\"peft_type\":\"LORA\",\"r\":4,\"lora_alpha\":8}");
}

/* The files of the model. tokenizer: the folder whose tokenizer it has. */
static inline void tiny_model(const char *folder, const char *tokenizer)
{
    static const char *const files[] = {"tokenizer.json", "tokenizer_config.json"};
    char from[512], to[512];
    tiny_file f;
    tiny_open(&f, 1);
    tiny_tensor(&f, "model.embed_tokens.weight", TINY_VOCAB, TINY_HIDDEN, 1);
    for (int i = 0; i < TINY_LAYERS; i++) tiny_layer(&f, i);
    tiny_tensor(&f, "model.norm.weight", TINY_HIDDEN, 0, 1);
    tiny_close(&f, folder, "model.safetensors");
    tiny_text(folder, "config.json",
              "{\"architectures\":[\"LlamaForCausalLM\"],\"model_type\":\"llama\",\"vocab_size\":8192,"
              "\"hidden_size\":64,\"intermediate_size\":96,\"num_hidden_layers\":2,\"num_attention_heads\":2,"
              "\"num_key_value_heads\":2,\"max_position_embeddings\":1024,\"rms_norm_eps\":1e-5,"
              "\"tie_word_embeddings\":true,\"bos_token_id\":1,\"eos_token_id\":2,\"hidden_act\":\"silu\"}");
    for (size_t i = 0; i < PROA_COUNT(files); i++) {
        snprintf(from, sizeof from, "%s/%s", tokenizer, files[i]);
        snprintf(to, sizeof to, "%s/%s", folder, files[i]);
        assert_int_equal(symlink(from, to), 0);
    }
}

#endif
