/* SPDX-License-Identifier: Apache-2.0
 * overlay.h - what each instruction set replaces in a table of ops; ops.c calls these in rising order.
 * Each function only sets pointers. It is called only where the CPU and the OS have the level. */
#ifndef PROA_KERNELS_CPU_OVERLAY_H
#define PROA_KERNELS_CPU_OVERLAY_H

#include "kernels/ops.h"

/* Everything but linear and pack: norms, rope, attention, activations, top-k. */
void proa_overlay_vec_avx2(proa_ops *ops);
void proa_overlay_vec_avx512(proa_ops *ops);

/* linear, pack and pack_bytes always change together: a layout belongs to its table. */
void proa_overlay_linear_avx2(proa_ops *ops);
void proa_overlay_linear_avx512(proa_ops *ops);
void proa_overlay_linear_vnni(proa_ops *ops);
void proa_overlay_linear_bf16(proa_ops *ops);
void proa_overlay_linear_amx(proa_ops *ops);

#endif
