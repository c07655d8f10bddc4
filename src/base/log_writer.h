/* SPDX-License-Identifier: Apache-2.0
 * log_writer.h - inside base: lines on their way to a pipe, a terminal or a socket, which may block for ever.
 * A thread of its own writes them in order; a thread that logs only appends to a queue of bounded size. Regular files
 * are written directly (log.c), since they do not block.
 * Owner:   one queue for the process. Threads: any. */
#ifndef PROA_BASE_LOG_WRITER_H
#define PROA_BASE_LOG_WRITER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Queues a copy of the line. False if PROA_LOG_QUEUED_MAX bytes are queued: the line is lost. If the thread
 * cannot be started the line is written at once. */
bool proa_log_writer_put(int fd, const char *line, size_t len);
/* Closes fd after the lines that are queued for it. */
void proa_log_writer_close(int fd);
/* Waits until all lines are written, at most timeout_ms. */
void proa_log_writer_flush(int64_t timeout_ms);

#endif
