# SPDX-License-Identifier: Apache-2.0
"""Another name of triton_python_backend_utils, by which some models ask for it."""
import sys

import triton_python_backend_utils

sys.modules[__name__] = triton_python_backend_utils
