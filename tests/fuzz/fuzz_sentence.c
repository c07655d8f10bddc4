/* SPDX-License-Identifier: Apache-2.0
 * What a folder of sentence-transformers says beside the model, as files (files.h): modules.json, the poolings and the
 * dense layers that it names. It is refused with a text, or the layers take what those before them give, and can be
 * computed. */
#include "backends/llm/llm.h"
#include "base/alloc.h"
#include "files.h"

enum { HIDDEN = 8 };

static const char *const names[] = {"modules.json",
                                    "1_Pooling/config.json",
                                    "2_Dense/config.json",
                                    "2_Dense/model.safetensors",
                                    "2_Dense/pytorch_model.bin",
                                    "3_Dense/config.json",
                                    "3_Dense/model.safetensors"};
static const fuzz_files files = {names, PROA_COUNT(names)};

static void compute(const proa_sentence_modules *m)
{
    int64_t width = HIDDEN;
    float *x = proa_calloc(HIDDEN, sizeof *x);
    for (const proa_sentence_dense *d = m->dense; d; d = d->next) {
        PROA_ASSERT(d->layer.inputs == width);
        width = d->layer.outputs;
        float *y = proa_calloc((size_t)width, sizeof *y);
        proa_dense_apply(&d->layer, y, x);
        free(x);
        x = y;
    }
    PROA_ASSERT(m->width == (m->dense ? width : 0));
    free(x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_files folder = proa_files_of(files_write(&files, data, size));
    proa_sentence_modules modules = {.width = 0};
    proa_arena arena;
    proa_err err = {.status = PROA_OK};
    proa_arena_init(&arena);
    if (proa_sentence_modules_read(&modules, &folder, HIDDEN, &arena, &err) == PROA_OK) compute(&modules);
    else PROA_ASSERT(err.text[0]);
    PROA_ASSERT(!modules.refused || modules.refused[0]);
    proa_arena_release(&arena);
    return 0;
}
