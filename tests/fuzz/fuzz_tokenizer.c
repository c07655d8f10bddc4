/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a tokenizer.json. What opens must keep the promises of check_text.h; what does not says why. */
#include "fuzz.h"

#include "check_text.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_tokenizer *tok = NULL;
    proa_err err = {.status = PROA_OK};
    if (proa_tokenizer_open_json(&tok, (proa_str){(const char *)data, size}, "fuzz", &err) != PROA_OK) {
        PROA_ASSERT(tok == NULL && strlen(err.text) > 0);
        return 0;
    }
    check_tokenizer(tok);
    proa_tokenizer_free(tok);
    return 0;
}
