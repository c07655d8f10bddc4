/* SPDX-License-Identifier: Apache-2.0
 * devices.c - memory of GPUs that a worker's process uses. All of it is the server's, so none is lost with the process:
 *             inputs are passed on where they are, and for outputs the process asks for memory and copies them there.
 *             The process opens memory by its handle and keeps it open, since opening costs more than most kernels; as
 *             long as it may have it open, the memory is not given back to the driver. */
#include "backends/process/devices.h"
#include "base/alloc.h"
#include "base/limits.h"
#include <string.h>

typedef struct opened {
    proa_gpu_block *block;
    uint64_t memory;
    int64_t sent; /* places of this memory that the process has been sent since it last had it closed */
} opened;

typedef struct lease {
    uint64_t number;
    proa_buffer *buffer;
} lease;

struct proa_devices {
    pthread_mutex_t lock; /* of all below */
    opened *opened;
    lease *leases;
    int opened_count, opened_cap, lease_count, lease_cap;
    uint64_t lease_last;
};

proa_devices *proa_devices_new(void)
{
    proa_devices *d = proa_calloc(1, sizeof *d);
    pthread_mutex_init(&d->lock, NULL);
    return d;
}

void proa_devices_clear(proa_devices *d)
{
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->opened_count; i++) proa_gpu_block_closed(d->opened[i].block);
    for (int i = 0; i < d->lease_count; i++) proa_buffer_drop(d->leases[i].buffer);
    d->opened_count = d->lease_count = 0;
    pthread_mutex_unlock(&d->lock);
}

void proa_devices_free(proa_devices *d)
{
    if (!d) return;
    proa_devices_clear(d);
    pthread_mutex_destroy(&d->lock);
    free(d->opened);
    free(d->leases);
    free(d);
}

/* ---- memory that the process opens ---- */

/* Under the lock; NULL: the process does not have it. */
static opened *find_opened(proa_devices *d, uint64_t memory)
{
    for (int i = 0; i < d->opened_count; i++)
        if (d->opened[i].memory == memory) return &d->opened[i];
    return NULL;
}

static void note_sent(proa_devices *d, const proa_gpu_export *e)
{
    pthread_mutex_lock(&d->lock);
    opened *o = find_opened(d, e->number);
    if (!o) {
        if (d->opened_count == d->opened_cap) {
            d->opened_cap = d->opened_cap ? 2 * d->opened_cap : 16;
            d->opened = proa_realloc(d->opened, (size_t)d->opened_cap * sizeof *d->opened);
        }
        o = &d->opened[d->opened_count++];
        *o = (opened){.block = e->block, .memory = e->number};
        proa_gpu_block_opened(e->block);
    }
    o->sent++;
    pthread_mutex_unlock(&d->lock);
}

/* A place that is on its way has not been seen: the process will open the memory again. */
void proa_devices_closed(proa_devices *d, uint64_t memory, int64_t seen)
{
    pthread_mutex_lock(&d->lock);
    opened *o = find_opened(d, memory);
    if (o && seen > 0 && seen < o->sent) {
        o->sent -= seen;
    } else if (o && seen > 0) {
        proa_gpu_block_closed(o->block);
        *o = d->opened[--d->opened_count];
    }
    pthread_mutex_unlock(&d->lock);
}

static proa_status export_one(proa_devices *d, proa_channel_device *place, proa_buffer **held,
                              const proa_tensor *t, bool writable, proa_err *err)
{
    proa_gpu_export e;
    PROA_TRY(proa_gpu_export_tensor(&e, held, t, writable, err));
    *place = (proa_channel_device){.memory = e.number, .offset = e.offset, .gpu = (uint32_t)e.gpu};
    memcpy(place->handle, e.handle, sizeof place->handle);
    note_sent(d, &e);
    return PROA_OK;
}

proa_status proa_devices_export(proa_devices *d, proa_exports *e, const proa_tensor *tensors, int count,
                                bool writable, proa_err *err)
{
    proa_status status = PROA_OK;
    int any = 0;
    *e = (proa_exports){.places = NULL};
    while (any < count && !proa_tensor_device(&tensors[any])) any++;
    if (any == count) return PROA_OK;
    e->places = proa_calloc((size_t)count, sizeof *e->places);
    e->held = proa_calloc((size_t)count, sizeof(proa_buffer *)); /* NOLINT(bugprone-sizeof-expression) */
    for (int i = any; i < count && status == PROA_OK; i++)
        if (proa_tensor_device(&tensors[i]) && tensors[i].bytes)
            status = export_one(d, &e->places[i], &e->held[i], &tensors[i], writable, err);
    if (status != PROA_OK) proa_exports_release(d, e, count);
    return status;
}

void proa_exports_release(proa_devices *d, proa_exports *e, int count)
{
    for (int i = 0; e->held && i < count; i++) {
        if (!e->held[i]) continue;
        proa_devices_closed(d, e->places[i].memory, 1); /* it was not sent */
        proa_buffer_drop(e->held[i]);
    }
    free(e->places);
    free(e->held);
    *e = (proa_exports){.places = NULL};
}

/* ---- memory for outputs ---- */

proa_status proa_devices_lease(proa_devices *d, proa_tensor *t, uint64_t *number, int64_t gpu, uint64_t bytes,
                               proa_err *err)
{
    proa_buffer *buffer = NULL;
    PROA_TRY(proa_gpu_buffer_on(gpu, &buffer, (size_t)bytes, err));
    *t = (proa_tensor){.name = "",
                       .type = PROA_TYPE_UINT8,
                       .rank = 1,
                       .buffer = buffer,
                       .data = buffer->data,
                       .bytes = (size_t)bytes};
    t->shape[0] = (int64_t)bytes;
    pthread_mutex_lock(&d->lock);
    bool room = d->lease_count < PROA_PROCESS_LEASES_MAX;
    if (room && d->lease_count == d->lease_cap) {
        d->lease_cap = d->lease_cap ? 2 * d->lease_cap : 16;
        d->leases = proa_realloc(d->leases, (size_t)d->lease_cap * sizeof *d->leases);
    }
    *number = ++d->lease_last;
    if (room) d->leases[d->lease_count++] = (lease){*number, proa_buffer_hold(buffer)};
    pthread_mutex_unlock(&d->lock);
    if (room) return PROA_OK;
    proa_tensor_release(t);
    return PROA_FAIL(err, LIMIT, "the process has more than %d outputs on GPUs that it did not send",
                     PROA_PROCESS_LEASES_MAX);
}

static proa_buffer *remove_lease(proa_devices *d, uint64_t number)
{
    proa_buffer *found = NULL;
    pthread_mutex_lock(&d->lock);
    for (int i = 0; i < d->lease_count && !found; i++) {
        if (d->leases[i].number != number) continue;
        found = d->leases[i].buffer;
        d->leases[i] = d->leases[--d->lease_count];
    }
    pthread_mutex_unlock(&d->lock);
    return found;
}

proa_buffer *proa_devices_take_lease(proa_devices *d, uint64_t number, uint64_t bytes)
{
    proa_buffer *found = remove_lease(d, number);
    if (!found || bytes <= found->bytes) return found;
    proa_buffer_drop(found);
    return NULL;
}

void proa_devices_return_lease(proa_devices *d, uint64_t number)
{
    proa_buffer_drop(remove_lease(d, number));
}
