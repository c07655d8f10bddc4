/* SPDX-License-Identifier: Apache-2.0
 * regions.h - files of /dev/shm that a process has made and mapped, and would leave behind when it is killed.
 * Owner:   the list owns its paths.
 * Threads: one at a time.
 * Way in:  proa_regions_note while the process runs, proa_regions_remove after its end. */
#ifndef PROA_PROCESS_REGIONS_H
#define PROA_PROCESS_REGIONS_H

#include <stdint.h>
#include <sys/types.h>

/* Zeroed it is empty. */
typedef struct proa_regions {
    char **paths;
    int count;
} proa_regions;

/* Adds the files of /dev/shm that the process has mapped now and that were made at `since` (seconds of the epoch) or
 * later: it, or one of its children, has made them. */
void proa_regions_note(proa_regions *r, pid_t pid, int64_t since);
/* Removes those that no process has mapped; waits briefly for children that are being killed. Empties the list. */
void proa_regions_remove(proa_regions *r);
void proa_regions_release(proa_regions *r);

#endif
