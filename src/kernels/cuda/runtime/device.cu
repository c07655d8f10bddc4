/* SPDX-License-Identifier: Apache-2.0
 * device.cu - the device interface of the plug-in: opening a GPU, memory, workspaces, recorded passes (CUDA
 * graphs), the branch stream, tracing. */
#include "kernels/cuda/comm/comm.h"
#include "kernels/cuda/linear/linear.h"

extern "C" {
#include "base/alloc.h"
#include "base/limits.h"
#include "kernels/plugin.h"
}
#include <stdlib.h>
#include <string.h>

struct gpu_graph {
    proa_pass pass;
    cudaGraphExec_t exec;
    gpu_comm_messages messages;
};

enum { WORKSPACE_BYTES = 64 << 20 };

gpu *gpu_enter(proa_device *d)
{
    gpu *g = reinterpret_cast<gpu *>(d);
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now != g->index)
        gpu_note(g, cudaSetDevice(g->index), "changing to the GPU");
    return g;
}

/* ---- memory ---- */

static void *gpu_alloc(proa_device *d, int64_t bytes)
{
    gpu *g = gpu_enter(d);
    void *memory = NULL;
    if (cudaMalloc(&memory, (size_t)bytes) != cudaSuccess) {
        cudaGetLastError(); /* reported by NULL */
        return NULL;
    }
    gpu_note(g, cudaMemsetAsync(memory, 0, (size_t)bytes, g->stream), "clearing memory");
    return memory;
}

static void gpu_free(proa_device *d, void *memory, int64_t bytes)
{
    PROA_UNUSED(bytes);
    if (!memory) return;
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    cudaStreamSynchronize(g->stream);
    gpu_fp8_rows_drop(g);
    gpu_derived_drop(g, NULL, -1);
    cudaFree(memory);
}

static void *gpu_host_alloc(proa_device *d, int64_t bytes)
{
    void *memory = NULL;
    gpu_enter(d);
    if (cudaMallocHost(&memory, (size_t)bytes) == cudaSuccess) return memory;
    cudaGetLastError(); /* reported by NULL */
    return NULL;
}

static void gpu_host_free(proa_device *d, void *memory)
{
    gpu_enter(d);
    if (memory) cudaFreeHost(memory);
}

static void gpu_download(proa_device *d, void *dst, const void *src, int64_t bytes)
{
    gpu *g = gpu_enter(d);
    if (bytes <= 0) return;
    gpu_flush(g);
    gpu_note(g, cudaMemcpyAsync(dst, src, (size_t)bytes, cudaMemcpyDeviceToHost, g->stream), "download");
    gpu_note(g, cudaStreamSynchronize(g->stream), "download");
}

/* Block blockIdx.y of the inner, blockIdx.z of the outer count; blocks along x share one copy's units. */
template <typename Unit>
__global__ void copy_kernel(char *dst, const char *src, int64_t units, int64_t outer, int64_t inner)
{
    int64_t at = blockIdx.z * outer + blockIdx.y * inner;
    gpu_wait();
    for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < units; i += gridDim.x * blockDim.x)
        ((Unit *)(dst + at))[i] = ((const Unit *)(src + at))[i];
}

/* The largest of 16, 4 and 1 bytes at which all pieces of a copy are aligned. */
static int unit_of(const void *dst, const void *src, const proa_blocks *b)
{
    uintptr_t bits = (uintptr_t)dst | (uintptr_t)src | (uintptr_t)b->bytes | (uintptr_t)b->stride[0] |
                     (uintptr_t)b->stride[1];
    return bits % 16 == 0 ? 16 : bits % 4 == 0 ? 4 : 1;
}

static void gpu_copy(proa_device *d, void *dst, const void *src, const proa_blocks *b)
{
    gpu *g = gpu_enter(d);
    const int64_t THREADS = 256, BLOCKS_MAX = 64;
    gpu_flush(g);
    gpu_fp8_rows_drop(g);
    int unit = unit_of(dst, src, b);
    auto kernel = unit == 16 ? copy_kernel<uint4> : unit == 4 ? copy_kernel<uint32_t> : copy_kernel<uint8_t>;
    int64_t units = b->bytes / unit, blocks = (units + THREADS - 1) / THREADS;
    dim3 grid((unsigned)(blocks < BLOCKS_MAX ? blocks : BLOCKS_MAX), (unsigned)b->count[1],
              (unsigned)b->count[0]);
    gpu_launch(g, "copy", kernel, grid, (unsigned)THREADS, 0, (char *)dst, (const char *)src, units,
               b->stride[0], b->stride[1]);
}

