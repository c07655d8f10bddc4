/* SPDX-License-Identifier: Apache-2.0
 * page_copy.c - pages to memory of the host and back. */
#include "kv/page_copy.h"

#include "base/checked.h"

int64_t proa_kv_image_bytes(const proa_kv_pages *p)
{
    return 2 * (int64_t)p->layers * p->block_bytes + (p->attached ? proa_kv_image_bytes(p->attached) : 0);
}

char *proa_kv_images_alloc(const proa_kv_pages *p, int64_t count)
{
    int64_t bytes;
    if (!proa_mul(proa_kv_image_bytes(p), count, &bytes) || bytes <= 0) return NULL;
    return p->device->host_alloc(p->device, bytes);
}

void proa_kv_images_free(const proa_kv_pages *p, char *images)
{
    if (images) p->device->host_free(p->device, images);
}

/* Where the page's keys of the first layer are. Its other blocks follow at the distance of all pages' keys. */
static char *first_block(const proa_kv_pages *p, int32_t page)
{
    PROA_ASSERT(page >= 0 && page < p->count);
    return p->memory + page * p->block_bytes;
}

/* What another model has in the page comes last in the image; the number of the last copy is that of all. */
int64_t proa_kv_page_save(const proa_kv_pages *p, int32_t page, char *image)
{
    int64_t blocks = 2 * (int64_t)p->layers;
    proa_kv_pages_settle(p);
    int64_t nr = p->device->save_pieces(p->device, image, first_block(p, page), p->block_bytes, blocks,
                                        p->count * p->block_bytes);
    return p->attached ? proa_kv_page_save(p->attached, page, image + blocks * p->block_bytes) : nr;
}

int64_t proa_kv_page_load(const proa_kv_pages *p, int32_t page, const char *image)
{
    int64_t blocks = 2 * (int64_t)p->layers;
    proa_kv_pages_settle(p);
    int64_t nr = p->device->load_pieces(p->device, first_block(p, page), image, p->block_bytes, blocks,
                                        p->count * p->block_bytes);
    return p->attached ? proa_kv_page_load(p->attached, page, image + blocks * p->block_bytes) : nr;
}

static bool is_alike(const proa_kv_pages *p, const proa_kv_pages *from)
{
    return p->layers == from->layers && p->kv_heads == from->kv_heads && p->head_dim == from->head_dim &&
           p->dtype == from->dtype && p->device->host == from->device->host;
}

bool proa_kv_pages_alike(const proa_kv_pages *p, const proa_kv_pages *from)
{
    while (p && from && is_alike(p, from)) p = p->attached, from = from->attached;
    return !p && !from;
}

void proa_kv_pages_fetch(const proa_kv_pages *p, const int32_t *to_page, const proa_kv_pages *from,
                         const int32_t *from_page, int64_t pages, int64_t *nr)
{
    PROA_ASSERT(proa_kv_pages_alike(p, from));
    proa_kv_pages_settle(p);
    for (; p; p = p->attached, from = from->attached) {
        const proa_page_move move = {.to = p->memory,
                                     .from = from->memory,
                                     .bytes = p->block_bytes,
                                     .count = 2 * (int64_t)p->layers,
                                     .to_stride = p->count * p->block_bytes,
                                     .from_stride = from->count * from->block_bytes,
                                     .to_page = to_page,
                                     .from_page = from_page,
                                     .pages = pages};
        *nr++ = p->device->fetch_pages(p->device, from->device, &move);
    }
}

bool proa_kv_pages_fetched(const proa_kv_pages *p, const int64_t *nr)
{
    for (; p; p = p->attached)
        if (p->device->pieces_done(p->device) < *nr++) return false;
    return true;
}

void proa_kv_pages_wait_on_stream(const proa_kv_pages *p)
{
    p->device->wait_pieces_on_stream(p->device);
}

int64_t proa_kv_pages_copied(const proa_kv_pages *p)
{
    return p->device->pieces_done(p->device);
}

void proa_kv_page_wait(const proa_kv_pages *p, int64_t nr)
{
    p->device->wait_pieces(p->device, nr);
}
