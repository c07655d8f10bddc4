/* SPDX-License-Identifier: Apache-2.0
 * dense.h - the dense layers behind an embedding (model/heads/dense.h), for a server that sees no model. */
#ifndef PROA_ENGINE_DENSE_H
#define PROA_ENGINE_DENSE_H

#include "model/heads/dense.h"

#endif
