/* SPDX-License-Identifier: Apache-2.0
 * plugin.h - what libproa_cuda.so exports, and the version by which it and a program know that they were built with the
 * same structs. The plug-in writes and reads structs of the program, so a plug-in of another build must be refused. */
#ifndef PROA_KERNELS_PLUGIN_H
#define PROA_KERNELS_PLUGIN_H

#include "kernels/device.h"

#define PROA_CUDA_PLUGIN    "libproa_cuda.so"
#define PROA_CUDA_ENTRY     "proa_cuda_open"
/* To be raised when a member or an argument changes its meaning but no struct its size. */
#define PROA_CUDA_INTERFACE 22

/* A hash (FNV-1a) of PROA_CUDA_INTERFACE and the sizes of the structs that both sides use. An op that is added to the
 * table, or a member to the arguments of an op, changes it. */
static inline int proa_cuda_version(void)
{
    const size_t sizes[] = {PROA_CUDA_INTERFACE,        sizeof(proa_device),       sizeof(proa_pass),
                            sizeof(proa_blocks),        sizeof(proa_page_move),    sizeof(proa_ops),
                            sizeof(proa_decode_ops),    sizeof(proa_ctx),          sizeof(proa_ctx_need),
                            sizeof(proa_view),          sizeof(proa_weight),       sizeof(proa_packed_rect),
                            sizeof(proa_epilogue),      sizeof(proa_lora),         sizeof(proa_lora_use),
                            sizeof(proa_lora_rows),     sizeof(proa_lora_segment), sizeof(proa_router),
                            sizeof(proa_experts),       sizeof(proa_kv),           sizeof(proa_kv_copy),
                            sizeof(proa_span),          sizeof(proa_spans),        sizeof(proa_relative),
                            sizeof(proa_attention),     sizeof(proa_query_scale),  sizeof(proa_rope_freqs),
                            sizeof(proa_sample_params), sizeof(proa_logits_entry), sizeof(proa_logits_row),
                            sizeof(proa_beam_params),   sizeof(proa_beam_hyp),     sizeof(proa_beam_lists),
                            sizeof(proa_kv_reorder)};
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t left = sizes[i], byte = 0; byte < 4; byte++, left >>= 8)
            hash = (hash ^ (uint32_t)(left & 0xff)) * 16777619u;
    return (int)(hash & INT32_MAX);
}

/* version: proa_cuda_version of the program. UNSUPPORTED if the plug-in's own is another one. Else as
 * proa_device_open. */
typedef proa_status proa_cuda_open_fn(int version, proa_device **out, int index, proa_err *err);

#endif
