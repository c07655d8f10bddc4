/* SPDX-License-Identifier: Apache-2.0
 * comm.cu - all_reduce, gather_columns, send and recv between GPUs that see each other's memory. Their ranks are
 * threads of one process, or processes of one host (connect.cu).
 *
 * One shot: each GPU writes its numbers into a slot at every other GPU, then a flag behind them, waits for the flags
 * of the others, and adds what lies in its own slots, in the order of the ranks. So a collective takes one trip over
 * NVLink, and all ranks get the same bits (the one-shot all-reduce of vLLM and TensorRT-LLM, with writes for reads).
 * Longer ones run in chunks: a block writes the next chunk before it waits for the one before.
 *
 * Short sums need no flag behind the numbers, whose store would wait until these have arrived: each 4 bytes of numbers
 * travel with 4 bytes of flag (the LL protocol of NCCL), so a sum takes one trip one way. Block b counts its launches
 * itself, for it has the same ones in all ranks.
 *
 * Slots of even and of odd launches take turns: who writes into a slot again has seen a flag of the launch between,
 * which a GPU sets when its kernel of the launch before has ended, and so has read its slots. Launches and flags are
 * counted in the GPU's memory, so that recorded passes (CUDA graphs) count on. Block b waits for block b of the
 * others.
 *
 * A message is written to one of two mailboxes that each sender has at its receiver, once the receiver has taken the
 * message before the last; then each block sets its flag. The receiver copies it out and counts it in the sender's
 * memory. So a stage of a pipeline is up to two messages ahead of the next one.
 *
 * A kernel waits for the other ranks for PROA_COLLECTIVES_WAIT seconds at most. Among threads it fails then. A process
 * may outlive another one, and must keep its GPU: there the kernel sets a flag in host memory and ends, and so do all
 * that follow. Whoever learns earlier that a rank was lost sets this flag from the host (proa_comm.stop). */
#include "kernels/cuda/comm/comm.h"

extern "C" {
#include "base/alloc.h"
#include "base/checked.h"
#include "base/clock.h"
#include "kernels/connect.h"
}
#include <sched.h>
#include <stdlib.h>

/* Ranks of one group, threads of a block, and blocks, all of which run at one time. */
enum { RANKS_MAX = GPU_COMM_RANKS_MAX, THREADS = 512, BLOCKS_MAX = 128 };
/* Of one rank in one launch: larger collectives take several. */
#define SLOT_BYTES  ((int64_t)16 << 20)
/* Sums of at most so many bytes of terms are short; each thread has a unit of 16 bytes. */
#define SHORT_BYTES ((int64_t)128 << 10)
enum { SHORT_THREADS = 256, SHORT_BLOCKS = (int)(SHORT_BYTES / 16 / SHORT_THREADS) };
#define MAIL_BYTES ((int64_t)4 << 20) /* of a mailbox: longer messages take several launches */
/* Units of 16 bytes of a thread in a chunk: as many loads are in flight. */
enum { CHUNK_UNITS = 4, CHUNK = CHUNK_UNITS * THREADS };

/* A rank's memory for the others, all zero at first: parts of one allocation. */
struct comm_memory {
    uint4 *slot;         /* [2][ranks][SLOT_BYTES] */
    unsigned *flag;      /* [ranks][BLOCKS_MAX] how many chunks block b of a rank has sent */
    uint4 *flagged;      /* [2][ranks][2 SHORT_BYTES] units of short sums with their flags */
    uint4 *mail;         /* [ranks][2][MAIL_BYTES] */
    unsigned *mail_flag; /* [ranks][BLOCKS_MAX] the last message of which block b of a rank has sent its part */
    unsigned *taken;     /* [ranks] how many messages of this rank another one has taken */
};

/* What a rank counts. */
struct comm_count {
    unsigned launches, flags, ended; /* flags: those of all launches; ended: blocks of this launch */
    unsigned sent[RANKS_MAX], received[RANKS_MAX];
    unsigned short_sums[SHORT_BLOCKS]; /* launches of each block */
};

struct comm_peers {
    comm_memory at[RANKS_MAX];
    comm_count *count;          /* this rank's */
    volatile int *stop;         /* in host memory; not 0: nothing is waited for. NULL: ranks are threads */
    unsigned long long wait_ns; /* for the others; then the kernel fails */
    int rank, ranks;
};

