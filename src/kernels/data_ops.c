/* SPDX-License-Identifier: Apache-2.0
 * data_ops.c - the reference's table of data ops. */
#include "kernels/data_ops.h"

const proa_data_ops proa_data_ops_reference = {.name = "reference", .forest = proa_forest_reference};
