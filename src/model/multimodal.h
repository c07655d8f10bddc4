/* SPDX-License-Identifier: Apache-2.0
 * multimodal.h - classes of multimodal checkpoints, of which the text model runs: any row of a decoder may be that.
 * A class names its text model by the model_type of an object within config.json; the tensors of the text model have
 * the names of its row with another beginning. The images' and the audio's parts are not read. Classes that compute
 * anything of their own in text have rows of their own (arch/arch_vision.c).
 * Owner: the rows live until the process ends.  Threads: any. */
#ifndef PROA_MODEL_MULTIMODAL_H
#define PROA_MODEL_MULTIMODAL_H

#include "model/arch.h"

enum { PROA_MULTIMODAL_MAX = 32 }; /* families of classes */

/* The row of a family of classes, over its usual text model; NULL behind the last family. */
const proa_arch *proa_multimodal_row(int i);
/* The row of the same family over the text model that config.json names. UNSUPPORTED if there is no row of that. */
PROA_MUST_CHECK proa_status proa_multimodal_find(const proa_arch **out, const proa_arch *family,
                                                 const proa_json *config, proa_err *err);
/* The object of config.json that has the keys of the text model; NULL: config.json itself has them. */
const proa_json *proa_multimodal_text(const proa_json *config);
/* These keys, and what the text model's class has where they leave it out. The caller frees it. */
PROA_MUST_CHECK proa_status proa_multimodal_keys(proa_json **out, const proa_arch *arch,
                                                 const proa_json *keys, proa_err *err);

#endif