struct gpu_comm {
    proa_comm base; /* first */
    gpu *g;
    comm_peers peers;
    proa_comm *large; /* for sums of large_from bytes of terms and more; NULL: none */
    int64_t large_from;
    gpu_comm *thread[RANKS_MAX]; /* of ranks that are threads: theirs; NULL: processes */
    unsigned submitted[RANKS_MAX], expected[RANKS_MAX]; /* messages to each, atomic; and those from each */
};

static gpu_comm *comm_of(proa_comm *c)
{
    return reinterpret_cast<gpu_comm *>(c);
}

/* ---- the kernels ---- */

/* The numbers of this launch. */
struct comm_turn {
    unsigned slot, flag; /* which slots; the flag before the first */
};

__device__ static comm_turn read_turn(const comm_peers &p)
{
    volatile comm_count *count = p.count;
    return {count->launches & 1, count->flags};
}

__device__ static uint4 *slot_at(const comm_peers &p, int owner, int from, comm_turn turn)
{
    return p.at[owner].slot + (int64_t)(turn.slot * p.ranks + from) * (SLOT_BYTES / 16);
}

__device__ static unsigned load_flag(const unsigned *flag)
{
    unsigned value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

__device__ static void store_flag(unsigned *flag, unsigned value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(flag), "r"(value) : "memory");
}

