/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a file of timed algorithms. What is read prints to a text that reads back to the same entries; what is
 * refused leaves nothing behind. */
#include "fuzz.h"

#include "base/limits.h"
#include "kernels/tune.h"
#include <string.h>

static void check(const proa_tune *t)
{
    proa_tune again;
    proa_buf text, second;
    proa_tune_init(&again, t->identity);
    proa_buf_init(&text, (size_t)PROA_TUNE_BYTES_MAX);
    proa_buf_init(&second, (size_t)PROA_TUNE_BYTES_MAX);
    PROA_ASSERT(proa_tune_print(&text, t));
    PROA_ASSERT(proa_tune_parse(&again, proa_buf_view(&text), NULL) == PROA_OK);
    PROA_ASSERT(again.count == t->count);
    for (int64_t i = 0; i < t->count; i++) {
        const proa_tune_entry *e = proa_tune_find(&again, t->entry[i].key);
        PROA_ASSERT(e && memcmp(e->algorithm, t->entry[i].algorithm, sizeof e->algorithm) == 0);
    }
    PROA_ASSERT(proa_tune_print(&second, &again));
    PROA_ASSERT(proa_str_eq(proa_buf_view(&text), proa_buf_view(&second)));
    proa_buf_release(&text);
    proa_buf_release(&second);
    proa_tune_release(&again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    proa_tune t;
    proa_err err = {.status = PROA_OK};
    proa_tune_init(&t, "card; 9.0; driver 1; cublasLt 2; plug-in 3");
    if (proa_tune_parse(&t, (proa_str){(const char *)data, size}, &err) == PROA_OK) check(&t);
    else PROA_ASSERT(t.count == 0 && strlen(err.text) > 0);
    proa_tune_release(&t);
    return 0;
}
