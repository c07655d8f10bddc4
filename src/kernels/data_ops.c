/* SPDX-License-Identifier: Apache-2.0
 * data_ops.c - the reference's table of data ops. */
#include "kernels/data_ops.h"

const proa_data_ops proa_data_ops_reference = {.name = "reference",
                                               .forest = proa_forest_reference,
                                               .map_elements = proa_map_elements_reference,
                                               .softmax_elements = proa_softmax_elements_reference,
                                               .copy_rows = proa_copy_rows_reference,
                                               .pool_rows = proa_pool_rows_reference,
                                               .text_features = proa_text_features_reference};