__device__ static unsigned long long now_ns()
{
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

/* Whether a wait ends without what it waits for. begin: 0 at first. spins: a reading of host memory takes as long as
 * many of them. */
__device__ static bool gives_up(const comm_peers &p, unsigned spins, unsigned long long &begin)
{
    if (spins % 1024) return false;
    if (p.stop && *p.stop) return true;
    if (!begin) begin = now_ns();
    if (now_ns() - begin <= p.wait_ns) return false;
    if (!p.stop) __trap();
    *p.stop = 1;
    return true;
}

/* Returns when *at, which another GPU writes, is `value` or more. */
__device__ static void wait_until(const comm_peers &p, const unsigned *at, unsigned value)
{
    unsigned long long begin = 0;
    for (unsigned spins = 1; (int)(load_flag(at) - value) < 0; spins++)
        if (gives_up(p, spins, begin)) return;
}

/* The other ranks may read what this block has written to their slots. */
__device__ static void send_flags(const comm_peers &p, unsigned flag)
{
    int other = threadIdx.x;
    __syncthreads();
    if (other < p.ranks && other != p.rank)
        store_flag(&p.at[other].flag[p.rank * BLOCKS_MAX + blockIdx.x], flag);
}

/* Returns when the other ranks have written to this rank's slots. */
__device__ static void wait_flags(const comm_peers &p, unsigned flag)
{
    int other = threadIdx.x;
    if (other < p.ranks && other != p.rank)
        wait_until(p, &p.at[p.rank].flag[other * BLOCKS_MAX + blockIdx.x], flag);
    __syncthreads();
}

/* Whether this is the last block of a launch to end. */
__device__ static bool is_last_block(const comm_peers &p)
{
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    if (atomicAdd(&p.count->ended, 1) + 1 < gridDim.x) return false;
    p.count->ended = 0;
    return true;
}

/* The last block of a launch counts it and the flags that a block has sent at most. */
__device__ static void end_turn(const comm_peers &p, comm_turn turn, unsigned flags)
{
    if (!is_last_block(p)) return;
    p.count->launches++;
    p.count->flags = turn.flag + flags;
}

/* Writes units [begin, end), at most a chunk, to all other ranks. */
__device__ static void push_units(const comm_peers &p, comm_turn turn, const uint4 *from, int64_t begin,
                                  int64_t end)
{
    uint4 unit[CHUNK_UNITS];
    int64_t first = begin + threadIdx.x;
#pragma unroll
    for (int k = 0; k < CHUNK_UNITS; k++)
        if (first + k * THREADS < end) unit[k] = from[first + k * THREADS];
    for (int r = 0; r < p.ranks; r++) {
        uint4 *to = slot_at(p, r, p.rank, turn);
        if (r == p.rank) continue;
#pragma unroll
        for (int k = 0; k < CHUNK_UNITS; k++)
            if (first + k * THREADS < end) to[first + k * THREADS] = unit[k];
    }
}

/* COUNT numbers in a row of memory. */
template <typename T, int COUNT>
struct alignas(sizeof(T) * COUNT > 16 ? 16 : sizeof(T) * COUNT) comm_numbers {
    T each[COUNT];
};

/* What is added: y = residual + the sum of x over the ranks. residual NULL: none. */
template <typename X, typename Y> struct comm_sum {
    static constexpr int EACH = 16 / sizeof(X); /* numbers of a unit */
    using term = comm_numbers<X, EACH>;
    using total = comm_numbers<Y, EACH>;
    const term *x;
    const total *residual;
    total *y;
};

/* The sum of unit i, in the order of the ranks; term_of(r): the unit of rank r. */
template <typename X, typename Y, typename F>
__device__ static void add_terms(const comm_peers &p, const comm_sum<X, Y> &s, int64_t i,
                                 float (&sum)[comm_sum<X, Y>::EACH], F term_of)
{
    constexpr int EACH = comm_sum<X, Y>::EACH;
    for (int r = 0; r < p.ranks; r++) {
        union {
            uint4 unit;
            X each[EACH];
        } term;
        term.unit = term_of(r);
        for (int k = 0; k < EACH; k++)
            sum[k] = r ? sum[k] + gpu_to_f32(term.each[k]) : gpu_to_f32(term.each[k]);
    }
    if (!s.residual) return;
    comm_numbers<Y, EACH> more = s.residual[i];
    for (int k = 0; k < EACH; k++) sum[k] = gpu_to_f32(more.each[k]) + sum[k];
}

template <typename X, typename Y>
__device__ static void store_unit(const comm_sum<X, Y> &s, int64_t i, const float (&sum)[comm_sum<X, Y>::EACH])
{
    comm_numbers<Y, comm_sum<X, Y>::EACH> out;
    for (int k = 0; k < comm_sum<X, Y>::EACH; k++) out.each[k] = gpu_saturate<Y>(sum[k]);
    s.y[i] = out;
}

/* Units [begin, end), at most a chunk. */
template <typename X, typename Y>
__device__ static void add_chunk(const comm_peers &p, comm_turn turn, const comm_sum<X, Y> &s, int64_t begin,
                                 int64_t end)
{
#pragma unroll
    for (int k = 0; k < CHUNK_UNITS; k++) {
        int64_t i = begin + threadIdx.x + k * THREADS;
        float sum[comm_sum<X, Y>::EACH];
        if (i >= end) continue;
        add_terms<X, Y>(p, s, i, sum, [&](int r) {
            return r == p.rank ? *(const uint4 *)&s.x[i] : __ldcg(slot_at(p, p.rank, r, turn) + i);
        });
        store_unit(s, i, sum);
    }
}

/* ---- short sums ---- */

__device__ static uint4 *flagged_at(const comm_peers &p, int owner, int from, unsigned launch)
{
    return p.at[owner].flagged + (int64_t)((launch & 1) * p.ranks + from) * (2 * SHORT_BYTES / 16);
}

__device__ static void store_flagged(uint4 *to, unsigned a, unsigned b, unsigned flag)
{
    asm volatile("st.volatile.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(a), "r"(flag), "r"(b)
                 : "memory");
}

/* The two words at `from` once they have arrived. */
__device__ static uint2 load_flagged(const comm_peers &p, const uint4 *from, unsigned flag)
{
    unsigned long long begin = 0;
    for (unsigned spins = 1;; spins++) {
        uint4 v;
        asm volatile("ld.volatile.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(from)
                     : "memory");
        if ((v.y == flag && v.w == flag) || gives_up(p, spins, begin)) return make_uint2(v.x, v.z);
    }
}

/* Thread i of all has unit i. */
template <typename X, typename Y>
__global__ void __launch_bounds__(SHORT_THREADS) short_sum_kernel(comm_peers p, comm_sum<X, Y> s, int units)
{
    constexpr int EACH = comm_sum<X, Y>::EACH;
    int i = (int)(blockIdx.x * SHORT_THREADS + threadIdx.x);
    gpu_wait();
    unsigned launch = *(volatile unsigned *)&p.count->short_sums[blockIdx.x], flag = launch + 1;
    if (i < units) {
        uint4 own = ((const uint4 *)s.x)[i];
        for (int r = 0; r < p.ranks; r++) {
            uint4 *to = flagged_at(p, r, p.rank, launch) + 2 * i;
            if (r == p.rank) continue;
            store_flagged(to, own.x, own.y, flag);
            store_flagged(to + 1, own.z, own.w, flag);
        }
        float sum[EACH];
        add_terms<X, Y>(p, s, i, sum, [&](int r) {
            const uint4 *from = flagged_at(p, p.rank, r, launch) + 2 * i;
            if (r == p.rank) return own;
            uint2 a = load_flagged(p, from, flag), b = load_flagged(p, from + 1, flag);
            return make_uint4(a.x, a.y, b.x, b.y);
        });
        store_unit(s, i, sum);
    }
    __syncthreads();
    if (threadIdx.x == 0) p.count->short_sums[blockIdx.x] = flag;
}

/* ---- long sums ---- */

/* Block b takes units [b each, (b + 1) each), in chunks. */
template <typename X, typename Y>
__global__ void __launch_bounds__(THREADS)
    all_reduce_kernel(comm_peers p, comm_sum<X, Y> s, int64_t units, int64_t each)
{
    int64_t first = blockIdx.x * each, end = min(units, first + each);
    gpu_wait();
    comm_turn turn = read_turn(p);
    unsigned flag = turn.flag;
    const uint4 *x = (const uint4 *)s.x;
    push_units(p, turn, x, first, min(end, first + CHUNK));
    send_flags(p, flag + 1);
    for (int64_t at = first; at < end; at += CHUNK) {
        int64_t next = at + CHUNK;
        flag++;
        if (next < end) {
            push_units(p, turn, x, next, min(end, next + CHUNK));
            send_flags(p, flag + 1);
        }
        wait_flags(p, flag);
        add_chunk(p, turn, s, at, min(end, next));
    }
    end_turn(p, turn, (unsigned)((each + CHUNK - 1) / CHUNK));
}

/* y[t, r d + i] = x[t,i] of rank r, of the columns that y has. x [rows][d] and the slots have no gaps; d is a
 * multiple of 4. */
__global__ void __launch_bounds__(THREADS)
    gather_columns_kernel(comm_peers p, float *y, int64_t y_row, int columns, const float *x, int rows, int d,
                          int64_t each)
{
    int64_t units = (int64_t)rows * d / 4, first = blockIdx.x * each, end = min(units, first + each);
    gpu_wait();
    comm_turn turn = read_turn(p);
    for (int64_t at = first; at < end; at += CHUNK)
        push_units(p, turn, (const uint4 *)x, at, min(end, at + CHUNK));
    send_flags(p, turn.flag + 1);
    wait_flags(p, turn.flag + 1);
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) {
        int64_t t = 4 * i / d, k = 4 * i % d;
        for (int r = 0; r < p.ranks; r++) {
            union {
                uint4 unit;
                float each[4];
            } from;
            from.unit = r == p.rank ? ((const uint4 *)x)[i] : __ldcg(slot_at(p, p.rank, r, turn) + i);
            int64_t column = r * (int64_t)d + k;
            for (int j = 0; j < 4; j++)
                if (column + j < columns) y[t * y_row + column + j] = from.each[j];
        }
    }
    end_turn(p, turn, 1);
}

