/* SPDX-License-Identifier: Apache-2.0
 * status.h - raising and passing on the errors of proa/status.h.
 * Wording: lower case, no full stop, what failed first, then why: "cannot open 'x': no such file". */
#ifndef PROA_BASE_STATUS_H
#define PROA_BASE_STATUS_H

#include "base/compiler.h"
#include "proa/status.h"

/* Fills err (which may be NULL) unless it already holds a failure; returns status. */
proa_status proa_err_set(proa_err *err, proa_status status, const char *file, int line, const char *fmt, ...)
    PROA_PRINTF(5, 6) PROA_COLD;
void proa_err_clear(proa_err *err);
/* Passes a failure on: as proa_err_set with its status, text and place. */
proa_status proa_err_copy(proa_err *err, const proa_err *from);
/* The full text, up to PROA_ERR_TEXT_MAX bytes, with its line ends; err->text is one line and may be cut.
 * Replies use the full text; log lines and terminals use err->text. Never NULL; the caller frees it. */
char *proa_err_whole_text(const proa_err *err);
/* Puts "prefix: " before the text of a failure, such as the file or tensor that the inner function does not
 * know. */
void proa_err_prefix(proa_err *err, const char *fmt, ...) PROA_PRINTF(2, 3);

#define PROA_FAIL(err, status, ...) proa_err_set((err), PROA_##status, __FILE__, __LINE__, __VA_ARGS__)
#define PROA_TRY(call)                                                                                       \
    do {                                                                                                     \
        proa_status proa_try_ = (call);                                                                      \
        if (PROA_UNLIKELY(proa_try_ != PROA_OK)) return proa_try_;                                           \
    } while (0)
/* As PROA_TRY where something must be released: sets the variable `status` and jumps to `out`. */
#define PROA_TRY_OUT(call)                                                                                   \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (PROA_UNLIKELY(status != PROA_OK)) goto out;                                                      \
    } while (0)

#endif
