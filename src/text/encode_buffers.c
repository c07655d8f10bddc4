/* SPDX-License-Identifier: Apache-2.0
 * encode_buffers.c - the growing tables of one encode call: parts, spans, ids and scratch. */
#include "base/alloc.h"
#include "base/limits.h"
#include "text/pipeline.h"

void proa_ids_push(proa_ids *ids, int32_t id)
{
    if (ids->len == ids->cap) {
        ids->cap = ids->cap ? 2 * ids->cap : 64;
        ids->ptr = proa_realloc(ids->ptr, (size_t)ids->cap * sizeof *ids->ptr);
    }
    ids->ptr[ids->len++] = id;
}

void proa_ids_clear(proa_ids *ids)
{
    ids->len = 0;
}

void proa_ids_release(proa_ids *ids)
{
    free(ids->ptr);
    *ids = (proa_ids){0};
}

void proa_parts_init(proa_parts *parts)
{
    *parts = (proa_parts){0};
    proa_buf_init(&parts->text, (size_t)PROA_NORMALIZED_BYTES_MAX);
}

void proa_parts_release(proa_parts *parts)
{
    free(parts->ptr);
    proa_buf_release(&parts->text);
    *parts = (proa_parts){0};
}

void proa_parts_clear(proa_parts *parts)
{
    parts->len = 0;
    proa_buf_clear(&parts->text);
}

proa_str proa_parts_text(const proa_parts *parts, int64_t i)
{
    return (proa_str){parts->text.ptr + parts->ptr[i].at, (size_t)parts->ptr[i].len};
}

void proa_parts_add(proa_parts *parts, size_t base, size_t from, size_t to, size_t zero, int32_t id)
{
    if (from >= to && id < 0) return;
    if (parts->len == parts->cap) {
        parts->cap = parts->cap ? 2 * parts->cap : 64;
        parts->ptr = proa_realloc(parts->ptr, (size_t)parts->cap * sizeof *parts->ptr);
    }
    size_t len = to - from, own = zero > from ? zero - from : 0;
    parts->ptr[parts->len++] = (proa_part){
        .at = (int32_t)(base + from), .len = (int32_t)len, .zero = (int32_t)(own < len ? own : len), .id = id};
}

void *proa_encode_scratch_take(proa_encode_scratch *work, int which, size_t count, size_t bytes)
{
    size_t need = count * bytes;
    if (need > work->cap[which]) {
        free(work->ptr[which]);
        work->cap[which] = need < 4096 ? 4096 : need + need / 2;
        work->ptr[which] = proa_malloc(work->cap[which]);
    }
    return work->ptr[which];
}

void proa_encode_scratch_release(proa_encode_scratch *work)
{
    for (size_t i = 0; i < PROA_COUNT(work->ptr); i++) free(work->ptr[i]);
    *work = (proa_encode_scratch){0};
}
