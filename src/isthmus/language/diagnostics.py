"""The mistakes that kernels are refused for: a stable code, what it means, what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MISTAKES", "Mistake"]


@dataclass(frozen=True, slots=True)
class Mistake:
    """One kind of mistake. `hint` is shown where the place itself has no better one."""

    code: str
    meaning: str
    hint: str


_ALL = (
    # The shape of the source
    Mistake("K100", "the source text of a kernel cannot be read",
            "define kernels in a file or a notebook cell"),
    Mistake("K101", "a statement, or a use outside kernels, that the language does not have",
            "kernels have assignments, if, for, while, assert and return"),
    Mistake("K102", "an expression that the language does not have",
            "docs/language.md lists what kernels are made of"),
    Mistake("K103", "a function or class defined inside a kernel",
            "move it to module level and decorate it with @isthmus.jit"),
    Mistake("K104", "break or continue", "put the rest of the loop body under `if`"),
    Mistake("K105", "return inside a loop", "return after the loop"),
    Mistake("K107", "arguments that a function does not take", "see its signature"),
    Mistake("K108", "a feature left out on purpose", "the message names the replacement"),
    Mistake("K109", "an assignment to something else than names", "assign to names"),
    # Names and compile-time values
    Mistake("K201", "a name that is not defined", "check the spelling, or import it in the file"),
    Mistake("K202", "a global that kernels do not read",
            "only tl.constexpr values, modules and decorated functions are read"),
    Mistake("K203", "a name that was set only inside a branch or loop",
            "give it a value before that statement"),
    Mistake("K204", "a run-time value where a compile-time one is needed",
            "make it a tl.constexpr parameter"),
    Mistake("K205", "a compile-time value that changes", "use another name"),
    Mistake("K206", "an assertion that failed while building", "the message says what is required"),
    Mistake("K207", "something that a value does not have or cannot do",
            "docs/language.md lists members and functions"),
    Mistake("K208", "argument types that do not fit the parameters",
            "give every parameter without a default an argument"),
    Mistake("K209", "a helper that calls itself without end",
            "stop the recursion by a compile-time condition"),
    # Types
    Mistake("K301", "operands that do not combine", "convert one of them with .to(dtype)"),
    Mistake("K302", "a number that does not fit the dtype it meets", "use a wider dtype"),
    Mistake("K303", "a conversion that does not exist", "convert in two steps"),
    Mistake("K304", "a variable that changes its type in a loop",
            "start it with its final type before the loop"),
    Mistake("K305", "branches that give a name different types",
            "convert one of them with .to(dtype)"),
    Mistake("K306", "results that do not fit: in number or in type",
            "return the same number and types everywhere"),
    Mistake("K307", "a function of f32 and f64 given something else",
            "convert first: x.to(tl.float32)"),
    Mistake("K308", "a division of signed by unsigned integers",
            "cast one side to the dtype of the other"),
    Mistake("K309", "something that is no number and no block", "convert it to a number"),
    Mistake("K310", "a condition or bound that is not one run-time scalar",
            "reduce the block to one value first"),
    # Shapes
    Mistake("K401", "a block size that is not a power of two, or not positive",
            "round up to a power of two and mask the rest"),
    Mistake("K402", "a block that is too large", "use smaller blocks and a loop"),
    Mistake("K403", "shapes that do not fit each other",
            "sizes must be equal or 1; add dimensions with x[:, None]"),
    Mistake("K404", "an axis that a block or grid does not have", "count axes from 0"),
    Mistake("K405", "a new shape with another number of elements",
            "the product of the sizes must stay"),
    Mistake("K406", "operands that tl.dot does not multiply", "check shapes and dtypes"),
    Mistake("K407", "an index that blocks or tuples do not take",
            "blocks take : and None, tuples compile-time numbers"),
    # Memory
    Mistake("K501", "memory access without a pointer", "pass the kernel a tensor"),
    Mistake("K502", "a fill value without a mask", "give mask=..., or leave other out"),
    Mistake("K503", "a mask that is not made of truth values", "compare: mask = offsets < n"),
    Mistake("K504", "values or masks that do not fit the pointers",
            "add a block of offsets to the pointer"),
    Mistake("K505", "a block pointer or descriptor used wrongly",
            "shape, strides, offsets and block_shape have one entry per dimension"),
    Mistake("K506", "a store through a read-only pointer", "store elsewhere"),
    Mistake("K507", "a dtype that an atomic does not take", "use int32, int64 or float32"),
)  # fmt: skip

#: Code -> mistake.
MISTAKES: dict[str, Mistake] = {mistake.code: mistake for mistake in _ALL}