static int64_t gpu_available(proa_device *d)
{
    size_t free_bytes = 0, total = 0;
    gpu_enter(d);
    return cudaMemGetInfo(&free_bytes, &total) == cudaSuccess ? (int64_t)free_bytes : 0;
}

static proa_status gpu_failed(proa_device *d, proa_err *err)
{
    gpu *g = reinterpret_cast<gpu *>(d);
    cudaError_t failed = g->failed;
    if (failed == cudaSuccess) return PROA_OK;
    g->failed = cudaSuccess;
    return PROA_FAIL(err, INTERNAL, "%s: %s: %s", g->name, g->failed_in, cudaGetErrorString(failed));
}

static proa_status gpu_check(proa_device *d, proa_err *err)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaStreamSynchronize(g->stream), "waiting for the kernels");
    gpu_uploads_release_staging(g); /* called when all is loaded */
    return gpu_failed(d, err);
}

void gpu_graphs_drop(gpu *g)
{
    cudaStreamSynchronize(g->stream);
    for (int i = 0; i < g->graphs_count; i++)
        if (g->graphs[i].exec) cudaGraphExecDestroy(g->graphs[i].exec);
    g->graphs_count = 0;
}

/* Grows a workspace. Never while a pass is recorded; recordings that know the old address are dropped. */
static void *grow_scratch(gpu *g, void **scratch, size_t *have, size_t bytes)
{
    if (bytes <= *have) return *scratch;
    PROA_ASSERT(!g->is_recording);
    gpu_graphs_drop(g);
    if (*scratch) cudaFree(*scratch);
    *have = (bytes + bytes / 4 + 0xfffff) & ~(size_t)0xfffff;
    gpu_note(g, cudaMalloc(scratch, *have), "scratch");
    return *scratch;
}

void *gpu_workspace(gpu *g)
{
    return g->on_branch ? grow_scratch(g, &g->branch_workspace, &g->branch_workspace_bytes, g->workspace_bytes)
                        : g->workspace;
}

void *gpu_cast_workspace(gpu *g, size_t bytes)
{
    return grow_scratch(g, &g->cast[g->on_branch], &g->cast_bytes[g->on_branch], bytes);
}

void *gpu_dequant_workspace(gpu *g, size_t bytes)
{
    return grow_scratch(g, &g->dequant, &g->dequant_bytes, bytes);
}

void *gpu_fp8_rows_workspace(gpu *g, size_t bytes)
{
    if (bytes > g->fp8_workspace_bytes) gpu_fp8_rows_drop(g);
    return grow_scratch(g, &g->fp8_workspace, &g->fp8_workspace_bytes, bytes);
}

void *gpu_experts_workspace(gpu *g, size_t bytes)
{
    return grow_scratch(g, &g->experts, &g->experts_bytes, bytes);
}

float *gpu_partials_workspace(gpu *g, size_t bytes)
{
    return (float *)grow_scratch(g, (void **)&g->partials, &g->partials_bytes, bytes);
}

/* ---- tracing: PROA_TRACE=1 prints the time of each kind of kernel at the end ---- */

struct gpu_trace {
    struct {
        const char *what;
        int64_t count;
        double ms;
    } row[64];
    int rows;
    cudaEvent_t begin, end;
};

void gpu_trace_begin(gpu *g)
{
    cudaEventRecord(g->trace->begin, g->stream);
}

void gpu_trace_end(gpu *g, const char *what)
{
    gpu_trace *t = g->trace;
    float ms = 0;
    int i = 0;
    cudaEventRecord(t->end, g->stream);
    cudaEventSynchronize(t->end);
    cudaEventElapsedTime(&ms, t->begin, t->end);
    while (i < t->rows && strcmp(t->row[i].what, what) != 0) i++;
    if (i == (int)PROA_COUNT(t->row)) return;
    if (i == t->rows) t->row[t->rows++].what = what;
    t->row[i].count++, t->row[i].ms += (double)ms;
}

static void trace_open(gpu *g)
{
    if (!getenv("PROA_TRACE")) return;
    g->trace = (gpu_trace *)proa_calloc(1, sizeof *g->trace);
    cudaEventCreate(&g->trace->begin);
    cudaEventCreate(&g->trace->end);
    g->base.pass_begin = NULL; /* what is recorded cannot be timed one by one */
}

