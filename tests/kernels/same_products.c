/* SPDX-License-Identifier: Apache-2.0
 * same_products.c - which formats of weights two tables of the CPU multiply by the same functions. VNNI and BF16 are
 * AVX-512 with other tiles for a few formats; the other formats were checked there. */
#include "check.h"

#if defined(__x86_64__)
#include "kernels/cpu/linear.h"

/* As the overlay of the level sets it. False: the level's product is its own, or differs by format (AMX). */
static bool isa_of(proa_linear_isa *isa, const proa_ops *ops)
{
    if (ops != proa_ops_cpu(ops->isa)) return false;
    switch (ops->isa) {
    case PROA_ISA_AVX512: *isa = proa_linear_avx512; return true;
    case PROA_ISA_VNNI: proa_linear_vnni_isa(isa); return true;
    case PROA_ISA_BF16: proa_linear_bf16_isa(isa); return true;
    default: return false;
    }
}

/* All that linear.c asks of both, but what it does to the rows of a format. */
static bool same_loops(const proa_linear_isa *a, const proa_linear_isa *b)
{
    return a->rows_max == b->rows_max && a->rows_whole == b->rows_whole && a->rows_skinny == b->rows_skinny &&
           a->speed == b->speed && a->enter == b->enter && a->leave == b->leave && a->finish == b->finish &&
           memcmp(a->panels_of, b->panels_of, sizeof a->panels_of) == 0;
}

static bool same_format(const proa_linear_isa *a, const proa_linear_isa *b, proa_wfmt format)
{
    bool biased = a->biased == b->biased, same = a->tile[format] == b->tile[format];
    if (proa_wfmt_is_grouped(format)) return same && biased && a->quantise_groups == b->quantise_groups;
    if (format == PROA_WFMT_I8) return same && biased && a->quantise == b->quantise;
    return same && a->round == b->round;
}

/* The ops that run a product, or stand around one in linear_lora and experts. */
static bool same_rest(const proa_ops *a, const proa_ops *b)
{
    return a->pack == b->pack && a->pack_bytes == b->pack_bytes && a->lora == b->lora &&
           a->linear_lora == b->linear_lora && a->heads_linear == b->heads_linear && a->act == b->act &&
           a->act_mul == b->act_mul;
}

bool same_product(const proa_ops *a, const proa_ops *b, proa_wfmt format)
{
    proa_linear_isa x, y;
    return isa_of(&x, a) && isa_of(&y, b) && same_loops(&x, &y) && same_format(&x, &y, format) &&
           same_rest(a, b);
}
#else
bool same_product(const proa_ops *a, const proa_ops *b, proa_wfmt format)
{
    PROA_UNUSED(format);
    return a == b;
}
#endif
