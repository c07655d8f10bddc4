/* SPDX-License-Identifier: Apache-2.0
 * upload.cu - host memory to the GPU and back. What is small goes through a little pinned ring; weights out of a mapped
 * file through a larger one, which all cores fill while what they filled before is on its way. A step's arrays and results
 * are moved by a kernel: a copy between two kernels costs the stream more than its bytes. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "base/alloc.h"
#include "base/thread.h"
}
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { RING_SLOTS = 4, FILL_THREADS_MAX = 16 };
/* A slot holds a whole step's arrays; a large one is filled in some 0.5 ms, so that waking the threads does not show. */
static const size_t SMALL_SLOT = 1 << 20, LARGE_SLOT = 16 << 20, LARGE_FROM = 2 << 20, FILL_GRAIN = 128 << 10;

struct gpu_ring {
    char *memory; /* pinned */
    size_t slot_bytes, at;
    int slot;
    cudaEvent_t sent[RING_SLOTS]; /* what was copied from a slot has arrived */
};

struct gpu_uploads {
    gpu_ring small, large; /* large: from the first large upload until gpu_uploads_rest */
    bool no_large;         /* could not be had */
    cudaStream_t way_out;  /* of what is sent beside kernels */
    cudaEvent_t made;      /* that was made */
    cudaEvent_t left[2];   /* the last of a ticket has */
    int last;              /* ticket that was sent so */
    proa_pool *pool;
};

static void close_ring(gpu_ring *r)
{
    for (int i = 0; i < RING_SLOTS; i++)
        if (r->sent[i]) cudaEventDestroy(r->sent[i]);
    if (r->memory) cudaFreeHost(r->memory);
    *r = {};
}

static cudaError_t open_ring(gpu_ring *r, size_t slot_bytes)
{
    *r = {};
    r->slot_bytes = slot_bytes;
    cudaError_t status = cudaMallocHost((void **)&r->memory, RING_SLOTS * slot_bytes);
    for (int i = 0; i < RING_SLOTS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&r->sent[i], cudaEventDisableTiming);
    if (status == cudaSuccess) return status;
    cudaGetLastError(); /* told by the return value */
    close_ring(r);
    return status;
}

/* The next slot, once what was sent from it has arrived. */
static void turn(gpu *g, gpu_ring *r)
{
    gpu_note(g, cudaEventRecord(r->sent[r->slot], g->stream), "upload");
    r->slot = (r->slot + 1) % RING_SLOTS;
    r->at = 0;
    gpu_note(g, cudaEventSynchronize(r->sent[r->slot]), "upload"); /* one never recorded is no wait */
}

struct fill_job {
    char *to;
    const char *from;
    size_t bytes;
};

/* Mapping the pages of a file in one call is much cheaper than a fault for each few of them; where the kernel does not
 * know the advice the faults do it. */
static void fill(void *arg, int64_t begin, int64_t end, int worker)
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

static void fill_slot(gpu_uploads *u, char *room, const char *from, size_t bytes, bool large)
{
    fill_job job = {room, from, bytes};
    if (!large) memcpy(room, from, bytes);
    else proa_pool_run(u->pool, (int64_t)((bytes + FILL_GRAIN - 1) / FILL_GRAIN), 1, fill, &job);
}

enum { MOVE_THREADS = 256, MOVE_MAX = 256 << 10 };

/* One side is pinned memory of the host, 16 bytes a thread. What the host wrote is read ahead of the kernels before, and
 * past the caches; what they made is not. */
