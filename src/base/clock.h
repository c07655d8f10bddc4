/* SPDX-License-Identifier: Apache-2.0
 * clock.h - monotonic time. */
#ifndef PROA_BASE_CLOCK_H
#define PROA_BASE_CLOCK_H

#include <stdint.h>

int64_t proa_clock_ns(void);        /* monotonic, since an arbitrary start */
int64_t proa_clock_thread_ns(void); /* that this thread has computed; a call of the system */

#endif
