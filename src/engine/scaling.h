/* SPDX-License-Identifier: Apache-2.0
 * scaling.h - a model of the time of a decoding step of a model that is divided among many GPUs: what each reads, sums
 * and sends, by measured figures of memory and links. Nothing is run and no weights are read; docs/scaling.md compares
 * it with measured steps.
 *
 *     step of a stage   = weights read / bandwidth + keys and values read / bandwidth, at least the products' time,
 *                         + layers * overhead + sums of the layers
 *     step              = stages * (step of a stage for a part of the rows + sending its rows on)
 *
 * The rows of a step are divided into as many parts as there are stages, if there are enough rows.
 * Threads: any. */
#ifndef PROA_ENGINE_SCALING_H
#define PROA_ENGINE_SCALING_H

#include "base/str.h"
#include "engine/memory.h"

enum { PROA_SCALING_BATCHES_MAX = 16, PROA_SCALING_GPUS_MAX = 512 };

/* Measured rates of GPUs and of the links between them. */
typedef struct proa_scaling_figures {
    double read_row, read_rows;  /* bytes/s that weights are read at: steps of up to 4 rows; of more */
    double flops;                /* of products of 16-bit numbers; twice as many of 8-bit weights */
    double overhead_s;           /* of a layer: launches, norms, what is not read or multiplied */
    double memory;               /* bytes of a GPU */
    double link_bytes_s, link_s; /* a sum between GPUs of one host: bytes/s one way, and its least time */
    double net_bytes_s, net_s;   /* between hosts: of each GPU's own adapter; one way of a message */
    int32_t host_gpus;           /* GPUs of a host */
} proa_scaling_figures;

typedef struct proa_scaling_options {
    int32_t tensors, stages, hosts; /* what is explained first */
    int64_t context;                /* tokens of each sequence */
    int32_t batches[PROA_SCALING_BATCHES_MAX];
    int32_t batches_count;
    const char *dtype, *quant, *kv_dtype; /* as in proa_engine_options */
    proa_scaling_figures figures;
} proa_scaling_options;

/* Two H100s with NVLink, measured, and assumed for networks (docs/scaling.md). */
extern const proa_scaling_figures proa_scaling_h100;

/* Appends the explanation, as a table or one JSON object. path: a folder, of which config.json is read, or
 * synthetic:NAME. UNSUPPORTED for a model that is no decoder; INVALID if tensors * stages GPUs are not those of the
 * hosts, or a number is out of its range. */
PROA_MUST_CHECK proa_status proa_scaling_explain(proa_buf *out, const char *path,
                                                 const proa_scaling_options *options, bool json, proa_err *err);

#endif
