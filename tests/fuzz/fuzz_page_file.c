/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a file of keys and values: a file that is taken is, in every byte, the one that was written. */
#include "fuzz.h"

#include "base/compiler.h"
#include "kv/page_file.h"
#include <string.h>

enum { IMAGE = 96 };

static void make_page(proa_page_format *f, proa_page_name *name, char image[IMAGE])
{
    static int32_t ids[PROA_PAGE_TOKENS];
    *f = (proa_page_format){
        .dtype = PROA_DTYPE_BF16, .layers = 1, .kv_heads = 2, .head_dim = 3, .image_bytes = IMAGE};
    memset(f->fingerprint, 7, sizeof f->fingerprint);
    for (int i = 0; i < PROA_PAGE_TOKENS; i++) ids[i] = i * i;
    for (int i = 0; i < IMAGE; i++) image[i] = (char)(i * 5);
    proa_page_key space = proa_page_key_of("space", 5);
    *name = (proa_page_name){proa_page_key_next(&space, -1, ids, 60), ids, 60, 2};
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    unsigned char head[PROA_PAGE_HEAD_BYTES], given[PROA_PAGE_HEAD_BYTES + IMAGE] = {0};
    char image[IMAGE];
    proa_page_format f;
    proa_page_name name;
    proa_err err = {.status = PROA_OK};
    make_page(&f, &name, image);
    proa_page_head_make(head, &f, &name, image);
    memcpy(given, data, size < sizeof given ? size : sizeof given);
    bool same = memcmp(given, head, sizeof head) == 0 && memcmp(given + sizeof head, image, IMAGE) == 0;
    const char *given_image = (const char *)given + PROA_PAGE_HEAD_BYTES;
    proa_status status = proa_page_head_check(given, &f, &name, given_image, &err);
    PROA_ASSERT(status == PROA_OK || (status == PROA_CORRUPT && err.text[0]));
    PROA_ASSERT(!same || status == PROA_OK);
    /* whoever forges both checksums gets other numbers in, but never other tokens or another model */
    if (status == PROA_OK) PROA_ASSERT(memcmp(given, head, PROA_PAGE_HEAD_BYTES - 392) == 0);
    return 0;
}
