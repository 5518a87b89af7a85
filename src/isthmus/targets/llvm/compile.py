"""LLVM IR text to objects and assembly, through llvmlite.

Kernels come vectorised and tiled, so LLVM's vectorisers are off; what is wanted from it is
clean-up (SROA, CSE, LICM), strength reduction, instruction selection and register allocation.
"""

from __future__ import annotations

from functools import lru_cache

import llvmlite.binding as llvm

from isthmus.core.errors import InternalError
from isthmus.core.target import TargetDescription

__all__ = ["assembly", "compile_object", "optimised", "undefined_symbols"]

_SPEED_LEVEL = 2


@lru_cache(maxsize=1)
def _initialise() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


@lru_cache(maxsize=16)
def _machine(triple: str, cpu: str, features: str) -> llvm.TargetMachine:
    _initialise()
    return llvm.Target.from_triple(triple).create_target_machine(
        cpu=cpu, features=features, opt=_SPEED_LEVEL, reloc="pic", codemodel="default"
    )


def _prepared(text: str, target: TargetDescription) -> tuple[llvm.ModuleRef, llvm.TargetMachine]:
    machine = _machine(target.triple, target.cpu, target.features)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
    except RuntimeError as error:
        raise InternalError(f"LLVM refuses the module: {error}", stage="llvm", ir=text) from error
    options = llvm.create_pipeline_tuning_options(speed_level=_SPEED_LEVEL)
    options.loop_vectorization = False
    options.slp_vectorization = False
    options.loop_interleaving = False
    options.loop_unrolling = True
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    return module, machine


def compile_object(text: str, target: TargetDescription) -> bytes:
    """An object file for `target`. Raises InternalError if it would need a library."""
    module, machine = _prepared(text, target)
    code = machine.emit_object(module)
    missing = [name for name in undefined_symbols(code) if name not in _declared(module)]
    if missing:
        raise InternalError(
            f"the object calls {', '.join(missing)}; kernels must not need a library",
            stage="llvm",
            ir=text,
        )
    return code


def assembly(text: str, target: TargetDescription) -> str:
    """The assembly that `compile_object` encodes."""
    module, machine = _prepared(text, target)
    return machine.emit_assembly(module)


def optimised(text: str, target: TargetDescription) -> str:
    """The LLVM IR after optimisation."""
    return str(_prepared(text, target)[0])


def _declared(module: llvm.ModuleRef) -> set[str]:
    return {
        function.name
        for function in module.functions
        if function.is_declaration and not function.name.startswith("llvm.")
    }


def undefined_symbols(code: bytes) -> list[str]:
    """Symbols that an ELF object uses and does not define."""
    if code[:4] != b"\x7fELF":
        return []
    if code[4] != 2 or code[5] != 1:
        raise InternalError("only 64-bit little-endian ELF objects are read", stage="llvm")

    def word(position: int, size: int) -> int:
        return int.from_bytes(code[position : position + size], "little")

    sections, entry_size, count = word(0x28, 8), word(0x3A, 2), word(0x3C, 2)
    names = []
    for index in range(count):
        header = sections + index * entry_size
        if word(header + 4, 4) != 2:  # SHT_SYMTAB
            continue
        offset, size, strings = word(header + 24, 8), word(header + 32, 8), word(header + 40, 4)
        text_at = word(sections + strings * entry_size + 24, 8)
        for symbol in range(offset + 24, offset + size, 24):
            name = word(symbol, 4)
            if name and word(symbol + 6, 2) == 0:  # SHN_UNDEF
                end = code.index(b"\0", text_at + name)
                names.append(code[text_at + name : end].decode())
    return names