/* ---- messages ---- */

__device__ static uint4 *mailbox(const comm_peers &p, int owner, int from, unsigned message)
{
    return p.at[owner].mail + (int64_t)(2 * from + (message & 1)) * (MAIL_BYTES / 16);
}

/* The same of a block. */
__device__ static void wait_count(const comm_peers &p, const unsigned *at, unsigned value)
{
    if (threadIdx.x == 0) wait_until(p, at, value);
    __syncthreads();
}

/* Unit i of a message, of which the last one may be a part of a unit. */
__device__ static void copy_unit(uint4 *to, const uint4 *from, int64_t i, int64_t bytes)
{
    if (16 * (i + 1) <= bytes) {
        to[i] = __ldcg(from + i);
        return;
    }
    for (int64_t b = 16 * i; b < bytes; b++) ((char *)to)[b] = __ldcg((const char *)from + b);
}

__global__ void __launch_bounds__(THREADS)
    send_kernel(comm_peers p, int to, const uint4 *x, int64_t bytes, int64_t each)
{
    int64_t first = blockIdx.x * each, end = min((bytes + 15) / 16, first + each);
    gpu_wait();
    unsigned message = *(volatile unsigned *)&p.count->sent[to];
    wait_count(p, &p.at[p.rank].taken[to], message - 1);
    uint4 *mail = mailbox(p, to, p.rank, message);
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) copy_unit(mail, x, i, bytes);
    __syncthreads();
    if (threadIdx.x == 0) store_flag(&p.at[to].mail_flag[p.rank * BLOCKS_MAX + blockIdx.x], message + 1);
    if (is_last_block(p)) p.count->sent[to] = message + 1;
}

