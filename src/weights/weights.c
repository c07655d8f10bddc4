/* SPDX-License-Identifier: Apache-2.0
 * weights.c - the open checkpoint: a list of files and one of tensors, which readers fill and others search by name. */
#include "weights/weights.h"

#include "base/alloc.h"
#include "base/checked.h"
#include "weights/parts.h"

proa_weights *proa_weights_new(void)
{
    proa_weights *w = proa_calloc(1, sizeof *w);
    proa_arena_init(&w->arena);
    return w;
}

void proa_weights_close(proa_weights *w)
{
    if (!w) return;
    for (int32_t i = 0; i < w->file_count; i++) proa_mmap_close(&w->files[i].map);
    proa_map_release(&w->by_name);
    proa_arena_release(&w->arena);
    free(w->tensors);
    free(w->files);
    free(w->made);
    free(w);
}

int32_t proa_weights_add_file(proa_weights *w, const char *name)
{
    if (w->file_count == w->file_cap) {
        w->file_cap = w->file_cap ? 2 * w->file_cap : 4;
        w->files = proa_realloc(w->files, (size_t)w->file_cap * sizeof *w->files);
    }
    w->files[w->file_count] = (proa_weights_file){.name = proa_arena_strdup(&w->arena, proa_str_c(name))};
    return w->file_count++;
}

proa_status proa_weights_read_file_as(proa_weights *w, const char *path, proa_weights_reader *read, proa_err *err)
{
    const char *slash = strrchr(path, '/');
    int32_t file = proa_weights_add_file(w, slash ? slash + 1 : path);
    proa_mmap *map = &w->files[file].map;
    PROA_TRY(proa_mmap_open(map, path, err));
    w->files[file].path = proa_arena_strdup(&w->arena, proa_str_c(path));
    proa_status status = read(w, map->ptr, map->bytes, file, err);
    map = &w->files[file].map; /* the reader may have added files */
    if (!proa_guard_broken(map->guard)) return status;
    proa_err_clear(err); /* what the reader found wrong was not in the file */
    return proa_mmap_check(map, path, err);
}

proa_status proa_weights_add_tensor(proa_weights *w, proa_weights_tensor tensor, proa_err *err)
{
    if (w->count >= PROA_TENSORS_MAX)
        return PROA_FAIL(err, LIMIT, "%s: more than %d tensors", w->files[tensor.file].name, PROA_TENSORS_MAX);
    if (w->count == w->cap) {
        w->cap = w->cap ? 2 * w->cap : 64;
        w->tensors = proa_realloc(w->tensors, (size_t)w->cap * sizeof *w->tensors);
    }
    w->tensors[w->count++] = tensor;
    return PROA_OK;
}

void proa_weights_add_made(proa_weights *w, proa_made_file made)
{
    if (w->files_by_name.made_count == w->made_cap) {
        w->made_cap = w->made_cap ? 2 * w->made_cap : 4;
        w->made = proa_realloc(w->made, (size_t)w->made_cap * sizeof *w->made);
        w->files_by_name.made = w->made;
    }
    w->made[w->files_by_name.made_count++] = made;
}

const proa_files *proa_weights_files(const proa_weights *w)
{
    return &w->files_by_name;
}

static int by_name(const void *a, const void *b)
{
    const proa_weights_tensor *x = a, *y = b;
    return strcmp(x->name, y->name);
}

void proa_weights_index(proa_weights *w)
{
    proa_map_release(&w->by_name);
    if (w->count) qsort(w->tensors, (size_t)w->count, sizeof *w->tensors, by_name);
    proa_map_init(&w->by_name, w->count);
    for (int64_t i = 0; i < w->count; i++) {
        bool fresh = proa_map_put(&w->by_name, proa_str_c(w->tensors[i].name), (int32_t)i);
        PROA_ASSERT(fresh); /* the readers reject duplicate names */
    }
}

proa_status proa_weights_check(const proa_weights *w, proa_err *err)
{
    for (int32_t i = 0; i < w->file_count; i++)
        if (w->files[i].path) PROA_TRY(proa_mmap_check(&w->files[i].map, w->files[i].path, err));
    return PROA_OK;
}

