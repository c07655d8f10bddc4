/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a page of an object store's listing: the first byte chooses whose. What is listed has a name, a size and
 * a state, and becomes a snapshot whose paths stay inside, or nothing. */
#include "fuzz.h"

#include "hub/cloud/snapshot.h"
#include "hub/name.h"
#include <string.h>

static void check(const proa_cloud_listing *l)
{
    proa_cloud_snapshot s;
    proa_err err = {.status = PROA_OK};
    for (int64_t i = 0; i < l->count; i++) {
        const proa_hub_entry *e = &l->entries[i];
        PROA_ASSERT(e->path[0] && e->size >= 0 && e->match[0] && e->etag[0]);
        PROA_ASSERT(i == 0 || strcmp(l->entries[i - 1].path, e->path) < 0);
    }
    if (proa_cloud_snapshot_read(&s, l->entries, l->count, "", &err) != PROA_OK) PROA_ASSERT(err.text[0]);
    else
        for (int64_t i = 0; i < s.tree.count; i++)
            PROA_ASSERT(proa_hub_is_path(proa_str_c(s.tree.entries[i].path)));
    proa_cloud_snapshot_release(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const addresses[] = {"s3://b/r", "gs://b/r", "as://a/b/r"};
    proa_cloud_address address;
    proa_cloud_listing l;
    proa_err err = {.status = PROA_OK};
    if (size == 0) return 0;
    PROA_ASSERT(proa_cloud_address_parse(&address, addresses[data[0] % 3], NULL) == PROA_OK);
    proa_str page = {(const char *)data + 1, size - 1};
    char words[100];
    proa_cloud_error_words(words, sizeof words, page);
    proa_cloud_listing_init(&l);
    bool good = proa_cloud_listing_add(&l, &address, "r/", page, &err) == PROA_OK &&
                proa_cloud_listing_sort(&l, &err) == PROA_OK;
    if (good) check(&l);
    else PROA_ASSERT(err.text[0]);
    proa_cloud_listing_release(&l);
    return 0;
}
