"""Built-in architectures, by name. A builder makes a torch module from its configuration and the problem.

The last layer of each is called `output`. Modules take (n, *shape) and give (n, outputs).
"""

from hanse_learning.site.models import alexnet, basic, convolutional, dense, kernel_residual, residual, vgg
from hanse_learning.site.models.registry import BUILDERS, build, builder

__all__ = [
    "BUILDERS", "alexnet", "basic", "build", "builder", "convolutional", "dense", "kernel_residual", "residual", "vgg",
]  # fmt: skip
