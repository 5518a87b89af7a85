"""The kernel language: decorated Python functions into tile IR, with caret diagnostics."""

from isthmus.language import math
from isthmus.language.combine import associative_scan, reduce
from isthmus.language.operations import *  # noqa: F403  (the language is its function list)
from isthmus.language.operations import PropagateNan
from isthmus.language.types import *  # noqa: F403
from isthmus.language.values import BlockPointer, constexpr
from isthmus.language.values import Tensor as tensor
