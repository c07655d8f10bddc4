/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as an .onnx file: the walk over its messages that looks for external data. A file that is accepted and then
 * put into a field that is skipped, or cut at its end, must be judged without reading outside of its bytes. */
#include "fuzz.h"

#include "backends/onnx/onnx.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_err err = {.status = PROA_OK};
    proa_status status = proa_onnx_check_external(data, size, &err);
    PROA_ASSERT(status == err.status && (status == PROA_OK) == (err.text[0] == 0));
    PROA_ASSERT(proa_onnx_check_external(data, size, NULL) == status);
    return 0;
}
