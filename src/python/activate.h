/* SPDX-License-Identifier: Apache-2.0
 * activate.h - variables of an environment, and the scripts that conda's packages set more of them by.
 * Owner:   the list owns its texts.
 * Threads: any, one list each. */
#ifndef PROA_PYTHON_ACTIVATE_H
#define PROA_PYTHON_ACTIVATE_H

#include "base/status.h"
#include <stdint.h>
#include <sys/types.h>

/* "NAME=value" each, a NULL after the last; zeroed it is empty. */
typedef struct proa_envlist {
    char **items; /* NULL while there is none */
    int count, cap;
} proa_envlist;

/* NAME=value followed by `more`; in place of what the list had under that name. */
void proa_envlist_set(proa_envlist *list, const char *name, const char *value, const char *more);
void proa_envlist_release(proa_envlist *list);

/* Runs the scripts of root/etc/conda/activate.d, as conda's activation does, under our own environment with that of the
 * list, and adds to the list what they have set. Without such a folder nothing is run. */
PROA_MUST_CHECK proa_status proa_activate(proa_envlist *list, const char *root, proa_err *err);

/* Waits for a child to end, and ends it after so long; its status as of waitpid, -1 if it had to be ended. */
int proa_child_wait(pid_t child, int64_t limit_ms);

#endif
