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

/* The number in a file of a tensor type that is read: an encoding, or a dtype where the encoding is PLAIN. -1: none. */
int64_t proa_gguf_type_of(proa_encoding encoding, proa_dtype dtype);

#endif
