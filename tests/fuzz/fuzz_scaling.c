/* SPDX-License-Identifier: Apache-2.0
 * A config.json of which the step times of a divided model are estimated. The first bytes choose the division and the
 * batch. It is refused with a text, or the estimate is JSON without numbers that JSON does not have, and a table. */
#include "engine/scaling.h"
#include "files.h"

static const char *const names[] = {"config.json"};
static const fuzz_files files = {names, 1};

static void explain(const char *folder, const proa_scaling_options *options, bool json)
{
    proa_buf out;
    proa_json *parsed = NULL;
    proa_err err = {.status = PROA_OK};
    proa_buf_init(&out, PROA_MIB);
    if (proa_scaling_explain(&out, folder, options, json, &err) != PROA_OK) PROA_ASSERT(err.text[0]);
    else {
        PROA_ASSERT(out.len > 0 && !out.full);
        PROA_ASSERT(!json || proa_json_parse(&parsed, proa_buf_view(&out), "the estimate", &err) == PROA_OK);
    }
    proa_json_free(parsed);
    proa_buf_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const quants[] = {"none", "fp8", "int8", "int4"};
    if (size < 3) return 0;
    proa_scaling_options options = {.tensors = 1 << data[0] % 4,
                                    .stages = 1 + data[0] / 4 % 3,
                                    .context = data[1] * INT64_C(1000),
                                    .batches = {1, 1 + data[2]},
                                    .batches_count = 2,
                                    .quant = quants[data[1] % PROA_COUNT(quants)],
                                    .figures = proa_scaling_h100};
    int32_t host = options.figures.host_gpus;
    options.hosts = (options.tensors * options.stages + host - 1) / host;
    const char *folder = files_begin();
    files_write_one(&files, proa_str_c("config.json"), (proa_str){(const char *)data + 3, size - 3});
    explain(folder, &options, true);
    explain(folder, &options, false);
    return 0;
}
