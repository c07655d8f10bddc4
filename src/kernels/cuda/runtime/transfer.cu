/* SPDX-License-Identifier: Apache-2.0
 * transfer.cu - copies between host and GPU. Small arrays go through a small pinned ring; weights from a
 * mapped file go through a large one, which all CPU cores fill while earlier slots are being copied. A step's
 * arrays and results are moved by a kernel, since a copy between two kernels costs the stream more than its
 * bytes. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "base/alloc.h"
#include "base/cpu.h"
#include "base/thread.h"
}
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RING_SLOTS = 4, FILL_THREADS_MAX = 16 };
/* A small slot holds all arrays of a step. A large slot is filled in about 0.5 ms, so that waking the threads
 * does not count. */
static const size_t SMALL_SLOT = 1 << 20, LARGE_SLOT = 16 << 20, LARGE_FROM = 2 << 20, FILL_GRAIN = 128 << 10;

struct gpu_ring {
    char *memory; /* pinned */
    size_t slot_bytes, at;
    int slot;
    cudaEvent_t slot_done[RING_SLOTS]; /* what was copied from a slot has arrived */
};

struct gpu_uploads {
    gpu_ring small, large; /* large: exists from the first large upload until gpu_uploads_release_staging */
    bool no_large;         /* could not be had */
    cudaStream_t copy_stream;                      /* of what is sent beside kernels */
    cudaEvent_t kernels_done;                      /* that was made */
    cudaEvent_t ticket_done[PROA_SEND_TICKETS];    /* the last of a ticket has */
    cudaEvent_t later_done[PROA_SEND_TICKETS - 2]; /* as gpu.copy_done, of tickets from 2 on */
    int last_ticket;                               /* ticket that was sent so */
    proa_pool *pool;
};

static void close_ring(gpu_ring *r)
{
    for (int i = 0; i < RING_SLOTS; i++)
        if (r->slot_done[i]) cudaEventDestroy(r->slot_done[i]);
    if (r->memory) cudaFreeHost(r->memory);
    *r = {};
}

static cudaError_t open_ring(gpu_ring *r, size_t slot_bytes)
{
    *r = {};
    r->slot_bytes = slot_bytes;
    cudaError_t status = cudaMallocHost((void **)&r->memory, RING_SLOTS * slot_bytes);
    for (int i = 0; i < RING_SLOTS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&r->slot_done[i], cudaEventDisableTiming);
    if (status == cudaSuccess) return status;
    cudaGetLastError(); /* reported by the return value */
    close_ring(r);
    return status;
}

/* The next slot, once what was sent from it has arrived. */
static void next_slot(gpu *g, gpu_ring *r)
{
    gpu_note(g, cudaEventRecord(r->slot_done[r->slot], g->stream), "upload");
    r->slot = (r->slot + 1) % RING_SLOTS;
    r->at = 0;
    gpu_note(g, cudaEventSynchronize(r->slot_done[r->slot]), "upload"); /* one never recorded is no wait */
}

struct fill_job {
    char *to;
    const char *from;
    size_t bytes;
};

/* Mapping the pages of a file in one call is much cheaper than one fault for each few of them. A kernel that
 * does not know the advice takes the faults. */
static void copy_grains(void *arg, int64_t begin, int64_t end, int worker)
{
    const fill_job *job = (const fill_job *)arg;
    size_t from = (size_t)begin * FILL_GRAIN, to = (size_t)end * FILL_GRAIN;
    PROA_UNUSED(worker);
    if (to > job->bytes) to = job->bytes;
#ifdef MADV_POPULATE_READ
    uintptr_t first = (uintptr_t)(job->from + from) & ~(uintptr_t)4095;
    madvise((void *)first, (uintptr_t)(job->from + to) - first, MADV_POPULATE_READ);
#endif
    memcpy(job->to + from, job->from + from, to - from);
}

static bool large_ring(gpu_uploads *u)
{
    if (u->large.memory) return true;
    if (u->no_large || open_ring(&u->large, LARGE_SLOT) != cudaSuccess) return u->no_large = true, false;
    int threads = proa_cpu_count();
    u->pool = proa_pool_new(threads < FILL_THREADS_MAX ? threads : FILL_THREADS_MAX);
    return true;
}

static void fill_slot(gpu_uploads *u, char *scratch, const char *from, size_t bytes, bool large)
{
    fill_job job = {scratch, from, bytes};
    if (!large) memcpy(scratch, from, bytes);
    else proa_pool_run(u->pool, (int64_t)((bytes + FILL_GRAIN - 1) / FILL_GRAIN), 1, copy_grains, &job);
}

enum { PINNED_COPY_THREADS = 256, PINNED_COPY_MAX = 256 << 10 };

/* Copies words between the GPU and pinned memory of the host, 16 bytes a thread. What the host wrote is read
 * before gpu_wait and past the caches; what kernels wrote is read after it. */
__global__ void pinned_copy_kernel(uint32_t *dst, const uint32_t *src, int words, bool from_host)
{
    int i = (blockIdx.x * PINNED_COPY_THREADS + threadIdx.x) * 4;
    uint4 v = {};
    uint32_t *w = &v.x;
    bool whole = i + 4 <= words;
    if (!from_host) gpu_wait();
    if (from_host && whole) v = __ldcv((const uint4 *)(src + i));
    else if (whole) v = *(const uint4 *)(src + i);
    else
        for (int k = 0; k < 4; k++)
            if (i + k < words) w[k] = __ldcv(src + i + k);
    if (from_host) gpu_wait();
    if (whole) *(uint4 *)(dst + i) = v;
    else
        for (int k = 0; k < 4; k++)
            if (i + k < words) dst[i + k] = w[k];
}