__global__ void __launch_bounds__(THREADS)
    recv_kernel(comm_peers p, int from, uint4 *y, int64_t bytes, int64_t each)
{
    int64_t first = blockIdx.x * each, end = min((bytes + 15) / 16, first + each);
    gpu_wait();
    unsigned message = *(volatile unsigned *)&p.count->received[from];
    wait_count(p, &p.at[p.rank].mail_flag[from * BLOCKS_MAX + blockIdx.x], message + 1);
    const uint4 *mail = mailbox(p, p.rank, from, message);
    for (int64_t i = first + threadIdx.x; i < end; i += THREADS) copy_unit(y, mail, i, bytes);
    if (!is_last_block(p)) return;
    p.count->received[from] = message + 1;
    store_flag(&p.at[from].taken[p.rank], message + 1);
}

/* ---- the table ---- */

/* Blocks for so many units, and how many each takes: few make few blocks, many are spread over all. */
struct comm_grid {
    unsigned blocks;
    int64_t each;
};

static comm_grid spread_units(int64_t units)
{
    int64_t each = proa_max64(THREADS, proa_ceil_div(units, BLOCKS_MAX));
    return {(unsigned)proa_max64(1, proa_ceil_div(units, each)), each};
}

static bool is_dense(proa_view v)
{
    return v.rank == 2 && (v.shape[0] <= 1 || v.stride[0] == v.shape[1]);
}

/* Calls f with values of the types of x and y. */
template <typename F> static void by_types(proa_view x, proa_view y, F f)
{
    gpu_by_type(x.dtype, [&](auto from) { gpu_by_type(y.dtype, [&](auto to) { f(from, to); }); });
}

/* Units [at, ...) of the sum. */
template <typename X, typename Y>
static comm_sum<X, Y> sum_from(proa_view y, proa_view x, proa_view residual, int64_t at)
{
    using sum = comm_sum<X, Y>;
    comm_sum<X, Y> s = {(const typename sum::term *)x.data + at, NULL, (typename sum::total *)y.data + at};
    if (residual.rank) s.residual = (const typename sum::total *)residual.data + at;
    return s;
}

static void launch_short(gpu *g, gpu_comm *c, proa_view y, proa_view x, proa_view residual, int units)
{
    unsigned blocks = (unsigned)proa_ceil_div(units, SHORT_THREADS);
    by_types(x, y, [&](auto from, auto to) {
        using X = decltype(from);
        using Y = decltype(to);
        if (units)
            gpu_launch(g, "all_reduce", short_sum_kernel<X, Y>, blocks, SHORT_THREADS, 0, c->peers,
                       sum_from<X, Y>(y, x, residual, 0), units);
    });
}

