/* SPDX-License-Identifier: Apache-2.0
 * trees.cu - forests of decision trees. A block has up to 32 rows and 512 threads, and walks and adds tile after tile
 * of trees by the two phases of trees.h. Where there are rows enough for whole blocks on all SMs, the nodes of a tile
 * are copied to shared memory first. With fewer rows a block has fewer of them, and reads nodes where they are: of a
 * tile it would need only the paths of these rows. A tree that is larger than a tile is walked there too. */
#include "kernels/cuda/data/data.h"

enum {
    THREADS = 512,
    FINISH_THREADS = 128,
    HITS_BYTES = PROA_TREES_HITS * (int)sizeof(proa_tree_hit),
    NODES_BYTES = PROA_TREES_TILE_NODES * (int)sizeof(proa_trees_node)
};

/* Nodes are 16 bytes, aligned to them. */
__device__ static inline void copy_nodes(proa_trees_node *to, const proa_trees_node *from, int64_t count)
{
#pragma unroll 4
    for (int64_t i = threadIdx.x; i < count; i += THREADS)
        reinterpret_cast<uint4 *>(to)[i] = __ldg(reinterpret_cast<const uint4 *>(from) + i);
}

/* Walks and adds a tile; the caller has put nodes there. */
__device__ static inline void sum_tile(const proa_trees &f, const proa_trees_tile &tile,
                                       const proa_trees_node *nodes, const float *x, int32_t rows,
                                       proa_tree_hit *hits, double *sums)
{
    __syncthreads(); /* nodes are copied, and the hits of the tile before are added */
    proa_trees_walk(&f, &tile, nodes, x, rows, hits, threadIdx.x, THREADS);
    __syncthreads();
    proa_trees_sum(&f, &tile, hits, rows, sums, threadIdx.x, THREADS);
}

template <bool COPY>
__global__ static void __launch_bounds__(THREADS)
    trees_kernel(double *sums, const float *x, int64_t rows, int32_t block_rows,
                 const __grid_constant__ proa_trees f)
{
    extern __shared__ uint4 shared[];
    auto *hits = reinterpret_cast<proa_tree_hit *>(shared);
    auto *copy = reinterpret_cast<proa_trees_node *>(reinterpret_cast<char *>(shared) + HITS_BYTES);
    int64_t first = (int64_t)blockIdx.x * block_rows;
    int32_t count = (int32_t)min((int64_t)block_rows, rows - first);
    gpu_wait();
    x += first * f.features, sums += first * f.outputs;
    for (int32_t i = threadIdx.x; i < count * f.outputs && f.trees_count == 0; i += THREADS)
        sums[i] = proa_trees_begin(&f, i % f.outputs);
    for (int32_t i = 0; COPY && i < f.tiles_count; i++) {
        const proa_trees_tile tile = f.tiles[i];
        const bool copied = tile.nodes <= PROA_TREES_TILE_NODES;
        if (copied) copy_nodes(copy, f.nodes + tile.node, tile.nodes);
        sum_tile(f, tile, copied ? copy : f.nodes + tile.node, x, count, hits, sums);
    }
    for (int32_t tree = 0; !COPY && tree < f.trees_count;) {
        const proa_trees_tile tile = proa_trees_direct(&f, tree, count);
        sum_tile(f, tile, f.nodes, x, count, hits, sums);
        tree += tile.count;
    }
}

__global__ static void __launch_bounds__(FINISH_THREADS)
    finish_kernel(float *out, double *sums, int64_t rows, const __grid_constant__ proa_trees f)
{
    int64_t row = (int64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    gpu_wait();
    if (row < rows) proa_trees_finish(&f, sums + row * f.outputs, out + row * proa_trees_width(&f));
}

static unsigned blocks_for(int64_t rows, int64_t each)
{
    return (unsigned)((rows + each - 1) / each);
}

static void forest_op(proa_ctx *c, float *out, double *sums, const float *x, int64_t rows, const proa_trees *f)
{
    gpu *g = gpu_flushed(c);
    int32_t each = rows < (int64_t)g->sms * PROA_TREES_ROWS ? (int32_t)blocks_for(rows, g->sms) : PROA_TREES_ROWS;
    bool copy = each == PROA_TREES_ROWS && g->shared_max >= HITS_BYTES + NODES_BYTES;
    auto *kernel = copy ? trees_kernel<true> : trees_kernel<false>;
    int shared = HITS_BYTES + (copy ? NODES_BYTES : 0);
    if (rows == 0) return;
    if (copy)
        gpu_note(g, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared), "trees");
    gpu_launch(g, "trees", kernel, dim3(blocks_for(rows, each)), dim3(THREADS), (size_t)shared, sums, x, rows,
               each, *f);
    gpu_launch(g, "trees_finish", finish_kernel, dim3(blocks_for(rows, FINISH_THREADS)), dim3(FINISH_THREADS),
               0, out, sums, rows, *f);
}

void gpu_fill_trees(proa_data_ops *ops)
{
    ops->forest = forest_op;
}