static void trace_close(gpu *g)
{
    gpu_trace *t = g->trace;
    if (!t) return;
    fprintf(stderr, "%-28s %10s %12s %10s\n", "kernel", "count", "ms in all", "us each");
    for (int i = 0; i < t->rows; i++)
        fprintf(stderr, "%-28s %10lld %12.2f %10.2f\n", t->row[i].what, (long long)t->row[i].count,
                t->row[i].ms, t->row[i].ms * 1e3 / (double)t->row[i].count);
    cudaEventDestroy(t->begin);
    cudaEventDestroy(t->end);
    free(t);
}

/* ---- recorded passes ---- */

/* One that runs still is freed when it ends. */
static void drop_recording(gpu_graph *graph)
{
    if (graph->exec) cudaGraphExecDestroy(graph->exec);
    graph->exec = NULL;
}

static void launch_recording(gpu *g, const gpu_graph *graph)
{
    gpu_comm_before_launch(&graph->messages);
    gpu_note(g, cudaGraphLaunch(graph->exec, g->stream), "launching a recorded pass");
    gpu_comm_launched(&graph->messages);
}

/* Passes are kept in the order of their last use; the least recently used one makes room. The first time a
 * pass comes it runs normally, so that workspaces and plans exist; the second time it is recorded. */
static bool gpu_pass_begin(proa_device *d, const proa_pass *pass)
{
    gpu *g = gpu_enter(d);
    g->serialize_next = true; /* what earlier passes made may be read before gpu_wait */
    gpu_fp8_rows_drop(g);     /* a recorded pass writes registers without gpu_invalidate */
    int at = 0;
    while (at < g->graphs_count && memcmp(&g->graphs[at].pass, pass, sizeof *pass) != 0) at++;
    bool known = at < g->graphs_count;
    gpu_graph graph = known ? g->graphs[at] : gpu_graph{*pass, NULL, {}};
    if (at == PROA_PASSES_MAX) drop_recording(&g->graphs[--at]);
    else if (!known) g->graphs_count++;
    memmove(g->graphs + 1, g->graphs, (size_t)at * sizeof *g->graphs);
    g->graphs[0] = graph;
    if (graph.exec) launch_recording(g, &graph);
    if (graph.exec || !known) return graph.exec != NULL;
    gpu_note(g, cudaStreamBeginCapture(g->stream, cudaStreamCaptureModeThreadLocal), "recording a pass");
    g->is_recording = true;
    g->recording = *pass;
    return false;
}

static void gpu_pass_end(proa_device *d)
{
    gpu *g = gpu_enter(d);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    gpu_flush(g);
    if (!g->is_recording) return;
    g->is_recording = false;
    gpu_note(g, cudaStreamEndCapture(g->stream, &graph), "recording a pass");
    if (!graph) return;
    gpu_note(g, cudaGraphInstantiate(&exec, graph, cudaGraphInstantiateFlagUseNodePriority), "recording a pass");
    cudaGraphDestroy(graph);
    gpu_graph made = {g->recording, exec, gpu_comm_take_recorded()};
    if (!exec) return;
    for (int i = 0; i < g->graphs_count; i++)
        if (memcmp(&g->graphs[i].pass, &g->recording, sizeof g->recording) == 0) g->graphs[i] = made;
    launch_recording(g, &made);
}

/* ---- a branch: a second stream ---- */

static void use_branch(gpu *g, bool on)
{
    g->stream = on ? g->branch_stream : g->default_stream;
    g->on_branch = g->serialize_next = on;
}

static void gpu_branch_begin(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaEventRecord(g->branch_forked, g->default_stream), "branching");
    gpu_note(g, cudaStreamWaitEvent(g->branch_stream, g->branch_forked, 0), "branching");
    use_branch(g, true);
}

static void gpu_branch_end(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaEventRecord(g->branch_done, g->branch_stream), "branching");
    use_branch(g, false);
    g->beside_branch = true;
}

static void gpu_branch_join(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaStreamWaitEvent(g->default_stream, g->branch_done, 0), "joining a branch");
    g->beside_branch = false;
}

/* ---- streams of callers ---- */

static void gpu_wait_for_stream(proa_device *d, void *stream)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaEventRecord(g->caller_order, (cudaStream_t)stream), "waiting for the caller's stream");
    gpu_note(g, cudaStreamWaitEvent(g->stream, g->caller_order, 0), "waiting for the caller's stream");
    g->serialize_next = true; /* the event is no kernel that it could begin beside */
}