static bool can_pinned_copy(const void *dst, size_t bytes)
{
    return bytes <= PINNED_COPY_MAX && bytes % 4 == 0 && (uintptr_t)dst % 16 == 0;
}

static void pinned_copy(gpu *g, void *dst, const void *src, size_t bytes, bool from_host)
{
    int words = (int)(bytes / 4), each = 4 * PINNED_COPY_THREADS;
    gpu_launch(g, from_host ? "upload" : "send", pinned_copy_kernel, dim3((unsigned)((words + each - 1) / each)),
               PINNED_COPY_THREADS, 0, (uint32_t *)dst, (const uint32_t *)src, words, from_host);
    g->serialize_next = from_host; /* kernels read a step's arrays before gpu_wait */
}

static void copy_on_copy_stream(gpu *g, void *dst, const void *src, size_t bytes, int ticket)
{
    gpu_uploads *u = g->uploads;
    gpu_note(g, cudaEventRecord(u->kernels_done, g->stream), "send");
    gpu_note(g, cudaStreamWaitEvent(u->copy_stream, u->kernels_done, 0), "send");
    gpu_note(g, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, u->copy_stream), "send");
    gpu_note(g, cudaEventRecord(u->ticket_done[ticket], u->copy_stream), "send");
    u->last_ticket = ticket;
}

void gpu_wait_copies_on_stream(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaStreamWaitEvent(g->stream, g->uploads->ticket_done[g->uploads->last_ticket], 0), "send");
    g->serialize_next = true; /* the event is no kernel that it could begin beside */
}

/* What was sent with a ticket below PROA_SEND_UNORDERED has arrived. */
static cudaEvent_t arrival_of(const gpu *g, int ticket)
{
    return ticket < 2 ? g->copy_done[ticket] : g->uploads->later_done[ticket - 2];
}

/* To memory of gpu_host_alloc. */
void gpu_copy_to_host(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    if (ticket >= PROA_SEND_UNORDERED)
        return copy_on_copy_stream(g, dst, src, (size_t)bytes, ticket - PROA_SEND_UNORDERED);
    if (bytes > 0 && can_pinned_copy(dst, (size_t)bytes) && (uintptr_t)src % 16 == 0)
        pinned_copy(g, dst, src, (size_t)bytes, false);
    else if (bytes > 0)
        gpu_note(g, cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost, g->stream), "send");
    gpu_note(g, cudaEventRecord(arrival_of(g, ticket), g->stream), "send");
}

void gpu_wait_copy(proa_device *d, int ticket)
{
    gpu *g = gpu_enter(d);
    bool beside = ticket >= PROA_SEND_UNORDERED;
    gpu_note(g,
             cudaEventSynchronize(beside ? g->uploads->ticket_done[ticket - PROA_SEND_UNORDERED]
                                         : arrival_of(g, ticket)),
             "send");
}

void gpu_upload(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    gpu *g = gpu_enter(d);
    gpu_uploads *u = g->uploads;
    gpu_flush(g); /* it may read what is written now */
    gpu_fp8_rows_drop(g);
    gpu_derived_drop(g, dst, bytes);
    const char *from = (const char *)src;
    char *to = (char *)dst;
    bool large = bytes >= (int64_t)LARGE_FROM && large_ring(u);
    gpu_ring *r = large ? &u->large : &u->small;
    while (bytes > 0) {
        size_t n = (size_t)bytes < r->slot_bytes ? (size_t)bytes : r->slot_bytes;
        if (r->at + n > r->slot_bytes) next_slot(g, r);
        char *scratch = r->memory + (size_t)r->slot * r->slot_bytes + r->at;
        fill_slot(u, scratch, from, n, large);
        if (!large && can_pinned_copy(to, n)) pinned_copy(g, to, scratch, n, true);
        else gpu_note(g, cudaMemcpyAsync(to, scratch, n, cudaMemcpyHostToDevice, g->stream), "upload");
        r->at += (n + 63) / 64 * 64;
        from += n, to += n, bytes -= (int64_t)n;
    }
}

void gpu_uploads_release_staging(gpu *g)
{
    gpu_uploads *u = g->uploads;
    if (!u->large.memory) return;
    cudaStreamSynchronize(g->stream);
    close_ring(&u->large);
    proa_pool_free(u->pool);
    u->pool = NULL;
}

cudaError_t gpu_uploads_open(gpu *g)
{
    g->uploads = (gpu_uploads *)proa_calloc(1, sizeof *g->uploads);
    cudaError_t status = cudaStreamCreateWithFlags(&g->uploads->copy_stream, cudaStreamNonBlocking);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&g->uploads->kernels_done, cudaEventDisableTiming);
    for (cudaEvent_t &event : g->uploads->ticket_done)
        if (status == cudaSuccess) status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    for (cudaEvent_t &event : g->uploads->later_done)
        if (status == cudaSuccess) status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    return status == cudaSuccess ? open_ring(&g->uploads->small, SMALL_SLOT) : status;
}

void gpu_uploads_close(gpu *g)
{
    if (!g->uploads) return;
    gpu_uploads_release_staging(g);
    close_ring(&g->uploads->small);
    if (g->uploads->kernels_done) cudaEventDestroy(g->uploads->kernels_done);
    for (cudaEvent_t ticket_done : g->uploads->ticket_done)
        if (ticket_done) cudaEventDestroy(ticket_done);
    for (cudaEvent_t event : g->uploads->later_done)
        if (event) cudaEventDestroy(event);
    if (g->uploads->copy_stream) cudaStreamDestroy(g->uploads->copy_stream);
    free(g->uploads);
}
