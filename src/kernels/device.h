/* SPDX-License-Identifier: Apache-2.0
 * device.h - where memory is and where kernels run: the host, or a GPU through the plug-in libproa_cuda.so, which is
 * opened at run time.
 * Owner:   proa_device_open/close. What alloc and host_alloc return is the caller's, who frees it before close.
 * Threads: one at a time on one device, but for what fetch_pages says.
 * Order:   kernels and transfers of a device run in the order of their calls, on its stream, unless a function says
 *          otherwise. Sizes and strides are in bytes.
 * Way in:  proa_device_open("cpu"); then d->alloc, d->upload, d->ops through a proa_ctx whose device it is. */
#ifndef PROA_KERNELS_DEVICE_H
#define PROA_KERNELS_DEVICE_H

#include "comm/comm.h"
#include "kernels/ops.h"

/* The key of a recorded pass (a CUDA graph): everything that shapes its launches. The kernels read the rest from
 * memory, so passes with equal keys run by one recording. */
typedef struct proa_pass {
    int32_t model, kind;                    /* the caller's number of the model, and name of the program */
    int32_t rows, spans, rows_max, context; /* of all spans; context rounded up by the caller */
    int32_t cross_context;
    int32_t rows_min;              /* of all spans */
    int32_t long_spans, long_rows; /* spans of more than one row, and their rows */
    int32_t segments;              /* of rows that use adapters; 0: none do */
    int32_t trees;                 /* 1: spans have trees */
    int32_t adapted;               /* the caller's number of the set of products that adapters change */
    int32_t states;                /* width of the hidden states that the rows bring; 0: none */
} proa_pass;

/* A grid of count[0] * count[1] pieces of `bytes` bytes; piece (i, j) is at i * stride[0] + j * stride[1]. */
typedef struct proa_blocks {
    int64_t bytes, count[2], stride[2];
} proa_blocks;

typedef struct proa_device proa_device;

/* Pages that are copied from the memory of one device to that of another of its kind, in `count` pieces each (one for
 * each layer and for keys and values). Piece i of page k is copied from from + from_page[k] * bytes + i * from_stride
 * to to + to_page[k] * bytes + i * to_stride. */
typedef struct proa_page_move {
    char *to;
    const char *from;
    int64_t bytes, count, to_stride, from_stride;
    const int32_t *to_page, *from_page; /* [pages] */
    int64_t pages;
} proa_page_move;

struct proa_device {
    const char *name; /* "cpu", "NVIDIA H200" */
    bool host;        /* its memory is the host's: upload and download are memcpy */
    const proa_ops *ops;
    const char *tuning; /* the file that keeps which algorithms were timed to be best (tune.h); NULL: nothing is kept */

    /* ---- memory ---- */

    /* Zeroed memory, aligned to 256, or NULL. */
    void *(*alloc)(proa_device *d, int64_t bytes);
    void (*free)(proa_device *d, void *memory, int64_t bytes); /* NULL is fine */
    /* Pinned memory of the host, which transfers read and write directly; NULL if there is none. */
    void *(*host_alloc)(proa_device *d, int64_t bytes);
    void (*host_free)(proa_device *d, void *memory); /* NULL is fine */

    /* ---- transfers ---- */

    /* upload returns once src may be reused, download once the bytes have arrived. */
    void (*upload)(proa_device *d, void *dst, const void *src, int64_t bytes);
    void (*download)(proa_device *d, void *dst, const void *src, int64_t bytes);
    /* As download, but send returns at once, and sent(ticket) waits until the bytes have arrived. dst is memory of
     * host_alloc; whole words of 4 bytes are written. ticket: 0 to PROA_SEND_TICKETS - 1 (below). */
    void (*send)(proa_device *d, void *dst, const void *src, int64_t bytes, int ticket);
    void (*sent)(proa_device *d, int ticket);
    void (*wait_copies_on_stream)(proa_device *d); /* kernels that follow wait for all unordered sends */
    void (*copy)(proa_device *d, void *dst, const void *src, const proa_blocks *blocks); /* within the device */
    /* Copies `count` pieces of `bytes` each between the device, where they are at i * stride, and memory of host_alloc,
     * where they are contiguous. The copies run at the same time as later kernels, on a stream of their own, after the
     * kernels that were submitted before. They return at once, with the number of the copy. */
    int64_t (*save_pieces)(proa_device *d, void *host, const void *memory, int64_t bytes, int64_t count,
                           int64_t stride);
    int64_t (*load_pieces)(proa_device *d, void *memory, const void *host, int64_t bytes, int64_t count,
                           int64_t stride);
    /* Copies memory of `from` to that of d; numbered with the copies above. The caller has made sure that `from` runs
     * no kernel that writes the pages. Another thread may use `from` meanwhile. */
    int64_t (*fetch_pages)(proa_device *d, proa_device *from, const proa_page_move *move);
    int64_t (*pieces_done)(proa_device *d);          /* all copies up to this number have ended */
    void (*wait_pieces)(proa_device *d, int64_t nr); /* returns when copy `nr` has ended */
    void (*wait_pieces_on_stream)(proa_device *d);   /* kernels that follow wait for all these copies */
    int64_t (*available)(proa_device *d);            /* bytes that alloc can still give */

