/* SPDX-License-Identifier: Apache-2.0
 * Any bytes as a model of XGBoost in UBJSON (check_forest.h). */
#include "fuzz.h"

#include "check_forest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_forest(data, size, PROA_FOREST_XGBOOST_UBJ);
    return 0;
}
