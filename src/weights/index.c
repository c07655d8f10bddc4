/* SPDX-License-Identifier: Apache-2.0
 * index.c - a checkpoint in several files: model.safetensors.index.json, or its like, lists the file of each tensor.
 * The index is {"metadata": ..., "weight_map": {tensor: file}}. It and the files must say the same. */
#include "weights/parts.h"

#include "base/alloc.h"
#include "base/json.h"
#include "base/limits.h"

typedef struct index_reader {
    proa_weights *w;
    const char *dir, *name; /* the folder, and the index's name in it */
    const proa_json *map;   /* weight_map */
    proa_map shard_of;      /* tensor name to shard */
    proa_map shards;        /* file name to shard */
    const char **names;     /* [count] of PROA_SHARDS_MAX: file names, in the JSON */
    int32_t count;
    proa_err *err;
} index_reader;

#define FAIL_INDEX(ix, status, fmt, ...) PROA_FAIL((ix)->err, status, "%s: " fmt, (ix)->name, __VA_ARGS__)

/* A file of this folder and of no other. */
static bool plain_name(proa_str s)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '/' || s.ptr[i] == '\0' || (s.ptr[i] == '.' && i + 1 < s.len && s.ptr[i + 1] == '.'))
            return false;
    return s.len > 0 && !proa_str_is(s, ".");
}

static proa_status add_entry(index_reader *ix, proa_str tensor, const proa_json *value)
{
    proa_str file = proa_json_str(value);
    int32_t shard = ix->count;
    if (tensor.len > PROA_TENSOR_NAME_MAX)
        return FAIL_INDEX(ix, LIMIT, "tensor '%.60s...': a name of %zu bytes, at most %d are read",
                          tensor.ptr, tensor.len, PROA_TENSOR_NAME_MAX);
    if (proa_json_kind(value) != PROA_JSON_STRING)
        return FAIL_INDEX(ix, CORRUPT, "tensor '%.*s': its file must be a string, not %s", PROA_NAME_SHOWN,
                          tensor.ptr, proa_json_kind_name(proa_json_kind(value)));
    if (!plain_name(file))
        return FAIL_INDEX(ix, CORRUPT, "tensor '%.*s': '%.*s' is not the plain name of a file in this folder",
                          PROA_NAME_SHOWN, tensor.ptr, PROA_NAME_SHOWN, file.ptr);
    if (!proa_map_find(&ix->shards, file, &shard)) {
        if (shard >= PROA_SHARDS_MAX) return FAIL_INDEX(ix, LIMIT, "more than %d files", PROA_SHARDS_MAX);
        proa_map_put(&ix->shards, file, shard);
        ix->names[ix->count++] = file.ptr;
    }
    proa_map_put(&ix->shard_of, tensor, shard);
    return PROA_OK;
}

/* Each tensor of a shard must be one that the index puts there; so no name is in two shards. */
static proa_status check_shard(const index_reader *ix, int32_t shard, int64_t first)
{
    for (int64_t i = first; i < ix->w->count; i++) {
        const char *name = ix->w->tensors[i].name;
        int32_t listed = 0;
        if (!proa_map_find(&ix->shard_of, proa_str_c(name), &listed))
            return FAIL_INDEX(ix, CORRUPT, "tensor '%.*s' of %.*s is not listed", PROA_NAME_SHOWN, name,
                              PROA_NAME_SHOWN, ix->names[shard]);
        if (listed != shard)
            return FAIL_INDEX(ix, CORRUPT, "tensor '%.*s' should be in %.*s, it is in %.*s", PROA_NAME_SHOWN,
                              name, PROA_NAME_SHOWN, ix->names[listed], PROA_NAME_SHOWN, ix->names[shard]);
    }
    return PROA_OK;
}

static proa_status read_shard(const index_reader *ix, int32_t shard)
{
    char path[PROA_PATH_MAX];
    int64_t first = ix->w->count;
    PROA_TRY(proa_path_join(path, ix->dir, ix->names[shard], ix->err));
    if (!proa_file_exists(path))
        return FAIL_INDEX(ix, NOT_FOUND, "the folder has no file '%.*s'", PROA_NAME_SHOWN, ix->names[shard]);
    PROA_TRY(proa_weights_read_file(ix->w, path, ix->err));
    return check_shard(ix, shard, first);
}

/* The files hold nothing but what is listed; so with the same count, nothing that is listed is missing. */
static proa_status check_listed(const index_reader *ix)
{
    proa_map have;
    int32_t value = 0;
    if (ix->w->count == proa_json_len(ix->map)) return PROA_OK;
    proa_map_init(&have, ix->w->count);
    for (int64_t i = 0; i < ix->w->count; i++) proa_map_put(&have, proa_str_c(ix->w->tensors[i].name), 0);
    proa_json_iter it = proa_json_begin(ix->map);
    while (proa_json_next(&it) && proa_map_find(&have, it.key, &value)) continue;
    proa_map_release(&have);
    return FAIL_INDEX(ix, CORRUPT, "tensor '%.*s' is not in %.*s", PROA_NAME_SHOWN, it.key.ptr,
                      PROA_NAME_SHOWN, proa_json_str(it.value).ptr);
}

static proa_status read_map(index_reader *ix)
{
    if (proa_json_kind(ix->map) != PROA_JSON_OBJECT)
        return FAIL_INDEX(ix, CORRUPT, "'weight_map' must be an object, not %s",
                          proa_json_kind_name(proa_json_kind(ix->map)));
    if (proa_json_len(ix->map) > PROA_TENSORS_MAX)
        return FAIL_INDEX(ix, LIMIT, "%lld tensors, at most %d are read", (long long)proa_json_len(ix->map),
                          PROA_TENSORS_MAX);
    for (proa_json_iter it = proa_json_begin(ix->map); proa_json_next(&it);)
        PROA_TRY(add_entry(ix, it.key, it.value));
    for (int32_t i = 0; i < ix->count; i++) PROA_TRY(read_shard(ix, i));
    return check_listed(ix);
}

proa_status proa_index_read(proa_weights *w, const char *dir, const char *name, proa_err *err)
{
    char path[PROA_PATH_MAX];
    proa_json *root = NULL;
    index_reader ix = {.w = w, .dir = dir, .name = name, .err = err};
    PROA_TRY(proa_path_join(path, dir, name, err));
    PROA_TRY(proa_json_load(&root, path, PROA_ST_INDEX_BYTES_MAX, err));
    ix.map = proa_json_get(root, "weight_map");
    ix.names = proa_calloc(PROA_SHARDS_MAX, sizeof *ix.names);
    proa_map_init(&ix.shard_of, proa_json_len(ix.map));
    proa_map_init(&ix.shards, 64);
    proa_status status = read_map(&ix);
    proa_map_release(&ix.shards);
    proa_map_release(&ix.shard_of);
    free(ix.names);
    proa_json_free(root);
    return status;
}
