/* SPDX-License-Identifier: Apache-2.0
 * numa.h - the NUMA nodes of this host that have CPUs: memory is nearest to the CPUs of its own node.
 * Threads: any. */
#ifndef PROA_COMM_NUMA_H
#define PROA_COMM_NUMA_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>

/* The node for one of `ranks` processes, which are spread over the nodes in order; -1: the host has one node only. */
int32_t proa_numa_node_of(int32_t rank, int32_t ranks);
/* The same over a folder of the form of /sys/devices/system/node. */
int32_t proa_numa_node_in(const char *root, int32_t rank, int32_t ranks);
/* The CPUs of a node among those that this process may use. False: it has none. */
bool proa_numa_cpus(const char *root, int32_t node, cpu_set_t *cpus);
/* This thread, and those that it starts later, run on the CPUs of a node; -1, or one without CPUs: nothing changes. */
void proa_numa_bind(int32_t node);

#endif
