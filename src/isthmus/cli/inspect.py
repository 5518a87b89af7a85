"""Look inside: a kernel's tile IR, nest IR, LLVM IR and assembly; a program's graph and memory.

Examples:

    isthmus inspect examples/softmax.py:softmax_kernel \
        --signature "*f32,*f32,i32,i32" --set BLOCK=1024
    isthmus inspect gpt.json --show graph
    isthmus inspect gpt.json --show memory
    isthmus inspect gpt.json --show kernels
    isthmus inspect --operators
"""

from __future__ import annotations

import argparse
import ast
import json
from typing import Any

from rich.table import Table

from isthmus.cli.console import output_console
from isthmus.cli.programs import find_object, find_program
from isthmus.core.errors import ConfigError
from isthmus.ir.printer import print_function
from isthmus.jit.decorator import JitFunction, default_device
from isthmus.memory.report import plan_report
from isthmus.ops.standard import OPERATORS
from isthmus.program.graph import Graph
from isthmus.program.session import Session

_KERNEL_FORMS = ("tile", "nest", "llvm", "asm", "summary")
_PROGRAM_FORMS = ("graph", "memory", "kernels")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The options of `isthmus inspect`."""
    parser.add_argument("subject", nargs="?", metavar="SUBJECT",
                        help="FILE.py:KERNEL, or a program (default: the bundled GPT)")  # fmt: skip
    parser.add_argument("--show", metavar="FORM",
                        help=f"kernels: {', '.join(_KERNEL_FORMS)} (default: all but asm); "
                        f"programs: {', '.join(_PROGRAM_FORMS)} (default: graph)")  # fmt: skip
    parser.add_argument("--signature", metavar="TYPES",
                        help="types of the run-time parameters in order, such as '*f32,i32'; "
                        "default: *f32 for names that end in _ptr, i32 for others")  # fmt: skip
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE",
                        help="value of a constexpr parameter (default: 64)")  # fmt: skip
    parser.add_argument("--graph", default="train", help="of a program; default: %(default)s")
    parser.add_argument("--operators", action="store_true", help="list the operator standard")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def execute(options: argparse.Namespace) -> int:
    """Print what was asked for."""
    if options.operators:
        return _operators(options)
    if options.subject is not None and ".py:" in options.subject:
        return _kernel(options)
    return _program(options)


def _emit(options: argparse.Namespace, forms: dict[str, str]) -> int:
    if options.json:
        print(json.dumps(forms))  # noqa: T201
        return 0
    console = output_console()
    for name, text in forms.items():
        if len(forms) > 1:
            console.rule(name)
        print(text)  # noqa: T201
    return 0


def _kernel(options: argparse.Namespace) -> int:
    kernel = find_object(options.subject)
    if not isinstance(kernel, JitFunction):
        raise ConfigError(f"{options.subject} is no kernel; decorate it with @isthmus.jit")
    constants = _constants(options.set)
    runtime = [p.name for p in kernel.source.parameters if not p.is_constexpr
               and p.name not in constants]  # fmt: skip
    for parameter in kernel.source.parameters:
        if parameter.is_constexpr:
            constants.setdefault(parameter.name, 64)
    if options.signature:
        types = [text.strip() for text in options.signature.split(",")]
        if len(types) != len(runtime):
            raise ConfigError(
                f"--signature has {len(types)} types; the run-time parameters are "
                f"{', '.join(runtime)}"
            )
    else:
        types = ["*f32" if name.endswith("_ptr") else "i32" for name in runtime]
    attrs = {n: {"noalias": True, "divisibility": 16} for n, t in zip(runtime, types, strict=True)
             if t[0] == "*"}  # fmt: skip
    compiled = kernel.compile(
        dict(zip(runtime, types, strict=True)), constants, attrs, {"allow_any_block_size": True}
    )
    wanted = [options.show] if options.show else ["tile", "nest", "llvm", "summary"]
    unknown = [name for name in wanted if name not in _KERNEL_FORMS]
    if unknown:
        raise ConfigError(f"--show {unknown[0]}: a kernel has {', '.join(_KERNEL_FORMS)}")
    stages = compiled.stages()
    makers = {
        "tile": lambda: print_function(stages.tile),
        "nest": lambda: print_function(stages.lowered.function),
        "llvm": lambda: stages.llvm,
        "asm": stages.assembly,
        "summary": lambda: _summary(stages, compiled),
    }
    return _emit(options, {name: makers[name]() for name in wanted})


def _summary(stages: Any, compiled: Any) -> str:
    text = stages.assembly()
    target = default_device().target
    lines = [
        f"parameters      {', '.join(compiled.entry.parameters)}",
        f"scratch         {compiled.entry.scratch_bytes} bytes per thread",
        f"object          {len(compiled.code)} bytes",
        f"vectors         {target.vector_bits} bits",
        f"calls           {text.count('callq')}",
    ]
    lines += [f"{name:<15} {value}" for name, value in stages.lowered.notes.items()]
    return "\n".join(lines)


def _constants(settings: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for setting in settings:
        name, separator, text = setting.partition("=")
        if not separator:
            raise ConfigError(f"--set {setting}: expected NAME=VALUE")
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            raise ConfigError(f"--set {setting}: {text!r} is no Python literal") from None
    return values


def _program(options: argparse.Namespace) -> int:
    program, _ = find_program(options.subject)
    form = options.show or "graph"
    if form not in _PROGRAM_FORMS:
        raise ConfigError(f"--show {form}: a program has {', '.join(_PROGRAM_FORMS)}")
    graph = program.graph(options.graph)
    if form == "graph":
        return _emit(options, {form: _graph_text(graph)})
    executable = Session(program).prepare(options.graph)
    if form == "memory":
        return _emit(options, {form: plan_report(executable.arena)})
    sources = {kernel.specialisation.source.name: kernel.specialisation.source.text
               for kernel in executable.kernels}  # fmt: skip
    return _emit(options, {form: "\n\n".join(sources.values())})


def _graph_text(graph: Graph) -> str:
    lines = [f"graph {graph.name}"]
    lines += [f"  {e.kind:<7} {e.name}: {e.value.spec}" for e in graph.inputs.values()]
    for node in graph.nodes:
        inputs = ", ".join("-" if v is None else f"%{v.name}" for v in node.inputs)
        outputs = ", ".join(f"%{v.name}: {v.spec}" for v in node.outputs)
        attrs = " ".join(f"{k}={v}" for k, v in node.attrs.items())
        place = f"  # {node.source}" if node.source else ""
        lines.append(f"  {outputs} = {node.op}({inputs}) {attrs}{place}")
    lines += [f"  output {name} = %{value.name}" for name, value in graph.outputs.items()]
    lines += [f"  update {name} = %{value.name}" for name, value in graph.updates.items()]
    return "\n".join(lines)


def _operators(options: argparse.Namespace) -> int:
    if options.json:
        print(json.dumps({name: record.doc for name, record in OPERATORS.items()}))  # noqa: T201
        return 0
    table = Table("operator", "inputs", "attributes", "what it does")
    for name, record in sorted(OPERATORS.items()):
        table.add_row(name, " ".join(record.inputs), " ".join(record.attrs), record.doc)
    output_console().print(table)
    return 0
