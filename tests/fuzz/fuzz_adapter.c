/* SPDX-License-Identifier: Apache-2.0
 * Adapters from files: an adapter_config.json, a byte 0, and a file of tensors, for the golden model llama. Whatever
 * they say, they are refused with a text, or every matrix of a low-rank adapter's image has a rank that the layout has
 * room for and a finite scale, and a prompt table has the width that the model reads. */
#include "fuzz.h"

#include "model/lora/lora.h"
#include <math.h>

static proa_model *open_model(void)
{
    static proa_model *model;
    proa_model_options options = {.dtype = "f32", .rows_max = 1, .head_rows = 1, .lora_slots = 1, .lora_rank = 32};
    proa_device *device = NULL;
    proa_err err = {.status = PROA_OK};
    if (model) return model;
    bool ok = proa_device_open(&device, "cpu", &err) == PROA_OK &&
              proa_model_prepare(&model, PROA_SOURCE_DIR "/tests/golden/arch/llama", &options, device,
                                 proa_pool_new(1), &err) == PROA_OK;
    PROA_ASSERT(ok);
    return model;
}

static void check_image(const proa_model *m, const char *image)
{
    const proa_params *p = &m->params[PROA_STACK_DECODER];
    for (int64_t i = 0; i < p->layers * PROA_SLOT_COUNT; i++) {
        const proa_lora *l = p->param[i].lora;
        const proa_lora_use *use = l ? (const proa_lora_use *)(const void *)(image + l->use) : NULL;
        for (int32_t k = 0; l && k < l->pieces; k++)
            PROA_ASSERT(use[k].rank >= 0 && use[k].rank <= l->rank && isfinite(use[k].scale));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const proa_model *m = open_model();
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t len = end ? (size_t)(end - data) : size, rest = end ? size - len - 1 : 0;
    proa_json *config = NULL;
    proa_weights *tensors = NULL;
    char *image = NULL;
    proa_prompt_table *table = NULL;
    proa_err err = {.status = PROA_OK};
    bool opened = proa_json_parse(&config, (proa_str){(const char *)data, len}, "adapter_config.json", &err) ==
                      PROA_OK &&
                  proa_weights_open_bytes(&tensors, data + size - rest, (int64_t)rest, "adapter", &err) ==
                      PROA_OK;
    bool is_table = opened && proa_prompt_table_is_type(proa_json_str(proa_json_get(config, "peft_type")));
    if (is_table && proa_prompt_table_read(&table, m, tensors, config, "adapter", &err) == PROA_OK)
        PROA_ASSERT(table->tokens > 0 && table->width == proa_prompt_table_width(m, table->keys));
    else if (opened && !is_table &&
             proa_adapter_read_tensors(&image, m, tensors, config, "adapter", &err) == PROA_OK)
        check_image(m, image);
    else PROA_ASSERT(err.text[0] != '\0' && !image && !table);
    proa_adapter_free(m, image);
    proa_prompt_table_free(table);
    proa_weights_close(tensors);
    proa_json_free(config);
    return 0;
}
