/* SPDX-License-Identifier: Apache-2.0
 * reader.h - the reader of GGUF checkpoints (proa_weights_reader).
 * Way in:  formats.c of the folder above, by the magic bytes "GGUF". */
#ifndef PROA_WEIGHTS_GGUF_READER_H
#define PROA_WEIGHTS_GGUF_READER_H

#include "weights/gguf/arch.h"
#include "weights/parts.h"

/* Reads the first file of a checkpoint, and the others beside it if it is split. Adds the tensors by the names of the
 * class that config.json names, and the text config.json. */
proa_weights_reader proa_gguf_read;

#endif
