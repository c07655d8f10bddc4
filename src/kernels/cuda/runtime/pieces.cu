/* SPDX-License-Identifier: Apache-2.0
 * pieces.cu - copies of many pieces between the GPU and pinned memory, beside the kernels: KV pages move to the host
 * and back by them. They run in a stream of their own, in order, and an event tells when each has ended. */
#include "kernels/cuda/runtime/cuda.h"

extern "C" {
#include "base/alloc.h"
}
#include <stdlib.h>

enum { EVENTS = 256 }; /* copies whose end is not known; one more waits for the oldest */

struct gpu_pieces {
    cudaStream_t stream;
    cudaEvent_t kernels_done; /* those submitted before the copy that follows */
    cudaEvent_t ended[EVENTS];
    int64_t count, done; /* copies submitted; of them known to have ended */
};

cudaError_t gpu_pieces_open(gpu *g)
{
    g->pieces = (gpu_pieces *)proa_calloc(1, sizeof *g->pieces);
    cudaError_t status = cudaStreamCreateWithFlags(&g->pieces->stream, cudaStreamNonBlocking);
    if (status == cudaSuccess)
        status = cudaEventCreateWithFlags(&g->pieces->kernels_done, cudaEventDisableTiming);
    for (int i = 0; i < EVENTS && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&g->pieces->ended[i], cudaEventDisableTiming);
    return status;
}

void gpu_pieces_close(gpu *g)
{
    if (!g->pieces) return;
    if (g->pieces->stream) cudaStreamSynchronize(g->pieces->stream);
    for (cudaEvent_t ended : g->pieces->ended)
        if (ended) cudaEventDestroy(ended);
    if (g->pieces->kernels_done) cudaEventDestroy(g->pieces->kernels_done);
    if (g->pieces->stream) cudaStreamDestroy(g->pieces->stream);
    free(g->pieces);
}

static cudaEvent_t event_of(gpu_pieces *p, int64_t nr)
{
    return p->ended[nr % EVENTS];
}

/* An error counts as an end; it is noted, and the device has failed. */
int64_t gpu_pieces_done(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_pieces *p = g->pieces;
    while (p->done < p->count) {
        cudaError_t status = cudaEventQuery(event_of(p, p->done + 1));
        if (status == cudaErrorNotReady) break;
        gpu_note(g, status, "copying pages");
        p->done++;
    }
    return p->done;
}

void gpu_wait_pieces(proa_device *d, int64_t nr)
{
    gpu *g = gpu_enter(d);
    gpu_pieces *p = g->pieces;
    if (nr <= p->done) return;
    gpu_note(g, cudaEventSynchronize(event_of(p, nr)), "copying pages");
    p->done = nr;
}

/* A copy of two dimensions takes strides up to 2 GiB; beyond it each piece is a copy of its own. */
static cudaError_t copy_pieces(gpu_pieces *p, char *to, const char *from, size_t bytes, int64_t count,
                               size_t to_stride, size_t from_stride, cudaMemcpyKind kind)
{
    cudaError_t status = cudaSuccess;
    if (to_stride <= INT32_MAX && from_stride <= INT32_MAX)
        return cudaMemcpy2DAsync(to, to_stride, from, from_stride, bytes, (size_t)count, kind, p->stream);
    for (int64_t i = 0; i < count && status == cudaSuccess; i++)
        status = cudaMemcpyAsync(to + i * to_stride, from + i * from_stride, bytes, kind, p->stream);
    return status;
}

/* The number of the copy that begins now, once the kernels that were submitted have ended. */
static int64_t begin_copy(gpu *g)
{
    gpu_pieces *p = g->pieces;
    gpu_flush(g);
    if (p->count - p->done >= EVENTS) gpu_wait_pieces(&g->base, p->done + 1);
    gpu_note(g, cudaEventRecord(p->kernels_done, g->stream), "copying pages");
    gpu_note(g, cudaStreamWaitEvent(p->stream, p->kernels_done, 0), "copying pages");
    return ++p->count;
}

/* Begins a copy and returns its number. */
static int64_t move_pieces(proa_device *d, void *to, const void *from, int64_t bytes, int64_t count,
                           int64_t to_stride, int64_t from_stride, cudaMemcpyKind kind)
{
    gpu *g = gpu_enter(d);
    gpu_pieces *p = g->pieces;
    int64_t nr = begin_copy(g);
    gpu_note(g,
             copy_pieces(p, (char *)to, (const char *)from, (size_t)bytes, count, (size_t)to_stride,
                         (size_t)from_stride, kind),
             "copying pages");
    gpu_note(g, cudaEventRecord(event_of(p, nr), p->stream), "copying pages");
    return nr;
}

int64_t gpu_save_pieces(proa_device *d, void *host, const void *memory, int64_t bytes, int64_t count,
                        int64_t stride)
{
    return move_pieces(d, host, memory, bytes, count, bytes, stride, cudaMemcpyDeviceToHost);
}

int64_t gpu_load_pieces(proa_device *d, void *memory, const void *host, int64_t bytes, int64_t count,
                        int64_t stride)
{
    return move_pieces(d, memory, host, bytes, count, stride, bytes, cudaMemcpyHostToDevice);
}

/* So that copies take the direct way (NVLink, PCIe). Without it the driver copies by way of the host. */
static void enable_peer(const gpu *to, const gpu *from)
{
    int can = 0;
    if (to->index == from->index) return;
    if (cudaDeviceCanAccessPeer(&can, to->index, from->index) == cudaSuccess && can)
        cudaDeviceEnablePeerAccess(from->index, 0);
    cudaGetLastError(); /* it may have been enabled before */
}

int64_t gpu_fetch_pages(proa_device *d, proa_device *from, const proa_page_move *m)
{
    gpu *g = gpu_enter(d);
    gpu_pieces *p = g->pieces;
    enable_peer(g, reinterpret_cast<gpu *>(from));
    int64_t nr = begin_copy(g);
    for (int64_t k = 0; k < m->pages; k++)
        gpu_note(g,
                 copy_pieces(p, m->to + m->to_page[k] * m->bytes, m->from + m->from_page[k] * m->bytes,
                             (size_t)m->bytes, m->count, (size_t)m->to_stride, (size_t)m->from_stride,
                             cudaMemcpyDefault),
                 "copying pages");
    gpu_note(g, cudaEventRecord(event_of(p, nr), p->stream), "copying pages");
    return nr;
}

void gpu_wait_pieces_on_stream(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_pieces *p = g->pieces;
    if (p->count == p->done) return;
    gpu_flush(g);
    gpu_note(g, cudaStreamWaitEvent(g->stream, event_of(p, p->count), 0), "copying pages");
    g->serialize_next = true; /* the event is no kernel that it could begin beside */
}