static void all_reduce(proa_comm *base, proa_view y, proa_view x, proa_view residual)
{
    gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    int64_t units = proa_view_count(x) * proa_dtype_bytes(x.dtype) / 16, most = SLOT_BYTES / 16;
    PROA_ASSERT(x.shape[1] * proa_dtype_bytes(x.dtype) % 16 == 0 && is_dense(x) && is_dense(y));
    PROA_ASSERT(!residual.rank || (is_dense(residual) && residual.dtype == y.dtype));
    if (c->large && 16 * units >= c->large_from) {
        c->large->all_reduce(c->large, y, x, residual);
        return;
    }
    gpu_flush(g);
    gpu_invalidate(g, y);
    if (units <= SHORT_BYTES / 16) {
        launch_short(g, c, y, x, residual, (int)units);
        return;
    }
    for (int64_t at = 0, n; at < units; at += n) {
        n = proa_min64(units - at, most);
        comm_grid grid = spread_units(n);
        by_types(x, y, [&](auto from, auto to) {
            using X = decltype(from);
            using Y = decltype(to);
            gpu_launch(g, "all_reduce", all_reduce_kernel<X, Y>, grid.blocks, THREADS, 0, c->peers,
                       sum_from<X, Y>(y, x, residual, at), n, grid.each);
        });
    }
}

static void gather_columns(proa_comm *base, proa_view y, proa_view x)
{
    gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    int64_t d = x.shape[1], most = SLOT_BYTES / (d * (int64_t)sizeof(float));
    PROA_ASSERT(d % 4 == 0 && most > 0 && is_dense(x));
    gpu_flush(g);
    gpu_invalidate(g, y);
    for (int64_t at = 0, n; at < x.shape[0]; at += n) {
        n = proa_min64(x.shape[0] - at, most);
        comm_grid grid = spread_units(n * d / 4);
        gpu_launch(g, "gather_columns", gather_columns_kernel, grid.blocks, THREADS, 0, c->peers,
                   (float *)y.data + at * y.stride[0], y.stride[0], (int)y.shape[1],
                   (const float *)x.data + at * d, (int)n, (int)d, grid.each);
    }
}

/* Calls launch(piece, bytes, grid) for the pieces of a message. */
template <typename F> static void by_mailboxes(proa_view v, F launch)
{
    int64_t bytes = proa_view_count(v) * proa_dtype_bytes(v.dtype);
    PROA_ASSERT((uintptr_t)v.data % 16 == 0 && is_dense(v));
    for (int64_t at = 0, n; at < bytes; at += n) {
        n = proa_min64(bytes - at, MAIL_BYTES);
        launch((uint4 *)((char *)v.data + at), n, spread_units(proa_ceil_div(n, 16)));
    }
}

/* ---- messages that were submitted ---- */

static thread_local gpu_comm_messages recorded;

gpu_comm_messages gpu_comm_take_recorded(void)
{
    gpu_comm_messages taken = recorded;
    recorded = {};
    return taken;
}

static bool has_submitted(const gpu_comm *sender, int to, unsigned messages)
{
    return (int)(__atomic_load_n(&sender->submitted[to], __ATOMIC_ACQUIRE) - messages) >= 0;
}

/* Returns when the other rank has submitted what this one is about to receive; if it does not, the kernel fails. */
static void wait_for_sender(gpu_comm *c, int from, unsigned messages)
{
    const gpu_comm *sender = c->thread[from];
    if (!sender || !messages) return;
    c->expected[from] += messages;
    int64_t until = proa_clock_ns() + (int64_t)c->peers.wait_ns;
    for (unsigned spins = 0; !has_submitted(sender, c->base.rank, c->expected[from]); spins++) {
        if (spins % 1024 != 1023) continue;
        if (proa_clock_ns() > until) return;
        sched_yield();
    }
}

static void count_sent(gpu_comm *c, int to, unsigned messages)
{
    __atomic_fetch_add(&c->submitted[to], messages, __ATOMIC_RELEASE);
}

void gpu_comm_record_call(proa_nccl_comm *nccl)
{
    int i = 0;
    while (i < GPU_COMM_NCCL_MAX && recorded.nccl[i] && recorded.nccl[i] != nccl) i++;
    PROA_ASSERT(i < GPU_COMM_NCCL_MAX);
    recorded.nccl[i] = nccl, recorded.calls[i]++;
}

void gpu_comm_before_launch(const gpu_comm_messages *m)
{
    for (int i = 0; m->comm && i < m->comm->base.ranks; i++) wait_for_sender(m->comm, i, m->received[i]);
    for (int i = 0; m->comm && i < m->comm->base.ranks; i++) m->comm->expected[i] += m->answers[i];
}