static void gpu_make_stream_wait(proa_device *d, void *stream)
{
    gpu *g = gpu_enter(d);
    gpu_flush(g);
    gpu_note(g, cudaEventRecord(g->caller_order, g->stream), "ordering the caller's stream");
    gpu_note(g, cudaStreamWaitEvent((cudaStream_t)stream, g->caller_order, 0), "ordering the caller's stream");
}

/* ---- opening ---- */

static void gpu_close(proa_device *d)
{
    gpu *g = gpu_enter(d);
    gpu_graphs_drop(g);
    gpu_derived_drop(g, NULL, -1);
    free(g->derived);
    trace_close(g);
    gpu_tune_close(g);
    gpu_plans_free(g);
    if (g->lt) cublasLtDestroy(g->lt);
    void *memory[] = {g->workspace, g->branch_workspace, g->cast[0],   g->cast[1],
                      g->dequant,   g->fp8_workspace,    g->partials,  g->experts,
                      g->counters,  g->buckets[0],       g->buckets[1]};
    for (size_t i = 0; i < PROA_COUNT(memory); i++) cudaFree(memory[i]);
    gpu_uploads_close(g);
    gpu_pieces_close(g);
    if (g->branch_forked) cudaEventDestroy(g->branch_forked);
    if (g->branch_done) cudaEventDestroy(g->branch_done);
    if (g->caller_order) cudaEventDestroy(g->caller_order);
    for (cudaEvent_t event : g->copy_done)
        if (event) cudaEventDestroy(event);
    if (g->branch_stream) cudaStreamDestroy(g->branch_stream);
    if (g->default_stream) cudaStreamDestroy(g->default_stream);
    free(g->graphs);
    free(g);
}

static proa_status open_resources(gpu *g, proa_err *err)
{
    g->workspace_bytes = WORKSPACE_BYTES;
    g->graphs = (gpu_graph *)proa_calloc(PROA_PASSES_MAX, sizeof *g->graphs);
    int lowest = 0, highest = 0;
    cudaDeviceGetStreamPriorityRange(&lowest, &highest);
    cudaError_t status = cudaStreamCreateWithPriority(&g->default_stream, cudaStreamNonBlocking, highest);
    g->stream = g->default_stream;
    if (status == cudaSuccess)
        status = cudaStreamCreateWithPriority(&g->branch_stream, cudaStreamNonBlocking, lowest);
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&g->branch_forked, cudaEventDisableTiming);
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&g->branch_done, cudaEventDisableTiming);
    if (status == cudaSuccess) status = cudaEventCreateWithFlags(&g->caller_order, cudaEventDisableTiming);
    for (cudaEvent_t &event : g->copy_done)
        if (status == cudaSuccess) status = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (status == cudaSuccess) status = gpu_uploads_open(g);
    if (status == cudaSuccess) status = gpu_pieces_open(g);
    if (status == cudaSuccess) status = cudaMalloc(&g->workspace, g->workspace_bytes);
    if (status == cudaSuccess) status = cudaMalloc((void **)&g->counters, GPU_COUNTERS * sizeof *g->counters);
    if (status == cudaSuccess)
        status = cudaMemsetAsync(g->counters, 0, GPU_COUNTERS * sizeof *g->counters, g->default_stream);
    if (status != cudaSuccess)
        return PROA_FAIL(err, NO_MEMORY, "%s: %s", g->name, cudaGetErrorString(status));
    if (cublasLtCreate(&g->lt) != CUBLAS_STATUS_SUCCESS)
        return PROA_FAIL(err, UNSUPPORTED, "%s: cuBLASLt cannot be started", g->name);
    return PROA_OK;
}

