/* SPDX-License-Identifier: Apache-2.0
 * gguf_pooling.c - what sentence-transformers says beside a model: how an embedding is made of its rows. */
#include "convert/gguf_values.h"

#include "base/log.h"

/* llama.cpp's numbers, by the keys and values of 1_Pooling/config.json. */
static const struct pooling {
    const char *key, *name;
    int64_t type;
} poolings[] = {{"pooling_mode_mean_tokens", "mean", 1},
                {"pooling_mode_cls_token", "cls", 2},
                {"pooling_mode_lasttoken", "lasttoken", 3}};

/* 0: another one. */
static int64_t find_type(const proa_json *config)
{
    proa_str name = proa_json_str(proa_json_get(config, "pooling_mode"));
    for (size_t i = 0; i < PROA_COUNT(poolings); i++)
        if (proa_str_is(name, poolings[i].name) || proa_json_bool(proa_json_get(config, poolings[i].key)))
            return poolings[i].type;
    return 0;
}

proa_status proa_gguf_put_pooling(proa_gguf_values *v, const proa_gguf_arch *arch, const proa_files *files,
                                  proa_err *err)
{
    static const char file[] = "1_Pooling/config.json";
    char key[128];
    proa_json *config;
    if (!proa_files_has(files, file)) return PROA_OK;
    PROA_TRY(proa_files_json(&config, files, file, PROA_CONFIG_BYTES_MAX, err));
    int64_t type = find_type(config);
    proa_json_free(config);
    if (!type)
        return PROA_FAIL(err, UNSUPPORTED, "%s: GGUF has poolings of mean, cls and lasttoken alone", file);
    if (proa_files_has(files, "2_Dense/config.json"))
        PROA_LOG(WARNING, "GGUF has no dense layer behind the pooling: that of '2_Dense' is left out");
    snprintf(key, sizeof key, "%s.pooling_type", arch->name);
    proa_gguf_value_u32(v, key, type);
    return PROA_OK;
}