    /* ---- failures ---- */

    /* INTERNAL with the device's message if a kernel has failed since the last call; waits for all kernels. */
    proa_status (*check)(proa_device *d, proa_err *err);
    /* The same without waiting: the failures known by now. Call it before results are used. */
    proa_status (*failed)(proa_device *d, proa_err *err);

    /* ---- recorded passes (CUDA graphs) and branches ---- */

    /* True: a recording of this pass has been launched, so the caller launches nothing. False: the caller launches the
     * kernels of the pass and then calls pass_end, and the device may record them. NULL pass_begin: it never records.
     * */
    bool (*pass_begin)(proa_device *d, const proa_pass *pass);
    void (*pass_end)(proa_device *d);
    /* A branch is a second stream. Kernels that are launched between branch_begin and branch_end run after those before
     * branch_begin, and at the same time as those after branch_end, until branch_join. There is one branch at a time.
     * NULL branch_begin: the device has no branches. */
    void (*branch_begin)(proa_device *d);
    void (*branch_end)(proa_device *d);
    void (*branch_join)(proa_device *d);

    /* ---- properties and measurements ---- */

    /* The type of activations of a pass of that many rows, other than the residual stream and the logits: f32, or the
     * type of the weights where the ops of this device take views of 16 bits (ops.def). NULL: f32. */
    proa_dtype (*activations)(proa_device *d, proa_wfmt format, int64_t rows);
    /* Fills memory with `count` random numbers, uniform in [middle - reach, middle + reach]; NULL: not offered. */
    void (*random)(proa_device *d, void *memory, proa_dtype dtype, int64_t count, float middle, float reach,
                   uint64_t seed);
    /* Fills a packed weight of any format with such numbers, middle 0. */
    void (*random_weight)(proa_device *d, proa_weight *w, float reach, uint64_t seed);
    /* Bytes a second that a kernel reads from memory, measured; NULL: see peak.h. */
    double (*read_rate)(proa_device *d);
    /* Multiplications and additions a second of matrix products in that dtype (f16, bf16, fp8), measured; 0: it has
     * none. */
    double (*matrix_rate)(proa_device *d, proa_dtype dtype);

    /* ---- other devices and streams ---- */

    /* Opens collectives between ranks, one on each of these `ranks` devices, which are of this kind and differ: out
     * [ranks]. NULL: the ranks are threads that see each other's memory (proa_comm_open_threads). */
    proa_status (*open_comm)(proa_comm **out, proa_device *const *devices, int32_t ranks, proa_err *err);
    void (*close)(proa_device *d);
    int32_t gpu; /* its number, N of "cuda:N"; -1: the host */
    /* For a stream of the same GPU that other code owns (a cudaStream_t). wait_for_stream: kernels that follow wait for
     * the work that the stream has now. make_stream_wait: later work of the stream waits for the kernels so far. NULL
     * on the host. */
    void (*wait_for_stream)(proa_device *d, void *stream);
    void (*make_stream_wait)(proa_device *d, void *stream);
};

/* name: "cpu", "cuda" or "cuda:N". UNSUPPORTED, with the reason in plain words, where there is no plug-in, no driver,
 * no such GPU, or one that is too old. */
PROA_MUST_CHECK proa_status proa_device_open(proa_device **out, const char *name, proa_err *err);
void proa_device_close(proa_device *d); /* NULL is fine */

/* Tickets of send are 0 to PROA_SEND_TICKETS - 1. */
#define PROA_SEND_TICKETS   8
/* Added to a ticket of send: the kernels that follow do not wait for it, and none of them writes src until sent or
 * wait_copies_on_stream. */
#define PROA_SEND_UNORDERED PROA_SEND_TICKETS

#endif
