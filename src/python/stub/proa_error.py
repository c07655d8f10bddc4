# SPDX-License-Identifier: Apache-2.0
"""The exception of all files beside it."""


class TritonModelException(Exception):
    """What goes wrong between a model and the server."""
