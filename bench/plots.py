"""Plots, as PNG. matplotlib is the extra `bench`: without it there are only the figures."""

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from bench.table import Plot


def draw(plot: Plot, file: Path) -> bool:
    """Draw a plot into a file; false where there is nothing to draw it with."""
    if find_spec("matplotlib") is None:
        return False
    # Not everybody has it, nor its types.
    figure = import_module("matplotlib.figure").Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for name, points in plot.lines.items():
        axes.plot(*zip(*points, strict=True), label=name, marker="o" if len(points) < 10 else "")
    axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y, ylim=(0, None))
    if plot.logarithmic:
        axes.set_xscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(file, dpi=100, metadata={"Software": None})
    return True
