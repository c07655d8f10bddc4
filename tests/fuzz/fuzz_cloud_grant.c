/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as the answer of a service that gives credentials: the first byte chooses whose. What is taken fits into a
 * header, and ends at a time, or there is an error that says nothing of the answer. */
#include "fuzz.h"

#include "hub/cloud/identity/grant.h"
#include <string.h>

/* A header's value: printable, without spaces, and not empty. */
static void check_word(const char *text)
{
    PROA_ASSERT(text[0]);
    for (const char *c = text; *c; c++) PROA_ASSERT(*c > ' ' && *c <= '~');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static proa_cloud_key key;
    proa_err err = {.status = PROA_OK};
    proa_status status;
    if (size == 0) return 0;
    proa_str body = {(const char *)data + 1, size - 1};
    memset(&key, 0, sizeof key);
    switch (data[0] % 4) {
    case 0: status = proa_cloud_grant_aws(&key, body, &err); break;
    case 1: status = proa_cloud_grant_sts(&key, body, &err); break;
    case 2: status = proa_cloud_grant_bearer(&key, body, 1000, &err); break;
    default: PROA_ASSERT(proa_cloud_read_time(body) >= -1); return 0;
    }
    if (status != PROA_OK) {
        PROA_ASSERT(err.text[0]);
        return 0;
    }
    PROA_ASSERT(key.until_s >= 0);
    if (data[0] % 4 == 2) check_word(key.token);
    else check_word(key.id), check_word(key.secret);
    return 0;
}
