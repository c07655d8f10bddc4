/* SPDX-License-Identifier: Apache-2.0
 * What a hub sends: the first byte chooses a list of files, the list that huggingface_hub keeps of it, or the header
 * lines of an answer. What is listed stays inside a folder, once each, and reads back as it is written; of headers
 * nothing is longer than its field. */
#include "fuzz.h"

#include "base/alloc.h"
#include "hub/name.h"
#include "hub/reply.h"
#include "hub/tree.h"
#include <string.h>

static const char commit[] = "0123456789abcdef0123456789abcdef01234567";

static void check_tree(const proa_hub_tree *tree)
{
    for (int64_t i = 0; i < tree->count; i++) {
        const proa_hub_entry *e = &tree->entries[i];
        PROA_ASSERT(proa_hub_is_path(proa_str_c(e->path)) && e->size >= -1 && e->size <= PROA_HUB_FILE_BYTES_MAX);
        PROA_ASSERT(i == 0 || strcmp(tree->entries[i - 1].path, e->path) < 0);
        size_t etag = strlen(e->etag), blob = strlen(e->blob_id);
        PROA_ASSERT((etag == 0 || etag == (e->lfs ? 64 : 40)) && (blob == 0 || blob == 40));
        PROA_ASSERT(etag || e->size == -1); /* bytes that cannot be checked are not resumed by their number */
    }
}

static void check_same(const proa_hub_tree *tree)
{
    proa_hub_tree again;
    proa_buf text;
    proa_hub_tree_init(&again);
    proa_buf_init(&text, (size_t)PROA_HUB_LIST_BYTES_MAX);
    if (proa_hub_tree_write(tree, &text)) {
        PROA_ASSERT(proa_hub_tree_read(&again, tree->commit, proa_buf_view(&text), NULL) == PROA_OK);
        PROA_ASSERT(again.count == tree->count);
        for (int64_t i = 0; i < tree->count; i++) {
            const proa_hub_entry *a = &tree->entries[i], *b = &again.entries[i];
            PROA_ASSERT(strcmp(a->path, b->path) == 0 && a->size == b->size && a->lfs == b->lfs);
            PROA_ASSERT(strcmp(a->etag, b->etag) == 0 && strcmp(a->blob_id, b->blob_id) == 0);
        }
    }
    proa_buf_release(&text);
    proa_hub_tree_release(&again);
}

static void choose(proa_hub_tree *tree, const char *file)
{
    const char *gguf;
    proa_err err = {.status = PROA_OK};
    int64_t wanted = 0;
    if (proa_hub_choose(tree, "org/name", file, &gguf, &err) != PROA_OK) {
        PROA_ASSERT(err.text[0] && !gguf);
        return;
    }
    for (int64_t i = 0; i < tree->count; i++) wanted += tree->entries[i].wanted;
    PROA_ASSERT(wanted > 0 && (!file[0] || gguf));
}

static void read_tree(proa_str text, bool kept)
{
    proa_hub_tree tree;
    proa_err err = {.status = PROA_OK};
    proa_hub_tree_init(&tree);
    proa_status status = kept ? proa_hub_tree_read(&tree, commit, text, &err)
                              : proa_hub_tree_parse(&tree, text, &err);
    if (status == PROA_OK) {
        check_tree(&tree);
        check_same(&tree);
        choose(&tree, "Q4_K");
        choose(&tree, "");
    } else PROA_ASSERT(err.text[0]);
    proa_hub_tree_release(&tree);
}

static void read_headers(proa_str text)
{
    proa_hub_reply r = {.location = NULL};
    proa_hub_reply_clear(&r);
    while (text.len) {
        const char *end = memchr(text.ptr, '\n', text.len);
        size_t len = end ? (size_t)(end - text.ptr) + 1 : text.len;
        char *line = proa_malloc(len); /* of exactly that many bytes, as libcurl gives no NUL */
        memcpy(line, text.ptr, len);
        proa_hub_reply_header(&r, (proa_str){line, len});
        free(line);
        text.ptr += len, text.len -= len;
    }
    PROA_ASSERT(r.length >= -1 && r.linked_size >= -1 && r.range_first >= -1 && r.range_total >= -1);
    PROA_ASSERT(r.retry_after_s >= -1 && (!r.location || strlen(r.location) < (size_t)PROA_HUB_URL_MAX));
    proa_hub_reply_clear(&r);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    proa_str text = {(const char *)data + 1, size - 1};
    if (data[0] % 3 < 2) read_tree(text, data[0] % 3 == 1);
    else read_headers(text);
    return 0;
}
