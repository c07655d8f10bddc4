# SPDX-License-Identifier: Apache-2.0
"""The GPU's kernels of Proa, which the package `proa` finds here and opens for device="cuda"."""