__global__ void move_kernel(uint32_t *dst, const uint32_t *src, int words, bool from_host)
{
    int i = (blockIdx.x * MOVE_THREADS + threadIdx.x) * 4;
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

static bool movable(const void *dst, size_t bytes)
{
    return bytes <= MOVE_MAX && bytes % 4 == 0 && (uintptr_t)dst % 16 == 0;
}

static void move(gpu *g, void *dst, const void *src, size_t bytes, bool from_host)
{
    int words = (int)(bytes / 4), each = 4 * MOVE_THREADS;
    gpu_launch(g, from_host ? "upload" : "send", move_kernel, dim3((unsigned)((words + each - 1) / each)), MOVE_THREADS, 0,
               (uint32_t *)dst, (const uint32_t *)src, words, from_host);
    g->plain_next = from_host; /* kernels may read a step's arrays before they wait for each other */
}

static void send_beside(gpu *g, void *dst, const void *src, size_t bytes, int ticket)
{
    gpu_uploads *u = g->uploads;
    gpu_note(g, cudaEventRecord(u->made, g->stream), "send");
    gpu_note(g, cudaStreamWaitEvent(u->way_out, u->made, 0), "send");
    gpu_note(g, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToHost, u->way_out), "send");
    gpu_note(g, cudaEventRecord(u->left[ticket], u->way_out), "send");
    u->last = ticket;
}

void gpu_after_sent(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaStreamWaitEvent(g->stream, g->uploads->left[g->uploads->last], 0), "send");
    g->plain_next = true; /* the event is no kernel that it could begin beside */
}

/* To memory of gpu_host_alloc. */
void gpu_send(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    if (ticket >= PROA_SEND_BESIDE) return send_beside(g, dst, src, (size_t)bytes, ticket - PROA_SEND_BESIDE);
    if (bytes > 0 && movable(dst, (size_t)bytes) && (uintptr_t)src % 16 == 0) move(g, dst, src, (size_t)bytes, false);
    else if (bytes > 0) gpu_note(g, cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost, g->stream), "send");
    gpu_note(g, cudaEventRecord(g->sent[ticket], g->stream), "send");
}

void gpu_sent(proa_device *d, int ticket)
{
    gpu *g = gpu_enter(d);
    bool beside = ticket >= PROA_SEND_BESIDE;
    gpu_note(g, cudaEventSynchronize(beside ? g->uploads->left[ticket - PROA_SEND_BESIDE] : g->sent[ticket]), "send");
}

void gpu_upload(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    gpu *g = gpu_enter(d);
    gpu_uploads *u = g->uploads;
    gpu_flush(g); /* it may read what is written now */
    gpu_codes_forget(g);
    gpu_biases_forget(g, dst, bytes);
    const char *from = (const char *)src;
    char *to = (char *)dst;
    bool large = bytes >= (int64_t)LARGE_FROM && large_ring(u);
    gpu_ring *r = large ? &u->large : &u->small;
    while (bytes > 0) {
        size_t n = (size_t)bytes < r->slot_bytes ? (size_t)bytes : r->slot_bytes;
        if (r->at + n > r->slot_bytes) turn(g, r);
        char *room = r->memory + (size_t)r->slot * r->slot_bytes + r->at;
        fill_slot(u, room, from, n, large);
        if (!large && movable(to, n)) move(g, to, room, n, true);
        else gpu_note(g, cudaMemcpyAsync(to, room, n, cudaMemcpyHostToDevice, g->stream), "upload");
        r->at += (n + 63) / 64 * 64;
        from += n, to += n, bytes -= (int64_t)n;
    }
}

void gpu_uploads_rest(gpu *g)
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
    cudaError_t status = cudaStreamCreateWithFlags(&g->uploads->way_out, cudaStreamNonBlocking);
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&g->uploads->made, cudaEventDisableTiming);
    for (int i = 0; i < 2 && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&g->uploads->left[i], cudaEventDisableTiming);
    return status == cudaSuccess ? open_ring(&g->uploads->small, SMALL_SLOT) : status;
}

void gpu_uploads_close(gpu *g)
{
    if (!g->uploads) return;
    gpu_uploads_rest(g);
    close_ring(&g->uploads->small);
    if (g->uploads->made) cudaEventDestroy(g->uploads->made);
    for (cudaEvent_t left : g->uploads->left)
        if (left) cudaEventDestroy(left);
    if (g->uploads->way_out) cudaStreamDestroy(g->uploads->way_out);
    free(g->uploads);
}
