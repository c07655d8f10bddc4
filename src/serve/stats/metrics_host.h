/* SPDX-License-Identifier: Apache-2.0
 * metrics_host.h - inside serve: the machine's processors and memory, as Linux reports them.
 * Threads: any. */
#ifndef PROA_SERVE_STATS_METRICS_HOST_H
#define PROA_SERVE_STATS_METRICS_HOST_H

#include <stdint.h>

typedef struct proa_host_stats {
    double utilization; /* 0..1, since the reading before, at least a tenth of a second ago; at first since the boot */
    int64_t memory_total, memory_used; /* bytes */
} proa_host_stats;

void proa_host_read(proa_host_stats *figures); /* zeros for what cannot be read */

#endif
