"""What pyproject.toml cannot say: kernels/, at the top of the repository, is numgrad.kernels."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["numgrad", "numgrad.*"]), "numgrad.kernels"],
    package_dir={"numgrad": "numgrad", "numgrad.kernels": "kernels"},
)
