/* SPDX-License-Identifier: Apache-2.0
 * reserve.c - refuses new work while the memory reserve is in use. */
#include "base/reserve.h"

#include "base/alloc.h"
#include "base/limits.h"

proa_status proa_reserve_check(proa_err *err)
{
    int missing = proa_reserve_missing();
    if (PROA_LIKELY(missing == 0)) return PROA_OK;
    return PROA_FAIL(
        err, NO_MEMORY, "not enough memory: the system gives no more, %d of %d MiB kept in reserve are in use",
        (int)(missing * (PROA_RESERVE_SLICE_BYTES / PROA_MIB)), (int)(PROA_RESERVE_BYTES / PROA_MIB));
}

void proa_reserve_recover(void)
{
    proa_reserve_missing();
}