void gpu_comm_launched(const gpu_comm_messages *m)
{
    for (int i = 0; m->comm && i < m->comm->base.ranks; i++) count_sent(m->comm, i, m->sent[i]);
    for (int i = 0; i < GPU_COMM_NCCL_MAX && m->nccl[i]; i++) proa_nccl_submitted(m->nccl[i], m->calls[i]);
}

static void record_received(gpu_comm *c, int from)
{
    bool answer = false;
    for (unsigned sent : recorded.sent) answer = answer || sent > 0;
    recorded.comm = c;
    if (answer) recorded.answers[from]++;
    else recorded.received[from]++;
}

static void send_rows(proa_comm *base, proa_view x, int32_t to)
{
    gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    gpu_flush(g);
    by_mailboxes(x, [&](const uint4 *from, int64_t bytes, comm_grid grid) {
        gpu_launch(g, "send", send_kernel, grid.blocks, THREADS, 0, c->peers, (int)to, from, bytes, grid.each);
    });
    if (g->is_recording) recorded.comm = c, recorded.sent[to]++;
    else count_sent(c, to, 1);
}

static void receive_rows(proa_comm *base, proa_view y, int32_t from)
{
    gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    gpu_flush(g);
    gpu_invalidate(g, y);
    if (g->is_recording) record_received(c, from);
    else wait_for_sender(c, from, 1);
    by_mailboxes(y, [&](uint4 *to, int64_t bytes, comm_grid grid) {
        gpu_launch(g, "recv", recv_kernel, grid.blocks, THREADS, 0, c->peers, (int)from, to, bytes, grid.each);
    });
}

/* ---- life ---- */

static void close_comm(proa_comm *base)
{
    gpu_comm *c = comm_of(base);
    gpu *g = gpu_enter(&c->g->base);
    gpu_graphs_drop(g); /* recorded kernels know the memory */
    cudaStreamSynchronize(g->default_stream);
    if (c->large) c->large->close(c->large);
    for (int i = 0; i < base->ranks && c->peers.stop; i++)
        if (i != base->rank) cudaIpcCloseMemHandle(c->peers.at[i].slot);
    cudaFree(c->peers.at[base->rank].slot);
    cudaFreeHost((void *)c->peers.stop);
    free(c);
}

static void stop_comm(proa_comm *base)
{
    gpu_comm *c = comm_of(base);
    *c->peers.stop = 1;
    if (c->large) c->large->stop(c->large);
}

static bool is_stopped(proa_comm *base)
{
    gpu_comm *c = comm_of(base);
    return *c->peers.stop || (c->large && c->large->stopped(c->large));
}

/* Each GPU may write to the memory of all others. */
static proa_status open_peers(proa_device *const *devices, int32_t ranks, proa_err *err)
{
    for (int32_t i = 0; i < ranks; i++)
        for (int32_t k = 0; k < ranks; k++) {
            int from = gpu_enter(devices[i])->index, to = reinterpret_cast<gpu *>(devices[k])->index, can = 0;
            if (from == to) continue;
            cudaDeviceCanAccessPeer(&can, from, to);
            if (!can)
                return PROA_FAIL(err, UNSUPPORTED,
                                 "GPUs %d and %d do not see each other's memory (peer access)", from, to);
            cudaError_t status = cudaDeviceEnablePeerAccess(to, 0);
            if (status != cudaSuccess && status != cudaErrorPeerAccessAlreadyEnabled)
                return PROA_FAIL(err, UNSUPPORTED, "GPUs %d and %d: %s", from, to, cudaGetErrorString(status));
            cudaGetLastError(); /* it may have been enabled before */
        }
    return PROA_OK;
}

/* The parts of a rank's memory, and how many bytes are before those that are zero at first, and in all. Behind the
 * short sums are flags and what a rank counts. */
