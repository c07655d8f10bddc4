/* SPDX-License-Identifier: Apache-2.0
 * FasterTransformer's config.ini: whatever it says, it is refused with a text, or its sizes are sane, its tables end,
 * and the config.json made of it can be read. There are no weight files. */
#include "fuzz.h"

#include "base/alloc.h"
#include "base/json.h"
#include "weights/ft.h"

static void check(const proa_ft *ft, const proa_ft_model *model, const proa_buf *config)
{
    proa_json *json = NULL;
    proa_err err = {.status = PROA_OK};
    int64_t tensors = 0;
    PROA_ASSERT(proa_json_parse(&json, proa_buf_view(config), "config", &err) == PROA_OK);
    PROA_ASSERT(proa_json_get(json, "architectures") && proa_json_get(json, "vocab_size"));
    proa_json_free(json);
    for (int i = 0; model->tables[i]; i++)
        for (const proa_ft_tensor *row = model->tables[i]; row->name; row++) {
            PROA_ASSERT(ft->dim[row->in] > 0 && ft->dim[row->out] > 0 && ft->dim[row->layers] > 0);
            PROA_ASSERT(ft->dim[row->in] <= 1 << 27 && ft->dim[row->out] <= 1 << 27);
            tensors += ft->dim[row->layers];
        }
    PROA_ASSERT(tensors > 0 && tensors <= PROA_TENSORS_MAX);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_err err = {.status = PROA_OK};
    const proa_ft_model *model = NULL;
    proa_buf config;
    proa_ft ft = {.dir = "/nonexistent", .ini = {{(const char *)data, size}, "config.ini"}, .err = &err};
    ft.dim[PROA_FT_ONE] = 1;
    proa_buf_init(&config, (size_t)PROA_CONFIG_BYTES_MAX);
    if (proa_ft_read_model(&ft, &model, &config) == PROA_OK) check(&ft, model, &config);
    else PROA_ASSERT(err.text[0] != '\0');
    proa_buf_release(&config);
    return 0;
}