static proa_status find_gpu(int index, cudaDeviceProp *prop, proa_err *err)
{
    int count = 0, driver = 0;
    cudaError_t status = cudaGetDeviceCount(&count);
    cudaDriverGetVersion(&driver);
    if (status == cudaErrorInsufficientDriver && driver == 0)
        return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d': no NVIDIA driver on this machine", index);
    if (status == cudaErrorInsufficientDriver)
        return PROA_FAIL(err, UNSUPPORTED,
                         "device 'cuda:%d': the driver knows CUDA %d.%d, this build needs %d.%d or newer", index,
                         driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d': no NVIDIA GPU on this machine", index);
    if (status != cudaSuccess)
        return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d': %s", index, cudaGetErrorString(status));
    if (index >= count)
        return PROA_FAIL(err, INVALID, "device 'cuda:%d': there are %d GPUs, numbered from 0", index, count);
    if (cudaGetDeviceProperties(prop, index) != cudaSuccess || cudaSetDevice(index) != cudaSuccess)
        return PROA_FAIL(err, UNSUPPORTED, "device 'cuda:%d' cannot be used", index);
    if (prop->major < 8)
        return PROA_FAIL(err, UNSUPPORTED,
                         "device 'cuda:%d': %s has compute capability %d.%d, 8.0 or newer is needed", index,
                         prop->name, prop->major, prop->minor);
    return PROA_OK;
}

/* The type of activations. Products of up to GPU_FEW_ROWS rows are bound by the weights' bytes, and their
 * kernels read f32; those of quantised weights multiply in f16. */
static proa_dtype gpu_activations(proa_device *d, proa_wfmt format, int64_t rows)
{
    PROA_UNUSED(d);
    if (proa_wfmt_is_quantised(format)) return PROA_DTYPE_F16;
    if (rows <= GPU_FEW_ROWS) return PROA_DTYPE_F32;
    return format == PROA_WFMT_F16    ? PROA_DTYPE_F16
           : format == PROA_WFMT_BF16 ? PROA_DTYPE_BF16
                                      : PROA_DTYPE_F32;
}

static proa_ops gpu_ops;
static proa_decode_ops gpu_decode_ops;

extern "C" __attribute__((visibility("default"))) proa_status proa_cuda_open(int version, proa_device **out,
                                                                             int index, proa_err *err)
{
    cudaDeviceProp prop;
    *out = NULL;
    if (version != proa_cuda_version())
        return PROA_FAIL(err, UNSUPPORTED,
                         "device 'cuda:%d': the plug-in libproa_cuda.so is of another build than the program",
                         index);
    PROA_TRY(find_gpu(index, &prop, err));
    gpu_ops.name = "cuda", gpu_ops.decode = &gpu_decode_ops;
    gpu_fill_elementwise(&gpu_ops);
    gpu_fill_span_rows(&gpu_ops);
    gpu_fill_group_norm(&gpu_ops);
    gpu_fill_streams(&gpu_ops);
    gpu_fill_state(&gpu_ops);
    gpu_fill_lora(&gpu_ops);
    gpu_fill_linear(&gpu_ops);
    gpu_fill_attention(&gpu_ops);
    gpu_fill_experts(&gpu_ops);
    gpu_fill_sample(&gpu_ops, &gpu_decode_ops);
    gpu_fill_beam_search(&gpu_decode_ops);
    gpu *g = (gpu *)proa_calloc(1, sizeof *g);
    proa_device *d = &g->base;
    snprintf(g->name, sizeof g->name, "%s", prop.name);
    g->index = index, g->sms = prop.multiProcessorCount, g->clusters = prop.major >= 9;
    g->shared_max = (int)prop.sharedMemPerBlockOptin;
    g->hopper = gpu_hopper_built(g);
    gpu_split_k_open(g);
    d->name = g->name, d->ops = &gpu_ops;
    d->alloc = gpu_alloc, d->free = gpu_free, d->host_alloc = gpu_host_alloc, d->host_free = gpu_host_free;
    d->upload = gpu_upload, d->download = gpu_download, d->copy = gpu_copy;
    d->send = gpu_copy_to_host, d->sent = gpu_wait_copy, d->wait_copies_on_stream = gpu_wait_copies_on_stream;
    d->save_pieces = gpu_save_pieces, d->load_pieces = gpu_load_pieces;
    d->fetch_pages = gpu_fetch_pages;
    d->pieces_done = gpu_pieces_done, d->wait_pieces = gpu_wait_pieces;
    d->wait_pieces_on_stream = gpu_wait_pieces_on_stream;
    d->available = gpu_available, d->check = gpu_check, d->failed = gpu_failed, d->close = gpu_close;
    d->pass_begin = gpu_pass_begin, d->pass_end = gpu_pass_end;
    d->branch_begin = gpu_branch_begin, d->branch_end = gpu_branch_end, d->branch_join = gpu_branch_join;
    d->activations = gpu_activations, d->open_comm = gpu_open_comm;
    d->random = gpu_random, d->random_weight = quant_random, d->read_rate = gpu_read_rate,
    d->matrix_rate = gpu_matrix_rate;
    d->gpu = index, d->wait_for_stream = gpu_wait_for_stream, d->make_stream_wait = gpu_make_stream_wait;
    trace_open(g);
    proa_status status = open_resources(g, err);
    if (status != PROA_OK) return gpu_close(d), status;
    char capability[16];
    snprintf(capability, sizeof capability, "%d.%d", prop.major, prop.minor);
    gpu_tune_open(g, capability);
    *out = d;
    return PROA_OK;
}