static comm_memory divide_memory(char *memory, int32_t ranks, size_t *before, size_t *all)
{
    size_t slots = 2 * (size_t)ranks * SLOT_BYTES, mail = 2 * (size_t)ranks * MAIL_BYTES;
    size_t sums = 2 * (size_t)ranks * 2 * SHORT_BYTES, flags = (size_t)ranks * BLOCKS_MAX;
    comm_memory m = {(uint4 *)memory};
    m.mail = (uint4 *)(memory + slots);
    m.flagged = (uint4 *)(memory + slots + mail);
    m.flag = (unsigned *)(memory + slots + mail + sums);
    m.mail_flag = m.flag + flags;
    m.taken = m.flag + 2 * flags;
    *before = slots + mail;
    *all = *before + sums + (2 * flags + (size_t)ranks) * sizeof(unsigned) + sizeof(comm_count);
    return m;
}

proa_status gpu_comm_memory(char **memory, gpu *g, int32_t ranks, proa_err *err)
{
    size_t before, all;
    *memory = NULL;
    if (ranks > RANKS_MAX)
        return PROA_FAIL(err, UNSUPPORTED, "%d GPUs; at most %d share memory", ranks, (int)RANKS_MAX);
    divide_memory(NULL, ranks, &before, &all);
    cudaError_t status = cudaMalloc((void **)memory, all);
    if (status == cudaSuccess) status = cudaMemset(*memory + before, 0, all - before);
    if (status == cudaSuccess) status = cudaDeviceSynchronize();
    if (status == cudaSuccess) return PROA_OK;
    cudaFree(*memory);
    *memory = NULL;
    return PROA_FAIL(err, NO_MEMORY, "%s: %zu bytes for %d ranks: %s", g->name, all, ranks,
                     cudaGetErrorString(status));
}

/* The collectives of one rank over the memory of all. */
static gpu_comm *make_rank(gpu *g, char *const *memory, int32_t rank, int32_t ranks, int32_t wait_ms)
{
    size_t before, all;
    gpu_comm *c = (gpu_comm *)proa_calloc(1, sizeof *c);
    c->base = {rank, ranks, all_reduce, gather_columns, send_rows, receive_rows, close_comm};
    c->g = g;
    for (int32_t k = 0; k < ranks; k++) c->peers.at[k] = divide_memory(memory[k], ranks, &before, &all);
    c->peers.count = (comm_count *)(c->peers.at[rank].taken + ranks);
    c->peers.rank = rank, c->peers.ranks = ranks;
    c->peers.wait_ns = (unsigned long long)wait_ms * 1000000;
    return c;
}

proa_status gpu_comm_of_process(proa_comm **out, gpu *g, char *const *memory, int32_t rank, int32_t ranks,
                                int32_t wait_ms, proa_err *err)
{
    int *stop;
    cudaError_t status = cudaHostAlloc((void **)&stop, sizeof *stop, cudaHostAllocMapped);
    if (status != cudaSuccess)
        return PROA_FAIL(err, NO_MEMORY, "%s: host memory for ranks: %s", g->name, cudaGetErrorString(status));
    *stop = 0;
    gpu_comm *c = make_rank(g, memory, rank, ranks, wait_ms);
    c->peers.stop = stop;
    c->base.stop = stop_comm, c->base.stopped = is_stopped;
    *out = &c->base;
    return PROA_OK;
}

void gpu_comm_set_large(proa_comm *base, proa_comm *large, int64_t from)
{
    comm_of(base)->large = large, comm_of(base)->large_from = from;
}

proa_status gpu_open_comm(proa_comm **out, proa_device *const *devices, int32_t ranks, proa_err *err)
{
    char *memory[RANKS_MAX] = {};
    int32_t wait_ms;
    PROA_TRY(proa_collectives_wait_ms(&wait_ms, err));
    proa_status status = open_peers(devices, ranks, err);
    for (int32_t i = 0; i < ranks && status == PROA_OK; i++)
        status = gpu_comm_memory(&memory[i < RANKS_MAX ? i : 0], gpu_enter(devices[i]), ranks, err);
    if (status != PROA_OK) {
        for (char *m : memory) cudaFree(m);
        return status;
    }
    for (int32_t i = 0; i < ranks; i++)
        out[i] = &make_rank(gpu_enter(devices[i]), memory, i, ranks, wait_ms)->base;
    for (int32_t i = 0; i < ranks; i++)
        for (int32_t k = 0; k < ranks; k++) comm_of(out[i])->thread[k] = comm_of(out[k]);
    return PROA_OK;
}
