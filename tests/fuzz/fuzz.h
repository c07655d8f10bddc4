/* SPDX-License-Identifier: Apache-2.0
 * fuzz.h - what a fuzz target defines: libFuzzer calls it, and so does replay.c in normal builds.
 * A target takes any bytes, leaks nothing, and stops (PROA_ASSERT) only on what is a bug. */
#ifndef PROA_TESTS_FUZZ_H
#define PROA_TESTS_FUZZ_H

#include <stddef.h>
#include <stdint.h>

/* Optional, and called by libFuzzer only: what takes long and belongs to no input. */
int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#endif
