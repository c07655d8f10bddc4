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
/* The text as it was given, up to PROA_ERR_TEXT_MAX bytes, with its line ends and in its whole length; err->text is one line
 * and cut. For answers; log lines and terminals get err->text. Never NULL; the caller frees it. */
char *proa_err_whole_text(const proa_err *err);
/* Puts "prefix: " before the text of a failure: the file or the tensor that the inner function did not know. */
void proa_err_prefix(proa_err *err, const char *fmt, ...) PROA_PRINTF(2, 3);

#define PROA_FAIL(err, status, ...) proa_err_set((err), PROA_##status, __FILE__, __LINE__, __VA_ARGS__)
#define PROA_TRY(call)                                                                                       \
    do {                                                                                                     \
        proa_status proa_try_ = (call);                                                                      \
        if (PROA_UNLIKELY(proa_try_ != PROA_OK)) return proa_try_;                                           \
    } while (0)
/* The same where there is something to release: sets the variable `status` and jumps to `out`. */
#define PROA_TRY_OUT(call)                                                                                   \
    do {                                                                                                     \
        status = (call);                                                                                     \
        if (PROA_UNLIKELY(status != PROA_OK)) goto out;                                                      \
    } while (0)

#endif