static uint64_t mix_hash(uint64_t hash, const void *bytes, size_t len)
{
    uint64_t pair[2] = {hash, proa_str_hash((proa_str){bytes, len})};
    return proa_str_hash((proa_str){(const char *)pair, sizeof pair});
}

uint64_t proa_weights_fingerprint(const proa_weights *w)
{
    uint64_t hash = (uint64_t)w->count;
    for (int32_t i = 0; i < w->file_count; i++) {
        const proa_mmap *map = &w->files[i].map;
        hash = mix_hash(hash, w->files[i].name, strlen(w->files[i].name));
        hash = mix_hash(hash, &map->bytes, sizeof map->bytes);
        hash = mix_hash(hash, &map->written_ns, sizeof map->written_ns);
    }
    for (int64_t i = 0; i < w->count; i++) {
        const proa_weights_tensor *t = &w->tensors[i];
        const proa_view *v = &t->source.view;
        int32_t type[3] = {(int32_t)t->source.encoding, (int32_t)v->dtype, v->rank};
        hash = mix_hash(hash, t->name, strlen(t->name));
        hash = mix_hash(hash, type, sizeof type);
        hash = mix_hash(hash, v->shape, sizeof v->shape);
    }
    return hash;
}

void proa_weights_detach(proa_weights *w)
{
    for (int32_t i = 0; i < w->file_count; i++) proa_mmap_close(&w->files[i].map);
}

int64_t proa_weights_count(const proa_weights *w)
{
    return w->count;
}

const proa_weights_tensor *proa_weights_at(const proa_weights *w, int64_t i)
{
    PROA_ASSERT(i >= 0 && i < w->count);
    return &w->tensors[i];
}

const proa_weights_tensor *proa_weights_find(const proa_weights *w, const char *name)
{
    int32_t i = 0;
    return proa_map_find(&w->by_name, proa_str_c(name), &i) ? &w->tensors[i] : NULL;
}

/* One is the other with a prefix ("transformer.wte.weight" and "wte.weight"): the commonest difference between
 * checkpoints of one architecture, and far in edits. */
static bool behind_prefix(proa_str a, proa_str b)
{
    proa_str longer = a.len > b.len ? a : b, shorter = a.len > b.len ? b : a;
    return shorter.len && longer.len > shorter.len && proa_str_ends(longer, shorter) &&
           longer.ptr[longer.len - shorter.len - 1] == '.';
}

const char *proa_weights_nearest(const proa_weights *w, const char *name)
{
    proa_str want = proa_str_c(name);
    const char *nearest = NULL;
    int least = 3 + (int)proa_min64((int64_t)want.len, 64) / 4; /* beyond this it is another tensor */
    for (int64_t i = 0; i < w->count; i++) {
        proa_str have = proa_str_c(w->tensors[i].name);
        int distance = behind_prefix(want, have) ? 1 : proa_str_distance(name, have.ptr);
        if (distance >= least) continue;
        least = distance;
        nearest = have.ptr;
    }
    return nearest;
}

/* The pieces of a tensor may be in files of their own. */
static void drop_pieces(const proa_weights *w, const proa_tensor_pieces *t)
{
    for (int32_t i = 0; i < t->count; i++) {
        proa_tensor_source piece = proa_tensor_source_of(t->piece[i].view);
        for (int32_t f = 0; f < w->file_count; f++) {
            const proa_mmap *map = &w->files[f].map;
            const unsigned char *at = piece.view.data;
            if (map->ptr && at >= map->ptr && at < map->ptr + map->bytes)
                proa_mmap_drop(map, at, proa_tensor_source_bytes(&piece));
        }
    }
}

void proa_weights_drop(const proa_weights *w, const proa_weights_tensor *tensor)
{
    if (tensor->source.encoding == PROA_ENCODING_PIECES) {
        drop_pieces(w, tensor->source.view.data);
        return;
    }
    const proa_mmap *map = &w->files[tensor->file].map;
    int64_t bytes = proa_tensor_source_bytes(&tensor->source);
    if (map->ptr && bytes) proa_mmap_drop(map, tensor->source.view.data, bytes);
}
