# SPDX-License-Identifier: Apache-2.0
"""Of both wheels, which hold a shared library and no code for one version of Python: their tag is py3-none-PLATFORM."""

import os

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel


class PlatformWheel(bdist_wheel):
    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


class BinaryDistribution(Distribution):
    def has_ext_modules(self):
        return True


setup(
    version=os.environ.get("PROA_VERSION", "0.0.0"),
    cmdclass={"bdist_wheel": PlatformWheel},
    distclass=BinaryDistribution,
)
